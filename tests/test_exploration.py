"""Algorithm 1's exploration: how often, how wide, and never outside."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moca.config import Exploration
from moca.exploration import explore, roll


def draws(fraction, greedy=0.0, **settings):
    chosen = Exploration(**settings)
    keys = jax.random.split(jax.random.key(0), 20_000)
    return np.asarray(jax.vmap(lambda k: explore(chosen, jnp.array([greedy]), roll(k, 1), jnp.array(fraction)))(keys))[
        :, 0
    ]


@pytest.mark.parametrize(("fraction", "sigma"), [(0.0, 0.3), (0.25, 0.2), (0.5, 0.1), (0.9, 0.1)])
def test_the_deviation_is_annealed_linearly_over_the_first_half(fraction, sigma):
    action = draws(fraction, probability=0.0, sigma=0.3, sigma_end=0.1, anneal=0.5)
    np.testing.assert_allclose(action.std(), sigma, rtol=0.03)


def test_a_share_of_the_actions_is_uniform():
    action = draws(0.0, greedy=1.0, probability=0.2, sigma=0.0, sigma_end=0.0)
    away = action[action < 1]
    np.testing.assert_allclose(len(away) / len(action), 0.2, atol=0.01)
    np.testing.assert_allclose([away.mean(), away.std()], [0, 3**-0.5], atol=0.02)


def test_actions_stay_in_the_box():
    action = draws(0.0, greedy=0.9, sigma=1.0)
    assert np.abs(action).max() <= 1
