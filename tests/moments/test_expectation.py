"""Every closed form against numerical integration, in one to eight dimensions."""

import jax
import mpmath
import numpy as np
import pytest
import scipy.integrate
import scipy.special
import scipy.stats
from hypothesis import example, given, settings
from hypothesis import strategies as st

from moca import moments as mm
from moca.moments.expectation import _program as program
from tests.moments import problems, reference

TOLERANCE = {np.float64: 1e-10, np.float32: 2e-5}
expectation = jax.jit(mm.expectation)
sample = jax.jit(lambda p, key: p.sample(key, 100_000))
evaluate = jax.jit(lambda f, x: jax.vmap(f)(x))

dimensions = st.integers(1, 8)
bases = st.sampled_from([1, 2, 7, 64])
seeds = st.integers(0, 2**32 - 1)
SPREADS = [1e-4, 0.03, 0.3, 1.0, 3.0, 30.0]
spreads = st.sampled_from(SPREADS)
gaussians = st.sampled_from(["DiagonalGaussian", "Gaussian"])
dtypes = st.sampled_from([np.float64, np.float32])


def matrices(f):
    """The precisions of an RBF as (M, d, d)."""
    precision = np.asarray(f.precision, np.float64)
    if precision.ndim < 3:
        precision = np.atleast_2d(precision)[..., None] * np.eye(f.dimension)
    return np.broadcast_to(precision, (*f.centers.shape, f.dimension))


def numbers(*arrays):
    return [np.asarray(a, np.float64) for a in arrays]


def assert_close(value, truth, scale, dtype):
    assert value.dtype == dtype
    assert abs(float(value) - truth) <= TOLERANCE[dtype] * scale + np.finfo(dtype).tiny * 1e3


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(
    ("d", "m", "kind", "precision"),
    [
        (8, 64, "DiagonalGaussian", "RBF shared"),
        (1, 1, "DiagonalGaussian", "RBF per basis"),
        (8, 7, "Gaussian", "RBF full"),
        (3, 64, "Gaussian", "RBF shared full"),
    ],
)
def test_rbf_from_narrow_to_wide(d, m, kind, precision, dtype):
    for seed, spread in enumerate(SPREADS):
        check_rbf(d, m, seed, spread, kind, precision, dtype)


@pytest.mark.slow
@settings(max_examples=120, deadline=None)
@given(dimensions, bases, seeds, spreads, gaussians, st.sampled_from(problems.FUNCTIONS[:4]), dtypes)
@example(8, 7, 3, 1.0, "DiagonalGaussian", "RBF per basis", np.float32)
def test_gaussian_rbf(d, m, seed, spread, kind, precision, dtype):
    check_rbf(d, m, seed, spread, kind, precision, dtype)


def check_rbf(d, m, seed, spread, kind, precision, dtype):
    rng = np.random.default_rng(seed)
    p = problems.distribution(kind, rng, d, spread, dtype)
    f = problems.function(precision, rng, d, m, dtype=dtype)
    mean, covariance, weights, centers, constant = numbers(p.mean, p.covariance, f.weights, f.centers, f.constant)
    each = reference.rbf(mean, covariance, centers, matrices(f))
    scale = np.abs(weights) @ each + abs(constant)
    assert_close(expectation(p, f), weights @ each + constant, scale, dtype)


@pytest.mark.parametrize("precision", ["RBF shared", "RBF per basis"])
def test_rbf_ten_lengthscales_out(precision):
    for seed in range(5):
        check_rbf_far_out(8, 64, seed, 10.0, precision, np.float32)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(dimensions, bases, seeds, st.floats(0, 10), st.sampled_from(["RBF shared", "RBF per basis"]), dtypes)
@example(7, 7, 8, 9.5, "RBF shared", np.float32)
def test_rbf_keeps_its_accuracy_ten_lengthscales_out(d, m, seed, reach, precision, dtype):
    check_rbf_far_out(d, m, seed, reach, precision, dtype)


