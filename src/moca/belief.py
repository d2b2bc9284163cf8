"""A belief over the state [choice]: the ensemble's prediction times the observation, a Gaussian in closed form.

The paper takes an observation for the state. Under noise that turns every measurement error into a jump of the state;
a filter keeps what earlier observations told. The agent then acts and learns on the mean of its belief, and the next
mean is random only as far as the next observation differs from its prediction: its covariance is P S⁻¹ P, with P the
covariance of the predicted state and S = P + R that of the predicted observation.
"""

from typing import Any, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from moca import moments as mm
from moca.config import Config
from moca.dynamics import GaussianEnsemble, ModelState
from moca.envs.environment import Spaces, make_noise
from moca.nets import descend
from moca.replay import Transition


class Belief(NamedTuple):
    """N(mean, covariance) over the state; without a filter the observation, and no covariance."""

    mean: Float[Array, "obs"]
    covariance: Float[Array, "obs obs"] | None


def predict(
    ensemble: GaussianEnsemble, belief: Belief, action: Float[Array, "act"]
) -> tuple[Belief, Float[Array, "obs"]]:
    """The belief about s′ before it is observed, and the part of its variances that comes from not knowing s.

    The mean goes through the ensemble's mean, the covariance through its derivative F [choice]: F P Fᵀ, plus what
    the ensemble itself is unsure of.
    """

    def mean_of(s: Float[Array, "obs"]) -> tuple[Float[Array, "obs"], mm.GaussianMixture]:
        mixture = ensemble.predict(s, action)
        return mixture.mean, mixture

    derivative, mixture = jax.jacfwd(mean_of, has_aux=True)(belief.mean)
    carried = derivative @ belief.covariance @ derivative.T
    mean, aleatoric, epistemic = mm.decompose(mixture, full=True)
    return Belief(mean, carried + aleatoric + epistemic), jnp.maximum(jnp.diagonal(carried), 0)


def update(
    belief: Belief, measured: Float[Array, "obs"], noise: Float[Array, "obs"]
) -> tuple[Belief, Float[Array, ""]]:
    """The belief after an observation with independent errors of these variances, and its negative log-likelihood.

    Kalman's update, one dimension after the other, which needs no factorisation: after each, mean and covariance are
    those given the dimensions so far. The likelihood is up to a constant factor. Variances are first
    raised by a share that only rounding would notice: where dimensions determine each other and there is no noise, what
    is left of a variance would otherwise be rounding itself.
    """

    def dimension(carry: tuple, j: Array) -> tuple[tuple, None]:
        mean, covariance, nll = carry
        variance = jnp.maximum(covariance[j, j] + noise[j], jnp.finfo(mean.dtype).tiny)
        gain, error = covariance[:, j] / variance, measured[j] - mean[j]
        nll += (error**2 / variance + jnp.log(variance)) / 2
        return (mean + gain * error, covariance - gain[:, None] * covariance[j], nll), None

    size, covariance = len(measured), cast(Array, belief.covariance)
    raised = covariance + jnp.diag(jnp.diagonal(covariance)) * float(jnp.finfo(covariance.dtype).eps) ** 0.5
    start: Any = (belief.mean, raised, jnp.zeros(()))
    (mean, covariance, nll), _ = jax.lax.scan(dimension, start, jnp.arange(size), unroll=min(size, 8))
    return Belief(mean, covariance), nll


def innovation_nll(ensemble: GaussianEnsemble, episode: Transition, noise: Float[Array, "obs"]) -> Float[Array, ""]:
    """The mean negative log-likelihood of an episode's observations, filtered again with these noise variances.

    What the noise is shows in how errors of one step follow from those of the step before, which one-step
    predictions cannot tell from noise of the process. Actions are in [−1, 1]; after an end a fresh belief begins.
    """

    def step(carry: tuple[Belief, Array], row: Transition) -> tuple[tuple[Belief, Array], Float[Array, ""]]:
        belief, fresh = carry
        alone = Belief(row.observation, jnp.diag(noise))
        belief = jax.tree.map(lambda a, b: jnp.where(fresh, a, b), alone, belief)
        prior, _ = predict(ensemble, belief, row.action)
        posterior, nll = update(prior, cast(Array, row.measured), noise)
        return (posterior, row.terminated > 0), nll

    size = episode.observation.shape[-1]
    nothing = Belief(jnp.zeros(size), jnp.zeros((size, size)))
    return jax.lax.scan(step, (nothing, jnp.array(True)), episode)[1].mean()


def anticipate(
    mixtures: mm.GaussianMixture, spread: Float[Array, "n obs"], noise: Float[Array, "n obs"]
) -> mm.GaussianMixture:
    """Predictions of the next belief's mean, from the ensemble's predictions of the next state.

    The filter will move its mean by the gain K = P S⁻¹ times the innovation, with P the members' matched covariance
    plus diag(spread) and S = P + diag(noise). If member k is right, that leaves it at m̄ + K (mₖ − m̄) on average, with
    covariance K (Cₖ + diag(spread + noise)) Kᵀ; matched, the members then have P S⁻¹ P. Without noise K is one, and
    this is the next state itself. Covariances between dimensions that `spread` stands for are left out [choice].
    """
    components, extra = mixtures.components, spread + noise
    mean, aleatoric, epistemic = mm.decompose(mixtures)
    away = components.mean - mean[:, None]
    if isinstance(components, mm.DiagonalGaussian):
        prior = aleatoric + epistemic + spread
        gain = (prior / jnp.maximum(prior + noise, jnp.finfo(prior.dtype).tiny))[:, None]
        moved = mm.DiagonalGaussian(mean[:, None] + gain * away, gain**2 * (components.variance + extra[:, None]))
        return mm.GaussianMixture(mixtures.weights, moved)
    as_matrix = jax.vmap(jnp.diag)
    prior = aleatoric + epistemic + as_matrix(spread)
    gain = jnp.linalg.solve(prior + as_matrix(noise), prior).mT[:, None]
    covariance = gain @ (components.covariance + as_matrix(extra)[:, None]) @ gain.mT
    moved_mean = mean[:, None] + jnp.einsum("nkij,nkj->nki", jnp.broadcast_to(gain, covariance.shape), away)
    return mm.GaussianMixture(mixtures.weights, mm.Gaussian(moved_mean, (covariance + covariance.mT) / 2))


