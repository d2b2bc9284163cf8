"""What evaluations measure beside returns: how much V promises too much, and how much noise makes it vary."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moca import moments as mm
from moca.config import Config, override
from moca.diagnostics import describe_bias, stakes
from moca.drivers import ScanTrainer
from moca.evaluation import SCORES, Episode, overestimation, value_noise_variance
from tests import probes

GAMMA = 0.9


def episode(reward, value, after, running=None, terminated=None):
    count = len(reward)
    never = jnp.zeros(count, bool)
    running = ~never if running is None else jnp.array(running)
    terminated = never if terminated is None else jnp.array(terminated)
    value, after = (jnp.broadcast_to(jnp.asarray(each, float), (count,)) for each in (value, after))
    return Episode(jnp.asarray(reward, float), running, terminated, value, after, after)


def test_the_true_value_is_no_overestimate_and_a_surplus_is_one():
    """Reward one for ever is worth 1 / (1 − γ); a surplus b is seen as b (1 − γⁿ), n the decisions that are left."""
    rewards = np.ones(8)
    np.testing.assert_allclose(overestimation(episode(rewards, 10.0, 10.0), GAMMA), 0, atol=1e-5)
    expected = np.mean([2 * (1 - GAMMA**n) for n in (8, 7, 6, 5)])
    np.testing.assert_allclose(overestimation(episode(rewards, 12.0, 12.0), GAMMA), expected, rtol=1e-5)


def test_nothing_follows_an_end_and_a_time_limit_is_no_end():
    rewards, running = [1.0, 1.0, 0.0, 0.0], [True, True, False, False]
    ends = episode(rewards, 0.0, 5.0, running, [False, True, True, True])
    np.testing.assert_allclose(overestimation(ends, GAMMA), -np.mean([1 + GAMMA, 1]), rtol=1e-6)
    cut = episode(rewards, 0.0, 5.0, running)
    np.testing.assert_allclose(
        overestimation(cut, GAMMA), -np.mean([1 + GAMMA + GAMMA**2 * 5, 1 + GAMMA * 5]), rtol=1e-6
    )


def agent(filtered):
    return SimpleNamespace(config=override(Config(), {"belief.filter": filtered, "train.gamma": GAMMA, "agent": "sac"}))


def test_the_variance_of_an_observed_target():
    normal = 3 * jax.random.normal(jax.random.key(0), (2, 50_000)) + 7
    seen = episode(np.zeros(50_000), 0.0, normal[0])._replace(value_again=normal[1])
    np.testing.assert_allclose(value_noise_variance(agent(False), seen), (3 * GAMMA) ** 2, rtol=0.03)
    assert np.isnan(value_noise_variance(agent(True), seen))
    half = seen._replace(running=jnp.arange(50_000) < 25_000, value_again=normal[1].at[25_000:].set(1e6))
    np.testing.assert_allclose(value_noise_variance(agent(False), half), (3 * GAMMA) ** 2, rtol=0.04)


def test_without_noise_targets_do_not_vary_and_with_noise_they_do():
    settings = {
        "agent": "bnaf",
        "value__low": (-1.0, -1.0),
        "value__high": (1.0, 1.0),
        "value__lengthscales": (0.5, 0.5),
    }
    small = {"critic__width": 8, "value__bases": 8, "value__lr": 1e-2}
    configs = [probes.tiny(**settings, **small, noise__sigma=sigma) for sigma in (0.0, 0.3)]
    *_, report = ScanTrainer(configs, [0, 0], probes.Drift())
    assert set(SCORES) <= set(report.metrics)
    none, some = report.metrics["value_noise_variance"]
    assert none == 0
    assert some > 0


def gaussians(means, variances):
    """One-dimensional predictions of a single member each."""
    components = mm.DiagonalGaussian(jnp.array(means)[:, None, None], jnp.array(variances)[:, None, None])
    return mm.GaussianMixture(jnp.ones((len(means), 1)), components)


def test_what_certainty_equivalence_leaves_out_by_hand():
    """E[−x²] = −m² − v: the bias is −v, and between two actions it changes by the difference of the variances."""
    square = mm.Quadratic(jnp.array([[-2.0]]), jnp.zeros(1))
    taken = gaussians([0.0, 1.0, 2.0], [0.1, 0.2, 0.3])
    ends = gaussians([1.0, 1.0, 1.0], [0.1, 0.1, 0.1]), gaussians([2.0, 2.0, 2.0], [0.4, 0.4, 0.4])
    found = describe_bias(stakes(taken, ends, square))
    expected = {
        "ce_bias": -0.2,
        "ce_bias_std": np.std([0.1, 0.2, 0.3]),
        "expected_std": np.std([-0.1, -1.2, -4.3]),
        "action_gap": 4.4 - 1.1,
        "ce_gap": 0.3,
    }
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, err_msg=name)


@pytest.mark.parametrize("probability", [pytest.param(0.0, marks=pytest.mark.slow), 1.0])
def test_sac_takes_the_random_actions_that_others_take(probability):
    """At probability one every action is random, as in the warm-up: at the ends, and held."""
    settings = {"sac__probability": probability, "exploration__random": "extreme", "exploration__hold": 5.0}
    runs = ScanTrainer([probes.tiny(train__steps=200, **settings)], [0], probes.Drift())
    for _ in runs:
        pass
    actions = np.asarray(runs.state.replay)[0, 20:, 2]
    extreme = np.abs(actions) == 1
    assert extreme.all() == (probability == 1)
