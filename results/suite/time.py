"""Times the environments of the suite by themselves, many episodes side by side.

    python results/suite/time.py OUT TASK … [--runs 40] [--steps 100] [--physics mujoco]

Prints a line for each task, and writes OUT/TASK.json: seconds to compile, environment steps per
second over all runs with random actions, and the memory of the program. With MuJoCo's physics there
is no such program: the time to make the environment and to take the first step counts as compiling.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import numpy as np

from moca.envs.named import named
from moca.names import MJX, MUJOCO

TURNS = 5  # timings with MuJoCo; the fastest counts, since other programs take some of the cores


def timed(task: str, runs: int, steps: int) -> dict[str, float]:
    """Compiles `steps` steps of `runs` episodes, and runs them twice."""
    start = time.perf_counter()
    env = named(task)

    def rollout(key):
        first, after = jax.random.split(key)
        state, _ = env.reset(first)
        actions = jax.random.uniform(after, (steps, env.action_size), minval=-1, maxval=1)
        actions = jax.vmap(env.to_bounds)(actions)
        _, outcomes = jax.lax.scan(env.step, state, actions)
        return outcomes.reward.sum()

    keys = jax.random.split(jax.random.key(0), runs)
    program = jax.jit(jax.vmap(rollout)).lower(keys).compile()
    compiling = time.perf_counter() - start
    jax.block_until_ready(program(keys))
    start = time.perf_counter()
    jax.block_until_ready(program(keys))
    took = time.perf_counter() - start
    memory = program.memory_analysis()
    found = {"observations": env.observation_size, "actions": env.action_size, "compile_seconds": round(compiling, 1)}
    return found | {"steps_per_second": round(runs * steps / took), "megabytes": memory.temp_size_in_bytes // 2**20}


def timed_on_host(task: str, runs: int, steps: int) -> dict[str, float]:
    """Times the same with MuJoCo's C library."""
    start = time.perf_counter()
    env = named(task, physics=MUJOCO)
    vector, random = env.vector(runs), np.random.default_rng(0)
    actions = random.uniform(env.action_low, env.action_high, (steps, runs, env.action_size)).astype(np.float32)
    vector.reset(range(runs))
    vector.step(actions[0])
    compiling, took = time.perf_counter() - start, []
    for _ in range(TURNS):
        start = time.perf_counter()
        for each in actions:
            vector.step(each)
        took.append(time.perf_counter() - start)
    found = {"observations": env.observation_size, "actions": env.action_size, "compile_seconds": round(compiling, 1)}
    return found | {"steps_per_second": round(runs * steps / min(took))}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("tasks", nargs="+", metavar="TASK")
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--physics", choices=(MJX, MUJOCO), default=MJX)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    for task in given.tasks:
        found = {"device": jax.devices()[0].device_kind, "physics": given.physics, "runs": given.runs}
        found |= (timed if given.physics == MJX else timed_on_host)(task, given.runs, given.steps)
        (given.out / f"{task}.json").write_text(json.dumps(found) + "\n")
        print(task, found, flush=True)
