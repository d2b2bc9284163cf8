"""Figures of a study: learning curves as the paper arranges them, and what stands behind them.

A band is one standard deviation over the seeds, a bar a 95 % interval. Seeds that diverged are in neither, and the
legend says how many are left; over training each of them is a thin line up to where it diverged. An agent that does
not have a metric is left out of its panel.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from moca import figures
from moca.config import NOISES
from moca.envs.names import GYMNASIUM
from moca.studies.claims import NAMES, NOMINAL
from moca.studies.grid import parse_noise
from moca.studies.results import load_results
from moca.studies.statistics import Estimate, bootstrap, curve, final_scores, iqm, mean_t, profile

if TYPE_CHECKING:
    import pandas as pd

NUMBERED = {"CartpoleBalance": "figure2", "PendulumSwingup": "figure3"}  # [Fig. 2] [Fig. 3]
TOP = 1000.0  # the greatest return of an episode
GREY = figures.COLOURS["grey"]


class Look(NamedTuple):
    """How an agent's line is drawn: told apart in grey too."""

    colour: str
    dash: Any
    width: float
    marker: str


LOOKS = {
    "moca": Look(figures.COLOURS["moca"], "-", 2.2, "o"),
    "moca-mc-16": Look(figures.COLOURS["mc16"], (0, (7, 1.5)), 1.5, "^"),
    "moca-mc-4": Look(figures.COLOURS["mc"], (0, (6, 1, 1, 1, 1, 1)), 1.5, "v"),
    "moca-ce": Look(figures.COLOURS["ce"], "--", 1.5, "s"),
    "bnaf": Look(figures.COLOURS["bnaf"], "-.", 1.5, "D"),
    "sac": Look(figures.COLOURS["sac"], ":", 1.8, "X"),
    "naf": Look(figures.COLOURS["naf"], (0, (1, 2)), 0.9, "P"),
}
LOST: dict[str, Any] = {"linewidth": 0.7, "zorder": 3, "marker": "x", "markersize": 5, "markevery": [-1]}
OTHER = Look(GREY, "-", 1.2, ".")
NOISE_DASHES: tuple[Any, ...] = ("-", "--", ":", "-.", (0, (5, 1, 1, 1, 1, 1)))


class Series(NamedTuple):
    """A metric of one cell over training."""

    steps: np.ndarray
    values: np.ndarray  # (steps, seeds that did not diverge)
    lost: np.ndarray  # (steps, seeds that diverged), NaN from there on

    @property
    def asked(self) -> int:
        """Seeds there were."""
        return self.values.shape[1] + self.lost.shape[1]

    def percent(self) -> "Series":
        """Of a share."""
        return self._replace(values=100 * self.values, lost=100 * self.lost)


def draw(directory: Path, out: Path, formats: Sequence[str] = figures.FORMATS) -> list[Path]:
    """The files of all figures for which the study in that directory has data, one set for each preset."""
    table = load_results(directory)
    paths: list[Path] = []
    with figures.style():
        for preset in table["preset"].unique():
            for name, figure in _drawn(_Cells(table, preset), directory / f"landscape-{preset}.npz"):
                paths += figures.save(figure, out, f"{name}-{preset}", tuple(formats))
    return paths


def noise_label(noise: str) -> str:
    """`σ = 0.025`, or `state-norm, σ ≤ 0.05`."""
    kind, sigma = parse_noise(noise)
    return f"σ = {sigma:g}" if kind == "homoscedastic" else f"{kind}, σ ≤ {sigma:g}"


class _Cells:
    """The results under one preset."""

    def __init__(self, table: "pd.DataFrame", preset: str) -> None:
        self.table, self.preset = table[table["preset"] == preset], preset
        self.envs = list(self.table["env"].unique())
        self._keys = set(zip(self.table["env"], self.table["agent"], self.table["noise"], strict=True))

    def agents(self, env: str) -> list[str]:
        """Those of a task."""
        return _ordered(agent for task, agent, _ in self._keys if task == env)

    def noises(self, env: str) -> list[str]:
        """The noise levels of a task."""
        return list(self.table.loc[self.table["env"] == env, "noise"].unique())

    def bounded(self, env: str) -> bool:
        """Whether the returns of a task lie where those of MuJoCo Playground do, so that tasks share a scale."""
        return bool(self.table.loc[self.table["env"] == env, "return_mean"].dropna().between(0, TOP).all())

    def series(self, env: str, agent: str, noise: str, metric: str) -> Series | None:
        """A metric over training, or nothing where the agent does not have it."""
        if metric not in self.table or (env, agent, noise) not in self._keys:
            return None
        steps, values = curve(self.table, self.preset, env, agent, noise, metric)
        if not np.isfinite(values).any():
            return None
        left = np.isfinite(values[-1])
        return Series(steps, values[:, left], values[:, ~left])

    def finals(self, metric: str = "return_mean", last: float = 0.1) -> dict[tuple[str, str, str], np.ndarray]:
        """The scores of the seeds after training, for each task, agent and noise."""
        if metric not in self.table:
            return {}
        scores = final_scores(self.table, metric, last)
        return {key[1:]: row for key, row in zip(scores.index, scores.to_numpy(), strict=True)}


