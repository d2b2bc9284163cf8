"""Float32 where it hurts: underflow, extreme widths, cancellation, and the shape of the compiled program."""

import itertools
import math

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from moca import moments as mm
from tests.moments import problems

expectation, variance = jax.jit(mm.expectation), jax.jit(mm.variance)


def single(x):
    return np.asarray(x, np.float32)


@pytest.mark.parametrize("kind", ["DiagonalGaussian", "Gaussian"])
@pytest.mark.parametrize("ratio", [1e2, 1e5, 1e8])
def test_a_very_wide_belief(kind, ratio):
    """|I + ΣΛ| reaches 10⁶⁴ in eight dimensions, far beyond float32, while its root's inverse is an ordinary number."""
    d = 8
    f = mm.RBF(single([1.0]), single(np.zeros((1, d))), single(np.full(d, 1e-4)))
    variance = single(np.full(d, ratio * 1e4))
    p = mm.DiagonalGaussian(single(np.zeros(d)), variance)
    p = p if kind == "DiagonalGaussian" else mm.Gaussian(p.mean, jnp.diag(jnp.asarray(variance)))
    np.testing.assert_allclose(expectation(p, f), (1 + ratio) ** (-d / 2), rtol=2e-5)


@pytest.mark.parametrize("kind", ["DiagonalGaussian", "Gaussian"])
def test_a_very_narrow_basis(kind):
    """A basis a million times narrower than the belief: density times volume."""
    narrow = 1e-6
    f = mm.RBF(single([1.0]), single([[0.5]]), single([1 / narrow**2]))
    p = mm.DiagonalGaussian(single([0.0]), single([1.0]))
    p = p if kind == "DiagonalGaussian" else mm.Gaussian(p.mean, single([[1.0]]))
    np.testing.assert_allclose(expectation(p, f), narrow * np.exp(-0.125), rtol=1e-5)
    # The variance is E[φ²], half as wide, up to the square of the mean.
    np.testing.assert_allclose(variance(p, f), narrow / np.sqrt(2) * np.exp(-0.125), rtol=1e-4)


def test_far_from_the_origin():
    """States around 10,000 with lengthscale one: the centres' mean is the origin, so the square does not cancel."""
    rng = np.random.default_rng(0)
    centers = single(1e4 + rng.normal(size=(16, 3)))
    f = mm.RBF(single(rng.uniform(size=16)), centers, single(np.ones(3)))
    x = centers[0] + single(0.25)
    truth = np.exp(-((x.astype(float) - centers.astype(float)) ** 2).sum(1) / 2) @ np.asarray(f.weights, float)
    np.testing.assert_allclose(f(x), truth, rtol=1e-5)


def test_float32_in_float32_out():
    rng = np.random.default_rng(0)
    for kind, function in (each.values for each in problems.supported(mm.CLOSED_FORMS)):
        p = problems.distribution(kind, rng, 3, dtype=np.float32)
        f = problems.function(function, rng, 3, dtype=np.float32)
        assert jax.eval_shape(mm.expectation, p, f).dtype == jnp.float32, (kind, function)


def test_every_product_is_in_full_precision():
    """TF32 is the default on recent GPUs; each dot in the program must ask for more."""
    rng = np.random.default_rng(0)
    for kind, function in problems.QUICK:
        p, f = problems.distribution(kind, rng, 3), problems.function(function, rng, 3)
        for transformed in (mm.expectation, jax.grad(mm.expectation, 1)):
            for equation in dots(jax.make_jaxpr(transformed)(p, f).jaxpr):
                precision = equation.params["precision"]
                assert precision is not None, (kind, function)
                assert {str(p).split(".")[-1] for p in precision} == {"HIGHEST"}, (kind, function)


def dots(jaxpr):
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            yield equation
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from dots(inner)


@pytest.mark.parametrize("function", ["RBF shared", "RBF per basis"])
def test_a_batch_never_holds_a_difference_per_basis_and_dimension(function):
    """Forward and backward, temporaries stay of the order (batch, M): no (batch, M, d) tensor."""
    batch, m, d = 64, 128, 64
    rng = np.random.default_rng(0)
    f = problems.function(function, rng, d, m, dtype=np.float32)
    p = mm.DiagonalGaussian(single(rng.normal(size=(batch, d))), single(rng.uniform(size=(batch, d))))

    def total(f):
        return jax.vmap(mm.expectation, (0, None))(p, f).sum()

    for program in (total, jax.grad(total)):
        memory = jax.jit(program).lower(f).compile().memory_analysis()
        assert memory.temp_size_in_bytes < batch * m * d * 4 / 2


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_default_constant_takes_the_dtype_of_the_rest(dtype):
    """And is not weakly typed: a leaf that changes its type after the first gradient step compiles everything again."""
    row, one = np.zeros((1, 2), dtype), np.ones(1, dtype)
    for f in (mm.RBF(one, row, np.ones(2, dtype)), mm.Fourier(one, row, one), mm.Erf(one, row, one)):
        assert f.constant.dtype == dtype
        assert not f.constant.weak_type
    assert mm.Quadratic(np.eye(2, dtype=dtype), row[0]).c.dtype == dtype


def test_many_narrow_bases_in_float32():
    """A hundred lengthscales across, at the bases themselves: as good as stated, never above one."""
    rng = np.random.default_rng(0)
    centers = single(rng.uniform(-1, 1, (64, 3)))
    for lengthscale in (2e-2, 1e-5):
        for weight in np.eye(64, dtype=np.float32)[:8]:
            f = mm.RBF(weight, centers, single(np.full(3, lengthscale**-2)))
            value = float(f(centers[weight.argmax()]))
            assert value <= 1 + 1e-6
            assert lengthscale < 1e-3 or abs(value - 1) < 1e-3


