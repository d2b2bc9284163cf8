"""The light-dark task: the harbour is in the dark, and the light is in the opposite direction.

The position is one number, x′ = x + 1.5 a + 0.02 ε. There is a reward in the harbour, and a loss on
the rocks around it. The noise of the sensor is small at the light and large in the dark, where
episodes start and where the harbour is. The best policy sails away from the harbour until it knows
its position, and then returns through the dark. Out and back it passes the same positions: only the
width of its belief tells it which way to go.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from moca.envs.environment import Environment, Step

LIGHT, DUSK, GOAL = -6.0, 5.0, 3.0  # bright up to LIGHT, then darker over a length of DUSK
START = 2.0  # episodes start uniformly within this distance of 0
SPEED, PROCESS = 1.5, 0.02
BRIGHT, DARK = 0.1, 1.3  # deviations of the noise
HARBOUR, ROCKS, DAMAGE = 0.25, 0.6, 0.7  # the widths of two bells around the goal, the weight of the second
STEPS = 30  # of an episode


def reward(x: Any, exp: Callable[[Any], Any] = jnp.exp) -> Any:
    """Returns the reward at x: 1 in the middle of the harbour, below 0 on the rocks around it."""
    bell = lambda width: exp(-(((x - GOAL) / width) ** 2) / 2)  # noqa: E731
    return (1 + DAMAGE) * bell(HARBOUR) - DAMAGE * bell(ROCKS)


def deviation(sigma: Any, sigma_min: Any, scales: tuple[float, ...], observation: Any) -> Any:
    """Returns σ_min up to the light and σ in the dark; in between, the logarithm is linear."""
    return sigma_min * (sigma / sigma_min) ** ((observation - LIGHT) / DUSK).clip(0, 1)


class LightDark(Environment):
    """The task; the observation is x, before noise."""

    terminates: bool = eqx.field(static=True, default=False)
    observation_size: int = eqx.field(static=True, default=1)
    action_low: tuple[float, ...] = eqx.field(static=True, default=(-1.0,))
    action_high: tuple[float, ...] = eqx.field(static=True, default=(1.0,))

    def reset(self, key: Key[Array, ""]) -> tuple[Any, Float[Array, "1"]]:
        start_key, noise_key = jax.random.split(key)
        x = jax.random.uniform(start_key, (1,), minval=-START, maxval=START)
        return (x, noise_key), x

    def step(self, state: Any, action: Float[Array, "1"]) -> tuple[Any, Step]:
        x, key = state
        key, noise_key = jax.random.split(key)
        x = x + SPEED * action + PROCESS * jax.random.normal(noise_key, (1,))
        return (x, key), Step(x, reward(x[0]), jnp.array(False))
