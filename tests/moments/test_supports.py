"""Boxes, truncated and clipped Gaussians, and Matérn kernels, against integration one dimension at a time."""

import itertools

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
import scipy.stats
from emukit.quadrature.interfaces import IProductMatern32, IProductMatern52
from emukit.quadrature.kernels import (
    QuadratureProductMatern32LebesgueMeasure,
    QuadratureProductMatern52LebesgueMeasure,
)
from emukit.quadrature.measures import LebesgueMeasure

from moca import moments as mm
from moca.moments._special import half_moments
from tests.moments import problems, reference
from tests.moments.test_identities import check_gradient

KINDS = ["Box", "TruncatedGaussian", "ClippedGaussian"]
NODES, WEIGHTS = np.polynomial.legendre.leggauss(60)
TOLERANCE = {np.float64: 1e-10, np.float32: 2e-5}
expectation, variance, covariance = jax.jit(mm.expectation), jax.jit(mm.variance), jax.jit(mm.covariance)
cross_covariance, product = jax.jit(mm.cross_covariance), jax.jit(mm.product)
evaluate = jax.jit(lambda f, x: jax.vmap(f)(x))
moments = jax.jit(lambda p: p.moments(8))
FUNCTIONS = ("RBF per basis", "Quadratic", "Polynomial")


@jax.jit
def summary(p, functions):
    """Moments of p, and expectation, covariance and covariance with x of each function: one program for each kind."""
    return p.moments(), [(mm.expectation(p, f), mm.covariance(p, f), mm.cross_covariance(p, f)) for f in functions]


def functions_of_two(rng, dtype=np.float64):
    return [problems.function(each, rng, 2, outputs=(2,), dtype=dtype) for each in FUNCTIONS]


def support(kind, rng, d, width=2.0, dtype=np.float64):
    low = rng.normal(size=d) - width / 2
    high = low + width * rng.uniform(0.5, 1, d)
    if kind == "Box":
        return mm.Box(low.astype(dtype), high.astype(dtype))
    gaussian = mm.DiagonalGaussian(rng.normal(size=d).astype(dtype), rng.uniform(0.3, 2, d).astype(dtype))
    return getattr(mm, kind)(gaussian, low.astype(dtype), high.astype(dtype))


def rule(p):
    """Points and masses of each dimension, (d, n): panels between the bounds, and the atoms."""
    low, high = np.asarray(p.lower, np.float64), np.asarray(p.upper, np.float64)
    edges = np.linspace(low, high, 9)
    x = np.concatenate([(a + b)[:, None] / 2 + (b - a)[:, None] / 2 * NODES for a, b in itertools.pairwise(edges)], 1)
    masses = np.concatenate([(b - a)[:, None] / 2 * WEIGHTS for a, b in itertools.pairwise(edges)], 1)
    if isinstance(p, mm.Box):
        return x, masses / (high - low)[:, None]
    mean, deviation = np.asarray(p.gaussian.mean, np.float64), np.sqrt(np.asarray(p.gaussian.variance, np.float64))
    masses = masses * scipy.stats.norm.pdf(x, mean[:, None], deviation[:, None])
    if isinstance(p, mm.TruncatedGaussian):
        return x, masses / masses.sum(1, keepdims=True)
    atoms = scipy.stats.norm.cdf((low - mean) / deviation), scipy.stats.norm.sf((high - mean) / deviation)
    return np.column_stack([x, low, high]), np.column_stack([masses, *atoms])


def tensor(p):
    """The rule of two dimensions as nodes and weights."""
    x, masses = rule(p)
    grid = np.stack(np.meshgrid(*x, indexing="ij"), -1).reshape(-1, len(x))
    return grid, np.prod(np.stack(np.meshgrid(*masses, indexing="ij"), -1), -1).ravel()


