"""What the training loop asks of an agent."""

from abc import abstractmethod
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from moca.config import Config
from moca.envs.environment import Environment
from moca.replay import Transition

Info = dict[str, Float[Array, ""]]


class Progress(NamedTuple):
    """Where the run stands, in environment steps."""

    step: Int[Array, ""]
    fraction: Float[Array, ""]  # of all training steps


class Agent(eqx.Module):
    """Pure functions of a state that holds all that learns. Settings that are floats may be traced."""

    config: Config
    env: Environment

    @abstractmethod
    def init(self, key: Key[Array, ""]) -> Any:
        """Parameters, targets and optimisers before the first step."""

    @abstractmethod
    def draw_exploration(self, key: Key[Array, ""]) -> Any:
        """The random numbers that one call of `explore` needs; the loop draws those of many steps at once."""

    @abstractmethod
    def explore(
        self, state: Any, observation: Float[Array, "obs"], draw: Any, progress: Progress
    ) -> Float[Array, "act"]:
        """The action to learn from, within the bounds."""

    @abstractmethod
    def greedy(self, state: Any, observation: Float[Array, "obs"]) -> Float[Array, "act"]:
        """The action to be judged by, within the bounds."""

    @abstractmethod
    def value(self, state: Any, observation: Float[Array, "obs"]) -> Float[Array, ""]:
        """What the agent expects from here on under its own policy."""

    def diagnose(self, before: Any, after: Any, episode: Transition, key: Key[Array, ""]) -> Info:
        """What a look at the newest episode tells, with the agent as it was before that episode and as it is after."""
        return {}

    def to_bounds(self, action: Float[Array, "*n act"]) -> Float[Array, "*n act"]:
        """An action in [−1, 1] in the environment's units."""
        low, high = jnp.array(self.env.action_low), jnp.array(self.env.action_high)
        return low + (action + 1) / 2 * (high - low)

    def from_bounds(self, action: Float[Array, "*n act"]) -> Float[Array, "*n act"]:
        """An action in the environment's units in [−1, 1]."""
        low, high = jnp.array(self.env.action_low), jnp.array(self.env.action_high)
        return 2 * (action - low) / (high - low) - 1

    @abstractmethod
    def draw_update(self, key: Key[Array, ""]) -> Any:
        """The random numbers that one call of `update` needs."""

    @abstractmethod
    def update(self, state: Any, batch: Transition, draw: Any) -> tuple[Any, Info]:
        """One gradient step on a batch; what it measured on the way."""
