"""Statistics of few seeds: scores, their intervals, and comparisons between agents.

Scores are arrays of shape (runs,) or (runs, tasks), one number per run, NaN for a run that diverged. No such run is
dropped unseen: every `Estimate` says how many runs have a score, of how many there were.

Evaluations are shared by seed: agents that trained with the same seed are evaluated from the same start states, under
the same noise. What these add to a score is common to them, so two agents are compared seed by seed.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from moca.config import ConfigError, nearest
from moca.studies.results import KEYS

if TYPE_CHECKING:
    import pandas as pd

CELL = ["preset", "env", "agent", "noise"]
REACHED = 0.9  # of the best mean final return, for steps to it
NOMINAL = 0.683  # of a normal distribution within one standard deviation


class Estimate(NamedTuple):
    """A value with its interval, whose ends are NaN where too few runs have a score for one."""

    value: float
    low: float
    high: float
    seeds: int  # runs that have a score: of all tasks, of both sides where two are compared that share no seeds
    asked: int  # runs there were

    @property
    def half_width(self) -> float:
        """Half of the interval's length."""
        return (self.high - self.low) / 2

    def __str__(self) -> str:
        """`901 ± 12 (9 of 10 seeds)`, or `0.81 [0.62, 0.93] (…)` where the value is not in the middle."""
        half = self.half_width
        text = _rounded(self.value, half)
        if np.isfinite(half):
            centred = abs(self.high + self.low - 2 * self.value) <= 1e-6 * half
            low, high = _rounded(self.low, half), _rounded(self.high, half)
            text += f" ± {_rounded(half, half)}" if centred else f" [{low}, {high}]"
        return f"{text} ({self.seeds} of {self.asked} seeds)"

    @property
    def brief(self) -> str:
        """The same, with the seeds only where some are missing."""
        return str(self).removesuffix(f" ({self.asked} of {self.asked} seeds)")


def final_scores(table: "pd.DataFrame", metric: str = "return_mean", last: float = 0.1) -> "pd.DataFrame":
    """The mean of a metric over the last tenth of training: a row per cell, in the table's order, a column per seed.

    A seed that diverged at any time is NaN. The cells of an agent that does not have the metric are left out; those of
    an agent of which every seed diverged are not.

    Args:
        table: as `load_results` gives it.
        metric: a column of it.
        last: the share of training that counts, up to its end.
    """
    values = _metric(table, metric)
    # The cells of a job share one program, hence their metrics; what diverged does not show which it had.
    job = [table[key] for key in CELL[:3]]
    known = values.notna().groupby(job).transform("any") | (table["diverged"] > 0).groupby(job).transform("all")
    final = table["step"] > (1 - last) * table.groupby(CELL)["step"].transform("max")
    survived = table.groupby([*CELL, "seed"])["diverged"].transform("max") == 0
    runs = [table.loc[known, key] for key in (*CELL, "seed")]
    scores = values.where(final & survived)[known].groupby(runs, sort=False).mean()
    return scores.unstack("seed").reindex(scores.index.droplevel("seed").unique()).sort_index(axis=1)


def by_cell(
    table: "pd.DataFrame", metric: str = "return_mean", last: float = 0.1
) -> dict[tuple[str, str, str, str], np.ndarray]:
    """The final scores of each cell's own seeds, NaN for one that diverged; empty where no agent has the metric."""
    if metric not in table:
        return {}
    scores, seeds = final_scores(table, metric, last), table.groupby(CELL)["seed"].unique()
    return {cell: scores.loc[cell][seeds.loc[cell]].to_numpy() for cell in scores.index}


def curve(
    table: "pd.DataFrame", preset: str, env: str, agent: str, noise: str, metric: str = "return_mean"
) -> tuple[np.ndarray, np.ndarray]:
    """The steps of a cell's evaluations, and its metric there as (steps, seeds); NaN from where a seed diverged on."""
    for key, value in zip(CELL, (preset, env, agent, noise), strict=True):
        known = list(table[key].unique())
        if value not in known:
            raise _absent(key, value, known)
        table = table[table[key] == value]
    return curve_of(table, metric)


def curve_of(cell: "pd.DataFrame", metric: str = "return_mean") -> tuple[np.ndarray, np.ndarray]:
    """`curve`, from the rows of one cell alone."""
    steps, row = np.unique(cell["step"], return_inverse=True)
    seeds, column = np.unique(cell["seed"], return_inverse=True)
    values = np.full((steps.size, seeds.size), np.nan)
    values[row, column] = _metric(cell, metric)
    return steps, values


