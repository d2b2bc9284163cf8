"""Algorithm 1's exploration [Alg. 1 l. 3]: random now and then, else Gaussian around the greedy action."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from moca import config


class Dice(NamedTuple):
    """The random numbers of one action."""

    choice: Float[Array, "*n"]  # uniform in [0, 1)
    random: Float[Array, "*n act"]  # the action if it is to be random, in [−1, 1]
    normal: Float[Array, "*n act"]


def roll(key: Key[Array, ""], settings: config.Exploration, decisions: int, action_size: int) -> Dice:
    """The random numbers of an episode; choice and random action keep their value for `hold` decisions on average."""
    choice_key, action_key, normal_key, hold_key = jax.random.split(key, 4)
    choice = jax.random.uniform(choice_key, (decisions,))
    random = jax.random.uniform(action_key, (decisions, action_size), minval=-1.0)
    if settings.random == "extreme":
        random = jnp.where(random < 0, -1.0, 1.0)
    anew = jax.random.uniform(hold_key, (decisions,)) * settings.hold < 1
    since = jax.lax.cummax(jnp.where(anew, jnp.arange(decisions), 0))
    return Dice(choice[since], random[since], jax.random.normal(normal_key, (decisions, action_size)))


def explore(
    settings: config.Exploration,
    greedy: Float[Array, "act"],
    dice: Dice,
    fraction: Float[Array, ""],
    always: Bool[Array, ""] | bool = False,
) -> Float[Array, "act"]:
    """An action in [−1, 1], random with a probability or `always`, else around the greedy one.

    Probability and deviation go to their end values over the first `anneal` of the training.
    """
    done = jnp.clip(fraction / settings.anneal, 0, 1)
    probability = settings.probability + (settings.probability_end - settings.probability) * done
    sigma = settings.sigma + (settings.sigma_end - settings.sigma) * done
    perturbed = jnp.clip(greedy + sigma * dice.normal, -1, 1)
    return jnp.where(always | (dice.choice < probability), dice.random, perturbed)
