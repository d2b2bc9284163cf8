"""The devices that programs run on, and the folder in which compiled programs are kept."""

import os
import platform
from contextlib import suppress
from pathlib import Path

import jax
import numpy as np

from moca.config import ConfigError


def use_all_cores() -> None:
    """Gives JAX one CPU device per core, over which runs are then spread; does nothing on other hardware.

    A program on one device leaves most cores idle when its networks are small. To be called before JAX computes
    anything; later, or where the number was set by `JAX_NUM_CPU_DEVICES` or `XLA_FLAGS`, it changes nothing.
    """
    chosen = getattr(jax.config, "jax_num_cpu_devices", -1) >= 0
    chosen |= "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if not chosen:
        with suppress(RuntimeError):  # JAX has started
            jax.config.update("jax_num_cpu_devices", _cores())


def _cores() -> int:
    """The number of cores this process may use, which a scheduler may have made fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def use_device(device: str | None) -> None:
    """Has JAX use that kind of device, all cores of a CPU among them, and says so if it is not there."""
    use_all_cores()
    keep_compiled()
    if device:
        jax.config.update("jax_platforms", {"cpu": "cpu", "gpu": "cuda"}[device])
    try:
        jax.devices()
    except (RuntimeError, AssertionError):  # which of the two depends on what of CUDA is installed
        raise ConfigError(
            f"--device {device or 'of any kind'}: JAX finds none here. Install moca-rl[cuda12] or moca-rl[cuda13], "
            "or use --device cpu"
        ) from None


def keep_compiled() -> None:
    """Has JAX keep the programs it compiles, so that the next start is quick, unless it was told where to already.

    What is loaded from there is run, so the folder is this user's alone; one that others can write to is not used. It
    has a part for each machine: what was compiled for one processor may not run on another.
    """
    if getattr(jax.config, "jax_compilation_cache_dir", None):
        return
    try:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        folder = base / "moca" / "compiled" / (platform.node() or "here")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.stat().st_uid != os.getuid() or folder.stat().st_mode & 0o077:
            return
    except (OSError, RuntimeError):  # no home, or none to write to
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 2.0)


def over_devices(runs: int) -> tuple[jax.sharding.Sharding, jax.sharding.Sharding]:
    """Runs split evenly over as many of the devices as divide their number; and what each device has a copy of."""
    devices = jax.devices()
    count = max(n for n in range(1, len(devices) + 1) if runs % n == 0)
    mesh = jax.sharding.Mesh(np.array(devices[:count]), ("runs",))
    spread, everywhere = jax.sharding.PartitionSpec("runs"), jax.sharding.PartitionSpec()
    return jax.sharding.NamedSharding(mesh, spread), jax.sharding.NamedSharding(mesh, everywhere)
