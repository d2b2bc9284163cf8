"""Settings from a look at an environment: the range it shows, the sign of its rewards, and nothing the user set."""

import json
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moca import cli, presets
from moca.config import ConfigError
from moca.envs.check import check_env
from moca.envs.defaults import defaults
from moca.envs.environment import Environment, Step
from moca.envs.host import HostEnvironment, Outcome


class Shown(Environment):
    """Shows its two actions, a constant, a number that is now and then an outlier, and how long it has run."""

    terminates: bool = eqx.field(static=True, default=True)
    observation_size: int = eqx.field(static=True, default=5)
    action_low: tuple[float, ...] = eqx.field(static=True, default=(-1.0, 0.0))
    action_high: tuple[float, ...] = eqx.field(static=True, default=(3.0, 1.0))

    def reset(self, key):
        return (jnp.zeros((), jnp.int32), key), jnp.zeros(5)

    def step(self, state, action):
        age, key = state
        draw_key, key = jax.random.split(key)
        draw = jax.random.uniform(draw_key)
        odd = jnp.where(draw < 0.001, 1e6, 2 * draw)
        observation = jnp.stack([action[0], action[1], jnp.asarray(7.0), odd, age * 1.0])
        return (age + 1, key), Step(observation, draw - 0.5, age >= 9)


def test_ranges_are_what_is_shown_with_a_margin():
    found = defaults(Shown())
    np.testing.assert_allclose(found["value.low"], (-1.4, -0.1, 0, -0.2, -0.9), atol=0.06)
    np.testing.assert_allclose(found["value.high"], (3.4, 1.1, 14, 2.2, 9.9), atol=0.06)
    width = np.subtract(found["value.high"], found["value.low"])
    np.testing.assert_allclose(found["value.lengthscales"], 0.075 * math.sqrt(5) * width, rtol=0.01)
    np.testing.assert_allclose(found["noise.scales"], (3, 1, math.inf, 2, 9), rtol=0.02)
    assert not {"value.least", "value.most"} & set(found)


class Drifting(Environment):
    """Moves on by one at each step, for as long as it is stepped."""

    terminates: bool = eqx.field(static=True, default=False)
    observation_size: int = eqx.field(static=True, default=1)
    action_low: tuple[float, ...] = eqx.field(static=True, default=(-1.0,))
    action_high: tuple[float, ...] = eqx.field(static=True, default=(1.0,))

    def reset(self, key):
        return jnp.zeros(1), jnp.zeros(1)

    def step(self, state, action):
        return state + 1, Step(state + 1, jnp.zeros(()), jnp.array(False))


def test_nothing_is_measured_beyond_the_length_of_an_episode():
    how = presets.how_to_measure("efficient", None, {"env.episode_length": 40})
    np.testing.assert_allclose(defaults(Drifting(), **how)["value.high"], 44, atol=1)
    assert presets.how_to_measure("efficient", None, {})["episode"] == 1000
    assert defaults(Drifting(), episode=1000) == defaults(Drifting())


def test_equal_seeds_agree_and_others_differ():
    once, again, other = (defaults(Shown(), seed, steps=50) for seed in (1, 1, 2))
    assert once == again
    assert once != other


class Host(HostEnvironment):
    """Steps on the host: shows the sum of the actions so far, which ends when it reaches five."""

    name: None = None
    observation_size: int = eqx.field(static=True, default=1)
    action_low: tuple[float, ...] = eqx.field(static=True, default=(0.0,))
    action_high: tuple[float, ...] = eqx.field(static=True, default=(1.0,))
    terminates: bool = eqx.field(static=True, default=True)
    rewards: tuple[float, float] = eqx.field(static=True, default=(-1.0, -0.5))  # when it goes on, when it ends
    odd: float = eqx.field(static=True, default=5.0)  # what is shown instead of five

    def vector(self, count, repeat=1):
        return Sums(count, self.rewards, self.odd)


