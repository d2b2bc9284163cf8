"""Predictive distributions over the next state.

Each is a pytree. Constructors accept leading batch axes, so that a batch can be built at once and
passed to `jax.vmap(expectation, (0, None))`; `expectation` itself takes one point.
"""

from abc import abstractmethod
from math import factorial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from moca.moments import _checks as check
from moca.moments._checks import Numbers
from moca.moments._numerics import dot
from moca.moments._special import student_characteristic

SMALL = 12  # dimensions up to which uᵀSu is computed from the products of u


class Distribution(eqx.Module):
    """A distribution over states in Rᵈ."""

    @property
    @abstractmethod
    def dimension(self) -> int:
        """Number of state dimensions d."""

    @property
    @abstractmethod
    def batch_shape(self) -> tuple[int, ...]:
        """Leading axes; () for one distribution."""

    @abstractmethod
    def sample(self, key: Key[Array, ""], count: int) -> Float[Array, "count d"]:
        """Returns `count` independent samples of one distribution."""


class Dirac(Distribution):
    """All mass on one point: certainty equivalence."""

    point: Float[Array, "*batch d"] = eqx.field(converter=check.as_float)

    def __check_init__(self) -> None:
        check.at_least_rank(self, "point", self.point, 1)
        check.is_finite(self, point=self.point)

    @property
    def mean(self) -> Float[Array, "*batch d"]:
        """The point."""
        return self.point

    @property
    def dimension(self) -> int:
        return self.point.shape[-1]

    @property
    def batch_shape(self) -> tuple[int, ...]:
        return self.point.shape[:-1]

    def sample(self, key: Key[Array, ""], count: int) -> Float[Array, "count d"]:
        return jnp.broadcast_to(self.point, (count, *self.point.shape))


class Empirical(Distribution):
    """Equal mass on K points: its expectations are Monte Carlo estimates from these samples."""

    points: Float[Array, "*batch k d"] = eqx.field(converter=check.as_float)

    def __check_init__(self) -> None:
        check.at_least_rank(self, "points", self.points, 2)
        if self.points.shape[-2] == 0:
            raise ValueError("Empirical.points needs at least one point")
        check.is_finite(self, points=self.points)

    @property
    def mean(self) -> Float[Array, "*batch d"]:
        """Average of the points."""
        return self.points.mean(-2)

    @property
    def dimension(self) -> int:
        return self.points.shape[-1]

    @property
    def batch_shape(self) -> tuple[int, ...]:
        return self.points.shape[:-2]

    def sample(self, key: Key[Array, ""], count: int) -> Float[Array, "count d"]:
        return jax.random.choice(key, self.points, (count,))


