"""The ensemble learns what the next state is, and how sure of it one can be."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from moca import config
from moca import moments as mm
from moca.diagnostics import describe_model
from moca.dynamics import GaussianEnsemble, bootstrap, update_statistics
from moca.propagation import propagate
from moca.replay import Transition


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
    ensemble = GaussianEnsemble(jax.random.key(0), settings, 2, 1)
    adam = optax.adam(3e-3)

    @jax.jit
    def step(carry, key):
        ensemble, optimiser = carry
        data_key, row_key = jax.random.split(key)
        s, a, following, _ = data(data_key, 256)
        ensemble = eqx.tree_at(
            lambda e: e.statistics, ensemble, update_statistics(ensemble.statistics, s, following - s)
        )
        counts = bootstrap(row_key, 3, 256)
        each = lambda m: eqx.tree_at(lambda e: e.members, ensemble, m).nll(s, a, following)  # noqa: E731
        loss = lambda m: (counts * each(m)).mean(1).sum()  # noqa: E731
        change, optimiser = adam.update(jax.grad(loss)(ensemble.members), optimiser)
        return (
            eqx.tree_at(lambda e: e.members, ensemble, eqx.apply_updates(ensemble.members, change)),
            optimiser,
        ), None

    start = (ensemble, adam.init(ensemble.members))
    (ensemble, _), _ = jax.jit(lambda s, k: jax.lax.scan(step, s, k))(start, jax.random.split(jax.random.key(1), 1500))
    return ensemble


def test_it_recovers_a_heteroscedastic_variance(trained):
    s, a, following, deviation = data(jax.random.key(5), 2000)
    matched = jax.vmap(lambda s, a: mm.moment_match(trained.predict(s, a), full=False))(s, a)
    found = jnp.sqrt(matched.variance)
    np.testing.assert_allclose(jnp.median(found / deviation, axis=0), 1, atol=0.1)
    assert np.corrcoef(found[:, 1], deviation[:, 1])[0, 1] > 0.95
    coverage = jnp.mean(jnp.abs(following - matched.mean) <= found)
    np.testing.assert_allclose(coverage, 0.683, atol=0.04)

    episode = Transition(s, a, jnp.zeros(2000), following, jnp.zeros(2000))
    told = describe_model(trained, episode, None)
    np.testing.assert_allclose(told["coverage_1sigma"], coverage, atol=1e-3)
    for percent in range(10, 100, 10):
        np.testing.assert_allclose(told[f"calibration_{percent}"], percent / 100, atol=0.04)


def test_the_mean_is_the_true_change(trained):
    s, a, _, _ = data(jax.random.key(6), 500)
    mean = jax.vmap(lambda s, a: trained.predict(s, a).mean)(s, a)
    np.testing.assert_allclose(mean, s + 0.1 * jnp.stack([s[:, 1], a[:, 0]], 1), atol=0.02)


def test_disagreement_grows_where_nothing_was_seen(trained):
    near, far = (
        mm.decompose(trained.predict(jnp.full(2, x), jnp.zeros(1)), full=False).epistemic.sum() for x in (0.0, 6.0)
    )
    assert far > 10 * near


def test_the_likelihood_is_that_of_the_prediction(trained):
    """The loss, back in the units of the state, is −log N(s′; μ, Σ) of each member's own Gaussian."""
    s, a, following, _ = data(jax.random.key(7), 50)
    loss = trained.nll(s, a, following)
    components = jax.vmap(trained.predict)(s, a).components

    def log_density(mean, covariance, x):
        return jax.scipy.stats.multivariate_normal.logpdf(x, mean, covariance)

    each = jax.vmap(jax.vmap(log_density, (0, 0, None)))(
        components.mean, jax.vmap(jax.vmap(lambda c: c.covariance))(components), following
    )
    shift = jnp.log(trained.statistics.deviation[1]).mean() + jnp.log(2 * jnp.pi) / 2
    np.testing.assert_allclose(-each.T / 2, loss + shift, rtol=2e-3, atol=2e-3)


def test_members_start_apart_and_bootstrap_draws_with_replacement():
    ensemble = GaussianEnsemble(jax.random.key(0), config.DynamicsConfig(members=4, width=8), 2, 1)
    for weight in ensemble.members.weights:
        assert len({np.asarray(own).tobytes() for own in weight}) == 4
    counts = np.asarray(bootstrap(jax.random.key(0), 4, 1000))
    np.testing.assert_array_equal(counts.astype(int).sum(1), 1000)
    np.testing.assert_allclose((counts > 0).mean(1), 1 - np.exp(-1), atol=0.05)
    assert len({own.tobytes() for own in counts}) == 4


