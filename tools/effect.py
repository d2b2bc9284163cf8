"""The figure and tables on the effect of the covariance under the preset `raw`.

tools/results.py writes the tables into docs/replication.md.
"""

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt

from moca import figures
from moca.looks import look
from moca.paper.tasks import CARTPOLE, PENDULUM, SOLVED
from moca.studies import statistics

TASKS = {CARTPOLE: "Cartpole", PENDULUM: "Pendulum"}
AGENTS = ("moca", "moca-mc-16", "moca-mc-4", "moca-ce", "bnaf", "sac")
ROWS = (
    (CARTPOLE, "0.025"), (CARTPOLE, "0.05"), (CARTPOLE, "0.1"), (CARTPOLE, "state-norm 0.05"),
    (CARTPOLE, "state-norm 0.2"),
    (PENDULUM, "0.05"), (PENDULUM, "0.1"),
)  # fmt: skip
HEADLINE = ((CARTPOLE, "0.05"), (CARTPOLE, "state-norm 0.05"), (PENDULUM, "0.05"))


def name(agent: str) -> str:
    """Returns an agent's name for the head of a column, such as `MC, K = 4`."""
    if agent == "sac":
        return "SAC, best of 64"
    return look(agent).label.replace("MoCA-MC", "MC").replace(" (", ", ").removesuffix(")")


def table(results: pd.DataFrame, nothing: dict[str, float]) -> str:
    """Returns the main final returns under `raw`, on Pendulum with the seeds that solve it."""
    finals = statistics.final_scores(results[results["preset"] == "raw"])
    agents = [agent for agent in AGENTS if agent in finals.index.unique("agent")]
    lines = [f"| task, noise | {' | '.join(map(name, agents))} |", "|---" * (1 + len(agents)) + "|"]
    for env, noise in HEADLINE:
        cells = []
        for agent in agents:
            key = ("raw", env, agent, noise)
            scores = finals.loc[key].dropna() if key in finals.index else pd.Series(dtype=float)
            text = statistics.mean_t(scores).brief if scores.size else "–"
            if env == PENDULUM and scores.size:
                text += f" ({int((scores >= SOLVED[PENDULUM]).sum())} of {scores.size})"
            cells.append(text)
        lines.append(f"| {place(env, noise)} | {' | '.join(cells)} |")
    means = finals.sort_index().loc["raw", CARTPOLE].mean(axis=1).groupby("noise").max()
    poor = [place(CARTPOLE, noise) for env, noise in ROWS if env == CARTPOLE and means[noise] < nothing[CARTPOLE]]
    below = f", more than any agent at {' and '.join(each.removeprefix('Cartpole, ') for each in poor)}"
    return "\n".join(lines) + f"\n\nDoing nothing scores {nothing[CARTPOLE]:.0f} on Cartpole{below if poor else ''}.\n"


def place(env: str, noise: str) -> str:
    """Returns the task and the noise as text."""
    return f"{TASKS[env]}, {'no noise' if noise == '0' else noise if ' ' in noise else f'σ {noise}'}"