class Elliptical(Distribution):
    """x = mean + √τ S^½ ε with ε ~ N(0, I) and an independent random scale τ ≥ 0.

    Every closed form below needs only two facts about τ: its moments E[τᵏ] (for polynomials) and
    its Laplace transform E[exp(−½ τ q)] (for Fourier features).
    """

    mean: eqx.AbstractVar[Float[Array, "*batch d"]]

    @property
    @abstractmethod
    def shape_matrix(self) -> Float[Array, "*batch d d"]:
        """S, the covariance up to the factor E[τ]."""

    @abstractmethod
    def scale_moment(self, order: int) -> float:
        """E[τᵏ] for k = `order`; raises if it does not exist."""

    def require_moment(self, order: int) -> None:
        """Raises if E‖x‖ᵏ is infinite for k = `order`."""

    @abstractmethod
    def characteristic(self, q: Float[Array, "*m"]) -> Float[Array, "*m"]:
        """E[exp(−½ τ q)], the characteristic function at a frequency ω with q = ωᵀSω."""

    @abstractmethod
    def _sample_scale(self, key: Key[Array, ""], count: int) -> Float[Array, "count"]:
        """Returns `count` samples of τ."""

    @property
    def dimension(self) -> int:
        return self.mean.shape[-1]

    @property
    def batch_shape(self) -> tuple[int, ...]:
        return self.mean.shape[:-1]

    def along(self, directions: Float[Array, "m d"]) -> Float[Array, "m"]:
        """uᵀSu for each row u of `directions`.

        In few dimensions this is a product with all uᵢuⱼ: for a batch of S, a single one. Rounding
        errors do not make it negative.
        """
        if self.dimension <= SMALL:
            products = directions[:, :, None] * directions[:, None, :]
            squares = dot(products.reshape(len(directions), -1), self.shape_matrix.reshape(-1))
        else:
            squares = jnp.sum(dot(directions, self.shape_matrix) * directions, axis=-1)
        return jnp.where(squares < 0, 0, squares)  # its gradient at zero is that of the square

    def contract(self, tensor: Float[Array, "*rest d d"]) -> Float[Array, "*rest"]:
        """Σⱼₖ Sⱼₖ Tⱼₖ over the last two axes of `tensor`."""
        return jnp.tensordot(tensor, self.shape_matrix, axes=2, precision="highest")

    def sample(self, key: Key[Array, ""], count: int) -> Float[Array, "count d"]:
        direction_key, scale_key = jax.random.split(key)
        noise = jax.random.normal(direction_key, (count, self.dimension), self.mean.dtype)
        scale = jnp.sqrt(self._sample_scale(scale_key, count))[:, None]
        return self.mean + scale * self._spread(noise)

    def _spread(self, noise: Float[Array, "count d"]) -> Float[Array, "count d"]:
        """S^½ applied to each row, by eigenvectors, so that S may be singular."""
        eigenvalues, eigenvectors = jnp.linalg.eigh(self.shape_matrix)
        root = eigenvectors * jnp.sqrt(jnp.maximum(eigenvalues, 0))
        return dot(noise, root.T)

    def _check_mean_and(self, field: str, matrix: Array) -> None:
        check.at_least_rank(self, "mean", self.mean, 1)
        check.has_shape(self, field, matrix, (*self.mean.shape, self.dimension), f"mean {self.mean.shape}")
        check.is_finite(self, mean=self.mean, **{field: matrix})
        check.is_positive_matrix(self, field, matrix)


class _GaussianScale(Elliptical):
    """τ = 1."""

    def scale_moment(self, order: int) -> float:
        return 1.0

    def characteristic(self, q: Float[Array, "*m"]) -> Float[Array, "*m"]:
        return jnp.exp(-q / 2)

    def _sample_scale(self, key: Key[Array, ""], count: int) -> Float[Array, "count"]:
        return jnp.ones((count,), self.mean.dtype)


class DiagonalGaussian(_GaussianScale):
    """N(mean, diag(variance))."""

    mean: Float[Array, "*batch d"] = eqx.field(converter=check.as_float)
    variance: Float[Array, "*batch d"] = eqx.field(converter=check.as_float)

    def __check_init__(self) -> None:
        check.at_least_rank(self, "mean", self.mean, 1)
        check.has_shape(self, "variance", self.variance, self.mean.shape, f"mean {self.mean.shape}")
        check.is_finite(self, mean=self.mean, variance=self.variance)
        check.is_nonnegative(self, variance=self.variance)

    @property
    def covariance(self) -> Float[Array, "*batch d d"]:
        """diag(variance)."""
        return self.variance[..., None] * jnp.eye(self.dimension, dtype=self.variance.dtype)

    @property
    def shape_matrix(self) -> Float[Array, "*batch d d"]:
        return self.covariance

    def along(self, directions: Float[Array, "m d"]) -> Float[Array, "m"]:
        return dot(directions * directions, self.variance)

    def contract(self, tensor: Float[Array, "*rest d d"]) -> Float[Array, "*rest"]:
        return dot(jnp.diagonal(tensor, axis1=-2, axis2=-1), self.variance)

    def condition(self, point: Numbers, precision: Numbers) -> "DiagonalGaussian":
        """The Gaussian proportional to p(x) exp(−½ Σⱼ precisionⱼ (xⱼ − pointⱼ)²): Bayes' rule."""
        point, precision = check.as_float(point), check.as_float(precision)
        shrink = 1 / (1 + self.variance * precision)
        gain = self.variance * precision * shrink
        return DiagonalGaussian(self.mean + gain * (point - self.mean), self.variance * shrink)

    def _spread(self, noise: Float[Array, "count d"]) -> Float[Array, "count d"]:
        return jnp.sqrt(self.variance) * noise


