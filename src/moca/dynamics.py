"""The ensemble of heteroscedastic Gaussians that predicts the next state.

Every member predicts the change of the state, in units of the standard deviation of changes seen so
far [choice]. Inputs are standardised by the same running statistics. If the state is a history, the
change is the one from a motion at constant speed: the effect of an action is a small part of the
whole change.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Key, UInt8

from moca import config
from moca import moments as mm
from moca.envs.history import History
from moca.moments.linear import solve, whiten
from moca.nets import ADAM, MLP, copies, descend, matmul, stacked
from moca.replay import Transition, variances

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "silu": jax.nn.silu,
    "gelu": partial(jax.nn.gelu, approximate=False),  # x Φ(x), whose Gaussian moments have a closed form
    "erf": jax.scipy.special.erf,
}
LOG_VARIANCE = (-14.0, 4.0)  # soft bounds, for changes in units of their standard deviation [choice]


class Statistics(NamedTuple):
    """Means and mean squares of states and of their changes, over all batches so far."""

    batches: Float[Array, ""]
    mean: Float[Array, "2 obs"]  # of the state; of its change (`GaussianEnsemble.base`)
    square: Float[Array, "2 obs"]

    @property
    def deviation(self) -> Float[Array, "2 obs"]:
        """Standard deviations, bounded away from zero."""
        return jnp.sqrt(jnp.maximum(self.square - self.mean**2, 1e-12))


def update_statistics(
    statistics: Statistics,
    observation: Float[Array, "n obs"],
    change: Float[Array, "n obs"],
    missing: Bool[Array, "n obs"] | None = None,
) -> Statistics:
    """Returns the statistics with one more batch included, without what is `missing`."""
    seen = jnp.stack([observation, change])

    def average(numbers: Float[Array, "2 n obs"]) -> Float[Array, "2 obs"]:
        if missing is None:
            return numbers.mean(1)
        return jnp.sum(jnp.where(missing, 0, numbers), axis=1) / jnp.maximum(jnp.sum(~missing, axis=0), 1)

    batches = statistics.batches + 1
    mean = statistics.mean + (average(seen) - statistics.mean) / batches
    square = statistics.square + (average(seen**2) - statistics.square) / batches
    return Statistics(batches, mean, square)


class Calibration(NamedTuple):
    """A correction of the members' deviations, learned from the errors of a filter [choice].

    It is learned in the few states of the newest episodes, and applies to all. So deviations are
    never scaled up; where the members are too certain, a constant is added.
    """

    factor: Float[Array, "obs"]  # of the members' deviations, at most 1
    added: Float[Array, "obs"]  # a deviation, in units of that of changes; its square is added

    @staticmethod
    def none(size: int) -> "Calibration":
        """Returns the calibration that changes nothing."""
        return Calibration(jnp.ones(size), jnp.zeros(size))


class GaussianEnsemble(eqx.Module):
    """K independently initialised networks, stacked.

    Each outputs a Gaussian over the next state.
    """

    members: MLP
    statistics: Statistics
    calibration: Calibration | None  # if it is learned
    full: bool = eqx.field(static=True)
    history: History | None = eqx.field(static=True)  # the layout of the state: only its newest part is predicted

    def __init__(
        self,
        key: Key[Array, ""],
        settings: config.DynamicsConfig,
        observation_size: int,
        action_size: int,
        history: History | None = None,
    ) -> None:
        self.full, self.history = settings.covariance == "full", history
        predicted = observation_size if history is None else history.size
        below = predicted * (predicted - 1) // 2 if self.full else 0
        sizes = (observation_size + action_size, *(settings.width,) * settings.depth, 2 * predicted + below)
        self.members = stacked(key, settings.members, lambda k: MLP(k, sizes, ACTIVATIONS[settings.activation]))
        zeros = jnp.zeros((2, observation_size))
        self.statistics = Statistics(jnp.zeros(()), zeros, zeros)
        self.calibration = None

    def predict(self, observation: Float[Array, "obs"], action: Float[Array, "act"]) -> mm.GaussianMixture:
        """Returns the uniform mixture of the members' predictions for one state and action."""
        return jax.tree.map(lambda leaf: leaf[0], self.predict_batch(observation[None], action[None]))

    def predict_batch(self, observation: Float[Array, "n obs"], action: Float[Array, "n act"]) -> mm.GaussianMixture:
        """Returns the mixtures for n states and actions, along a leading axis."""
        size = self._predicted
        unit = self.statistics.deviation[1, :size]
        own, added = (unit * part[:size] for part in self.calibration or Calibration.none(size))
        change, factor = self._standard(observation, action)

        def mixture(s: Array, change: Array, factor: Array) -> mm.GaussianMixture:
            mean = self.base(s)[:size] + self.statistics.mean[1, :size] + unit * change
            weights = jnp.full(len(mean), 1 / len(mean))
            if self.history is not None:
                whole = jax.vmap(self.history.follow, (None, 0))(s, mean)
                triangle = own[:, None] * (factor if self.full else jax.vmap(jnp.diag)(factor))
                both = jnp.concatenate([triangle, jnp.broadcast_to(jnp.diag(added), triangle.shape)], axis=-1)
                onto = matmul(jnp.asarray(self.history.onto), both)
                return mm.GaussianMixture(weights, mm.Gaussian(whole, matmul(onto, onto.mT)))
            if not self.full:
                return mm.GaussianMixture(weights, mm.DiagonalGaussian(mean, (own * factor) ** 2 + added**2))
            factor = own[:, None] * factor
            return mm.GaussianMixture(weights, mm.Gaussian(mean, matmul(factor, factor.mT) + jnp.diag(added**2)))

        return jax.vmap(mixture, (0, -1, -1))(observation, change, factor)

    def base(self, observation: Float[Array, "*n obs"]) -> Float[Array, "*n obs"]:
        """Returns the state from which changes are measured: the last, or a history moved on."""
        return observation if self.history is None else self.history.coast(observation)

    @property
    def _predicted(self) -> int:
        """The number of dimensions that are predicted: of a history, the newest ones alone."""
        return len(self.statistics.mean[0]) if self.history is None else self.history.size

    def nll(
        self,
        observation: Float[Array, "n obs"],
        action: Float[Array, "n act"],
        next_observation: Float[Array, "n obs"],
        extra: Float[Array, "n obs"] | None = None,
        missing: Bool[Array, "n obs"] | None = None,
    ) -> Float[Array, "k n"]:
        """Returns each member's negative log-likelihood of each transition, per dimension.

        `extra` holds variances to add to the members' own. The likelihood is that of the dimensions
        of the next observation that are not `missing`; the others add nothing.
        """
        size = self._predicted
        unit = self.statistics.deviation[1, :size]
        mean, factor = self._standard(observation, action)
        change = next_observation[:, :size] - self.base(observation)[:, :size]
        target = ((change - self.statistics.mean[1, :size]) / unit).T
        more = None if extra is None else (extra[:, :size] / unit**2).T
        missing = None if missing is None else missing[:, :size]
        if missing is not None:
            target = jnp.where(missing.T, mean, target)
        if not self.full:
            if more is None:
                each = ((target - mean) / factor) ** 2 / 2 + jnp.log(factor)
            else:
                variance = factor**2 + more
                each = ((target - mean) ** 2 / variance + jnp.log(variance)) / 2
            return jnp.mean(each if missing is None else jnp.where(missing.T, 0, each), axis=1)
        error = jnp.moveaxis(target - mean, -1, 1)
        if more is None and missing is None:
            factor = jnp.moveaxis(factor, -1, 1)
            log_determinant = 2 * jnp.sum(jnp.log(jnp.diagonal(factor, axis1=-2, axis2=-1)), axis=-1)
            white = jax.vmap(jax.vmap(solve))(factor, error)
        else:
            covariance = jnp.einsum("kijn,kljn->knil", factor, factor, precision="highest")
            if more is not None:
                covariance += jax.vmap(jnp.diag)(more.T)
            if missing is not None:  # independent of the rest, with a unit variance whose logarithm is zero
                unknown = missing[:, :, None] | missing[:, None, :]
                covariance = jnp.where(unknown, jnp.eye(len(unit)), covariance)
            log_determinant, white = jax.vmap(jax.vmap(whiten))(covariance, error)
        return (jnp.sum(white**2, axis=-1) + log_determinant) / (2 * size)

    def standardised(self, observation: Float[Array, "*n obs"]) -> Float[Array, "*n obs"]:
        """Standardises states by the running statistics."""
        return (observation - self.statistics.mean[0]) / self.statistics.deviation[0]

    def _standard(
        self, observation: Float[Array, "n obs"], action: Float[Array, "n act"]
    ) -> tuple[Float[Array, "k obs n"], Float[Array, "k obs n"] | Float[Array, "k obs obs n"]]:
        """Returns means and deviations (or Cholesky factors) of the standardised change.

        The batch is the last axis: further arithmetic has few dimensions and many transitions.
        """
        inputs = jnp.concatenate([self.standardised(observation), action], axis=1)
        each = copies(inputs, len(self.members.weights[0]))
        raw = jax.vmap(lambda member, own: jax.vmap(member, out_axes=-1)(own))(self.members, each)
        size = self._predicted
        middle, reach = sum(LOG_VARIANCE) / 2, (LOG_VARIANCE[1] - LOG_VARIANCE[0]) / 2
        deviation = jnp.exp((middle + reach * jnp.tanh((raw[:, size : 2 * size] - middle) / reach)) / 2)
        if not self.full:
            return raw[:, :size], deviation
        rows, columns = jnp.tril_indices(size, -1)
        factor = jnp.zeros((len(raw), size, size, len(observation))).at[:, rows, columns].set(raw[:, 2 * size :])
        return raw[:, :size], factor.at[:, jnp.arange(size), jnp.arange(size)].set(deviation)


