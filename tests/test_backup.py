"""One target for all agents: how they relate."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moca import moments as mm
from moca.backup import bellman_target, samples_of_it
from moca.config import AGENTS
from moca.critic import twin_axes

VALUES = {
    "rbf": lambda k: mm.RBF(jax.random.normal(k, (8,)), jax.random.normal(jax.random.key(5), (8, 3)), jnp.ones(3)),
    "erf": lambda k: mm.Erf(jax.random.normal(k, (8,)), jax.random.normal(jax.random.key(5), (8, 3)), jnp.zeros(8)),
    "quadratic": lambda k: mm.Quadratic(jnp.diag(jax.random.normal(k, (3,))), jnp.ones(3)),
}


def twins(kind):
    """Two of a kind: weights of their own, bases that they share."""
    both = jax.vmap(VALUES[kind])(jax.random.split(jax.random.key(0)))
    return jax.tree.map(
        lambda axis, leaf: leaf if axis == 0 else leaf[0], twin_axes(both), both, is_leaf=lambda x: x is None
    )


def mixture(spread=0.3, apart=0.5):
    means = apart * jax.random.normal(jax.random.key(1), (4, 3))
    return mm.GaussianMixture(jnp.full(4, 0.25), mm.DiagonalGaussian(means, jnp.full((4, 3), spread**2)))


def target(agent, kind, p=None, key=None, samples=4):
    prediction = AGENTS[agent].prediction()(
        mixture() if p is None else p, jax.random.key(0) if key is None else key, samples
    )
    return bellman_target(jnp.ones(1), jnp.zeros(1), 0.9, batch_of_one(prediction), twins(kind))[0]


def batch_of_one(prediction):
    return jax.tree.map(lambda leaf: leaf[None], prediction)


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize(("x64", "tolerance"), [(False, 1e-6), (True, 1e-13)])
def test_without_covariance_moca_is_certainty_equivalence(kind, x64, tolerance):
    with jax.enable_x64(x64):
        p = mixture(spread=0.0, apart=0.0)
        np.testing.assert_allclose(target("moca", kind, p), target("moca-ce", kind, p), rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(target("moca-mixture", kind, p), target("moca-ce", kind, p), rtol=tolerance)


@pytest.mark.parametrize("kind", VALUES)
def test_with_covariance_they_differ(kind):
    values = [float(target(agent, kind)) for agent in ("moca", "moca-ce")]
    assert abs(values[0] - values[1]) > 1e-3


def test_members_that_agree_make_the_mixture_the_match():
    p = mixture(apart=0.0)
    np.testing.assert_allclose(target("moca", "rbf", p), target("moca-mixture", "rbf", p), rtol=1e-6)
    assert abs(float(target("moca", "rbf")) - float(target("moca-mixture", "rbf"))) > 1e-4


@pytest.mark.parametrize("twin", [0, 1])
def test_monte_carlo_is_unbiased_per_critic_and_its_variance_falls_as_one_over_k(twin):
    """Before the twin minimum."""
    value = VALUES["rbf"](jax.random.split(jax.random.key(0))[twin])
    matched = mm.moment_match(mixture())
    variances = []
    for samples in (4, 16):
        draw = jax.vmap(lambda k, n=samples: mm.expectation(samples_of_it(mixture(), k, n), value))
        each = np.asarray(draw(jax.random.split(jax.random.key(2), 20_000)))
        assert abs(each.mean() - float(mm.expectation(matched, value))) < 4 * each.std() / np.sqrt(len(each))
        variances.append(each.var())
        np.testing.assert_allclose(each.var(), mm.variance(matched, value) / samples, rtol=0.1)
    np.testing.assert_allclose(variances[0] / variances[1], 4, rtol=0.1)


def test_the_minimum_of_sampled_twins_is_biased_downwards():
    """E[min] ≤ min E, strictly when the twins are close: sampling makes the target pessimistic."""
    exact = float(target("moca", "rbf"))
    for samples in (1, 4, 16):
        each = jax.vmap(lambda k, n=samples: target("moca-mc", "rbf", key=k, samples=n))(
            jax.random.split(jax.random.key(3), 20_000)
        )
        standard_error = float(each.std()) / np.sqrt(len(each))
        assert float(each.mean()) < exact + 4 * standard_error


def test_the_end_cuts_the_future_off():
    prediction = mm.Dirac(jnp.zeros(3))
    assert bellman_target(jnp.full(1, 2.0), jnp.ones(1), 0.9, batch_of_one(prediction), twins("rbf")) == 2


def test_bnaf_by_hand():
    """r + γ minᵢ Σⱼ wᵢⱼ exp(−½ ‖s′ − cⱼ‖²), in NumPy."""
    values, s = twins("rbf"), np.array([0.3, -0.2, 0.1], np.float32)
    features = np.exp(-((s - np.asarray(values.centers, np.float64)) ** 2).sum(1) / 2)
    truth = 1 + 0.9 * (np.asarray(values.weights, np.float64) @ features).min()
    found = bellman_target(jnp.ones(1), jnp.zeros(1), 0.9, mm.Dirac(s[None]), values)
    np.testing.assert_allclose(found[0], truth, rtol=1e-5)


def test_the_expectation_stays_within_the_bounds():
    predictions = mm.Dirac(jnp.zeros((3, 1)))
    for value, kept in ((-5.0, 0.0), (3.0, 3.0), (50.0, 10.0)):
        values = jax.tree.map(lambda leaf: jnp.stack([leaf] * 2), mm.Quadratic(jnp.zeros((1, 1)), jnp.zeros(1), value))
        target = bellman_target(jnp.ones(3), jnp.array([0.0, 0.0, 1.0]), 0.9, predictions, values, (0.0, 10.0))
        np.testing.assert_allclose(target, [1 + 0.9 * kept, 1 + 0.9 * kept, 1.0])