class _WithCovariance(Elliptical):
    """S is the covariance, a matrix that may be singular."""

    mean: Float[Array, "*batch d"] = eqx.field(converter=check.as_float)
    covariance: Float[Array, "*batch d d"] = eqx.field(converter=check.as_float)

    def __check_init__(self) -> None:
        self._check_mean_and("covariance", self.covariance)

    @property
    def shape_matrix(self) -> Float[Array, "*batch d d"]:
        return self.covariance


class Gaussian(_GaussianScale, _WithCovariance):
    """N(mean, covariance) with a full covariance, which may be singular."""

    @property
    def variance(self) -> Float[Array, "*batch d"]:
        """Diagonal of the covariance."""
        diagonal: Array = jnp.diagonal(self.covariance, axis1=-2, axis2=-1)
        return diagonal

    def condition(self, point: Numbers, precision: Numbers) -> "Gaussian":
        """The Gaussian proportional to p(x) exp(−½ ‖x − point‖²_precision): Bayes' rule.

        (Σ⁻¹ + Λ)⁻¹ = (I + ΣΛ)⁻¹ Σ requires no inverse of Σ and no subtraction. It stays accurate
        for a belief far wider than the observation.
        """
        point, precision = check.as_float(point), check.as_float(precision)
        system = jnp.eye(self.dimension, dtype=self.mean.dtype) + dot(self.covariance, precision)
        covariance = jnp.linalg.solve(system, self.covariance)
        covariance = (covariance + covariance.T) / 2
        return Gaussian(self.mean + dot(covariance, dot(precision, point - self.mean)), covariance)


class Laplace(_WithCovariance):
    """Symmetric multivariate Laplace with this covariance: τ is exponential with mean one."""

    def scale_moment(self, order: int) -> float:
        return float(factorial(order))

    def characteristic(self, q: Float[Array, "*m"]) -> Float[Array, "*m"]:
        return 1 / (1 + q / 2)

    def _sample_scale(self, key: Key[Array, ""], count: int) -> Float[Array, "count"]:
        return jax.random.exponential(key, (count,), self.mean.dtype)


class StudentT(Elliptical):
    """Multivariate Student-t with scale *matrix* `scale` and `df` degrees of freedom.

    `scale` is scipy's `shape`, and τ = df / χ²(df). The covariance is scale · df / (df − 2), for df
    > 2. `df` is static, because it determines which moments exist and whether the Fourier
    expectation is elementary.
    """

    mean: Float[Array, "*batch d"] = eqx.field(converter=check.as_float)
    scale: Float[Array, "*batch d d"] = eqx.field(converter=check.as_float)
    df: float = eqx.field(static=True, converter=float)

    def __check_init__(self) -> None:
        self._check_mean_and("scale", self.scale)
        if not 0 < self.df < float("inf"):
            raise ValueError(f"StudentT.df must be positive and finite, got {self.df:g}; use Gaussian for df = ∞")

    @property
    def shape_matrix(self) -> Float[Array, "*batch d d"]:
        return self.scale

    @property
    def covariance(self) -> Float[Array, "*batch d d"]:
        """scale · df / (df − 2); raises for df ≤ 2."""
        return self.scale_moment(1) * self.scale

    def require_moment(self, order: int) -> None:
        if self.df <= order:
            raise ValueError(f"a Student-t with df = {self.df:g} has no moment of order {order}: it needs df > {order}")

    def scale_moment(self, order: int) -> float:
        """E[τᵏ] = Π_{i ≤ k} df / (df − 2i)."""
        self.require_moment(2 * order)
        moment = 1.0
        for i in range(1, order + 1):
            moment *= self.df / (self.df - 2 * i)
        return moment

    def characteristic(self, q: Float[Array, "*m"]) -> Float[Array, "*m"]:
        if self.df % 2 != 1:
            raise ValueError(
                "the characteristic function of a Student-t is elementary for odd integer degrees of freedom only: "
                f"df = 1, 3, 5, …; got {self.df:g}"
            )
        return student_characteristic(int(self.df), self.df * q)

    def _sample_scale(self, key: Key[Array, ""], count: int) -> Float[Array, "count"]:
        return self.df / (2 * jax.random.gamma(key, self.df / 2, (count,), self.mean.dtype))
