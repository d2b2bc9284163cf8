"""The width of a belief as part of what V is a function of [choice], so that information has value.

A belief is N(m, P). By default an agent acts and learns on m alone. It cannot tell a place where it
knows the state from the same place where it does not. With `belief.width` it also sees the
logarithms of the deviations, √diag(P), in units of V's lengthscales. The next mean is random, but
the next covariance does not depend on what is measured. So the prediction of V's next input is a
Gaussian with no variance in the dimensions of the width, and the closed forms of `moca.moments`
hold for it.
"""

import dataclasses
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from moca import moments as mm
from moca.config import Config, ValueConfig

RANGE = (-6.0, 3.0)  # from 1/400 of a lengthscale to 20 lengthscales
LENGTHSCALE = 1.0  # of V along the width


def log_width(config: Config, variance: Float[Array, "*n obs"]) -> Float[Array, "*n obs"]:
    """Returns the logarithm of each deviation in units of V's lengthscales, within `RANGE`.

    An agent without V, such as SAC, may have no lengthscales; the unit is then 1.
    """
    units = jnp.log(jnp.array(config.value.lengthscales or 1.0))
    least = float(jnp.finfo(variance.dtype).tiny)
    return jnp.clip(jnp.log(jnp.maximum(variance, least)) / 2 - units, *RANGE)


def input_size(config: Config, observation_size: int) -> int:
    """Returns the number of dimensions of what an agent acts on and V is a function of."""
    return (1 + config.belief.width) * observation_size


def value_settings(config: Config) -> ValueConfig:
    """Returns the settings of V, with ranges and lengthscales for the width if V sees it."""
    value, size = config.value, len(config.value.low)
    if not config.belief.width:
        return value
    more: Any = {"low": RANGE[:1] * size, "high": RANGE[1:] * size, "lengthscales": (LENGTHSCALE,) * size}
    return dataclasses.replace(value, **{name: getattr(value, name) + numbers for name, numbers in more.items()})


def at_width(means: mm.GaussianMixture, width: Float[Array, "n obs"]) -> mm.GaussianMixture:
    """Returns predictions of (mean, width) from predictions of the mean and known widths."""
    components = means.components
    known = jnp.broadcast_to(width[:, None], components.mean.shape)
    mean, size = jnp.concatenate([components.mean, known], axis=-1), width.shape[-1]
    if isinstance(components, mm.DiagonalGaussian):
        variance = jnp.concatenate([components.variance, jnp.zeros_like(known)], axis=-1)
        return mm.GaussianMixture(means.weights, mm.DiagonalGaussian(mean, variance))
    covariance = jnp.pad(components.covariance, ((0, 0), (0, 0), (0, size), (0, size)))
    return mm.GaussianMixture(means.weights, mm.Gaussian(mean, covariance))