class Sums:
    def __init__(self, count, rewards, odd):
        self.count, self.rewards, self.odd = count, rewards, odd

    def reset(self, seeds):
        assert len(set(seeds)) == self.count
        self.sums = np.zeros((self.count, 1), np.float32)
        return self.sums

    def step(self, actions):
        assert actions.shape == (self.count, 1)
        reached = self.sums + actions
        ended = reached >= 5
        self.sums = np.where(ended, 0, reached)
        reward = np.where(ended[:, 0], self.rewards[1], self.rewards[0])
        return Outcome(np.where(ended, self.odd, reached), reward, ended[:, 0], ended[:, 0], self.sums)


def test_an_environment_that_the_check_cannot_step_is_not_called_healthy():
    (note,) = check_env(Host())
    assert note.severity == "note"
    assert "Host was not tried; give it a method single()" in str(note)


def test_an_environment_of_the_host():
    found = defaults(Host(), steps=100)
    assert found["value.low"] == (-0.5,)
    assert found["value.high"] == (5.5,)


@pytest.mark.parametrize(
    ("rewards", "bounds"),
    [
        ((0.0, 1.0), {"value.least": 0.0}),
        ((-1.0, 0.0), {"value.most": 0.0}),
        ((0.0, 0.0), {"value.least": 0.0}),
        ((-0.1, 1.0), {}),
    ],
)
def test_rewards_of_one_sign_bound_the_value(rewards, bounds):
    found = defaults(Host(rewards=rewards), steps=100)
    assert {name: found[name] for name in ("value.least", "value.most") if name in found} == bounds


def test_what_is_no_number_is_left_out():
    assert defaults(Host(odd=math.nan), steps=100)["value.high"] == (4.4,)
    with pytest.raises(ConfigError, match="gives no finite observation"):
        defaults(Nothing(), steps=10)


class Nothing(Host):
    def vector(self, count, repeat=1):
        vector = super().vector(count)
        vector.step = lambda actions: Sums.step(vector, actions)._replace(observation=np.full((count, 1), np.nan))
        return vector


RANGES = {"value.low": (-1.0,) * 3, "value.high": (1.0,) * 3, "value.lengthscales": (0.5,) * 3}
FOUND = RANGES | {"value.least": 0.0, "noise.scales": (1.0,) * 3}


def test_the_command_line_looks_where_nothing_is_known(monkeypatch, capsys):
    looked, reset = [], []
    monkeypatch.setattr("moca.envs.defaults.defaults", lambda env, **_: looked.append(env.name) or FOUND)
    monkeypatch.setattr("moca.envs.defaults.random_start", lambda env: reset.append(env.name) or {})
    monkeypatch.setattr("moca.runs.starting.refuse_unfit", lambda *_: None)  # what was found here fits no task

    def shown(*arguments):
        cli.main(["train", "--dry-run", *arguments])
        return json.loads(capsys.readouterr().out)

    settings = shown("--env", "AcrobotSwingup", "--set", "value.high=[2,2,2]", "--noise", "state-norm")
    assert settings["value"]["low"] == [-1, -1, -1]
    assert settings["value"]["high"] == [2, 2, 2]
    assert settings["value"]["least"] == 0
    assert settings["noise"]["scales"] == [1, 1, 1]
    assert shown("--env", "AcrobotSwingup", "--preset", "paper")["value"]["least"] == "-inf"
    assert looked == ["AcrobotSwingup"] * 2
    known = [f"--set={name}={list(value)}" for name, value in RANGES.items()]
    for arguments in (
        ["--env", "CartpoleBalance"],
        ["--env", "HopperHop", "--agent", "sac"],
        ["--env", "HopperHop", *known],
        ["--env", "HopperHop", *known, "--set=env.random_start=0"],
    ):
        shown(*arguments)
    assert len(looked) == 2
    assert reset == ["HopperHop"] * 2  # without a rollout


@pytest.mark.parametrize("fault", ["critic.lr=-1", "noise.kind=state-nrm", "agent=mocca", "env.name=AcrobatSwingup"])
def test_mistakes_are_named_before_anything_is_looked_at(fault, monkeypatch, capsys):
    monkeypatch.setattr("moca.envs.defaults.defaults", lambda env: pytest.fail("looked"))
    with pytest.raises(SystemExit):
        cli.main(["train", "--env", "AcrobotSwingup", "--set", fault])
    assert f"{fault.split('=')[0]} = " in capsys.readouterr().err
