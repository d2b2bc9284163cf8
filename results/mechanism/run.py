"""Maps V and the greedy action along training on Pendulum at σ = 0.05 under `raw`, eight seeds.

    python results/mechanism/run.py moca
    python results/mechanism/run.py moca-ce

Writes maps-AGENT.npz beside it (or into the folder that the environment variable OUT names): value
and action over the plane of angle and velocity at a few steps, and the returns along the way.
"""

import os
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from moca import presets
from moca.agents import make_agent
from moca.devices import use_device
from moca.drivers import ScanTrainer
from moca.paper import tasks

ANGLES, VELOCITIES, _ = tasks.plane()
STEPS = (10_000, 20_000, 30_000, 50_000, 80_000, 120_000, 180_000, 250_000)
SEEDS = range(2000, 2008)


def main(name: str) -> Path:
    use_device(None)
    settings = {"agent": name, "noise.sigma": 0.05, "train.steps": STEPS[-1], "train.eval_every": 5}
    config = presets.build("raw", "PendulumSwingup", settings)
    trainer = ScanTrainer([config] * len(SEEDS), SEEDS)
    agent = make_agent(config, trainer.env)
    angle, velocity = np.meshgrid(ANGLES, VELOCITIES, indexing="ij")
    plane = jnp.stack([jnp.sin(angle), jnp.cos(angle), velocity], axis=-1).reshape(-1, 3).astype(jnp.float32)
    look = jax.jit(
        jax.vmap(lambda learner: jax.vmap(lambda s: (agent.value(learner, s), agent.act(learner, s)[0]))(plane))
    )
    values, actions, steps, returns, over = [], [], [], [], []
    for report in trainer:
        if np.isfinite(report.metrics["return_mean"]).any():
            steps.append(report.step)
            returns.append(report.metrics["return_mean"])
            over.append(report.metrics["overestimation"])
        if report.step in STEPS:
            value, action = look(trainer.learners)
            values.append(np.asarray(value, np.float16).reshape(-1, *angle.shape))
            actions.append(np.asarray(action, np.float16).reshape(-1, *angle.shape))
    path = Path(os.environ.get("OUT", Path(__file__).parent)) / f"maps-{name}.npz"
    np.savez_compressed(
        path, angle=ANGLES, velocity=VELOCITIES, map_steps=STEPS, seeds=list(SEEDS), value=values, action=actions,
        steps=steps, returns=np.asarray(returns, np.float32), overestimation=np.asarray(over, np.float32),
    )  # fmt: skip
    return path


if __name__ == "__main__":
    print(main(sys.argv[1]))
