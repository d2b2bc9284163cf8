"""PILCO's cart-pole: its equations of motion by their energy, its integrator, its reward."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import moca
from moca.tasks import pilco_cartpole as task


def energy(state):
    """Of a cart and a uniform rod, whose centre is half-way along it."""
    _, angle, speed, turning = state
    centre = jnp.array([speed + task.LENGTH / 2 * turning * jnp.cos(angle), task.LENGTH / 2 * turning * jnp.sin(angle)])
    inertia = task.POLE * task.LENGTH**2 / 12
    moving = task.CART * speed**2 + task.POLE * centre @ centre + inertia * turning**2
    return moving / 2 - task.POLE * task.GRAVITY * task.LENGTH / 2 * jnp.cos(angle)


def test_it_is_an_environment():
    assert not moca.check_env(task.PilcoCartpole())


def test_energy_changes_by_the_work_of_force_and_friction():
    with jax.enable_x64(True):
        for state in np.random.default_rng(0).normal(size=(20, 4)) * [1, 3, 2, 5]:
            _, power = jax.jvp(energy, (jnp.asarray(state),), (task.derivative(jnp.asarray(state), jnp.asarray(7.0)),))
            np.testing.assert_allclose(power, (7.0 - task.FRICTION * state[2]) * state[2], atol=1e-9)


def test_angular_momentum_about_the_pivot_changes_by_gravity():
    """In the frame of the cart: ⅓ m l² θ̈ is the torque of weight and of the cart's acceleration."""
    with jax.enable_x64(True):
        state = jnp.array([0.3, 2.1, -0.5, 4.0])
        _, _, faster, turning = task.derivative(state, jnp.asarray(-3.0))
        torque = -task.POLE * task.LENGTH / 2 * (task.GRAVITY * jnp.sin(2.1) + faster * jnp.cos(2.1))
        np.testing.assert_allclose(task.POLE * task.LENGTH**2 / 3 * turning, torque, rtol=1e-12)


def test_a_step_is_what_an_adaptive_solver_finds():
    with jax.enable_x64(True):
        start = np.array([0.1, 2.5, -1.0, 6.0])
        right = lambda _, state: np.asarray(task.derivative(jnp.asarray(state), jnp.asarray(10.0)))  # noqa: E731
        found = solve_ivp(right, (0, task.PERIOD), start, rtol=1e-10, atol=1e-12).y[:, -1]
        np.testing.assert_allclose(task.integrate(jnp.asarray(start), jnp.asarray(10.0)), found, rtol=1e-5)


@pytest.mark.parametrize(
    ("state", "distance"),
    [((0, np.pi, 0, 0), 0), ((0, 0, 0, 0), 2 * task.LENGTH), ((0.2, np.pi, 1, 2), 0.2), ((-0.5, np.pi / 2, 0, 0), 0.5)],
)
def test_the_reward_is_one_less_a_saturating_cost_of_the_tips_distance(state, distance):
    state = jnp.asarray(state, jnp.float32)
    np.testing.assert_allclose(task.tip_distance(state), distance, atol=1e-6)
    _, step = task.PilcoCartpole().step(state, jnp.zeros(1))
    expected = np.exp(-((task.tip_distance(task.integrate(state, jnp.asarray(0.0))) / 0.25) ** 2) / 2)
    np.testing.assert_allclose(step.reward, expected, rtol=1e-5)
