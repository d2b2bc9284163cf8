"""Smooths stored episodes: beliefs about each state given all observations of its episode.

A filter knows a state from the observations up to it. Rauch, Tung and Striebel's backward pass adds
the later ones. The model is linearised at the stored means, as for learning the noise: the filter
and the backward pass are exact for a linear model with Gaussian noise, and to first order for
others.
"""

from typing import NamedTuple, cast

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from moca.belief import UNSEEN, Belief, raised, update
from moca.dynamics import GaussianEnsemble
from moca.noise_levels import Linear, linearise
from moca.replay import Transition


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
        covariance = each.slope @ before.covariance @ each.slope.T + each.aleatoric + each.epistemic
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
        following = jax.tree.map(lambda a, b: jnp.where(ends, a, b), after, later)
        known, ahead, own = (cast(Array, belief.covariance) for belief in (before, prior, following))
        gain = jax.scipy.linalg.solve(raised(ahead), each.slope @ known, assume_a="pos").T
        mean = before.mean + gain @ (following.mean - prior.mean)
        rest = jnp.eye(len(mean)) - gain @ each.slope
        covariance = rest @ known @ rest.T + gain @ (each.aleatoric + each.epistemic + own) @ gain.T
        covariance = (covariance + covariance.T) / 2
        return Belief(mean, covariance), Smoothed(mean, covariance, following.mean, own, gain @ own)

    ends = jnp.concatenate([linear.starts[1:], jnp.array([True])])
    last = jax.tree.map(lambda leaf: leaf[-1], filtered.after)
    return jax.lax.scan(step, last, (linear, filtered, ends), reverse=True)[1]
