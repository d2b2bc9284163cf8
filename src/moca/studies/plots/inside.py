"""Diagnostic figures: targets, certainty-equivalence bias, saturation, calibration, values."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from moca import figures
from moca.looks import Look
from moca.studies.plots.cells import Cells, Series, by_kind, noise_label, spaced
from moca.studies.plots.lines import band, signed_axis, steps_axis
from moca.studies.plots.looks import (
    GREY,
    grid_of,
    legend_below,
    lost_handle,
    missing,
    noise_looks,
    number,
    seeds,
    titled,
)  # fmt: skip
from moca.studies.statistics import mean_t

COLUMNS = 3  # at most


class Panel(NamedTuple):
    """A diagnostic panel: a metric of one agent over training, or sampled targets against K."""

    title: str
    metric: str
    agent: str = ""
    label: str = ""


PANELS = (
    Panel("variance of sampled targets", "target_variance"),
    Panel("what certainty equivalence\nleaves out: MoCA", "ce_bias", "moca", "E[V(s′)] − V(E[s′])"),
    Panel("what certainty equivalence\nleaves out: MoCA-CE", "ce_bias", "moca-ce", "E[V(s′)] − V(E[s′])"),
    Panel("saturation: BNAF", "saturation", "bnaf", "greedy actions at a bound (%)"),
    Panel("saturation: NAF (tanh)", "saturation", "naf", "greedy actions at a bound (%)"),
)


def diagnostics(cells: Cells) -> Figure | None:
    """Draws a panel for each task and diagnostic, or returns None if there are no data.

    Colours and markers show the noise level. Panels without data are left out.
    """
    found = [(env, panel, draw) for env in cells.envs for panel in PANELS if (draw := _drawer(cells, env, panel))]
    if not found:
        return None
    columns = 2 if len(found) == 4 else min(COLUMNS, len(found))
    height = 0.6 + 4.1 * -(-len(found) // columns)
    figure, panels = grid_of(len(found), columns, 0.6 + 3.7 * columns, height)
    for axes, (env, panel, draw) in zip(panels.flat, found, strict=False):
        draw(axes)
        axes.set_title(panel.title if len(cells.envs) == 1 else f"{spaced(env)}:\n{panel.title}")
    return titled(figure, f"{cells.title}: median and middle half of the seeds")


def _drawer(cells: Cells, env: str, panel: Panel) -> Callable[[Axes], None] | None:
    """Returns a function that draws the panel into axes, or None if there are no data."""
    looks = noise_looks([noise for levels in by_kind(cells.noises(env)) for noise in levels])
    if not panel.agent:
        scores = {
            (int(agent.rsplit("-", 1)[1]), noise): each
            for (task, agent, noise), each in cells.finals(panel.metric, last=1.0).items()
            if task == env and re.fullmatch(r"moca-mc-\d+", agent) and np.isfinite(each).any()
        }
        return (lambda axes: _variances(axes, scores, looks)) if scores else None
    of_agent = {noise: cells.series(env, panel.agent, noise, panel.metric) for noise in looks}
    series = {noise: each for noise, each in of_agent.items() if each}
    return (lambda axes: _over_training(axes, panel, series, looks)) if series else None


def _variances(axes: Axes, scores: Mapping[tuple[int, str], np.ndarray], looks: Mapping[str, Look]) -> None:
    """Draws variance against the number of samples, one line per noise level."""
    samples = sorted({number for number, _ in scores})
    shown = [noise for noise in looks if any(noise == level for _, level in scores)]
    for noise in shown:
        own = looks[noise]
        known = [k for k in samples if (k, noise) in scores]
        low, middle, high = np.array([np.nanquantile(scores[k, noise], (0.25, 0.5, 0.75)) for k in known]).T
        if noise == shown[0]:
            ideal = middle[0] * known[0] / np.array(samples)
            axes.plot(samples, ideal, color=GREY, alpha=0.3, linewidth=6, label="falls as 1/K")
        counts = [(int(np.isfinite(scores[k, noise]).sum()), scores[k, noise].size) for k in known]
        axes.errorbar(
            known, middle, yerr=(middle - low, high - middle), color=own.colour, marker=own.marker, markersize=5,
            capsize=3, label=missing(noise_label(noise), counts),
        )  # fmt: skip
    axes.set(xscale="log", yscale="log", xlabel="samples K", ylabel="variance, over all training")
    axes.set_xticks(samples, [str(k) for k in samples])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(lambda y, _: f"{y:g}")
    axes.yaxis.set_minor_formatter(lambda y, _: f"{y:g}" if f"{y:.0e}"[0] in "25" else "")
    legend_below(axes, number(each.size for each in scores.values()))


def _over_training(axes: Axes, panel: Panel, found: Mapping[str, Series], looks: Mapping[str, Look]) -> None:
    """Draws a metric of one agent over training, one line per noise level."""
    drawn, handles = [], []
    for place, (noise, series) in enumerate(found.items()):
        own = looks[noise]
        scaled = series.percent() if panel.metric == "saturation" else series
        drawn.append(band(axes, scaled, own, True, place / len(found)))
        label = missing(noise_label(noise), [(series.values.shape[1], series.asked)])
        handles.append(Line2D([], [], color=own.colour, marker=own.marker, markersize=4.5, label=label))
    axes.set_ylabel(panel.label)
    if panel.metric == "saturation":
        axes.set_ylim(-2, 102)
    else:
        axes.axhline(0, color=GREY, linewidth=0.8)
        if signed_axis([axes], [middle for middle in drawn if middle]):
            axes.set_ylabel(f"{panel.label}\n(logarithmic away from 0)")
    steps_axis(axes)
    if any(series.lost.size for series in found.values()):
        handles.append(lost_handle())
    legend_below(axes, number(series.asked for series in found.values()), handles)


Calibrated = tuple[str, str, list[tuple[int, Series]]]  # task, noise, and coverage at each level


def _calibrated(cells: Cells) -> Iterator[Calibrated]:
    """Yields the coverage of every task and noise level that has one."""
    for env in cells.envs:
        for noise in (noise for levels in by_kind(cells.noises(env)) for noise in levels):
            found = [(level, cells.series(env, "moca", noise, f"calibration_{level}")) for level in range(10, 100, 10)]
            if shown := [(level, series) for level, series in found if series]:
                yield env, noise, shown


def calibration(cells: Cells) -> Figure | None:
    """Draws the coverage of central intervals of MoCA's prediction against the nominal one."""
    found = list(_calibrated(cells))
    if not found:
        return None
    columns = min(COLUMNS, len(found))
    height = 1.1 + 2.7 * -(-len(found) // columns)
    figure, panels = grid_of(len(found), columns, 0.7 + 2.6 * max(2, columns), height, sharex=True, sharey=True)
    for (env, noise, levels), axes in zip(found, panels.flat, strict=False):
        _early_and_late(axes, levels)
        axes.set(xlim=(0, 100), ylim=(0, 100), aspect="equal")
        axes.set_title(
            noise_label(noise) if len(cells.envs) == 1 else f"{spaced(env)}, {noise_label(noise)}", fontsize=9
        )
    for place, axes in enumerate(panels.flat[: len(found)]):
        if place + columns >= len(found):  # no panel below it
            axes.set_xlabel("nominal coverage (%)")
            axes.tick_params(labelbottom=True)
        if place % columns == 0:
            axes.set_ylabel("observed coverage (%)")
    left = [(series.values.shape[1], series.asked) for *_, levels in found for _, series in levels]
    figure.legend(
        *panels[0, 0].get_legend_handles_labels(),
        title=f"MoCA, mean with its 95 % interval, {seeds(left)}",
        loc="outside lower center",
        ncols=3,
    )
    return titled(figure, cells.title)


def _early_and_late(axes: Axes, levels: Sequence[tuple[int, Series]]) -> None:
    axes.plot([0, 100], [0, 100], color=GREY, linewidth=0.8, label="calibrated")
    for late, colour, marker, label in (
        (False, figures.COLOURS["ce"], "s--", "first tenth of training"),
        (True, figures.COLOURS["moca"], "o-", "last tenth"),
    ):
        each = [mean_t(100 * _tenth(series, late)) for _, series in levels]
        # Different sizes, so that both are visible where they coincide.
        dots: dict[str, Any] = {"markersize": 4 if late else 7, "markerfacecolor": colour if late else "none"}
        values, halves = ([getattr(estimate, name) for estimate in each] for name in ("value", "half_width"))
        line: dict[str, Any] = {"fmt": marker, "capsize": 2, "linewidth": 1.2, "color": colour, "label": label}
        axes.errorbar([level for level, _ in levels], values, yerr=halves, **line, **dots)


def _tenth(series: Series, late: bool) -> np.ndarray:
    """Returns the mean of every seed over the first or the last tenth of training."""
    share = series.steps / series.steps[-1]
    kept = share > 0.9 if late else share <= max(0.1, share[0])
    return series.values[kept].mean(axis=0)
