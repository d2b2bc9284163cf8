"""Settings for an environment that nobody tuned, from a short look at it under random actions.

They are guesses: random actions see only a part of what a good policy will. Whatever is set by hand wins.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from moca.config import ConfigError, ExplorationConfig
from moca.envs.check import refuse_broken
from moca.envs.environment import Environment, Spaces
from moca.envs.host import HostEnvironment
from moca.envs.named import named
from moca.exploration import draw_exploration

EPISODES = 16  # at once, each with a first state of its own
STEPS = 500
# Bounds held for a while lead further than actions drawn anew at every step, which cancel out.
ACTIONS = ExplorationConfig(hold=20.0, random="extreme")
TAIL = 0.01  # the share of observations at either end that may be outliers
MARGIN = 0.1  # of the range seen, added at either end
# Of the range, times √d: between two random states there are then as many lengthscales in every dimension d. In the
# paper's tasks (d = 3 and 5) this is about what the paper prints.
LENGTH = 0.075


def time_limit(env: Spaces | str, flatten: bool = False) -> dict[str, Any]:
    """The setting that an environment's own limit of an episode implies; nothing where it has none."""
    env = named(env, flatten) if isinstance(env, str) else env
    limit = env.limit if isinstance(env, HostEnvironment) else None
    return {"env.episode_length": limit} if limit else {}


def defaults(env: Spaces | str, seed: int = 0, steps: int = STEPS, flatten: bool = False) -> dict[str, Any]:
    """Settings by dotted name: range and lengthscales of V, bounds that rewards imply, scales of the noise.

    V stays on the observation itself (`value.encoder` = 0), however large: with the present presets a learned
    encoder was found not to learn.

    Args:
        env: the environment, or a name that a config may have for one.
        seed: of first states and actions.
        steps: how long it is looked at, in sixteen episodes at once.
        flatten: as `env.flatten`, where it is named.
    """
    env = named(env, flatten) if isinstance(env, str) else env
    if isinstance(env, HostEnvironment):
        refuse_broken(env)
    play: Any = _play_on_host if isinstance(env, HostEnvironment) else _play
    observations, rewards = play(env, seed, steps)
    seen = observations.reshape(-1, env.observation_size)
    seen = seen[np.isfinite(seen).all(axis=1)]
    if not len(seen):
        raise ConfigError(
            f"{type(env).__name__} shows nothing that is finite under random actions: moca.check_env says why"
        )
    return _ranges(seen) | _bounds(rewards[np.isfinite(rewards)]) | {"value.encoder": 0}


def _ranges(seen: Float[np.ndarray, "n obs"]) -> dict[str, Any]:
    """Returns the range of each observed dimension, and the length over which values may change there."""
    low, high = np.quantile(seen.astype(np.float64), [TAIL, 1 - TAIL], axis=0)
    middle, half = (low + high) / 2, (0.5 + MARGIN) * (high - low)
    unit = np.maximum(1, np.abs(middle))
    constant = half < 1e-6 * unit
    half = np.where(constant, unit, half)  # a dimension that never changed may do so later
    scales = np.where(constant, np.inf, np.maximum(np.abs(low), np.abs(high)))
    length = min(1.0, LENGTH * seen.shape[1] ** 0.5)
    return {
        "value.low": _rounded(middle - half),
        "value.high": _rounded(middle + half),
        "value.lengthscales": _rounded(2 * half * length),
        "noise.scales": _rounded(scales),
    }


def _bounds(rewards: Float[np.ndarray, "n"]) -> dict[str, float]:
    """Returns bounds on E[V], if rewards keep the sign they had."""
    if not len(rewards) or rewards.min() >= 0:
        return {"value.least": 0.0}
    return {"value.most": 0.0} if rewards.max() <= 0 else {}


def _rounded(numbers: Float[np.ndarray, "obs"]) -> tuple[float, ...]:
    """To three digits: more would be pretence."""
    return tuple(float(f"{number:.3g}") for number in numbers)


def _play(env: Environment, seed: int, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Observations and rewards of random episodes, with a new one begun where one ends."""

    def step(carry: tuple[Any, Key[Array, ""]], action: Float[Array, "act"]) -> tuple[tuple, tuple]:
        state, key = carry
        key, reset_key = jax.random.split(key)
        state, (observation, reward, terminated) = env.step(state, action)
        if env.terminates:
            fresh, _ = env.reset(reset_key)
            state = jax.tree.map(lambda new, old: jnp.where(terminated, new, old), fresh, state)
        return (state, key), (observation, reward)

    def episode(key: Key[Array, ""]) -> tuple[Array, Array]:
        first_key, action_key, later_key = jax.random.split(key, 3)
        state, _ = env.reset(first_key)
        return jax.lax.scan(step, (state, later_key), _actions(env, action_key, steps))[1]

    keys = jax.random.split(jax.random.key(seed), EPISODES)
    observations, rewards = jax.device_get(jax.jit(jax.vmap(episode))(keys))
    return observations, rewards


def _play_on_host(env: HostEnvironment, seed: int, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """The same, step by step."""
    vector = env.vector(EPISODES)
    vector.reset([seed + number for number in range(EPISODES)])
    keys = jax.random.split(jax.random.key(seed), EPISODES)
    actions = np.asarray(jax.vmap(lambda key: _actions(env, key, steps), out_axes=1)(keys))
    outcomes = [vector.step(each) for each in actions]
    return np.stack([each.observation for each in outcomes]), np.stack([each.reward for each in outcomes])


def _actions(env: Spaces, key: Key[Array, ""], steps: int) -> Float[Array, "steps act"]:
    low, high = jnp.array(env.action_low), jnp.array(env.action_high)
    return low + (draw_exploration(key, ACTIONS, steps, env.action_size).random + 1) / 2 * (high - low)
