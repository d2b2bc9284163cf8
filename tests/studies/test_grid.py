"""A grid is data: what it asks for is what is run, and what it cannot mean is refused by name."""

import os
from pathlib import Path

import gymnasium
import pytest

from moca import presets
from moca.cli import main
from moca.config import ConfigError, from_json, override
from moca.envs.defaults import measured
from moca.studies import display, grid, look, results
from moca.studies.grid import Block, Grid

CELLS = {"cartpole": (2, 5, 3), "pendulum": (2, 7, 2), "degradation": (1, 4, 5)}  # presets, agents, noises


@pytest.mark.parametrize("name", CELLS)
def test_the_papers_grids(name):
    jobs = grid.plan(grid.find(name))
    presets, agents, noises = CELLS[name]
    assert len(jobs) == presets * agents
    assert {len(job.noises) for job in jobs} == {noises}
    assert {job.runs for job in jobs} == {noises * 10}
    assert {job.config.seed for job in jobs} == {1000}
    assert len({job.name for job in jobs}) == len(jobs)
    evaluations = {job.config.train.steps // (job.config.train.eval_every * 1000) for job in jobs}
    assert evaluations == {50}


def test_agents_that_are_a_setting_of_another():
    jobs = {job.agent: job.config for job in grid.plan(grid.find("pendulum")) if job.preset == "told"}
    assert (jobs["moca-mc-4"].agent, jobs["moca-mc-4"].dynamics.samples) == ("moca-mc", 4)
    assert (jobs["moca-mc-16"].agent, jobs["moca-mc-16"].dynamics.samples) == ("moca-mc", 16)
    assert jobs["naf"].agent == "naf"


def test_noises_of_both_kinds_share_a_program():
    job = grid.plan(grid.find("cartpole"))[0]
    assert job.config.noise.kind == "state-norm"
    assert job.varied == [
        {"noise.sigma": 0.025, "noise.sigma_min": 0.025},
        {"noise.sigma": 0.05, "noise.sigma_min": 0.05},
        {"noise.sigma": 0.05, "noise.sigma_min": 0.0},
    ]
    assert grid.plan(grid.find("pendulum"))[0].varied == [{"noise.sigma": 0.025}, {"noise.sigma": 0.05}]


def test_a_grid_is_the_same_after_a_round_trip():
    mine = Grid("mine", (Block("CartpoleBalance", ("moca",), ("0",), 5000, {"critic.lr": 1e-3}),), ("tuned",), 3, 2)
    assert grid.from_json(grid.to_json(mine)) == mine
    assert grid.plan(mine)[0].config.critic.lr == 1e-3


def test_a_few_lines_of_ones_own(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(
        'presets = ["tuned"]\nseeds = 2\n[[blocks]]\nenv = "CartpoleBalance"\nagents = ["moca", "bnaf"]\n'
        'noises = ["0", "state-norm 0.1"]\nsteps = 5000\nsettings = { "critic.lr" = 2e-3 }\n'
    )
    mine = grid.find(str(path))
    assert mine.name == "mine"
    assert [job.agent for job in grid.plan(mine)] == ["moca", "bnaf"]
    assert grid.plan(mine)[0].config.critic.lr == 2e-3


def test_narrowing():
    small = grid.narrowed(grid.find("cartpole"), seeds=2, seed=5, steps=3000, presets=["tuned"], agents=["moca", "sac"])
    jobs = grid.plan(small)
    assert [job.agent for job in jobs] == ["sac", "moca"]
    assert {(job.config.seed, job.config.seeds, job.config.train.steps, job.preset) for job in jobs} == {
        (5, 2, 3000, "tuned")
    }
    changed = grid.plan(grid.narrowed(small, settings={"train.batch": "32"}))
    assert {job.config.train.batch for job in changed} == {32}


BLOCK = '[[blocks]]\nenv = "CartpoleBalance"\nagents = ["moca"]\nnoises = ["0"]\n'


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "needs at least one table [[blocks]]"),
        ("seeds = [", "is not TOML"),
        ("sedes = 3\n" + BLOCK, "sedes is unknown. Did you mean seeds? Allowed: name, blocks"),
        (BLOCK + "step = 3\n", "step is unknown. Did you mean steps?"),
        ('[[blocks]]\nenv = "CartpoleBalance"\nagents = ["moca"]\n', "a block needs noises"),
        (BLOCK.replace('["moca"]', '"moca"'), "agents = 'moca' must be a list"),
        (BLOCK.replace("moca", "mocha"), "agents = 'mocha' is unknown. Did you mean moca?"),
        (BLOCK.replace('"0"', '"state-nrm 0.1"'), "Did you mean state-norm?"),
        (BLOCK.replace('"0"', '"-1"'), "noises = '-1' is not a valid noise: write a level such as 0.05"),
        (BLOCK.replace('["0"]', "[]"), "names no noises"),
        (BLOCK.replace('["moca"]', "[]"), "has no"),
        ("presets = []\n" + BLOCK, "has no"),
        (BLOCK.replace('["0"]', '["0.05", "0.050"]'), "contains a level twice"),
        (BLOCK.replace('["0"]', '["0", "state-norm 0"]'), "contains a level twice"),
        ('blocks = "x"', "blocks must be tables"),
        (BLOCK + 'settings = "x"\n', "settings = 'x' must be a table"),
        (BLOCK + 'settings = { agent = "sac" }\n', "agent cannot be set for all cells"),
        (BLOCK + 'settings = { "noise.sigma" = 0.1 }\n', "noise.sigma cannot be set for all cells"),
        ('name = "a/../b"\n' + BLOCK, "name = 'a/../b' must consist of"),
        (BLOCK.replace("Balance", "Balanced"), "env.name = 'CartpoleBalanced' is unknown"),
        ('presets = ["tunde"]\n' + BLOCK, "preset = 'tunde' is unknown. Did you mean tuned?"),
        (BLOCK + BLOCK, "contains these jobs twice: paper-CartpoleBalance-moca"),
        (BLOCK + "steps = 1500\n", "train.steps = 1500 must be a multiple"),
        ("seeds = 0\n" + BLOCK, "seeds = 0"),
    ],
)
def test_what_cannot_be_is_named(tmp_path, content, message):
    path = tmp_path / "mine.toml"
    path.write_text(content)
    with pytest.raises(ConfigError) as error:
        grid.plan(grid.find(str(path)))
    assert message in str(error.value)


