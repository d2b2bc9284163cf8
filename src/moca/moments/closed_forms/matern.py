"""Matérn kernels under diagonal Gaussians and boxes: products of one-dimensional integrals.

On either side of its centre a kernel is a polynomial times an exponential. The product of two
kernels has this form on each of the three intervals between and beyond their centres.
"""

from collections.abc import Sequence
from math import comb

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from moca.moments._special import MATERN, half_line, normal_density
from moca.moments.closed_forms.pairs import weigh_pairs
from moca.moments.distributions import DiagonalGaussian
from moca.moments.functions import Matern
from moca.moments.supports import Box

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(48)
_FOLDS = 55.0  # e-folds: beyond them an exponential has 1e-24 of its mass, and t⁴ times it 1e-17

Pairs = Float[Array, "..."]  # (M, M′, d) after broadcasting


def gaussian_matern(p: DiagonalGaussian, f: Matern) -> Float[Array, "*outputs"]:
    """Σᵢ wᵢ Πⱼ Σₖ cₖ aᵏ (E[yᵏ e⁻ᵃʸ; y > 0] + E[(−y)ᵏ eᵃʸ; y < 0]) + constant.

    Here y = xⱼ − cᵢⱼ and a = √(2ν) / ℓⱼ.
    """
    return f.weigh(_gaussian_bases(p, f)) + f.constant


def _gaussian_bases(p: DiagonalGaussian, f: Matern) -> Float[Array, "m"]:
    away, kernel = p.mean - f.centers, _beside(f, jnp.zeros_like(f.rates), 1)
    sides = (half_line(each, p.variance, f.rates, kernel) for each in (away, -away))
    return jnp.prod(sum(sides), axis=-1)


def gaussian_matern_covariance(p: DiagonalGaussian, f: Matern, g: Matern) -> Float[Array, "*both"]:
    """Σᵢⱼ wᵢ w′ⱼ (Π E[k k′] − Π E[k] E[k′]).

    E[k k′] is the sum of the parts beyond either centre and the part between them.
    """
    p = _spread_out(p, jnp.maximum(f.rates, g.rates))
    one, two = f.centers[:, None] - p.mean, g.centers[None] - p.mean
    low, high = jnp.minimum(one, two), jnp.maximum(one, two)

    def beyond(away: Pairs, from_f: Pairs, from_g: Pairs) -> Pairs:
        """The part of E[k k′] beyond both centres: over y > 0, for y ~ N(away, variance)."""
        product = _multiply(_beside(f, from_f, 1), _beside(g, from_g, 1))
        decay = jnp.exp(-f.rates * from_f - g.rates * from_g)
        return decay * half_line(away, p.variance, f.rates + g.rates, product)

    both = beyond(-high, high - one, high - two) + beyond(low, one - low, two - low) + _between(p, f, g, one, two)
    means = _gaussian_bases(p, f), _gaussian_bases(p, g)
    return weigh_pairs(f, g, jnp.prod(both, axis=-1) - jnp.multiply.outer(*means))


def _spread_out(p: DiagonalGaussian, rate: Float[Array, "d"]) -> DiagonalGaussian:
    """Returns p with deviations of at least 2e-12 lengthscales (6e-6 in float32).

    Gradients are unchanged.

    If p is a point on a centre, the parts on either side have slopes of one over the deviation,
    which cancel only up to rounding.
    """
    least = (float(jnp.finfo(p.variance.dtype).eps) ** 0.75 / rate) ** 2
    return DiagonalGaussian(p.mean, p.variance + jax.lax.stop_gradient(jnp.maximum(p.variance, least) - p.variance))


def _between(p: DiagonalGaussian, f: Matern, g: Matern, one: Pairs, two: Pairs) -> Pairs:
    """E[k k′] between the two centres, which are given relative to the mean.

    There k k′ is a polynomial times the exponential of (a − a′) x, which shifts the Gaussian. If
    its relevant mass lies inside, this is an elementary moment. Otherwise a Gauss–Legendre rule
    over the part inside is exact to rounding.
    """
    deviation = jnp.sqrt(p.variance)
    low, high = jnp.minimum(one, two), jnp.maximum(one, two)
    side = jnp.where(one < two, 1.0, -1.0).astype(p.mean.dtype)  # the side of f's centre on which the interval lies
    tilt = side * (f.rates - g.rates)
    mean = -p.variance * tilt
    inside = (mean - low > 9 * deviation) & (high - mean > 9 * deviation)

    from_f, from_g = jnp.abs(mean - one), jnp.abs(mean - two)
    product = _multiply(_beside(f, from_f, side), _beside(g, from_g, -side))
    moments = jnp.ones_like(mean), p.variance, 3 * p.variance**2  # of even order; odd ones vanish
    moment = sum((c * each for c, each in zip(product[::2], moments, strict=False)), start=jnp.zeros_like(mean))
    whole = moment * jnp.exp(-f.rates * from_f - g.rates * from_g - p.variance * tilt**2 / 2)

    # Measured from the point inside that is nearest to the mean: no slope contains 1 / deviation,
    # nothing cancels.
    nearest = jnp.clip(mean, low, high)
    far = jnp.abs(nearest - mean) / deviation
    reach = 80 / (far + jnp.sqrt(far**2 + 80))  # distance at which the density has fallen by e⁻⁴⁰
    start, end = (low - nearest) / deviation, (high - nearest) / deviation
    t, weights = _rule(jnp.maximum(start, -reach), jnp.minimum(end, reach))
    density = normal_density(jnp.clip((nearest / deviation)[..., None] + t, -40.0, 40.0))
    x = nearest[..., None] + deviation[:, None] * t
    part = jnp.sum(weights * density * _kernel(f, x - one[..., None]) * _kernel(g, x - two[..., None]), axis=-1)
    return jnp.where(inside, whole, part)


