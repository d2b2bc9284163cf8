"""The run directory: everything that was asked, everything that was measured, and the policies that were learned.

config.json      all settings          metrics.jsonl   one row per episode and run, no wall-clock figures
meta.json        versions, device      timing.jsonl    wall-clock figures
status.json      how far it got        policy.npz      the learners' arrays
checkpoints/     all that is needed to go on             lock   who is training here
tensorboard/     figures/              rollout.mp4     inspect.html
"""

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from moca import __version__, files
from moca.config import Config, ConfigError, flatten, from_json, override, to_json
from moca.drivers import Report
from moca.nets import scheduled
from moca.received import read_json, read_rows
from moca.runs import OVER, STATES, learned, origin
from moca.runs.shapes import are_steps, is_row, is_run

LOGS = ("metrics.jsonl", "timing.jsonl")
ROOM = 256  # bytes of status.json at least, so that it can be written to in place when the disk is full


class InHandError(ConfigError):
    """A directory in which another process trains."""


class RunDirectory:
    """Writes and reads one such directory."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self.checkpoints = self.path / "checkpoints"

    @classmethod
    def open(cls, path: Path) -> "RunDirectory":
        """Opens an existing directory; raises if there is no run in it."""
        for name in ("config.json", "meta.json"):
            if not (Path(path) / name).is_file():
                raise ConfigError(f"{path} is no run directory: it holds no {name}")
        return cls(path)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps other processes from training in this directory, which is made if need be, while the block runs.

        Nothing is written before the lock is held.
        """
        import fcntl  # which Windows has not, where runs can be read all the same

        with files.writing(f"to {self.path}"):
            self.path.mkdir(parents=True, exist_ok=True)
            files.refuse_odd(self.path / "lock")
            file = files.open_lock(self.path / "lock")
        with file:
            try:
                with files.writing(f"to {self.path}, for it cannot be locked"):
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                owner = file.read(20).decode(errors="replace").strip()
                raise InHandError(f"{self.path} is being trained in by process {owner or '?'}") from None
            with suppress(OSError):  # a full disk; the lock itself holds
                file.truncate(0)
                file.write(str(os.getpid()).encode())
            for name in LOGS:
                files.refuse_odd(self.path / name)
            files.refuse_odd(self.checkpoints, folder=True)
            for folder in (self.path / "figures", self.path / "tensorboard", *(self.path / "tensorboard").glob("*/")):
                files.refuse_odd(folder, folder=True)
            self._forget()  # what was read before may not hold any more
            yield

    def _forget(self) -> None:
        """Has config.json and meta.json read again."""
        for name in ("config", "_asked", "meta"):
            self.__dict__.pop(name, None)

    def begin(self, config: Config, runs: list[dict[str, float]]) -> None:
        """Notes what is asked, in a directory that is locked; refuses one that holds another run, or a finished one."""
        if self._holds_a_run():
            self.refuse_other(config, runs)
            return
        if not self._is_ours():
            raise ConfigError(
                f"{self.path} holds a config.json or meta.json that is of no run: choose another directory"
            )
        _ = self.status  # which raises where there is one of another shape
        self._forget()
        text = to_json(config)
        identity = origin.identity(json.loads(text), runs)
        with files.writing(f"to {self.path}"):
            # In this order: whoever finds a config.json finds what belongs to it.
            meta = {**origin.describe(), "identity": identity, "runs": runs}
            files.write(self.path / "meta.json", (json.dumps(meta, indent=2) + "\n").encode())
            files.write(self.path / "config.json", (text + "\n").encode())

    def _holds_a_run(self) -> bool:
        """True if something was learned or measured here."""
        names = ("metrics.jsonl", "policy.npz")
        return any((self.path / name).exists() for name in names) or any(self.checkpoints.glob("*"))

    def _is_ours(self) -> bool:
        """True if what lies here in the place of our files was written by us."""
        if not any(os.path.lexists(self.path / name) for name in ("config.json", "meta.json")):
            return True
        try:
            return bool(self.runs)
        except ConfigError:
            return False

    def refuse_other(self, config: Config, runs: list[dict[str, float]]) -> None:
        """Raises if the run in this directory is finished, or is another than this."""
        ours, theirs = flatten(config), flatten(self.config)
        changed = [name for name in ours if ours[name] != theirs[name]]
        if changed or runs != self.runs:
            what = f"other settings ({', '.join(changed[:3])})" if changed else "other seeds or variations"
            raise ConfigError(f"{self.path} holds a run already, with {what}: choose another directory, or remove it")
        if self.over:
            what = "it is finished" if self.over == "finished" else "all of it diverged"
            raise ConfigError(f"{self.path} holds a run already, and {what}: choose another directory, or remove it")

    @property
    def over(self) -> str:
        """The state in which the run ended; empty if something is left to do, as in a finished run made longer."""
        status = self.status
        longer = status["state"] == "finished" and status["step"] < self.config.train.steps
        return status["state"] if status["state"] in OVER and not longer else ""

    @property
    def totals(self) -> list[int]:
        """The steps that were asked for: at first, and each time that the run was made longer."""
        return [self._asked.train.steps, *self.meta.get("extended", [])]

    def longer(self, steps: int) -> Config:
        """The settings of the run made longer; raises where it cannot be."""
        if self.over == "diverged":
            raise ConfigError(f"all of {self.path} diverged: there is nothing to go on with")
        if steps < self.totals[-1]:
            raise ConfigError(f"steps = {steps} is fewer than the {self.totals[-1]} that {self.path} was asked for")
        if steps == self.totals[-1]:
            return self.config
        return override(self.config, {"train.steps": steps, "train.horizon": scheduled(self.config)})

    def extend(self, steps: int) -> None:
        """Makes the run longer, in a directory that is locked. One write: a run is as long as it was, or longer."""
        if self.longer(steps) != self.config:
            self.note(extended=[*self.totals[1:], steps])

    def note(self, **facts: Any) -> None:
        """Adds to meta.json, in a directory that is locked."""
        with files.writing(f"to {self.path}"):
            files.write(self.path / "meta.json", (json.dumps(self.meta | facts, indent=2) + "\n").encode())
        self._forget()

    @property
    def status(self) -> dict[str, Any]:
        """The state and the step that `write_status` wrote last."""
        if not (self.path / "status.json").exists():
            return {"state": "unknown", "step": 0}
        status = self._read("status.json")
        step = status.get("step")
        if status.get("state") not in STATES or not isinstance(step, int) or step < 0:
            raise ConfigError(f"{self.path / 'status.json'} does not say how far the run got: remove it")
        return status

    def lengths(self) -> dict[str, int]:
        """The lengths of the logs, in bytes."""
        return {name: path.stat().st_size if (path := self.path / name).exists() else 0 for name in LOGS}

    def cut(self, lengths: Mapping[str, int]) -> None:
        """Makes the logs as short as they were: what came after a checkpoint is made again."""
        with files.writing(f"to {self.path}"):
            for name in LOGS:
                files.shorten(self.path / name, lengths[name])

    def sync(self) -> None:
        """Has the logs on disk."""
        for name in LOGS:
            if (self.path / name).exists():
                files.sync(self.path / name)

    def ends_a_row(self, lengths: Mapping[str, int]) -> str | None:
        """The name of a log that has no row that ends at that length; None if all have."""
        for name in LOGS:
            try:
                with files.open_to_read(self.path / name) as file:
                    file.seek(max(0, lengths[name] - 1))
                    whole = not lengths[name] or file.read(1) == b"\n"
            except FileNotFoundError:
                whole = not lengths[name]
            if not whole:
                return name
        return None

    @cached_property
    def config(self) -> Config:
        """The settings of the run, as long as it was made."""
        asked = self._asked
        if len(self.totals) == 1:
            return asked
        try:
            return override(asked, {"train.steps": self.totals[-1], "train.horizon": scheduled(asked)})
        except ConfigError as error:
            raise ConfigError(f"{self.path / 'meta.json'} makes the run longer than can be: {error}") from None

    @cached_property
    def _asked(self) -> Config:
        """The settings of the run, as it was first asked for."""
        path, told = self.path / "config.json", self.meta.get("identity")
        ours = origin.identity(self._read("config.json"), self.runs)
        if told and told != ours:
            edited = path if told.get("settings") != ours["settings"] else self.path / "meta.json"
            raise ConfigError(f"{edited} was edited after the run began: undo that, or begin a new run elsewhere")
        try:
            return from_json(path.read_text())
        except ValueError as error:
            raise ConfigError(f"{path} cannot be read{self._made_by}: {error}") from None

    @property
    def _made_by(self) -> str:
        """ " (it was made by …)" where that was another version of this package."""
        try:
            versions = self.meta.get("versions")
        except ConfigError:  # that is another matter
            return ""
        made = versions.get("moca-rl") if isinstance(versions, dict) else None
        return f" (it was made by moca {made}, and this is {__version__})" if made not in (None, __version__) else ""

    @cached_property
    def meta(self) -> dict[str, Any]:
        """Versions, device, and what the runs differ in."""
        meta = self._read("meta.json")
        path, runs = self.path / "meta.json", meta.get("runs")
        if not isinstance(meta.get("identity", {}), dict):
            raise ConfigError(f"{path} does not say which run it is of: its identity has another shape")
        if not isinstance(runs, list) or not runs or not all(is_run(run) for run in runs):
            raise ConfigError(f"{path} does not list the runs, each with its seed and settings that are numbers")
        if not are_steps(meta.get("extended", [])):
            raise ConfigError(f"{path} does not say how long the run was made: extended must list numbers of steps")
        if len({tuple(run) for run in runs}) != 1:
            raise ConfigError(f"{path} lists runs of which some have settings that others have not")
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
        """The variations of the runs, each once and in order."""
        return [dict(items) for items in dict.fromkeys(tuple(varied.items()) for varied in self._varied)]

    @property
    def configs(self) -> list[Config]:
        """All settings of each run."""
        return [override(self.config, varied) for varied in self._varied]

    def _read(self, name: str) -> dict[str, Any]:
        """The object in a JSON file of this directory."""
        path = self.path / name
        try:
            found = read_json(path)
        except FileNotFoundError:
            raise ConfigError(f"{self.path} is no run directory: it holds no {name}") from None
        if not isinstance(found, dict):
            raise ConfigError(f"{path} cannot be read: it holds no object with names and values")
        return found

    def append(self, report: Report, seconds: float) -> None:
        """One row per run into metrics.jsonl; one into timing.jsonl."""
        rows: list[dict[str, Any]] = [
            {"step": report.step, **run, **{name: _number(values[i]) for name, values in report.metrics.items()}}
            for i, run in enumerate(self.runs)
        ]
        before = self.lengths()
        timing: list[dict[str, Any]] = [{"step": report.step, "seconds": round(seconds, 4)}]
        with files.writing(f"to {self.path}"):
            try:
                for name, new in zip(LOGS, (rows, timing), strict=True):
                    files.append(self.path / name, "".join(json.dumps(row) + "\n" for row in new).encode())
            except OSError:
                self.cut(before)  # the logs end at the same step
                raise

    def rows(self, length: int | None = None) -> list[dict[str, Any]]:
        """All rows of metrics.jsonl, or those in its first bytes, as many as `length` says."""
        path = self.path / "metrics.jsonl"
        try:
            rows = read_rows(path, length)
        except FileNotFoundError:
            return []
        for number, row in enumerate(rows, 1):
            if not is_row(row):
                raise ConfigError(f"{path} cannot be read: line {number} is no row of metrics")
        return rows

    def write_status(self, state: str, step: int, diverged: Sequence[Mapping[str, Any]] = ()) -> None:
        """One of `STATES`, how many steps are behind it, and which runs diverged.

        Where there is no room for a new file, over the old one: what a full disk must not hide is that it was full.
        """
        path = self.path / "status.json"
        text = json.dumps({"state": state, "step": step} | ({"diverged": list(diverged)} if diverged else {}))
        try:
            files.write(path, text.ljust(ROOM).encode() + b"\n")
        except OSError:
            with suppress(OSError):
                files.write_over(path, json.dumps({"state": state, "step": step}).encode())

    def save_policy(self, learners: Any, name: str = "policy.npz") -> Path:
        """Writes the learners' arrays."""
        with files.writing(f"the policy to {self.path}"):
            return learned.write(self.path / name, learners)

    def load_policy(self, like: Any, name: str = "policy.npz") -> Any:
        """The learners that `save_policy` wrote, in the structure of `like`."""
        try:
            return learned.read(self.path / name, like)
        except FileNotFoundError:
            raise ConfigError(f"{self.path} holds no {name}: the run has not got that far") from None
        except learned.OtherArraysError as error:
            raise ConfigError(
                f"{self.path / name} does not fit the run's config.json{self._made_by}: {error}"
            ) from None


def _number(value: np.ndarray) -> float | None:
    return float(value) if math.isfinite(value) else None
