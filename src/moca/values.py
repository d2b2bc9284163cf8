"""The function classes for V that a config can name. V is zero everywhere before training."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from moca import config
from moca import moments as mm
from moca.envs.environment import refuse_other_count


def make_value(settings: config.ValueConfig, observation_size: int, key: Key[Array, ""]) -> mm.Function:
    """Returns V of the configured class, with bases drawn from `key` and zero weights [choice].

    RBF centres are uniform within the bounds [App. B.4], and all bases share one diagonal of
    lengthscales [App. B.5]; learned bases have separate ones. Frequencies and directions are
    Gaussian in units of the lengthscales.
    """
    refuse_other_count("value.low", settings.low, observation_size)
    return config.VALUES[settings.kind]()(settings, observation_size, key)


def rbf(settings: config.ValueConfig, size: int, key: Key[Array, ""]) -> mm.RBF:
    """Radial basis functions; learned ones have separate lengthscales."""
    precision = jnp.array(settings.lengthscales) ** -2
    if settings.kind == "rbf-learned":
        precision = jnp.broadcast_to(precision, (settings.bases, size))
    center_key, _ = jax.random.split(key)
    return mm.RBF(jnp.zeros(settings.bases), points_within(settings, center_key), precision)


def fourier(settings: config.ValueConfig, size: int, key: Key[Array, ""]) -> mm.Fourier:
    """Cosines with random frequencies and phases."""
    row_key, phase_key = jax.random.split(key)
    phases = jax.random.uniform(phase_key, (settings.bases,), maxval=2 * jnp.pi)
    return mm.Fourier(jnp.zeros(settings.bases), directions(settings, row_key), phases)


def erf(settings: config.ValueConfig, size: int, key: Key[Array, ""]) -> mm.Erf:
    """Error functions along random directions."""
    row_key, point_key = jax.random.split(key)
    rows = directions(settings, row_key)
    offsets = -jnp.sum(rows * points_within(settings, point_key), axis=1)  # each is centred at a random point
    return mm.Erf(jnp.zeros(settings.bases), rows, offsets)


def quadratic(settings: config.ValueConfig, size: int, key: Key[Array, ""]) -> mm.Quadratic:
    """A quadratic."""
    return mm.Quadratic(jnp.zeros((size, size)), jnp.zeros(size))


def polynomial(settings: config.ValueConfig, size: int, key: Key[Array, ""]) -> mm.Polynomial:
    """A polynomial of degree four."""
    return mm.Polynomial(tuple(jnp.zeros((size,) * degree) for degree in range(5)))


def points_within(settings: config.ValueConfig, key: Key[Array, ""]) -> Float[Array, "bases d"]:
    """Returns one point per basis, uniform within the bounds."""
    low, high = jnp.array(settings.low), jnp.array(settings.high)
    return jax.random.uniform(key, (settings.bases, len(settings.low)), minval=low, maxval=high)


def directions(settings: config.ValueConfig, key: Key[Array, ""]) -> Float[Array, "bases d"]:
    """Returns one direction per basis, Gaussian in units of the lengthscales."""
    return jax.random.normal(key, (settings.bases, len(settings.low))) / jnp.array(settings.lengthscales)
