"""The value class a config names, zero everywhere before it learns; two of it that share their bases; its rates."""

from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from moca import config
from moca import moments as mm

T = TypeVar("T")
FIXED = ("centers", "precision")  # of an RBF, as in the paper
BASES = (*FIXED, "frequencies", "phases", "directions", "offsets")


def make_value(settings: config.Value, observation_size: int, key: Key[Array, ""]) -> mm.Function:
    """V of that class, with bases drawn from `key` and all weights zero [choice].

    RBF centres are uniform within the bounds [App. B.4] and one diagonal of lengthscales serves all bases [App. B.5].
    Frequencies and directions are Gaussian in units of the lengthscales.
    """
    if len(settings.low) != observation_size:
        raise config.ConfigError(
            f"value.low has {len(settings.low)} numbers, but the environment shows {observation_size} dimensions"
        )
    low, high, lengthscales = (jnp.array(numbers) for numbers in (settings.low, settings.high, settings.lengthscales))
    shape = (settings.bases, observation_size)
    weights = jnp.zeros(settings.bases)
    row_key, offset_key = jax.random.split(key)
    match settings.kind:
        case "rbf":
            return mm.RBF(weights, jax.random.uniform(row_key, shape, minval=low, maxval=high), lengthscales**-2)
        case "fourier":
            phases = jax.random.uniform(offset_key, shape[:1], maxval=2 * jnp.pi)
            return mm.Fourier(weights, jax.random.normal(row_key, shape) / lengthscales, phases)
        case "erf":
            rows = jax.random.normal(row_key, shape) / lengthscales
            # Each unit turns over at a point of its own within the bounds.
            points = jax.random.uniform(offset_key, shape, minval=low, maxval=high)
            return mm.Erf(weights, rows, -jnp.sum(rows * points, axis=1))
        case "quadratic":
            return mm.Quadratic(jnp.zeros((observation_size,) * 2), jnp.zeros(observation_size))
        case _:
            return mm.Polynomial(tuple(jnp.zeros((observation_size,) * degree) for degree in range(5)))


def twin(value: mm.Function) -> mm.Function:
    """Two functions of the same bases as one: what they are linear in gets a leading axis, the bases are shared."""
    stack = lambda path, leaf: leaf if _is_basis(path) else jnp.stack([leaf, leaf])  # noqa: E731
    return jax.tree_util.tree_map_with_path(stack, value)


def twin_axes(tree: T) -> T:
    """`in_axes` for the two functions, or for two critics that hold them."""
    return jax.tree_util.tree_map_with_path(lambda path, leaf: None if _is_basis(path) else 0, tree)


def first(twins: T) -> T:
    """The first of two."""
    return jax.tree_util.tree_map_with_path(lambda path, leaf: leaf if _is_basis(path) else leaf[0], twins)


def _is_basis(path: tuple) -> bool:
    return any(getattr(entry, "name", "") in BASES for entry in path)


def freeze(value: mm.Function) -> mm.Function:
    """`value` with no gradient to the centres and precision of an RBF, which the paper fixes; saves computing it."""
    if not isinstance(value, mm.RBF):
        return value
    fixed = jax.lax.stop_gradient((value.centers, value.precision))
    return eqx.tree_at(lambda f: (f.centers, f.precision), value, fixed)


def learning_rates(value: mm.Function, settings: config.Value) -> mm.Function:
    """A rate for each array of `value`, in its own structure: of what V is linear in, and of learned bases."""
    rates = dict.fromkeys(BASES, settings.basis_lr) | dict.fromkeys(FIXED, 0.0) | {"constant": settings.constant_lr}

    def rate(path: tuple, leaf: Array) -> Array:
        return jnp.asarray(rates.get(getattr(path[0], "name", ""), settings.lr))

    return jax.tree_util.tree_map_with_path(rate, value)
