"""Gaussian processes at uncertain inputs, beside PILCO's published formulas and samples."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moca import moments as mm
from tests.moments import pilco, problems, reference
from tests.moments.test_identities import check_gradient

predict = jax.jit(lambda p, gp: mm.propagate(p, gp, joint=True))
expectation, covariance = jax.jit(mm.expectation), jax.jit(lambda p, gp: mm.covariance(p, gp))
posterior = jax.jit(lambda gp, x: jax.vmap(gp.posterior)(x))
likelihood = jax.jit(lambda gp: gp.log_likelihood())


def process(rng, n=20, d=3, m=2, dtype=np.float64):
    """A GP on random data, with hyper-parameters of each output's own."""
    inputs = rng.normal(size=(n, d))
    targets = np.stack([np.sin(inputs @ rng.normal(size=d)) for _ in range(m)], 1)
    given = inputs, targets, rng.uniform(0.8, 2, (m, d)), rng.uniform(0.5, 2, m), rng.uniform(0.01, 0.1, m)
    return mm.GP(*(np.asarray(each, dtype) for each in given))


def published(gp, p):
    arrays = gp.inputs, gp.targets, gp.lengthscales, gp.signal, gp.noise, p.mean, p.covariance
    return pilco.predict(*(np.asarray(each, np.float64) for each in arrays))


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        ("Gaussian", np.float64),
        ("DiagonalGaussian", np.float32),
        pytest.param("Gaussian", np.float32, marks=pytest.mark.slow),
        pytest.param("DiagonalGaussian", np.float64, marks=pytest.mark.slow),
    ],
)
def test_agrees_with_pilcos_formulas(kind, dtype):
    """Relative to what is natural: the signal for variances, its root for means, times the deviation of x across."""
    rng = np.random.default_rng(0)
    for spread in (0.05, 0.6, 3.0):
        gp, p = process(rng, dtype=dtype), problems.distribution(kind, rng, 3, spread, dtype)
        mean, covariance, cross = published(gp, p)
        q = predict(p, gp)
        assert q.mean.dtype == dtype
        tolerance = {np.float64: 1e-10, np.float32: 2e-5}[dtype]
        signal, deviation = np.sqrt(np.asarray(gp.signal)), np.sqrt(np.asarray(p.variance))
        for got, truth, scale in (
            (q.mean[3:], mean, signal),
            (q.covariance[3:, 3:], covariance, np.outer(signal, signal)),
            (q.covariance[:3, 3:], np.asarray(p.covariance) @ cross, np.outer(deviation, signal)),
        ):
            assert (np.abs(np.asarray(got, np.float64) - truth) <= tolerance * scale).all()


def test_in_one_dimension_by_integration():
    """Means and variances of the posterior, integrated over the input."""
    rng = np.random.default_rng(1)
    gp, p = process(rng, 6, 1), problems.distribution("Gaussian", rng, 1)
    x, over = reference.tensor_rule(np.asarray(p.mean), np.asarray(p.covariance))
    means, variances = map(np.asarray, posterior(gp, x))
    mean = over @ means
    truth = (means - mean).T @ (over[:, None] * means) + np.diag(over @ variances)
    np.testing.assert_allclose(expectation(p, gp), mean, rtol=1e-11)
    np.testing.assert_allclose(covariance(p, gp), truth, rtol=1e-9, atol=1e-12)
    parts = p, mm.Gaussian(p.mean + 1, p.covariance)
    gap = expectation(parts[0], gp) - expectation(parts[1], gp)
    truth = 0.4 * covariance(parts[0], gp) + 0.6 * covariance(parts[1], gp) + 0.24 * np.outer(gap, gap)
    np.testing.assert_allclose(covariance(mm.GaussianMixture([0.4, 0.6], parts), gp), truth, rtol=1e-10)


