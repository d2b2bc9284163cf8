"""Lines over training: bands, labels at line ends, and an inset where lines coincide."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from scipy.optimize import isotonic_regression

from moca import figures
from moca.looks import Look
from moca.studies.plots.cells import Middle, Series
from moca.studies.plots.looks import LOST

ALIKE = 0.1  # fraction of the axis: final values closer than this cannot be distinguished
HUGE = 30.0  # times the usual size, beyond which an axis becomes logarithmic


def band(axes: Axes, series: Series, look: Look, typical: bool, place: float = 0.0) -> Middle | None:
    """Draws the line of a cell with its band, and each diverged seed up to its divergence.

    Args:
        axes: Where to draw.
        series: The data.
        look: The look of the line.
        typical: Draw median and middle half, instead of the mean with its interval.
        place: Phase of the markers, from 0 to 1, so that those of several lines do not overlap.
    """
    for seed in series.lost.T:
        _lost(axes, series.steps, seed, look, scale=not series.values.shape[1])
    if not series.values.shape[1]:
        return None
    middle = series.middle(typical)
    every = max(1, len(middle.line) // 6)
    axes.plot(series.steps, middle.line, markersize=4.5, markevery=(int(place * every), every), **look.line)
    if series.values.shape[1] > 1:
        axes.fill_between(series.steps, middle.low, middle.high, color=look.colour, alpha=0.16, linewidth=0)
    return middle


def _lost(axes: Axes, steps: np.ndarray, seed: np.ndarray, look: Look, scale: bool) -> None:
    """Draws a thin line that ends in a cross at the last evaluation before the seed diverged."""
    known = np.isfinite(seed)
    if not known.any():
        return
    line = Line2D(steps[known], seed[known], color=look.colour, **LOST)
    if scale:
        axes.add_line(line)
        axes.autoscale_view()
    else:
        axes.add_artist(line)  # values before divergence may be huge and must not set the axis limits


def end_labels(axes: Axes, ends: Sequence[tuple[float, str, str]], inches: float) -> None:
    """Writes a coloured label at the end of each line, shifted so that labels do not overlap.

    Args:
        axes: Axes with final limits.
        ends: The last value of each line, its text and its colour.
        inches: Approximate height of the axes.
    """
    ends = [end for end in sorted(ends) if np.isfinite(end[0])]
    if not ends:
        return
    points = [(1.0, value) for value, *_ in ends]
    heights = axes.transLimits.transform(axes.transScale.transform(points))[:, 1]
    for place, (_, text, colour) in zip(_apart(heights, 0.125 / inches), ends, strict=True):
        axes.text(1.02, place, text, transform=axes.transAxes, color=colour, fontsize=7.5, va="center")


def _apart(heights: np.ndarray, gap: float) -> np.ndarray:
    """Moves sorted heights as little as possible to leave gaps, within the axes."""
    gaps = gap * np.arange(len(heights))
    rising = isotonic_regression(np.clip(heights, 0, 1) - gaps).x
    return np.clip(rising, 0, max(0, 1 - gaps[-1])) + gaps


def closer(axes: Axes, drawn: Mapping[Look, tuple[np.ndarray, Middle]], finals: Sequence[float]) -> bool:
    """Adds an inset with the second half of training if lines coincide and leave room.

    Returns True if it was added.

    Args:
        axes: Axes with final limits.
        drawn: Steps and line of each agent.
        finals: The mean final value of each agent; lines coincide if all are within a tenth of the
            axis.
    """
    low, high = axes.get_ylim()
    if len(finals) < 2 or max(finals) - min(finals) > ALIKE * (high - low):
        return False
    later = np.concatenate([middle.line[steps >= 0.4 * steps[-1]] for steps, middle in drawn.values()])
    above = later.min() > low + 0.65 * (high - low)
    if not above and later.max() > low + 0.4 * (high - low):
        return False
    inset = axes.inset_axes((0.36, 0.13, 0.62, 0.44) if above else (0.36, 0.5, 0.62, 0.4))
    values = []
    for look, (steps, middle) in drawn.items():
        late = steps >= 0.5 * steps[-1]
        line = look._replace(width=0.8 * look.width).line
        inset.plot(steps[late], middle.line[late], markersize=3, markevery=(0, 6), **line)
        inset.fill_between(steps[late], middle.low[late], middle.high[late], color=look.colour, alpha=0.16, linewidth=0)
        values.append(middle.line[late])
    least, most = np.min(np.concatenate(values)), np.max(np.concatenate(values))
    room = 0.08 * (most - least) or 1.0
    inset.set(ylim=(least - room, most + room))
    inset.set_title("zoomed: second half", fontsize=7, loc="left", pad=2)
    inset.tick_params(labelsize=7, length=2)
    inset.xaxis.set_major_formatter(figures.thousands)
    inset.locator_params(axis="x", nbins=2)
    inset.locator_params(axis="y", nbins=4)
    return True


def steps_axis(axes: Axes) -> None:
    """Formats the axis of steps, from zero and in thousands."""
    axes.set_xlabel("environment steps")
    axes.xaxis.set_major_formatter(figures.thousands)
    axes.set_xlim(left=0)


def signed_axis(panels: Sequence[Axes], drawn: Sequence[Middle]) -> bool:
    """Makes the axis symmetric-logarithmic if some values are far larger than most.

    Returns True if it did.
    """
    sizes = np.concatenate([np.abs(np.concatenate(middle)) for middle in drawn] or [np.zeros(1)])
    sizes = sizes[np.isfinite(sizes) & (sizes > 0)]
    usual = float(np.median(sizes)) if sizes.size else 0.0
    if not usual or sizes.max() < HUGE * max(usual, 1 / HUGE):  # values below one always count as small
        return False
    linear = 10.0 ** np.round(np.log10(usual))
    for axes in panels:
        axes.set_yscale("symlog", linthresh=linear, linscale=0.7)
    return True
