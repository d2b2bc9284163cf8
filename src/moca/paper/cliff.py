"""A cliff, where the expectation of the value decides, and a hill, where it does not.

The state is one number, y′ = y + step · a + noise · ε, and the reward rises towards an edge. Beyond
the edge of the *cliff* there is no reward, and the ground is mud, which takes long to leave. Beyond
the crest of the *hill* nothing changes. Both have the same noise. Episodes never terminate, so a
fall shows only in the value of the next state, where the agents differ. In one dimension, values
and policies can be computed exactly, up to the resolution of a grid.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key
from rich.console import Console
from scipy.special import ndtr

from moca.agents import make_agent
from moca.config import Config, override
from moca.drivers import ScanTrainer
from moca.envs.environment import Environment, Step
from moca.studies.statistics import mean_t

EDGE, END = 1.0, 1.5
STEP, NOISE = 0.1, 0.1
RISE = 0.5  # lengthscale of the reward
START = 0.5  # episodes start uniformly below this
GAMMA = 0.95
CHECK = 500  # steps between two checks of the policies


class Ground(Environment):
    """The cliff, or with `grip` = 1 the hill; the observation is y."""

    grip: float = eqx.field(static=True, default=0.05)  # factor on steps beyond the edge
    noise: float = eqx.field(static=True, default=NOISE)
    terminates: bool = eqx.field(static=True, default=False)
    observation_size: int = eqx.field(static=True, default=1)
    action_low: tuple[float, ...] = eqx.field(static=True, default=(-1.0,))
    action_high: tuple[float, ...] = eqx.field(static=True, default=(1.0,))

    def reset(self, key: Key[Array, ""]) -> tuple[Any, Float[Array, "1"]]:
        start_key, noise_key = jax.random.split(key)
        y = jax.random.uniform(start_key, (), maxval=START)
        return (y, noise_key), y[None]

    def step(self, state: Any, action: Float[Array, "1"]) -> tuple[Any, Step]:
        y, key = state
        key, noise_key = jax.random.split(key)
        grip = jnp.where(y > EDGE, self.grip, 1.0)
        next_y = jnp.clip(y + grip * (STEP * action[0] + self.noise * jax.random.normal(noise_key)), 0, END)
        return (next_y, key), Step(next_y[None], self.reward(y), jnp.array(False))

    def reward(self, y: Any) -> Any:
        """Returns the reward at y: a Gaussian bump at the edge; on the cliff, zero beyond it."""
        bell = jnp.exp(-(((y - EDGE) / RISE) ** 2) / 2)
        return jnp.where((y > EDGE) & (self.grip < 1), 0.0, bell)


SETTINGS = {"cliff": Ground(), "hill": Ground(grip=1.0)}
CONFIG = override(
    Config(),
    {
        "env.episode_length": 100, "train.steps": 10_000, "train.batch": 64, "train.gamma": GAMMA, "train.warmup": 1000,
        "train.eval_episodes": 1, "train.eval_every": 1_000_000, "train.decay": 0.1,
        "value.kind": "erf", "value.bases": 64, "value.low": [0], "value.high": [END], "value.lengthscales": [0.2],
        "value.lr": 3e-3, "value.basis_lr": 3e-3, "value.least": 0, "value.most": 1 / (1 - GAMMA),
        "critic.width": 32, "critic.head": "slope", "critic.keepalive": 0, "critic.target_period": 50,
        "critic.lr": 1e-3, "critic.lr_end": 1e-3, "critic.vertex_lr": 1e-3, "critic.vertex_lr_end": 1e-3,
        "dynamics.members": 3, "dynamics.width": 32,
    },
)  # fmt: skip
AGENTS: dict[str, dict[str, Any]] = {
    "moca": {"agent": "moca"},
    "moca-mc, 4 samples": {"agent": "moca-mc", "dynamics.samples": 4},
    "moca-mc, 1 sample": {"agent": "moca-mc", "dynamics.samples": 1},
    "bnaf": {"agent": "bnaf"},
    "moca-ce": {"agent": "moca-ce"},
}


class Trained(NamedTuple):
    """The results of the seeds of one agent."""

    steps: np.ndarray  # steps of the checks
    curve: np.ndarray  # score per seed and check
    margins: np.ndarray  # final margin per seed
    values: np.ndarray  # final V per seed and grid point


class Planner:
    """Exact values on a grid, in float64; V is linear between grid points.

    Args:
        env: The environment.
        certain: Plan as if y′ were its mean, as certainty equivalence does.
    """

    def __init__(self, env: Ground, certain: bool = False, points: int = 301) -> None:
        self.y = np.linspace(0, END, points)
        self.beyond = self.y > EDGE + 1e-9
        self.grip = np.where(self.beyond, env.grip, 1.0)
        self.reward = np.asarray(env.reward(np.where(self.beyond, self.y, np.minimum(self.y, EDGE))), float)
        noise = 0.0 if certain else env.noise
        self.firm, self.mud = _smoothing(self.y, noise), _smoothing(self.y, env.grip * noise)

    def means(self, action: np.ndarray) -> np.ndarray:
        """Returns E[y′] at each grid point (first axis), before clipping at the ends."""
        return ((self.y + 0 * action.T) + self.grip * STEP * action.T).T

    def action_values(self, value: np.ndarray, action: np.ndarray) -> np.ndarray:
        """Returns r + γ E[V(y′)] for actions with one row per grid point."""
        means, beyond = self.means(action), self.beyond
        expected = np.empty(means.shape)
        expected[~beyond] = np.interp(means[~beyond], self.y, self.firm @ value)
        expected[beyond] = np.interp(means[beyond], self.y, self.mud @ value)
        return (self.reward + GAMMA * expected.T).T

    def value(self, action: np.ndarray) -> np.ndarray:
        """Returns V of the policy with these actions, to 1e-7."""
        means = np.clip(self.means(action), 0, END)
        left = np.clip(np.searchsorted(self.y, means) - 1, 0, len(self.y) - 2)
        share = ((means - self.y[left]) / (self.y[1] - self.y[0]))[:, None]
        spread = lambda matrix: (1 - share) * matrix[left] + share * matrix[left + 1]  # noqa: E731
        transition = np.where(self.beyond[:, None], spread(self.mud), spread(self.firm))
        value = np.zeros(len(self.y))
        for _ in range(400):  # a direct solve is a hundred times slower if BLAS threads share cores
            value = self.reward + GAMMA * transition @ value
        return value

    def best(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns the optimal value and actions, by policy iteration over 81 actions."""
        actions = np.broadcast_to(np.linspace(-1, 1, 81), (len(self.y), 81))
        action, value = np.zeros(len(self.y)), np.zeros(len(self.y))
        for _ in range(100):
            before, value = value, self.value(action)
            if np.allclose(before, value, rtol=0, atol=1e-9):
                break
            action = actions[0][self.action_values(value, actions).argmax(axis=1)]
        return value, action

    def score(self, action: np.ndarray) -> float:
        """Returns (1 − γ) V of a policy, averaged over starts: its mean reward, at most 1."""
        return (1 - GAMMA) * float(self.value(action)[self.y <= START].mean())

    def margin(self, action: np.ndarray) -> float:
        """Returns the distance from the edge at which a policy comes to rest."""
        return EDGE - float(self.y[np.argmax(action <= 0)])