def test_at_a_point_it_is_the_posterior():
    rng = np.random.default_rng(0)
    gp, x = process(rng), rng.normal(size=3)
    mean, variance = (each[0] for each in posterior(gp, x[None]))
    k = np.asarray(gp.signal)[:, None] * np.exp(
        -(((x - np.asarray(gp.inputs)) / np.asarray(gp.lengthscales)[:, None]) ** 2).sum(-1) / 2
    )
    z = np.asarray(gp.inputs)[None] / np.asarray(gp.lengthscales)[:, None]
    K = np.asarray(gp.signal)[:, None, None] * np.exp(-((z[:, :, None] - z[:, None]) ** 2).sum(-1) / 2)
    K = K + np.asarray(gp.noise)[:, None, None] * np.eye(20)
    np.testing.assert_allclose(mean, np.einsum("an,anm,ma->a", k, np.linalg.inv(K), gp.targets), rtol=1e-9)
    np.testing.assert_allclose(variance, gp.signal - np.einsum("an,anm,am->a", k, np.linalg.inv(K), k), rtol=1e-8)
    np.testing.assert_allclose(expectation(mm.Dirac(x), gp), mean, rtol=1e-14)
    for p in (mm.Dirac(x), mm.Gaussian(x, np.zeros((3, 3)))):
        np.testing.assert_allclose(covariance(p, gp), np.diag(variance), rtol=1e-8, atol=1e-12)
        np.testing.assert_allclose(expectation(p, gp), mean, rtol=1e-11)
    twice = mm.Empirical(np.stack([x, x]))
    np.testing.assert_allclose(covariance(twice, gp), np.diag(variance), rtol=1e-8, atol=1e-12)
    density = [
        -y @ np.linalg.solve(K[a], y) / 2 - np.linalg.slogdet(2 * np.pi * K[a])[1] / 2
        for a, y in enumerate(np.asarray(gp.targets).T)
    ]
    np.testing.assert_allclose(likelihood(gp), density, rtol=1e-11)


@pytest.mark.slow
def test_gradients():
    """Of everything, against differences; and finite without spread."""
    rng = np.random.default_rng(0)
    gp, p = process(rng, 4, 2), problems.distribution("Gaussian", rng, 2)
    slope = jax.jit(jax.value_and_grad(lambda pair: mm.covariance(*pair).sum() + mm.expectation(*pair).sum()))
    check_gradient(slope, (p, gp))
    _, gradients = slope((mm.Gaussian(p.mean, np.zeros((2, 2))), gp))
    assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(gradients))


def test_fitting_finds_noise_and_lengthscales():
    pytest.importorskip("optax", reason="GP.fit needs the extra train")
    rng = np.random.default_rng(0)
    x = rng.uniform(-3, 3, (60, 2))
    y = np.stack([np.sin(2 * x[:, 0]), 0.5 * x[:, 1], 0 * x[:, 0]], 1) + [0.1, 0.1, 0] * rng.normal(size=(60, 3))
    start = mm.GP(x, y, np.ones(2), 1.0, 0.01)
    with jax.numpy_dtype_promotion("standard"):  # optax promotes
        gp = mm.GP.fit(x, y, steps=150)
    fitted, before = (likelihood(each) for each in (gp, start))
    assert (fitted > before).all()
    np.testing.assert_allclose(jnp.sqrt(gp.noise[:2]), 0.1, rtol=0.35)
    assert gp.lengthscales[0, 1] > 5 * gp.lengthscales[0, 0]
    np.testing.assert_allclose(posterior(gp, np.ones((1, 2)))[0][0], [np.sin(2.0), 0.5, 0], atol=0.1)
    assert jnp.isfinite(fitted).all()  # nor may data without noise leave a singular matrix


