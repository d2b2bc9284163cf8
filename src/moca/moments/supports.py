"""Distributions on boxes with independent dimensions: uniform, truncated and clipped Gaussian.

The closed forms need three facts about each dimension: its mean, its central moments up to order
eight, and the expectation of a bump exp(−½ λ (x − c)²).
"""

import math
from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from jaxtyping import Array, Float, Key

from moca.moments import _checks as check
from moca.moments._special import half_moments
from moca.moments.distributions import DiagonalGaussian, Distribution

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(32)
_NOTHING = -1e30  # the logarithm of zero mass
_REACH = 1e6  # bounds this many deviations out count as infinite


class Independent(Distribution):
    """A distribution with independent dimensions."""

    lower: eqx.AbstractVar[Float[Array, "*batch d"]]
    upper: eqx.AbstractVar[Float[Array, "*batch d"]]

    @property
    def dimension(self) -> int:
        return self.lower.shape[-1]

    @property
    def batch_shape(self) -> tuple[int, ...]:
        return self.lower.shape[:-1]

    @abstractmethod
    def moments(self, order: int = 4) -> tuple[Float[Array, "d"], ...]:
        """The mean of each dimension, and its central moments from two to `order` ≤ 8."""

    @abstractmethod
    def bump(self, center: Float[Array, "..."], precision: Float[Array, "..."]) -> Float[Array, "..."]:
        """E[exp(−½ precision (x − center)²)] for each dimension, the last axis."""

    @property
    def mean(self) -> Float[Array, "d"]:
        """E[x]."""
        return self.moments()[0]

    @property
    def covariance(self) -> Float[Array, "d d"]:
        """diag(Var[x])."""
        return jnp.diag(self.moments()[1])

    def _check_bounds(self) -> None:
        check.at_least_rank(self, "lower", self.lower, 1)
        check.has_shape(self, "upper", self.upper, self.lower.shape, f"lower {self.lower.shape}")
        check.is_positive(self, **{"upper - lower": self.upper - self.lower})


class Box(Independent):
    """Uniform between `lower` and `upper`."""

    lower: Float[Array, "*batch d"] = eqx.field(converter=check.as_float)
    upper: Float[Array, "*batch d"] = eqx.field(converter=check.as_float)

    def __check_init__(self) -> None:
        check.is_finite(self, lower=self.lower, upper=self.upper)
        self._check_bounds()

    def moments(self, order: int = 4) -> tuple[Float[Array, "d"], ...]:
        """The middle, and (w/2)ᵏ / (k + 1) for even k, where w is the width."""
        half = (self.upper - self.lower) / 2
        central = (half**k / (k + 1) if k % 2 == 0 else jnp.zeros_like(half) for k in range(2, order + 1))
        return (self.lower + self.upper) / 2, *central

    def bump(self, center: Float[Array, "..."], precision: Float[Array, "..."]) -> Float[Array, "..."]:
        """√(2π/λ) (Φ(√λ (upper − c)) − Φ(√λ (lower − c))) / w.

        For narrow boxes, its Taylor series in w.
        """
        root, width = jnp.sqrt(precision), self.upper - self.lower
        w, z = root * width, root * ((self.lower + self.upper) / 2 - center)
        narrow = w < (0.02 if w.dtype == jnp.float64 else 0.2)
        series = 1 + w**2 * (z**2 - 1) / 24 + w**4 * (z**4 - 6 * z**2 + 3) / 1920
        safe = jnp.where(narrow, 1.0, w)
        wide = normal_mass(z - safe / 2, z + safe / 2) * math.sqrt(2 * math.pi) / safe
        return jnp.where(narrow, series * jnp.exp(-(z**2) / 2), wide)

    def sample(self, key: Key[Array, ""], count: int) -> Float[Array, "count d"]:
        uniform = jax.random.uniform(key, (count, self.dimension), self.lower.dtype)
        return self.lower + uniform * (self.upper - self.lower)


class _OfGaussian(Independent):
    """A diagonal Gaussian restricted to a box; bounds may be infinite."""

    gaussian: DiagonalGaussian
    lower: Float[Array, "*batch d"] = eqx.field(converter=check.as_float)
    upper: Float[Array, "*batch d"] = eqx.field(converter=check.as_float)

    def __check_init__(self) -> None:
        if not isinstance(self.gaussian, DiagonalGaussian):
            kind = type(self.gaussian).__name__
            raise TypeError(
                f"{type(self).__name__} needs a DiagonalGaussian, got {kind}: there is no closed form with correlations"
            )
        self._check_bounds()
        check.has_shape(self, "lower", self.lower, self.gaussian.mean.shape, f"mean {self.gaussian.mean.shape}")

    def _inside(self, order: int) -> tuple[Float[Array, "d"], ...]:
        """Returns the deviation, and standardised bounds and moments between them."""
        deviation, low, high = _standard_bounds(self.gaussian.mean, self.gaussian.variance, self.lower, self.upper)
        return deviation, low, high, *_truncated_moments(low, high, order)


