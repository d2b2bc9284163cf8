"""Learning curves: one figure per task, in the paper's rows, or one for many tasks."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from moca.looks import Look, look
from moca.studies.plots.cells import TOP, Cells, Middle, Series, by_kind, noise_label, spaced
from moca.studies.plots.lines import band, closer, end_labels, signed_axis, steps_axis
from moca.studies.plots.looks import GREY, counted, grid_of, legend, middle_of, titled
from moca.studies.registry import task
from moca.studies.statistics import NOMINAL

COLUMNS = 4  # at most
HEIGHT, LOWER = 2.5, 1.5  # in inches: panels of returns, panels of MoCA's uncertainty
CALIBRATION = {"coverage_1sigma": "1σ coverage\nof MoCA (%)", "epistemic_std": "epistemic sd\nof MoCA"}


def of_task(cells: Cells, env: str) -> Figure:
    """Draws the returns of all agents, one row per kind of noise, and MoCA's uncertainty."""
    rows = _arranged(cells.noises(env))
    typical, lower = cells.typical(env), _lower(cells, env, rows)
    figure, panels = _panels(rows, len(lower))
    for row, axes_of_row in zip(rows, panels, strict=False):
        for noise, axes in zip(row, axes_of_row, strict=False):
            _returns(cells, axes, env, noise, typical)
            axes.set_title(noise_label(noise))
        axes_of_row[0].set_ylabel("return of an episode")
    for (metric, found), axes_of_row in zip(lower.items(), panels[len(rows) :], strict=True):
        _uncertainty(axes_of_row, metric, found, typical)
    _bottom_axes(panels, rows, len(lower))
    _seeds_legend(figure, cells, env)
    return titled(figure, f"{spaced(env)}, preset {cells.preset}")


