"""The figure and tables on the effect of the covariance under the preset `raw`.

tools/results.py writes them into README.md and docs/replication.md.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt

from moca import figures
from moca.looks import look
from moca.paper.tasks import CARTPOLE, PENDULUM, SOLVED
from moca.presets import SAC_USUAL
from moca.studies import statistics

TASKS = {CARTPOLE: "Cartpole", PENDULUM: "Pendulum"}
AGENTS = ("moca", "moca-mc-16", "moca-mc-4", "moca-ce", "bnaf", "sac")
ROWS = (
    (CARTPOLE, "0.025"), (CARTPOLE, "0.05"), (CARTPOLE, "0.1"), (CARTPOLE, "state-norm 0.2"),
    (PENDULUM, "0.05"), (PENDULUM, "0.1"),
)  # fmt: skip


def name(agent: str) -> str:
    """Returns an agent's name for the head of a column, such as `MC, K = 4`."""
    if agent == "sac":
        return "SAC, best of 64"
    return look(agent).label.replace("MoCA-MC", "MC").replace(" (", ", ").removesuffix(")")


def table(results: pd.DataFrame) -> str:
    """Returns a table of final returns under `raw`, on Pendulum with the seeds that solve it."""
    finals = statistics.final_scores(results[results["preset"] == "raw"])
    agents = [agent for agent in AGENTS if agent in finals.index.unique("agent")]
    lines = [f"| task, noise | {' | '.join(map(name, agents))} |", "|---" * (1 + len(agents)) + "|"]
    for env, noise in ROWS:
        cells = []
        for agent in agents:
            key = ("raw", env, agent, noise)
            scores = finals.loc[key].dropna() if key in finals.index else pd.Series(dtype=float)
            text = statistics.mean_t(scores).brief if scores.size else "–"
            if env == PENDULUM and scores.size:
                text += f" ({int((scores >= SOLVED[PENDULUM]).sum())} of {scores.size})"
            cells.append(text)
        lines.append(f"| {place(env, noise)} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


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


def rates(path: Path) -> str:
    """Returns each agent's final return at its best of nine pairs of rates, and at `raw`'s."""
    searched = pd.read_parquet(path)
    for name in ("value.lr", "critic.lr"):
        searched[name] = searched["point"].map(lambda point, name=name: json.loads(point)[name])
    last = searched[searched["step"] > 0.9 * searched.groupby("env")["step"].transform("max")]
    by_seed = last.groupby(["env", "agent", "value.lr", "critic.lr", "seed"])["return_mean"].mean().unstack("seed")
    agents = ("moca", "moca-ce", "bnaf")
    lines = ["| task, σ 0.05 | rates | MoCA | MoCA-CE | BNAF |", "|---" * 5 + "|"]
    for env in (CARTPOLE, PENDULUM):
        best = {agent: by_seed.loc[env, agent].mean(axis=1).idxmax() for agent in agents}
        for label, pick in (("of `raw`", dict.fromkeys(agents, (1e-2, 1e-3))), ("each at its best", best)):
            shown = []
            for agent in agents:
                value, critic = pick[agent]
                scores = by_seed.loc[env, agent, value, critic].dropna()
                own = f" ({value:g}, {critic:g})" if pick is best else ""
                shown.append(statistics.mean_t(scores).brief + own)
            lines.append(f"| {TASKS[env]} | {label} | {' | '.join(shown)} |")
    return "\n".join(lines) + "\n"


def process(results: pd.DataFrame) -> str:
    """Returns a table of final returns under disturbed actions, for `raw` and `tuned`."""
    finals = statistics.final_scores(results[results["noise"] == "action 0.5"])
    agents = ("moca", "moca-mc-4", "moca-ce", "bnaf")
    lines = [f"| preset, task | {' | '.join(map(name, agents))} |", "|---" * (1 + len(agents)) + "|"]
    for preset in ("raw", "tuned"):
        for env in (CARTPOLE, PENDULUM):
            cells = [statistics.mean_t(finals.loc[preset, env, agent, "action 0.5"]).brief for agent in agents]
            lines.append(f"| `{preset}`, {TASKS[env]} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def sac(path: Path) -> str:
    """Returns SAC's five best of 64 settings, the best without random actions, and the usual."""
    searched = _with_settings(pd.read_parquet(path), ("sac.", "train.b", "train.u"))
    last = searched[searched["step"] > 0.8 * searched.groupby("env")["step"].transform("max")]
    scores = last.groupby(["settings", "env"])["return_mean"].mean().unstack()
    scores = scores.assign(mean=scores.mean(axis=1)).sort_values("mean", ascending=False)
    known = {key: json.loads(key) for key in scores.index}
    unaided = next(key for key in scores.index if not known[key]["sac.probability"])
    usual = next(key for key in scores.index if all(known[key][k] == v for k, v in SAC_USUAL.items()))
    lines = [
        "| place | width | batch | updates | rate | target entropy | random actions | Cartpole | Pendulum | mean |"
    ]
    lines.append("|---" * 10 + "|")
    for key in dict.fromkeys([*scores.index[:5], unaided, usual]):
        own, row = known[key], scores.loc[key]
        place = f"{scores.index.get_loc(key) + 1}{', the usual' if key == usual else ''}"
        settings = (own["sac.width"], own["train.batch"], own["train.updates"], own["sac.actor_lr"])
        rest = (own["sac.entropy_per_action"], own["sac.probability"])
        numbers = [f"{number:g}" for number in (*settings, *rest)]
        lines.append(f"| {' | '.join([place, *numbers, *(f'{row[c]:.0f}' for c in (CARTPOLE, PENDULUM, 'mean'))])} |")
    return "\n".join(lines) + "\n"


def completions(path: Path) -> str:
    """Returns the three best completions of the printed settings on each task, and the mean."""
    searched = _with_settings(
        pd.read_parquet(path), ("value.", "critic.v", "critic.c", "train.g", "train.c", "exp", "own")
    )
    lines = ["| task | completion | seeds | updates |", "|---" * 4 + "|"]
    for env in (CARTPOLE, PENDULUM):
        own = searched[searched["env"] == env]
        last = own[own["step"] > 0.9 * own.groupby("settings")["step"].transform("max")]
        by_seed = last.groupby(["settings", "seed"])["return_mean"].mean().unstack()
        by_seed = by_seed.loc[by_seed.mean(axis=1).sort_values(ascending=False).index]
        for key in by_seed.index[:3]:
            words = ", ".join(_setting(k, v) for k, v in json.loads(key).items() if not k.endswith("_end"))
            steps = int(own[own["settings"] == key]["step"].max())
            lines.append(f"| {TASKS[env]} | {words} | {', '.join(f'{s:.0f}' for s in by_seed.loc[key])} | {steps:,} |")
        rest = by_seed.iloc[3:].mean(axis=1)
        lines.append(f"| {TASKS[env]} | the other {len(rest)} | {rest.min():.0f} to {rest.max():.0f} (means) | |")
    return "\n".join(lines) + "\n"


def _setting(name: str, value: Any) -> str:
    return name if value is True else f"{name} = {value if isinstance(value, str) else f'{value:g}'}"


def _with_settings(searched: pd.DataFrame, starts: tuple[str, ...]) -> pd.DataFrame:
    """Returns a search's table with a column of the varied settings, as JSON."""
    both = [json.loads(p) | json.loads(q) for p, q in zip(searched["program"], searched["point"], strict=True)]
    return searched.assign(settings=[json.dumps({k: v for k, v in s.items() if k.startswith(starts)}) for s in both])


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
