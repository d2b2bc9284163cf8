"""What was seen to break a run directory, one by one: each is refused in a sentence, or does no harm."""

import errno
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from moca import files
from moca.config import ConfigError
from moca.drivers.trainer import Report
from moca.runs import checkpoint, interrupts, launch, origin, saving, starting
from moca.runs.checkpoint import Checkpoint
from moca.runs.directory import LOGS, RunDirectory
from moca.runs.display import learning_curve
from moca.runs.run import load
from moca.studies import grid, results
from moca.studies.results import load_results
from tests.attacks import stub

A, B = {"gamma": 0.9, "seed": 1}, {"gamma": 0.5, "seed": 7}


@pytest.fixture(scope="module")
def server():
    server = stub.Server()
    yield server
    server.close()


@pytest.fixture(scope="module")
def killed(server, tmp_path_factory):
    """A run that was killed on its way."""
    path = tmp_path_factory.mktemp("killed") / "run"
    held = server("train", path=str(path), **A, hold="training")
    stub.wait_until_held(path, held.pid)
    server.end(held)
    return path


@pytest.fixture
def half(killed, tmp_path):
    """A copy of it."""
    return Path(shutil.copytree(killed, tmp_path / "run"))


def whole(path, numbers=A):
    rows, policy = stub.expected(**numbers)
    assert (path / "metrics.jsonl").read_bytes() == rows
    with np.load(path / "policy.npz") as file:
        np.testing.assert_array_equal(file["weights"], policy)
    return True


def refused(answer, *words):
    """One sentence with these words in it, and nothing else."""
    assert answer.code == 2, answer
    assert "Traceback" not in answer.err
    for word in words:
        assert word in answer.err.splitlines()[0], answer.err
    return True


def test_a_second_command_on_a_run_that_compiles_changes_nothing(server, tmp_path):
    path = tmp_path / "run"
    held = server("train", path=str(path), **A, hold="compiling")
    stub.wait_until_held(path, held.pid)
    before = (path / "config.json").read_bytes(), (path / "meta.json").read_bytes()
    for numbers in (A, B):
        assert refused(server("train", path=str(path), **numbers), f"is in use: process {held.pid}")
    assert ((path / "config.json").read_bytes(), (path / "meta.json").read_bytes()) == before
    server.end(held)
    assert server("resume", path=str(path)).code == 0
    assert whole(path)


@pytest.mark.parametrize("how", ["moved", "removed", "unlocked"])
def test_a_process_whose_directory_is_taken_from_it_writes_nothing_more(server, tmp_path, how):
    """By `mv`, `rm -r`, or someone who thinks that the lock is stale; then another run begins in its place."""
    path = tmp_path / "run"
    held = server("train", path=str(path), **A, hold="waiting")
    stub.wait_until_held(path, held.pid)
    if how == "unlocked":
        (path / "lock").unlink()
    else:
        path.rename(tmp_path / "aside")
    if how == "removed":
        shutil.rmtree(tmp_path / "aside")
    other = A if how == "unlocked" else B
    assert server("train", path=str(path), **other).code == 0
    before = {each: each.read_bytes() for each in path.rglob("*") if each.is_file()}
    answer = server.let_go(held)
    assert answer.code == 74
    assert answer.err == f"moca train: cannot write to {path}: it, or its lock, was moved or removed during training\n"
    assert {each: each.read_bytes() for each in path.rglob("*") if each.is_file()} == before
    assert whole(path, other)
    if how == "moved":
        assert server("resume", path=str(tmp_path / "aside")).code == 0
        assert whole(tmp_path / "aside")


def test_no_checkpoint_is_written_where_the_lock_was_lost(half):
    directory = RunDirectory.open(half)
    found = sorted(directory.checkpoints.iterdir())
    trainer = stub.Trainer([directory.config], [1, 2], None)
    with directory.locked():
        (half / "lock").unlink()
        saver = saving.Saver(trainer, directory, 0.0, 9, list)
        saver.save()
        with pytest.raises(files.DiskError, match="was moved or removed"):
            saver.wait()
        with pytest.raises(files.DiskError, match="was moved or removed"):
            directory.save_policy({})
        directory.write_status("failed", 0)
    assert sorted(directory.checkpoints.iterdir()) == found
    assert directory.status["state"] == "running"
    assert not (half / "policy.npz").exists()


def test_other_settings_take_a_directory_in_which_nothing_was_learned(server, tmp_path):
    path = tmp_path / "begun"
    held = server("train", path=str(path), **A, hold="compiling")
    stub.wait_until_held(path, held.pid)
    server.end(held)
    for dies_at in range(24):
        copy = shutil.copytree(path, tmp_path / str(dies_at))
        server("train", path=str(copy), **B, dies_at=dies_at)
        answer = server("resume", path=str(copy))  # of the one or the other, or there is none
        if answer.code == 0:
            assert whole(copy, A if (copy / "metrics.jsonl").read_bytes() == stub.expected(**A)[0] else B)
        else:
            assert refused(answer, "is not a run directory: it has no config.json")
        assert answer.code == 0 or server("train", path=str(copy), **B).code == 0
    assert server("train", path=str(path), **B).code == 0
    assert whole(path, B)


