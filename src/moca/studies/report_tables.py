"""The tables of a report, as data: final scores, improvement, speed, diagnostics."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from moca.looks import label
from moca.names import displayed
from moca.studies import statistics
from moca.studies.registry import task
from moca.studies.report_charts import metric_of, noise_label

if TYPE_CHECKING:
    import pandas as pd

FEW = 5  # runs of an agent: with fewer, the bootstrap is meaningless
DIAGNOSTICS = (
    "coverage_1sigma", "epistemic_std", "aleatoric_std", "ce_bias", "overestimation", "target_variance", "target_bias",
    "value_noise_variance", "q_mean", "saturation",
)  # fmt: skip


class Cell(NamedTuple):
    """A table cell. With the attribute `scope` it is a header cell.

    A plain string is also accepted.
    """

    text: str
    attributes: Mapping[str, Any] = {}
    notes: tuple[str, ...] = ()  # below the text
    bold: bool = False


Row = Sequence[Cell | str]


class Table(NamedTuple):
    """A table with its rows."""

    caption: str
    head: Sequence[Row]
    rows: Sequence[Row]
    kind: str = ""  # its class in the style sheet


class Group(NamedTuple):
    """Tables with a common note."""

    title: str
    note: str
    tables: Sequence[Table]


def heads(*titles: str) -> list[Row]:
    """Returns the head of a table, in one row."""
    return [[Cell(title, {"scope": "col"}) for title in titles]]


def row_head(text: str) -> Cell:
    """Returns the first cell of a row."""
    return Cell(text, {"scope": "row"})


def listed(items: Iterable[str]) -> str:
    """Joins items as `a, b and c`."""
    *most, last = items
    return f"{', '.join(most)} and {last}" if most else last


def groups(table: "pd.DataFrame") -> list[Group]:
    """Returns final scores, and improvement and speed if there are any."""
    blocks = list(_blocks(table))
    return [
        Group(
            "",
            "Return over the last tenth of training: the mean over seeds, then the interquartile mean. Bold: better "
            "than every other agent in the column, each 95 % interval of the difference being above zero.",
            [_scores(block) for block in blocks],
        ),
        *_improvements(blocks),
        *_speeds(table, blocks),
    ]


class _Block(NamedTuple):
    """The final scores under one preset on one task."""

    preset: str
    env: str
    agents: list[str]
    noises: list[str]
    scores: "dict[tuple[str, str], pd.Series]"  # by agent and noise

    def table(self, title: str, head: Sequence[Row], rows: Mapping[str, Row]) -> Table:
        """Returns a table with a row for each agent."""
        cells = [[row_head(label(agent)), *row] for agent, row in rows.items()]
        return Table(f"{title}{displayed(self.env)}, preset {self.preset}", head, cells, "numbers")

    @property
    def head(self) -> list[Row]:
        """The head of a table with agents as rows and noise levels as columns."""
        return heads("agent", *map(noise_label, self.noises))


def _blocks(table: "pd.DataFrame") -> Iterator[_Block]:
    for (preset, env), block in statistics.final_scores(table).groupby(level=["preset", "env"], sort=False):
        agents, noises = (list(block.index.unique(level)) for level in ("agent", "noise"))
        yield _Block(preset, env, agents, noises, {(row[2], row[3]): block.loc[row] for row in block.index})


def _scores(block: _Block) -> Table:
    """Returns a table with agents as rows and noise levels as columns, two columns for each."""
    bold = {(_best(block, noise), noise) for noise in block.noises}
    places = _decimals(np.concatenate([scores.to_numpy() for scores in block.scores.values()]))
    head: list[Row] = [
        [
            Cell("agent", {"scope": "col", "rowspan": 2}),
            *(Cell(noise_label(noise), {"scope": "colgroup", "colspan": 2}) for noise in block.noises),
        ],
        [*heads("mean", "IQM")[0]] * len(block.noises),
    ]
    rows = {
        agent: [
            cell
            for noise in block.noises
            for cell in _score(block.scores.get((agent, noise)), places, (agent, noise) in bold, block.env)
        ]
        for agent in block.agents
    }
    return block.table("", head, rows)


def _score(scores: "pd.Series | None", places: int, bold: bool, env: str) -> Row:
    """Returns the two cells of a score."""
    if scores is None:
        return ["–", "–"]
    mean, iqm = statistics.mean_t(scores), statistics.bootstrap(statistics.iqm, scores)
    notes = [f"{mean.seeds} of {mean.asked} seeds"] if mean.seeds < mean.asked else []
    if (solved := task(env).count(scores)) and mean.seeds:
        notes.append(f"{solved[0]} of {solved[1]} solved")
    interval = _interval(iqm, places) if mean.seeds >= FEW else ""
    return [Cell(_plus_minus(mean, places), {}, tuple(notes), bold), _number(iqm.value, places) + interval]


def _best(block: _Block, noise: str) -> str | None:
    """Returns the best agent at a noise level, if it is significantly better than all others."""
    scores = {agent: each for (agent, own), each in block.scores.items() if own == noise}
    means = {agent: statistics.mean_t(each).value for agent, each in scores.items()}
    means = {agent: mean for agent, mean in means.items() if math.isfinite(mean)}
    if len(means) < 2:
        return None
    best = max(means, key=means.__getitem__)
    compared = statistics.compared if task(block.env).paired else statistics.difference
    apart = all(compared(scores[best].dropna(), scores[each].dropna()).low > 0 for each in means if each != best)
    return best if apart else None


def _improvements(blocks: Iterable[_Block]) -> list[Group]:
    """Returns the probability that MoCA scores above each other agent, where both were run."""
    tables = []
    for block in blocks:
        others, seeds = [agent for agent in block.agents if agent != "moca"], next(iter(block.scores.values())).size
        if "moca" in block.agents and others and seeds >= FEW:
            rows = {agent: [_probability(block, agent, noise) for noise in block.noises] for agent in others}
            tables.append(block.table("P(MoCA > agent): ", block.head, rows))
    note = (
        "The probability that a random run of MoCA ends above a random run of the other agent. A tie counts half, and "
        f"a diverged run loses. Not given with fewer than {FEW} runs of either."
    )
    return [Group("Probability of improvement", note, tables)] if tables else []


def _probability(block: _Block, agent: str, noise: str) -> Cell | str:
    ours, theirs = (block.scores.get((each, noise)) for each in ("moca", agent))
    if ours is None or theirs is None:
        return "–"
    found = statistics.improvement(ours, theirs)
    if not math.isfinite(found.low):
        word = {0.0: "no pairs", 1.0: "all pairs"}.get(found.value, "ties alone")
        return Cell(_number(found.value, 2), {}, (word,))
    return _number(found.value, 2) + _interval(found, 2)


def _speeds(table: "pd.DataFrame", blocks: Iterable[_Block]) -> list[Group]:
    """Returns the steps that each agent takes to a threshold, where MoCA was run."""
    tables, cells = [], dict(iter(table.groupby(statistics.CELL, sort=False)))
    for block in blocks:
        if "moca" not in block.agents:
            continue
        rows: dict[str, list[Cell | str]] = {agent: [] for agent in block.agents}
        for noise in block.noises:
            here = [agent for agent in block.agents if (agent, noise) in block.scores]
            means = [statistics.mean_t(block.scores[agent, noise]).value for agent in here]
            threshold = statistics.REACHED * max((mean for mean in means if math.isfinite(mean)), default=math.nan)
            for agent, row in rows.items():
                cell = cells[block.preset, block.env, agent, noise] if agent in here else None
                row.append(_speed(cell, threshold))
        tables.append(block.table("Steps to 90 % of the best: ", block.head, rows))
    note = (
        "Median over seeds of the steps until three evaluations in a row average 90 % of the best mean in the column "
        "of final scores; a dash unless more than half of the seeds reach it."
    )
    return [Group("Speed", note, tables)] if tables else []


def _speed(cell: "pd.DataFrame | None", threshold: float) -> Cell | str:
    if cell is None:
        return "–"
    evaluations, (values,) = statistics.curves_of(cell, ["return_mean"])
    steps = statistics.steps_to(evaluations, values, threshold)
    return Cell(_number(float(np.median(steps)), 0), {}, (f"reached by {np.isfinite(steps).sum()} of {steps.size}",))


def diagnostics(table: "pd.DataFrame") -> Group:
    """Returns metrics of model and critic at the end of training: a table per preset and task."""
    scores = {name: statistics.final_scores(table, name) for name in DIAGNOSTICS if name in table}
    head = heads("agent", "noise", *(metric_of(name).title for name in scores))
    tables = []
    for (preset, env), block in table.groupby(["preset", "env"], sort=False):
        columns = []  # texts by cell
        for name, each in scores.items():
            values = each[[cell[:2] == (preset, env) for cell in each.index]] * metric_of(name).factor
            places = _decimals(values.to_numpy())
            columns.append({cell[2:]: _plus_minus(statistics.mean_t(row), places) for cell, row in values.iterrows()})
        rows: list[Row] = []
        for agent, cells in block.groupby("agent", sort=False):
            noises = list(cells["noise"].unique())
            first = [Cell(label(agent), {"scope": "rowgroup", "rowspan": len(noises)})]
            for noise in noises:
                rows.append([*first, noise_label(noise), *(column.get((agent, noise), "") for column in columns)])
                first = []
        tables.append(Table(f"{displayed(env)}, preset {preset}", head, rows, "numbers"))
    return Group("", "Means over the last tenth of training and over seeds.", tables)


# Numbers


def _decimals(values: np.ndarray) -> int:
    """Returns the number of decimals that shows three digits of the largest value."""
    size = np.abs(values[np.isfinite(values)]).max(initial=0)
    return min(6, max(0, 2 - math.floor(math.log10(size)))) if size > 0 else 0


def _number(value: float, places: int) -> str:
    if not math.isfinite(value):
        return "–"
    return f"{round(value, places) + 0.0:,.{places}f}".replace("-", "−")  # no minus before a zero


def _plus_minus(estimate: statistics.Estimate, places: int) -> str:
    margin = f" ± {_number(estimate.half_width, places)}" if math.isfinite(estimate.half_width) else ""
    return _number(estimate.value, places) + margin


def _interval(estimate: statistics.Estimate, places: int) -> str:
    known = math.isfinite(estimate.low)
    return f" [{_number(estimate.low, places)}, {_number(estimate.high, places)}]" if known else ""
