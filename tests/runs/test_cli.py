"""The command line about runs: what an option may not contradict, and what a directory may not hold."""

import json
from contextlib import nullcontext
from unittest.mock import Mock

import jax
import pytest

import moca
from moca import presets
from moca.cli import main
from moca.config import Config, ConfigError, override
from moca.divergence import CAUSES
from moca.drivers import make_env
from moca.envs.gymnasium import Gymnasium
from moca.loop import init_run
from moca.runs import ending, launch, refuse_foreign
from moca.runs.directory import RunDirectory
from moca.runs.interrupts import DivergedRun, InterruptedRun

SETTINGS = {"agent": "sac", "noise.sigma": 0.1, "seeds": 2, "train.steps": 3000, "sac.width": 8}


@pytest.fixture
def run(tmp_path):
    """A run that was begun, and stopped before it had learned anything."""
    directory = RunDirectory(tmp_path / "run")
    with directory.locked():
        directory.begin(presets.build("raw", "PendulumSwingup", SETTINGS), [{"seed": 0}, {"seed": 1}])
    return directory.path


@pytest.fixture
def resumed(monkeypatch):
    """The directories in which training went on."""
    found = []
    monkeypatch.setattr(launch, "resume", lambda path, **_: found.append(path) or RunDirectory(path))
    return found


def refused(capsys, *arguments):
    with pytest.raises(SystemExit) as stopped:
        main(list(map(str, arguments)))
    assert stopped.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--sigma", "0.2"], "--sigma 0.2 contradicts the run in {}: its noise.sigma is 0.1, not 0.2"),
        (["--seeds", "3"], "--seeds 3 contradicts the run in {}: its seeds is 2, not 3"),
        (["--filter"], "--filter contradicts the run in {}: its belief.filter is False, not True"),
        (["--agent", "moca"], "--agent moca contradicts the run in {}: its agent is 'sac', not 'moca'"),
        (["--env", "Pendulum-v1"], "its env.name is 'PendulumSwingup', not 'gymnasium:Pendulum-v1'"),
        (
            ["--set", "train.steps=5000"],
            "run in {0}, which has 3000 steps: for another total, moca train --resume {0} --steps 5000",
        ),
        (["--set", "sac.width=9"], "--set sac.width=9 contradicts the run in {}: its sac.width is 8, not 9"),
        (["--preset", "tuned"], "--preset tuned contradicts the run in {}: its env.action_repeat is 1, not 2"),
        (["--out", "elsewhere"], "--out elsewhere contradicts --resume {}: a run is resumed in its own directory"),
        (["--sigma", "-1"], "noise.sigma = -1 is out of range"),
    ],
)
@pytest.mark.parametrize("dry", [[], ["--dry-run"]])
def test_an_option_that_contradicts_the_run_is_refused(run, resumed, capsys, options, told, dry):
    assert told.format(run) in refused(capsys, "train", "--resume", run, *options, *dry)
    assert not resumed


def test_a_file_that_contradicts_the_run_is_refused(run, resumed, tmp_path, capsys):
    path = tmp_path / "settings.toml"
    path.write_text("[train]\ngamma = 0.5\n")
    told = refused(capsys, "train", "--resume", run, "--config", path)
    assert f"--config {path} contradicts the run in {run}: its train.gamma is 0.99, not 0.5" in told
    assert not resumed


def test_options_that_agree_are_fine(run, resumed, capsys):
    same = ["--sigma", "0.10", "--seeds", "2", "--no-filter", "--env", "PendulumSwingup", "--preset", "raw"]
    main(["train", "--resume", str(run), "--out", str(run), *same, "--set", "train.steps=3e3", "--keep", "1"])
    assert resumed == [run]
    assert capsys.readouterr().out.strip() == str(run)


def test_an_unknown_environment_is_not_said_to_be_measured(capsys):
    told = refused(capsys, "train", "--env", "Pendulm-v1", "--dry-run")
    assert "Gymnasium has no Pendulm-v1" in told
    assert "measuring" not in told


def test_a_run_is_resumed_with_the_preset_that_it_began_with(tmp_path, resumed, capsys, monkeypatch):
    """Whatever else was given; another one contradicts it, even if it gives the same settings."""
    path, begun = tmp_path / "run", []
    monkeypatch.setattr(launch, "train", lambda *_, **options: begun.append(options["preset"]) or Mock(path=path))
    main(["train", "--out", str(path), "--no-filter"])
    directory = RunDirectory(path)
    with directory.locked():
        config = presets.build("tuned", "CartpoleBalance", {"belief.filter": False})
        directory.begin(config, [{"seed": 0}], preset=begun[0])
    main(["train", "--resume", str(path), "--preset", "tuned", "--no-filter"])
    main(["train", "--resume", str(path), "--preset", "tuned"])
    assert resumed == [path] * 2
    told = refused(capsys, "train", "--resume", path, "--preset", "told")
    assert f"--preset told contradicts the run in {path}: it began with the preset 'tuned'; omit it" in told


