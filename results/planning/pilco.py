"""Measures the experience after which agents hold PILCO's cart-pole.

    python results/planning/pilco.py OUT [NAME …] [--seeds 10] [--first 9400]
    python results/planning/pilco.py --draw

`docs/planning.md` has the rule. Each name is one of `CELLS`, by default all of them; one compiled
program has all its seeds. A cell ends when all are solved. OUT/pilco.json is written again as soon
as one has ended. With --draw, docs/images/pilco.png is drawn from the pilco.json beside this file.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import jax
import matplotlib.pyplot as plt
import numpy as np
from run import HERE, trainer

from moca.agents import make_agent
from moca.envs.sensors import make_sensor
from moca.evaluation import rollout
from moca.looks import look
from moca.tasks import pilco_cartpole as task

ENV = "gymnasium:moca.tasks.pilco_cartpole:PilcoCartpole"
EPISODES, ENOUGH, IN_A_ROW = 10, 9, 5  # solved: so many of so many episodes held, so many times in a row
PILCO = 17.5  # seconds, on a real cart-pole
NEAR, LAST = 0.1, 10  # held: the tip within so many metres of the target, in so many last steps


def cell(agent: str, steps: int, **settings: Any) -> tuple[str, str, dict[str, Any]]:
    """A cell of this task, as `run.trainer` takes it."""
    own = {name.replace("__", "."): value for name, value in settings.items()}
    return ENV, "efficient", {**COMMON, "agent": agent, "train.steps": steps, **own}


COMMON = {
    "noise.sigma": 0.01,
    "env.episode_length": task.STEPS,
    "env.action_repeat": 1,
    "train.warmup": task.STEPS,
    "train.eval_episodes": 1,
    "train.eval_every": 10**6,  # `judged` evaluates
}
TASK: dict[str, Any] = {  # where V is to be: the cart leaves the middle by metres under random actions
    "value__low": (-2, -1, -1, -5, -15),
    "value__high": (2, 1, 1, 5, 15),
    "value__lengthscales": (0.6, 0.5, 0.5, 2, 4),
    "value__least": 0.0,
}
CHOSEN: dict[str, Any] = {  # by search, from `efficient`
    "train__gamma": 0.9,
    "train__updates": 60,
    "train__batch": 64,
    "train__horizon": 400,
    "value__bases": 128,
    "value__lr": 1e-2,
    "critic__lr": 3e-3,
    "critic__lr_end": 3e-3,
    "critic__vertex_lr": 3e-3,
    "critic__vertex_lr_end": 3e-3,
    "dynamics__lr": 3e-3,
    "plan__curiosity": 0.3,
    "exploration__hold": 3.0,
    "exploration__probability": 0.0,
    "exploration__sigma": 0.2,
    "exploration__sigma_end": 0.05,
}
SAC: dict[str, Any] = {  # by search
    "train__gamma": 0.9,
    "train__updates": 20,
    "train__batch": 64,
    "train__decay": 1.0,
    "belief__filter": False,
    "sac__width": 64,
    "sac__actor_lr": 1e-3,
    "sac__critic_lr": 1e-3,
    "sac__alpha_lr": 1e-3,
    "sac__tau": 0.02,
    "sac__alpha": 0.1,
    "exploration__hold": 3.0,
}
CELLS = {
    "moca": cell("moca", 600, **TASK, **CHOSEN),
    "moca-ce": cell("moca-ce", 600, **TASK, **CHOSEN),
    "sac": cell("sac", 3000, **SAC),
}


def judged(runs: Any) -> tuple[np.ndarray, np.ndarray]:
    """Returns the tip's distances [run, episode, step] in greedy episodes, and the returns."""

    def one(config: Any, learner: Any, keys: Any) -> Any:
        agent, sensor = make_agent(config, runs.env), make_sensor(config, runs.env)
        play = lambda key: rollout(agent, learner, runs.env, sensor, task.STEPS, key, keep=tip)  # noqa: E731
        tips, episodes = jax.vmap(play)(keys)
        return tips, episodes.reward.sum(-1)

    tip = lambda state, moment: task.tip_distance(state)  # noqa: E731
    if not hasattr(runs, "judge"):
        runs.judge = jax.jit(jax.vmap(one, (0, 0, None)))
    keys = jax.random.split(jax.random.fold_in(jax.random.key(0), runs.episode), EPISODES)
    tips, returns = jax.device_get(runs.judge(runs.configs, runs.learners, keys))
    return tips, returns


