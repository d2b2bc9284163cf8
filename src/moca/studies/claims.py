"""The paper's empirical claims, each judged by what a study measured.

The rule, for every claim: one number is measured, with its 95 % interval, and the claim names a region for it, such as
above zero. The claim holds if the whole interval lies within the region. It does not hold if the whole interval lies
outside. Anything else is inconclusive, as is a number without an interval (a single seed). A claim that demands several
things at once holds if each of them does and fails if one of them fails. Where an agent, a noise level or a metric it
speaks of is not in the results, or an agent it speaks of has not learned, it was not measured.

Evaluations are shared by seed: agents with the same seed are evaluated from the same start states and under the same
noise. So two agents are compared seed by seed, and by Welch only where they have no seed in common. What else goes into
the numbers, and what they do not say, is in `CAVEATS`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from moca.studies.results import KEYS
from moca.studies.statistics import Estimate, compared, curve, final_scores, mean_t, steps_to

if TYPE_CHECKING:
    import pandas as pd

HOLDS, FAILS, OPEN, ABSENT = "holds", "does not hold", "inconclusive", "not measured"

NAMES = {
    "sac": "SAC",
    "bnaf": "BNAF",
    "naf": "NAF (tanh)",
    "moca-ce": "MoCA-CE",
    "moca-mc-4": "MoCA-MC (K = 4)",
    "moca-mc-16": "MoCA-MC (K = 16)",
    "moca": "MoCA",
}
CARTPOLE, PENDULUM = "CartpoleBalance", "PendulumSwingup"
BASELINES = {
    CARTPOLE: ("sac", "bnaf", "moca-ce"),
    PENDULUM: ("sac", "bnaf", "moca-ce", "moca-mc-4", "moca-mc-16"),
}
NONE, LOW, HIGH, STRONG, SCALED = "0", "0.025", "0.05", "0.1", "state-norm 0.05"
NOISES = {CARTPOLE: (LOW, HIGH, SCALED), PENDULUM: (LOW, HIGH)}
# From less noise to more: between the paper's two levels, and over all that `degradation` spans.
STEPS_OF_NOISE = {CARTPOLE: ((LOW, HIGH), (NONE, STRONG)), PENDULUM: ((LOW, HIGH),)}

NOMINAL = 0.683  # of a normal distribution within one standard deviation
MARGIN = 0.05  # of coverage, and of the greatest possible return where two agents are to be alike [choice]
REACHED = 0.9  # of the best agent's final return [choice]
SETTLED = 0.1  # of its level [choice]

POSITIVE, NEGATIVE = (0.0, np.inf), (-np.inf, 0.0)

CAVEATS = """\
- A final return is the mean over the last tenth of training. Intervals are Student's t at 95 %.
- Evaluations are shared by seed: agents with the same seed meet the same start states and noise. Two agents are compared by their differences seed by seed, over the seeds that both have; Welch's interval serves where they share none.
- What noise costs, what slows an agent, how steady it is and whether two are alike is judged only where they have learned: its final return lies above that of its first evaluation. Where two noise levels are compared this is asked at the lower one.
- How steady an agent is: how far its seeds' final returns lie from their median, on average (the Brown-Forsythe comparison, which asks for no normal scores).
- How fast: the steps until three evaluations in a row average 90 % of the best agent's final return. A run that never gets there counts with all its steps, so the slower agent comes off too well. Where neither of two agents gets there in half of its seeds, nothing is concluded.
- The best baseline is the one with the highest mean at that noise level; that it was picked after the fact is not in the interval.
- Figures are rounded for reading; the verdicts are not made from the rounded ones.
- Coverage is of what was observed of the next state. Under `tuned` a filter is told the noise of the observations, and that is most of the predicted deviation; under `paper` the model has learned it.
- Runs that diverged have no final return and are left out, which flatters an agent that diverges. Where some are missing it is said how many are left.
- The paper's noise levels are 0.025, 0.05 and state-norm 0.05. What is said of none → 0.1 puts its statements on noise to a wider range.
- A cell that several studies have run counts once, as in the first: σ 0.025 and 0.05 on Cartpole are those of `cartpole`, and `degradation` has them a second time.
- No interval is widened for the number of claims: of a hundred comparisons between equals chance decides five.
"""  # noqa: E501


class Verdict(NamedTuple):
    """What a study says of a claim, under one preset."""

    claim: str
    statement: str
    rule: str  # the number and the region it must lie in
    task: str
    noise: str
    preset: str
    measured: str
    value: float
    low: float
    high: float
    verdict: str


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, in our words, and how it is judged."""

    name: str
    statement: str
    task: str
    noise: str
    quantity: str
    region: tuple[float, float]
    measure: Callable[["_Cells"], Sequence[Estimate]]
    text: Callable[["_Cells", str], str] | None = None  # of the estimate in words, in its place

    @property
    def rule(self) -> str:
        """The quantity and its region."""
        low, high = self.region
        if np.isinf(low):
            return f"{self.quantity} < {high:g}"
        return f"{self.quantity} > {low:g}" if np.isinf(high) else f"{low:g} < {self.quantity} < {high:g}"


