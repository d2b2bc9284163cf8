"""The devices that programs run on, and the cache of compiled programs."""

import gc
import os
import platform
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import jax
import numpy as np

from moca.config import ConfigError


def use_all_cores() -> None:
    """Gives JAX one CPU device per core, so that runs can be spread over them.

    A program on one device leaves most cores idle when its networks are small. Call this before JAX
    computes anything. It has no effect later, on other hardware, or if `JAX_NUM_CPU_DEVICES` or
    `XLA_FLAGS` sets the number.
    """
    chosen = getattr(jax.config, "jax_num_cpu_devices", -1) >= 0
    chosen |= "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if not chosen:
        with suppress(RuntimeError):  # JAX has started already
            jax.config.update("jax_num_cpu_devices", cores())


def cores() -> int:
    """Returns the number of cores this process may use.

    A scheduler may allow fewer than there are.
    """
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def use_device(device: str | None) -> None:
    """Makes JAX use that kind of device, with all cores of a CPU.

    Raises `ConfigError` if it is missing.
    """
    use_all_cores()
    keep_compiled()
    if device:
        jax.config.update("jax_platforms", {"cpu": "cpu", "gpu": "cuda,cpu"}[device])
    try:
        missing = jax.default_backend() != "gpu" and device == "gpu"  # without CUDA's packages, JAX takes the CPU
    except (RuntimeError, AssertionError):  # which one depends on the CUDA packages installed
        missing = True
    if missing:
        raise ConfigError(
            f"JAX found no {device or 'device'}: install moca-rl[cuda12] or moca-rl[cuda13], or use --device cpu"
        )


def keep_compiled() -> None:
    """Makes JAX cache compiled programs on disk, unless a cache is already configured.

    JAX executes what it loads from the cache, so the folder must be private: one that other users
    can write to is not used. Each machine has a separate folder, since code compiled for one
    processor may not run on another.
    """
    if is_caching():
        return
    try:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        folder = base / "moca" / "compiled" / (platform.node() or "here")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.stat().st_uid != os.getuid() or folder.stat().st_mode & 0o077:
            return
    except (OSError, RuntimeError):  # no writable home directory
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 2.0)


def is_caching() -> bool:
    """Returns True if JAX caches compiled programs on disk."""
    return bool(getattr(jax.config, "jax_compilation_cache_dir", None))


def on_cpu(function: Callable) -> Callable:
    """Returns the function compiled for a CPU, also where there is an accelerator."""
    try:
        place = jax.sharding.SingleDeviceSharding(jax.local_devices(backend="cpu")[0])
    except RuntimeError:  # the user has ruled it out
        raise ConfigError(
            "what runs on the host needs JAX on the CPU, too: add cpu to JAX_PLATFORMS, as in cuda,cpu"
        ) from None
    return jax.jit(function, in_shardings=place, out_shardings=place)


def over_devices(runs: int) -> tuple[jax.sharding.Sharding, jax.sharding.Sharding]:
    """Returns two shardings: one that splits the runs evenly over devices, one that replicates."""
    devices = jax.devices()
    count = max(n for n in range(1, len(devices) + 1) if runs % n == 0)
    mesh = jax.sharding.Mesh(np.array(devices[:count]), ("runs",))
    spread, everywhere = jax.sharding.PartitionSpec("runs"), jax.sharding.PartitionSpec()
    return jax.sharding.NamedSharding(mesh, spread), jax.sharding.NamedSharding(mesh, everywhere)


def compiling(programs: Iterable[Any], in_order: bool = False) -> list[Future]:
    """Starts to compile lowered programs in parallel; returns them as futures.

    If `programs` is a generator, later ones are traced while earlier ones are compiled. Tracing
    makes many objects that live on, so Python looks for garbage less often meanwhile: this is a
    seventh of the time.

    Args:
        programs: The programs, in the order in which they are needed.
        in_order: Whether each is to have two cores for itself, as many as the compiler can use.
            The first one is then ready sooner.
    """
    thresholds = gc.get_threshold()
    gc.set_threshold(20_000, *thresholds[1:])
    pool = ThreadPoolExecutor(max((os.cpu_count() or 1) // 2, 1) if in_order else None)
    try:
        return [pool.submit(program.compile) for program in programs]
    finally:
        gc.set_threshold(*thresholds)
        pool.shutdown(wait=False)


def compiled(programs: Iterable[Any]) -> list[Any]:
    """Compiles lowered programs in parallel: see `compiling`."""
    return [program.result() for program in compiling(programs)]


def for_one_call() -> dict[str, int]:
    """Returns compiler options for a program that runs once and need not be fast.

    On a CPU it then takes a third of the time to compile. A level that `XLA_FLAGS` sets is kept.
    """
    chosen = "xla_backend_optimization_level" in os.environ.get("XLA_FLAGS", "")
    return {} if chosen or jax.default_backend() != "cpu" else {"xla_backend_optimization_level": 1}
