"""Algorithm 1's exploration [Alg. 1 l. 3]: uniform now and then, else Gaussian around the greedy action."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from moca import config


def explore(
    settings: config.Exploration, greedy: Float[Array, "act"], key: Key[Array, ""], fraction: Float[Array, ""]
) -> Float[Array, "act"]:
    """An action in [−1, 1]; the deviation goes from `sigma` to `sigma_end` over the first `anneal` of the training."""
    choice_key, uniform_key, noise_key = jax.random.split(key, 3)
    sigma = settings.sigma + (settings.sigma_end - settings.sigma) * jnp.clip(fraction / settings.anneal, 0, 1)
    perturbed = jnp.clip(greedy + sigma * jax.random.normal(noise_key, greedy.shape), -1, 1)
    uniform = jax.random.uniform(uniform_key, greedy.shape, minval=-1.0)
    return jnp.where(jax.random.bernoulli(choice_key, settings.probability), uniform, perturbed)