def judge(table: "pd.DataFrame") -> list[Verdict]:
    """A verdict for every claim about the tasks in the table and every preset in it.

    Args:
        table: as `load_results` gives it, or several of them on top of each other; where the same evaluation is in
            more than one the first counts.
    """
    table = table.drop_duplicates(list(KEYS))
    tasks, presets = table["env"].unique(), table["preset"].unique()
    cells = {(preset, task): _Cells(table, preset, task) for preset, task in product(presets, tasks)}
    return [
        _verdict(claim, cells[preset, claim.task], preset)
        for claim in CLAIMS
        if claim.task in tasks
        for preset in presets
    ]


def to_markdown(verdicts: Sequence[Verdict]) -> str:
    """The verdicts as a table: a row for each claim, task and noise, a column for each preset."""
    presets = list(dict.fromkeys(verdict.preset for verdict in verdicts))
    rows: dict[tuple[str, str, str], dict[str, Verdict]] = {}
    for verdict in verdicts:
        rows.setdefault((verdict.claim, verdict.task, verdict.noise), {})[verdict.preset] = verdict
    lines = [f"| {' | '.join(('claim', 'judged by', 'task', 'noise', *presets))} |", "|---" * (4 + len(presets)) + "|"]
    for (_, task, noise), row in rows.items():
        first = next(iter(row.values()))
        found = [f"**{row[p].verdict}** {row[p].measured}".strip() if p in row else "" for p in presets]
        lines.append(f"| {' | '.join((first.statement, first.rule, task, noise, *found))} |")
    return "\n".join(lines) + "\n"


def _verdict(claim: Claim, cells: "_Cells", preset: str) -> Verdict:
    try:
        estimates = claim.measure(cells)
    except _AbsentError as reason:
        return _told(claim, preset, Estimate(np.nan, np.nan, np.nan, 0, 0), str(reason), ABSENT)
    shown, verdict = _decided(estimates, *claim.region)
    measured = shown.brief
    return _told(claim, preset, shown, claim.text(cells, measured) if claim.text else measured, verdict)


def _told(claim: Claim, preset: str, shown: Estimate, measured: str, verdict: str) -> Verdict:
    keys = (claim.name, claim.statement, claim.rule, claim.task, claim.noise, preset)
    return Verdict(*keys, measured, *shown[:3], verdict)


def _decided(estimates: Sequence[Estimate], low: float, high: float) -> tuple[Estimate, str]:
    """The estimate that decides, of those the one that speaks most against the claim, and the verdict."""
    outside = [e for e in estimates if e.high < low or high < e.low]
    unsure = [e for e in estimates if not (low < e.low and e.high < high)]
    verdict = FAILS if outside else OPEN if unsure else HOLDS
    deciding = outside or unsure or estimates
    against = lambda e: min(e.value - low, high - e.value) if np.isfinite(e.value) else -np.inf  # noqa: E731
    return min(deciding, key=against), verdict


class _AbsentError(Exception):
    """The results do not have what a claim speaks of; the message is for the reader, if it has one."""