def student_reference(df, q):
    """The characteristic function of a Student-t from mpmath's Bessel function."""
    with mpmath.workdps(60):
        t, order = mpmath.sqrt(df * mpmath.mpf(q)), mpmath.mpf(df) / 2
        value = mpmath.besselk(order, t) * t**order * 2 ** (1 - order) / mpmath.gamma(order) if q else mpmath.mpf(1)
        return float(value)


@pytest.mark.parametrize("df", [1, 3, 61, 63, 1001, 5001])
def test_a_student_t_and_waves_at_any_degrees_of_freedom(df):
    """The polynomial in closed form overflows at df = 1001 and ω = 3; the answer there is 0.011."""
    frequencies = np.array([0.0, 0.01, 0.3, 1.0, 3.0, 6.0, 10.0])
    truth = np.array([student_reference(df, w * w) for w in frequencies])
    # Rounding of the exponent, −log χ, is what limits it.
    slack = 1 - np.log(np.maximum(truth, 1e-300))
    for dtype, eps in ((np.float64, 1e-14), (np.float32, 2e-6)):
        with jax.enable_x64(dtype == np.float64):
            p = mm.StudentT(np.zeros(1, dtype), np.ones((1, 1), dtype), df)
            f = mm.Fourier(None, frequencies[:, None].astype(dtype), np.zeros(len(frequencies), dtype))
            values = np.asarray(mm.expectation(p, f), np.float64)
            slopes = jax.jacobian(lambda scale: mm.expectation(mm.StudentT(p.mean, scale, df), f))(p.scale)  # noqa: B023
        assert (np.abs(values - truth) <= eps * slack * truth + 1e-30).all()
        assert np.isfinite(slopes).all()
        if df > 3:  # E[τ exp(−½τq)] = χ_{df−2}(q df / (df − 2)) df / (df − 2)
            ratio = df / (df - 2)
            known = [-w * w / 2 * ratio * student_reference(df - 2, w * w * ratio) for w in frequencies]
            np.testing.assert_allclose(slopes[:, 0, 0], known, rtol=200 * eps, atol=1e-30)


@pytest.mark.parametrize("df", [1, 5, 61, 1001])
@pytest.mark.parametrize("frequency", [1e3, 1e10, 1e18])
def test_a_wave_far_too_fast_averages_out(df, frequency):
    p = mm.StudentT(single([0.0]), single([[1.0]]), df)
    f = mm.Fourier(single([1.0]), single([[frequency]]), single([0.0]))
    value, slopes = jax.value_and_grad(mm.expectation, 1)(p, f)
    assert value == 0
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(slopes))


SIZES = (1e-30, 1e-12, 1e-3, 1.0, 1e3, 1e12, 1e30)
VARIANCES = (0.0, 2e-38, 1e-12, 1.0, 1e12, 1e30)
MEANS = (0.0, 1e-30, 1.0, 1e6, 1e30)


def finite(tree):
    return all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(tree))


def test_erf_at_the_ends_of_float32():
    step = jax.jit(jax.value_and_grad(mm.expectation, (0, 1)))
    for steepness, variance, mean in itertools.product(SIZES, VARIANCES, MEANS):
        p = mm.DiagonalGaussian(single([mean, 0.0]), single([variance, 0.0]))
        f = mm.Erf(single([1.0]), single([[steepness, 0.5]]), single([0.25]))
        value, slopes = step(p, f)
        u, v, m = (float(single(x)) for x in (steepness, variance, mean))
        truth = math.erf((u * m + 0.25) / math.sqrt(1 + 2 * u * u * v))
        np.testing.assert_allclose(value, truth, rtol=1e-5, atol=1e-37, err_msg=f"{steepness} {variance} {mean}")
        beyond = u * u > 1e38 and v < 1e-6  # the slope by the variance has u² in it, and is no float32 itself
        assert beyond or finite(slopes), (steepness, variance, mean)


def test_steep_units_along_what_is_known():
    """Of a covariance of low rank, uᵀΣu is zero along some directions, up to errors that steep units multiply."""
    random = np.random.default_rng(0)
    away = random.normal(size=(5, 2))
    steep = 1e5 * random.normal(size=(50, 3)) @ np.linalg.svd(away)[0][:, 2:].T
    p = mm.Gaussian(single(np.zeros(5)), single(away @ away.T))
    assert np.isfinite(expectation(p, mm.Erf(single(np.ones(50)), single(steep), single(np.ones(50)))))


@pytest.mark.parametrize("kind", ["shared", "per basis"])
def test_rbf_at_the_ends_of_float32(kind):
    """One basis where it matters, and one beside it, so that the centres' mean is not the centre itself."""
    basis = jax.jit(jax.value_and_grad(lambda p, f: mm.expectation(p, f)[0], (0, 1)))
    for precision, variance, mean in itertools.product(SIZES, VARIANCES, MEANS):
        p = mm.DiagonalGaussian(single([mean]), single([variance]))
        both = single([precision]) if kind == "shared" else single([[precision], [precision]])
        f = mm.RBF(None, single([[0.5], [0.5]]), both)
        value, slopes = basis(p, f)
        s, v, m = (float(single(x)) for x in (precision, variance, mean))
        exponent = s * (m - 0.5) ** 2 / (1 + v * s) + math.log1p(v * s)
        truth = math.exp(-exponent / 2)
        slack = 1e-6 * (2 + exponent)  # the exponent is rounded
        np.testing.assert_allclose(value, truth, rtol=slack, atol=1e-37, err_msg=f"{precision} {variance} {mean}")
        assert finite(slopes), (precision, variance, mean)
