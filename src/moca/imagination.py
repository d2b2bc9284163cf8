"""Imagined transitions: backups at actions that were not taken and states that were not visited.

This is Dyna (Sutton 1991) with targets in closed form [choice]. From each stored state, actions
near the greedy one lead through the ensemble to states that it expects. Each of these steps is a
transition with a learned reward, from which the critics learn as from a stored one: its target
averages V over the agent's own prediction of the next state, mean and covariance.

The action is drawn, or it stays a distribution. Both sides of the Bellman equation are then
averaged over it, Q(s, a) with Eq. 3's correction inside: see `ActionSlice.expected_advantage`.
"""

from collections.abc import Callable
from typing import Any, cast

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from moca import moments as mm
from moca.config import Config
from moca.dynamics import GaussianEnsemble
from moca.nets import matmul, share_done
from moca.planning import World, clipped, derivative
from moca.replay import Transition

Predict = Callable[[Transition, Key[Array, ""]], mm.Distribution]


def imagine(
    world: World,
    batch: Transition,
    predict: Predict,
    steps: int,
    noise: Any,
    key: Key[Array, ""],
    actions: str = "sampled",
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
        actions: "sampled", or "gaussian" for distributions: `averaged`.
    """
    states = world.model.ensemble.statistics

    def step(now: Transition, key: Key[Array, ""]) -> tuple[Transition, tuple[Transition, mm.Distribution]]:
        action_key, prediction_key = jax.random.split(key)
        greedy = jax.vmap(lambda s: world.critic.slice(s).greedy)(now.observation)
        if actions == "gaussian":
            now, prediction = averaged(world, now, greedy, noise, predict, prediction_key)
        else:
            action = jnp.clip(greedy + noise * jax.random.normal(action_key, greedy.shape), -1, 1)
            now = now._replace(action=action, reward=world.reward.at(states, now.observation, action))
            prediction = predict(now, prediction_key)
        return now._replace(observation=cast(Any, prediction).mean), (now, prediction)

    first = batch._replace(terminated=jnp.zeros_like(batch.terminated))
    if actions == "gaussian":
        first = first._replace(action_variance=jnp.zeros_like(batch.action))
    _, imagined = jax.lax.scan(step, first, jax.random.split(key, steps))
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), imagined)


def averaged(
    world: World,
    now: Transition,
    greedy: Float[Array, "n act"],
    noise: Any,
    predict: Predict,
    key: Key[Array, ""],
) -> tuple[Transition, mm.Distribution]:
    """Returns transitions whose action is a clipped Gaussian around the greedy one, and their end.

    Mean and covariance of the action are exact. For the reward, state and action are matched to a
    Gaussian, under which E[r̂] is exact. The next state is predicted at the mean action; the
    action's covariance S goes through the ensemble's derivative J by the action, and J S Jᵀ is
    added to the covariance that is predicted [choice].
    """
    ensemble = world.model.ensemble
    action, variance = clipped(greedy, jnp.broadcast_to(jnp.square(noise), greedy.shape))
    both = jnp.concatenate([now.observation, action], axis=1)
    spread = jnp.concatenate([jnp.zeros_like(now.observation), variance], axis=1)
    expected = jax.vmap(lambda belief: world.reward.expectation(ensemble.statistics, belief))
    now = now._replace(action=action, action_variance=variance, reward=expected(mm.DiagonalGaussian(both, spread)))
    _, push = jax.linearize(lambda a: ensemble.predict_batch(now.observation, a).mean, action)
    root = derivative(push, *action.shape) * jnp.sqrt(variance)[:, None]
    return now, widened(predict(now, key), root, jax.random.fold_in(key, 1))


def widened(prediction: mm.Distribution, root: Float[Array, "n obs act"], key: Key[Array, ""]) -> mm.Distribution:
    """Returns n predictions with R Rᵀ added to their covariances; samples are moved by R ε."""
    if isinstance(prediction, mm.Empirical):
        moves = jax.random.normal(key, (*prediction.points.shape[:2], root.shape[-1]))
        return mm.Empirical(prediction.points + matmul(moves, root.mT))
    more, whole = matmul(root, root.mT), full(prediction)
    if isinstance(whole, mm.GaussianMixture):
        covariance = whole.components.covariance + more[:, None]
        return mm.GaussianMixture(whole.weights, mm.Gaussian(whole.components.mean, covariance))
    if isinstance(whole, mm.Gaussian):
        return mm.Gaussian(whole.mean, whole.covariance + more)
    raise TypeError(
        f"a {type(prediction).__name__} cannot be widened by the action's covariance: plan.actions = gaussian needs a "
        "prediction that is an Empirical, a Gaussian, a DiagonalGaussian or a GaussianMixture"
    )


def full(prediction: mm.Distribution) -> mm.Distribution:
    """Returns Gaussians with their covariances as matrices, and anything else as it is."""
    if isinstance(prediction, mm.GaussianMixture):
        return mm.GaussianMixture(prediction.weights, cast(mm.Gaussian, full(prediction.components)))
    if isinstance(prediction, mm.DiagonalGaussian):
        return mm.Gaussian(prediction.mean, prediction.covariance)
    return prediction


def joined(
    stored: tuple[Transition, mm.Distribution], imagined: tuple[Transition, mm.Distribution]
) -> tuple[Transition, mm.Distribution]:
    """Returns stored and imagined transitions, with predictions of their end, as one batch.

    Where imagined actions are distributions, those that were taken are so too, without variance.
    """
    batch, predictions = stored
    if imagined[0].action_variance is not None:
        stored = batch._replace(action_variance=jnp.zeros_like(batch.action)), full(predictions)
    return jax.tree.map(lambda *parts: jnp.concatenate(parts), stored, imagined)


def disagreement(
    ensemble: GaussianEnsemble, states: Float[Array, "n obs"], actions: Float[Array, "n act"]
) -> Float[Array, "n"]:
    """Returns the epistemic variance of a step, summed over dimensions.

    Its unit in each dimension is the variance of changes seen so far [choice].
    """
    _, _, epistemic = mm.decompose(ensemble.predict_batch(states, actions), full=False)
    return jnp.sum(epistemic / jnp.square(ensemble.statistics.deviation[1]), axis=-1)


def curiosity_left(config: Config, updates: Int[Array, ""]) -> Float[Array, ""]:
    """Returns the weight of the disagreement as a reward, which is zero after half of training."""
    return config.plan.curiosity * jnp.maximum(1 - 2 * share_done(config, updates), 0)
