"""A Gaussian belief over the state [choice]: a prediction corrected by the observation.

The paper treats each observation as the state. Under observation noise, every measurement error
then looks like a jump of the state. A filter keeps the information in earlier observations. The
agent acts and learns on the mean of its belief. The next mean is random only as far as the next
observation differs from its prediction: its covariance is P S⁻¹ P, with P the covariance of the
predicted state and S = P + R that of the predicted observation.
"""

from abc import abstractmethod
from typing import Any, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from moca import moments as mm
from moca.config import Config
from moca.dynamics import GaussianEnsemble, ModelState, linearised, noise_variance
from moca.envs.environment import Spaces, make_noise
from moca.nets import matmul
from moca.replay import Late, pack, unpack
from moca.width import log_width

UNSEEN = 1e15  # a noise variance from which nothing is learned, and which is finite


class Pending(NamedTuple):
    """The past of a belief if observations are late: the newest observation, and actions since."""

    mean: Float[Array, "obs"]  # of the belief about the state of that observation
    covariance: Float[Array, "obs obs"]
    actions: Float[Array, "delay act"]  # since then, the newest last
    sent: Int[Array, ""]  # how many they are: fewer than the delay at the start of an episode
    spread: Float[Array, "packed"]  # `Transition.spread` of the step to that state


class Belief(NamedTuple):
    """N(mean, covariance) over the state. Without a filter: the observation, and no covariance."""

    mean: Float[Array, "obs"]
    covariance: Float[Array, "obs obs"] | None
    pending: Pending | None = None
    plan: Float[Array, "length act"] | None = None  # the actions that a planning agent has in mind, in [−1, 1]


def width(config: Config, belief: Belief) -> Float[Array, "obs"] | None:
    """Returns the width of a belief as V sees it, or None if it does not: see `moca.width`."""
    return log_width(config, jnp.diagonal(cast(Array, belief.covariance))) if config.belief.width else None


def features(config: Config, belief: Belief) -> Float[Array, "inputs"]:
    """Returns the input of policy and V: the belief's mean and, with `belief.width`, its width."""
    seen = width(config, belief)
    return belief.mean if seen is None else jnp.concatenate([belief.mean, seen])


def late_part(before: Belief, after: Belief) -> Late | None:
    """Returns the step that the newest observation concludes, if the filter is for late ones."""
    if before.pending is None or after.pending is None:
        return None
    past, now = before.pending, after.pending
    arrived = jnp.asarray(past.sent == len(past.actions), past.mean.dtype)
    return Late(past.mean, past.actions[0], now.mean, now.spread, arrived)


def predict(
    ensemble: GaussianEnsemble, belief: Belief, action: Float[Array, "act"]
) -> tuple[Belief, Float[Array, "obs obs"]]:
    """Returns the belief about s′ before it is observed, and the covariance inherited from s.

    The mean goes through the ensemble's mean, and the covariance through its derivative F [choice]:
    F P Fᵀ plus the ensemble's own uncertainty.
    """
    mixture, derivative = linearised(ensemble, belief.mean, action)
    carried = matmul(matmul(derivative, cast(Array, belief.covariance)), derivative.T)
    mean, aleatoric, epistemic = mm.decompose(mixture, full=True)
    return Belief(mean, carried + aleatoric + epistemic), carried


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

    size = len(measured)
    start: Any = (belief.mean, raised(cast(Array, belief.covariance)), jnp.zeros(()))
    (mean, covariance, nll), _ = jax.lax.scan(dimension, start, jnp.arange(size), unroll=min(size, 8))
    return Belief(mean, covariance), nll


def anticipate(
    mixtures: mm.GaussianMixture, spread: Float[Array, "n obs obs"], noise: Float[Array, "n obs"]
) -> mm.GaussianMixture:
    """Returns predictions of the next belief's mean, from predictions of the next state.

    The filter will move its mean by the gain K = P S⁻¹ times the innovation, with P the members'
    matched covariance plus `spread`, and S = P + diag(noise). If member k is right, the new mean is
    m̄ + K (mₖ − m̄) on average, with covariance K (Cₖ + spread + diag(noise)) Kᵀ; the members,
    matched, then have covariance P S⁻¹ P, up to `raised`. Nothing else is computed if they are
    matched already. Without noise K is the identity, and this is the next state itself.
    """
    components = mixtures.components
    if components.mean.shape[1] == 1:
        covariance = raised(gained(components.covariance[:, 0] + spread, noise))[:, None]
        return mm.GaussianMixture(mixtures.weights, mm.Gaussian(components.mean, covariance))
    mean, aleatoric, epistemic = mm.decompose(mixtures, full=True)
    gain = gains(aleatoric + epistemic + spread, noise)[:, None]
    own = components.covariance + (spread + jax.vmap(jnp.diag)(noise))[:, None]
    covariance = matmul(matmul(gain, own), gain.mT)
    moved = mean[:, None] + matmul(gain, (components.mean - mean[:, None])[..., None])[..., 0]
    return mm.GaussianMixture(mixtures.weights, mm.Gaussian(moved, raised((covariance + covariance.mT) / 2)))


