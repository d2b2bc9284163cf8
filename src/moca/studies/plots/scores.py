"""Scores after training: against the noise, and of all runs together."""

from collections.abc import Sequence

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from moca.looks import label, look, ordered
from moca.studies.grid import parse_noise
from moca.studies.plots.cells import TOP, Cells, by_kind, spaced
from moca.studies.plots.looks import counted, legend, middle_of, titled
from moca.studies.statistics import bootstrap, iqm, mean_t, profile


def against_noise(cells: Cells) -> Figure:
    """Draws final return against noise, one panel per task and kind of noise."""
    shown = [(env, noises) for env in cells.envs for noises in by_kind(cells.noises(env)) if noises]
    widths = [max(1.6, 0.75 * len(noises)) for _, noises in shown]
    figure, panels = plt.subplots(
        1, len(shown), figsize=(1.2 + 1.25 * sum(widths), 4.0), sharey=True, squeeze=False, width_ratios=widths
    )
    finals = cells.returns
    for (env, noises), axes in zip(shown, panels[0], strict=True):
        agents = [agent for agent in cells.agents(env) if any((env, agent, n) in finals for n in noises)]
        levels = {noise: parse_noise(noise)[1] for noise in noises}
        span = (max(levels.values()) - min(levels.values())) or 1.0
        for place, agent in enumerate(agents):
            own = [n for n in noises if (env, agent, n) in finals]
            shift = 0.012 * span * (place - (len(agents) - 1) / 2)  # so that bars do not overlap
            found = [mean_t(finals[env, agent, n]) for n in own]
            axes.errorbar(
                [levels[n] + shift for n in own], [each.value for each in found],
                yerr=[each.half_width for each in found], elinewidth=1.2, markersize=5, capsize=2.5, **look(agent).line,
            )  # fmt: skip
        axes.set_xticks(list(levels.values()), [f"{level:g}" for level in levels.values()])
        axes.set_xlim(min(levels.values()) - 0.12 * span, max(levels.values()) + 0.12 * span)
        kind = parse_noise(noises[0])[0]
        axes.set_xlabel({"homoscedastic": "noise σ", "action": "action noise"}.get(kind, f"{kind} noise, σ ≤"))
        if noises == by_kind(cells.noises(env))[0]:
            axes.set_title(spaced(env))
    if all(map(cells.bounded, cells.envs)):
        low, high = panels[0, 0].get_ylim()  # limits of the scores alone: no curve starts at zero
        panels[0, 0].set_ylim(max(0, low), min(high, 1.02 * TOP))
    panels[0, 0].set_ylabel("return, last tenth of training")
    legend(figure, counted(finals), middle_of((each.size for each in finals.values()), typical=False))
    return titled(figure, f"Return against noise, preset {cells.preset}")


def profiles(cells: Cells) -> Figure | None:
    """Draws the share of each agent's runs that end above a return, and their inter-quartile mean.

    Agents are comparable only on the same tasks and noise: those not run on all are omitted.
    """
    finals = {key: scores for key, scores in cells.returns.items() if cells.bounded(key[0])}
    places = {agent: {(env, noise) for env, name, noise in finals if name == agent} for _, agent, _ in finals}
    every = set().union(*places.values())
    agents = ordered(agent for agent, own in places.items() if own == every)
    if not agents:
        return None
    runs = {agent: [each for key, each in finals.items() if key[1] == agent] for agent in agents}
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.6, 3.8), width_ratios=(1.2, 1))
    least = min(np.nanmin(each) for of_cells in runs.values() for each in of_cells if np.isfinite(each).any())
    thresholds = np.linspace(100 * np.floor(least / 100), TOP, 401)
    for row, (agent, of_cells) in enumerate(runs.items()):
        own = look(agent)
        shares = 100 * profile(np.concatenate(of_cells), thresholds)
        left.plot(thresholds, shares, markersize=4.5, markevery=(6 * row, 50), **own.line)
        found = bootstrap(iqm, _table(of_cells))
        ends = np.abs(np.array([[found.low], [found.high]]) - found.value)
        right.errorbar(found.value, row, xerr=ends, fmt=own.marker, color=own.colour, capsize=3, markersize=6)
    left.set(xlabel="return τ, last tenth of training", ylabel="runs that end above τ (%)", ylim=(0, 103))
    left.set_xlim(thresholds[0], TOP)
    left.set_title("performance profiles")
    right.set_yticks(range(len(runs)), [label(agent) for agent in runs])
    right.set(xlabel="return, with 95 % bootstrap interval", ylim=(len(runs) - 0.5, -0.5))
    right.set_title("inter-quartile mean")
    right.grid(visible=False, axis="y")
    joined = {agent: np.concatenate(of_cells) for agent, of_cells in runs.items()}
    counts = {agent: [(int(np.isfinite(scores).sum()), scores.size)] for agent, scores in joined.items()}
    asked = max(scores.size for scores in joined.values())
    text = f"{asked} runs of all tasks and noise levels; one that diverged is above no τ"
    legend(figure, counts, text, unit="runs")
    return titled(figure, f"All runs together, preset {cells.preset}")


def _table(of_cells: Sequence[np.ndarray]) -> np.ndarray:
    """Stacks scores as (runs, cells), padded with NaN."""
    table = np.full((max(map(len, of_cells)), len(of_cells)), np.nan)
    for column, scores in zip(table.T, of_cells, strict=True):
        column[: scores.size] = scores
    return table
