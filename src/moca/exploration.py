"""The random numbers of whole episodes: exploration, whose actions may be held, and noise."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from moca import config


class ExplorationDraws(NamedTuple):
    """The random numbers of one action."""

    choice: Float[Array, "*n"]  # uniform in [0, 1)
    random: Float[Array, "*n act"]  # the action if a random one is chosen, in [−1, 1]
    normal: Float[Array, "*n act"]


class Explore(NamedTuple):
    """The inputs to exploration: random numbers, and the progress of training."""

    draws: ExplorationDraws
    step: Int[Array, ""]  # environment steps so far
    fraction: Float[Array, ""]  # of the exploration schedule; above one after its end


def draw_exploration(
    key: Key[Array, ""], settings: config.ExplorationConfig, steps: int, action_size: int
) -> ExplorationDraws:
    """Returns the random numbers of an episode.

    Random actions are held for `hold` steps on average.
    """
    choice_key, action_key, normal_key, hold_key = jax.random.split(key, 4)
    choice = jax.random.uniform(choice_key, (steps,))
    random = jax.random.uniform(action_key, (steps, action_size), minval=-1.0)
    if settings.random == "extreme":
        random = jnp.where(random < 0, -1.0, 1.0)
    anew = jax.random.uniform(hold_key, (steps,)) * settings.hold < 1
    since = jax.lax.cummax(jnp.where(anew, jnp.arange(steps), 0))
    return ExplorationDraws(choice[since], random[since], jax.random.normal(normal_key, (steps, action_size)))


def normals(key: Key[Array, ""], steps: int, size: int) -> Float[Array, "steps size"]:
    """Returns what `jax.random.normal` does, drawn with one axis: see `loop.draw_steps`."""
    return jax.random.normal(key, (steps * size,)).reshape(steps, size)
