"""Computes ρ, which predicts from MoCA's own model and value whether the covariance will matter.

    python results/predictor/run.py

Computed where the answer was not known beforehand. Trains MoCA alone: under `told` with its filter
on both tasks at σ = 0.05, and on the cliff and the hill. Writes summary.json beside it. The rule is
in docs/replication.md.
"""

import json
from pathlib import Path

import numpy as np

from moca import presets
from moca.config import override
from moca.devices import use_device
from moca.drivers import ScanTrainer
from moca.paper import cliff


def rho(trainer: ScanTrainer, gamma: float) -> list[float]:
    """ρ of every seed, from the last third of 20k steps, or of a shorter run."""
    reports = [report for report in trainer if report.step <= 20_000]
    last = [report.metrics for report in reports if report.step > 0.7 * reports[-1].step]
    mean = lambda name: np.mean([metrics[name] for metrics in last], axis=0)  # noqa: E731
    return (mean("ce_bias_std") / ((1 - gamma) * mean("expected_std"))).round(5).tolist()


def main() -> None:
    use_device("cpu")
    found = {}
    for env in ("CartpoleBalance", "PendulumSwingup"):
        settings = {"noise.sigma": 0.05, "train.steps": 20_000, "train.eval_every": 20}
        config = presets.build("told", env, settings)
        # Rates and exploration are those of a run of full length; this is its beginning.
        whole = {"CartpoleBalance": 100_000, "PendulumSwingup": 500_000}[env]
        config = override(config, {"train.steps": whole})
        found[f"told {env} 0.05"] = rho(_beginning(ScanTrainer([config] * 4, range(4))), config.train.gamma)
        print(found, flush=True)
    for name, env in cliff.SETTINGS.items():
        config = override(cliff.CONFIG, {"agent": "moca"})
        found[name] = rho(ScanTrainer([config] * 10, range(10), env), config.train.gamma)
        print(found, flush=True)
    path = Path(__file__).parent / "summary.json"
    path.write_text(json.dumps(found, indent=1) + "\n")
    print(path)


def _beginning(trainer: ScanTrainer):
    for report in trainer:
        yield report
        if report.step >= 20_000:
            return


if __name__ == "__main__":
    main()
