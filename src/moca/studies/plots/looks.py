"""The looks of noise levels, and the legends of figures."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from moca import figures
from moca.looks import Look, look, ordered
from moca.studies.grid import parse_noise

GREY = figures.COLOURS["grey"]


LOST: dict[str, Any] = {"linewidth": 0.7, "zorder": 3, "marker": "x", "markersize": 5, "markevery": [-1]}
# Of noise levels, lowest first: blue for constant noise, red for noise that grows with the state.
SHADES = {
    "homoscedastic": ("#8fb8de", "#4f8ecb", "#1f5fa8", "#12376b", "#000000"),
    "": ("#f0a060", "#c04a10", "#7a2400"),
}
NOISE_MARKERS = {"homoscedastic": "ovsD^", "": "PX*"}


def noise_looks(noises: Sequence[str]) -> dict[str, Look]:
    """Returns the looks of the noise levels in a panel."""
    found: dict[str, Look] = {}
    counts: dict[str, int] = {}
    for noise in noises:
        kind = parse_noise(noise)[0]
        kind = kind if kind in SHADES else ""
        number = counts[kind] = counts.get(kind, -1) + 1
        shades, markers = SHADES[kind], NOISE_MARKERS[kind]
        found[noise] = Look(noise, noise, shades[number % len(shades)], markers[number % len(markers)])
    return found


def counted(finals: Mapping[tuple[str, str, str], np.ndarray]) -> dict[str, list[tuple[int, int]]]:
    """Returns, for each of an agent's cells, the number of seeds with a score and of all seeds."""
    counts: dict[str, list[tuple[int, int]]] = {}
    for (_, agent, _), scores in finals.items():
        counts.setdefault(agent, []).append((int(np.isfinite(scores).sum()), scores.size))
    return counts


def legend(
    figure: Figure, counts: Mapping[str, Sequence[tuple[int, int]]], title: str, unit: str = "seeds", lost: bool = False
) -> None:
    """Adds a legend of the agents below all panels, with the number of runs if some are missing."""
    handles = []
    for agent in ordered(counts):
        own = look(agent)
        handles.append(Line2D([], [], markersize=5, label=missing(own.label, counts[agent], unit), **own.line))
    if lost:
        handles.append(lost_handle())
    columns = _columns([str(line.get_label()) for line in handles], figure.get_size_inches()[0])
    figure.legend(handles=handles, title=title, loc="outside lower center", ncols=columns, handlelength=3.2)


def lost_handle() -> Line2D:
    """Returns the legend entry for diverged seeds."""
    return Line2D([], [], color=GREY, label="diverged", **LOST)


def _columns(labels: Sequence[str], inches: float) -> int:
    """Returns the largest number of legend columns that fits.

    Constrained layout does not ensure this.
    """
    # Of a line sample, its spaces, and letters in 8 pt.
    widths = np.array([0.7 + 0.066 * len(label) for label in labels])
    fitting = [n for n in range(1, len(labels) + 1) if sum(map(max, np.array_split(widths, n))) <= inches]
    return max(fitting, default=1)


def legend_below(axes: Axes, title: str, handles: Sequence[Any] = ()) -> None:
    """Adds a legend below a panel, where it covers no line."""
    handles = handles or axes.get_legend_handles_labels()[0]
    columns: dict[str, Any] = {"ncols": 1 + (len(handles) > 3), "handlelength": 3.2, "columnspacing": 1}
    axes.legend(handles=handles, title=title, loc="upper center", bbox_to_anchor=(0.5, -0.17), **columns)


def missing(label: str, counts: Sequence[tuple[int, int]], unit: str = "seeds") -> str:
    """Returns the label, with the number of remaining runs if some are missing."""
    complete = all(left == asked for left, asked in counts)
    return label if complete else f"{label}, {seeds(counts, unit)}"


def middle_of(asked: Iterable[int], typical: bool) -> str:
    """Describes a line and its band, and the number of seeds."""
    text = number(asked)
    if text == "one seed":
        return text
    return f"median and middle half of {text}" if typical else f"mean of {text} with its 95 % interval"


def number(asked: Iterable[int]) -> str:
    """Returns `10 seeds`, or `40 to 120 seeds` if cells differ."""
    asked = set(asked)
    few, many = min(asked), max(asked)
    return f"{few} to {many} seeds" if few < many else "one seed" if many == 1 else f"{many} seeds"


def seeds(counts: Sequence[tuple[int, int]], unit: str = "seeds") -> str:
    """Returns `10 seeds`, `9 of 10 seeds`, or a range if the cells differ."""
    few, many = min(left for left, _ in counts), max(left for left, _ in counts)
    asked = max(asked for _, asked in counts)
    if few == asked:
        return f"{asked} {unit}"
    return f"{few} of {asked} {unit}" if few == many else f"{few} to {many} of {asked} {unit}"


def grid_of(count: int, columns: int, width: float, height: float, **shared: Any) -> tuple[Figure, np.ndarray]:
    """Creates a figure with `count` panels in rows of `columns`; hides empty ones.

    Args:
        count: Number of panels.
        columns: Number of columns.
        width: Width of the figure, in inches.
        height: Height of the figure, in inches.
        shared: Further arguments of `plt.subplots`, such as shared axes.
    """
    rows = -(-count // columns)
    figure, panels = plt.subplots(rows, columns, figsize=(width, height), squeeze=False, **shared)
    for axes in panels.flat[count:]:
        axes.set_visible(False)
    return figure, panels


def titled(figure: Figure, title: str) -> Figure:
    """Adds a title above all panels and lays the figure out; returns it."""
    figure.suptitle(title, fontsize=11)
    figure.set_layout_engine("constrained", w_pad=0.07)
    return figure
