"""Times one MoCA update as each of its sizes grows, on this machine.

    python benchmarks/growth.py

Prints, for each size, the exponent fitted to three of them (time ~ size^e), and their times.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from moca.agents import make_agent
from moca.benchmark import machine, on_gpu, time_together
from moca.config import Config, override
from moca.devices import use_all_cores
from moca.envs.environment import Environment, Step
from moca.replay import Transition


class Plain(Environment):
    """An environment without physics, of the given sizes."""

    observation_size: int
    action_low: tuple[float, ...] = (-1.0,)
    action_high: tuple[float, ...] = (1.0,)
    terminates: bool = False

    def reset(self, key: jax.Array) -> tuple[Any, jax.Array]:
        return (), jnp.zeros(self.observation_size)

    def step(self, state: Any, action: jax.Array) -> tuple[Any, Step]:
        return state, Step(jnp.zeros(self.observation_size), jnp.zeros(()), jnp.array(False))


GROWTH: dict[str, tuple[int, ...]] = {
    "bases M": (1024, 2048, 4096),
    "dimension d": (16, 32, 64),
    "members K": (10, 20, 40),
    "batch": (256, 512, 1024),
    "runs": (4, 8, 16),
}


def growth(rounds: int = 7) -> dict[str, dict[str, Any]]:
    """Returns the seconds of one MoCA update as one size grows, and the fitted exponent.

    On a GPU there are 128 runs, so that arithmetic dominates kernel launches.
    """
    others = 128 if on_gpu() else 1
    result = {}
    for name, sizes in GROWTH.items():
        programs = {str(size): _updates(**{name.split()[0]: size}, others=others) for size in sizes}
        seconds = time_together(programs, rounds)
        logs = np.log([*map(float, sizes)]), np.log([seconds[str(size)] for size in sizes])
        result[name] = {
            "exponent": float(np.polyfit(*logs, 1)[0]),
            "seconds": {size: seconds[str(size)] / UPDATES for size in sizes},
        }
    return result


UPDATES = 10


def _updates(
    bases: int = 256, dimension: int = 5, members: int = 5, batch: int = 128, runs: int = 1, others: int = 1
) -> tuple[Callable, tuple]:
    """Returns a program of a few MoCA updates on random transitions, and its arguments."""
    wide = {name: (value,) * dimension for name, value in (("low", -1.0), ("high", 1.0), ("lengthscales", 0.5))}
    settings = {f"value.{name}": value for name, value in wide.items()} | {
        "agent": "moca", "critic.width": 64, "dynamics.width": 64,
        "value.bases": bases, "dynamics.members": members, "train.batch": batch,
    }  # fmt: skip
    agent = make_agent(override(Config(), settings), Plain(dimension))
    count = runs * others
    keys = jax.random.split(jax.random.key(0), count)

    def transitions(key: jax.Array) -> Transition:
        keys = jax.random.split(key, 4)
        observation, next_observation = (jax.random.normal(k, (batch, dimension)) for k in keys[:2])
        action, reward = jax.random.uniform(keys[2], (batch, 1), minval=-1.0), jax.random.normal(keys[3], (batch,))
        return Transition(observation, action, reward, next_observation, jnp.zeros(batch))

    def program(states: Any, batches: Transition, draws: Any) -> Any:
        step = jax.vmap(lambda state, batch, draw: agent.update(state, batch, draw)[0])
        return jax.lax.scan(lambda state, _: (step(state, batches, draws), None), states, length=UPDATES)[0]

    arguments = (jax.vmap(agent.init)(keys), jax.vmap(transitions)(keys), jax.vmap(agent.draw_update)(keys))
    return program, arguments


if __name__ == "__main__":
    use_all_cores()
    for name, row in growth().items():
        times = ", ".join(f"{size}: {1e3 * seconds:.2f} ms" for size, seconds in row["seconds"].items())
        print(f"{name:12s} time ~ size^{row['exponent']:.2f}   {times}", flush=True)
    print("machine: " + ", ".join(f"{name} {value}" for name, value in machine().items()))
