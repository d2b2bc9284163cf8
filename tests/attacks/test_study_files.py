"""Files of a study that are damaged, crafted or of another shape: one sentence each, which names the file."""

import contextlib
import dataclasses
import io
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import moca
from moca import files
from moca.cli import main
from moca.config import Config, ConfigError, override, to_json
from moca.files import DiskError
from moca.studies import grid, launch, look, report, report_origin, results
from moca.studies.display import steps
from tests.attacks.policies import npy, zipped
from tests.studies import made

BLOCK = grid.Block("CartpoleBalance", ("sac", "moca"), ("0.05",), 20_000)
PLAN = grid.Grid("small", (BLOCK,), presets=("raw",), seed=0, seeds=3)


def whole_table():
    return pd.concat([made.table(BLOCK.env, agent, "0.05", [800, 810, 820]) for agent in BLOCK.agents])


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A study that can be read; tests put back what they break."""
    directory = tmp_path_factory.mktemp("study")
    (directory / "study.json").write_text(grid.to_json(PLAN))
    whole_table().to_parquet(directory / "results.parquet", index=False)
    (directory / "origin.json").write_text(json.dumps({"raw-CartpoleBalance-sac": {"seconds": 3.0, "device": ["cpu"]}}))
    return directory


def test_the_study_that_is_attacked_can_be_read(study):
    assert "CartpoleBalance" in report.render(study)


def plan_with(block=None, **changed):
    content = json.loads(grid.to_json(PLAN)) | changed
    content["blocks"][0] = {name: v for name, v in (content["blocks"][0] | (block or {})).items() if v is not ...}
    return json.dumps(content).encode()


def table_with(table=None, **columns):
    table = whole_table() if table is None else table
    for name, value in columns.items():
        table = table.drop(columns=name) if value is ... else table.assign(**{name: value})
    held = io.BytesIO()
    table.to_parquet(held, index=False)
    return held.getvalue()


def origin_with(**job):
    return json.dumps({"raw-CartpoleBalance-sac": job}).encode()


FILES = {
    # The plan
    "plan: empty": ("study.json", b"", "not JSON"),
    "plan: cut off": ("study.json", plan_with()[:100], "not JSON"),
    "plan: no UTF-8": ("study.json", b"\xff\xfe\x00", "utf-8"),
    "plan: NUL": ("study.json", b"\0" * 100, "not JSON"),
    "plan: nested": ("study.json", b"[" * 100_000, "nested too deeply"),
    "plan: huge": ("study.json", b" " * (2**24 + 1), "are allowed"),
    "plan: a number of many digits": ("study.json", plan_with().replace(b'"seeds": 3', b'"seeds": ' + b"1" * 5000),
                                      "cannot be read"),
    "plan: a list": ("study.json", b"[1, 2]", "must be a table"),
    "plan: null": ("study.json", b"null", "must be a table"),
    "plan: blocks of numbers": ("study.json", b'{"blocks": [1]}', "blocks must be tables"),
    "plan: no blocks": ("study.json", b"{}", "needs at least one table"),
    "plan: no agents": ("study.json", plan_with({"agents": ...}), "needs agents"),
    "plan: agents in a word": ("study.json", plan_with({"agents": "sac"}), "must be a list"),
    "plan: agents of tables": ("study.json", plan_with({"agents": [{}]}), "must be a list of strings"),
    "plan: another agent": ("study.json", plan_with({"agents": ["sacc"]}), "Did you mean sac"),
    "plan: an environment of numbers": ("study.json", plan_with({"env": 5}), "name of an environment"),
    "plan: another environment": ("study.json", plan_with({"env": "Cartpole"}), "is unknown"),
    "plan: steps in words": ("study.json", plan_with({"steps": "many"}), "must be a whole number"),
    "plan: half a seed": ("study.json", plan_with(seeds=2.5), "must be a whole number"),
    "plan: true seeds": ("study.json", plan_with(seeds=True), "must be a whole number"),
    "plan: minus one seed": ("study.json", plan_with(seeds=-1), "out of range"),
    "plan: settings in a list": ("study.json", plan_with({"settings": [1]}), "must be a table"),
    "plan: another setting": ("study.json", plan_with({"settings": {"critic.lrr": 1}}), "no setting"),
    "plan: found in a list": ("study.json", plan_with({"found": [1]}), "must be a table"),
    "plan: a name that leads out": ("study.json", plan_with(name=".."), "must consist of letters"),
    "plan: a name of numbers": ("study.json", plan_with(name=["a"]), "must consist of letters"),
    "plan: noise of words": ("study.json", plan_with({"noises": ["loud"]}), "is not a valid noise"),
    "plan: noise without end": ("study.json", plan_with({"noises": ["1e999"]}), "is not a valid noise"),
    # The table
    "table: empty": ("results.parquet", b"", "cannot be read"),
    "table: text": ("results.parquet", b"PAR1 no table PAR1", "cannot be read"),
    "table: cut off": ("results.parquet", table_with()[:3000], "cannot be read"),
    "table: no rows": ("results.parquet", table_with(whole_table().iloc[:0]), "no rows"),
    "table: no agents": ("results.parquet", table_with(agent=...), "no column agent"),
    "table: no returns": ("results.parquet", table_with(return_mean=...), "no column return_mean"),
    "table: returns in words": ("results.parquet", table_with(return_mean="high"), "not numbers"),
    "table: infinite returns": ("results.parquet", table_with(return_mean=np.inf), "infinite"),
    "table: agents of numbers": ("results.parquet", table_with(agent=1), "agent has an invalid value"),
    "table: a preset that leads out": ("results.parquet", table_with(preset="../../x"), "preset has an invalid value"),
    "table: a long name": ("results.parquet", table_with(env="x" * 100_000), "more than 300 characters"),
    "table: half a step": ("results.parquet", table_with(step=0.5), "step must be non-negative whole numbers"),
    "table: seeds below zero": ("results.parquet", table_with(seed=-1), "seed must be non-negative whole numbers"),
    "table: negative noise": ("results.parquet", table_with(sigma=-1.0), "sigma must not be negative"),
    "table: noise of words": ("results.parquet", table_with(noise="loud"), "is not a valid noise"),
    "table: everything twice": ("results.parquet", table_with(pd.concat([whole_table()] * 2)), "occurs twice"),
    # Where it comes from
    "origin: a list": ("origin.json", b"[]", "must contain a JSON object"),
    "origin: no JSON": ("origin.json", b"{", "not JSON"),
    "origin: no UTF-8": ("origin.json", b"\xff", "utf-8"),
    "origin: nested": ("origin.json", b'{"a":' * 100_000, "nested too deeply"),
    "origin: a job of numbers": ("origin.json", b'{"a": 5}', "has an invalid entry for 'a'"),
    "origin: devices in a number": ("origin.json", origin_with(device=5), "has an invalid entry for"),
    "origin: versions in a list": ("origin.json", origin_with(versions=[1]), "has an invalid entry for"),
    "origin: seconds in words": ("origin.json", origin_with(seconds="3"), "has an invalid entry for"),
    "origin: seconds of nothing": ("origin.json", origin_with(seconds=float("nan")), "has an invalid entry for"),
}  # fmt: skip


@pytest.mark.parametrize("case", FILES)
def test_a_broken_file_is_one_sentence(study, case):
    name, content, words = FILES[case]
    before = (study / name).read_bytes()
    (study / name).write_bytes(content)
    try:
        with pytest.raises(ConfigError, match=words) as refused:
            report.render(study)
    finally:
        (study / name).write_bytes(before)
    assert str(study / name) in str(refused.value)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 1500


def test_what_is_no_file_is_one_sentence(study):
    before = (study / "study.json").read_bytes()
    for put in (os.mkfifo, os.mkdir, lambda path: os.symlink("study.json", path), lambda path: None):
        (study / "study.json").unlink()
        put(study / "study.json")
        with pytest.raises(ConfigError, match=r"study.json"):
            report.render(study)
        (study / "study.json").rmdir() if (study / "study.json").is_dir() else (study / "study.json").unlink(True)
        (study / "study.json").write_bytes(before)


def test_a_table_that_claims_too_much_is_not_read(tmp_path, monkeypatch):
    """Constant columns take next to nothing on disk."""
    monkeypatch.setattr(results, "CELLS_IN_A_TABLE", 2**20)
    monkeypatch.setattr(pd, "read_parquet", None)
    pd.DataFrame({name: np.zeros(2**18) for name in "abcde"}).to_parquet(tmp_path / "results.parquet")
    assert (tmp_path / "results.parquet").stat().st_size < 10**5
    with pytest.raises(ConfigError, match="which is too much"):
        moca.load_results(tmp_path)


LANDSCAPES = {
    "empty": b"",
    "no plane": {"value/moca/0.05": np.zeros((3, 4)), "action/moca/0.05": np.zeros((3, 4))},
    "another plane": {"value/moca/0.05": np.zeros((4, 3)), "action/moca/0.05": np.zeros((3, 4))},
    "no actions": {"value/moca/0.05": np.zeros((3, 4))},
    "nothing": {},
    "objects": {"value/moca/0.05": np.array([None])},
    "another noise": {"value/moca/loud": np.zeros((3, 4)), "action/moca/loud": np.zeros((3, 4))},
    "another name": {"x": np.zeros((3, 4))},
    "huge": zipped([("angle.npy", npy("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000,)}"))]),
}


@pytest.mark.parametrize("case", LANDSCAPES)
def test_a_broken_landscape_is_one_sentence(tmp_path, case):
    path, content = tmp_path / "landscape-raw.npz", LANDSCAPES[case]
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        plane = {} if case == "no plane" else {"angle": np.arange(3.0), "velocity": np.arange(4.0)}
        np.savez(path, allow_pickle=True, **plane, **content)
    with pytest.raises(ConfigError, match=r"landscape-raw.npz cannot be read"):
        results.read_landscape(path)


TOML = {
    "no UTF-8": b"\xff\xfe",
    "NUL": b"\0",
    "nested": b"a = " + b"[" * 100_000,
    "no TOML": b"blocks = {",
    "blocks in a word": b'blocks = "x"',
    "an environment of numbers": b'[[blocks]]\nenv = 5\nagents = ["sac"]\nnoises = ["0"]',
    "steps in words": b'[[blocks]]\nenv = "PendulumSwingup"\nagents = ["sac"]\nnoises = ["0"]\nsteps = "many"',
    "a date for a seed": b'seed = 1979-05-27\n[[blocks]]\nenv = "PendulumSwingup"\nagents = ["sac"]\nnoises = ["0"]',
}


@pytest.mark.parametrize("case", TOML)
def test_a_broken_study_file_is_one_sentence(tmp_path, case):
    path = tmp_path / "mine.toml"
    path.write_bytes(TOML[case])
    with pytest.raises(ConfigError) as refused:
        grid.find(str(path))
    assert str(path) in str(refused.value)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(ConfigError, match="not a regular file"):
        grid.find(str(path))


def test_no_name_leads_out_of_the_study(tmp_path):
    def jobs(name):
        return grid.plan(grid.Grid("small", (grid.Block(name, ("sac",), ("0",), 20_000),), presets=("raw",)))

    with pytest.raises(ConfigError, match="is not a name"):
        jobs("gymnasium:a/../../../x")
    for job in jobs("gymnasium:a/..b/.c/x"):
        assert (tmp_path / job.name).resolve().parent == tmp_path.resolve()


def job_in(directory):
    """The first job of the plan, whose cell has no file yet, and where its cell lies."""
    job, cells = grid.plan(PLAN)[0], directory / "cells"
    (cells / job.name).mkdir(parents=True)
    return job, cells


def test_one_of_two_studies_begins(tmp_path, monkeypatch):
    """At the same time in one directory: the other is refused, and does not replace the plan."""
    save, begun = launch.save, []

    def slowly(path, content):
        time.sleep(0.1 * (b'"other"' in content))
        save(path, content)

    def begin(plan):
        with contextlib.suppress(ConfigError):
            launch.prepare(tmp_path, plan)
            begun.append(plan.name)

    monkeypatch.setattr(launch, "save", slowly)
    threads = [threading.Thread(target=begin, args=(plan,)) for plan in (PLAN, dataclasses.replace(PLAN, name="other"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert begun == [results.load_grid(tmp_path).name]


def test_the_log_of_a_job_is_no_link(tmp_path):
    (tmp_path / "victim").write_text("not yours")
    job, cells = job_in(tmp_path)
    for link in (os.symlink, os.link):
        link(tmp_path / "victim", cells / f"{job.name}.log")
        with pytest.raises(ConfigError, match=r"\.log should be an ordinary file"):
            launch._start(tmp_path, job, launch.Options())
        (cells / f"{job.name}.log").unlink()
    assert (tmp_path / "victim").read_text() == "not yours"


def test_what_is_no_lock_is_in_nobodys_hand(tmp_path):
    job, cells = job_in(tmp_path)
    lock = cells / job.name / "lock"
    lock.symlink_to(tmp_path / "nowhere")
    assert not launch._in_hand(tmp_path, job)
    assert not (tmp_path / "nowhere").exists()
    lock.unlink()
    os.mkfifo(lock)
    assert not launch._in_hand(tmp_path, job)


def test_a_report_is_written_through_no_link(study, tmp_path):
    (tmp_path / "victim").write_text("not yours")
    copy = Path(shutil.copytree(study, tmp_path / "study"))
    (copy / "report.html").symlink_to(tmp_path / "victim")
    assert "<html" in report.write(copy).read_text()
    assert (tmp_path / "victim").read_text() == "not yours"


@pytest.mark.parametrize("what", ["mkdir", "log", "write"])
def test_a_disk_that_cannot_be_written_to_has_its_own_exit_code(tmp_path, capsys, monkeypatch, what):
    def refuse(*_, **__):
        raise OSError(30, "Read-only file system")

    if what == "mkdir":
        monkeypatch.setattr(Path, "mkdir", refuse)
    else:
        module, name = {"log": (launch, "open_to_append"), "write": (files, "write")}[what]
        monkeypatch.setattr(module, name, refuse)
    text = 'presets = ["raw"]\nseeds = 1\n[[blocks]]\nenv = "CartpoleBalance"\nagents = ["sac"]\nnoises = ["0"]\n'
    (tmp_path / "mine.toml").write_text(text + "steps = 1000\n")
    with pytest.raises(SystemExit) as stopped:
        main(["study", str(tmp_path / "mine.toml"), "--out", str(tmp_path / "out")])
    assert stopped.value.code == 74
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"moca study: cannot write to {tmp_path / 'out'}")
    assert line.endswith(": Read-only file system")


def test_jobs_that_fail_for_want_of_a_disk_are_told_apart(tmp_path, monkeypatch):
    says = {"cannot write": DiskError.code, "no such thing": 1}
    monkeypatch.setattr(launch, "POLL", 0.01)
    for number, (word, code) in enumerate(says.items()):
        command = [sys.executable, "-c", f"import sys; print({word!r}); sys.exit({code})"]
        monkeypatch.setattr(launch, "_start", lambda directory, job, _, command=command: shell(directory, job, command))
        with pytest.raises(ConfigError, match=f"2 of 2 jobs failed: .*: {word}") as failed:
            launch.study(PLAN, tmp_path / str(number))
        assert isinstance(failed.value, DiskError) is (code == DiskError.code)


def shell(directory, job, command):
    with launch._log(directory, job.name).open("w") as log:
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log)


def test_a_report_shows_nothing_that_links_lead_to(study, tmp_path):
    (tmp_path / "secret").write_text("my own words")
    films, cell = study / "films", study / "cells" / "raw-CartpoleBalance-sac"
    films.mkdir()
    cell.mkdir(parents=True)
    (films / "a.mp4").symlink_to(tmp_path / "secret")
    os.mkfifo(films / "b.mp4")
    (cell / "config.json").symlink_to(tmp_path / "secret")
    assert report_origin.films(study, PLAN) == []
    assert "my own words" not in "".join(report_origin.settings(PLAN, study).values())


def finished_cell(study, job):
    run = study / "cells" / job.name
    run.mkdir(parents=True)
    rows = [{"step": 20_000, "seed": seed, "noise.sigma": 0.05, "diverged": 0.0, "return_mean": 1.0} for seed in (0, 1)]
    files = {
        "metrics.jsonl": "".join(json.dumps(row) + "\n" for row in rows),
        "timing.jsonl": '{"step": 20000, "seconds": 1.0}\n',
        "meta.json": json.dumps({"versions": {}, "python": "3", "device": [], "commit": None}),
        "status.json": '{"state": "finished"}',
        "policy.npz": "",
    }
    for name, text in files.items():
        (run / name).write_text(text)
    return run


def test_cells_that_were_received_are_collected_or_named(tmp_path):
    job = grid.plan(PLAN)[0]
    run = finished_cell(tmp_path, job)
    results.collect(tmp_path, [job])
    assert len(moca.load_results(tmp_path)) == 2
    broken = [b"", b"\xff", b"[", b"[1]", b"5", b'{"a": 1}', b"[" * 100_000, b"\0\0", b'{"seconds": [1], "step": "x"}']
    for name in ("metrics.jsonl", "timing.jsonl", "meta.json"):
        before = (run / name).read_bytes()
        for content in broken:
            (run / name).write_bytes(content)
            if (name, content) != ("timing.jsonl", b""):  # no time at all
                with pytest.raises(ConfigError, match=job.name):
                    results.collect(tmp_path, [job])
            (run / name).unlink()
            with pytest.raises(ConfigError, match=job.name):
                results.collect(tmp_path, [job])
            steps(tmp_path, job)
        (run / name).write_bytes(before)
    for content in broken:
        (run / "status.json").write_bytes(content)
        assert not results.finished(tmp_path, job)


def test_the_metrics_of_a_run_are_read_or_named(tmp_path):
    config = to_json(override(Config(), {"agent": "sac"}))
    (tmp_path / "config.json").write_text(config)
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "seed": 0, "return_mean": 2.0}\n')
    assert moca.load_results(tmp_path)["return_mean"].tolist() == [2.0]
    for name, content in {
        "metrics.jsonl": b"[1]\n", "config.json": b"[" * 100_000,
    }.items():  # fmt: skip
        before = (tmp_path / name).read_bytes()
        for broken in (content, b"\xff", b"{", b"5", b'"a"'):
            (tmp_path / name).write_bytes(broken)
            with pytest.raises(ConfigError, match=name):
                moca.load_results(tmp_path)
        (tmp_path / name).write_bytes(before)


def test_what_a_study_found_before_is_checked_too(tmp_path):
    (tmp_path / "study.json").write_bytes(plan_with({"env": "gymnasium:A-v0", "found": {"value.low": "x"}}))
    with pytest.raises(ConfigError, match=r"study.json"):
        look.complete(PLAN, tmp_path)
