"""The best return of the light-dark task, by dynamic programming over (mean, width) of the belief.

Under Kalman's filter with known dynamics, the belief is a Markov process: the next width follows
from the width and the action alone, and the next mean is Gaussian. The noise is taken at the
predicted mean, as the filter takes it. The truth differs a little: there the noise depends on the
true position. `simulate` plays a policy in either world.
"""

from collections.abc import Callable

import numpy as np
from numpy.polynomial.hermite_e import hermegauss

from moca.tasks.light_dark import (
    BRIGHT,
    DAMAGE,
    DARK,
    GOAL,
    HARBOUR,
    PROCESS,
    ROCKS,
    SPEED,
    START,
    STEPS,
    deviation,
    reward,
)  # fmt: skip

BeliefPolicy = Callable[[int, np.ndarray, np.ndarray], np.ndarray]  # actions at a time, for means and deviations


def noise(x: np.ndarray) -> np.ndarray:
    """Returns the deviation of the sensor's noise at x."""
    return deviation(DARK, BRIGHT, (), x)


class BeliefPlanner:
    """Values of the belief on a grid, linear between its points; the last axis is of the width."""

    def __init__(self, means: int = 301, widths: int = 31, actions: int = 81) -> None:
        self.means, self.logs = np.linspace(-8, 5, means), np.linspace(np.log(0.01), np.log(1.5), widths)
        self.choices = np.linspace(-1, 1, actions)
        ahead = self.means[:, None, None] + SPEED * self.choices
        prior = np.exp(2 * self.logs)[:, None] + PROCESS**2
        measured = noise(ahead) ** 2
        bell = lambda w: w / np.sqrt(w**2 + prior) * np.exp(-((ahead - GOAL) ** 2) / (w**2 + prior) / 2)  # noqa: E731
        self.reward = (1 + DAMAGE) * bell(HARBOUR) - DAMAGE * bell(ROCKS)
        nodes, weights = hermegauss(11)
        self.weights = weights / weights.sum()
        moved = [ahead + prior / np.sqrt(prior + measured) * node for node in nodes]
        log = np.log(prior * measured / (prior + measured)) / 2
        self.following = [self._corners(mean, log) for mean in moved]

    def best(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns the value of the first belief on the grid, and the best action at each time."""
        value, actions = np.zeros((len(self.means), len(self.logs))), []
        for _ in range(STEPS):
            expected = sum(w * _mixed(value, at) for w, at in zip(self.weights, self.following, strict=True))
            action_values = self.reward + expected
            value = action_values.max(axis=-1)
            actions.append(self.choices[action_values.argmax(axis=-1)])
        return value, np.array(actions[::-1])

    def optimum(self, value: np.ndarray) -> float:
        """Returns the expectation of a value over the first belief of an episode."""
        start = np.linspace(-START, START, 41)[:, None]
        nodes, weights = hermegauss(21)
        mean = start + noise(start) * nodes
        found = _mixed(value, self._corners(mean, np.log(noise(mean))))
        return float((found @ weights / weights.sum()).mean())

    def policy(self, actions: np.ndarray) -> BeliefPolicy:
        """Returns the policy with these actions on the grid at each time."""
        return lambda time, mean, width: _mixed(actions[time], self._corners(mean, np.log(width)))

    def _corners(self, mean: np.ndarray, log: np.ndarray) -> tuple[np.ndarray, ...]:
        """Returns the cell of the grid that holds a belief, and the place within it."""
        places = []
        for numbers, grid in ((mean, self.means), (log, self.logs)):
            at = np.clip((numbers - grid[0]) / (grid[1] - grid[0]), 0, len(grid) - 1)
            cell = np.minimum(at.astype(int), len(grid) - 2)
            places += [cell, at - cell]
        return tuple(places)


def _mixed(value: np.ndarray, at: tuple[np.ndarray, ...]) -> np.ndarray:
    """Returns values between the points of the grid."""
    i, right, j, up = at
    low = (1 - up) * value[i, j] + up * value[i, j + 1]
    return (1 - right) * low + right * ((1 - up) * value[i + 1, j] + up * value[i + 1, j + 1])


def simulate(policy: BeliefPolicy, episodes: int, seed: int = 0, at_truth: bool = True) -> np.ndarray:
    """Returns the returns of a policy that knows the dynamics, over simulated episodes.

    Args:
        policy: The policy.
        episodes: The number of episodes.
        seed: Their seed.
        at_truth: Whether the noise is that at the true position, or at the predicted mean.
    """
    draw = np.random.default_rng(seed)
    x = draw.uniform(-START, START, episodes)
    mean = x + noise(x) * draw.normal(size=episodes)
    width, total = noise(mean), np.zeros(episodes)
    if not at_truth:
        x = mean + width * draw.normal(size=episodes)
    for time in range(STEPS):
        action = policy(time, mean, width)
        x = x + SPEED * action + PROCESS * draw.normal(size=episodes)
        ahead, prior = mean + SPEED * action, width**2 + PROCESS**2
        measured = x + noise(x if at_truth else ahead) * draw.normal(size=episodes)
        gain = prior / (prior + noise(ahead) ** 2)
        mean, width = ahead + gain * (measured - ahead), np.sqrt(prior * (1 - gain))
        total += reward(x, np.exp)
    return total
