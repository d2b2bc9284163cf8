"""Commands on run directories in processes of their own, in milliseconds: a trainer of a few numbers takes JAX's place.

Everything else is the real thing: directories, locks, logs, checkpoints, signals, exit codes. The server forks a
process for each command, which may be killed at its n-th operation on files or lose part of a log there, held while it
compiles or trains, kept from writing large files, or run as if the power were cut: what it wrote to a log and did not
sync is then lost.
"""

import ctypes
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import jax
import numpy as np

from moca import cli, devices
from moca.drivers import Report, Schedule
from moca.loop import RunState
from moca.runs import checkpoint, launch, origin, saving, starting
from moca.runs.directory import LOGS
from moca.runs.interrupts import own_process
from moca.runs.run import Run

EPISODES, LENGTH = 5, 10
NUMBERS = 120  # bytes of the arrays of a checkpoint, at its end
DIVERGES = 0.25  # the discount with which all runs do, in the third episode
ROOT = Path(__file__).parents[2]
KILLED = 99
HOLD = 600  # seconds after which a process goes on that is held, if nothing ended it before


class Learner(NamedTuple):
    """Weights, and how often they were changed."""

    weights: np.ndarray
    updates: np.ndarray


class Trainer:
    """Numbers that follow from discount, seed and episode alone, and from the ones before."""

    hold_compiling = hold_later = hold_training = hold_waiting = False
    ready = "compiled"
    folder = Path()  # of the run

    def __init__(self, configs, seeds, env, overlap=False):
        self.config, self.env, self.episode = configs[0], SimpleNamespace(), 0
        self.schedule = Schedule(LENGTH, [EPISODES * LENGTH])
        self._seeds = np.array(seeds, np.float32)
        runs = len(seeds)
        self.state = RunState(
            Learner(np.ones((runs, 3), np.float32), np.zeros(runs, np.int32)), np.zeros(runs, np.int32),
            np.zeros((runs, 4, 2), np.float32), np.zeros((runs, 2), np.uint32),
        )  # fmt: skip

    @property
    def step(self):
        return self.episode * LENGTH

    @property
    def episodes(self):
        return self.schedule.episodes

    @property
    def learners(self):
        return self.state.learner

    def compile(self):
        if self.hold_compiling:
            self._hold()

    def _hold(self):
        """As XLA does: in a call that does not return when a signal comes. Nobody waits until it does."""
        self.folder.joinpath("held.test").touch()
        pthread, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(64)  # zeros are a mutex that is free
        release = threading.Timer(HOLD, pthread.pthread_mutex_unlock, [mutex])
        release.daemon = True
        release.start()
        pthread.pthread_mutex_lock(mutex)
        pthread.pthread_mutex_lock(mutex)

    def __iter__(self):
        while self.episode < self.episodes:
            if self.hold_later:  # as an episode does that compiles the rest
                with self.while_compiling():
                    self._hold()
            if self.hold_training and self.episode >= 2:
                self._hold()
            if self.hold_waiting and self.episode >= 2:
                self.folder.joinpath("held.test").touch()
                while not self.folder.with_name("go").exists():
                    time.sleep(0.005)
            before = self.state.learner
            change = np.sin(self._seeds + self.config.train.gamma * (self.episode + 1))[:, None]
            learner = Learner((0.5 * before.weights + change).astype(np.float32), before.updates + np.int32(1))
            self.state = self.state._replace(learner=learner, replay=self.state.replay + 1)
            self.episode += 1
            score = learner.weights[:, 0]
            diverged = np.full(len(score), float(self.config.train.gamma == DIVERGES and self.episode == 3))
            metrics = {"return_mean": score, "return_noise_free": score, "diverged": diverged}
            yield Report(self.step, metrics)


