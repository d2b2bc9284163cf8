"""Environments: two pure functions and a few facts; and the noise between an environment and an agent [App. A].

    state, observation = env.reset(key)
    state, step = env.step(state, action)

A time limit is not the environment's business: the loop cuts episodes and never calls that a termination.
"""

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from moca import config


class Step(NamedTuple):
    """The result of one action."""

    observation: Float[Array, "obs"]  # of the state the action led to, also when that state is the last
    reward: Float[Array, ""]
    terminated: Bool[Array, ""]  # the task itself ended; nothing is to be gained from here on


class Spaces(eqx.Module):
    """All that an agent must know of an environment."""

    observation_size: eqx.AbstractVar[int]
    action_low: eqx.AbstractVar[tuple[float, ...]]
    action_high: eqx.AbstractVar[tuple[float, ...]]
    terminates: eqx.AbstractVar[bool]  # False promises that `terminated` is never true

    @property
    def action_size(self) -> int:
        """Number of action dimensions."""
        return len(self.action_low)

    def to_bounds(self, action: Float[Array, "*n act"]) -> Float[Array, "*n act"]:
        """An action in [−1, 1] in the environment's units."""
        low, high = jnp.array(self.action_low), jnp.array(self.action_high)
        return low + (action + 1) / 2 * (high - low)

    def from_bounds(self, action: Float[Array, "*n act"]) -> Float[Array, "*n act"]:
        """An action in the environment's units in [−1, 1]."""
        low, high = jnp.array(self.action_low), jnp.array(self.action_high)
        return 2 * (action - low) / (high - low) - 1


class Environment(Spaces):
    """Pure, so that a whole run compiles into one program. Randomness comes from the key given to `reset`."""

    @abstractmethod
    def reset(self, key: Key[Array, ""]) -> tuple[Any, Float[Array, "obs"]]:
        """A first state, and what is observed of it."""

    @abstractmethod
    def step(self, state: Any, action: Float[Array, "act"]) -> tuple[Any, Step]:
        """The next state, and what the action brought."""


class ActionRepeat(Environment):
    """The same action `times` times; rewards add up, and nothing follows a termination."""

    inner: Environment
    times: int = eqx.field(static=True)
    observation_size: int = eqx.field(static=True)
    action_low: tuple[float, ...] = eqx.field(static=True)
    action_high: tuple[float, ...] = eqx.field(static=True)
    terminates: bool = eqx.field(static=True)

    def __init__(self, inner: Environment, times: int) -> None:
        self.inner, self.times = inner, times
        self.observation_size, self.terminates = inner.observation_size, inner.terminates
        self.action_low, self.action_high = inner.action_low, inner.action_high

    def reset(self, key: Key[Array, ""]) -> tuple[Any, Float[Array, "obs"]]:
        return self.inner.reset(key)

    def step(self, state: Any, action: Float[Array, "act"]) -> tuple[Any, Step]:
        def again(carry: tuple[Any, Step], _: None) -> tuple[tuple[Any, Step], None]:
            state, step = carry
            next_state, following = self.inner.step(state, action)
            summed = following._replace(reward=step.reward + following.reward)
            moved = (next_state, summed)
            if not self.inner.terminates:
                return moved, None
            return jax.tree.map(lambda a, b: jnp.where(step.terminated, a, b), carry, moved), None

        shapes = jax.eval_shape(self.inner.step, state, action)[1]
        nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        # A copy of the physics takes seconds to compile. On a GPU, where a loop may cost launches, there are two.
        copies = 1 if jax.default_backend() == "cpu" else 2
        (state, step), _ = jax.lax.scan(again, (state, nothing), length=self.times, unroll=copies)
        return state, step


def vector_size(observation: Any, name: str) -> int:
    """The size of the vector that `vector` makes of an observation like this; refuses what is not an array.

    Args:
        observation: an observation, or its shape; of a dictionary the entry `state` counts.
        name: the environment's, for the message.
    """
    shown: Any = observation.get("state") if isinstance(observation, Mapping) else observation
    if not hasattr(shown, "shape"):
        said = ", ".join(observation) if isinstance(observation, Mapping) else type(observation).__name__
        raise config.ConfigError(
            f"observations of {name} must be an array, or a dictionary with one named state; they are {said}: wrap the "
            "environment so that it shows a vector"
        )
    return int(np.prod(shown.shape))