class TruncatedGaussian(_OfGaussian):
    """A diagonal Gaussian conditioned on being between `lower` and `upper`."""

    def moments(self, order: int = 4) -> tuple[Float[Array, "d"], ...]:
        """The moments of the standard normal between the bounds, rescaled."""
        deviation, _, _, mean, *central = self._inside(order)
        scaled = (m * deviation**k for k, m in enumerate(central, 2))
        return jnp.clip(self.gaussian.mean + deviation * mean, self.lower, self.upper), *scaled

    def bump(self, center: Float[Array, "..."], precision: Float[Array, "..."]) -> Float[Array, "..."]:
        """E[bump] under the Gaussian, times the ratio of masses inside with and without it."""
        _, low, high = _standard_bounds(self.gaussian.mean, self.gaussian.variance, self.lower, self.upper)
        whole, inside = _gaussian_bump(self.gaussian, self.lower, self.upper, center, precision)
        spread = jnp.exp(whole + inside - log_normal_mass(low, high))
        # Without variance it is a point; if its mean is outside, the point is the nearer bound.
        point = jnp.clip(self.gaussian.mean, self.lower, self.upper)
        return jnp.where(self.gaussian.variance > 0, spread, jnp.exp(-precision * (point - center) ** 2 / 2))

    def sample(self, key: Key[Array, ""], count: int) -> Float[Array, "count d"]:
        deviation, low, high = _standard_bounds(self.gaussian.mean, self.gaussian.variance, self.lower, self.upper)
        z = jax.random.truncated_normal(key, low, high, (count, self.dimension), self.lower.dtype)
        return self.gaussian.mean + deviation * z


class ClippedGaussian(_OfGaussian):
    """clip(z, lower, upper) for a diagonal Gaussian z: the mass outside is on the bounds."""

    def moments(self, order: int = 4) -> tuple[Float[Array, "d"], ...]:
        """The moments of the part inside and of the two atoms, combined about the common mean."""
        deviation, low, high, mean, *central = self._inside(order)
        masses = ndtr(low), normal_mass(low, high), ndtr(-high)
        mean, edges = self.gaussian.mean + deviation * mean, (_finite(self.lower), _finite(self.upper))
        total = masses[0] * edges[0] + masses[1] * mean + masses[2] * edges[1]
        gap = mean - total
        c: list[Any] = [1.0, 0.0, *(m * deviation**k for k, m in enumerate(central, 2))]
        joined = []
        for k in range(2, order + 1):
            within = sum(math.comb(k, j) * c[j] * gap ** (k - j) for j in range(k + 1))
            atoms = masses[0] * (edges[0] - total) ** k + masses[2] * (edges[1] - total) ** k
            joined.append(masses[1] * within + atoms)
        return total, *joined

    def bump(self, center: Float[Array, "..."], precision: Float[Array, "..."]) -> Float[Array, "..."]:
        """The Gaussian part between the bounds, plus the bump at each bound times its mass."""
        _, low, high = _standard_bounds(self.gaussian.mean, self.gaussian.variance, self.lower, self.upper)
        whole, inside = _gaussian_bump(self.gaussian, self.lower, self.upper, center, precision)
        at_low, at_high = (jnp.exp(-precision * (_finite(edge) - center) ** 2 / 2) for edge in (self.lower, self.upper))
        return jnp.exp(whole + inside) + ndtr(low) * at_low + ndtr(-high) * at_high

    def sample(self, key: Key[Array, ""], count: int) -> Float[Array, "count d"]:
        return jnp.clip(self.gaussian.sample(key, count), self.lower, self.upper)


def normal_mass(low: Float[Array, "..."], high: Float[Array, "..."]) -> Float[Array, "..."]:
    """Φ(high) − Φ(low), computed from the nearer tail."""
    flip = low + high > 0
    return ndtr(jnp.where(flip, -low, high)) - ndtr(jnp.where(flip, -high, low))


def log_normal_mass(low: Float[Array, "..."], high: Float[Array, "..."]) -> Float[Array, "..."]:
    """log(Φ(high) − Φ(low)), accurate also far out and for close bounds.

    In a tail it is −near²/2 + log(G₀(near) − e^{−(far² − near²)/2} G₀(far)) − ½ log 2π, with G₀ of
    `half_moments`. Between close bounds, where a difference would cancel, it is quadrature by
    `_ruled`. Between equal bounds it is −1e30.
    """
    empty = high <= low
    low, high = jnp.where(empty, -0.5, low), jnp.where(empty, 0.5, high)
    near, far = _from_the_middle(low, high)
    tail, close = near > 0, _close(low, high)
    one, two = jnp.where(tail, near, 1.0), jnp.where(tail, far, 2.0)
    left = half_moments(0, one)[0] - jnp.exp(-(two - one) * (two + one) / 2) * half_moments(0, two)[0]
    in_tail = -(one**2) / 2 + jnp.log(left / math.sqrt(2 * math.pi))
    around = jnp.log(normal_mass(jnp.where(tail, -1.0, low), jnp.where(tail, 1.0, high)))
    start, end = jnp.where(close, low, -0.5), jnp.where(close, high, 0.5)
    middle, _, density = _ruled(start, end)
    ruled = jnp.log(density.sum(-1) * (end - start) / 2 / math.sqrt(2 * math.pi)) - middle[..., 0] ** 2 / 2
    return jnp.where(empty, _NOTHING, jnp.where(close, ruled, jnp.where(tail, in_tail, around)))


