"""An episode as a page: its numbers are those of the agent's own functions, and it says what an agent does not have."""

import base64
import dataclasses
import html
import json
import re
from pathlib import Path
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import moca
from moca import belief as filtering
from moca import moments as mm
from moca.agents import make_agent
from moca.cli import main
from moca.config import Config, ConfigError, override
from moca.critic import first
from moca.dynamics import Statistics
from moca.envs.environment import ActionRepeat, make_noise
from moca.envs.gymnasium import Gymnasium
from moca.envs.history import with_history
from moca.envs.playground import Playground
from moca.envs.sensors import make_sensor
from moca.evaluation import rollout
from moca.presets import build
from moca.replay import Transition
from moca.runs import film, inspection
from moca.runs.directory import RunDirectory
from moca.runs.inspection.episode import describe
from moca.runs.inspection.page import _refuse_stranger
from tests import probes
from tests.envs import hosted

SMALL = {
    "env.name": "own:Two", "env.episode_length": 12, "env.action_repeat": 1, "train.steps": 120, "noise.sigma": 0.1,
    "noise.action": 0.3, "critic.width": 8, "critic.head": "slope", "dynamics.width": 8, "dynamics.members": 3,
    "sac.width": 8, "value.kind": "rbf", "value.bases": 8, "value.low": (-1.0, -1.0), "value.high": (1.0, 1.0),
    "value.lengthscales": (1.0, 1.0),
}  # fmt: skip


class Two(probes.Drift):
    """With two actions, whose bounds are not symmetric."""

    action_low: tuple[float, ...] = eqx.field(static=True, default=(-1.0, 0.5))
    action_high: tuple[float, ...] = eqx.field(static=True, default=(3.0, 2.5))


class Ending(Two):
    """Which ends when it is told to, and has no reward that is a number afterwards."""

    terminates: bool = eqx.field(static=True, default=True)

    def reset(self, key):
        return (jnp.zeros(()), jnp.ones(2)), jnp.ones(2)

    def step(self, state, action):
        time, place = state
        step = super().step(place, action)[1]
        reward = jnp.where(time < 5, step.reward, jnp.nan)
        return (time + 1, step.observation), step._replace(reward=reward, terminated=time >= 4)


def learned(config, env, count):
    """What agents have learned, as it were: how they begin, with random numbers on top."""
    rng = np.random.default_rng(0)
    more = lambda leaf: leaf + 0.5 * np.abs(rng.normal(size=leaf.shape)).astype(np.float32)  # noqa: E731
    learners = jax.vmap(make_agent(config, env).init)(jax.random.split(jax.random.key(1), count))
    if config.agent != "sac":
        values = (learners.critics.value, learners.targets)
        learners = eqx.tree_at(lambda s: (s.critics.value, s.targets), learners, jax.tree.map(more, values))
    if learners.model is not None:
        mean, spread = more(learners.model.ensemble.statistics.mean), np.array([[0.8], [0.2]], np.float32)
        known = Statistics(jnp.ones(count), mean, mean**2 + spread**2)
        learners = eqx.tree_at(lambda s: s.model.ensemble.statistics, learners, known)
    return learners


def write(path, config, env, count=1):
    """A run directory with such agents."""
    directory = RunDirectory(path)
    with directory.locked():
        directory.begin(config, [{"seed": seed} for seed in range(count)])
    directory.save_policy(learned(config, env, count))
    return moca.load(path, env if config.env.name.startswith("own:") else None)


@pytest.fixture(scope="module")
def make(tmp_path_factory):
    """Runs, each made once."""
    made = {}

    def run(agent, env=None, count=1, **settings):
        key = (agent, type(env), count, tuple(settings.items()))
        if key not in made:
            changed = SMALL | {"agent": agent} | {name.replace("__", "."): value for name, value in settings.items()}
            path = tmp_path_factory.mktemp("run") / "run"
            made[key] = write(path, override(Config(), changed), env or Two(), count)
        return made[key]

    return run


def pure(run, number=0):
    """The agent and what it learned."""
    env, learners = run.environment, run.learners
    return make_agent(run.config, env), jax.tree.map(lambda leaf: jnp.asarray(leaf[number]), learners)


