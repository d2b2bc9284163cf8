"""Functions under distributions whose dimensions are independent: products and sums over dimensions."""

from math import comb

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from moca.moments._numerics import dot
from moca.moments._special import half_line
from moca.moments.closed_forms.pairs import weigh_pairs
from moca.moments.distributions import DiagonalGaussian
from moca.moments.functions import RBF, Matern, Polynomial, Quadratic
from moca.moments.functions.polynomial import horner
from moca.moments.supports import Box, Independent


def independent_rbf(p: Independent, f: RBF) -> Float[Array, "*outputs"]:
    """Σᵢ wᵢ Πⱼ E[exp(−½ λᵢⱼ (xⱼ − cᵢⱼ)²)] + constant, for diagonal precisions."""
    return f.weigh(jnp.prod(p.bump(f.centers, _diagonal(p, f)), axis=-1)) + f.constant


def independent_rbf_covariance(p: Independent, f: RBF, g: RBF) -> Float[Array, "*both"]:
    """Two bumps are one: precisions add, and the centre is their weighted mean. Less the product of the means."""
    one, two = (jnp.broadcast_to(_diagonal(p, each), each.centers.shape) for each in (f, g))
    total = one[:, None] + two[None]
    centers = (one[:, None] * f.centers[:, None] + two[None] * g.centers[None]) / total
    apart = one[:, None] * two[None] / total * (f.centers[:, None] - g.centers[None]) ** 2
    both = jnp.prod(jnp.exp(-apart / 2) * p.bump(centers, total), axis=-1)
    means = (jnp.prod(p.bump(each.centers, _diagonal(p, each)), axis=-1) for each in (f, g))
    return weigh_pairs(f, g, both - jnp.multiply.outer(*means))


def _diagonal(p: Independent, f: RBF) -> Float[Array, "*m d"]:
    if f.precision.ndim == 3:
        raise ValueError(
            f"{type(p).__name__} takes an RBF with a diagonal precision, (d,) or (M, d): got full matrices"
        )
    return f.precision


def independent_polynomial(p: Independent, f: Polynomial | Quadratic) -> Float[Array, "*outputs"]:
    """f(μ) + ½ Σⱼ c₂ⱼ ∂ⱼⱼf + ⅙ Σⱼ c₃ⱼ ∂ⱼⱼⱼf + ¹⁄₂₄ (Σⱼ (c₄ⱼ − 3c₂ⱼ²) ∂ⱼⱼⱼⱼf + 3 Σⱼₖ c₂ⱼ c₂ₖ ∂ⱼⱼₖₖf), at the mean μ."""
    mean, second, third, fourth = p.moments()
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
    """Its entries whose last `order` indices are equal."""
    letters = "j" * order
    return jnp.einsum(f"...{letters}->...j", tensor)


def independent_quadratic_covariance(p: Independent, f: Quadratic, g: Quadratic) -> Float[Array, "*both"]:
    """E[f g] − E[f] E[g], where f g is a polynomial of degree four."""

    def one(a: Quadratic, b: Quadratic) -> Float[Array, ""]:
        both = independent_polynomial(p, _multiply(a.as_polynomial(), b.as_polynomial()))
        return both - independent_polynomial(p, a) * independent_polynomial(p, b)

    over_g = jax.vmap(one, (None, 0)) if g.outputs else one
    return (jax.vmap(over_g, (0, None)) if f.outputs else over_g)(f, g)


def _multiply(f: Polynomial, g: Polynomial) -> Polynomial:
    """f g by Leibniz' rule: its k-th derivative is Σᵢ (k over i) ∇ⁱf ⊗ ∇ᵏ⁻ⁱg, up to the order of the axes."""
    tensors = []
    for k in range(f.degree + g.degree + 1):
        terms = [
            comb(k, i) * jnp.multiply.outer(f.tensors[i], g.tensors[k - i])
            for i in range(max(0, k - g.degree), min(k, f.degree) + 1)
        ]
        tensors.append(sum(terms[1:], terms[0]))
    return Polynomial(tuple(tensors))


def gaussian_matern(p: DiagonalGaussian, f: Matern) -> Float[Array, "*outputs"]:
    """Σᵢ wᵢ Πⱼ Σₖ cₖ aᵏ (E[yᵏ e⁻ᵃʸ; y > 0] + E[(−y)ᵏ eᵃʸ; y < 0]) + constant, with y = xⱼ − cᵢⱼ and a = √(2ν) / ℓⱼ."""
    away = p.mean - f.centers
    sides = (half_line(away, p.variance, f.rates, f.nu), half_line(-away, p.variance, f.rates, f.nu))
    return f.weigh(jnp.prod(sides[0] + sides[1], axis=-1)) + f.constant


def box_matern(p: Box, f: Matern) -> Float[Array, "*outputs"]:
    """Σᵢ wᵢ Πⱼ ∫ k(a |x − cᵢⱼ|) dx / (upper − lower) + constant: an integral on either side of the centre."""
    above, below = p.upper - f.centers, f.centers - p.lower
    width = p.upper - p.lower
    right = _beyond(jnp.maximum(-below, 0), jnp.clip(above, 0, width), f)
    left = _beyond(jnp.maximum(-above, 0), jnp.clip(below, 0, width), f)
    return f.weigh(jnp.prod((right + left) / width, axis=-1)) + f.constant


def _beyond(start: Float[Array, "m d"], length: Float[Array, "m d"], f: Matern) -> Float[Array, "m d"]:
    """∫ k(ay) dy over a `length` from `start` ≥ 0 on: −(1/a) (c₀′ + c₁′ t + c₂′ t²) e⁻ᵗ between the ends, t = ay.

    Written with expm1, so that nothing is lost for a narrow interval.
    """
    primitive = {0.5: (1.0,), 1.5: (2.0, 1.0), 2.5: (8 / 3, 5 / 3, 1 / 3)}[f.nu]
    t, step = f.rates * start, f.rates * length
    at_start = sum(c * t**k for k, c in enumerate(primitive))
    # p(t) − p(t + s) e⁻ˢ = −p(t) expm1(−s) − (p(t + s) − p(t)) e⁻ˢ, and the last difference has a factor s.
    slopes = {0.5: 0 * t, 1.5: 1 + 0 * t, 2.5: 5 / 3 + (2 * t + step) / 3}[f.nu]
    return jnp.exp(-t) * (-at_start * jnp.expm1(-step) - slopes * step * jnp.exp(-step)) / f.rates
