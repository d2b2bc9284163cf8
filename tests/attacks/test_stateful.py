"""Random sequences of commands and accidents on run directories, against a model of what must hold after each.

What must hold: a log has the rows of its run, in order, and nothing else; a finished run is the one that nothing
happened to, byte for byte; what was refused has changed nothing; no file outside is touched; no stack trace is shown.
"""

import hashlib
import json
import os
import re
import shutil
import signal
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from moca.runs import checkpoint
from moca.runs.callbacks import FRESH
from moca.runs.directory import LOGS
from tests.attacks import stub

# Discount, seed, and how a run is trained. The last one begins with the weights of the second, which are in the folder
# `other`, and stops after every evaluation that is no rise; but for that, it would be the first one.
RUNS = {"a": (0.95, 3, ("--keep-best",)), "b": (0.5, 7, ()), "c": (0.95, 3, ("--patience", "1"))}
MOST = 9  # episodes of a run that was made longer
WEIGHTS = stub.expected(*RUNS["b"][:2])[1]
EPISODES = {
    name: list(stub.episodes(gamma, seed, WEIGHTS if name == "c" else None, MOST))
    for name, (gamma, seed, _) in RUNS.items()
}
ROWS = [[json.loads(row) for row in rows.splitlines()] for rows, _ in EPISODES["c"]]
RETURNS = [np.mean([row["return_mean"] for row in rows]) for rows in ROWS]  # of the run that stops
STOPS = (2, 6, 8)  # episodes after which it does, if nothing else ends it
EDITED = 0.123  # the discount in settings that were changed by hand
VICTIM = b"not yours\n" * 100
WRONG = {  # files of the wrong shape
    "config.json": ("[]", "{}", "null", '{"train": 3}', "{" * 2000, '{"train": {"gamma": "x"}}', ""),
    "meta.json": ("[]", "{}", '{"runs": []}', '{"runs": [{"seed": "x"}]}', '{"runs": 3}', "\ud800", ""),
    "status.json": (
        "[]",
        "{}",
        "3",
        '{"state": "finished"}',
        '{"state": [], "step": 3}',
        '{"state": 1, "step": -1}',
        "",
    ),
}
DEATHS = st.none() | st.integers(0, 70) | st.integers(20, 70)  # at which operation on files, if at all


def stop_after(begun, since):
    """The episode at which the run stops that counts from one episode and goes on from another."""
    best = np.inf
    for number in range(begun + 1, MOST + 1):
        stops, best = RETURNS[number - 1] <= best < np.inf, RETURNS[number - 1]
        if stops and number >= since:
            return number
        best = np.inf if stops else best
    return MOST


def test_the_last_run_stops_where_its_returns_fall():
    stops = [0]
    while stops[-1] < MOST:
        stops.append(stop_after(stops[-1], stops[-1] + 1))
    assert tuple(stops[1:-1]) == STOPS