def held(page):
    """What the script of the page is given, with its arrays."""
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page.html)[1])
    for view in data["views"]:
        view["arrays"] = {
            name: np.frombuffer(base64.b64decode(array["data"]), "<f4").reshape(array["shape"])
            for name, array in view["arrays"].items()
        }
    return data


@pytest.mark.parametrize("filters", [False, True])
def test_the_numbers_in_the_page_are_those_of_the_agents_functions(make, filters):
    """The policy followed by hand, and at each step its model, its values and its Q asked by hand."""
    run = make("moca", belief__filter=filters)
    agent, learner = pure(run)
    arrays = held(run.inspect(episode=3))["views"][0]["arrays"]
    env, noise, policy = Two(), make_noise(run.config.noise, 2), run.policy()
    ensemble, target, critic = learner.model.ensemble, first(learner.targets), first(learner.critics)
    keys = jax.random.split(jax.random.key(3), 4)
    normals, disturbances = jax.random.normal(keys[1], (13, 2)), jax.random.normal(keys[2], (12, 2))

    @jax.jit
    def by_hand(state, exact, measured, action, belief, disturbance, normal):
        """What the page should show of a step, and what is there after it."""
        inside = env.from_bounds(action)
        executed = noise.disturb(env, action, disturbance)
        state, step = env.step(state, executed)
        mixture = ensemble.predict(belief.mean, inside)
        expected = {
            "truth": exact, "observed": measured, "believed": belief.mean, "action": action, "executed": executed,
            "reward": step.reward, "value": agent.value(learner, belief.mean), "members": mixture.components.mean,
            "predicted": mixture.mean, "epistemic": mixture.components.mean.std(axis=0), "greedy": action,
        }  # fmt: skip
        expected["following"] = noise(step.observation, normal)
        if filters:
            prior, spread = filtering.predict(ensemble, belief, inside)
            expected["deviation"] = jnp.sqrt(jnp.diagonal(prior.covariance) + 0.1**2)
            expected["uncertainty"] = jnp.sqrt(jnp.maximum(jnp.diagonal(belief.covariance), 0))
            one = jax.tree.map(lambda leaf: leaf[None], mixture)
            anticipated = filtering.anticipate_diagonal(one, jnp.diagonal(spread)[None], jnp.full((1, 2), 0.1**2))
            mixture = jax.tree.map(lambda leaf: leaf[0], anticipated)
        else:
            expected["deviation"] = jnp.sqrt(mm.moment_match(mixture).variance)
        expected["expected"] = mm.expectation(mm.moment_match(mixture), target)
        expected["bias"] = expected["expected"] - target(mixture.mean)
        q = lambda place, d, s=belief.mean, a=inside: critic(s, a.at[d].set(place)) - critic.value(s)  # noqa: E731
        expected["advantage"] = jnp.array([[q(place, d) for place in (-1.0, 0.0, 1.0)] for d in range(2)])
        slope, factor, _ = critic.slice(belief.mean)
        expected["vertex"] = env.to_bounds(jnp.linalg.solve(factor @ factor.T, slope))
        return expected, state, step.observation, expected["following"]

    state, exact = env.reset(keys[0])
    measured = noise(exact, normals[0])
    for t in range(12):
        action = jnp.asarray(policy(measured))
        now = (state, exact, measured, action, policy.belief, disturbances[t], normals[t + 1])
        expected, state, exact, measured = by_hand(*now)
        for name, number in expected.items():
            np.testing.assert_allclose(arrays[name][t], number, rtol=2e-3, atol=2e-4, err_msg=f"{name} at {t}")
        np.testing.assert_allclose(arrays["ahead"][t, 0], expected["predicted"], rtol=2e-3, atol=2e-4)
        known = np.sqrt(arrays["deviation"][t] ** 2 - filters * 0.1**2)
        np.testing.assert_allclose(arrays["ahead_deviation"][t, 0], known, rtol=2e-3, atol=2e-4)
    assert ("uncertainty" in arrays) == filters