def test_a_dry_run_is_obeyed_when_a_run_goes_on(run, resumed, capsys):
    main(["train", "--resume", str(run), "--dry-run"])
    assert json.loads(capsys.readouterr().out)["sac"]["width"] == 8
    RunDirectory(run).write_status("finished", 3000)
    assert "it is finished, with 3,000 steps; for more" in refused(capsys, "train", "--resume", run, "--dry-run")
    assert not resumed


def test_a_dry_run_refuses_the_directory_of_another_run(run, capsys):
    same = ["train", "--preset", "raw", "--env", "PendulumSwingup", "--agent", "sac", "--sigma", "0.1", "--seeds", "2"]
    same += ["--steps", "3000", "--set", "sac.width=8", "--out", str(run), "--dry-run"]
    (run / "metrics.jsonl").touch()  # it has begun to learn
    main(same)
    assert json.loads(capsys.readouterr().out)["sac"]["width"] == 8
    assert "already has a run, with other settings (noise.sigma)" in refused(capsys, *same, "--sigma", "0.2")
    sweep = ["sweep", *same[1:], "--grid", "sac.tau=0.1,0.2"]
    assert "already has a run, with other seeds or variations" in refused(capsys, *sweep)
    RunDirectory(run).write_status("finished", 3000)
    told = refused(capsys, *same)
    assert "already has a run, and it is finished, with 3,000 steps: choose another directory, or make it" in told
    assert f"longer with moca train --resume {run} --steps N, N above 3000" in told
    told = refused(capsys, *same, "--steps", "5000")
    assert f"directory, or give it that total with moca train --resume {run} --steps 5000" in told
    assert "(train.steps): choose another directory\n" in refused(capsys, *same, "--steps", "2000")


def test_the_command_of_a_run_made_longer_says_how_to_go_on(run, capsys):
    """Whether it asks for the first total or the present one, and whatever else differs."""
    same = ["train", "--preset", "raw", "--env", "PendulumSwingup", "--agent", "sac", "--sigma", "0.1", "--seeds", "2"]
    same += ["--set", "sac.width=8", "--out", str(run), "--dry-run", "--steps"]
    (run / "metrics.jsonl").touch()  # it has begun to learn
    directory = RunDirectory(run)
    directory.write_status("interrupted", 4000)
    with directory.locked():
        directory.note(extended=[5000])
    for steps in ("3000", "5000"):
        assert f"{run} is this run, made longer to 5,000 steps: moca train --resume {run}\n" in refused(
            capsys, *same, steps
        )
    assert "with other settings (noise.sigma): choose another directory\n" in refused(
        capsys, *same, "3000", "--sigma", "0.2"
    )
    assert f"give it that total with moca train --resume {run} --steps 6000" in refused(capsys, *same, "6000")
    told = refused(capsys, *same, "5000", "--set", "train.horizon=4000")
    assert "with other settings (train.horizon): choose another directory\n" in told
    directory.write_status("finished", 5000)
    told = refused(capsys, *same, "3000")
    assert f"is this run, finished with 5,000 steps; for more: moca train --resume {run} --steps N" in told
    directory.write_status("interrupted", 4000)
    main([*same, "5000", "--set", "train.horizon=3000"])  # what the run is now
    assert json.loads(capsys.readouterr().out)["train"]["steps"] == 5000


