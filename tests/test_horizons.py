"""Targets mixed over horizons: variances against matrices and roll-outs, weights by hand, and agents that learn."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moca import moments as mm
from moca.agents import make_agent
from moca.backup import one_gaussian, samples_of_it, whole_mixture
from moca.config import ConfigError
from moca.critic import twin
from moca.dynamics import Statistics
from moca.horizons import all_horizons, inverse_variance
from moca.reward import RewardModel
from tests import probes
from tests.test_imagination import batch
from tests.test_planning import (
    APART,
    GAMMA,
    NOISE,
    A,
    B,
    K,
    curved_world,
    linear_world,
    quadratic_reward,
    settings,
    textbook,
)

H = 4
M, C = np.array([0.1, -0.05]), np.array([[4e-4, 1e-4], [1e-4, 2e-4]])
SLOPES, OFFSETS = np.array([[1.0, -2.0], [1.5, 0.5]]), np.array([0.3, 0.35])  # of the twins


def linear_reward():
    function = mm.Quadratic(jnp.zeros((3, 3)), jnp.array([0.4, -0.2, 0.6]))
    return RewardModel(function, Statistics(jnp.ones(()), jnp.array(0.3), jnp.array(0.25)))


def twins():
    return jax.vmap(lambda b, c: mm.Quadratic(jnp.zeros((2, 2)), b, c))(jnp.asarray(SLOPES), jnp.asarray(OFFSETS))


@eqx.filter_jit
def variances(world, rule, first, values):
    return all_horizons(world, rule, first, None, GAMMA, H, jax.random.key(0)).variance(values)


def by_matrices(world):
    """Var of Σₖ γᵏ rₖ + γʰ V(s_h) at each horizon: each source of noise, through all that depends on it."""
    statistics = world.model.ensemble.statistics
    weights = np.asarray(world.reward.function.b) * float(world.reward.statistics.deviation)
    weights = weights / np.append(np.asarray(statistics.deviation[0]), 1.0)
    reward, closed_loop = weights[:2] + K[0] * weights[2], A + B @ K
    Q = np.diag(NOISE**2) + np.mean([np.outer(d, d) for d in APART - APART.mean(0)], axis=0)
    power, found, mean = np.linalg.matrix_power, [], M
    for h in range(1, H + 1):
        total = 0.0
        for slope in SLOPES:
            for source in range(1, h + 1):
                along = GAMMA**h * power(closed_loop, h - source).T @ slope
                for k in range(source, h):
                    along = along + GAMMA**k * power(closed_loop, k - source).T @ reward
                total += along @ (C if source == 1 else Q) @ along / 2
        values = SLOPES @ mean + OFFSETS
        found.append(total + (GAMMA**h * (values[0] - values[1]) / 2) ** 2)
        mean = closed_loop @ mean + APART.mean(0)
    return np.array(found)


def test_on_a_linear_gaussian_system_variances_and_weights_are_those_by_matrices():
    with jax.enable_x64(True):
        world = linear_world(linear_reward())
        first = mm.Gaussian(jnp.asarray(M)[None], jnp.asarray(C)[None])
        found = variances(world, one_gaussian, first, twins())
        truth = by_matrices(world)
        np.testing.assert_allclose(found[:, 0], truth, rtol=1e-8)
        weights = inverse_variance(found, jnp.ones((H, 1)))[:, 0]
        np.testing.assert_allclose(weights, (1 / truth) / np.sum(1 / truth), rtol=1e-8)
        np.testing.assert_allclose(weights.sum(), 1, rtol=1e-12)
        assert weights.max() / weights.min() > 1.5


def test_samples_and_mixtures_have_the_same_variances():
    """Of a mixture whose components differ, and of as many samples, in a linear system."""
    with jax.enable_x64(True):
        world = linear_world(linear_reward())
        means = jnp.asarray(M) + jnp.array([[[0.01, 0.0], [-0.01, 0.0]]])
        components = mm.Gaussian(means, jnp.broadcast_to(jnp.asarray(C), (1, 2, 2, 2)))
        mixture = mm.GaussianMixture(jnp.full((1, 2), 0.5), components)
        matched = jax.vmap(lambda p: mm.moment_match(p, full=True))(mixture)
        closed = variances(world, one_gaussian, matched, twins())
        whole = variances(world, whole_mixture, mixture, twins())
        np.testing.assert_allclose(whole, closed, rtol=1e-8)
        points = mm.Empirical(jax.vmap(lambda p: p.sample(jax.random.key(1), 40_000))(matched))
        drawn = variances(world, samples_of_it, points, twins())
        # A sample's next state has the variances of its prediction, without their correlation.
        np.testing.assert_allclose(drawn, closed, rtol=0.05)


def test_variances_are_near_those_of_roll_outs_where_nothing_is_linear():
    world = curved_world(scale=0.1)
    start = world.model.ensemble.predict_batch(jnp.array([[0.4, -0.3]]), jnp.array([[0.2]]))
    keys = jax.random.split(jax.random.key(5))
    erf = mm.Erf(jax.random.normal(keys[0], (16,)), jax.random.normal(keys[1], (16, 2)), jnp.zeros(16))
    gaussian = jax.vmap(lambda p: one_gaussian(p, keys[0], 1))(start)
    points = jax.vmap(lambda p: samples_of_it(p, keys[0], 40_000))(start)
    closed = variances(world, one_gaussian, gaussian, twin(erf))
    drawn = variances(world, samples_of_it, points, twin(erf))
    np.testing.assert_allclose(closed, drawn, rtol=0.25)


def test_weights_are_safe():
    targets = jnp.array([[10.0, 10.0, 10.0, 0.0], [-20.0, 0.0, 0.0, 0.0]])
    variances = jnp.array([[0.0, 0.0, 1e-20, 0.0], [1e-13, 1.0, 1e38, 0.0]])
    weights = jax.jit(inverse_variance)(variances, targets)
    np.testing.assert_allclose(weights.sum(0), 1, rtol=1e-6)
    np.testing.assert_allclose(weights[0], [0.5, 1.0, 1.0, 0.5], atol=1e-6)
    np.testing.assert_allclose(inverse_variance(jnp.array([[1.0], [3.0]]), jnp.ones((2, 1)))[:, 0], [0.75, 0.25])


def prepared(**more):
    """An agent in a linear world with two quadratic values."""
    own = {"plan__horizon": H, "plan__weights": "variance", "value__kind": "quadratic", "plan__reward": "quadratic"}
    agent = make_agent(settings(**(own | more)), probes.Drift())
    world, state = linear_world(quadratic_reward()), jax.jit(agent.init)(jax.random.key(0))
    values = jax.vmap(lambda scale: mm.Quadratic(-scale * jnp.eye(2), jnp.ones(2)))(jnp.array([1.0, 2.0]))
    critics = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), world.critic)
    state = state._replace(model=world.model, critics=critics, guide=world.critic, targets=values)
    return agent, state._replace(reward=state.reward._replace(model=world.reward))


def test_the_target_is_the_weighted_sum_of_the_textbooks():
    """And what ends has no future, at any horizon."""
    with jax.enable_x64(True):
        agent, state = prepared()
        world, stored, key = agent.world(state), batch(), jax.random.key(1)

        @jax.jit
        def ask():
            predictions = agent.predict(state, stored, key)
            ahead = all_horizons(world, one_gaussian, predictions, None, GAMMA, H, key)
            mixed = agent._targets(state, stored, predictions, key)
            return mixed, ahead.variance(state.targets)

        (found, info), variance = ask()
        states, Q = world.model.ensemble.statistics, np.diag(NOISE**2 + APART.var(0))
        targets = np.zeros((H, len(found)))
        for row, (s, a) in enumerate(zip(np.asarray(stored.observation), np.asarray(stored.action), strict=True)):
            for h in range(1, H + 1):
                total, mean, covariance = textbook(A @ s + B @ a + APART.mean(0), Q, h - 1, world.reward, states)
                value = min(-k * (mean @ mean + np.trace(covariance)) / 2 + mean.sum() for k in (1, 2))
                ends = float(stored.terminated[row])
                targets[h - 1, row] = float(stored.reward[row]) + (1 - ends) * (total + GAMMA**h * value)
        weights = (1 / variance) / np.sum(1 / variance, axis=0)
        np.testing.assert_allclose(found, np.sum(weights * targets, axis=0), rtol=1e-6)
        np.testing.assert_allclose(found[0], 7.0, rtol=1e-12)
        np.testing.assert_allclose(info["weighted_horizon"], np.mean(np.arange(1, H + 1) @ weights), rtol=1e-9)


@pytest.mark.parametrize("agent", ["moca", "moca-mc", "moca-mixture", "moca-plan"])
def test_the_critics_learn_from_mixed_targets(agent):
    made, state = prepared(agent=agent)
    stored, draws = batch(), made.draw_update(jax.random.key(2))

    @jax.jit
    def both():
        after, info = made.fit_values(state, stored, draws)
        bounded = stored._replace(action=probes.Drift().from_bounds(stored.action))
        learned = state._replace(reward=after.reward)
        predictions = made.predict(learned, bounded, draws.prediction)
        return after, info, made._targets(learned, bounded, predictions, draws.prediction)

    after, info, (target, found) = both()
    horizon = found["weighted_horizon"]
    np.testing.assert_allclose(info["target_mean"], target.mean(), rtol=1e-5)
    np.testing.assert_allclose(info["weighted_horizon"], horizon, rtol=1e-5)
    assert 1 < float(horizon) < H
    moved = jax.tree.map(lambda a, b: bool((a != b).any()), after.critics.vertex_head, state.critics.vertex_head)
    assert all(jax.tree.leaves(moved))


def test_weights_need_a_variance():
    with pytest.raises(ConfigError, match=r"plan.weights = variance needs a prediction with a variance, and moca-ce"):
        settings(agent="moca-ce", plan__horizon=2, plan__weights="variance")
    with pytest.raises(ConfigError, match=r"plan.weights = variance needs dynamics.samples of at least 2 for moca-mc"):
        settings(agent="moca-mc", plan__horizon=2, plan__weights="variance", dynamics__samples=1)
    settings(agent="moca-ce", plan__weights="variance")  # one horizon has no weights
