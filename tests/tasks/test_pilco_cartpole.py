"""PILCO's cart-pole: its equations of motion by their energy, its integrator, its reward."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import moca
from moca.agents import make_agent
from moca.envs.environment import ActionRepeat
from moca.replay import Transition
from moca.reward import fit_reward
from moca.tasks import pilco_cartpole as task
from tests import probes


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
    np.testing.assert_allclose(step.reward, np.exp(-((distance / 0.25) ** 2) / 2), rtol=1e-5, atol=1e-7)


def test_the_reward_is_offered_in_closed_form():
    """At a point it is that of the next step; under a Gaussian, its average by quadrature."""
    with jax.enable_x64(True):
        env, rng = task.PilcoCartpole(), np.random.default_rng(0)
        known = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), env.reward_function)
        states = jnp.asarray(rng.normal(size=(5, 4)) * [0.3, 3, 2, 5])
        seen = jax.vmap(task._observed)(states)
        rewards = jax.vmap(lambda state: env.step(state, jnp.array([3.0]))[1].reward)(states)
        np.testing.assert_allclose(known.at(None, seen, jnp.full((5, 1), 0.3)), rewards, rtol=1e-5)
        root = rng.normal(size=(6, 6)) * 0.2
        mean, covariance = rng.normal(size=6) * 0.1, root @ root.T
        nodes, weights = np.polynomial.hermite_e.hermegauss(80)
        tip = np.asarray(known.matrix)
        spread = np.linalg.cholesky(tip @ covariance @ tip.T)
        grid = np.stack(np.meshgrid(nodes, nodes), axis=-1) @ spread.T + tip @ mean + np.asarray(known.shift)
        truth = np.sum(np.outer(weights, weights) * np.exp(-np.sum(grid**2, axis=-1) / (2 * task.WIDTH**2)))
        found = known.expectation(None, moca.moments.Gaussian(jnp.asarray(mean), jnp.asarray(covariance)))
        np.testing.assert_allclose(found, truth / weights.sum() ** 2, rtol=1e-10)


def test_agents_that_plan_know_the_reward():
    env = task.PilcoCartpole()
    agent = make_agent(
        probes.tiny(
            agent="moca", plan__imagined=1, value__low=(-1,) * 5, value__high=(1,) * 5, value__lengthscales=(1,) * 5
        ),
        env,
    )
    state = agent.init(jax.random.key(0))
    assert eqx.tree_equal(state.reward.model, env.reward_function)
    batch = Transition(jnp.ones((3, 5)), jnp.ones((3, 1)), jnp.ones(3), jnp.ones((3, 5)), jnp.zeros(3))
    after, loss = fit_reward(state.reward, agent.config, None, batch, 0)
    assert after is state.reward
    np.testing.assert_allclose(loss, (1 - env.reward_function.at(None, jnp.ones((1, 5)), jnp.ones((1, 1)))[0]) ** 2)
    assert ActionRepeat(env, 1).reward_function is not None
    assert ActionRepeat(env, 2).reward_function is None  # the rewards of two steps are added
