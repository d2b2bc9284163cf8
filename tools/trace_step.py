"""Runs one training step of MoCA and prints the files of this package it enters, in order.

    python tools/trace_step.py [--check]

`moca.moments` counts as one. With --check it fails where a step enters more than twelve files, the
method more than six of them, or a file calls one that stands above it in `ORDER`. The table in
`docs/architecture.md` has the files in the order of first entry.
"""

import sys
from functools import cache
from pathlib import Path

import jax
import jax.numpy as jnp

import moca
from moca import presets
from moca.agents import make_agent
from moca.drivers.scan import step
from moca.drivers.trainer import make_env
from moca.envs.sensors import make_sensor
from moca.exploration import draw_exploration
from moca.loop import LoopState, draw_step, first_belief, init_run

ROOT = Path(moca.__file__).parent
MOST, MOST_OF_METHOD = 12, 6
# Files that any agent would need. Every other one counts as the method, also a new one.
AROUND = ("drivers/scan.py", "loop.py", "nets.py", "replay.py", "envs/environment.py", "envs/playground.py")
# From the driver down to files that do not depend on reinforcement learning. Each file calls only
# those below it.
ORDER = (
    "drivers/scan.py", "loop.py", "agents/quadratic.py", "backup.py", "belief.py", "critic.py", "dynamics.py",
    "moments", "nets.py", "replay.py", "envs/environment.py", "envs/playground.py",
)  # fmt: skip
# Calls through a contract: an environment implements the one above it, an agent is asked back for
# its `backup`.
CONTRACT = {("envs/playground.py", "envs/environment.py"), ("backup.py", "agents/quadratic.py")}


@cache
def name_of(filename: str) -> str | None:
    """The file's name in the package, or None for one that is not ours."""
    path = Path(filename)
    if not path.is_relative_to(ROOT):
        return None
    parts = path.relative_to(ROOT).parts
    if parts[0] in ("config", "pytrees.py"):  # settings are data; JAX takes them apart
        return None
    return "moments" if parts[0] == "moments" else "/".join(parts)


def trace() -> tuple[list[str], set[tuple[str, str]]]:
    """The files that one step enters, in order, and which of them calls which."""
    settings = {"noise.sigma": 0.05, "train.steps": 1000, "train.warmup": 0, "train.batch": 4, "train.updates": 1}
    config = presets.build("tuned", "CartpoleBalance", settings)
    env = make_env(config)
    agent, sensor = make_agent(config, env), make_sensor(config, env)

    def begin(key: jax.Array) -> tuple:
        run = init_run(config, env, key)
        env_state, observation = env.reset(key)
        sensor_state, belief = first_belief(agent, run.learner, sensor, observation, key)
        explore = draw_exploration(key, config.exploration, 1, env.action_size)
        carry = (env_state, LoopState(belief, run.learner, run.replay, sensor_state))
        return carry, jax.tree.map(lambda leaf: leaf[0], explore), draw_step(agent, key)

    shapes = jax.eval_shape(begin, jax.random.key(0))  # a trace needs no numbers, so nothing is compiled
    entered: list[str] = []
    calls: set[tuple[str, str]] = set()

    def watch(frame, event, _):
        if event == "call" and (name := name_of(frame.f_code.co_filename)):
            if name not in entered:
                entered.append(name)
            caller = frame.f_back
            while caller and name_of(caller.f_code.co_filename) is None:
                caller = caller.f_back
            if caller and (above := name_of(caller.f_code.co_filename)) not in (None, name):
                calls.add((above, name))

    index = jnp.array(0)
    sys.setprofile(watch)
    try:
        jax.make_jaxpr(lambda carry, *draws: step(agent, env, sensor, carry, index, *draws, 1))(*shapes)
    finally:
        sys.setprofile(None)
    return entered, calls


def complaints_about(entered: list[str], calls: set[tuple[str, str]]) -> list[str]:
    """Returns what is wrong with a step: too many files, or a call upward."""
    rank = {name: number for number, name in enumerate(ORDER)}
    found = [f"{name} is not in ORDER" for name in entered if name not in ORDER]
    found += [
        f"{above} calls {below}, which stands above it"
        for above, below in sorted(calls)
        if rank.get(above, -1) > rank.get(below, 99) and (above, below) not in CONTRACT
    ]
    if len(entered) > MOST:
        found.append(f"a step enters {len(entered)} files, more than {MOST}")
    if len(method := [name for name in entered if name not in AROUND]) > MOST_OF_METHOD:
        found.append(f"the method is in {len(method)} files, more than {MOST_OF_METHOD}: {', '.join(method)}")
    return found


def main() -> None:
    """Prints the files, and with --check fails where there are too many or they call upward."""
    entered, calls = trace()
    for number, name in enumerate(entered, 1):
        print(f"{number:2d}  {name}{'' if name in AROUND else '  (the method)'}")
    complaints = complaints_about(entered, calls)
    print("\n".join(complaints))
    if complaints and "--check" in sys.argv:
        sys.exit(1)


if __name__ == "__main__":
    main()
