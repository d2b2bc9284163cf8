"""Gaussians with the moments of f(x): several outputs, angles, the joint, and numbers in place of a closed form."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moca import moments as mm
from tests.moments import problems, reference

joined = jax.jit(lambda p, f: mm.propagate(p, f, joint=True))
alone_of = jax.jit(lambda p, f: mm.propagate(p, f))
diagonal_of = jax.jit(lambda p, f: mm.propagate(p, f, diagonal=True))


def integrated(p, f):
    """Mean of (x, f(x)) and its covariance by the tensor rule."""
    x, over = reference.tensor_rule(np.asarray(p.mean), np.asarray(p.covariance))
    y = np.concatenate([x, np.asarray(jax.jit(jax.vmap(f))(x)).reshape(len(x), -1)], 1)
    mean = over @ y
    return mean, (y - mean).T @ (over[:, None] * (y - mean))


@pytest.mark.parametrize(
    "function", ["RBF full", *(pytest.param(f, marks=pytest.mark.slow) for f in ("Fourier", "Erf", "Polynomial"))]
)
def test_the_moments_of_x_and_of_f(function):
    rng = np.random.default_rng(0)
    p = problems.distribution("Gaussian", rng, 2)
    f = problems.function(function, rng, 2, outputs=(3,))
    mean, spread = integrated(p, f)
    joint, alone = joined(p, f), alone_of(p, f)
    np.testing.assert_allclose(joint.mean, mean, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(joint.covariance, spread, rtol=1e-9, atol=1e-11 * np.abs(spread).max())
    np.testing.assert_allclose(alone.covariance, joint.covariance[2:, 2:], rtol=1e-13)
    diagonal = diagonal_of(p, f)
    np.testing.assert_allclose(diagonal.variance, jnp.diagonal(alone.covariance), rtol=1e-12)


def test_a_scalar_function_makes_one_dimension():
    p, f = mm.DiagonalGaussian([0.0, 1.0], [0.3, 0.2]), mm.Quadratic(np.eye(2), np.ones(2))
    assert jax.eval_shape(mm.propagate, p, f).dimension == 1
    assert jax.eval_shape(lambda p: mm.propagate(p, f, joint=True), p).dimension == 3


def test_an_affine_function_is_the_step_of_a_kalman_filter():
    rng = np.random.default_rng(0)
    p, A, b = problems.distribution("Gaussian", rng, 3), rng.normal(size=(2, 3)), rng.normal(size=2)
    q = alone_of(p, mm.Polynomial((b, A)))
    np.testing.assert_allclose(q.mean, A @ p.mean + b, rtol=1e-14)
    np.testing.assert_allclose(q.covariance, A @ p.covariance @ A.T, rtol=1e-13)


@pytest.mark.parametrize("kind", ["Dirac", "Empirical", "GaussianMixture", "Laplace"])
def test_the_joint_of_other_distributions(kind):
    """f = identity: every block is the distribution's own covariance."""
    p = problems.distribution(kind, np.random.default_rng(0), 2)
    q = joined(p, mm.Polynomial((jnp.zeros(2), jnp.eye(2))))
    np.testing.assert_allclose(q.covariance, jnp.tile(q.covariance[:2, :2], (2, 2)), rtol=1e-10, atol=1e-15)
    np.testing.assert_allclose(q.mean[:2], q.mean[2:], rtol=1e-13)


def test_angles_by_quadrature():
    rng = np.random.default_rng(0)
    p = problems.distribution("Gaussian", rng, 2, 1.3)
    turned = jax.jit(mm.with_angles, static_argnums=1)
    q = turned(p, 0)
    mean, spread = integrated(p, lambda x: jnp.stack([jnp.sin(x[0]), jnp.cos(x[0]), x[1]]))
    np.testing.assert_allclose(q.mean, mean[2:], atol=1e-12)
    np.testing.assert_allclose(q.covariance, spread[2:, 2:], atol=1e-12)
    cross = jax.jit(mm.cross_covariance)(p, mm.angles(2, [0]))
    np.testing.assert_allclose(cross, spread[2:, :2], atol=1e-12)
    both = turned(p, (0, 1))
    mean, spread = integrated(p, lambda x: jnp.stack([jnp.sin(x[0]), jnp.cos(x[0]), jnp.sin(x[1]), jnp.cos(x[1])]))
    np.testing.assert_allclose(both.covariance, spread[2:, 2:], atol=1e-12)


