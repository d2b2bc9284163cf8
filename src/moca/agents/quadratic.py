"""The paper's agents: MoCA, its ablations, BNAF and NAF.

They differ only in their prediction of s′, except NAF: it is BNAF with another head (`naf.py`).

The methods follow Algorithm 1: `init` is line 1, `act` line 3, and `update` lines 7 to 13. Lines 2,
4 and 5 are the loop, `moca.loop`.
"""

from functools import partial
from typing import Any, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, Key, UInt8

from moca import config
from moca import moments as mm
from moca.agents.agent import Agent, Info
from moca.backup import bellman_target, cautious, one_each, twin_backups
from moca.belief import Belief, features
from moca.critic import (
    QuadraticCritic,
    advantages,
    descend_by_role,
    first,
    freeze,
    keep_alive,
    learning_rates,
    twin,
    twin_axes,
)
from moca.diagnostics import REPEATS, Stakes, describe_bias, describe_sampling, stakes
from moca.dynamics import ModelState, fit, make_model, resample_counts
from moca.exploration import Explore
from moca.forecast import Forecast, forecast_policy
from moca.horizons import all_horizons
from moca.imagination import curiosity_left, disagreement, imagine, joined
from moca.nets import ADAM, copies, decayed, stacked
from moca.outcomes import outcome_share, variance_by_noise
from moca.planning import World, look_ahead
from moca.replay import Transition, sensed, with_width
from moca.reward import RewardState, fit_reward, make_reward
from moca.values import make_value
from moca.width import at_width, input_size, value_settings


class QuadraticState(NamedTuple):
    """Everything that is learned."""

    critics: QuadraticCritic  # two, stacked; they share the bases of V
    targets: mm.Function  # copies of their V, from the last synchronisation
    model: ModelState | None  # None for BNAF without a filter, which does not use a model
    critic_optimiser: optax.OptState
    updates: Int[Array, ""]
    reward: RewardState | None = None  # learned if several steps are planned
    guide: QuadraticCritic | None = None  # copy of a critic: targets of several steps follow its policy


class QuadraticDraws(NamedTuple):
    """The random numbers of one update."""

    multiplicity: UInt8[Array, "k n"]  # how often each transition is in each member's resample
    prediction: Key[Array, ""]


