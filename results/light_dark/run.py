"""Trains agents on the light-dark task, with and without the width of the belief in V.

    python results/light_dark/run.py OUT [--part NUMBER] [--seeds 10] [--first 0]

Writes OUT/summary.json: the optimum, the best policy found that does not see the width, and the
returns of every seed. With --part it only computes one part of it, so that parts can run side by
side: 0 is the references, 1 to 6 the agents. docs/light-dark.md has the task, the rule and the
table.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
from planner import BeliefPlanner, BeliefPolicy, simulate

from moca.agents import make_agent
from moca.config import Config, override
from moca.drivers import ScanTrainer
from moca.envs.sensors import make_sensor
from moca.evaluation import evaluate
from moca.looks import label
from moca.studies.statistics import mean_t
from moca.tasks.light_dark import BRIGHT, DARK, GOAL, SPEED, STEPS, LightDark

GAMMA = 0.97
CONFIG = override(
    Config(),
    {
        "noise.kind": "light-dark", "noise.sigma": DARK, "noise.sigma_min": BRIGHT, "belief.filter": True,
        "env.episode_length": STEPS, "train.steps": 99_000, "train.batch": 128, "train.gamma": GAMMA,
        "train.updates": 2, "train.warmup": 300, "train.decay": 0.005,
        "train.eval_episodes": 1, "train.eval_every": 1_000_000,
        "value.kind": "erf", "value.bases": 128, "value.low": [-8], "value.high": [6], "value.lengthscales": [1],
        "value.lr": 1e-2, "value.basis_lr": 1e-2, "value.most": 1 / (1 - GAMMA),
        "critic.width": 64, "critic.head": "slope", "critic.keepalive": 0,
        "critic.lr": 1e-3, "critic.lr_end": 1e-3, "critic.vertex_lr": 1e-3, "critic.vertex_lr_end": 1e-3,
        "dynamics.members": 3, "dynamics.width": 8, "dynamics.depth": 1, "dynamics.lr": 2e-3,
        "exploration.probability": 0.5, "exploration.probability_end": 0.1, "exploration.anneal": 0.5,
        "exploration.sigma": 0.3, "exploration.sigma_end": 0.1, "exploration.hold": 6,
    },
)  # fmt: skip
AGENTS: dict[str, dict[str, Any]] = {
    f"{agent}, {name}": {"agent": agent, "belief.width": width}
    for agent in ("moca", "moca-ce", "bnaf")
    for name, width in (("mean and width", True), ("mean alone", False))
}
EPISODES = 1000  # of the evaluation of each seed


def best_blind(rounds: int = 40, seed: int = 0) -> BeliefPolicy:
    """Returns the best policy found that does not see the width.

    It is a function of the mean, linear between whole numbers, found by the cross-entropy method.
    """
    knots, draw = np.arange(-8, 6), np.random.default_rng(seed)

    def blind(actions: np.ndarray) -> BeliefPolicy:
        return lambda time, mean, width: np.asarray(np.interp(mean, knots, actions)).clip(-1, 1)

    middle, spread = np.clip((GOAL - knots) / SPEED, -1, 1), np.full(len(knots), 0.5)
    for number in range(rounds):
        tried = middle + spread * draw.normal(size=(50, len(knots)))
        scores = [simulate(blind(actions), 500, number).mean() for actions in tried]
        kept = tried[np.argsort(scores)[-10:]]
        middle, spread = 0.3 * middle + 0.7 * kept.mean(axis=0), 0.3 * spread + 0.7 * kept.std(axis=0)
    return blind(middle)


def references(episodes: int = 20_000) -> dict[str, float]:
    """Returns the optimum on the grid, and simulated returns.

    These are of the optimal policy, of the best one that does not see the width, and of doing
    nothing.
    """
    planner = BeliefPlanner()
    value, actions = planner.best()
    policies: dict[str, BeliefPolicy] = {
        "optimum_simulated": planner.policy(actions),
        "best_blind": best_blind(),
        "nothing": lambda time, mean, width: 0 * mean,
    }
    found = {name: float(simulate(policy, episodes, seed=1).mean()) for name, policy in policies.items()}
    return {"optimum": planner.optimum(value)} | found


def share(returns: Any, found: dict[str, float]) -> Any:
    """Returns returns in % of the way from doing nothing to the optimum."""
    return 100 * (returns - found["nothing"]) / (found["optimum"] - found["nothing"])


def trained(config: Config, seeds: list[int]) -> np.ndarray:
    """Returns the return of each seed's greedy policy, averaged over episodes."""
    env = LightDark()
    trainer = ScanTrainer([config] * len(seeds), seeds, env)
    for _ in trainer:
        pass
    agent, sensor, key = make_agent(config, env), make_sensor(config, env), jax.random.key(0)
    judge = lambda learner: evaluate(agent, learner, env, sensor, STEPS, EPISODES, key)["return_mean"]  # noqa: E731
    return np.asarray(jax.jit(jax.vmap(judge))(trainer.learners), float)


def compute(part: int, seeds: list[int]) -> dict[str, Any]:
    """Returns one part of the summary: the references, or the returns of an agent's seeds."""
    if part == 0:
        return references()
    name, settings = list(AGENTS.items())[part - 1]
    returns = trained(override(CONFIG, settings), seeds)
    print(name, returns.round(2).tolist(), flush=True)
    return {name: returns.round(4).tolist()}


def summary(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the references, and for each agent its returns in % of the way to the optimum."""
    found, *agents = parts
    out: dict[str, Any] = {name: round(number, 3) for name, number in found.items()}
    for name, returns in ((name, np.array(each)) for cell in agents for name, each in cell.items()):
        percents = share(returns, found)
        out[name] = {
            "percent": round(float(percents.mean()), 1),
            "half_width_95": round(mean_t(percents).half_width, 1),
            "percents": percents.round(1).tolist(),
            "returns": returns.round(3).tolist(),
        }
    return out


def table() -> list[str]:
    """Returns the lines of the table of docs/light-dark.md."""
    found = json.loads((Path(__file__).parent / "summary.json").read_text())
    lines = ["| agent | V sees | % of the optimum | ± | seeds |", "|---|---|---|---|---|"]
    for name in AGENTS:
        agent, sees = name.split(", ")
        cell, seeds = found[name], ", ".join(f"{percent:.0f}" for percent in found[name]["percents"])
        lines.append(f"| {label(agent)} | {sees} | {cell['percent']} | {cell['half_width_95']} | {seeds} |")
    return lines


def main(out: Path, part: int | None, seeds: list[int]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    paths = [out / f"part-{number}.json" for number in range(1 + len(AGENTS))]
    for number in range(len(paths)) if part is None else [part]:
        paths[number].write_text(json.dumps(compute(number, seeds)))
    if all(path.exists() for path in paths):
        whole = summary([json.loads(path.read_text()) for path in paths])
        (out / "summary.json").write_text(json.dumps(whole, indent=1) + "\n")
        for path in paths:
            path.unlink(missing_ok=True)
        print(out / "summary.json")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--part", type=int)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0)
    arguments = parser.parse_args()
    main(arguments.out, arguments.part, list(range(arguments.first, arguments.first + arguments.seeds)))