class _Cells:
    """The cells of one task under one preset; each gives a number for every seed."""

    def __init__(self, table: "pd.DataFrame", preset: str, task: str) -> None:
        self.key, self.task = (preset, task), task
        self.table = table[(table["preset"] == preset) & (table["env"] == task)]
        self.seeds = {key: np.sort(each.unique()) for key, each in self.table.groupby(["agent", "noise"])["seed"]}
        self._finals: dict[tuple[str, float], pd.DataFrame] = {}
        self._curves: dict[tuple[str, str, str], tuple[np.ndarray, np.ndarray]] = {}

    def final(self, agent: str, noise: str, metric: str = "return_mean", last: float = 0.1) -> "pd.Series":
        """The mean of a metric over the end of training."""
        if metric not in self.table:
            raise _AbsentError
        if (metric, last) not in self._finals:
            self._finals[metric, last] = final_scores(self.table, metric, last)
        scores = self._finals[metric, last]
        if (*self.key, agent, noise) not in scores.index:
            raise _AbsentError
        return scores.loc[(*self.key, agent, noise)][self.seeds[agent, noise]]  # another study may have other seeds

    def curve(self, agent: str, noise: str, metric: str = "return_mean") -> tuple[np.ndarray, np.ndarray]:
        """The steps of the evaluations, and the metric as (steps, seeds)."""
        key = (agent, noise, metric)
        if key not in self._curves:
            self.final(*key)
            self._curves[key] = curve(self.table, *self.key, *key)
        return self._curves[key]

    def steps_to(self, agent: str, noise: str, threshold: float) -> "pd.Series":
        """The steps until the return is reached, infinite where it never is."""
        import pandas as pd

        return pd.Series(steps_to(*self.curve(agent, noise), threshold), index=self.seeds[agent, noise])

    def all_steps(self, agent: str, noise: str) -> int:
        """The steps of the whole training."""
        return int(self.curve(agent, noise)[0][-1])

    def best(self, noise: str) -> float:
        """The highest mean final return of the agents there are, or an error if there is none."""
        agents = [agent for agent in ("moca", *BASELINES[self.task]) if (agent, noise) in self.seeds]
        means = [mean_t(self.final(agent, noise)).value for agent in agents]
        if not np.isfinite(means).any():
            raise _AbsentError
        return float(np.nanmax(means))

    def best_baseline(self, noise: str) -> "pd.Series":
        """The final returns of the baseline whose mean is highest."""
        finals = [self.final(agent, noise) for agent in BASELINES[self.task]]
        return max(finals, key=lambda final: np.nan_to_num(mean_t(final).value, nan=-np.inf))


def _above(
    cells: _Cells, ours: str, theirs: str, noise: str, metric: str = "return_mean", last: float = 0.1
) -> list[Estimate]:
    return [compared(*(cells.final(agent, noise, metric, last) for agent in (ours, theirs)))]


def _change(cells: _Cells, agent: str, before: str, after: str) -> "pd.Series":
    return cells.final(agent, after) - cells.final(agent, before)


def _changes(cells: _Cells, agent: str, before: str, after: str) -> list[Estimate]:
    changes = [mean_t(_change(cells, agent, before, after))]
    _demand_learned(cells, before, agent)
    return changes


def _falls_less(cells: _Cells, agent: str, before: str, after: str) -> list[Estimate]:
    changes = [_change(cells, each, before, after) for each in ("moca", agent)]
    _demand_learned(cells, before, "moca", agent)
    return [compared(*changes)]


def _alike(cells: _Cells, ours: str, theirs: str, noise: str) -> list[Estimate]:
    difference = _above(cells, ours, theirs, noise)
    _demand_learned(cells, noise, ours, theirs)  # two that fail are alike in that alone
    return difference


def _gap_widens(cells: _Cells, before: str, after: str) -> list[Estimate]:
    """Of what is no lead nothing grows. Which baseline is best is taken from the means of each level, and as given."""
    low, high = (cells.best_baseline(noise) for noise in (before, after))
    return [compared(_change(cells, "moca", before, after), high - low), compared(cells.final("moca", after), high)]


def _learns(cells: _Cells, agent: str, noise: str) -> list[Estimate]:
    return [mean_t(cells.final(agent, noise) - cells.curve(agent, noise)[1][0])]


def _demand_learned(cells: _Cells, noise: str, *agents: str) -> None:
    """An error where an agent has not learned; too few seeds to tell do not conclude anything anyway."""
    for agent in agents:
        (rise,) = _learns(cells, agent, noise)
        if rise.low <= 0:
            raise _AbsentError(f"{NAMES[agent]} has not learned")


def _steadier(cells: _Cells, agent: str, noise: str) -> list[Estimate]:
    ours, theirs = (cells.final(each, noise) for each in ("moca", agent))
    _demand_learned(cells, noise, "moca", agent)
    return [compared((ours - ours.median()).abs(), (theirs - theirs.median()).abs())]


def _steps_of_both(cells: _Cells, agent: str, noise: str) -> list["pd.Series"]:
    threshold = REACHED * cells.best(noise)
    return [cells.steps_to(each, noise, threshold) for each in ("moca", agent)]


def _faster(cells: _Cells, agent: str, noise: str) -> list[Estimate]:
    both = _steps_of_both(cells, agent, noise)
    if all(np.isfinite(steps).mean() < 0.5 for steps in both):
        raise _AbsentError(f"neither gets there ({', '.join(map(_reached, both))})")
    ours, theirs = (
        steps.clip(upper=cells.all_steps(each, noise)) for steps, each in zip(both, ("moca", agent), strict=True)
    )
    return [compared(ours, theirs)]


