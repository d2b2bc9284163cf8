"""Agents as objects: what they answer is what the agent's own functions say, before and after a trip to the disk."""

import gc
import json
from types import SimpleNamespace

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import moca
from moca import api
from moca import moments as mm
from moca.agents import make_agent
from moca.config import AGENTS, Config, ConfigError, override
from moca.envs.environment import make_noise
from moca.evaluation import rollout
from moca.runs.interrupts import DivergedRun
from tests import probes
from tests.test_deploy import Plane, stored

SMALL = {
    "env.episode_length": 20,
    "env.action_repeat": 1,
    "train.batch": 16,
    "train.warmup": 10,
    "train.eval_episodes": 2,
    "critic.width": 8,
    "dynamics.width": 8,
    "dynamics.members": 2,
    "value.bases": 8,
}


class Wide(probes.Drift):
    """With bounds that are not symmetric."""

    action_low: tuple[float, ...] = eqx.field(static=True, default=(-1.0,))
    action_high: tuple[float, ...] = eqx.field(static=True, default=(3.0,))


OBSERVATIONS = np.random.default_rng(0).uniform(-1, 1, (5, 2))


@pytest.fixture(scope="module")
def agent():
    return moca.MoCA(Wide(), seeds=2, settings=SMALL, noise__sigma=0.1).learn(60)


def member(agent, run):
    """The agent and the learner of one of its runs, from the disk."""
    env, learners = agent.run.environment, agent.run.learners
    return make_agent(agent.config, env), jax.tree.map(lambda leaf: leaf[run], learners)


def test_the_settings_are_those_of_the_preset_the_look_and_the_user(agent):
    stored = json.loads((agent.run.path / "config.json").read_text())
    assert (stored["critic"]["head"], stored["critic"]["width"]) == ("slope", 8)  # of the preset; of the user
    assert len(stored["value"]["low"]) == 2  # of the look: there is no preset
    assert (stored["noise"]["sigma"], stored["train"]["steps"], stored["seeds"]) == (0.1, 60, 2)
    assert stored["env"]["name"] == "own:Wide"
    assert [row["seed"] for row in agent.rows] == [0, 1] * 3
    assert agent.config.train.steps == 60


@pytest.mark.parametrize("run", [0, 1])
def test_answers_for_one_and_for_many(agent, run):
    pure, learner = member(agent, run)
    actions, values = agent.predict(OBSERVATIONS, run), agent.value(OBSERVATIONS, run)
    assert actions.shape == (5, 1)
    assert values.shape == (5,)
    for observation, action, value in zip(OBSERVATIONS.astype(np.float32), actions, values, strict=True):
        np.testing.assert_allclose(action, pure.act(learner, observation), atol=1e-6)
        np.testing.assert_allclose(value, pure.value(learner, observation), atol=1e-5)
        np.testing.assert_allclose(agent.predict(observation, run), action, atol=1e-6)
        np.testing.assert_allclose(agent.value(list(observation), run), value, atol=1e-5)
    assert agent.predict(OBSERVATIONS[None], run).shape == (1, 5, 1)
    actions[0] = 7.0  # a copy that is the caller's own


def test_parameters_are_copies_by_path(agent):
    found = agent.get_parameters(1)
    stored = np.load(agent.run.path / "policy.npz")
    assert set(found) == set(stored)
    for name, array in found.items():
        np.testing.assert_array_equal(array, stored[name][1])
        array[...] = 0
    assert any(array.any() for array in agent.get_parameters(1).values())


def test_actions_stay_within_the_bounds(agent):
    actions = agent.predict(100 * OBSERVATIONS)
    assert np.all((actions >= -1) & (actions <= 3))
    assert np.ptp(actions) > 2


@pytest.mark.parametrize("run", [0, 1])
def test_a_policy_follows_an_episode_as_the_evaluation_does(agent, run):
    pure, learner = member(agent, run)
    env, key = Wide(), jax.random.key(3)
    noise = make_noise(agent.config.noise, 2)
    _, episode = rollout(pure, learner, env, noise, 20, key)
    reset_key, noise_key = jax.random.split(key, 4)[:2]
    normals = jax.random.normal(noise_key, (21, 2))
    policy = agent.policy(run)
    for _ in range(2):  # the second time as the first, after a reset
        policy.reset()
        assert policy.belief is None
        state, observation = env.reset(reset_key)
        seen = []
        for normal in normals[:-1]:
            state, (observation, reward, _) = env.step(state, policy(noise(observation, normal)))
            seen.append(reward)
        np.testing.assert_allclose(seen, episode.reward, atol=1e-5)
    assert policy.belief.covariance.shape == (2, 2)


def test_a_policy_says_what_it_is(agent):
    policy = agent.policy(1)
    assert repr(policy) == f"FollowingPolicy(run 1 of {str(agent.run.path)!r}, before the first observation)"
    policy(np.zeros(2))
    assert repr(policy).endswith("within an episode)")
    policy.reset()
    assert repr(policy).endswith("before the first observation)")


