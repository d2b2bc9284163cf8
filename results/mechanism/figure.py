"""Draws collapse.png: the values that MoCA and MoCA-CE learn on Pendulum, beside the exact value.

    python results/mechanism/figure.py

It reads maps-moca.npz, maps-moca-ce.npz and exact-value.npz beside it. The maps are those of the
seed whose return over the last tenth of training is the median (of an even number the better one of
the middle two). No policy's value can exceed 1 / (1 − γ) = 100: larger values are red. Grey is
below zero.
"""

import sys
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import numpy as np

from moca.figures import COLOURS, save, style

HERE = Path(__file__).parent
SHOWN = (20_000, 50_000, 120_000, 250_000)
AGENTS = {"moca": "MoCA", "moca-ce": "MoCA-CE"}
LINES = {"moca": (COLOURS["moca"], "-"), "moca-ce": (COLOURS["ce"], "--")}
POSSIBLE, MOST = 100, 250  # no value can be above the first; the scale ends at the second


def typical(data: dict[str, np.ndarray]) -> int:
    """The place of the median seed by return over the last tenth."""
    late = data["steps"] > 0.9 * data["steps"].max()
    means = np.nan_to_num(np.nanmean(data["returns"][late], axis=0), nan=-np.inf)
    return int(np.argsort(means, kind="stable")[len(means) // 2])


def main(folder: Path) -> Path:
    data = {}
    for agent in AGENTS:
        with np.load(folder / f"maps-{agent}.npz") as file:
            data[agent] = dict(file)
    with np.load(HERE / "exact-value.npz") as file:
        exact = dict(file)
    within = matplotlib.colormaps["viridis"](np.linspace(0, 1, POSSIBLE))
    beyond = matplotlib.colormaps["Reds"](np.linspace(0.35, 1, MOST - POSSIBLE))
    colours = matplotlib.colors.ListedColormap(np.concatenate([within, beyond])).with_extremes(under="#c9c9c9")
    with style():
        figure = plt.figure(figsize=(9.6, 6.6))
        grid = figure.add_gridspec(3, 1, height_ratios=(1, 1, 1.05))
        above = grid[:2].subgridspec(4, 5)
        degrees = np.degrees(exact["angle"])
        extent = (degrees[0], degrees[-1], exact["velocity"][0], exact["velocity"][-1])

        def draw(ax: plt.Axes, value: np.ndarray) -> matplotlib.image.AxesImage:
            image = ax.imshow(
                np.asarray(value, np.float32).T, origin="lower", extent=extent, aspect="auto", cmap=colours, vmin=0,
                vmax=MOST, interpolation="nearest",
            )  # fmt: skip
            ax.grid(False)
            ax.set_xticks([-180, 0, 180], ["−180°", "upright", "180°"])
            ax.set_yticks([-8, 0, 8])
            return image

        for row, (agent, label) in enumerate(AGENTS.items()):
            each, seed = data[agent], typical(data[agent])
            for column, step in enumerate(SHOWN):
                ax = figure.add_subplot(above[2 * row : 2 * row + 2, column])
                image = draw(ax, each["value"][list(each["map_steps"]).index(step), seed])
                reached = each["returns"][np.abs(each["steps"] - step).argmin(), seed]
                ax.set_title(f"{step // 1000}k steps, return {reached:.0f}", fontsize=8)
                if column:
                    ax.set_yticklabels([])
                else:
                    ax.set_ylabel(f"{label}\nvelocity (rad/s)")
                if row == 0:
                    ax.set_xticklabels([])
        ax = figure.add_subplot(above[1:3, 4])
        draw(ax, exact["value"])
        ax.set_yticklabels([])
        ax.set_title("Exact value", fontsize=8)
        bar = figure.colorbar(
            image, ax=list(figure.axes), extend="both", pad=0.01, aspect=30, label="value (red: impossible)"
        )
        bar.set_ticks([0, 50, 100, 150, 200, 250])
        bar.outline.set_visible(False)

        below = grid[2].subgridspec(1, 2)
        for place, (name, title) in enumerate(
            (("returns", "Return"), ("overestimation", "Overestimation: V less the discounted return"))
        ):
            ax = figure.add_subplot(below[place])
            for agent, label in AGENTS.items():
                each, (colour, dash) = data[agent], LINES[agent]
                steps = each["steps"] / 1000
                ax.plot(steps, each[name], color=colour, lw=0.5, alpha=0.3)
                ax.plot(steps, np.nanmedian(each[name], axis=1), color=colour, ls=dash, lw=2, label=label)
            ax.set_title(title)
            ax.set_xlabel("thousand steps")
            ax.set_xlim(0, steps.max())
            if name == "returns":
                ax.set_ylim(0, 1000)
            else:
                ax.legend(loc="upper left", ncols=2)
                ax.axhline(0, color=COLOURS["grey"], lw=0.8)
        return save(figure, folder, "collapse", ("png",))[0]


if __name__ == "__main__":
    print(main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE))