def mean_t(scores: ArrayLike, level: float = 0.95) -> Estimate:
    """The mean of the finite scores (runs,) with Student's t interval.

    Over ten normal draws the 95 % interval holds the true mean in 95 % of all repeats.
    """
    each = np.asarray(scores, dtype=float).ravel()
    mean, error, count = _moments(each)
    return _t_interval(mean, error, count - 1, level, count, each.size)


def paired(ours: ArrayLike, theirs: ArrayLike, level: float = 0.95) -> Estimate:
    """The mean of our scores less theirs, seed by seed, with Student's t interval over the seeds that both have.

    Evaluations are shared by seed, so what a seed adds to both sides drops out.

    Args:
        ours: a score for each seed (runs,).
        theirs: the same, in the same order; two series of pandas are matched by their indices.
        level: of the interval.
    """
    return mean_t(np.subtract(ours, theirs), level)


def compared(ours: "pd.Series", theirs: "pd.Series", level: float = 0.95) -> Estimate:
    """Our scores less theirs, each by seed: `paired`, since evaluations are shared by seed, or by Welch if none is."""
    shared = ours.index.intersection(theirs.index)
    return paired(ours, theirs, level) if shared.size else difference(ours, theirs, level)


def difference(ours: ArrayLike, theirs: ArrayLike, level: float = 0.95) -> Estimate:
    """Our mean less theirs, of the finite scores (runs,), with Welch's t interval.

    It takes the two sides for independent. Where they have seeds in common `paired` is the one to use.
    """
    x, y = (np.asarray(scores, dtype=float).ravel() for scores in (ours, theirs))
    (mean_x, error_x, m), (mean_y, error_y, n) = _moments(x), _moments(y)
    error = np.hypot(error_x, error_y)
    # Scaled, so that no square of a small error underflows; without any spread their number does not matter.
    share_x, share_y = (error_x / error, error_y / error) if error > 0 else (1.0, 0.0)
    freedom = 1 / (share_x**4 / (m - 1) + share_y**4 / (n - 1)) if min(m, n) > 1 else 0.0
    return _t_interval(mean_x - mean_y, error, freedom, level, m + n, x.size + y.size)


def iqm(scores: ArrayLike) -> float:
    """The inter-quartile mean of all scores, (runs,) or (runs, tasks): NaN left out, a quarter cut from either end.

    A quarter that is not whole is rounded down, as `scipy.stats.trim_mean` does: six of ten runs remain.
    """
    each = np.sort(np.asarray(scores, dtype=float), axis=None)  # NaN comes last
    each = each[: each.size - np.count_nonzero(np.isnan(each))]
    cut = each.size // 4
    return float(each[cut : each.size - cut].mean()) if each.size else np.nan


def bootstrap(
    statistic: Callable[[np.ndarray], float],
    scores: ArrayLike,
    *,
    seed: int = 0,
    resamples: int = 2000,
    level: float = 0.95,
) -> Estimate:
    """A statistic of the scores, (runs,) or (runs, tasks), with its percentile interval, the same bits for a seed.

    Runs are drawn anew within each task, among those that have a score. The statistic sees them in the scores' shape;
    NaN only fills up the tasks that have fewer of them than others.

    With few runs the interval is too narrow. Over ten normal draws the one of 95 % holds the true mean in 91 % of all
    repeats for `np.mean` and in 94 % for `iqm`; over five draws in 84 % and 90 %. `mean_t` has no such fault.
    """
    given = np.asarray(scores, dtype=float)
    counts = np.count_nonzero(~np.isnan(given), axis=0)
    seeds = int(counts.sum())
    if not seeds:
        return Estimate(np.nan, np.nan, np.nan, 0, given.size)
    each = np.sort(given, axis=0)[: counts.max()]  # NaN comes last; nor does the order of the runs matter
    draws = np.array([np.nan])
    if counts[counts > 0].min() > 1:
        drawn = np.random.default_rng(seed).integers(np.maximum(counts, 1), size=(resamples, *each.shape))
        # What is NaN stays NaN: each task keeps its number of runs.
        resampled = np.where(np.isnan(each), np.nan, np.take_along_axis(each[None], drawn, axis=1))
        draws = np.array([statistic(scores) for scores in resampled])
    return Estimate(float(statistic(each)), *_percentiles(draws, level), seeds, given.size)