def check_rbf_far_out(d, m, seed, reach, precision, dtype):
    """Belief beside one of the bases, everything up to ten lengthscales from the origin: the square must not cancel."""
    rng = np.random.default_rng(seed)
    f = problems.function(precision, rng, d, m, dtype=dtype)
    centers = np.asarray(rng.choice([-reach, reach], (m, d)) * rng.uniform(0.9, 1, (m, d)), dtype)
    lengthscales = np.atleast_2d(f.precision) ** -0.5
    f = mm.RBF(f.weights, centers * lengthscales, f.precision)
    mean = np.asarray(np.asarray(f.centers)[0] + rng.normal(size=d) * lengthscales[0], dtype)
    p = mm.DiagonalGaussian(mean, np.asarray(rng.uniform(0.1, 1, d), dtype))
    mean, covariance, weights, centers = numbers(p.mean, p.covariance, f.weights, f.centers)
    each = reference.rbf(mean, covariance, centers, matrices(f))
    # Beyond eight lengthscales float32 leaves up to 2.1e-5: see `squared_distances`.
    slack = 1.5 if reach > 8 and dtype is np.float32 else 1.0
    assert_close(expectation(p, f), weights @ each, slack * (np.abs(weights) @ each), dtype)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(
    ("d", "m", "kind", "ridge"),
    [(8, 64, "Gaussian", "Erf"), (1, 1, "DiagonalGaussian", "Fourier"), (3, 64, "DiagonalGaussian", "GELU")],
)
def test_ridge_functions_from_narrow_to_wide(d, m, kind, ridge, dtype):
    for seed, spread in enumerate(SPREADS):
        check_ridge(d, m, seed, spread, kind, ridge, dtype)


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(dimensions, bases, seeds, spreads, gaussians, st.sampled_from(["Erf", "Fourier", "GELU"]), dtypes)
def test_gaussian_ridge_functions(d, m, seed, spread, kind, ridge, dtype):
    check_ridge(d, m, seed, spread, kind, ridge, dtype)


def check_ridge(d, m, seed, spread, kind, ridge, dtype):
    rng = np.random.default_rng(seed)
    p = problems.distribution(kind, rng, d, spread, dtype)
    f = problems.function(ridge, rng, d, m, dtype=dtype)
    one = reference.UNITS[ridge]
    mean, covariance, weights, rows, offsets, constant = numbers(
        p.mean, p.covariance, f.weights, f.rows, f.shifts, f.constant
    )
    t, variance = rows @ mean + offsets, np.einsum("mi,ij,mj->m", rows, covariance, rows)
    truth = weights @ reference.ridge(one, t, variance) + constant
    scale = np.abs(weights) @ reference.ridge(lambda x: np.abs(one(x)), t, variance) + abs(constant)
    assert_close(expectation(p, f), truth, scale, dtype)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(
    ("d", "kind", "degree"),
    [(1, "DiagonalGaussian", 1), (3, "Gaussian", 3), (8, "Laplace", 4), (3, "StudentT", 2), (3, "StudentT", 4)],
)
def test_polynomials_from_narrow_to_wide(d, kind, degree, dtype):
    for seed, spread in enumerate(SPREADS):
        check_polynomial(d, seed, spread, kind, degree, dtype)


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(
    dimensions,
    seeds,
    spreads,
    st.sampled_from(["DiagonalGaussian", "Gaussian", "Laplace", "StudentT"]),
    st.integers(1, 4),
    dtypes,
)
def test_elliptical_polynomials(d, seed, spread, kind, degree, dtype):
    check_polynomial(d, seed, spread, kind, degree, dtype)


def check_polynomial(d, seed, spread, kind, degree, dtype):
    rng = np.random.default_rng(seed)
    p = problems.distribution(kind, rng, d, spread, dtype)
    f = mm.Polynomial(problems.function("Polynomial", rng, d, dtype=dtype).tensors[: degree + 1])
    df = problems.DF
    first, second = {
        "Laplace": (1, 2),
        "StudentT": (df / (df - 2), df**2 / ((df - 2) * (df - 4))),
    }.get(kind, (1, 1))
    mean, matrix, *tensors = numbers(p.mean, p.shape_matrix, *f.tensors)
    truth = reference.polynomial(tensors, mean, matrix, first, second)
    size = reference.polynomial([np.abs(t) for t in tensors], np.abs(mean), np.abs(matrix), first, second)
    assert_close(expectation(p, f), truth, size, dtype)
    if degree == 2:
        quadratic = mm.Quadratic(f.tensors[2], f.tensors[1], f.tensors[0])
        assert_close(expectation(p, quadratic), truth, size, dtype)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("df", [1, 5, 21, None])