@pytest.mark.parametrize(("ended", "code"), [(DivergedRun, 3), (InterruptedRun, 75)])
@pytest.mark.parametrize("command", [["train"], ["sweep", "--grid", "critic.lr=1e-4,1e-3"]])
def test_the_exit_code_says_that_all_runs_diverged_or_were_stopped(command, ended, code, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(launch, "train", Mock(side_effect=ended("as it was at step 20")))
    with pytest.raises(SystemExit) as left:
        main([*command, "--out", str(tmp_path / "run")])
    assert left.value.code == code
    assert "as it was at step 20" in capsys.readouterr().out


def test_a_directory_with_other_files_is_refused(tmp_path, run, capsys):
    held = tmp_path / "thesis"
    held.mkdir()
    main(["train", "--out", str(held), "--dry-run"])  # an empty one is fine
    main(["train", "--out", str(run), "--dry-run"])  # so is one that holds a run
    (held / "chapter.tex").touch()
    sentence = f"{held} is not empty and not a run directory (it contains chapter.tex): choose an empty directory"
    for command in (["train"], ["train", "--dry-run"], ["sweep", "--grid", "critic.lr=1e-4,1e-3"]):
        assert sentence in refused(capsys, *command, "--out", held)
    for train in (
        lambda: launch.train(presets.build("raw", "PendulumSwingup", SETTINGS), held),
        lambda: moca.SAC("PendulumSwingup", out=held),
    ):
        with pytest.raises(ValueError, match="is not empty and not a run directory"):
            train()
    assert [path.name for path in held.iterdir()] == ["chapter.tex"]


@pytest.mark.parametrize(
    ("names", "fine"),
    [
        (["lock"], True),  # a run that died before it wrote anything
        (["lock", "meta.json.writing"], True),
        (["meta.json", "chapter.tex"], True),
        ([".DS_Store", ".gitkeep"], True),
        (["checkpoints/kept.pt"], False),  # another program's
        (["checkpoints/"], False),
        (["lock", "policy.npz"], False),
        (["metrics.jsonl"], False),
        ([".git/config"], False),
        ([".bashrc"], False),
        (["lock/file"], False),
    ],
)
def test_a_run_directory_is_known_by_its_settings(tmp_path, names, fine):
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).mkdir() if name.endswith("/") else (tmp_path / name).touch()
    with nullcontext() if fine else pytest.raises(ConfigError, match="is not empty and not a run directory"):
        refuse_foreign(tmp_path)


def test_an_overlap_that_is_not_possible_is_refused(tmp_path, capsys):
    """Before there is a directory, and by a dry run."""
    new = tmp_path / "new"
    for options, why in (
        (
            ["--seeds", "2", "--env", "CartpoleBalance"],
            "overlap is not possible: it is for a single run, and 2 runs use",
        ),
        (["--env", "Pendulum-v1", "--agent", "sac"], "overlap needs a compiled environment"),
        (["--agent", "bnaf", "--no-filter"], "overlap is not possible: "),
    ):
        for dry in ([], ["--dry-run"]):
            assert why in refused(capsys, "train", *options, "--overlap", "--out", new, *dry)
            assert not new.exists()


def test_weights_of_other_shapes_are_refused(tmp_path, capsys):
    """Before there is a directory, and by a dry run."""
    config = presets.build("raw", "PendulumSwingup", SETTINGS)
    directory = RunDirectory(tmp_path / "run")
    with directory.locked():
        directory.begin(config, [{"seed": 0}, {"seed": 1}])
        env = make_env(config)
        keys = jax.random.split(jax.random.key(0), 2)
        directory.save_policy(jax.jit(jax.vmap(lambda key: init_run(config, env, key).learner))(keys))
    same = ["train", "--from", tmp_path / "run", "--preset", "raw", "--env", "PendulumSwingup", "--agent", "sac"]
    same += ["--out", tmp_path / "new"]
    for dry in ([], ["--dry-run"]):
        told = refused(capsys, *same, *dry, "--set", "sac.width=16")
        assert f"cannot start from {tmp_path / 'run'}: its sac.width is 8, not 16; the networks must have" in told
    main([*map(str, same), "--set", "sac.width=8", "--dry-run"])
    assert json.loads(capsys.readouterr().out)["sac"]["width"] == 8
    assert not (tmp_path / "new").exists()


def test_weights_that_are_not_there_are_refused(tmp_path, run, capsys):
    """A dry run refuses them too."""
    for dry in ([], ["--dry-run"]):
        told = refused(capsys, "train", "--from", tmp_path / "nowhere", "--out", tmp_path / "new", *dry)
        assert f"{tmp_path / 'nowhere'} is not a run directory: it has no config.json" in told
        told = refused(capsys, "train", "--from", run, "--out", tmp_path / "new", *dry)
        assert f"{run} has no policy.npz yet" in told
    assert not (tmp_path / "new").exists()


