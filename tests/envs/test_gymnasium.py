"""Gymnasium's environments: our vector against stepping by hand, and the loop on the host against the compiled one."""

import json
import math
import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from io import StringIO
from types import SimpleNamespace
from unittest import mock

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Sequence, Tuple
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from rich.console import Console

import moca
from moca import presets, replay
from moca.agents import make_agent
from moca.cli import main
from moca.config import Config, ConfigError, flatten, override, registry
from moca.devices import compiled
from moca.drivers import HostTrainer, ScanTrainer, Schedule, make_env, make_trainer
from moca.envs import defaults as defaults_of
from moca.envs.defaults import defaults, measured
from moca.envs.gymnasium import Gymnasium
from moca.envs.named import named
from moca.envs.trust import import_module_of
from moca.runs import before, film, launch
from moca.runs.interrupts import InterruptedRun
from moca.runs.options import run_directory
from tests import probes
from tests.envs import hosted

pytestmark = pytest.mark.usefixtures("programs_made_once")

gymnasium.register("MocaWalk-v0", entry_point=hosted.Walk)
gymnasium.register("moca_tests/Walk-v0", entry_point=hosted.Walk)


PARTIAL = {"train__steps": 70, "train__horizon": 90}  # the last of three episodes is


def config(**settings):
    """The first episode of three is random. Programs of this config are compiled once for all tests."""
    lengths = {"env__episode_length": 30, "train__steps": 90, "train__warmup": 30, "env__action_repeat": 2}
    others = {"env__name": "own:Walk", "sac__width": 8, "noise__sigma": 0.1}
    return probes.tiny(**(lengths | others | settings))


def by_hand(env, seed, actions, repeat):
    """What `Vector.step` should return for each of the actions."""
    first, _ = env.reset(seed=seed)
    rows = []
    for action in actions:
        total = 0.0
        for _ in range(repeat):
            observation, reward, terminated, truncated, _ = env.step(action)
            total += reward
            if terminated or truncated:
                break
        ended = terminated or truncated
        current = env.reset()[0] if ended else observation
        rows.append((observation, total, terminated, ended, current))
    return first, rows


def drawn(space, count, steps, seed=0):
    return np.random.default_rng(seed).uniform(space.low, space.high, (steps, count, *space.shape)).astype(np.float32)


@pytest.mark.filterwarnings("ignore:.*symmetric and normalized")
@pytest.mark.parametrize("kind", [hosted.Walk, hosted.OneOrEndless, hosted.Ramp, hosted.Linear])
def test_the_environments_of_these_tests_are_healthy(kind):
    env = gymnasium.make("MocaWalk-v0").unwrapped if kind is hosted.Walk else kind()
    check_env(env, skip_render_check=kind is not hosted.Walk)


@pytest.mark.parametrize("repeat", [1, 3])
def test_the_vector_is_the_plain_environments_also_across_ends(repeat):
    env = Gymnasium(hosted.Walk)
    vector = env.vector(3, repeat)
    actions = drawn(hosted.Walk().action_space, 3, 60)
    for _ in range(2):  # a reset with seeds forgets what was before
        first = vector.reset([4, 5, 6])
        outcomes = [vector.step(each) for each in actions]
    for number in range(3):
        started, rows = by_hand(hosted.Walk(), 4 + number, actions[:, number], repeat)
        np.testing.assert_array_equal(first[number], started.ravel().astype(np.float32))
        for outcome, row in zip(outcomes, rows, strict=True):
            for ours, theirs in zip(outcome, row, strict=True):
                np.testing.assert_array_equal(ours[number], np.asarray(theirs, ours.dtype).ravel().squeeze())
    terminated, ended = (np.array([getattr(each, name) for each in outcomes]) for name in ("terminated", "ended"))
    assert (terminated.sum(0) > 0).all()
    assert (ended & ~terminated).any()
    assert not (terminated & ~ended).any()


def test_the_vector_is_gymnasiums_own_that_resets_by_itself():
    """Which keeps the last observation in its infos."""
    theirs = SyncVectorEnv([hosted.Walk] * 3, autoreset_mode=AutoresetMode.SAME_STEP)
    ours = Gymnasium(hosted.Walk).vector(3)
    np.testing.assert_array_equal(ours.reset([1, 2, 3]), theirs.reset(seed=[1, 2, 3])[0].astype(np.float32))
    for action in drawn(theirs.single_action_space, 3, 60):
        outcome = ours.step(action)
        observation, reward, terminated, truncated, infos = theirs.step(action)
        last = observation.copy()
        for number in np.flatnonzero(terminated | truncated):
            last[number] = infos["final_obs"][number]
        expected = (last, reward, terminated, terminated | truncated, observation)
        for one, other in zip(outcome, expected, strict=True):
            np.testing.assert_array_equal(one, other.astype(one.dtype))


def test_spaces_of_any_shape_are_flattened():
    env = Gymnasium(hosted.Matrices)
    assert (env.observation_size, env.action_low, env.action_high) == (6, (-1.0, -2.0, 0.0, 1.0), (1.0, 2.0, 0.5, 3.0))
    vector = env.vector(2)
    assert vector.reset([0, 1]).shape == (2, 6)
    outcome = vector.step(np.array([[9.0, 0.0, 0.25, np.nan], [-9.0, 0.0, 0.25, 2.0]]))
    # It shows what it was given: within the bounds, in its own shape.
    np.testing.assert_array_equal(outcome.observation[:, :4], [[1.0, 0.0, 0.25, 1.0], [-1.0, 0.0, 0.25, 2.0]])
    assert outcome.observation.dtype == outcome.reward.dtype == np.float32