def overestimation(results: pd.DataFrame) -> str:
    """Returns V of the visited states minus their return under `raw`, mean over seeds."""
    finals = statistics.final_scores(results[results["preset"] == "raw"], "overestimation")
    agents = [agent for agent in AGENTS if agent in finals.index.unique("agent")]
    lines = [f"| task, noise | {' | '.join(map(name, agents))} |", "|---" * (1 + len(agents)) + "|"]
    for env, noise in ((CARTPOLE, "0"), *ROWS):
        keys = [("raw", env, agent, noise) for agent in agents]
        cells = [statistics.mean_t(finals.loc[key].dropna()).brief if key in finals.index else "–" for key in keys]
        lines.append(f"| {place(env, noise)} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def at_100k(results: pd.DataFrame) -> str:
    """Returns a sentence on the study's returns at 100k steps, on Pendulum at σ = 0.05."""
    cells = results[results[["preset", "env", "noise"]].eq(["raw", PENDULUM, "0.05"]).all(axis=1)]
    early = cells[cells["step"].between(80_001, 100_000)].groupby(["agent", "seed"])["return_mean"].mean()
    late = statistics.final_scores(cells)
    medians = [f"{early[agent].median():.0f}" for agent in ("moca", "moca-ce")]
    end = late.loc["raw", PENDULUM, "moca-ce", "0.05"].median()
    return (
        f"The {early['moca-ce'].size} seeds of the study have medians of {medians[0]} (MoCA) and {medians[1]} "
        f"(MoCA-CE)\nbetween 80k and 100k steps. MoCA-CE's fall takes longer: at 250k steps its median is {end:.0f}.\n"
    )


def seeds_of(results: pd.DataFrame) -> pd.Series:
    """Returns the seeds of every cell."""
    return results.groupby(statistics.CELL)["seed"].unique()


def brief(seeds: pd.Series, finals: pd.DataFrame, key: tuple[str, str, str, str]) -> str:
    """Returns the mean of a cell with its interval, and how many of its seeds count if not all."""
    return statistics.mean_t(finals.loc[key][sorted(seeds[key])]).brief


def process(results: pd.DataFrame) -> str:
    """Returns a table of final returns under disturbed actions, for each preset that was run."""
    results = results[results["noise"] == "action 0.5"]
    seeds, finals = seeds_of(results), statistics.final_scores(results)
    agents = ("moca", "moca-mc-4", "moca-ce", "bnaf")
    lines = [f"| preset, task | {' | '.join(map(name, agents))} |", "|---" * (1 + len(agents)) + "|"]
    for preset in ("raw", "tuned", "told"):
        for env in (CARTPOLE, PENDULUM):
            cells = [brief(seeds, finals, (preset, env, agent, "action 0.5")) for agent in agents]
            lines.append(f"| `{preset}`, {TASKS[env]} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def draw(results: pd.DataFrame, path: Path) -> Path:
    """Draws learning on Pendulum at σ = 0.05, and returns against noise on Cartpole."""
    raw = results[results["preset"] == "raw"]
    with figures.style():
        figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.7))
        _learning(left, raw, ("moca", "moca-ce", "bnaf", "sac"))
        _against_noise(right, raw, ("moca", "moca-mc-4", "moca-ce", "bnaf", "sac"))
        handles, labels = right.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
        figure.savefig(path, metadata={"Software": None})
        plt.close(figure)
    return path


def _learning(axes: plt.Axes, raw: pd.DataFrame, agents: tuple[str, ...]) -> None:
    """Draws the median seed, since scores form two groups, and for two agents the middle half."""
    for agent in reversed(agents):
        own = look(agent)
        steps, values = statistics.curve(raw, "raw", PENDULUM, agent, "0.05")
        low, middle, high = np.nanquantile(values, (0.25, 0.5, 0.75), axis=1)
        axes.plot(steps / 1000, middle, color=own.colour, linestyle=own.dash, linewidth=own.width)
        if agent in agents[:2]:
            axes.fill_between(steps / 1000, low, high, color=own.colour, alpha=0.15, linewidth=0)
    seeds = values.shape[1]
    axes.set(xlabel="environment steps (thousands)", ylabel="return of an episode", ylim=(0, 1000))
    axes.set_title(f"Pendulum Swingup, σ = 0.05: median of {seeds} seeds,\nof MoCA and MoCA-CE also the middle half")


def _against_noise(axes: plt.Axes, raw: pd.DataFrame, agents: tuple[str, ...]) -> None:
    finals = statistics.final_scores(raw)
    levels = ("0", "0.025", "0.05", "0.1")
    for number, agent in enumerate(agents):
        own = look(agent) if agent != "moca-mc-4" else look(agent)._replace(dash=":", width=1.6)
        keys = [("raw", CARTPOLE, agent, level) for level in levels]
        found = [statistics.mean_t(finals.loc[key]) for key in keys if key in finals.index]
        shift = 0.0006 * (number - (len(agents) - 1) / 2)
        axes.errorbar(
            [float(key[3]) + shift for key in keys if key in finals.index], [each.value for each in found],
            yerr=[each.half_width for each in found], color=own.colour, linestyle=own.dash, capsize=2.5,
            marker="o", markersize=4, linewidth=own.width, label=name(agent),
        )  # fmt: skip
    seeds = int(finals.loc["raw", CARTPOLE, "moca-ce", "0.05"].notna().sum())
    axes.set(xlabel="noise σ", ylabel="return, last tenth of training", ylim=(None, 1010))
    axes.set_title(f"Cartpole Balance: mean and 95 % interval\nof at least {seeds} seeds")
