"""A study that was killed, starved of a worker or sent to a cluster has the results of one that nothing happened to."""

import contextlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

import moca
from moca import cli
from moca.config import ConfigError
from moca.studies import display, grid, launch, results, work
from moca.studies.grid import Block, Grid

SMALL = {
    "env.episode_length": 100, "train.warmup": 100, "train.eval_episodes": 1, "critic.width": 8, "dynamics.width": 8,
    "dynamics.members": 2, "value.bases": 8, "sac.width": 8, "train.batch": 16,
}  # fmt: skip
AGENTS = ("bnaf",)  # one job: every start of one takes half a minute
STUDY = Grid("small", (Block("PendulumSwingup", AGENTS, ("0", "0.05"), 1500, SMALL),), ("told",), 3, 2)
QUICK = launch.Options(checkpoint_every=0.0, device="cpu")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The study that nothing happened to."""
    directory = tmp_path_factory.mktemp("studies") / "whole"
    launch.study(STUDY, directory, options=QUICK)
    return directory


def as_file(folder):
    """The study as a TOML file."""
    path = folder / "small.toml"
    path.write_text(
        f'name = "small"\npresets = ["told"]\nseed = 3\nseeds = 2\n[[blocks]]\nenv = "PendulumSwingup"\n'
        f"agents = {list(AGENTS)}\nnoises = ['0', '0.05']\nsteps = 1500\n[blocks.settings]\n"
        + "".join(f'"{name}" = {value}\n' for name, value in SMALL.items())
    )
    return path


def same(directory, whole):
    """Whether two studies are alike: the table byte for byte, and what the policies do over the plane."""
    assert (directory / results.TABLE).read_bytes() == (whole / results.TABLE).read_bytes()
    with np.load(directory / "landscape-told.npz") as ours, np.load(whole / "landscape-told.npz") as theirs:
        assert ours.files == theirs.files
        for name in ours.files:
            np.testing.assert_array_equal(ours[name], theirs[name])


def test_what_a_study_leaves_behind(whole):
    table = moca.load_results(whole)
    assert list(table.columns[:8]) == list(results.KEYS)
    assert len(table) == 2 * 2 * 15  # noises, seeds, evaluations
    assert set(table["agent"]) == set(AGENTS)
    assert table.groupby(["agent", "noise"])["seed"].unique().map(list).tolist() == [[3, 4]] * 2
    assert dict(zip(table["noise"], table["sigma"], strict=True)) == {"0": 0.0, "0.05": 0.05}
    assert table["return_mean"].notna().all()
    assert not (whole / "cells" / "told-PendulumSwingup-bnaf" / "checkpoints").exists()
    assert set(results.load_origin(whole)) == {f"told-PendulumSwingup-{agent}" for agent in AGENTS}
    # The table says of a run what its own log says.
    run = moca.load_results(whole / "cells" / "told-PendulumSwingup-bnaf")
    rows = table[(table["sigma"] == 0.05) & (table["seed"] == 4)]
    own = run[(run["sigma"] == 0.05) & (run["seed"] == 4)]
    np.testing.assert_allclose(rows["return_mean"], own["return_mean"], rtol=1e-6)
    with np.load(whole / "landscape-told.npz") as file:
        assert set(file.files) == {"angle", "velocity"} | {
            f"{what}/{agent}/{noise}" for what in ("value", "action") for agent in AGENTS for noise in ("0", "0.05")
        }
        assert file["value/bnaf/0"].shape == (73, 65)


def test_what_is_finished_is_not_run_again(whole):
    before = {path: path.stat().st_mtime_ns for path in whole.glob("cells/*/metrics.jsonl")}
    launch.study(STUDY, whole, options=QUICK)
    assert before == {path: path.stat().st_mtime_ns for path in whole.glob("cells/*/metrics.jsonl")}


def test_a_film_is_made_and_its_failure_is_a_line(whole, tmp_path, monkeypatch):
    directory = tmp_path / "filmed"
    shutil.copytree(whole, directory)
    jobs = grid.plan(replace(STUDY, films=AGENTS))
    run = directory / "cells" / jobs[0].name
    before = (run / "metrics.jsonl").stat().st_mtime_ns
    asked = []

    def render(self, run, seed, path):
        asked.append((run, seed))
        path.write_bytes(b"film")
        if len(asked) == 1:
            raise RuntimeError("no encoder")

    monkeypatch.setattr("moca.runs.run.Run.render", render)
    console = Console(record=True, quiet=False, file=io.StringIO())
    work.run_job(directory, jobs[0], 0.0, console)
    assert "has no video: no encoder" in console.export_text()
    assert not list(run.glob("*.mp4"))
    work.run_job(directory, jobs[0], 0.0)
    results.collect(directory, jobs)
    assert (directory / "films" / f"{jobs[0].name}.mp4").read_bytes() == b"film"
    table = moca.load_results(whole)
    last = table[(table["noise"] == "0.05") & (table["step"] > 1350)].groupby("seed")["return_mean"].mean()
    assert asked == [(2 + int(last[4] >= last[3]), 3)] * 2  # the better of two seeds at the greater noise
    (directory / results.PLAN).write_text(grid.to_json(replace(STUDY, films=AGENTS)))
    launch.study(replace(STUDY, films=AGENTS), directory, options=QUICK, console=console)
    assert "could not be made" not in console.export_text()
    (run / results.FILM).unlink()
    launch.study(replace(STUDY, films=AGENTS), directory, options=QUICK, console=console)
    assert f"1 video could not be made; run the same command with --only {jobs[0].name}" in " ".join(
        console.export_text().split()
    )
    assert (run / "metrics.jsonl").stat().st_mtime_ns == before
    assert len(asked) == 2  # what is there is not made again, and what is missing is not by a study that is finished
    work.run_job(directory, jobs[0], 0.0)
    assert len(asked) == 3


def test_what_is_only_half_done_is_not_finished(whole, tmp_path):
    """A kill after the last episode and before the policy or the landscape were written."""
    for missing in ("policy.npz", "landscape.npz", "status.json"):
        directory = tmp_path / missing
        shutil.copytree(whole, directory)
        (job,) = grid.plan(STUDY)
        assert results.finished(directory, job)
        (directory / "cells" / job.name / missing).unlink()
        assert not results.finished(directory, job)


def test_a_study_of_which_nothing_is_left_says_so(whole, tmp_path, capsys):
    """A line for each job whose runs diverged, and exit code 3 if that is true of every run."""
    directory, (job,) = tmp_path / "lost", grid.plan(STUDY)
    shutil.copytree(whole, directory)
    status = directory / "cells" / job.name / "status.json"
    causes = ["|Q| is above 1e6", "|Q| is above 1e6", "an action is not finite", "|Q| is above 1e6"]
    before = json.loads(status.read_text())
    for count, code in ((4, 3), (3, None)):
        status.write_text(json.dumps(before | {"state": "running"}))
        console = Console(record=True, file=io.StringIO(), width=200)
        board = display.Board(console, directory, [job])
        lost = [{"seed": 3, "step": 500, "cause": cause} for cause in causes[:count]]
        status.write_text(json.dumps(before | {"state": "diverged" if code else "finished", "diverged": lost}))
        board.refresh({})
        told = f"{job.name}: {count} of 4 runs diverged: |Q| is above 1e6; an action is not finite"
        assert console.export_text().splitlines() == [f"{job.name}: finished, 1 of 1 jobs", told]
        with pytest.raises(SystemExit) if code else contextlib.nullcontext() as stopped:
            cli.main(["study", str(as_file(tmp_path)), "--out", str(directory), "--device", "cpu"])
        assert code is None or stopped.value.code == code
        printed = capsys.readouterr().out
        assert ("every run of the study diverged: |Q| is above 1e6; an action is not finite" in printed) == bool(code)
    status.write_text(json.dumps(before | {"diverged": [{"cause": "\x1b[2J"}, {}, 3]}))
    assert results.diverged(directory, job) == []


def test_a_directory_of_results_alone_can_be_gone_on_with(whole, tmp_path):
    (tmp_path / results.PLAN).write_bytes((whole / results.PLAN).read_bytes())
    launch.prepare(tmp_path, STUDY)
    assert (tmp_path / results.CELLS).is_dir()
    with pytest.raises(ConfigError, match="has a study without any finished job"):
        moca.load_results(tmp_path)


def test_another_study_is_not_gone_on_with(whole):
    with pytest.raises(ConfigError, match=r"has another study \(it differs in seeds\): choose another --out"):
        launch.study(grid.narrowed(STUDY, seeds=3), whole)
    with pytest.raises(ConfigError, match="it differs in blocks"):
        launch.study(grid.narrowed(STUDY, steps=300), whole)


CODE = """
import sys
sys.path.insert(0, {root!r})
from tests.studies.test_launch import QUICK, STUDY
from moca.studies import launch
if __name__ == "__main__":
    launch.study(STUDY, {path!r}, options=QUICK, launcher={launcher!r})
