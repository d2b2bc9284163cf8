"""Adapters for environments of other JAX libraries.

Their automatic resets and time limits are not used: the training loop restarts and truncates
episodes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from moca.config import ConfigError
from moca.envs.environment import Described, Environment, Step, bounds_of, vector, vector_size

FOREVER = 2**30  # steps


class Gymnax(Described, Environment):
    """A gymnax environment with a bounded Box of actions; its time limit is removed.

    Args:
        env: The environment, the first result of `gymnax.make`.
        params: Its parameters, the second result; the environment's default if not given.
    """

    env: Any = eqx.field(static=True)
    params: Any = eqx.field(static=True)

    def __init__(self, env: Any, params: Any = None) -> None:
        params = env.default_params if params is None else params
        if hasattr(params, "max_steps_in_episode"):  # gymnax before 1.0 reports this limit as a termination
            params = params.replace(max_steps_in_episode=FOREVER)
        self.env, self.params = env, params
        space, name = env.action_space(params), type(env).__name__
        if not hasattr(space, "low"):
            raise ConfigError(
                f"actions of {name} must be a Box, not {type(space).__name__}: MoCA's agents need continuous actions"
            )
        self.action_low, self.action_high = bounds_of(space.low, space.high, space.shape, name)
        self.observation_size = vector_size(jax.eval_shape(env.reset_env, jax.random.key(0), params)[0], name)
        self.terminates = True

    def reset(self, key: Key[Array, ""]) -> tuple[Any, Float[Array, "obs"]]:
        reset_key, later_key = jax.random.split(key)
        observation, state = self.env.reset_env(reset_key, self.params)
        return (jax.tree.map(jnp.asarray, state), later_key), vector(observation)

    def step(self, state: Any, action: Float[Array, "act"]) -> tuple[Any, Step]:
        inner, key = state
        step_key, later_key = jax.random.split(key)
        shaped = action.reshape(self.env.action_space(self.params).shape)
        observation, inner, reward, terminated, _ = self.env.step_env(step_key, inner, shaped, self.params)
        step = Step(vector(observation), jnp.asarray(reward, jnp.float32).reshape(()), jnp.asarray(terminated, bool))
        return (inner, later_key), step


class Brax(Described, Environment):
    """An environment with the interface of `brax.envs.Env`.

    `reset(key)` and `step(state, action)` return a state with `obs`, `reward` and `done`. If
    `state.info` has a `truncation`, it is treated as a time limit and not as a termination.

    Args:
        env: The environment, without wrappers that restart or vectorise it.
        action_low: Lower bounds of the actions; −1 each if not given, as in Brax's own
            environments.
        action_high: Upper bounds; 1 each if not given.
    """

    env: Any = eqx.field(static=True)

    def __init__(
        self, env: Any, action_low: Sequence[float] | None = None, action_high: Sequence[float] | None = None
    ) -> None:
        self.env, name, layer = env, type(env).__name__, env
        while layer is not None:
            if "AutoReset" in type(layer).__name__ or "Vmap" in type(layer).__name__:
                raise ConfigError(
                    f"{type(layer).__name__} restarts or vectorises the environment, which MoCA's loop does itself: "
                    "pass the environment without it: brax.envs.get_environment(…) instead of brax.envs.create(…)"
                )
            layer = vars(layer).get("env")
        low = -1.0 if action_low is None else np.asarray(action_low)
        high = 1.0 if action_high is None else np.asarray(action_high)
        self.action_low, self.action_high = bounds_of(low, high, (env.action_size,), name)
        self.observation_size = vector_size(jax.eval_shape(env.reset, jax.random.key(0)).obs, name)
        self.terminates = True

    def reset(self, key: Key[Array, ""]) -> tuple[Any, Float[Array, "obs"]]:
        state = self.env.reset(key)
        return state, vector(state.obs)

    def step(self, state: Any, action: Float[Array, "act"]) -> tuple[Any, Step]:
        copied = jax.tree.map(lambda leaf: leaf, state)  # Brax modifies the dictionaries of its input state
        state = self.env.step(copied, action)
        cut = state.info.get("truncation", 0.0) if isinstance(state.info, Mapping) else 0.0
        terminated = (state.done > 0) & ~(jnp.asarray(cut) > 0)
        # Else a time limit would look like a termination in the next step.
        state = state.replace(done=terminated.astype(state.done.dtype))
        return state, Step(vector(state.obs), jnp.asarray(state.reward, jnp.float32), terminated)
