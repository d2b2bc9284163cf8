"""Gymnasium's environments: our vector against stepping by hand, and the loop on the host against the compiled one."""

import os
import signal
import subprocess
import sys
import threading
from collections import namedtuple
from types import SimpleNamespace

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import moca
from moca import presets
from moca import replay as memory
from moca.agents import make_agent
from moca.cli import main
from moca.config import Config, ConfigError, override, registry
from moca.drivers import HostTrainer, ScanTrainer, make_trainer
from moca.envs.defaults import defaults
from moca.envs.gymnasium import Gymnasium
from moca.loop import LoopState, RunState, StepInfo, finish_episode
from moca.runs.cli import _out
from moca.runs.interrupts import InterruptedRun
from tests import probes
from tests.envs import hosted

gymnasium.register("MocaWalk-v0", entry_point=hosted.Walk)


def config(**settings):
    """The first episode of three is random. Programs of this config are compiled once for all tests."""
    lengths = {"env__episode_length": 30, "train__steps": 90, "train__warmup": 30, "env__action_repeat": 2}
    return probes.tiny(**lengths, **({"sac__width": 8, "noise__sigma": 0.1} | settings))


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
        (spaces(observation=Dict(a=Box(-1, 1, (2,)))), "observations must be a Box, not Dict.*FlattenObservation"),
        (spaces(observation=Discrete(3)), "observations must be a Box, not Discrete"),
        (spaces(action=Discrete(3)), "actions must be a Box of real numbers, not Discrete.*MountainCarContinuous-v0"),
        (spaces(action=Box(0, 3, (1,), np.int32)), "actions must be a Box of real numbers"),
        (spaces(action=Box(-np.inf, 1, (1,))), "finite bounds, low below high, not .*TransformAction"),
        (spaces(action=Box(1, 1, (1,))), "finite bounds, low below high"),
        ("Pendulum-v9", r"Gymnasium has no Pendulum-v9\. Did you mean Pendulum-v1\?"),
        ("Pndlum-v1", r"Did you mean Pendulum-v1\?"),
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
    for wrong in ("gymnasium:", "gymnasum:Pendulum-v1", "Pendulum-v"):
        with pytest.raises(ConfigError, match="or gymnasium:NAME"):
            override(Config(), {"env.name": wrong})
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
    "settings", [{"noise__action": 0.3}, pytest.param(FILTER | {"train__updates": 2}, marks=pytest.mark.slow)]
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
    learner = jax.tree.map(lambda leaf: leaf[0], trainer.learners)
    found = [float(agent.value(learner, jnp.array([state]))) for state in (-1.0, 1.0)]
    np.testing.assert_allclose(found, [1, 1 / (1 - GAMMA)], atol=0.3)


def test_what_is_stored_keeps_the_true_last_observation(judged):
    _, trainer, _ = judged
    rows = memory.read(jnp.asarray(trainer.state.replay)[0], jnp.arange(2500), 1, 1)
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
    same = report.metrics["return_mean"] == report.metrics["return_noise_free"]
    assert same.tolist() == [True, False]
    exact, noisy = (memory.read(replay, jnp.arange(15), 2, 2) for replay in jnp.asarray(trainer.state.replay))
    first = np.asarray(trainer.state.replay)[0, ::15, :2]
    assert len(np.unique(first)) == 6  # every episode begins elsewhere
    np.testing.assert_array_equal(exact.action, noisy.action)
    np.testing.assert_array_equal(exact.reward, noisy.reward)
    np.testing.assert_array_equal(exact.terminated, noisy.terminated)
    difference = np.asarray(noisy.next_observation - exact.next_observation)
    np.testing.assert_allclose(difference.std(), 0.5, rtol=0.3)
    assert len(set(difference.ravel().round(5))) == 30
    action = np.asarray(memory.read(jnp.asarray(trainer.state.replay)[0], jnp.arange(45), 2, 2).action)
    np.testing.assert_allclose([action.min(0), action.max(0)], [[-1.0, 0.5], [2.0, 3.0]], atol=0.3)


