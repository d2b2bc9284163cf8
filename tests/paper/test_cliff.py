"""The cliff: the exact planner against simulation and quadrature, the ground itself, and the trained comparison."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moca.config import override
from moca.paper import cliff


def moves(env, y, action, count=20_000):
    """The positions that follow y."""
    keys = jax.random.split(jax.random.key(0), count)
    return np.asarray(jax.vmap(lambda k: env.step((jnp.asarray(y), k), jnp.array([action]))[1].observation[0])(keys))


@pytest.mark.parametrize(("y", "grip"), [(0.6, 1.0), (cliff.EDGE, 1.0), (1.2, 0.05)])
def test_the_ground_moves_as_it_should(y, grip):
    found = moves(cliff.SETTINGS["cliff"], y, 0.5)
    np.testing.assert_allclose(found.mean(), y + grip * 0.05, atol=4 * grip * 0.1 / np.sqrt(len(found)))
    np.testing.assert_allclose(found.std(), grip * 0.1, rtol=0.03)
    np.testing.assert_allclose(moves(cliff.SETTINGS["hill"], 1.2, 0.5).std(), 0.1, rtol=0.03)


def test_nothing_is_earned_beyond_the_edge_of_the_cliff_alone():
    for y, on_cliff in ((0.5, np.exp(-0.5)), (1.0, 1.0), (1.1, 0.0)):
        rewards = [float(env.reward(jnp.asarray(y))) for env in cliff.SETTINGS.values()]
        np.testing.assert_allclose(rewards, [on_cliff, np.exp(-(((y - 1) / 0.5) ** 2) / 2)], rtol=1e-6)


def test_the_expectation_of_a_piecewise_linear_value():
    """Against brute quadrature, with the ends cut off."""
    y = np.linspace(0, cliff.END, 61)
    value = np.random.default_rng(0).normal(size=61)
    normal = np.linspace(-8, 8, 40_001)
    density = np.exp(-(normal**2) / 2) / np.exp(-(normal**2) / 2).sum()
    expected = [density @ np.interp(m + 0.1 * normal, y, value) for m in y]  # np.interp cuts off at the ends itself
    np.testing.assert_allclose(cliff._smoothing(y, 0.1) @ value, expected, atol=1e-6)


@pytest.mark.parametrize("certain", [False, True])
def test_the_score_is_what_the_environment_pays(certain):
    """Discounted rewards of 20,000 simulated episodes, for the best policy and for the one that ignores the noise."""
    env = cliff.SETTINGS["cliff"]
    planner = cliff.Planner(env)
    _, action = cliff.Planner(env, certain).best()

    def episode(key):
        def step(carry, discount):
            state, y = carry
            state, (following, reward, _) = env.step(state, jnp.interp(y, planner.y, action))
            return (state, following), discount * reward

        return jax.lax.scan(step, env.reset(key), cliff.GAMMA ** jnp.arange(200.0))[1].sum()

    returns = (1 - cliff.GAMMA) * jax.vmap(episode)(jax.random.split(jax.random.key(1), 20_000))
    np.testing.assert_allclose(planner.score(action), returns.mean(), atol=0.005)


def test_no_policy_is_better_than_the_best():
    planner = cliff.Planner(cliff.SETTINGS["cliff"])
    value, action = planner.best()
    np.testing.assert_allclose(planner.value(action), value)
    rng = np.random.default_rng(0)
    for width in (0.05, 0.3, 1.0):
        other = np.clip(action + rng.normal(scale=width, size=action.shape), -1, 1)
        assert (planner.value(other) <= value + 1e-3).all()  # the best of 81 actions
    assert planner.score(np.ones_like(action)) < planner.score(action) - 0.3


def test_what_certainty_equivalence_loses():
    """More than half on the cliff, nothing on the hill, and nothing on a cliff without noise."""
    found = cliff.exact("cliff")
    np.testing.assert_allclose([found["optimum"], found["certainty_equivalent"]], [0.742, 0.293], atol=0.002)
    np.testing.assert_allclose([found["optimum_margin"], found["certainty_equivalent_margin"]], [0.26, 0], atol=0.006)
    found = cliff.exact("hill")
    np.testing.assert_allclose([found["optimum"], found["certainty_equivalent"]], 0.859, atol=0.001)
    still = cliff.Ground(noise=0.0)
    values = [cliff.Planner(still, certain).best()[0] for certain in (False, True)]
    np.testing.assert_allclose(*values)


def test_the_margin_grows_with_the_noise():
    margins = []
    for noise in (0.0, 0.02, 0.05, 0.1, 0.15):
        planner = cliff.Planner(cliff.Ground(noise=noise))
        margins.append(planner.margin(planner.best()[1]))
    np.testing.assert_allclose(margins, [0, 0.06, 0.14, 0.26, 0.375], atol=0.006)


@pytest.mark.slow
def test_trained_agents():
    """MoCA comes near the optimum of the cliff; certainty equivalence stays far below it."""
    scores = {}
    for name in ("moca", "moca-ce"):
        config = override(cliff.CONFIG, cliff.AGENTS[name])
        scores[name] = cliff.train(config, cliff.SETTINGS["cliff"], 4).curve[:, -1]
    assert scores["moca"].min() > 0.70
    assert scores["moca-ce"].mean() < 0.62
