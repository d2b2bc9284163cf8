"""A Gaussian belief over the state [choice]: a prediction corrected by the observation.

The paper takes each observation for the state. Under observation noise, every measurement error
then looks like a jump of the state. A filter keeps the information in earlier observations. The
agent acts and learns on the mean of its belief. The next mean is random only as far as the next
observation differs from its prediction: its covariance is P S⁻¹ P, with P the covariance of the
predicted state and S = P + R that of the predicted observation.
"""

from typing import Any, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from moca import moments as mm
from moca.config import Config
from moca.dynamics import GaussianEnsemble, ModelState
from moca.envs.environment import Spaces, make_noise
from moca.nets import descend
from moca.replay import Late, Transition
from moca.width import log_width, remaining

UNSEEN = 1e15  # a noise variance from which nothing is learned, and which is finite


class Pending(NamedTuple):
    """The past of a belief if observations are late: the newest observation, and actions since."""

    mean: Float[Array, "obs"]  # of the belief about the state of that observation
    covariance: Float[Array, "obs obs"]
    actions: Float[Array, "delay act"]  # since then, the newest last
    sent: Int[Array, ""]  # how many they are: fewer than the delay at the start of an episode
    spread: Float[Array, "obs"]  # `Transition.spread` of the step to that state


class Belief(NamedTuple):
    """N(mean, covariance) over the state. Without a filter: the observation, and no covariance."""

    mean: Float[Array, "obs"]
    covariance: Float[Array, "obs obs"] | None
    pending: Pending | None = None


def features(config: Config, belief: Belief) -> Float[Array, "inputs"]:
    """Returns what the agent acts on and V is a function of: the mean, and the width if asked."""
    (width,) = widths(config, belief)
    return belief.mean if width is None else jnp.concatenate([belief.mean, width])


def widths(config: Config, *beliefs: Belief) -> list[Float[Array, "obs"] | None]:
    """Returns the width of each belief as V sees it, or None if it does not: see `moca.width`."""
    if not config.belief.width:
        return [None] * len(beliefs)
    return [log_width(config, jnp.diagonal(cast(Array, belief.covariance))) for belief in beliefs]


def of_observation(own: "Unfiltered", config: Config, model: Any, observation: Float[Array, "obs"]) -> Array:
    """Returns the features of an observation that is taken for the state, with that much noise."""
    return features(config, own.init(model, observation)) if config.belief.width else observation


def late_part(before: Belief, after: Belief) -> Late | None:
    """Returns the step that the newest observation concludes, if the filter is for late ones."""
    if before.pending is None or after.pending is None:
        return None
    past, now = before.pending, after.pending
    arrived = jnp.asarray(past.sent == len(past.actions), past.mean.dtype)
    return Late(past.mean, past.actions[0], now.mean, now.spread, arrived)


def predict(
    ensemble: GaussianEnsemble, belief: Belief, action: Float[Array, "act"]
) -> tuple[Belief, Float[Array, "obs"]]:
    """Returns the belief about s′ before it is observed, and the variances inherited from s.

    The mean goes through the ensemble's mean, and the covariance through its derivative F [choice]:
    F P Fᵀ plus the ensemble's own uncertainty.
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
    """Returns the belief after an observation, and the observation's negative log-likelihood.

    `noise` holds the variances of independent measurement errors. This is Kalman's update, one
    dimension at a time, which needs no matrix factorisation: after each dimension, mean and
    covariance are conditioned on the dimensions so far. The likelihood is up to a constant factor.
    Variances are first increased by a relative amount near rounding error: if some dimensions
    determine others and there is no noise, the remaining variance would otherwise consist of
    rounding error alone.
    """

    def dimension(carry: tuple[Any, ...], j: Array) -> tuple[tuple[Any, ...], None]:
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
    """Returns the mean negative log-likelihood of an episode's observations under the filter.

    Measurement noise makes the errors of successive predictions correlated; process noise does not.
    One-step predictions cannot tell the two apart, but the filter's likelihood can. Actions are
    in [−1, 1]; after a termination a new belief starts.
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
    """Returns predictions of the next belief's mean, from predictions of the next state.

    The filter will move its mean by the gain K = P S⁻¹ times the innovation, with P the members'
    matched covariance plus diag(spread), and S = P + diag(noise). If member k is right, the new
    mean is m̄ + K (mₖ − m̄) on average, with covariance K (Cₖ + diag(spread + noise)) Kᵀ; the
    members, matched, then have covariance P S⁻¹ P. Without noise K is the identity, and this is the
    next state itself. Covariances between the dimensions of `spread` are neglected [choice].
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


def _filled(belief: Belief, measured: Float[Array, "obs"], missing: Bool[Array, "obs"] | None) -> Float[Array, "obs"]:
    """Returns the measurement, with the belief's mean in dimensions that are missing."""
    return measured if missing is None else jnp.where(missing, belief.mean, measured)


