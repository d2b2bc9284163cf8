"""Closed forms for independent dimensions: products or sums of one-dimensional expectations."""

from functools import cache
from itertools import combinations_with_replacement
from math import factorial, prod

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from moca.moments._numerics import dot
from moca.moments.closed_forms.pairs import weigh_pairs
from moca.moments.functions import RBF, Polynomial, Quadratic
from moca.moments.functions.polynomial import horner
from moca.moments.supports import Independent


def independent_rbf(p: Independent, f: RBF) -> Float[Array, "*outputs"]:
    """Σᵢ wᵢ Πⱼ E[exp(−½ λᵢⱼ (xⱼ − cᵢⱼ)²)] + constant, for diagonal precisions."""
    return f.weigh(jnp.prod(p.bump(f.centers, _diagonal(p, f)), axis=-1)) + f.constant


def independent_rbf_covariance(p: Independent, f: RBF, g: RBF) -> Float[Array, "*both"]:
    """Σᵢⱼ wᵢ w′ⱼ (E[φᵢ ψⱼ] − E[φᵢ] E[ψⱼ]): the product of two bumps is a bump."""
    one, two = (jnp.broadcast_to(_diagonal(p, each), each.centers.shape) for each in (f, g))
    total = one[:, None] + two[None]
    centers = (one[:, None] * f.centers[:, None] + two[None] * g.centers[None]) / total
    apart = one[:, None] * two[None] / total * (f.centers[:, None] - g.centers[None]) ** 2
    both = jnp.prod(jnp.exp(-apart / 2) * p.bump(centers, total), axis=-1)
    means = (jnp.prod(p.bump(each.centers, _diagonal(p, each)), axis=-1) for each in (f, g))
    return weigh_pairs(f, g, both - jnp.multiply.outer(*means))


def independent_rbf_cross(p: Independent, f: RBF) -> Float[Array, "*outputs d"]:
    """Σᵢ wᵢ (∂E[φᵢ]/∂cᵢ / λᵢ + (cᵢ − μ) E[φᵢ]), since ∂E[φᵢ]/∂cᵢ = λᵢ E[(x − cᵢ) φᵢ]."""
    precision = _diagonal(p, f)

    def bases(centers: Float[Array, "m d"]) -> Float[Array, "m"]:
        return jnp.prod(p.bump(centers, precision), axis=-1)

    means, pull = jax.vjp(bases, f.centers)
    (slopes,) = pull(jnp.ones_like(means))
    return f.weigh(slopes / precision + (f.centers - p.mean) * means[:, None])


def _diagonal(p: Independent, f: RBF) -> Float[Array, "*m d"]:
    if f.precision.ndim == 3:
        raise ValueError(
            f"{type(p).__name__} needs an RBF with a diagonal precision, (d,) or (M, d), got full matrices"
        )
    return f.precision


def independent_polynomial(p: Independent, f: Polynomial | Quadratic) -> Float[Array, "*outputs"]:
    """The Taylor expansion at the mean μ, with the central moments c₂, c₃, c₄ of each dimension.

    f(μ) + ½ Σⱼ c₂ⱼ ∂ⱼⱼf + ⅙ Σⱼ c₃ⱼ ∂ⱼⱼⱼf + ¹⁄₂₄ (Σⱼ (c₄ⱼ − 3c₂ⱼ²) ∂ⱼⱼⱼⱼf + 3 Σⱼₖ c₂ⱼ c₂ₖ ∂ⱼⱼₖₖf).
    """
    mean, second, third, fourth = p.moments(4)
    tensors = f.as_polynomial().symmetric()
    value = horner(tensors, mean)
    if len(tensors) > 2:
        value += dot(_repeated(horner(tensors[2:], mean), 2), second) / 2
    if len(tensors) > 3:
        value += dot(_repeated(horner(tensors[3:], mean), 3), third) / 6
    if len(tensors) > 4:
        pairs = jnp.einsum("...jjkk,j,k->...", tensors[4], second, second, precision="highest")
        value += (dot(_repeated(tensors[4], 4), fourth - 3 * second**2) + 3 * pairs) / 24
    return value


def _repeated(tensor: Float[Array, "..."], order: int) -> Float[Array, "..."]:
    """Returns the entries whose last `order` indices are equal."""
    letters = "j" * order
    return jnp.einsum(f"...{letters}->...j", tensor)


def independent_polynomial_covariance(
    p: Independent, f: Polynomial | Quadratic, g: Polynomial | Quadratic
) -> Float[Array, "*both"]:
    """Σ f_α g_β (E[h^α h^β] − E[h^α] E[h^β]) over all monomials of h = x − μ.

    Each expectation is a product over dimensions.
    """
    f, g = f.as_polynomial(), g.as_polynomial()
    mean, *central = p.moments(f.degree + g.degree)
    table = jnp.stack([jnp.ones_like(mean), jnp.zeros_like(mean), *central])
    one, two = _powers(p.dimension, f.degree), _powers(p.dimension, g.degree)
    both = _expected(table, one[:, None] + two[None]) - jnp.multiply.outer(_expected(table, one), _expected(table, two))
    of_f, of_g = _coefficients(f, mean), _coefficients(g, mean)
    return jnp.tensordot(dot(of_f, both), of_g, axes=(-1, -1), precision="highest")


@cache
def _indices(d: int, degree: int) -> list[np.ndarray]:
    """Returns, for k up to `degree`, all j₁ ≤ … ≤ jₖ < d: the monomials, (n, k)."""
    chosen = [list(combinations_with_replacement(range(d), k)) for k in range(degree + 1)]
    return [np.array(each, dtype=int).reshape(len(each), k) for k, each in enumerate(chosen)]


def _powers(d: int, degree: int) -> np.ndarray:
    """Returns the exponents α of every monomial, (n, d)."""
    return np.concatenate([(each[:, :, None] == np.arange(d)).sum(axis=1) for each in _indices(d, degree)])


def _coefficients(f: Polynomial, mean: Float[Array, "d"]) -> Float[Array, "*outputs n"]:
    """∂^α f(μ) / α! for every monomial."""
    tensors, parts = f.symmetric(), []
    for k, index in enumerate(_indices(f.dimension, f.degree)):
        factorials = [prod(map(factorial, np.bincount(each, minlength=1))) for each in index]
        at_mean = horner(tensors[k:], mean)[..., *index.T].reshape(*f.outputs, len(index))
        parts.append(at_mean / np.array(factorials, mean.dtype))
    return jnp.concatenate(parts, axis=-1)


def _expected(table: Float[Array, "k d"], powers: np.ndarray) -> Float[Array, "..."]:
    """E[h^α] = Πⱼ E[hⱼ^αⱼ] for exponents along the last axis of `powers`."""
    value = table[powers[..., 0], 0]
    for j in range(1, powers.shape[-1]):
        value *= table[powers[..., j], j]
    return value