def _from_the_middle(low: Array, high: Array) -> tuple[Array, Array]:
    """Returns the distances of the bounds from zero, nearer first.

    The nearer one is negative if zero lies between the bounds.
    """
    flip = low + high > 0
    return jnp.where(flip, low, -high), jnp.where(flip, high, -low)


def _close(low: Array, high: Array) -> Array:
    """Returns True where the density varies so little that quadrature has full precision."""
    return (high - low) * jnp.maximum(1, _from_the_middle(low, high)[0]) < 1


def _standard_bounds(mean: Array, variance: Array, lower: Array, upper: Array) -> tuple[Array, Array, Array]:
    """Returns √variance, and the standardised bounds, clipped far out."""
    deviation = jnp.sqrt(jnp.maximum(variance, float(jnp.finfo(mean.dtype).eps) ** 2))
    low, high = (jnp.clip((bound - mean) / deviation, -_REACH, _REACH) for bound in (lower, upper))
    return deviation, low, high


def _truncated_moments(low: Array, high: Array, order: int) -> tuple[Array, ...]:
    """Returns mean and central moments of a standard normal between `low` and `high`.

    By parts, with h = z − mean and bounds h₁ and h₂,
    E[hᵏ] = (k − 1) E[hᵏ⁻²] − mean E[hᵏ⁻¹] + (h₁ᵏ⁻¹ φ(low) − h₂ᵏ⁻¹ φ(high)) / mass. Between close
    bounds and in a tail this cancels; there a Gauss–Legendre rule over the relevant part has full
    precision.
    """
    empty, edge = high <= low, low
    low, high = jnp.where(empty, -0.5, low), jnp.where(empty, 0.5, high)
    mass = log_normal_mass(low, high)
    at_low, at_high = (jnp.exp(-(z**2) / 2 - mass) / math.sqrt(2 * math.pi) for z in (low, high))
    mean = at_low - at_high
    central = [jnp.ones_like(low), jnp.zeros_like(low)]
    for k in range(2, order + 1):
        edges = (low - mean) ** (k - 1) * at_low - (high - mean) ** (k - 1) * at_high
        central.append((k - 1) * central[k - 2] - mean * central[k - 1] + edges)
    near, _ = _from_the_middle(low, high)
    reach = 55 / jnp.maximum(near, 4.0)  # t⁸ e⁻ᵗ has 1e-14 of its mass beyond
    tail = near > 2
    upward = low + high > 0
    use = tail | ((high - low) * jnp.maximum(1, near) < 6)
    start = jnp.where(use, jnp.where(tail & ~upward, jnp.maximum(low, high - reach), low), -0.5)
    end = jnp.where(use, jnp.where(tail & upward, jnp.minimum(high, low + reach), high), 0.5)
    middle, offset, density = _ruled(start, end)
    density = density / density.sum(-1, keepdims=True)
    shift = jnp.sum(density * offset, axis=-1)
    ruled = [jnp.sum(density * (offset - shift[..., None]) ** k, axis=-1) for k in range(2, order + 1)]
    point = [edge, *[jnp.zeros_like(edge)] * (order - 1)]
    pairs = zip([middle[..., 0] + shift, *ruled], [mean, *central[2:]], point, strict=True)
    return tuple(jnp.where(empty, c, jnp.where(use, a, b)) for a, b, c in pairs)


def _ruled(low: Array, high: Array) -> tuple[Array, Array, Array]:
    """Returns a quadrature rule with 32 nodes for the standard normal density on an interval.

    These are the interval's middle, the offsets of the nodes from it, and the weights. Each weight
    includes the density at its node, relative to the density at the middle.
    """
    nodes, weights = (jnp.asarray(each, low.dtype) for each in (_NODES, _WEIGHTS))
    offset = (high - low)[..., None] / 2 * nodes
    middle = ((low + high) / 2)[..., None]
    return middle, offset, weights * jnp.exp(-offset * (2 * middle + offset) / 2)


def _gaussian_bump(
    p: DiagonalGaussian, lower: Array, upper: Array, center: Array, precision: Array
) -> tuple[Array, Array]:
    """Returns log E[bump] under the Gaussian, and the log mass inside given the bump."""
    widened = 1 + p.variance * precision
    whole = -(jnp.log(widened) + precision / widened * (p.mean - center) ** 2) / 2
    mean = p.mean + p.variance * precision / widened * (center - p.mean)
    _, low, high = _standard_bounds(mean, p.variance / widened, lower, upper)
    return whole, log_normal_mass(low, high)


def _finite(bound: Array) -> Array:
    """Replaces an infinite bound, which has no mass, by zero."""
    return jnp.where(jnp.isfinite(bound), bound, 0.0)
