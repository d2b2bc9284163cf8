"""Searches over settings: programs of many points times a few seeds, several side by side.

    python results/searches/run.py raw                  # every program of a search, as processes
    python results/searches/run.py raw --only 0         # one of them, in this process

Writes one table per search beside it (or into the folder that the environment variable OUT names):
a row per point, seed and evaluation. Nothing is chosen here; README.md says what each search was
for, and what was chosen from it.
"""

import argparse
import itertools
import json
import os
import random
import subprocess
import sys
import time
from math import log10
from pathlib import Path
from typing import Any

TASKS = {"CartpoleBalance": 100_000, "PendulumSwingup": 100_000}

# The start of the search for `raw`: `told` without the filter, and without what the paper does not
# have and Pendulum does not need (one step and one update per decision, constant rates, the vertex
# head, random actions to the end).
START = {
    "belief.filter": False, "env.action_repeat": 1, "train.updates": 1, "train.decay": 1.0, "critic.head": "vertex",
    "exploration.probability_end": 0.2, "noise.sigma": 0.05, "train.eval_every": 4,
}  # fmt: skip


def _critic(rate: float) -> dict[str, float]:
    return {f"critic.{name}": rate for name in ("lr", "lr_end", "vertex_lr", "vertex_lr_end")}


def _rates(value: float, basis: float, critic: float) -> dict[str, float]:
    return {"value.lr": value, "value.basis_lr": basis, **_critic(critic)}


def raw() -> list[dict[str, Any]]:
    """One change at a time from START, and a few rates together, for two kinds of learned bases."""
    points: list[dict[str, float]] = [
        {},
        *({"value.lr": x} for x in (1e-3, 1e-2, 3e-2)),
        *({"value.basis_lr": x} for x in (3e-4, 1e-3, 1e-2)),
        *(_rates(3e-3, 3e-3, x) for x in (3e-4, 3e-3)),
        {"critic.vertex_lr": 1e-4, "critic.vertex_lr_end": 1e-4},
        {"exploration.hold": 1.0},
        {"exploration.probability_end": 0.0},
        {"exploration.sigma_end": 0.3},
        {"exploration.sigma": 1.0},
        {"train.decay": 0.1},
        {"train.decay": 0.1, "exploration.probability_end": 0.0},
        {"value.least": float("-inf")},
        {"critic.keepalive": 1e-4},
        {"critic.keepalive": 1e-2},
        {"critic.curvature_floor": 0.1},
        {"train.gamma": 0.98},
        {"train.gamma": 0.995},
        {"value.constant_lr": 1e-2},
        {"dynamics.lr": 3e-4},
        _rates(1e-2, 1e-2, 1e-3),
        _rates(1e-2, 1e-3, 1e-3),
        _rates(1e-3, 1e-2, 1e-3),
        _rates(1e-2, 3e-3, 3e-4),
        _rates(1e-3, 1e-3, 3e-4),
        _rates(1e-3, 1e-3, 1e-3),
    ]
    return [
        {"env": env, "steps": steps, "settings": {**START, "agent": "moca", "value.kind": kind}, "points": points,
         "seeds": list(range(4))}
        for env, steps in TASKS.items()
        for kind in ("erf", "rbf-learned")
    ]  # fmt: skip


def raw_again() -> list[dict[str, Any]]:
    """Around what the first search suggested: rates together, for MoCA and BNAF."""
    grid = itertools.product((1e-2, 3e-2, 1e-1), (1e-3, 3e-3), (0.0, 1e-4), (3e-4, 1e-3))
    names = ("value.lr", "value.basis_lr", "critic.keepalive", "dynamics.lr")
    points: list[dict[str, float]] = [dict(zip(names, point, strict=True)) for point in grid]
    points += [
        {"train.gamma": 0.995},
        {"train.gamma": 0.995, "value.lr": 3e-2},
        {"exploration.hold": 5.0},
        {"exploration.hold": 20.0},
        {"exploration.sigma": 0.3, "exploration.sigma_end": 0.1},
        {"exploration.sigma": 1.0, "exploration.sigma_end": 0.1},
        {"value.least": 0.0},
        _rates(3e-2, 1e-3, 3e-3),
    ]
    tasks = [("CartpoleBalance", 256), ("PendulumSwingup", 128), ("PendulumSwingup", 256)]
    return [
        {"preset": "raw", "env": env, "steps": 100_000, "points": points, "seeds": list(range(4, 8)),
         "settings": {"agent": agent, "value.bases": bases, "noise.sigma": 0.05, "train.eval_every": 4}}
        for agent in ("moca", "bnaf")
        for env, bases in tasks
    ]  # fmt: skip


