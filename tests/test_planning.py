"""Predictions of several steps: against textbook recursions, sampled roll-outs and quadrature."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moca import moments as mm
from moca.agents import make_agent
from moca.backup import cautious, mean_alone, one_gaussian, samples_of_it, variance_of_value, whole_mixture
from moca.belief import Unfiltered
from moca.config import ConfigError, DynamicsConfig
from moca.critic import QuadraticCritic
from moca.dynamics import GaussianEnsemble, ModelState, Statistics
from moca.nets import MLP
from moca.planning import World, joint_with_action, look_ahead
from moca.pytrees import alike
from moca.replay import Transition
from moca.reward import RewardModel, fit_reward, make_reward
from tests import probes

GAMMA = 0.9
A, B = np.array([[0.9, 0.2], [-0.1, 0.8]]), np.array([[0.05], [0.3]])
K = np.array([[-0.3, 0.2]])  # a = K s
NOISE, APART = np.array([0.02, 0.03]), np.array([[0.01, 0.0], [-0.01, 0.02], [0.0, -0.02]])
BOUNDS = {"value__low": "[-2,-2]", "value__high": "[2,2]", "value__lengthscales": "[1,1]"}
SETTINGS = BOUNDS | {
    "train__gamma": GAMMA, "value__bases": 8, "value__basis_lr": 1e-3, "value__kind": "erf", "critic__width": 4,
    "critic__depth": 1, "critic__target_period": 5, "dynamics__width": 8, "dynamics__members": 3, "plan__bases": 8,
    "env__episode_length": 40, "train__steps": 80, "train__eval_episodes": 1,
}  # fmt: skip


def settings(**more):
    return probes.tiny(**({"agent": "moca"} | SETTINGS | more))


def linear_world(reward):
    """s′ = A s + B a + noise, by members that disagree by constants alone; a = K s."""
    return jax.jit(lambda: _linear_world(reward))()  # as one program, in the precision that is asked for now


def _linear_world(reward):
    means, squares = np.array([[0.1, -0.2], [0.05, 0.02]]), np.array([[0.3, 0.5], [0.2, 0.1]])
    (mean, shift), (unit, spread) = means, np.sqrt(squares - means**2)
    statistics = Statistics(jnp.ones(()), jnp.asarray(means), jnp.asarray(squares))
    ensemble = GaussianEnsemble(jax.random.key(0), DynamicsConfig(members=3, width=4), 2, 1)
    weight = np.concatenate([(A - np.eye(2)) * unit, B], axis=1) / spread[:, None]
    offset = ((A - np.eye(2)) @ mean - shift + APART) / spread
    log_variance = 2 * np.log(NOISE / spread)
    log_variance = -5 + 9 * np.arctanh((log_variance + 5) / 9)  # undoes the soft bounds
    members = MLP(jax.random.key(0), (3, 4))
    weights = jnp.broadcast_to(jnp.concatenate([jnp.asarray(weight), jnp.zeros((2, 3))]), (3, 4, 3))
    biases = jnp.concatenate([jnp.asarray(offset), jnp.broadcast_to(jnp.asarray(log_variance), (3, 2))], axis=1)
    members = eqx.tree_at(lambda m: (m.weights, m.biases), members, ([weights], [biases]))
    ensemble = eqx.tree_at(lambda e: (e.members, e.statistics), ensemble, (members, statistics))
    return World(ModelState(ensemble, None, jnp.zeros(2), None), reward, Unfiltered(), linear_critic())


def linear_critic():
    """μ̃(s) = K s, through a rectified trunk of (s, −s)."""
    config = settings().critic
    critic = QuadraticCritic(jax.random.key(0), config, mm.Quadratic(jnp.zeros((2, 2)), jnp.zeros(2)), 2, 1)
    trunk = (jnp.concatenate([jnp.eye(2), -jnp.eye(2)]), jnp.zeros(4))
    head = (jnp.concatenate([jnp.asarray(K), -jnp.asarray(K)], axis=1), jnp.zeros(1))
    return eqx.tree_at(
        lambda c: (c.trunk.weights[0], c.trunk.biases[0], c.vertex_head.weights[0], c.vertex_head.biases[0]),
        critic,
        (*trunk, *head),
    )


def quadratic_reward():
    """r̂(s, a) = r̄ + σ f(z), with f quadratic in the standardised state and the action."""
    curvature = jnp.array([[-1.0, 0.2, 0.1], [0.2, -0.8, 0.3], [0.1, 0.3, -0.5]])
    statistics = Statistics(jnp.ones(()), jnp.array(0.3), jnp.array(0.25))
    return RewardModel(mm.Quadratic(curvature, jnp.array([0.1, -0.2, 0.3])), statistics)


def textbook(mean, covariance, steps, reward, statistics):
    """Σ γᵏ E[rₖ], mean and covariance after `steps` of s′ = (A + BK) s + noise, by matrices alone."""
    scale = np.append(np.asarray(statistics.deviation[0]), 1.0)
    shift = np.append(np.asarray(statistics.mean[0]), 0.0)
    W, b = np.asarray(reward.function.A), np.asarray(reward.function.b)
    onto, closed_loop, total = np.concatenate([np.eye(2), K]), A + B @ K, 0.0
    Q = np.diag(NOISE**2) + np.mean([np.outer(d, d) for d in APART - APART.mean(0)], axis=0)
    for k in range(1, steps + 1):
        z, C = (onto @ mean - shift) / scale, onto @ covariance @ onto.T / np.outer(scale, scale)
        f = z @ W @ z / 2 + b @ z + np.trace(W @ C) / 2
        total += GAMMA**k * (float(reward.statistics.mean) + float(reward.statistics.deviation) * f)
        mean = closed_loop @ mean + APART.mean(0)
        covariance = closed_loop @ covariance @ closed_loop.T + Q
    return total, mean, covariance


@eqx.filter_jit
def followed(world, rule, first, steps):
    return look_ahead(world, rule, first, None, GAMMA, steps, jax.random.key(0))


@pytest.mark.parametrize("steps", [1, 4])
def test_on_a_linear_gaussian_system_it_is_the_textbook_recursion(steps):
    with jax.enable_x64(True):
        world, m, C = linear_world(quadratic_reward()), np.array([0.1, -0.05]), np.diag([4e-4, 1e-4])
        first = mm.Gaussian(jnp.asarray(m)[None], jnp.asarray(C)[None])
        found, last = followed(world, one_gaussian, first, steps)
        truth, mean, covariance = textbook(m, C, steps, world.reward, world.model.ensemble.statistics)
        np.testing.assert_allclose(found[0], truth, rtol=1e-9)
        np.testing.assert_allclose(last.mean[0], mean, atol=1e-9)
        np.testing.assert_allclose(last.covariance[0], covariance, atol=1e-9)


def test_the_target_of_a_linear_gaussian_system_is_the_textbook_recursion():
    """The whole of it: r + γ E[r₁] + … + γᴴ minᵢ E[Vᵢ(s_H)], and what ends has no future."""
    with jax.enable_x64(True):
        agent = make_agent(settings(plan__horizon=4, value__kind="quadratic", plan__reward="quadratic"), probes.Drift())
        world, state = linear_world(quadratic_reward()), jax.jit(agent.init)(jax.random.key(0))
        values = jax.vmap(lambda scale: mm.Quadratic(-scale * jnp.eye(2), jnp.ones(2)))(jnp.array([1.0, 2.0]))
        state = state._replace(model=world.model, guide=world.critic, targets=values)
        state = state._replace(reward=state.reward._replace(model=world.reward))
        s, a = np.array([[0.1, -0.05]] * 2), np.array([[0.2]] * 2)
        batch = Transition(*map(jnp.asarray, (s, a, np.full(2, 0.7), s, np.array([0.0, 1.0]))))
        key = jax.random.key(1)
        target = lambda s: agent._targets(s, batch, agent.predict(s, batch, key), key)[0]  # noqa: E731
        found = jax.jit(target)(state)
        mean = A @ s[0] + B @ a[0] + APART.mean(0)
        Q = np.diag(NOISE**2 + APART.var(0))  # of the first step MoCA keeps the variances alone
        total, mean, covariance = textbook(mean, Q, 3, world.reward, world.model.ensemble.statistics)
        value = min(-scale * (mean @ mean + np.trace(covariance)) / 2 + mean.sum() for scale in (1, 2))
        np.testing.assert_allclose(found, [0.7 + total + GAMMA**4 * value, 0.7], rtol=1e-6)


def test_the_policy_that_targets_follow_is_copied_with_the_values():
    agent = make_agent(settings(plan__horizon=3, critic__target_period=2), probes.Drift())
    start = jax.jit(agent.init)(jax.random.key(0))
    moved = start._replace(critics=jax.tree.map(lambda leaf: leaf + 1, start.critics))
    once = agent._sync_targets(moved)
    twice = agent._sync_targets(once)
    assert eqx.tree_equal(once.guide, start.guide)
    assert eqx.tree_equal(twice.guide, jax.tree.map(lambda leaf: leaf + 1, start.guide))
    assert eqx.tree_equal(twice.targets, moved.critics.value)
    assert make_agent(settings(plan__imagined=1), probes.Drift()).init(jax.random.key(0)).guide is None


@pytest.mark.parametrize("width", [0.0, 0.3, 3.0])
def test_state_and_clipped_action_are_jointly_what_samples_are(width):
    """Two actions of a linear policy whose bounds matter; of the covariance between actions, the sign and size."""
    critic = QuadraticCritic(jax.random.key(1), settings().critic, mm.Quadratic(jnp.zeros((2, 2)), jnp.zeros(2)), 2, 2)
    gain = jnp.array([[2.0, -1.0], [0.5, 1.5]])
    critic = eqx.tree_at(
        lambda c: (c.trunk.weights[0], c.trunk.biases[0], c.vertex_head.weights[0], c.vertex_head.biases[0]),
        critic,
        (jnp.concatenate([jnp.eye(2), -jnp.eye(2)]), jnp.zeros(4), jnp.concatenate([gain, -gain], 1), jnp.zeros(2)),
    )
    m, C = np.array([0.3, 0.2]), width**2 * np.array([[0.3, 0.1], [0.1, 0.2]])
    mean, covariance, slope = eqx.filter_jit(joint_with_action)(critic, jnp.asarray(m)[None], jnp.asarray(C)[None])
    s = np.random.default_rng(0).multivariate_normal(m, C, 400_000)
    both = np.concatenate([s, np.clip(s @ np.asarray(gain).T, -1, 1)], axis=1)
    np.testing.assert_allclose(mean[0], both.mean(0), atol=0.01 * max(width, 0.01))
    truth, found = np.cov(both.T), np.array(covariance[0])
    np.testing.assert_allclose(slope[0] @ C, found[2:, :2], atol=1e-5)  # Stein's lemma
    np.testing.assert_allclose(found[2, 3], truth[2, 3], atol=0.06)  # the leading term alone
    found[2, 3] = found[3, 2] = truth[2, 3]
    np.testing.assert_allclose(found, truth, atol=0.01 * max(width, 0.01))


@eqx.filter_jit
def curved_world(scale=1.0):
    """A random ensemble, policy and reward that are far from linear."""
    agent = make_agent(settings(plan__horizon=2, plan__bases=32, critic__width=16, dynamics__width=16), probes.Drift())
    state = agent.init(jax.random.key(3))
    ensemble = state.model.ensemble
    statistics = Statistics(
        jnp.ones(()), jnp.zeros((2, 2)), jnp.array([[1.0, 1.0], [0.1, 0.1]]) * jnp.array([[1], [scale]])
    )
    members = jax.tree.map(lambda leaf: 1.5 * leaf, ensemble.members)
    ensemble = eqx.tree_at(lambda e: (e.members, e.statistics), ensemble, (members, statistics))
    function = eqx.tree_at(
        lambda f: f.weights, state.reward.model.function, jax.random.normal(jax.random.key(4), (32,))
    )
    reward = RewardModel(function, Statistics(jnp.ones(()), jnp.zeros(()), jnp.ones(())))
    model = state.model._replace(ensemble=ensemble)
    critic = jax.tree.map(lambda leaf: leaf[0], eqx.tree_at(lambda c: c.value, state.critics, None))
    return World(model, reward, Unfiltered(), critic)


@pytest.fixture(scope="module")
def rollouts():
    """By agent, Σ γᵏ E[rₖ] and mean and variance of the last state, over three steps from one belief."""
    world = curved_world()
    start = world.model.ensemble.predict_batch(jnp.array([[0.4, -0.3]]), jnp.array([[0.2]]))

    def follow(rule, samples=1):
        @jax.jit
        def ahead(start):
            first = jax.vmap(lambda p: rule(p, jax.random.key(1), samples))(start)
            return look_ahead(world, rule, first, None, GAMMA, 3, jax.random.key(2))

        total, last = ahead(start)
        if isinstance(last, mm.Empirical):
            return float(total[0]), last.points[0].mean(0), last.points[0].var(0)
        last = jax.vmap(mm.moment_match)(last) if isinstance(last, mm.GaussianMixture) else last
        variance = jnp.zeros(2) if isinstance(last, mm.Dirac) else jnp.diagonal(last.covariance[0])
        return float(total[0]), last.mean[0], variance

    truth = follow(samples_of_it, 300_000)
    return truth, {rule.__name__: follow(rule) for rule in (one_gaussian, mean_alone, whole_mixture)}


@pytest.mark.slow
def test_moments_are_near_those_of_sampled_roll_outs_where_points_are_not(rollouts):
    truth, found = rollouts
    error = {name: abs(each[0] - truth[0]) for name, each in found.items()}
    assert error["one_gaussian"] < 0.01 < 0.03 < error["mean_alone"]
    assert error["whole_mixture"] < 0.01
    for name in ("one_gaussian", "whole_mixture"):
        np.testing.assert_allclose(found[name][1], truth[1], atol=0.1)
        np.testing.assert_allclose(found[name][2], truth[2], rtol=0.25)


def test_without_covariance_the_moments_are_those_of_points():
    world, point = curved_world(scale=1e-10), jnp.array([[0.4, -0.3]])
    sure = mm.Gaussian(point, jnp.zeros((1, 2, 2)))
    closed, last = followed(world, one_gaussian, sure, 3)
    points, end = followed(world, mean_alone, mm.Dirac(point), 3)
    np.testing.assert_allclose(closed, points, rtol=1e-4)
    np.testing.assert_allclose(last.mean, end.point, rtol=1e-5)


def test_a_belief_that_cannot_be_followed_is_named():
    box = mm.Box(jnp.zeros((1, 2)), jnp.ones((1, 2)))
    with pytest.raises(TypeError, match=r"a Box cannot be followed over several steps: plan.horizon above 1 needs"):
        look_ahead(curved_world(), one_gaussian, box, None, GAMMA, 1, jax.random.key(0))


@pytest.mark.parametrize("kind", ["erf", "rbf-learned", "fourier"])
def test_the_learned_reward_is_closed_form_and_learns(kind):
    """A reward of state and action, to a tenth of its spread; its expectation against quadrature."""
    config = settings(plan__reward=kind, plan__bases=64, plan__lr=1e-2, train__steps=40_000)
    keys = jax.random.split(jax.random.key(0), 3)
    states = Statistics(jnp.ones(()), jnp.array([[1.0, -2.0], [0, 0]]), jnp.array([[5.0, 4.25], [1, 1]]))
    belief = mm.Gaussian(jnp.array([1.5, -1.0, 0.3]), 0.1 * jnp.array([[2, 0.5, 0.4], [0.5, 1, 0.2], [0.4, 0.2, 1]]))

    @jax.jit
    def learned():
        s = states.mean[0] + states.deviation[0] * jax.random.normal(keys[0], (512, 2))
        a = jax.random.uniform(keys[1], (512, 1), minval=-1.0)
        rewards = 3 + jnp.cos(s[:, 0]) - 0.5 * jnp.square(a[:, 0])
        batch, start = Transition(s, a, rewards, s, jnp.zeros(512)), make_reward(keys[2], config, probes.Drift())
        body = lambda i, reward: fit_reward(reward, config, states, batch, 0)[0]  # noqa: E731
        model = jax.lax.fori_loop(0, 1500, body, start).model
        drawn = belief.sample(jax.random.key(5), 400_000)
        sampled = model.at(states, drawn[:, :2], drawn[:, 2:])
        loss = fit_reward(start, config, states, batch, 0)[1]
        return loss, model.at(states, s, a) - rewards, rewards, sampled, model.expectation(states, belief)

    loss, error, rewards, sampled, expected = map(np.asarray, learned())
    np.testing.assert_allclose(loss, 1, rtol=1e-4)
    assert np.sqrt(np.mean(error**2)) < 0.1 * rewards.std()
    np.testing.assert_allclose(expected, sampled.mean(dtype=float), atol=4 * sampled.std() / 400_000**0.5)


def test_caution_is_a_bound_and_zero_is_not_there():
    value = mm.Erf(jnp.array([1.0, -0.5]), jnp.array([[1.0, 0.5], [0.3, -1.0]]), jnp.zeros(2))
    belief = mm.DiagonalGaussian(jnp.array([0.2, 0.1]), jnp.array([0.3, 0.4]))
    bound = jax.jit(lambda b, v: mm.expectation(b, v) - 0.5 * jnp.sqrt(variance_of_value(b, v)))(belief, value)
    careful = make_agent(settings(plan__caution=0.5), probes.Drift())
    np.testing.assert_allclose(jax.jit(careful.backup)(belief, value), bound, rtol=1e-6)
    plain = make_agent(settings(), probes.Drift())
    assert str(jax.make_jaxpr(plain.backup)(belief, value)) == str(jax.make_jaxpr(mm.expectation)(belief, value))
    sure = lambda mean: cautious(mm.DiagonalGaussian(mean, jnp.zeros(2)), value, 1.0)  # noqa: E731
    (found, slope), (exact, own) = (jax.jit(jax.value_and_grad(each))(belief.mean) for each in (sure, value))
    np.testing.assert_allclose(found, exact, rtol=1e-6)
    np.testing.assert_allclose(slope, own, rtol=1e-5)


def test_the_variance_is_that_of_a_quadratic_and_below_that_of_others():
    covariance = jnp.array([[0.3, 0.1], [0.1, 0.4]])
    belief = mm.Gaussian(jnp.array([0.2, 0.1]), covariance)
    quadratic = mm.Quadratic(jnp.array([[1.0, 0.3], [0.3, -2.0]]), jnp.ones(2))
    both = jax.jit(
        lambda distribution, function: (variance_of_value(distribution, function), mm.variance(distribution, function))
    )
    np.testing.assert_allclose(*both(belief, quadratic), rtol=1e-5)
    keys = jax.random.split(jax.random.key(0))
    erf = mm.Erf(jax.random.normal(keys[0], (16,)), jax.random.normal(keys[1], (16, 2)), jnp.zeros(16))
    found, whole = both(belief, erf)
    assert 0.85 < float(found / whole) < 1
    narrow = mm.Gaussian(belief.mean, 0.01 * covariance)
    np.testing.assert_allclose(*both(narrow, erf), rtol=1e-2)
    mixture = mm.GaussianMixture(
        jnp.array([0.3, 0.7]), mm.Gaussian(jnp.array([[0.2, 0.1], [-0.5, 0.3]]), jnp.stack([covariance] * 2))
    )
    np.testing.assert_allclose(*both(mixture, quadratic), rtol=1e-5)
    points = mm.Empirical(belief.sample(jax.random.key(1), 10))
    np.testing.assert_allclose(*both(points, erf), rtol=1e-6)


def test_runs_with_and_without_caution_share_a_program():
    runs = alike([settings(), settings(plan__caution=0.5)])
    assert len({jax.tree.structure(each) for each in runs}) == 1
    assert jax.tree.structure(settings()) != jax.tree.structure(runs[0])
    assert "caution" not in str(jax.tree.leaves(alike([settings()])))


def test_planning_needs_a_prediction_of_the_state_itself():
    with pytest.raises(ConfigError, match=r"plan.horizon = 2 needs an agent that predicts the next state"):
        settings(agent="bnaf", plan__horizon=2)
    with pytest.raises(ConfigError, match=r"plan.imagined = 3 needs an agent that predicts the next state"):
        settings(agent="bnaf", plan__imagined=3)
    with pytest.raises(ConfigError, match=r"plan.curiosity = 0.5 needs an agent that predicts the next state"):
        settings(agent="naf", plan__curiosity=0.5)
    with pytest.raises(ConfigError, match=r"plan.imagined = 1 cannot be combined with sensor.history yet"):
        settings(plan__imagined=1, sensor__history=2, sensor__scales="[1,1]")
