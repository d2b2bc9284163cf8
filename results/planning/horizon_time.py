"""Times an episode of training by horizon, taking turns, and prints a line of JSON.

    python results/planning/horizon_time.py [--runs 40] [--turns 5]

Only the training program is compiled. It is called again and again for the third episode of fresh
runs; what they have learned and stored does not change how long it takes.
"""

import argparse
import json
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from moca import presets
from moca.devices import compiled
from moca.drivers import ScanTrainer

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "told": ("told", {}),
    "efficient, three imagined steps": ("efficient", {"plan.imagined": 3}),
}
HORIZONS = (1, 5)


def prepared(runs: int) -> dict[Any, tuple[Any, ScanTrainer]]:
    """The compiled training program of each case and horizon, with its trainer."""
    trainers = {}
    for case, (preset, settings) in CASES.items():
        for horizon in HORIZONS:
            own = {**settings, "plan.horizon": horizon, "noise.sigma": 0.05}
            trainers[case, horizon] = ScanTrainer([presets.build(preset, "CartpoleBalance", own)] * runs, range(runs))
    programs = compiled(next(each.lowered()) for each in trainers.values())
    return dict(zip(trainers, zip(programs, trainers.values(), strict=True), strict=True))


def measured(programs: dict[Any, tuple[Any, ScanTrainer]], turns: int) -> dict[str, Any]:
    """The seconds that an episode takes, by case and horizon."""
    seconds: dict[Any, list[float]] = {name: [] for name in programs}
    for turn in range(turns + 1):
        for name, (program, trainer) in programs.items():
            memory = jax.tree.map(jnp.copy, trainer.state.replay)
            jax.block_until_ready(memory)
            start = time.perf_counter()
            jax.block_until_ready(program(jnp.asarray(2, jnp.int32), (trainer.configs, trainer._policies), (memory,)))
            seconds[name] += [time.perf_counter() - start] if turn else []  # the first one warms up
    found = {}
    for case in CASES:
        short, long = (seconds[case, horizon] for horizon in HORIZONS)
        found[case] = {"H = 1": short, "H = 5": long, "ratio": float(np.median(long) / np.median(short))}
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--turns", type=int, default=5)
    given = parser.parse_args()
    found = measured(prepared(given.runs), given.turns)
    print(json.dumps({"device": jax.devices()[0].device_kind, "jax": jax.__version__, "runs": given.runs, **found}))
