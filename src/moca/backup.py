"""The Bellman target, and the predictions of the next state in which the paper's agents differ."""

from collections.abc import Callable
from typing import Any, cast

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from moca import moments as mm
from moca.critic import twin_axes
from moca.nets import matmul

PredictionRule = Callable[[mm.GaussianMixture, Key[Array, ""], int], mm.Distribution]
Backup = Callable[[mm.Distribution, mm.Function], Float[Array, ""]]  # of one prediction and one value function


def from_moments(rule: PredictionRule) -> PredictionRule:
    """Marks a rule that depends on the mixture's mean and covariance alone.

    A filter with full covariances may then match the members before it, which costs less.
    """
    cast(Any, rule).from_moments = True
    return rule


@from_moments
def one_gaussian(mixture: mm.GaussianMixture, key: Key[Array, ""], samples: int) -> mm.Distribution:
    """MoCA: the Gaussian with the mixture's mean and covariance."""
    return mm.moment_match(mixture)


@from_moments
def mean_alone(mixture: mm.GaussianMixture, key: Key[Array, ""], samples: int) -> mm.Distribution:
    """MoCA-CE (certainty equivalence): the mixture's mean."""
    return mm.Dirac(mixture.mean)


@from_moments
def samples_of_it(mixture: mm.GaussianMixture, key: Key[Array, ""], samples: int) -> mm.Distribution:
    """MoCA-MC: samples from the moment-matched Gaussian instead of the closed form [choice]."""
    return mm.Empirical(mm.moment_match(mixture).sample(key, samples))


def whole_mixture(mixture: mm.GaussianMixture, key: Key[Array, ""], samples: int) -> mm.Distribution:
    """MoCA (mixture): the ensemble's mixture itself."""
    return mixture


def one_each(mixtures: mm.GaussianMixture) -> mm.GaussianMixture:
    """Returns mixtures of one component each, with the same means and covariances."""
    one = mm.moment_match(mixtures, full=True)
    return mm.GaussianMixture(jnp.ones((*one.mean.shape[:-1], 1)), jax.tree.map(lambda x: x[:, None], one))


def cautious(prediction: mm.Distribution, value: mm.Function, caution: Any) -> Float[Array, ""]:
    """Returns E[V] − β √Var[V], with `variance_of_value` for the variance; β is the `caution`.

    Its gradient is finite where the variance is zero.
    """
    variance = variance_of_value(prediction, value)
    positive = variance > 0
    deviation = jnp.where(positive, jnp.sqrt(jnp.where(positive, variance, 1)), 0)
    lowered: Array = mm.expectation(prediction, value) - caution * deviation
    return lowered


def variance_of_value(prediction: mm.Distribution, value: mm.Function) -> Float[Array, ""]:
    """Returns the variance of V(s): of points exactly, of Gaussians to second order [choice].

    Var[V] is a sum of terms that are not negative, one for each order of Hermite's polynomials. The
    first two are gᵀΣg + ½ tr(ΣHΣH), with g and H the derivatives of E[V] by the mean. They are all
    there is if V is quadratic. `mm.variance` has all orders, but takes M² terms for M bases.
    """
    if isinstance(prediction, mm.GaussianMixture):
        means = jax.vmap(mm.expectation, (0, None))(prediction.components, value)
        variances = jax.vmap(variance_of_value, (0, None))(prediction.components, value)
        return prediction.weights @ (variances + jnp.square(means - prediction.weights @ means))
    if not isinstance(prediction, mm.DiagonalGaussian | mm.Gaussian):
        return mm.variance(prediction, value)
    mean, covariance = prediction.mean, prediction.covariance
    return second_order(lambda at: mm.expectation(mm.Gaussian(at, covariance), value), mean, covariance)[0]


def second_order(
    expected: Callable[[Float[Array, "d"]], Float[Array, ""]], mean: Float[Array, "d"], covariance: Float[Array, "d d"]
) -> tuple[Float[Array, ""], Float[Array, "d"]]:
    """Returns Var[f] to second order and E[∇f] for a Gaussian, by E[f] as a function of its mean.

    By Stein's lemma the covariance of f with the state is Σ E[∇f].
    """
    slope, curvature = jax.grad(expected)(mean), matmul(covariance, jax.hessian(expected)(mean))
    return matmul(matmul(slope, covariance), slope) + jnp.sum(curvature * curvature.T) / 2, slope


def twin_backups(
    predictions: mm.Distribution, values: mm.Function, backup: Backup = mm.expectation
) -> Float[Array, "two n"]:
    """Returns the backup of both functions (see `twin`) for n predictions, by default E[Vᵢ(s′)]."""
    over_batch = jax.vmap(backup, (0, None))
    return jax.vmap(over_batch, (None, twin_axes(values)))(predictions, values)


def bellman_target(
    reward: Float[Array, "n"],
    terminated: Float[Array, "n"],
    gamma: float,
    predictions: mm.Distribution,
    values: mm.Function,
    bounds: tuple[float, float] = (-jnp.inf, jnp.inf),
    backup: Backup = mm.expectation,
) -> Float[Array, "n"]:
    """Returns r + γ (1 − d) minᵢ E[Vᵢ⁻(s′)] for n transitions [Eq. 5] [Alg. 1 l. 11].

    The expectation is clipped to `bounds`.
    """
    expected = jnp.clip(jnp.min(twin_backups(predictions, values, backup), axis=0), *bounds)
    return reward + gamma * (1 - terminated) * expected
