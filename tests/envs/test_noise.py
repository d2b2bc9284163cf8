"""Observation noise: its size, its formula, its independence, and what it leaves alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moca import config, presets
from moca.drivers import ScanTrainer
from moca.envs.environment import make_noise
from tests import probes


def noise(size=5, **settings):
    return make_noise(config.NoiseConfig(**settings), size)


@pytest.mark.parametrize("sigma", [0.025, 0.05])
def test_homoscedastic_deviation(sigma):
    observation = jnp.array([0.3, -1.0, 0.2, 4.0, -7.0])
    normal = jax.random.normal(jax.random.key(0), (40_000, 5))
    seen = jax.vmap(noise(sigma=sigma), (None, 0))(observation, normal)
    np.testing.assert_allclose(seen.std(0), sigma, rtol=0.02)
    np.testing.assert_allclose(seen.mean(0), observation, atol=4 * sigma / np.sqrt(len(normal)))
    correlation = np.corrcoef((seen - observation).T) - np.eye(5)
    assert np.abs(correlation).max() < 0.03


# σ = σ_min + (σ_max − σ_min) clip(‖(x / 2.4, ẋ / 2, θ̇ / 3)‖ / √3, 0, 1), worked out by hand.
BY_HAND = [
    ([0.0, 1.0, 0.0, 0.0, 0.0], 0.0, 0.05, 0.0),
    ([2.4, 0.0, 1.0, 2.0, 3.0], 0.0, 0.05, 0.05),
    ([2.4, 5.0, 9.0, 0.0, 0.0], 0.0, 0.05, 0.05 / 3**0.5),  # sine and cosine do not count
    ([0.0, 1.0, 0.0, -1.0, 0.0], 0.0, 0.05, 0.05 * 0.5 / 3**0.5),
    ([9.0, 1.0, 0.0, 9.0, 9.0], 0.0, 0.05, 0.05),  # clipped
    ([0.0, 1.0, 0.0, 0.0, 3.0], 0.01, 0.05, 0.01 + 0.04 / 3**0.5),
]


@pytest.mark.parametrize(("state", "low", "high", "expected"), BY_HAND)
def test_state_norm_formula(state, low, high, expected):
    scales = presets.ENVIRONMENTS["CartpoleBalance"]["noise.scales"]
    scaled = noise(kind="state-norm", sigma_min=low, sigma=high, scales=scales)
    np.testing.assert_allclose(scaled.deviation(jnp.array(state)), expected, rtol=1e-6, atol=1e-9)


def test_state_norm_deviation_is_what_is_drawn():
    scales = presets.ENVIRONMENTS["CartpoleBalance"]["noise.scales"]
    scaled = noise(kind="state-norm", sigma=0.05, scales=scales)
    observation = jnp.array([1.2, 1.0, 0.0, 1.0, -2.0])
    seen = jax.vmap(scaled, (None, 0))(observation, jax.random.normal(jax.random.key(0), (40_000, 5)))
    np.testing.assert_allclose(seen.std(0), scaled.deviation(observation), rtol=0.02)


def test_scales_of_another_dimension_are_refused():
    with pytest.raises(config.ConfigError, match=r"noise.scales has 2 numbers, but there are 5 observed dimensions"):
        noise(kind="state-norm", scales=(1.0, 2.0))


@pytest.fixture(scope="module")
def memories():
    """What 400 runs stored without noise and what the same stored with it: observations, actions, rewards and the next.

    All actions are random, so that physics cannot depend on what is seen.
    """
    configs = [probes.tiny(train__warmup=1000, noise__sigma=sigma) for sigma in (0.0, 0.5)]
    runs = ScanTrainer([config for config in configs for _ in range(400)], [*range(400)] * 2, probes.Drift())
    for _ in runs:
        pass
    rows = np.asarray(runs.state.replay)
    return [(own[:, :, :2], own[:, :, 2:3], own[:, :, 3], own[:, :, 4:6]) for own in (rows[:400], rows[400:])]


def test_physics_and_rewards_are_bitwise_those_without_noise(memories):
    (_, actions, rewards, _), (seen, noisy_actions, noisy_rewards, _) = memories
    np.testing.assert_array_equal(actions, noisy_actions)
    np.testing.assert_array_equal(rewards, noisy_rewards)
    assert seen.std() > 0.4


def test_one_noisy_observation_is_both_next_and_first(memories):
    observation, _, _, following = memories[1]
    same = (observation[:, 1:] == following[:, :-1]).all(axis=2)
    boundaries = np.arange(1, observation.shape[1]) % 20 == 0
    assert same[:, ~boundaries].all()
    assert not same[:, boundaries].any()


def test_a_disturbance_is_in_units_of_half_the_range_and_stays_within_the_bounds():
    spaces = probes.Constant()  # actions from −1 to 2
    normal = jax.random.normal(jax.random.key(0), (40_000, 1))
    disturb = lambda level, action: np.asarray(  # noqa: E731
        jax.vmap(lambda n: noise(action=level).disturb(spaces, jnp.array([action]), n))(normal)
    )
    np.testing.assert_allclose(disturb(0.1, 0.5).std(), 0.1 * 1.5, rtol=0.02)
    np.testing.assert_allclose(disturb(0.1, 0.5).mean(), 0.5, atol=0.01)
    assert (disturb(1.0, 0.5).min(), disturb(1.0, 0.5).max()) == (-1, 2)
    assert (disturb(0.0, 0.7) == np.float32(0.7)).all()


def test_what_is_stored_is_the_chosen_action_and_what_moves_the_world_the_disturbed_one():
    """In Drift the second dimension tells which action was executed."""
    runs = ScanTrainer(
        [probes.tiny(train__warmup=1000, noise__action=level) for level in (0.0, 0.4)], [0, 0], probes.Drift()
    )
    *_, report = runs
    rows = np.asarray(runs.state.replay)
    chosen, executed = rows[:, :, 2], (rows[:, :, 5] - 0.9 * rows[:, :, 1]) / 0.1
    np.testing.assert_allclose(executed[0], chosen[0], atol=1e-5)
    np.testing.assert_array_equal(chosen[1], chosen[0])  # of the same seed
    inside = np.abs(executed[1]) < 0.999
    added = (executed[1] - chosen[1])[inside]
    assert 0.2 < added.std() < 0.45
    assert np.abs(executed).max() <= 1 + 1e-5
    assert np.diff(report.metrics["return_noise_free"]) != 0  # evaluations are disturbed, too


def test_noise_is_independent_of_the_reset(memories):
    """Over many runs, the first noise says nothing about the state it was added to."""
    first = memories[0][0][:, 0]
    added = memories[1][0][:, 0] - first
    correlation = np.corrcoef(np.concatenate([first, added], axis=1).T)
    assert np.abs(correlation[:2, 2:]).max() < 4 / np.sqrt(400)