def rates() -> list[dict[str, Any]]:
    """Nine pairs of rates for each of three agents under `raw`, so that each has its own."""
    points = [{"value.lr": value, **_critic(critic)} for value in (3e-3, 1e-2, 3e-2) for critic in (3e-4, 1e-3, 3e-3)]
    return [
        {"preset": "raw", "env": env, "steps": steps, "points": points, "seeds": list(range(100, 100 + seeds)),
         "settings": {"agent": agent, "noise.sigma": 0.05, "train.eval_every": steps // 25_000}}
        for env, steps, seeds in (("CartpoleBalance", 100_000, 8), ("PendulumSwingup", 250_000, 6))
        for agent in ("moca", "moca-ce", "bnaf")
    ]  # fmt: skip


def joint() -> list[dict[str, Any]]:
    """`raw` and 31 random points around it, the same for MoCA, MoCA-CE and BNAF, at σ = 0.05."""
    draw = random.Random(0)
    between = lambda low, high: float(f"{10 ** draw.uniform(log10(low), log10(high)):.2g}")  # noqa: E731
    points: list[dict[str, float]] = [{}]
    for _ in range(31):
        points.append(
            {"value.lr": between(1e-3, 1e-1), "value.basis_lr": between(3e-4, 1e-2), **_critic(between(1e-4, 3e-3)),
             "dynamics.lr": between(1e-4, 1e-3), "train.gamma": draw.choice((0.98, 0.99, 0.995)),
             "critic.keepalive": draw.choice((0.0, 1e-4, 1e-2)),
             "exploration.hold": draw.choice((5.0, 10.0, 20.0, 40.0)),
             "exploration.sigma_end": draw.choice((0.1, 0.3))}
        )  # fmt: skip
    return [
        {"preset": "raw", "env": env, "steps": steps, "points": points, "seeds": list(range(500, 500 + seeds)),
         "settings": {"agent": agent, "noise.sigma": 0.05, "train.eval_every": steps // 25_000}}
        for env, steps, seeds in (("CartpoleBalance", 100_000, 5), ("PendulumSwingup", 200_000, 4))
        for agent in ("moca", "moca-ce", "bnaf")
    ]  # fmt: skip


def best_joint(env: str) -> dict[str, dict[str, float]]:
    """Each agent's best point of `joint` on a task.

    It has the highest mean return over the last fifth of training.
    """
    import pandas as pd

    table = pd.concat([pd.read_parquet(path) for path in _folder().glob("joint*.parquet")])
    own = table[table["env"] == env].assign(return_mean=lambda rows: rows["return_mean"].fillna(0))
    last = own.groupby("agent")["step"].max().min()  # all agents are compared at the same length
    late = own[own["step"].between(0.8 * last + 1, last)]
    scores = late.groupby(["agent", "point"])["return_mean"].mean()
    return {agent: json.loads(scores.loc[agent].idxmax()) for agent in scores.index.unique("agent")}


def best() -> list[dict[str, Any]]:
    """MoCA, MoCA-CE and BNAF at the best of their 32 points, on fresh seeds.

    The first two also run at each other's best point.
    """
    programs = []
    for env, steps, seeds in (("CartpoleBalance", 100_000, 40), ("PendulumSwingup", 200_000, 30)):
        points = best_joint(env)
        for agent in ("moca", "moca-ce", "bnaf"):
            other = {"moca": ["moca-ce"], "moca-ce": ["moca"]}.get(agent, [])
            programs.append(
                {"preset": "raw", "env": env, "steps": steps, "points": [points[name] for name in (agent, *other)],
                 "seeds": list(range(3000, 3000 + seeds)),
                 "settings": {"agent": agent, "noise.sigma": 0.05, "train.eval_every": steps // 50_000}}
            )  # fmt: skip
    return programs


# One change a rung, from the printed settings to `raw`; widths and K, which are not printed, are
# those of `raw` throughout.
_UNPRINTED = {"critic.width": 64, "dynamics.width": 64, "dynamics.members": 3, "dynamics.lr": 3e-4}
_RUNGS: list[tuple[str, dict[str, Any]]] = [
    ("as printed", {}),
    ("critic and vertex at 1e-3", _critic(1e-3)),
    ("weights of V at 1e-2", {"value.lr": 1e-2}),
    ("random actions at the ends, held", {"exploration.random": "extreme", "exploration.hold": 20.0}),
    ("bases that learn: raw", {"value.kind": "rbf-learned", "value.basis_lr": 3e-3}),
]
# And from the other side: `raw` without one of them. (With fixed bases `raw` is the fourth rung.)
_WITHOUT: list[tuple[str, dict[str, Any]]] = [
    ("raw, bases fixed, M = 256", {"value.kind": "rbf", "value.basis_lr": 0.0, "value.bases": 256}),
    ("raw, random actions as printed", {"exploration.random": "uniform", "exploration.hold": 1.0}),
    ("raw, weights of V at 1e-4", {"value.lr": 1e-4}),
    ("raw, critic at 1e-4, vertex at 1e-5", {"critic.lr": 1e-4, "critic.lr_end": 1e-4, "critic.vertex_lr": 1e-5,
                                          "critic.vertex_lr_end": 1e-5}),
]  # fmt: skip


def ladder() -> list[dict[str, Any]]:
    """A ladder from `paper` to `raw`, one change a rung, and `raw` without each change.

    MoCA and MoCA-CE at σ = 0.05 on both tasks. Rungs that differ in real numbers alone share a
    program.
    """
    rungs, so_far = [], {}
    for name, change in _RUNGS:
        so_far = so_far | change
        rungs.append(("paper", name, dict(so_far)))
    rungs += [("raw", name, change) for name, change in _WITHOUT]
    programs: dict[str, dict[str, Any]] = {}
    for env, steps in (("CartpoleBalance", 100_000), ("PendulumSwingup", 150_000)):
        for agent in ("moca", "moca-ce"):
            for preset, rung, settings in rungs:
                words = {k: v for k, v in settings.items() if not isinstance(v, float)}
                numbers = {k: v for k, v in settings.items() if isinstance(v, float)}
                key = json.dumps([env, agent, preset, words])
                fixed = {
                    **_UNPRINTED,
                    **words,
                    "agent": agent,
                    "noise.sigma": 0.05,
                    "train.eval_every": steps // 25_000,
                }
                program = {"preset": preset, "env": env, "steps": steps, "settings": fixed, "points": [],
                           "rungs": [], "seeds": list(range(200, 208))}  # fmt: skip
                own = programs.setdefault(key, program)
                own["points"].append(numbers)
                own["rungs"].append(rung)
    return list(programs.values())


def sac() -> list[dict[str, Any]]:
    """64 settings of SAC at σ = 0.025.

    They differ in width, batch, updates, rates, target entropy and random actions.
    The one with the highest return over the last fifth of training, mean over seeds and both tasks,
    is SAC's in `raw`.
    """
    points = [
        {"sac.actor_lr": rate, "sac.critic_lr": rate, "sac.alpha_lr": rate, "sac.entropy_per_action": entropy,
         "sac.probability": probability}
        for rate in (3e-4, 1e-3)
        for entropy in (-1.0, 0.0)
        for probability in (0.0, 0.2)
    ]  # fmt: skip
    return [
        {"preset": "raw", "env": env, "steps": steps, "points": points, "seeds": list(range(300, 304)),
         "settings": {"agent": "sac", "sac.width": width, "train.batch": batch, "train.updates": updates,
                      "noise.sigma": 0.025, "train.eval_every": steps // 25_000}}
        for env, steps in (("CartpoleBalance", 60_000), ("PendulumSwingup", 120_000))
        for width in (64, 256)
        for batch in (128, 256)
        for updates in (1, 2)
    ]  # fmt: skip


# Completions of the printed settings that need a separate program each; each with two rates of the
# vertex head.
_SWITCHES: list[dict[str, Any]] = [
    {"train.capacity": 100_000},
    {"value.bases": 1024},
    {"exploration.random": "extreme", "exploration.hold": 20.0},
    {"own centres": True},
]


def completions() -> list[dict[str, Any]]:
    """24 completions of the printed method with fixed bases: BNAF, σ = 0.025, two million updates.

    Rates of the weights and of the vertex head, least curvature, discount, replay size, number of
    bases, held random actions, and separate centres for each twin.
    """
    least = {"critic.curvature_floor": 0.1}
    vertex = {"critic.vertex_lr": 1e-3, "critic.vertex_lr_end": 1e-3}
    points: list[dict[str, Any]] = [
        {"value.lr": rate, **faster, **floor}
        for rate in (1e-4, 1e-3, 1e-2)
        for faster in ({}, vertex)
        for floor in ({}, least)
    ]
    points += [{"value.lr": rate, **faster, "train.gamma": 0.98} for rate in (1e-3, 1e-2) for faster in ({}, vertex)]
    programs = [
        ({}, points),
        *((switch, [{"value.lr": 1e-2, **faster} for faster in ({}, vertex)]) for switch in _SWITCHES),
    ]
    return [
        {"preset": "paper", "env": env, "steps": 2_000_000, "points": points, "seeds": [400, 401],
         "settings": {"critic.width": 64, "agent": "bnaf", "noise.sigma": 0.025, "train.eval_every": 40, **switch}}
        for switch, points in programs
        for env in TASKS
    ]  # fmt: skip


def completed() -> list[dict[str, Any]]:
    """MoCA at the three best points of `completions` on each task: two million updates, four seeds.

    Best by the return over the last fifth of the steps taken, mean over seeds.
    """
    import pandas as pd

    table = pd.concat([pd.read_parquet(path) for path in _folder().glob("completions*.parquet")])
    programs: dict[tuple[str, str], dict[str, Any]] = {}
    for env in TASKS:
        own = table[table["env"] == env]
        late = own[own["step"] > 0.8 * own.groupby(["program", "point"])["step"].transform("max")]
        scores = late.groupby(["program", "point"])["return_mean"].mean().sort_values(ascending=False)
        for program, point in scores.index[:3]:
            fresh = {"preset": "paper", "env": env, "steps": 2_000_000, "points": [], "seeds": list(range(400, 404)),
                     "settings": {**json.loads(program), **_UNPRINTED, "agent": "moca"}}  # fmt: skip
            programs.setdefault((env, program), fresh)["points"].append(json.loads(point))
    return list(programs.values())


SEARCHES = {
    "raw": raw,
    "raw-again": raw_again,
    "rates": rates,
    "joint": joint,
    "best": best,
    "ladder": ladder,
    "sac": sac,
    "completions": completions,
    "completed": completed,
}


def best_sac() -> dict[str, Any]:
    """The settings of SAC that the search found best, by the rule of `sac`."""
    import pandas as pd

    table = pd.concat([pd.read_parquet(path) for path in _folder().glob("sac*.parquet")])
    late = table[table["step"] > 0.8 * table.groupby("env")["step"].transform("max")]
    settings = [json.loads(p) | json.loads(q) for p, q in zip(late["program"], late["point"], strict=True)]
    keep = lambda s: json.dumps({k: v for k, v in s.items() if k.startswith(("sac.", "train.b", "train.u"))})  # noqa: E731
    scores = late.assign(settings=list(map(keep, settings))).groupby(["settings", "env"])["return_mean"].mean()
    return json.loads(scores.unstack().mean(axis=1).idxmax())


def _folder() -> Path:
    return Path(os.environ.get("OUT", Path(__file__).parent))


def _own_centres() -> None:
    """Gives each twin separate bases.

    The second has the first's coordinates, in another order in each dimension.
    """
    import jax.numpy as jnp

    from moca import critic
    from moca.agents import quadratic

    def twin(value: Any) -> Any:
        shifts = range(1, 1 + value.centers.shape[1])
        other = jnp.stack([jnp.roll(value.centers[:, i], 7 * shift) for i, shift in enumerate(shifts)], axis=1)
        return critic._map_roles(lambda role, leaf: jnp.stack([leaf, other if leaf is value.centers else leaf]), value)

    critic.SHARED = ()
    quadratic.twin = twin


def run(name: str, number: int) -> Path:
    """Trains one program of a search and writes its rows."""
    import numpy as np
    import pandas as pd

    from moca import presets
    from moca.devices import use_device
    from moca.drivers import ScanTrainer

    use_device(None)
    program = SEARCHES[name]()[number]
    points, seeds = program["points"], program["seeds"]
    settings = {**program["settings"], "train.steps": program["steps"]}
    if settings.pop("own centres", False):
        _own_centres()
    preset = program.get("preset", "told")
    configs = [presets.build(preset, program["env"], {**settings, **point}) for point in points for _ in seeds]
    started = time.perf_counter()
    trainer = ScanTrainer(configs, [*seeds] * len(points))
    trainer.compile()
    print(f"{name} {number}: {len(configs)} runs compiled in {time.perf_counter() - started:.0f} s", flush=True)
    started, rows, path = time.perf_counter(), [], _folder() / f"{name}-{number}.parquet"
    labels = [json.dumps(point) for point in points for _ in seeds]
    rungs = [{"rung": rung} for rung in program.get("rungs", ()) for _ in seeds] or [{}] * len(labels)
    for report in trainer:
        if not np.isfinite(report.metrics["return_mean"]).any():
            continue
        for i, label in enumerate(labels):
            rows.append(
                {"search": name, "preset": preset, "env": program["env"], "agent": settings["agent"],
                 "program": json.dumps(program["settings"]), "point": label, "seed": seeds[i % len(seeds)],
                 "step": report.step, **rungs[i],
                 **{m: np.float32(report.metrics[m][i]) for m in ("return_mean", "q_mean", "curvature", "ce_bias")
                    if m in report.metrics}}
            )  # fmt: skip
        if report.step % (program["steps"] // 10) == 0:
            print(f"{name} {number}: step {report.step} after {time.perf_counter() - started:.0f} s", flush=True)
            pd.DataFrame(rows).to_parquet(path, compression="zstd")
    last = pd.DataFrame(rows).query("step > 0.8 * step.max()").groupby("point", sort=False)["return_mean"]
    print(
        program["env"], program["settings"], last.agg(["mean", "std", "min"]).round(0).to_string(), sep="\n", flush=True
    )
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("search", choices=[*SEARCHES, "best-sac"])
    parser.add_argument("--only", type=int, help="one program, in this process")
    parser.add_argument("--parallel", type=int, default=8, help="programs at once (default: 8)")
    arguments = parser.parse_args()
    if arguments.search == "best-sac":
        print(" ".join(f"--set {name}={value}" for name, value in best_sac().items()))
        return
    if arguments.only is not None:
        print(run(arguments.search, arguments.only))
        return
    environment = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    waiting, running = list(range(len(SEARCHES[arguments.search]()))), []
    while waiting or running:
        while waiting and len(running) < arguments.parallel:
            command = [sys.executable, __file__, arguments.search, "--only", str(waiting.pop(0))]
            running.append(subprocess.Popen(command, env=environment))
        running = [process for process in running if process.poll() is None]
        time.sleep(0.5)


if __name__ == "__main__":
    main()
