"""Runs agents that plan or imagine on few steps of experience.

    python results/planning/run.py OUT [NAME …] [--seeds 10] [--first 20]

Each name is a cell, one compiled program of its seeds: one of `CELLS`, by default the four of
efficient.json, or one of search.json. On a GPU all are compiled at once, then run one after the
other. OUT/cells.json is written again as soon as one has ended.

A name that ends in -outcomes has `belief.outcomes`. The rule for these, written before they ran:
`efficient` gets this setting if on 200 seeds from 9700 at least nine tenths reach 950 on Cartpole
Balance (balance-05-outcomes), and on 20 seeds from 9700 at least 18 reach what is asked for on each
of the three other tasks. It is refuted by fewer on any of the four.

    python results/planning/run.py OUT balance-05-outcomes --seeds 200 --first 9700
    python results/planning/run.py OUT swing-0-outcomes swing-05-outcomes pendulum-05-outcomes \\
        --seeds 20 --first 9700
"""

import argparse
import json
import time
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import jax
import numpy as np

from moca import presets
from moca.drivers import ScanTrainer
from moca.envs.defaults import defaults

KEPT = ("return_mean", "overestimation", "reward_error", "reward_loss", "epistemic_std", "coverage_1sigma", "diverged")
HERE = Path(__file__).parent


def efficient(env: str, steps: int, sigma: float, **more):
    """A task of the preset `efficient`, evaluated after every episode."""
    own = {name.replace("__", "."): value for name, value in more.items()}
    return env, "efficient", {"train.steps": steps, "noise.sigma": sigma, "train.eval_episodes": 5, **own}


CELLS = {
    "swing-0": efficient("CartpoleSwingup", 10_000, 0.0),
    "swing-05": efficient("CartpoleSwingup", 16_000, 0.05),
    "balance-05": efficient("CartpoleBalance", 6_000, 0.05),
    "pendulum-05": efficient("PendulumSwingup", 12_000, 0.05),
}
CELLS |= {
    f"{name}-outcomes": (env, preset, {**settings, "belief.outcomes": True})
    for name, (env, preset, settings) in CELLS.items()
}
TASKS = {
    "0": ("CartpoleSwingup", 10_000, 0.0),
    "05": ("CartpoleSwingup", 10_000, 0.05),
    "pendulum": ("PendulumSwingup", 12_000, 0.05),
}
RULES = {"moca": ("moca", 1), "moca-ce": ("moca-ce", 1), "moca-mc4": ("moca-mc", 4), "moca-mc16": ("moca-mc", 16)}
CELLS |= {  # those of horizons.json
    f"{name}-h{horizon}-{task}": efficient(
        *of_it, agent=agent, dynamics__samples=samples, plan__horizon=horizon, plan__imagined=3
    )
    for task, of_it in TASKS.items()
    for horizon in (1, 3, 5)
    for name, (agent, samples) in RULES.items()
}


def searched() -> dict[str, tuple]:
    """The cells of search.json that the package can run, each variant of floats by itself."""
    rounds = json.loads((HERE / "search.json").read_text())["rounds"].values()
    return {
        f"{name}/{variant}": (each["env"], each["preset"], {**each["settings"], **more["settings"]})
        for every in rounds
        for name, each in every["cells"].items()
        for variant, more in each["variants"].items()
        if "not_in_package" not in each
    }


def facts(env: str, preset: str) -> dict[str, Any]:
    """The ranges of V: of the preset or, as for a user, measured.

    `told` had those of Cartpole Balance.
    """
    if env in presets.ENVIRONMENTS:
        return {}
    if preset == "told":
        return {**presets.ENVIRONMENTS["CartpoleBalance"], "value.least": 0.0}
    return defaults(env, **presets.how_to_measure(preset, env, {}))


def trainer(cell: tuple, seeds: list[int]) -> ScanTrainer:
    """The runs of a cell as one program, not compiled."""
    env, preset, settings = cell
    configs = [presets.build(preset, env, settings, facts(env, preset))] * len(seeds)
    return ScanTrainer(configs, seeds)


def main(out: Path, names: list[str], seeds: list[int]) -> None:
    start, cells, done = time.time(), CELLS | searched(), {}
    out.mkdir(parents=True, exist_ok=True)
    at_once = 1 if jax.default_backend() == "cpu" else 16
    if unknown := set(names) - set(cells):
        raise SystemExit(f"unknown: {', '.join(sorted(unknown))}. Cells: {', '.join(cells)}")
    trainers = {name: trainer(cells[name], seeds) for name in names or list(CELLS)[:4]}
    lowered = {name: list(each.lowered()) for name, each in trainers.items()}
    print(f"traced after {time.time() - start:.0f} s", flush=True)
    with ThreadPoolExecutor(at_once) as pool:
        futures = {name: [pool.submit(program.compile) for program in each] for name, each in lowered.items()}
        for name, own in trainers.items():
            own._compiled = futures[name]
            wait(own._compiled)
            begun, rows = time.time(), []
            print(f"{name}: compiled after {begun - start:.0f} s", flush=True)
            for report in own:
                metrics = {
                    key: np.asarray(report.metrics[key], float).tolist() for key in KEPT if key in report.metrics
                }
                rows.append({"step": report.step, **metrics})
            took = time.time() - begun
            last = np.array([row["return_mean"] for row in rows if np.isfinite(row["return_mean"][0])][-2:]).mean(0)
            print(f"  mean {last.mean():.0f}, {np.round(np.sort(last)).astype(int)}, {took:.0f} s", flush=True)
            env, preset, settings = cells[name]
            origin = {"env": env, "preset": preset, "settings": settings, "seeds": seeds, "seconds": took}
            origin |= {"device": jax.devices()[0].device_kind, "jax": jax.__version__}
            done[name] = {**origin, "rows": rows}
            (out / "cells.json").write_text(json.dumps(done) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=20)
    given = parser.parse_args()
    main(given.out, given.names, list(range(given.first, given.first + given.seeds)))