def test_what_a_gp_refuses():
    x, y, p = np.zeros((4, 2)), np.zeros((4, 1)), mm.Gaussian(np.zeros(2), np.eye(2))
    for build, message in (
        (lambda: mm.GP(x, np.zeros(4), np.ones(2)), r"GP.targets must have two axes, with one row per point"),
        (lambda: mm.GP(x, np.zeros((3, 1)), np.ones(2)), r"GP.targets must have shape \(4, 1\)"),
        (lambda: mm.GP(x, y, np.ones((2, 2))), r"GP.lengthscales must have shape \(1, 2\)"),
        (lambda: mm.GP(x, y, np.ones(2), noise=0.0), r"GP.noise contains 0"),
        (lambda: mm.GP(x, y, np.ones(2), signal=np.ones(3)), r"GP.signal must have shape \(1,\)"),
        (lambda: mm.covariance(p, mm.GP(x, y, np.ones(2)), mm.GP(x, y, np.ones(2))), r"takes one GP"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            build()


def state_with_angles(rng):
    """A state of five dimensions, two of them angles, and a GP of four outputs on its sines and cosines."""
    p = problems.distribution("Gaussian", rng, 5, 0.4)
    inputs = rng.normal(size=(100, 5))
    inputs = np.asarray(jax.jit(jax.vmap(mm.angles(5, [1, 3])))(inputs))
    targets = np.stack([np.tanh(inputs @ rng.normal(size=7)) for _ in range(4)], 1)
    targets = targets + 0.05 * rng.normal(size=targets.shape)
    return p, mm.GP(inputs, targets, rng.uniform(1, 3, (4, 7)), rng.uniform(0.5, 1.5, 4), np.full(4, 0.05))


def test_pilcos_prediction_for_a_state_with_two_angles():
    """Angles, then 100 data and four outputs, all in PILCO's own formulas: to 1e-8."""
    p, gp = state_with_angles(np.random.default_rng(0))
    q = jax.jit(lambda p: mm.with_angles(p, [1, 3]))(p)
    mean, wave, cross = pilco.trigonometric(np.asarray(p.mean), np.asarray(p.covariance), [1, 3])
    order = [1, 2, 4, 5]  # of the sines and cosines among (x₀, sin, cos, x₂, sin, cos, x₄)
    np.testing.assert_allclose(q.mean[np.array(order)], mean, atol=1e-13)
    np.testing.assert_allclose(q.covariance[np.ix_(order, order)], wave, atol=1e-13)
    np.testing.assert_allclose(
        jax.jit(mm.cross_covariance)(p, mm.angles(5, [1, 3]))[np.array(order)], cross.T, atol=1e-13
    )
    predicted = predict(q, gp)
    M, S, V = published(gp, q)
    np.testing.assert_allclose(predicted.mean[7:], M, rtol=1e-8)
    np.testing.assert_allclose(predicted.covariance[7:, 7:], S, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(predicted.covariance[:7, 7:], np.asarray(q.covariance) @ V, rtol=1e-8, atol=1e-9)


@pytest.mark.slow
def test_pilcos_prediction_against_ten_million_samples():
    """Of its input, the matched Gaussian: mean, covariance and input–output covariance within sampling error."""
    p, gp = state_with_angles(np.random.default_rng(0))
    q = jax.jit(lambda p: mm.with_angles(p, [1, 3]))(p)
    predicted = predict(q, gp)
    factor, solved = gp.solve()

    @jax.jit
    def batch(key):
        key, noise_key = jax.random.split(key)
        x = q.sample(key, 20_000)
        delta = (x[None, :, None] - gp.inputs) / gp.lengthscales[:, None, None]
        kernel = gp.signal[:, None, None] * jnp.exp(-jnp.sum(delta**2, -1) / 2)
        white = jax.vmap(lambda L, k: jax.scipy.linalg.solve_triangular(L, k.T, lower=True))(factor, kernel)
        variance = gp.signal[:, None] - jnp.sum(white**2, 1)
        y = jnp.einsum("ank,ak->an", kernel, solved) + jnp.sqrt(variance) * jax.random.normal(noise_key, variance.shape)
        z = jnp.concatenate([x - q.mean, y.T - predicted.mean[7:]], 1)
        outer = z[:, :, None] * z[:, None]
        return z.sum(0), outer.sum(0), (outer**2).sum(0)

    totals, count = None, 0
    for key in jax.random.split(jax.random.key(0), 500):
        got = batch(key)
        totals = got if totals is None else jax.tree.map(jnp.add, totals, got)
        count += 20_000
    mean, second, fourth = (np.asarray(each) / count for each in totals)
    error = np.sqrt(np.diag(second) / count)
    assert (np.abs(mean) <= 4.5 * error).all()
    assert (np.abs(second - np.asarray(predicted.covariance)) <= 4.5 * np.sqrt((fourth - second**2) / count)).all()


BELIEFS = {
    "Gaussian": lambda: mm.Gaussian([0.2, -0.1], [[0.3, 0.1], [0.1, 0.2]]),
    "mixture": lambda: mm.GaussianMixture(
        [0.3, 0.7], mm.DiagonalGaussian([[0.2, 0.0], [-0.3, 0.5]], np.full((2, 2), 0.2))
    ),
    "Dirac": lambda: mm.Dirac([0.2, -0.1]),
    "Empirical": lambda: mm.Empirical([[0.2, -0.1], [0.5, 0.3], [-0.4, 0.1]]),
}


@pytest.mark.parametrize("kind", BELIEFS)
def test_sums_with_processes(kind):
    """What a process may be beside its mean varies with itself, and with nothing else."""
    rng, p = np.random.default_rng(5), BELIEFS[kind]()
    gp = process(rng, n=6, d=2)
    bumps = mm.RBF(rng.normal(size=(2, 3)), rng.normal(size=(3, 2)), np.ones(2))
    own, across, other = mm.covariance(p, gp), mm.covariance(p, gp, bumps), mm.covariance(p, bumps)
    np.testing.assert_allclose(mm.covariance(p, bumps, gp), across.T, atol=1e-12)
    np.testing.assert_allclose(mm.variance(p, 2.0 * gp), 4 * jnp.diagonal(own), rtol=1e-12)
    np.testing.assert_allclose(
        mm.covariance(p, 2.0 * gp + bumps), 4 * own + 2 * (across + across.T) + other, atol=1e-12
    )
    np.testing.assert_allclose(mm.covariance(p, gp, 3.0 * gp), 3 * own, rtol=1e-12)
    with pytest.raises(TypeError, match="takes one GP"):
        mm.covariance(p, gp, process(rng, n=6, d=2))
    with pytest.raises(TypeError, match="takes one GP"):
        mm.variance(p, gp + process(rng, n=6, d=2))


def test_a_process_beside_a_function_by_quadrature():
    rng, p = np.random.default_rng(6), BELIEFS["Gaussian"]()
    gp = process(rng, n=6, d=2)
    for f in (
        mm.RBF(rng.normal(size=3), rng.normal(size=(3, 2)), np.ones(2)),
        mm.Erf(rng.normal(size=3), rng.normal(size=(3, 2)), np.zeros(3)),
        mm.Fourier(rng.normal(size=3), rng.normal(size=(3, 2)), np.zeros(3)),
        mm.Quadratic(np.eye(2), np.ones(2)),
    ):
        each = mm.quadrature(p, lambda x, f=f: gp(x) * f(x), 64) - mm.quadrature(p, gp, 64) * mm.quadrature(p, f, 64)
        np.testing.assert_allclose(mm.covariance(p, gp, f), each, atol=1e-9)


def test_batches_keep_a_process_the_same():
    gp = process(np.random.default_rng(7), n=6, d=2)
    beliefs = mm.DiagonalGaussian(np.zeros((3, 2)), np.full((3, 2), 0.2))
    ours = jax.vmap(mm.covariance, (0, None, None))(beliefs, gp, gp)
    np.testing.assert_allclose(ours, jax.vmap(lambda q: mm.covariance(q, gp))(beliefs), rtol=1e-12)
    one = mm.covariance(mm.DiagonalGaussian(np.zeros(2), np.full(2, 0.2)), gp)
    np.testing.assert_allclose(ours, jnp.stack([one] * 3), rtol=1e-10)
