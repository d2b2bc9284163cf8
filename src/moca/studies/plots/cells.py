"""The results of a study under one preset, prepared for figures."""

import re
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from moca.looks import ordered
from moca.names import displayed
from moca.studies.grid import ACTION, parse_noise
from moca.studies.registry import task
from moca.studies.statistics import CELL, by_cell, curves_of, means_t

if TYPE_CHECKING:
    import pandas as pd

TOP = 1000.0  # the largest return of an episode


class Middle(NamedTuple):
    """A line with its band."""

    line: np.ndarray
    low: np.ndarray
    high: np.ndarray


class Series(NamedTuple):
    """A metric of one cell over training."""

    steps: np.ndarray
    values: np.ndarray  # (steps, seeds that did not diverge)
    lost: np.ndarray  # (steps, diverged seeds), NaN after the divergence

    @property
    def asked(self) -> int:
        """The number of seeds, diverged ones included."""
        return self.values.shape[1] + self.lost.shape[1]

    def percent(self) -> "Series":
        """Returns the series in percent."""
        return self._replace(values=100 * self.values, lost=100 * self.lost)

    def middle(self, typical: bool) -> Middle:
        """Returns median and middle half of the seeds, or mean with its 95 % interval."""
        if typical:
            low, line, high = np.quantile(self.values, (0.25, 0.5, 0.75), axis=1)
            return Middle(line, low, high)
        return Middle(*np.array([each[:3] for each in means_t(self.values)]).T)


class Cells:
    """The results of a study under one preset, by task, agent and noise level."""

    def __init__(self, table: "pd.DataFrame", preset: str) -> None:
        self.table, self.preset = table[table["preset"] == preset], preset
        self.envs = list(self.table["env"].unique())
        self._rows = dict(iter(self.table.groupby(CELL[1:], sort=False)))

    @property
    def title(self) -> str:
        """The preset, and the task if there is only one."""
        return f"{f'{spaced(self.envs[0])}, ' if len(self.envs) == 1 else ''}preset {self.preset}"

    def agents(self, env: str) -> list[str]:
        """Returns the agents of a task."""
        return ordered(agent for task, agent, _ in self._rows if task == env)

    def noises(self, env: str) -> list[str]:
        """Returns the noise levels of a task."""
        return list(dict.fromkeys(noise for task, _, noise in self._rows if task == env))

    def bounded(self, env: str) -> bool:
        """Returns True if a task's returns are within Playground's range, a common scale."""
        return bool(self.table.loc[self.table["env"] == env, "return_mean"].dropna().between(0, TOP).all())

    def series(self, env: str, agent: str, noise: str, metric: str) -> Series | None:
        """Returns a metric over training, or None if the agent does not have it."""
        if metric not in self.table or (env, agent, noise) not in self._rows:
            return None
        steps, (values,) = curves_of(self._rows[env, agent, noise], [metric])
        if not np.isfinite(values).any():
            return None
        left = np.isfinite(values[-1])
        return Series(steps, values[:, left], values[:, ~left])

    def finals(self, metric: str = "return_mean", last: float = 0.1) -> dict[tuple[str, str, str], np.ndarray]:
        """Returns the seeds' final scores, by task, agent and noise; NaN for a diverged seed."""
        return {key[1:]: scores for key, scores in by_cell(self.table, metric, last).items()}

    @cached_property
    def returns(self) -> dict[tuple[str, str, str], np.ndarray]:
        """The seeds' final returns, as in `finals`."""
        return self.finals()

    def solved(self, env: str, agent: str, noise: str) -> tuple[int, int] | None:
        """Returns how many seeds solved a task, and how many there are; None if unknown."""
        return task(env).count(self.returns.get((env, agent, noise), ()))

    def typical(self, env: str) -> bool:
        """Returns True if some agent's seeds form two groups, with the mean between them."""
        return any(task(env).splits(scores) for (own, *_), scores in self.returns.items() if own == env)


def spaced(env: str) -> str:
    """Returns a task's name with spaces, such as `Cartpole Balance`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", displayed(env))


def noise_label(noise: str) -> str:
    """Returns `σ = 0.025`, `state-norm, σ ≤ 0.05`, `action noise 0.5`, or `no noise`."""
    kind, sigma = parse_noise(noise)
    if sigma == 0:
        return "no noise"
    if kind == ACTION:
        return f"action noise {sigma:g}"
    return f"σ = {sigma:g}" if kind == "homoscedastic" else f"{kind}, σ ≤ {sigma:g}"


def by_kind(noises: list[str]) -> list[list[str]]:
    """Returns the levels of each kind of noise, lowest first."""
    kinds: dict[str, list[str]] = {}
    for noise in noises:
        kinds.setdefault(parse_noise(noise)[0], []).append(noise)
    order = sorted(kinds, key=lambda kind: (kind != "homoscedastic", kind))
    return [sorted(kinds[kind], key=lambda noise: parse_noise(noise)[1]) for kind in order]