def episodes(gamma, seed, start=None, count=EPISODES):
    """The rows that each episode adds to metrics.jsonl, and the weights after it, if nothing happens to the run."""
    config = SimpleNamespace(train=SimpleNamespace(gamma=gamma))
    trainer = Trainer([config], [seed, seed + 1], None)
    trainer.schedule = Schedule(LENGTH, [count * LENGTH])
    if start is not None:
        trainer.state = trainer.state._replace(learner=trainer.learners._replace(weights=start))
    for report in trainer:
        lines = []
        for number, own in enumerate((seed, seed + 1)):
            row = {"step": report.step, "seed": own}
            lines.append(json.dumps(row | {name: float(value[number]) for name, value in report.metrics.items()}))
        yield ("\n".join(lines) + "\n").encode(), trainer.learners.weights


def expected(gamma, seed):
    """The bytes of metrics.jsonl and the weights of a run that nothing happened to."""
    rows, weights = zip(*episodes(gamma, seed), strict=True)
    return b"".join(rows), weights[-1]


def scores(weights, seed):
    """The returns of policies over new episodes, which their weights and the seed of the episodes make."""
    return np.cos(3 * weights.sum(axis=1) + seed % 7)


def _like(run):
    return Trainer(run.directory.configs, [own["seed"] for own in run.directory.runs], None).state


def _evaluate(run, learners, episodes, seed):
    found = scores(learners.weights, seed)
    return [
        {**own, "return_mean": float(mean), "return_std": 0.1}
        for own, mean in zip(run.directory.runs, found, strict=True)
    ]


def _operations(dies_at, shortens):
    """Has the process die at its n-th operation on files, and notes how much of each log was synced.

    Or, n operations or more after it has opened a checkpoint, and as it opens another file, another process shortens a
    log; this one then dies when it would write to it.
    """
    done, opened, shortened, record = 0, None, False, Trainer.folder.with_name("synced")
    synced = json.loads(record.read_text()) if record.exists() else {}

    def counted(call):
        def wrapper(*arguments, **named):
            nonlocal done, opened, shortened
            if opened is None and str(arguments[0]).endswith(checkpoint.SUFFIX):
                opened = done
            due = shortens and opened is not None and done >= opened + shortens["after"]
            if due and call is open_ and not shortened:
                shorten(Trainer.folder / shortens["name"], shortens["share"])
                shortened = True
            if done == dies_at or (shortened and call is write):
                os._exit(KILLED)
            done += 1
            result = call(*arguments, **named)
            if call is fsync:
                path = os.readlink(f"/proc/self/fd/{arguments[0]}")
                synced[Path(path).name] = os.fstat(arguments[0]).st_size
                record.write_text(json.dumps(synced))
            return result

        return wrapper

    open_, fsync, write = os.open, os.fsync, os.write
    for name in ("open", "write", "fsync", "replace", "ftruncate", "unlink"):
        setattr(os, name, counted(getattr(os, name)))


def _child(command):
    """What a forked process does; returns its exit code."""
    for name in ("compiling", "later", "training", "waiting"):
        setattr(Trainer, f"hold_{name}", command.get("hold") == name)
    Trainer.folder = Path(command["path"])
    if command.get("signals"):
        own_process()
    if command.get("clock"):
        now = time.time_ns()
        time.time_ns = lambda: now + int(random.uniform(-1, 1) * 1e18)  # thirty years either way
        time.time = lambda: time.time_ns() / 1e9
    if "largest" in command:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (command["largest"],) * 2)
    _operations(command.get("dies_at"), command.get("shortens"))
    arguments = ["train", "--checkpoint-every", "0"]
    if command["verb"] == "train":
        numbers = {"train.gamma": command["gamma"], "seed": command["seed"], "env.episode_length": LENGTH}
        numbers["train.warmup"] = 0  # in which --patience does not count
        arguments += ["--agent", "sac", "--steps", str(EPISODES * LENGTH), "--seeds", "2", "--out", command["path"]]
        arguments += [text for name, value in numbers.items() for text in ("--set", f"{name}={value}")]
    else:
        arguments += ["--resume", command["path"]]
    arguments += command.get("options", ())
    try:
        cli.main(arguments)
    except SystemExit as stopped:
        return stopped.code or 0
    return 0


