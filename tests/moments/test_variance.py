"""Closed-form variances, relative to E[f²]."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from moca import moments as mm
from moca.moments.closed_forms.pairs import not_negative
from tests.moments import problems, reference
from tests.moments.test_expectation import evaluate, integrate_scale_mixture

TOLERANCE = {np.float64: 1e-10, np.float32: 2e-5}
variance = jax.jit(mm.variance)
expectation = jax.jit(mm.expectation)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(
    ("d", "m", "precision", "rotated"),
    [
        (8, 64, "RBF shared", False),
        (1, 7, "RBF per basis", False),
        (3, 64, "RBF shared", True),
        (3, 7, "RBF per basis", True),
    ],
)
def test_rbf_from_narrow_to_wide(d, m, precision, rotated, dtype):
    for seed, spread in enumerate([1e-4, 0.03, 0.3, 1.0, 3.0, 30.0]):
        check_rbf(d, m, seed, spread, precision, rotated, dtype)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 8),
    st.sampled_from([1, 2, 7, 64]),
    st.integers(0, 2**32 - 1),
    st.sampled_from([1e-4, 0.03, 0.3, 1.0, 3.0, 30.0]),
    st.sampled_from(["RBF shared", "RBF per basis"]),
    st.booleans(),
    st.sampled_from([np.float64, np.float32]),
)
@example(1, 7, 2024152, 1e-4, "RBF per basis", False, np.float64)
@example(8, 64, 0, 0.3, "RBF shared", False, np.float32)
@example(8, 64, 0, 30.0, "RBF per basis", True, np.float32)
def test_gaussian_rbf(d, m, seed, spread, precision, rotated, dtype):
    check_rbf(d, m, seed, spread, precision, rotated, dtype)


def check_rbf(d, m, seed, spread, precision, rotated, dtype):
    """Integrated where everything is diagonal; `rotated` then turns the same problem into full matrices."""
    rng = np.random.default_rng(seed)
    p = problems.distribution("DiagonalGaussian", rng, d, spread, dtype)
    f = problems.function(precision, rng, d, m, dtype=dtype)
    mean, spread, weights, centers, constant = (
        np.asarray(a, np.float64) for a in (p.mean, p.variance, f.weights, f.centers, f.constant)
    )
    precisions = np.broadcast_to(np.asarray(f.precision, np.float64), (m, d))
    first = weights @ reference.rbf(mean, np.diag(spread), centers, precisions[..., None] * np.eye(d))
    second = weights @ reference.rbf_products(mean, spread, centers, precisions) @ weights
    square = second + 2 * constant * first + constant**2
    if rotated:
        turn = np.linalg.qr(rng.normal(size=(d, d)))[0]
        p = mm.Gaussian(turn @ mean, symmetric(turn @ np.diag(spread) @ turn.T))
        precisions = symmetric(np.einsum("ij,mj,kj->mik", turn, precisions, turn))
        f = mm.RBF(weights, centers @ turn.T, precisions, constant)
        dtype = np.float64
    value = variance(p, f)
    assert value.dtype == dtype
    assert value >= 0
    rounding = 16 * np.finfo(np.float64).eps * first**2  # of the reference, a difference
    assert abs(float(value) - (second - first**2)) <= TOLERANCE[dtype] * square + rounding + np.finfo(dtype).tiny


def symmetric(matrix):
    return (matrix + np.swapaxes(matrix, -1, -2)) / 2


@pytest.mark.parametrize(("kind", "function"), problems.smooth(mm.VARIANCES))
@pytest.mark.parametrize("d", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_every_pair_by_tensor_quadrature(kind, function, d):
    rng = np.random.default_rng(d)
    p, f = problems.distribution(kind, rng, d), problems.function(function, rng, d)
    if kind in ("Laplace", "StudentT"):
        mean = float(expectation(p, f))
        truth = integrate_scale_mixture(p, lambda x: (f(x) - mean) ** 2)
    else:
        truth = integrate_variance(p, f)
    np.testing.assert_allclose(variance(p, f), truth, rtol=1e-10, atol=1e-12)


def integrate_variance(p, f):
    match p:
        case mm.Dirac():
            x, weights = p.point[None], np.ones(1)
        case mm.Empirical():
            x, weights = p.points, np.full(len(p.points), 1 / len(p.points))
        case mm.GaussianMixture():
            parts = zip(np.asarray(p.components.mean), np.asarray(p.components.covariance), strict=True)
            rules = [reference.tensor_rule(*part) for part in parts]
            x = np.concatenate([x for x, _ in rules])
            weights = np.concatenate([w * each for w, (_, each) in zip(np.asarray(p.weights), rules, strict=True)])
        case _:
            x, weights = reference.tensor_rule(np.asarray(p.mean), np.asarray(p.covariance))
    values = np.asarray(evaluate(f, x))
    return weights @ (values - weights @ values) ** 2


@pytest.mark.parametrize(
    "function",
    ["RBF per basis", *(pytest.param(f, marks=pytest.mark.slow) for f in ("RBF shared", "RBF full", "Quadratic"))],
)
def test_no_spread_means_no_variance(function):
    """Zero up to rounding, with a useful gradient: the variance grows by the squared slope."""
    slope = jax.jit(jax.value_and_grad(lambda v, mean, f: mm.variance(mm.DiagonalGaussian(mean, v), f)))
    rng = np.random.default_rng(0)
    f, mean = problems.function(function, rng, 3), rng.normal(size=3)
    value, growth = slope(np.zeros(3), mean, f)
    for each in (value, variance(mm.Gaussian(mean, np.zeros((3, 3))), f)):
        assert 0 <= each < 1e-15
    np.testing.assert_allclose(growth, jax.jit(jax.grad(lambda x, f: f(x)))(mean, f) ** 2, rtol=1e-10)


def test_what_rounding_made_negative_is_zero_and_keeps_its_gradient():
    for number, value in ((-1e-17, 0.0), (0.3, 0.3)):
        found, slope = jax.value_and_grad(not_negative)(jnp.array(number))
        assert (found, slope) == (value, 1)