@pytest.mark.parametrize("dtype", [np.float64, pytest.param(np.float32, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS)
def test_moments_by_integration(kind, dtype):
    """Expectations, covariances and covariances with x, of a wide and of a narrow one."""
    rng = np.random.default_rng(0)
    for width in (2.0, 0.05):
        p = support(kind, rng, 2, width, dtype)
        x, over = tensor(p)
        functions = functions_of_two(rng, dtype)
        (mean, spread, *_), found = summary(p, functions)
        centred = x - over @ x
        np.testing.assert_allclose(mean, over @ x, rtol=10 * TOLERANCE[dtype], atol=TOLERANCE[dtype])
        np.testing.assert_allclose(np.diag(spread), centred.T @ (over[:, None] * centred), atol=2 * TOLERANCE[dtype])
        for f, (value, both, cross) in zip(functions, found, strict=True):
            double = jax.tree.map(lambda leaf: leaf.astype(np.float64), f)
            y = np.asarray(evaluate(double, x))
            assert value.dtype == both.dtype == cross.dtype == dtype
            square, spreads = over @ y**2, np.sqrt(over @ centred**2)
            around = y - over @ y
            for got, truth, scale in (
                (value, over @ y, over @ np.abs(y)),
                (both, y.T @ (over[:, None] * around), np.sqrt(np.multiply.outer(square, square))),
                (
                    cross,
                    around.T @ (over[:, None] * x),
                    np.sqrt(np.multiply.outer(square, spreads**2 + (over @ x) ** 2)),
                ),
            ):
                error = np.abs(np.asarray(got, np.float64) - truth) / scale
                assert (error <= TOLERANCE[dtype]).all(), (type(f).__name__, width, error.max())


@pytest.mark.parametrize(
    ("low", "high"),
    [
        (-3.0, 1.0),
        (4.0, 9.0),
        (-8.0, -7.5),
        (2.0, 2.001),
        (-1.0, 12.0),
        (-30.0, 30.0),
        (30.0, 31),
        (-51, -50),
        (200, 900),
    ],
)
def test_truncated_moments_far_out_and_between_near_bounds(low, high):
    """Against mpmath; relative to the moment itself, not to the deviation of the whole Gaussian."""
    p = mm.TruncatedGaussian(mm.DiagonalGaussian([0.0], [1.0]), [low], [high])
    with mpmath.workdps(40):
        edge = min(abs(low), abs(high)) if low * high > 0 else 0  # else the integral is as small as its tolerance
        cuts = [low, min(high, low + 0.05), min(high, low + 1), high] if low > 0 else [low, (low + high) / 2, high]
        cuts = [low, *(low + c / low for c in (1, 5, 20, 80)), high] if low > 100 else cuts
        cuts = [low, *(high + c / high for c in (80, 20, 5, 1)), high] if high < -20 else cuts
        cuts = sorted({mpmath.mpf(c) for c in cuts})
        integral = lambda f: mpmath.quad(lambda x: f(x) * mpmath.exp((edge**2 - x**2) / 2), cuts)  # noqa: E731
        mass = integral(lambda x: 1)
        mean = integral(lambda x: x) / mass
        truth = [float(mean), *(float(integral(lambda x, k=k: (x - mean) ** k) / mass) for k in range(2, 9))]
    got = [float(m[0]) for m in moments(p)]
    np.testing.assert_allclose(got[0], truth[0], rtol=1e-10, atol=1e-20)
    for k in range(2, 9):
        np.testing.assert_allclose(got[k - 1], truth[k - 1], rtol=0, atol=1e-10 * truth[2 * (k + 1) // 4 * 2 - 1])


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("kind", ["TruncatedGaussian", "ClippedGaussian"])
def test_infinite_bounds_and_no_spread(kind, number):
    """The Gaussian's own moments between infinite bounds; at a point the function itself, with finite gradients."""
    p, make = mm.DiagonalGaussian([0.3, -0.2], [0.5, 0.2]), getattr(mm, kind)
    h = (mm.RBF([1.0], [[0.1, 0.4]], [1.0, 2.0]), mm.Quadratic(np.eye(2), np.ones(2)))[number]
    bounds = np.full(2, -np.inf), np.full(2, np.inf)

    def value(variance, low, high):
        q = make(mm.DiagonalGaussian(p.mean, variance), low, high)
        return mm.expectation(q, h) + mm.variance(q, h)

    slope = jax.jit(jax.value_and_grad(value))
    np.testing.assert_allclose(slope(p.variance, *bounds)[0], expectation(p, h) + variance(p, h), rtol=1e-12)
    got, gradient = slope(jnp.zeros(2), -np.ones(2), np.ones(2))
    np.testing.assert_allclose(got, evaluate(h, p.mean[None])[0], rtol=1e-12)
    assert jnp.isfinite(gradient).all()


def test_a_point_outside_and_a_box_without_width():
    functions = functions_of_two(np.random.default_rng(0))
    point = mm.DiagonalGaussian([5.0, 0.0], [0.0, 0.0])
    clipped, truncated = (make(point, -np.ones(2), np.ones(2)) for make in (mm.ClippedGaussian, mm.TruncatedGaussian))
    narrow = mm.Box([0.3, -0.2], [0.3 + 1e-9, -0.2 + 1e-9])
    on_the_bound = ((p, [1.0, 0.0], 1e-13) for p in (clipped, truncated))
    for p, point, tolerance in (*on_the_bound, (narrow, [0.3, -0.2], 1e-6)):
        _, found = summary(p, functions)
        for f, (value, both, cross) in zip(functions, found, strict=True):
            np.testing.assert_allclose(value, evaluate(f, np.array([point]))[0], rtol=tolerance)
            np.testing.assert_allclose(both, 0, atol=1e-13)
            np.testing.assert_allclose(cross, 0, atol=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_gradients_and_samples(kind):
    rng = np.random.default_rng(0)
    p, f = support(kind, rng, 2), problems.function("RBF per basis", rng, 2)
    quadratic = problems.function("Quadratic", rng, 2)
    slope = jax.jit(jax.value_and_grad(lambda each: mm.variance(each[0], each[1]) + mm.expectation(each[0], each[2])))
    check_gradient(slope, (p, f, quadratic))
    x = np.asarray(p.sample(jax.random.key(0), 100_000))
    for h in (f, quadratic):
        y = np.asarray(evaluate(h, x))
        assert abs(y.mean() - expectation(p, h)) <= 4 * y.std() / np.sqrt(len(y))
        np.testing.assert_allclose(y.var(), variance(p, h), rtol=0.03)
    batch = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), p)
    np.testing.assert_allclose(jax.jit(jax.vmap(mm.expectation, (0, None)))(batch, f), expectation(p, f), rtol=1e-12)


def test_a_narrow_box_on_either_side_of_where_its_series_takes_over():
    for width in (0.0199, 0.0201):
        p, f = mm.Box([0.3], [0.3 + width]), mm.RBF([1.0], [[0.1]], [1.0])
        x = 0.3 + width / 2 * (NODES + 1)
        np.testing.assert_allclose(expectation(p, f), WEIGHTS @ np.exp(-((x - 0.1) ** 2) / 2) / 2, rtol=1e-13)


def kernel(nu, t):
    return np.exp(-t) * {0.5: 1, 1.5: 1 + t, 2.5: 1 + t + t**2 / 3}[nu]


@pytest.mark.parametrize("dtype", [np.float64, pytest.param(np.float32, marks=pytest.mark.slow)])
@pytest.mark.parametrize("nu", [0.5, 1.5, 2.5])
def test_matern_by_integration(nu, dtype):
    """Gaussians from 1e-4 to 30 lengthscales wide, and boxes, split at the kink."""
    rng = np.random.default_rng(0)
    for spread in (1e-4, 0.3, 1.0, 30.0):
        mean, centers, scales = rng.normal(size=3), rng.normal(size=(4, 3)), rng.uniform(0.5, 2, 3)
        deviation = spread * rng.uniform(0.5, 1, 3)
        arrays = [np.asarray(each, dtype) for each in (mean, deviation**2, centers, scales)]
        p, f = mm.DiagonalGaussian(*arrays[:2]), mm.Matern(np.ones(4, dtype), *arrays[2:], nu)
        mean, variance, centers, scales = (np.asarray(each, np.float64) for each in arrays)
        box = mm.Box(p.mean - jnp.sqrt(p.variance), p.mean + jnp.sqrt(p.variance))
        truth, boxed = np.ones(4), np.ones(4)
        for i, j in np.ndindex(4, 3):
            c, rate, sigma = centers[i, j], np.sqrt(2 * nu) / scales[j], np.sqrt(variance[j])
            for low, high, store, density in (
                (mean[j] - 9 * sigma, mean[j] + 9 * sigma, truth, scipy.stats.norm(mean[j], sigma).pdf),
                (float(box.lower[j]), float(box.upper[j]), boxed, None),
            ):
                near = [c + k * side / rate for k in (0, 1, 5, 15, 40) for side in (-1, 1)]
                cuts = np.unique(np.clip([*np.linspace(low, high, 13), *near], low, high))
                mid, half = (cuts[1:] + cuts[:-1]) / 2, (cuts[1:] - cuts[:-1]) / 2
                x, w = (mid[:, None] + half[:, None] * NODES).ravel(), (half[:, None] * WEIGHTS).ravel()
                over = w * density(x) if density else w / (high - low)
                store[i] *= over @ kernel(nu, rate * np.abs(x - c))
        for q, t in ((p, truth), (box, boxed)):
            np.testing.assert_allclose(expectation(q, f), t.sum(), rtol=TOLERANCE[dtype] * 3)
    assert expectation(p, f).dtype == dtype


@pytest.mark.parametrize("nu", [0.5, *(pytest.param(nu, marks=pytest.mark.slow) for nu in (1.5, 2.5))])
def test_matern_without_spread(nu):
    """The function itself with finite gradients, also at a kink; elsewhere gradients equal differences."""
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(3, 2))
    f = mm.Matern(rng.normal(size=3), centers, np.ones(2), nu, 0.3)
    slope = jax.jit(jax.value_and_grad(lambda pair: mm.expectation(*pair)))
    for mean in (rng.normal(size=2), centers[0]):
        value, (gradients, _) = slope((mm.DiagonalGaussian(mean, np.zeros(2)), f))
        np.testing.assert_allclose(value, evaluate(f, mean[None])[0], rtol=1e-12)
        assert jnp.isfinite(gradients.variance).all()
    p = mm.DiagonalGaussian(rng.normal(size=2), [0.3, 0.5])
    check_gradient(slope, (p, f))
    np.testing.assert_allclose(expectation(mm.GaussianMixture([1.0], [p]), f), expectation(p, f), rtol=1e-13)


def kernel_products(p, f, g, rows, columns):
    """E[kᵢ kⱼ] for some pairs of bases, one dimension at a time, with panels that know of both kinks."""
    total = np.ones(len(rows))
    for n, (i, j) in enumerate(zip(rows, columns, strict=True)):
        for k in range(f.dimension):
            kernels = [
                (float(each.centers[row, k]), np.sqrt(2 * each.nu) / float(each.lengthscales[k]), each.nu)
                for each, row in ((f, i), (g, j))
            ]
            if isinstance(p, mm.Box):
                low, high = float(p.lower[k]), float(p.upper[k])
                density = lambda x, low=low, high=high: np.full(x.shape, 1 / (high - low))  # noqa: E731
            else:
                mean, deviation = float(p.mean[k]), np.sqrt(float(p.variance[k]))
                low, high, density = mean - 9 * deviation, mean + 9 * deviation, scipy.stats.norm(mean, deviation).pdf
            near = [c + side * t / a for c, a, _ in kernels for t in (0, 1, 5, 15, 40) for side in (-1, 1)]
            cuts = np.unique(np.clip([*np.linspace(low, high, 13), *near], low, high))
            half = np.diff(cuts)[:, None] / 2
            x, w = (cuts[:-1, None] + half * (NODES + 1)).ravel(), (half * WEIGHTS).ravel()
            total[n] *= (w * density(x)) @ np.prod([kernel(nu, a * np.abs(x - c)) for c, a, nu in kernels], axis=0)
    return total


def matern(rng, m, d, nu, scales, dtype=np.float64, weights=None):
    return mm.Matern(weights, rng.normal(size=(m, d)).astype(dtype), scales.astype(dtype), nu)


@pytest.mark.parametrize(
    ("one", "two", "dtype"),
    [
        pytest.param(one, two, dtype, marks=() if (one, two, dtype) in quick else pytest.mark.slow)
        for quick in [[(0.5, 1.5, np.float64), (2.5, 2.5, np.float64)]]
        for one, two in itertools.product((0.5, 1.5, 2.5), repeat=2)
        for dtype in TOLERANCE
    ],
)
def test_pairs_of_matern_kernels_by_integration(one, two, dtype):
    """Gaussians from 1e-4 to 30 lengthscales wide, and boxes as wide; one centre shared, one on the mean."""
    rng = np.random.default_rng(0)
    rows, columns = np.indices((4, 3)).reshape(2, -1)
    for spread, alike in itertools.product((1e-4, 0.05, 0.3, 1.0, 30.0), (True, False)):
        scales = rng.uniform(0.5, 2, 2)
        f = matern(rng, 4, 2, one, scales, dtype)
        g = matern(rng, 3, 2, two, scales if alike else rng.uniform(0.2, 4, 2), dtype)
        g = mm.Matern(None, g.centers.at[0].set(f.centers[0]), g.lengthscales, two)
        mean = np.r_[f.centers[1, 0], rng.normal()].astype(dtype)
        p = mm.DiagonalGaussian(mean, ((spread * rng.uniform(0.5, 1, 2)) ** 2).astype(dtype))
        for q in (p, mm.Box(p.mean - jnp.sqrt(p.variance), p.mean + jnp.sqrt(p.variance))):
            got = product(q, f, g)
            assert got.dtype == dtype
            truth = kernel_products(q, f, g, rows, columns).reshape(4, 3)
            np.testing.assert_allclose(got, truth, rtol=TOLERANCE[dtype])


@pytest.mark.slow
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("d", "m"), [(1, 64), (8, 64), (8, 1)])
def test_many_matern_kernels_in_many_dimensions(d, m, dtype):
    """Some pairs of bases by integration, and the variance of a weighted sum of all from them."""
    rng = np.random.default_rng(0)
    scales = rng.uniform(1, 3, d)
    weights = rng.normal(size=m).astype(dtype)
    f = matern(rng, m, d, 1.5, scales, dtype)
    p = mm.DiagonalGaussian(rng.normal(size=d).astype(dtype), rng.uniform(0.1, 1, d).astype(dtype))
    rows, columns = rng.integers(m, size=(2, 40))
    got = np.asarray(product(p, f, f), np.float64)
    np.testing.assert_allclose(got[rows, columns], kernel_products(p, f, f, rows, columns), rtol=TOLERANCE[dtype])
    whole = mm.Matern(weights, f.centers, f.lengthscales, 1.5)
    truth = weights.astype(np.float64) @ np.asarray(covariance(p, f), np.float64) @ weights.astype(np.float64)
    square = truth + float(expectation(p, whole)) ** 2
    np.testing.assert_allclose(variance(p, whole), truth, atol=TOLERANCE[dtype] * square)


@pytest.mark.parametrize("nu", [1.5, *(pytest.param(nu, marks=pytest.mark.slow) for nu in (0.5, 2.5))])
def test_the_variance_of_matern_kernels_and_its_gradient(nu):
    """Against differences; the squared slope without spread; finite where mean and centre meet; a mixture of parts."""
    rng = np.random.default_rng(0)
    f = matern(rng, 3, 2, nu, np.array([0.8, 1.4]), weights=rng.normal(size=3))
    slope = jax.jit(jax.value_and_grad(lambda pair: mm.variance(*pair)))
    p = mm.DiagonalGaussian(rng.normal(size=2), [0.3, 0.5])
    check_gradient(slope, (p, f))
    value, (gradients, _) = slope((mm.DiagonalGaussian(p.mean, np.zeros(2)), f))
    assert 0 <= value < 1e-14
    np.testing.assert_allclose(gradients.variance, jax.jit(jax.grad(lambda x, f: f(x)))(p.mean, f) ** 2, rtol=1e-8)
    for variance in (0.0, 1e-12):
        value, (gradients, others) = slope((mm.DiagonalGaussian(f.centers[0], np.full(2, variance)), f))
        assert value < 1e-10
        for leaf in jax.tree.leaves((gradients, others)):
            assert (np.abs(leaf) < 10).all()


def test_mixtures_and_matern_kernels():
    """Variance and covariance with x from those of the parts; with an RBF by conditioning, against a grid."""
    rng = np.random.default_rng(0)
    f = matern(rng, 3, 2, 1.5, np.array([0.8, 1.4]), weights=rng.normal(size=(2, 3)))
    parts = [mm.DiagonalGaussian(rng.normal(size=2), rng.uniform(0.1, 1, 2)) for _ in range(2)]
    means, both, cross = ([verb(p, f) for p in parts] for verb in (expectation, covariance, cross_covariance))
    mixture, gap = mm.GaussianMixture([0.4, 0.6], parts), means[0] - means[1]
    away = parts[0].mean - parts[1].mean
    average = lambda each: 0.4 * each[0] + 0.6 * each[1]  # noqa: E731
    np.testing.assert_allclose(covariance(mixture, f), average(both) + 0.24 * np.outer(gap, gap), rtol=1e-12)
    np.testing.assert_allclose(cross_covariance(mixture, f), average(cross) + 0.24 * np.outer(gap, away), rtol=1e-12)
    bumps = problems.function("RBF per basis", rng, 2)
    x, over = zip(*(between_kinks(parts[0], f, k) for k in range(2)), strict=True)
    grid = np.stack(np.meshgrid(*x, indexing="ij"), -1).reshape(-1, 2)
    of_f, of_bumps = np.asarray(evaluate(f, grid)), np.asarray(evaluate(bumps, grid))
    weights = np.outer(*over).ravel()
    truth = (weights * (of_bumps - weights @ of_bumps)) @ of_f
    np.testing.assert_allclose(covariance(parts[0], f, bumps), truth, atol=1e-10)
    np.testing.assert_allclose(cross[0], of_f.T @ (weights[:, None] * (grid - parts[0].mean)), atol=1e-10)


def between_kinks(p, f, k):
    """Nodes and weights of one dimension, with panels between the centres."""
    return reference.between_kinks(float(p.mean[k]), float(p.variance[k]), np.asarray(f.centers[:, k]), panels=2)


def test_half_moments_against_mpmath():
    """And their derivatives, which are half moments again."""
    z = np.array([0.0, 0.3, 3.0, 30.0, 1e3])
    got, slopes = jax.jit(lambda z: jax.jvp(lambda z: half_moments(4, z), (z,), (jnp.ones_like(z),)))(z)
    truth = np.zeros((6, len(z)))
    for k, (n, each) in itertools.product(range(6), enumerate(z)):
        with mpmath.workdps(30):
            cuts = [c / (each + 1) for c in (0, 1, 5, 50, 150)]
            truth[k, n] = mpmath.quad(lambda t, k=k, each=each: t**k * mpmath.exp(-t * t / 2 - each * t), cuts)
    np.testing.assert_allclose(got, truth[:5], rtol=3e-13)
    np.testing.assert_allclose(slopes, -truth[1:], rtol=3e-13)


class _Matern:
    def __init__(self, lengthscales):
        self._lengthscales = lengthscales

    @property
    def lengthscales(self):
        return self._lengthscales

    @property
    def nu(self):
        return self._nu

    @property
    def variance(self):
        return 1.0

    def K(self, x1, x2):
        raise NotImplementedError


class Matern32(_Matern, IProductMatern32):
    _nu = 1.5


class Matern52(_Matern, IProductMatern52):
    _nu = 2.5


def test_matern_on_a_box_agrees_with_emukit():
    rng = np.random.default_rng(0)
    scales, centers = rng.uniform(0.5, 2, 3), rng.uniform(-1, 1, (5, 3))
    measure = LebesgueMeasure.from_bounds([(-1.0, 1.5)] * 3, normalized=True)
    for nu, own, theirs in (
        (1.5, Matern32, QuadratureProductMatern32LebesgueMeasure),
        (2.5, Matern52, QuadratureProductMatern52LebesgueMeasure),
    ):
        ours = expectation(mm.Box(np.full(3, -1.0), np.full(3, 1.5)), mm.Matern(None, centers, scales, nu))
        np.testing.assert_allclose(ours, theirs(own(scales), measure).qK(centers)[0], rtol=1e-12)


def test_what_supports_refuse():
    full = mm.RBF([1.0], [[0.0, 0.0]], np.eye(2)[None])
    for build, message in (
        (lambda: mm.Box([0.0], [0.0]), "upper - lower contains 0"),
        (lambda: mm.Box([-np.inf], [0.0]), "Box.lower contains -inf"),
        (lambda: mm.Box([0.0, 1.0], [1.0]), r"upper must have shape \(2,\)"),
        (lambda: mm.TruncatedGaussian(mm.DiagonalGaussian([0.0], [1.0]), [0.0, 0.0], [1.0, 1.0]), "lower must have"),
        *(
            (lambda kind=kind: kind(mm.Gaussian(np.zeros(2), np.eye(2)), -np.ones(2), np.ones(2)), "DiagonalGaussian")
            for kind in (mm.TruncatedGaussian, mm.ClippedGaussian)
        ),
        (lambda: mm.expectation(mm.Box(np.zeros(2), np.ones(2)), full), "needs an RBF with a diagonal precision"),
        (
            lambda: mm.variance(mm.Gaussian([0.0], [[1.0]]), mm.Matern([1.0], [[0.0]], [1.0])),
            "variance of Matern under Gaussian",
        ),
        (
            lambda: mm.cross_covariance(mm.Box([0.0], [1.0]), mm.Matern([1.0], [[0.0]], [1.0])),
            "cross-covariance of Matern under Box",
        ),
        (lambda: mm.expectation(mm.Box([0.0], [1.0]), mm.Erf([1.0], [[1.0]], [0.0])), "expectation of Erf under Box"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            build()