def test_statistics_are_those_of_all_batches():
    s = jax.random.normal(jax.random.key(0), (4, 100, 3)) * jnp.array([1.0, 5.0, 0.1]) + 2
    following = s + 0.3
    statistics = GaussianEnsemble(jax.random.key(0), config.DynamicsConfig(members=1, width=4), 3, 1).statistics
    for batch, after in zip(s, following, strict=True):
        statistics = update_statistics(statistics, batch, after - batch)
    np.testing.assert_allclose(statistics.mean[0], s.reshape(-1, 3).mean(0), rtol=1e-5)
    np.testing.assert_allclose(statistics.deviation[0], s.reshape(-1, 3).std(0), rtol=1e-3)
    np.testing.assert_allclose(statistics.mean[1], 0.3, rtol=1e-5)


@pytest.mark.parametrize("covariance", ["diagonal", "full"])
def test_the_likelihood_allows_for_known_noise(covariance):
    """Against scipy, with the noise's variances added to the members' own covariance."""
    import scipy.stats

    ensemble = GaussianEnsemble(
        jax.random.key(0), config.DynamicsConfig(members=2, width=8, covariance=covariance), 3, 1
    )
    s, following = jax.random.normal(jax.random.key(1), (2, 5, 3))
    a, blur = jnp.ones((5, 1)) / 2, jnp.array([0.5, 0.1, 2.0]) * jnp.ones((5, 3))
    statistics = update_statistics(ensemble.statistics, s, following - s)
    ensemble = eqx.tree_at(lambda e: e.statistics, ensemble, statistics)
    found = ensemble.nll(s, a, following, blur)
    parts = ensemble.predict_batch(s, a).components
    for n in range(5):
        for k in range(2):
            own = np.asarray(parts.covariance[n, k], float) + np.diag(np.asarray(blur[n], float))
            exact = -scipy.stats.multivariate_normal(np.asarray(parts.mean[n, k], float), own).logpdf(following[n])
            # In units of the spread and per dimension, without the constant.
            expected = (exact - 1.5 * np.log(2 * np.pi) - np.log(np.asarray(statistics.deviation[1])).sum()) / 3
            np.testing.assert_allclose(found[k, n], expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("activation", ["gelu", "erf"])
def test_a_belief_goes_through_the_ensemble(activation):
    """Moments by matching against samples of the state, each pushed through the members."""
    settings = config.DynamicsConfig(members=2, width=16, depth=2, activation=activation)
    ensemble = GaussianEnsemble(jax.random.key(0), settings, 3, 1)
    seen = jax.random.normal(jax.random.key(1), (256, 3)) * jnp.array([1.0, 2.0, 0.5]) + 0.3
    statistics = update_statistics(ensemble.statistics, seen, 0.1 * seen + 0.2)
    ensemble = eqx.tree_at(lambda e: e.statistics, ensemble, statistics)
    root = jnp.array([[0.3, 0.0, 0.0], [0.1, 0.4, 0.0], [0.0, -0.1, 0.2]])
    belief, action = mm.Gaussian(jnp.array([0.2, -0.5, 0.4]), root @ root.T), jnp.array([0.3])
    matched = jax.jit(lambda e, b: propagate(e, b, action))(ensemble, belief).components
    states = belief.sample(jax.random.key(2), 40_000)
    each = ensemble.predict_batch(states, jnp.broadcast_to(action, (len(states), 1))).components
    own = ensemble.predict(belief.mean, action).components.variance
    for k in range(2):
        spread = np.cov(np.asarray(each.mean[:, k]).T)
        np.testing.assert_allclose(matched.mean[k], each.mean[:, k].mean(0), atol=0.01)
        np.testing.assert_allclose(matched.covariance[k] - np.diag(own[k]), spread, atol=0.01)
    exact = jax.jit(lambda e, b: propagate(e, b, action))(ensemble, mm.Gaussian(belief.mean, jnp.zeros((3, 3))))
    np.testing.assert_allclose(exact.mean, ensemble.predict(belief.mean, action).mean, atol=1e-5)


def test_silu_has_no_closed_form_and_says_so():
    ensemble = GaussianEnsemble(jax.random.key(0), config.DynamicsConfig(members=2, width=4), 3, 1)
    with pytest.raises(ValueError, match="silu have no closed form: set dynamics"):
        propagate(ensemble, mm.Gaussian(jnp.zeros(3), jnp.eye(3)), jnp.zeros(1))
