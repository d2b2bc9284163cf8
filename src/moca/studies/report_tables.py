"""The tables of a report: final scores, improvement, speed, diagnostics."""

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from moca.paper import claims
from moca.paper.claims.scores import SOLVED
from moca.studies import statistics
from moca.studies.report_charts import metric_of, name_of, noise_label
from moca.studies.report_markup import boxed, decimals, heads, number, plus_minus, row_head

if TYPE_CHECKING:
    import pandas as pd

FEW = 5  # runs of an agent: with fewer, draws anew from them say nothing
DIAGNOSTICS = (
    "coverage_1sigma", "epistemic_std", "aleatoric_std", "ce_bias", "overestimation", "target_variance", "target_bias",
    "value_noise_variance", "q_mean", "saturation",
)  # fmt: skip


def scores(table: "pd.DataFrame") -> str:
    """A table per preset and task: agents down, noise levels across."""
    scores = statistics.final_scores(table)
    parts = [
        '<p class="note">Return over the last tenth of training: the mean over seeds, then the interquartile mean. '
        "Bold: better than every other agent in the column, each 95 % interval of the difference being above zero.</p>"
    ]
    for (preset, env), block in scores.groupby(level=["preset", "env"], sort=False):
        agents, noises = (list(block.index.unique(level)) for level in ("agent", "noise"))
        each = {(row[2], row[3]): block.loc[row] for row in block.index}
        bold = {
            best for noise in noises if (best := _best({a: s for (a, n), s in each.items() if n == noise}, noise, env))
        }
        places = decimals(block.to_numpy())
        head = [
            '<th scope="col" rowspan="2">agent</th>'
            + "".join(f'<th scope="colgroup" colspan="2">{escape(noise_label(noise))}</th>' for noise in noises),
            '<th scope="col">mean</th><th scope="col">IQM</th>' * len(noises),
        ]
        rows = [
            row_head(name_of(agent))
            + "".join(_score(each.get((agent, noise)), places, (agent, noise) in bold, env) for noise in noises)
            for agent in agents
        ]
        parts.append(boxed(f"{env}, preset {preset}", head, rows, "numbers"))
    return "".join(parts)


def improvements(table: "pd.DataFrame") -> str:
    """How likely MoCA scores above each other agent: a table per preset and task that has both, else nothing."""
    parts = []
    for (preset, env), block in statistics.final_scores(table).groupby(level=["preset", "env"], sort=False):
        each = {(row[2], row[3]): block.loc[row] for row in block.index}
        agents, noises = (list(block.index.unique(level)) for level in ("agent", "noise"))
        others = [agent for agent in agents if agent != "moca"]
        if "moca" not in agents or not others:
            continue
        rows = [
            row_head(name_of(other))
            + "".join(_probability(each.get(("moca", noise)), each.get((other, noise))) for noise in noises)
            for other in others
        ]
        parts.append(boxed(f"P(MoCA > agent): {env}, preset {preset}", _by_noise(noises), rows, "numbers"))
    if not parts:
        return ""
    note = (
        '<h3>Probability of improvement</h3><p class="note">That a run of MoCA, drawn at random, ends above one of the '
        f"other agent; a tie counts half, and a run that diverged loses. With fewer than {FEW} runs of either it is "
        "not given.</p>"
    )
    return note + "".join(parts)


def _probability(ours: "pd.Series | None", theirs: "pd.Series | None") -> str:
    if ours is None or theirs is None:
        return "<td>–</td>"
    if min(ours.size, theirs.size) < FEW:
        return "<td>too few runs</td>"
    found = statistics.improvement(ours, theirs)
    if found.low == found.high:  # every run of one beats every run of the other: no draws can tell how sure that is
        return f'<td>{number(found.value, 2)}<span class="note">{"all" if found.value else "no"} pairs</span></td>'
    interval = f" [{number(found.low, 2)}, {number(found.high, 2)}]" if math.isfinite(found.low) else ""
    return f"<td>{number(found.value, 2)}{interval}</td>"


