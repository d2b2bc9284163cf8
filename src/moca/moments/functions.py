"""Value functions whose expectations are closed form.

Each is a pytree of trainable arrays and maps one state to one number; batches go through `jax.vmap`.
"""

from abc import abstractmethod
from itertools import permutations
from math import factorial

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import erf
from jaxtyping import Array, Float

from moca.moments import _checks as check
from moca.moments._numerics import dot


class Function(eqx.Module):
    """A scalar function of a state in Rᵈ."""

    @property
    @abstractmethod
    def dimension(self) -> int:
        """Number of state dimensions d."""

    @abstractmethod
    def _evaluate(self, x: Float[Array, "d"]) -> Float[Array, ""]:
        """f(x) for an `x` of the right shape."""

    def __call__(self, x: check.Numbers) -> Float[Array, ""]:
        """f(x) at one state."""
        x = check.as_float(x)
        check.has_shape(self, "x", x, (self.dimension,), f"one state of dimension {self.dimension} (vmap a batch)")
        return self._evaluate(x)


class RBF(Function):
    """V(x) = Σᵢ wᵢ exp(−½ (x − cᵢ)ᵀ Λᵢ (x − cᵢ)) + constant [Eq. 6].

    Args:
        weights: wᵢ, shape (M,).
        centers: cᵢ, shape (M, d).
        precision: Λ. Diagonal and shared: (d,); diagonal per basis: (M, d); full: (M, d, d), or (1, d, d) shared.
        constant: value of a basis that is one everywhere, zero by default.
    """

    weights: Float[Array, "m"]
    centers: Float[Array, "m d"]
    precision: Float[Array, "..."]
    constant: Float[Array, ""]

    def __init__(
        self, weights: check.Numbers, centers: check.Numbers, precision: check.Numbers, constant: check.Numbers = 0.0
    ) -> None:
        self.weights = check.as_float(weights)
        self.centers = check.as_float(centers)
        self.precision = check.as_float(precision)
        self.constant = check.as_float(constant, like=self.weights)

    def __check_init__(self) -> None:
        _check_rows(self, "centers", self.centers)
        m, d = self.centers.shape
        if self.precision.shape not in {(d,), (m, d), (1, d, d), (m, d, d)}:
            raise ValueError(
                f"RBF.precision must have shape ({d},), ({m}, {d}), (1, {d}, {d}) or ({m}, {d}, {d}) "
                f"to fit centers {self.centers.shape}, got {self.precision.shape}"
            )
        check.is_finite(self, weights=self.weights, centers=self.centers, precision=self.precision)
        if self.precision.ndim == 3:
            check.is_positive_matrix(self, "precision", self.precision, definite=True)
        else:
            check.is_positive(self, precision=self.precision)

    @property
    def dimension(self) -> int:
        return self.centers.shape[1]

    def _evaluate(self, x: Float[Array, "d"]) -> Float[Array, ""]:
        if self.precision.ndim == 3:
            delta = x - self.centers
            squares = jnp.einsum("mi,mij,mj->m", delta, self._per_basis(), delta, precision="highest")
        else:
            squares = squared_distances(x, self.centers, self.precision)
        return dot(self.weights, jnp.exp(-squares / 2)) + self.constant

    def _per_basis(self) -> Float[Array, "m d d"]:
        return jnp.broadcast_to(self.precision, (*self.centers.shape, self.dimension))


def squared_distances(
    x: Float[Array, "d"], centers: Float[Array, "m d"], precision: Float[Array, "*m d"], plus: Array | float = 0.0
) -> Float[Array, "m"]:
    """Σⱼ Λⱼ (xⱼ − cᵢⱼ)² for every centre, as one matrix product; plus Σⱼ `plus`ⱼ ≥ 0.

    The square is expanded to Λx² − 2Λxc + Λc². Its three terms cancel, so each dimension's three stand side by
    side in the product (partial sums stay as small as the answer) and the centres' mean is the origin. In
    float32, ten lengthscales out and in eight dimensions, that leaves a relative error of 1e-5 on a basis; three
    separate products leave 8e-5.
    """
    origin = centers.mean(axis=0)
    x, c = x - origin, centers - origin
    if precision.ndim == 1:
        of_x = jnp.stack([precision * x * x + plus, -2 * precision * x, precision], axis=-1)
        of_c = jnp.stack([jnp.ones_like(c), c, c * c], axis=-1)
    else:
        of_x = jnp.stack([x * x, -2 * x, jnp.ones_like(x)], axis=-1)
        of_c = jnp.stack([precision, precision * c, precision * c * c + plus], axis=-1)
    # Rounding can leave a small negative number, and a basis must not exceed one.
    return jnp.maximum(dot(of_c.reshape(len(c), -1), of_x.reshape(-1)), 0)