@pytest.mark.parametrize("name", LOGS)
@pytest.mark.parametrize("length", [0, 1, 100])
def test_a_log_that_is_too_short_leads_back_to_a_checkpoint_it_fits(server, half, name, length):
    os.truncate(half / name, min(length, (half / name).stat().st_size - 1))
    answer = server("resume", path=str(half))
    assert answer.code == 0
    assert f"refers to rows that {name} does not have; " in answer.out
    assert whole(half)


def test_a_log_with_another_ending_is_not_built_upon(server, half):
    content = bytearray((half / "metrics.jsonl").read_bytes())
    content[-1:] = b" "
    (half / "metrics.jsonl").write_bytes(content)
    assert "refers to " in server("resume", path=str(half)).out
    assert whole(half)


@pytest.mark.parametrize("dies_at", range(25, 95, 10))
def test_a_power_cut_loses_no_row_that_a_checkpoint_counts_on(server, tmp_path, dies_at):
    path = tmp_path / "run"
    server("train", path=str(path), **A, dies_at=dies_at)
    stub.cut_the_power(path)
    answer = server("train", path=str(path), **A)
    assert answer.code in (0, 2)  # it had finished
    assert "refers to " not in answer.out
    assert whole(path)


def test_cutting_never_lengthens(tmp_path):
    directory = RunDirectory(tmp_path)
    (tmp_path / LOGS[0]).write_text("row\n")
    directory.cut(dict.fromkeys(LOGS, 100))
    assert (tmp_path / LOGS[0]).read_text() == "row\n"
    assert not (tmp_path / LOGS[1]).exists()
    directory.cut({LOGS[0]: 2, LOGS[1]: 0})
    assert (tmp_path / LOGS[0]).read_text() == "ro"


def test_a_checkpoint_of_another_run_is_refused(server, half, tmp_path):
    other = tmp_path / "other"
    server("train", path=str(other), **B)
    foreign = max((other / "checkpoints").iterdir())
    shutil.copy(foreign, half / "checkpoints")
    aside = half / "checkpoints" / f"000000000030.checkpoint{files.ASIDE}"
    aside.touch()  # of a process that died
    log = (half / "metrics.jsonl").read_bytes()
    assert refused(server("resume", path=str(half)), foreign.name, "is a checkpoint of another run: remove it")
    assert (half / "metrics.jsonl").read_bytes() == log
    assert aside.exists()
    (half / "checkpoints" / foreign.name).unlink()
    assert server("resume", path=str(half)).code == 0
    assert not aside.exists()
    assert whole(half)


def test_another_version_of_jax_goes_on_or_says_which_one_could(server, half):
    meta, log = json.loads((half / "meta.json").read_text()), (half / "metrics.jsonl").read_bytes()
    meta |= {"versions": {"jax": "0.4.1", "moca-rl": "0.0.7"}, "python": "3.9", "device": ["TPU"], "commit": "abcdef"}
    (half / "meta.json").write_text(json.dumps(meta))
    newest = max((half / "checkpoints").iterdir())
    content = newest.read_bytes()
    facts, arrays = checkpoint.load(newest)
    checkpoint.save(newest.parent, int(newest.stem), Checkpoint(facts, [*arrays, arrays[0]]), keep=9)
    assert refused(server("resume", path=str(half)), str(newest), "Resume with the version that wrote it, or remove it")
    assert (half / "metrics.jsonl").read_bytes() == log
    newest.write_bytes(content)
    assert server("resume", path=str(half)).code == 0
    assert whole(half)


def test_a_checkpoint_under_a_later_name_is_passed_over(server, half):
    newest = max((half / "checkpoints").iterdir())
    later = newest.with_name(f"{int(newest.stem) + stub.LENGTH:012d}.checkpoint")
    later.write_bytes(newest.read_bytes())
    answer = server("resume", path=str(half))
    assert answer.code == 0
    assert "its step does not match its name" in answer.out
    assert whole(half)


@pytest.mark.parametrize("change", ["settings", "seeds"])
def test_edited_settings_are_refused_by_name(server, half, change):
    file = half / {"settings": "config.json", "seeds": "meta.json"}[change]
    held = json.loads(file.read_text())
    if change == "settings":
        held["train"]["gamma"] = 0.8
    else:
        held["runs"][0]["seed"] = 5
    before = file.read_text()
    file.write_text(json.dumps(held))
    assert refused(server("resume", path=str(half)), f"{file} was edited after the run started")
    file.write_text(json.dumps(json.loads(before)))  # other white space is no edit
    assert server("resume", path=str(half)).code == 0
    assert whole(half)


