"""The base class of functions: dimension, shape of outputs, sums and multiples."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from moca.moments import _checks as check


def role(name: str) -> Any:
    """Declares the role of a field in learning.

    Without a role, the function is linear in the field.

    Args:
        name: "basis" for a field in which the function is not linear (centres, directions),
            "positive" for a basis that must stay positive (precisions), "constant" for an additive
            constant.
    """
    return eqx.field(metadata={"role": name})


class Function(eqx.Module):
    """A function of a state in Rᵈ, with one output or m outputs."""

    @property
    @abstractmethod
    def dimension(self) -> int:
        """Number of state dimensions d."""

    @property
    def outputs(self) -> tuple[int, ...]:
        """Shape of f(x): () for one number, (m,) for m numbers."""
        return ()

    @abstractmethod
    def _evaluate(self, x: Float[Array, "d"]) -> Float[Array, "*outputs"]:
        """f(x) for an `x` of the right shape."""

    def __call__(self, x: check.Numbers) -> Float[Array, "*outputs"]:
        """f(x) at one state."""
        x = check.as_float(x)
        check.has_shape(self, "x", x, (self.dimension,), f"one state of dimension {self.dimension} (vmap a batch)")
        return self._evaluate(x)

    def __add__(self, other: Any) -> "Sum":
        if not isinstance(other, Function):
            return NotImplemented
        return Sum((*_terms(self), *_terms(other)), (*_scales(self), *_scales(other)))

    def __mul__(self, scale: Any) -> "Sum":
        if isinstance(scale, Function):
            raise TypeError(
                f"{type(self).__name__} × {type(scale).__name__} is not a Function: product(p, f, g) returns "
                "the expectation of the product of two functions"
            )
        return Sum(_terms(self), tuple(jnp.multiply(check.as_float(scale, like=s), s) for s in _scales(self)))

    def __rmul__(self, scale: Any) -> "Sum":
        return self.__mul__(scale)

    def __neg__(self) -> "Sum":
        return self * -1.0

    def __sub__(self, other: Any) -> "Sum":
        return self + (-other) if isinstance(other, Function) else NotImplemented


class Sum(Function):
    """V(x) = Σₖ scaleₖ termₖ(x), the result of `f + g`, `f - g` and `2.0 * f`.

    Its moments are combinations of the moments of its terms.

    Args:
        terms: Functions of any classes, with the same dimension and shape of outputs.
        scales: One number per term, one by default.
    """

    terms: tuple[Function, ...]
    scales: tuple[Float[Array, ""], ...]

    def __init__(self, terms: Sequence[Any], scales: Sequence[check.Numbers] | None = None) -> None:
        for f in terms:
            if not isinstance(f, Function):
                raise TypeError(f"Sum.terms must be functions of moca.moments, got {type(f).__name__}")
        self.terms = tuple(terms)
        given = (1.0,) * len(self.terms) if scales is None else tuple(scales)
        self.scales = tuple(check.as_float(s, like=_like(f)) for s, f in zip(given, self.terms, strict=True))

    def __check_init__(self) -> None:
        if not self.terms:
            raise ValueError("Sum.terms needs at least one function")
        first = self.terms[0]
        for f in self.terms:
            if (f.dimension, f.outputs) != (first.dimension, first.outputs):
                raise ValueError(
                    "the terms of a Sum must have equal dimensions and outputs, but "
                    f"{type(first).__name__} maps dimension {first.dimension} to outputs {first.outputs}, and "
                    f"{type(f).__name__} maps dimension {f.dimension} to outputs {f.outputs}"
                )
        for number, scale in enumerate(self.scales):
            check.has_shape(self, f"scales[{number}]", scale, (), "one number per term")

    @property
    def dimension(self) -> int:
        return self.terms[0].dimension

    @property
    def outputs(self) -> tuple[int, ...]:
        return self.terms[0].outputs

    def _evaluate(self, x: Float[Array, "d"]) -> Float[Array, "*outputs"]:
        first, *rest = (s * f(x) for s, f in zip(self.scales, self.terms, strict=True))
        return sum(rest, first)


def _terms(f: Function) -> tuple[Function, ...]:
    return f.terms if isinstance(f, Sum) else (f,)


def _scales(f: Function) -> tuple[Float[Array, ""], ...]:
    return f.scales if isinstance(f, Sum) else (jnp.ones((), _like(f).dtype),)


def _like(f: Function) -> Array:
    """Returns an array of f, for its dtype."""
    return next((leaf for leaf in jax.tree.leaves(f) if eqx.is_inexact_array(leaf)), jnp.zeros(()))


class Features(Function):
    """V(x) = Σᵢ wᵢ φᵢ(x) + constant: linear in its weights.

    `weights` is (M,) for one output and (m, M) for m outputs. None makes every basis an output.
    """

    weights: eqx.AbstractVar[Float[Array, "*outputs m"] | None]
    constant: eqx.AbstractVar[Float[Array, "*outputs"]]

    @property
    @abstractmethod
    def count(self) -> int:
        """Number of bases M."""

    @abstractmethod
    def features(self, x: Float[Array, "d"]) -> Float[Array, "m"]:
        """φᵢ(x)."""

    @property
    def outputs(self) -> tuple[int, ...]:
        return (self.count,) if self.weights is None else self.weights.shape[:-1]

    def weigh(self, values: Float[Array, "m ..."]) -> Float[Array, "..."]:
        """Σᵢ wᵢ valuesᵢ."""
        return values if self.weights is None else jnp.tensordot(self.weights, values, axes=1, precision="highest")

    def _evaluate(self, x: Float[Array, "d"]) -> Float[Array, "*outputs"]:
        return self.weigh(self.features(x)) + self.constant


class Centred(Features):
    """Bases around M centres."""

    weights: Float[Array, "*outputs m"] | None
    centers: Float[Array, "m d"] = role("basis")

    @property
    def dimension(self) -> int:
        return self.centers.shape[1]

    @property
    def count(self) -> int:
        return self.centers.shape[0]


def set_weights(weights: check.Numbers | None, constant: check.Numbers, rows: Array) -> tuple[Any, ...]:
    """Returns `weights` and `constant` as arrays; a scalar constant applies to all outputs."""
    weights = None if weights is None else check.as_float(weights)
    constant = check.as_float(constant, like=rows if weights is None else weights)
    if constant.ndim == 0:
        constant = jnp.broadcast_to(constant, rows.shape[:1] if weights is None else weights.shape[:-1])
    return weights, constant


def check_rows(f: Features, field: str, rows: Array) -> None:
    """Raises unless `rows` is (M, d) with d ≥ 1 and there are M weights for each output."""
    if rows.ndim != 2 or 0 in rows.shape:
        raise ValueError(f"{type(f).__name__}.{field} must have shape (M, d), got {rows.shape}")
    if f.weights is not None:
        outputs = f.weights.shape[:-1] if f.weights.ndim == 2 else ()
        check.has_shape(f, "weights", f.weights, (*outputs, len(rows)), f"{field} {rows.shape}")
        check.is_finite(f, weights=f.weights)
    kind = "a scalar function" if f.outputs == () else f"{f.outputs[0]} outputs"
    check.has_shape(f, "constant", f.constant, f.outputs, kind)
    check.is_finite(f, constant=f.constant)
