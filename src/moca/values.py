"""The value class a config names, zero everywhere before it learns; two of it that share their bases; its rates.

V is a function of the state, or of a learned latent state: see `Encoded`.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from moca import config
from moca import moments as mm
from moca.nets import MLP

T = TypeVar("T")
FIXED = ("centers", "precision")  # of an RBF, as in the paper
BASES = [*FIXED, "frequencies", "phases", "directions", "offsets", "encoder"]  # a list, to which moca.extending adds


class Encoded(mm.Function):
    """V(s) = f(z) with z = tanh(encoder(s)), the paper's future work.

    It has no closed form under a Gaussian over s; f has one under a Gaussian over z, which the model then predicts.
    """

    encoder: MLP
    inner: mm.Function

    @property
    def dimension(self) -> int:
        return self.encoder.weights[0].shape[-1]

    def encode(self, x: Float[Array, "d"]) -> Float[Array, "latent"]:
        """The latent state."""
        return jnp.tanh(self.encoder(x))

    def _evaluate(self, x: Float[Array, "d"]) -> Float[Array, ""]:
        return self.inner(self.encode(x))


def make_value(settings: config.Value, observation_size: int, key: Key[Array, ""], width: int = 64) -> mm.Function:
    """V of that class, with bases drawn from `key` and all weights zero [choice].

    RBF centres are uniform within the bounds [App. B.4] and one diagonal of lengthscales serves all bases [App. B.5];
    where they are learned, each basis gets its own.
    Frequencies and directions are Gaussian in units of the lengthscales. `width` is that of an encoder's two layers.
    """
    if len(settings.low) != observation_size:
        raise config.ConfigError(
            f"value.low has {len(settings.low)} numbers, but the environment shows {observation_size} dimensions"
        )
    if settings.encoder:
        encoder_key, key = jax.random.split(key)
        size = settings.encoder
        # Within the range of tanh; in eight dimensions a lengthscale of two [choice].
        latent: Any = {"low": (-1.0,) * size, "high": (1.0,) * size, "lengthscales": ((size / 2) ** 0.5,) * size}
        inner = make_value(dataclasses.replace(settings, encoder=0, **latent), size, key)
        return Encoded(MLP(encoder_key, (observation_size, width, width, size)), inner)
    return KINDS[settings.kind](settings, observation_size, key)


def _rbf(settings: config.Value, size: int, key: Key[Array, ""]) -> mm.RBF:
    precision = jnp.array(settings.lengthscales) ** -2
    if settings.kind == "rbf-learned":
        precision = jnp.broadcast_to(precision, (settings.bases, size))
    center_key, _ = jax.random.split(key)
    return mm.RBF(jnp.zeros(settings.bases), points_within(settings, center_key), precision)


def _fourier(settings: config.Value, size: int, key: Key[Array, ""]) -> mm.Fourier:
    row_key, phase_key = jax.random.split(key)
    phases = jax.random.uniform(phase_key, (settings.bases,), maxval=2 * jnp.pi)
    return mm.Fourier(jnp.zeros(settings.bases), directions(settings, row_key), phases)


def _erf(settings: config.Value, size: int, key: Key[Array, ""]) -> mm.Erf:
    row_key, point_key = jax.random.split(key)
    rows = directions(settings, row_key)
    offsets = -jnp.sum(rows * points_within(settings, point_key), axis=1)  # each turns over at a point of its own
    return mm.Erf(jnp.zeros(settings.bases), rows, offsets)


def _quadratic(settings: config.Value, size: int, key: Key[Array, ""]) -> mm.Quadratic:
    return mm.Quadratic(jnp.zeros((size, size)), jnp.zeros(size))


def _polynomial(settings: config.Value, size: int, key: Key[Array, ""]) -> mm.Polynomial:
    return mm.Polynomial(tuple(jnp.zeros((size,) * degree) for degree in range(5)))


def points_within(settings: config.Value, key: Key[Array, ""]) -> Float[Array, "bases d"]:
    """A point for each basis, uniform within the bounds."""
    low, high = jnp.array(settings.low), jnp.array(settings.high)
    return jax.random.uniform(key, (settings.bases, len(settings.low)), minval=low, maxval=high)


def directions(settings: config.Value, key: Key[Array, ""]) -> Float[Array, "bases d"]:
    """A direction for each basis, Gaussian in units of the lengthscales."""
    return jax.random.normal(key, (settings.bases, len(settings.low))) / jnp.array(settings.lengthscales)


KINDS: dict[str, Callable[[config.Value, int, Key[Array, ""]], mm.Function]] = {
    "rbf": _rbf,
    "rbf-learned": _rbf,
    "fourier": _fourier,
    "erf": _erf,
    "quadratic": _quadratic,
    "polynomial": _polynomial,
}


def twin(value: mm.Function) -> mm.Function:
    """Two functions of the same bases as one: what they are linear in gets a leading axis, the bases are shared."""
    return _map_named(lambda name, leaf: leaf if name in BASES else jnp.stack([leaf, leaf]), value)


def twin_axes(tree: T) -> T:
    """`in_axes` for the two functions, or for two critics that hold them."""
    return _map_named(lambda name, leaf: None if name in BASES else 0, tree)


def first(twins: T) -> T:
    """The first of two."""
    return _map_named(lambda name, leaf: leaf if name in BASES else leaf[0], twins)


def freeze(value: mm.Function, settings: config.Value) -> mm.Function:
    """`value` with no gradient to the centres and precision of the paper's RBF, which are fixed; saves computing it."""
    if settings.kind != "rbf":
        return value
    where = lambda f: (closed(f).centers, closed(f).precision)  # noqa: E731
    return eqx.tree_at(where, value, jax.lax.stop_gradient(where(value)))


def learning_rates(value: mm.Function, settings: config.Value) -> mm.Function:
    """A rate for each array of `value`, in its own structure: of what V is linear in, and of learned bases."""
    rates = dict.fromkeys(BASES, settings.basis_lr) | {"constant": settings.constant_lr}
    if settings.kind == "rbf":
        rates |= dict.fromkeys(FIXED, 0.0)
    return _map_named(lambda name, leaf: jnp.asarray(rates.get(name, settings.lr)), value)


def closed(value: mm.Function) -> Any:
    """The part of V that has the closed form: V itself, or what stands behind an encoder."""
    return value.inner if isinstance(value, Encoded) else value


def in_logarithm(gradient: T, parameters: T) -> T:
    """The gradient, that of precisions taken in their logarithm: they are positive, and learn as factors."""
    return _map_named(lambda name, g, w: g * w if name == "precision" else g, gradient, parameters)


def descend(parameters: T, direction: T, rates: T) -> T:
    """The parameters after a step; precisions are multiplied, see `in_logarithm`."""
    return _map_named(
        lambda name, w, step, rate: w * jnp.exp(-rate * step) if name == "precision" else w - rate * step,
        parameters, direction, rates,
    )  # fmt: skip


def _map_named(function: Callable[..., Any], tree: T, *rest: T) -> T:
    """`jax.tree.map`, with the name of the field that holds a leaf, or of the encoder's, as first argument."""

    def named(path: tuple, *leaves: Any) -> Any:
        names = [entry.name for entry in path if hasattr(entry, "name")]
        return function("encoder" if "encoder" in names else names[-1] if names else "", *leaves)

    return jax.tree_util.tree_map_with_path(named, tree, *rest)