ROW = {"step": 10, "seed": 1, "return_mean": 1.0, "return_noise_free": 1.0, "diverged": 0.0}
FORGED = {
    "a cause that is none": ROW | {"diverged": 9},
    "words": ROW | {"diverged": "x"},
    "a list": ROW | {"return_mean": [1]},
    "no return": {"step": 10, "seed": 1, "diverged": 0.0},
    "a step that is no number": ROW | {"step": "x"},
    "another step": ROW | {"step": 20},
    "another seed": ROW | {"seed": 3},
    "a number that no float holds": ROW | {"seed": 10**20, "step": 10**40},
}


@pytest.mark.parametrize("row", FORGED.values(), ids=FORGED.keys())
def test_forged_rows_are_not_built_upon(server, half, row):
    log = half / "metrics.jsonl"
    first, rest = log.read_bytes().split(b"\n", 1)
    log.write_bytes(json.dumps(row).encode().ljust(len(first)) + b"\n" + rest)
    answer = server("resume", path=str(half))
    assert (answer.code, answer.err) == (0, "")
    assert "refers to " in answer.out
    assert "starting over" in answer.out
    assert whole(half)


@pytest.mark.parametrize("row", [{"step": 10}, {"step": 20, "seconds": 0.1}, {"step": 10, "seconds": "x"}, "x"])
def test_forged_times_are_not_built_upon(server, half, row):
    log = half / "timing.jsonl"
    first, rest = log.read_bytes().split(b"\n", 1)
    log.write_bytes(json.dumps(row).encode().ljust(len(first)) + b"\n" + rest)
    answer = server("resume", path=str(half))
    assert answer.code == 0, answer
    assert "starting over" in answer.out
    assert all(json.loads(line)["seconds"] >= 0 for line in log.read_text().splitlines())
    assert whole(half)


@pytest.mark.parametrize("names", [("zzz", "zzy"), ("000000000050", "000000000040")])
def test_what_lies_beside_the_checkpoints_does_not_have_them_removed(server, half, names):
    """Copies of the user's own, or newer ones that are damaged: what is saved from now on is kept all the same."""
    folder = half / "checkpoints"
    for name in names:
        (folder / f"{name}.checkpoint").write_bytes(max(folder.glob("0*")).read_bytes()[:-1])
    assert server("resume", path=str(half), dies_at=60).code == stub.KILLED
    kept = [found for found in sorted(folder.glob("0*.checkpoint")) if checkpoint.load(found)]
    assert len(kept) >= 2
    answer = server("resume", path=str(half))
    assert answer.code == 0
    assert f"resuming from step {int(kept[-1].stem)}" in answer.out
    assert int(kept[-1].stem) > 20
    assert whole(half)


def test_settings_that_changed_before_the_lock_was_held_are_read_again(server, tmp_path, monkeypatch):
    """One command reads the directory of a run that nothing came of; another begins one of its own there."""
    path = tmp_path / "run"
    held = server("train", path=str(path), **A, hold="compiling")
    stub.wait_until_held(path, held.pid)
    server.end(held)

    def meanwhile(*_):
        held = server("train", path=str(path), **B, hold="compiling")
        stub.wait_until_held(path, held.pid)
        server.end(held)

    found = []
    monkeypatch.setattr(starting, "refuse_unfit", meanwhile)  # the last of what is checked before
    monkeypatch.setattr(launch, "_train", lambda directory, *_: found.append(directory.config.train.gamma))
    launch.resume(path)
    assert found == [B["gamma"]]


def crafted(path, **facts):
    """The newest checkpoint with other facts, and a hash that fits them."""
    newest = max((path / "checkpoints").iterdir())
    held = checkpoint.load(newest)
    checkpoint.save(newest.parent, int(newest.stem), Checkpoint(held.facts._replace(**facts), held.arrays), keep=9)


LENGTHS = {
    "a path": {"../victim": 0},
    "a path beside the logs": {"../victim": 0, LOGS[0]: 0, LOGS[1]: 0},
    "negative": {LOGS[0]: -1, LOGS[1]: 0},
    "huge": {LOGS[0]: 2**70, LOGS[1]: 0},
    "longer": {LOGS[0]: 10**9, LOGS[1]: 0},
    "text": {LOGS[0]: "0", LOGS[1]: 0},
    "true": {LOGS[0]: True, LOGS[1]: 0},
    "a float": {LOGS[0]: 0.0, LOGS[1]: 0},
    "nothing": {},
    "a list": [],
}


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS.keys())
def test_crafted_lengths_touch_no_file(server, half, lengths):
    victim = half.parent / "victim"
    victim.write_text("not yours")
    crafted(half, lengths=lengths)
    answer = server("resume", path=str(half))
    assert answer.code == 0
    assert "going back to the one before" in answer.out
    assert victim.read_text() == "not yours"
    assert whole(half)


@pytest.mark.parametrize("episode", [-1, 3, 10**6, "2", None])
def test_a_checkpoint_is_of_the_step_that_its_name_says(server, half, episode):
    crafted(half, episode=episode)
    assert "going back to the one before" in server("resume", path=str(half)).out
    assert whole(half)


