"""Compares the reported score of a run's best policy with its score over other episodes.

    python results/mountain_car/run.py

MoCA with the preset `tuned` on MountainCarContinuous-v0, 10,000 steps, eleven runs, each alone.
`KeepBest` reports a score and its 95 % interval over 30 episodes; this evaluates the policy over
500 others. Per seed, summary.json beside this file has both, and the same 500 episodes of the last
policy. It takes a quarter of an hour on two CPU cores.
"""

import json
import tempfile
from pathlib import Path

import moca
from moca.runs.callbacks import read_scores

SEEDS, STEPS, EPISODES, OTHER = 11, 10_000, 500, 1000


def row(seed: int, folder: Path) -> dict:
    """Trains one run; returns what was reported, and what was repeated."""
    agent = moca.MoCA("MountainCarContinuous-v0", seed=seed, out=folder)
    run = agent.learn(STEPS, callback=moca.KeepBest(), progress=True).run
    (told,) = read_scores(run)
    (best,), (last,) = (each.evaluate(EPISODES, OTHER + seed) for each in (run.best, run))
    return {
        "seed": seed, "step": told["step"],
        "reported": round(told["return_mean"], 3), "interval": round(told["interval"], 3),
        "others": round(best["return_mean"], 3), "last": round(last["return_mean"], 3),
    }  # fmt: skip


def main() -> None:
    """Trains, and writes summary.json."""
    with tempfile.TemporaryDirectory() as folder:
        rows = [row(seed, Path(folder) / str(seed)) for seed in range(SEEDS)]
    (Path(__file__).parent / "summary.json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