def test_what_makes_an_agent_of_a_study_cannot_be_set():
    with pytest.raises(ConfigError, match=r"dynamics.samples cannot be set for all cells"):
        grid.plan(grid.narrowed(grid.find("pendulum"), settings={"dynamics.samples": "32"}))


def test_unknown_names():
    with pytest.raises(ConfigError, match=r"study = 'cartpol' is unknown. Did you mean cartpole?"):
        grid.find("cartpol")
    with pytest.raises(ConfigError, match=r"cannot read the study nowhere.toml"):
        grid.find("nowhere.toml")
    with pytest.raises(ConfigError, match=r"agents = 'mcoa' is not in the study cartpole. Did you mean moca?"):
        grid.narrowed(grid.find("cartpole"), agents=["mcoa"])


RANGES = {"value.low": (-1.0, -2.0), "value.high": (1.0, 2.0), "value.lengthscales": (0.3, 0.4),
          "noise.scales": (1.0, float("inf"))}  # fmt: skip


def test_tasks_that_nobody_tuned_are_looked_at_once(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(look, "_look", lambda preset, env, settings: asked.append(env) or RANGES)
    with pytest.raises(ConfigError, match="CartpoleSwingup has no preset"):
        grid.plan(grid.find("further"))
    whole = look.complete(grid.find("further"), tmp_path)
    assert asked == [block.env for block in whole.blocks]
    jobs = grid.plan(whole)
    assert len(jobs) == 12
    assert jobs[-1].name == "told-gymnasium-Pendulum-v1-moca"
    assert jobs[-1].config.value.low == (-1.0, -2.0)
    assert jobs[-1].config.noise.scales == (1.0, float("inf"))
    # What was found is part of the study: another process plans the same, and a second start does not look again.
    again = grid.from_json(grid.to_json(whole))
    assert [job.config for job in grid.plan(again)] == [job.config for job in jobs]
    (tmp_path / "study.json").write_text(grid.to_json(whole))
    asked.clear()
    assert grid.to_json(look.complete(grid.find("further"), tmp_path)) == grid.to_json(whole)
    assert asked == []
    # What a user set, and tasks that have a preset, need no look.
    look.complete(grid.find("cartpole"), tmp_path / "none")
    look.complete(grid.narrowed(grid.find("further"), settings=RANGES | {"env.random_start": 0}), tmp_path / "none")
    assert asked == []


def test_a_start_that_varies_is_looked_for_once(tmp_path, monkeypatch):
    """SAC needs nothing else of an environment."""
    asked = []
    monkeypatch.setattr(look, "_look", lambda *which: asked.append(which) or measured(*which))
    plan = Grid("mine", (Block("CartpoleSwingup", ("sac",), ("0",), 4000, {"env.physics": "mujoco"}),), ("told",), 0, 1)
    whole = look.complete(plan, tmp_path)
    assert whole.blocks[0].found == {"env.random_start": 0}
    (tmp_path / "study.json").write_text(grid.to_json(whole))
    assert look.complete(plan, tmp_path) == whole
    assert len(asked) == 1


def test_a_dry_run_compiles_no_physics_and_plans_the_same(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(look, "_look", lambda preset, env, settings: asked.append(env) or RANGES)
    dry = look.complete(grid.find("further"), tmp_path, dry=True)
    assert asked == ["gymnasium:Pendulum-v1"]  # a program need not be compiled for it
    whole = look.complete(grid.find("further"), tmp_path)
    assert display.describe(tmp_path, grid.plan(dry)) == display.describe(tmp_path, grid.plan(whole))
    # Where some ranges are given, only a measurement shows if the others fit.
    asked.clear()
    some = grid.narrowed(grid.find("further"), settings={"value.low": (-1.0, -2.0)})
    look.complete(some, tmp_path, dry=True)
    assert asked == [block.env for block in some.blocks]


def test_a_look_is_taken_in_a_process_of_its_own(capsys):
    found = look._look("tuned", "gymnasium:Pendulum-v1", {})
    assert len(found["value.low"]) == 3
    assert "Pendulum-v1" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="Gymnasium has no Pendulun-v1"):
        look._look("tuned", "gymnasium:Pendulun-v1", {})
    assert not capsys.readouterr().out  # nothing is measured


def limited(env, agent, **settings):
    return Grid("mine", (Block(env, (agent,), ("0",), 4000, settings),), ("tuned",), 0, 1)


@pytest.mark.parametrize(
    ("env", "agent", "length"),
    [("gymnasium:Pendulum-v1", "sac", 200), ("gymnasium:MountainCarContinuous-v0", "moca", 999),
     ("gymnasium:tests.envs.hosted:Linear", "sac", 50)],
)  # fmt: skip
def test_a_study_and_training_have_the_same_settings(tmp_path, capsys, monkeypatch, env, agent, length):
    """Also what an environment says or shows of its time limit; a study asks in another process."""
    root = str(Path(__file__).parents[2])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([root, os.environ.get("PYTHONPATH", "")]))
    (job,) = grid.plan(look.complete(limited(env, agent), tmp_path, trust=True))
    assert job.config.env.episode_length == length
    capsys.readouterr()
    main(["train", "--env", env, "--agent", agent, "--steps", "4000", "--dry-run"])
    train = from_json(capsys.readouterr().out)
    assert override(train, {"train.eval_every": job.config.train.eval_every}) == job.config


