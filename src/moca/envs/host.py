"""Environments that are not JAX functions: they are stepped on the host, for all runs at a time."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import equinox as eqx
import numpy as np

from moca.config import ConfigError
from moca.envs.environment import Spaces, Wrapper
from moca.names import MJX


class Outcome(NamedTuple):
    """The result of one action in each of many environments, along a leading axis."""

    observation: np.ndarray  # of the next state, also if that state is the last
    reward: np.ndarray
    terminated: np.ndarray  # the task itself ended, and there are no further rewards
    ended: np.ndarray  # terminated, or at the environment's time limit: a new episode has started
    current: np.ndarray  # the current observation: the first of the new episode if one has started


class Vector(Protocol):
    """Many environments of one kind, each with its own running episode."""

    def reset(self, seeds: Sequence[int]) -> np.ndarray:
        """Returns first observations.

        Equal seeds and actions give equal episodes, also later ones.
        """

    def step(self, actions: np.ndarray) -> Outcome:
        """Steps all environments."""


class HostEnvironment(Spaces):
    """An environment stepped in Python, outside the compiled program.

    `vector` creates copies of it.
    """

    name: eqx.AbstractVar[str | None]  # its name in a config; None if only its user can create it

    @property
    def flatten(self) -> bool:
        """True if observations of several parts are flattened."""
        return False

    @property
    def physics(self) -> str:
        """The name of what simulates it, as in `env.physics`."""
        return MJX

    @property
    def limit(self) -> int | None:
        """The number of steps after which an episode ends by itself, if known."""
        return None

    @abstractmethod
    def vector(self, count: int, repeat: int = 1) -> Vector:
        """Creates `count` copies. Actions are repeated `repeat` times.

        Rewards add up until an end.
        """

    def random_start(self, most: int) -> "HostEnvironment":
        """Returns it with a random action, held for up to `most` steps, before each episode."""
        raise ConfigError(
            f"env.random_start = {most} needs an environment of Playground's, or a compiled one: vary the first state "
            f"in {self.title}'s reset()"
        )

    def single(self) -> Any:
        """Returns one environment with Gymnasium's `reset` and `step` for checks, or None."""
        return None


class HostWrapper(Wrapper, HostEnvironment):
    """An environment on the host around another one, which sets all but the observations."""

    name: str | None = eqx.field(static=True)

    def __init__(self, inner: HostEnvironment, observation_size: int) -> None:
        super().__init__(inner, observation_size)
        self.name = inner.name

    @property
    def title(self) -> str:
        return self.inner.title

    @property
    def flatten(self) -> bool:
        return self.inner.flatten

    @property
    def physics(self) -> str:
        return self.inner.physics

    @property
    def limit(self) -> int | None:
        return self.inner.limit
