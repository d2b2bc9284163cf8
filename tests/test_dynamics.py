"""The ensemble learns what the next state is, and how sure of it one can be."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from moca import config
from moca import moments as mm
from moca.diagnostics import describe_model
from moca.dynamics import GaussianEnsemble, resample_counts, update_statistics
from moca.replay import Transition


@partial(jax.jit, static_argnums=1)
def data(key, count):
    """s′ = s + 0.1 (s₂, a) with a deviation of 0.02 in the first dimension and of 0.02 + 0.05 |s₁| in the second."""
    state_key, action_key, noise_key = jax.random.split(key, 3)
    s = jax.random.uniform(state_key, (count, 2), minval=-1.0)
    a = jax.random.uniform(action_key, (count, 1), minval=-1.0)
    deviation = jnp.stack([jnp.full(count, 0.02), 0.02 + 0.05 * jnp.abs(s[:, 0])], axis=1)
    return (
        s,
        a,
        s + 0.1 * jnp.stack([s[:, 1], a[:, 0]], 1) + deviation * jax.random.normal(noise_key, (count, 2)),
        deviation,
    )


@pytest.fixture(scope="module", params=["diagonal", "full"])
def trained(request):
    settings = config.DynamicsConfig(members=3, width=32, covariance=request.param)
    adam = optax.adam(3e-3)

    def step(carry, key):
        ensemble, optimiser = carry
        data_key, row_key = jax.random.split(key)
        s, a, following, _ = data(data_key, 256)
        ensemble = eqx.tree_at(
            lambda e: e.statistics, ensemble, update_statistics(ensemble.statistics, s, following - s)
        )
        counts = resample_counts(row_key, 3, 256)
        each = lambda m: eqx.tree_at(lambda e: e.members, ensemble, m).nll(s, a, following)  # noqa: E731
        loss = lambda m: (counts * each(m)).mean(1).sum()  # noqa: E731
        change, optimiser = adam.update(jax.grad(loss)(ensemble.members), optimiser)
        return (
            eqx.tree_at(lambda e: e.members, ensemble, eqx.apply_updates(ensemble.members, change)),
            optimiser,
        ), None

    @jax.jit
    def learned():
        ensemble = GaussianEnsemble(jax.random.key(0), settings, 2, 1)
        start = (ensemble, adam.init(ensemble.members))
        return jax.lax.scan(step, start, jax.random.split(jax.random.key(1), 1500))[0][0]

    return learned()


def test_it_recovers_a_heteroscedastic_variance(trained):
    s, a, following, deviation = jax.device_get(data(jax.random.key(5), 2000))
    match = jax.jit(jax.vmap(lambda s, a: mm.moment_match(trained.predict(s, a), full=False)))
    matched = jax.device_get(match(s, a))
    found = np.sqrt(matched.variance)
    np.testing.assert_allclose(np.median(found / deviation, axis=0), 1, atol=0.1)
    assert np.corrcoef(found[:, 1], deviation[:, 1])[0, 1] > 0.95
    coverage = np.mean(np.abs(following - matched.mean) <= found)
    np.testing.assert_allclose(coverage, 0.683, atol=0.04)

    episode = Transition(s, a, jnp.zeros(2000), following, jnp.zeros(2000))
    told = jax.jit(lambda episode: describe_model(trained, episode, None))(episode)
    np.testing.assert_allclose(told["coverage_1sigma"], coverage, atol=1e-3)
    for percent in range(10, 100, 10):
        np.testing.assert_allclose(told[f"calibration_{percent}"], percent / 100, atol=0.04)


def test_the_mean_is_the_true_change(trained):
    s, a, _, _ = jax.device_get(data(jax.random.key(6), 500))
    mean = jax.jit(jax.vmap(lambda s, a: trained.predict(s, a).mean))(s, a)
    np.testing.assert_allclose(mean, s + 0.1 * np.stack([s[:, 1], a[:, 0]], 1), atol=0.02)


def test_disagreement_grows_where_nothing_was_seen(trained):
    disagreement = lambda s: mm.decompose(trained.predict(s, jnp.zeros(1)), full=False).epistemic.sum()  # noqa: E731
    near, far = jax.jit(jax.vmap(disagreement))(jnp.array([[0.0, 0.0], [6.0, 6.0]]))
    assert far > 10 * near


def test_the_likelihood_is_that_of_the_prediction(trained):
    """The loss, back in the units of the state, is −log N(s′; μ, Σ) of each member's own Gaussian."""

    def log_density(mean, covariance, x):
        return jax.scipy.stats.multivariate_normal.logpdf(x, mean, covariance)

    @jax.jit
    def both(s, a, following):
        components = jax.vmap(trained.predict)(s, a).components
        covariances = jax.vmap(jax.vmap(lambda c: c.covariance))(components)
        each = jax.vmap(jax.vmap(log_density, (0, 0, None)))(components.mean, covariances, following)
        shift = jnp.log(trained.statistics.deviation[1]).mean() + jnp.log(2 * jnp.pi) / 2
        return -each.T / 2, trained.nll(s, a, following) + shift

    s, a, following, _ = data(jax.random.key(7), 50)
    np.testing.assert_allclose(*both(s, a, following), rtol=2e-3, atol=2e-3)


