"""The figure of the cliff: values and margins, learning curves, and final scores."""

import json
from pathlib import Path

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from moca import figures
from moca.looks import look
from moca.paper.cliff import EDGE, END, SETTINGS, Planner, Trained, exact, run, summary
from moca.studies.statistics import mean_t


def draw(folder: Path, formats: tuple[str, ...] = figures.FORMATS, seeds: int = 10) -> list[Path]:
    """Trains for a few minutes, then writes the figure, and its numbers as JSON."""
    return picture(run(seeds), folder, formats)


def picture(results: dict[str, dict[str, Trained]], folder: Path, formats: tuple[str, ...]) -> list[Path]:
    """Writes the figure of these results."""
    with figures.style():
        figure, (a, b, c) = plt.subplots(1, 3, figsize=(11, 3.6), width_ratios=(1.15, 1, 1))
        _panel_values(a, results["cliff"])
        _panel_curves(b, results["cliff"])
        _panel_scores(c, results)
        paths = figures.save(figure, folder, "cliff", formats)
    path = folder / "cliff.json"
    path.write_text(json.dumps(summary(results), indent=1) + "\n")
    return [*paths, path]


def _colour(name: str) -> str:
    return look(name.split(",")[0]).colour


def _panel_values(axes: Axes, cliff: dict[str, Trained]) -> None:
    axes.axvspan(EDGE, END, color=figures.COLOURS["grey"], alpha=0.12, linewidth=0)
    for name, certain in (("moca", False), ("moca-ce", True)):
        planner, colour = Planner(SETTINGS["cliff"], certain), _colour(name)
        value, action = planner.best()
        rest, rests = EDGE - planner.margin(action), EDGE - cliff[name].margins
        learned = cliff[name].values.mean(axis=0)
        target = r"$V(\mathbb{E}[y'])$" if certain else r"$\mathbb{E}[V(y')]$"
        axes.plot(planner.y, value, color=colour, label=f"exact, with {target}")
        axes.plot(planner.y, learned, "--", color=colour, linewidth=1, label=f"learned, {name}")
        axes.plot(rest, np.interp(rest, planner.y, value), "o", markersize=7, color=colour, zorder=3)
        axes.plot(rests, np.interp(rests, planner.y, learned), "|", markersize=9, color=colour, zorder=2)
    margin = exact("cliff")["optimum_margin"]
    axes.annotate("", (EDGE - margin, 13), (EDGE, 13), arrowprops={"arrowstyle": "<->", "linewidth": 0.8})
    axes.text(EDGE - margin / 2, 12.7, f"margin\n{margin:.2f}", ha="center", va="top", fontsize=8)
    axes.text((EDGE + END) / 2, 19.5, "pit", ha="center", color=figures.COLOURS["grey"])
    for marker, text in (("o", "comes to rest here"), ("|", "so does each seed")):
        axes.plot([], [], marker, markersize=7, color=figures.COLOURS["grey"], label=text)
    axes.set(xlabel="position $y$", ylabel="value", ylim=(-0.5, 22.5), xlim=(0, END), yticks=range(0, 21, 5))
    axes.set_title(r"$\bf{A}$  the margin kept from the edge")
    axes.legend(loc="lower left")


def _panel_curves(axes: Axes, cliff: dict[str, Trained]) -> None:
    for name, trained in cliff.items():
        mean, margin = trained.curve.mean(axis=0), np.array([mean_t(each).half_width for each in trained.curve.T])
        line = ":" if "1 sample" in name else "-"
        axes.fill_between(trained.steps, mean - margin, mean + margin, color=_colour(name), alpha=0.2, linewidth=0)
        axes.plot(trained.steps, mean, line, color=_colour(name), label=name)
    found, grey = exact("cliff"), figures.COLOURS["grey"]
    for name, text in (("optimum", "the best policy"), ("certainty_equivalent", "an exact planner with V at the mean")):
        axes.axhline(found[name], color=grey, linestyle="--", linewidth=1)
        axes.text(trained.steps[-1], found[name] + 0.01, text, ha="right", va="bottom", color=grey, fontsize=8)
    axes.set(xlabel="environment steps", ylabel="score of the greedy policy", ylim=(0, 0.9))
    axes.set_title(r"$\bf{B}$  learning on the cliff")
    axes.legend(loc="lower left", ncols=2, columnspacing=1)


def _panel_scores(axes: Axes, results: dict[str, dict[str, Trained]]) -> None:
    grey = figures.COLOURS["grey"]
    for setting, marker in zip(results, "os", strict=True):
        best = exact(setting)["optimum"]
        axes.axvline(best, color=grey, linestyle="--", linewidth=1)
        axes.text(best - 0.008, -0.55, f"{setting}\n{best:.3f}", ha="right", va="center", color=grey, fontsize=8)
        for row, (name, trained) in enumerate(results[setting].items()):
            each = trained.curve[:, -1]
            axes.errorbar(
                each.mean(), row, xerr=mean_t(each).half_width, fmt=marker, markersize=5, capsize=3, color=_colour(name)
            )
            axes.text(each.mean() - 0.012, row - 0.1, f"{each.mean():.3f}", ha="right", va="bottom", fontsize=8)
    names = list(next(iter(results.values())))
    axes.set_yticks(range(len(names)), [name.replace(", ", ",\n") for name in names])
    axes.set(xlabel="score after training (dashed: the best policy)", xlim=(0.4, 0.95), ylim=(len(names) - 0.5, -0.9))
    axes.set_title(r"$\bf{C}$  cliff and hill")
