"""Value and greedy action over the plane of a task whose state is an angle and its velocity."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from moca.looks import label, ordered
from moca.studies.grid import parse_noise
from moca.studies.plots.cells import noise_label, spaced
from moca.studies.plots.looks import titled
from moca.studies.results import read_landscape

FAR = 3.0  # times the median: if one agent's values exceed this, each agent gets a separate colour scale


def of_file(path: Path, env: str, preset: str) -> Figure:
    """Draws value above and greedy action below, at the strongest noise, one column per agent."""
    arrays = read_landscape(path)
    noises = {name.split("/")[2] for name in arrays if "/" in name}
    noise = max(sorted(noises), key=lambda text: parse_noise(text)[1])
    agents = ordered(name.split("/")[1] for name in arrays if name.startswith("value/") and name.endswith(f"/{noise}"))
    values, actions = ([arrays[f"{what}/{agent}/{noise}"] for agent in agents] for what in ("value", "action"))
    figure, panels = plt.subplots(
        2, len(agents), figsize=(1.2 + 1.75 * len(agents), 4.5), sharex=True, sharey=True, squeeze=False
    )
    titles = [label(agent).replace(" (", "\n(") for agent in agents]
    ranges, own = _ranges(values)
    bound = max((np.abs(each[np.isfinite(each)]).max(initial=0) for each in actions), default=1.0) or 1.0
    plane = (arrays["angle"], arrays["velocity"])
    _maps(figure, panels[0], plane, values, "viridis", ranges, "value, least to greatest" if own else "value")
    _maps(figure, panels[1], plane, actions, "RdBu_r", [(-bound, bound)] * len(agents), "greedy action")
    for title, (low, high), axes in zip(titles, ranges, panels[0], strict=True):
        span = f"{low:.0f} to {high:.0f}".replace("-", "−")
        axes.set_title(f"{title}\n{span}" if own else title, fontsize=9)
    for axes in panels[-1]:
        axes.set_xticks([-np.pi, 0, np.pi], ["−π", "0", "π"])
    figure.supxlabel("angle (0: upright)", fontsize=9)
    return titled(figure, f"{spaced(env)}, {noise_label(noise)}, a typical seed, preset {preset}")


def _ranges(values: Sequence[np.ndarray]) -> tuple[list[tuple[float, float]], bool]:
    """Returns the colour range of each agent, and whether the ranges differ."""
    finite = [each[np.isfinite(each)] for each in values]
    ranges = [(float(each.min(initial=0)), float(each.max(initial=1e-9))) for each in finite]
    lengths = [high - low for low, high in ranges]
    if max(lengths) > FAR * np.median(lengths):
        return ranges, True
    return [(min(low for low, _ in ranges), max(high for _, high in ranges))] * len(ranges), False


def _maps(
    figure: Figure,
    row: Sequence[Axes],
    plane: tuple[np.ndarray, np.ndarray],
    shown: Sequence[np.ndarray],
    colours: str,
    ranges: Sequence[tuple[float, float]],
    label: str,
) -> None:
    """Draws a row of maps with one colour bar."""
    for axes, each, (low, high) in zip(row, shown, ranges, strict=True):
        image = axes.pcolormesh(*plane, each.T, cmap=colours, vmin=low, vmax=high, shading="nearest", rasterized=True)
        axes.grid(visible=False)
    bar = figure.colorbar(image, ax=list(row), label=label, pad=0.01)
    if len(set(ranges)) > 1:
        bar.set_ticks([])
    row[0].set_ylabel("angular velocity")