def test_members_start_apart_and_bootstrap_draws_with_replacement():
    ensemble = GaussianEnsemble(jax.random.key(0), config.DynamicsConfig(members=4, width=8), 2, 1)
    for weight in ensemble.members.weights:
        assert len({np.asarray(own).tobytes() for own in weight}) == 4
    counts = np.asarray(resample_counts(jax.random.key(0), 4, 1000))
    np.testing.assert_array_equal(counts.astype(int).sum(1), 1000)
    np.testing.assert_allclose((counts > 0).mean(1), 1 - np.exp(-1), atol=0.05)
    assert len({own.tobytes() for own in counts}) == 4


def test_statistics_are_those_of_all_batches():
    s = np.asarray(jax.random.normal(jax.random.key(0), (4, 100, 3))) * np.array([1.0, 5.0, 0.1], np.float32) + 2
    following = s + np.float32(0.3)
    made = jax.jit(lambda key: GaussianEnsemble(key, config.DynamicsConfig(members=1, width=4), 3, 1).statistics)
    statistics, update = made(jax.random.key(0)), jax.jit(update_statistics)
    for batch, after in zip(s, following, strict=True):
        statistics = update(statistics, batch, after - batch)
    np.testing.assert_allclose(statistics.mean[0], s.reshape(-1, 3).mean(0), rtol=1e-5)
    np.testing.assert_allclose(statistics.deviation[0], s.reshape(-1, 3).std(0), rtol=1e-3)
    np.testing.assert_allclose(statistics.mean[1], 0.3, rtol=1e-5)


@pytest.mark.parametrize("covariance", ["diagonal", "full"])
def test_the_likelihood_allows_for_known_noise(covariance):
    """Against scipy, with the noise's variances added to the members' own covariance."""
    import scipy.stats

    settings = config.DynamicsConfig(members=2, width=8, covariance=covariance)
    s, following = np.asarray(jax.random.normal(jax.random.key(1), (2, 5, 3)))
    a, blur = np.full((5, 1), 0.5, np.float32), np.array([0.5, 0.1, 2.0], np.float32) * np.ones((5, 3), np.float32)

    @jax.jit
    def asked(s, following):
        ensemble = GaussianEnsemble(jax.random.key(0), settings, 3, 1)
        statistics = update_statistics(ensemble.statistics, s, following - s)
        ensemble = eqx.tree_at(lambda e: e.statistics, ensemble, statistics)
        parts = ensemble.predict_batch(s, a).components
        return ensemble.nll(s, a, following, blur), parts.mean, parts.covariance, statistics.deviation[1]

    found, means, covariances, unit = map(np.asarray, asked(s, following))
    for n in range(5):
        for k in range(2):
            own = covariances[n, k].astype(float) + np.diag(blur[n].astype(float))
            exact = -scipy.stats.multivariate_normal(means[n, k].astype(float), own).logpdf(following[n])
            # In units of the spread and per dimension, without the constant.
            expected = (exact - 1.5 * np.log(2 * np.pi) - np.log(unit).sum()) / 3
            np.testing.assert_allclose(found[k, n], expected, rtol=1e-3, atol=1e-4)