class Fourier(Function):
    """V(x) = Σᵢ wᵢ cos(ωᵢᵀx + bᵢ) + constant: random Fourier features, or learned ones.

    Args:
        weights: wᵢ, shape (M,).
        frequencies: ωᵢ, shape (M, d).
        phases: bᵢ, shape (M,).
        constant: added everywhere, zero by default.
    """

    weights: Float[Array, "m"]
    frequencies: Float[Array, "m d"]
    phases: Float[Array, "m"]
    constant: Float[Array, ""]

    def __init__(
        self, weights: check.Numbers, frequencies: check.Numbers, phases: check.Numbers, constant: check.Numbers = 0.0
    ) -> None:
        self.weights = check.as_float(weights)
        self.frequencies = check.as_float(frequencies)
        self.phases = check.as_float(phases)
        self.constant = check.as_float(constant, like=self.weights)

    def __check_init__(self) -> None:
        _check_rows(self, "frequencies", self.frequencies)
        check.has_shape(self, "phases", self.phases, self.weights.shape, f"weights {self.weights.shape}")
        check.is_finite(self, weights=self.weights, frequencies=self.frequencies, phases=self.phases)

    @property
    def dimension(self) -> int:
        return self.frequencies.shape[1]

    def angles(self, x: Float[Array, "d"]) -> Float[Array, "m"]:
        """ωᵢᵀx + bᵢ."""
        return dot(self.frequencies, x) + self.phases

    def _evaluate(self, x: Float[Array, "d"]) -> Float[Array, ""]:
        return dot(self.weights, jnp.cos(self.angles(x))) + self.constant


class Erf(Function):
    """V(x) = Σᵢ wᵢ erf(uᵢᵀx + bᵢ) + constant: a one-layer network that stays closed form while u and b learn.

    Args:
        weights: wᵢ, shape (M,).
        directions: uᵢ, shape (M, d).
        offsets: bᵢ, shape (M,).
        constant: added everywhere, zero by default.
    """

    weights: Float[Array, "m"]
    directions: Float[Array, "m d"]
    offsets: Float[Array, "m"]
    constant: Float[Array, ""]

    def __init__(
        self, weights: check.Numbers, directions: check.Numbers, offsets: check.Numbers, constant: check.Numbers = 0.0
    ) -> None:
        self.weights = check.as_float(weights)
        self.directions = check.as_float(directions)
        self.offsets = check.as_float(offsets)
        self.constant = check.as_float(constant, like=self.weights)

    def __check_init__(self) -> None:
        _check_rows(self, "directions", self.directions)
        check.has_shape(self, "offsets", self.offsets, self.weights.shape, f"weights {self.weights.shape}")
        check.is_finite(self, weights=self.weights, directions=self.directions, offsets=self.offsets)

    @property
    def dimension(self) -> int:
        return self.directions.shape[1]

    def arguments(self, x: Float[Array, "d"]) -> Float[Array, "m"]:
        """uᵢᵀx + bᵢ."""
        return dot(self.directions, x) + self.offsets

    def _evaluate(self, x: Float[Array, "d"]) -> Float[Array, ""]:
        return dot(self.weights, erf(self.arguments(x))) + self.constant


class Quadratic(Function):
    """V(x) = ½ xᵀAx + bᵀx + c. Only the symmetric part of A matters."""

    A: Float[Array, "d d"]
    b: Float[Array, "d"]
    c: Float[Array, ""]

    def __init__(self, A: check.Numbers, b: check.Numbers, c: check.Numbers = 0.0) -> None:
        self.A = check.as_float(A)
        self.b = check.as_float(b)
        self.c = check.as_float(c, like=self.b)

    def __check_init__(self) -> None:
        check.at_least_rank(self, "b", self.b, 1)
        check.has_shape(self, "A", self.A, (*self.b.shape, self.dimension), f"b {self.b.shape}")
        check.is_finite(self, A=self.A, b=self.b, c=self.c)

    @property
    def dimension(self) -> int:
        return self.b.shape[0]

    def _evaluate(self, x: Float[Array, "d"]) -> Float[Array, ""]:
        return dot(dot(self.A, x) / 2 + self.b, x) + self.c


