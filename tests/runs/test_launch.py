"""From a command to a run directory, its evaluation and its film, on the real Playground."""

import json
import os
import shutil
import subprocess
import sys

import jax
import numpy as np
import pytest

import moca
from moca import figures, presets, sweep
from moca.cli import main
from moca.config import ConfigError, override
from moca.names import PLAYGROUND
from moca.runs.display import learning_curve, title
from moca.runs.origin import commit
from tests import probes

TINY = [
    "--agent",
    "sac",
    "--set",
    "sac.width=8",
    "--set",
    "env.episode_length=50",
    "--set",
    "train.warmup=20",
    "--set",
    "train.eval_episodes=2",
    "--no-filter",
]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "cartpole"
    arguments = ["train", "--sigma", "0.05", "--steps", "150", "--seeds", "2", "--seed", "5"]
    main([*arguments, *TINY, "--out", str(out)])
    return moca.load(out)


def test_the_directory_holds_what_it_should(run):
    names = {path.name for path in run.path.iterdir()}
    assert names >= {
        "config.json",
        "meta.json",
        "metrics.jsonl",
        "timing.jsonl",
        "status.json",
        "policy.npz",
        "figures",
        "tensorboard",
    }
    assert json.loads((run.path / "status.json").read_text()) == {"state": "finished", "step": 150}
    assert json.loads((run.path / "meta.json").read_text())["versions"]["jax"]
    assert run.config.noise.sigma == 0.05
    assert (run.path / "figures/learning_curve.png").stat().st_size > 5_000
    assert any((run.path / "tensorboard").iterdir())


def test_metrics_have_a_row_per_episode_and_seed(run):
    assert [(row["step"], row["seed"]) for row in run.rows] == [(s, seed) for s in (50, 100, 150) for seed in (5, 6)]
    last = run.rows[-1]
    assert {"return_mean", "return_std", "return_noise_free", "critic_loss", "q_mean"} <= set(last)
    assert 0 <= last["return_mean"] <= 50
    assert not any("second" in name or "time" in name for name in last)


def test_evaluation_of_the_stored_policy(run):
    once, again, other = run.evaluate(3, seed=7), run.evaluate(3, seed=7), run.evaluate(3, seed=8)
    assert run._programs["evaluate"]._cache_size() == 1  # whatever the seed
    assert once == again
    assert once != other
    assert [row["seed"] for row in once] == [5, 6]
    assert all(0 <= row["return_mean"] <= 50 for row in once)


@pytest.mark.slow
def test_the_stored_policy_is_the_trained_one(run):
    """Same seed, fresh training through Python: the same arrays."""
    again = moca.train(run.config, run.path.parent / "again")
    with np.load(run.path / "policy.npz") as a, np.load(again.path / "policy.npz") as b:
        assert a.files == b.files
        for name in a.files:
            np.testing.assert_array_equal(a[name], b[name])
    assert (run.path / "metrics.jsonl").read_bytes() == (again.path / "metrics.jsonl").read_bytes()


@pytest.mark.parametrize("gl", [pytest.param("as it is", marks=pytest.mark.slow), "none"])
def test_a_film(run, gl, tmp_path):
    """With whatever GL there is, and with a drawing where there is none; twice, where MuJoCo would abort."""
    code = f"import moca; render = moca.load({str(run.path)!r}).render; path = {str(tmp_path / 'film.mp4')!r}\n"
    code += "render(1, path=path); print(*render(1, path=path), sep='|')"
    environment = {**os.environ, **({"MUJOCO_GL": "glfw", "DISPLAY": ""} if gl == "none" else {})}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    _, how, total = result.stdout.strip().split("|")
    assert "drawn as outlines" in how if gl == "none" else how
    assert 0 <= float(total) <= 50
    assert (tmp_path / "film.mp4").stat().st_size > 2_000


