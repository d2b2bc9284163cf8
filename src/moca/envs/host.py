"""Environments that are no JAX functions: they are stepped on the host, one decision of all runs at a time."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import equinox as eqx
import numpy as np

from moca.envs.environment import Spaces


class Outcome(NamedTuple):
    """The result of one action in each of many environments, along a leading axis."""

    observation: np.ndarray  # of the state the action led to, also when that state is the last
    reward: np.ndarray
    terminated: np.ndarray  # the task itself ended; nothing is to be gained from here on
    ended: np.ndarray  # that, or a time limit of the environment's own: a new episode has begun
    current: np.ndarray  # what is observed now: of the new episode's first state where there is one


class Vector(Protocol):
    """Many environments of one kind, each with an episode of its own under way."""

    def reset(self, seeds: Sequence[int]) -> np.ndarray:
        """First observations. Equal seeds and actions give equal episodes, also those after the first."""

    def step(self, actions: np.ndarray) -> Outcome:
        """Steps all environments."""


class HostEnvironment(Spaces):
    """An environment that can be made many times over."""

    name: eqx.AbstractVar[str | None]  # by which a config can name it; None if only its user can make it

    @property
    def flatten(self) -> bool:
        """Whether it flattens observations of several parts."""
        return False

    @property
    def limit(self) -> int | None:
        """The number of steps after which an episode ends by itself, where that is known."""
        return None

    @abstractmethod
    def vector(self, count: int, repeat: int = 1) -> Vector:
        """So many of it, all new. An action is taken `repeat` times; rewards add up, and nothing follows an end."""

    def single(self) -> Any:
        """One of it, with Gymnasium's `reset` and `step`, to be checked; None if it has none such."""
        return None
