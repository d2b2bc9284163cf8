"""A harbour in the dark, and a light in the opposite direction: where knowing has a value.

The position is one number, x′ = x + 2 a + 0.02 ε. In the harbour there is a reward; on the rocks at
either side of it there is damage. The agent sees its position through noise: little at the light,
and a hundred times the variance in the dark, where it starts and where the harbour is. So the best
policy sails away from the harbour until it knows where it is, and then comes back with closed eyes.
On its way out and on its way back it passes the same places. Only the width of its belief tells it
which way it is going.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key
from rich.console import Console

from moca.agents import make_agent
from moca.config import Config, override
from moca.config.registry import add_noise
from moca.drivers import ScanTrainer
from moca.envs.environment import Environment, Step
from moca.envs.sensors import make_sensor
from moca.evaluation import evaluate, rollout
from moca.studies.statistics import mean_t

LIGHT, DUSK, GOAL = -6.0, 5.0, 3.0  # it is bright up to LIGHT, then darker over a length of DUSK
START = 2.0  # episodes start uniformly within this distance of 0
SPEED, PROCESS = 2.0, 0.02
BRIGHT, DARK = 0.1, 1.0  # deviations of the noise
HARBOUR, ROCKS, DAMAGE = 0.2, 0.6, 0.5  # the widths of two bells around the goal, the weight of the second
STEPS = 20  # of an episode


def reward(x: Any, exp: Callable[[Any], Any] = jnp.exp) -> Any:
    """Returns the reward at x: 1 in the middle of the harbour, below 0 on the rocks around it."""
    bell = lambda width: exp(-(((x - GOAL) / width) ** 2) / 2)  # noqa: E731
    return (1 + DAMAGE) * bell(HARBOUR) - DAMAGE * bell(ROCKS)


def deviation(sigma: Any, sigma_min: Any, scales: tuple[float, ...], observation: Any) -> Any:
    """σ_min up to the light, σ in the dark, and in between a straight line of the logarithm."""
    return sigma_min * (sigma / sigma_min) ** ((observation - LIGHT) / DUSK).clip(0, 1)


add_noise("light-dark", deviation)


class LightDark(Environment):
    """The task; the observation is x, before noise."""

    terminates: bool = eqx.field(static=True, default=False)
    observation_size: int = eqx.field(static=True, default=1)
    action_low: tuple[float, ...] = eqx.field(static=True, default=(-1.0,))
    action_high: tuple[float, ...] = eqx.field(static=True, default=(1.0,))

    def reset(self, key: Key[Array, ""]) -> tuple[Any, Float[Array, "1"]]:
        start_key, noise_key = jax.random.split(key)
        x = jax.random.uniform(start_key, (1,), minval=-START, maxval=START)
        return (x, noise_key), x

    def step(self, state: Any, action: Float[Array, "1"]) -> tuple[Any, Step]:
        x, key = state
        key, noise_key = jax.random.split(key)
        x = x + SPEED * action + PROCESS * jax.random.normal(noise_key, (1,))
        return (x, key), Step(x, reward(x[0]), jnp.array(False))


GAMMA = 0.95
CONFIG = override(
    Config(),
    {
        "noise.kind": "light-dark", "noise.sigma": DARK, "noise.sigma_min": BRIGHT, "belief.filter": True,
        "env.episode_length": STEPS, "train.steps": 60_000, "train.batch": 128, "train.gamma": GAMMA,
        "train.updates": 2, "train.warmup": 300, "train.decay": 0.02,
        "train.eval_episodes": 1, "train.eval_every": 1_000_000,
        "value.kind": "erf", "value.bases": 128, "value.low": [-8], "value.high": [6], "value.lengthscales": [0.3],
        "value.lr": 3e-3, "value.basis_lr": 3e-3, "value.most": 1 / (1 - GAMMA),
        "critic.width": 64, "critic.head": "slope", "critic.keepalive": 0,
        "critic.lr": 1e-3, "critic.lr_end": 1e-3, "critic.vertex_lr": 1e-3, "critic.vertex_lr_end": 1e-3,
        "dynamics.members": 3, "dynamics.width": 8, "dynamics.depth": 1, "dynamics.lr": 2e-3,
        "exploration.probability": 0.4, "exploration.probability_end": 0.1, "exploration.anneal": 1.0,
        "exploration.sigma": 0.2, "exploration.sigma_end": 0.05, "exploration.hold": 4, "exploration.random": "extreme",
    },
)  # fmt: skip
AGENTS: dict[str, dict[str, Any]] = {
    f"{agent}, {name}": {"agent": agent, "belief.width": width}
    for agent in ("moca", "moca-ce", "bnaf")
    for name, width in (("mean and width", True), ("mean alone", False))
}
EPISODES = 1000  # of the evaluation of each seed
SHOWN = 6  # episodes of one seed, for the figure
FIRST_SEED = 0


class Trained(NamedTuple):
    """The results of the seeds of one agent."""

    returns: np.ndarray  # of the greedy policy of each seed, averaged over episodes
    paths: np.ndarray  # truth, mean and deviation, of each step and episode, of the seed in the middle


def train(config: Config, seeds: int) -> Trained:
    """Trains that many seeds of one agent in one program."""
    env = LightDark()
    trainer = ScanTrainer([config] * seeds, range(FIRST_SEED, FIRST_SEED + seeds), env)
    for _ in trainer:
        pass
    agent, sensor = make_agent(config, env), make_sensor(config, env)

    def judged(learner: Any) -> Float[Array, ""]:
        return evaluate(agent, learner, env, sensor, STEPS, EPISODES, jax.random.key(0))["return_mean"]

    def played(learner: Any, key: Key[Array, ""]) -> Float[Array, "steps 3"]:
        keep = lambda state, moment: (moment.truth[0], moment.policy.belief)  # noqa: E731
        (truth, belief), _ = rollout(agent, learner, env, sensor, STEPS, key, keep=keep)
        return jnp.stack([truth, belief.mean[:, 0], jnp.sqrt(belief.covariance[:, 0, 0])], axis=-1)

    returns = np.asarray(jax.jit(jax.vmap(judged))(trainer.learners), float)
    middle = jax.tree.map(lambda leaf: leaf[int(np.argsort(returns)[seeds // 2])], trainer.learners)
    paths = jax.jit(jax.vmap(played, (None, 0)))(middle, jax.random.split(jax.random.key(1), SHOWN))
    return Trained(returns, np.asarray(paths, float))


def run(seeds: int = 10, config: Config = CONFIG, console: Console | None = None) -> dict[str, Trained]:
    """Trains each agent, with and without the width of the belief in V."""
    console, results = console or Console(stderr=True), {}
    for name, settings in AGENTS.items():
        with console.status(f"Training {seeds} seeds of {name} …"):
            results[name] = train(override(config, settings), seeds)
        console.print(f"{name}: {mean_t(results[name].returns).brief}")
    return results
