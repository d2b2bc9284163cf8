"""Algorithm 1's exploration [Alg. 1 l. 3]: uniform now and then, else Gaussian around the greedy action."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from moca import config


class Dice(NamedTuple):
    """The random numbers of one action."""

    choice: Float[Array, ""]  # uniform in [0, 1)
    uniform: Float[Array, "act"]  # uniform in [−1, 1)
    normal: Float[Array, "act"]


def roll(key: Key[Array, ""], action_size: int) -> Dice:
    """Fresh random numbers for one action."""
    choice_key, uniform_key, normal_key = jax.random.split(key, 3)
    return Dice(
        jax.random.uniform(choice_key),
        jax.random.uniform(uniform_key, (action_size,), minval=-1.0),
        jax.random.normal(normal_key, (action_size,)),
    )


def explore(
    settings: config.Exploration, greedy: Float[Array, "act"], dice: Dice, fraction: Float[Array, ""]
) -> Float[Array, "act"]:
    """An action in [−1, 1]; the deviation goes from `sigma` to `sigma_end` over the first `anneal` of the training."""
    sigma = settings.sigma + (settings.sigma_end - settings.sigma) * jnp.clip(fraction / settings.anneal, 0, 1)
    perturbed = jnp.clip(greedy + sigma * dice.normal, -1, 1)
    return jnp.where(dice.choice < settings.probability, dice.uniform, perturbed)