class Directories(RuleBasedStateMachine):
    """One directory with one of two runs in it, a directory with the other, and a file that nobody may touch."""

    taken = 0  # steps of all sequences so far

    @initialize()
    def begin(self):
        self.server = stub.SERVER
        self.folder = Path(tempfile.mkdtemp())
        self.path, self.other, self.victim = (self.folder / name for name in ("run", "other", "victim"))
        self.victim.write_bytes(VICTIM)
        self.command("train", "b", self.other)
        self.held = None
        self.forget()

    def forget(self):
        """Nothing has happened to the directory yet."""
        self.holds = None  # which run the directory is of, once a row or a checkpoint was written
        self.cut = self.damaged = False
        self.spoilt = None  # name and bytes of the checkpoint that was damaged last
        self.foreign = None  # a checkpoint of the other run
        self.keeps = True  # whether the best policies were kept from the first episode on

    def teardown(self):
        if getattr(self, "held", None):
            self.server.end(self.held)
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder)

    # Commands

    def command(self, verb, name, path=None, options=None, **how):
        gamma, seed, own = RUNS[name]
        options = [*(own if options is None else options)]
        options += ["--from", str(self.other)] if verb == "train" and name == "c" else []
        return self.server(verb, path=str(path or self.path), gamma=gamma, seed=seed, options=options, **how)

    def run(self, name, verb="train", **how):
        """A command, and what must hold of its answer."""
        before, newest, state = self.contents(), self.newest(), self.status().get("state")
        spoilt = newest is not None and newest.is_file() and (newest.name, newest.read_bytes()) == self.spoilt
        answer = self.command(verb, name, **how)
        answer.before = state
        assert "Traceback" not in answer.err + answer.out, answer
        if "refers to" in answer.out:
            assert self.cut, "a log lost rows that a checkpoint counts on"
        if " is damaged" in answer.out or "not a checkpoint of this version" in answer.out:
            assert self.damaged, answer
        if answer.code == 2:
            assert "shortens" in how or self.contents() == before, "what is refused must change nothing"
            assert len(answer.err.strip().splitlines()[-1]) < 500
        elif self.held:
            assert answer.code == stub.KILLED, "two processes in one directory"
            assert self.contents() == before
        else:
            assert answer.code in (0, stub.KILLED), answer
            assert answer.code != 0 or not spoilt or str(newest) in answer.out, "a damaged checkpoint was used"
            self.damaged = self.damaged and answer.code != 0
            self.cut = self.cut and answer.code != 0
        return answer

    def contents(self):
        """What a command that is refused must leave alone."""
        if not self.path.is_dir():
            return {}
        return {
            str(path): path.read_bytes()
            for path in sorted(self.path.rglob("*"))
            if path.is_file() and path.name != "lock" and path.suffix != ".writing"
        }

    def status(self):
        try:
            return json.loads((self.path / "status.json").read_text())
        except OSError:
            return {}

    def meta(self):
        try:
            return json.loads((self.path / "meta.json").read_text())
        except OSError:
            return {}

    def total(self):
        """The number of steps that were last asked for."""
        return [stub.EPISODES * stub.LENGTH, *self.meta().get("extended", ())][-1]

    @property
    def extended(self):
        return "extended" in self.meta()

    @property
    def lacks_weights(self):
        """Whether the process died before it had copied the weights that the run begins with."""
        return self.meta().get("start", {"sha256": "x"})["sha256"] == ""

    def is_empty(self):
        """Whether it has a log without a row, and no checkpoint: to some that is a run, and to some it is none yet."""
        log = self.path / "metrics.jsonl"
        return not self.newest() and not (log.exists() and log.stat().st_size)

    def newest(self):
        return max((self.path / "checkpoints").glob("*.checkpoint"), default=None)

    def has_all_steps(self):
        return any((self.path / "checkpoints").glob(f"*{self.total()}.checkpoint"))

    def has_begun(self):
        return (self.path / "metrics.jsonl").exists() or any((self.path / "checkpoints").glob("*.checkpoint"))

    @rule(name=st.sampled_from("abc"), dies_at=DEATHS, anew=st.booleans())
    def train(self, name, dies_at, anew):
        if anew and self.is_finished() and not self.held:
            self.begin_anew()
        begun, finished = self.holds if self.has_begun() else None, self.is_finished()
        edited = self.edited and self.has_begun()  # where nothing was learned, settings are written anew
        longer, empty, other = self.extended and self.has_begun(), self.is_empty(), begun not in (None, name)
        answer = self.run(name, dies_at=dies_at)
        if answer.code == 2:
            assert any((self.held, edited, self.foreign, finished, other, longer)), answer
        self.note_the_run(None if empty else begun)
        assert answer.code != 0 or not (edited or (other and not empty)), "another run was gone on with"
        if dies_at is None and not (self.held or edited or self.foreign or finished or other or longer):
            assert answer.code == 0, answer
            self.whole(name, answer)

    @precondition(lambda self: self.holds and self.has_begun() and not self.is_empty())
    @rule()
    def try_the_other_runs(self):
        for name in RUNS:
            assert name == self.holds or self.run(name).code == 2, "another run was gone on with"

    @precondition(lambda self: self.holds)
    @rule(dies_at=DEATHS, told=st.booleans())
    def resume(self, dies_at, told=True):
        """Told again to keep the best policies, or not: a run that goes on keeps them anyway."""
        finished, told = self.is_finished(), told or self.holds != "a"
        answer = self.run(self.holds, "resume", dies_at=dies_at, **({} if told else {"options": ()}))
        if not told and answer.code in (0, stub.KILLED):
            self.keeps = self.keeps and "resuming from step" in answer.out
        if self.edited or self.held:
            assert answer.code in (2, stub.KILLED), "an edited config.json, or one in use"
            assert dies_at is not None or answer.code == 2
        elif dies_at is None and not (finished or self.foreign or self.lacks_weights) and self.meta():
            assert answer.code == 0, answer
            self.whole(self.holds, answer)

    @precondition(lambda self: self.holds and (self.path / "config.json").exists())
    @rule(more=st.sampled_from([-1, 0, 1, 2]), dies_at=DEATHS)
    def lengthen(self, more, dies_at):
        """A new total, be it of a run that is finished, stopped or unfinished."""
        before, finished, total = self.total(), self.is_finished(), self.total() + more * stub.LENGTH
        if total > MOST * stub.LENGTH:
            return
        options = [*RUNS[self.holds][2], "--steps", str(total)]
        answer = self.run(self.holds, "resume", dies_at=dies_at, options=options)
        assert self.total() in (before, total)
        if more < 0 and answer.before == "stopped":  # after an early stop, any total from the stop on will do
            assert answer.code in (0, 2, stub.KILLED), answer
            return
        refused = self.held or self.edited or self.foreign or self.lacks_weights or more < 0 or (finished and not more)
        if refused:
            assert answer.code in (2, stub.KILLED), answer
            assert self.total() == before
        elif dies_at is None:
            assert answer.code == 0, answer
            assert self.total() == total
            self.whole(self.holds, answer)

    def note_the_run(self, begun):
        """Which run the directory is of, by its settings; never another than the one that has begun."""
        if not self.edited and (self.path / "config.json").exists():
            gamma = json.loads((self.path / "config.json").read_text())["train"]["gamma"]
            self.holds = "b" if gamma == RUNS["b"][0] else "c" if "start" in self.meta() else "a"
            assert begun in (None, self.holds)

    @property
    def edited(self):
        """Whether config.json is as `edit_the_settings` left it."""
        path = self.path / "config.json"
        return path.exists() and json.loads(path.read_text())["train"]["gamma"] == EDITED

    def is_finished(self):
        status = self.status()
        return status.get("state") == "finished" and status["step"] >= self.total()

    def whole(self, name, answer):
        """The run is the one that nothing happened to."""
        done = total = self.total() // stub.LENGTH
        if name == "c":
            found = re.search(r"resuming from step (\d+)", answer.out)
            since = int(found[1]) // stub.LENGTH if found else 0
            begun = max([0, *self.meta().get("begun", [])]) // stub.LENGTH
            assert begun <= since
            done = min(stop_after(begun, since), total)
        assert (self.path / "metrics.jsonl").read_bytes() == b"".join(rows for rows, _ in EPISODES[name][:done])
        timed = [json.loads(row)["step"] for row in (self.path / "timing.jsonl").read_text().splitlines()]
        assert timed == [stub.LENGTH * (1 + episode) for episode in range(done)]
        with np.load(self.path / "policy.npz") as file:
            np.testing.assert_array_equal(file["weights"], EPISODES[name][done - 1][1])
        status = {"state": "finished" if done == total else "stopped", "step": done * stub.LENGTH}
        assert self.status() == status
        if name == "a" and self.keeps:
            self.kept()

    def kept(self):
        """The best policies are the unbroken run's; those of a run made longer are some it had, with their scores."""
        scores = json.loads((self.path / "best.json").read_text())
        assert self.extended or [row["step"] for row in scores] == [10, 50]
        with np.load(self.path / "best.npz") as file:
            weights = file["weights"]
        for number, row in enumerate(scores):
            np.testing.assert_array_equal(weights[number], EPISODES["a"][row["step"] // stub.LENGTH - 1][1][number])
            assert row["return_mean"] == pytest.approx(stub.scores(weights, FRESH + 1)[number])

    @precondition(lambda self: not self.held and not self.is_finished() and not self.edited and not self.foreign)
    @rule(name=st.sampled_from("abc"), where=st.sampled_from(["compiling", "training"]))
    def hold(self, name, where):
        """A command that goes on while others come."""
        if self.has_begun() and (self.holds != name or self.extended):
            return
        if where == "training" and (self.has_all_steps() or name == "c"):
            return  # it may train no more
        held = self.command("train", name, hold=where, signals=True)
        stub.wait_until_held(self.path, held.pid)
        self.held, self.holds, before = held, name, self.contents()
        for other in RUNS:
            assert self.run(other).code == 2, "two processes in one directory"
        assert self.contents() == before, "a command that was refused wrote something"

    @precondition(lambda self: self.held)
    @rule(number=st.sampled_from([signal.SIGKILL, signal.SIGTERM]))
    def end(self, number):
        answer = self.server.end(self.held, signal.SIGKILL if self.in_training() else number)
        self.held = None
        assert answer.code in (-9, 75), answer
        if answer.code == 75:
            assert json.loads((self.path / "status.json").read_text())["state"] == "interrupted"

    def in_training(self):
        return (self.path / "status.json").exists() and '"running"' in (self.path / "status.json").read_text()

    @precondition(lambda self: not self.held and not self.is_finished() and not self.edited and not self.foreign)
    @rule(how=st.sampled_from(["moved", "removed", "unlocked"]))
    def take_over(self, how):
        """The directory, or its lock, is taken from a process that trains there, and another one trains instead."""
        name = self.holds if self.has_begun() else "a"
        if self.has_all_steps() or name == "c" or self.extended:
            return  # it may train no more
        held = self.command("train", name, hold="waiting")
        stub.wait_until_held(self.path, held.pid)
        if how == "unlocked":
            (self.path / "lock").unlink()
        else:
            self.path.rename(self.folder / "gone")
            shutil.rmtree(self.folder / "gone") if how == "removed" else None
            (self.folder / "synced").unlink(missing_ok=True)
            name = "b" if name == "a" else "a"
        other = self.run(name)
        assert other.code == 0
        self.holds, before = name, self.contents()
        answer = self.server.let_go(held)
        assert answer.code == 74, answer
        assert "was moved or removed during training" in answer.err
        assert self.contents() == before
        self.whole(name, other)
        shutil.rmtree(self.folder / "gone", ignore_errors=True)
        self.begin_anew()

    def begin_anew(self):
        """As Hypothesis leaves rules out, a rule of its own would leave most sequences finished and idle."""
        shutil.rmtree(self.path, ignore_errors=True)
        (self.folder / "synced").unlink(missing_ok=True)
        self.forget()

    # Accidents and attacks

    def halfway(self, name):
        """The newest checkpoint of a run that can go on: the one that is there, or this one, which begins anew."""
        newest = self.newest()
        over = self.is_finished() or self.edited or self.foreign or self.lacks_weights or not self.meta()
        if over or newest is None or (newest.name, newest.read_bytes()) == self.spoilt:
            self.begin_anew()
            self.train(name, 70, anew=False)
        return self.newest()

    def go_on(self, at_once):
        """In a sequence without the rule that resumes, nothing would be noticed."""
        if at_once and self.holds:
            self.resume(None)

    @precondition(lambda self: not self.held)
    @rule(name=st.sampled_from("abc"), dies_at=st.integers(20, 90), at_once=st.booleans())
    def cut_the_power(self, name, dies_at, at_once):
        """In the middle of a command."""
        self.train(name, dies_at, anew=True)
        if not self.is_finished():
            stub.cut_the_power(self.path)
            self.go_on(at_once)

    @precondition(lambda self: not self.held and self.has_begun() and not self.is_finished())
    @rule(name=st.sampled_from(LOGS), share=st.floats(0, 1), at_once=st.booleans())
    def shorten_a_log(self, name, share, at_once):
        stub.shorten(self.path / name, share)
        self.cut = True
        self.go_on(at_once)

    @precondition(lambda self: not (self.held or self.edited or self.foreign or self.is_finished()) and self.holds)
    @rule(after=st.integers(2, 5), name=st.sampled_from(LOGS), share=st.floats(0, 0.9))
    def shorten_a_log_during_a_start(self, after, name, share):
        """Between the operations on files with which a run goes back to its checkpoint, before it learns."""
        if not self.newest() or self.has_all_steps() or self.holds == "c":
            return  # it may train no more
        self.cut = True
        answer = self.run(self.holds, "resume", shortens={"after": after, "name": name, "share": share})
        read = answer.code == 2 and str(self.path / "metrics.jsonl") in answer.err  # by a callback, as it starts
        assert answer.code == stub.KILLED or read, answer

    @precondition(lambda self: not self.held and self.has_begun() and not self.is_finished())
    @rule(name=st.sampled_from(LOGS))
    def half_a_row(self, name):
        with (self.path / name).open("ab") as file:
            file.write(b'{"step": 1')

    @precondition(lambda self: not self.held)
    @rule(name=st.sampled_from("abc"))
    def forge_a_row(self, name):
        """Of a step that the first episode did not end at."""
        self.halfway(name)
        log = self.path / "metrics.jsonl"
        content = log.read_bytes() if log.exists() else b""
        if content.startswith(b'{"step": 10,'):
            log.write_bytes(content.replace(b'{"step": 10,', b'{"step": 90,', 1))
            self.cut = True
            self.resume(None)

    @precondition(lambda self: not self.held)
    @rule(
        name=st.sampled_from("abc"),
        part=st.sampled_from(range(4)),
        place=st.integers(0, 2**20),
        bit=st.integers(0, 7),
        at_once=st.booleans(),
    )
    def damage_a_checkpoint(self, name, part, place, bit, at_once):
        """A bit of its format, its hash, its header or its numbers; what is there already is not flipped back."""
        newest = self.halfway(name)
        if (newest.name, newest.read_bytes()) == self.spoilt:
            return
        content = bytearray(newest.read_bytes())
        numbers = len(content) - stub.NUMBERS
        begin, end = [(0, 18), (18, 83), (83, numbers), (numbers, len(content))][part]
        content[begin + place % (end - begin)] ^= 1 << bit
        newest.write_bytes(content)
        self.spoilt, self.damaged = (newest.name, bytes(content)), True
        self.go_on(at_once)

    @precondition(lambda self: not self.held)
    @rule(name=st.sampled_from("abc"), place=st.integers(0, 17), bit=st.integers(0, 7))
    def damage_the_format_of_a_checkpoint(self, name, place, bit):
        """Which no hash is over, in this version."""
        self.damage_a_checkpoint(name, 0, place, bit, True)

    @precondition(lambda self: not self.held and self.has_begun())
    @rule()
    def lose_a_checkpoint(self):
        if not self.is_finished():
            for found in sorted((self.path / "checkpoints").glob("*.checkpoint"))[-1:]:
                found.unlink()
            self.foreign = None

    @precondition(lambda self: not (self.held or self.foreign or self.is_finished()) and self.has_begun())
    @precondition(lambda self: self.holds in ("a", "c"))
    @rule()
    def put_a_foreign_checkpoint(self):
        """Of the other run, in the place of our newest, with logs as long as ours; or at the end, if we have none.

        Or, where a run began with weights of another, of the run that is the same but for that.
        """
        folder, found = self.path / "checkpoints", max((self.other / "checkpoints").glob("*.checkpoint"))
        folder.mkdir(exist_ok=True)
        own = sorted(folder.glob("*.checkpoint"))
        self.foreign = own[-1] if own else folder / "000000000050.checkpoint"
        try:
            facts = checkpoint.load(self.foreign).facts if own else None
        except checkpoint.DamagedError:
            facts = None
        if facts is None or int(self.foreign.stem) != stub.LENGTH * facts.episode:
            shutil.copy(found, self.foreign)
        else:
            theirs = checkpoint.load(found if self.holds == "a" else self.foreign)
            identity = {name: told for name, told in theirs.facts.identity.items() if name != "start"}
            forged = checkpoint.Checkpoint(facts._replace(identity=identity), theirs.arrays)
            checkpoint.save(folder, stub.LENGTH * facts.episode, forged, 9)
        answer = self.run(self.holds, "resume")
        assert answer.code == 2, answer
        told = self.edited or self.lacks_weights or f"{self.foreign} is a checkpoint of another run" in answer.err
        assert told, answer

    @precondition(lambda self: self.foreign and not self.held)
    @rule()
    def remove_the_foreign_checkpoint(self):
        self.foreign.unlink(missing_ok=True)
        self.foreign = None

    @precondition(lambda self: not self.held and not self.is_finished() and not self.foreign)
    @rule(alone=st.booleans(), at_once=st.booleans())
    def put_a_crafted_checkpoint(self, alone, at_once):
        """Valid in itself, but it counts on a file outside, alone or beside a log that is longer than it is."""
        found = sorted((self.path / "checkpoints").glob("*.checkpoint"))
        if found:
            try:
                facts, arrays = checkpoint.load(found[-1])
            except checkpoint.DamagedError:
                return
            lengths = {"../victim": 0} | ({} if alone else {LOGS[0]: 10_000, LOGS[1]: 0})
            step = stub.LENGTH * facts.episode
            checkpoint.save(found[-1].parent, step, checkpoint.Checkpoint(facts._replace(lengths=lengths), arrays), 9)
            self.damaged = True
            self.go_on(at_once)

    @precondition(lambda self: not self.held and (self.path / "config.json").exists() and not self.edited)
    @rule(at_once=st.booleans())
    def edit_the_settings(self, at_once):
        self.before = (self.path / "config.json").read_text()
        edited = json.loads(self.before)
        edited["train"]["gamma"] = EDITED
        (self.path / "config.json").write_text(json.dumps(edited))
        self.go_on(at_once)

    @precondition(lambda self: self.edited and not self.held)
    @rule()
    def undo_the_edit(self):
        (self.path / "config.json").write_text(self.before)

    @precondition(lambda self: not self.held and self.path.is_dir())
    @rule(hard=st.booleans())
    def put_links(self, hard):
        """In the place of each thing we write to, one at a time, while a command is tried; then it is put back.

        The link is named unless there is another reason to refuse the command.
        """
        own, others = self.holds or "a", self.edited or self.is_finished() or self.extended
        others = others or not (self.path / "config.json").exists()
        theirs, folders = sorted((self.other / "checkpoints").iterdir()), ("checkpoints", "tensorboard", "figures")
        for name in ("lock", *LOGS, *folders):
            path, aside = self.path / name, self.folder / "aside"
            if os.path.lexists(path):
                path.rename(aside)
            if hard and name == "lock":
                os.link(self.victim, path)
            else:
                path.symlink_to(self.victim if name not in folders else self.other / "checkpoints")
            answer = self.command("train", own)
            assert answer.code == 2, answer
            assert others or f"{path} should be" in answer.err, answer
            assert sorted((self.other / "checkpoints").iterdir()) == theirs
            path.unlink()
            if os.path.lexists(aside):
                aside.rename(path)

    @precondition(lambda self: not self.held)
    @rule(name=st.sampled_from("abc"), link=st.booleans())
    def put_a_link_for_a_checkpoint(self, name, link):
        """Or a folder, while a command is tried."""
        path, aside = self.halfway(name), self.folder / "aside"
        path.rename(aside)
        path.symlink_to(aside) if link else path.mkdir()
        answer = self.run(self.holds, "resume")
        assert answer.code == 2, answer
        assert f"{path} should be a file" in answer.err
        path.unlink() if link else path.rmdir()
        aside.rename(path)

    @precondition(lambda self: not self.held)
    @rule(name=st.sampled_from("abc"), at_once=st.booleans())
    def rename_a_checkpoint(self, name, at_once):
        """To a step that it is not of."""
        newest = self.halfway(name)
        later = newest.rename(newest.with_name(f"{int(newest.stem) + stub.LENGTH:012d}.checkpoint"))
        self.spoilt, self.damaged = (later.name, later.read_bytes()), True
        self.go_on(at_once)

    @precondition(lambda self: not self.held and (self.path / "config.json").exists() and not self.edited)
    @rule(name=st.sampled_from(sorted(WRONG)), number=st.integers(0, 6))
    def spoil_a_file(self, name, number):
        """A file of another shape in its place, while commands are tried."""
        path = self.path / name
        before = path.read_bytes() if path.exists() else None
        if before is None and not self.has_begun():
            return
        path.write_bytes(WRONG[name][number].encode(errors="surrogatepass"))
        for verb in ("train", "resume"):
            if verb == "train" and name != "status.json" and not self.has_begun():
                continue  # where nothing was learned, settings are written anew
            contents = self.contents()
            answer = self.command(verb, self.holds or "a")
            assert answer.code == 2, answer
            assert "Traceback" not in answer.err, answer
            assert name in answer.err or (name == "status.json" and self.extended and verb == "train"), answer
            assert self.contents() == contents
        path.write_bytes(before) if before is not None else path.unlink()

    @precondition(lambda self: self.holds == "c" and not (self.held or self.edited or self.foreign))
    @precondition(lambda self: not self.is_finished() and not self.lacks_weights)
    @rule(lost=st.booleans())
    def spoil_the_weights(self, lost):
        """Those that the run began with, while it starts over."""
        path, aside = self.path / "start.npz", self.folder / "aside"
        before = path.read_bytes()
        if (self.path / "checkpoints").exists():
            (self.path / "checkpoints").rename(aside)
        path.unlink() if lost else path.write_bytes((self.other / "policy.npz").read_bytes() + b"\0")
        answer = self.run("c", "resume")
        assert answer.code == 2, answer
        assert f"{path} does not hold the weights" in answer.err, answer
        path.write_bytes(before)
        if aside.exists():
            aside.rename(self.path / "checkpoints")

    @precondition(lambda self: (self.path / "best.json").exists() and self.holds == "a")
    @precondition(lambda self: not (self.held or self.edited or self.foreign) and self.total() < MOST * stub.LENGTH)
    @rule()
    def exchange_the_best_policies(self):
        """For others, while the run is asked to be longer."""
        path = self.path / "best.npz"
        before = path.read_bytes()
        path.write_bytes((self.path / "policy.npz").read_bytes() + b"\0")
        answer = self.run("a", "resume", options=["--keep-best", "--steps", str(self.total() + stub.LENGTH)])
        assert answer.code == 2, answer
        assert "has the scores of other policies than those in best.npz" in answer.err
        path.write_bytes(before)

    @precondition(lambda self: not self.held and self.has_begun())
    @rule()
    def copy_elsewhere(self):
        """A directory goes on from wherever it lies."""
        moved = self.folder / "moved"
        shutil.copytree(self.path, moved)
        shutil.rmtree(self.path)
        moved.rename(self.path)

    # What holds at all times

    @invariant()
    def a_step_was_taken(self):
        Directories.taken += 1

    @invariant()
    def whoever_finds_settings_finds_what_belongs_to_them(self):
        if hasattr(self, "path") and (self.path / "config.json").exists():
            assert (self.path / "meta.json").exists()

    @invariant()
    def nothing_outside_is_touched(self):
        if hasattr(self, "victim"):
            assert self.victim.read_bytes() == VICTIM

    @invariant()
    def no_log_is_padded(self):
        for name in LOGS:
            path = getattr(self, "path", Path("/nowhere")) / name
            assert not path.exists() or b"\0" not in path.read_bytes()

    @invariant()
    def a_score_stands_beside_its_policy(self):
        path = getattr(self, "path", Path("/nowhere"))
        if (path / "best.json").exists():
            digest = hashlib.sha256((path / "best.npz").read_bytes()).hexdigest()
            assert {row["sha256"] for row in json.loads((path / "best.json").read_text())} == {digest}

    @invariant()
    def the_log_has_the_rows_of_its_run(self):
        path = getattr(self, "path", Path("/nowhere")) / "metrics.jsonl"
        if path.exists() and self.holds:
            content = path.read_bytes()
            rows = b"".join(rows for rows, _ in EPISODES[self.holds][: self.total() // stub.LENGTH])
            whole = content[: content.rfind(b"\n") + 1] if not content.endswith(b"\n") else content
            assert rows.startswith(whole), "rows of another run, or in another order"


@pytest.fixture(scope="module", autouse=True)
def server():
    stub.SERVER = stub.Server()
    yield
    stub.SERVER.close()


@pytest.mark.parametrize(("examples", "steps"), [(8, 200), pytest.param(90, 2000, marks=pytest.mark.slow)])
def test_no_sequence_of_commands_and_accidents_breaks_a_promise(examples, steps):
    """Hypothesis ends its first sequence, and now and then another, before its time: steps are counted."""
    before = Directories.taken
    run_state_machine_as_test(
        Directories,
        settings=settings(
            max_examples=examples,
            stateful_step_count=40,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate],
        ),
    )
    assert Directories.taken - before >= steps