def _who_got_there(cells: _Cells, measured: str, agent: str, noise: str) -> str:
    ours, theirs = map(_reached, _steps_of_both(cells, agent, noise))
    return f"{measured}, reached by {ours} against {theirs}"


def _reached(steps: "pd.Series") -> str:
    return f"{np.isfinite(steps).sum()} of {len(steps)}"


def _slows(cells: _Cells, agent: str) -> list[Estimate]:
    threshold = REACHED * mean_t(cells.final(agent, LOW)).value
    low, high = (cells.steps_to(agent, n, threshold).clip(upper=cells.all_steps(agent, n)) for n in (LOW, HIGH))
    _demand_learned(cells, LOW, agent)
    return [mean_t(high - low)]


def _average(cells: _Cells, agent: str, noise: str, metric: str, last: float) -> list[Estimate]:
    return [mean_t(cells.final(agent, noise, metric, last))]


def _throughout(cells: _Cells, noise: str) -> list[Estimate]:
    return [mean_t(each) for each in cells.curve("moca", noise, "coverage_1sigma")[1]]


def _settles(cells: _Cells, noise: str) -> list[Estimate]:
    """How far a line through the last fifth of training moves, up or down, as a share of the mean there."""
    steps, values = cells.curve("moca", noise, "epistemic_std")
    last = steps > 0.8 * steps[-1]
    if last.sum() < 2:
        raise _AbsentError
    centred = steps[last] - steps[last].mean()
    changes = centred @ values[last] / (centred @ centred) * 0.2 * steps[-1]
    return [mean_t(changes / np.maximum(values[last].mean(axis=0), np.finfo(float).tiny))]


def _ordering(cells: _Cells, noise: str) -> list[Estimate]:
    pairs = [("moca", agent) for agent in BASELINES[cells.task]]
    if cells.task == PENDULUM:
        pairs.append(("moca-mc-16", "moca-mc-4"))
    return [estimate for pair in pairs for estimate in _above(cells, *pair, noise)]


def _ranking(cells: _Cells, _: str, noise: str) -> str:
    means = {agent: mean_t(cells.final(agent, noise)).value for agent in ("moca", *BASELINES[cells.task])}
    ranked = sorted(means, key=lambda agent: -np.nan_to_num(means[agent], nan=-np.inf))
    return " > ".join(f"{NAMES[agent]} {means[agent]:.0f}" for agent in ranked)


def _claims() -> Iterator[Claim]:
    for task, noises in NOISES.items():
        yield from (_ordering_claim(task, noise) for noise in noises)
        for comparison, agent, noise in product(
            (_higher_claim, _faster_claim, _steadier_claim), BASELINES[task], noises
        ):
            yield comparison(task, agent, noise)
        for before, after in STEPS_OF_NOISE[task]:
            for agent in BASELINES[task]:
                yield from _degradation(task, agent, before, after)
            yield Claim(
                "gap-widens",
                "MoCA's lead over the best baseline grows with the noise",
                task,
                _from_to(before, after),
                f"both the change of the lead and the lead at {after}",
                POSITIVE,
                partial(_gap_widens, before=before, after=after),
            )
        yield from _cartpole() if task == CARTPOLE else _pendulum()
        yield from (_saturation_claim(task, noise) for noise in noises)


def _ordering_claim(task: str, noise: str) -> Claim:
    return Claim(
        "ordering",
        "overall: MoCA is first" + (", and more samples are better" if task == PENDULUM else ""),
        task,
        noise,
        "every difference of final returns",
        POSITIVE,
        partial(_ordering, noise=noise),
        partial(_ranking, noise=noise),
    )


def _higher_claim(task: str, agent: str, noise: str) -> Claim:
    return Claim(
        f"above-{agent}",
        f"MoCA ends higher than {NAMES[agent]}",
        task,
        noise,
        "difference of final returns",
        POSITIVE,
        partial(_above, ours="moca", theirs=agent, noise=noise),
    )


def _faster_claim(task: str, agent: str, noise: str) -> Claim:
    return Claim(
        f"faster-than-{agent}",
        f"MoCA learns faster than {NAMES[agent]}",
        task,
        noise,
        "difference of the steps to 90 % of the best final return",
        NEGATIVE,
        partial(_faster, agent=agent, noise=noise),
        partial(_who_got_there, agent=agent, noise=noise),
    )


def _steadier_claim(task: str, agent: str, noise: str) -> Claim:
    return Claim(
        f"steadier-than-{agent}",
        f"MoCA's seeds differ less than those of {NAMES[agent]}",
        task,
        noise,
        "difference of the mean distances from the median seed",
        NEGATIVE,
        partial(_steadier, agent=agent, noise=noise),
    )


