"""One short function per compatible family: the expectation, or the variance, of `f` under `p`."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.scipy.special import erf
from jaxtyping import Array, Float

from moca.moments._numerics import dot
from moca.moments.distributions import (
    DiagonalGaussian,
    Dirac,
    Elliptical,
    Empirical,
    Gaussian,
)
from moca.moments.functions import (
    RBF,
    Erf,
    Fourier,
    Polynomial,
    Quadratic,
    horner,
    squared_distances,
)


def dirac(p: Dirac, f: Callable) -> Float[Array, ""]:
    """f at the point."""
    return f(p.point)


def empirical(p: Empirical, f: Callable) -> Float[Array, ""]:
    """Average of f over the points."""
    return jax.vmap(f)(p.points).mean()


def gaussian_rbf(p: DiagonalGaussian | Gaussian, f: RBF) -> Float[Array, ""]:
    """Σᵢ wᵢ |I + ΣΛᵢ|^−½ exp(−½ (μ − cᵢ)ᵀ Λᵢ (I + ΣΛᵢ)⁻¹ (μ − cᵢ)) + constant [Eq. 7] [App. B.2]."""
    return dot(f.weights, rbf_bases(p, f)) + f.constant


def rbf_bases(p: DiagonalGaussian | Gaussian, f: RBF) -> Float[Array, "m"]:
    """E[φᵢ] for each basis. Determinant and distance are summed as logarithms, so that neither underflows alone."""
    if isinstance(p, Gaussian) or f.precision.ndim == 3:
        return _full_bases(Gaussian(p.mean, p.covariance), f)
    if f.precision.ndim == 1:
        widened = 1 + p.variance * f.precision
        exponent = squared_distances(p.mean, f.centers, f.precision / widened, plus=jnp.log(widened))
        return jnp.exp(-exponent / 2)
    return _streamed_bases(p, f)


def _streamed_bases(p: DiagonalGaussian, f: RBF) -> Float[Array, "m"]:
    """Diagonal belief, one diagonal precision per basis: summed one dimension after the other.

    Every basis widens by its own factor, so this is no matrix product; recomputing each term in the backward pass
    keeps the memory of a batch at (batch, M) instead of (batch, M, d).
    """

    @jax.checkpoint
    def add_dimension(total: Float[Array, "m"], column: tuple) -> tuple[Float[Array, "m"], None]:
        mean, variance, centers, precision = column
        widened = 1 + variance * precision
        return total + jnp.log(widened) + precision / widened * (mean - centers) ** 2, None

    start = jnp.zeros_like(f.weights)
    total, _ = jax.lax.scan(add_dimension, start, (p.mean, p.variance, f.centers.T, f.precision.T))
    return jnp.exp(-total / 2)


def _full_bases(p: Gaussian, f: RBF) -> Float[Array, "m"]:
    """Full covariance or precision: with Λ = RRᵀ and the Cholesky factor B of I + RᵀΣR,

    |I + ΣΛ| = |B|² and (μ − c)ᵀ Λ (I + ΣΛ)⁻¹ (μ − c) = ‖B⁻¹Rᵀ(μ − c)‖². B is the identity at Σ = 0, and a
    precision shared by all bases is factorised once.
    """

    def widen(root: Float[Array, "d d"]) -> tuple[Float[Array, ""], Float[Array, "d d"]]:
        inner = jnp.eye(p.dimension, dtype=root.dtype) + dot(root.T, dot(p.covariance, root))
        factor = jnp.linalg.cholesky(inner)
        whiten = jax.scipy.linalg.solve_triangular(factor, root.T, lower=True)
        return 2 * jnp.sum(jnp.log(jnp.diagonal(factor))), whiten

    if f.precision.ndim == 3:
        roots = jnp.linalg.cholesky(f.precision)
    else:
        roots = jnp.atleast_2d(jnp.sqrt(f.precision))[..., None] * jnp.eye(p.dimension, dtype=f.precision.dtype)
    log_determinants, whiten = jax.vmap(widen)(roots)
    whiten = jnp.broadcast_to(whiten, (*f.centers.shape, p.dimension))
    white = jnp.einsum("mij,mj->mi", whiten, p.mean - f.centers, precision="highest")
    return jnp.exp(-(log_determinants + jnp.sum(white**2, axis=-1)) / 2)


def gaussian_erf(p: DiagonalGaussian | Gaussian, f: Erf) -> Float[Array, ""]:
    """Σᵢ wᵢ erf((uᵢᵀμ + bᵢ) / √(1 + 2 uᵢᵀΣuᵢ)) + constant."""
    return dot(f.weights, erf(f.arguments(p.mean) / jnp.sqrt(1 + 2 * p.along(f.directions)))) + f.constant


def elliptical_fourier(p: Elliptical, f: Fourier) -> Float[Array, ""]:
    """Σᵢ wᵢ χ(ωᵢᵀSωᵢ) cos(ωᵢᵀμ + bᵢ) + constant, with χ the characteristic function; exp(−½ ωᵀΣω) for a Gaussian."""
    damping = p.characteristic(p.along(f.frequencies))
    return dot(f.weights, damping * jnp.cos(f.angles(p.mean))) + f.constant


def elliptical_quadratic(p: Elliptical, f: Quadratic) -> Float[Array, ""]:
    """f(μ) + ½ tr(AΣ)."""
    return f(p.mean) + p.scale_moment(1) * p.contract(f.A) / 2


def elliptical_polynomial(p: Elliptical, f: Polynomial) -> Float[Array, ""]:
    """f(μ) + E[τ] ½ S:∇²f(μ) + E[τ²] ⅛ S:∇⁴f:S, exact up to degree four.

    The odd orders vanish by symmetry, and E[exp(½ τ S:∇²) f] ends at the second power.
    """
    p.require_moment(len(f.tensors) - 1)
    value = f(p.mean)
    tensors = f.symmetric()
    if len(tensors) > 2:
        value += p.scale_moment(1) * p.contract(horner(tensors[2:], p.mean)) / 2
    if len(tensors) > 4:
        value += p.scale_moment(2) * p.contract(p.contract(tensors[4])) / 8
    return value


def dirac_variance(p: Dirac, f: Callable) -> Float[Array, ""]:
    """Zero."""
    return jnp.zeros_like(f(p.point))


def empirical_variance(p: Empirical, f: Callable) -> Float[Array, ""]:
    """Mean squared deviation of f over the points: the variance of the empirical distribution itself."""
    return jax.vmap(f)(p.points).var()


def gaussian_rbf_variance(p: DiagonalGaussian | Gaussian, f: RBF) -> Float[Array, ""]:
    """Σᵢⱼ wᵢ wⱼ E[φⱼ] (Eⱼ[φᵢ] − E[φᵢ]), where Eⱼ is the expectation after p was conditioned on basis j.

    A basis is a Gaussian likelihood, so φⱼ p = E[φⱼ] pⱼ with pⱼ the posterior, and E[φᵢφⱼ] = E[φⱼ] Eⱼ[φᵢ]. The
    difference vanishes when p is a point. Costs M² bases.
    """
    if isinstance(p, Gaussian) or f.precision.ndim == 3:
        p = Gaussian(p.mean, p.covariance)
        precision = f.precision if f.precision.ndim == 3 else jax.vmap(jnp.diag)(jnp.atleast_2d(f.precision))
    else:
        precision = jnp.atleast_2d(f.precision)
    precision = jnp.broadcast_to(precision, (len(f.centers), *precision.shape[1:]))
    bases = rbf_bases(p, f)
    conditioned = jax.vmap(lambda c, precision: rbf_bases(p.condition(c, precision), f))(f.centers, precision)
    return _not_negative(dot(f.weights * bases, dot(conditioned - bases, f.weights)))


def elliptical_quadratic_variance(p: Elliptical, f: Quadratic) -> Float[Array, ""]:
    """E[τ] gᵀSg + ½ E[τ²] tr(ASAS) + ¼ (E[τ²] − E[τ]²) tr(AS)², with g = Aμ + b the gradient at the mean."""
    A = (f.A + f.A.T) / 2
    first, second = p.scale_moment(1), p.scale_moment(2)
    slope = p.along((dot(A, p.mean) + f.b)[None])[0]
    curved = p.contract(dot(A, dot(p.shape_matrix, A)))
    return first * slope + second * curved / 2 + (second - first**2) * p.contract(A) ** 2 / 4


def _not_negative(variance: Float[Array, ""]) -> Float[Array, ""]:
    """Zero where rounding made it negative, with the formula's own gradient everywhere."""
    return variance + jax.lax.stop_gradient(jnp.maximum(variance, 0) - variance)