def _drawn(cells: _Cells, landscape: Path) -> Iterator[tuple[str, Figure]]:
    """Each figure with its name."""
    against_noise = any(len(cells.noises(env)) > 3 for env in cells.envs)  # with fewer the learning curves say it all
    if len(cells.envs) > 2 and all(len(cells.noises(env)) == 1 for env in cells.envs):
        yield "learning", _tasks(cells)
    else:
        for env in cells.envs:
            name = f"learning-{env.replace(':', '-')}"
            yield name if against_noise else NUMBERED.get(env, name), _learning(cells, env)
    if against_noise:
        yield "degradation", _degradation(cells)
    if any(map(cells.bounded, cells.envs)):
        yield "profiles", _profiles(cells)
    if diagnostics := {env: found for env in cells.envs if (found := _diagnosed(cells, env))}:
        yield "diagnostics", _diagnostics(cells, diagnostics)
    if calibrations := list(_calibrated(cells)):
        yield "calibration", _calibration(cells, calibrations)
    if landscape.is_file():
        yield "landscape", _landscape(landscape, cells.preset)


# Learning curves.


def _learning(cells: _Cells, env: str) -> Figure:
    """A column for each noise level: the return of all agents; on Pendulum MoCA's calibration below it."""
    agents, noises = cells.agents(env), cells.noises(env)
    rows = []
    for metric in ("coverage_1sigma", "epistemic_std") if env == "PendulumSwingup" else ():
        found = [cells.series(env, "moca", noise, metric) for noise in noises]
        if any(found):
            rows.append((metric, found))
    figure, panels = plt.subplots(
        1 + len(rows),
        len(noises),
        figsize=(0.7 + (2.9 if len(noises) < 4 else 2.4) * len(noises), 3.4 + 1.6 * len(rows)),
        sharex=True,
        sharey="row",
        squeeze=False,
        height_ratios=[1.5] + [1.0] * len(rows),
    )
    for noise, axes in zip(noises, panels[0], strict=True):
        for agent in reversed(agents):  # MoCA on top
            if series := cells.series(env, agent, noise, "return_mean"):
                _band(axes, series, LOOKS.get(agent, OTHER))
        axes.set(title=noise_label(noise))
    _returns_axis(cells, env, panels[0, 0])
    for (metric, found), row in zip(rows, panels[1:], strict=True):
        (_coverage_row if metric == "coverage_1sigma" else _epistemic_row)(row, found)
    for axes in panels[-1]:
        _steps_axis(axes)
    _seeds_legend(figure, {key: scores for key, scores in cells.finals().items() if key[0] == env})
    return _titled(figure, f"{_spaced(env)}, preset {cells.preset}")


