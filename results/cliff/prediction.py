"""Computes what exact planning earns on the cliff and the hill, with E[V(y′)] and with V(E[y′]).

    python results/cliff/prediction.py

Writes prediction.json beside it, in a few seconds on a CPU.
"""

import json
from pathlib import Path

from moca.paper.cliff import Ground, Planner

CASES = {
    "hill": Ground(grip=1.0),
    "cliff without noise": Ground(noise=0.0),
    **{f"cliff, noise {noise:g}": Ground(noise=noise) for noise in (0.02, 0.05, 0.1, 0.15)},
}


def predicted(env: Ground) -> dict[str, float]:
    """Returns the best score and margin, and what certainty equivalence believes in and earns."""
    exact, certain = Planner(env), Planner(env, certain=True)
    (_, best), (_, other) = exact.best(), certain.best()
    found = {
        "best": exact.score(best),
        "believed": certain.score(other),
        "earned": exact.score(other),
        "margin": exact.margin(best),
    }
    return {name: round(value, 5) for name, value in found.items()}


if __name__ == "__main__":
    table = {name: predicted(env) for name, env in CASES.items()}
    Path(__file__).with_name("prediction.json").write_text(json.dumps(table, indent=1) + "\n")
