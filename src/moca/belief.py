"""A belief over the state [choice]: the ensemble's prediction times the observation, a Gaussian in closed form.

The paper takes an observation for the state. Under noise that turns every measurement error into a jump of the state;
a filter keeps what earlier observations told. The agent then acts and learns on the mean of its belief, and the next
mean is random only as far as the next observation will be a surprise: its covariance is P S⁻¹ P, with P the covariance
of the predicted state and S = P + R that of the predicted observation.
"""

from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from moca import moments as mm
from moca.dynamics import GaussianEnsemble
from moca.replay import Transition


class Belief(NamedTuple):
    """N(mean, covariance) over the state; without a filter the observation, and no covariance."""

    mean: Float[Array, "obs"]
    covariance: Float[Array, "obs obs"] | None


def propagate(
    ensemble: GaussianEnsemble, belief: Belief, action: Float[Array, "act"]
) -> tuple[Belief, Float[Array, "obs"]]:
    """The belief about s′ before it is observed, and the part of its variances that comes from not knowing s.

    The mean goes through the ensemble's mean, the covariance through its derivative F [choice]: F P Fᵀ, plus what
    the ensemble itself is unsure of.
    """

    def predict(s: Float[Array, "obs"]) -> tuple[Float[Array, "obs"], mm.GaussianMixture]:
        mixture = ensemble.predict(s, action)
        return mixture.mean, mixture

    derivative, mixture = jax.jacfwd(predict, has_aux=True)(belief.mean)
    carried = derivative @ belief.covariance @ derivative.T
    mean, aleatoric, epistemic = mm.decompose(mixture, full=True)
    return Belief(mean, carried + aleatoric + epistemic), jnp.maximum(jnp.diagonal(carried), 0)


def correct(
    belief: Belief, measured: Float[Array, "obs"], noise: Float[Array, "obs"]
) -> tuple[Belief, Float[Array, ""]]:
    """The belief after an observation with independent errors of these variances, and that observation's surprise.

    Kalman's update, one dimension after the other, which needs no factorisation: after each, mean and covariance are
    those given the dimensions so far. The surprise is the negative log-density, up to a constant. Variances are first
    raised by a share that only rounding would notice: where dimensions determine each other and there is no noise, what
    is left of a variance would otherwise be rounding itself.
    """

    def dimension(carry: tuple, j: Array) -> tuple[tuple, None]:
        mean, covariance, surprise = carry
        variance = jnp.maximum(covariance[j, j] + noise[j], jnp.finfo(mean.dtype).tiny)
        gain, error = covariance[:, j] / variance, measured[j] - mean[j]
        surprise += (error**2 / variance + jnp.log(variance)) / 2
        return (mean + gain * error, covariance - gain[:, None] * covariance[j], surprise), None

    size, covariance = len(measured), cast(Array, belief.covariance)
    raised = covariance + jnp.diag(jnp.diagonal(covariance)) * float(jnp.finfo(covariance.dtype).eps) ** 0.5
    start: Any = (belief.mean, raised, jnp.zeros(()))
    (mean, covariance, surprise), _ = jax.lax.scan(dimension, start, jnp.arange(size), unroll=min(size, 8))
    return Belief(mean, covariance), surprise


def surprise(ensemble: GaussianEnsemble, episode: Transition, noise: Float[Array, "obs"]) -> Float[Array, ""]:
    """The mean surprise of an episode's observations, filtered anew with these variances of the noise.

    What the noise is shows in how errors of one step follow from those of the step before, which one-step
    predictions cannot tell from noise of the process. Actions are in [−1, 1]; after an end a fresh belief begins.
    """

    def step(carry: tuple[Belief, Array], row: Transition) -> tuple[tuple[Belief, Array], Float[Array, ""]]:
        belief, fresh = carry
        alone = Belief(row.observation, jnp.diag(noise))
        belief = jax.tree.map(lambda a, b: jnp.where(fresh, a, b), alone, belief)
        prior, _ = propagate(ensemble, belief, row.action)
        posterior, surprised = correct(prior, cast(Array, row.measured), noise)
        return (posterior, row.terminated > 0), surprised

    size = episode.observation.shape[-1]
    nothing = Belief(jnp.zeros(size), jnp.zeros((size, size)))
    return jax.lax.scan(step, (nothing, jnp.array(True)), episode)[1].mean()


def anticipate(
    mixtures: mm.GaussianMixture, spread: Float[Array, "n obs"], noise: Float[Array, "n obs"]
) -> mm.GaussianMixture:
    """What the mean of the next belief will be, from the ensemble's predictions of the next state.

    The filter will move its mean by the gain K = P S⁻¹ times the surprise, with P the matched covariance of the members
    plus diag(spread) and S = P + diag(noise). If member k is right, that leaves it at m̄ + K (mₖ − m̄) on average, with
    covariance K (Cₖ + diag(spread + noise)) Kᵀ; matched, the members then have P S⁻¹ P. Without noise K is one, and
    this is the next state itself. Covariances between dimensions that `spread` stands for are left out [choice].
    """
    components, blur = mixtures.components, spread + noise
    mean, aleatoric, epistemic = mm.decompose(mixtures)
    away = components.mean - mean[:, None]
    if isinstance(components, mm.DiagonalGaussian):
        prior = aleatoric + epistemic + spread
        gain = (prior / jnp.maximum(prior + noise, jnp.finfo(prior.dtype).tiny))[:, None]
        moved = mm.DiagonalGaussian(mean[:, None] + gain * away, gain**2 * (components.variance + blur[:, None]))
        return mm.GaussianMixture(mixtures.weights, moved)
    as_matrix = jax.vmap(jnp.diag)
    prior = aleatoric + epistemic + as_matrix(spread)
    gain = jnp.linalg.solve(prior + as_matrix(noise), prior).mT[:, None]
    covariance = gain @ (components.covariance + as_matrix(blur)[:, None]) @ gain.mT
    moved_mean = mean[:, None] + jnp.einsum("nkij,nkj->nki", jnp.broadcast_to(gain, covariance.shape), away)
    return mm.GaussianMixture(mixtures.weights, mm.Gaussian(moved_mean, (covariance + covariance.mT) / 2))
