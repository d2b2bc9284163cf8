"""Special functions that JAX lacks."""

import math
from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from jaxtyping import Array, Float

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(20)
MATERN = {0.5: (1.0,), 1.5: (1.0, 1.0), 2.5: (1.0, 1.0, 1 / 3)}  # coefficients of t⁰, t¹, t² in the factor of e⁻ᵗ
_ELEMENTARY = 61  # degrees of freedom above which ten terms of Debye's expansion are exact to 1e-15
_STEEP = 0.925  # above this correlation, integrate from ρ to 1 instead of from 0 to ρ, as Genz does


def normal_density(z: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """φ(z) = exp(−z²/2) / √(2π)."""
    return jnp.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)


@jax.custom_jvp
def bivariate_excess(h: Float[Array, "*n"], k: Float[Array, "*n"], rho: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """Φ₂(h, k; ρ) − Φ(h) Φ(k) for |ρ| < 1, the effect of correlation on P(z < h, z′ < k).

    By Plackett's identity, ∂Φ₂/∂ρ = φ₂, this is an integral over the correlation, which vanishes at
    ρ = 0 and does not cancel. It is evaluated by a Gauss–Legendre rule with 20 nodes after Genz
    (2004), with an error below 1e-15. Its derivatives are elementary and are defined explicitly.
    """
    sign = jnp.where(rho < 0, -1.0, 1.0).astype(rho.dtype)
    k, rho = sign * k, sign * rho  # Φ₂(h, k; −ρ) − Φ(h) Φ(k) = −(Φ₂(h, −k; ρ) − Φ(h) Φ(−k))
    steep = rho > _STEEP
    flat_part = _from_zero(h, k, jnp.where(steep, 0, rho))
    steep_part = ndtr(jnp.minimum(h, k)) * ndtr(-jnp.maximum(h, k)) - _to_one(h, k, jnp.where(steep, rho, _STEEP))
    return sign * jnp.where(steep, steep_part, flat_part)


@bivariate_excess.defjvp
def _bivariate_excess_jvp(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, ...]:
    h, k, rho = primals
    dh, dk, drho = tangents
    slope_h = normal_density(h) * (ndtr(conditional(k, h, rho)) - ndtr(k))
    slope_k = normal_density(k) * (ndtr(conditional(h, k, rho)) - ndtr(h))
    return bivariate_excess(h, k, rho), slope_h * dh + slope_k * dk + bivariate_density(h, k, rho) * drho


def conditional(h: Float[Array, "*n"], k: Float[Array, "*n"], rho: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """(h − ρk) / √(1 − ρ²): h, standardised given that the second normal equals k.

    The numerator is computed from h ∓ k, so that no precision is lost where ρ is close to ±1.
    """
    near = jnp.where(rho > 0, (h - k) + (1 - rho) * k, (h + k) - (1 + rho) * k)
    return near / jnp.sqrt((1 - rho) * (1 + rho))


def bivariate_density(h: Float[Array, "*n"], k: Float[Array, "*n"], rho: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """φ₂(h, k; ρ), the density of two standard normals with correlation ρ."""
    return normal_density(k) * normal_density(conditional(h, k, rho)) / jnp.sqrt((1 - rho) * (1 + rho))


def _from_zero(h: Float[Array, "*n"], k: Float[Array, "*n"], rho: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """∫₀^ρ φ₂(h, k; r) dr with r = sin θ; the integrand is smooth unless ρ is close to one."""
    angle = jnp.arcsin(rho)[..., None]
    sine = jnp.sin(angle * _like(_NODES + 1, h) / 2)
    exponent = (h - k)[..., None] ** 2 / ((1 - sine) * (1 + sine)) + (2 * h * k)[..., None] / (1 + sine)
    return jnp.sum(_like(_WEIGHTS, h) * jnp.exp(-exponent / 2), axis=-1) * angle[..., 0] / (4 * math.pi)


def _to_one(h: Float[Array, "*n"], k: Float[Array, "*n"], rho: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """∫_ρ¹ φ₂(h, k; r) dr over x = √(1 − r²).

    The integrand is exp(−(h − k)²/2x² − hk/2) g(x) with g smooth, and flat to all orders at x = 0.
    The first terms of g in x² are integrated exactly; quadrature is used only for the small
    remainder.
    """
    square, gap = (1 - rho) * (1 + rho), (h - k) ** 2
    top, distance = jnp.sqrt(square), jnp.abs(h - k)
    hk = jnp.maximum(h * k, -100.0)  # for smaller values every term is zero
    c, d = (4 - hk) / 8, (12 - hk) / 16
    series = (
        top
        * jnp.exp(-(gap / square + hk) / 2)
        * (1 - c * (gap - square) * (1 - d * gap / 5) / 3 + c * d * square**2 / 5)
    )
    series -= (
        jnp.exp(-hk / 2)
        * math.sqrt(2 * math.pi)
        * ndtr(-distance / top)
        * distance
        * (1 - c * gap * (1 - d * gap / 5) / 3)
    )
    x2 = (top[..., None] * _like(_NODES + 1, h) / 2) ** 2
    root = jnp.sqrt(1 - x2)
    c, d, hk, gap = (a[..., None] for a in (c, d, hk, gap))
    rest = jnp.exp(-hk * (1 - root) / (2 * (1 + root))) / root - (1 + c * x2 * (1 + d * x2))
    rest = jnp.sum(_like(_WEIGHTS, h) * jnp.exp(-(gap / x2 + hk) / 2) * rest, axis=-1) * top / 2
    return (series + rest) / (2 * math.pi)


def _like(numbers: np.ndarray, array: Array) -> Float[Array, "n"]:
    return jnp.asarray(numbers, array.dtype)


def half_line(away: Array, variance: Array, rate: Array, coefficients: Sequence[Array]) -> Float[Array, "..."]:
    """E[Σₖ cₖ yᵏ e⁻ᵃʸ; y > 0] for y ~ N(away, variance) and up to five coefficients cₖ.

    E[yᵏ e⁻ᵃʸ; y > 0] = σᵏ φ(r) Gₖ(aσ − r) with r = away / σ and Gₖ(z) = ∫₀^∞ tᵏ e^{−t²/2 − zt} dt.
    For z < 0, where Gₖ grows, it is the integral over the whole line, an elementary moment, minus
    that over the other half.
    """
    deviation = jnp.sqrt(jnp.maximum(variance, float(jnp.finfo(variance.dtype).eps) ** 2))
    r = jnp.clip(away / deviation, -40.0, 40.0)
    z = rate * deviation - r
    mean = away - rate * variance  # of the Gaussian tilted by e⁻ᵃʸ
    whole = jnp.exp(jnp.where(z < 0, rate**2 * variance / 2 - rate * away, 0))
    moments = [jnp.ones_like(mean), mean]
    for k in range(2, len(coefficients)):
        moments.append(mean * moments[k - 1] + (k - 1) * variance * moments[k - 2])
    halves = half_moments(len(coefficients) - 1, jnp.abs(z))
    total = jnp.zeros_like(z)
    for k, c in enumerate(coefficients):
        half = deviation**k * normal_density(r) * halves[k]
        total += c * jnp.where(z < 0, moments[k] * whole - (-1) ** k * half, half)
    return total


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def half_moments(order: int, z: Float[Array, "*n"]) -> Float[Array, "k *n"]:
    """Gₖ(z) = ∫₀^∞ tᵏ e^{−t²/2 − zt} dt for z ≥ 0 and k from 0 to `order`.

    G₀(z) is √(π/2) times the scaled erfc of z/√2. As a function of (z − 3) / (z + 3), the
    product (z + 3)ᵏ⁺¹ Gₖ(z) is smooth up to infinity, and is approximated by a Chebyshev series of
    40 terms. The derivative of Gₖ is −Gₖ₊₁.
    """
    y = (z - 3) / (z + 3)
    series = jnp.asarray(np.array([_half_moment_series(k) for k in range(order + 1)]), z.dtype)
    series = series.T.reshape(-1, order + 1, *(1,) * z.ndim)

    def clenshaw(i: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        one, two = carry
        return 2 * y * one - two + series[len(series) - 1 - i], one

    start = jnp.zeros((order + 1, *z.shape), z.dtype)
    one, two = jax.lax.fori_loop(0, len(series) - 1, clenshaw, (start, start), unroll=True)
    powers = jnp.stack([(z + 3) ** (k + 1) for k in range(order + 1)])
    found: Array = (y * one - two + series[0]) / powers
    return found


@half_moments.defjvp
def _half_moments_jvp(order: int, primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, ...]:
    more = half_moments(order + 1, primals[0])
    return more[:-1], -more[1:] * tangents[0]


@cache
def _half_moment_series(k: int) -> tuple[float, ...]:
    """Returns the coefficients, from a 200-node Gauss–Legendre rule at each interpolation point."""
    nodes, weights = np.polynomial.legendre.leggauss(200)
    s, weights = 30 * (nodes + 1), 30 * weights

    def scaled(y: np.ndarray) -> np.ndarray:
        ratio = (1 + y[:, None]) / 2  # z / (z + 3)
        inverse = (1 - y[:, None]) / 6  # 1 / (z + 3)
        total: np.ndarray = (weights * s**k * np.exp(-((s * inverse) ** 2) / 2 - ratio * s)).sum(axis=1)
        return total

    series = np.polynomial.chebyshev.chebinterpolate(scaled, 40)  # type: ignore[type-var]
    return tuple(series.tolist())


def student_characteristic(df: int, u: Float[Array, "*m"]) -> Float[Array, "*m"]:
    """K_{df/2}(√u) (√u)^{df/2}, scaled to one at zero: e^{−√u} times a polynomial in √u for odd df.

    The polynomial overflows where e^{−√u} underflows, so its logarithm is used. For many degrees of
    freedom it is replaced by Debye's expansion, which is uniform in u. In float64 the relative
    error is below 1e-12 down to χ = 1e-30. The derivative in u is −χ_{df−2}(u) / (2 (df − 2)),
    again elementary, and finite at u = 0, where the chain rule through √u fails. For df = 1 the
    derivative at zero is infinite (the Cauchy distribution has no mean); zero is then replaced by
    the smallest normal number, which keeps products with a zero finite.
    """

    @jax.custom_jvp
    def chi(u: Float[Array, "*m"]) -> Float[Array, "*m"]:
        return _debye(df / 2, u) if df > _ELEMENTARY else _elementary((df - 1) // 2, u)

    @chi.defjvp
    def chi_jvp(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, ...]:
        (u,), (du,) = primals, tangents
        if df > 1:
            slope = -student_characteristic(df - 2, u) / (2 * (df - 2))
        else:
            t = jnp.sqrt(jnp.maximum(u, jnp.finfo(u.dtype).tiny))
            slope = -jnp.exp(-t) / (2 * t)
        return chi(u), slope * du

    return chi(u)


def _elementary(n: int, u: Float[Array, "*m"]) -> Float[Array, "*m"]:
    """e⁻ᵗ Σₖ aₖ tᵏ / a₀ with t = √u and aₖ = (2n − k)! 2ᵏ / (k! (n − k)!), by Horner's rule.

    aₖ₊₁/aₖ = 2 (n − k) / ((k + 1)(2n − k)). Large t is clipped where the result is zero and the
    polynomial still finite.
    """
    t = jnp.minimum(jnp.sqrt(u), 200.0 if u.dtype == jnp.float32 else 1000.0)
    polynomial = jnp.ones_like(t)
    for k in reversed(range(n)):
        polynomial = 1 + polynomial * t * (2 * (n - k) / ((k + 1) * (2 * n - k)))
    return jnp.exp(jnp.log(polynomial) - t)


def _debye(order: float, u: Float[Array, "*m"]) -> Float[Array, "*m"]:
    """The same function by Debye's expansion of K_ν(νz) for a high order ν = df/2 (DLMF 10.41.4).

    With z = √u / ν and s = √(1 + z²) it is exp(−ν (s − 1 − log((1 + s)/2))) s^−½ Σₖ (−1)ᵏ Uₖ(1/s)
    ν⁻ᵏ, divided by the sum at s = 1, which is Stirling's series.
    """
    z2 = jnp.minimum(u, float(jnp.finfo(u.dtype).max)) / order**2
    s = jnp.sqrt(1 + z2)
    w = z2 / (1 + s)  # s − 1
    series = np.polynomial.Polynomial([0.0])
    for k, polynomial in enumerate(_debye_polynomials()):
        series += polynomial * (-order) ** -k
    series /= series(1.0)
    total = jnp.zeros_like(s)
    for coefficient in series.coef[::-1]:
        total = total / s + float(coefficient)
    return jnp.exp(-order * (w - jnp.log1p(w / 2))) * total / jnp.sqrt(s)


@cache
def _debye_polynomials(count: int = 10) -> list[np.polynomial.Polynomial]:
    """U₀, U₁, …: Uₖ₊₁(p) = ½ p² (1 − p²) Uₖ′(p) + ⅛ ∫₀ᵖ (1 − 5t²) Uₖ(t) dt."""
    polynomials = [np.polynomial.Polynomial([1.0])]
    for _ in range(count - 1):
        u = polynomials[-1]
        slope = np.polynomial.Polynomial([0, 0, 0.5, 0, -0.5]) * u.deriv()
        polynomials.append(slope + (np.polynomial.Polynomial([1, 0, -5]) * u).integ() / 8)
    return polynomials