def _smoothing(y: np.ndarray, sigma: float) -> np.ndarray:
    """Returns the matrix that maps V on the grid to E[V(clip(m + σ ε))] at each mean m of the grid.

    It is exact for V linear between the points: a hat function is a second difference of ramps,
    whose expectations have closed forms.
    """
    if sigma == 0:
        return np.eye(len(y))
    gap = y[:, None] - y
    ramp = gap * ndtr(gap / sigma) + sigma * np.exp(-((gap / sigma) ** 2) / 2) / np.sqrt(2 * np.pi)
    slope = np.diff(ramp, axis=1) / (y[1] - y[0])
    ends = np.ones((len(y), 1))
    return np.diff(np.hstack([-ends, slope, 0 * ends]), axis=1)


def train(config: Config, env: Ground, seeds: int) -> Trained:
    """Trains that many seeds of one agent in one program."""
    trainer, planner = ScanTrainer([config] * seeds, range(seeds), env), Planner(env)
    agent, y = make_agent(config, env), jnp.asarray(planner.y)[:, None]
    greedy = jax.jit(jax.vmap(lambda learner: jax.vmap(lambda s: agent.act(learner, s)[0])(y)))
    steps, curve = [], []
    for report in trainer:
        if report.step % CHECK == 0:
            actions = np.asarray(greedy(trainer.learners), float)
            steps.append(report.step)
            curve.append([planner.score(action) for action in actions])
    values = jax.vmap(lambda learner: jax.vmap(lambda s: agent.value(learner, s))(y))(trainer.learners)
    margins = np.array([planner.margin(action) for action in actions])
    return Trained(np.array(steps), np.array(curve).T, margins, np.asarray(values, float))


def run(seeds: int = 10, config: Config = CONFIG, console: Console | None = None) -> dict[str, dict[str, Trained]]:
    """Trains each agent on cliff and hill with the same settings; programs run in parallel."""
    console = console or Console(stderr=True)
    jobs = [(setting, name) for setting in SETTINGS for name in AGENTS]

    def one(job: tuple[str, str]) -> Trained:
        trained = train(override(config, AGENTS[job[1]]), SETTINGS[job[0]], seeds)
        console.print(f"{job[0]}, {job[1]}: {mean_t(trained.curve[:, -1]).brief}")
        return trained

    with console.status(f"Training {len(jobs)} programs of {seeds} runs …"), ThreadPoolExecutor(os.cpu_count()) as pool:
        results = dict(zip(jobs, pool.map(one, jobs), strict=True))
    return {setting: {name: results[setting, name] for name in AGENTS} for setting in SETTINGS}


def exact(setting: str) -> dict[str, float]:
    """Returns scores and margins of the optimal and of the certainty-equivalent policy."""
    planner = Planner(SETTINGS[setting])
    found: dict[str, float] = {}
    for name, certain in (("optimum", False), ("certainty_equivalent", True)):
        _, action = Planner(SETTINGS[setting], certain).best()
        found |= {name: planner.score(action), f"{name}_margin": planner.margin(action)}
    return found


def summary(results: dict[str, dict[str, Trained]]) -> dict[str, Any]:
    """Returns the results as plain data: exact values, and those of each agent."""
    return {
        setting: exact(setting)
        | {
            name: {
                "mean": trained.curve[:, -1].mean(),
                "half_width_95": mean_t(trained.curve[:, -1]).half_width,
                "margin": trained.margins.mean(),
                "scores": trained.curve[:, -1].round(4).tolist(),
                "margins": trained.margins.round(4).tolist(),
                "steps": trained.steps.tolist(),
                "curve": trained.curve.mean(axis=0).round(4).tolist(),
            }
            for name, trained in agents.items()
        }
        for setting, agents in results.items()
    }
