"""Playground's tasks with MuJoCo's C library: against MJX, and against themselves."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import moca
from moca import presets
from moca.config import Config, ConfigError, override
from moca.drivers import HostTrainer, make_env, make_trainer
from moca.envs import mujoco, suite
from moca.envs.defaults import RANDOM_START, defaults, measured
from moca.envs.environment import drawn_start
from moca.envs.mujoco import MuJoCo
from moca.envs.named import named
from moca.envs.playground import Playground
from moca.names import MUJOCO, SUITE
from moca.runs import before, film
from tests import probes

pytestmark = pytest.mark.usefixtures("programs_made_once")


def drawn(env, steps, count, seed=0):
    actions = np.random.default_rng(seed).uniform(env.action_low, env.action_high, (steps, count, env.action_size))
    return actions.astype(np.float32)


def played(env, seeds, actions, repeat=1):
    """First observations, then observations and rewards of every step."""
    vector = env.vector(len(seeds), repeat)
    first, outcomes = vector.reset(seeds), [vector.step(each) for each in actions]
    return first, np.stack([each.observation for each in outcomes]), np.stack([each.reward for each in outcomes])


def in_mjx(name, seeds, actions):
    task = Playground(name).env

    def episode(seed, actions):
        state = task.reset(jax.random.key(seed))
        step = lambda state, action: (after := task.step(state, action), (after.obs, after.reward))  # noqa: E731
        return state.obs, *jax.lax.scan(step, state, actions)[1]

    program = jax.jit(jax.vmap(episode, (0, 1), (0, 1, 1)), compiler_options={"xla_backend_optimization_level": 1})
    return program(jnp.asarray(seeds, jnp.uint32), actions)


slow = pytest.mark.slow


@pytest.mark.parametrize(
    ("name", "steps", "tolerance"),
    [
        ("CartpoleSwingup", 10, 1e-5),
        pytest.param("AcrobotSwingup", 10, 1e-5, marks=slow),
        pytest.param("PendulumSwingup", 10, 1e-5, marks=slow),
        pytest.param("PointMass", 10, 1e-5, marks=slow),
        pytest.param("ReacherEasy", 10, 1e-5, marks=slow),
        pytest.param("BallInCup", 10, 1e-5, marks=slow),
        pytest.param("FishSwim", 10, 1e-5, marks=slow),
        pytest.param("CheetahRun", 10, 1e-4, marks=slow),
        pytest.param("FingerSpin", 10, 1e-5, marks=slow),
        pytest.param("FingerTurnEasy", 3, 1e-5, marks=slow),
        pytest.param("SwimmerSwimmer6", 10, 1e-4, marks=slow),
        pytest.param("WalkerWalk", 10, 1e-4, marks=slow),
    ],
)
def test_a_task_is_what_mjx_makes_of_it(name, steps, tolerance):
    """Later, contacts amplify that one rounds to 32 bits and the other to 64."""
    env, seeds = MuJoCo(name), [0, 1, 2]
    actions = drawn(env, steps, len(seeds))
    for ours, theirs in zip(played(env, seeds, actions), in_mjx(name, seeds, actions), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)
    compiled = Playground(name)
    for fact in ("observation_size", "action_low", "action_high", "terminates"):
        assert getattr(env, fact) == getattr(compiled, fact)


@slow
def test_all_of_the_suite_can_be_stepped():
    for name in SUITE:
        env = MuJoCo(name)
        first, seen, rewards = played(env, [0], drawn(env, 3, 1))
        assert first.shape[1:] == seen.shape[2:] == (env.observation_size,)
        assert np.isfinite(seen).all()
        assert np.isfinite(rewards).all()


def test_an_episode_depends_on_its_seed_and_actions_alone(monkeypatch):
    """Also with contacts, with others beside it, in another order, on several threads, and after other episodes."""
    env, actions = MuJoCo("CheetahRun"), drawn(MuJoCo("CheetahRun"), 20, 3)
    together = played(env, [5, 6, 7], actions)
    assert len(np.unique(together[0], axis=0)) == 3
    monkeypatch.setattr(mujoco, "SHARE", 1e-9)
    monkeypatch.setattr(mujoco, "cores", lambda: 3)
    backwards = played(env, [7, 6, 5], actions[:, ::-1])
    for one, other in zip(together, backwards, strict=True):
        np.testing.assert_array_equal(one, np.flip(other, axis=min(1, other.ndim - 1) if one is not together[0] else 0))
    alone = played(env, [6], actions[:, 1:2])
    for one, other in zip(together, alone, strict=True):
        np.testing.assert_allclose(one[1:2] if one is together[0] else one[:, 1:2], other, rtol=1e-5, atol=1e-6)
    vector = env.vector(3)
    for _ in range(2):
        np.testing.assert_array_equal(vector.reset([5, 6, 7]), together[0])
        np.testing.assert_array_equal(vector.step(actions[0]).observation, together[1][0])


def test_a_repeated_action_is_several_steps():
    env = MuJoCo("CartpoleSwingup")
    actions = drawn(env, 5, 2)
    _, seen, rewards = played(env, [1, 2], actions, repeat=3)
    _, each, singly = played(env, [1, 2], actions.repeat(3, axis=0))
    np.testing.assert_allclose(seen, each[2::3], rtol=1e-6)
    np.testing.assert_allclose(rewards, singly.reshape(5, 3, 2).sum(1), rtol=1e-6)


def test_actions_stay_within_their_bounds_and_nan_is_zero():
    _, seen, _ = played(MuJoCo("CartpoleSwingup"), [1, 1, 1, 1], np.array([[[9.0], [1.0], [np.nan], [0.0]]]))
    np.testing.assert_array_equal(seen[0, [0, 2]], seen[0, [1, 3]])
    assert (seen[0, 0] != seen[0, 2]).any()


def test_a_random_action_comes_before_an_episode_that_always_starts_alike():
    plain, seeds = MuJoCo("BallInCup"), np.arange(12)
    settings = {"agent": "sac", "env.name": "BallInCup", "env.physics": MUJOCO, "env.random_start": 3}
    first = make_env(override(Config(), settings)).vector(12).reset(seeds)
    keys, actions, steps = jax.vmap(lambda seed: drawn_start(plain, jax.random.key(seed), 3))(seeds)
    assert (plain.task.begin(seeds, 3).key == keys).all()  # what follows does not share their random numbers
    assert set(np.asarray(steps)) == {0, 1, 2, 3}
    vector = plain.vector(12)
    seen = [vector.reset(seeds), *(vector.step(actions).observation for _ in range(3))]
    assert len(np.unique(seen[0], axis=0)) == 1
    np.testing.assert_allclose(first, np.stack(seen)[steps, seeds], rtol=1e-6, atol=1e-7)
    seen_in_part = make_env(override(Config(), settings | {"sensor.observed": [0, 5]})).vector(12).reset(seeds)
    np.testing.assert_array_equal(seen_in_part, first[:, [0, 5]])


def test_a_random_start_may_have_no_steps():
    """As it has for one of these seeds, whatever is drawn for other episodes."""
    env, seeds = MuJoCo("BallInCup").random_start(3), range(6)
    steps = np.asarray(env.task.begin(np.arange(6, dtype=np.uint32), np.int32(3)).steps)
    assert 0 in steps
    assert steps.max() > 1
    alone = np.concatenate([env.vector(1).reset([seed]) for seed in seeds])
    np.testing.assert_allclose(alone, env.vector(6).reset(seeds), rtol=1e-5, atol=1e-6)
    assert len(np.unique(alone, axis=0)) > 3


def test_ranges_and_a_random_start_are_measured_here_too():
    found = defaults("CartpoleSwingup", steps=50, physics=MUJOCO)
    assert set(found) == {"value.low", "value.high", "value.lengthscales", "noise.scales", "value.least"}
    np.testing.assert_allclose(found["value.low"][1:3], [-1, -1], atol=0.2)  # of cosine and sine
    settings = {"agent": "sac", "env.physics": MUJOCO, "env.episode_length": 10}
    assert measured("told", "BallInCup", settings)["env.random_start"] == RANDOM_START


@pytest.mark.parametrize("name", ["CartpoleSwingup", "BallInCup"])
def test_diverged_physics_is_missing_until_the_reset(name):
    """Also where the reward is a comparison, which NaN does not pass."""
    env = MuJoCo(name)
    vector, actions = env.vector(2), drawn(env, 3, 2)
    first = vector.reset([1, 2])
    vector._datas[1].qvel = 1e12
    for action in actions:
        outcome = vector.step(action)
        assert np.isfinite(outcome.observation[0]).all()
        assert np.isnan(outcome.observation[1]).all()
        assert np.isnan(outcome.reward).tolist() == [False, True]
    np.testing.assert_array_equal(vector.reset([1, 2]), first)
    assert np.isfinite(vector.step(actions[0]).observation).all()


def test_mujoco_is_silent_on_several_threads_and_still_counts(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)  # where it would write a log
    monkeypatch.setattr(mujoco, "SHARE", 1e-9)
    monkeypatch.setattr(mujoco, "cores", lambda: 4)
    env = MuJoCo("CartpoleSwingup")
    vector, actions = env.vector(12), drawn(env, 2, 12)
    for _ in range(20):
        vector.reset(range(12))
        for data in vector._datas[::2]:
            data.qvel = 1e12
        for action in actions:
            assert np.isnan(vector.step(action).reward).tolist() == [True, False] * 6
    assert capfd.readouterr() == ("", "")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["PandaPickCube", "gymnasium:Pendulum-v1", "own:Mine"])
def test_it_is_for_tasks_of_the_suite(name):
    with pytest.raises(ConfigError, match=rf"env\.physics = mujoco is for Playground's tasks .* env\.name = {name} is"):
        override(Config(), {"agent": "sac", "env.name": name, "env.physics": MUJOCO})
    for read in (moca.check_env, defaults):
        with pytest.raises(ConfigError, match=rf"env\.physics = mujoco is for .* env\.name = {name} is"):
            read(name, physics=MUJOCO)
        with pytest.raises(ConfigError, match=r"env\.physics = 'mjc' is unknown.* Allowed: mjx, mujoco"):
            read(name, physics="mjc")


@pytest.mark.parametrize(
    ("read", "because"),
    [(lambda data: data.time, "time of the physics is not an array"), (lambda data: {}["a"], "'a'")],
)
def test_a_task_that_playground_writes_otherwise_is_refused(monkeypatch, read, because):
    inner = Playground("CartpoleSwingup").env
    monkeypatch.setattr(type(inner), "_get_obs", lambda self, data, info: read(data))
    with pytest.raises(ConfigError, match=rf"env.physics = mujoco does not fit CartpoleSwingup .*{because}"):
        suite.SuiteTask("CartpoleSwingup")


TASK = {"env__name": "CartpoleBalance", "env__physics": MUJOCO, "env__action_repeat": 2, "sac__width": 8}


def test_a_name_in_a_config_leads_here_and_keeps_its_preset(tmp_path):
    config = presets.build("told", "CartpoleBalance", {"env.physics": MUJOCO})
    plain = presets.build("told", "CartpoleBalance", {})
    assert config.value.low == plain.value.low
    assert isinstance(named("CartpoleBalance", physics=MUJOCO), MuJoCo)
    assert isinstance(make_trainer([probes.tiny(**TASK)], [0]), HostTrainer)
    assert moca.check_env("CartpoleBalance", steps=5, physics=MUJOCO) == []


def test_a_random_start_that_was_given_is_part_of_the_settings(tmp_path):
    given, env = probes.tiny(**TASK), MuJoCo("CartpoleBalance").random_start(5)
    assert before.begin(given, tmp_path / "run", [{}], env).config.env.random_start == 5
    given = override(given, {"env.random_start": 3})
    assert before.begin(given, tmp_path / "run", [{}], env).config.env.random_start == 3


def test_a_resumed_run_is_an_uninterrupted_one_and_can_be_filmed(tmp_path, monkeypatch):
    config = probes.tiny(**TASK)
    whole = moca.train(config, tmp_path / "whole")
    moca.train(config, tmp_path / "halves", callback=lambda training: training.step < 40)
    halves = moca.resume(tmp_path / "halves")
    for one, other in zip(jax.tree.leaves(whole.learners), jax.tree.leaves(halves.learners), strict=True):
        np.testing.assert_array_equal(one, other)
    assert halves.config.env.physics == MUJOCO
    assert [row["step"] for row in halves.rows] == [20, 40, 60]
    assert whole.evaluate(2) == halves.evaluate(2)
    assert len(whole.inspect(ahead=0).views[0].arrays["reward"]) == 10
    shot = []
    monkeypatch.setattr(film, "_failed", ["no display"])
    monkeypatch.setattr(film, "encode", lambda path, frames, fps, small: shot.append((len(frames), fps)))
    drawn = whole.render(path=tmp_path / "film.mp4")
    assert shot == [(5, 25.0)]  # of ten decisions of 20 ms, every other one
    assert "outlines" in drawn.how
    assert drawn.total > 0