def improvement(
    ours: ArrayLike, theirs: ArrayLike, *, seed: int = 0, resamples: int = 2000, level: float = 0.95
) -> Estimate:
    """The probability that a run of ours scores above one of theirs, a tie counting half, averaged over the tasks.

    A run that diverged loses against every one that did not. The interval is as in `bootstrap`, both sides drawn anew;
    its ends are NaN where all pairs went the same way, for then no draws can tell how sure that is.

    Args:
        ours: (runs,) or (runs, tasks).
        theirs: the same, of the same tasks; their number of runs may be another.
        seed: of the draws.
        resamples: how many draws.
        level: of the interval.
    """
    sides = [np.asarray(scores, dtype=float) for scores in (ours, theirs)]
    x, y = (np.where(np.isnan(side), -np.inf, side).reshape(len(side), -1) for side in sides)
    won = (x[:, None] > y) + 0.5 * (x[:, None] == y)  # (ours, theirs, tasks)
    draws = np.array([np.nan])
    if min(len(x), len(y)) > 1 and (won != won[:1, :1]).any():
        rng = np.random.default_rng(seed)
        draws = np.zeros(resamples)
        for task in np.moveaxis(won, 2, 0):
            i, j = (rng.integers(len(side), size=(resamples, len(side))) for side in (x, y))
            draws += task[i[:, :, None], j[:, None, :]].sum(axis=(1, 2))
    seeds = sum(int(np.count_nonzero(~np.isnan(side))) for side in sides)
    return Estimate(float(won.mean()), *_percentiles(draws / won.size, level), seeds, x.size + y.size)


def profile(scores: ArrayLike, thresholds: ArrayLike) -> np.ndarray:
    """The share of runs, of all tasks, with a score above each threshold; one that diverged is above none."""
    return (np.asarray(scores, dtype=float).reshape(-1, 1) > np.asarray(thresholds)).mean(axis=0)


def steps_to(steps: np.ndarray, values: np.ndarray, threshold: float, window: int = 3) -> np.ndarray:
    """For each seed the step at which the mean of its last `window` evaluations first is at least the threshold.

    It is infinite where that never happens, or where there are fewer evaluations. What a seed does later, even that it
    diverges, does not matter.

    Args:
        steps: (steps,), as `curve` gives them.
        values: (steps, seeds), likewise.
        threshold: what is to be reached.
        window: how many evaluations are averaged.
    """
    if len(values) < window:
        return np.full(values.shape[1], np.inf)
    means = np.lib.stride_tricks.sliding_window_view(values, window, axis=0).mean(axis=-1)
    reached = means >= threshold
    return np.where(reached.any(axis=0), steps[window - 1 :][reached.argmax(axis=0)], np.inf)


def _metric(table: "pd.DataFrame", metric: str) -> "pd.Series":
    """A column, NaN where the run had diverged."""
    known = [name for name in table.columns if name not in (*KEYS, "diverged")]
    if metric not in known:
        raise _absent("metric", metric, known)
    return table[metric].astype("float64").where(table["diverged"] == 0)


def _absent(key: str, value: str, known: list[str]) -> ConfigError:
    return ConfigError(
        f"{key} = {value!r} is not in the results.{nearest(str(value), known)} Allowed: {', '.join(known)}"
    )


def _rounded(value: float, half: float) -> str:
    """Formats a number to two digits of the half width, or to four digits of its own where there is no half width."""
    if 0 < half < np.inf:
        places = 1 - int(np.floor(np.log10(float(f"{half:.1e}"))))  # as rounded: 9.96 is 10
        return f"{round(value, places) + 0.0:,.{max(0, places)}f}"  # no minus before a zero
    return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value + 0.0:.4g}"


def _moments(each: np.ndarray) -> tuple[float, float, int]:
    """Mean, its standard error and the count of the finite scores; NaN where there are too few."""
    each = each[np.isfinite(each)]
    count = each.size
    mean = float(each.mean()) if count else np.nan
    return mean, float(each.std(ddof=1)) / np.sqrt(count) if count > 1 else np.nan, count


def _t_interval(value: float, error: float, freedom: float, level: float, seeds: int, asked: int) -> Estimate:
    half = float(stdtrit(freedom, (1 + level) / 2)) * float(error)
    return Estimate(value, value - half, value + half, seeds, asked)


def _percentiles(draws: np.ndarray, level: float) -> tuple[float, float]:
    """The ends of the middle `level` of the draws, themselves draws, so that infinite ones do no harm."""
    if np.isnan(draws).any():
        return np.nan, np.nan
    draws, cut = np.sort(draws), round((1 - level) / 2 * draws.size)
    return float(draws[cut]), float(draws[-1 - cut])