def test_nothing_is_compiled_twice(agent):
    policies = [agent.policy(0), agent.policy(1)]

    def ask():
        for run, policy in enumerate(policies):
            policy.reset()
            for observation in OBSERVATIONS:
                policy(observation)
                agent.predict(observation, run)
            agent.predict(OBSERVATIONS, run)
            agent.value(OBSERVATIONS, run)
            agent.model.predict(OBSERVATIONS, np.zeros((5, 1)), run)

    programs = agent.run._programs
    ask()
    before = {name: program._cache_size() for name, program in programs.items()}
    ask()
    assert {name: program._cache_size() for name, program in programs.items()} == before
    assert before["start"] == before["follow"] == 1


def test_the_model_gives_the_predictive_gaussian_in_its_parts(agent):
    _, learner = member(agent, 1)
    acts = np.random.default_rng(1).uniform(-1, 3, (5, 1))
    batch = agent.model.predict(OBSERVATIONS, acts, run=1)
    assert batch.covariance.shape == batch.aleatoric.shape == (5, 2, 2)
    for number in range(5):
        matched = mm.moment_match(mixture_of(learner, OBSERVATIONS[number], acts[number]), full=True)
        one = agent.model.predict(OBSERVATIONS[number], acts[number], run=1)
        for found in (one, moca.runs.answers.Prediction(*(part[number] for part in batch))):
            np.testing.assert_allclose(found.mean, matched.mean, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(found.covariance, matched.covariance, rtol=1e-4, atol=1e-7)
            np.testing.assert_allclose(found.aleatoric + found.epistemic, found.covariance, rtol=1e-6)
    means = mixture_of(learner, OBSERVATIONS[0], acts[0]).components.mean
    np.testing.assert_allclose(np.diagonal(batch.epistemic[0]), np.var(means, axis=0), rtol=1e-3)


def mixture_of(learner, observation, action):
    """The members' predictions; they see actions in [−1, 1]."""
    return learner.model.ensemble.predict(jnp.float32(observation), jnp.float32((action - 1) / 2))


def test_saved_and_loaded_it_says_the_same(agent, tmp_path):
    path = agent.save(tmp_path / "kept")
    assert not (path / "checkpoints").exists()
    again = moca.load(path, env=Wide())
    np.testing.assert_array_equal(again.predict(OBSERVATIONS, 1), agent.predict(OBSERVATIONS, 1))
    np.testing.assert_array_equal(again.value(OBSERVATIONS), agent.value(OBSERVATIONS))
    assert again.rows == agent.rows
    with pytest.raises(ConfigError, match="already exists"):
        agent.save(path)
    with pytest.raises(ConfigError, match="your own environment"):
        moca.load(path).predict(OBSERVATIONS)
    exported = moca.Policy.load(agent.export(tmp_path / "policy.npz", run=1))
    np.testing.assert_allclose(exported.act(OBSERVATIONS), agent.predict(OBSERVATIONS, 1), atol=1e-5)


def test_mistakes_are_sentences(agent, tmp_path):
    env = Wide()
    for make, message in [
        (lambda: agent.learn(0), "steps = 0 is out of range"),
        (lambda: agent.predict([1.0, 2.0, 3.0]), r"an observation must have 2 numbers, got an array of shape \(3,\)"),
        (lambda: agent.predict(OBSERVATIONS, run=2), "run = 2 is out of range"),
        (lambda: agent.policy(2), "run = 2 is out of range"),
        (lambda: agent.policy()(OBSERVATIONS), "expected one observation"),
        (lambda: agent.model.predict(OBSERVATIONS, np.zeros((4, 1))), "one action per observation"),
        (lambda: moca.MoCA("CartpoleBalnce"), "Did you mean CartpoleBalance?"),
        (lambda: moca.load(agent.run.path, env="Wide"), "environment of moca's classes"),
        (lambda: moca.MoCA(Wide), r"env must be a name.*; pass an environment, as in Wide\(\)"),
        (lambda: moca.MoCA("CartpoleBalance", tensorboard_log="logs"), r"are always written.*docs/from-sb3\.md"),
        (
            lambda: moca.SAC("MlpPolicy", "Pendulum-v1"),
            r"as in moca\.SAC\('Pendulum-v1'\): there are no policy classes: sac__width and .*from-sb3",
        ),
        (lambda: moca.SAC(policy="MlpPolicy", env="Pendulum-v1"), "moca.SAC: there are no policy classes: sac__width"),
        (lambda: moca.BNAF("MlpPolicy", env), "there are no policy classes: critic__width and other settings make"),
        (
            lambda: moca.SAC(env).learn(total_timesteps=100),
            r"call it steps, as in learn\(steps=20_000\)\. docs/from-sb3",
        ),
        (lambda: agent.learn(20, progress_bar=True), "pass progress=True to learn"),
        (lambda: agent.run.learn(20, reset_num_timesteps=False), "a second call of learn continues training"),
        (
            lambda: agent.predict(OBSERVATIONS, deterministic=True),
            "deterministic cannot be set in predict: actions are",
        ),
        (lambda: agent.run.predict(OBSERVATIONS, state=None), r"agent\.policy\(\) follows an episode"),
        (lambda: agent.inspect(beside=3), "beside = 3 must be a run"),
        (lambda: moca.MoCA(env, critic__ls=1.0), "Did you mean critic.lr, "),
        (lambda: moca.MoCA(env, critic__lr=-1.0), "critic.lr = -1 is out of range"),
        (lambda: moca.MoCA(env, settings={"agent": "sac"}), "choose the class, such as moca.SAC"),
        (lambda: moca.MoCA(env, settings={"train.steps": 100}), "pass it to learn"),
        (lambda: moca.MoCA(env, preset="tund"), "Did you mean tuned?"),
        (lambda: moca.MoCA(env, start="runs/first"), "must be an agent that has learned, or a run"),
        (lambda: agent.get_parameters(2), "run = 2 is out of range"),
        (lambda: moca.SAC(env).learn(1500), "must be a multiple of env.episode_length = 1000"),
        (lambda: moca.SAC(env).predict(OBSERVATIONS), "call learn"),
    ]:
        with pytest.raises(ConfigError, match=message):
            make()


def test_two_agents_side_by_side_and_in_a_few_words(agent):
    page = agent.inspect(2, steps=3, beside=agent, beside_run=1)
    assert repr(page) == "Inspection(episode 2 of Wide: MoCA, MoCA; 3 steps)"
    assert repr(page.views[1]).startswith("View(MoCA: seed 1, σ = 0.1")
    assert len(repr(page.views)) < 300


def test_an_agent_without_a_model_says_so(tmp_path):
    config = override(Config(), {"agent": "sac", "sac.width": 8, "env.name": "own:Plane"})
    run = stored(tmp_path / "run", config, Plane())
    with pytest.raises(ConfigError, match="sac without a filter has no model of the next state"):
        run.model.predict(np.zeros(3), np.zeros(2))


def test_the_settings_can_be_read_before_the_first_learn():
    agent = moca.SAC("CartpoleBalance", seeds=3, sac__width=8)
    assert (agent.config.agent, agent.config.seeds, agent.config.sac.width) == ("sac", 3, 8)
    assert agent.config.train.steps == agent.config.env.episode_length
    assert moca.SAC(Wide(), env__action_repeat=2, env__episode_length=20).config.env.name == "own:Wide"
    hosted = moca.SAC(gymnasium.make("Pendulum-v1")).config  # as config.json has it later
    assert (hosted.env.name, hosted.env.episode_length) == ("gymnasium:Pendulum-v1", 200)


def test_each_agent_has_a_class_and_a_temporary_run_goes_with_it(monkeypatch):
    seen, run = [], SimpleNamespace(directory=SimpleNamespace(status={}))
    monkeypatch.setattr(api, "train", lambda config, out, **_: seen.append((config.agent, out)) or run)
    names = {"MoCA": "moca", "MoCACE": "moca-ce", "MoCAMC": "moca-mc", "MoCAMixture": "moca-mixture"}
    names["MoCAPlan"] = "moca-plan"
    for name in [*names, "BNAF", "NAF", "SAC"]:
        learned = getattr(moca, name)("CartpoleBalance").learn(1000)
        assert learned.run is run
        agent, path = seen[-1]
        assert agent == names.get(name, name.lower())
        assert path.is_dir()
        del learned
        gc.collect()
        assert not path.exists()
    assert {*names, "SAC", "load", "pretrained"} <= set(dir(moca))
    made = [each.agent for each in vars(api).values() if isinstance(each, type) and issubclass(each, moca.MoCA)]
    assert sorted(made) == sorted(AGENTS)


class Listed(Wide):
    """Its reward is a list of one."""

    def step(self, state, action):
        state, step = super().step(state, action)
        return state, step._replace(reward=step.reward[None])


def test_a_broken_environment_is_refused_before_anything_is_written(tmp_path):
    for env, said in ((Listed(), "instead of ()"), (Wide(action_low=(3.0,), action_high=(-1.0,)), "swap")):
        with pytest.raises(ConfigError, match="cannot be trained on") as refused:
            moca.train(override(Config(), SMALL | {"agent": "sac", "train.steps": 60}), tmp_path / "run", env=env)
        assert said in str(refused.value)
    for name in ("own:Wide", "gymnasium:Nothing-v0"):
        with pytest.raises(ConfigError, match=r"used from Python|Gymnasium has no"):
            moca.train(override(Config(), {"agent": "sac", "env.name": name}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


class Cold(Wide):
    """Its rewards are not numbers in an episode that starts on the wrong side."""

    side: float = -2.0

    def reset(self, key):
        state, observation = super().reset(key)
        return jnp.where(state[0] > self.side, jnp.nan, state), observation


@pytest.mark.slow
def test_runs_that_diverged_are_told_of():
    small = {name: value for name, value in SMALL.items() if not name.startswith("value.")}
    with pytest.raises(DivergedRun, match=r"the run \(seed 0\) diverged by step 20: the environment"):
        moca.SAC(Cold(), settings=small, sac__width=8).learn(40)
    with pytest.warns(RuntimeWarning, match=r"[123] of 4 runs diverged and were stopped: seed . by step 20"):
        moca.SAC(Cold(side=0.0), seeds=4, settings=small, sac__width=8).learn(20)