class QuadraticAgent(Agent):
    """An agent with a quadratic critic. `config.agent` selects the prediction of s′."""

    @property
    def rule(self) -> Any:
        """The rule by which s′ is predicted; None if it is taken as observed (BNAF, NAF)."""
        load = config.AGENTS[self.config.agent].prediction
        return load and load()

    @property
    def predicts(self) -> bool:
        """True if s′ is predicted (MoCA agents)."""
        return self.rule is not None

    @property
    def plans(self) -> bool:
        """True if steps are planned or imagined, which needs a learned reward."""
        return self.config.plan.horizon > 1 or self.config.plan.imagined > 0

    def init(self, key: Key[Array, ""]) -> QuadraticState:
        """Returns the initial state [Alg. 1 l. 1].

        The twins share the bases of V [choice], not its weights.
        """
        basis_key, critic_key, model_key, _ = jax.random.split(key, 4)
        config, observed, acted = self.config, self.env.observation_size, self.env.action_size
        inputs = input_size(config, observed)
        value = make_value(value_settings(config), inputs, basis_key)
        critics = stacked(critic_key, 2, lambda k: QuadraticCritic(k, config.critic, value, inputs, acted))
        critics = eqx.tree_at(lambda c: c.value, critics, twin(value))
        model = None
        if self.predicts or config.belief.filter:
            model = make_model(model_key, config.dynamics, config.belief, observed, acted, self.env.history)
        # A key of its own, so that an agent that does not plan draws what it always has.
        reward = make_reward(jax.random.fold_in(key, 4), config, self.env) if self.plans else None
        guide = first(critics) if config.plan.horizon > 1 else None
        optimiser, updates = ADAM.init(critics), jnp.zeros((), jnp.int32)
        return QuadraticState(critics, critics.value, model, optimiser, updates, reward, guide)

    def act(
        self, state: QuadraticState, observation: Float[Array, "obs"], explore: Explore | None = None
    ) -> Float[Array, "act"]:
        """Returns the greedy or, with `explore`, an exploratory action [Alg. 1 l. 3]."""
        action = first(state.critics).slice(observation).greedy
        if explore is not None:
            action = perturbed(self.config.exploration, action, explore, explore.step < self.config.train.warmup)
        return self.env.to_bounds(action)

    def decide(
        self, state: QuadraticState, belief: Belief, explore: Explore | None = None
    ) -> tuple[Belief, Float[Array, "act"]]:
        """Returns what `Agent.decide` does; repeated so that a step is read in fewer files."""
        return belief, self.act(state, features(self.config, belief), explore)

    def forecast(self, state: QuadraticState, belief: Belief, steps: int) -> Forecast | None:
        """Returns the forecast under the greedy policy; None without a model, or with a width."""
        unknown = state.model is None or self.config.belief.width
        return None if unknown else forecast_policy(self.world(state), belief, steps)

    def value(self, state: QuadraticState, observation: Float[Array, "obs"]) -> Float[Array, ""]:
        return first(state.critics).value(observation)

    def draw_update(self, key: Key[Array, ""]) -> QuadraticDraws:
        fit_key, prediction_key = jax.random.split(key)
        return QuadraticDraws(
            resample_counts(fit_key, self.config.dynamics.members, self.config.train.batch), prediction_key
        )

    def update(self, state: QuadraticState, batch: Transition, draws: QuadraticDraws) -> tuple[QuadraticState, Info]:
        """Updates the ensemble [Alg. 1 l. 7–9], then critics and targets [Alg. 1 l. 10–13]."""
        state, info = self.fit_model(state, batch, draws)
        state, more = self.fit_values(state, batch, draws)
        return state, info | more

    def fit_model(self, state: QuadraticState, batch: Transition, draws: QuadraticDraws) -> tuple[QuadraticState, Info]:
        """Takes one gradient step of the ensemble [Alg. 1 l. 8]."""
        if state.model is None:
            return state, {}
        batch = sensed(batch)
        batch = batch._replace(action=self.env.from_bounds(batch.action))
        noise = self.filter.noise_variance(state.model, batch.next_observation)
        lr = decayed(self.config, self.config.dynamics.lr, state.updates)
        model, nll = fit(state.model, lr, batch, draws.multiplicity, noise)
        return state._replace(model=model), {"dynamics_nll": nll}

    def fit_values(
        self, state: QuadraticState, batch: Transition, draws: QuadraticDraws
    ) -> tuple[QuadraticState, Info]:
        """Updates both critics: prediction, target, step, copy [Alg. 1 l. 10–13].

        If planning is on, the batch is joined by imagined transitions, and curiosity is a reward.
        """
        batch, count = batch._replace(action=self.env.from_bounds(batch.action)), len(batch.reward)
        predictions, found = self.predict(state, batch, draws.prediction), {}
        if state.reward is not None:
            states = cast(ModelState, state.model).ensemble.statistics
            reward, found["reward_loss"] = fit_reward(state.reward, self.config, states, batch, state.updates)
            state = state._replace(reward=reward)
        plan, key = self.config.plan, draws.prediction
        if plan.imagined:
            way = (partial(self.predict, state), plan.imagined, plan.noise, jax.random.fold_in(key, 2), plan.actions)
            more = imagine(self.world(state), batch, *way)
            batch, predictions = joined((batch, predictions), more)
        if not config.is_off(plan.curiosity):
            unknown = disagreement(cast(ModelState, state.model).ensemble, batch.observation, batch.action)
            batch = batch._replace(reward=batch.reward + curiosity_left(self.config, state.updates) * unknown)
            found["disagreement"] = unknown.mean()
        target, ahead = self._targets(state, batch, predictions, key)
        if self.config.belief.outcomes:
            target, found["outcome_share"] = self._with_outcomes(state, batch, target, count)
        state, info = self._fit_critics(state, with_width(batch), target)
        return self._sync_targets(state), info | found | ahead

    def predict(self, state: QuadraticState, batch: Transition, key: Key[Array, ""]) -> mm.Distribution:
        """Returns the distribution of s′ for each transition [Alg. 1 l. 10].

        Actions are in [−1, 1].
        """
        if not self.predicts:
            return mm.Dirac(with_width(batch).next_observation)
        samples, keys = self.config.dynamics.samples, jax.random.split(key, len(batch.reward))
        return jax.vmap(lambda mixture, k: self.rule(mixture, k, samples))(self._mixtures(state, batch), keys)

    def _mixtures(self, state: QuadraticState, batch: Transition) -> mm.GaussianMixture:
        """Returns the ensemble's predictions of V's input: of the state, or of the belief."""
        model = cast(ModelState, state.model)
        mixtures = model.ensemble.predict_batch(batch.observation, batch.action)
        if self.filter.correlated and getattr(self.rule, "from_moments", False):
            mixtures = one_each(mixtures)
        gaps = {} if batch.missing is None else {"missing": batch.missing}
        means = self.filter.anticipate(model, mixtures, batch.spread, **gaps)
        return means if batch.next_width is None else at_width(means, batch.next_width)

    def _targets(
        self,
        state: QuadraticState,
        batch: Transition,
        predictions: mm.Distribution,
        key: Key[Array, ""],
    ) -> tuple[Float[Array, "n"], Info]:
        """Returns the targets of a batch, at the horizon or mixed over all horizons up to it.

        The policy followed on the way is that of the last synchronisation, as V is [choice]: with
        the newest one, every update would move its own target. The rewards after a termination are
        zero; further terminations are not predicted [choice].
        """
        if (plan := self.config.plan).horizon == 1:
            return self.target(batch, predictions, state.targets), {}
        rule, gamma = self.rule, self.config.train.gamma
        world = self.world(state)._replace(critic=cast(QuadraticCritic, state.guide))
        key = jax.random.fold_in(key, 1)
        if plan.weights == "variance":
            ahead = all_horizons(world, rule, predictions, batch.spread, gamma, plan.horizon, key)
            target, horizon = ahead.mixed(batch, state.targets, self.target)
            return target, {"weighted_horizon": horizon}
        rewards, last = look_ahead(world, rule, predictions, batch.spread, gamma, plan.horizon - 1, key)
        batch = batch._replace(reward=batch.reward + (1 - batch.terminated) * rewards)
        return self.target(batch, last, state.targets), {}

    def _with_outcomes(
        self, state: QuadraticState, batch: Transition, target: Float[Array, "n"], count: int
    ) -> tuple[Float[Array, "n"], Float[Array, ""]]:
        """Returns the targets, the first `count` moved towards their outcomes, and the share λ."""
        stored = jax.tree.map(lambda leaf: leaf[:count], batch)
        outcomes = self.target(stored, mm.Dirac(stored.next_observation), state.targets)
        mean, aleatoric, epistemic = mm.decompose(self._mixtures(state, stored), full=False)
        noise = cast(Array, self.filter.noise_variance(state.model, mean))
        variance = variance_by_noise(first(state.targets), stored.next_observation, aleatoric + epistemic, noise)
        variance *= jnp.square(self.config.train.gamma * (1 - stored.terminated))
        share = outcome_share(outcomes - target[:count], variance)
        return target.at[:count].add(share * (outcomes - target[:count])), share

    def target(
        self, batch: Transition, predictions: mm.Distribution, values: mm.Function, discount: Any = None
    ) -> Float[Array, "n"]:
        """Returns the target of Q for each transition of a batch [Alg. 1 l. 11].

        `predictions` are of the state at the horizon, and `batch.reward` is what comes before it.
        The `discount` there is γᴴ unless another is given.
        """
        bounds, gamma = (self.config.value.least, self.config.value.most), self.config.train.gamma
        if discount is not None:
            gamma = discount
        elif (horizon := self.config.plan.horizon) > 1:
            gamma = gamma**horizon
        return bellman_target(batch.reward, batch.terminated, gamma, predictions, values, bounds, self.backup)

    def backup(self, prediction: mm.Distribution, value: mm.Function) -> Float[Array, ""]:
        """Returns E[V(s′)] for one prediction and one value function [Eq. 5].

        With a caution β it is E[V(s′)] − β √Var[V(s′)]. Override it to change the target.
        """
        if config.is_off(caution := self.config.plan.caution):
            return mm.expectation(prediction, value)
        return cautious(prediction, value, caution)

    def _fit_critics(
        self, state: QuadraticState, batch: Transition, target: Float[Array, "n"]
    ) -> tuple[QuadraticState, Info]:
        """Takes one gradient step of both critics towards the target [Alg. 1 l. 12].

        The loss includes the keep-alive penalty.
        """
        settings = self.config.critic

        def one(critic: QuadraticCritic, observation: Float[Array, "n obs"]) -> tuple[Float[Array, ""], Info]:
            slices = jax.vmap(critic.slice)(observation)
            q = jax.vmap(critic.value)(batch.observation) + advantages(slices, batch.action, batch.action_variance)
            error = jnp.mean((q - target) ** 2)
            flat = jnp.mean(jax.vmap(keep_alive, (0, None))(slices.factor, settings.keepalive_min))
            info = {
                "critic_loss": error,
                "q_mean": q.mean(),
                "curvature": jnp.mean(jnp.sum(slices.factor**2, axis=(1, 2))),
                "saturation": jnp.mean(jnp.abs(slices.greedy) > 0.99),  # a tanh never reaches 1
            }
            return error + settings.keepalive * flat, info

        def loss(critics: QuadraticCritic) -> tuple[Float[Array, ""], Info]:
            critics = eqx.tree_at(lambda c: c.value, critics, freeze(critics.value, self.config.value))
            each, info = jax.vmap(one, (twin_axes(critics), 0))(critics, copies(batch.observation, 2))
            return each.sum(), info

        gradient, info = jax.grad(loss, has_aux=True)(state.critics)
        rates = learning_rates(state.critics, self.config, state.updates)
        critics, optimiser = descend_by_role(state.critics, gradient, state.critic_optimiser, rates)
        state = state._replace(critics=critics, critic_optimiser=optimiser)
        return state, jax.tree.map(lambda x: x.mean(), info) | {"target_mean": target.mean()}

    def _sync_targets(self, state: QuadraticState) -> QuadraticState:
        """Copies the values, and the policy to follow, every N_target updates [Alg. 1 l. 13]."""
        updates = state.updates + 1
        due = updates % self.config.critic.target_period == 0
        newest = (state.critics.value, None if state.guide is None else first(state.critics))
        copied = jax.tree.map(lambda new, old: jnp.where(due, new, old), newest, (state.targets, state.guide))
        return state._replace(targets=copied[0], guide=copied[1], updates=updates)

    def world(self, state: QuadraticState) -> World:
        """Returns what was learned of the world, and the policy of the first critic, to plan in."""
        reward = None if state.reward is None else state.reward.model
        return World(cast(ModelState, state.model), reward, self.filter, first(state.critics))

    def diagnose(self, before: QuadraticState, after: QuadraticState, episode: Transition, key: Key[Array, ""]) -> Info:
        info = super().diagnose(before, after, episode, key)
        if self.predicts:
            episode = episode._replace(action=self.env.from_bounds(episode.action))
            info |= describe_bias(self.stakes(after, episode))
        if before.reward is not None:
            states = cast(ModelState, before.model).ensemble.statistics
            info["reward_error"] = before.reward.model.error(states, episode)
        if self.config.agent == "moca-mc":
            values, gamma = after.targets, self.config.train.gamma
            # Sequentially: all draws at once would need more memory than the rest of the program.
            draw = lambda k: twin_backups(self.predict(after, episode, k), values)  # noqa: E731
            exact = twin_backups(jax.vmap(mm.moment_match)(self._mixtures(after, episode)), values)
            info |= describe_sampling(jax.lax.map(draw, jax.random.split(key, REPEATS)), exact, gamma)
        return info

    def stakes(self, state: QuadraticState, episode: Transition) -> Stakes:
        """Returns E[V(s′)] and V(E[s′]) at each transition, and their changes over actions."""
        least, most = (
            self._mixtures(state, episode._replace(action=jnp.full_like(episode.action, end))) for end in (-1, 1)
        )
        return stakes(self._mixtures(state, episode), (least, most), first(state.targets))


def perturbed(
    settings: config.ExplorationConfig,
    greedy: Float[Array, "act"],
    explore: Explore,
    always: Bool[Array, ""] | bool = False,
) -> Float[Array, "act"]:
    """Returns an action in [−1, 1]: a random one, or one near the greedy action.

    The action is random with some probability, or if `always`. Probability and standard deviation
    change linearly to their end values over the first `anneal` of training.
    """
    done = jnp.clip(explore.fraction / settings.anneal, 0, 1)
    probability = settings.probability + (settings.probability_end - settings.probability) * done
    sigma = settings.sigma + (settings.sigma_end - settings.sigma) * done
    around = jnp.clip(greedy + sigma * explore.draws.normal, -1, 1)
    return jnp.where(always | (explore.draws.choice < probability), explore.draws.random, around)