def test_gaps_and_shares_are_those_of_the_metrics(make):
    """Root mean squares over the episode are what training calls `action_gap` and `ce_gap`; so with the coverage."""
    run = make("moca")
    agent, learner = pure(run)
    view = run.inspect(episode=1).views[0]
    arrays = view.arrays
    after = jnp.concatenate([arrays["believed"][1:], arrays["following"][-1:]])
    zeros = jnp.zeros(12)
    episode = Transition(arrays["believed"], arrays["action"], zeros, after, zeros)
    told = jax.jit(agent.diagnose)(learner, learner, episode, jax.random.key(0))
    for name in ("action_gap", "ce_gap"):
        np.testing.assert_allclose(np.sqrt(np.mean(arrays[name] ** 2)), told[name], rtol=1e-3)
    np.testing.assert_allclose(arrays["bias"].mean(), told["ce_bias"], rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(view.coverage[1].mean(), 100 * told["coverage_1sigma"], rtol=1e-4)
    inside = np.abs(arrays["following"] - arrays["predicted"]) <= 2 * arrays["deviation"]
    np.testing.assert_allclose(view.coverage[2], 100 * inside.mean(axis=0), rtol=1e-5)
    assert f"{view.coverage[2][1]:.1f} %" in run.inspect(episode=1).html


@pytest.mark.parametrize(
    ("agent", "settings", "there", "said"),
    [
        (
            "sac",
            {},
            {"value"},
            ["SAC has no model", "SAC has no quadratic Q", "SAC has no filter", "SAC has no forecast"],
        ),
        ("sac", {"belief__filter": True}, {"predicted", "uncertainty"}, ["SAC has no quadratic Q", "no E[V(s′)]"]),
        ("bnaf", {}, {"vertex"}, ["BNAF has no model", "BNAF has no filter"]),
        ("bnaf", {"belief__filter": True}, {"vertex", "predicted", "ahead"}, ["there is no E[V(s′)]"]),
        pytest.param("naf", {}, {"vertex"}, ["NAF (tanh) has no model"], marks=pytest.mark.slow),
        ("moca-ce", {"dynamics__covariance": "full"}, {"vertex", "predicted", "expected"}, ["MoCA-CE has no filter"]),
        pytest.param(
            "moca-mixture",
            {"critic__curvature": "full"},
            {"vertex", "expected"},
            ["MoCA (mixture) has no filter"],
            marks=pytest.mark.slow,
        ),
        (
            "moca-mc",
            {"value__basis_lr": 1e-3, "value__kind": "rbf-learned"},
            {"vertex", "expected"},
            [],
        ),
    ],
)
def test_an_agent_shows_what_it_has_and_says_what_it_has_not(make, agent, settings, there, said):
    view = (page := make(agent, **settings).inspect(steps=4)).views[0]
    every = {"uncertainty", "predicted", "vertex", "expected", "ahead"}
    assert there <= view.arrays.keys()
    for sentence in said:
        assert sentence in html.unescape(page.html)
    assert len(view.lacks) == len(every - view.arrays.keys())
    assert len(view.arrays["value"]) == 4
    assert "No video: only MuJoCo and Gymnasium environments can be rendered" in page.html


def test_what_cannot_be_filmed_is_one_sentence(make, tmp_path):
    why = "only MuJoCo and Gymnasium environments can be rendered, not Two; moca inspect shows an episode without"
    with pytest.raises(ConfigError, match=why):
        make("sac").render(path=tmp_path / "film.mp4")


def test_a_run_with_a_history_is_filmed(tmp_path, monkeypatch):
    """The states of the environment within it, without the observations beside them."""

    class Body(probes.Drift):
        @property
        def env(self):
            return SimpleNamespace(mj_model="the body", dt=0.1)

    seen = []
    monkeypatch.setattr(film, "Playground", Body)
    monkeypatch.setattr(film, "_failed", ["no display"])
    monkeypatch.setattr(film, "encode", lambda *_: None)
    monkeypatch.setattr(film, "draw", lambda model, trajectory, returns: seen.extend(s.data for s in trajectory))
    env = with_history(ActionRepeat(Body(), 2), 1, (1.0, 1.0))
    states = SimpleNamespace(data=np.arange(6.0)), np.zeros((6, 4))
    assert "drawn as outlines" in film.write(tmp_path / "film.mp4", env, states, np.ones(6))
    assert seen == list(range(6))
    assert not film.unfilmed(env)


def test_forecasts_are_compared_with_what_then_happened(make):
    """By the number of decisions ahead, with what the agent takes for the state; the page says how often."""
    page = make("moca").inspect(episode=1, ahead=3)
    view, arrays = page.views[0], page.views[0].arrays
    assert arrays["ahead"].shape == (12, 3, 2)
    inside = [
        np.abs(arrays["observed"][t + 3] - arrays["ahead"][t, 2])
        <= 2 * np.sqrt(np.diagonal(arrays["ahead_covariance"][t, 2]))
        for t in range(9)
    ]
    np.testing.assert_allclose(view.ahead_coverage[3][2], 100 * np.mean(inside, axis=0))
    assert list(view.ahead_coverage) == [1, 2, 3]
    assert f"{view.ahead_coverage[2][1].mean():.1f} %" in page.html
    assert "3 decisions ahead" in page.html
    filtered = make("moca", belief__filter=True).inspect(episode=1).views[0]
    np.testing.assert_array_equal(filtered.outcome, filtered.arrays["truth"])
    np.testing.assert_array_equal(view.outcome, arrays["observed"])


def test_a_planning_agent_shows_its_plan(make):
    """Its first action is the one that is taken, and there are as many as it plans."""
    arrays = make("moca-plan", plan__length=4, plan__iterations=0, plan__bases=8).inspect(steps=6).views[0].arrays
    assert arrays["ahead"].shape == (6, 4, 2)
    np.testing.assert_allclose(arrays["ahead_action"][:, 0], arrays["action"], atol=1e-6)
    assert arrays["ahead_reward"].shape == (6, 4)


def test_a_variance_that_rounding_made_negative_is_zero(make):
    """So it is in the forecast; the page refused such an episode as one that overflows."""
    run = make("moca", belief__filter=True)
    (agent, learner), env = pure(run), Two()
    sensor = make_sensor(run.config, env)
    moments, happened = rollout(agent, learner, env, sensor, 12, jax.random.key(3), keep=lambda state, moment: moment)
    belief = moments.policy.belief
    belief = belief._replace(covariance=belief.covariance.at[4].set(-1e-12 * jnp.eye(2)))
    moments = moments._replace(policy=moments.policy._replace(belief=belief))
    found = jax.jit(lambda *given: describe(agent, *given, 3))(learner, moments, happened)
    assert (found["uncertainty"][4] == 0).all()
    assert (found["uncertainty"][5] > 0).all()
    assert all(np.isfinite(array).all() for array in found.values())


def test_what_is_not_a_number_is_named_before_anything_is_printed(make, monkeypatch, capsys):
    run = make("moca")
    found = run._programs["watch"]

    def watch(*arguments):
        states, arrays = found(*arguments)
        return states, arrays | {"bias": arrays["bias"].at[7].set(jnp.nan)}

    monkeypatch.setitem(run._programs, "watch", watch)
    monkeypatch.setattr("moca.runs.cli._load", lambda *arguments: run)
    with pytest.raises(SystemExit):
        main(["inspect", str(run.path)])
    told = capsys.readouterr()
    assert "bias is not finite at step 7 of this episode" in told.err
    assert not told.out


def test_the_page_does_not_say_where_a_chart_lies():
    """It is beside the one before, or below it, as the width of the window has it."""
    template = Path(inspection.__file__).parent / "templates" / "inspect.html"
    notes = " ".join(re.findall(r'<p class="note">(.*?)</p>', template.read_text()))
    assert "In “Predicted standard deviation”: the aleatoric one" in notes  # the chart's title
    assert not re.search(r"\b(below|above|beside|left|right):", notes, re.IGNORECASE)


def test_two_runs_are_told_apart_and_a_cut_episode_is_called_one(make, monkeypatch, capsys):
    one, two = make("moca"), make("moca", env__episode_length=6)
    runs = {None: one, two.path: two}
    monkeypatch.setattr("moca.runs.cli._load", lambda arguments, number, directory=None: runs[directory])
    main(["inspect", str(one.path), "--beside", str(two.path)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].startswith(f"{one.path}: MoCA: seed 0")
    assert lines[2].endswith("shown: 6 of 12 decisions")
    assert lines[3].startswith(f"{two.path}: MoCA: seed 0")
    assert "shown" not in lines[3]
    host = make("moca", Gymnasium(hosted.Ramp), noise__action=0.0)
    assert host.inspect(episode=2, steps=5).views[0].told.endswith("shown: 5 of 7 decisions")
    assert "shown" not in host.inspect(episode=2, steps=7).views[0].told


def test_a_forecast_that_overflows_is_left_out(make, monkeypatch):
    run = make("moca")
    found = run._programs["watch"]

    def watch(*arguments):
        states, arrays = found(*arguments)
        return states, arrays | {"ahead_covariance": arrays["ahead_covariance"] * jnp.inf}

    monkeypatch.setitem(run._programs, "watch", watch)
    page = run.inspect()
    assert "MoCA’s forecast overflows" in html.unescape(page.html)
    assert not [name for name in page.views[0].arrays if name.startswith("ahead")]
    assert "decisions ahead" not in dataclasses.replace(page, ahead=0).html


def test_two_agents_start_alike(make):
    """Whatever they do then; the second of two runs if that is asked for."""
    one, two = make("moca"), make("sac", count=2)
    page = one.inspect(5, beside=two, beside_run=1)
    assert page.episode == 5
    ours, theirs = (view.arrays for view in page.views)
    np.testing.assert_array_equal(ours["observed"][0], theirs["observed"][0])
    assert (ours["observed"][3] != theirs["observed"][3]).all()
    assert [view["label"] for view in held(page)["views"]] == ["MoCA", "SAC"]
    alone = two.inspect(run=1, episode=5).views[0].arrays
    np.testing.assert_allclose(theirs["value"], alone["value"], rtol=1e-5)
    assert (theirs["value"] != two.inspect(episode=5).views[0].arrays["value"]).any()
    assert (one.inspect(episode=6).views[0].arrays["observed"][0] != ours["observed"][0]).any()


def test_after_the_end_nothing_is_shown(make):
    view = make("moca", Ending()).inspect().views[0]
    assert {len(array) for array in view.arrays.values()} == {5}
    assert np.isfinite(view.arrays["reward"]).all()


def test_an_environment_of_the_host(make):
    """As the policy goes through it by hand, to the end."""
    run = make("moca", Gymnasium(hosted.Ramp), noise__action=0.0)
    page = run.inspect(episode=2)
    arrays = page.views[0].arrays
    assert page.names == ("place", "time")
    assert make("moca").inspect().names == ("s1", "s2")  # which has none
    assert {len(array) for array in arrays.values()} == {7}
    env, policy, believed = hosted.Ramp(), run.policy(), []
    env.reset(seed=2)
    for t in range(7):
        np.testing.assert_allclose(policy(arrays["observed"][t]), arrays["action"][t], atol=1e-5)
        believed.append(env._state.copy())
        env.step(arrays["executed"][t])
    np.testing.assert_allclose(arrays["truth"], believed, atol=1e-6)
    noise = arrays["observed"] - believed
    assert 0.02 < np.std(noise) < 0.3
    np.testing.assert_allclose(arrays["following"][:-1], arrays["observed"][1:], atol=1e-6)
    assert arrays["following"][-1, 1] == pytest.approx(0.7, abs=0.4)  # the clock at the end; a new episode has 0


def test_a_run_beside_another_is_stepped_by_the_same_physics():
    """Episodes of the two kinds do not begin alike."""
    one, two = (
        SimpleNamespace(path=physics, config=build("raw", "WalkerWalk", {"agent": "sac", "env.physics": physics}))
        for physics in ("mjx", "mujoco")
    )
    with pytest.raises(ConfigError, match=r"beside: mujoco has env\.physics = mujoco, mjx has mjx"):
        _refuse_stranger(one, two)
    _refuse_stranger(one, one)


@pytest.mark.parametrize("settings", [{"sensor.observed": [0, 1]}, {"sensor.history": 1}], ids=str)
def test_a_run_beside_another_observes_the_same_dimensions(settings):
    """One of fewer ended in an error of the template; one of others had wrong names."""
    given = {"agent": "sac", "sensor.scales": [1.0, 1.0, 1.0]}
    one, two = (
        SimpleNamespace(path=str(own), config=build("raw", "PendulumSwingup", given | own)) for own in ({}, settings)
    )
    with pytest.raises(ConfigError, match=f"has {next(iter(settings))} = "):
        _refuse_stranger(one, two)


def test_faults_are_sentences(make, tmp_path, capsys):
    run, other = make("moca"), make("moca", env__name="own:Other")
    slow, moved = make("moca", env__action_repeat=2), make("sac", env__random_start=1)
    assert "which the agent holds for 2 steps of the environment." in slow.inspect().html
    assert "agent holds for" not in run.inspect().html
    for call, message in (
        (lambda: run.inspect(run=1), "run = 1 is out of range"),
        (lambda: run.inspect(episode=-1), "episode = -1 is out of range"),
        (lambda: run.inspect(episode="x"), "episode must be a whole number"),
        (lambda: run.inspect(steps=13), "steps = 13 is out of range"),
        (lambda: run.inspect(steps=0), "steps = 0 is out of range"),
        (lambda: run.inspect(ahead=-1), "ahead = -1 is out of range"),
        (lambda: run.render(ahead=2), "--ahead can draw only CartpoleBalance"),
        (lambda: run.inspect(beside=3), "beside = 3 must be a run"),
        (lambda: run.inspect(beside=other), "has env.name = own:Other"),
        (lambda: run.inspect(beside=slow), "has env.action_repeat = 2"),
        (lambda: run.inspect(beside=moved), "has env.random_start = 1"),
        (lambda: run.inspect(beside=make("sac"), beside_run=4), "run = 4 is out of range"),
        (lambda: run.inspect(steps=2).save(3), "path must be a path"),
    ):
        with pytest.raises(ConfigError) as error:
            call()
        assert message in str(error.value)
    for arguments, message in (
        ([str(tmp_path)], "is not a run directory"),
        ([str(run.path), "--beside", str(tmp_path / "away")], "away is not a run directory"),
        ([str(run.path), "--beside-run", "1"], "--beside-run needs --beside DIR"),
        ([str(run.path), "--episodes", "1"], "Did you mean --episode?"),
        ([str(run.path), "--steps", "0"], "expected a whole number from 1"),
        ([str(run.path)], "your own environment"),
    ):
        with pytest.raises(SystemExit) as stopped:
            main(["inspect", *arguments])
        assert stopped.value.code == 2
        assert message in capsys.readouterr().err


def test_it_is_saved_and_shows_itself_in_a_notebook(make, tmp_path):
    page = make("moca").inspect(steps=3)
    assert page.save(tmp_path / "new" / "page.html").read_text() == page.html
    shown = page._repr_html_()
    assert html.unescape(re.search(r'srcdoc="([^"]*)"', shown)[1]) == page.html
    assert "://" not in page.html.replace("http://www.w3.org/2000/svg", "")
    (tmp_path / "link.html").symlink_to(tmp_path / "victim")
    with pytest.raises(ConfigError, match="symbolic link"):
        page.save(tmp_path / "link.html")
    shaped = dataclasses.replace(page, env="</title><script>alert(1)</script>")
    assert "<script>alert" not in shaped.html


@pytest.mark.slow
def test_the_command_on_the_real_playground(tmp_path, capsys):
    """With a film, and beside another run."""
    for name, agent in (("one", "moca"), ("two", "sac")):
        settings = {
            "agent": agent, "env.name": "CartpoleBalance", "sac.width": 8, "critic.width": 8, "dynamics.width": 8,
            "value.low": (-2.5, -1.0, -1.0, -10.0, -15.0), "value.high": (2.5, 1.0, 1.0, 10.0, 15.0),
            "value.lengthscales": (0.6, 0.5, 0.5, 3.0, 4.0),
        }  # fmt: skip
        write(tmp_path / name, override(Config(), settings), Playground("CartpoleBalance"))
    one, two = tmp_path / "one", tmp_path / "two"
    main(["inspect", str(one), "--beside", str(two), "--steps", "30", "--episode", "4", "--device", "cpu"])
    *steps, moca_line, sac_line, path = capsys.readouterr().out.splitlines()
    assert path == str(one / "inspect.html")
    assert [line.split(",")[0] for line in (moca_line, sac_line)] == [f"{one}: MoCA: seed 0", f"{two}: SAC: seed 0"]
    assert steps == [f"{each}: policy after step 0" for each in (one, two)]
    main(["render", str(one), "--ahead", "3", "--device", "cpu"])
    assert capsys.readouterr().out.splitlines()[-1] == str(one / "ahead.mp4")
    assert (one / "ahead.mp4").stat().st_size > 10_000
    page = (one / "inspect.html").read_text()
    assert page.count("data:video/mp4;base64,AAAA") == 2
    assert "cos θ" in page
    assert (
        float(re.search(r"MoCA: .*return ([\d.]+)", moca_line)[1]) <= moca.load(one).render(0, 4, tmp_path / "f.mp4")[2]
    )
