"""Gaussian noise on observations [App. A], which the physics and the reward never see, and on executed actions.

One draw per time step serves as s′ and as the next s [choice].
"""

import math

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from moca import config
from moca.envs.environment import Spaces


class Noise(eqx.Module):
    """σ(s) = σ_min + (σ_max − σ_min) clip(‖s ⊘ s_max‖ / m_max, 0, 1), m_max² the number of scaled dimensions.

    Homoscedastic noise is the case σ_min = σ_max, so runs of both kinds can share a program. Infinite scales leave a
    dimension out of the norm.
    """

    sigma_min: Float[Array, ""]
    sigma_max: Float[Array, ""]
    action: Float[Array, ""]  # deviation of the disturbance of an action, over half its range
    inverse_scales: tuple[float, ...] = eqx.field(static=True)

    def deviation(self, observation: Float[Array, "*n obs"]) -> Float[Array, "*n"]:
        """σ(s), one number for all dimensions [App. A.2]."""
        if not self.inverse_scales:
            return jnp.broadcast_to(self.sigma_max, observation.shape[:-1])
        counted = sum(scale > 0 for scale in self.inverse_scales)
        scaled = observation * jnp.array(self.inverse_scales, observation.dtype)
        norm = jnp.linalg.norm(scaled, axis=-1) / math.sqrt(counted)
        return self.sigma_min + (self.sigma_max - self.sigma_min) * jnp.clip(norm, 0, 1)

    def __call__(self, observation: Float[Array, "obs"], normal: Float[Array, "obs"]) -> Float[Array, "obs"]:
        """s̃ = s + σ(s) ε for a standard normal ε [App. A.1]."""
        return observation + self.deviation(observation) * normal

    def disturb(self, spaces: Spaces, action: Float[Array, "act"], normal: Float[Array, "act"]) -> Float[Array, "act"]:
        """The action that is executed in place of the chosen one: disturbed, and kept within the bounds."""
        low, high = jnp.array(spaces.action_low), jnp.array(spaces.action_high)
        return jnp.clip(action + self.action * (high - low) / 2 * normal, low, high)


def make_noise(settings: config.Noise, observation_size: int) -> Noise:
    """The noise those settings describe, for observations of that size."""
    sigma, action = (jnp.asarray(level, jnp.float32) for level in (settings.sigma, settings.action))
    if settings.kind == "homoscedastic":
        return Noise(sigma, sigma, action, ())
    if len(settings.scales) != observation_size:
        raise config.ConfigError(
            f"noise.scales has {len(settings.scales)} numbers, but the environment shows {observation_size} dimensions"
        )
    inverse = tuple(1 / scale for scale in settings.scales)
    return Noise(jnp.asarray(settings.sigma_min, jnp.float32), sigma, action, inverse)
