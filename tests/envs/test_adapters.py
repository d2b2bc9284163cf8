"""Environments of gymnax, Brax and Playground as ours, against the real packages and hand-made ones."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

from moca.config import ConfigError
from moca.envs.adapters import Brax, Gymnax
from moca.envs.check import check_env
from moca.envs.environment import ActionRepeat
from moca.envs.playground import Playground, _without_warp
from moca.names import PLAYGROUND


def play(env, actions, key=0):
    """First observation and steps of a sequence of actions."""

    @jax.jit
    def run(actions):
        state, first = env.reset(jax.random.key(key))
        return first, jax.lax.scan(env.step, state, actions)[1]

    return jax.tree.map(np.asarray, run(jnp.asarray(actions, jnp.float32)))


# gymnax


@pytest.fixture
def gymnax():
    return pytest.importorskip("gymnax", reason="gymnax is not installed: pip install gymnax six")


def test_gymnax_is_stepped_as_by_hand_and_past_its_time_limit(gymnax):
    inner, params = gymnax.make("Pendulum-v1")
    env = Gymnax(inner, params)
    assert (env.observation_size, env.action_low, env.action_high) == (3, (-2.0,), (2.0,))
    actions = np.random.default_rng(0).uniform(-2, 2, (210, 1))
    first, steps = play(env, actions)
    assert not steps.terminated.any()  # its limit is 200 steps
    observation, state = inner.reset_env(jax.random.split(jax.random.key(0))[0], params)
    np.testing.assert_allclose(first, observation, rtol=1e-6)
    for number in range(20):
        action = jnp.asarray(actions[number], jnp.float32)
        observation, state, reward, _, _ = inner.step_env(jax.random.key(1), state, action, params)
        np.testing.assert_allclose(steps.observation[number], observation, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(steps.reward[number], reward, rtol=1e-4, atol=1e-5)


def test_an_end_in_gymnax_shows_the_last_observation(gymnax):
    """The car that is pushed the way it rolls gets up the hill, which is the end; the flag is at 0.45."""
    env = Gymnax(*gymnax.make("MountainCarContinuous-v0"))

    def push(carry, _):
        state, observation = carry
        state, step = env.step(state, jnp.sign(observation[1:]))
        return (state, step.observation), step

    _, steps = jax.jit(lambda key: jax.lax.scan(push, env.reset(key), length=150))(jax.random.key(0))
    end = int(np.argmax(steps.terminated))
    assert end > 10
    assert steps.observation[end, 0] >= 0.45
    assert steps.reward[end] > 50


def test_gymnax_environments_are_healthy(gymnax):
    for name in ("Pendulum-v1", "MountainCarContinuous-v0"):
        assert [fault for fault in check_env(Gymnax(*gymnax.make(name)), steps=30) if fault.severity == "fault"] == []


def test_gymnax_with_discrete_actions_is_refused(gymnax):
    with pytest.raises(ConfigError, match="actions of CartPole must be a Box, not Discrete"):
        Gymnax(*gymnax.make("CartPole-v1"))


class OldGymnax:
    """The interface of gymnax before 1.0: a time limit is an end; matrices, and chance at each step."""

    @struct.dataclass
    class Params:
        max_steps_in_episode: int = 5

    default_params = Params()

    def action_space(self, params):
        return SimpleNamespace(low=jnp.array([[-1.0, 0.0]]), high=jnp.array([[1.0, 3.0]]), shape=(1, 2))

    def reset_env(self, key, params):
        return jnp.zeros((2, 2)), {"time": 0, "push": jnp.zeros((1, 2))}

    def step_env(self, key, state, action, params):
        state = {"time": state["time"] + 1, "push": action}
        shown = jnp.stack([jnp.ravel(action), jax.random.uniform(key, (2,))])
        return shown, state, jnp.ones((1,)), state["time"] >= params.max_steps_in_episode, {}


def test_the_interface_of_an_older_gymnax():
    env = Gymnax(OldGymnax())
    assert (env.observation_size, env.action_low, env.action_high) == (4, (-1.0, 0.0), (1.0, 3.0))
    _, steps = play(env, np.tile([[0.5, 2.0]], (8, 1)))
    assert not steps.terminated.any()
    np.testing.assert_array_equal(steps.observation[:, :2], [[0.5, 2.0]] * 8)
    assert len(np.unique(steps.observation[:, 2:])) == 16  # a key of its own for every step
    assert steps.reward.shape == (8,)


# Brax


@struct.dataclass
class State:
    obs: dict
    reward: jax.Array
    done: jax.Array
    info: dict


class Counting:
    """The interface of Brax: counts its steps, ends after six, and is cut off after four. It writes into `info`."""

    action_size = 2

    def __init__(self, obs=lambda count: {"state": count, "privileged_state": jnp.zeros(9)}):
        self._obs = obs

    def reset(self, key):
        count = jax.random.uniform(key, (3,))
        return State(
            self._obs(count), jnp.zeros(()), jnp.zeros(()), {"steps": jnp.zeros(()), "truncation": jnp.zeros(())}
        )

    def step(self, state, action):
        state.info["steps"] += 1
        steps = state.info["steps"]
        state.info["truncation"] = jnp.where(steps == 4, 1.0, 0.0)
        done = jnp.where((steps == 4) | (steps == 6), 1.0, 0.0)
        return state.replace(obs=self._obs(jnp.append(action, steps)), reward=action.sum(), done=done)


def test_a_time_limit_in_brax_is_no_end_and_state_is_what_is_seen():
    env = Brax(Counting(), action_low=(-1.0, 0.0), action_high=(0.5, 4.0))
    assert (env.observation_size, env.action_low, env.action_high) == (3, (-1.0, 0.0), (0.5, 4.0))
    _, steps = play(env, [[0.5, 3.0]] * 6)
    np.testing.assert_array_equal(steps.terminated, [False] * 5 + [True])
    np.testing.assert_array_equal(steps.observation[:, 2], np.arange(1, 7))
    np.testing.assert_array_equal(steps.reward, 3.5)


def test_a_state_that_brax_writes_into_is_not_changed():
    """Nothing follows an end under action repeat: the steps of the last state are those of the end."""
    env = ActionRepeat(Brax(Counting()), 8)
    state, _ = env.reset(jax.random.key(0))
    after, step = jax.jit(env.step)(state, jnp.zeros(2))
    assert (after.info["steps"], step.observation[2], step.terminated) == (6, 6, True)
    assert state.info["steps"] == 0


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Brax(Counting(lambda count: {"pixels": count})), "named state, but are pixels"),
        (lambda: Brax(Counting(lambda count: [count])), "must be an array"),
        (lambda: Brax(Counting(), action_low=(1.0, 0.0)), "finite bounds, low below high, not"),
        (lambda: Brax(Counting(), action_high=(np.inf, 1.0)), "must have finite bounds"),
    ],
)
def test_what_brax_cannot_be_is_refused(make, sentence):
    with pytest.raises(ConfigError, match=sentence):
        make()


@pytest.mark.filterwarnings("ignore")
def test_brax_itself():
    """Its smallest environment, bare and with its time limit; with its automatic reset it is refused."""
    from brax import envs
    from brax.envs.wrappers.training import EpisodeWrapper, VmapWrapper

    bare = envs.get_environment("fast")
    limited = EpisodeWrapper(bare, episode_length=5, action_repeat=1)
    for inner in (bare, limited):
        _, steps = play(Brax(inner), np.zeros((8, bare.action_size)))
        assert not steps.terminated.any()
    assert Brax(limited).observation_size == bare.observation_size
    with pytest.raises(ConfigError, match=r"AutoResetWrapper restarts .* brax\.envs\.get_environment"):
        Brax(envs.create("fast"))
    with pytest.raises(ConfigError, match="VmapWrapper restarts or vectorises the environment"):
        Brax(VmapWrapper(bare))


# Playground


def test_of_a_playground_dictionary_the_state_is_seen(monkeypatch):
    """As its robots have it, whose models are downloaded; so a stand-in for one."""
    with _without_warp():  # as the package imports it
        from mujoco_playground import registry

    monkeypatch.setattr(registry, "load", lambda *_, **__: Counting())
    env = Playground("Go1JoystickFlatTerrain")
    assert (env.observation_size, env.action_low, env.action_high) == (3, (-1.0, -1.0), (1.0, 1.0))
    assert env.terminates
    _, steps = play(env, [[0.5, 0.25]] * 2)
    np.testing.assert_array_equal(steps.observation, [[0.5, 0.25, 1.0], [0.5, 0.25, 2.0]])
    monkeypatch.setattr(registry, "load", lambda *_, **__: Counting(lambda count: {"pixels/view_0": count}))
    with pytest.raises(ConfigError, match=r"observations of PandaPickCubeCartesian must be .* but are pixels/view_0"):
        Playground("PandaPickCubeCartesian")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a failed download leaves pipes open
@pytest.mark.parametrize("name", PLAYGROUND)
def test_every_playground_environment(name):
    try:
        env = Playground(name)
    except ConfigError as error:
        assert "downloaded when first used" in str(error)  # noqa: PT017
        pytest.skip("its model is to be downloaded, and there is no network")
    state, first = jax.eval_shape(env.reset, jax.random.key(0))
    _, step = jax.eval_shape(env.step, state, jax.ShapeDtypeStruct((env.action_size,), jnp.float32))
    assert first.shape == step.observation.shape == (env.observation_size,)
    assert step.terminated.dtype == bool
    assert all(low < high for low, high in zip(env.action_low, env.action_high, strict=True))