def test_faults_are_sentences(run, tmp_path, capsys):
    for arguments, message in [
        (["train", *TINY, "--steps", "50", "--out", str(run.path)], "already has a run"),
        (["evaluate", str(tmp_path)], "is not a run directory"),
        (["render", str(run.path), "--run", "2"], "run = 2 is out of range: the runs in"),
        (["sweep", *TINY, "--steps", "50"], "nothing to sweep"),
    ]:
        with pytest.raises(SystemExit) as stopped:
            main(arguments)
        assert stopped.value.code == 2
        assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "nothing to sweep: give --grid NAME=A,B,… or --random NAME=LOW:HIGH"),
        (["--grid", "sac.tua=0.1"], "there is no setting 'sac.tua'. Did you mean sac.tau, "),
        (["--grid", "sac.tau=0.1,0.2", "--grid", "sac.tau=0.3"], "sac.tau is swept twice"),
        (["--grid", "sac.tau=0.1,2"], "sac.tau = 2 is out of range: it must be above 0 and at most 1"),
        (["--grid", f"sac.tau={','.join(f'{n / 1e5}' for n in range(1, 10_002))}"], "the grid has more than"),
        (["--random", "sac.tau=0.2:0.1"], "sac.tau needs LOW:HIGH with LOW below HIGH"),
        (["--grid", "sac.tau=0.1,0.2", "--samples", "4"], "--samples needs --random NAME=LOW:HIGH, the range"),
    ],
)  # fmt: skip
def test_a_sweep_is_refused_before_its_environment_is_measured(arguments, told, capsys, monkeypatch):
    monkeypatch.setattr("moca.runs.options._found", lambda *_: pytest.fail("it was measured"))
    with pytest.raises(SystemExit):
        main(["sweep", "--env", "tests.envs.hosted:Walk", "--agent", "sac", *arguments])
    assert told in capsys.readouterr().err


def test_a_directory_of_another_version_is_named(run, tmp_path):
    directory = tmp_path / "older"
    shutil.copytree(run.path, directory)
    meta = json.loads((directory / "meta.json").read_text())
    settings = json.loads((directory / "config.json").read_text())
    settings["critic"]["gears"] = 3
    (directory / "config.json").write_text(json.dumps(settings))
    with pytest.raises(ConfigError, match=r"config.json was edited after the run started"):
        moca.load(directory).evaluate(1)
    del meta["identity"]  # as in a directory of the release before
    (directory / "meta.json").write_text(json.dumps(meta))
    with pytest.raises(ConfigError, match=r"config.json cannot be read: there is no setting 'critic.gears'"):
        moca.load(directory).evaluate(1)
    (directory / "meta.json").write_text(json.dumps(meta | {"versions": {"moca-rl": "0.0.7"}}))
    with pytest.raises(ConfigError, match=r"made by moca 0.0.7, this is \d.*there is no setting 'critic.gears'"):
        moca.load(directory).evaluate(1)


def test_a_policy_of_another_config_is_refused(run, tmp_path):

    copy = tmp_path / "copy"
    shutil.copytree(run.path, copy)
    settings = json.loads((copy / "config.json").read_text())
    settings["sac"]["width"] = 4
    (copy / "config.json").write_text(json.dumps(settings))
    meta = json.loads((copy / "meta.json").read_text())
    del meta["identity"]
    (copy / "meta.json").write_text(json.dumps(meta))
    with pytest.raises(ConfigError, match="does not fit"):
        moca.load(copy).evaluate(1)


def test_a_sweep_ranks_its_points(tmp_path, capsys):
    out = tmp_path / "sweep"
    main(["sweep", *TINY, "--steps", "150", "--seeds", "1", "--grid", "sac.critic_lr=1e-4,1e-2", "--out", str(out)])
    printed = capsys.readouterr().out.splitlines()
    assert printed[-1] == str(out)
    assert sum("sac.critic_lr" in line for line in printed) == 2
    rows = moca.load(out).rows
    assert {(row["seed"], row["sac.critic_lr"]) for row in rows} == {(0, lr) for lr in (1e-4, 1e-2)}


@pytest.mark.skipif(jax.default_backend() == "gpu", reason="there is a GPU here")
def test_a_missing_gpu_is_a_sentence(tmp_path):
    arguments = [
        sys.executable,
        "-m",
        "moca",
        "train",
        "--device",
        "gpu",
        *TINY,
        "--steps",
        "50",
        "--out",
        str(tmp_path / "x"),
    ]
    result = subprocess.run(arguments, capture_output=True, text=True)
    assert result.returncode == 2
    assert "JAX found no gpu" in result.stderr
    assert "Traceback" not in result.stderr


def test_an_environment_of_ones_own_is_needed_again(tmp_path):
    config = probes.tiny(train__steps=20)
    run = moca.train(config, tmp_path / "own", env=probes.Drift())
    assert run.evaluate(2)[0]["return_mean"] == moca.load(run.path, env=probes.Drift()).evaluate(2)[0]["return_mean"]
    with pytest.raises(ConfigError, match="was trained on your own environment Drift"):
        moca.load(run.path).evaluate(2)


