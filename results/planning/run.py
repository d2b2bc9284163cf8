"""Runs agents that look several steps ahead on few steps of experience.

    python results/planning/run.py OUT [NAME …] [--seeds 10] [--sigmas 0 0.05] [--episodes 5]

Each name is a cell of `CELLS`, one compiled program of seeds × noise levels, from the preset
`told`. On a GPU all are compiled at once, then run one after the other. OUT/cells.json is written
again as soon as one has ended.
"""

import argparse
import json
import time
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import jax
import numpy as np

from moca import presets
from moca.drivers import ScanTrainer

FIRST = 20  # the first seed
KEPT = ("return_mean", "overestimation", "reward_error", "reward_loss", "epistemic_std", "coverage_1sigma", "diverged")
FEW = {"train.eval_every": 2, "value.least": 0.0}


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
    "ce-h3-u4-reward": cell("moca-ce", 3, 4, plan__lr=1e-2, plan__bases=256),
    "moca-h3-u12": cell("moca", 3, 12),
    "plan-h1-u4": cell("moca-plan", 1, 4, plan__length=8, plan__iterations=6),
    "balance-h1-u4": cell("moca", 1, 4, 6000, "CartpoleBalance"),
    "balance-h3-u4": cell("moca", 3, 4, 6000, "CartpoleBalance"),
    "mc4-h3-u4": cell("moca-mc", 3, 4),
    "plan-h3-u4": cell("moca-plan", 3, 4, plan__length=8, plan__iterations=6),
}


def trainer(name: str, seeds: list[int], sigmas: list[float], episodes: int) -> ScanTrainer:
    """The runs of a cell as one program, not compiled."""
    env, settings = CELLS[name]
    facts = presets.ENVIRONMENTS["CartpoleBalance"]  # the same plant and observations
    own = [{**settings, "noise.sigma": sigma, "train.eval_episodes": episodes} for sigma in sigmas for _ in seeds]
    return ScanTrainer([presets.build("told", env, each, facts) for each in own], seeds * len(sigmas))


def main(out: Path, names: list[str], seeds: list[int], sigmas: list[float], episodes: int) -> None:
    start = time.time()
    out.mkdir(parents=True, exist_ok=True)
    done: dict[str, Any] = {}
    at_once = 1 if jax.default_backend() == "cpu" else 16
    trainers = {name: trainer(name, seeds, sigmas, episodes) for name in names or CELLS}
    lowered = {name: list(each.lowered()) for name, each in trainers.items()}
    print(f"traced after {time.time() - start:.0f} s", flush=True)
    with ThreadPoolExecutor(at_once) as pool:
        futures = {name: [pool.submit(program.compile) for program in both] for name, both in lowered.items()}
        for name, own in trainers.items():
            own._compiled = futures[name]
            wait(own._compiled)
            begun, rows = time.time(), []
            print(f"{name}: compiled after {begun - start:.0f} s", flush=True)
            length = own.config.env.episode_length
            for number, report in enumerate(own):
                metrics = {
                    key: np.asarray(report.metrics[key], float).tolist() for key in KEPT if key in report.metrics
                }
                rows.append({"step": (number + 1) * length, **metrics})
            took = time.time() - begun
            last = np.array([row["return_mean"] for row in rows if np.isfinite(row["return_mean"][0])][-2:]).mean(0)
            for half, sigma in zip(np.split(last, len(sigmas)), sigmas, strict=True):
                print(f"  σ {sigma}: median {np.median(half):.0f}, mean {half.mean():.0f}, {np.sort(half).astype(int)}")
            print(f"  {took:.0f} s", flush=True)
            origin = {"settings": CELLS[name], "seeds": seeds, "sigmas": sigmas, "episodes": episodes, "seconds": took}
            origin |= {"device": jax.devices()[0].device_kind, "jax": jax.__version__}
            done[name] = {**origin, "rows": rows}
            (out / "cells.json").write_text(json.dumps(done) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--sigmas", type=float, nargs="+", default=[0.0, 0.05])
    parser.add_argument("--episodes", type=int, default=5)
    given = parser.parse_args()
    seeds = list(range(FIRST, FIRST + given.seeds))
    main(given.out, given.names, seeds, given.sigmas, given.episodes)
