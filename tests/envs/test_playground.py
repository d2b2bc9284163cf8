"""The real Playground: names, shapes, determinism, action repeat."""

import importlib
import sys
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moca.envs import playground
from moca.envs.environment import ActionRepeat
from moca.envs.playground import Playground
from moca.names import PLAYGROUND
from tests import probes


@pytest.fixture(scope="module")
def cartpole():
    return Playground("CartpoleBalance")


def play(env, actions, key=0):
    """Observations and rewards of a sequence of actions."""

    def step(state, action):
        state, result = env.step(state, action)
        return state, result

    @jax.jit
    def run(actions):
        state, first = env.reset(jax.random.key(key))
        return first, jax.lax.scan(step, state, actions)[1]

    return run(actions)


def test_the_names_are_playgrounds_own(cartpole):
    from mujoco_playground import registry

    assert tuple(registry.ALL_ENVS) == PLAYGROUND


def test_what_the_two_tasks_show(cartpole):
    pendulum = Playground("PendulumSwingup")
    assert (cartpole.observation_size, cartpole.action_low, cartpole.action_high) == (5, (-1.0,), (1.0,))
    assert (pendulum.observation_size, pendulum.action_low, pendulum.action_high) == (3, (-1.0,), (1.0,))
    assert not cartpole.terminates
    assert not pendulum.terminates


def test_it_is_traced_once_however_often_it_is_made(monkeypatch):
    traced, unrolled = [], playground.unrolled
    monkeypatch.setattr(playground, "unrolled", lambda step: (traced.append(1), unrolled(step))[1])
    first, second = Playground("PendulumSwingup"), Playground("PendulumSwingup")
    state, _ = jax.eval_shape(first.reset, jax.random.key(0))
    for env in (first, second):
        jax.eval_shape(lambda s, a, own=env: own.step(s, a), state, jax.ShapeDtypeStruct((1,), jnp.float32))
    assert len(traced) <= 1  # none if another test was first


def test_threads_that_load_at_once_load_once_and_leave_standard_output_alone():
    before = sys.stdout
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(Playground, ["AcrobotSwingup"] * 4))
    assert len({id(env.env) for env in made}) == 1
    assert sys.stdout is before


def test_the_same_key_and_actions_give_the_same_episode(cartpole):
    actions = jax.random.uniform(jax.random.key(1), (50, 1), minval=-1.0)
    once, again, other = play(cartpole, actions), play(cartpole, actions), play(cartpole, actions, key=1)
    np.testing.assert_array_equal(once[1].observation, again[1].observation)
    assert np.abs(once[0] - other[0]).max() > 1e-3  # another key, another first state


def test_rewards_are_within_the_suites_range_and_observations_move(cartpole):
    _, step = play(cartpole, jnp.ones((100, 1)))
    assert (step.reward >= 0).all()
    assert (step.reward <= 1).all()
    assert not step.terminated.any()
    assert np.ptp(step.observation, axis=0).min() > 0


def test_action_repeat_adds_up(cartpole):
    actions = jax.random.uniform(jax.random.key(1), (10, 1), minval=-1.0)
    _, single = play(cartpole, jnp.repeat(actions, 4, axis=0))
    _, repeated = play(ActionRepeat(cartpole, 4), actions)
    np.testing.assert_allclose(repeated.reward, single.reward.reshape(10, 4).sum(1), rtol=1e-5)
    np.testing.assert_allclose(repeated.observation, single.observation[3::4], rtol=1e-4, atol=1e-5)


def test_action_repeat_stops_at_the_end():
    env = ActionRepeat(probes.Discounted(), 5)
    state, _ = env.reset(jax.random.key(0))
    _, step = env.step(state, jnp.zeros(1))
    assert step.terminated
    assert step.reward == 1


def test_warp_is_not_imported(cartpole, monkeypatch):
    """It is not used, and takes longer to import than all the rest; others may import it afterwards."""
    from mujoco.mjx import warp as part

    assert not part.WARP_INSTALLED
    monkeypatch.delitem(sys.modules, "warp", raising=False)
    with playground._without_warp(), pytest.raises(ImportError):
        importlib.import_module("warp")
    assert "warp" not in sys.modules
