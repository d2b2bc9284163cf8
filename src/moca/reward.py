"""A learned reward r(s, a) whose expectation under a Gaussian has a closed form [choice].

It is a function of one of the classes of V, on the state and the action side by side. States are
standardised by the ensemble's running statistics, and rewards by running statistics of their own.
"""

import dataclasses
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key

from moca import moments as mm
from moca.config import Config, ValueConfig
from moca.critic import descend, freeze, value_rates
from moca.dynamics import Statistics
from moca.nets import ADAM, decayed
from moca.replay import Transition
from moca.values import make_value

REACH = 2.0  # bases are drawn within so many deviations of the mean [choice]


class RewardModel(eqx.Module):
    """r̂(s, a) = r̄ + σ_r f(z), with z the standardised state and the action in [−1, 1]."""

    function: mm.Function
    statistics: Statistics  # of the rewards

    def expectation(self, states: Statistics, belief: mm.Dirac | mm.DiagonalGaussian | mm.Gaussian) -> Float[Array, ""]:
        """Returns E[r̂(s, a)] for one belief about (s, a); `states` are the ensemble's statistics.

        Standardising is linear, so that a Gaussian stays a Gaussian and the closed form is exact.
        """
        size = states.mean.shape[-1]
        rest = belief.dimension - size
        shift = jnp.concatenate([states.mean[0], jnp.zeros(rest)])
        scale = jnp.concatenate([states.deviation[0], jnp.ones(rest)])
        mean = (belief.mean - shift) / scale
        standard: mm.Distribution = mm.Dirac(mean)
        if isinstance(belief, mm.DiagonalGaussian):
            standard = mm.DiagonalGaussian(mean, belief.variance / jnp.square(scale))
        if isinstance(belief, mm.Gaussian):
            standard = mm.Gaussian(mean, belief.covariance / (scale[:, None] * scale))
        return self.statistics.mean + self.statistics.deviation * mm.expectation(standard, self.function)

    def at(
        self, states: Statistics, observation: Float[Array, "n obs"], action: Float[Array, "n act"]
    ) -> Float[Array, "n"]:
        """Returns r̂ for n states and actions."""
        points = mm.Dirac(jnp.concatenate([observation, action], axis=1))
        return jax.vmap(lambda point: self.expectation(states, point))(points)

    def error(self, states: Statistics, episode: Transition) -> Float[Array, ""]:
        """Returns the root mean square error over an episode, actions in [−1, 1]."""
        predicted = self.at(states, episode.observation, episode.action)
        return jnp.sqrt(jnp.mean(jnp.square(predicted - episode.reward)))


class RewardState(NamedTuple):
    """The learned reward and its optimiser."""

    model: RewardModel
    optimiser: optax.OptState


def make_reward(key: Key[Array, ""], config: Config, observation_size: int, action_size: int) -> RewardState:
    """Returns an untrained reward model, which predicts the average reward everywhere."""
    size = observation_size + action_size
    function = make_value(_settings(config, size), size, key)
    zero = jnp.zeros(())
    return RewardState(RewardModel(function, Statistics(zero, zero, zero)), ADAM.init(function))


def fit_reward(
    reward: RewardState, config: Config, states: Statistics, batch: Transition, updates: Any
) -> tuple[RewardState, Float[Array, ""]]:
    """Takes one step on the squared error; returns the model and its loss before the step.

    The loss is in variances of the rewards: 1 for a model that predicts their average. Actions are
    in [−1, 1].
    """
    settings = _settings(config, batch.observation.shape[1] + batch.action.shape[1])
    before = reward.model.statistics
    count = before.batches + 1
    mean = before.mean + (batch.reward.mean() - before.mean) / count
    square = before.square + (jnp.square(batch.reward).mean() - before.square) / count
    model = eqx.tree_at(lambda m: m.statistics, reward.model, Statistics(count, mean, square))

    def loss(function: mm.Function) -> Float[Array, ""]:
        candidate = eqx.tree_at(lambda m: m.function, model, freeze(function, settings))
        error = candidate.at(states, batch.observation, batch.action) - batch.reward
        return jnp.mean(jnp.square(error / model.statistics.deviation))

    error, gradient = jax.value_and_grad(loss)(model.function)
    rates = jax.tree.map(lambda rate: decayed(config, rate, updates), value_rates(model.function, settings))
    function, optimiser = descend(model.function, gradient, reward.optimiser, rates)
    return RewardState(eqx.tree_at(lambda m: m.function, model, function), optimiser), error


def _settings(config: Config, size: int) -> ValueConfig:
    """Returns the settings of the learned reward as those of a V over `size` standard numbers.

    The lengthscale is √(d/2), as behind an encoder [choice].
    """
    plan = config.plan
    ranges: Any = {"low": (-REACH,) * size, "high": (REACH,) * size, "lengthscales": ((size / 2) ** 0.5,) * size}
    rates: Any = {"lr": plan.lr, "basis_lr": plan.basis_lr, "constant_lr": 0.0}
    return dataclasses.replace(config.value, kind=plan.reward, bases=plan.bases, encoder=0, **ranges, **rates)
