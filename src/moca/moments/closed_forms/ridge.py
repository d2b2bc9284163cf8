"""Ridge functions: sums of units σ(uᵢᵀx + bᵢ), whose arguments are Gaussian when x is.

The argument of unit i has mean mᵢ = uᵢᵀμ + bᵢ and variance uᵢᵀΣuᵢ. Two arguments have the
covariance uᵢᵀΣuⱼ. Each covariance costs one number per pair of units.
"""

import jax
import jax.numpy as jnp
from jax.scipy.special import erf, ndtr
from jaxtyping import Array, Float

from moca.moments._numerics import dot
from moca.moments._special import bivariate_density, bivariate_excess, conditional, normal_density
from moca.moments.closed_forms.pairs import weigh_pairs
from moca.moments.distributions import DiagonalGaussian, Elliptical, Gaussian
from moca.moments.functions import Erf, Fourier, Gated, Ridge
from moca.moments.functions.ridge import Gate

Reals = Float[Array, "..."]


def gaussian_ridge(p: DiagonalGaussian | Gaussian, f: Ridge) -> Float[Array, "*outputs"]:
    """Σᵢ wᵢ E[σ(aᵢ)] + constant."""
    means = _erf_means(p, f) if isinstance(f, Erf) else unit_mean(f, f.arguments(p.mean), p.along(f.rows))
    return f.weigh(means) + f.constant


def _erf_means(p: DiagonalGaussian | Gaussian, f: Erf) -> Float[Array, "m"]:
    """erf(m / √(1 + 2v)) for each unit. Long rows are scaled down, so that v does not overflow."""
    longest = jnp.maximum(jnp.max(jnp.abs(f.rows), axis=1), 1)
    scale = jax.lax.stop_gradient(jnp.exp2(jnp.floor(jnp.log2(longest))))  # a power of two, so that scaling is exact
    rows = f.rows / scale[:, None]
    mean, variance = dot(rows, p.mean) + f.shifts / scale, p.along(rows)
    most = float(jnp.finfo(variance.dtype).max)
    steep = variance * scale * scale > most**0.75
    deviation = jnp.sqrt(jnp.where(steep, 2 * variance, 1 + 2 * jnp.where(steep, 0, variance) * scale * scale))
    return erf(jnp.clip(jnp.where(steep, mean, mean * scale), -most, most) / deviation)


def unit_mean(f: Ridge, mean: Reals, variance: Reals) -> Reals:
    """E[σ(a)] for a ~ N(mean, variance), with σ the activation of f."""
    match f:
        case Erf():
            return erf(mean / jnp.sqrt(1 + 2 * variance))
        case Fourier():
            return jnp.exp(-variance / 2) * jnp.cos(mean)
        case Gated():
            return _gate_mean(f.gate, mean, variance)
    raise TypeError(f"no closed form for the expectation of a single unit of {type(f).__name__}")


def unit_variance(f: Ridge, mean: Reals, variance: Reals) -> Reals:
    """Var[σ(a)] for a ~ N(mean, variance)."""
    match f:
        case Fourier():
            return _wave_covariance(mean, variance, mean, variance, variance)
        case Gated():
            return gate_covariance(f.gate, mean, variance, f.gate, mean, variance, variance)
    raise TypeError(f"no closed form for the variance of a unit of {type(f).__name__}")


def _gate_mean(gate: Gate, m: Reals, v: Reals) -> Reals:
    """E[a Φ(a / √η)] = m Φ(h) + v φ(h) / √(v + η), with h = m / √(v + η).

    η = 0 is the ReLU, η = 1 the GELU.
    """
    deviation, h = _standardised(gate, m, v)
    return m * ndtr(h) + v * normal_density(h) / deviation


def _standardised(gate: Gate, m: Reals, v: Reals) -> tuple[Reals, Reals]:
    """Returns √(v + η) and h = m / √(v + η).

    The root is bounded from below, so that h is finite. h is clipped to ±40, where φ(h) is zero in
    floating point.
    """
    least = float(jnp.finfo(m.dtype).eps) ** 2
    deviation = jnp.sqrt(jnp.maximum(v + gate.variance, least))
    return deviation, jnp.clip(m / deviation, -40.0, 40.0)


def elliptical_fourier(p: Elliptical, f: Fourier) -> Float[Array, "*outputs"]:
    """Σᵢ wᵢ χ(ωᵢᵀSωᵢ) cos(ωᵢᵀμ + bᵢ) + constant, with χ the characteristic function.

    For a Gaussian, χ is exp(−½ ωᵀΣω).
    """
    damping = p.characteristic(p.along(f.frequencies))
    return f.weigh(damping * jnp.cos(f.arguments(p.mean))) + f.constant


def elliptical_fourier_covariance(p: Elliptical, f: Fourier, g: Fourier) -> Float[Array, "*both"]:
    """½ χ₊ cos(θᵢ + θⱼ) + ½ χ₋ cos(θᵢ − θⱼ) − χᵢ χⱼ cos θᵢ cos θⱼ, with χ± at ωᵢ ± ωⱼ."""
    between = dot(dot(f.frequencies, p.shape_matrix), g.frequencies.T)
    squares = p.along(f.frequencies)[:, None], p.along(g.frequencies)[None]
    angles = f.arguments(p.mean)[:, None], g.arguments(p.mean)[None]
    both = squares[0] + squares[1]
    plus = p.characteristic(jnp.maximum(both + 2 * between, 0)) * jnp.cos(angles[0] + angles[1])
    minus = p.characteristic(jnp.maximum(both - 2 * between, 0)) * jnp.cos(angles[0] - angles[1])
    apart = p.characteristic(squares[0]) * p.characteristic(squares[1]) * jnp.cos(angles[0]) * jnp.cos(angles[1])
    return weigh_pairs(f, g, (plus + minus) / 2 - apart)