def speeds(table: "pd.DataFrame") -> str:
    """How soon each agent is good: a table per preset and task that has MoCA, else nothing."""
    parts = []
    for (preset, env), block in statistics.final_scores(table).groupby(level=["preset", "env"], sort=False):
        agents, noises = (list(block.index.unique(level)) for level in ("agent", "noise"))
        if "moca" not in agents:
            continue
        columns = []
        for noise in noises:
            here = [row[2] for row in block.index if row[3] == noise]
            means = [statistics.mean_t(block.loc[preset, env, agent, noise]).value for agent in here]
            threshold = claims.REACHED * max((mean for mean in means if math.isfinite(mean)), default=math.nan)
            curves = {agent: statistics.curve(table, preset, env, agent, noise) for agent in here}
            columns.append({agent: statistics.steps_to(*each, threshold) for agent, each in curves.items()})
        rows = [row_head(name_of(agent)) + "".join(_speed(column.get(agent)) for column in columns) for agent in agents]
        parts.append(boxed(f"Steps to 90 % of the best: {env}, preset {preset}", _by_noise(noises), rows, "numbers"))
    if not parts:
        return ""
    note = (
        '<h3>Speed</h3><p class="note">Median over seeds of the steps until three evaluations in a row average 90 % of '
        "the best mean in the column of final scores; none unless more than half of the seeds get there.</p>"
    )
    return note + "".join(parts)


def _speed(steps: np.ndarray | None) -> str:
    if steps is None:
        return "<td>–</td>"
    note = f'<span class="note">reached by {np.isfinite(steps).sum()} of {steps.size}</span>'
    return f"<td>{number(float(np.median(steps)), 0)}{note}</td>"


def _by_noise(noises: Sequence[str]) -> list[str]:
    return heads("agent", *map(noise_label, noises))


def _score(scores: "pd.Series | None", places: int, bold: bool, env: str) -> str:
    """The two cells of a score."""
    if scores is None:
        return "<td>–</td>" * 2
    mean, iqm = statistics.mean_t(scores), statistics.bootstrap(statistics.iqm, scores)
    text = plus_minus(mean, places)
    note = f'<span class="note">{mean.seeds} of {mean.asked} seeds</span>' if mean.seeds < mean.asked else ""
    if env == claims.PENDULUM and mean.seeds:
        note += f'<span class="note">{int((scores >= SOLVED[env]).sum())} of {mean.asked} solved</span>'
    known = math.isfinite(iqm.low) and mean.seeds >= FEW
    interval = f" [{number(iqm.low, places)}, {number(iqm.high, places)}]" if known else ""
    return (
        f"<td>{f'<strong>{text}</strong>' if bold else text}{note}</td><td>{number(iqm.value, places)}{interval}</td>"
    )


def _best(scores: Mapping[str, "pd.Series"], noise: str, env: str) -> tuple[str, str] | None:
    """The agent and noise level of the best scores, if they stand apart from all others.

    They are paired by seed on Pendulum alone, as the rules of the claims have it.
    """
    means = {agent: statistics.mean_t(each).value for agent, each in scores.items()}
    means = {agent: mean for agent, mean in means.items() if math.isfinite(mean)}
    if len(means) < 2:
        return None
    best = max(means, key=means.__getitem__)
    ours, *theirs = (scores[agent].dropna() for agent in (best, *(other for other in means if other != best)))
    compared = statistics.compared if env == claims.PENDULUM else statistics.difference
    apart = all(compared(ours, each).low > 0 for each in theirs)
    return (best, noise) if apart else None


def diagnostics(table: "pd.DataFrame") -> str:
    """What the model and the critic were like at the end: a table per preset and task."""
    scores = {name: statistics.final_scores(table, name) for name in DIAGNOSTICS if name in table}
    head = heads("agent", "noise", *(metric_of(name).title for name in scores))
    parts = ['<p class="note">Means over the last tenth of training and over seeds.</p>']
    for (preset, env), block in table.groupby(["preset", "env"], sort=False):
        columns = []  # of texts by cell
        for name, each in scores.items():
            values = each[[cell[:2] == (preset, env) for cell in each.index]] * metric_of(name).factor
            places = decimals(values.to_numpy())
            columns.append({cell[2:]: plus_minus(statistics.mean_t(row), places) for cell, row in values.iterrows()})
        rows = []
        for agent, cells in block.groupby("agent", sort=False):
            noises = list(cells["noise"].unique())
            first = f'<th scope="rowgroup" rowspan="{len(noises)}">{escape(name_of(agent))}</th>'
            for noise in noises:
                texts = (escape(noise_label(noise)), *(column.get((agent, noise), "") for column in columns))
                rows.append(first + "".join(f"<td>{text}</td>" for text in texts))
                first = ""
        parts.append(boxed(f"{env}, preset {preset}", head, rows, "numbers"))
    return "".join(parts)
