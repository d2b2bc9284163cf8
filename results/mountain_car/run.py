"""Whether the best policy that a run keeps repeats, on other episodes, the score it was reported with.

    python results/mountain_car/run.py

MoCA with the preset `tuned` on MountainCarContinuous-v0, 10,000 steps, five seeds in one program.
`KeepBest` reports a score and its 95 % interval over 30 episodes; this evaluates the policy over
100 others. Per seed, summary.json beside this file has both, and the same 100 episodes of the last
policy.
"""

import json
import tempfile
from pathlib import Path

import moca
from moca.runs.callbacks import read_scores

SEEDS, STEPS, EPISODES, OTHER = 5, 10_000, 100, 1


def main() -> None:
    """Trains, and writes summary.json."""
    with tempfile.TemporaryDirectory() as folder:
        agent = moca.MoCA("MountainCarContinuous-v0", seeds=SEEDS, out=Path(folder) / "run")
        run = agent.learn(STEPS, callback=moca.KeepBest(), progress=True).run
        reported = read_scores(run)
        best, last = (each.evaluate(EPISODES, OTHER) for each in (run.best, run))
    rows = [
        {
            "seed": told["seed"], "step": told["step"],
            "reported": round(told["return_mean"], 3), "interval": round(told["interval"], 3),
            "others": round(repeated["return_mean"], 3), "last": round(end["return_mean"], 3),
        }
        for told, repeated, end in zip(reported, best, last, strict=True)
    ]  # fmt: skip
    (Path(__file__).parent / "summary.json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
