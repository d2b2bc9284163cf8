"""What answers in the middle of a run says how old it is, and is not much older than the run."""

import json
import pickle
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest

import moca
from moca.cli import main
from moca.runs import checkpoint, lock, policies, saving
from moca.runs.directory import RunDirectory
from moca.runs.export import Exported
from tests import probes

pytestmark = pytest.mark.usefixtures("programs_made_once")

LENGTH = 20
ENV = "tests.probes:Drift"


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """A run as it is in the middle of its training: four episodes, and a checkpoint of the first."""
    path = tmp_path_factory.mktemp("policies") / "run"
    config = moca.config.override(probes.tiny(train__steps=6 * LENGTH, seeds=2), {"env.name": f"gymnasium:{ENV}"})
    moca.train(config, path, callback=lambda training: training.step < 4 * LENGTH, keep=9)
    for later in checkpoint.newest_first(path / "checkpoints")[:-1]:
        later.unlink()
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    for number, row in enumerate(rows):  # the second run is the best until the first checkpoint, the first one later
        row["return_mean"] = float(number % 2 if row["step"] == LENGTH else 10 - number % 2)
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (path / "policy.npz").unlink()
    (path / "status.json").write_text('{"state": "running", "step": 0}')
    return path


def test_a_policy_of_a_run_in_training_says_its_step(running, tmp_path, capsys, monkeypatch):
    told = "policies after step 20; the run is at 80\n"
    monkeypatch.setattr(moca.runs.run.film, "episode", lambda *_: ("drawn", 1.0))
    for command in (["evaluate", "--episodes", "1"], ["render"], ["inspect", "--out", str(tmp_path / "page.html")]):
        main([command[0], str(running), *command[1:]])
        assert capsys.readouterr().out.startswith(told), command
        told = "policy after step 20; the run is at 80\n"  # the other commands are about one run
    main(["inspect", str(running), "--beside", str(running), "--out", str(tmp_path / "page.html")])
    assert capsys.readouterr().out.startswith(f"{running}: {told}" * 2)
    main(["export", str(running), "--out", str(tmp_path / "policy.npz")])
    said = capsys.readouterr().out
    assert said.startswith(told)
    assert "run 1 of 2 (seed 1), the one with the highest return" in said  # among the rows of that policy


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["evaluate", "--which", "best"], "run has no best.json: train with --keep-best"),
        (["render", "--which", "best"], "run has no best.json: train with --keep-best"),
        (["render", "--run", "2"], "run = 2 is out of range: the runs in"),
        (["inspect", "--run", "3"], "run = 3 is out of range: the runs in"),
        (["inspect", "--which", "best"], "run has no best.json: train with --keep-best"),
        (["inspect", "--beside", "DIR", "--beside-run", "2"], "run = 2 is out of range: the runs in"),
    ],
)
def test_what_a_run_does_not_have_is_said_at_once(running, arguments, told, capsys):
    """Without a word of what is then not done."""
    with pytest.raises(SystemExit):
        main([arguments[0], str(running), *(str(running) if each == "DIR" else each for each in arguments[1:])])
    err = capsys.readouterr().err
    assert told in err
    assert "Compiling" not in err


def test_an_exported_policy_says_whose_it_is(running, tmp_path):
    run = moca.load(running)
    assert run.policy_steps == [LENGTH] * 2
    written = run.export(tmp_path / "policy.npz")
    assert (written.run, written.seed, written.step) == (1, 1, LENGTH)
    assert repr(written) == f"Exported({str(tmp_path / 'policy.npz')!r}: run 1, seed 1, after step 20)"
    assert written == tmp_path / "policy.npz"
    assert isinstance(written, Path)
    assert written.read_bytes() == (tmp_path / "policy.npz").read_bytes()
    assert str(written.parent) == str(tmp_path)
    assert "run 1" not in repr(written.with_suffix(".onnx"))
    assert pickle.loads(pickle.dumps(written)) == written
    facts = moca.Policy.load(written).facts
    assert (facts["seed"], facts["step"]) == (1, LENGTH)
    assert isinstance(written, Exported)


def test_a_run_in_training_is_as_far_as_its_newest_row(running):
    run = moca.load(running)
    with lock.held(running):
        assert "running, 80 of 120 steps" in repr(run)
        assert "policies after" not in repr(run)
        run.evaluate(1)
        assert "running, 80 of 120 steps, policies after step 20, " in repr(run)
    assert run.directory.status["step"] == 0
    assert policies.progress(run.directory) == 80


def test_the_end_of_a_run_has_the_policies_of_its_end(running, tmp_path, capsys):
    run = moca.train(
        probes.tiny(train__steps=2 * LENGTH), tmp_path / "run", env=probes.Drift(), callback=moca.KeepBest()
    )
    assert run.policy_steps == [40]
    assert policies.told(run) == "policies after step 40"
    (best,) = run.best.policy_steps
    assert best in (20, 40)
    assert policies.told(run.best) == f"best policies after step {best}"
    (tmp_path / "run" / "best.json").unlink()
    assert policies.told(moca.load(run.path, env=probes.Drift(), which="best")).endswith("an unknown number of steps")


def test_a_message_about_one_policy_has_the_step_of_its_run():
    run = SimpleNamespace(
        which="best", policy_steps=[4600, 6200], directory=Mock(status={"state": "finished", "step": 1})
    )
    run._policies = policies.Policies(None, run.policy_steps)
    assert policies.told(run) == "best policies after step 4,600 to 6,200"
    assert [policies.told(run, number) for number in range(2)] == [
        "best policy after step 4,600",
        "best policy after step 6,200",
    ]


def test_a_run_made_longer_answers_with_its_end_until_it_has_a_checkpoint(tmp_path):
    config, env = probes.tiny(train__steps=LENGTH), probes.Drift()
    moca.train(config, tmp_path / "run", env=env)

    def look(training):
        for each in (tmp_path / "run" / "checkpoints").iterdir():
            each.unlink()
        seen.append(policies.told(moca.load(tmp_path / "run", env=env)))

    seen = []
    moca.resume(tmp_path / "run", steps=2 * LENGTH, env=env, callback=look)
    assert seen == ["policies after step 20; the run is at 40"]


@pytest.mark.parametrize(
    ("every", "wanted"),
    [
        (60.0, [0, 1, 3, 7, 15, 31, 63, 123, 183]),
        (5.0, [0, 1, 3, 7, 12, 17, 22]),
        (0.0, [0, 0.5, 1, 1.5, 2]),
    ],
)
def test_intervals_between_checkpoints_double_at_first(every, wanted, monkeypatch, tmp_path):
    clock, saved = Mock(), []
    monkeypatch.setattr(saving.time, "perf_counter", clock)
    monkeypatch.setattr(saving.checkpoint, "HostCopy", Mock())

    class Saver(saving.Saver):
        def save(self):
            self._last = clock()
            saved.append(clock())

    saver = Saver(Mock(), RunDirectory(tmp_path), every, 2, list)
    for clock.return_value in np.arange(0, wanted[-1] + 0.5, 0.5):
        saver.save_if_due()
    assert saved == wanted
