"""MoCA on states of 2 to 16 dimensions: a rotating linear system with half as many actions.

    python results/dimension/run.py [STEPS]

Each line is one program with its seeds: the return at the end, that of doing nothing, and
milliseconds per step of all runs. Everything is written into summary.json beside this file.
"""

import json
import sys
import tempfile
import time
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from moca import presets
from moca.envs.defaults import defaults
from moca.envs.environment import Environment, Step
from moca.runs.launch import train

SEEDS = 2
COMMON = {
    "seeds": SEEDS, "env.episode_length": 100, "env.action_repeat": 1, "train.updates": 1, "train.warmup": 500,
    "train.eval_every": 10, "sac.width": 64, "train.gamma": 0.95,
}  # fmt: skip
VARIANTS = {  # summary.json also has a latent state of four dimensions, which the code had until 2fecfe1
    "MoCA, M = 64": {"agent": "moca", "value.bases": 64},
    "MoCA, M = 256": {"agent": "moca", "value.bases": 256},
    "SAC": {"agent": "sac"},
}


class Turning(Environment):
    """x′ = Q x + 0.3 B a, with Q a rotation; the reward is highest at rest in the origin."""

    carry: jax.Array
    push: jax.Array
    observation_size: int = eqx.field(static=True)
    action_low: tuple[float, ...] = eqx.field(static=True)
    action_high: tuple[float, ...] = eqx.field(static=True)
    terminates: bool = eqx.field(static=True, default=False)

    def __init__(self, size: int) -> None:
        rng = np.random.default_rng(size)
        turn, _ = np.linalg.qr(rng.normal(size=(size, size)))
        self.carry = jnp.asarray(turn, jnp.float32)
        self.push = jnp.asarray(0.3 * np.linalg.qr(rng.normal(size=(size, size // 2)))[0], jnp.float32)
        self.observation_size = size
        self.action_low, self.action_high = (-1.0,) * (size // 2), (1.0,) * (size // 2)

    def reset(self, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        state = jax.random.uniform(key, (self.observation_size,), minval=-1.0)
        return state, state

    def step(self, state: jax.Array, action: jax.Array) -> tuple[jax.Array, Step]:
        state = self.carry @ state + self.push @ action
        return state, Step(state, jnp.exp(-4 * jnp.mean(state**2)), jnp.array(False))


def idle(env: Turning) -> float:
    """The return of doing nothing, over a hundred episodes."""

    def step(state: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
        state, outcome = env.step(state, jnp.zeros(len(env.action_low)))
        return state, outcome.reward

    def episode(key: jax.Array) -> jax.Array:
        return jax.lax.scan(step, env.reset(key)[0], length=100)[1].sum()

    return float(jax.vmap(episode)(jax.random.split(jax.random.key(0), 100)).mean())


def main(steps: int) -> None:
    rows = []
    for size in (2, 4, 8, 16):
        env = Turning(size)
        found, still = defaults(env), idle(env)
        for name, settings in VARIANTS.items():
            config = presets.build("told", None, COMMON | settings | {"train.steps": steps}, found)
            with tempfile.TemporaryDirectory() as folder:
                started = time.perf_counter()
                run = train(config, Path(folder) / "run", env=env)
                wall = time.perf_counter() - started
                seconds = [json.loads(line)["seconds"] for line in (run.path / "timing.jsonl").read_text().splitlines()]
                last = [row["return_mean"] for row in run.rows if row["step"] == steps]
            row = {
                "dimensions": size, "agent": name, "return": [round(value, 1) for value in last],
                "doing nothing": round(still, 1), "ms per step": round(1e3 * float(np.median(seconds)) / 100, 3),
                "seconds with compilation": round(wall, 1),
            }  # fmt: skip
            rows.append(row)
            print(row, flush=True)
    text = json.dumps({"steps": steps, "seeds": SEEDS, "rows": rows}, indent=1)
    (Path(__file__).parent / "summary.json").write_text(text + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
