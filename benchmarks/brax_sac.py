"""Brax's SAC on Playground: `python brax_sac.py WIDTH`.

Brax times each epoch itself, without its evaluations; the first epoch compiles, and the last is
reported.
"""

import functools
import sys
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from brax.training.agents.sac import networks, train
from measure import BATCH, DEPTH, ENVIRONMENT, EPISODE, WARMUP, report, timed_steps
from mujoco_playground import registry, wrapper

EPOCHS = 2


def replicate(tree: Any, devices: Sequence[jax.Device]) -> Any:
    """Adds a leading axis over one device to `tree`."""
    return jax.device_put(jax.tree.map(lambda x: jnp.asarray(x)[None], tree), devices[0])


if not hasattr(jax, "device_put_replicated"):  # removed from JAX, but Brax 0.14.2 still calls it
    jax.device_put_replicated = replicate


def main(width: int) -> None:
    steps = timed_steps(width)
    rates: list[float] = []

    def progress(_: int, metrics: dict[str, Any]) -> None:
        if "training/sps" in metrics:
            rates.append(float(metrics["training/sps"]))

    train.train(
        registry.load(ENVIRONMENT, config_overrides={"impl": "jax"}),
        num_timesteps=WARMUP + EPOCHS * steps,
        episode_length=EPISODE,
        wrap_env_fn=wrapper.wrap_for_brax_training,
        num_envs=1,
        num_eval_envs=1,
        num_evals=EPOCHS + 1,
        batch_size=BATCH,
        min_replay_size=WARMUP,
        grad_updates_per_step=1,
        learning_rate=3e-4,
        discounting=0.99,
        network_factory=functools.partial(networks.make_sac_networks, hidden_layer_sizes=(width,) * DEPTH),
        progress_fn=progress,
    )
    report("brax", "sac", width, 1, steps, steps / rates[-1])


if __name__ == "__main__":
    main(int(sys.argv[1]))
