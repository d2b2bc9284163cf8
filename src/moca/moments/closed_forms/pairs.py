"""Sums over pairs of bases."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from moca.moments.functions.base import Features


def weigh_pairs(f: Features, g: Features, values: Float[Array, "m n"]) -> Float[Array, "*both"]:
    """Σᵢⱼ wᵢ w′ⱼ valuesᵢⱼ for every pair of outputs of f and g, as two matrix products."""
    return weigh_last(g, f.weigh(values))


def weigh_last(g: Features, values: Float[Array, "*rest n"]) -> Float[Array, "*rest_and_outputs"]:
    """Σⱼ wⱼ values…ⱼ over the last axis."""
    return values if g.weights is None else jnp.tensordot(values, g.weights, axes=(-1, -1), precision="highest")


def not_negative(variance: Float[Array, "*outputs"]) -> Float[Array, "*outputs"]:
    """Clips negative rounding errors to zero; the gradient is that of the unclipped formula."""
    return variance + jax.lax.stop_gradient(jnp.maximum(variance, 0) - variance)
