"""Parts shared by the benchmarks: the common sizes, and the JSON line to print."""

import json
import os
from importlib.metadata import PackageNotFoundError, version

ENVIRONMENT = "CartpoleBalance"
BATCH = 128
DEPTH = 2
EPISODE = 1000  # steps; the time limit
WARMUP = 1000  # environment steps before the clock starts; everything is compiled in them
PACKAGES = ("moca-rl", "sbx-rl", "stable-baselines3", "brax", "playground", "mujoco-mjx", "jax", "torch")


def timed_steps(width: int) -> int:
    """Returns the number of environment steps to time; fewer for wide networks."""
    return 6000 if width <= 64 else 3000


def report(library: str, agent: str, width: int, runs: int, steps: int, seconds: float) -> None:
    """Prints one measurement; `steps` is per run, the rate is summed over runs."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    line = {
        "library": library,
        "agent": agent,
        "width": width,
        "runs": runs,
        "steps": steps,
        "seconds": round(seconds, 3),
        "steps_per_second": round(runs * steps / seconds, 1),
        "load": round(os.getloadavg()[0], 2),
        "versions": versions,
    }
    print(json.dumps(line), flush=True)