def _saturation_claim(task: str, noise: str) -> Claim:
    return Claim(
        "less-saturated",
        "BNAF's greedy actions lie at the bounds less often than those of a NAF squashed by tanh",
        task,
        noise,
        "difference of the shares",
        NEGATIVE,
        partial(_above, ours="bnaf", theirs="naf", noise=noise, metric="saturation"),
    )


def _from_to(before: str, after: str) -> str:
    return f"{'none' if before == NONE else before} → {after}"


def _degradation(task: str, agent: str, before: str, after: str) -> Iterator[Claim]:
    noise = _from_to(before, after)
    yield Claim(
        f"falls-{agent}",
        f"more noise costs {NAMES[agent]} return",
        task,
        noise,
        "change of the final return",
        NEGATIVE,
        partial(_changes, agent=agent, before=before, after=after),
    )
    yield Claim(
        f"falls-less-than-{agent}",
        f"more noise costs MoCA less than {NAMES[agent]}",
        task,
        noise,
        "difference of the changes",
        POSITIVE,
        partial(_falls_less, agent=agent, before=before, after=after),
    )


def _cartpole() -> Iterator[Claim]:
    yield Claim(
        "ce-like-bnaf",
        "MoCA-CE and BNAF end alike",
        CARTPOLE,
        LOW,
        "difference of final returns",
        (-1000 * MARGIN, 1000 * MARGIN),
        partial(_alike, ours="moca-ce", theirs="bnaf", noise=LOW),
    )
    for agent in ("moca", *BASELINES[CARTPOLE]):
        yield Claim(
            f"learns-{agent}",
            f"{NAMES[agent]} learns",
            CARTPOLE,
            LOW,
            "final return less that of the first evaluation",
            POSITIVE,
            partial(_learns, agent=agent, noise=LOW),
        )
    for agent in BASELINES[CARTPOLE]:
        yield Claim(
            f"slows-{agent}",
            f"more noise slows {NAMES[agent]}",
            CARTPOLE,
            _from_to(LOW, HIGH),
            f"change of the steps to 90 % of its own final return at {LOW}",
            POSITIVE,
            partial(_slows, agent=agent),
        )
    for agent, noise in (("sac", LOW), ("bnaf", LOW), *((agent, SCALED) for agent in BASELINES[CARTPOLE])):
        yield Claim(
            f"reduced-{agent}",
            f"noise costs {NAMES[agent]} return",
            CARTPOLE,
            _from_to(NONE, noise),
            "change of the final return",
            NEGATIVE,
            partial(_changes, agent=agent, before=NONE, after=noise),
        )


def _pendulum() -> Iterator[Claim]:
    few, many = "moca-mc-4", "moca-mc-16"
    near = (NOMINAL - MARGIN, NOMINAL + MARGIN)
    noises = NOISES[PENDULUM]
    for noise in noises:
        yield Claim(
            "samples-help",
            "16 samples end higher than 4",
            PENDULUM,
            noise,
            "difference of final returns",
            POSITIVE,
            partial(_above, ours=many, theirs=few, noise=noise),
        )
    for agent, noise in product((few, many), noises):
        yield Claim(
            f"targets-vary-{agent}",
            f"the targets of {NAMES[agent]} have a variance",
            PENDULUM,
            noise,
            "variance, averaged over training,",
            POSITIVE,
            partial(_average, agent=agent, noise=noise, metric="target_variance", last=1.0),
        )
    for noise in noises:
        yield Claim(
            "variance-falls",
            "16 samples make targets vary less than 4",
            PENDULUM,
            noise,
            "difference of the variances",
            NEGATIVE,
            partial(_above, ours=many, theirs=few, noise=noise, metric="target_variance", last=1.0),
        )
    for noise in noises:
        yield Claim(
            "calibrated",
            "in the second half of training MoCA's 1σ interval holds about as many outcomes as it should",
            PENDULUM,
            noise,
            "coverage",
            near,
            partial(_average, agent="moca", noise=noise, metric="coverage_1sigma", last=0.5),
        )
    for noise in noises:
        yield Claim(
            "calibrated-throughout",
            "MoCA's 1σ interval does so at every evaluation",
            PENDULUM,
            noise,
            "coverage where it is farthest off",
            near,
            partial(_throughout, noise=noise),
        )
    for noise in noises:
        yield Claim(
            "epistemic-settles",
            "the disagreement of MoCA's ensemble settles",
            PENDULUM,
            noise,
            "its change in the last fifth of training, as a share of its level there,",
            (-SETTLED, SETTLED),
            partial(_settles, noise=noise),
        )


CLAIMS = tuple(_claims())
