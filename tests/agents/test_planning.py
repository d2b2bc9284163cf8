"""The agent that plans when it decides: its expected return, its search, and what it carries along."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moca import moments as mm
from moca.agents import make_agent
from moca.agents.planning import improved
from moca.belief import Belief
from moca.config import ConfigError
from moca.drivers import ScanTrainer
from moca.loop import policy_start, policy_step
from moca.runs import export
from tests import probes
from tests.test_belief import correlations_are_used
from tests.test_planning import APART, GAMMA, NOISE, A, B, linear_world, quadratic_reward, settings

LENGTH = 5
M, P = np.array([0.3, -0.2]), np.array([[0.02, 0.005], [0.005, 0.01]])


def planner(**more):
    own = {"agent": "moca-plan", "plan__length": LENGTH, "plan__reward": "quadratic", "value__kind": "quadratic"}
    return make_agent(settings(**(own | more)), probes.Drift())


def linear_state(agent):
    """A linear system with a quadratic reward and two quadratic values."""
    world, state = linear_world(quadratic_reward()), jax.jit(agent.init)(jax.random.key(0))
    critics = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), world.critic)
    values = jax.vmap(lambda scale: mm.Quadratic(-scale * jnp.eye(2), jnp.ones(2) / 2))(jnp.array([1.0, 2.0]))
    critics = eqx.tree_at(lambda c: c.value, critics, values)
    return state._replace(model=world.model, critics=critics, reward=state.reward._replace(model=world.reward))


def by_hand(state, plan):
    """Σ γᵏ E[rₖ] + γᴸ minᵢ E[Vᵢ] of a linear system, by matrices alone."""
    reward, states = state.reward.model, state.model.ensemble.statistics
    scale, shift = np.append(np.asarray(states.deviation[0]), 1.0), np.append(np.asarray(states.mean[0]), 0.0)
    W, b = np.asarray(reward.function.A), np.asarray(reward.function.b)
    Q = np.diag(NOISE**2) + np.mean([np.outer(d, d) for d in APART - APART.mean(0)], axis=0)
    mean, covariance, total = M, P, 0.0
    for k, action in enumerate(np.asarray(plan)):
        z = (np.append(mean, action) - shift) / scale
        f = z @ W @ z / 2 + b @ z + np.trace(W[:2, :2] @ (covariance / np.outer(scale[:2], scale[:2]))) / 2
        total += GAMMA**k * (float(reward.statistics.mean) + float(reward.statistics.deviation) * f)
        mean, covariance = A @ mean + B @ action + APART.mean(0), A @ covariance @ A.T + Q
    ends = [-scale * (mean @ mean + np.trace(covariance)) / 2 + mean.sum() / 2 for scale in (1, 2)]
    return total + GAMMA ** len(plan) * min(ends)


def test_the_expected_return_of_a_linear_system_is_the_textbooks():
    with jax.enable_x64(True):
        agent = planner()
        state, plan = linear_state(agent), jnp.linspace(-0.5, 0.7, LENGTH)[:, None]
        found = jax.jit(agent.expected_return)(state, Belief(jnp.asarray(M), jnp.asarray(P)), plan)
        np.testing.assert_allclose(found, by_hand(state, plan), rtol=1e-9)


def test_the_plan_is_the_best_one_of_a_linear_system():
    """The return is a concave quadratic in the plan, so its best plan solves a linear system."""
    with jax.enable_x64(True):
        agent = planner(plan__iterations=300, plan__step=0.1)
        state, belief = linear_state(agent), Belief(jnp.asarray(M), jnp.asarray(P), plan=jnp.zeros((LENGTH, 1)))
        value = lambda plan: agent.expected_return(state, belief, plan[:, None])  # noqa: E731
        derivatives = jax.jit(lambda plan: (jax.hessian(value)(plan), jax.grad(value)(plan)))
        best = -np.linalg.solve(*derivatives(jnp.zeros(LENGTH)))
        assert (np.abs(best) < 1).all()
        after, action = jax.jit(agent.decide)(state, belief)
        np.testing.assert_allclose(after.plan[:, 0], best, atol=1e-3)
        np.testing.assert_allclose(action, after.plan[0])


def test_a_search_stays_within_the_bounds_and_never_ends_below_its_start():
    bumpy = lambda plan: jnp.sum(3 * plan + jnp.sin(40 * plan))  # noqa: E731
    start = jnp.array([[0.5], [-0.9], [0.99]])
    for iterations in (0, 1, 5, 50):
        found = improved(bumpy, start, iterations, 0.3)
        assert (jnp.abs(found) <= 1).all()
        assert float(bumpy(found)) >= float(bumpy(start))
    broken = lambda plan: jnp.where(plan.sum() > 0.7, jnp.nan, plan.sum())  # noqa: E731
    assert np.isfinite(improved(broken, start, 5, 0.3)).all()


def test_a_decision_starts_from_the_better_of_last_plan_and_policy():
    """Without a search, the plan is the better of the two as it is."""
    with jax.enable_x64(True):
        agent = planner(plan__iterations=0)
        state, belief = linear_state(agent), Belief(jnp.asarray(M), jnp.asarray(P))
        policy, decide = jax.jit(agent.policy_plan)(state, belief), jax.jit(agent.decide)
        value = jax.jit(lambda plan: agent.expected_return(state, belief, plan))
        for last in (jnp.ones((LENGTH, 1)), 0.8 * policy + 0.1 * jnp.ones((LENGTH, 1)), policy + 0.2):
            found, _ = decide(state, belief._replace(plan=last))
            np.testing.assert_array_equal(found.plan, last if value(last) > value(policy) else policy)


def test_a_belief_carries_the_rest_of_the_plan():
    agent, measured = planner(belief__filter=True, noise__sigma=0.1, plan__iterations=1), jnp.asarray(M, jnp.float32)
    learner = linear_state(agent)

    @jax.jit
    def play():
        first = policy_start(agent, learner, measured)
        carried, _ = agent.filter.step(learner.model, first.belief, first.action, measured)
        return first, carried, policy_step(agent, learner, first, measured)

    first, carried, second = play()
    assert first.belief.plan.shape == (LENGTH, 1)
    np.testing.assert_array_equal(carried.plan[:-1], first.belief.plan[1:])
    assert second.belief.covariance.shape == (2, 2)
    np.testing.assert_allclose(second.action, second.belief.plan[0], rtol=1e-5)


def test_it_learns_on_a_belief_and_its_reward_model_is_a_metric():
    """And whole covariances reach its target, as in `tests/test_belief.py`."""
    more = {"belief__filter": True, "noise__sigma": 0.3, "plan__length": 3, "plan__iterations": 2}
    config = settings(agent="moca-plan", plan__horizon=2, belief__covariance="full", **more)
    trainer = ScanTrainer([config] * 2, [0, 1], probes.Drift())
    *_, report = trainer
    known = {name: values for name, values in report.metrics.items() if name != "value_noise_variance"}
    assert all(np.isfinite(values).all() for values in known.values())
    assert (report.metrics["reward_error"] > 0).all()
    correlations_are_used(config, trainer)
    agent = make_agent(config, trainer.env)
    with pytest.raises(ConfigError, match="a policy of PlanningAgent cannot be exported"):
        export.write("policy.npz", agent, probes.first(trainer.learners), {})
