"""Polynomials of degree at most four."""

from itertools import permutations
from math import factorial

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from moca.moments import _checks as check
from moca.moments._numerics import dot
from moca.moments.functions.base import Function


class Quadratic(Function):
    """V(x) = ½ xᵀAx + bᵀx + c. Only the symmetric part of A matters.

    A is (d, d), b (d,) and c a number; for m outputs each has a leading axis of length m.
    """

    A: Float[Array, "*outputs d d"]
    b: Float[Array, "*outputs d"]
    c: Float[Array, "*outputs"]

    def __init__(self, A: check.Numbers, b: check.Numbers, c: check.Numbers = 0.0) -> None:
        self.A = check.as_float(A)
        self.b = check.as_float(b)
        c = check.as_float(c, like=self.b)
        self.c = jnp.broadcast_to(c, self.b.shape[:-1]) if c.ndim == 0 else c

    def __check_init__(self) -> None:
        check.at_least_rank(self, "b", self.b, 1)
        check.at_most_rank(self, "b", self.b, 2)
        check.has_shape(self, "A", self.A, (*self.b.shape, self.dimension), f"b {self.b.shape}")
        check.has_shape(self, "c", self.c, self.b.shape[:-1], f"b {self.b.shape}")
        check.is_finite(self, A=self.A, b=self.b, c=self.c)

    @property
    def dimension(self) -> int:
        return self.b.shape[-1]

    @property
    def outputs(self) -> tuple[int, ...]:
        return self.b.shape[:-1]

    def as_polynomial(self) -> "Polynomial":
        """The same function as a `Polynomial`."""
        return Polynomial((self.c, self.b, self.A))

    def _evaluate(self, x: Float[Array, "d"]) -> Float[Array, "*outputs"]:
        return dot(dot(self.A, x) / 2 + self.b, x) + self.c


class Polynomial(Function):
    """V(x) = c + bᵀx + ½ A[x, x] + ⅙ T[x, x, x] + ¹⁄₂₄ F[x, x, x, x], of degree at most four.

    The tensors are the derivatives at zero, so a polynomial of degree two equals a `Quadratic`.
    Only the symmetric part of a tensor matters. `from_monomials` builds a polynomial from a list of
    monomials.

    Args:
        tensors: (c, b), (c, b, A), (c, b, A, T) or (c, b, A, T, F), with shapes (), (d,), (d, d),
            …; for m outputs each has a leading axis of length m.
    """

    tensors: tuple[Float[Array, "..."], ...] = eqx.field(converter=lambda ts: tuple(map(check.as_float, ts)))

    def __check_init__(self) -> None:
        if not 2 <= len(self.tensors) <= 5:
            raise ValueError(f"Polynomial needs two to five tensors (degree one to four), got {len(self.tensors)}")
        check.at_least_rank(self, "tensors[1]", self.tensors[1], 1)
        check.at_most_rank(self, "tensors[1]", self.tensors[1], 2)
        for degree, tensor in enumerate(self.tensors):
            expected = (*self.outputs, *(self.dimension,) * degree)
            check.has_shape(self, f"tensors[{degree}]", tensor, expected, f"b {self.tensors[1].shape}")
            check.is_finite(self, **{f"tensors[{degree}]": tensor})

    @classmethod
    def from_monomials(cls, weights: check.Numbers, powers: check.Numbers) -> "Polynomial":
        """Σᵢ weightsᵢ Πⱼ xⱼ^powersᵢⱼ, for non-negative integer powers with sums of at most four.

        Example:
            `Polynomial.from_monomials([3.0, -1.0], [[2, 1], [0, 4]])` is 3 x₀² x₁ − x₁⁴.
        """
        weights = check.as_float(weights)
        exponents = np.asarray(powers)
        if exponents.ndim != 2 or exponents.shape[0] != len(weights):
            raise ValueError(f"powers must have shape ({len(weights)}, d), got {exponents.shape}")
        if not np.issubdtype(exponents.dtype, np.integer) or (exponents < 0).any() or (exponents.sum(1) > 4).any():
            raise ValueError("powers must be non-negative integers with a sum of at most four in each monomial")
        d = exponents.shape[1]
        degree = max(1, int(exponents.sum(1).max(initial=0)))
        tensors = [jnp.zeros((d,) * k, weights.dtype) for k in range(degree + 1)]
        for weight, exponent in zip(weights, exponents, strict=True):
            index = tuple(int(j) for j in np.repeat(np.arange(d), exponent))
            tensors[len(index)] = tensors[len(index)].at[index].add(factorial(len(index)) * weight)
        return cls(tuple(tensors))

    @property
    def dimension(self) -> int:
        return self.tensors[1].shape[-1]

    @property
    def outputs(self) -> tuple[int, ...]:
        return self.tensors[1].shape[:-1]

    @property
    def degree(self) -> int:
        """The highest power."""
        return len(self.tensors) - 1

    def as_polynomial(self) -> "Polynomial":
        """Returns the polynomial itself."""
        return self

    def symmetric(self) -> tuple[Float[Array, "..."], ...]:
        """The tensors, symmetrised over the axes of x; the axis of outputs stays first."""
        lead = tuple(range(len(self.outputs)))
        return tuple(
            jnp.stack([jnp.transpose(t, (*lead, *order)) for order in permutations(range(len(lead), t.ndim))]).mean(
                axis=0
            )
            for t in self.tensors
        )

    def _evaluate(self, x: Float[Array, "d"]) -> Float[Array, "*outputs"]:
        return horner(self.tensors, x)


def horner(tensors: tuple[Float[Array, "..."], ...], x: Float[Array, "d"]) -> Float[Array, "..."]:
    """Σₖ tensorsₖ[x, …, x] / k!, contracted over the last k axes of the k-th tensor."""
    value = tensors[-1]
    for degree in range(len(tensors) - 1, 0, -1):
        value = tensors[degree - 1] + dot(value, x) / degree
    return value
