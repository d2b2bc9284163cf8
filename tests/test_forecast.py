"""Forecasts: against the recursion of state and belief together, by matrices alone."""

from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moca.agents import make_agent
from moca.belief import Belief, Unfiltered
from moca.forecast import forecast_policy
from tests import probes
from tests.test_planning import APART, GAMMA, NOISE, A, B, K, linear_world, quadratic_reward, settings, textbook

ERRORS = np.array([0.04, 0.01])  # of the sensor, deviations
Q = np.diag(NOISE**2) + np.mean([np.outer(d, d) for d in APART - APART.mean(0)], axis=0)


class Told(Unfiltered):
    """A filter that knows the noise."""

    def noise_variance(self, model, observation):
        return jnp.broadcast_to(jnp.asarray(ERRORS**2), observation.shape)


@eqx.filter_jit
def ahead(world, filter, belief, steps):
    return forecast_policy(world._replace(filter=filter), belief, steps)


def test_with_a_filter_it_is_the_recursion_of_state_and_belief():
    """(s, m) is one linear system: s′ = A s + B K m + w, and m′ is Kalman's, from the observation of s′."""
    with jax.enable_x64(True):
        world, m, P = linear_world(quadratic_reward()), np.array([0.1, -0.05]), np.array([[4e-4, 1e-4], [1e-4, 2e-4]])
        found = ahead(world, Told(), Belief(jnp.asarray(m), jnp.asarray(P)), 6)
        mean, joint = m, np.block([[P, np.zeros((2, 2))], [np.zeros((2, 4))]])
        for k in range(6):
            np.testing.assert_allclose(found.action[k], K @ mean, atol=1e-9)
            prior = A @ P @ A.T + Q
            gain = prior @ np.linalg.inv(prior + np.diag(ERRORS**2))
            both = np.block([[A, B @ K], [gain @ A, A + B @ K - gain @ A]])
            noises = np.block([[Q, Q @ gain.T], [gain @ Q, gain @ (Q + np.diag(ERRORS**2)) @ gain.T]])
            joint, P = both @ joint @ both.T + noises, prior - gain @ prior
            mean = (A + B @ K) @ mean + APART.mean(0)
            np.testing.assert_allclose(found.mean[k], mean, atol=1e-9)
            np.testing.assert_allclose(found.covariance[k], joint[:2, :2], rtol=1e-6, atol=1e-11)


def test_without_a_filter_it_is_the_textbook_recursion():
    with jax.enable_x64(True):
        world, m = linear_world(quadratic_reward()), np.array([0.1, -0.05])
        found = ahead(world, Unfiltered(), Belief(jnp.asarray(m), None), 4)
        total, mean, covariance = textbook(m, np.zeros((2, 2)), 4, world.reward, world.model.ensemble.statistics)
        np.testing.assert_allclose(found.mean[-1], mean, atol=1e-9)
        np.testing.assert_allclose(found.covariance[-1], covariance, atol=1e-9)
        np.testing.assert_allclose(np.sum(GAMMA ** np.arange(1, 5) * found.reward), total, rtol=1e-9)
        assert ahead(world._replace(reward=None), Unfiltered(), Belief(jnp.asarray(m), None), 4).reward is None


@pytest.mark.parametrize("more", [{"agent": "sac"}, {"belief__filter": True, "belief__width": True}])
def test_some_agents_cannot_tell(more):
    agent = make_agent(settings(**more), probes.Drift())
    assert agent.forecast(SimpleNamespace(model=object()), Belief(jnp.zeros(2), None), 3) is None