def resample_counts(key: Key[Array, ""], members: int, count: int) -> UInt8[Array, "k n"]:
    """Returns how often each transition is in each member's resample with replacement.

    A loss weighted by these multiplicities equals the loss on the resample, and copies no rows.
    """
    rows = (jax.random.bits(key, (members * count,)) % count).reshape(members, count)
    own = jnp.arange(members)[:, None]
    return jnp.zeros((members, count), jnp.uint8).at[own, rows].add(1)


def linearised(
    ensemble: GaussianEnsemble, observation: Float[Array, "obs"], action: Float[Array, "act"]
) -> tuple[mm.GaussianMixture, Float[Array, "obs obs"]]:
    """Returns the prediction, and the derivative of its mean by the state."""

    def mean_of(s: Float[Array, "obs"]) -> tuple[Float[Array, "obs"], mm.GaussianMixture]:
        mixture = ensemble.predict(s, action)
        return mixture.mean, mixture

    derivative, mixture = jax.jacfwd(mean_of, has_aux=True)(observation)
    return mixture, derivative


class NoiseLevels(NamedTuple):
    """Logarithms of learned levels of noise; `constant` alone if the noise is known."""

    constant: Float[Array, "obs"]  # of the deviation that is the same in every state
    growing: Float[Array, "obs"] | None = None  # of the deviation at a state of typical size
    shares: Float[Array, "obs"] | None = None  # of each dimension in the size of the state
    most: Float[Array, "obs"] | None = None  # of the size from which the noise does not grow further
    process: Calibration | None = None  # of both parts of the calibration of the model

    @staticmethod
    def of(log_deviation: Float[Array, "obs"]) -> "NoiseLevels":
        """Returns levels for noise of these deviations, nearly the same in all states."""
        zeros = jnp.zeros_like(log_deviation)
        return NoiseLevels(log_deviation, log_deviation - 2, zeros, zeros, Calibration(zeros, zeros - 7))


