"""The run directory: everything that was asked, everything that was measured, and the policies that were learned.

config.json      all settings          metrics.jsonl   one row per episode and run, no wall-clock figures
meta.json        versions, device      timing.jsonl    wall-clock figures
status.json      how far it got        policy.npz      the learners' arrays
checkpoints/     all that is needed to go on             lock   who is training here
tensorboard/     figures/              rollout.mp4
"""

import json
import math
import os
import platform
import subprocess
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import jax
import numpy as np

from moca import __version__
from moca.config import Config, ConfigError, flatten, from_json, to_json
from moca.deploy import LARGEST, read_arrays
from moca.training import Report

LOGS = ("metrics.jsonl", "timing.jsonl")
PACKAGES = ("jax", "jaxlib", "equinox", "optax", "playground", "mujoco", "mujoco-mjx", "gymnasium", "numpy")


class InHandError(ConfigError):
    """A directory in which another process trains."""


class RunDirectory:
    """Writes and reads one such directory."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path)

    @classmethod
    def create(
        cls,
        path: Path,
        config: Config,
        varied: Sequence[Mapping[str, float]],
        seeds: Sequence[int],
    ) -> "RunDirectory":
        """A new directory, or one whose unfinished run is this very one; refuses one that holds another run."""
        run = cls(path)
        runs = [{"seed": seed, **settings} for seed, settings in zip(seeds, varied, strict=True)]
        if (run.path / "metrics.jsonl").exists():
            run.refuse_other(config, runs)
            return run
        try:
            run.path.mkdir(parents=True, exist_ok=True)
            (run.path / "config.json").write_text(to_json(config) + "\n")
            (run.path / "meta.json").write_text(json.dumps({**_meta(), "runs": runs}, indent=2) + "\n")
        except OSError as error:
            raise ConfigError(f"cannot write to {run.path}: {error.strerror}") from None
        return run

    def refuse_other(self, config: Config, runs: list[dict[str, float]]) -> None:
        """Raises if the run in this directory is finished, or is another than this."""
        ours, theirs = flatten(config), flatten(self.config)
        changed = [name for name in ours if ours[name] != theirs[name]]
        if changed or runs != self.runs:
            what = f"other settings ({', '.join(changed[:3])})" if changed else "other seeds or variations"
            raise ConfigError(f"{self.path} holds a run already, with {what}: choose another directory, or remove it")
        if self.status["state"] == "finished":
            raise ConfigError(
                f"{self.path} holds a run already, and it is finished: choose another directory, or remove it"
            )

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps other processes from training in this directory while the block runs."""
        import fcntl

        with (self.path / "lock").open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                file.seek(0)
                raise InHandError(f"{self.path} is being trained in by process {file.read().strip() or '?'}") from None
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            yield

    @property
    def checkpoints(self) -> Path:
        """Where checkpoints lie."""
        return self.path / "checkpoints"

    @property
    def status(self) -> dict[str, Any]:
        """What `write_status` wrote last."""
        try:
            return json.loads((self.path / "status.json").read_text())
        except (OSError, ValueError):
            return {"state": "unknown", "step": 0}

    def lengths(self) -> dict[str, int]:
        """How long the logs are, in bytes."""
        return {name: path.stat().st_size if (path := self.path / name).exists() else 0 for name in LOGS}

    def cut(self, lengths: Mapping[str, int]) -> None:
        """Makes the logs as long as they were: what came after a checkpoint is made again."""
        for name, length in lengths.items():
            if (self.path / name).exists():
                os.truncate(self.path / name, length)

    @classmethod
    def open(cls, path: Path) -> "RunDirectory":
        """An existing directory; says so if it is none."""
        for name in ("config.json", "meta.json"):
            if not (Path(path) / name).is_file():
                raise ConfigError(f"{path} is no run directory: it holds no {name}")
        return cls(path)

    @cached_property
    def config(self) -> Config:
        """The settings of the run."""
        try:
            return from_json((self.path / "config.json").read_text())
        except ValueError as error:
            raise ConfigError(f"{self.path / 'config.json'} cannot be read{self._made_by}: {error}") from None

    @property
    def _made_by(self) -> str:
        """ " (it was made by …)" where that was another version of this package."""
        try:
            made = self.meta["versions"]["moca-rl"]
        except (ConfigError, OSError, KeyError, TypeError):
            return ""
        return f" (it was made by moca {made}, and this is {__version__})" if made not in (None, __version__) else ""

    @cached_property
    def meta(self) -> dict[str, Any]:
        """Versions, device, and what the runs differ in."""
        try:
            return json.loads((self.path / "meta.json").read_text())
        except ValueError as error:
            raise ConfigError(f"{self.path / 'meta.json'} cannot be read: {error}") from None

    @property
    def runs(self) -> list[dict[str, float]]:
        """Seed and varied settings of each run."""
        return self.meta["runs"]

    def append(self, report: Report, seconds: float) -> None:
        """One row per run into metrics.jsonl; one into timing.jsonl."""
        rows: list[dict[str, Any]] = []
        for number, run in enumerate(self.runs):
            row: dict[str, float | None] = {"step": report.step, **run}
            rows.append(row | {name: _number(values[number]) for name, values in report.metrics.items()})
        before = self.lengths()
        try:
            timing: list[dict[str, Any]] = [{"step": report.step, "seconds": round(seconds, 4)}]
            for name, new in zip(LOGS, (rows, timing), strict=True):
                with (self.path / name).open("a") as file:
                    file.write("".join(json.dumps(row) + "\n" for row in new))
        except OSError as error:
            self.cut(before)  # no half a row
            raise ConfigError(f"cannot write to {self.path}: {error.strerror}") from None

    def rows(self) -> list[dict[str, Any]]:
        """All rows of metrics.jsonl."""
        path = self.path / "metrics.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def write_status(self, state: str, step: int, diverged: Sequence[Mapping[str, Any]] = ()) -> None:
        """`running`, `interrupted`, `failed` or `finished`, how many steps are behind it, and which runs diverged."""
        status = {"state": state, "step": step} | ({"diverged": list(diverged)} if diverged else {})
        aside = self.path / "status.json.writing"
        with suppress(OSError):  # a full disk must not hide the error that is being reported
            aside.write_text(json.dumps(status) + "\n")
            aside.replace(self.path / "status.json")

    def save_policy(self, learners: Any) -> Path:
        """The learners' arrays, in the order of their pytree."""
        path = self.path / "policy.npz"
        leaves = jax.device_get(jax.tree.leaves(learners))
        aside = path.with_name("policy.writing.npz")
        try:
            np.savez(aside, **{_leaf(number): leaf for number, leaf in enumerate(leaves)})
            aside.replace(path)
        except OSError as error:
            aside.unlink(missing_ok=True)
            raise ConfigError(f"cannot write the policy to {self.path}: {error.strerror}") from None
        return path

    def load_policy(self, like: Any) -> Any:
        """The learners that `save_policy` wrote, in the structure of `like`; every number in them is finite."""
        path = self.path / "policy.npz"
        leaves, structure = jax.tree.flatten(like)
        wanted = {_leaf(number): (leaf.shape, leaf.dtype) for number, leaf in enumerate(leaves)}
        size = sum(math.prod(shape) * dtype.itemsize for shape, dtype in wanted.values())
        try:
            stored = read_arrays(path, max(size, LARGEST))
        except FileNotFoundError:
            raise ConfigError(f"{self.path} holds no policy.npz: the run has not got that far") from None
        except ValueError as error:
            raise ConfigError(f"{path} cannot be read: {error}") from None
        if {name: (array.shape, array.dtype) for name, array in stored.items()} != wanted:
            raise ConfigError(f"{path} does not fit the run's config.json{self._made_by}: it holds other arrays")
        for name, array in stored.items():
            if not np.isfinite(array).all():
                raise ConfigError(f"{path} holds numbers that are not finite, in {name}")
        return jax.tree.unflatten(structure, [stored[name] for name in wanted])


def _leaf(number: int) -> str:
    return f"leaf{number:03d}"


def _number(value: np.ndarray) -> float | None:
    return float(value) if math.isfinite(value) else None


def _meta() -> dict[str, Any]:
    """Versions, device, precision and commit."""
    versions: dict[str, str | None] = {"moca-rl": __version__}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = None
    return {
        "versions": versions,
        "python": platform.python_version(),
        "device": [device.device_kind for device in jax.devices()],
        "matmul_precision": getattr(jax.config, "jax_default_matmul_precision", None) or "default",
        "commit": _commit(),
    }


def _commit() -> str | None:
    """The commit of this source tree; None when the package is installed, or there is no git."""
    root = Path(__file__).parents[3]
    if not (root / "pyproject.toml").is_file():
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # JAX warns of any subprocess
            command = ["git", "-C", str(root), "describe", "--always", "--dirty"]
            return subprocess.run(command, capture_output=True, text=True).stdout.strip() or None
    except OSError:
        return None