def test_a_run_figure_says_what_was_run_and_is_not_cut_off(tmp_path, monkeypatch):
    quiet = presets.build("raw", "PendulumSwingup", {"agent": "moca-ce"})
    assert title(quiet, [{}]) == "MoCA-CE on PendulumSwingup, no noise"
    assert title(override(quiet, {"noise.sigma": 0.1}), [{}]) == "MoCA-CE on PendulumSwingup, σ = 0.1"
    assert title(quiet, [{"noise.sigma": 0.0}, {"noise.sigma": 0.1}]) == "MoCA-CE on PendulumSwingup"
    longest = {"agent": "moca-mixture", "env.name": max(PLAYGROUND, key=len), "noise.kind": "state-norm"}
    wide = override(quiet, longest | {"noise.scales": [1.0], "noise.sigma": 0.05, "noise.action": 0.5})
    assert "state-norm noise, σ ≤ 0.05, action noise 0.5" in title(wide, [{}]).replace("\n", " ")
    drawn = []
    monkeypatch.setattr(figures, "save", lambda figure, *_: drawn.append(figure) or [])
    points = [{"noise.sigma": 0.0, "critic.lr": 0.1}, {"noise.sigma": 0.1, "critic.lr": 0.1}]
    rows = [{"step": 1, "seed": 0, "return_mean": 1.0, "return_noise_free": 1.0, **point} for point in points]
    learning_curve(rows, points, title(wide, [{}]), tmp_path)
    (figure,) = drawn
    figure.canvas.draw()
    shown = figure.axes[0]._left_title.get_window_extent()
    assert shown.x1 <= figure.bbox.x1
    assert shown.y1 <= figure.bbox.y1
    told = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert told == ["no noise, critic.lr = 0.1", "noise.sigma = 0.1, critic.lr = 0.1"]


def test_an_environment_is_displayed_without_its_prefix(tmp_path):
    """In the title of a curve, of a run in a line and of the inspector; config.json has the name in full."""
    config = override(probes.tiny(train__steps=20), {"env.name": "gymnasium:tests.probes:Drift"})
    run = moca.train(config, tmp_path / "run", trust=True)
    assert title(run.config, [{}]).startswith("SAC on tests.probes:Drift,")
    assert "SAC on tests.probes:Drift, " in repr(run)
    assert run.inspect(steps=2).env == "tests.probes:Drift"
    assert json.loads((run.path / "config.json").read_text())["env"]["name"] == "gymnasium:tests.probes:Drift"


def test_a_short_run_figure_counts_plain_steps(tmp_path, monkeypatch):
    """And none is called -0."""
    assert [figures.thousands(x, 0) for x in (-0.0, 50, 999, 1000, 2500)] == ["0", "50", "999", "1k", "2.5k"]
    drawn = []
    monkeypatch.setattr(figures, "save", lambda figure, *_: drawn.append(figure) or [])
    rows = [{"step": step, "seed": 0, "return_mean": 1.0, "return_noise_free": 1.0} for step in (50, 100, 150)]
    learning_curve(rows, [{}], "", tmp_path)
    drawn[0].canvas.draw()
    assert {"60", "80", "100"} <= {tick.get_text() for tick in drawn[0].axes[0].get_xticklabels()}


@pytest.mark.parametrize("clean", [1.0, 1.000001, 2.0])
def test_the_score_without_noise_is_drawn_if_it_differs(tmp_path, monkeypatch, clean):
    drawn = []
    monkeypatch.setattr(figures, "save", lambda figure, *_: drawn.append(figure) or [])
    learning_curve([{"step": 1, "seed": 0, "return_mean": 1.0, "return_noise_free": clean}], [{}], "title", tmp_path)
    told = [text.get_text() for text in drawn[0].axes[0].get_legend().get_texts()]
    assert told == (["greedy policy"] if clean < 1.1 else ["as the agent observes", "without observation noise"])


@pytest.mark.parametrize(("clean", "told"), [(3.000001, "return_mean 3"), (2.0, "return_mean 3, return_noise_free 2")])
def test_the_command_prints_the_score_without_noise_if_it_differs(run, capsys, monkeypatch, clean, told):
    rows = [{"seed": 5, "return_mean": 3.0, "return_noise_free": clean, "value_noise_variance": float("nan")}]
    monkeypatch.setattr(moca.Run, "evaluate", lambda *_: rows)
    main(["evaluate", str(run.path)])
    assert capsys.readouterr().out.splitlines()[-1] == f"seed 5, {told}"


def test_a_run_that_diverges_is_a_gap_in_the_picture(tmp_path):
    rows = [
        {"step": s, "seed": k, "return_mean": v, "return_noise_free": v} for s, v in ((1, 1.0), (2, None)) for k in (0,)
    ]
    rows += [{"step": s, "seed": 1, "return_mean": 2.0, "return_noise_free": 2.0} for s in (1, 2)]
    assert learning_curve(rows, [{}], "title", tmp_path)[0].exists()
    assert "1 of 2 seeds diverged" in sweep.ranking(rows, [{}])[0]


def test_no_git_is_no_obstacle(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert commit() is None