def elliptical_fourier_cross(p: Elliptical, f: Fourier) -> Float[Array, "*outputs d"]:
    """Cov(x, f) = Σᵢ wᵢ 2χ′(ωᵢᵀSωᵢ) sin(ωᵢᵀμ + bᵢ) Sωᵢ.

    This is Stein's lemma given τ, with E[τ exp(−½τq)] = −2χ′(q).
    """
    squares = p.along(f.frequencies)
    _, slope = jax.jvp(p.characteristic, (squares,), (jnp.ones_like(squares),))
    return f.weigh((2 * slope * jnp.sin(f.arguments(p.mean)))[:, None] * dot(f.frequencies, p.shape_matrix))


def gaussian_fourier_covariance(p: DiagonalGaussian | Gaussian, f: Fourier, g: Fourier) -> Float[Array, "*both"]:
    """Σᵢⱼ wᵢ w′ⱼ Cov(cos θᵢ, cos θⱼ)."""
    return weigh_pairs(f, g, _wave_covariance(*_pairs_of_arguments(p, f, g)))


def _pairs_of_arguments(p: DiagonalGaussian | Gaussian, f: Ridge, g: Ridge) -> tuple[Reals, ...]:
    """Returns means and variances of f's (a column) and g's (a row) arguments, and covariances."""
    between = dot(dot(f.rows, p.shape_matrix), g.rows.T)
    one = f.arguments(p.mean)[:, None], p.along(f.rows)[:, None]
    two = g.arguments(p.mean)[None], p.along(g.rows)[None]
    return *one, *two, between


def _wave_covariance(m_a: Reals, v_a: Reals, m_b: Reals, v_b: Reals, c: Reals) -> Reals:
    """The covariance of two cosines.

    ½ exp(−½(v_a + v_b)) [(e⁻ᶜ − 1) cos(m_a + m_b) + (eᶜ − 1) cos(m_a − m_b)].
    """
    exponent = -(v_a + v_b) / 2
    plus = _exp_times_expm1(exponent, -c) * jnp.cos(m_a + m_b)
    minus = _exp_times_expm1(exponent, c) * jnp.cos(m_a - m_b)
    return (plus + minus) / 2


def _exp_times_expm1(a: Reals, c: Reals) -> Reals:
    """eᵃ (eᶜ − 1) for c ≤ −a, where eᶜ alone may overflow."""
    up, down = jnp.where(c > 0, c, 0), jnp.where(c > 0, 0, c)
    return jnp.where(c > 0, -jnp.exp(a + up) * jnp.expm1(-up), jnp.exp(a) * jnp.expm1(down))


def gaussian_gated_covariance(p: DiagonalGaussian | Gaussian, f: Gated, g: Gated) -> Float[Array, "*both"]:
    """Σᵢⱼ wᵢ wⱼ Cov(σ(aᵢ), σ(aⱼ)) for units of erf, ReLU and GELU, in any combination."""
    m_a, v_a, m_b, v_b, c = _pairs_of_arguments(p, f, g)
    return weigh_pairs(f, g, gate_covariance(f.gate, m_a, v_a, g.gate, m_b, v_b, c))


def gate_covariance(f: Gate, m_a: Reals, v_a: Reals, g: Gate, m_b: Reals, v_b: Reals, c: Reals) -> Reals:
    """Cov(σ(a), τ(b)) of two gates of Gaussians with means m, variances v and covariance c.

    P(z < a, z′ < b) = Φ₂(h, k; ρ) =: B, with h = m_a / √A, A = v_a + η_a, k likewise, and ρ = c /
    √(AB). By Stein's lemma, a factor a in a unit is the operator m_a + v_a ∂_a + c ∂_b applied to
    B, whose derivatives are elementary.
    """
    if g.power < f.power:
        return gate_covariance(g, m_b, v_b, f, m_a, v_a, c)
    (root_a, h), (root_b, k) = _standardised(f, m_a, v_a), _standardised(g, m_b, v_b)
    most = 1 - 4 * float(jnp.finfo(c.dtype).eps)  # for equal arguments ρ is exactly one
    rho = jnp.clip(c / (root_a * root_b), -most, most)
    c, h, k, rho = jnp.broadcast_arrays(rho * root_a * root_b, h, k, rho)
    excess = bivariate_excess(h, k, rho)
    if f.power == g.power == 0:
        return f.scale * g.scale * excess
    # Derivatives of B by the means; those of B − Φ(h) Φ(k) are called `over`.
    by_a = normal_density(h) * ndtr(conditional(k, h, rho)) / root_a
    by_b = normal_density(k) * ndtr(conditional(h, k, rho)) / root_b
    over_a = by_a - normal_density(h) * ndtr(k) / root_a
    over_b = by_b - normal_density(k) * ndtr(h) / root_b
    if f.power == 0:
        return f.scale * g.scale * (m_b * excess + c * by_a + v_b * over_b)
    share_a, share_b = f.variance / root_a**2, g.variance / root_b**2
    density = bivariate_density(h, k, rho) * root_a * root_b
    curved = ((1 - share_a - share_b) * (1 - rho) * (1 + rho) + share_a * share_b) * density
    curved -= v_a * v_b * normal_density(h) * normal_density(k) / (root_a * root_b)
    both = excess + ndtr(h) * ndtr(k)
    slopes = m_a * (v_b * over_b + c * share_a * by_a) + m_b * (v_a * over_a + c * share_b * by_b)
    return f.scale * g.scale * (m_a * m_b * excess + c * both + slopes + curved)