def _tasks(cells: _Cells) -> Figure:
    """A panel for each task: the return of all agents."""
    columns = 3
    rows = -(-len(cells.envs) // columns)
    figure, panels = plt.subplots(rows, columns, figsize=(0.7 + 2.9 * columns, 0.8 + 2.4 * rows), squeeze=False)
    for env, axes in zip(cells.envs, panels.flat, strict=False):
        (noise,) = cells.noises(env)
        for agent in reversed(cells.agents(env)):
            if series := cells.series(env, agent, noise, "return_mean"):
                _band(axes, series, LOOKS.get(agent, OTHER))
        axes.set(title=_spaced(env.removeprefix(GYMNASIUM)))
        _returns_axis(cells, env, axes)
        _steps_axis(axes)
    for axes in panels.flat[len(cells.envs) :]:
        axes.set_visible(False)
    _seeds_legend(figure, cells.finals())
    return _titled(figure, f"Learning curves, preset {cells.preset}")


def _seeds_legend(figure: Figure, finals: Mapping[tuple[str, str, str], np.ndarray]) -> None:
    asked, counts = max(scores.size for scores in finals.values()), _counts(finals)
    lost = any(left < all_of_them for each in counts.values() for left, all_of_them in each)
    _legend(figure, counts, f"mean ± sd over {asked} seeds" if asked > 1 else "one seed", lost=lost)


def _returns_axis(cells: _Cells, env: str, axes: Axes) -> None:
    axes.set_ylabel("return of an episode")
    if cells.bounded(env):
        axes.set_ylim(0, 1.02 * TOP)


def _coverage_row(panels: Sequence[Axes], found: Sequence[Series | None]) -> None:
    for axes, series in zip(panels, found, strict=True):
        if series:
            _band(axes, series.percent(), LOOKS["moca"])
        axes.axhline(100 * NOMINAL, color=GREY, linestyle="--", linewidth=1, zorder=1)
    low, high = panels[0].get_ylim()
    panels[0].set(ylabel="1σ coverage\nof MoCA (%)", ylim=(min(low, 55), max(high, 80)))
    panels[0].annotate(
        f"nominal {100 * NOMINAL:.1f} %",
        (0.98, 100 * NOMINAL),
        (0, -5),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        ha="right",
        va="top",
        fontsize=8,
        color=GREY,
    )


def _epistemic_row(panels: Sequence[Axes], found: Sequence[Series | None]) -> None:
    for axes, series in zip(panels, found, strict=True):
        if series:
            _band(axes, series, LOOKS["moca"])
    panels[0].set_ylabel("epistemic sd\nof MoCA")
    panels[0].set_ylim(bottom=0)


# Scores after training.


def _degradation(cells: _Cells) -> Figure:
    """Final return against the noise; levels scaled by the state stand apart, at the right."""
    figure, panels = plt.subplots(
        1, len(cells.envs), figsize=(1 + 4.4 * len(cells.envs), 4.0), sharey=True, squeeze=False
    )
    finals = cells.finals()
    for env, axes in zip(cells.envs, panels[0], strict=True):
        places, agents = _places(cells.noises(env)), cells.agents(env)
        for number, agent in enumerate(agents):
            shift = 0.011 * max(places.values()) * (number - (len(agents) - 1) / 2)  # so that no bar hides another
            for kind in NOISES:
                noises = [n for n in places if parse_noise(n)[0] == kind and (env, agent, n) in finals]
                _bars(axes, [places[n] + shift for n in noises], [mean_t(finals[env, agent, n]) for n in noises], agent)
        axes.set_xticks(list(places.values()), [_tick(noise) for noise in places], fontsize=8)
        axes.set(title=_spaced(env), xlabel="noise σ")
    if all(map(cells.bounded, cells.envs)):
        low, high = panels[0, 0].get_ylim()  # the scores alone: there is no curve that starts at zero
        panels[0, 0].set_ylim(max(0, low), min(high, 1.02 * TOP))
    panels[0, 0].set_ylabel("return, last tenth of training")
    asked = max(len(each) for each in finals.values())
    _legend(figure, _counts(finals), f"mean with 95 % interval, {asked} seeds", markers=True)
    return _titled(figure, f"Return against noise, preset {cells.preset}")


def _places(noises: Sequence[str]) -> dict[str, float]:
    """Where each noise level stands on the axis."""
    levels = {noise: parse_noise(noise) for noise in noises}
    places = {noise: sigma for noise, (kind, sigma) in levels.items() if kind == "homoscedastic"}
    gap = 0.3 * max(places.values(), default=0) or 1.0
    start = max(places.values(), default=0)
    scaled = [noise for noise in noises if noise not in places]
    return places | {noise: start + gap * (1 + number) for number, noise in enumerate(scaled)}


def _tick(noise: str) -> str:
    kind, sigma = parse_noise(noise)
    return f"{sigma:g}" if kind == "homoscedastic" else f"{kind}\n≤ {sigma:g}"


def _profiles(cells: _Cells) -> Figure:
    """How many of an agent's runs end above a return, and their inter-quartile mean."""
    finals = {key: scores for key, scores in cells.finals().items() if cells.bounded(key[0])}
    agents = _ordered(agent for _, agent, _ in finals)
    runs = {agent: np.array([each for key, each in finals.items() if key[1] == agent]).T for agent in agents}
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.6, 3.8), width_ratios=(1.2, 1))
    thresholds = np.linspace(0, TOP, 401)
    for row, (agent, scores) in enumerate(runs.items()):
        look = LOOKS.get(agent, OTHER)
        line = {"color": look.colour, "linestyle": look.dash, "linewidth": look.width}
        left.plot(thresholds, 100 * profile(scores, thresholds), **line)
        found = bootstrap(iqm, scores)
        ends = np.abs(np.array([[found.low], [found.high]]) - found.value)
        right.errorbar(found.value, row, xerr=ends, fmt=look.marker, color=look.colour, capsize=3, markersize=6)
    left.set(
        xlabel="return τ, last tenth of training", ylabel="runs that end above τ (%)", xlim=(0, TOP), ylim=(0, 103)
    )
    left.set_title("performance profiles")
    right.set_yticks(range(len(runs)), [NAMES.get(agent, agent) for agent in runs])
    right.set(xlabel="return, with 95 % bootstrap interval", ylim=(len(runs) - 0.5, -0.5))
    right.set_title("inter-quartile mean")
    right.grid(visible=False, axis="y")
    counts = {agent: [(np.isfinite(scores).sum(), scores.size)] for agent, scores in runs.items()}
    asked = max(scores.size for scores in runs.values())
    _legend(figure, counts, f"{asked} runs of all tasks and noise levels; one that diverged is above no τ", unit="runs")
    return _titled(figure, f"All runs together, preset {cells.preset}")