@pytest.mark.parametrize(("number", "value"), [(0, np.nan), (0, np.inf), (1, -1), (2, -1), (2, 99), (3, np.nan)])
def test_numbers_that_no_run_can_have(server, half, number, value):
    newest = max((half / "checkpoints").iterdir())
    facts, arrays = checkpoint.load(newest)
    arrays[number].flat[-1] = value
    checkpoint.save(newest.parent, int(newest.stem), Checkpoint(facts, arrays), keep=9)
    assert "contains invalid numbers; going back" in server("resume", path=str(half)).out
    assert whole(half)


SHAPES = {"too many axes": [1] * 100, "nothing by a great deal": [0, 2**61, 2**61], "a long product": [2**61] * 300_000}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_shapes_that_no_array_can_have(server, half, shape):
    newest = max((half / "checkpoints").iterdir())
    facts = checkpoint.load(newest).facts._asdict()
    header = json.dumps({"facts": facts, "arrays": [["float32", shape]]}).encode()
    rest = len(header).to_bytes(8, "big") + header + bytes(4 * (shape == [1] * 100))
    newest.write_bytes(checkpoint.MAGIC + checkpoint.hashlib.sha256(rest).hexdigest().encode() + b"\n" + rest)
    started = time.perf_counter()
    assert "is damaged: its bytes have changed; going back" in server("resume", path=str(half)).out
    assert time.perf_counter() - started < 10
    assert whole(half)


def test_a_checkpoint_of_a_later_version_is_not_thrown_away(server, half):
    log, magic = (half / "metrics.jsonl").read_bytes(), b"moca checkpoint 12\n"
    newest = max((half / "checkpoints").iterdir())
    before = newest.read_bytes()
    newest.write_bytes(magic + checkpoint.hashlib.sha256(magic + b"news").hexdigest().encode() + b"\nnews")
    assert refused(server("resume", path=str(half)), str(newest), "was written by a later version of moca")
    assert (half / "metrics.jsonl").read_bytes() == log
    newest.write_bytes(before.replace(b"checkpoint 2", b"checkpoint 3", 1))  # a flipped bit
    assert "not a checkpoint of this version; going back" in server("resume", path=str(half)).out
    assert whole(half)


@pytest.mark.parametrize("put", [os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path)])
def test_weights_to_start_from_that_are_no_file(server, half, put):
    meta = json.loads((half / "meta.json").read_text())
    meta |= {"start": {"run": "x", "sha256": "0" * 64}}
    meta["identity"] = origin.identity(json.loads((half / "config.json").read_text()), meta["runs"], meta["start"])
    (half / "meta.json").write_text(json.dumps(meta))
    shutil.rmtree(half / "checkpoints")
    put(half / "start.npz")
    assert refused(server("resume", path=str(half)), f"{half / 'start.npz'} does not hold the weights")


FOLDERS = ("checkpoints", "figures", "tensorboard", "tensorboard/all")


@pytest.mark.parametrize("name", FOLDERS)
def test_nothing_is_written_to_a_folder_elsewhere(server, half, name):
    elsewhere = half.parent / "elsewhere"
    elsewhere.mkdir()
    shutil.rmtree(half / name, ignore_errors=True)
    (half / name).symlink_to(elsewhere)
    assert refused(server("resume", path=str(half)), f"{half / name} should be a folder, but it is a symbolic link")
    assert not list(elsewhere.iterdir())
    (half / name).unlink()
    assert server("resume", path=str(half)).code == 0
    assert whole(half)


@pytest.mark.parametrize("name", ["policy.npz", "policy.npz.writing", "policy.writing.npz", "status.json.writing"])
def test_what_is_written_at_the_end_goes_through_no_link(server, half, name):
    victim = half.parent / "victim"
    victim.write_text("not yours")
    (half / name).symlink_to(victim)
    assert server("resume", path=str(half)).code == 0
    assert victim.read_text() == "not yours"
    assert whole(half)


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_a_full_disk_writes_no_status_through_a_link(tmp_path, monkeypatch, link):
    victim = tmp_path / "victim"
    victim.write_text("not yours" * 100)
    link(victim, tmp_path / "status.json")
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    RunDirectory(tmp_path).write_status("failed", 20)
    assert victim.read_text() == "not yours" * 100


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_figures_are_written_through_no_link(tmp_path, link):
    victim = tmp_path / "victim"
    victim.write_text("not yours")
    link(victim, tmp_path / "learning_curve.png")
    learning_curve([ROW], [{}], "title", tmp_path)
    assert victim.read_text() == "not yours"
    assert (tmp_path / "learning_curve.png").stat().st_size > 5000


def test_a_film_is_written_through_no_link(half):
    (half / "rollout.mp4").symlink_to(half.parent / "nowhere")
    with pytest.raises(ConfigError, match=r"rollout.mp4 should be an ordinary file, but it is a symbolic link"):
        load(half).render()


def test_a_folder_in_the_place_of_a_checkpoint_is_named(server, half):
    folder = half / "checkpoints" / "000000000050.checkpoint"
    folder.mkdir()
    assert refused(server("resume", path=str(half)), f"{folder} should be a file, but it is a folder: remove it")


