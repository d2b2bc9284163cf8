"""A state made of recent observations, for sensors that do not show velocities [choice].

With n = `sensor.history`, the state is x = (y, Δ₁, …, Δₙ): the newest observation, and its n last
changes from decision to decision, in units of `sensor.scales`. Of the next state only the newest
observation has to be predicted; the rest follows. Episodes start without a change.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from moca.envs.environment import Environment, Spaces, Step, Wrapper
from moca.envs.host import HostEnvironment, HostWrapper, Outcome, Vector


class History(NamedTuple):
    """The layout of such a state."""

    length: int  # n
    scales: tuple[float, ...]  # the unit of a change, for each observed dimension

    @property
    def size(self) -> int:
        """The number of observed dimensions."""
        return len(self.scales)

    @property
    def state_size(self) -> int:
        """The number of dimensions of x."""
        return self.size * (1 + self.length)

    @property
    def hidden(self) -> Bool[np.ndarray, "state"]:
        """Marks the dimensions that the sensor does not show."""
        return np.arange(self.state_size) >= self.size

    @property
    def onto(self) -> Float[np.ndarray, "state obs"]:
        """The derivative of the next state by the next observation."""
        parts = (np.eye(self.size), np.diag(1 / np.array(self.scales)))
        older = np.zeros((self.size * (self.length - 1), self.size))
        return np.concatenate([*parts, older]).astype(np.float32)

    def start(self, observation: Any) -> Any:
        """Returns the state at the start of an episode; along leading axes, those of many."""
        none = self.length * [0 * observation]
        return _numpy(observation).concatenate([observation, *none], axis=-1)

    def follow(self, state: Any, observation: Any) -> Any:
        """Returns the state after the next observation."""
        xp = _numpy(observation)
        change = (observation - state[..., : self.size]) / xp.asarray(self.scales, observation.dtype)
        return xp.concatenate([observation, change, state[..., self.size : -self.size]], axis=-1)

    def coast(self, state: Any) -> Any:
        """Returns the next state if the last change is repeated."""
        xp, newest, change = _numpy(state), state[..., : self.size], state[..., self.size : 2 * self.size]
        return self.follow(state, newest + change * xp.asarray(self.scales, state.dtype))

    def covariance(self, variance: Float[Array, "obs"]) -> Float[Array, "state state"]:
        """Returns the covariance of a state built from independent measurements.

        Each has the variance `variance`.
        """
        units = np.eye((1 + self.length) * self.size, dtype=np.float32).reshape(-1, 1 + self.length, self.size)
        onto = jax.vmap(lambda unit: self.noise(unit[0], unit[1:]), out_axes=1)(jnp.asarray(units))
        return jnp.matmul(onto * jnp.tile(variance, 1 + self.length), onto.T, precision="highest")

    def noise(self, newest: Float[Array, "obs"], before: Float[Array, "n obs"]) -> Float[Array, "state"]:
        """Returns the error of a state from those of its newest and n earlier observations."""
        changes = (jnp.concatenate([newest[None], before[:-1]]) - before) / jnp.array(self.scales)
        return jnp.concatenate([newest, changes.ravel()])


def _numpy(array: Any) -> Any:
    """Returns the module whose functions fit an array."""
    return np if isinstance(array, np.ndarray) else jnp


class WithHistory(Wrapper, Environment):
    """An environment whose observations are such states."""

    layout: History = eqx.field(static=True)

    def __init__(self, inner: Environment, layout: History) -> None:
        super().__init__(inner, layout.state_size)
        self.layout = layout

    @property
    def history(self) -> History:
        return self.layout

    def reset(self, key: Key[Array, ""]) -> tuple[Any, Float[Array, "state"]]:
        state, observation = self.inner.reset(key)
        first = self.layout.start(observation)
        return (state, first), first

    def step(self, state: Any, action: Float[Array, "act"]) -> tuple[Any, Step]:
        inner, before = state
        inner, step = self.inner.step(inner, action)
        after = self.layout.follow(before, step.observation)
        return (inner, after), step._replace(observation=after)


class HistoryHost(HostWrapper):
    """The same for an environment on the host."""

    layout: History = eqx.field(static=True)

    def __init__(self, inner: HostEnvironment, layout: History) -> None:
        super().__init__(inner, layout.state_size)
        self.layout = layout

    @property
    def history(self) -> History:
        return self.layout

    def vector(self, count: int, repeat: int = 1) -> "HistoryVector":
        return HistoryVector(self.inner.vector(count, repeat), self)


class HistoryVector:
    """The environments of a `HistoryHost`."""

    def __init__(self, inner: Vector, env: HistoryHost) -> None:
        self.inner, self._layout = inner, env.layout
        self._states = np.zeros((0, env.observation_size))

    def reset(self, seeds: Sequence[int]) -> np.ndarray:
        self._states = self._layout.start(self.inner.reset(seeds))
        return self._states

    def step(self, actions: np.ndarray) -> Outcome:
        outcome = self.inner.step(actions)
        after = self._layout.follow(self._states, outcome.observation)
        self._states = np.where(outcome.ended[:, None], self._layout.start(outcome.current), after)
        return outcome._replace(observation=after, current=self._states)


def with_history(env: Spaces, length: int, scales: tuple[float, ...]) -> Spaces:
    """Returns the environment with the last `length` observations in its state."""
    layout = History(length, scales)
    if isinstance(env, HostEnvironment):
        return HistoryHost(env, layout)
    assert isinstance(env, Environment)
    return WithHistory(env, layout)