def test_a_run_without_a_return_says_why_and_exits_as_training_did(run, monkeypatch, capsys):
    lost = [{"seed": 0, "step": 40, "cause": "|Q| is above 1e6"}]
    nan = float("nan")  # in the order of a compiled program, which sorts names
    none = {"overestimation": nan, "return_mean": nan, "return_noise_free": nan, "value_noise_variance": 0.0}
    rows = [{"seed": 0} | none, {"seed": 1} | none | {"return_mean": 3.0, "return_noise_free": 3.0}]
    held = RunDirectory(run)
    monkeypatch.setattr("moca.runs.cli._load", lambda *_: Mock(directory=held, evaluate=lambda *_: rows))
    monkeypatch.setattr("moca.runs.cli._tell_steps", lambda _: None)
    with held.locked():
        held.write_status("finished", 60, lost)
    main(["evaluate", str(run)])
    assert capsys.readouterr().out.splitlines() == [
        "seed 0: no return, since it diverged by step 40: |Q| is above 1e6",
        "seed 1, return_mean 3, value_noise_variance 0",
    ]
    rows[1] |= none
    with pytest.raises(SystemExit) as left:
        main(["evaluate", str(run)])
    assert left.value.code == DivergedRun.code
    assert capsys.readouterr().out.splitlines()[1] == (
        "seed 1: no return, since a reward or an observation of the environment is not finite"
    )


@pytest.mark.parametrize(
    ("name", "cause", "runs", "words"),
    [
        (
            "gymnasium:Pendulum-v1",
            1,
            1,
            r"the run \(seed 0\) diverged by step 40: .*; moca check Pendulum-v1 --steps 200 may",
        ),
        ("gymnasium:Pendulum-v1", 1, 2, r"every run diverged, the last one \(seed 0\) by step 40: .*; moca check P"),
        ("own:Pendulum", 1, 1, r"moca\.check_env\(env, steps=200\) may say why$"),
        ("gymnasium:Pendulum-v1", 2, 1, "diverged by step 40: a learned.* is in .*run$"),
    ],
)
def test_a_divergence_says_where_to_look(run, name, cause, runs, words):
    trainer = Mock(step=40, env=Gymnasium("Pendulum-v1"))
    config = presets.build("raw", "Pendulum-v1", {"agent": "sac", "env.name": name, "env.episode_length": 200})
    held = Mock(spec=["directory", "config", "path"], directory=Mock(runs=[{}] * runs), config=config, path=run)
    lost = [{"seed": 0, "step": 40, "cause": CAUSES[cause]}]
    with pytest.raises(DivergedRun, match=words):
        ending.conclude(trainer, held, Mock(), "", "diverged", lost, moca.runs.callbacks.Callback())


def test_the_check_that_a_divergence_names_is_of_the_environment_as_trained(tmp_path, monkeypatch):
    """With the settings that change what is checked, and its module found."""
    (tmp_path / "mine_here.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    lasting = {"agent": "sac", "env.episode_length": 200, "belief.filter": True}
    for name, settings, told in (
        ("gymnasium:Pendulum-v1", {"env.flatten": True}, "moca check Pendulum-v1 --steps 200 --set env.flatten=true"),
        ("own:Mine", {"env.flatten": True}, "moca.check_env(env, steps=200, flatten=True)"),
        ("own:Mine", {"sensor.gaps": True}, "moca.check_env(env, steps=200, gaps=True)"),
        ("gymnasium:mine_here:Mine", {"env.flatten": True, "sensor.gaps": True},
         f"PYTHONPATH={tmp_path} moca check mine_here:Mine --steps 200 --set env.flatten=true --set sensor.gaps=true"),
    ):  # fmt: skip
        config = override(Config(), lasting | settings | {"env.name": name})
        assert launch.before.advice(CAUSES[1], Gymnasium("Pendulum-v1"), config) == f"; {told} may say why"


def test_a_setting_and_its_option_may_not_contradict_each_other(capsys):
    for options, told in (
        (["--steps", "3000", "--set", "train.steps=2000"], "--set train.steps=2000 contradicts --steps 3000"),
        (["--filter", "--set", "belief.filter=false"], "--set belief.filter=false contradicts --filter"),
        (["--set", "critic.lr=1", "--set", "critic.lr=2"], "--set critic.lr=2 contradicts --set critic.lr=1"),
    ):
        assert told in refused(capsys, "train", *options, "--dry-run")
    main(["train", "--steps", "3000", "--set", "train.steps=3e3", "--dry-run"])


def test_a_finished_run_is_not_resumed_elsewhere(run, capsys):
    directory = RunDirectory(run)
    with directory.locked():
        directory.write_status("finished", 3000)
    told = refused(capsys, "train", "--resume", run)
    assert f"{run}: it is finished, with 3,000 steps; for more: moca train --resume {run} --steps N" in told
    assert "another directory" not in told
