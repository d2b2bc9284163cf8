"""Polynomials under elliptical distributions, x = μ + √τ S^½ ε.

Given τ, E[∇ᵏf] = Σⱼ (τ/2)ʲ / j! (S:)ʲ ∇^{k+2j} f(μ). The sum ends at degree four, so every moment
is a polynomial in τ.
"""

from collections.abc import Callable
from functools import partial
from math import factorial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from moca.moments._numerics import dot
from moca.moments.closed_forms.pairs import weigh_last
from moca.moments.closed_forms.ridge import unit_mean
from moca.moments.distributions import DiagonalGaussian, Elliptical, Gaussian
from moca.moments.functions import Polynomial, Quadratic, Ridge
from moca.moments.functions.polynomial import horner


def elliptical_quadratic(p: Elliptical, f: Quadratic) -> Float[Array, "*outputs"]:
    """f(μ) + ½ tr(AΣ)."""
    return f(p.mean) + p.scale_moment(1) * p.contract(f.A) / 2


def elliptical_polynomial(p: Elliptical, f: Polynomial) -> Float[Array, "*outputs"]:
    """f(μ) + E[τ] ½ S:∇²f(μ) + E[τ²] ⅛ S:∇⁴f:S, exact up to degree four.

    Odd orders vanish by symmetry, and the series of E[exp(½ τ S:∇²) f] ends at the second power.
    """
    p.require_moment(len(f.tensors) - 1)
    value = f(p.mean)
    tensors = f.symmetric()
    if len(tensors) > 2:
        value += p.scale_moment(1) * p.contract(horner(tensors[2:], p.mean)) / 2
    if len(tensors) > 4:
        value += p.scale_moment(2) * p.contract(p.contract(tensors[4])) / 8
    return value


def elliptical_polynomial_covariance(
    p: Elliptical, f: Polynomial | Quadratic, g: Polynomial | Quadratic
) -> Float[Array, "*both"]:
    """Σₖ E[τᵏ ⟨E[∇ᵏf | τ], E[∇ᵏg | τ]⟩_S] / k! − E[f] E[g].

    ⟨·,·⟩_S contracts the k axes of both arguments with S. Given τ, this is the expansion of a
    Gaussian covariance in mean derivatives, Cov(f, g) = Σ_{k ≥ 1} ⟨E[∇ᵏf], E[∇ᵏg]⟩_Σ / k!, which
    ends at the lower degree. The term k = 0 is the contribution of the spread of τ.
    """
    f, g = f.as_polynomial(), g.as_polynomial()
    p.require_moment(f.degree + g.degree)
    of_f, of_g = mean_derivatives(p, f), mean_derivatives(p, g)
    total = jnp.zeros((*f.outputs, *g.outputs), p.mean.dtype)
    for k in range(min(f.degree, g.degree) + 1):
        for i, one in enumerate(of_f[k]):
            for j, two in enumerate(of_g[k]):
                moment = p.scale_moment(k + i + j)
                if k == 0:
                    moment -= p.scale_moment(i) * p.scale_moment(j)
                if moment:
                    total += moment * _inner(p, one, two, k) / factorial(k)
    return total


def mean_derivatives(p: Elliptical, f: Polynomial) -> list[list[Float[Array, "..."]]]:
    """Returns, for each k, the coefficients of τ⁰, τ¹, … in E[∇ᵏf | τ]."""
    tensors = f.symmetric()
    result = []
    for k in range(len(tensors)):
        coefficients = []
        for j in range((len(tensors) - 1 - k) // 2 + 1):
            tensor = horner(tensors[k + 2 * j :], p.mean)
            for _ in range(j):
                tensor = p.contract(tensor)
            coefficients.append(tensor / (2**j * factorial(j)))
        result.append(coefficients)
    return result


def _inner(p: Elliptical, one: Float[Array, "..."], two: Float[Array, "..."], k: int) -> Float[Array, "*both"]:
    """Σ one_{i…} two_{j…} S_{ij} ⋯ over the last k axes of both."""
    for _ in range(k):
        one = jnp.tensordot(one, p.shape_matrix, axes=((one.ndim - k,), (0,)), precision="highest")
    axes = tuple(range(one.ndim - k, one.ndim)), tuple(range(two.ndim - k, two.ndim))
    return jnp.tensordot(one, two, axes=axes, precision="highest")


def gaussian_polynomial_ridge_covariance(
    p: DiagonalGaussian | Gaussian, f: Polynomial | Quadratic, g: Ridge
) -> Float[Array, "*both"]:
    """Σₖ E[∇ᵏf][Σuⱼ, …, Σuⱼ] E[σ⁽ᵏ⁾(aⱼ)] / k! for every unit j.

    The mean derivatives of σ are the derivatives of its mean.
    """
    f = f.as_polynomial()
    variances, rows = p.along(g.rows), dot(g.rows, p.shape_matrix)
    total = jnp.zeros((*f.outputs, g.count), p.mean.dtype)
    slope: Callable[[Array], Array] = partial(unit_mean, g, variance=variances)
    for k, coefficients in enumerate(mean_derivatives(p, f)):
        if k == 0:
            continue
        slope = _derivative(slope)
        joined = jnp.tensordot(sum(coefficients[1:], coefficients[0]), rows.T, axes=1, precision="highest")
        for _ in range(k - 1):
            joined = jnp.sum(joined * rows.T, axis=-2)
        total += joined * slope(g.arguments(p.mean)) / factorial(k)
    return weigh_last(g, total)


def _derivative(f: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Returns the elementwise derivative of an elementwise function."""
    return lambda x: jax.jvp(f, (x,), (jnp.ones_like(x),))[1]