def spaces(observation=Box(-1, 1, (2,)), action=Box(-1, 1, (1,))):  # noqa: B008
    env = hosted.Walk()
    env.observation_space, env.action_space = observation, action
    return lambda: env


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (
            spaces(observation=Dict(a=Box(-1, 1, (2,)), b=Box(0, 1, (2, 2)))),
            r"not Dict\(a, b\).* one vector of 6 numbers, .*--set env.flatten=true, or .*env__flatten=True",
        ),
        (spaces(observation=Discrete(3)), "not Discrete.* one-hot vector of 3 numbers, .*env.flatten"),
        (spaces(observation=Box(0, 255, (8, 9, 3), np.uint8)), r"are images \(uint8, 8×9×3\).*TransformObservation"),
        (
            spaces(observation=Dict(eye=Tuple([Box(0, 255, (8, 9, 3), np.uint8)]))),
            r"observations\['eye'\]\[0\] are images",
        ),
        (spaces(observation=Sequence(Box(-1, 1))), "observations are a Sequence, whose length is not fixed"),
        (spaces(action=MultiDiscrete([3, 2])), r"not MultiDiscrete\(\[3 2\]\).*DQN"),
        (spaces(action=Dict(arm=Box(-1, 1), hand=Box(-1, 1))), r"one Box, not Dict\(arm, hand\).*ActionWrapper"),
        (
            spaces(observation=Discrete(3), action=Discrete(2)),
            "observations must be a Box.*; and actions must be a Box of real numbers",
        ),
        (
            spaces(action=Discrete(3)),
            "actions must be a Box of real numbers, not Discrete.*LunarLanderContinuous-v3 for",
        ),
        (spaces(action=Box(0, 3, (1,), np.int32)), "actions must be a Box of real numbers"),
        (
            spaces(action=Box(np.array([-1, -np.inf]), np.ones(2), dtype=np.float64)),
            "must be finite in every dimension, but dimension 1 has low = -inf and high = 1:.*TransformAction",
        ),
        (
            spaces(action=Box(np.array([-1, 1.0]), np.ones(2), dtype=np.float64)),
            "must be low < high in every dimension, but dimension 1 has low = 1 and high = 1",
        ),
        ("Pendulum-v9", r"Gymnasium has no Pendulum-v9\. Did you mean Pendulum-v1\?"),
        ("Pndlum-v1", r"Did you mean Pendulum-v1\?$"),
        ("Elsewhere/Pendulum-v1", r"a package registers Elsewhere/….* gymnasium:MODULE:Elsewhere/Pendulum-v1$"),
        ("moca_tests/Wlk-v0", r"Did you mean moca_tests/Walk-v0\?$"),
        ("nowhere:Pendulum-v1", "Gymnasium cannot make nowhere:Pendulum-v1: .*nowhere"),
        (3, "or a function that creates one"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(make, sentence):
    with pytest.raises(ConfigError, match=sentence):
        Gymnasium(make)


def test_settings_go_to_gymnasium_and_only_a_plain_name_is_one_for_the_config():
    light = Gymnasium("Pendulum-v1", g=1.0)
    assert light.make().unwrapped.g == 1.0
    assert (light.name, Gymnasium("Pendulum-v1").name) == (None, "gymnasium:Pendulum-v1")
    with pytest.raises(ConfigError, match="without settings"):
        Gymnasium(hosted.Walk, g=1.0)


def test_the_config_takes_the_name_and_names_what_is_wrong_with_others():
    assert override(Config(), {"agent": "sac", "env.name": "gymnasium:Pendulum-v1"}).env.name == "gymnasium:Pendulum-v1"
    assert override(Config(), {"agent": "sac", "env.name": "Pendulum-v1"}).env.name == "gymnasium:Pendulum-v1"
    for wrong, words in (("gymnasium:", ", with letters"), ("Xyzzy-v", " or MODULE:CLASS")):
        with pytest.raises(ConfigError, match=f"or gymnasium:NAME{words}"):
            override(Config(), {"env.name": wrong})
    with pytest.raises(ConfigError, match="or gymnasium:NAME"):
        override(Config(), {"env.name": "gymnasum:Pendulum-v1"})
    with pytest.raises(ConfigError, match=r"Did you mean PendulumSwingup\?"):
        override(Config(), {"env.name": "PendulumSwigup"})


def test_without_the_package_a_sentence_says_what_to_install():
    code = (
        "import sys; sys.modules['gymnasium'] = None\nfrom moca.envs.named import named\nnamed('gymnasium:Pendulum-v1')"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "need the package gymnasium: pip install 'moca-rl[gymnasium]'" in run.stderr


# The loop


FILTER = {"belief__filter": True, "belief__noise": "learned", "dynamics__width": 8, "dynamics__members": 2}


@pytest.mark.parametrize(
    "settings",
    [
        {"noise__action": 0.3},
        pytest.param(FILTER | {"train__updates": 2}, marks=pytest.mark.slow),
    ],
)
def test_the_host_loop_is_the_compiled_loop(settings):
    """On an environment without chance: the same memory, the same learners, the same metrics up to rounding."""
    configs = [config(**settings)] * 2
    both = [ScanTrainer(configs, [0, 1], RampInJax()), HostTrainer(configs, [0, 1], Gymnasium(hosted.Ramp))]
    reports = [list(trainer) for trainer in both]
    compiled, hosting = (np.asarray(trainer.state.replay) for trainer in both)
    np.testing.assert_allclose(hosting, compiled, rtol=1e-3, atol=1e-4)
    assert compiled[:, :, 2 + 2 + 1 + 2].sum() > 10  # ends
    for a, b in zip(*(jax.tree.leaves(trainer.learners) for trainer in both), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-2, atol=1e-3)
    for a, b in zip(*reports, strict=True):
        assert a.step == b.step
        assert list(a.metrics) == list(b.metrics)
        for name in a.metrics:
            np.testing.assert_allclose(a.metrics[name], b.metrics[name], rtol=1e-2, atol=1e-3, err_msg=name)


class RampInJax(probes.Drift):
    """`hosted.Ramp` as an environment of our own."""

    terminates: bool = eqx.field(static=True, default=True)
    action_low: tuple[float, ...] = eqx.field(static=True, default=(-1.0, 0.5))
    action_high: tuple[float, ...] = eqx.field(static=True, default=(2.0, 3.0))

    def reset(self, key):
        state = jnp.array([0.5, 0.0])
        return state, state

    def step(self, state, action):
        state = jnp.stack([0.9 * state[0] + 0.1 * action[0] - 0.1 * action[1], state[1] + 0.1])
        return state, probes.Step(state, 1 - state[0] ** 2, state[1] > 0.65)


GAMMA = 0.9


@pytest.fixture(scope="module")
def judged():
    """SAC on an environment with two known values; a small fixed temperature, or the bonus would shift them."""
    config = probes.tiny(
        train__steps=2500, train__gamma=GAMMA, train__batch=64, train__warmup=100, train__eval_episodes=4,
        env__episode_length=500, sac__alpha=1e-3, sac__alpha_lr=0,
        sac__critic_lr=1e-2, sac__actor_lr=1e-3, sac__tau=0.05, sac__width=16,
    )  # fmt: skip
    trainer = HostTrainer([config], [0], Gymnasium(hosted.OneOrEndless))
    *_, report = trainer
    return config, trainer, report


def test_an_end_is_worth_nothing_and_a_time_limit_is_no_end(judged):
    """At −1 reward one and the end: V = 1. At 1 reward one for ever, cut into fives: V = 1 / (1 − γ)."""
    config, trainer, _ = judged
    agent = make_agent(config, trainer.env)
    learner = probes.first(trainer.learners)
    found = [float(agent.value(learner, jnp.array([state]))) for state in (-1.0, 1.0)]
    np.testing.assert_allclose(found, [1, 1 / (1 - GAMMA)], atol=0.3)


def test_what_is_stored_keeps_the_true_last_observation(judged):
    _, trainer, _ = judged
    rows = replay.read(jnp.asarray(trainer.state.replay)[0], jnp.arange(2500), replay.Layout(1, 1))
    np.testing.assert_array_equal(rows.next_observation, rows.observation)
    np.testing.assert_array_equal(rows.terminated, rows.observation[:, 0] < 0)
    restarts = np.flatnonzero(rows.observation[1:, 0] != rows.observation[:-1, 0])
    assert len(restarts) > 100
    runs = np.diff(np.flatnonzero(np.diff(np.concatenate([[-1], rows.observation[:500, 0]])) > 0))
    assert (runs >= 5).all()  # five at a time


def test_a_return_is_that_of_one_episode(judged):
    """One after a single step, or five; of four episodes the mean is a multiple of a quarter between."""
    *_, report = judged
    assert report.metrics["return_mean"][0] in {1 + n for n in range(5)}
    assert report.metrics["return_std"][0] in {np.float32(x) for x in (0, 2, np.sqrt(3))}
    assert report.metrics["return_noise_free"] == report.metrics["return_mean"]
    assert report.metrics["train_return"] == 500


def test_noise_is_on_observations_only():
    """In the first episode actions are random: with the same seed the rewards are the same, whatever is seen."""
    trainer = HostTrainer([config(noise__sigma=sigma) for sigma in (0.0, 0.5)], [0, 0], Gymnasium(hosted.Walk))
    *_, report = list(trainer)
    same = np.isclose(report.metrics["return_mean"], report.metrics["return_noise_free"], rtol=1e-6)  # to rounding
    assert same.tolist() == [True, False]
    exact, noisy = (
        replay.read(rows, jnp.arange(15), replay.Layout(2, 2)) for rows in jnp.asarray(trainer.state.replay)
    )
    first = np.asarray(trainer.state.replay)[0, ::15, :2]
    assert len(np.unique(first)) == 6  # every episode begins elsewhere
    np.testing.assert_array_equal(exact.action, noisy.action)
    np.testing.assert_array_equal(exact.reward, noisy.reward)
    np.testing.assert_array_equal(exact.terminated, noisy.terminated)
    difference = np.asarray(noisy.next_observation - exact.next_observation)
    np.testing.assert_allclose(difference.std(), 0.5, rtol=0.3)
    assert len(set(difference.ravel().round(5))) == 30
    action = np.asarray(replay.read(jnp.asarray(trainer.state.replay)[0], jnp.arange(45), replay.Layout(2, 2)).action)
    np.testing.assert_allclose([action.min(0), action.max(0)], [[-1.0, 0.5], [2.0, 3.0]], atol=0.3)


def test_an_environment_that_breaks_is_one_runs_own_matter():
    made = []

    def make():
        made.append(hosted.Walk(broken=len(made) == 1))  # the first one only tells its spaces
        return made[-1]

    trainer = HostTrainer([config()] * 2, [0, 1], Gymnasium(make))
    reports = list(trainer)
    assert [report.metrics["diverged"].tolist() for report in reports] == [[1.0, 0.0]] * 3
    assert all(np.isnan(report.metrics["return_mean"]).tolist() == [True, False] for report in reports)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(trainer.learners) if leaf.dtype == np.float32)


# Lengths that do not divide each other


def test_the_last_episode_may_be_partial():
    """Steps are learned from as in the longer run, whose third episode is whole; nothing follows them."""
    long, short = (
        HostTrainer([config(**PARTIAL | {"train__steps": steps})] * 2, [0, 1], Gymnasium(hosted.Walk))
        for steps in (90, 70)
    )
    whole, partial = list(long), list(short)
    assert [report.step for report in partial] == [30, 60, 70]
    for one, other in zip(whole[:2], partial[:2], strict=True):
        for name in one.metrics:
            np.testing.assert_array_equal(one.metrics[name], other.metrics[name])
    rows = np.asarray(short.state.replay)
    assert rows.shape[1] == 35
    np.testing.assert_array_equal(rows, np.asarray(long.state.replay)[:, :35])
    rewards = replay.read(jnp.asarray(rows)[0], jnp.arange(30, 35), replay.Layout(2, 2)).reward
    np.testing.assert_allclose(partial[-1].metrics["train_return"][0], rewards.sum(), rtol=1e-5)
    assert np.isfinite(partial[-1].metrics["return_mean"]).all()


def test_an_evaluation_follows_a_partial_episode_whatever_their_interval():
    reports = list(HostTrainer([config(**PARTIAL, train__eval_every=2)] * 2, [0, 1], Gymnasium(hosted.Walk)))
    assert [bool(np.isfinite(report.metrics["return_mean"]).all()) for report in reports] == [False, True, True]


def test_an_action_repeat_need_not_divide_an_episode():
    """Of 30 steps the eighth decision has two left; it is counted so, and may take four."""
    trainer = HostTrainer([config(env__action_repeat=4)], [0], Gymnasium(hosted.Walk))
    assert [report.step for report in trainer] == [30, 60, 90]
    rows = np.asarray(trainer.state.replay)[0]
    assert len(rows) == 23  # 24 decisions, and 90 / 4
    assert (rows != 0).any(axis=1).all()


def test_episodes_end_at_every_total():
    for totals, ends, decisions in [
        ([90], [30, 60, 90], [8, 16, 24]),
        ([70], [30, 60, 70], [8, 16, 19]),
        ([10], [10], [3]),
        ([70, 100, 165], [30, 60, 70, 100, 130, 160, 165], [8, 16, 19, 27, 35, 43, 45]),
    ]:
        schedule = Schedule(30, totals)
        assert schedule.episodes == len(ends)
        assert [schedule.steps(number) for number in range(len(ends) + 1)] == [0, *ends]
        assert [schedule.agent_steps(number, 4) for number in range(len(ends) + 1)] == [0, *decisions]
    assert Schedule(1, [2**31]).episodes == 2**31  # no list of them is made


def test_a_run_that_ended_in_the_middle_of_an_episode_is_made_longer(tmp_path):
    """Nothing of its memory is missing, and it can be interrupted and gone on with."""
    env = Gymnasium(hosted.Walk)
    moca.train(config(**PARTIAL, seeds=2), tmp_path / "run", env=env)
    moca.resume(tmp_path / "run", steps=140, env=env, callback=lambda training: training.step < 100)  # stops there
    said = StringIO()
    run = moca.resume(tmp_path / "run", env=env, console=Console(file=said, width=200))
    assert "the steps from 70 to 140 are not a multiple of env.episode_length = 30: the last episode has 10 steps" in (
        said.getvalue()
    )
    assert [row["step"] for row in run.rows[::2]] == [30, 60, 70, 100, 130, 140]
    assert run.directory.status == {"state": "finished", "step": 140}
    assert run.directory.totals == [70, 140]


@pytest.mark.parametrize(
    ("settings", "sentences"),
    [
        ({}, ["the environment ends its episodes after 25 steps, but env.episode_length is 30"]),
        ({"env.action_repeat": 4}, ["ends its episodes", "env.action_repeat = 4 does not divide .* as 2 steps"]),
        ({"env.episode_length": 25, "env.action_repeat": 1}, ["train.steps = 90 is not a multiple .* has 15 steps"]),
        ({"env.episode_length": 25, "train.steps": 100, "env.action_repeat": 5}, []),
    ],
)  # fmt: skip
def test_what_is_done_about_lengths_is_said_in_a_line_each(settings, sentences):
    said = list(launch._reconciled(override(config(), settings), SimpleNamespace(limit=25)))
    assert len(said) == len(sentences)
    for one, sentence in zip(said, sentences, strict=True):
        assert re.search(sentence, one)


def test_the_last_episode_of_an_extended_run_is_counted_from_the_previous_total():
    """Also if the new total is a multiple of an episode's length."""
    given = override(config(), {"env.action_repeat": 1})
    said = {total: [*launch._reconciled(override(given, {"train.steps": total}), SimpleNamespace(limit=30), 70)]
            for total in (90, 100)}  # fmt: skip
    told = "the steps from 70 to 90 are not a multiple of env.episode_length = 30: the last episode has 20 steps"
    assert said == {90: [told], 100: []}


def test_actions_that_are_repeated_are_announced_on_the_host():
    given = override(config(), {"env.episode_length": 30, "env.action_repeat": 2})
    first, *_ = launch._reconciled(given, Gymnasium(hosted.Linear))
    assert first == "every action is repeated for 2 steps (env.action_repeat = 2)"
    assert not list(launch._reconciled(given, probes.Drift()))


def test_what_hides_or_adds_dimensions_keeps_the_facts():
    inner = Gymnasium("Pendulum-v1", flatten=True)
    around = make_env(
        override(config(), {"sensor.observed": [0, 1], "sensor.history": 1, "sensor.scales": [1, 1]}), inner
    )
    for env in (inner, around.inner, around):
        assert (env.name, env.title, env.limit) == ("gymnasium:Pendulum-v1", "Pendulum-v1", 200)
        assert (env.flatten, env.physics) == (True, "mjx")
    given = override(config(), {"env.name": inner.name, "env.episode_length": 200, "env.action_repeat": 1})
    assert not any("time limit" in said for said in launch._reconciled(given, around))


def test_a_length_that_no_environment_declares_is_announced():
    """For every agent: it may be a guess, after which metrics and callbacks come."""
    given = override(config(), {"env.episode_length": 30, "env.action_repeat": 1})
    (said,) = launch._reconciled(given, Gymnasium(hosted.Linear))
    assert said == "the environment declares no time limit: an episode has 30 steps (env.episode_length = 30)"


def test_a_length_that_was_found_in_trial_episodes_is_no_guess():
    agent = moca.SAC(hosted.Linear())
    told = "trial episodes were cut off after 50 steps, used as the time limit (env.episode_length)"
    assert told in launch._reconciled(agent._build(100), Gymnasium(hosted.Linear))
    other = override(agent._build(100), {"env.episode_length": 20})
    *_, said = launch._reconciled(other, Gymnasium(hosted.Linear))
    assert said.startswith("the environment declares no time limit: an episode has 20 steps")


class Tired(hosted.Linear):
    """It is cut off after a number of steps that depends on where it starts."""

    def step(self, action):
        return *super().step(action)[:3], self._time == 20 + self._first, {}

    def reset(self, *, seed=None, options=None):
        first = super().reset(seed=seed)
        self._first = int(5 * abs(self._state[0]))
        return first


class Stuck(Tired):
    """It is cut off after five steps from some starts, and never from the others."""

    def step(self, action):
        return *hosted.Linear.step(self, action)[:3], self._time == 5 and self._first > 1, {}


def test_a_time_limit_that_is_not_declared_is_found():
    """In a random rollout, if episodes are truncated at the same step, whether or not others terminate before."""
    assert defaults(Gymnasium(hosted.Linear), steps=120)["env.episode_length"] == 50
    assert defaults(Gymnasium(hosted.Linear), steps=60, history=1, repeat=2)["env.episode_length"] == 50
    assert defaults(Gymnasium(hosted.OneOrEndless), steps=30)["env.episode_length"] == 5
    for kind, steps in ((hosted.Walk, 20), (hosted.Ramp, 20), (hosted.Linear, 40), (Tired, 60), (Stuck, 40)):
        assert "env.episode_length" not in defaults(Gymnasium(kind), steps=steps)


def test_it_is_found_for_an_agent_that_needs_nothing_else(capsys):
    assert moca.SAC(hosted.Linear())._build(100).env.episode_length == 50
    assert moca.SAC(hosted.Linear(), env__episode_length=30)._build(60).env.episode_length == 30
    main(["train", "--env", "tests.envs.hosted:Linear", "--agent", "sac", "--dry-run"])
    said = capsys.readouterr()
    assert json.loads(said.out)["env"]["episode_length"] == 50
    assert "Linear declares no time limit: looking for one in short episodes\n" in said.err
    assert "a step takes" not in said.err


class Slow(hosted.Linear):
    """Its steps take as many seconds as it is told to, and its resets ten times as long, by a clock of its own."""

    clock, seconds, steps = 0.0, 0.0, 0

    def reset(self, *, seed=None, options=None):
        Slow.clock += 10 * self.seconds
        return super().reset(seed=seed)

    def step(self, action):
        Slow.clock += self.seconds
        Slow.steps += 1
        return super().step(action)


@pytest.mark.parametrize(
    ("seconds", "steps", "said"),
    [
        (0.001, 16 * 500, None),
        (0.003, 8 * 500, "a step takes 3 ms, so there are only 8 episodes of 500 steps: 4000 in all, in about 12 s"),
        (0.0033, 8 * 500, "a step takes 3.3 ms, so there are only 8 episodes of 500 steps"),
        (0.1, 2 * 62, "a step takes 100 ms, so there are only 2 episodes of 62 steps: 124 in all, in about 14 s"),
    ],
)
def test_a_slow_environment_is_tried_in_twenty_seconds(seconds, steps, said, monkeypatch):
    monkeypatch.setattr(Slow, "seconds", seconds)
    monkeypatch.setattr(defaults_of, "perf_counter", lambda: Slow.clock, raising=False)
    monkeypatch.setattr(defaults_of, "refuse_broken", lambda *_: [])
    monkeypatch.setattr(Slow, "clock", 0.0)
    monkeypatch.setattr(Slow, "steps", 0)
    told = []
    found = measured("tuned", Gymnasium(Slow), {"agent": "sac", "env.random_start": 0}, told.append)
    assert found.get("env.episode_length") == 50
    assert Slow.steps - min(20, math.ceil(2 / seconds)) == pytest.approx(steps, abs=1)
    assert told[0].startswith("Slow declares no time limit")
    assert [each.startswith(said) for each in told[1:]] == [True] * (said is not None)


def test_ranges_of_a_slow_environment_come_from_fewer_steps(monkeypatch):
    monkeypatch.setattr(Slow, "seconds", 0.01)
    monkeypatch.setattr(defaults_of, "perf_counter", lambda: Slow.clock, raising=False)
    told = []
    found = defaults(Gymnasium(Slow), history=1, tell=told.append)
    assert len(found["value.low"]) == 2 * 17
    assert told == ["a step takes 10 ms, so there are only 2 episodes of 250 steps: 1000 in all, in about 10 s"]


def test_a_module_named_to_the_check_is_imported(tmp_path, monkeypatch):
    (tmp_path / "ownworld.py").write_text("from tests.envs.hosted import Linear\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert not [each for each in moca.check_env("ownworld:Linear", steps=20) if each.severity == "fault"]
    with pytest.raises(ConfigError, match="cannot import 'nowhere'"):
        moca.check_env("nowhere:Linear")


def test_an_environment_of_ones_own_goes_by_the_name_of_its_class():
    assert Gymnasium(hosted.Linear).title == "Linear"


def test_a_compiled_environment_has_whole_episodes_only_and_all_is_said_at_once(tmp_path):
    given = config(train__steps=70, env__action_repeat=4)
    message = (
        "env.action_repeat = 4 must divide env.episode_length = 30, and train.steps = 70 must be a multiple of "
        "env.episode_length = 30: try env.episode_length = 32 and train.steps = 64"
    )
    with pytest.raises(ConfigError, match=message):
        moca.train(given, tmp_path / "run", env=RampInJax())
    assert not (tmp_path / "run").exists()
    with pytest.raises(ConfigError, match=message):
        ScanTrainer([given], [0], RampInJax())


def test_the_environments_own_limit_is_the_length_of_an_episode(capsys):
    assert moca.SAC("Pendulum-v1")._build(1000).env.episode_length == 200
    assert moca.SAC(gymnasium.make("Pendulum-v1", max_episode_steps=50))._build(1000).env.episode_length == 50
    assert moca.SAC("Pendulum-v1", env__episode_length=100)._build(1000).env.episode_length == 100
    assert moca.SAC(hosted.Ramp())._build(1500).env.episode_length == 1000  # which says nothing of a limit
    main(["train", "--env", "Pendulum-v1", "--agent", "sac", "--steps", "1030", "--action-repeat", "3", "--dry-run"])
    settings = json.loads(capsys.readouterr().out)
    assert (settings["env"]["episode_length"], settings["train"]["steps"]) == (200, 1030)


# Observations of several parts


class Parts(hosted.Walk):
    """A Walk that shows its state in three parts."""

    def __init__(self):
        super().__init__()
        one = Box(-10.0, 10.0, (1,), np.float64)
        self.observation_space = Dict(first=one, second=Tuple([one, Discrete(2)]))

    def reset(self, *, seed=None, options=None):
        return self._split(*super().reset(seed=seed))

    def step(self, action):
        return self._split(*super().step(action))

    def _split(self, observation, *rest):
        return {"first": observation[:1], "second": (observation[1:], np.int64(self._time % 2))}, *rest


def test_parts_are_flattened_on_request():
    flat, plain = Gymnasium(Parts, flatten=True).vector(2), Gymnasium(hosted.Walk).vector(2)
    assert Gymnasium(Parts, flatten=True).observation_size == 4
    actions = drawn(hosted.Walk().action_space, 2, 20)
    first, expected = flat.reset([1, 2]), plain.reset([1, 2])
    np.testing.assert_array_equal(first, np.hstack([expected, [[1, 0], [1, 0]]]))  # in the order of the space; one-hot
    for action in actions:
        ours, theirs = flat.step(action), plain.step(action)
        np.testing.assert_array_equal(ours.observation[:, :2], theirs.observation)
        np.testing.assert_array_equal(ours.current[:, :2], theirs.current)
        np.testing.assert_array_equal(ours.reward, theirs.reward)


def test_the_setting_reaches_training_and_a_loaded_run(tmp_path, capsys):
    gymnasium.register("MocaParts-v0", entry_point=Parts, max_episode_steps=30)
    settings = {name.replace(".", "__"): value for name, value in flatten(config()).items() if name in KEPT}
    agent = moca.SAC("MocaParts-v0", env__flatten=True, out=tmp_path / "run", **settings).learn(30)
    assert agent.run.environment.observation_size == 4
    assert moca.load(tmp_path / "run").predict([0.0, 0.0, 1.0, 0.0]).shape == (2,)
    again = moca.load(tmp_path / "run", env=gymnasium.make("MocaParts-v0"))
    assert again.environment.observation_size == 4
    named = Gymnasium("MocaParts-v0", flatten=True)  # the object tells the config
    assert moca.train(config(train__steps=30), tmp_path / "object", env=named).config.env.flatten
    with pytest.raises(ConfigError, match=r"not Dict\(first, second\).*env__flatten=True"):
        moca.SAC("MocaParts-v0")
    main(["train", "--env", "MocaParts-v0", "--set", "env.flatten=true", "--dry-run"])
    assert len(json.loads(capsys.readouterr().out)["value"]["low"]) == 4


KEPT = ("belief.filter", "sac.width", "train.batch", "train.warmup", "train.eval_episodes")


# An environment of a module


MODULE = """
import gymnasium
from moca.envs.environment import Environment
from tests.envs.hosted import Walk

class Unlucky(Walk):
    def __init__(self):
        raise RuntimeError("no licence")

class Sized(Walk):
    def __init__(self, size):
        super().__init__()

class Drift(__import__("tests.probes").probes.Drift):
    pass

def make():
    return Walk()

def wrong():
    return 3

number = 3
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "moca_own_tasks.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    yield "moca_own_tasks"
    sys.modules.pop("moca_own_tasks", None)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("moca_nowhere:Walk", "cannot import 'moca_nowhere', ModuleNotFoundError.*PYTHONPATH=. moca"),
        ("moca_own_tasks.inner:Walk", "No module named 'moca_own_tasks.inner'.*PYTHONPATH=. moca"),
        (
            "moca_own_tasks.py:Walk",
            r"cannot import 'moca_own_tasks.py'.* Name the module without .py: moca_own_tasks:Walk",
        ),
        ("moca_own_tasks:Wlk", r"nor defines it\. Did you mean Walk\? \(its environments are Walk, Unlucky, Sized\)"),
        ("moca_own_tasks:Unlucky", "cannot be made: it raises RuntimeError: no licence .line 8 of moca_own_tasks.py"),
        ("moca_own_tasks:Sized", "needs size: give defaults, or name a function without arguments"),
        ("moca_own_tasks:number", "is 3: it must be an environment class"),
        ("moca_own_tasks:wrong", "returns 3, which is not a gymnasium.Env"),
    ],
)
def test_a_mistake_about_a_class_is_a_sentence_on_the_command_line(module, name, sentence, capsys):
    with pytest.raises(SystemExit) as left:
        main(["train", "--env", name, "--agent", "sac", "--no-filter", "--dry-run"])
    assert left.value.code == 2
    assert re.search(sentence, capsys.readouterr().err)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("x = 1\ndef f(:\n", r"SyntaxError: .*\(moca_own_broken.py, line 2\)$"),
        ("\nimport moca_nowhere\n", r"No module named 'moca_nowhere' \(line 2 of moca_own_broken.py\)$"),
        ("from math import tau, taau\n", r"cannot import name 'taau' .*\(line 1 of moca_own_broken.py\)$"),
        ("import moca_own_tasks\nmoca_own_tasks.Sized()\n", r"TypeError: .*'size' \(line 2 of moca_own_broken.py\)$"),
    ],
)
def test_an_error_inside_a_module_is_not_one_of_finding_it(module, text, sentence, tmp_path):
    (tmp_path / "moca_own_broken.py").write_text(text)
    with pytest.raises(ConfigError, match=sentence):
        import_module_of("moca_own_broken:Walk")


@pytest.mark.parametrize("name", ["Walk", "make"])
def test_the_command_line_takes_a_class_or_a_function(module, name, capsys):
    main(["train", "--env", f"{module}:{name}", "--agent", "sac", "--no-filter", "--dry-run"])
    assert f'"name": "gymnasium:{module}:{name}"' in capsys.readouterr().out
    walk = named(f"gymnasium:{module}:{name}")
    assert isinstance(walk, Gymnasium)
    assert walk.make(render_mode="rgb_array").render_mode == ("rgb_array" if name == "Walk" else None)


def test_a_class_of_ours_is_one_too(module, capsys):
    main(["train", "--env", f"{module}:Drift", "--agent", "sac", "--no-filter", "--dry-run"])
    assert type(named(f"{module}:Drift")).__name__ == "Drift"
    assert isinstance(named(f"{module}:Drift"), probes.Drift)


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (gymnasium.error.DependencyNotInstalled("pip install 'gymnasium[classic_control]'"), r"moca-rl\[gymnasium\]"),
        (ModuleNotFoundError("No module named 'imageio'", name="imageio"), r"moca-rl\[gymnasium\]"),
        (gymnasium.error.DependencyNotInstalled("pip install swig, then gymnasium[box2d]"), r"'gymnasium\[box2d\]'"),
    ],
)  # fmt: skip
def test_a_missing_package_is_named_with_what_brings_it(error, sentence, monkeypatch):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(gymnasium, "make", fail)
    with pytest.raises(ConfigError, match=f"run pip install '?{sentence}'?"):
        Gymnasium("Pendulum-v1")


def test_what_to_install_is_said_once(monkeypatch):
    """Gymnasium's own words for Box2D say it in full."""
    words = 'it is missing, run `pip install swig` followed by `pip install "gymnasium[box2d]"`'
    monkeypatch.setattr(gymnasium, "make", mock.Mock(side_effect=gymnasium.error.DependencyNotInstalled(words)))
    with pytest.raises(ConfigError, match=f"{re.escape(words)}$"):
        Gymnasium("Pendulum-v1")


def test_advice_names_environments_that_exist():
    assert {"LunarLanderContinuous-v3", "MountainCarContinuous-v0"} <= set(gymnasium.registry)


def test_what_rendering_needs_is_named_where_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "pygame", None)
    monkeypatch.delitem(sys.modules, "pygame.gfxdraw", raising=False)
    vector = Gymnasium("Pendulum-v1").vector(1, render_mode="rgb_array")
    vector.reset([0])
    with pytest.raises(ConfigError, match=r"cannot render this environment.*run pip install 'moca-rl\[gymnasium\]'"):
        vector.picture()


@pytest.mark.parametrize(("display", "video"), [("", "dummy"), (":0", None)])
def test_rendering_opens_no_sound_and_no_screen_that_is_not_there(display, video):
    """SDL writes up to ten lines of errors where there is neither."""
    with mock.patch.dict(os.environ, {"DISPLAY": display, "WAYLAND_DISPLAY": ""}), mock.patch("sys.platform", "linux"):
        for name in ("SDL_AUDIODRIVER", "SDL_VIDEODRIVER"):
            os.environ.pop(name, None)
        env = Gymnasium("Pendulum-v1")
        env.vector(1)
        assert "SDL_AUDIODRIVER" not in os.environ
        env.vector(1, render_mode="rgb_array")
        assert os.environ["SDL_AUDIODRIVER"] == "dummy"
        assert os.environ.get("SDL_VIDEODRIVER") == video


def test_the_extra_brings_what_rendering_needs():
    pytest.importorskip("pygame")
    vector = Gymnasium("Pendulum-v1").vector(1, render_mode="rgb_array")
    vector.reset([0])
    assert vector.picture().shape == (500, 500, 3)


def test_nothing_compiles_after_the_first_episode(programs_made_once):
    programs_made_once.clear()
    events = []
    trainer = make_trainer([config()] * 2, [0, 1], Gymnasium(hosted.Walk))
    assert isinstance(trainer, HostTrainer)
    reports = iter(trainer)
    next(reports)
    jax.monitoring.register_event_duration_secs_listener(lambda name, *_, **__: events.append(name))
    assert len(list(reports)) == 2
    assert [name for name in events if "compile" in name or "trace" in name] == []


def test_the_first_step_waits_for_three_programs(monkeypatch):
    """The first episode compiles the others, once, and within `while_compiling`."""
    counts = []

    @contextmanager
    def noted():
        counts.append("later")
        yield

    def counted(programs):
        counts.append(len(built := compiled(programs)))
        return built

    monkeypatch.setattr("moca.drivers.host.compiled", counted)
    trainer = HostTrainer([config()] * 2, [0, 1], Gymnasium(hosted.Walk))
    trainer.while_compiling = noted
    trainer.compile()
    assert counts == [3]
    assert len(list(trainer)) == 3
    assert counts == [3, "later", 5]


# Run directories


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return moca.train(config(seeds=2), tmp_path_factory.mktemp("runs") / "walk", env=Gymnasium("MocaWalk-v0"))


def arrays(path):
    with np.load(path / "policy.npz") as file:
        return [file[name] for name in file.files]


def test_the_directory_brings_the_environment_back_by_its_name(run):
    assert run.config.env.name == "gymnasium:MocaWalk-v0"
    loaded = moca.load(run.path)
    once, again, other = (loaded.evaluate(2, seed=seed) for seed in (7, 7, 8))
    assert once == again
    assert all(a["return_noise_free"] != b["return_noise_free"] for a, b in zip(once, other, strict=True))
    assert [(row["step"], row["seed"]) for row in run.rows] == [(s, seed) for s in (30, 60, 90) for seed in (0, 1)]


def test_different_seeds_are_different_runs(run):
    assert all((leaf[0] != leaf[1]).any() for leaf in arrays(run.path) if leaf.ndim > 1)
    assert run.rows[-1]["return_mean"] != run.rows[-2]["return_mean"]


def test_an_interrupted_run_goes_on_and_equal_seeds_agree(run, tmp_path, monkeypatch):
    """Stopped by a signal in the second episode, then told again: the run that nothing happened to."""
    monkeypatch.setattr(before, "refuse_broken", lambda *given: [])  # whose steps are not counted
    taken = []

    class Stopping(hosted.Walk):
        def step(self, action):
            taken.append(action)
            if len(taken) == 150:
                os.kill(os.getpid(), signal.SIGTERM)
            return super().step(action)

    named = override(config(seeds=2), {"env.name": run.config.env.name})
    with pytest.raises(InterruptedRun, match="SIGTERM at step"):
        moca.train(named, tmp_path / "run", env=Gymnasium(Stopping))
    step = moca.load(tmp_path / "run").directory.status["step"]
    assert 0 < step < 90
    moca.train(named, tmp_path / "run", env=Gymnasium(Stopping))
    assert (tmp_path / "run/metrics.jsonl").read_bytes() == (run.path / "metrics.jsonl").read_bytes()
    for a, b in zip(arrays(tmp_path / "run"), arrays(run.path), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_film_is_gymnasiums_own_drawing(run, tmp_path, monkeypatch):
    path, how, total = run.render(seed=3, path=tmp_path / "film.mp4")
    assert path.stat().st_size > 500
    shown, pictures = run.inspect(3), []
    monkeypatch.setattr(film, "encode", lambda path, frames, *_: pictures.extend(frames))
    run.render(seed=3, path=tmp_path / "film.mp4")
    assert len(pictures) == shown.steps  # not that of the next episode
    assert how == "rendered by Gymnasium"
    assert np.isfinite(total)
    blind = moca.Run(run.directory, Gymnasium(hosted.Walk))
    with pytest.raises(ConfigError, match="render_mode='rgb_array'"):
        blind.render(path=tmp_path / "blind.mp4")
    with pytest.raises(ConfigError, match=r"define render\(\)"):
        moca.Run(run.directory, Gymnasium(hosted.Ramp)).render(path=tmp_path / "blind.mp4")


def test_the_command_line_takes_the_name(capsys):
    main(["train", "--env", "gymnasium:MocaWalk-v0", "--agent", "sac", "--no-filter", "--dry-run"])
    assert '"name": "gymnasium:MocaWalk-v0"' in capsys.readouterr().out


def test_the_config_holds_the_version_that_was_used(capsys, tmp_path):
    """Otherwise a resumed run might get another one, and Gymnasium would warn at every use."""
    main(["train", "--env", "gymnasium:MocaWalk", "--agent", "sac", "--no-filter", "--dry-run"])
    assert '"name": "gymnasium:MocaWalk-v0"' in capsys.readouterr().out
    given = config(env__name="gymnasium:MocaWalk", train__steps=30)
    with mock.patch("moca.runs.launch._train"):
        moca.train(given, tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["env"]["name"] == "gymnasium:MocaWalk-v0"
    assert Gymnasium("moca_tests/Walk").name == "gymnasium:moca_tests/Walk-v0"
    assert named("gymnasium:MocaWalk").title == "MocaWalk-v0"  # as in a run of an older version


def test_a_directory_is_named_after_the_run_and_never_twice(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    named = override(config(), {"env.name": "gymnasium:a/Walk-v0"})
    for expected in ("gymnasium-a-Walk-v0-sac-homoscedastic-0.1", "gymnasium-a-Walk-v0-sac-homoscedastic-0.1-2"):
        path = run_directory(SimpleNamespace(out=None), named)
        assert str(path) == f"runs/{expected}"
        path.mkdir(parents=True)


# Whole runs


@pytest.mark.slow
def test_pendulum_is_learned():
    """From about −1300 of random actions, in a quarter of an hour of the pendulum's time."""
    settings = {
        "train__batch": 128,
        "train__warmup": 500,
        "sac__critic_lr": 1e-3,
        "sac__actor_lr": 1e-3,
        "sac__width": 64,
    }
    lengths = {"env__episode_length": 200, "train__steps": 6000, "train__eval_episodes": 5, "train__eval_every": 10}
    trainer = make_trainer([probes.tiny(env__name="gymnasium:Pendulum-v1", **settings, **lengths)], [0])
    reports = list(trainer)
    assert reports[-1].metrics["return_mean"] > -400


@pytest.mark.slow
@pytest.mark.parametrize("agent", ["moca", "sac"])
def test_seventeen_dimensions_and_six_actions(agent):
    """A linear system, where doing nothing gives −3.1: SAC does better, MoCA comes there from far below."""
    env = Gymnasium(hosted.Linear)
    small = {"critic.width": 32, "dynamics.width": 32, "dynamics.members": 2, "value.bases": 64, "sac.width": 32}
    rates = {"sac.critic_lr": 1e-3, "sac.actor_lr": 1e-3, "train.gamma": 0.95, "train.updates": 1, "train.batch": 64}
    lengths = {"env.episode_length": 100, "env.action_repeat": 1, "train.steps": 8000, "train.warmup": 500}
    settings = {"agent": agent, "belief.filter": False, "train.eval_every": 5}
    config = presets.build("tuned", None, small | rates | lengths | settings, defaults(env))
    reports = list(HostTrainer([config], [0], env))
    assert reports[4].metrics["return_mean"] < -6
    assert reports[-1].metrics["return_mean"] > {"moca": -4, "sac": -2}[agent]


@pytest.mark.slow
def test_half_cheetah():
    """The real one, of 17 observed dimensions and six actions: it runs, and better than at random."""
    pytest.importorskip("imageio")  # which Gymnasium's MuJoCo environments want
    env = Gymnasium("HalfCheetah-v5")
    assert (env.observation_size, env.action_size) == (17, 6)
    settings = {"sac__width": 64, "train__batch": 128, "sac__critic_lr": 1e-3, "sac__actor_lr": 1e-3}
    lengths = {"env__episode_length": 500, "train__steps": 5000, "train__warmup": 1000, "train__eval_every": 10}
    reports = list(HostTrainer([probes.tiny(**settings, **lengths)], [0], env))
    assert reports[-1].metrics["diverged"] == 0
    assert reports[-1].metrics["return_mean"] > reports[0].metrics["train_return"]


@pytest.fixture
def mujocos(monkeypatch):
    """MuJoCo without a function for its warnings, as in a new process."""
    mujoco = pytest.importorskip("mujoco")
    monkeypatch.setattr("moca.envs.mujoco._told", set(), raising=False)
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(None)
    yield mujoco
    mujoco.set_mju_user_warning(before)


def test_mujocos_warnings_are_printed_once_and_leave_no_file(mujocos, tmp_path, monkeypatch, capfd):
    """Others than those of HalfCheetah tell a time, which is another one at every step."""
    pytest.importorskip("imageio")
    monkeypatch.chdir(tmp_path)
    Gymnasium("HalfCheetah-v5").vector(2)
    warn = mujocos.get_mju_user_warning()
    for moment in (0.1, 0.25):
        warn(f"it is unstable. Time = {moment}")
    said = capfd.readouterr().err
    assert said.count("settotalmass") == said.count("it is unstable") == 1
    assert not list(tmp_path.iterdir())


def test_a_function_for_mujocos_warnings_is_kept(mujocos):
    own = mock.Mock()
    mujocos.set_mju_user_warning(own)
    Gymnasium("Pendulum-v1").vector(1)
    assert mujocos.get_mju_user_warning() is own


def test_a_bare_name_of_gymnasiums_is_known(monkeypatch):
    agent = moca.MoCA("Pendulum-v1", env__episode_length=20, critic__width=8, dynamics__width=8)
    assert agent._build(20).env.name == "gymnasium:Pendulum-v1"
    assert len(agent._build(20).value.low) == 3
    with pytest.raises(ConfigError, match=r"Gymnasium has no Pendulum-v9\. Did you mean Pendulum-v1\?"):
        moca.MoCA("Pendulum-v9")
    monkeypatch.setitem(registry.ENVS, "Pendulum-v1", hosted.Walk)  # one that the user registered comes first
    assert registry.full_name("Pendulum-v1") == "Pendulum-v1"


def test_an_environment_that_was_made_is_made_again():
    plain = Gymnasium(gymnasium.make("Pendulum-v1"))
    assert plain.name == "gymnasium:Pendulum-v1"
    assert plain.limit == 200
    heavy = Gymnasium(gymnasium.make("Pendulum-v1", g=20.0, max_episode_steps=50))
    assert heavy.name is None  # a config could not say so
    assert heavy.limit == 50
    one, two = heavy.make(), heavy.make()
    assert one.unwrapped is not two.unwrapped
    assert one.unwrapped.g == 20.0
    bare = gymnasium.make("Pendulum-v1").unwrapped
    bare.spec = None
    assert Gymnasium(bare).make() is not bare
    bare.lock = threading.Lock()  # which cannot be copied
    with pytest.raises(ConfigError, match=r"cannot be copied.*Gymnasium\(lambda"):
        Gymnasium(bare)


def test_agents_take_environments_as_gymnasium_makes_them():
    agent = moca.SAC(gymnasium.make("Pendulum-v1"), belief__filter=False, env__episode_length=200)
    assert agent._env.name == "gymnasium:Pendulum-v1"
    with pytest.raises(ConfigError, match="env must be a name"):
        moca.SAC(gymnasium.Env)
