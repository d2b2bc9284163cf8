"""What the training loop asks of an agent."""

from abc import abstractmethod
from typing import Any, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, Key

from moca.belief import Belief, correct, propagate, surprise
from moca.config import Config
from moca.diagnostics import describe_model
from moca.dynamics import Model, fit
from moca.envs.environment import Spaces
from moca.envs.noise import make_noise
from moca.exploration import Dice, roll
from moca.replay import Transition

Info = dict[str, Float[Array, ""]]


class Progress(NamedTuple):
    """Where the run stands, in environment steps."""

    step: Int[Array, ""]
    fraction: Float[Array, ""]  # of all training steps


class Agent(eqx.Module):
    """Pure functions of a state that holds all that learns. Settings that are floats may be traced.

    What the functions below call an observation is the mean of a belief where the config asks for a filter. The
    filter uses the `model` of the agent's state, which is None only where neither it nor the agent needs one.
    """

    config: Config
    env: Spaces

    @abstractmethod
    def init(self, key: Key[Array, ""]) -> Any:
        """Parameters, targets and optimisers before the first step."""

    def draw_exploration(self, key: Key[Array, ""], decisions: int) -> Dice:
        """The random numbers that `explore` needs in an episode, with a leading axis over decisions."""
        return roll(key, self.config.exploration, decisions, self.env.action_size)

    @abstractmethod
    def explore(
        self, state: Any, observation: Float[Array, "obs"], draw: Dice, progress: Progress
    ) -> Float[Array, "act"]:
        """The action to learn from, within the bounds."""

    @abstractmethod
    def greedy(self, state: Any, observation: Float[Array, "obs"]) -> Float[Array, "act"]:
        """The action to be judged by, within the bounds."""

    @abstractmethod
    def value(self, state: Any, observation: Float[Array, "obs"]) -> Float[Array, ""]:
        """What the agent expects from here on under its own policy."""

    def observe(self, state: Any, measured: Float[Array, "obs"]) -> Belief:
        """The belief after one observation alone, the first of an episode."""
        noise = self.noise_variance(state.model, measured)
        return Belief(measured, None if noise is None else jnp.diag(noise))

    def track(
        self,
        state: Any,
        belief: Belief,
        action: Float[Array, "act"],
        measured: Float[Array, "obs"],
        missing: Bool[Array, "obs"] | None = None,
    ) -> tuple[Belief, Float[Array, "obs"] | None]:
        """The belief after an action and the observation that followed; and `Transition.spread`.

        Until the model has seen its first batch, each observation is believed alone. Where a dimension is `missing`,
        which it never is in training, a filter believes what it predicted: the noise there is infinite.
        """
        alone = self.observe(state, measured)
        if belief.covariance is None:
            return alone, None
        prior, spread = propagate(state.model.ensemble, belief, self.from_bounds(action))
        noise = cast(Array, self.noise_variance(state.model, prior.mean))
        if missing is not None:
            noise, measured = jnp.where(missing, jnp.inf, noise), jnp.where(missing, prior.mean, measured)
        posterior, _ = correct(prior, measured, noise)
        unfiltered = (alone, jnp.diagonal(belief.covariance))
        blind = state.model.ensemble.statistics.batches == 0
        return jax.tree.map(lambda a, b: jnp.where(blind, a, b), unfiltered, (posterior, spread))

    def noise_variance(self, model: Model | None, observation: Float[Array, "*n obs"]) -> Float[Array, "*n obs"] | None:
        """Of each observed dimension at these states, as the filter believes it; None without a filter."""
        if not self.config.belief.filter or model is None:
            return None
        if self.config.belief.noise == "learned":
            return jnp.broadcast_to(jnp.exp(2 * model.log_sigma), observation.shape)
        deviation = make_noise(self.config.noise, self.env.observation_size).deviation(observation)
        return jnp.broadcast_to(jnp.square(deviation)[..., None], observation.shape)

    def learn_noise(self, state: Any, episode: Transition) -> Any:
        """The state after one step on the likelihood of an episode's observations under the filter [choice].

        Does nothing where the noise level is known, or before the model has learned.
        """
        if not self.config.belief.filter or self.config.belief.noise == "known":
            return state
        model: Model = state.model
        episode = episode._replace(action=self.from_bounds(episode.action))
        gradient = jax.grad(lambda log_sigma: surprise(model.ensemble, episode, jnp.exp(2 * log_sigma)))
        slope = gradient(model.log_sigma)
        direction, optimiser = optax.scale_by_adam().update(slope, model.sigma_optimiser)
        learned = (model.log_sigma - self.config.belief.sigma_lr * direction, optimiser)
        ready = (model.ensemble.statistics.batches > 0) & jnp.isfinite(slope).all()
        held = (model.log_sigma, model.sigma_optimiser)
        log_sigma, optimiser = jax.tree.map(lambda new, old: jnp.where(ready, new, old), learned, held)
        return state._replace(model=model._replace(log_sigma=log_sigma, sigma_optimiser=optimiser))

    def fit_models(self, state: Any, batch: Transition, draw: Any) -> tuple[Any, Info]:
        """The first half of `update`: one step of the model, where there is one."""
        if state.model is None:
            return state, {}
        batch = batch._replace(action=self.from_bounds(batch.action))
        noise = self.noise_variance(state.model, batch.next_observation)
        lr = self.rate(self.config.dynamics.lr, state.updates)
        model, nll = fit(state.model, lr, batch, draw.multiplicity, noise)
        return state._replace(model=model), {"dynamics_nll": nll}

    def diagnose(self, before: Any, after: Any, episode: Transition, key: Key[Array, ""]) -> Info:
        """What a look at the newest episode tells, with the agent as it was before that episode and as it is after."""
        if after.model is None:
            return {}
        episode = episode._replace(action=self.from_bounds(episode.action))
        unseen, seen = (
            describe_model(model.ensemble, episode, self.noise_variance(model, episode.next_observation))
            for model in (before.model, after.model)
        )
        info = unseen | {name: seen[name] for name in ("aleatoric_std", "epistemic_std")}
        info["coverage_1sigma_seen"] = seen["coverage_1sigma"]
        if self.config.belief.filter and self.config.belief.noise == "learned":
            info["noise_level"] = jnp.exp(after.model.log_sigma).mean()
        return info

    def to_bounds(self, action: Float[Array, "*n act"]) -> Float[Array, "*n act"]:
        """An action in [−1, 1] in the environment's units."""
        low, high = jnp.array(self.env.action_low), jnp.array(self.env.action_high)
        return low + (action + 1) / 2 * (high - low)

    def from_bounds(self, action: Float[Array, "*n act"]) -> Float[Array, "*n act"]:
        """An action in the environment's units in [−1, 1]."""
        low, high = jnp.array(self.env.action_low), jnp.array(self.env.action_high)
        return 2 * (action - low) / (high - low) - 1

    def share_done(self, updates: Int[Array, ""]) -> Float[Array, ""]:
        """The share of all its updates that an agent has made."""
        train = self.config.train
        total = max(1, (train.steps - train.warmup) // self.config.env.action_repeat * train.updates)
        return jnp.minimum(updates / total, 1)

    def rate(self, lr: float, updates: Int[Array, ""]) -> Float[Array, ""]:
        """A learning rate as it stands after so many updates."""
        return lr * (1 + (self.config.train.decay - 1) * self.share_done(updates))

    @abstractmethod
    def draw_update(self, key: Key[Array, ""]) -> Any:
        """The random numbers that one call of `update` needs."""

    def update(self, state: Any, batch: Transition, draw: Any) -> tuple[Any, Info]:
        """One gradient step on a batch, the model's first [Alg. 1 l. 8]; what it measured on the way."""
        state, info = self.fit_models(state, batch, draw)
        state, more = self.fit_values(state, batch, draw)
        return state, info | more

    @abstractmethod
    def fit_values(self, state: Any, batch: Transition, draw: Any) -> tuple[Any, Info]:
        """The second half of `update`: one step of all that is no model."""
