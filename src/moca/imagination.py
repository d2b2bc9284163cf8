"""Imagined transitions: backups at actions that were not taken and states that were not visited.

This is Dyna (Sutton 1991) with targets in closed form [choice]. From each stored state, actions
near the greedy one lead through the ensemble to states that it expects. Each of these steps is a
transition with a learned reward, from which the critics learn as from a stored one: its target
averages V over the agent's own prediction of the next state, mean and covariance.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from moca import moments as mm
from moca.config import Config
from moca.dynamics import GaussianEnsemble
from moca.nets import share_done
from moca.planning import World
from moca.replay import Transition

Predict = Callable[[Transition, Key[Array, ""]], mm.Distribution]


def imagine(
    world: World, batch: Transition, predict: Predict, steps: int, noise: Any, key: Key[Array, ""]
) -> tuple[Transition, mm.Distribution]:
    """Returns imagined transitions, `steps` for each stored one, and predictions of their end.

    The first starts where the stored one does, each further one at the mean that is predicted for
    the end of the last. Nothing imagined terminates [choice].

    Args:
        world: What the agent has learned.
        batch: The stored transitions, actions in [−1, 1].
        predict: The agent's prediction of the next state, given transitions and a random key.
        steps: The number of imagined steps.
        noise: The standard deviation of imagined actions around the greedy one; they are clipped.
        key: A random key.
    """
    states = world.model.ensemble.statistics

    def step(now: Transition, key: Key[Array, ""]) -> tuple[Transition, tuple[Transition, mm.Distribution]]:
        action_key, prediction_key = jax.random.split(key)
        greedy = jax.vmap(lambda s: world.critic.slice(s).greedy)(now.observation)
        action = jnp.clip(greedy + noise * jax.random.normal(action_key, greedy.shape), -1, 1)
        now = now._replace(action=action, reward=world.reward.at(states, now.observation, action))
        following: Any = predict(now, prediction_key)
        return now._replace(observation=following.mean), (now, following)

    first = batch._replace(terminated=jnp.zeros_like(batch.terminated))
    _, imagined = jax.lax.scan(step, first, jax.random.split(key, steps))
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), imagined)


def disagreement(
    ensemble: GaussianEnsemble, states: Float[Array, "n obs"], actions: Float[Array, "n act"]
) -> Float[Array, "n"]:
    """Returns the epistemic variance of a step, summed over dimensions.

    Its unit in each dimension is the variance of changes seen so far [choice].
    """
    _, _, epistemic = mm.decompose(ensemble.predict_batch(states, actions), full=False)
    return jnp.sum(epistemic / jnp.square(ensemble.statistics.deviation[1]), axis=-1)


def curiosity_left(config: Config, updates: Int[Array, ""]) -> Float[Array, ""]:
    """Returns the weight of the disagreement as a reward: it falls to zero in half of training."""
    return config.plan.curiosity * jnp.maximum(1 - 2 * share_done(config, updates), 0)
