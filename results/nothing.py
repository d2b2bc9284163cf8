"""The return of doing nothing: the zero action, 1,000 episodes of 1,000 steps per task.

    python results/nothing.py

Writes nothing.json beside it. An agent that has learned must do better: docs/replication.md, "Has
it learned?". Observation noise does not matter, since the action is constant.
"""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from moca.envs.playground import Playground

TASKS = ("CartpoleBalance", "PendulumSwingup")
EPISODES, STEPS, AT_ONCE = 1000, 1000, 100


def returns(task: str) -> np.ndarray:
    """Returns the return of every episode."""
    env = Playground(task)

    def step(state, _):
        state, outcome = env.step(state, jnp.zeros(len(env.action_low)))
        return state, outcome.reward

    def episode(key):
        return jax.lax.scan(step, env.reset(key)[0], length=STEPS)[1].sum()

    keys = jax.random.split(jax.random.key(0), EPISODES)
    return np.asarray(jax.lax.map(jax.jit(episode), keys, batch_size=AT_ONCE))


def main() -> None:
    found = {}
    for task in TASKS:
        each = returns(task)
        found[task] = round(float(each.mean()), 1)
        print(f"{task}: {each.mean():.1f} ± {1.96 * each.std(ddof=1) / len(each) ** 0.5:.1f}, sd {each.std():.1f}")
    (Path(__file__).parent / "nothing.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
