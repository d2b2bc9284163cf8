"""Targets that also take the outcome which was observed, as far as noise does not explain it.

The model's E[V(s′)] averages over the noise of an observation, but has the model's errors. V of the
belief's mean after the observation has no such errors, but varies with the noise. Of the target
T + λ (T′ − T), with T by the model and T′ by the outcome, the mean square error is

    (1 − λ)² E[bias²] + λ² E[noise],  and least at  λ = 1 − E[noise] / E[(T′ − T)²],

because the difference has both parts, bias and noise, and the filter knows the noise [choice]. So
without noise the target is that of the outcome, and with a perfect model that of the paper.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from moca import moments as mm


def outcome_share(difference: Float[Array, "n"], noise: Float[Array, "n"]) -> Float[Array, ""]:
    """Returns λ, from T′ − T and the variance of T′ by noise, for each transition of a batch."""
    squares = jnp.maximum(jnp.mean(difference**2), jnp.finfo(difference.dtype).tiny)
    return jnp.clip(1 - jnp.mean(noise) / squares, 0, 1)


def variance_by_noise(
    value: mm.Function,
    means: Float[Array, "n obs"],
    spread: Float[Array, "n obs"],
    noise: Float[Array, "n obs"],
) -> Float[Array, "n"]:
    """Returns the variance of V(m′) by noise of the observation, to first order.

    `means` are those of the belief after the observation, m′, and `spread` is the variance of m′
    before it, which the filter anticipates. Each dimension is taken by itself: with the variance P
    of the predicted state and R of the noise, `spread` is P² / (P + R), and the noise causes
    R / (P + R) of it. This is exact for a linear V and independent dimensions.
    """
    prior = (spread + jnp.sqrt(spread**2 + 4 * spread * noise)) / 2
    by_noise = spread * noise / jnp.maximum(prior + noise, jnp.finfo(spread.dtype).tiny)
    slopes = jax.vmap(jax.grad(value))(means)
    return jnp.sum(slopes**2 * by_noise, axis=-1)
