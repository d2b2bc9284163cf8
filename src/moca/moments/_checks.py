"""Checks of arguments: shapes always, values whenever they are not traced.

Inside `jax.jit`, `jax.vmap` or `jax.grad` an array has no value yet, so only its shape is checked.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

Numbers = ArrayLike | Sequence[Any]  # constructors also accept lists of numbers as arrays


def as_float(x: Any, like: Array | None = None) -> Float[Array, "..."]:
    """Returns `x` as a floating-point JAX array. A Python number takes the dtype of `like`.

    The result is never weakly typed: a weak leaf becomes strong after the first gradient step,
    which triggers a second compilation.
    """
    if like is not None and isinstance(x, int | float):
        return jnp.asarray(x, like.dtype)
    array = jnp.asarray(x)
    if jnp.issubdtype(array.dtype, jnp.complexfloating):
        raise TypeError(f"expected real numbers, got an array of {array.dtype}")
    dtype = array.dtype if jnp.issubdtype(array.dtype, jnp.floating) else jnp.result_type(float)
    return jnp.asarray(array, dtype)


def has_shape(owner: object, field: str, array: Array, expected: tuple[int, ...], because: str) -> None:
    """Raises unless `array` has the `expected` shape."""
    if array.shape != expected:
        raise ValueError(f"{_name(owner, field)} must have shape {expected} to fit {because}, got {array.shape}")


def at_least_rank(owner: object, field: str, array: Array, rank: int) -> None:
    """Raises unless `array` has at least `rank` axes."""
    if array.ndim < rank:
        raise ValueError(f"{_name(owner, field)} must have at least {rank} axes, got shape {array.shape}")


def at_most_rank(owner: object, field: str, array: Array, rank: int) -> None:
    """Raises if `array` has more than `rank` axes."""
    if array.ndim > rank:
        raise ValueError(f"{_name(owner, field)} must have at most {rank} axes, got shape {array.shape}")


def is_finite(owner: object, **fields: Array) -> None:
    """Raises if a field contains NaN or infinity."""
    _refuse(owner, fields, lambda value: ~np.isfinite(value), "all values must be finite")


def is_nonnegative(owner: object, **fields: Array) -> None:
    """Raises if a field contains a negative number."""
    _refuse(owner, fields, lambda value: value < 0, "no value may be negative")


def is_positive(owner: object, **fields: Array) -> None:
    """Raises unless all values of each field are above zero."""
    _refuse(owner, fields, lambda value: ~(value > 0), "all values must be above zero")


def _refuse(owner: object, fields: Mapping[str, Array], wrong: Callable[[np.ndarray], np.ndarray], rule: str) -> None:
    """Raises if a field contains a value that is marked as wrong."""
    for field, array in fields.items():
        value = _value(array)
        if value is not None and (found := wrong(value)).any():
            raise ValueError(f"{_name(owner, field)} contains {_first(value, found)}: {rule}")


def sums_to_one(owner: object, **fields: Array) -> None:
    """Raises unless the last axis of each field sums to one."""
    for field, array in fields.items():
        value = _value(array)
        if value is not None and (np.abs(value.sum(-1) - 1) > 1e-4).any():
            raise ValueError(f"{_name(owner, field)} must sum to one, got {value.sum(-1).ravel()[0]}")


def as_weights(x: Any) -> Float[Array, "..."]:
    """Returns `x` as weights along its last axis.

    Traced weights cannot be checked. They are divided by their sum instead; if one is negative or
    all are zero, every weight becomes NaN, so that no result is silently wrong.
    """
    weights = as_float(x)
    if not isinstance(weights, jax.core.Tracer) or weights.ndim == 0:
        return weights
    valid = (weights >= 0).all(axis=-1, keepdims=True)
    return jnp.where(valid, weights / weights.sum(axis=-1, keepdims=True), jnp.nan)


def is_positive_matrix(owner: object, field: str, matrix: Array, *, definite: bool = False) -> None:
    """Raises unless the last two axes form a symmetric positive semi-definite (or definite) matrix.

    Rounding is tolerated: asymmetry and negative eigenvalues may reach 64 d units in the last place
    of the largest entry, the error that a covariance summed in that precision can have.
    """
    value = _value(matrix)
    if value is None:
        return
    largest = np.abs(value).max(axis=(-2, -1))
    slack = 64 * value.shape[-1] * float(jnp.finfo(matrix.dtype).eps) * largest
    gap = np.abs(value - np.swapaxes(value, -1, -2)).max(axis=(-2, -1))
    if (gap > slack).any():
        raise ValueError(f"{_name(owner, field)} must be symmetric, but differs from its transpose by {gap.max():.3g}")
    lowest = np.linalg.eigvalsh(value).min(axis=-1)
    if definite and (lowest <= 0).any():
        raise ValueError(f"{_name(owner, field)} must be positive definite, but has the eigenvalue {lowest.min():.3g}")
    if (lowest < -slack).any():
        raise ValueError(
            f"{_name(owner, field)} must be positive semi-definite, but has the eigenvalue {lowest.min():.3g}"
        )


def _value(array: Array) -> np.ndarray | None:
    return None if isinstance(array, jax.core.Tracer) else np.asarray(array, dtype=np.float64)


def _name(owner: object, field: str) -> str:
    return f"{type(owner).__name__}.{field}"


def _first(value: np.ndarray, where: np.ndarray) -> str:
    index = tuple(int(i) for i in np.argwhere(where)[0])
    return f"{value[index]:g}" + (f" at index {index if len(index) > 1 else index[0]}" if index else "")