def test_a_study_measures_a_state_with_a_history_as_training_does(tmp_path, monkeypatch):
    """Its changes over the action repeat, on which the presets of one study must agree."""
    asked, given = [], {"sensor.history": 2, "sensor.observed": [0, 1], "sensor.gaps": True, "belief.filter": True}
    monkeypatch.setattr(look, "_look", lambda *key: asked.append(presets.how_to_measure(*key)) or {"value.low": (1,)})
    mine = limited("gymnasium:Pendulum-v1", "moca", **given)
    look.complete(mine, tmp_path)
    assert [asked[0][name] for name in ("history", "observed", "gaps", "repeat")] == [2, (0, 1), True, 2]
    with pytest.raises(ConfigError, match=r"the presets raw, tuned differ in env\.action_repeat"):
        look.complete(grid.narrowed(mine, presets=("raw", "tuned")), tmp_path)
    look.complete(grid.narrowed(mine, presets=("raw", "tuned"), settings={"env.action_repeat": 3}), tmp_path)
    assert asked[1]["repeat"] == 3


PARTS = """
import gymnasium, numpy as np
from gymnasium.spaces import Box, Dict
class Parts(gymnasium.Env):
    observation_space = Dict(a=Box(-1, 1, (2,)), b=Box(-1, 1, (3,)))
    action_space = Box(-1, 1, (1,))
    def step(self, action):
        a, b = self.np_random.uniform(-1, 1, 2), self.np_random.uniform(-1, 1, 3)
        return {"a": a.astype(np.float32), "b": b.astype(np.float32)}, float(a[0]), False, False, {}
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.step(None)[0], {}
"""


