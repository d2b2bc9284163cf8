"""Prints the error of planned rewards by horizon, against sampled roll-outs, in a random world.

    PYTHONPATH=src:. python results/planning/error.py [SAMPLES]

The world is that of `tests/test_planning.py`: random networks for ensemble, policy and reward, far
from linear. The truth is the average over SAMPLES roll-outs of the same model.
"""

import sys

import jax
import jax.numpy as jnp
from tests.test_planning import GAMMA, curved_world

from moca.backup import mean_alone, one_gaussian, samples_of_it, whole_mixture
from moca.planning import look_ahead

SAMPLES = int(sys.argv[1]) if len(sys.argv) > 1 else 300_000
world = curved_world()
starts = jax.random.uniform(jax.random.key(0), (8, 2), minval=-1.0)
mixtures = world.model.ensemble.predict_batch(starts, jnp.zeros((8, 1)))


def planned(rule, steps, samples=1):
    """Σ γᵏ E[rₖ] from eight states."""
    keys = jax.random.split(jax.random.key(1), 8)
    first = jax.vmap(lambda mixture, key: rule(mixture, key, samples))(mixtures, keys)
    return jax.jit(lambda p: look_ahead(world, rule, p, None, GAMMA, steps, jax.random.key(2))[0])(first)


print("| steps | spread of the sum over states | MoCA | mixture | CE | 16 samples |\n|---|---|---|---|---|---|")
for steps in (1, 2, 4, 8):
    truth = planned(samples_of_it, steps, SAMPLES // 8)
    found = [planned(rule, steps) for rule in (one_gaussian, whole_mixture, mean_alone)]
    found.append(planned(samples_of_it, steps, 16))
    errors = [float(jnp.sqrt(jnp.mean(jnp.square(each - truth)))) for each in found]
    print(
        f"| {steps} | {float(truth.std()):.3f} | " + " | ".join(f"{error:.4f}" for error in errors) + " |", flush=True
    )