def test_the_noise_level_is_learned_from_whole_episodes():
    """The filter begins anew after a time limit, too: the agent is told where, and only there."""
    ended = (jnp.arange(15) % 4 == 3).astype(jnp.float32)
    filter_ = SimpleNamespace(learn_noise=lambda _, e: e.terminated)
    told = SimpleNamespace(config=config(), env=Gymnasium(hosted.Walk), diagnose=lambda *_: {}, filter=filter_)
    replay = memory.empty(45, 2, 2, filtered=False)
    learner = namedtuple("Learner", "model")(jnp.zeros(15))
    state = RunState(learner, jnp.array(0), replay, jax.random.key(0))
    totals = StepInfo(jnp.ones(()), jnp.ones(()), {})
    loop = LoopState(None, learner, replay)
    for given, expected in ((ended, ended), (None, jnp.zeros(15))):
        after, _ = finish_episode(told, state, loop, jnp.array(1), totals, given)
        np.testing.assert_array_equal(after.learner.model, expected)


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


def test_nothing_compiles_after_the_first_episode():
    events = []
    trainer = make_trainer([config()] * 2, [0, 1], Gymnasium(hosted.Walk))
    assert isinstance(trainer, HostTrainer)
    reports = iter(trainer)
    next(reports)
    jax.monitoring.register_event_duration_secs_listener(lambda name, *_, **__: events.append(name))
    assert len(list(reports)) == 2
    assert [name for name in events if "compile" in name or "trace" in name] == []
    assert trainer.memory() > trainer.state.replay.nbytes


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


def test_an_interrupted_run_goes_on_and_equal_seeds_agree(run, tmp_path):
    """Stopped by a signal in the second episode, then told again: the run that nothing happened to."""
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


def test_a_film_is_gymnasiums_own_drawing(run, tmp_path):
    path, how, total = run.render(seed=3, path=tmp_path / "film.mp4")
    assert path.stat().st_size > 500
    assert how == "rendered by Gymnasium"
    assert np.isfinite(total)
    blind = moca.Run(run.directory, Gymnasium(hosted.Walk))
    with pytest.raises(ConfigError, match="render_mode='rgb_array'"):
        blind.render(path=tmp_path / "blind.mp4")


def test_the_command_line_takes_the_name(capsys):
    main(["train", "--env", "gymnasium:MocaWalk-v0", "--agent", "sac", "--no-filter", "--dry-run"])
    assert '"name": "gymnasium:MocaWalk-v0"' in capsys.readouterr().out


def test_a_directory_is_named_after_the_run_and_never_twice(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    named = override(config(), {"env.name": "gymnasium:a/Walk-v0"})
    for expected in ("gymnasium-a-Walk-v0-sac-homoscedastic-0.1", "gymnasium-a-Walk-v0-sac-homoscedastic-0.1-2"):
        path = _out(SimpleNamespace(out=None), named)
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
def test_half_cheetah(tmp_path, monkeypatch):
    """The real one, of 17 observed dimensions and six actions: it runs, and better than at random."""
    pytest.importorskip("imageio")  # which Gymnasium's MuJoCo environments want
    monkeypatch.chdir(tmp_path)  # MuJoCo leaves a log
    env = Gymnasium("HalfCheetah-v5")
    assert (env.observation_size, env.action_size) == (17, 6)
    settings = {"sac__width": 64, "train__batch": 128, "sac__critic_lr": 1e-3, "sac__actor_lr": 1e-3}
    lengths = {"env__episode_length": 500, "train__steps": 5000, "train__warmup": 1000, "train__eval_every": 10}
    reports = list(HostTrainer([probes.tiny(**settings, **lengths)], [0], env))
    assert reports[-1].metrics["diverged"] == 0
    assert reports[-1].metrics["return_mean"] > reports[0].metrics["train_return"]


def test_check_env_asks_gymnasiums_own_checker():
    assert [fault for fault in moca.check_env("gymnasium:Pendulum-v1") if fault.severity == "fault"] == []

    class Deaf(gymnasium.Env):
        """Its observations are not of its space."""

        observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
        action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return np.full(2, 7.0, np.float32), {}

        def step(self, action):
            return np.zeros(2, np.float32), 0.0, False, False, {}

    (fault,) = [fault for fault in moca.check_env(Gymnasium(Deaf)) if fault.severity == "fault"]
    assert "Gymnasium's checker stops at" in fault.message
    (fault,) = moca.check_env(Deaf())  # not wrapped
    assert "Gymnasium(lambda: …)" in fault.message
    with pytest.raises(ConfigError, match="not a valid"):
        moca.check_env(Gymnasium(Deaf), strict=True)
    with pytest.raises(ConfigError, match="Did you mean Pendulum-v1"):
        moca.check_env("gymnasium:Pendulun-v1")


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
