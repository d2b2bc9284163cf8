"""Playground's CartpoleBalance as a Gymnasium environment, for libraries that step one from Python.

Run as a script, it prints its speed without learning, an upper bound for libraries that use it.
"""

import time
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from measure import ENVIRONMENT, EPISODE, report
from mujoco_playground import registry


class Cartpole(gym.Env):
    """Cartpole with observations x, cos θ, sin θ, ẋ, θ̇.

    Episodes end only by truncation at the time limit.
    """

    def __init__(self, seed: int = 0) -> None:
        env = registry.load(ENVIRONMENT, config_overrides={"impl": "jax"})
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (env.observation_size,), np.float32)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (env.action_size,), np.float32)
        self._reset = jax.jit(env.reset)

        def step(state: Any, action: jax.Array) -> tuple[Any, jax.Array]:
            state = env.step(state, action)
            return state, jnp.append(state.obs, state.reward)  # one array, so that one copy reaches the host

        self._step = jax.jit(step, donate_argnums=0)
        self._seeds = np.random.default_rng(seed)
        self._state: Any = None
        self._count = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        if seed is not None:
            self._seeds = np.random.default_rng(seed)
        self._state = self._reset(jax.random.key(int(self._seeds.integers(2**31))))
        self._count = 0
        return np.array(self._state.obs, np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        self._state, result = self._step(self._state, np.asarray(action, np.float32))
        result = np.array(result)
        self._count += 1
        return result[:-1], float(result[-1]), False, self._count >= EPISODE, {}


def main() -> None:
    env = Cartpole()
    env.reset()
    actions = np.random.default_rng(0).uniform(-1, 1, (3 * EPISODE, 1)).astype(np.float32)
    for action in actions[:100]:
        env.step(action)
    start = time.perf_counter()
    for action in actions:
        env.step(action)
    report("adapter", "none", 0, 1, len(actions), time.perf_counter() - start)


if __name__ == "__main__":
    main()