# What happens within the agents.


def _diagnosed(cells: _Cells, env: str) -> dict[str, dict[tuple[str, str], Any]]:
    """What there is for the panels of one task: for each metric the agents and noise levels that have it."""
    variances = cells.finals("target_variance", last=1.0)
    found: dict[str, dict[tuple[str, str], Any]] = {
        "target_variance": {
            (agent, noise): mean_t(scores)
            for (task, agent, noise), scores in variances.items()
            if task == env and re.fullmatch(r"moca-mc-\d+", agent) and np.isfinite(scores).any()
        }
    }
    for metric, agents in (("ce_bias", ("moca",)), ("saturation", ("bnaf", "naf"))):
        each = {
            (agent, noise): cells.series(env, agent, noise, metric) for agent in agents for noise in cells.noises(env)
        }
        found[metric] = {key: series for key, series in each.items() if series}
    return {metric: of_metric for metric, of_metric in found.items() if of_metric}


def _diagnostics(cells: _Cells, found: Mapping[str, Mapping[str, Mapping[tuple[str, str], Any]]]) -> Figure:
    """For each task: variance of sampled targets, what certainty equivalence leaves out, saturation."""
    titles = {
        "target_variance": "Monte Carlo targets",
        "ce_bias": "what certainty equivalence leaves out",
        "saturation": "saturation",
    }
    metrics = [metric for metric in titles if any(metric in of_env for of_env in found.values())]
    columns = len(metrics) if len(metrics) > 1 else min(3, len(found))  # of one metric the tasks stand side by side
    rows = -(-len(found) * len(metrics) // columns)
    figure, panels = plt.subplots(rows, columns, figsize=(0.6 + 3.6 * columns, 0.4 + 3.6 * rows), squeeze=False)
    for axes in panels.flat[len(found) * len(metrics) :]:
        axes.set_visible(False)
    for axes, (env, metric) in zip(panels.flat, product(found, metrics), strict=False):
        if metric not in found[env]:
            axes.set_visible(False)
            continue
        if metric == "target_variance":
            _variances(axes, found[env][metric])
        else:
            _over_training(axes, metric, found[env][metric])
        axes.set_title(titles[metric] if len(found) == 1 else f"{_spaced(env)}:\n{titles[metric]}")
    task = f"{_spaced(next(iter(found)))}, " if len(found) == 1 else ""
    return _titled(figure, f"{task}preset {cells.preset}")


def _variances(axes: Axes, found: Mapping[tuple[str, str], Estimate]) -> None:
    """Variance against the number of samples, a line for each noise level."""
    for number, noise in enumerate(dict.fromkeys(noise for _, noise in found)):
        points = {int(agent.rsplit("-", 1)[1]): each for (agent, level), each in found.items() if level == noise}
        samples = np.array(sorted(points))
        values = np.array([points[k].value for k in samples])
        if not number:
            axes.plot(
                samples, values[0] * samples[0] / samples, color=GREY, alpha=0.3, linewidth=6, label="falls as 1/K"
            )
        axes.errorbar(
            samples,
            values,
            yerr=[points[k].half_width for k in samples],
            color=figures.COLOURS["mc"],
            linestyle=NOISE_DASHES[number % len(NOISE_DASHES)],
            marker="ovsD^"[number % 5],
            markersize=5,
            capsize=3,
            label=_missing(noise_label(noise), [(each.seeds, each.asked) for each in points.values()]),
        )
    axes.set(xscale="log", yscale="log", xlabel="samples K", ylabel="variance of a target, over all training")
    ticks = sorted({int(agent.rsplit("-", 1)[1]) for agent, _ in found})
    axes.set_xticks(ticks, [str(k) for k in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(lambda y, _: f"{y:g}")
    axes.yaxis.set_minor_formatter(lambda y, _: f"{y:g}" if f"{y:.0e}"[0] in "235" else "")
    _legend_below(axes, f"mean with 95 % interval, {max(each.asked for each in found.values())} seeds")


def _over_training(axes: Axes, metric: str, found: Mapping[tuple[str, str], Series]) -> None:
    """A metric over training, an agent in its colour, a noise level in its dashes."""
    noises, agents = (list(dict.fromkeys(names)) for names in zip(*((n, a) for a, n in found), strict=True))
    dashes = {noise: NOISE_DASHES[number % len(NOISE_DASHES)] for number, noise in enumerate(noises)}
    for (agent, noise), series in found.items():
        scaled = series.percent() if metric == "saturation" else series
        _band(axes, scaled, LOOKS[agent]._replace(dash=dashes[noise], width=1.5))
    if metric == "saturation":
        axes.set(ylabel="greedy actions at a bound (%)", ylim=(-2, 102))
    else:
        axes.axhline(0, color=GREY, linewidth=0.8)
        axes.set_ylabel("E[V(s′)] − V(E[s′])")
    _steps_axis(axes)
    handles = [
        Line2D([], [], color=GREY, linestyle=dash, linewidth=1.5, label=noise_label(noise))
        for noise, dash in dashes.items()
    ]
    for agent in agents:
        counts = [(series.values.shape[1], series.asked) for (name, _), series in found.items() if name == agent]
        handles.append(Line2D([], [], color=LOOKS[agent].colour, label=_missing(NAMES[agent], counts)))
    if any(series.lost.size for series in found.values()):
        handles.append(_lost_handle())
    _legend_below(axes, f"mean ± sd over {max(series.asked for series in found.values())} seeds", handles)


def _calibrated(cells: _Cells) -> Iterator[tuple[str, str, list[tuple[int, Series]]]]:
    """Task, noise and coverage at each level, wherever there is any."""
    for env in cells.envs:
        for noise in cells.noises(env):
            found = [(level, cells.series(env, "moca", noise, f"calibration_{level}")) for level in range(10, 100, 10)]
            if shown := [(level, series) for level, series in found if series]:
                yield env, noise, shown


def _calibration(cells: _Cells, found: Sequence[tuple[str, str, list[tuple[int, Series]]]]) -> Figure:
    """Coverage of central intervals of MoCA's prediction against what they should cover, early and late."""
    figure, panels = plt.subplots(
        1, len(found), figsize=(0.7 + 2.6 * len(found), 3.7), sharex=True, sharey=True, squeeze=False
    )
    for (env, noise, levels), axes in zip(found, panels[0], strict=True):
        axes.plot([0, 100], [0, 100], color=GREY, linewidth=0.8, label="calibrated")
        for late, colour, marker, label in (
            (False, figures.COLOURS["ce"], "s--", "first tenth of training"),
            (True, figures.COLOURS["moca"], "o-", "last tenth"),
        ):
            each = [mean_t(100 * _tenth(series, late)) for _, series in levels]
            axes.errorbar(
                [level for level, _ in levels],
                [estimate.value for estimate in each],
                yerr=[estimate.half_width for estimate in each],
                fmt=marker,
                markersize=4 if late else 7,  # so that both are seen where they are the same
                markerfacecolor=colour if late else "none",
                capsize=2,
                linewidth=1.2,
                color=colour,
                label=label,
            )
        axes.set(xlabel="nominal coverage (%)", xlim=(0, 100), ylim=(0, 100), aspect="equal")
        axes.set_title(noise_label(noise) if len(cells.envs) == 1 else f"{_spaced(env)}, {noise_label(noise)}")
    panels[0, 0].set_ylabel("observed coverage (%)")
    left = [(series.values.shape[1], series.asked) for *_, levels in found for _, series in levels]
    figure.legend(
        *panels[0, 0].get_legend_handles_labels(),
        title=f"MoCA, mean with 95 % interval, {_seeds(left)}",
        loc="outside lower center",
        ncols=3,
    )
    task = f"{_spaced(cells.envs[0])}, " if len(cells.envs) == 1 else ""
    return _titled(figure, f"{task}preset {cells.preset}")


def _tenth(series: Series, late: bool) -> np.ndarray:
    """The mean of every seed over the first or the last tenth of training."""
    share = series.steps / series.steps[-1]
    kept = share > 0.9 if late else share <= max(0.1, share[0])
    return series.values[kept].mean(axis=0)


def _landscape(path: Path, preset: str) -> Figure:
    """Value above and greedy action below, over the pendulum's plane, at the largest noise; a column per agent."""
    with np.load(path, allow_pickle=False) as file:
        arrays = dict(file)
    noises = {name.split("/")[2] for name in arrays if "/" in name}
    noise = max(sorted(noises), key=lambda text: parse_noise(text)[1])
    known = [name.split("/")[1] for name in arrays if name.startswith("value/") and name.endswith(f"/{noise}")]
    agents = _ordered(known)
    values, actions = ([arrays[f"{what}/{agent}/{noise}"] for agent in agents] for what in ("value", "action"))
    figure, panels = plt.subplots(
        2, len(agents), figsize=(1.2 + 1.75 * len(agents), 4.3), sharex=True, sharey=True, squeeze=False
    )
    finite = np.concatenate([each[np.isfinite(each)] for each in values])
    bound = max((np.abs(each[np.isfinite(each)]).max(initial=0) for each in actions), default=1.0) or 1.0
    scales = (("viridis", finite.min(initial=0), finite.max(initial=1)), ("RdBu_r", -bound, bound))
    for row, shown, (colours, low, high), label in zip(
        panels, (values, actions), scales, ("value", "greedy action"), strict=True
    ):
        for axes, each in zip(row, shown, strict=True):
            image = axes.pcolormesh(
                arrays["angle"],
                arrays["velocity"],
                each.T,
                cmap=colours,
                vmin=low,
                vmax=high,
                shading="nearest",
                rasterized=True,
            )
            axes.grid(visible=False)
        figure.colorbar(image, ax=list(row), label=label, pad=0.01)
        row[0].set_ylabel("angular velocity")
    for agent, axes in zip(agents, panels[0], strict=True):
        axes.set_title(NAMES.get(agent, agent).replace(" (", "\n("), fontsize=9)
    for axes in panels[-1]:
        axes.set_xticks([-np.pi, 0, np.pi], ["−π", "0", "π"])
    figure.supxlabel("angle (0: upright)", fontsize=9)
    return _titled(figure, f"{_spaced('PendulumSwingup')}, {noise_label(noise)}, a typical seed, preset {preset}")


# What the figures share.


def _ordered(agents: Iterable[str]) -> list[str]:
    """As in the legends."""
    agents = set(agents)
    return [*(agent for agent in LOOKS if agent in agents), *sorted(agents - LOOKS.keys())]


def _band(axes: Axes, series: Series, look: Look) -> None:
    """Mean and one standard deviation over the seeds, and each seed that diverged up to there."""
    for seed in series.lost.T:
        _lost(axes, series.steps, seed, look, scale=not series.values.shape[1])
    if not series.values.shape[1]:
        return
    mean = series.values.mean(axis=1)
    axes.plot(
        series.steps,
        mean,
        color=look.colour,
        linestyle=look.dash,
        linewidth=look.width,
        marker="o" if len(mean) == 1 else None,
    )
    if series.values.shape[1] > 1:
        spread = series.values.std(axis=1, ddof=1)
        alpha = 0.07 * look.width  # the band of a thin line is faint
        axes.fill_between(series.steps, mean - spread, mean + spread, color=look.colour, alpha=alpha, linewidth=0)


def _lost(axes: Axes, steps: np.ndarray, seed: np.ndarray, look: Look, scale: bool) -> None:
    """A thin line that ends in a cross at the last evaluation before the seed diverged."""
    known = np.isfinite(seed)
    if not known.any():
        return
    line = Line2D(steps[known], seed[known], color=look.colour, **LOST)
    if scale:
        axes.add_line(line)
        axes.autoscale_view()
    else:
        axes.add_artist(line)  # what a seed does before it diverges may be huge, and is not to set the axis


def _bars(axes: Axes, places: Sequence[float], estimates: Sequence[Estimate], agent: str) -> None:
    look = LOOKS.get(agent, OTHER)
    axes.errorbar(
        places,
        [estimate.value for estimate in estimates],
        yerr=[estimate.half_width for estimate in estimates],
        color=look.colour,
        linestyle=look.dash,
        linewidth=look.width,
        elinewidth=1.2,
        marker=look.marker,
        markersize=5,
        capsize=2.5,
    )


def _counts(finals: Mapping[tuple[str, str, str], np.ndarray]) -> dict[str, list[tuple[int, int]]]:
    """Of each agent's cells, how many seeds have a score and how many there were."""
    counts: dict[str, list[tuple[int, int]]] = {}
    for (_, agent, _), scores in finals.items():
        counts.setdefault(agent, []).append((int(np.isfinite(scores).sum()), scores.size))
    return counts


def _legend(
    figure: Figure,
    counts: Mapping[str, Sequence[tuple[int, int]]],
    title: str,
    markers: bool = False,
    unit: str = "seeds",
    lost: bool = False,
) -> None:
    """The agents, below all panels, with the number of runs wherever some are missing."""
    handles = []
    for agent in _ordered(counts):
        look = LOOKS.get(agent, OTHER)
        line = Line2D([], [], color=look.colour, linestyle=look.dash, linewidth=look.width)
        line.set(marker=look.marker if markers else "", markersize=5)
        line.set_label(_missing(NAMES.get(agent, agent), counts[agent], unit))
        handles.append(line)
    if lost:
        handles.append(_lost_handle())
    columns = _columns([str(line.get_label()) for line in handles], figure.get_size_inches()[0])
    figure.legend(handles=handles, title=title, loc="outside lower center", ncols=columns, handlelength=3.2)


def _lost_handle() -> Line2D:
    """What a legend shows for them all."""
    return Line2D([], [], color=GREY, label="diverged", **LOST)


def _columns(labels: Sequence[str], inches: float) -> int:
    """The most columns of a legend that fit; constrained layout does not see to that."""
    widths = np.array([0.7 + 0.066 * len(label) for label in labels])  # of a line, its spaces and letters of 8 pt
    fitting = [n for n in range(1, len(labels) + 1) if sum(map(max, np.array_split(widths, n))) <= inches]
    return max(fitting, default=1)


def _legend_below(axes: Axes, title: str, handles: Sequence[Any] = ()) -> None:
    """Where no line can be hidden by it."""
    handles = handles or axes.get_legend_handles_labels()[0]
    axes.legend(
        handles=handles,
        title=title,
        ncols=1 + (len(handles) > 3),
        handlelength=3.2,
        columnspacing=1,
        loc="upper center",
        bbox_to_anchor=(0.5, -0.17),
    )


def _missing(label: str, counts: Sequence[tuple[int, int]], unit: str = "seeds") -> str:
    """The label, and how many runs are left where that is not all."""
    complete = all(left == asked for left, asked in counts)
    return label if complete else f"{label}, {_seeds(counts, unit)}"


def _seeds(counts: Sequence[tuple[int, int]], unit: str = "seeds") -> str:
    """`10 seeds`, `9 of 10 seeds`, or from the fewest to the most where the cells differ."""
    few, many = min(left for left, _ in counts), max(left for left, _ in counts)
    asked = max(asked for _, asked in counts)
    if few == asked:
        return f"{asked} {unit}"
    return f"{few} of {asked} {unit}" if few == many else f"{few} to {many} of {asked} {unit}"


def _steps_axis(axes: Axes) -> None:
    axes.set_xlabel("environment steps")
    axes.xaxis.set_major_formatter(lambda x, _: f"{x / 1000:g}k" if x else "0")
    axes.set_xlim(left=0)


def _titled(figure: Figure, title: str) -> Figure:
    figure.suptitle(title, fontsize=11)
    figure.set_layout_engine("constrained", w_pad=0.07)
    return figure


def _spaced(env: str) -> str:
    """`Cartpole Balance`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", env)