def box_matern(p: Box, f: Matern) -> Float[Array, "*outputs"]:
    """Σᵢ wᵢ Πⱼ ∫ k(a |x − cᵢⱼ|) dx / (upper − lower) + constant.

    The integral is taken on each side of the centre.
    """
    return f.weigh(_box_bases(p, f)) + f.constant


def _box_bases(p: Box, f: Matern) -> Float[Array, "m"]:
    above, below = p.upper - f.centers, f.centers - p.lower
    width = p.upper - p.lower
    right = _beyond(jnp.maximum(-below, 0), jnp.clip(above, 0, width), f)
    left = _beyond(jnp.maximum(-above, 0), jnp.clip(below, 0, width), f)
    return jnp.prod((right + left) / width, axis=-1)


def box_matern_covariance(p: Box, f: Matern, g: Matern) -> Float[Array, "*both"]:
    """Σᵢⱼ wᵢ w′ⱼ (Π E[k k′] − Π E[k] E[k′]), with E[k k′] by quadrature on three intervals.

    Each integrand is a polynomial of degree at most four times an exponential. The rule covers the
    part with relevant mass, and is exact to rounding there.
    """
    one, two = f.centers[:, None], g.centers[None]
    low, high = (jnp.clip(each, p.lower, p.upper) for each in (jnp.minimum(one, two), jnp.maximum(one, two)))
    rate = f.rates + g.rates
    tilt = jnp.where(one < two, 1.0, -1.0).astype(rate.dtype) * (f.rates - g.rates)
    length = _FOLDS / jnp.maximum(jnp.abs(tilt), 1e-3 * rate)
    total = jnp.zeros_like(tilt)
    for start, end in (
        (jnp.broadcast_to(high, tilt.shape), jnp.minimum(p.upper, high + _FOLDS / rate)),
        (jnp.maximum(p.lower, low - _FOLDS / rate), jnp.broadcast_to(low, tilt.shape)),
        (
            jnp.where(tilt < 0, jnp.maximum(low, high - length), low),
            jnp.where(tilt > 0, jnp.minimum(high, low + length), high),
        ),
    ):
        x, weights = _rule(start, end)
        total += jnp.sum(weights * _kernel(f, x - one[..., None]) * _kernel(g, x - two[..., None]), axis=-1)
    means = _box_bases(p, f), _box_bases(p, g)
    return weigh_pairs(f, g, jnp.prod(total / (p.upper - p.lower), axis=-1) - jnp.multiply.outer(*means))


def _rule(start: Pairs, end: Pairs) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    """Returns nodes and weights of the Gauss–Legendre rule from `start` to `end`."""
    nodes, weights = (jnp.asarray(each, start.dtype) for each in (_NODES, _WEIGHTS))
    half = ((end - start) / 2)[..., None]
    return ((start + end) / 2)[..., None] + half * nodes, half * weights


def _kernel(f: Matern, away: Float[Array, "..."]) -> Float[Array, "..."]:
    """k(a |away|), dimension by dimension."""
    t = f.rates[:, None] * jnp.abs(away)
    return sum(c * t**k for k, c in enumerate(MATERN[f.nu])) * jnp.exp(-t)


def _beside(f: Matern, start: Array, side: Array | int) -> list[Array]:
    """Returns the coefficients of y⁰, y¹, … in k(a (start + side · y)), without its exponential."""
    given = MATERN[f.nu]
    return [
        sum(c * comb(k, j) * f.rates**k * start ** (k - j) for k, c in enumerate(given) if k >= j) * side**j
        for j in range(len(given))
    ]


def _multiply(one: Sequence[Array], two: Sequence[Array]) -> list[Array]:
    """Returns the coefficients of the product of two polynomials."""
    product = []
    for k in range(len(one) + len(two) - 1):
        terms = [one[i] * two[k - i] for i in range(len(one)) if 0 <= k - i < len(two)]
        product.append(sum(terms[1:], terms[0]))
    return product


def _beyond(start: Float[Array, "m d"], length: Float[Array, "m d"], f: Matern) -> Float[Array, "m d"]:
    """∫ k(ay) dy over an interval of the given length that begins at `start` ≥ 0.

    The antiderivative is −(1/a) (c₀′ + c₁′ t + c₂′ t²) e⁻ᵗ with t = ay. The difference is written
    with expm1, so that a narrow interval loses no precision.
    """
    primitive = {0.5: (1.0,), 1.5: (2.0, 1.0), 2.5: (8 / 3, 5 / 3, 1 / 3)}[f.nu]
    t, step = f.rates * start, f.rates * length
    at_start = sum(c * t**k for k, c in enumerate(primitive))
    # p(t) − p(t + s) e⁻ˢ = −p(t) expm1(−s) − (p(t + s) − p(t)) e⁻ˢ. The last difference has a
    # factor s.
    slopes = {0.5: 0 * t, 1.5: 1 + 0 * t, 2.5: 5 / 3 + (2 * t + step) / 3}[f.nu]
    return jnp.exp(-t) * (-at_start * jnp.expm1(-step) - slopes * step * jnp.exp(-step)) / f.rates
