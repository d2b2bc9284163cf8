"""Radial basis functions under Gaussians."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from moca.moments import linear
from moca.moments._numerics import dot
from moca.moments.closed_forms.pairs import weigh_pairs
from moca.moments.distributions import DiagonalGaussian, Gaussian
from moca.moments.functions import RBF
from moca.moments.functions.rbf import cut_off, squared_distances


def gaussian_rbf(p: DiagonalGaussian | Gaussian, f: RBF) -> Float[Array, "*outputs"]:
    """The expectation of an RBF under a Gaussian [Eq. 7] [App. B.2].

    Σᵢ wᵢ |I + ΣΛᵢ|^−½ exp(−½ (μ − cᵢ)ᵀ Λᵢ (I + ΣΛᵢ)⁻¹ (μ − cᵢ)) + constant.
    """
    return f.weigh(rbf_bases(p, f)) + f.constant


def rbf_bases(p: DiagonalGaussian | Gaussian, f: RBF) -> Float[Array, "m"]:
    """E[φᵢ] for each basis. Determinant and distance are added as logarithms to avoid underflow."""
    if isinstance(p, Gaussian) or f.precision.ndim == 3:
        return _full_bases(Gaussian(p.mean, p.covariance), f)
    if f.precision.ndim == 1:
        log_widened, precision = _widened(p.variance, f.precision)
        return jnp.exp(-squared_distances(p.mean, f.centers, precision, plus=log_widened) / 2)
    return _streamed_bases(p, f)


def _widened(variance: Float[Array, "..."], precision: Float[Array, "..."]) -> tuple[Any, ...]:
    """log(1 + vΛ) and Λ / (1 + vΛ), also where vΛ overflows."""
    most = float(jnp.finfo(precision.dtype).max) ** 0.75
    huge = variance > most / precision
    factor = 1 + jnp.where(huge, 0, variance) * precision
    one = jnp.where(huge, variance, 1)
    return (
        jnp.where(huge, jnp.log(one) + jnp.log(precision), jnp.log(factor)),
        jnp.where(huge, 1 / one, precision / factor),
    )


def _streamed_bases(p: DiagonalGaussian, f: RBF) -> Float[Array, "m"]:
    """E[φᵢ] for a diagonal belief and one diagonal precision per basis, one dimension at a time.

    Every basis widens by a different factor, so this cannot be written as a matrix product.
    Recomputing each term in the backward pass keeps the memory of a batch at (batch, M) instead of
    (batch, M, d).
    """

    @jax.checkpoint
    def add_dimension(total: Float[Array, "m"], column: tuple[Any, ...]) -> tuple[Float[Array, "m"], None]:
        mean, variance, centers, precision = column
        log_widened, precision = _widened(variance, precision)
        gap = cut_off(mean - centers, precision)
        return total + log_widened + precision * gap * gap, None

    start = jnp.zeros(f.count, f.centers.dtype)
    total, _ = jax.lax.scan(add_dimension, start, (p.mean, p.variance, f.centers.T, f.precision.T))
    return jnp.exp(-total / 2)


def _full_bases(p: Gaussian, f: RBF) -> Float[Array, "m"]:
    """E[φᵢ] for a full covariance or precision.

    With Λ = RRᵀ and B the Cholesky factor of I + RᵀΣR, |I + ΣΛ| = |B|² and
    (μ − c)ᵀ Λ (I + ΣΛ)⁻¹ (μ − c) = ‖B⁻¹Rᵀ(μ − c)‖². B is the identity at Σ = 0. A precision shared
    by all bases is factorised once.
    """

    def widen(root: Float[Array, "d d"]) -> tuple[Float[Array, ""], Float[Array, "d d"]]:
        inner = jnp.eye(p.dimension, dtype=root.dtype) + dot(root.T, dot(p.covariance, root))
        return linear.whiten(inner, root.T)

    if f.precision.ndim == 3:
        roots = jax.vmap(linear.root)(f.precision)
    else:
        roots = jnp.atleast_2d(jnp.sqrt(f.precision))[..., None] * jnp.eye(p.dimension, dtype=f.precision.dtype)
    log_determinants, whiten = jax.vmap(widen)(roots)
    if len(roots) == 1:
        origin = f.centers.mean(axis=0)
        x, c = dot(whiten[0], p.mean - origin), dot(whiten[0], (f.centers - origin).T)
        # One dimension at a time, so that a batch fuses into one loop and stores no differences per
        # dimension.
        squares = sum(((x[k] - c[k]) ** 2 for k in range(1, len(x))), start=(x[0] - c[0]) ** 2)
    else:
        squares = jnp.sum(jnp.einsum("mij,mj->mi", whiten, p.mean - f.centers, precision="highest") ** 2, axis=-1)
    return jnp.exp(-(log_determinants + squares) / 2)


def given_each_basis(
    p: DiagonalGaussian | Gaussian, f: RBF, expect: Callable[[DiagonalGaussian | Gaussian], Float[Array, "*rest"]]
) -> Float[Array, "m *rest"]:
    """E[φᵢ] (Eᵢ[g] − E[g]) = Cov(φᵢ, g) for each basis; `expect` returns E[g].

    A basis is a Gaussian likelihood, so φᵢ p = E[φᵢ] pᵢ with pᵢ the posterior, and
    E[φᵢ g] = E[φᵢ] Eᵢ[g]. The difference vanishes when p is a point. Costs M expectations of g.
    """
    if isinstance(p, Gaussian) or f.precision.ndim == 3:
        p = Gaussian(p.mean, p.covariance)
        precision = f.precision if f.precision.ndim == 3 else jax.vmap(jnp.diag)(jnp.atleast_2d(f.precision))
    else:
        precision = jnp.atleast_2d(f.precision)
    # If all bases share one precision, they share one conditioned covariance, which is factorised
    # once.
    shared = len(precision) == 1 < len(f.centers)
    axes = (0, None if shared else 0)
    given: Callable[..., Array] = jax.vmap(lambda c, precision: expect(p.condition(c, precision)), axes)
    conditioned = given(f.centers, precision[0] if shared else precision)
    bases = rbf_bases(p, f)
    return bases.reshape(-1, *(1,) * (conditioned.ndim - 1)) * (conditioned - expect(p))


def gaussian_rbf_covariance(p: DiagonalGaussian | Gaussian, f: RBF, g: RBF) -> Float[Array, "*both"]:
    """Σᵢⱼ wᵢ w′ⱼ E[φᵢ] (Eᵢ[ψⱼ] − E[ψⱼ]), with Eᵢ under p conditioned on basis i of f."""
    return weigh_pairs(f, g, given_each_basis(p, f, lambda q: rbf_bases(q, g)))


def gaussian_rbf_cross(p: DiagonalGaussian | Gaussian, f: RBF) -> Float[Array, "*outputs d"]:
    """Σᵢ wᵢ E[φᵢ] (μᵢ − μ), with μᵢ the mean of p conditioned on basis i."""
    return f.weigh(given_each_basis(p, f, lambda q: q.mean))