def test_fourier_under_heavy_tails_from_narrow_to_wide(df, dtype):
    for seed, spread in enumerate([0.03, 0.3, 1.0, 3.0]):
        check_heavy_fourier(3, 7, seed, spread, df, dtype)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    dimensions, bases, seeds, st.sampled_from([0.03, 0.3, 1.0, 3.0]), st.sampled_from([1, 3, 5, 9, 21, None]), dtypes
)
def test_fourier_under_heavy_tails(d, m, seed, spread, df, dtype):
    check_heavy_fourier(d, m, seed, spread, df, dtype)


def check_heavy_fourier(d, m, seed, spread, df, dtype):
    """df = None is the Laplace distribution; the Student-t is compared with scipy's Bessel function."""
    rng = np.random.default_rng(seed)
    p = problems.distribution("Laplace", rng, d, spread, dtype)
    if df is not None:
        p = mm.StudentT(p.mean, p.covariance, df)
    f = problems.function("Fourier", rng, d, m, dtype=dtype)
    mean, matrix, weights, rows, phases, constant = numbers(
        p.mean, p.shape_matrix, f.weights, f.frequencies, f.phases, f.constant
    )
    q = np.einsum("mi,ij,mj->m", rows, matrix, rows)
    damping = 1 / (1 + q / 2) if df is None else reference.student_characteristic(df, q)
    terms = damping * np.cos(rows @ mean + phases)
    # |cos| has no closed form here; its mean is at least the damped cosine and at most one.
    assert_close(expectation(p, f), weights @ terms + constant, np.abs(weights).sum() + abs(constant), dtype)


def test_fourier_under_one_dimensional_heavy_tails_by_integration():
    """The two characteristic functions themselves, integrated against scipy's densities."""
    for density, p in [
        (scipy.stats.laplace(0.3, np.sqrt(0.8 / 2)).pdf, mm.Laplace([0.3], [[0.8]])),
        (scipy.stats.t(3, 0.3, np.sqrt(0.8)).pdf, mm.StudentT([0.3], [[0.8]], 3)),
        (scipy.stats.t(5, 0.3, np.sqrt(0.8)).pdf, mm.StudentT([0.3], [[0.8]], 5)),
    ]:
        f = mm.Fourier([1.0], [[1.7]], [0.4])
        truth, _ = scipy.integrate.quad(
            lambda x, density=density: density(x) * np.cos(1.7 * x + 0.4), -400, 400, points=[0.3], limit=4000
        )
        np.testing.assert_allclose(mm.expectation(p, f), truth, atol=1e-7)