@pytest.mark.parametrize("name", ["lock", *LOGS, "checkpoints"])
@pytest.mark.parametrize("what", ["link", "dangling link", "other kind", "pipe"])
def test_nothing_but_an_ordinary_file_is_written_to(server, half, name, what):
    victim, path, aside = half.parent / "victim", half / name, half.parent / "aside"
    victim.write_text("not yours")
    path.rename(aside)
    if what == "other kind":
        path.touch() if name == "checkpoints" else path.mkdir()
    elif what == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(victim if what == "link" else half.parent / "nowhere")
    assert refused(server("resume", path=str(half)), f"{path} should be")
    assert victim.read_text() == "not yours"
    assert not (half.parent / "nowhere").exists()
    path.rmdir() if what == "other kind" and name != "checkpoints" else path.unlink()
    aside.rename(path)
    assert server("resume", path=str(half)).code == 0
    assert whole(half)


def test_a_lock_that_has_another_name_elsewhere(server, half):
    victim = half.parent / "victim"
    victim.write_text("not yours")
    (half / "lock").unlink()
    os.link(victim, half / "lock")
    assert refused(server("resume", path=str(half)), "lock should be an ordinary file, but it is a hard link")
    assert victim.read_text() == "not yours"


def test_a_run_that_replaces_its_checkpoint_is_asked_again(half, monkeypatch):
    """It trains on while another process looks for its newest one."""
    directory, load = RunDirectory.open(half), checkpoint.load
    state = stub.Trainer([directory.config], [1, 2], None).state
    facts, arrays = load(checkpoint.newest_first(directory.checkpoints)[0])

    def later(path, expected=None):
        monkeypatch.setattr(checkpoint, "load", load)
        shutil.rmtree(directory.checkpoints)
        checkpoint.save(directory.checkpoints, 30, Checkpoint(facts, [arrays[0] + 1, *arrays[1:]]), 1)
        return load(path, expected)

    monkeypatch.setattr(checkpoint, "load", later)
    learners, _ = saving.newest_policies(directory, state)
    np.testing.assert_array_equal(learners.weights, arrays[0] + 1)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENOMEM])
def test_a_checkpoint_that_cannot_be_opened_is_not_thrown_away(half, monkeypatch, number):
    """It may be whole: the run does not go back behind it."""
    newest = checkpoint.newest_first(half / "checkpoints")[0]

    def fail(path):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(files, "open_to_read", fail)
    with pytest.raises(ConfigError, match=re.escape(f"{newest} cannot be read: {os.strerror(number)}")) as caught:
        checkpoint.newest(newest.parent)
    assert not isinstance(caught.value, checkpoint.DamagedError)


def test_sectors_that_cannot_be_read_are_damage(half, monkeypatch):
    newest, before = checkpoint.newest_first(half / "checkpoints")[:2]
    opened = files.open_to_read

    def fail(path):
        if path == newest:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return opened(path)

    monkeypatch.setattr(files, "open_to_read", fail)
    found, complaints = checkpoint.newest(newest.parent)
    assert complaints == [f"{newest} cannot be read: {os.strerror(errno.EIO)}"]
    assert found.facts == checkpoint.load(before).facts


@pytest.mark.parametrize("fits", [True, False])
def test_no_memory_is_taken_for_arrays_of_another_run(half, fits):
    """A file with holes is small on the disk, or in an archive, however large it is."""
    facts, arrays = checkpoint.load(checkpoint.newest_first(half / "checkpoints")[0])
    path = checkpoint.save(half / "checkpoints", 40, Checkpoint(facts, [np.zeros(2**27, np.uint8)]), 9)
    if not fits:
        with path.open("r+b") as file:
            file.seek(-1, os.SEEK_END)
            file.write(b"\1")
    tracemalloc.start()
    with pytest.raises(checkpoint.OtherArraysError if fits else checkpoint.DamagedError):
        checkpoint.load(path, [[(array.dtype.name, array.shape) for array in arrays]])
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 2**24


def test_a_checkpoint_that_is_a_link_is_refused(server, half):
    newest = max((half / "checkpoints").iterdir())
    newest.rename(half.parent / "aside")
    newest.symlink_to(half.parent / "aside")
    rows = (half / "metrics.jsonl").read_text()
    answer = server("resume", path=str(half))
    assert answer.code == 2
    assert f"{newest} should be a file, but it is a symbolic link: remove it" in answer.err
    assert (half / "metrics.jsonl").read_text() == rows
    newest.unlink()
    server("resume", path=str(half))
    assert whole(half)


def test_files_are_written_through_no_link(tmp_path):
    victim, link = tmp_path / "victim", tmp_path / "link"
    victim.write_text("not yours")
    link.symlink_to(victim)
    aside = tmp_path / f"new{files.ASIDE}"
    aside.symlink_to(victim)
    files.write(tmp_path / "new", b"mine")
    assert (tmp_path / "new").read_bytes() == b"mine"
    for attempt in (lambda: files.append(link, b"x"), lambda: files.shorten(link, 0), lambda: files.open_to_read(link)):
        with pytest.raises(OSError):  # noqa: PT011, which one depends on the system
            attempt()
    assert victim.read_text() == "not yours"


