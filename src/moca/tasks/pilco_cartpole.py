"""The cart-pole of PILCO's published simulator, to be swung up from hanging.

A uniform rod hangs from a cart that is pushed with up to 10 N, held for 0.1 s at a time. With the
angle θ from hanging, the equations of motion are

    (M + m) ẍ + ½ m l (θ̈ cos θ − θ̇² sin θ) = u − b ẋ,    2 l θ̈ + 3 ẍ cos θ + 3 g sin θ = 0

Masses, length, friction, time step, first states and the width of the saturating reward are those
of Deisenroth and Rasmussen's code. The reward is one minus their cost of the state before a step: 1
with the tip at its target, above the middle, and 0.14 at a distance of half a metre. It is a
Gaussian of a linear function of the observation, so that planning agents know it in closed form, as
PILCO does.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from moca import moments as mm
from moca.envs.environment import Environment, Step
from moca.reward import KnownReward

CART, POLE, LENGTH, FRICTION, GRAVITY = 0.5, 0.5, 0.5, 0.1, 9.82  # kg, kg, m, N s/m, m/s²
FORCE, PERIOD, START, WIDTH = 10.0, 0.1, 0.1, 0.25  # N, s, the deviation of first states, m
STEPS = 40  # of an episode
SUBSTEPS = 10  # of the integrator, in one step


def derivative(state: Float[Array, "4"], force: Float[Array, ""]) -> Float[Array, "4"]:
    """Returns the derivative of (x, θ, ẋ, θ̇) by time."""
    _, angle, speed, turning = state
    sin, cos = jnp.sin(angle), jnp.cos(angle)
    push = force - FRICTION * speed + POLE * sin * (LENGTH * turning**2 / 2 + 3 * GRAVITY * cos / 4)
    faster = push / (CART + POLE - 3 * POLE * cos**2 / 4)
    return jnp.stack([speed, turning, faster, -3 * (faster * cos + GRAVITY * sin) / (2 * LENGTH)])


def integrate(state: Float[Array, "4"], force: Float[Array, ""]) -> Float[Array, "4"]:
    """Returns the state after one period of a constant force, by Runge and Kutta's method."""
    h = PERIOD / SUBSTEPS

    def substep(state: Float[Array, "4"], _: None) -> tuple[Float[Array, "4"], None]:
        a = derivative(state, force)
        b = derivative(state + h / 2 * a, force)
        c = derivative(state + h / 2 * b, force)
        d = derivative(state + h * c, force)
        return state + h / 6 * (a + 2 * b + 2 * c + d), None

    return jax.lax.scan(substep, state, length=SUBSTEPS)[0]


def tip_distance(state: Float[Array, "4"]) -> Float[Array, ""]:
    """Returns the distance of the rod's tip from its target, in metres."""
    x, angle = state[:2]
    return jnp.hypot(x + LENGTH * jnp.sin(angle), LENGTH * (1 + jnp.cos(angle)))


class PilcoCartpole(Environment):
    """The task; the observation is (x, cos θ, sin θ, ẋ, θ̇), to which PILCO adds noise of 0.01."""

    terminates: bool = eqx.field(static=True, default=False)
    observation_size: int = eqx.field(static=True, default=5)
    action_low: tuple[float, ...] = eqx.field(static=True, default=(-FORCE,))
    action_high: tuple[float, ...] = eqx.field(static=True, default=(FORCE,))

    @property
    def reward_function(self) -> KnownReward:
        tip = jnp.array([[1, 0, LENGTH, 0, 0, 0], [0, LENGTH, 0, 0, 0, 0]])  # (x + l sin θ, l cos θ)
        near = mm.RBF(jnp.ones(1), jnp.zeros((1, 2)), jnp.full(2, WIDTH**-2))
        return KnownReward(near, tip, jnp.array([0.0, LENGTH]))

    def reset(self, key: Key[Array, ""]) -> tuple[Any, Float[Array, "5"]]:
        state = START * jax.random.normal(key, (4,))
        return state, _observed(state)

    def step(self, state: Any, action: Float[Array, "1"]) -> tuple[Any, Step]:
        reward = jnp.exp(-((tip_distance(state) / WIDTH) ** 2) / 2)
        state = integrate(state, action[0])
        return state, Step(_observed(state), reward, jnp.array(False))


def _observed(state: Float[Array, "4"]) -> Float[Array, "5"]:
    x, angle, speed, turning = state
    return jnp.stack([x, jnp.cos(angle), jnp.sin(angle), speed, turning])
