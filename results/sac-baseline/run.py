"""SAC under every noise level of the paper, ten seeds each, one compiled program per task.

    python results/sac-baseline/run.py CartpoleBalance
    python results/sac-baseline/run.py PendulumSwingup

Adds its task to summary.json beside it. On one H200: 74 s and 230 s after 40 s of compiling.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np

from moca import presets
from moca.drivers import ScanTrainer

SEEDS = range(10)
# σ_min and σ_max: equal ones are homoscedastic, so that all noises share a program.
NOISES = {"none": (0, 0), "homoscedastic 0.025": (0.025, 0.025), "homoscedastic 0.05": (0.05, 0.05)}
TASKS = {
    "CartpoleBalance": (100_000, NOISES | {"state-norm 0.05": (0, 0.05)}, {}),
    "PendulumSwingup": (500_000, NOISES, {"noise.scales": (1.0, 1.0, 1.0), "train.eval_every": 5}),
}


def main(task: str) -> None:
    steps, noises, extra = TASKS[task]
    settings = {"agent": "sac", "train.steps": steps, "noise.kind": "state-norm", **extra}
    configs = [
        presets.build("paper", task, {**settings, "noise.sigma_min": low, "noise.sigma": high})
        for low, high in noises.values()
        for _ in SEEDS
    ]
    trainer = ScanTrainer(configs, [*SEEDS] * len(noises))
    trainer.compile()
    started = time.perf_counter()
    reports = [
        report for report in trainer if np.isfinite(report.metrics["return_mean"]).any()
    ]  # where it was evaluated
    summary = {"steps": steps, "seconds": round(time.perf_counter() - started, 1), "cells": {}}
    at = np.array([report.step for report in reports])
    returns, clean = (
        np.stack([r.metrics[name].reshape(len(noises), -1) for r in reports])
        for name in ("return_mean", "return_noise_free")
    )
    for cell, name in enumerate(noises):
        per_seed = returns[at > 0.9 * steps, cell].mean(0)
        thin = slice(None, None, max(1, len(at) // 20))
        summary["cells"][name] = {
            "mean": round(float(per_seed.mean()), 1),
            "t95": round(2.262157 * float(per_seed.std(ddof=1)) / len(SEEDS) ** 0.5, 1),
            "sd": round(float(per_seed.std(ddof=1)), 1),
            "noise_free_mean": round(float(clean[at > 0.9 * steps, cell].mean()), 1),
            "per_seed": [round(float(x), 1) for x in per_seed],
            "curve_steps": at[thin].tolist(),
            "curve_mean": [round(float(x), 1) for x in returns[thin, cell].mean(1)],
        }
        if task == "CartpoleBalance" and name == "none":
            there = returns[:, cell] >= 950
            first = [int(at[run.argmax()]) if run.any() else None for run in there.T]
            summary["cells"][name]["first_step_at_950"] = first
    path = Path(__file__).with_name("summary.json")
    everything = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(everything | {task: summary}, indent=1) + "\n")
    print(path)


if __name__ == "__main__":
    main(sys.argv[1])
