"""Trains with the preset `told` at seeds 1000 to 1009, on which nothing was tuned.

    python results/learning/run.py moca CartpoleBalance 100000
    python results/learning/run.py bnaf CartpoleBalance 100000 belief.filter=false

All noise levels of a cell are one program. Writes one file per cell into the folder `cells` beside
it, or into the one that the environment variable OUT names. The score is the mean evaluation return
over the last tenth of training, with its 95 % t interval over seeds.
"""

import json
import os
import sys
import time
from pathlib import Path

import numpy as np
import scipy.stats

from moca import presets
from moca.config import parse_assignment
from moca.drivers import ScanTrainer

SEEDS = range(1000, 1010)
# Homoscedastic noise is state-norm noise whose least level is its greatest, so Cartpole's levels
# share a program.
NOISES = {
    "CartpoleBalance": {
        "none": {"noise.sigma": 0.0},
        "sigma 0.025": {"noise.sigma": 0.025, "noise.sigma_min": 0.025},
        "sigma 0.05": {"noise.sigma": 0.05, "noise.sigma_min": 0.05},
        "state-norm 0.05": {"noise.sigma": 0.05, "noise.sigma_min": 0.0},
    },
    "PendulumSwingup": {"sigma 0.025": {"noise.sigma": 0.025}, "sigma 0.05": {"noise.sigma": 0.05}},
}
DIAGNOSTICS = (
    "coverage_1sigma", "aleatoric_std", "epistemic_std", "ce_bias", "target_variance", "target_bias", "curvature",
    "saturation", "q_mean", "return_noise_free", "train_return", "noise_level",
)  # fmt: skip


def main(agent: str, task: str, steps: int, extra: list[str]) -> None:
    settings = {"agent": agent, "train.steps": steps, "train.eval_every": max(1, steps // 50_000)}
    if task == "CartpoleBalance":
        settings["noise.kind"] = "state-norm"
    settings |= dict(map(parse_assignment, extra))
    noises = NOISES[task]
    configs = [presets.build("told", task, {**settings, **noise}) for noise in noises.values() for _ in SEEDS]
    trainer = ScanTrainer(configs, [*SEEDS] * len(noises))
    trainer.compile()
    started = time.perf_counter()
    reports = list(trainer)
    cell: dict = {"agent": agent, "task": task, "steps": steps, "settings": extra}
    cell["seconds"] = round(time.perf_counter() - started, 1)
    for row, noise in enumerate(noises):
        by_report = lambda name, row=row: np.stack(  # noqa: E731
            [r.metrics[name].reshape(len(noises), len(SEEDS))[row] for r in reports]
        )
        curve = by_report("return_mean")
        evaluated = np.isfinite(curve).all(1)
        last = np.array([r.step > 0.9 * steps for r in reports])
        score = curve[evaluated & last].mean(0)
        half = scipy.stats.t.ppf(0.975, len(SEEDS) - 1) * scipy.stats.sem(score)
        cell[noise] = {
            "mean": round(float(score.mean()), 1),
            "interval": round(float(half), 1),
            "per_seed": [round(float(x), 1) for x in score],
            "curve_steps": [r.step for r, e in zip(reports, evaluated, strict=True) if e],
            "curve_mean": [round(float(x), 1) for x in curve[evaluated].mean(1)],
            # By tenths of training, so that the first and the last show.
            **{
                name: [float(f"{np.nanmean(part):.3g}") for part in np.array_split(by_report(name), 10)]
                for name in DIAGNOSTICS
                if name in reports[-1].metrics
            },
        }
        print(agent, task, steps, extra, noise, cell[noise]["mean"], "±", cell[noise]["interval"], flush=True)
    folder = Path(os.environ.get("OUT", Path(__file__).parent / "cells"))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / ("-".join([task, agent, str(steps), *extra]).replace("=", "_") + ".json")
    path.write_text(json.dumps(cell, indent=1) + "\n")
    print(path)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:])
