"""A dry run refuses what training would, and what is refused has written nothing and compiled nothing."""

import json

import jax
import pytest

from moca import memory_estimate
from moca.cli import main
from moca.drivers import trainer
from moca.envs import defaults
from moca.runs import lock, starting
from moca.runs.directory import RunDirectory
from moca.runs.run import Run
from tests.envs.hosted import Linear
from tests.runs.test_cli import refused, resumed, run  # noqa: F401, fixtures

OWN = ["--env", "tests.probes:Drift", "--agent", "sac", "--no-filter", "--set", "env.episode_length=1000"]
HOSTED = ["--env", "tests.envs.hosted:Linear", "--agent", "sac", "--no-filter"]


class Broken(Linear):
    """A step raises."""

    def step(self, action):
        raise RuntimeError("out of order")


@pytest.fixture(autouse=True)
def untrained(monkeypatch, tmp_path):
    """Where commands run: nothing is trained there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(trainer.Trainer, "__init__", lambda *_, **__: pytest.fail("it was trained"))
    before = jax.config.jax_platforms
    yield tmp_path
    jax.config.update("jax_platforms", before)


def files(folder):
    return sorted((str(path), path.read_bytes()) for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("dry", [["--dry-run"], []])
@pytest.mark.parametrize(
    ("options", "told"),
    [
        ([*OWN, "--steps", "1500"], "train.steps = 1500 must be a multiple of env.episode_length = 1000"),
        ([*OWN, "--steps", "1000", "--set", "noise.sigmas=[1,1,1]"], "noise.sigmas has 3 numbers"),
        ([*HOSTED, "--set", "sensor.observed=[17]"], "sensor.observed = [17] is out of range"),
        (["--env", "tests.runs.test_dry_run:Broken", "--agent", "sac", "--no-filter"], "RuntimeError: out of order"),
    ],
)
def test_an_environment_that_does_not_fit_is_refused(untrained, capsys, options, told, dry):
    assert told in refused(capsys, "train", *options, "--out", "new", *dry)
    assert files(untrained) == []


@pytest.mark.parametrize("command", [["train"], ["sweep", "--grid", "sac.tau=0.1,0.2"]])
@pytest.mark.parametrize("dry", [["--dry-run"], []])
def test_too_little_memory_and_a_missing_device_are_refused(untrained, capsys, monkeypatch, command, dry):
    """Before there is a directory."""
    monkeypatch.setattr(memory_estimate, "available", lambda: 10**6)
    told = refused(capsys, *command, *HOSTED, "--steps", "100000", "--out", "new", *dry)
    assert "training needs at least " in told
    assert "lower train.capacity" in told
    monkeypatch.undo()
    monkeypatch.chdir(untrained)

    def none():
        raise RuntimeError

    monkeypatch.setattr(jax, "devices", none)
    assert "JAX found no gpu" in refused(capsys, *command, *HOSTED, "--device", "gpu", "--out", "new", *dry)
    assert files(untrained) == []


@pytest.mark.parametrize("dry", [["--dry-run"], []])
def test_a_run_that_cannot_be_resumed_is_refused(run, capsys, monkeypatch, dry):  # noqa: F811
    held = files(run)
    with lock.held(run):
        assert f"{run} is in use: process " in refused(capsys, "train", "--resume", run, *dry)
        same = ["--preset", "raw", "--env", "PendulumSwingup", "--agent", "sac", "--sigma", "0.1", "--seeds", "2"]
        same += ["--steps", "3000", "--set", "sac.width=8", "--out", run]
        assert f"{run} is in use: process " in refused(capsys, "train", *same, *dry)
    (run / "best.json").write_text("[]")
    told = refused(capsys, "train", "--resume", run, "--keep-best", *dry)
    assert "best.json does not list a score for each run" in told
    (run / "best.json").unlink()
    monkeypatch.setattr(starting, "_refuse_other_shapes", lambda *_: None)
    monkeypatch.setattr(Run, "learners", None)
    (run / "checkpoints").mkdir()
    (run / "checkpoints" / "000000001000.checkpoint").touch()  # it has begun to learn
    assert "already has a run, which did not start from another" in refused(capsys, "train", *same, "--from", run, *dry)
    (run / "checkpoints" / "000000001000.checkpoint").unlink()
    assert "train.steps = 3500 must be" in refused(capsys, "train", "--resume", run, "--steps", "3500", *dry)
    monkeypatch.setattr(memory_estimate, "available", lambda: 10**5)
    assert "training needs at least " in refused(capsys, "train", "--resume", run, "--steps", "9000", *dry)
    assert [each for each in files(run) if not each[0].endswith("lock")] == [
        each for each in held if not each[0].endswith("lock")
    ]


@pytest.mark.parametrize("command", [["train"], ["sweep", "--grid", "sac.tau=0.1,0.2"]])
@pytest.mark.parametrize("dry", [["--dry-run"], []])
def test_a_directory_is_looked_at_before_an_environment_is_measured(untrained, capsys, monkeypatch, command, dry):
    monkeypatch.setattr(defaults, "measured", lambda *_, **__: pytest.fail("it was measured"))
    (untrained / "thesis").mkdir()
    (untrained / "thesis" / "chapter.tex").touch()
    told = refused(capsys, *command, "--env", "AcrobotSwingup", "--out", "thesis", *dry)
    assert "thesis is not empty and not a run directory" in told
    assert [path.name for path in (untrained / "thesis").iterdir()] == ["chapter.tex"]


def test_a_dry_run_leaves_the_directory_as_it_is(untrained, run, capsys):  # noqa: F811
    held = files(untrained)
    main(["train", "--resume", str(run), "--steps", "6000", "--dry-run"])
    assert json.loads(capsys.readouterr().out)["train"]["steps"] == 6000
    main(["sweep", *HOSTED, "--grid", "sac.tau=0.1,0.2", "--out", "new", "--dry-run"])
    assert capsys.readouterr().out == "sac.tau = 0.1\nsac.tau = 0.2\n"
    assert files(untrained) == held
    assert RunDirectory(run).config.train.steps == 3000
