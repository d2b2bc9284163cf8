"""Soft actor-critic: the model-free baseline of the paper.

Haarnoja et al. 2018 with twin critics and a learned temperature. The paper does not print its SAC
settings; ours are those that most implementations share [choice]. Inside the agent, actions are in
[−1, 1]; the environment's bounds are applied to its outputs.
"""

from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key, UInt8

from moca.agents.agent import Agent, Info
from moca.agents.quadratic import QuadraticAgent
from moca.dynamics import ModelState, make_model, resample_counts
from moca.exploration import Explore
from moca.nets import ADAM, MLP, decayed, descend, stacked
from moca.replay import Transition, with_width
from moca.width import input_size

LOG_STD_RANGE = (-5.0, 2.0)


class SACState(NamedTuple):
    """Everything that is learned."""

    actor: MLP
    critics: MLP  # two, stacked
    targets: MLP
    log_alpha: Float[Array, ""]
    model: ModelState | None  # used by a filter
    actor_optimiser: optax.OptState
    critic_optimiser: optax.OptState
    alpha_optimiser: optax.OptState
    updates: Int[Array, ""]


class SACDraws(NamedTuple):
    """The random numbers of one update."""

    normal: Float[Array, "two n act"]  # for the actions of the target and of the actor's loss
    multiplicity: UInt8[Array, "k n"] | None  # as in `QuadraticDraws`, if there is a model


class SACAgent(Agent):
    """SAC: π(a|s) is a tanh-squashed Gaussian; Q(s, a) is the smaller output of two networks."""

    sized_by = "sac.width"

    def init(self, key: Key[Array, ""]) -> SACState:
        actor_key, critic_key, model_key = jax.random.split(key, 3)
        sac, observed, acted = self.config.sac, self.env.observation_size, self.env.action_size
        hidden, inputs = (sac.width,) * sac.depth, input_size(self.config, observed)
        actor = MLP(actor_key, (inputs, *hidden, 2 * acted))
        critics = stacked(critic_key, 2, lambda k: MLP(k, (inputs + acted, *hidden, 1)))
        log_alpha = jnp.log(jnp.asarray(sac.alpha, jnp.float32))
        model = None
        if self.config.belief.filter:
            model = make_model(model_key, self.config.dynamics, self.config.belief, observed, acted, self.env.history)
        return SACState(
            actor, critics, critics, log_alpha, model,
            ADAM.init(actor), ADAM.init(critics), ADAM.init(log_alpha), jnp.zeros((), jnp.int32),
        )  # fmt: skip

    def act(
        self, state: SACState, observation: Float[Array, "obs"], explore: Explore | None = None
    ) -> Float[Array, "act"]:
        if explore is None:
            mean, _ = _gaussian(state.actor, observation)
            return self.env.to_bounds(jnp.tanh(mean))
        sampled, _ = _squash(state.actor, observation, explore.draws.normal)
        random = (explore.step < self.config.train.warmup) | (explore.draws.choice < self.config.sac.probability)
        return self.env.to_bounds(jnp.where(random, explore.draws.random, sampled))

    def value(self, state: SACState, observation: Float[Array, "obs"]) -> Float[Array, ""]:
        mean, _ = _gaussian(state.actor, observation)
        return _q(state.critics, observation[None], jnp.tanh(mean)[None]).min()

    def draw_update(self, key: Key[Array, ""]) -> SACDraws:
        normal_key, fit_key = jax.random.split(key)
        batch, filters = self.config.train.batch, self.config.belief.filter
        normal = jax.random.normal(normal_key, (2, batch, self.env.action_size))
        return SACDraws(normal, resample_counts(fit_key, self.config.dynamics.members, batch) if filters else None)

    def update(self, state: SACState, batch: Transition, draws: SACDraws) -> tuple[SACState, Info]:
        state, info = self.fit_model(state, batch, draws)
        state, more = self.fit_values(state, batch, draws)
        return state, info | more

    fit_model = cast(Any, QuadraticAgent.fit_model)  # of the filter, if there is one

    def fit_values(self, state: SACState, batch: Transition, draws: SACDraws) -> tuple[SACState, Info]:
        """Takes one gradient step of critics, actor and temperature, then updates the targets."""
        batch = with_width(batch._replace(action=self.env.from_bounds(batch.action)))
        state, critic_info = self._update_critics(state, batch, draws.normal[0])
        state, actor_info = self._update_actor(state, batch, draws.normal[1])
        tau = self.config.sac.tau
        targets = jax.tree.map(lambda old, new: old + tau * (new - old), state.targets, state.critics)
        return state._replace(targets=targets, updates=state.updates + 1), critic_info | actor_info

    def _update_critics(
        self, state: SACState, batch: Transition, noise: Float[Array, "n act"]
    ) -> tuple[SACState, Info]:
        """Moves both critics to r + γ (1 − d) (min Q⁻(s′, a′) − α log π(a′|s′)), a′ ~ π."""
        action, log_prob = jax.vmap(_squash, (None, 0, 0))(state.actor, batch.next_observation, noise)
        soft = _q(state.targets, batch.next_observation, action).min(axis=0) - jnp.exp(state.log_alpha) * log_prob
        target = batch.reward + self.config.train.gamma * (1 - batch.terminated) * soft

        def loss(critics: MLP) -> tuple[Float[Array, ""], Float[Array, "two n"]]:
            q = _q(critics, batch.observation, batch.action)
            return jnp.mean((q - target) ** 2), q

        (value, q), gradient = jax.value_and_grad(loss, has_aux=True)(state.critics)
        rate = decayed(self.config, self.config.sac.critic_lr, state.updates)
        critics, optimiser = descend(state.critics, gradient, state.critic_optimiser, rate)
        state = state._replace(critics=critics, critic_optimiser=optimiser)
        return state, {"critic_loss": value, "q_mean": q.mean()}

    def _update_actor(self, state: SACState, batch: Transition, noise: Float[Array, "n act"]) -> tuple[SACState, Info]:
        """Ascends min Q − α log π with the actor, then adapts the temperature."""
        sac = self.config.sac
        alpha = jnp.exp(state.log_alpha)

        def loss(actor: MLP) -> tuple[Float[Array, ""], Float[Array, ""]]:
            action, log_prob = jax.vmap(_squash, (None, 0, 0))(actor, batch.observation, noise)
            q = _q(state.critics, batch.observation, action).min(axis=0)
            return jnp.mean(alpha * log_prob - q), -log_prob.mean()

        (value, entropy), gradient = jax.value_and_grad(loss, has_aux=True)(state.actor)
        rate = decayed(self.config, sac.actor_lr, state.updates)
        actor, optimiser = descend(state.actor, gradient, state.actor_optimiser, rate)
        # d/d(log α) of log α · (entropy − target)
        surplus = entropy - sac.entropy_per_action * self.env.action_size
        rate = decayed(self.config, sac.alpha_lr, state.updates)
        log_alpha, alpha_optimiser = descend(state.log_alpha, surplus, state.alpha_optimiser, rate)
        state = state._replace(actor=actor, actor_optimiser=optimiser)
        state = state._replace(log_alpha=log_alpha, alpha_optimiser=alpha_optimiser)
        return state, {"actor_loss": value, "entropy": entropy, "alpha": alpha}


