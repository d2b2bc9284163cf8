"""What is wrong is said in a sentence that names it."""

import subprocess
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moca import moments as mm
from moca.moments import dispatch

EYE, ZERO = np.eye(2), np.zeros(2)
NAN = np.array([0.0, np.nan])
SKEW = np.array([[1.0, 0.5], [0.0, 1.0]])
INDEFINITE = np.array([[1.0, 2.0], [2.0, 1.0]])
ONES3, ONES2 = np.ones(3), np.ones(2)


def rbf():
    return mm.RBF([1.0], [[0.0, 0.0]], [1.0, 1.0])


FAULTS = {
    "negative variance": (
        lambda: mm.DiagonalGaussian(ZERO, [1.0, -0.1]),
        r"DiagonalGaussian.variance contains -0.1 at index 1",
    ),
    "nan mean": (lambda: mm.DiagonalGaussian(NAN, ONES2), r"DiagonalGaussian.mean contains nan at index 1"),
    "infinite point": (lambda: mm.Dirac([np.inf]), r"Dirac.point contains inf"),
    "no points": (lambda: mm.Empirical(np.zeros((0, 2))), r"at least one point"),
    "points without a dimension": (lambda: mm.Empirical([1.0, 2.0]), r"Empirical.points must have at least 2 axes"),
    "variance of another length": (lambda: mm.DiagonalGaussian(ZERO, ONES3), r"variance must have shape \(2,\)"),
    "scalar mean": (lambda: mm.DiagonalGaussian(0.0, 1.0), r"DiagonalGaussian.mean must have at least 1 axes"),
    "covariance as a vector": (lambda: mm.Gaussian(ZERO, ONES2), r"covariance must have shape \(2, 2\)"),
    "skew covariance": (lambda: mm.Gaussian(ZERO, SKEW), r"Gaussian.covariance must be symmetric"),
    "indefinite covariance": (
        lambda: mm.Gaussian(ZERO, INDEFINITE),
        r"positive semi-definite, but has the eigenvalue -1",
    ),
    "one bad covariance among large ones": (
        lambda: mm.Gaussian(np.zeros((2, 2)), np.stack([INDEFINITE, 1e12 * EYE])),
        r"positive semi-definite, but has the eigenvalue -1",
    ),
    "indefinite Laplace": (lambda: mm.Laplace(ZERO, INDEFINITE), r"Laplace.covariance must be positive semi-definite"),
    "indefinite scale": (lambda: mm.StudentT(ZERO, INDEFINITE, 5), r"StudentT.scale must be positive semi-definite"),
    "no degrees of freedom": (lambda: mm.StudentT(ZERO, EYE, 0), r"StudentT.df must be positive"),
    "infinite degrees of freedom": (lambda: mm.StudentT(ZERO, EYE, np.inf), r"use Gaussian"),
    "weights beyond one": (
        lambda: mm.GaussianMixture([0.5, 0.6], mm.DiagonalGaussian(np.zeros((2, 2)), np.ones((2, 2)))),
        r"weights must sum to one, got 1.1",
    ),
    "weights of another length": (
        lambda: mm.GaussianMixture([1.0], mm.DiagonalGaussian(np.zeros((2, 2)), np.ones((2, 2)))),
        r"weights must have shape \(2,\)",
    ),
    "mixed components": (
        lambda: mm.GaussianMixture([0.5, 0.5], [mm.Gaussian(ZERO, EYE), mm.DiagonalGaussian(ZERO, ONES2)]),
        r"all be of one type, got \['DiagonalGaussian', 'Gaussian'\]",
    ),
    "weights of another number of centres": (
        lambda: mm.RBF(ONES3, [ZERO, ZERO], ONES2),
        r"weights must have shape \(2,\)",
    ),
    "centres as a vector": (lambda: mm.RBF([1.0], ZERO, ONES2), r"RBF.centers must have shape \(M, d\)"),
    "precision of another dimension": (lambda: mm.RBF([1.0], [ZERO], ONES3), r"RBF.precision must have shape \(2,\)"),
    "negative precision": (lambda: mm.RBF([1.0], [ZERO], [1.0, -1.0]), r"RBF.precision contains -1 at index 1"),
    "indefinite precision": (
        lambda: mm.RBF([1.0], [ZERO], INDEFINITE[None]),
        r"RBF.precision must be positive definite",
    ),
    "constant as a vector": (lambda: mm.RBF([1.0], [ZERO], ONES2, ONES2), r"RBF.constant must have shape \(\)"),
    "nan frequency": (lambda: mm.Fourier([1.0], [NAN], [0.0]), r"Fourier.frequencies contains nan at index \(0, 1\)"),
    "phases of another length": (lambda: mm.Fourier([1.0], [ZERO], ZERO), r"Fourier.phases must have shape \(1,\)"),
    "offsets of another length": (lambda: mm.Erf([1.0], [ZERO], ZERO), r"Erf.offsets must have shape \(1,\)"),
    "quadratic of two dimensions": (lambda: mm.Quadratic(EYE, ONES3), r"Quadratic.A must have shape \(3, 3\)"),
    "degree five": (lambda: mm.Polynomial([np.ones((2,) * k) for k in range(6)]), r"degree one to four"),
    "ragged tensors": (lambda: mm.Polynomial([1.0, ZERO, np.ones((3, 3))]), r"tensors\[2\] must have shape \(2, 2\)"),
    "powers beyond four": (lambda: mm.Polynomial.from_monomials([1.0], [[3, 2]]), r"a sum of at most four"),
    "complex mean": (lambda: mm.Dirac([1j]), r"expected real numbers"),
    "state of another dimension": (lambda: rbf()(ONES3), r"RBF.x must have shape \(2,\)"),
    "belief of another dimension": (
        lambda: mm.expectation(mm.Dirac(ONES3), rbf()),
        r"Dirac has dimension 3, but RBF takes dimension 2",
    ),
    "a batch": (
        lambda: mm.expectation(mm.DiagonalGaussian(np.zeros((4, 2)), np.ones((4, 2))), rbf()),
        r"holds a batch of shape \(4,\): use jax.vmap\(lambda q: expectation\(q, f\)\)\(p\)",
    ),
    "a batch of two functions": (
        lambda: mm.covariance(mm.DiagonalGaussian(np.zeros((4, 2)), np.ones((4, 2))), rbf(), rbf()),
        r"use jax.vmap\(lambda q: covariance\(q, f, g\)\)\(p\)",
    ),
    "a batch, crossed": (
        lambda: mm.cross_covariance(mm.DiagonalGaussian(np.zeros((4, 2)), np.ones((4, 2))), rbf()),
        r"use jax.vmap\(lambda q: cross_covariance\(q, f\)\)\(p\)",
    ),
    "a batch to integrate": (
        lambda: mm.quadrature(mm.DiagonalGaussian(np.zeros((4, 2)), np.ones((4, 2))), rbf()),
        r"use jax.vmap\(lambda q: quadrature\(q, f\)\)\(p\)",
    ),
    "a batch of sigma points": (
        lambda: mm.sigma_points(mm.Gaussian(np.zeros((4, 2)), np.stack([EYE] * 4)), rbf()),
        r"use jax.vmap\(lambda q: sigma_points\(q, f\)\)\(p\)",
    ),
    "a process with a lengthscale too many": (
        lambda: mm.GP(np.ones((4, 2)), np.ones((4, 1)), ONES3),
        r"GP.lengthscales must have shape \(2,\)",
    ),
    "a process of three axes": (
        lambda: mm.GP(np.ones((4, 2, 2)), np.ones((4, 1)), 1.0),
        r"GP.inputs must have two axes, with one row per point, got shape \(4, 2, 2\)",
    ),
    "a process of flat targets": (
        lambda: mm.GP.fit(np.ones((4, 2)), np.ones(4)),
        r"GP.targets must have two axes, with one row per point, got shape \(4,\)",
    ),
    "second function of another dimension": (
        lambda: mm.covariance(mm.Gaussian(ZERO, EYE), rbf(), mm.Erf([1.0], [ONES3], [0.0])),
        r"Gaussian has dimension 2, but Erf takes dimension 3",
    ),
    "weights of three axes": (lambda: mm.RBF(np.ones((1, 1, 1)), [ZERO], ONES2), r"weights must have shape \(1,\)"),
    "a constant per output": (
        lambda: mm.Erf(np.ones((3, 1)), [ZERO], [0.0], ONES2),
        r"constant must have shape \(3,\)",
    ),
    "quadratic of three axes": (lambda: mm.Quadratic(np.ones((1, 1, 2, 2)), np.ones((1, 1, 2))), r"at most 2 axes"),
    "a sum of unlike outputs": (
        lambda: rbf() + mm.Erf(np.ones((3, 1)), [ZERO], [0.0]),
        r"terms of a Sum must have equal dimensions and outputs, but RBF maps dimension 2 to outputs \(\)",
    ),
    "an empty sum": (lambda: mm.Sum(()), r"at least one function"),
    "a lambda in a sum": (lambda: mm.Sum((lambda x: x,)), r"must be functions of moca.moments, got function"),
    "an angle beyond the state": (lambda: mm.with_angles(mm.Gaussian(ZERO, EYE), [2]), r"from 0 to 1.*got \[2\]"),
    "the same angle twice": (lambda: mm.with_angles(mm.Gaussian(ZERO, EYE), [1, 1]), r"different dimensions"),
    "matern of another smoothness": (
        lambda: mm.Matern([1.0], [ZERO], ONES2, 2.0),
        r"nu must be 0.5, 1.5 or 2.5, got 2",
    ),
    "no moment of odd order": (
        lambda: mm.covariance(mm.StudentT(ZERO, EYE, 3), mm.Quadratic(EYE, ZERO), mm.Polynomial([0.0, ONES2])),
        r"df = 3 has no moment of order 3",
    ),
    "no moment of order eight": (
        lambda: mm.variance(mm.StudentT(ZERO, EYE, 8), mm.Polynomial([np.ones((2,) * k) for k in range(5)])),
        r"df = 8 has no moment of order 8",
    ),
    "no second moment": (
        lambda: mm.expectation(mm.StudentT(ZERO, EYE, 2), mm.Quadratic(EYE, ZERO)),
        r"df = 2 has no moment of order 2: it needs df > 2",
    ),
    "no fourth moment": (
        lambda: mm.variance(mm.StudentT(ZERO, EYE, 4), mm.Quadratic(EYE, ZERO)),
        r"df = 4 has no moment of order 4",
    ),
    "no first moment": (
        lambda: mm.expectation(mm.StudentT(ZERO, EYE, 1), mm.Polynomial([0.0, ONES2])),
        r"df = 1 has no moment of order 1: it needs df > 1",
    ),
    "no third moment": (
        lambda: mm.expectation(mm.StudentT(ZERO, EYE, 3), mm.Polynomial([np.ones((2,) * k) for k in range(4)])),
        r"df = 3 has no moment of order 3",
    ),
    "even degrees of freedom": (
        lambda: mm.expectation(mm.StudentT(ZERO, EYE, 4), mm.Fourier([1.0], [ONES2], [0.0])),
        r"odd integer degrees of freedom",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named(fault):
    build, message = FAULTS[fault]
    with pytest.raises((ValueError, TypeError), match=message):
        build()


def test_a_function_in_the_place_of_the_distribution():
    """Types are checked while tests run, and would speak first: so below them."""
    with pytest.raises(TypeError, match=r"needs a distribution of moca.moments, got ndarray: .* pass Dirac\(x\)"):
        dispatch.check_order("covariance", ONES2, rbf())
    with pytest.raises(TypeError, match=r"needs one distribution, then the function, but got \(Dirac, Dirac\)"):
        dispatch.check_order("variance", mm.Dirac(ZERO), mm.Dirac(ZERO))
    code = """
from moca import moments as mm
p, f = mm.DiagonalGaussian([0.0], [1.0]), mm.Polynomial([0.0, [1.0]])
verbs = (mm.expectation, mm.variance, mm.cross_covariance, mm.covariance, mm.quadrature, mm.sigma_points, mm.compare)
for verb in verbs:
    for function in (f, lambda x: x[0]):
        try:
            verb(function, p)
        except TypeError as error:
            print(error)
for call in (lambda: mm.decompose(f), lambda: mm.moment_match(p), lambda: mm.product(f, p, f)):
    try:
        call()
    except TypeError as error:
        print(error)
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()
    *told, one, two, three = told
    assert one == "decompose and moment_match need a GaussianMixture, got Polynomial"
    assert two == "decompose and moment_match need a GaussianMixture, got DiagonalGaussian"
    assert three.startswith("product: the distribution comes first, then the function, but got (Polynomial, Diagonal")
    assert len(told) == 14
    assert told[0] == (
        "expectation: the distribution comes first, then the function, but got (Polynomial, DiagonalGaussian)"
    )
    assert all("the distribution comes first, then the function, but got (" in line for line in told)


def test_a_network_is_made_of_layers():
    below = mm.MatchedNetwork.__check_init__
    with pytest.raises(TypeError, match="layer 0 of the network must be a Ridge, got function"):
        below(types.SimpleNamespace(layers=(lambda x: x,)))


def test_an_unsupported_pair_names_both_and_lists_what_is_there():
    with pytest.raises(TypeError, match="expectation of RBF under Laplace") as raised:
        mm.expectation(mm.Laplace(ZERO, EYE), rbf())
    listed = str(raised.value).split("Supported under it: ")[1].split(". To estimate")[0].split(", ")
    assert set(listed) == {f.__name__ for p, f in mm.CLOSED_FORMS if issubclass(mm.Laplace, p)}
    with pytest.raises(TypeError, match="variance of RBF under Laplace"):
        mm.variance(mm.Laplace(ZERO, EYE), rbf())
    with pytest.raises(TypeError, match="cross-covariance of RBF under Laplace"):
        mm.cross_covariance(mm.Laplace(ZERO, EYE), rbf())


def test_an_unsupported_covariance_names_all_three():
    wave, step = mm.Fourier([1.0], [ZERO], [0.0]), mm.Erf([1.0], [ZERO], [0.0])
    for pair in ((wave, step), (step, wave)):
        names = f"{type(pair[0]).__name__} and {type(pair[1]).__name__} under Gaussian"
        with pytest.raises(TypeError, match=f"covariance of {names}.*RBF × Erf"):
            mm.covariance(mm.Gaussian(ZERO, EYE), *pair)
    with pytest.raises(TypeError, match="is not a Function: product"):
        wave * step


def test_values_are_not_looked_at_while_tracing():
    value = jax.jit(lambda v: mm.expectation(mm.DiagonalGaussian(jnp.zeros(2), v), rbf()))(jnp.ones(2))
    np.testing.assert_allclose(value, 0.5)


def test_a_singular_covariance_is_fine():
    rank_one = np.ones((2, 2))
    expectation = jax.jit(mm.expectation)
    along = expectation(mm.Gaussian(ZERO, rank_one), rbf())
    alone = expectation(mm.DiagonalGaussian([0.0], [1.0]), mm.RBF([1.0], [[0.0]], [2.0]))
    np.testing.assert_allclose(along, alone)


def test_a_pair_of_ones_own_is_one_line(monkeypatch):
    class Linear(mm.Function):
        slope: jax.Array

        @property
        def dimension(self):
            return len(self.slope)

        def _evaluate(self, x):
            return self.slope @ x

    f = Linear(jnp.ones(2))
    with pytest.raises(TypeError, match="Linear under Gaussian"):
        mm.expectation(mm.Gaussian(ZERO, EYE), f)
    monkeypatch.setitem(mm.CLOSED_FORMS, (mm.Gaussian, Linear), lambda p, f: f(p.mean))
    assert mm.expectation(mm.Gaussian(ONES2, EYE), f) == 2


def test_weights_of_a_mixture_count_under_jit_too():
    """They cannot be looked at there: they are divided by their sum, and negative ones give no number."""
    parts = mm.DiagonalGaussian(jnp.array([[0.0], [1.0]]), jnp.ones((2, 1)))
    mean = jax.jit(lambda weights: mm.GaussianMixture(weights, parts).mean)
    np.testing.assert_allclose(mean(jnp.array([2.0, 6.0])), 0.75)
    np.testing.assert_allclose(mean(jnp.array([0.5, 0.5])), 0.5)
    for wrong in ([-1.0, 2.0], [0.0, 0.0], [np.nan, 1.0]):
        assert np.isnan(mean(jnp.array(wrong))).all()