"""


def start(directory, launcher="local"):
    root = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
    code = CODE.format(root=root, path=str(directory), launcher=launcher)
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def wait_for_rows(directory, agent, rows, process):
    path = directory / "cells" / f"told-PendulumSwingup-{agent}" / "metrics.jsonl"
    while process.poll() is None and not (path.exists() and path.read_text().count("\n") >= rows):
        time.sleep(0.005)
    assert process.poll() is None
    return path.parent


@pytest.mark.slow
def test_killed_twice_it_goes_on_to_the_same_table(tmp_path, whole):
    """Once the study itself, whose job then stops of its own accord; once a job, which the study starts again."""
    directory = tmp_path / "killed"
    with start(directory) as study:
        run = wait_for_rows(directory, "bnaf", 8, study)
        job = int((run / "lock").read_text())
        study.kill()
    for _ in range(1200):
        if not os.path.exists(f"/proc/{job}"):
            break
        time.sleep(0.1)
    assert not os.path.exists(f"/proc/{job}")
    assert not results.finished(directory, grid.plan(STUDY)[0])
    with start(directory) as study:
        run = wait_for_rows(directory, "bnaf", 24, study)
        os.kill(int((run / "lock").read_text()), signal.SIGKILL)
        assert study.wait() == 0
    same(directory, whole)


@pytest.mark.slow
def test_asked_to_stop_it_saves_and_says_how_to_go_on(tmp_path, whole):
    directory = tmp_path / "asked"
    command = [
        sys.executable,
        "-m",
        "moca",
        "study",
        str(as_file(tmp_path)),
        "--out",
        str(directory),
        "--device",
        "cpu",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as study:
        wait_for_rows(directory, "bnaf", 4, study)
        study.send_signal(signal.SIGTERM)
        printed = study.communicate()[0]
    assert study.returncode == 75
    assert "stopped by SIGTERM; run the same command to resume" in printed
    status = json.loads((directory / "cells" / "told-PendulumSwingup-bnaf" / "status.json").read_text())
    assert status["state"] == "interrupted"
    finished = subprocess.run(command, capture_output=True, text=True, check=True)
    assert finished.stdout.split()[-1] == str(directory / results.TABLE)
    assert (directory / "report.html").exists()
    same(directory, whole)


@pytest.mark.slow
def test_a_job_that_fails_is_named_and_the_others_are_kept(tmp_path):
    study = Grid("broken", (Block("PendulumSwingup", ("bnaf", "sac"), ("0",), 100, SMALL),), ("told",), 3, 1)
    directory = tmp_path / "broken"
    launch.prepare(directory, study)
    (directory / "cells" / "told-PendulumSwingup-sac").write_text("in the way")
    with pytest.raises(ConfigError, match=r"1 of 2 jobs failed: told-PendulumSwingup-sac: cannot write to .*exists"):
        launch.study(study, directory, options=QUICK)
    assert set(moca.load_results(directory)["agent"]) == {"bnaf"}


@pytest.mark.slow
def test_one_job_alone(tmp_path):
    """What a line of a job array does."""
    directory = tmp_path / "alone"
    study = Grid("two", (Block("PendulumSwingup", ("bnaf", "sac"), ("0",), 100, SMALL),), ("told",), 3, 1)
    launch.prepare(directory, study)
    launch.work(directory, "told-PendulumSwingup-bnaf", launch.Options())
    assert [results.finished(directory, job) for job in grid.plan(study)] == [True, False]
    with pytest.raises(
        ConfigError, match=r"only = 'nothing' is not a job of this study. Allowed: 0 to 1, or told-Pend"
    ):
        launch.work(directory, "nothing", launch.Options())


def test_the_plan_is_shown(tmp_path):
    command = [sys.executable, "-m", "moca", "study", "cartpole", "--dry-run", "--seeds", "2", "--steps", "3000"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path).stdout
    assert "30 cells in 10 jobs; 180,000 environment steps to go" in printed
    assert "told-CartpoleBalance-moca " in printed
    assert not list(tmp_path.iterdir())


def test_results_that_are_not_there(tmp_path):
    with pytest.raises(ConfigError, match="has neither a study"):
        moca.load_results(tmp_path)
    (tmp_path / results.TABLE).write_text("no table")
    with pytest.raises(ConfigError, match=r"results.parquet cannot be read"):
        moca.load_results(tmp_path)


needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: pip install 'moca-rl[ray]'")


@pytest.mark.slow
@needs_ray
def test_a_cluster_that_is_asked_to_stop_saves(tmp_path, whole):
    directory = tmp_path / "ray"
    with start(directory, "ray") as study:
        run = wait_for_rows(directory, "bnaf", 4, study)
        study.send_signal(signal.SIGTERM)
        assert study.wait() == 1  # InterruptedRun, which the command line makes a 75
    assert json.loads((run / "status.json").read_text())["state"] == "interrupted"
    with start(directory, "ray") as study:
        assert study.wait() == 0
    same(directory, whole)


@pytest.mark.slow
def test_two_studies_on_one_directory_share_the_work(tmp_path, whole):
    directory = tmp_path / "both"
    with start(directory) as one, start(directory) as other:
        assert (one.wait(), other.wait()) == (0, 0)
    same(directory, whole)


@pytest.mark.slow
@needs_ray
def test_a_cluster_gives_the_same_table_though_a_worker_dies(tmp_path, whole):
    directory = tmp_path / "ray"
    with start(directory, "ray") as study:
        run = wait_for_rows(directory, "bnaf", 8, study)
        os.kill(int((run / "lock").read_text()), signal.SIGKILL)
        assert study.wait() == 0
    same(directory, whole)
    assert isinstance(moca.load_results(directory), pd.DataFrame)