class Unfiltered(eqx.Module):
    """Takes every observation for the state, as the paper does. A filter of one's own replaces these methods.

    `model` is the agent's model of the next state, None where it has none.
    """

    def init(self, model: ModelState | None, measured: Float[Array, "obs"]) -> Belief:
        """The belief after the first observation of an episode."""
        return Belief(measured, None)

    def step(
        self,
        model: ModelState | None,
        belief: Belief,
        action: Float[Array, "act"],
        measured: Float[Array, "obs"],
        missing: Bool[Array, "obs"] | None = None,
    ) -> tuple[Belief, Float[Array, "obs"] | None]:
        """The belief after an action and the observation that followed it; and `Transition.spread`."""
        return self.init(model, measured), None

    def anticipate(
        self, model: ModelState | None, mixtures: mm.GaussianMixture, spread: Float[Array, "n obs"] | None
    ) -> mm.GaussianMixture:
        """Predictions of the next belief's mean, from those of the next state."""
        return mixtures

    def noise_variance(
        self, model: ModelState | None, observation: Float[Array, "*n obs"]
    ) -> Float[Array, "*n obs"] | None:
        """The variance of the noise in each dimension of an observation, where the filter has one in mind."""
        return None

    def learn_noise(self, model: Any, episode: Transition) -> Any:
        """The model after learning its noise level from an episode, where that is learned."""
        return model


class KalmanFilter(Unfiltered):
    """An extended Kalman filter: predict with the ensemble, update with the observation."""

    config: Config
    env: Spaces

    def init(self, model: ModelState | None, measured: Float[Array, "obs"]) -> Belief:
        return Belief(measured, jnp.diag(self.noise_variance(model, measured)))

    def step(
        self,
        model: Any,
        belief: Belief,
        action: Float[Array, "act"],
        measured: Float[Array, "obs"],
        missing: Bool[Array, "obs"] | None = None,
    ) -> tuple[Belief, Float[Array, "obs"]]:
        """See `Unfiltered.step`. Until the model has seen its first batch, each observation is believed alone.

        A dimension that is `missing`, which none is in training, keeps its prediction: its noise is infinite.
        """
        alone = self.init(model, measured)
        prior, spread = predict(model.ensemble, belief, self.env.from_bounds(action))
        noise = self.noise_variance(model, prior.mean)
        if missing is not None:
            noise, measured = jnp.where(missing, jnp.inf, noise), jnp.where(missing, prior.mean, measured)
        posterior, _ = update(prior, measured, noise)
        untrained = model.ensemble.statistics.batches == 0
        unfiltered = (alone, jnp.diagonal(cast(Array, belief.covariance)))
        return jax.tree.map(lambda a, b: jnp.where(untrained, a, b), unfiltered, (posterior, spread))

    def anticipate(
        self, model: ModelState | None, mixtures: mm.GaussianMixture, spread: Float[Array, "n obs"] | None
    ) -> mm.GaussianMixture:
        if spread is None:
            return mixtures
        return anticipate(mixtures, spread, self.noise_variance(model, mixtures.mean))

    def noise_variance(self, model: Any, observation: Float[Array, "*n obs"]) -> Float[Array, "*n obs"]:
        if self.config.belief.noise == "learned":
            return jnp.broadcast_to(jnp.exp(2 * model.log_sigma), observation.shape)
        deviation = make_noise(self.config.noise, self.env.observation_size).deviation(observation)
        return jnp.square(deviation)

    def learn_noise(self, model: Any, episode: Transition) -> Any:
        """The model after one step on the likelihood of an episode's observations under the filter [choice].

        Does nothing where the noise level is known, or before the model has learned.
        """
        if self.config.belief.noise == "known":
            return model
        episode = episode._replace(action=self.env.from_bounds(episode.action))
        gradient = jax.grad(lambda log_sigma: innovation_nll(model.ensemble, episode, jnp.exp(2 * log_sigma)))
        slope = gradient(model.log_sigma)
        held = (model.log_sigma, model.sigma_optimiser)
        learned = descend(model.log_sigma, slope, model.sigma_optimiser, self.config.belief.sigma_lr)
        ready = (model.ensemble.statistics.batches > 0) & jnp.isfinite(slope).all()
        log_sigma, optimiser = jax.tree.map(lambda new, old: jnp.where(ready, new, old), learned, held)
        return model._replace(log_sigma=log_sigma, sigma_optimiser=optimiser)


def make_filter(config: Config, env: Spaces) -> Unfiltered:
    """The filter the config asks for."""
    return KalmanFilter(config, env) if config.belief.filter else Unfiltered()
