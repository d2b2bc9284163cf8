"""What an environment is to this library: two pure functions and a few facts.

    state, observation = env.reset(key)
    state, step = env.step(state, action)

A time limit is not the environment's business: the loop cuts episodes and never calls that a termination.
"""

from abc import abstractmethod
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key


class Step(NamedTuple):
    """What one action brought."""

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
        state, step = self.inner.step(state, action)

        def again(carry: tuple[Any, Step], _: None) -> tuple[tuple[Any, Step], None]:
            state, step = carry
            next_state, following = self.inner.step(state, action)
            summed = following._replace(reward=step.reward + following.reward)
            moved = (next_state, summed)
            if not self.inner.terminates:
                return moved, None
            return jax.tree.map(lambda a, b: jnp.where(step.terminated, a, b), carry, moved), None

        (state, step), _ = jax.lax.scan(again, (state, step), length=self.times - 1)
        return state, step
