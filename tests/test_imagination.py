"""Imagined transitions: what they start from, what they hold, and what is learned from them."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moca import moments as mm
from moca.agents import make_agent
from moca.config import ConfigError
from moca.drivers import ScanTrainer
from moca.imagination import disagreement, imagine, widened
from moca.replay import Transition
from tests import probes
from tests.test_critic import rule
from tests.test_planning import APART, GAMMA, NOISE, A, B, K, linear_world, quadratic_reward, settings

STEPS, COUNT, DRIFT = 3, 4, probes.Drift()


def batch():
    """Stored transitions of which the first terminated."""
    state = 0.3 * np.random.default_rng(0).normal(size=(COUNT, 2))
    ended = np.arange(COUNT) == 0
    return Transition(*map(jnp.asarray, (state, np.full((COUNT, 1), 0.9), np.full(COUNT, 7.0), state, 1.0 * ended)))


def agent_and_state(**more):
    """An agent in a linear world with a quadratic reward and two quadratic values."""
    own = {"plan__imagined": STEPS, "value__kind": "quadratic", "plan__reward": "quadratic"}
    agent = make_agent(settings(**(own | more)), DRIFT)
    world, state = linear_world(quadratic_reward()), agent.init(jax.random.key(0))
    values = jax.vmap(lambda scale: mm.Quadratic(-scale * jnp.eye(2), jnp.ones(2)))(jnp.array([1.0, 2.0]))
    critics = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), world.critic)
    return agent, state._replace(
        model=world.model, critics=critics, targets=values, reward=state.reward._replace(model=world.reward)
    )


def imagined(*noises):
    """The agent, its state, and what it imagines with each noise."""
    agent, state = agent_and_state()
    stored, predict = batch(), partial(agent.predict, state)
    ask = jax.jit(lambda noise: imagine(agent.world(state), stored, predict, STEPS, noise, jax.random.key(1)))
    return agent, state, *map(ask, noises)


def test_without_noise_they_are_the_textbooks_closed_loop():
    """In a linear world: states, actions, rewards, the target, and that nothing ends."""
    with jax.enable_x64(True):
        agent, state, (found, following) = imagined(0.0)
        world, mean = agent.world(state), np.asarray(batch().observation)
        statistics, rows, Q = world.model.ensemble.statistics, np.arange(COUNT), np.diag(NOISE**2 + APART.var(0))
        target = agent.target(found, following, state.targets)
        for _ in range(STEPS):
            action = mean @ K.T
            np.testing.assert_allclose(found.observation[rows], mean, atol=1e-12)
            np.testing.assert_allclose(found.action[rows], action, atol=1e-12)
            reward = world.reward.at(statistics, jnp.asarray(mean), jnp.asarray(action))
            np.testing.assert_allclose(found.reward[rows], reward, atol=1e-12)
            mean = mean @ A.T + action @ B.T + APART.mean(0)
            np.testing.assert_allclose(following.mean[rows], mean, atol=1e-12)
            values = [-scale * (np.sum(mean**2, 1) + np.trace(Q)) / 2 + mean.sum(1) for scale in (1, 2)]
            np.testing.assert_allclose(target[rows], reward + GAMMA * np.minimum(*values), atol=1e-9)
            rows = rows + COUNT
        assert len(found.reward) == STEPS * COUNT
        assert not found.terminated.any()


def test_actions_spread_around_the_greedy_one_within_the_bounds():
    _, _, (found, _), (wild, _) = imagined(0.2, 10.0)
    away = found.action[:, 0] - found.observation @ K[0]
    assert 0.1 < jnp.std(away) < 0.4
    assert len(np.unique(away)) == STEPS * COUNT
    assert set(np.unique(wild.action)) >= {-1.0, 1.0}
    assert (jnp.abs(wild.action) <= 1).all()


def by_quadrature(greedy, noise, function):
    """E[f(a)] over a clipped Gaussian around each greedy action; f takes one action for each of them."""
    rules = [rule(each, noise, truncated=False) for each in np.asarray(greedy)[:, 0]]
    nodes, weights = (np.stack(each) for each in zip(*rules, strict=True))
    return sum(w * np.asarray(function(jnp.asarray(a[:, None]))) for a, w in zip(nodes.T, weights.T, strict=True))


def test_actions_that_are_distributions_are_averaged_over():
    """In a linear world with quadratic functions all of it is exact, also where clipping matters."""
    with jax.enable_x64(True):
        agent, state = agent_and_state(plan__actions="gaussian")
        curvature = jnp.array([[1.0, 0.4], [0.4, 0.8]])
        values = jax.vmap(lambda scale: mm.Quadratic(-scale * curvature, jnp.ones(2)))(jnp.array([1.0, 2.0]))
        stored, predict, noise = batch(), partial(agent.predict, state), 0.8
        world = agent.world(state)

        @jax.jit
        def ask():
            found, following = imagine(world, stored, predict, STEPS, noise, jax.random.key(1), "gaussian")
            return found, following, agent.target(found, following, values)

        found, following, target = ask()
        states, Q = world.model.ensemble.statistics, np.diag(NOISE**2 + APART.var(0))
        mean, rows, least = np.asarray(batch().observation), np.arange(COUNT), np.asarray(curvature)
        at = jax.jit(lambda s, a: world.reward.at(states, s, a))
        after = lambda s, a: s @ A.T + np.asarray(a) @ B.T + APART.mean(0)  # noqa: E731
        value = lambda s, k: s.sum(1) - k * (np.sum(s * (s @ least), 1) + np.trace(least @ Q)) / 2  # noqa: E731
        for _ in range(STEPS):
            greedy = mean @ K.T
            average = partial(by_quadrature, greedy, noise)
            action = average(lambda a: a[:, 0])
            np.testing.assert_allclose(found.observation[rows], mean, atol=1e-10)
            np.testing.assert_allclose(found.action[rows, 0], action, atol=1e-10)
            spread = average(lambda a: jnp.square(a[:, 0])) - action**2
            np.testing.assert_allclose(found.action_variance[rows, 0], spread, atol=1e-10)
            reward = average(partial(at, mean))
            np.testing.assert_allclose(found.reward[rows], reward, atol=1e-10)
            ahead = [average(lambda a, s=mean, k=k: value(after(s, a), k)) for k in (1, 2)]
            np.testing.assert_allclose(target[rows], reward + GAMMA * np.minimum(*ahead), atol=1e-9)
            mean = after(mean, action[:, None])
            np.testing.assert_allclose(following.mean[rows], mean, atol=1e-10)
            rows = rows + COUNT


def test_the_critics_average_q_over_them():
    """The left side of the loss: V(s) + E[A(s, a)], the expectation of Q by quadrature."""
    made, state = agent_and_state(plan__actions="gaussian", plan__imagined=1, plan__noise=0.7)
    critics = eqx.tree_at(lambda c: c.cholesky_head.biases[0], state.critics, jnp.array([[1.0], [0.5]]))
    state, stored, draws = state._replace(critics=critics), batch(), made.draw_update(jax.random.key(2))
    info = jax.jit(lambda: made.fit_values(state, stored, draws)[1])()
    whole = []
    for i in range(2):
        critic = jax.tree.map(lambda leaf, i=i: leaf[i], critics)
        q = jax.jit(lambda a, c=critic: jax.vmap(c)(stored.observation, a))
        whole += [q(DRIFT.from_bounds(stored.action)), by_quadrature(stored.observation @ K.T, 0.7, q)]
    np.testing.assert_allclose(info["q_mean"], np.mean(whole), rtol=1e-4)


def test_predictions_are_widened_by_what_the_action_does():
    key, root = jax.random.key(0), jnp.array([[[0.3], [-0.2]]])
    more = np.asarray(root[0] @ root[0].T)
    mean, variance = jnp.array([[0.1, 0.2]]), jnp.array([[0.01, 0.02]])
    own = np.diag(variance[0])
    gaussian = widened(mm.DiagonalGaussian(mean, variance), root, key)
    np.testing.assert_allclose(gaussian.covariance[0], own + more, rtol=1e-6)
    mixture = mm.GaussianMixture(jnp.ones((1, 1)), mm.DiagonalGaussian(mean[:, None], variance[:, None]))
    np.testing.assert_allclose(widened(mixture, root, key).components.covariance[0, 0], own + more, rtol=1e-6)
    points = mean[:, None] + jnp.zeros((1, 100_000, 2))
    np.testing.assert_allclose(np.cov(widened(mm.Empirical(points), root, key).points[0].T), more, atol=2e-3)
    with pytest.raises(TypeError, match=r"a Dirac cannot be widened by the action's covariance: plan.actions"):
        widened(mm.Dirac(mean), root, key)


@pytest.mark.parametrize(
    ("agent", "actions"),
    [(agent, "sampled") for agent in ("moca", "moca-ce", "moca-mc", "moca-mixture", "moca-plan")]
    + [(agent, "gaussian") for agent in ("moca", "moca-mc", "moca-mixture")],
)
def test_the_critics_learn_from_them(agent, actions):
    """The step of the critics is the one on stored and imagined transitions together, for every prediction."""
    made, state = agent_and_state(agent=agent, plan__actions=actions)
    draws, stored = made.draw_update(jax.random.key(2)), batch()

    @jax.jit
    def both():
        after, info = made.fit_values(state, stored, draws)
        bounded = stored._replace(action=DRIFT.from_bounds(stored.action))
        learned = state._replace(reward=after.reward)
        key, predict = jax.random.fold_in(draws.prediction, 2), partial(made.predict, learned)
        more = imagine(made.world(learned), bounded, predict, STEPS, 1.0, key, actions)
        pairs = ((bounded, predict(bounded, draws.prediction)), more)
        return info["target_mean"], jnp.concatenate([made.target(*pair, state.targets) for pair in pairs])

    found, targets = both()
    np.testing.assert_allclose(found, targets.mean(), rtol=1e-4)
    assert len(targets) == (1 + STEPS) * COUNT


def test_disagreement_is_in_units_of_changes_and_zero_where_members_agree():
    ensemble = linear_world(quadratic_reward()).model.ensemble
    states, actions = jnp.zeros((2, 2)), jnp.zeros((2, 1))
    expected = np.sum(APART.var(0) / np.asarray(ensemble.statistics.deviation[1]) ** 2)
    np.testing.assert_allclose(disagreement(ensemble, states, actions), [expected] * 2, rtol=1e-4)
    one = jax.tree.map(lambda leaf: leaf[:1], ensemble.members)
    alone = disagreement(eqx.tree_at(lambda e: e.members, ensemble, one), states, actions)
    np.testing.assert_allclose(alone, 0, atol=1e-6)


def test_curiosity_is_added_to_targets_and_falls_to_zero():
    plain, state = agent_and_state()
    curious, _ = agent_and_state(plan__curiosity=0.5)
    draws, stored = plain.draw_update(jax.random.key(2)), batch()
    learn = [jax.jit(lambda s, agent=agent: agent.fit_values(s, stored, draws)[1]) for agent in (plain, curious)]
    without, info = (each(state) for each in learn)
    gained = info["target_mean"] - without["target_mean"]
    np.testing.assert_allclose(gained, 0.5 * info["disagreement"], rtol=1e-3)
    np.testing.assert_allclose(
        *(each(state._replace(updates=jnp.asarray(10**6)))["target_mean"] for each in learn), rtol=1e-6
    )


@pytest.mark.parametrize("more", [{}, {"plan__actions": "gaussian", "plan__horizon": 2, "plan__weights": "variance"}])
def test_a_run_imagines_on_beliefs(more):
    more = more | {"belief__filter": True, "noise__sigma": 0.05, "plan__curiosity": 0.1}
    trainer = ScanTrainer([settings(plan__imagined=2, **more)] * 2, [0, 1], probes.Drift())
    *_, report = trainer
    known = {name: values for name, values in report.metrics.items() if name != "value_noise_variance"}
    assert all(np.isfinite(values).all() for values in known.values())
    assert (report.metrics["disagreement"] > 0).all()
    assert (report.metrics["reward_loss"] > 0).all()
    assert ("weighted_horizon" in report.metrics) == ("plan__weights" in more)


def test_distributions_of_actions_need_a_variance_of_the_next_state():
    with pytest.raises(ConfigError, match=r"plan.actions = gaussian needs a prediction with a variance, and moca-ce"):
        settings(agent="moca-ce", plan__imagined=1, plan__actions="gaussian")
    settings(agent="moca-ce", plan__actions="gaussian")  # nothing is imagined


def test_without_imagination_there_are_no_actions_to_average_over():
    stored = batch()

    def program(**more):
        made = make_agent(settings(**more), DRIFT)
        update = lambda key: made.fit_values(made.init(key), stored, made.draw_update(key))  # noqa: E731
        return jax.jit(update).lower(jax.random.key(0)).as_text()

    assert program() == program(plan__actions="gaussian") == program(plan__weights="variance")


def test_the_learned_reward_takes_variances_as_it_takes_a_matrix():
    world, variance = linear_world(quadratic_reward()), jnp.array([0.3, 0.1, 0.5])
    mean, states = jnp.array([0.2, -0.1, 0.4]), world.model.ensemble.statistics
    beliefs = mm.DiagonalGaussian(mean, variance), mm.Gaussian(mean, jnp.diag(variance))
    np.testing.assert_allclose(*(world.reward.expectation(states, belief) for belief in beliefs), rtol=1e-5)
