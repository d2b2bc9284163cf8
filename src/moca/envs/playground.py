"""MuJoCo Playground's environments, by name.

Its own training wrappers are not used: they restart every episode from one cached state, replace the last observation
by the next first one, and report a time limit as an end.
"""

import os
import sys
from contextlib import redirect_stdout
from ctypes.util import find_library
from functools import cache, partial
from threading import Lock
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from moca.config import ConfigError
from moca.envs.adapters import bounds_of, vector, vector_size
from moca.envs.environment import Environment, Step
from moca.envs.unrolled import unrolled


class Playground(Environment):
    """One Playground environment, simulated by MJX's JAX implementation (Warp's is not deterministic on a GPU).

    Where it observes a dictionary, the agent sees the entry `state`, which is what a policy is meant to see; the others
    are for critics that may know more.
    """

    name: str = eqx.field(static=True)
    env: Any = eqx.field(static=True)
    observation_size: int = eqx.field(static=True)
    action_low: tuple[float, ...] = eqx.field(static=True)
    action_high: tuple[float, ...] = eqx.field(static=True)
    terminates: bool = eqx.field(static=True)

    def __init__(self, name: str) -> None:
        self.name = name
        with _LOADING:
            self.env, self.observation_size, self.action_low, self.action_high, self.terminates = _load(name)

    # Compiled on their own only when called on their own; in a training program this keeps their traces, which take
    # seconds, for all places and programs that step the same environment.
    @partial(jax.jit, static_argnums=0)
    def reset(self, key: Key[Array, ""]) -> tuple[Any, Float[Array, "obs"]]:
        state = self.env.reset(key)
        return state, vector(state.obs)

    @partial(jax.jit, static_argnums=0)
    def step(self, state: Any, action: Float[Array, "act"]) -> tuple[Any, Step]:
        state = unrolled(self.env.step)(state, action)
        return state, Step(vector(state.obs), jnp.asarray(state.reward, jnp.float32), state.done > 0)


_LOADING = Lock()  # threads that load at once would each make their own, and leave standard output redirected


@cache
def _load(name: str) -> tuple[Any, int, tuple[float, ...], tuple[float, ...], bool]:
    """Playground's environment, the size of what it observes, the bounds of its actions, and whether it ends."""
    if "DISPLAY" not in os.environ and find_library("EGL"):
        os.environ.setdefault("MUJOCO_GL", "egl")  # before MuJoCo is imported, so that films need no display
    with redirect_stdout(sys.stderr):  # where what it says about optional parts belongs
        from mujoco_playground import dm_control_suite, registry

    try:
        env = registry.load(name, config_overrides={"impl": "jax"})
    except Exception as error:
        raise ConfigError(
            f"Playground could not load {name} ({type(error).__name__}: {error}). Its robots' models are "
            "downloaded when first used, which needs git and a network"
        ) from error
    size = vector_size(jax.eval_shape(env.reset, jax.random.key(0)).obs, name)
    # The control suite passes an action to the actuators as it is, and never ends an episode; the others
    # rescale it from ±1 themselves, and may.
    suite = name in dm_control_suite.ALL_ENVS
    bounds = env.mj_model.actuator_ctrlrange if suite else [(-1.0, 1.0)] * env.action_size
    low, high = np.asarray(bounds).T
    return env, size, *bounds_of(low, high, (env.action_size,), name), not suite
