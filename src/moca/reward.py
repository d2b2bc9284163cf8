"""Rewards r(s, a) whose expectation under a Gaussian has a closed form, learned or known [choice].

A learned one is a function of one of the classes of V, on the state and the action side by side.
States are standardised by the ensemble's running statistics, and rewards by running statistics of
their own. An environment may offer its reward instead, as a `KnownReward`.
"""

import dataclasses
from abc import abstractmethod
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key

from moca import moments as mm
from moca.config import Config, ValueConfig
from moca.critic import descend_by_role, freeze, value_rates
from moca.dynamics import Statistics
from moca.envs.environment import Spaces
from moca.nets import ADAM, decayed, matmul
from moca.replay import Transition
from moca.values import make_value

REACH = 2.0  # bases are drawn within so many deviations of the mean [choice]


class Reward(eqx.Module):
    """A function of states and of actions in [−1, 1]."""

    @abstractmethod
    def expectation(self, states: Statistics, belief: mm.Dirac | mm.DiagonalGaussian | mm.Gaussian) -> Float[Array, ""]:
        """Returns E[r(s, a)] for one belief about (s, a), with the ensemble's statistics."""

    def at(
        self, states: Statistics, observation: Float[Array, "n obs"], action: Float[Array, "n act"]
    ) -> Float[Array, "n"]:
        """Returns r for n states and actions."""
        points = mm.Dirac(jnp.concatenate([observation, action], axis=1))
        return jax.vmap(lambda point: self.expectation(states, point))(points)

    def error(self, states: Statistics, episode: Transition) -> Float[Array, ""]:
        """Returns the root mean square error over an episode, actions in [−1, 1]."""
        predicted = self.at(states, episode.observation, episode.action)
        return jnp.sqrt(jnp.mean(jnp.square(predicted - episode.reward)))


class KnownReward(Reward):
    """r(s, a) = f(M (s, a) + b), which an environment offers as its `reward_function`.

    A Gaussian stays a Gaussian behind M, so that E[r] is exact.

    Args:
        function: f, of any class with a closed form.
        matrix: M, one column for each dimension of the observation, then of the action.
        shift: b.
    """

    function: mm.Function
    matrix: Float[Array, "d obs_act"]
    shift: Float[Array, "d"]

    def expectation(self, states: Statistics, belief: mm.Dirac | mm.DiagonalGaussian | mm.Gaussian) -> Float[Array, ""]:
        mean = matmul(self.matrix, belief.mean) + self.shift
        if isinstance(belief, mm.Dirac):
            return mm.expectation(mm.Dirac(mean), self.function)
        covariance = matmul(matmul(self.matrix, belief.covariance), self.matrix.T)
        return mm.expectation(mm.Gaussian(mean, (covariance + covariance.T) / 2), self.function)


class RewardModel(Reward):
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


class RewardState(NamedTuple):
    """The reward and its optimiser, which is None if the reward is known."""

    model: Reward
    optimiser: optax.OptState | None


def make_reward(key: Key[Array, ""], config: Config, env: Spaces) -> RewardState:
    """Returns the environment's own reward or, untrained, a model that predicts the average."""
    if env.reward_function is not None:
        return RewardState(env.reward_function, None)
    size, zero = env.observation_size + env.action_size, jnp.zeros(())
    function = make_value(_settings(config, size), size, key)
    return RewardState(RewardModel(function, Statistics(zero, zero, zero)), ADAM.init(function))


def fit_reward(
    reward: RewardState, config: Config, states: Statistics, batch: Transition, updates: Any
) -> tuple[RewardState, Float[Array, ""]]:
    """Takes one step on the squared error; returns the model and its loss before the step.

    The loss is in variances of the rewards: 1 for a model that predicts their average. Actions are
    in [−1, 1]. A known reward stays as it is; its loss is the mean square error.
    """
    if not isinstance(reward.model, RewardModel):
        return reward, jnp.square(reward.model.error(states, batch))
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
    function, optimiser = descend_by_role(model.function, gradient, reward.optimiser, rates)
    return RewardState(eqx.tree_at(lambda m: m.function, model, function), optimiser), error


def _settings(config: Config, size: int) -> ValueConfig:
    """Returns the settings of the learned reward as those of a V over `size` standard numbers.

    The lengthscale is √(d/2) [choice].
    """
    plan = config.plan
    ranges: Any = {"low": (-REACH,) * size, "high": (REACH,) * size, "lengthscales": ((size / 2) ** 0.5,) * size}
    rates: Any = {"lr": plan.lr, "basis_lr": plan.basis_lr, "constant_lr": 0.0}
    return dataclasses.replace(config.value, kind=plan.reward, bases=plan.bases, **ranges, **rates)