def _fork(command, folder):
    """The process of a command, whose output goes to files."""
    if number := os.fork():
        return number
    code = 1
    try:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # it does not outlive the server
        for name, handle in (("out", 1), ("err", 2)):
            os.dup2(os.open(Path(folder) / f"{name}{os.getpid()}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), handle)
        code = _child(command)
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def serve():
    """Commands as lines of JSON; answers likewise."""
    import tensorboardX.crc32c
    import tensorboardX.proto.event_pb2
    import tensorboardX.proto.summary_pb2  # noqa: F401, imported here once instead of in every process

    cli._parser()  # it imports more
    devices.use_device = lambda _: None
    saving.Saver.save_if_due = lambda self: (self.save(), self.wait())  # so that it is known what has been done
    launch.make_trainer = Trainer
    launch.learning_curve = lambda *_: None
    origin.describe = lambda: {"versions": {}}
    checkpoint.from_host = checkpoint.unflatten
    starting.make_env = starting.refuse_unfit_settings = lambda *_: None
    starting.init_run = lambda config, *_: jax.tree.map(lambda leaf: leaf[0], Trainer([config], [0], None).state)
    Run.environment = Run._programs = None
    Run._like = property(_like)
    Run.evaluate_learners = _evaluate
    with tempfile.TemporaryDirectory() as folder:
        for line in sys.stdin:
            command = json.loads(line)
            if command["verb"] in ("train", "resume"):
                number = _fork(command, folder)
                if command.get("hold"):
                    print(json.dumps({"pid": number, "path": command["path"]}), flush=True)
                    continue
            else:
                number = command["pid"]
                for each in command["signals"]:
                    os.kill(number, each)
                    time.sleep(0.2)  # signals that are pending at the same time are one
            _, status = os.waitpid(number, 0)
            answer = {name: (Path(folder) / f"{name}{number}").read_text() for name in ("out", "err")}
            print(json.dumps(answer | {"code": os.waitstatus_to_exitcode(status)}), flush=True)


class Server:
    """Starts commands in forked processes."""

    def __init__(self):
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "tests.attacks.stub"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env={**os.environ, "COLUMNS": "10000"},
        )  # fmt: skip

    def __call__(self, verb, **command):
        """What the command printed and its exit code; of one that is held its process number."""
        self._process.stdin.write(json.dumps({"verb": verb, **command}) + "\n")
        self._process.stdin.flush()
        return SimpleNamespace(**json.loads(self._process.stdout.readline()))

    def end(self, held, *signals):
        """Sends a held process these signals, or kills it, and waits for its end."""
        return self("signal", pid=held.pid, signals=[int(each) for each in signals or (signal.SIGKILL,)])

    def let_go(self, held):
        """Lets a process go on that is held waiting, and waits for its end."""
        go = Path(held.path).with_name("go")
        go.touch()
        answer = self("signal", pid=held.pid, signals=[])
        go.unlink()
        return answer

    def close(self):
        self._process.communicate()


def shorten(path, share):
    """Leaves that share of a file."""
    if path.exists():
        os.truncate(path, int(share * path.stat().st_size))


def cut_the_power(path):
    """What was not synced of the logs of that run is lost."""
    record = path.with_name("synced")
    synced = json.loads(record.read_text()) if record.exists() else {}
    for name in LOGS:
        if (path / name).exists():
            os.truncate(path / name, min((path / name).stat().st_size, synced.get(name, 0)))


def wait_until_held(path, number):
    """Until that process has the directory and does nothing more."""
    for _ in range(3000):
        try:
            holds = (path / "lock").read_text() == str(number)
        except OSError:
            holds = False
        if holds and (path / "held.test").exists():
            (path / "held.test").unlink()
            return
        time.sleep(0.01)
    raise TimeoutError


if __name__ == "__main__":
    serve()
