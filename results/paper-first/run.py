"""Trains MoCA or BNAF with the preset `paper`: ten seeds at both noise levels, in one program.

    python results/paper-first/run.py moca CartpoleBalance
    python results/paper-first/run.py bnaf PendulumSwingup

Adds its cell to summary.json beside it, or to the file named after the task.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np

from moca import presets
from moca.drivers import ScanTrainer

SEEDS = range(10)
SIGMAS = (0.025, 0.05)
STEPS = {"CartpoleBalance": 100_000, "PendulumSwingup": 200_000}
DIAGNOSTICS = ("coverage_1sigma", "epistemic_std", "ce_bias", "curvature", "saturation", "q_mean")


def main(agent: str, task: str, path: Path) -> None:
    settings = {"agent": agent, "train.steps": STEPS[task], "train.eval_every": 5}
    configs = [presets.build("paper", task, {**settings, "noise.sigma": sigma}) for sigma in SIGMAS for _ in SEEDS]
    trainer = ScanTrainer(configs, [*SEEDS] * len(SIGMAS))
    trainer.compile()
    started = time.perf_counter()
    reports = [report for report in trainer if np.isfinite(report.metrics["return_mean"]).any()]
    cell: dict = {"steps": STEPS[task], "seconds": round(time.perf_counter() - started, 1)}
    shape = (len(SIGMAS), len(SEEDS))
    for row, sigma in enumerate(SIGMAS):
        by_report = lambda name, row=row: np.stack([r.metrics[name].reshape(shape)[row] for r in reports])  # noqa: E731
        last = by_report("return_mean")[-1]
        cell[f"sigma {sigma}"] = {
            "last_mean": round(float(last.mean()), 1),
            "last_sd": round(float(last.std(ddof=1)), 1),
            "last_per_seed": [round(float(x), 1) for x in last],
            "curve_steps": [report.step for report in reports],
            "curve_mean": [round(float(x), 1) for x in by_report("return_mean").mean(1)],
            **{
                name: [float(f"{x:.4g}") for x in by_report(name).mean(1)]
                for name in DIAGNOSTICS
                if name in reports[-1].metrics
            },
        }
    everything = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(everything | {f"{task} {agent}": cell}, indent=1) + "\n")
    print(path)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3] if len(sys.argv) > 3 else Path(__file__).with_name("summary.json")))
