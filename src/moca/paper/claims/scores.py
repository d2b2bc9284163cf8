"""Scores of runs, as the rules in docs/replication.md define them.

`Scores` holds the evaluations of all runs of one preset and task. `Scores.of` returns one number
per seed:

| score | meaning |
|---|---|
| `final` | mean return over the last tenth of training |
| `area` | mean return over all evaluations |
| `peak` | largest mean of three evaluations in a row |
| `drop` | peak minus final |
| `spread` | distance of the final return from the median over seeds |
| `stuck` | 1 if the final return is less than a tenth of the way above doing nothing, else 0 |
| `above the bar` | peak minus the return at which an agent has learned |
| `steps` | steps to 90 % of the best agent's mean final return at that noise |
| `steps of its own` | steps to 90 % of the agent's own mean final return at σ 0.025 |
| a metric | its mean over evaluations; `metric, second half`: over the second half |

A diverged run gets the lowest score that the task allows in all scores of returns and steps. It is
excluded from the means of other metrics. If a cell was run in several studies, the scores of a seed
are averaged.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from moca.paper.tasks import CARTPOLE, PENDULUM, SOLVED
from moca.studies.statistics import REACHED, curves_of, mean_t, steps_to

if TYPE_CHECKING:
    import pandas as pd

LOW = "0.025"

MOST = 1000.0  # the largest return of either task
NOTHING = {CARTPOLE: 697.6, PENDULUM: 0.8}  # the mean return of the zero action: results/nothing.py
LEARNED = 0.1  # fraction of the way from doing nothing to the largest return
LAST = 0.1  # the fraction of training over which final returns are averaged
SECOND_HALF = ", second half"
NOT_RUN = "not run at other noise levels"  # though at some


class AbsentError(Exception):
    """A score cannot be computed; the message says why."""


class Curves:
    """The evaluations of one cell in one study.

    Args:
        rows: The rows of the table.
    """

    def __init__(self, rows: "pd.DataFrame") -> None:
        lost = rows.groupby("seed")["diverged"].max() > 0  # sorted by seed
        self.rows, self.seeds = rows, lost.index.to_numpy()
        self.steps = np.sort(rows["step"].unique())
        self.diverged = lost.to_numpy()  # (seeds,), whether the run diverged
        self._values: dict[str, np.ndarray] = {}

    def values(self, metric: str) -> np.ndarray:
        """Returns a metric as (evaluations, seeds), NaN after a run diverged."""
        if metric not in self._values:
            _, (self._values[metric],) = curves_of(self.rows, [metric])
        return self._values[metric]

    def in_last(self, share: float) -> np.ndarray:
        """Returns a mask of the evaluations in the last fraction of training."""
        return self.steps > (1 - share) * self.steps[-1]


class Scores:
    """The runs of one preset on one task.

    Args:
        tables: Tables from `load_results`, one per study.
        preset: The preset of the runs.
        task: The task of the runs.
        nothing: The return of doing nothing for each task.
    """

    def __init__(
        self, tables: Sequence["pd.DataFrame"], preset: str, task: str, nothing: Mapping[str, float] = NOTHING
    ) -> None:
        self.preset, self.task = preset, task
        self.bar = nothing[task] + LEARNED * (MOST - nothing[task])
        self.cells: dict[tuple[str, str], list[Curves]] = {}
        for table in tables:
            own = table[(table["preset"] == preset) & (table["env"] == task)]
            for (agent, noise), rows in own.groupby(["agent", "noise"], sort=False):
                self.cells.setdefault((agent, noise), []).append(Curves(rows))
        self._known: dict[tuple[str, str, str], pd.Series] = {}

    def of(self, agent: str, noise: str, score: str) -> "pd.Series":
        """Returns the score of every seed that has one.

        Raises:
            AbsentError: If the cell was not run or its metric was not recorded.
        """
        key = (agent, noise, score)
        if key not in self._known:
            if (agent, noise) not in self.cells:
                raise AbsentError(NOT_RUN if any(each == agent for each, _ in self.cells) else "not run")
            self._known[key] = self._scored(*key).dropna()
        return self._known[key]

    def learned(self, agent: str, noise: str) -> bool:
        """Returns True if the agent learned: its mean peak return is above the bar.

        The whole 95 % interval of the mean must be above it, so at least two seeds are needed.
        """
        return bool(mean_t(self.of(agent, noise, "above the bar")).low > 0)

    def solved(self, agent: str, noise: str) -> "pd.Series":
        """Returns 1 for each seed that solved the task, else 0."""
        return (self.of(agent, noise, "final") >= SOLVED[self.task]).astype(float)

    def all_steps(self, agent: str, noise: str) -> float:
        """Returns the total number of training steps."""
        return float(self.cells[agent, noise][0].steps[-1])

    def reached(self, agent: str, noise: str, score: str) -> float:
        """Returns the share of seeds that reach the threshold of a score in steps."""
        threshold = self._threshold(agent, noise, score)
        return float(self._merged(agent, noise, lambda c: np.isfinite(_steps(c, threshold)).astype(float)).mean())

    def every(self, agent: str, noise: str, metric: str) -> "pd.DataFrame":
        """Returns a metric at every evaluation: a row per step, a column per seed."""
        import pandas as pd

        self.of(agent, noise, metric)
        tables = [pd.DataFrame(c.values(metric), c.steps, c.seeds) for c in self.cells[agent, noise]]
        return pd.concat(tables).groupby(level=0).mean()

    def change(self, agent: str, noise: str, metric: str) -> "pd.Series":
        """Returns the relative change of a line fitted to the last fifth of training."""
        self.of(agent, noise, metric)
        return self._merged(agent, noise, lambda c: _change(c, metric)).dropna()

    @cached_property
    def _best(self) -> dict[str, float]:
        """The highest mean final return at each noise."""
        means: dict[str, list[float]] = {}
        for agent, noise in self.cells:
            means.setdefault(noise, []).append(float(self.of(agent, noise, "final").mean()))
        return {noise: max(each) for noise, each in means.items()}

    def _threshold(self, agent: str, noise: str, score: str) -> float:
        own = score == "steps of its own"
        return REACHED * (float(self.of(agent, LOW, "final").mean()) if own else self._best[noise])

    def _scored(self, agent: str, noise: str, score: str) -> "pd.Series":
        if score in _OF_RETURNS:
            return self._merged(agent, noise, _OF_RETURNS[score])
        if score.startswith("steps"):
            threshold = self._threshold(agent, noise, score)
            return self._merged(agent, noise, lambda c: np.minimum(_steps(c, threshold), c.steps[-1]))
        if score == "above the bar":
            return self.of(agent, noise, "peak") - self.bar
        final = self.of(agent, noise, "final")
        if score == "spread":
            return (final - final.median()).abs()
        if score == "stuck":
            return (final < self.bar).astype(float)
        metric = score.removesuffix(SECOND_HALF)
        share = 0.5 if score.endswith(SECOND_HALF) else 1.0
        known = [c for c in self.cells[agent, noise] if metric in c.rows and c.rows[metric].notna().any()]
        if not known:
            raise AbsentError(f"no {metric.replace('_', ' ')}")
        return _by_seed(known, lambda c: _mean(c, metric, share))

    def _merged(self, agent: str, noise: str, score: Callable[[Curves], np.ndarray]) -> "pd.Series":
        return _by_seed(self.cells[agent, noise], score)


def _by_seed(cells: Sequence[Curves], score: Callable[[Curves], np.ndarray]) -> "pd.Series":
    """Returns a score of every seed, averaged over the studies that have it."""
    import pandas as pd

    return pd.concat([pd.Series(score(each), each.seeds) for each in cells]).groupby(level=0).mean()


def _final(curves: Curves) -> np.ndarray:
    return np.where(curves.diverged, 0, curves.values("return_mean")[curves.in_last(LAST)].mean(axis=0))


def _area(curves: Curves) -> np.ndarray:
    return np.where(curves.diverged, 0, curves.values("return_mean").mean(axis=0))


def _peak(curves: Curves) -> np.ndarray:
    values = curves.values("return_mean")
    rolling = np.lib.stride_tricks.sliding_window_view(values, min(3, len(values)), axis=0).mean(axis=-1)
    return np.where(curves.diverged, 0, rolling.max(axis=0))


def _drop(curves: Curves) -> np.ndarray:
    return np.where(curves.diverged, MOST, _peak(curves) - _final(curves))


def _steps(curves: Curves, threshold: float) -> np.ndarray:
    """Returns the steps to a threshold, infinite for runs that never reach it or diverged."""
    return np.where(curves.diverged, np.inf, steps_to(curves.steps, curves.values("return_mean"), threshold))


def _mean(curves: Curves, metric: str, share: float) -> np.ndarray:
    values = curves.values(metric)[curves.in_last(share)]
    known = ~np.isnan(values)
    means = np.where(known, values, 0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    return np.where(curves.diverged | ~known.any(axis=0), np.nan, means)


def _change(curves: Curves, metric: str) -> np.ndarray:
    last = curves.in_last(0.2)
    if last.sum() < 2:
        raise AbsentError("fewer than two evaluations in the last fifth of training")
    steps, values = curves.steps[last], curves.values(metric)[last]
    centred = steps - steps.mean()
    moved = centred @ values / (centred @ centred) * 0.2 * curves.steps[-1]
    return moved / np.maximum(values.mean(axis=0), np.finfo(float).tiny)


_OF_RETURNS = {"final": _final, "area": _area, "peak": _peak, "drop": _drop}