class Unfiltered(eqx.Module):
    """Takes each observation for the state, as the paper does.

    Subclass it to write your own filter.

    `model` is the agent's model of the next state, or None if it has no model.
    """

    def init(self, model: ModelState | None, measured: Float[Array, "obs"]) -> Belief:
        """Returns the belief after the first observation of an episode."""
        return Belief(measured, None)

    def step(
        self,
        model: ModelState | None,
        belief: Belief,
        action: Float[Array, "act"],
        measured: Float[Array, "obs"],
        missing: Bool[Array, "obs"] | None = None,
    ) -> tuple[Belief, Float[Array, "obs"] | None]:
        """Returns the belief after an action and the next observation, and `Transition.spread`.

        Without a filter, a `missing` dimension keeps its last observation.
        """
        return self.init(model, _filled(belief, measured, missing)), None

    def anticipate(
        self,
        model: ModelState | None,
        mixtures: mm.GaussianMixture,
        spread: Float[Array, "n obs"] | None,
        missing: Bool[Array, "n obs"] | None = None,
    ) -> mm.GaussianMixture:
        """Returns predictions of the next belief's mean, from predictions of the next state.

        In dimensions that were `missing`, the next mean is its prediction.
        """
        return mixtures

    def anticipate_width(self, model: Any, mixtures: mm.GaussianMixture, batch: Transition) -> Float[Array, "n obs"]:
        """Returns the width of the next belief, if V sees it: by default as it was."""
        return cast(Array, batch.next_width)

    def noise_variance(
        self, model: ModelState | None, observation: Float[Array, "*n obs"]
    ) -> Float[Array, "*n obs"] | None:
        """Returns the noise variance of each observed dimension, or None if no noise is assumed."""
        return None

    def learn_noise(self, model: Any, episode: Transition) -> Any:
        """Returns the model after learning its noise level from an episode, if that is learned."""
        return model


class KalmanFilter(Unfiltered):
    """An extended Kalman filter: predicts with the ensemble, updates with the observation."""

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
        """Predicts and updates; before the model's first batch, takes the observation alone.

        A `missing` dimension keeps its prediction, as if its noise were infinite, or before the
        model's first batch its last value.
        """
        alone = self.init(model, _filled(belief, measured, missing))
        prior, spread = predict(model.ensemble, belief, self.env.from_bounds(action))
        noise = self.noise_variance(model, prior.mean)
        if missing is not None:
            noise, measured = jnp.where(missing, jnp.inf, noise), jnp.where(missing, prior.mean, measured)
        posterior, _ = update(prior, measured, noise)
        untrained = model.ensemble.statistics.batches == 0
        unfiltered = (alone, jnp.diagonal(cast(Array, belief.covariance)))
        return jax.tree.map(lambda a, b: jnp.where(untrained, a, b), unfiltered, (posterior, spread))

    def anticipate(
        self,
        model: ModelState | None,
        mixtures: mm.GaussianMixture,
        spread: Float[Array, "n obs"] | None,
        missing: Bool[Array, "n obs"] | None = None,
    ) -> mm.GaussianMixture:
        if spread is None:
            return mixtures
        noise = self.noise_variance(model, mixtures.mean)
        return anticipate(mixtures, spread, noise if missing is None else jnp.where(missing, UNSEEN, noise))

    def anticipate_width(self, model: Any, mixtures: mm.GaussianMixture, batch: Transition) -> Float[Array, "n obs"]:
        """Returns the width of the next belief, by the present model: `step` makes it so.

        It does not depend on the next measurement, only on the noise at the predicted mean.
        """
        noise = self.noise_variance(model, mixtures.mean)
        noise = noise if batch.missing is None else jnp.where(batch.missing, UNSEEN, noise)
        return log_width(self.config, remaining(mixtures, cast(Array, batch.spread), noise))

    def noise_variance(self, model: Any, observation: Float[Array, "*n obs"]) -> Float[Array, "*n obs"]:
        if self.config.belief.noise == "learned":
            return jnp.broadcast_to(jnp.exp(2 * model.log_sigma), observation.shape)
        deviation = make_noise(self.config.noise, self.env.observation_size).deviation(observation)
        return jnp.square(deviation)

    def learn_noise(self, model: Any, episode: Transition) -> Any:
        """Returns the model after one step on an episode's likelihood under the filter [choice].

        Does nothing if the noise level is known, or before the model's first batch.
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
    """Returns the filter that the config asks for."""
    return KalmanFilter(config, env) if config.belief.filter else Unfiltered()
