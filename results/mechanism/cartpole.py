"""Why MoCA on Cartpole at σ = 0.05 stays below a linear controller that sees the same observations, which has 996.

    python results/mechanism/cartpole.py train moca      # and bnaf: policies along training, into runs/mechanism
    python results/mechanism/cartpole.py look            # judges them; writes cartpole.json and cartpole.png beside it

Preset `raw`, seeds 2000 to 2003, 100,000 steps, a policy kept every 2,000. In an earlier configuration the return passed
920 near 25,000 steps and settled at 860. All returns below are over fresh episodes, not those by which a peak was found.
*Peak* is a seed's policy with the largest mean of three evaluations in a row, *late* its policies of the last tenth.

Written before the first run, each hypothesis with what it predicts and the number that refutes it:

H0  There is a drop: peak − late is at least 20 points on fresh episodes, in the mean over seeds. Refuted below 20; then
    only the distance of the late policies from 996 is left to explain.
H1  Late policies react too strongly to the noise: gains grow from peak to late and scaling them down recovers the
    return. Refuted if the late gain on angle and angular velocity (of μ̃, averaged over the noise at upright) is less
    than 1.1 times that at the peak, or if the best of the scales 0.25 and 0.5 adds less than 20 points to the late
    policies.
H2  The fixed point of a value that takes the observation for the state is itself this policy. Such a value plans in
    another world: the state is drawn anew around each observation, so σ acts as a process noise of √2 σ = 0.07 per step.
    In that world late policies must be at least as good as those at the peak, though they are worse in the real one.
    Refuted if they are worse there by more than two standard errors over seeds; or if the best linear policy of that
    world has 960 or more in the real one, so that planning in the wrong world costs too little.
    That world is simulated twice: with the state anywhere around the observation (flat), and with the state drawn given
    the observation and the spread of the replay near upright (prior), which is what a model fitted to the replay sees.
H3  The data narrow: late replay holds few falls, so the value away from upright is forgotten. Refuted if at least 10 %
    of all transitions in the replay at the end have the pole more than 60° off, or if the late policies' episodes
    without a fall score as low as all of them (within 20 points).
H4  The policy only jitters, because rates stay constant: the mean action of the last tenth's policies is then better
    than these policies are. Refuted if it is better by less than 20 points.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from moca import presets
from moca.agents import make_agent
from moca.training import Trainer, make_env, use_device
from moca.values import first

SIGMA, STEPS, EVERY, SEEDS = 0.05, 100_000, 2_000, range(2000, 2004)
KEPT = Path("runs/mechanism")
HERE = Path(__file__).parent
GOOD = np.array([0.11, 1.87, 0.34, 0.88])  # of x, θ, ẋ, θ̇: found by search on noisy observations
SCALES, WINDOWS, LONGEST = (0.25, 0.5, 1.0, 2.0), (1, 2, 4, 8), 8
MEASURED = ("return_mean", "return_noise_free", "overestimation", "curvature", "saturation", "train_return", "q_mean")


def config_of(agent: str) -> Any:
    settings = {"agent": agent, "noise.sigma": SIGMA, "train.steps": STEPS, "train.eval_every": EVERY // 1000}
    return presets.build("raw", "CartpoleBalance", settings)


def train(name: str) -> Path:
    """Policies, evaluations and the replay of all seeds."""
    use_device(None)
    config = config_of(name)
    trainer = Trainer([config] * len(SEEDS), SEEDS)
    kept: list[list[np.ndarray]] = []
    metrics: dict[str, list] = {m: [] for m in MEASURED}
    for report in trainer:
        if report.step % EVERY:
            continue
        kept.append([np.asarray(leaf) for leaf in jax.tree.leaves(jax.vmap(first)(trainer.learners.critics))])
        for m in MEASURED:
            metrics[m].append(report.metrics[m])
        if report.step % 10_000 == 0:
            print(report.step, report.metrics["return_mean"].round(), flush=True)
    KEPT.mkdir(parents=True, exist_ok=True)
    path = KEPT / f"cartpole-{name}.npz"
    leaves = {f"leaf{i}": np.stack(each) for i, each in enumerate(zip(*kept, strict=True))}
    np.savez_compressed(path, replay=np.asarray(trainer.state.replay[:, :STEPS, :6]), **leaves, **metrics)
    return path


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("train",))
    parser.add_argument("agent", nargs="?", choices=("moca", "bnaf"))
    arguments = parser.parse_args()
    print(train(arguments.agent))
