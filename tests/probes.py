"""Environments so small that their values are known: each isolates one thing that a learner can get wrong."""

from types import SimpleNamespace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from tools.quick_xla import FUSED

from moca.config import Config, override
from moca.devices import compiling
from moca.envs.environment import Environment, Step
from moca.evaluation import SCORES


class Probe(Environment):
    """One observed number, one action in [−1, 2]."""

    terminates: bool = eqx.field(static=True, default=True)
    observation_size: int = eqx.field(static=True, default=1)
    action_low: tuple[float, ...] = eqx.field(static=True, default=(-1.0,))
    action_high: tuple[float, ...] = eqx.field(static=True, default=(2.0,))

    def reset(self, key: jax.Array) -> tuple[Any, jax.Array]:
        sign = jnp.where(jax.random.bernoulli(key), 1.0, -1.0)
        state = self.first(sign)
        return state, state[None]

    def first(self, sign):
        return jnp.ones(())


class Constant(Probe):
    """Reward one, and the end: V = 1. Without terminal masking it would be 1 / (1 − γ)."""

    def step(self, state, action):
        return state, Step(state[None], jnp.ones(()), jnp.array(True))


class Observed(Probe):
    """The reward is what was observed: V(s) = s."""

    def first(self, sign):
        return sign

    def step(self, state, action):
        return state, Step(state[None], state, jnp.array(True))


class Discounted(Probe):
    """Two steps, a reward after the second: V(0) = γ, V(1) = 1."""

    def first(self, sign):
        return jnp.zeros(())

    def step(self, state, action):
        last = state > 0.5
        return jnp.ones(()), Step(jnp.ones(1), last * 1.0, last)


class Endless(Probe):
    """Reward one for ever, cut off by the time limit: V = 1 / (1 − γ). Less if a time-out is taken for an end."""

    terminates: bool = eqx.field(static=True, default=False)

    def step(self, state, action):
        return state, Step(state[None], jnp.ones(()), jnp.array(False))


class Aimed(Probe):
    """Reward 1 − (a − (1 + s) / 2)², so the best action is 0 at s = −1 and 1 at s = 1, and V = 1."""

    def first(self, sign):
        return sign

    def step(self, state, action):
        return state, Step(state[None], 1 - jnp.sum((action - (1 + state) / 2) ** 2), jnp.array(True))


class Drift(Environment):
    """Two dimensions that move with the action and never end: for tests of the loop itself."""

    terminates: bool = eqx.field(static=True, default=False)
    observation_size: int = eqx.field(static=True, default=2)
    action_low: tuple[float, ...] = eqx.field(static=True, default=(-1.0,))
    action_high: tuple[float, ...] = eqx.field(static=True, default=(1.0,))

    def reset(self, key):
        state = jax.random.uniform(key, (2,), minval=-1.0)
        return state, state

    def step(self, state, action):
        state = 0.9 * state + 0.1 * jnp.stack([state[1], action[0]])
        return state, Step(state, 1 - jnp.sum(state**2), jnp.array(False))


def known(gamma: float) -> list[tuple]:
    """Each probe with its states, their values, the range of values, and the best actions where there is one best."""
    return [
        (Constant(), [1.0], [1.0], 1.0, None),
        (Observed(), [-1.0, 1.0], [-1.0, 1.0], 2.0, None),
        (Discounted(), [0.0, 1.0], [gamma, 1.0], 1.0, None),
        (Endless(), [1.0], [1 / (1 - gamma)], 1 / (1 - gamma), None),
        (Aimed(), [-1.0, 1.0], [1.0, 1.0], 5.0, [0.0, 1.0]),
    ]


def tiny(**settings: Any) -> Config:
    """A config for these: small networks, short episodes; `train__steps=…` sets `train.steps`."""
    small = {
        "agent": "sac",
        "env.episode_length": 20,
        "train.steps": 60,
        "train.batch": 16,
        "train.warmup": 10,
        "train.eval_episodes": 2,
        "sac.width": 16,
    }
    return override(Config(), small | {name.replace("__", "."): value for name, value in settings.items()})


@jax.jit
def first(tree):
    """What belongs to the first run; one program, where indexing each array would be one for each."""
    return jax.tree.map(lambda leaf: leaf[0], tree)


def optimised(trainer):
    """The programs of a trainer that runs longer than it compiles: training has optimisations that tests leave out."""
    train, *others = trainer.lowered()
    best = SimpleNamespace(compile=lambda: train.compile(compiler_options=FUSED))
    return compiling([best, *others])


def without_scores(trainer):
    """The trainer with an evaluation that gives no numbers, for tests of what is learned: compiling it is a third."""
    nothing = dict.fromkeys(SCORES, jnp.full(len(trainer.state.diverged), jnp.nan))

    def no_scores(number, runs, donated):
        return nothing

    trainer._evaluation = jax.jit(no_scores)
    return trainer
