"""Small Gymnasium environments, each of which isolates one thing that an adapter can get wrong."""

import gymnasium
import numpy as np
from gymnasium.spaces import Box


class Walk(gymnasium.Env):
    """Two dimensions, two actions with bounds of their own, chance at every step; it ends, and it has a time limit."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(self, render_mode=None, broken=False):
        self.observation_space = Box(-10.0, 10.0, (2,), np.float64)
        self.action_space = Box(np.array([-1.0, 0.5], np.float32), np.array([2.0, 3.0], np.float32))
        self.render_mode, self._broken = render_mode, broken

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._state, self._time = self.np_random.uniform(-0.5, 0.5, 2), 0
        return self._state.copy(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self._time += 1
        push = 0.2 * (np.asarray(action, np.float64) - [0.5, 1.75])
        self._state = np.clip(0.95 * self._state + push + self.np_random.normal(0, 0.05, 2), -10, 10)
        reward = np.nan if self._broken else 1.0 - float(np.sum(self._state**2))
        return self._state.copy(), reward, bool(abs(self._state[0]) > 0.6), self._time == 7, {}

    def render(self):
        picture = np.zeros((33, 48, 3), np.uint8)
        picture[:, : int(np.clip(24 + 20 * self._state[0], 1, 48))] = 255
        return picture if self.render_mode == "rgb_array" else None


class OneOrEndless(gymnasium.Env):
    """At −1 reward one and the end. At 1 reward one for ever, cut off after five steps. It starts at either."""

    def __init__(self):
        self.observation_space = Box(-1.0, 1.0, (1,), np.float32)
        self.action_space = Box(-1.0, 2.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._sign, self._time = self.np_random.choice([-1.0, 1.0]), 0
        return np.array([self._sign], np.float32), {}

    def step(self, action):
        self._time += 1
        return np.array([self._sign], np.float32), 1.0, bool(self._sign < 0), self._time == 5, {}


class Ramp(gymnasium.Env):
    """No chance at all: one fixed start, a number that moves with the actions, a clock, an end after seven steps."""

    observation_names = ("place", "time")

    def __init__(self):
        self.observation_space = Box(-10.0, 10.0, (2,), np.float32)
        self.action_space = Box(np.array([-1.0, 0.5], np.float32), np.array([2.0, 3.0], np.float32))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._state = np.array([0.5, 0.0], np.float32)
        return self._state.copy(), {}

    def step(self, action):
        place = np.float32(0.9) * self._state[0] + np.float32(0.1) * action[0] - np.float32(0.1) * action[1]
        self._state = np.array([place, self._state[1] + np.float32(0.1)], np.float32)
        return self._state.copy(), float(1 - place**2), bool(self._state[1] > 0.65), False, {}


class Linear(gymnasium.Env):
    """Seventeen dimensions that six actions push; being far from zero costs."""

    def __init__(self):
        self.observation_space = Box(-10.0, 10.0, (17,), np.float64)
        self.action_space = Box(-1.0, 1.0, (6,), np.float32)
        fixed = np.random.default_rng(0)
        turn, _ = np.linalg.qr(fixed.normal(size=(17, 17)))
        self._carry, self._push = 0.95 * turn, 0.3 * fixed.normal(size=(17, 6))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._state, self._time = self.np_random.uniform(-1, 1, 17), 0
        return self._state.copy(), {}

    def step(self, action):
        self._time += 1
        self._state = np.clip(self._carry @ self._state + self._push @ action, -10, 10)
        return self._state.copy(), float(-np.mean(self._state**2)), False, self._time == 50, {}


class Matrices(gymnasium.Env):
    """Observations and actions that are matrices; it shows the action it was given."""

    def __init__(self):
        self.observation_space = Box(-9.0, 9.0, (2, 3), np.float64)
        low, high = np.array([[-1.0, -2.0], [0.0, 1.0]]), np.array([[1.0, 2.0], [0.5, 3.0]])
        self.action_space = Box(low, high, dtype=np.float64)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros((2, 3)), {}

    def step(self, action):
        assert self.action_space.contains(action)
        return np.append(action.ravel(), [0.0, 0.0]).reshape(2, 3), 0.0, False, False, {}