class Polynomial(Function):
    """V(x) = c + bᵀx + ½ A[x, x] + ⅙ T[x, x, x] + ¹⁄₂₄ F[x, x, x, x], of degree four at most.

    The tensors are the derivatives at zero, so that a degree-two polynomial is a `Quadratic`. A tensor need not be
    symmetric: only its symmetric part matters. `from_monomials` builds one from a list of monomials.

    Args:
        tensors: (c, b), (c, b, A), (c, b, A, T) or (c, b, A, T, F), of shapes (), (d,), (d, d), …
    """

    tensors: tuple[Float[Array, "..."], ...] = eqx.field(converter=lambda ts: tuple(map(check.as_float, ts)))

    def __check_init__(self) -> None:
        if not 2 <= len(self.tensors) <= 5:
            raise ValueError(f"Polynomial takes two to five tensors (degree one to four), got {len(self.tensors)}")
        for degree, tensor in enumerate(self.tensors):
            expected = (self.dimension,) * degree
            check.has_shape(self, f"tensors[{degree}]", tensor, expected, f"b {self.tensors[1].shape}")
            check.is_finite(self, **{f"tensors[{degree}]": tensor})

    @classmethod
    def from_monomials(cls, weights: check.Numbers, powers: check.Numbers) -> "Polynomial":
        """Σᵢ weightsᵢ Πⱼ xⱼ^powersᵢⱼ, for non-negative integer powers that sum to four at most.

        Example:
            `Polynomial.from_monomials([3.0, -1.0], [[2, 1], [0, 4]])` is 3 x₀² x₁ − x₁⁴.
        """
        weights = check.as_float(weights)
        exponents = np.asarray(powers)
        if exponents.ndim != 2 or exponents.shape[0] != len(weights):
            raise ValueError(f"powers must have shape ({len(weights)}, d), got {exponents.shape}")
        if not np.issubdtype(exponents.dtype, np.integer) or (exponents < 0).any() or (exponents.sum(1) > 4).any():
            raise ValueError("powers must be non-negative integers that sum to four at most in each monomial")
        d = exponents.shape[1]
        degree = max(1, int(exponents.sum(1).max(initial=0)))
        tensors = [jnp.zeros((d,) * k, weights.dtype) for k in range(degree + 1)]
        for weight, exponent in zip(weights, exponents, strict=True):
            index = tuple(int(j) for j in np.repeat(np.arange(d), exponent))
            tensors[len(index)] = tensors[len(index)].at[index].add(factorial(len(index)) * weight)
        return cls(tuple(tensors))

    @property
    def dimension(self) -> int:
        return self.tensors[1].shape[0]

    def symmetric(self) -> tuple[Float[Array, "..."], ...]:
        """The tensors, each averaged over the orders of its axes."""
        return tuple(
            jnp.stack([jnp.transpose(t, order) for order in permutations(range(t.ndim))]).mean(axis=0)
            for t in self.tensors
        )

    def _evaluate(self, x: Float[Array, "d"]) -> Float[Array, ""]:
        return horner(self.tensors, x)


def horner(tensors: tuple[Float[Array, "..."], ...], x: Float[Array, "d"]) -> Float[Array, "..."]:
    """Σₖ tensorsₖ[x, …, x] / k!, the k-fold product taken over the last k axes of the k-th tensor."""
    value = tensors[-1]
    for degree in range(len(tensors) - 1, 0, -1):
        value = tensors[degree - 1] + dot(value, x) / degree
    return value


def _check_rows(function: RBF | Fourier | Erf, field: str, rows: Array) -> None:
    """Raises unless `rows` is (M, d) with d ≥ 1 and there are M weights."""
    if rows.ndim != 2 or 0 in rows.shape:
        raise ValueError(f"{type(function).__name__}.{field} must have shape (M, d), got {rows.shape}")
    check.has_shape(function, "weights", function.weights, rows.shape[:1], f"{field} {rows.shape}")
    check.has_shape(function, "constant", function.constant, (), "a scalar function")
    check.is_finite(function, constant=function.constant)
