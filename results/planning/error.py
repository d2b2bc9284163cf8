"""Measures and draws the error of planned rewards by horizon, against sampled roll-outs.

    PYTHONPATH=src:. python results/planning/error.py [SAMPLES]

The world is that of `tests/test_planning.py`: random networks for ensemble, policy and reward, far
from linear. The truth is the average over SAMPLES roll-outs of the same model, a million by
default, from each of eight states. Writes error.json, and docs/images/planning-error.png from it.
"""

import json
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from tests.test_planning import GAMMA, curved_world

from moca.backup import mean_alone, one_gaussian, samples_of_it, whole_mixture
from moca.looks import COLOURS
from moca.planning import look_ahead

HERE, HORIZONS, CHUNK, REPEATS = Path(__file__).parent, (1, 2, 3, 4, 6, 8), 25_000, 200
RULES = {"MoCA": one_gaussian, "mixture": whole_mixture, "CE": mean_alone}
SAMPLED = {"4 samples": 4, "16 samples": 16}
LOOKS = {"MoCA": "moca", "mixture": "mixture", "CE": "ce", "4 samples": "mc", "16 samples": "mc16"}

world = curved_world()
starts = jax.random.uniform(jax.random.key(0), (8, 2), minval=-1.0)
mixtures = world.model.ensemble.predict_batch(starts, jnp.zeros((8, 1)))


def planned(rule, steps, samples, key):
    """Returns Σ γᵏ E[rₖ] from eight states."""
    first_key, key = jax.random.split(key)
    first = jax.vmap(lambda mixture, k: rule(mixture, k, samples))(mixtures, jax.random.split(first_key, 8))
    return look_ahead(world, rule, first, None, GAMMA, steps, key)[0]


def exactly(rule, steps):
    """Returns what a rule without samples says."""
    return np.asarray(jax.jit(lambda key: planned(rule, steps, 1, key))(jax.random.key(1)), np.float64)


def many(steps, samples, times, seed):
    """Returns the averages over `samples` roll-outs, `times` times."""
    one = jax.jit(lambda keys: jax.lax.map(lambda key: planned(samples_of_it, steps, samples, key), keys))
    return np.asarray(one(jax.random.split(jax.random.key(seed), times)), np.float64)


def measure(samples: int) -> dict:
    rows = []
    for steps in HORIZONS:
        draws = many(steps, CHUNK, max(2, samples // CHUNK), 3)
        truth, unsure = draws.mean(0), draws.std(0, ddof=1) / np.sqrt(len(draws))
        error = {name: exactly(rule, steps) - truth for name, rule in RULES.items()}
        error |= {name: many(steps, count, REPEATS, 4) - truth for name, count in SAMPLED.items()}
        size = {name: float(np.sqrt(np.mean(np.square(each)))) for name, each in error.items()}
        spread, unsure = float(truth.std()), float(np.sqrt(np.mean(unsure**2)))
        rows.append({"steps": steps, "spread": spread, "truth_error": unsure, "error": size})
        print(rows[-1], flush=True)
    return {"samples": samples, "rows": rows}


def draw(found: dict) -> None:
    figure, axis = plt.subplots(figsize=(6, 3.4), layout="constrained")
    rows = found["rows"]
    steps = [row["steps"] for row in rows]
    for name, look in LOOKS.items():
        share = [row["error"][name] / row["spread"] for row in rows]
        axis.plot(steps, share, "o-", color=COLOURS[look], label=name, ms=4)
    axis.plot(steps, [row["truth_error"] / row["spread"] for row in rows], ":", color="0.5", label="of the truth")
    axis.set(yscale="log", xlabel="steps ahead", ylabel="error / spread over states", xticks=steps)
    axis.set_title("Sum of discounted rewards along a predicted belief", fontsize=10)
    axis.spines[["top", "right"]].set_visible(False)
    figure.legend(frameon=False, fontsize=8, loc="outside right upper")
    figure.savefig(HERE.parent.parent / "docs" / "images" / "planning-error.png", dpi=150)


if __name__ == "__main__":
    found = measure(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
    (HERE / "error.json").write_text(json.dumps(found) + "\n")
    draw(found)