def solved(held: np.ndarray) -> list[float | None]:
    """Returns each run's seconds of experience until solved, from counts [evaluation, run]."""
    good = held >= ENOUGH
    streak = [np.flatnonzero(np.convolve(own, np.ones(IN_A_ROW), "valid") == IN_A_ROW) for own in good.T]
    return [round(float((each[0] + 1) * task.STEPS * task.PERIOD), 1) if len(each) else None for each in streak]


def measure(name: str, seeds: list[int]) -> dict[str, Any]:
    """Runs a cell; returns what stands in the file."""
    begun, counts, returns = time.time(), [], []
    runs = trainer(CELLS[name], seeds)
    for report in runs:
        tips, got = judged(runs)
        counts.append(np.sum(tips[:, :, -LAST:].max(-1) < NEAR, axis=1))
        returns.append(got.mean(1))
        found = solved(np.stack(counts))
        if report.step % 80 == 0 or None not in found:
            now, lost = np.round(returns[-1], 1), report.metrics["diverged"].sum()
            took = time.time() - begun
            print(
                f"  {report.step / 10:.0f} s: held {counts[-1]}, return {now}, diverged {lost:.0f}, {took:.0f} s",
                flush=True,
            )
        if None not in found:
            break
    times = [np.inf if each is None else each for each in found]
    print(f"{name}: solved after {found} s, median {np.median(times):g} s", flush=True)
    env, preset, settings = CELLS[name]
    origin = {"env": env, "preset": preset, "settings": settings, "seeds": seeds, "seconds": time.time() - begun}
    origin |= {"device": jax.devices()[0].device_kind, "jax": jax.__version__}
    more = {"held": np.stack(counts).T.tolist(), "return": np.round(np.stack(returns).T, 2).tolist()}
    return {**origin, "solved": found, **more}


def draw() -> None:
    """Draws the returns over seconds of experience, a panel for each agent; a dot where solved."""
    cells = json.loads((HERE / "pilco.json").read_text())
    figure, axes = plt.subplots(1, len(cells), figsize=(11, 3.1), sharey=True, layout="constrained", squeeze=False)
    for axis, each in zip(axes[0], cells.values(), strict=True):
        agent = each["settings"]["agent"]
        colour, returns = look(agent).colour, np.array(each["return"])
        at = (1 + np.arange(returns.shape[1])) * task.STEPS * task.PERIOD
        axis.plot(at, returns.T, color=colour, alpha=0.3, lw=0.8)
        axis.plot(at, np.median(returns, axis=0), color=colour, lw=2.2)
        for own, when in zip(returns, each["solved"], strict=True):
            if when is not None:
                axis.plot(when, own[round(when / at[0]) - 1], "o", color=colour, ms=4)
        axis.axvline(PILCO, color="k", lw=0.8, ls=":")
        axis.annotate(f"PILCO, a real cart: {PILCO} s", (PILCO, 38), (4, 0), textcoords="offset points", fontsize=8)
        axis.set(title=look(agent).label, xlabel="seconds of experience", ylim=(0, 40), xlim=(0, at[-1] * 1.03))
        axis.title.set_fontsize(9.5)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0][0].set_ylabel("return")
    figure.savefig(HERE.parent.parent / "docs" / "images" / "pilco.png", dpi=150)


def main(out: Path, names: list[str], seeds: list[int]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    if unknown := set(names) - set(CELLS):
        raise SystemExit(f"unknown: {', '.join(sorted(unknown))}. Cells: {', '.join(CELLS)}")
    done = {}
    for name in names or CELLS:
        done[name] = measure(name, seeds)
        (out / "pilco.json").write_text(json.dumps(done) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=9400)
    parser.add_argument("--draw", action="store_true")
    given = parser.parse_args()
    if given.draw:
        draw()
    elif given.out is None:
        parser.error("OUT is needed, or --draw")
    else:
        main(given.out, given.names, list(range(given.first, given.first + given.seeds)))