def vector(observation: Any) -> Float[Array, "obs"]:
    """An observation as a vector; of a dictionary the entry `state`, which is what a policy may see."""
    shown = observation["state"] if isinstance(observation, Mapping) else observation
    return jnp.ravel(jnp.asarray(shown, jnp.float32))


def bounds_of(low: Any, high: Any, shape: Any, name: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Lower and upper bounds of actions of that shape, per dimension; refuses infinite ones and those that coincide."""
    lows, highs = (np.broadcast_to(np.asarray(bound, np.float64), shape).ravel() for bound in (low, high))
    if not (np.isfinite(lows).all() and np.isfinite(highs).all() and (lows < highs).all()):
        raise config.ConfigError(
            f"actions of {name} must have finite bounds that lie apart, not {lows.tolist()} and {highs.tolist()}"
        )
    return tuple(lows.tolist()), tuple(highs.tolist())


Level = Float[Array, ""]


def homoscedastic(
    sigma: Level, sigma_min: Level, scales: tuple[float, ...], observation: Float[Array, "*n obs"]
) -> Float[Array, ""]:
    """σ, everywhere."""
    return sigma


def state_norm(
    sigma: Level, sigma_min: Level, scales: tuple[float, ...], observation: Float[Array, "*n obs"]
) -> Float[Array, "*n 1"]:
    """σ_min + (σ − σ_min) clip(‖s ⊘ s_max‖ / m_max, 0, 1), m_max² the number of scaled dimensions [App. A.2].

    Infinite scales leave a dimension out of the norm.
    """
    inverse = [1 / scale for scale in scales]
    counted = sum(scale > 0 for scale in inverse)
    norm = jnp.linalg.norm(observation * jnp.array(inverse, observation.dtype), axis=-1, keepdims=True)
    return sigma_min + (sigma - sigma_min) * jnp.clip(norm / math.sqrt(counted), 0, 1)


class Noise(eqx.Module):
    """Gaussian noise on observations, which physics and rewards never see, and on executed actions.

    One draw per time step serves as s′ and as the next s [choice]. A kind of noise that depends on the state is
    constant where σ_min = σ, so that runs of both can share a program.
    """

    sigma: Level
    sigma_min: Level
    action: Level  # deviation of the disturbance of an action, over half its range
    scales: tuple[float, ...] = eqx.field(static=True)
    kind: str = eqx.field(static=True)

    def deviation(self, observation: Float[Array, "*n obs"]) -> Float[Array, "*n obs"]:
        """σ(s) of each dimension."""
        deviation = config.NOISES[self.kind].load()(self.sigma, self.sigma_min, self.scales, observation)
        return jnp.broadcast_to(deviation, observation.shape)

    def __call__(self, observation: Float[Array, "obs"], normal: Float[Array, "obs"]) -> Float[Array, "obs"]:
        """s̃ = s + σ(s) ε for a standard normal ε [App. A.1]."""
        return observation + self.deviation(observation) * normal

    def disturb(self, spaces: Spaces, action: Float[Array, "act"], normal: Float[Array, "act"]) -> Float[Array, "act"]:
        """The action that is executed in place of the chosen one: disturbed, and kept within the bounds."""
        low, high = jnp.array(spaces.action_low), jnp.array(spaces.action_high)
        return jnp.clip(action + self.action * (high - low) / 2 * normal, low, high)


def make_noise(settings: config.NoiseConfig, observation_size: int) -> Noise:
    """The noise those settings describe, for observations of that size."""
    scaled = config.NOISES[settings.kind].scaled
    if scaled and len(settings.scales) != observation_size:
        raise config.ConfigError(
            f"noise.scales has {len(settings.scales)} numbers, but the environment shows {observation_size} dimensions"
        )
    levels = (settings.sigma, settings.sigma_min, settings.action)
    sigma, sigma_min, action = (jnp.asarray(level, jnp.float32) for level in levels)
    return Noise(sigma, sigma_min, action, settings.scales if scaled else (), settings.kind)
