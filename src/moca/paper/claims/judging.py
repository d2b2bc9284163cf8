"""Judging: verdicts on the paper's claims from tables of results."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from moca import presets
from moca.config import ConfigError
from moca.looks import label
from moca.paper.claims import rules
from moca.paper.claims.rules import ABSENT, EQUAL, HOLDS, REFUTED, UNDECIDED, Comparison, Tested
from moca.paper.claims.scores import NOT_RUN, NOTHING, AbsentError, Scores
from moca.paper.claims.statements import Claim, Difference, Region, Side, claims
from moca.paper.tasks import CARTPOLE, PENDULUM, TASKS
from moca.studies import statistics
from moca.studies.grid import by_rank
from moca.studies.statistics import Estimate

if TYPE_CHECKING:
    import pandas as pd

DELTA = {CARTPOLE: 20.0, PENDULUM: 40.0}  # the smallest difference in return that matters [choice]
DELTA_STEPS = 0.1  # fraction of all training steps
DELTA_SHARE = 0.1  # fraction of seeds
OF_RETURN = ("final", "area", "peak", "drop", "spread")


class Verdict(NamedTuple):
    """The verdict on a claim under one preset.

    For a claim of several parts, the numbers are those of the decisive part. `p` and `p_equal` are
    corrected. `measured` is for a row with the noise; `reason` says why nothing was measured where
    many claims are counted.
    """

    claim: str
    statement: str
    rule: str
    task: str
    noise: str
    preset: str
    measured: str
    value: float
    low: float
    high: float
    verdict: str
    delta: float = np.nan
    p: float = np.nan
    p_equal: float = np.nan
    beyond: bool = False
    reason: str = ""


class Part(NamedTuple):
    """The findings on one part of a claim."""

    verdict: str
    estimate: Estimate
    text: str
    delta: float = np.nan
    p: float = np.nan
    p_equal: float = np.nan
    margin: float = np.inf  # distance to the claimed side; among parts with equal verdicts the smallest decides


_NO_ESTIMATE = Estimate(np.nan, np.nan, np.nan, 0, 0)
_Key = tuple[str, Side, Side]


def judge(
    tables: "pd.DataFrame | Sequence[pd.DataFrame]",
    nothing: Mapping[str, float] = NOTHING,
    only: Collection[tuple[str, str]] | None = None,
) -> list[Verdict]:
    """Returns a verdict for every claim about the tasks in the tables, under every preset in them.

    Args:
        tables: Tables from `load_results`, one per study, or a single one. A cell in several
            studies, or duplicate rows, count as repetitions: the scores of a seed are averaged.
        nothing: The return of doing nothing for each task.
        only: Names and noises of the claims to judge; the others do not count for corrections.
    """
    import pandas as pd

    given = [tables] if isinstance(tables, pd.DataFrame) else list(tables)
    evaluation = ["preset", "env", "agent", "noise", "seed", "step"]
    # Each table without its duplicate rows, and tables of these.
    studies = [rows for table in given for _, rows in table.groupby(table.groupby(evaluation).cumcount())]
    cells = (table[["env", "agent", "noise"]].drop_duplicates() for table in studies)
    known = {cell for each in cells for cell in each.itertuples(index=False, name=None)}
    listed = [claim for claim in claims(known) if only is None or (claim.name, claim.noise) in only]
    found = dict.fromkeys(name for table in studies for name in table["preset"].unique())
    judged = []
    for preset in by_rank(found):
        tasks = dict.fromkeys(claim.task for claim in listed)
        scores = {task: Scores(studies, preset, task, nothing) for task in tasks}
        judged.append(_Preset(preset, scores, listed).verdicts())
    return [verdict for row in zip(*judged, strict=True) for verdict in row]


@dataclass
class _Compared:
    """A comparison with the text shown to readers, and its p-values once known."""

    comparison: Comparison
    estimate: Estimate
    text: str
    corrected: Tested | None = None


class _Preset:
    """All claims under one preset.

    A comparison shared by claims is tested, and counted by Holm, once.
    """

    def __init__(self, preset: str, scores: Mapping[str, Scores], listed: Sequence[Claim]) -> None:
        self.preset, self.scores, self.listed = preset, scores, listed
        self.reasons: dict[tuple[str, Difference | Region], str] = {}
        self.compared: dict[_Key, _Compared] = {}
        self.regions: dict[tuple[str, Region], list[np.ndarray]] = {}
        self.region_p: dict[tuple[str, Region], np.ndarray] = {}

    def verdicts(self) -> list[Verdict]:
        """Returns the verdict on every claim."""
        for claim in self.listed:
            for part in claim.parts:
                self._measure(claim, part)
        compared = list(self.compared.values())
        corrected = rules.correct([each.comparison for each in compared])
        for each, tested in zip(compared, corrected, strict=True):
            each.corrected = tested
        self._correct_regions()
        return [self._verdict(claim) for claim in self.listed]

    def _measure(self, claim: Claim, part: Difference | Region) -> None:
        scores = self.scores[claim.task]
        try:
            if claim.constant_rates and _rates_fall(self.preset, claim.task):
                raise AbsentError("learning rates fall")
            for agent, noise in part.gate:
                _side(scores, Side(agent, noise))
                if not scores.learned(agent, noise):
                    raise AbsentError(f"{label(agent)} has not learned")
            if isinstance(part, Difference):
                self.compared[claim.task, part.ours, part.theirs] = _compared(scores, part)
            else:
                self.regions[claim.task, part] = _region_values(scores, part)
        except AbsentError as reason:
            self.reasons[claim.task, part] = str(reason)

    def _correct_regions(self) -> None:
        raw = [[rules.region_p(each, part.low, part.high) for each in v] for (_, part), v in self.regions.items()]
        corrected = rules.holm(np.concatenate([*map(np.asarray, raw), np.empty(0)]))
        ends = np.cumsum([len(each) for each in raw])
        for key, p in zip(self.regions, np.split(corrected, ends[:-1]) if len(ends) else [], strict=True):
            self.region_p[key] = p

    def _verdict(self, claim: Claim) -> Verdict:
        parts = [found for part in claim.parts for found in self._judged(claim, part)]
        verdict = rules.together([part.verdict for part in parts])
        part = _deciding(parts)
        text = part.text
        if claim.shown == "ranking" and verdict != ABSENT:
            text = _ranking(self.scores[claim.task], claim)
        keys = (claim.name, claim.statement, claim.rule, claim.task, claim.noise, self.preset)
        numbers = (part.delta, part.p, part.p_equal)
        measured, reason = text.replace(NOT_RUN, "not run"), text if verdict == ABSENT else ""
        return Verdict(*keys, measured, *part.estimate[:3], verdict, *numbers, claim.beyond, reason)

    def _judged(self, claim: Claim, part: Difference | Region) -> list[Part]:
        if (claim.task, part) in self.reasons:
            return [Part(ABSENT, _NO_ESTIMATE, self.reasons[claim.task, part])]
        if isinstance(part, Difference):
            return [_judged_difference(self.compared[claim.task, part.ours, part.theirs], part, claim.alike)]
        found = []
        for values, p in zip(self.regions[claim.task, part], self.region_p[claim.task, part], strict=True):
            estimate = statistics.mean_t(values)
            verdict = rules.verdict_on_region(estimate.value, part.low, part.high, p)
            margin = min(estimate.value - part.low, part.high - estimate.value)
            found.append(Part(verdict, estimate, estimate.brief, p=float(p), margin=margin))
        return found


def _judged_difference(compared: _Compared, part: Difference, alike: bool) -> Part:
    assert compared.corrected is not None
    comparison, (p, p_equal, _) = compared.comparison, compared.corrected
    difference, delta = comparison.difference, comparison.delta
    verdict = rules.verdict_on(difference, part.sign, delta, p, p_equal)
    margin = part.sign * difference / (delta or 1)
    return Part(rules.alike(verdict) if alike else verdict, compared.estimate, compared.text, delta, p, p_equal, margin)


def _deciding(parts: Sequence[Part]) -> Part:
    """Returns the part that contradicts the claim most."""
    for verdicts in ((REFUTED, EQUAL), (ABSENT,), (UNDECIDED,), (HOLDS,)):
        if found := [part for part in parts if part.verdict in verdicts]:
            return min(found, key=lambda part: part.margin)
    raise AssertionError(f"no verdict among {parts}")


def _side(scores: Scores, side: Side) -> "pd.Series":
    """Returns the scores of a side, by seed."""
    try:
        found = scores.of(side.agent, side.noise, side.score)
        if side.before:
            found = (found - scores.of(side.agent, side.before, side.score)).dropna()
    except AbsentError as reason:
        raise AbsentError(f"{label(side.agent)}: {reason}") from None
    if found.empty:
        raise AbsentError(f"{label(side.agent)}: no seeds")
    return found


def _compared(scores: Scores, part: Difference) -> _Compared:
    sides = (part.ours, part.theirs)
    series = [_side(scores, side) for side in sides]
    paired = scores.task == PENDULUM
    score = part.ours.score
    if score == "stuck" or _bimodal(scores, part):
        if score != "stuck":
            series = [scores.solved(side.agent, side.noise) for side in sides]
        counts = [f"{int(each.sum())} of {each.size}" for each in series]
        difference = float(series[0].mean() - series[1].mean())
        estimate = Estimate(difference, np.nan, np.nan, *2 * (sum(each.size for each in series),))
        text = f"{'stuck' if score == 'stuck' else 'solved'} {counts[0]} against {counts[1]}"
        return _Compared(_comparison(series, DELTA_SHARE, counted=True), estimate, text)
    if paired:
        seeds = series[0].index.intersection(series[1].index)
        if seeds.empty:
            raise AbsentError("no seed in common")
        series = [each[seeds] for each in series]
    estimate = (statistics.paired if paired else statistics.difference)(*(each.to_numpy() for each in series))
    text = estimate.brief
    if score.startswith("steps"):
        text += f", reached by {_reached(scores, sides)}"
    return _Compared(_comparison(series, _delta(scores, part.ours), paired), estimate, text)


def _comparison(series: Sequence["pd.Series"], delta: float, paired: bool = False, counted: bool = False) -> Comparison:
    return Comparison(series[0].to_numpy(), series[1].to_numpy(), delta, paired, counted)


def _bimodal(scores: Scores, part: Difference) -> bool:
    """Returns True if solved seeds are counted instead of averaging final returns."""
    sides = (part.ours, part.theirs)
    final = all(side.score == "final" and not side.before for side in sides)
    return final and any(TASKS[scores.task].splits(scores.of(side.agent, side.noise, "final")) for side in sides)


def _delta(scores: Scores, side: Side) -> float:
    if side.score.startswith("steps"):
        return DELTA_STEPS * scores.all_steps(side.agent, side.noise)
    return DELTA[scores.task] if side.score in OF_RETURN else 0.0


def _reached(scores: Scores, sides: Sequence[Side]) -> str:
    """Returns `10 of 10 against 3 of 10`.

    Raises if neither side reaches it in half of its seeds.
    """
    shares = [scores.reached(side.agent, side.noise, side.score) for side in sides]
    sizes = [scores.of(side.agent, side.noise, side.score).size for side in sides]
    counts = [f"{round(share * size, 1):g} of {size}" for share, size in zip(shares, sizes, strict=True)]
    if max(shares) < 0.5:
        raise AbsentError(f"neither gets there ({counts[0]}, {counts[1]})")
    return f"{counts[0]} against {counts[1]}"


def _region_values(scores: Scores, part: Region) -> list[np.ndarray]:
    """Returns one array of scores per test: one in total, or one per evaluation."""
    side = part.side
    _side(scores, side)
    if part.kind == "every":
        rows = scores.every(side.agent, side.noise, side.score).to_numpy()
        return [row[~np.isnan(row)] for row in rows if not np.isnan(row).all()]
    if part.kind == "change":
        return [scores.change(side.agent, side.noise, side.score).to_numpy()]
    return [scores.of(side.agent, side.noise, side.score).to_numpy()]


def _ranking(scores: Scores, claim: Claim) -> str:
    sides = (side for part in claim.parts if isinstance(part, Difference) for side in (part.ours, part.theirs))
    agents = dict.fromkeys(side.agent for side in sides)
    means = {}
    for agent in agents:
        if (agent, claim.noise) in scores.cells:
            means[agent] = float(scores.of(agent, claim.noise, "final").mean())
    ranked = sorted(means, key=lambda agent: -means[agent])
    return " > ".join(f"{label(agent)} {means[agent]:.0f}" for agent in ranked)


def _rates_fall(preset: str, task: str) -> bool:
    """Returns True if learning rates decay under the preset.

    Unknown presets have constant rates.
    """
    try:
        return presets.build(preset, task, {}).train.decay < 1
    except ConfigError:
        return False