def test_angles_stand_where_the_angle_stood():
    """And at a point they are the sine and cosine themselves, in the belief's own precision."""
    x = np.array([0.3, 2.0, -0.7, 1.1], np.float32)
    turned = jax.jit(lambda v: mm.with_angles(mm.DiagonalGaussian(x, v), [3, 1]))
    q = turned(np.zeros(4, np.float32))
    truth = [x[0], np.sin(x[1]), np.cos(x[1]), x[2], np.sin(x[3]), np.cos(x[3])]
    np.testing.assert_allclose(q.mean, truth, atol=1e-6)
    np.testing.assert_allclose(q.covariance, 0, atol=1e-7)
    assert q.mean.dtype == jnp.float32
    gradient = jax.jit(jax.grad(lambda v: turned(v).covariance.sum()))(jnp.zeros(4, np.float32))
    assert jnp.isfinite(gradient).all()


exact = jax.jit(lambda p, *fs: [(mm.expectation(p, f), mm.quadrature(p, f, 3), mm.sigma_points(p, f)) for f in fs])


def test_quadrature_and_sigma_points_are_exact_for_polynomials():
    rng = np.random.default_rng(0)
    for kind, d in (("DiagonalGaussian", 4), ("GaussianMixture", 2)):
        p = problems.distribution(kind, rng, d)
        f = mm.Polynomial(problems.function("Polynomial", rng, d, outputs=(2,)).tensors)
        (quartic, by_rule, by_points), (cubic, *others) = exact(p, f, mm.Polynomial(f.tensors[:4]))
        np.testing.assert_allclose(by_rule, quartic, rtol=1e-11)
        assert not np.allclose(by_points, quartic, rtol=1e-6)
        for each in others:
            np.testing.assert_allclose(each, cubic, rtol=1e-11)


def test_quadrature_of_a_smooth_function():
    p, f = mm.Gaussian([0.2, -0.1], [[0.4, 0.1], [0.1, 0.3]]), mm.Erf([1.0], [[0.7, -0.4]], [0.2])
    both = jax.jit(lambda p: (mm.quadrature(p, f), mm.expectation(p, f)))(p)
    np.testing.assert_allclose(*both, rtol=1e-12)
    assert jax.eval_shape(lambda p: mm.quadrature(p, lambda x: jnp.stack([x[0], x[1]])), p).shape == (2,)


def test_what_quadrature_refuses():
    with pytest.raises(
        TypeError, match="quadrature supports DiagonalGaussian, Gaussian and GaussianMixture, got Laplace"
    ):
        mm.quadrature(mm.Laplace(np.zeros(1), np.eye(1)), jnp.sum)
    with pytest.raises(TypeError, match="sigma_points supports"):
        mm.sigma_points(mm.Dirac(np.zeros(1)), jnp.sum)
    with pytest.raises(ValueError, match="more than 4000000 nodes: use fewer points, or sigma_points"):
        mm.quadrature(mm.DiagonalGaussian(np.zeros(8), np.ones(8)), jnp.sum)


def test_compare_prints_every_method(capsys):
    p = mm.DiagonalGaussian([0.2, -0.1], [0.4, 0.3])
    mm.compare(p, mm.Erf([1.0], [[0.7, -0.4]], [0.2]), samples=1000)
    closed, quadrature, sigma, sampled = capsys.readouterr().out.splitlines()[1:]
    assert closed.startswith("closed form")
    assert " 0.0e+00" in closed
    assert quadrature.startswith("quadrature")
    assert float(quadrature.split()[2]) < 1e-10
    assert sigma.startswith("sigma points")
    assert sampled.startswith("1,000 samples")
    mm.compare(p, jnp.sum, samples=1000)
    assert "none    (no closed form for the expectation of function" in capsys.readouterr().out
    mm.compare(mm.Laplace(np.zeros(2), np.eye(2)), mm.Fourier(None, np.eye(2), np.zeros(2)), samples=1000)
    shown = capsys.readouterr().out
    assert "2 outputs" in shown
    assert "(quadrature supports" in shown


def test_joint_and_diagonal_exclude_each_other():
    with pytest.raises(ValueError, match="cannot combine joint=True and diagonal=True"):
        mm.propagate(mm.Dirac([0.0]), mm.Quadratic([[1.0]], [0.0]), joint=True, diagonal=True)
