"""Algorithm 1's exploration: how often, how wide, and never outside."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moca.agents.quadratic import perturbed
from moca.config import ExplorationConfig
from moca.exploration import Explore, draw_exploration


def draws(fraction, greedy=0.0, **settings):
    chosen = ExplorationConfig(**settings)
    drawn = draw_exploration(jax.random.key(0), chosen, 20_000, 1)
    act = lambda d: perturbed(chosen, jnp.array([greedy]), Explore(d, jnp.array(0), jnp.array(fraction)))  # noqa: E731
    return np.asarray(jax.vmap(act)(drawn))[:, 0]


@pytest.mark.parametrize(("fraction", "sigma"), [(0.0, 0.3), (0.25, 0.2), (0.5, 0.1), (0.9, 0.1)])
def test_the_deviation_is_annealed_linearly_over_the_first_half(fraction, sigma):
    action = draws(fraction, probability=0.0, probability_end=0.0, sigma=0.3, sigma_end=0.1, anneal=0.5)
    np.testing.assert_allclose(action.std(), sigma, rtol=0.03)


def test_a_share_of_the_actions_is_uniform():
    action = draws(0.0, greedy=1.0, probability=0.2, sigma=0.0, sigma_end=0.0)
    away = action[action < 1]
    np.testing.assert_allclose(len(away) / len(action), 0.2, atol=0.01)
    later = draws(0.25, greedy=1.0, probability=0.2, probability_end=0.0, sigma=0.0, sigma_end=0.0, anneal=0.5)
    np.testing.assert_allclose(np.mean(later < 1), 0.1, atol=0.01)
    np.testing.assert_allclose([away.mean(), away.std()], [0, 3**-0.5], atol=0.02)


def test_actions_stay_in_the_box():
    action = draws(0.0, greedy=0.9, sigma=1.0)
    assert np.abs(action).max() <= 1


def test_random_actions_are_held():
    """A share of the time, for a geometric number of decisions with the mean that was asked for."""
    action = draws(0.0, greedy=0.5, probability=0.3, sigma=0.0, sigma_end=0.0, hold=20.0)
    random = action != 0.5
    np.testing.assert_allclose(random.mean(), 0.3, atol=0.05)
    changes = np.flatnonzero(np.diff(action) != 0)
    # Greedy phases that follow each other are one, so look at phases that begin and end with a random action.
    lengths = np.diff(changes)[random[changes[:-1] + 1]]
    np.testing.assert_allclose(lengths.mean(), 20, rtol=0.15)
    np.testing.assert_allclose(np.mean(lengths > 20), np.exp(-1), atol=0.08)


def test_a_hold_of_one_draws_every_decision_anew():
    action = draws(0.0, probability=1.0, probability_end=1.0)
    assert len(np.unique(action)) > 19_000


def test_extreme_actions_are_the_two_ends():
    action = draws(0.0, probability=1.0, random="extreme")
    assert set(np.unique(action)) == {-1.0, 1.0}
    np.testing.assert_allclose(action.mean(), 0, atol=0.03)
