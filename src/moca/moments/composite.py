"""Closed forms composed of others: mixtures, sums, Stein's lemma, conditioning on a basis."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from moca.moments._numerics import dot
from moca.moments.closed_forms.pairs import not_negative
from moca.moments.closed_forms.rbf import given_each_basis
from moca.moments.distributions import DiagonalGaussian, Distribution, Elliptical, Gaussian
from moca.moments.expectation import Map, covariance, cross_covariance, expectation
from moca.moments.functions import RBF, Function, Polynomial, Quadratic, Sum
from moca.moments.mixtures import GaussianMixture
from moca.moments.supports import Independent


def own_variance(p: Distribution, f: Function) -> Float[Array, "*outputs"]:
    """The diagonal of the covariance of f with itself."""
    both = covariance(p, f, f)
    return not_negative(both if both.ndim == 0 else jnp.diagonal(both))


def mixture(p: GaussianMixture, f: Function) -> Float[Array, "*outputs"]:
    """Σₖ weightsₖ Eₖ[f], without moment matching."""
    return dot(p.weights, jax.vmap(expectation, (0, None))(p.components, f))


def mixture_covariance(p: GaussianMixture, f: Function, g: Function) -> Float[Array, "*both"]:
    """Average covariance plus covariance of the averages (law of total variance)."""
    inner = jax.vmap(lambda q: covariance(q, f, g))(p.components)  # f may be g itself
    return jnp.tensordot(p.weights, inner, axes=1, precision="highest") + _between(
        p, *(jax.vmap(expectation, (0, None))(p.components, each) for each in (f, g))
    )


def mixture_cross(p: GaussianMixture, f: Function) -> Float[Array, "*outputs d"]:
    """Average covariance of f and x plus covariance of the averages."""
    inner = jax.vmap(cross_covariance, (0, None))(p.components, f)
    return jnp.tensordot(p.weights, inner, axes=1, precision="highest") + _between(
        p, jax.vmap(expectation, (0, None))(p.components, f), p.components.mean
    )


def _between(p: GaussianMixture, one: Float[Array, "k *of"], two: Float[Array, "k *og"]) -> Float[Array, "*both"]:
    """Σₖ wₖ (oneₖ − mean)(twoₖ − mean)ᵀ."""
    one, two = (each - jnp.tensordot(p.weights, each, axes=1, precision="highest") for each in (one, two))
    weighted = p.weights.reshape(-1, *(1,) * (one.ndim - 1)) * one
    return jnp.tensordot(weighted, two, axes=(0, 0), precision="highest")


def sum_expectation(p: Distribution, f: Sum) -> Float[Array, "*outputs"]:
    """Σₖ scaleₖ E[termₖ]."""
    first, *rest = (s * expectation(p, term) for s, term in zip(f.scales, f.terms, strict=True))
    return sum(rest, first)


def sum_covariance(p: Distribution, f: Map, g: Map) -> Float[Array, "*both"]:
    """Σᵢⱼ scaleᵢ scaleⱼ Cov(termᵢ, termⱼ) over the terms of f and of g; at least one is a `Sum`."""
    one, two = (
        list(zip(each.scales, each.terms, strict=True)) if isinstance(each, Sum) else [(1, each)] for each in (f, g)
    )
    first, *rest = (s * t * covariance(p, a, b) for s, a in one for t, b in two)
    return sum(rest, first)


def sum_cross(p: Distribution, f: Sum) -> Float[Array, "*outputs d"]:
    """Σₖ scaleₖ Cov(termₖ, x)."""
    first, *rest = (s * cross_covariance(p, term) for s, term in zip(f.scales, f.terms, strict=True))
    return sum(rest, first)


def polynomial_cross(p: Elliptical | Independent, f: Polynomial | Quadratic) -> Float[Array, "*outputs d"]:
    """The covariance of f and the polynomials xⱼ."""
    eye = jnp.eye(p.dimension, dtype=p.mean.dtype)
    return covariance(p, f, Polynomial((jnp.zeros(p.dimension, eye.dtype), eye)))


def rbf_with_any(p: DiagonalGaussian | Gaussian, f: RBF, g: Function) -> Float[Array, "*both"]:
    """Σᵢ wᵢ E[φᵢ] (Eᵢ[g] − E[g]), with Eᵢ the expectation under p conditioned on basis i of f.

    Costs M expectations of g.
    """
    return f.weigh(given_each_basis(p, f, lambda q: expectation(q, g)))


def mean_slope(p: DiagonalGaussian | Gaussian, f: Function) -> Float[Array, "*outputs d"]:
    """E[∇f], which under a Gaussian is ∂E[f]/∂μ."""

    def expect(mean: Float[Array, "d"]) -> Float[Array, "*outputs"]:
        return expectation(eqx.tree_at(lambda q: q.mean, p, mean), f)

    slope: Array = (jax.jacfwd if f.outputs else jax.grad)(expect)(p.mean)
    return slope


def gaussian_cross(p: DiagonalGaussian | Gaussian, f: Function) -> Float[Array, "*outputs d"]:
    """The cross-covariance Cov[f(x), x] under a Gaussian, which is E[∇f] Σ by Stein's lemma."""
    slope = mean_slope(p, f)
    return slope * p.variance if isinstance(p, DiagonalGaussian) else dot(slope, p.covariance)