WRONG = {
    "config.json": [
        "", "[]", "3", '"x"', "null", "{", "\x00", '{"train": 3}', '{"no": 1}', '{"train": {"gamma": []}}', "[" * 9999,
    ],
    "meta.json": [
        "", "[]", "null", "{}", '{"runs": 3}', '{"runs": []}', '{"runs": [3]}', '{"runs": [{}]}',
        '{"runs": [{"seed": "x"}]}', '{"runs": [{"seed": 1.5}]}', '{"runs": [{"seed": -1}]}',
        '{"runs": [{"seed": 1, "train.gamma": []}]}', '{"runs": [{"seed": 1}, {"seed": 2, "train.gamma": 0.5}]}',
        '{"runs": [{"seed": 1, "train.gamma": NaN}]}', '{"runs": [{"seed": 1, "no": 1}]}',
        '{"identity": 3, "runs": [{"seed": 1}, {"seed": 2}]}', f'{{"runs": [{{"seed": 1, "train.gamma": {10**400}}}]}}',
    ],
    "status.json": [
        "", "[]", "null", "{}", '{"state": 3}', '{"state": "finished"}', '{"state": "lost", "step": 1}',
        '{"state": "failed", "step": -1}', '{"state": "stopped", "step": 1, "diverged": 3}',
        '{"state": "stopped", "step": 1, "diverged": [3]}',
        '{"state": "stopped", "step": 1, "diverged": [{"seed": 0, "cause": "|Q| is above 1e6"}]}',
        '{"state": "stopped", "step": 1, "diverged": [{"seed": 0, "step": 1, "cause": 3}]}',
    ],
}  # fmt: skip


@pytest.mark.parametrize(("name", "text"), [(name, text) for name in WRONG for text in WRONG[name]])
def test_files_of_the_wrong_shape_are_a_sentence(server, half, name, text):
    before = (half / name).read_text()
    (half / name).write_text(text)
    if name == "config.json":  # as in a directory of the release before, whose settings have no hash
        meta = json.loads((half / "meta.json").read_text())
        (half / "meta.json").write_text(json.dumps({key: value for key, value in meta.items() if key != "identity"}))
    answer = server("resume", path=str(half))
    assert refused(answer, str(half / name) if "no" not in text else "no")
    assert server("train", path=str(half), **A).code == 2
    (half / name).write_text(before)


@pytest.mark.parametrize("content", [b"\xff\xfe", b"{" + b" " * 2**24 + b"}"], ids=["no text", "17 MB"])
def test_bytes_that_are_no_settings(server, half, content):
    (half / "config.json").write_bytes(content)
    assert refused(server("resume", path=str(half)), str(half / "config.json"))


def test_a_folder_of_ones_own_is_not_taken_for_a_run(server, tmp_path):
    (tmp_path / "config.json").write_text('{"mine": 1}')
    assert refused(server("train", path=str(tmp_path), **A), "not belong to a run: choose another directory")
    assert (tmp_path / "config.json").read_text() == '{"mine": 1}'
    assert [each.name for each in tmp_path.iterdir()] == ["config.json"]


def test_what_is_refused_leaves_no_lock(server, tmp_path):
    """Where there was none, as in a copy of a finished run."""
    path = tmp_path / "run"
    assert server("train", path=str(path), **A).code == 0
    (path / "lock").unlink()
    assert refused(server("train", path=str(path), **A), "it is finished")
    assert refused(server("train", path=str(path), **B), "with other settings")
    assert refused(server("resume", path=str(path)), "it is finished")
    assert not (path / "lock").exists()


