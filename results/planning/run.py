"""Runs agents that look several steps ahead on few steps of experience, ten seeds each.

    python results/planning/run.py OUT [NAME …]

Each name is a cell of `CELLS`, one compiled program of seeds × noise levels. All are compiled at
once, then run one after the other; OUT/cells.json is written again as soon as one has ended.
Preset `tuned`, without noise and with σ 0.05.
"""

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np

from moca import presets
from moca.drivers import ScanTrainer

SEEDS, SIGMAS = range(20, 30), (0.0, 0.05)
KEPT = ("return_mean", "overestimation", "reward_error", "reward_loss", "epistemic_std", "coverage_1sigma", "diverged")
FEW = {"train.eval_episodes": 5, "train.eval_every": 2, "value.least": 0.0}


def cell(agent: str, horizon: int, updates: int, steps: int = 10_000, env: str = "CartpoleSwingup", **more):
    """The settings of a cell."""
    own = {name.replace("__", "."): value for name, value in more.items()}
    return env, {"agent": agent, "plan.horizon": horizon, "train.updates": updates, "train.steps": steps, **FEW, **own}


CELLS = {
    "moca-h1-u4": cell("moca", 1, 4),
    "moca-h5-u4": cell("moca", 5, 4),
    "ce-h5-u4": cell("moca-ce", 5, 4),
    "moca-h3-u4": cell("moca", 3, 4),
    "ce-h3-u4": cell("moca-ce", 3, 4),
    "moca-h3-u12": cell("moca", 3, 12),
    "plan-h1-u4": cell("moca-plan", 1, 4, plan__length=8, plan__iterations=6),
    "balance-h1-u4": cell("moca", 1, 4, 6000, "CartpoleBalance"),
    "balance-h3-u4": cell("moca", 3, 4, 6000, "CartpoleBalance"),
    "mc4-h3-u4": cell("moca-mc", 3, 4),
    "plan-h3-u4": cell("moca-plan", 3, 4, plan__length=8, plan__iterations=6),
}


def trainer(name: str) -> ScanTrainer:
    """The runs of a cell as one program, not compiled."""
    env, settings = CELLS[name]
    facts = presets.ENVIRONMENTS["CartpoleBalance"]  # the same plant and observations
    configs = [
        presets.build("tuned", env, {**settings, "noise.sigma": sigma}, facts) for sigma in SIGMAS for _ in SEEDS
    ]
    return ScanTrainer(configs, [seed for _ in SIGMAS for seed in SEEDS])


def main(out: Path, names: list[str]) -> None:
    start = time.time()
    out.mkdir(parents=True, exist_ok=True)
    done: dict[str, Any] = {}
    trainers = {name: trainer(name) for name in names or CELLS}
    lowered = {name: list(each.lowered()) for name, each in trainers.items()}
    print(f"traced after {time.time() - start:.0f} s", flush=True)
    with ThreadPoolExecutor(16) as pool:
        futures = {name: [pool.submit(program.compile) for program in both] for name, both in lowered.items()}
        for name, own in trainers.items():
            own._compiled = tuple(future.result() for future in futures[name])
            begun, rows = time.time(), []
            print(f"{name}: compiled after {begun - start:.0f} s", flush=True)
            repeat = own.config.env.episode_length
            for number, report in enumerate(own):
                metrics = {
                    key: np.asarray(report.metrics[key], float).tolist() for key in KEPT if key in report.metrics
                }
                rows.append({"step": (number + 1) * repeat, **metrics})
            took = time.time() - begun
            last = np.array([row["return_mean"] for row in rows if np.isfinite(row["return_mean"][0])][-2:]).mean(0)
            for half, sigma in zip(np.split(last, len(SIGMAS)), SIGMAS, strict=True):
                print(f"  σ {sigma}: median {np.median(half):.0f}, mean {half.mean():.0f}, {np.sort(half).astype(int)}")
            print(f"  {took:.0f} s", flush=True)
            origin = {"settings": CELLS[name], "seeds": list(SEEDS), "sigmas": SIGMAS, "seconds": took}
            origin |= {"device": jax.devices()[0].device_kind, "jax": jax.__version__}
            done[name] = {**origin, "rows": rows}
            (out / "cells.json").write_text(json.dumps(done) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
