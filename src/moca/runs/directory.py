"""The run directory: the settings, the measurements and the learned policies.

config.json    all settings              metrics.jsonl  one row per episode and run
meta.json      versions, device          timing.jsonl   wall-clock times
status.json    state and progress        policy.npz     the learners' arrays
checkpoints/   for resuming              lock           the process that is training
tensorboard/   figures/                  rollout.mp4    ahead.mp4    inspect.html

metrics.jsonl has no wall-clock times, so equal runs give equal files.
"""

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from moca import __version__, files
from moca.config import Config, ConfigError, from_json, override, to_json
from moca.drivers import Report
from moca.received import read_json, read_rows
from moca.runs import ENDED, OVER, STATES, learned, lock, origin
from moca.runs.clash import clash
from moca.runs.shapes import fault_in_meta, is_lost, is_row

LOGS = ("metrics.jsonl", "timing.jsonl")
ROOM = 256  # smallest size of status.json in bytes, so that it can be overwritten on a full disk


class RunDirectory:
    """Reads and writes a run directory."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self.checkpoints = self.path / "checkpoints"
        self._lock: lock.Lock | None = None

    @classmethod
    def open(cls, path: Path) -> "RunDirectory":
        """Opens an existing directory; raises if there is no run in it."""
        for name in ("config.json", "meta.json"):
            if not (Path(path) / name).is_file():
                raise ConfigError(f"{path} is not a run directory: it has no {name}")
        return cls(path)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Creates the directory if needed, and locks it against other training processes."""
        with lock.held(self.path) as self._lock:
            try:
                for name in LOGS:
                    files.refuse_odd(self.path / name)
                files.refuse_odd(self.checkpoints, folder=True)
                tensorboard = self.path / "tensorboard"
                for folder in (self.path / "figures", tensorboard, *tensorboard.glob("*/")):
                    files.refuse_odd(folder, folder=True)
                self._forget()  # another process may have changed the files
                yield
            finally:
                self._lock = None

    def refuse_lost(self) -> None:
        """Raises `OSError` if another process may have taken the lock of this directory."""
        if self._lock is not None:
            self._lock.refuse_lost()

    @contextmanager
    def writing(self, what: str = "") -> Iterator[None]:
        """Converts errors of the operating system, and a lost lock, into a `DiskError`."""
        with files.writing(f"{what}to {self.path}"):
            self.refuse_lost()
            yield

    def _forget(self) -> None:
        """Clears the cached config.json and meta.json."""
        for name in ("config", "_asked", "meta"):
            self.__dict__.pop(name, None)

    def refuse(self, config: Config, runs: list[dict[str, float]]) -> None:
        """Raises if this run can be neither started nor resumed here."""
        if self.holds_a_run():
            self.refuse_other(config, runs)
        elif not self._is_ours():
            raise ConfigError(
                f"{self.path} has a config.json or meta.json that does not belong to a run: choose another directory"
            )
        _ = self.status  # raises if status.json is invalid

    def begin(
        self, config: Config, runs: list[dict[str, float]], start: Path | None = None, preset: str | None = None
    ) -> None:
        """Writes the settings to a locked directory; raises if it has another or a finished run."""
        self.refuse(config, runs)
        if self.holds_a_run():
            return
        self._forget()
        text = to_json(config)
        identity = origin.identity(json.loads(text), runs)
        with self.writing():
            (self.path / "config.json").unlink(missing_ok=True)  # it must have the meta.json of its run beside it
            copied = {"start": {"run": str(start), "sha256": ""}} if start else {}  # not yet
            meta = {**origin.describe(), "preset": preset, "identity": identity, "runs": runs, **copied}
            files.write(self.path / "meta.json", (json.dumps(meta, indent=2) + "\n").encode())
            files.write(self.path / "config.json", (text + "\n").encode())

    def holds_a_run(self) -> bool:
        """True if something was learned or measured here."""
        names = ("metrics.jsonl", "policy.npz")
        return any((self.path / name).exists() for name in names) or any(self.checkpoints.glob("*"))

    def _is_ours(self) -> bool:
        """True if the files with our names were written by us."""
        if not any(os.path.lexists(self.path / name) for name in ("config.json", "meta.json")):
            return True
        try:
            return bool(self.runs)
        except ConfigError:
            return False

    def refuse_other(self, config: Config, runs: list[dict[str, float]]) -> None:
        """Raises if the run in this directory is finished, or differs from this one."""
        if why := clash(self.path, self.config, self._asked, self.runs, self.over, config, runs):
            raise ConfigError(why)

    @property
    def over(self) -> str:
        """The final state of the run; empty if steps are left, as after an extension."""
        status = self.status
        longer = status["state"] == "finished" and status["step"] < self.config.train.steps
        return status["state"] if status["state"] in OVER and not longer else ""

    @property
    def ended(self) -> bool:
        """True if the run is over, or a callback stopped it."""
        return bool(self.over) or self.status["state"] == "stopped"

    @property
    def requested(self) -> list[int]:
        """The numbers of steps requested: at first, and whenever that changed."""
        return [self._asked.train.steps, *self.meta.get("extended", [])]

    @property
    def totals(self) -> list[int]:
        """The requested numbers that no later request took back, ascending."""
        asked = self.requested
        return [total for i, total in enumerate(asked) if all(total < later for later in asked[i + 1 :])]

    def longer(self, steps: int) -> Config:
        """Returns the settings of the run with `steps` as its number of steps.

        Raises if all runs diverged, or it has more: taken, if a callback stopped it, or requested.
        """
        if self.over == "diverged":
            raise ConfigError(f"all runs in {self.path} diverged: there is nothing to resume")
        stopped = self.status["state"] == "stopped"
        if steps < (least := self.status["step"] if stopped else self.totals[-1]):
            how = "taken in" if stopped else "requested for"
            raise ConfigError(f"steps = {steps} is less than the {least} steps {how} {self.path} before")
        if steps == self.totals[-1]:
            return self.config
        return override(self.config, {"train.steps": steps, "train.horizon": self.config.train.scheduled_steps})

    def extend(self, steps: int) -> None:
        """Extends the run in memory; `note_start` writes it, once nothing can be refused."""
        if self.longer(steps) != self.config:
            extended = self.meta | {"extended": [*self.requested[1:], steps]}
            self._forget()
            self.meta = extended

    def note_start(self, step: int) -> None:
        """Writes an extension to a locked directory, and the step where an ended run resumes."""
        begun, status = [each for each in self.begun if each <= step], self.status
        if status["state"] in ENDED and status["step"] == step and step not in begun:
            begun.append(step)
        facts = {"begun": begun} if begun != self.begun else {}
        if self.meta | facts != self._read("meta.json"):
            self.note(**facts)

    @property
    def begun(self) -> list[int]:
        """The steps from which training went on after a stop or an end, ascending."""
        return self.meta.get("begun", [])

    def note(self, **facts: Any) -> None:
        """Adds entries to meta.json in a locked directory."""
        with self.writing():
            files.write(self.path / "meta.json", (json.dumps(self.meta | facts, indent=2) + "\n").encode())
        self._forget()

    @property
    def status(self) -> dict[str, Any]:
        """The contents of status.json: the run's `state`, such as "finished", and its `step`."""
        if not (self.path / "status.json").exists():
            return {"state": "unknown", "step": 0}
        status = self._read("status.json")
        step = status.get("step")
        if status.get("state") not in STATES or not isinstance(step, int) or step < 0:
            raise ConfigError(f"{self.path / 'status.json'} does not contain a valid state and step: remove it")
        lost = status.get("diverged", [])
        if not isinstance(lost, list) or not all(map(is_lost, lost)):
            raise ConfigError(f"{self.path / 'status.json'} does not list the diverged runs: remove it")
        return status

    def lengths(self) -> dict[str, int]:
        """Returns the lengths of the logs, in bytes."""
        return {name: path.stat().st_size if (path := self.path / name).exists() else 0 for name in LOGS}

    def cut(self, lengths: Mapping[str, int]) -> None:
        """Truncates the logs to their lengths at a checkpoint; later rows are computed again."""
        with self.writing():
            for name in LOGS:
                files.shorten(self.path / name, lengths[name])

    def sync(self) -> None:
        """Flushes the logs to disk."""
        for name in LOGS:
            if (self.path / name).exists():
                files.sync(self.path / name)

    @cached_property
    def config(self) -> Config:
        """The settings of the run, including extensions."""
        asked = self._asked
        if len(self.requested) == 1:
            return asked
        try:
            return override(asked, {"train.steps": self.totals[-1], "train.horizon": asked.train.scheduled_steps})
        except ConfigError as error:
            raise ConfigError(f"{self.path / 'meta.json'} extends the run beyond what is allowed: {error}") from None

    @cached_property
    def _asked(self) -> Config:
        """The settings of the run as first requested."""
        path, told = self.path / "config.json", self.meta.get("identity")
        ours = origin.identity(self._read("config.json"), self.runs, self.meta.get("start"))
        if told and told != ours:
            edited = path if told.get("settings") != ours["settings"] else self.path / "meta.json"
            raise ConfigError(f"{edited} was edited after the run started: undo that, or start a new run elsewhere")
        try:
            return from_json(path.read_text())
        except ValueError as error:
            raise ConfigError(f"{path} cannot be read{self._made_by}: {error}") from None

    @property
    def _made_by(self) -> str:
        """Returns " (it was made by …)" if another version of this package made the run."""
        try:
            versions = self.meta.get("versions")
        except ConfigError:  # reported elsewhere
            return ""
        made = versions.get("moca-rl") if isinstance(versions, dict) else None
        return f" (it was made by moca {made}, this is {__version__})" if made not in (None, __version__) else ""

    @cached_property
    def meta(self) -> dict[str, Any]:
        """Versions, device, and the settings in which the runs differ."""
        meta = self._read("meta.json")
        if fault := fault_in_meta(meta):
            raise ConfigError(f"{self.path / 'meta.json'} is invalid: {fault}")
        return meta

    @property
    def runs(self) -> list[dict[str, float]]:
        """Seed and varied settings of each run."""
        return self.meta["runs"]

    @property
    def _varied(self) -> list[dict[str, float]]:
        """The varied settings of each run."""
        return [{name: value for name, value in run.items() if name != "seed"} for run in self.runs]

    @property
    def points(self) -> list[dict[str, float]]:
        """The distinct variations of the runs, in order."""
        return [dict(items) for items in dict.fromkeys(tuple(varied.items()) for varied in self._varied)]

    @property
    def configs(self) -> list[Config]:
        """All settings of each run."""
        return [override(self.config, varied) for varied in self._varied]

    def _read(self, name: str) -> dict[str, Any]:
        """Returns the object in a JSON file of this directory."""
        path = self.path / name
        try:
            found = read_json(path)
        except FileNotFoundError:
            raise ConfigError(f"{self.path} is not a run directory: it has no {name}") from None
        if not isinstance(found, dict):
            raise ConfigError(f"{path} cannot be read: it does not contain a JSON object")
        return found

    def append(self, report: Report, seconds: float) -> None:
        """Appends one row per run to metrics.jsonl and one to timing.jsonl."""
        rows: list[dict[str, Any]] = [
            {"step": report.step, **run}
            | {name: float(own[i]) if math.isfinite(own[i]) else None for name, own in report.metrics.items()}
            for i, run in enumerate(self.runs)
        ]
        before = self.lengths()
        timing: list[dict[str, Any]] = [{"step": report.step, "seconds": round(seconds, 4)}]
        with self.writing():
            try:
                for name, new in zip(LOGS, (rows, timing), strict=True):
                    files.append(self.path / name, "".join(json.dumps(row) + "\n" for row in new).encode())
            except OSError:
                self.cut(before)  # so that both logs end at the same step
                raise

    def rows(self) -> list[dict[str, Any]]:
        """Returns all rows of metrics.jsonl."""
        path = self.path / "metrics.jsonl"
        rows = read_rows(path) if path.exists() else []
        if odd := next((number for number, row in enumerate(rows, 1) if not is_row(row)), None):
            raise ConfigError(f"{path} cannot be read: line {odd} is not a row of metrics")
        return rows

    def write_status(self, state: str, step: int, diverged: Sequence[Mapping[str, Any]] = ()) -> None:
        """Writes one of `STATES`, the number of steps done, and the runs that diverged.

        Without room for a new file it overwrites the old one, so that a full disk is recorded.
        """
        path = self.path / "status.json"
        text = json.dumps({"state": state, "step": step} | ({"diverged": list(diverged)} if diverged else {}))
        with suppress(OSError):
            self.refuse_lost()
            try:
                files.write(path, text.ljust(ROOM).encode() + b"\n")
            except OSError:
                files.write_over(path, json.dumps({"state": state, "step": step}).encode())

    def save_policy(self, learners: Any, name: str = "policy.npz") -> Path:
        """Writes the learners' arrays."""
        with self.writing("the policy "):
            return learned.write(self.path / name, learners)

    def load_policy(self, like: Any, name: str = "policy.npz") -> Any:
        """Returns the learners that `save_policy` wrote, in the structure of `like`."""
        try:
            return learned.read(self.path / name, like)
        except FileNotFoundError:
            raise ConfigError(f"{self.path} has no {name} yet: the run has not reached that point") from None
        except learned.UnexpectedArraysError as error:
            raise ConfigError(
                f"{self.path / name} does not fit the run's config.json{self._made_by}: {error}"
            ) from None
