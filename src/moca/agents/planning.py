"""MoCA that plans when it decides: a sequence of actions, improved on its expected return.

The expected return of a plan is closed form: the belief about the state goes through the ensemble
for each action, the learned reward and V are averaged over it. The agent executes the first action
of the best plan found, and starts the next decision from the rest of it.
"""

from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from moca import moments as mm
from moca.agents.quadratic import QuadraticAgent, QuadraticState, perturbed
from moca.backup import twin_backups
from moca.belief import Belief, predict
from moca.config import Config
from moca.delay import Enclosing
from moca.dynamics import ModelState
from moca.envs.environment import Spaces
from moca.exploration import Explore
from moca.forecast import Forecast
from moca.nets import ADAM
from moca.reward import RewardState

Plan = Float[Array, "length act"]


class Remembering(Enclosing):
    """A filter whose beliefs carry a plan; each step of it drops the action that was executed."""

    env: Spaces
    length: int = eqx.field(static=True)

    def init(self, model: ModelState | None, measured: Float[Array, "obs"]) -> Belief:
        return self.inner.init(model, measured)._replace(plan=jnp.zeros((self.length, self.env.action_size)))

    def step(self, model: Any, belief: Belief, *rest: Any, **gaps: Any) -> tuple[Belief, Float[Array, "obs"] | None]:
        after, spread = self.inner.step(model, belief._replace(plan=None), *rest, **gaps)
        plan = cast(Array, belief.plan)
        return after._replace(plan=jnp.concatenate([plan[1:], plan[-1:]])), spread


class PlanningAgent(QuadraticAgent):
    """MoCA that chooses actions by planning. It learns as MoCA does."""

    def __init__(self, config: Config, env: Spaces) -> None:
        super().__init__(config, env)  # type: ignore[call-arg]  # mypy takes Equinox's for it
        self.filter = Remembering(self.filter, env, config.plan.length)

    @property
    def plans(self) -> bool:
        return True

    @staticmethod
    def numbers_to_decide(config: Config, observed: int) -> dict[str, int]:
        """Returns the numbers of a search: it keeps every step of a plan, for the gradient.

        All episodes of an evaluation search at once.
        """
        plan, dynamics, episodes = config.plan, config.dynamics, max(config.train.eval_episodes, 1)
        each = dynamics.members * dynamics.width * dynamics.depth * (1 + observed) + plan.bases
        return {"plan.length, plan.bases or train.eval_episodes": episodes * plan.length * each}

    def act(
        self, state: QuadraticState, observation: Float[Array, "obs"], explore: Explore | None = None
    ) -> Float[Array, "act"]:
        """Returns the first action of a plan for a state that is known."""
        plan = jnp.zeros((self.config.plan.length, self.env.action_size))
        return self.decide(state, Belief(observation, None, plan=plan), explore)[1]

    def decide(
        self, state: QuadraticState, belief: Belief, explore: Explore | None = None
    ) -> tuple[Belief, Float[Array, "act"]]:
        """Returns the belief with the best plan found, and that plan's first action.

        The search starts from the last plan without its first action, or from the greedy policy's
        actions if they promise more.
        """
        value = lambda plan: self.expected_return(state, belief, plan)  # noqa: E731
        last, policy = cast(Array, belief.plan), self.policy_plan(state, belief)
        start = jnp.where(value(last) > value(policy), last, policy)
        plan = improved(value, start, self.config.plan.iterations, self.config.plan.step)
        action = plan[0]
        if explore is not None:
            action = perturbed(self.config.exploration, action, explore, explore.step < self.config.train.warmup)
        return belief._replace(plan=plan), self.env.to_bounds(action)

    def expected_return(self, state: QuadraticState, belief: Belief, plan: Plan) -> Float[Array, ""]:
        """Returns Σₖ γᵏ E[r(sₖ, aₖ)] + γᴸ minᵢ E[Vᵢ(s_L)] for actions that are fixed in advance.

        Without a correction by later observations, covariances are somewhat too large [choice].
        """
        last, expected = self.follow_plan(state, belief, plan)
        discount = self.config.train.gamma ** jnp.arange(len(plan) + 1)
        end = mm.Gaussian(last.mean[None], cast(Array, last.covariance)[None])
        value = twin_backups(end, state.critics.value, self.backup).min()
        return jnp.sum(discount[:-1] * cast(Array, expected.reward)) + discount[-1] * value

    def forecast(self, state: QuadraticState, belief: Belief, steps: int) -> Forecast:
        """Returns the forecast of the plan that the belief carries, or of its first `steps`."""
        return self.follow_plan(state, belief, cast(Array, belief.plan)[:steps])[1]

    def follow_plan(self, state: QuadraticState, belief: Belief, plan: Plan) -> tuple[Belief, Forecast]:
        """Returns the belief after a plan, and the states and rewards on the way."""
        ensemble, reward = cast(ModelState, state.model).ensemble, cast(RewardState, state.reward).model
        size, acted = self._sizes

        def step(now: Belief, action: Float[Array, "act"]) -> tuple[Belief, Forecast]:
            joint = jnp.zeros((size + acted, size + acted)).at[:size, :size].set(cast(Array, now.covariance))
            both = mm.Gaussian(jnp.concatenate([now.mean, action]), joint)
            expected = reward.expectation(ensemble.statistics, both)
            after, _ = predict(ensemble, now, action)
            return after, Forecast(after.mean, cast(Array, after.covariance), action, expected)

        start = jnp.zeros((size, size)) if belief.covariance is None else belief.covariance
        return jax.lax.scan(step, Belief(belief.mean, start), plan)

    def policy_plan(self, state: QuadraticState, belief: Belief) -> Plan:
        """Returns the greedy policy's actions along the states that it expects."""
        world = self.world(state)

        def step(mean: Float[Array, "obs"], _: None) -> tuple[Float[Array, "obs"], Float[Array, "act"]]:
            action = world.critic.slice(mean).greedy
            return world.model.ensemble.predict(mean, action).mean, action

        return jax.lax.scan(step, belief.mean, length=self.config.plan.length)[1]

    @property
    def _sizes(self) -> tuple[int, int]:
        return self.env.observation_size, self.env.action_size


def improved(value: Any, start: Plan, iterations: int, size: Any) -> Plan:
    """Returns the best plan that Adam finds within [−1, 1].

    The learning rate decays linearly from `size` to zero. A plan whose value is NaN is never the
    best.
    """

    def one(carry: tuple, left: Float[Array, ""]) -> tuple[tuple, None]:
        plan, optimiser, best, most = carry
        found, slope = jax.value_and_grad(value)(plan)
        best, most = jax.tree.map(lambda new, old: jnp.where(found > most, new, old), (plan, found), (best, most))
        direction, optimiser = ADAM.update(slope, optimiser)
        return (jnp.clip(plan + size * left * direction, -1, 1), optimiser, best, most), None

    if not iterations:
        return start
    first = (start, ADAM.init(start), start, jnp.asarray(-jnp.inf))
    left = 1 - jnp.arange(iterations) / iterations
    (plan, _, best, most), _ = jax.lax.scan(one, first, left)
    return jnp.where(value(plan) > most, plan, best)
