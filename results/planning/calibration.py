"""Measures how often outcomes lie within the bands of a forecast.

    python results/planning/calibration.py DIR …

Twenty greedy episodes of each run of a directory, by the number of decisions ahead; over the whole
episode, and over forecasts that start within its first three seconds (75 decisions), the swing-up.
"""

import json
import sys

import numpy as np

import moca
from moca.loop import agent_steps
from moca.runs.inspection import watched

STEPS, EPISODES, UP = (1, 5, 10, 15, 25), 20, 75


def shares(view, k, until):
    """Shares within 1σ and 2σ, k decisions ahead; mean deviation and error of dimension 0."""
    until = min(until, len(view.outcome) - k)
    error = np.abs(view.outcome[k : k + until] - view.arrays["ahead"][:until, k - 1])
    deviation = view.ahead_deviation[:until, k - 1]
    within = [float(np.mean(error <= times * deviation)) for times in (1, 2)]
    return [*within, float(deviation[:, 0].mean()), float(error[:, 0].mean())]


def main():
    for path in sys.argv[1:]:
        run = moca.load(path)
        for number, settings in enumerate(run.directory.runs):
            views = [watched(run, number, seed, agent_steps(run.config), max(STEPS))[0] for seed in range(EPISODES)]
            row = {"run": path.rstrip("/").rsplit("/", 1)[-1], "seed": settings["seed"]}
            row["return"] = round(float(np.mean([view.arrays["reward"].sum() for view in views])), 1)
            for name, until in (("whole", 10**6), ("swing-up", UP)):
                found = {k: np.mean([shares(view, k, until) for view in views], axis=0) for k in STEPS}
                row[name] = {k: [round(float(each), 4) for each in numbers] for k, numbers in found.items()}
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