@pytest.mark.parametrize("agent", [pytest.param("moca", marks=pytest.mark.slow), "sac"])
def test_a_study_flattens_observations_on_request(tmp_path, monkeypatch, agent):
    """Whether ranges are measured, in another process, or the task is only looked up, in this one."""
    (tmp_path / "parts.py").write_text(PARTS)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.syspath_prepend(tmp_path)
    name = {"moca": "gymnasium:parts:Parts", "sac": "gymnasium:Parts-v0"}[agent]
    gymnasium.register("Parts-v0", "parts:Parts")
    try:
        plain = Grid("flat", (Block(name, (agent,), ("0",), 2000, {"env.episode_length": 100}),), ("tuned",))
        with pytest.raises(ConfigError, match="one vector of 5 numbers"):
            look.complete(plain, tmp_path, trust=True)
        flat = look.complete(grid.narrowed(plain, settings={"env.flatten": "true"}), tmp_path, trust=True)
    finally:
        del gymnasium.registry["Parts-v0"]
    (job,) = grid.plan(flat)
    assert job.config.env.flatten
    assert len(job.config.value.low) == {"moca": 5, "sac": 0}[agent]


def test_the_time_left_is_measured_or_not_told(tmp_path):
    study = Grid("two", (Block("PendulumSwingup", ("bnaf", "sac"), ("0", "0.1"), 10_000),), ("tuned",), 0, 3)
    first, _ = jobs = grid.plan(study)
    assert "no estimate of the time" in display.describe(tmp_path, jobs)
    timing = tmp_path / results.CELLS / first.name / "timing.jsonl"
    timing.parent.mkdir(parents=True)
    timing.write_text('{"step": 1000, "seconds": 1.0}\n{"step": 2000, "seconds": 11.0}\n')
    # 2 noises x 3 seeds x 2000 steps in 12 s; 2 jobs x 6 runs x 10,000 steps less these are left.
    assert "about 2 min at the 1,000 steps/s" in display.describe(tmp_path, jobs)
    assert "about 54 s at the 2,000 steps/s" in display.describe(tmp_path, jobs, parallel=2)
    for broken in ("{", '{"step": 1000}\n', '{"step": 1000, "seconds": NaN}\n', '{"step": 1000, "seconds": "x"}\n'):
        timing.write_text(broken)
        assert "no estimate of the time" in display.describe(tmp_path, jobs)
