"""The run directory: everything that was asked, everything that was measured, and the policies that were learned.

config.json      all settings          metrics.jsonl   one row per episode and run, no wall-clock figures
meta.json        versions, device      timing.jsonl    wall-clock figures
status.json      how far it got        policy.npz      the learners' arrays
tensorboard/     figures/              rollout.mp4
"""

import json
import math
import platform
import subprocess
import warnings
import zipfile
from collections.abc import Mapping, Sequence
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import jax
import numpy as np

from moca.config import Config, ConfigError, from_json, to_json
from moca.training import Report

PACKAGES = ("moca-rl", "jax", "jaxlib", "equinox", "optax", "playground", "mujoco", "mujoco-mjx", "numpy")


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
        custom_env: str | None = None,
    ) -> "RunDirectory":
        """A new directory; refuses one that holds a run already."""
        run = cls(path)
        if (run.path / "metrics.jsonl").exists():
            raise ConfigError(f"{run.path} holds a run already: choose another --out, or remove it")
        meta = {**_meta(), "custom_env": custom_env}
        try:
            run.path.mkdir(parents=True, exist_ok=True)
            (run.path / "config.json").write_text(to_json(config) + "\n")
            runs = [{"seed": seed, **settings} for seed, settings in zip(seeds, varied, strict=True)]
            (run.path / "meta.json").write_text(json.dumps({**meta, "runs": runs}, indent=2) + "\n")
        except OSError as error:
            raise ConfigError(f"cannot write to {run.path}: {error.strerror}") from None
        return run

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
            raise ConfigError(f"{self.path / 'config.json'} cannot be read: {error}") from None

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
        with (self.path / "metrics.jsonl").open("a") as file:
            for number, run in enumerate(self.runs):
                row: dict[str, float | None] = {"step": report.step, **run}
                row |= {name: _number(values[number]) for name, values in report.metrics.items()}
                file.write(json.dumps(row) + "\n")
        with (self.path / "timing.jsonl").open("a") as file:
            file.write(json.dumps({"step": report.step, "seconds": round(seconds, 4)}) + "\n")

    def rows(self) -> list[dict[str, Any]]:
        """All rows of metrics.jsonl."""
        path = self.path / "metrics.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def write_status(self, state: str, step: int) -> None:
        """`running`, `interrupted` or `finished`, and how many steps are behind it."""
        (self.path / "status.json").write_text(json.dumps({"state": state, "step": step}) + "\n")

    def save_policy(self, learners: Any) -> Path:
        """The learners' arrays, in the order of their pytree."""
        path = self.path / "policy.npz"
        leaves = jax.device_get(jax.tree.leaves(learners))
        np.savez(path, **{f"leaf{number:03d}": leaf for number, leaf in enumerate(leaves)})
        return path

    def load_policy(self, like: Any) -> Any:
        """The learners that `save_policy` wrote, in the structure of `like`."""
        path = self.path / "policy.npz"
        if not path.is_file():
            raise ConfigError(f"{self.path} holds no policy.npz: the run has not got that far")
        try:
            with np.load(path, allow_pickle=False) as file:
                stored = [file[name] for name in sorted(file.files)]
        except (ValueError, OSError, zipfile.BadZipFile) as error:
            raise ConfigError(f"{path} cannot be read: {error}") from None
        leaves, structure = jax.tree.flatten(like)
        shapes = [leaf.shape for leaf in leaves]
        if [array.shape for array in stored] != shapes:
            raise ConfigError(f"{path} does not fit the run's config.json: it holds other arrays")
        return jax.tree.unflatten(structure, stored)


def _number(value: np.ndarray) -> float | None:
    return float(value) if math.isfinite(value) else None


def _meta() -> dict[str, Any]:
    """Versions, device, precision and commit."""
    versions: dict[str, str | None] = {}
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
