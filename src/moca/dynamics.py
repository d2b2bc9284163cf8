"""The ensemble of heteroscedastic Gaussians that predicts the next state.

Every member predicts the change of the state, in units of the spread that changes were seen to have [choice]; inputs
are standardised by the same running statistics.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from moca import config
from moca import moments as mm
from moca.nets import MLP, stacked

LOG_VARIANCE = (-14.0, 4.0)  # of a change in units of its spread: a softly bounded range [choice]


class Statistics(NamedTuple):
    """Running mean and spread of states and of their changes, over all batches so far."""

    batches: Float[Array, ""]
    mean: Float[Array, "2 obs"]  # of the state; of its change
    square: Float[Array, "2 obs"]

    @property
    def deviation(self) -> Float[Array, "2 obs"]:
        """Standard deviations, never so small that dividing by one is a danger."""
        return jnp.sqrt(jnp.maximum(self.square - self.mean**2, 1e-12))


def update_statistics(
    statistics: Statistics, observation: Float[Array, "n obs"], next_observation: Float[Array, "n obs"]
) -> Statistics:
    """The statistics with one more batch in them."""
    seen = jnp.stack([observation, next_observation - observation])
    batches = statistics.batches + 1
    mean = statistics.mean + (seen.mean(1) - statistics.mean) / batches
    square = statistics.square + ((seen**2).mean(1) - statistics.square) / batches
    return Statistics(batches, mean, square)


class GaussianEnsemble(eqx.Module):
    """K independently initialised networks, stacked; each outputs a Gaussian over the next state."""

    members: MLP
    statistics: Statistics
    full: bool = eqx.field(static=True)

    def __init__(self, key: Key[Array, ""], settings: config.Dynamics, observation_size: int, action_size: int) -> None:
        self.full = settings.covariance == "full"
        below = observation_size * (observation_size - 1) // 2 if self.full else 0
        sizes = (observation_size + action_size, *(settings.width,) * settings.depth, 2 * observation_size + below)
        self.members = stacked(key, settings.members, lambda k: MLP(k, sizes, jax.nn.silu))
        zeros = jnp.zeros((2, observation_size))
        self.statistics = Statistics(jnp.zeros(()), zeros, zeros)

    def predict(self, observation: Float[Array, "obs"], action: Float[Array, "act"]) -> mm.GaussianMixture:
        """The uniformly weighted mixture of the members' predictions for one state and action."""
        count = len(self.members.biases[0])
        components = jax.vmap(lambda member: self._member(member, observation, action))(self.members)
        return mm.GaussianMixture(jnp.full(count, 1 / count), components)

    def nll(
        self, observation: Float[Array, "k n obs"], action: Float[Array, "k n act"], following: Float[Array, "k n obs"]
    ) -> Float[Array, "k"]:
        """Each member's mean negative log-likelihood on its own batch, per dimension and in units of the spread."""

        def one(member: MLP, s: Array, a: Array, next_s: Array) -> Float[Array, ""]:
            mean, factor = self._standard(member, s, a)
            target = (next_s - s - self.statistics.mean[1]) / self.statistics.deviation[1]
            if not self.full:
                return jnp.mean(((target - mean) / factor) ** 2 / 2 + jnp.log(factor))
            white = jax.scipy.linalg.solve_triangular(factor, target - mean, lower=True)
            return jnp.mean(white**2 / 2 + jnp.log(jnp.diagonal(factor)))

        each = jax.vmap(jax.vmap(one, (None, 0, 0, 0)))(self.members, observation, action, following)
        return each.mean(axis=1)

    def _member(
        self, member: MLP, observation: Float[Array, "obs"], action: Float[Array, "act"]
    ) -> mm.DiagonalGaussian | mm.Gaussian:
        """One member's Gaussian over the next state."""
        mean, factor = self._standard(member, observation, action)
        spread = self.statistics.deviation[1]
        mean = observation + self.statistics.mean[1] + spread * mean
        if not self.full:
            return mm.DiagonalGaussian(mean, (spread * factor) ** 2)
        factor = spread[:, None] * factor
        return mm.Gaussian(mean, factor @ factor.T)

    def _standard(
        self, member: MLP, observation: Float[Array, "obs"], action: Float[Array, "act"]
    ) -> tuple[Float[Array, "obs"], Float[Array, "..."]]:
        """Mean and deviations (or Cholesky factor) of the change, in units of its spread."""
        standard = (observation - self.statistics.mean[0]) / self.statistics.deviation[0]
        size = len(observation)
        raw = member(jnp.concatenate([standard, action]))
        low, high = LOG_VARIANCE
        log_variance = high - jax.nn.softplus(high - raw[size : 2 * size])
        log_variance = low + jax.nn.softplus(log_variance - low)
        deviation = jnp.exp(log_variance / 2)
        if not self.full:
            return raw[:size], deviation
        rows, columns = jnp.tril_indices(size, -1)
        return raw[:size], jnp.diag(deviation).at[rows, columns].set(raw[2 * size :])


def bootstrap(key: Key[Array, ""], members: int, count: int) -> Float[Array, "k n"]:
    """For each member, indices of `count` draws with replacement from a batch of `count`."""
    return jax.random.randint(key, (members, count), 0, count)
