"""Smooths stored episodes: beliefs about each state given all observations of its episode.

A filter knows a state from the observations up to it. Rauch, Tung and Striebel's backward pass adds
the later ones. The model is linearised at the stored means, as for learning the noise: the filter
and the backward pass are exact for a linear model with Gaussian noise, and to first order for
others.

With `belief.smoothing`, the model's likelihood is that of the smoothed states [choice]: after each
episode, s and s′ of every transition of the newest ones are drawn from their joint belief, and the
model is fitted to these draws. That is EM with one draw for the expectation. It needs no derivative
of the model while it is fitted. Values are learned on filtered beliefs.
"""

from functools import partial
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from moca.agents import Agent
from moca.belief import UNSEEN, Belief, raised, update
from moca.dynamics import GaussianEnsemble
from moca.moments.linear import root, solve
from moca.nets import matmul
from moca.noise_levels import Linear, linearise, newest
from moca.replay import Pair, Replay, Transition, with_pairs


class Smoothed(NamedTuple):
    """N(mean, covariance) over s and s′ of each transition, given the whole episode."""

    mean: Float[Array, "n obs"]
    covariance: Float[Array, "n obs obs"]
    next_mean: Float[Array, "n obs"]
    next_covariance: Float[Array, "n obs obs"]
    cross: Float[Array, "n obs obs"]  # Cov(s, s′)


class Filtered(NamedTuple):
    """Beliefs of the forward pass at each transition: about s, about s′ before and after it."""

    before: Belief
    prior: Belief
    after: Belief


def smooth(
    ensemble: GaussianEnsemble, rows: Transition, noise: Float[Array, "n obs"], first: Float[Array, "n obs"]
) -> tuple[Filtered, Smoothed]:
    """Filters consecutive transitions with a model, then smooths them; returns both.

    Args:
        ensemble: The model.
        rows: The transitions in order, with `missing` marked and actions in [−1, 1]; episodes may
            begin and end among them.
        noise: The variances of the measured next observations.
        first: The variances of observations with which a belief starts.
    """
    linear = linearise(ensemble, rows)
    filtered = filter_forward(linear, noise, first)
    return filtered, smooth_backward(linear, filtered)


def filter_forward(linear: Linear, noise: Float[Array, "n obs"], first: Float[Array, "n obs"]) -> Filtered:
    """Runs the Kalman filter over linearised steps; what is missing corrects nothing."""

    def step(belief: Belief, x: tuple[Linear, Array, Array]) -> tuple[Belief, Filtered]:
        each, noise, first = x
        fresh = Belief(each.start, jnp.diag(first))
        before = jax.tree.map(lambda a, b: jnp.where(each.starts, a, b), fresh, belief)
        mean = each.mean + each.slope @ (before.mean - each.at)
        covariance = matmul(matmul(each.slope, before.covariance), each.slope.T) + each.aleatoric + each.epistemic
        prior = Belief(mean, (covariance + covariance.T) / 2)
        after, _ = update(prior, each.measured, jnp.where(each.missing, UNSEEN, noise))
        return after, Filtered(before, prior, after)

    size = linear.at.shape[-1]
    return jax.lax.scan(step, Belief(jnp.zeros(size), jnp.zeros((size, size))), (linear, noise, first))[1]


def smooth_backward(linear: Linear, filtered: Filtered) -> Smoothed:
    """Runs Rauch, Tung and Striebel's backward pass over the beliefs of the forward pass.

    With the gain G = P Fᵀ P′⁻¹, P filtered and P′ predicted, s has the mean m + G (m̂′ − m′) and
    the covariance (I − GF) P (I − GF)ᵀ + G (Q + P̂′) Gᵀ, with a hat on what is smoothed. It is
    positive whatever the rounding of G. Cov(s, s′) is G P̂′.
    """

    def step(later: Belief, x: tuple[Linear, Filtered, Array]) -> tuple[Belief, Smoothed]:
        each, (before, prior, after), ends = x
        next_belief = jax.tree.map(lambda a, b: jnp.where(ends, a, b), after, later)
        known, ahead, own = (cast(Array, belief.covariance) for belief in (before, prior, next_belief))
        gain = solve(raised(ahead), matmul(each.slope, known)).T
        mean = before.mean + gain @ (next_belief.mean - prior.mean)
        rest = jnp.eye(len(mean)) - matmul(gain, each.slope)
        added = each.aleatoric + each.epistemic + own
        covariance = matmul(matmul(rest, known), rest.T) + matmul(matmul(gain, added), gain.T)
        covariance = (covariance + covariance.T) / 2
        return Belief(mean, covariance), Smoothed(mean, covariance, next_belief.mean, own, matmul(gain, own))

    ends = jnp.concatenate([linear.starts[1:], jnp.array([True])])
    last = jax.tree.map(lambda leaf: leaf[-1], filtered.after)
    return jax.lax.scan(step, last, (linear, filtered, ends), reverse=True)[1]


def with_smoothed(
    agent: Agent,
    learner: Any,
    replay: Replay,
    indices: Int[Array, "steps"],
    number: Int[Array, ""],
    key: Key[Array, ""],
) -> Replay:
    """Returns the replay buffer with pairs of smoothed states in the newest episodes, if asked for.

    Arguments are those of `moca.noise_levels.learn_noise`, and a random key. An untrained model
    smooths nothing.
    """
    if not agent.layout.smoothed:
        return replay
    model = learner.model
    older, episodes = newest(agent, replay, indices, number)

    def one(rows: Transition, key: Key[Array, ""]) -> Pair:
        noise, first = (
            cast(Array, agent.filter.noise_variance(model, s)) for s in (rows.next_observation, rows.observation)
        )
        return drawn(smooth(model.ensemble, rows, noise, first)[1], key)

    # Copies of the first episode have equal keys, so that it does not matter which is written last.
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, 1 + older)
    pairs = jax.vmap(one)(episodes, keys)
    pairs = pairs._replace(known=pairs.known * (model.ensemble.statistics.batches > 0))
    return with_pairs(replay, indices - older[:, None] * len(indices), pairs)


def drawn(smoothed: Smoothed, key: Key[Array, ""]) -> Pair:
    """Draws s and s′ of each transition from their joint belief."""
    mean, covariance, next_mean, next_covariance, cross = smoothed
    joint = jnp.block([[covariance, cross], [cross.mT, next_covariance]])
    normal = jax.random.normal(key, joint.shape[:2], joint.dtype)
    factors = jax.vmap(partial(root, tolerance=1e-5))(joint)  # a covariance may be singular
    pair = jnp.concatenate([mean, next_mean], axis=1) + jnp.sum(factors * normal[:, None], axis=-1)
    known = jnp.isfinite(pair).all(axis=1)
    before, after = jnp.split(jnp.where(known[:, None], pair, 0), 2, axis=1)
    return Pair(before, after, known.astype(pair.dtype))
