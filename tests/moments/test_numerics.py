"""Float32 where it hurts: underflow, extreme widths, cancellation, and the shape of the compiled program."""

import jax
import jax.numpy as jnp
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