def test_a_row_that_is_being_written_is_not_read(half):
    """Whoever asks while the run trains, or after it died there, sees the rows before it."""
    path = half / "metrics.jsonl"
    rows, content = RunDirectory(half).rows(), path.read_bytes()
    for more in (b"{", content[: len(content) // 8], content.splitlines()[0][:-1]):
        path.write_bytes(content + more)
        assert RunDirectory(half).rows() == rows
        assert len(load_results(half)) == len(rows)
    path.write_bytes(content[:-1])
    assert RunDirectory(half).rows() == rows


def test_damaged_rows_are_named(tmp_path):
    for text in ("{", "3", "[]", '{"step": 1}', "\x00\x00", "[" * 9999):
        (tmp_path / "metrics.jsonl").write_text(json.dumps(ROW) + "\n" + text + "\n")
        with pytest.raises(ConfigError, match=r"metrics.jsonl cannot be read: line 2 is no"):
            RunDirectory(tmp_path).rows()


# Exits


@pytest.mark.parametrize("hold", ["compiling", "later"])
def test_a_signal_while_compiling_ends_the_process(server, tmp_path, hold):
    """Before the first episode, or in it."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        path = tmp_path / number.name
        held = server("train", path=str(path), **A, hold=hold, signals=True)
        stub.wait_until_held(path, held.pid)
        answer = server.end(held, number)
        assert answer.code == 75
        assert f"stopped by {number.name} while compiling; resume with: moca train --resume {path}" in answer.out
        assert json.loads((path / "status.json").read_text()) == {"state": "interrupted", "step": 0}
        assert server("resume", path=str(path)).code == 0
        assert whole(path)


def test_a_status_of_the_wrong_shape_is_named_before_anything_is_compiled(server, half):
    (half / "status.json").write_text("[]")
    before = sorted(path.name for path in half.rglob("*"))
    assert refused(server("train", path=str(half), **A), str(half / "status.json"))
    assert sorted(path.name for path in half.rglob("*")) == before


def test_a_signal_ends_the_process_whatever_else_goes_wrong(monkeypatch):
    def leave(name):
        raise OSError(28, "No space left on device")

    request = interrupts.Request()
    read, write = os.pipe()
    os.write(write, bytes([signal.SIGTERM]))
    monkeypatch.setattr(os, "_exit", sys.exit)
    with request.at_once(leave), pytest.raises(SystemExit) as left:
        interrupts._watch(read, request)
    assert left.value.code == 75
    os.close(read)
    os.close(write)


def test_a_second_ctrl_c_leaves_at_once(server, tmp_path):
    path = tmp_path / "run"
    held = server("train", path=str(path), **A, hold="training", signals=True)
    stub.wait_until_held(path, held.pid)
    started = time.perf_counter()
    assert server.end(held, signal.SIGINT, signal.SIGINT).code == 130
    assert time.perf_counter() - started < stub.HOLD / 2
    assert server("resume", path=str(path)).code == 0
    assert whole(path)


def test_a_stopped_process_keeps_its_directory(server, tmp_path):
    path = tmp_path / "run"
    held = server("train", path=str(path), **A, hold="training")
    stub.wait_until_held(path, held.pid)
    os.kill(held.pid, signal.SIGSTOP)
    assert refused(server("train", path=str(path), **A), "is in use: process")
    os.kill(held.pid, signal.SIGCONT)
    server.end(held)
    assert server("resume", path=str(path)).code == 0
    assert whole(path)


def test_a_clock_that_jumps_changes_nothing(server, tmp_path):
    path = tmp_path / "run"
    for dies_at in (30, 40, None):
        answer = server("train", path=str(path), **A, clock=True, dies_at=dies_at)
    assert answer.code == 0
    assert whole(path)


def test_all_runs_diverged(server, tmp_path):
    path, numbers = tmp_path / "run", {"gamma": stub.DIVERGES, "seed": 1}
    answer = server("train", path=str(path), **numbers)
    assert answer.code == 3
    assert "every run diverged, the last one (seed 2) by step 30: " in answer.out.splitlines()[-1]
    status = json.loads((path / "status.json").read_text())
    assert (status["state"], status["step"], len(status["diverged"])) == ("diverged", 30, 2)
    assert (path / "policy.npz").exists()
    assert refused(server("train", path=str(path), **numbers), "all its runs diverged")


def test_a_study_has_the_gaps_of_a_job_that_diverged_whole(server, tmp_path):
    block = grid.Block("CartpoleBalance", ("sac",), ("0",), 50, {"env.episode_length": 10})
    (job,) = grid.plan(grid.Grid("small", (block,), ("paper",), 1, 2))
    server("train", path=str(tmp_path), gamma=stub.DIVERGES, seed=1)
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps({**row, "noise.sigma": 0.0}) + "\n" for row in rows))
    table = results._job_table(tmp_path, job)
    assert table["step"].tolist() == [step for step in (10, 20, 30, 40, 50) for _ in range(2)]
    assert table["diverged"].tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 1, 1]
    assert table["return_mean"].isna().tolist() == [step > 30 for step in table["step"]]


@pytest.fixture
def disk(tmp_path):
    """A file system of six megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", folder]).returncode:
        pytest.skip("a file system of 6 MB cannot be mounted here")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_full_disk_at_every_moment(server, disk):
    """With room for ever more pages of 4 kB: one sentence, the right status; with more room it goes on."""
    codes = []
    for pages in range(30):
        path, filler = disk / f"run{pages}", disk / "filler"
        free = shutil.disk_usage(disk).free
        filler.write_bytes(bytes(free - 4096 * pages))
        answer = server("train", path=str(path), **A)
        assert "Traceback" not in answer.err + answer.out, (pages, answer)
        codes.append(answer.code)
        if answer.code:
            assert answer.code == 74, (pages, answer)
            assert answer.err.startswith("moca train: cannot write ")
            assert answer.err.endswith(": No space left on device\n")
            assert len(answer.err.splitlines()) == 1
            if (path / "status.json").exists():
                assert json.loads((path / "status.json").read_text())["state"] == "failed"
            for name in LOGS:
                if (path / name).exists():
                    [json.loads(line) for line in (path / name).read_text().splitlines()]
        filler.unlink()
        if answer.code:
            assert server("train", path=str(path), **A).code == 0
        assert whole(path)
        shutil.rmtree(path)
    assert codes[0] == 74
    assert codes[-1] == 0
    assert codes == sorted(codes, reverse=True)


@pytest.mark.parametrize("largest", [0, 100, 250, 600, 900])
def test_files_that_cannot_grow(server, tmp_path, largest):
    """As a full disk, where none can be mounted: not even the lock can be written, or no log, or no checkpoint."""
    path = tmp_path / "run"
    answer = server("train", path=str(path), **A, largest=largest)
    assert answer.code == 74, answer
    if largest > 200:  # or else there is no room for the sentence either
        assert answer.err.startswith("moca train: cannot write ")
        assert answer.err.endswith(f"to {path}: File too large\n")
        assert answer.err.count("\n") == 1
    if (path / "status.json").exists():
        assert json.loads((path / "status.json").read_text())["state"] == "failed"
    for name in LOGS:
        if (path / name).exists():
            [json.loads(line) for line in (path / name).read_text().splitlines()]
    assert checkpoint.newest(path / "checkpoints")[1] == []
    assert server("train", path=str(path), **A).code == 0
    assert whole(path)


def test_a_disk_that_becomes_read_only(server, disk):
    path = disk / "run"
    held = server("train", path=str(path), **A, hold="training")
    stub.wait_until_held(path, held.pid)
    server.end(held)
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    for verb in ("train", "resume"):
        answer = server(verb, path=str(path), **A)
        assert answer.code == 74
        assert answer.err == f"moca train: cannot write to {path}: Read-only file system\n"
    subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
    assert server("resume", path=str(path)).code == 0
    assert whole(path)


# Mutated checkpoints


@pytest.mark.parametrize("count", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_no_mutated_checkpoint_loads_but_a_valid_one(server, half, count, monkeypatch):
    """Half with the hash that was, half with a hash that fits: then only what is finite and in bounds loads."""
    monkeypatch.setattr(checkpoint, "from_host", checkpoint.unflatten)
    directory, random = RunDirectory(half), np.random.default_rng(count)
    found = sorted((half / "checkpoints").iterdir())
    good, logs = found[-1].read_bytes(), {name: (half / name).read_bytes() for name in LOGS}
    loaded, refusals = 0, []
    for number in range(count):
        bad = bytearray(good)
        how = random.integers(4)
        place = int(random.integers(83 if how < 3 else 0, len(bad)))
        if how == 0:
            bad[place] ^= 1 << int(random.integers(8))
        elif how == 1:
            del bad[place:]
        elif how == 2:
            bad[place : place + int(random.integers(1, 9))] = random.bytes(int(random.integers(0, 9)))
        else:
            bad[place : place + 4] = b"\xff\xff\x7f\xff"
        rehashed = number % 2 == 1
        if rehashed:
            bad[18:83] = checkpoint.hashlib.sha256(bad[83:]).hexdigest().encode() + b"\n"
        if bytes(bad) == good:
            continue
        found[-1].write_bytes(bad)
        console = Console(record=True, file=io.StringIO(), width=10_000)
        trainer = stub.Trainer([directory.config], [1, 2], None)
        try:
            saving.go_back_to_checkpoint(trainer, directory, console)
        except ConfigError as error:
            refusals.append((rehashed, str(found[-1]) in str(error)))
            continue
        back = "going back to the one before" in console.export_text()
        assert rehashed or back
        loaded += not back
        assert np.isfinite(trainer.state.learner.weights).all()
        assert set(np.unique(trainer.state.diverged)) <= {0, 1, 2, 3}
        for name, content in logs.items():
            assert content.startswith((half / name).read_bytes())
            (half / name).write_bytes(content)
    assert set(refusals) <= {(True, True)}
    assert loaded  # a hash that was computed again, over other numbers that could be


def test_rows_that_do_not_fit_leave_no_half_of_themselves(half, monkeypatch):
    """The disk is full between one log and the other: both end where they did."""
    directory = RunDirectory.open(half)
    before, append = directory.lengths(), files.append

    def full(path, content):
        if path.name == LOGS[1]:
            raise OSError(28, "No space left on device")
        append(path, content)

    monkeypatch.setattr(files, "append", full)
    report = Report(4, {"return_mean": np.zeros(len(directory.runs))})
    with pytest.raises(files.DiskError, match="No space left"):
        directory.append(report, 1.0)
    assert directory.lengths() == before


def test_what_is_added_is_added_whole_or_not_at_all(tmp_path, monkeypatch):
    path, write = tmp_path / "log", os.write
    files.append(path, b"one\n")

    def full(handle, content):
        if len(content) < 4:
            raise OSError(28, "No space left on device")
        return write(handle, content[:2])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space left"):
        files.append(path, b"two\n")
    monkeypatch.undo()
    assert path.read_bytes() == b"one\n"


def test_what_is_written_over_leaves_nothing_of_what_was_there(tmp_path):
    path = tmp_path / "status.json"
    path.write_bytes(b'{"state": "running", "step": 3}'.ljust(99) + b"\n")
    files.write_over(path, b'{"state": "failed"}')
    assert path.stat().st_size == 100
    assert json.loads(path.read_text()) == {"state": "failed"}
