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
from moca.moments._special import half_moment
from tests.moments import problems
from tests.moments.test_identities import check_gradient

KINDS = ["Box", "TruncatedGaussian", "ClippedGaussian"]
NODES, WEIGHTS = np.polynomial.legendre.leggauss(60)
TOLERANCE = {np.float64: 1e-10, np.float32: 2e-5}
expectation, variance, covariance = jax.jit(mm.expectation), jax.jit(mm.variance), jax.jit(mm.covariance)
evaluate = jax.jit(lambda f, x: jax.vmap(f)(x))
moments = jax.jit(lambda p: p.moments())
half = jax.jit(half_moment, static_argnums=0)


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


@pytest.mark.parametrize(
    ("kind", "dtype", "second"),
    [
        ("Box", np.float64, True),
        ("TruncatedGaussian", np.float64, False),
        ("ClippedGaussian", np.float64, False),
        *(pytest.param(kind, dtype, True, marks=pytest.mark.slow) for kind in KINDS for dtype in TOLERANCE),
    ],
)
def test_moments_by_integration(kind, dtype, second):
    """Expectations, and covariances if `second`, of a wide and of a narrow one."""
    rng = np.random.default_rng(0)
    for width in (2.0, 0.05):
        p = support(kind, rng, 2, width, dtype)
        x, over = tensor(p)
        for function in ("RBF per basis", "Quadratic", "Polynomial"):
            f = problems.function(function, rng, 2, outputs=(2,), dtype=dtype)
            y = np.asarray(evaluate(f, x.astype(dtype)), np.float64) if dtype == np.float64 else None
            if y is None:
                double = jax.tree.map(lambda leaf: leaf.astype(np.float64), f)
                y = np.asarray(evaluate(double, x))
            scale = over @ np.abs(y)
            value = expectation(p, f)
            assert value.dtype == dtype
            assert (np.abs(np.asarray(value, np.float64) - over @ y) <= TOLERANCE[dtype] * scale).all(), function
            if second and function != "Polynomial":
                truth = y.T @ (over[:, None] * (y - over @ y))
                size = np.sqrt(np.multiply.outer(over @ y**2, over @ y**2))
                assert (np.abs(np.asarray(covariance(p, f), np.float64) - truth) <= TOLERANCE[dtype] * size).all(), (
                    function
                )
        mean, spread, *_ = moments(p)
        np.testing.assert_allclose(mean, over @ x, rtol=10 * TOLERANCE[dtype], atol=TOLERANCE[dtype])
        centred = x - over @ x
        np.testing.assert_allclose(np.diag(spread), centred.T @ (over[:, None] * centred), atol=2 * TOLERANCE[dtype])


@pytest.mark.parametrize(
    ("low", "high"), [(-3.0, 1.0), (4.0, 9.0), (-8.0, -7.5), (2.0, 2.001), (-30.0, 30.0), (30.0, 31)]
)
def test_truncated_moments_far_out_and_between_near_bounds(low, high):
    """Against mpmath; relative to the moment itself, not to the deviation of the whole Gaussian."""
    p = mm.TruncatedGaussian(mm.DiagonalGaussian([0.0], [1.0]), [low], [high])
    with mpmath.workdps(40):
        edge = min(abs(low), abs(high)) if low * high > 0 else 0  # else the integral is as small as its tolerance
        cuts = [low, min(high, low + 0.05), min(high, low + 1), high] if low > 0 else [low, (low + high) / 2, high]
        cuts = sorted({mpmath.mpf(c) for c in cuts})
        integral = lambda f: mpmath.quad(lambda x: f(x) * mpmath.exp((edge**2 - x**2) / 2), cuts)  # noqa: E731
        mass = integral(lambda x: 1)
        mean = integral(lambda x: x) / mass
        truth = [float(mean), *(float(integral(lambda x, k=k: (x - mean) ** k) / mass) for k in (2, 3, 4))]
    got = [float(m[0]) for m in moments(p)]
    np.testing.assert_allclose(got[:2], truth[:2], rtol=1e-8, atol=1e-20)
    np.testing.assert_allclose(got[3], truth[3], rtol=1e-8 if high - low < 30 else 1e-10)
    np.testing.assert_allclose(got[2], truth[2], atol=1e-8 * truth[1] ** 1.5)


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
    f, g = mm.RBF([1.0], [[0.1, 0.4]], [1.0, 2.0]), mm.Quadratic(np.eye(2), np.ones(2))
    outside = mm.ClippedGaussian(mm.DiagonalGaussian([5.0, 0.0], [0.0, 0.0]), -np.ones(2), np.ones(2))
    np.testing.assert_allclose(expectation(outside, g), g(np.array([1.0, 0.0])), rtol=1e-13)
    narrow = mm.Box([0.3, -0.2], [0.3 + 1e-9, -0.2 + 1e-9])
    np.testing.assert_allclose(expectation(narrow, f), f(np.array([0.3, -0.2])), rtol=1e-8)


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


def test_half_moments_against_mpmath():
    for k in range(3):
        for z in (0.0, 0.3, 3.0, 30.0, 1e3):
            with mpmath.workdps(30):
                cuts = [c / (z + 1) for c in (0, 1, 5, 50, 150)]
                truth = mpmath.quad(lambda t, k=k, z=z: t**k * mpmath.exp(-t * t / 2 - z * t), cuts)
            np.testing.assert_allclose(half(k, jnp.asarray(z)), float(truth), rtol=3e-13)


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
        (lambda: mm.Box([0.0], [0.0]), "upper - lower holds 0"),
        (lambda: mm.Box([-np.inf], [0.0]), "Box.lower holds -inf"),
        (lambda: mm.Box([0.0, 1.0], [1.0]), r"upper must have shape \(2,\)"),
        (lambda: mm.TruncatedGaussian(mm.DiagonalGaussian([0.0], [1.0]), [0.0, 0.0], [1.0, 1.0]), "lower must have"),
        (lambda: mm.expectation(mm.Box(np.zeros(2), np.ones(2)), full), "takes an RBF with a diagonal precision"),
        (lambda: mm.variance(mm.Box([0.0], [1.0]), mm.Matern([1.0], [[0.0]], [1.0])), "variance of Matern under Box"),
        (lambda: mm.expectation(mm.Box([0.0], [1.0]), mm.Erf([1.0], [[1.0]], [0.0])), "expectation of Erf under Box"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            build()