def noise_variance(
    levels: NoiseLevels, statistics: Statistics, observation: Float[Array, "*n obs"]
) -> Float[Array, "*n obs"]:
    """Returns the learned noise variance of each dimension.

    It is a constant plus a part that grows with the squares of the state, in units of their mean
    squares, up to a size that is learned too: state-norm noise is of this form.
    """
    squares = observation**2 / jnp.maximum(statistics.square[0], 1e-12)
    size = jnp.sum(jax.nn.softmax(cast(Array, levels.shares)) * squares, axis=-1, keepdims=True)
    size = jnp.minimum(size, jnp.exp(cast(Array, levels.most)))
    return jnp.exp(2 * levels.constant) + jnp.exp(2 * cast(Array, levels.growing)) * size


class ModelState(NamedTuple):
    """An ensemble with its optimiser, and the observation noise, which may be learned."""

    ensemble: GaussianEnsemble
    optimiser: optax.OptState
    noise: NoiseLevels
    noise_optimiser: optax.OptState


def make_model(
    key: Key[Array, ""],
    settings: config.DynamicsConfig,
    belief: config.BeliefConfig | None,
    observation_size: int,
    action_size: int,
    history: History | None = None,
) -> ModelState:
    """Returns an untrained model."""
    ensemble = GaussianEnsemble(key, settings, observation_size, action_size, history)
    level = jnp.full(observation_size, jnp.log(1.0 if belief is None else belief.sigma))
    noise = NoiseLevels(level)
    if belief is not None and belief.filter and belief.noise == "learned":
        noise = NoiseLevels.of(level)
        known = Calibration.none(observation_size)
        ensemble = eqx.tree_at(lambda e: e.calibration, ensemble, known, is_leaf=lambda x: x is None)
    return ModelState(ensemble, ADAM.init(ensemble.members), noise, ADAM.init(noise))


