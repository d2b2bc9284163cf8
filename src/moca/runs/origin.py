"""The origin of a run (versions, device, precision, commit), and hashes that identify it."""

import hashlib
import json
import platform
import subprocess
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import jax

from moca import __version__

PACKAGES = ("jax", "jaxlib", "equinox", "optax", "playground", "mujoco", "mujoco-mjx", "gymnasium", "numpy")


def describe() -> dict[str, Any]:
    """Returns the origin, for meta.json."""
    return {
        "versions": {"moca-rl": __version__, **versions()},
        "python": platform.python_version(),
        "device": [device.device_kind for device in jax.devices()],
        "matmul_precision": getattr(jax.config, "jax_default_matmul_precision", None) or "default",
        "commit": commit(),
    }


def versions() -> dict[str, str | None]:
    """Returns the version of each relevant package; None if it is not installed."""
    found: dict[str, str | None] = dict.fromkeys(PACKAGES)
    for package in PACKAGES:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def commit() -> str | None:
    """Returns the commit of this source tree; None for an installed package, or without git."""
    root = Path(__file__).parents[3]
    if not (root / "pyproject.toml").is_file():
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # JAX warns about any subprocess
            command = ["git", "-C", str(root), "describe", "--always", "--dirty"]
            return subprocess.run(command, capture_output=True, text=True).stdout.strip() or None
    except OSError:
        return None


def identity(settings: Mapping[str, Any], runs: Sequence[Mapping[str, float]], start: Any = None) -> dict[str, str]:
    """Returns hashes of config.json, and of seeds and variations, which identify a set of runs.

    With the hash of the weights they started from, if those were another run's: `start` is that
    entry of meta.json. Settings added in later versions do not change the hashes.
    """
    parts = {"settings": settings, "runs": runs}
    if isinstance(start, dict) and start.get("sha256"):
        parts["start"] = start["sha256"]
    return {name: hashlib.sha256(json.dumps(part, sort_keys=True).encode()).hexdigest() for name, part in parts.items()}