def anticipate_diagonal(
    mixtures: mm.GaussianMixture, spread: Float[Array, "n obs"], noise: Float[Array, "n obs"]
) -> mm.GaussianMixture:
    """Returns the same for members with diagonal covariances, each dimension on its own."""
    components = cast(mm.DiagonalGaussian, mixtures.components)
    mean, aleatoric, epistemic = mm.decompose(mixtures)
    prior = aleatoric + epistemic + spread
    share = (prior / jnp.maximum(prior + noise, jnp.finfo(prior.dtype).tiny))[:, None]
    variance = share**2 * (components.variance + (spread + noise)[:, None])
    centre = mean[:, None] + share * (components.mean - mean[:, None])
    return mm.GaussianMixture(mixtures.weights, mm.DiagonalGaussian(centre, variance))


def gained(prior: Float[Array, "n obs obs"], noise: Float[Array, "n obs"]) -> Float[Array, "n obs obs"]:
    """Returns P (P + diag(noise))⁻¹ P for many P, by which observations reduce covariances.

    Its variances are at most those of P, also where rounding errors made P indefinite: a covariance
    counts for at most the product of both deviations.
    """

    def one(prior: Float[Array, "obs obs"], noise: Float[Array, "obs"]) -> Float[Array, "obs obs"]:
        def dimension(carry: tuple[Array, Array], j: Array) -> tuple[tuple[Array, Array], None]:
            covariance, known = carry
            deviations = jnp.sqrt(jnp.maximum(jnp.diagonal(covariance), 0))
            column = jnp.clip(covariance[:, j], -(most := deviations * deviations[j]), most)
            more = column[:, None] * (column / jnp.maximum(most[j] + noise[j], jnp.finfo(prior.dtype).tiny))
            return (covariance - more, known + more), None

        start = (raised(prior), jnp.zeros_like(prior))
        return jax.lax.scan(dimension, start, jnp.arange(len(noise)), unroll=min(len(noise), 8))[0][1]

    return jax.vmap(one)(prior, noise)


def gains(prior: Float[Array, "n obs obs"], noise: Float[Array, "n obs"]) -> Float[Array, "n obs obs"]:
    """Returns K = P (P + diag(noise))⁻¹ for many P, one dimension at a time, as `update` does."""

    def one(prior: Float[Array, "obs obs"], noise: Float[Array, "obs"]) -> Float[Array, "obs obs"]:
        def dimension(carry: tuple[Array, Array], j: Array) -> tuple[tuple[Array, Array], None]:
            covariance, gain = carry
            own = covariance[:, j] / jnp.maximum(covariance[j, j] + noise[j], jnp.finfo(prior.dtype).tiny)
            innovation = (jnp.arange(len(noise)) == j) - gain[j]  # less what is known from the dimensions before
            return (covariance - own[:, None] * covariance[j], gain + own[:, None] * innovation), None

        start = (raised(prior), jnp.zeros_like(prior))
        return jax.lax.scan(dimension, start, jnp.arange(len(noise)), unroll=min(len(noise), 8))[0][1]

    return jax.vmap(one)(prior, noise)


def raised(covariance: Float[Array, "*n obs obs"]) -> Float[Array, "*n obs obs"]:
    """Returns covariances with variances increased by a relative amount near rounding error.

    If some dimensions nearly determine others, rounding errors alone could make one indefinite.
    """
    ridge = float(jnp.finfo(covariance.dtype).eps) ** 0.5
    raised: Array = covariance * (1 + jnp.eye(covariance.shape[-1]) * ridge)
    return raised


def _filled(belief: Belief, measured: Float[Array, "obs"], missing: Bool[Array, "obs"] | None) -> Float[Array, "obs"]:
    """Returns the measurement, with the belief's mean in dimensions that are missing."""
    return measured if missing is None else jnp.where(missing, belief.mean, measured)


class BeliefFilter(eqx.Module):
    """Turns observations into beliefs; yours needs `init` and `step`.

    If its beliefs have covariances, it says so by `keeps_covariance`, and `anticipate`,
    `noise_variance` and `correlated` say what these are of. Otherwise the agent treats the mean of
    a belief as the state. `model` is the agent's model of the next state, or None if it has
    none.
    """

    @property
    def keeps_covariance(self) -> bool:
        """True if beliefs have covariances; `step` then returns what to store of them."""
        return False

    @property
    def correlated(self) -> bool:
        """True if stored covariances are full, and not diagonals."""
        return False

    @abstractmethod
    def init(self, model: ModelState | None, measured: Float[Array, "obs"]) -> Belief:
        """Returns the belief after the first observation of an episode."""

    @abstractmethod
    def step(
        self, model: Any, belief: Belief, action: Array, measured: Float[Array, "obs"], missing: Array | None = None
    ) -> tuple[Belief, Float[Array, "packed"] | None]:
        """Returns the belief after an action and the next observation, and `Transition.spread`.

        That is the covariance of s′ inherited from s, packed by `moca.replay.pack`, or None for a
        filter that keeps no covariance. `missing` marks dimensions that were not measured; it is
        given only where some may be.
        """

    def anticipate(
        self, model: Any, mixtures: mm.GaussianMixture, spread: Float[Array, "n packed"] | None, missing: Any = None
    ) -> mm.GaussianMixture:
        """Returns predictions of the next belief's mean, from predictions of the next state.

        In dimensions that were `missing`, the next mean is its prediction.
        """
        return mixtures

    def noise_variance(
        self, model: ModelState | None, observation: Float[Array, "*n obs"]
    ) -> Float[Array, "*n obs"] | None:
        """Returns the noise variance of each observed dimension, or None if no noise is assumed."""
        return None


