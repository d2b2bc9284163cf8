"""The figure of the light-dark task: an episode with and without the width, and all returns."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from moca import figures
from moca.looks import look
from moca.studies.statistics import mean_t
from moca.tasks.light_dark import AGENTS, BRIGHT, DARK, GOAL, HARBOUR, STEPS, Trained, run
from moca.tasks.light_dark_planner import Planner, best_blind, noise, simulate

SIGHT = (-8.0, 5.0)  # the range of positions drawn
PANELS = {"moca, mean and width": "V of mean and width", "moca, mean alone": "V of the mean alone"}


def draw(folder: Path, formats: tuple[str, ...] = figures.FORMATS, seeds: int = 10) -> list[Path]:
    """Trains for some minutes, then writes the figure, and its numbers as JSON."""
    return picture(run(seeds), exact(), folder, formats)


def exact(episodes: int = 20_000) -> dict[str, float]:
    """Returns the optimum, what its policy gets, the best blind policy's return, and nothing's."""
    planner = Planner()
    value, actions = planner.best()
    policies = {
        "optimum_simulated": planner.policy(actions),
        "best_blind": best_blind()[0],
        "nothing": lambda time, mean, width: 0 * mean,
    }
    return {"optimum": planner.optimum(value)} | {
        name: float(simulate(policy, episodes, seed=1).mean()) for name, policy in policies.items()
    }


def share(returns: np.ndarray | float, found: dict[str, float]) -> Any:
    """Returns returns in % of the way from doing nothing to the optimum."""
    return 100 * (returns - found["nothing"]) / (found["optimum"] - found["nothing"])


def summary(results: dict[str, Trained], found: dict[str, float]) -> dict[str, Any]:
    """Returns the results as plain data."""
    agents = {
        name: {
            "mean": round(float(trained.returns.mean()), 3),
            "half_width_95": round(mean_t(trained.returns).half_width, 3),
            "percent": round(float(share(trained.returns.mean(), found)), 1),
            "returns": trained.returns.round(3).tolist(),
        }
        for name, trained in results.items()
    }
    return {name: round(number, 3) for name, number in found.items()} | agents


def picture(results: dict[str, Trained], found: dict[str, float], folder: Path, formats: tuple[str, ...]) -> list[Path]:
    """Writes the figure of these results."""
    with figures.style():
        figure, (a, b, c) = plt.subplots(1, 3, figsize=(11, 3.6), width_ratios=(1, 1, 1.15))
        for axes, letter, (name, title) in zip((a, b), "AB", PANELS.items(), strict=True):
            _panel_episodes(axes, results[name].paths, look("moca").colour)
            axes.set_title(rf"$\bf{{{letter}}}$  MoCA, {title}")
        b.set_ylabel("")
        _panel_returns(c, results, found)
        paths = figures.save(figure, folder, "light-dark", formats)
    path = folder / "light-dark.json"
    path.write_text(json.dumps(summary(results, found), indent=1) + "\n")
    return [*paths, path]


def _panel_episodes(axes: Axes, paths: np.ndarray, colour: str) -> None:
    positions = np.linspace(*SIGHT, 200)
    dark = np.log(noise(positions) / BRIGHT) / np.log(DARK / BRIGHT)
    axes.imshow(
        dark[:, None], extent=(0, STEPS - 1, *SIGHT), origin="lower", aspect="auto", cmap="Greys", vmin=0, vmax=2.5
    )
    axes.axhspan(GOAL - HARBOUR, GOAL + HARBOUR, color=figures.COLOURS["grey"], linewidth=0)
    axes.text(STEPS - 1.3, GOAL + 0.4, "harbour", ha="right", va="bottom", fontsize=8)
    axes.text(STEPS - 1.3, SIGHT[0] + 0.4, "light", ha="right", va="bottom", fontsize=8)
    time = np.arange(STEPS)
    for number, (truth, mean, width) in enumerate(paths.transpose(0, 2, 1)):
        first = number == 0
        axes.plot(time, mean, color=colour, linewidth=1.8 if first else 0.6, alpha=1 if first else 0.6)
        if first:
            axes.fill_between(time, mean - 2 * width, mean + 2 * width, color=colour, alpha=0.3, linewidth=0)
            axes.plot(time, truth, "--", color="black", linewidth=1.2)
    axes.plot([], [], color=colour, label="belief, ± 2 deviations")
    axes.plot([], [], "--", color="black", label="true position")
    axes.set(xlabel="decision", ylabel="position", xlim=(0, STEPS - 1), ylim=SIGHT)
    axes.legend(loc="upper right", bbox_to_anchor=(1, 0.55))


def _panel_returns(axes: Axes, results: dict[str, Trained], found: dict[str, float]) -> None:
    grey = figures.COLOURS["grey"]
    lines = {"optimum": 100.0, "best policy of\nthe mean alone": share(found["best_blind"], found)}
    for text, place in lines.items():
        axes.axvline(place, color=grey, linestyle="--", linewidth=1)
        axes.text(place, -0.75, text, ha="center", va="bottom", color=grey, fontsize=8)
    for row, (name, trained) in enumerate(results.items()):
        each, colour = share(trained.returns, found), look(str(AGENTS[name]["agent"])).colour
        axes.plot(each, np.full(len(each), row + 0.22), "|", markersize=7, color=colour, alpha=0.6)
        axes.errorbar(
            each.mean(), row, xerr=mean_t(each).half_width, fmt="o" if AGENTS[name]["belief.width"] else "s",
            markersize=5, capsize=3, color=colour,
        )  # fmt: skip
    axes.set_yticks(range(len(results)), [name.replace(", ", ",\n") for name in results], fontsize=8)
    axes.set(xlabel="return, in % from doing nothing to the optimum", xlim=(0, 109), ylim=(len(results) - 0.5, -0.8))
    axes.set_title(r"$\bf{C}$  the value of knowing", pad=22)
