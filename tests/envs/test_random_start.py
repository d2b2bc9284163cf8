"""Episodes that begin with a random action, where the reset would always give the same state."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moca import presets
from moca.config import Config, ConfigError, override
from moca.drivers import make_env
from moca.envs.defaults import RANDOM_START, defaults, random_start
from moca.envs.environment import ActionRepeat, Environment, RandomStart, Step
from moca.envs.playground import Playground
from tests import probes


class Counter(Environment):
    """Adds up its actions, and counts them; ends when it has counted to four."""

    observation_size, terminates, action_low, action_high = 2, True, (2.0,), (4.0,)

    def reset(self, key):
        return jnp.zeros(2), jnp.zeros(2)

    def step(self, state, action):
        state = state + jnp.stack([action[0], jnp.ones(())])
        return state, Step(state, jnp.ones(()), state[1] >= 4)


def config(**settings):
    return override(Config(), {"agent": "sac", **settings})


KEYS = jax.random.split(jax.random.key(3), 300)


def test_one_action_is_held_for_a_random_number_of_steps():
    total, steps = np.asarray(jax.vmap(RandomStart(Counter(), 3).reset)(KEYS)[1]).T
    counts = np.bincount(steps.astype(int))
    assert len(counts) == 4
    assert counts.min() > 50  # 75 are expected
    action = total[steps > 0] / steps[steps > 0]
    assert len(np.unique(action)) > 200
    assert action.min() < 2.1
    assert action.max() > 3.9
    assert ((action > 2) & (action < 4)).all()
    assert (total[steps == 0] == 0).all()


def test_no_episode_begins_with_its_end():
    state, observation = jax.vmap(RandomStart(Counter(), 9).reset)(KEYS)
    assert set(np.asarray(observation)[:, 1]) == {0, 1, 2, 3}
    np.testing.assert_array_equal(state, observation)
    assert not jax.vmap(lambda s: RandomStart(Counter(), 9).step(s, jnp.array([2.0]))[1].terminated)(state).all()


def test_equal_keys_give_equal_episodes():
    env = RandomStart(Counter(), 3)
    np.testing.assert_array_equal(jax.vmap(env.reset)(KEYS)[1], jax.vmap(env.reset)(KEYS)[1])


def test_the_setting_is_in_steps_of_the_environment():
    env = make_env(config(**{"env.random_start": 3, "env.action_repeat": 2}), Counter())
    assert isinstance(env, ActionRepeat)
    assert set(np.asarray(jax.vmap(env.reset)(KEYS)[1])[:, 1]) == {0, 1, 2, 3}
    assert isinstance(make_env(config(**{"env.action_repeat": 2}), Counter()).inner, Counter)


def test_an_environment_on_the_host_varies_its_own_starts():
    pytest.importorskip("gymnasium")
    from moca.envs.gymnasium import Gymnasium

    with pytest.raises(
        ConfigError,
        match=r"env\.random_start = 3 needs an environment of Playground's, or a compiled one: .* Pendulum-v1's reset",
    ):
        make_env(config(**{"env.random_start": 3}), Gymnasium("Pendulum-v1"))


class Still(Playground):
    """A stand-in for an environment of Playground: the same first state for every key, or not."""

    def __init__(self, inner):
        self.name, self.env, self.terminates = "Still", inner, inner.terminates
        self.observation_size, self.action_low, self.action_high = inner.observation_size, (-1.0,), (1.0,)

    def reset(self, key):
        return self.env.reset(key)

    def step(self, state, action):
        return self.env.step(state, action)


@pytest.mark.parametrize(
    ("env", "wanted"),
    [(Still(Counter()), RANDOM_START), (Still(probes.Drift()), None), (Counter(), None)],
    ids=["Playground's", "Playground's that varies", "one's own"],
)
def test_it_is_found_where_playground_does_not_vary_the_start(env, wanted):
    assert defaults(env, steps=20).get("env.random_start") == wanted
    assert random_start(env).get("env.random_start") == wanted


def test_it_is_looked_for_whatever_the_agent():
    """SAC needs no ranges of V, so that nothing else would be measured for it."""
    sac = {"agent": "sac"}
    assert presets.lacks("told", "BallInCup", sac) == {presets.START}
    assert presets.lacks("told", "BallInCup", {}) > {presets.START}
    assert not presets.lacks("told", "BallInCup", sac | {"env.random_start": 0})
    assert not presets.lacks("told", "CartpoleBalance", sac)
    assert not presets.lacks("told", None, sac)


@pytest.mark.slow
def test_the_ball_does_not_always_start_where_playground_puts_it():
    found = defaults("BallInCup", steps=20)
    assert found["env.random_start"] == RANDOM_START
    envs = [make_env(config(**{"env.name": "BallInCup", "env.random_start": most})) for most in (0, RANDOM_START)]
    fixed, varied = (jax.jit(jax.vmap(env.reset))(KEYS[:9])[1] for env in envs)
    assert len(np.unique(fixed, axis=0)) == 1
    assert len(np.unique(varied, axis=0)) >= 8
    assert np.isfinite(varied).all()