class Unfiltered(BeliefFilter):
    """Treats each observation as the state, as the paper does."""

    def init(self, model: ModelState | None, measured: Float[Array, "obs"]) -> Belief:
        return Belief(measured, None)

    def step(
        self, model: Any, belief: Belief, action: Array, measured: Float[Array, "obs"], missing: Array | None = None
    ) -> tuple[Belief, Float[Array, "packed"] | None]:
        """Takes the observation; a `missing` dimension keeps its last one."""
        return self.init(model, _filled(belief, measured, missing)), None


class KalmanFilter(BeliefFilter):
    """An extended Kalman filter: predicts with the ensemble, updates with the observation."""

    config: Config
    env: Spaces

    @property
    def keeps_covariance(self) -> bool:
        return True

    @property
    def correlated(self) -> bool:
        return self.config.belief.covariance == "full" or self.env.history is not None

    def init(self, model: ModelState | None, measured: Float[Array, "obs"]) -> Belief:
        """Returns the first belief; changes in a history are zero there, and so not uncertain."""
        variance, history = self.noise_variance(model, measured), self.env.history
        if history is not None:
            variance = jnp.where(history.hidden, 0.0, variance)
        return Belief(measured, jnp.diag(variance))

    def step(
        self, model: Any, belief: Belief, action: Array, measured: Float[Array, "obs"], missing: Array | None = None
    ) -> tuple[Belief, Float[Array, "packed"]]:
        """Predicts and updates; before the model's first batch, takes the observation alone.

        A `missing` dimension keeps its prediction, as if its noise were infinite, or before the
        model's first batch its last value.
        """
        alone = self._without_model(model, belief, measured, missing)
        prior, spread = predict(model.ensemble, belief, self.env.from_bounds(action))
        noise = self.noise_variance(model, prior.mean)
        if missing is not None:
            noise, measured = jnp.where(missing, jnp.inf, noise), jnp.where(missing, prior.mean, measured)
        posterior, _ = update(prior, measured, noise)
        untrained = model.ensemble.statistics.batches == 0
        unfiltered = (alone, pack(cast(Array, belief.covariance), self.correlated))
        filtered = (posterior, pack(spread, self.correlated))
        chosen: tuple[Belief, Array] = jax.tree.map(lambda a, b: jnp.where(untrained, a, b), unfiltered, filtered)
        return chosen

    def _without_model(
        self, model: ModelState | None, belief: Belief, measured: Float[Array, "obs"], missing: Any
    ) -> Belief:
        """Returns the belief that observations alone suggest."""
        filled, history = _filled(belief, measured, missing), self.env.history
        if history is None:
            return self.init(model, filled)
        state = history.follow(belief.mean, filled[: history.size])
        return Belief(state, history.covariance(self.noise_variance(model, state)[: history.size]))

    def anticipate(
        self, model: Any, mixtures: mm.GaussianMixture, spread: Float[Array, "n packed"] | None, missing: Any = None
    ) -> mm.GaussianMixture:
        if spread is None:
            return mixtures
        noise = self.noise_variance(model, mixtures.mean)
        noise = noise if missing is None else jnp.where(missing, UNSEEN, noise)
        if isinstance(mixtures.components, mm.DiagonalGaussian) and not self.correlated:
            return anticipate_diagonal(mixtures, spread, noise)
        return anticipate(mixtures, unpack(spread, noise.shape[-1]), noise)

    def noise_variance(self, model: Any, observation: Float[Array, "*n obs"]) -> Float[Array, "*n obs"]:
        if self.config.belief.noise == "learned":
            return noise_variance(model.noise, model.ensemble.statistics, observation)
        size = self.env.measured_size
        deviation = make_noise(self.config.noise, size).deviation(observation[..., :size])
        hidden = jnp.zeros((*observation.shape[:-1], observation.shape[-1] - size))
        return jnp.square(jnp.concatenate([deviation, hidden], axis=-1))


def make_filter(config: Config, env: Spaces) -> BeliefFilter:
    """Returns the filter that the config asks for."""
    return KalmanFilter(config, env) if config.belief.filter else Unfiltered()