def of_tasks(cells: Cells) -> Figure:
    """Draws the returns of all agents, one panel per task."""
    figure, panels = grid_of(len(cells.envs), 3, 0.7 + 3.2 * 3, 0.9 + 2.5 * -(-len(cells.envs) // 3))
    for env, axes in zip(cells.envs, panels.flat, strict=False):
        (noise,) = cells.noises(env)
        _returns(cells, axes, env, noise, typical=False)
        axes.set(title=spaced(env), ylabel="return of an episode")
        steps_axis(axes)
    _seeds_legend(figure, cells)
    return titled(figure, f"Learning curves, preset {cells.preset}")


def overestimation(cells: Cells, env: str) -> Figure | None:
    """Draws V of the visited states minus the following return, one panel per noise level."""
    rows = _arranged(cells.noises(env))
    found = {
        (agent, noise): series
        for noise in cells.noises(env)
        for agent in cells.agents(env)
        if (series := cells.series(env, agent, noise, "overestimation"))
    }
    if not found:
        return None
    figure, panels = _panels(rows, share="all")
    agents = [agent for agent in cells.agents(env) if any(agent == name for name, _ in found)]
    ends: list[tuple[Axes, list[tuple[float, str, str]]]] = []
    drawn = []
    for row, axes_of_row in zip(rows, panels, strict=True):
        for noise, axes in zip(row, axes_of_row, strict=False):
            axes.axhline(0, color=GREY, linewidth=0.8)
            axes.set_title(noise_label(noise))
            ends.append((axes, []))
            for place, agent in reversed(list(enumerate(agents))):
                series = found.get((agent, noise))
                if series and (middle := band(axes, series, look(agent), True, place / len(agents))):
                    drawn.append(middle)
                    ends[-1][1].append((middle.line[-1], look(agent).short, look(agent).colour))
    signed = signed_axis(list(panels.flat), drawn)
    for axes_of_row in panels:
        axes_of_row[0].set_ylabel("overestimation" + ("\n(logarithmic away from 0)" if signed else ""))
    _bottom_axes(panels, rows, 0)
    for axes, labels in ends:
        end_labels(axes, labels, HEIGHT)
    counts = {a: [(s.values.shape[1], s.asked) for (name, _), s in found.items() if name == a] for a in agents}
    true = "; true values lie between 0 and 100" if cells.bounded(env) else ""
    legend(figure, counts, middle_of((series.asked for series in found.values()), typical=True) + true)
    return titled(figure, f"V of the visited states less their discounted return: {spaced(env)}, preset {cells.preset}")


def _arranged(noises: list[str]) -> list[list[str]]:
    """Arranges the levels of each kind in rows, several if one would be too long."""
    rows = []
    for levels in by_kind(noises):
        count = -(-len(levels) // COLUMNS)
        rows += [list(part) for part in np.array_split(np.array(levels, dtype=object), count)]
    return rows


def _panels(
    rows: Sequence[Sequence[str]], lower: int = 0, share: Literal["row", "all"] = "row"
) -> tuple[Figure, np.ndarray]:
    """Creates axes for rows of noise levels, and `lower` rows below; hides empty ones."""
    columns = max(map(len, rows))
    size, heights = (0.7 + 3.1 * columns, 1.0 + (HEIGHT + 0.4) * len(rows) + LOWER * lower), [HEIGHT] * len(rows)
    shared: dict[str, Any] = {"sharex": True, "sharey": share, "squeeze": False}
    figure, panels = plt.subplots(
        len(rows) + lower, columns, figsize=size, height_ratios=heights + [LOWER] * lower, **shared
    )
    for row, axes_of_row in zip(rows, panels, strict=False):
        for axes in axes_of_row[len(row) :]:
            axes.set_visible(False)
    return figure, panels


def _bottom_axes(panels: np.ndarray, rows: Sequence[Sequence[str]], lower: int) -> None:
    """Labels the axes of steps below the last panel of each column."""
    for column, axes_of_column in enumerate(panels.T):
        last = len(panels) - 1 if lower else max(i for i, row in enumerate(rows) if len(row) > column)
        steps_axis(axes_of_column[last])
        for axes in axes_of_column[: 0 if lower else last + 1]:
            axes.tick_params(labelbottom=True)


def _returns(cells: Cells, axes: Axes, env: str, noise: str, typical: bool) -> None:
    """Draws the returns of all agents, MoCA on top, with an inset and labels at line ends.

    If a task is solved or not, the label includes how many seeds solved it.
    """
    agents = cells.agents(env)
    drawn: dict[Look, tuple[np.ndarray, Middle]] = {}
    ends = []
    for place, agent in reversed(list(enumerate(agents))):
        series, own = cells.series(env, agent, noise, "return_mean"), look(agent)
        if series and (middle := band(axes, series, own, typical, place / len(agents))):
            drawn[own] = (series.steps, middle)
            solved = cells.solved(env, agent, noise)
            text = own.short + (f": {solved[0]} of {solved[1]}" if solved else "")
            ends.append((float(middle.line[series.steps > 0.9 * series.steps[-1]].mean()), text, own.colour))
    if cells.bounded(env):
        axes.set_ylim(0, 1.02 * TOP)
    finals = [scores[np.isfinite(scores)] for key, scores in cells.returns.items() if key[::2] == (env, noise)]
    closer(axes, drawn, [float(scores.mean()) for scores in finals if scores.size])
    end_labels(axes, ends, HEIGHT)


def _lower(cells: Cells, env: str, rows: Sequence[Sequence[str]]) -> dict[str, list[Series | None]]:
    """Returns the task's metrics of MoCA's uncertainty, with one series per column."""
    if len(rows) > 1:
        return {}
    found = {metric: [cells.series(env, "moca", noise, metric) for noise in rows[0]] for metric in task(env).below}
    return {metric: each for metric, each in found.items() if any(each)}


def _uncertainty(panels: Sequence[Axes], metric: str, found: Sequence[Series | None], typical: bool) -> None:
    covered = metric == "coverage_1sigma"
    for axes, series in zip(panels, found, strict=False):
        if series:
            band(axes, series.percent() if covered else series, look("moca"), typical)
        if covered:
            axes.axhline(100 * NOMINAL, color=GREY, linestyle="--", linewidth=1, zorder=1)
    panels[0].set_ylabel(CALIBRATION[metric])
    if not covered:
        panels[0].set_ylim(bottom=0)
        return
    low, high = panels[0].get_ylim()
    panels[0].set_ylim(min(low, 55), max(high, 80))
    text: dict[str, Any] = {"textcoords": "offset points", "ha": "right", "va": "top", "fontsize": 8, "color": GREY}
    place: dict[str, Any] = {"xy": (0.98, 100 * NOMINAL), "xycoords": ("axes fraction", "data"), "xytext": (0, -6)}
    panels[0].annotate(f"nominal {100 * NOMINAL:.1f} %", **place, **text)


def _seeds_legend(figure: Figure, cells: Cells, env: str | None = None) -> None:
    finals = {key: scores for key, scores in cells.returns.items() if env in (None, key[0])}
    counts = counted(finals)
    title = middle_of((scores.size for scores in finals.values()), env is not None and cells.typical(env))
    if env is not None and (solved := task(env).solved) is not None:
        title += f"\nbeside a line: how many seeds end at {solved:.0f} or more"
    lost = any(left < all_of_them for each in counts.values() for left, all_of_them in each)
    legend(figure, counts, title, lost=lost)