@pytest.mark.parametrize(("kind", "function"), problems.smooth(mm.CLOSED_FORMS))
@pytest.mark.parametrize("d", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_every_gaussian_pair_by_tensor_quadrature(kind, function, d):
    """No reduction to one dimension, no moment tensors: f itself, summed over a grid."""
    rng = np.random.default_rng(d)
    p = problems.distribution(kind, rng, d)
    f = problems.function(function, rng, d)
    if kind in ("Laplace", "StudentT"):
        truth = integrate_scale_mixture(p, f)
        tolerance = 1e-9
    else:
        parts = {
            "Dirac": lambda: [(1.0, p.mean, np.zeros((d, d)))],
            "Empirical": lambda: [(1 / len(p.points), x, np.zeros((d, d))) for x in p.points],
            "GaussianMixture": lambda: zip(p.weights, p.components.mean, p.components.covariance, strict=True),
        }.get(kind, lambda: [(1.0, p.mean, p.covariance)])()
        truth = sum(float(w) * integrate(f, np.asarray(mean), np.asarray(cov)) for w, mean, cov in parts)
        tolerance = 1e-11
    np.testing.assert_allclose(expectation(p, f), truth, rtol=tolerance, atol=tolerance)


def integrate(f, mean, covariance):
    x, weights = reference.tensor_rule(mean, covariance)
    values = evaluate(f, x) if isinstance(f, mm.Function) else f(x)
    return float(np.dot(weights, np.asarray(values)))


def integrate_scale_mixture(p, f):
    """E over τ of the Gaussian expectation, both by quadrature, with τ = e^s so that its density decays fast."""
    f = f if isinstance(f, mm.Function) else jax.jit(jax.vmap(f))  # compiled once for all scales
    s = np.linspace(-45, 12, 301) if isinstance(p, mm.Laplace) else np.linspace(-6, 60, 401)
    if isinstance(p, mm.Laplace):
        density = scipy.stats.expon.pdf(np.exp(s)) * np.exp(s)
    else:
        density = scipy.stats.invgamma.pdf(np.exp(s), p.df / 2, scale=p.df / 2) * np.exp(s)
    keep = density > 1e-70
    s, density = s[keep], density[keep]
    each = [integrate(f, np.asarray(p.mean), np.exp(scale) * np.asarray(p.shape_matrix)) for scale in s]
    return np.sum(density * each) * (s[1] - s[0])


def test_a_stored_value_from_arbitrary_precision():
    """Fifty digits of mpmath, two dimensions, correlated: a number that no refactoring can move."""
    p = mm.Gaussian([0.3, -0.2], [[0.5, 0.2], [0.2, 0.4]])
    f = mm.RBF([1.5], [[0.1, 0.7]], [[[2.0, 0.3], [0.3, 1.0]]])
    with mpmath.workdps(50):
        sigma, lam = mpmath.matrix([[0.5, 0.2], [0.2, 0.4]]), mpmath.matrix([[2.0, 0.3], [0.3, 1.0]])
        delta = mpmath.matrix([mpmath.mpf("0.2"), mpmath.mpf("-0.9")])
        total = (sigma**-1 + lam) ** -1
        b = lam * delta
        exponent = (delta.T * lam * delta)[0] - (b.T * total * b)[0]
        truth = mpmath.mpf("1.5") / mpmath.sqrt(mpmath.det(mpmath.eye(2) + sigma * lam)) * mpmath.exp(-exponent / 2)
    np.testing.assert_allclose(mm.expectation(p, f), float(truth), rtol=1e-14)


EVERY_TIME = (("Laplace", "Fourier"), ("StudentT", "Fourier"))  # nothing else looks at their samples
SAMPLED = [
    pytest.param(*each.values, marks=() if each.values in EVERY_TIME else pytest.mark.slow)
    for each in problems.supported(mm.CLOSED_FORMS)
]


@pytest.mark.parametrize(("kind", "function"), SAMPLED)
def test_agrees_with_monte_carlo(kind, function):
    rng = np.random.default_rng(3)
    p, f = problems.distribution(kind, rng, 3), problems.function(function, rng, 3)
    samples = np.asarray(evaluate(f, sample(p, jax.random.key(0))))
    error = abs(samples.mean() - float(expectation(p, f)))
    assert error <= 4 * samples.std() / np.sqrt(len(samples)) + 1e-12


def test_called_by_hand_a_closed_form_is_one_program_and_a_lambda_is_none():
    p, f = mm.DiagonalGaussian(np.zeros(2), np.ones(2)), mm.RBF([1.0], [[0.0, 0.0]], np.ones(2))
    mm.expectation(p, f)
    before = program._cache_size()
    mm.expectation(mm.DiagonalGaussian(np.ones(2), np.ones(2)), f)
    assert program._cache_size() == before
    scale, points = [1.0], mm.Empirical([[1.0], [3.0]])
    twice = lambda x: scale[0] * x[0]  # noqa: E731
    assert mm.expectation(points, twice) == 2
    scale[0] = 5.0  # what a lambda closes over may change
    assert mm.expectation(points, twice) == 10
    assert program._cache_size() == before