def fit(
    model: ModelState,
    lr: Float[Array, ""] | float,
    batch: Transition,
    multiplicity: UInt8[Array, "k n"],
    noise: Float[Array, "n obs"] | None = None,
) -> tuple[ModelState, Float[Array, ""]]:
    """Takes one step on the likelihood of a bootstrap resample per member [Alg. 1 l. 8].

    Returns the model and its mean loss before the step. Under a filter, `noise` holds the variances
    of the observation noise. The target is then the measured next observation, and the likelihood
    accounts for the noise and for the uncertainty of s. A noisy observation would be a biased
    input; the mean of a belief is not, because its error is uncorrelated with it. Dimensions that
    are `missing` are not fitted [choice].
    """
    history, gaps = model.ensemble.history, batch.missing
    if gaps is not None and history is not None:
        gaps = gaps & ~history.hidden  # these are never measured, but follow from what was
    change = batch.next_observation - model.ensemble.base(batch.observation)
    statistics = update_statistics(model.ensemble.statistics, batch.observation, change, gaps)
    ensemble = eqx.tree_at(lambda e: e.statistics, model.ensemble, statistics)
    target, extra = batch.next_observation, None
    if noise is not None and batch.measured is not None and batch.spread is not None:
        target, extra = batch.measured, variances(batch.spread, noise.shape[-1]) + noise

    def loss(members: MLP) -> tuple[Float[Array, ""], Float[Array, "k"]]:
        candidate = eqx.tree_at(lambda e: e.members, ensemble, members)
        likelihoods = candidate.nll(batch.observation, batch.action, target, extra, batch.missing)
        each = jnp.mean(multiplicity * likelihoods, axis=1)
        return each.sum(), each

    (_, each), gradient = jax.value_and_grad(loss, has_aux=True)(ensemble.members)
    members, optimiser = descend(ensemble.members, gradient, model.optimiser, lr)
    ensemble = eqx.tree_at(lambda e: e.members, ensemble, members)
    return model._replace(ensemble=ensemble, optimiser=optimiser), each.mean()