def _gaussian(actor: MLP, observation: Float[Array, "obs"]) -> tuple[Float[Array, "act"], Float[Array, "act"]]:
    """Returns the mean and the log standard deviation before squashing."""
    mean, raw = jnp.split(actor(observation), 2)
    low, high = LOG_STD_RANGE
    return mean, low + (high - low) * (jnp.tanh(raw) + 1) / 2


def _squash(
    actor: MLP, observation: Float[Array, "obs"], noise: Float[Array, "act"]
) -> tuple[Float[Array, "act"], Float[Array, ""]]:
    """Maps standard normal `noise` to an action in [−1, 1].

    Returns the action and its log-density.
    """
    mean, log_std = _gaussian(actor, observation)
    before = mean + jnp.exp(log_std) * noise
    log_density = -(noise**2 + jnp.log(2 * jnp.pi)) / 2 - log_std
    # log(1 − tanh²u) = 2 (log 2 − u − softplus(−2u)), which does not round to log 0.
    log_stretch = 2 * (jnp.log(2.0) - before - jax.nn.softplus(-2 * before))
    return jnp.tanh(before), jnp.sum(log_density - log_stretch)


def _q(critics: MLP, observation: Float[Array, "n obs"], action: Float[Array, "n act"]) -> Float[Array, "two n"]:
    """Returns the values of both critics on a batch."""
    inputs = jnp.concatenate([observation, action], axis=-1)
    return jax.vmap(lambda critic: jax.vmap(critic)(inputs)[:, 0])(critics)
