"""# A policy at 100 Hz

An exported policy in a control loop: 100 decisions a second from NumPy alone, as on a
machine that has no JAX. The plant is a cart with a pole, simulated here, that is
measured with noise. Some samples get lost, and once the loop stalls, as loops do on a
busy computer. Ten seconds, or as many as you say:

    python examples/control_loop.py [SECONDS] [FILE]

FILE is what `moca export` wrote for CartpoleBalance; by default it is the trained
policy that comes with the package.
"""

import gc
import sys
import time

import numpy as np

from moca.deploy import Policy, pretrained

PERIOD = 0.01  # seconds between two decisions
LOST = 0.02  # share of samples that never arrive
NOISE = 0.05  # standard deviation of each measured number
STALL = 0.025  # seconds for which the loop stands still, once


class Cartpole:
    """A cart of 1 kg on a rail, with a pole of 0.1 kg and 1 m on it.

    State: x, θ, ẋ, θ̇, with θ = 0 upright.

    A decision of the policy stands for 0.02 s of it. It is simulated, and so it can run
    at twice its speed here.
    """

    def __init__(self, rng):
        self.rng, self.state, self.lost = rng, rng.uniform(-0.1, 0.1, 4), 0

    def read(self):
        """x, cos θ, sin θ, ẋ, θ̇ with noise; NaN if the sample was lost."""
        x, angle, speed, turning = self.state
        measured = np.array(
            [x, np.cos(angle), np.sin(angle), speed, turning]
        ) + NOISE * self.rng.normal(size=5)
        if self.rng.random() < LOST:
            self.lost += 1
            return np.full(5, np.nan)
        return measured

    def hold(self, action):
        """Goes on for one decision with this action."""
        for _ in range(20):
            x, angle, speed, turning = self.state
            sin, cos = np.sin(angle), np.cos(angle)
            force = 10 * action[0] + 0.05 * turning**2 * sin  # 0.05 = 0.1 kg × 0.5 m
            mass = np.array([[1.1, 0.05 * cos], [0.05 * cos, 0.1 / 3]])
            speed, turning = np.array([speed, turning]) + 0.001 * np.linalg.solve(
                mass, [force, 0.05 * 9.81 * sin]
            )
            self.state = np.array(
                [x + 0.001 * speed, angle + 0.001 * turning, speed, turning]
            )


def run(policy, plant, seconds):
    """Returns how long decisions took, how late they began (ms), cos θ, and faults."""
    took, late, upright, counts = [], [], [], {"deadlines missed": 0, "actions held": 0}
    ticks = round(seconds / PERIOD)
    action = np.zeros(1)
    due = time.perf_counter() + PERIOD
    for tick in range(ticks):
        time.sleep(max(0.0, due - time.perf_counter()))
        began = time.perf_counter()
        measured = plant.read()
        if tick == ticks // 2:
            time.sleep(STALL)
        decided = time.perf_counter()
        try:
            new = policy(measured)  # after a lost sample the filter relies on its model
        except ValueError:  # no belief, no sample: hold; a real plant should stop here
            new, counts["actions held"] = action, counts["actions held"] + 1
            policy.reset()
        took.append(time.perf_counter() - decided)
        late.append(began - due)
        upright.append(np.cos(plant.state[1]))
        due += PERIOD
        missed = int((time.perf_counter() - due) // PERIOD) + 1
        for _ in range(missed):  # the plant kept the last action
            plant.hold(action)
            due += PERIOD
        if missed > 0:
            counts["deadlines missed"] += 1
            # The filter assumes that `new` was applied in time: start again.
            policy.reset()
        plant.hold(action := new)
    return 1000 * np.array(took), 1000 * np.array(late), np.array(upright), counts


def told(name, milliseconds):
    median, most = np.percentile(milliseconds, [50, 99])
    worst = milliseconds.max()
    return f"{name}: median {median:.2f} ms, 99 % below {most:.2f}, worst {worst:.2f}"


seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0
policy = (
    Policy.load(sys.argv[2]) if len(sys.argv) > 2 else pretrained("CartpoleBalance")
)
plant = Cartpole(np.random.default_rng(0))
for _ in range(20):  # warm up: the first calls are slow
    policy(np.zeros(5))
policy.reset()
gc.disable()  # no pauses for garbage; nothing here creates reference cycles

took, late, upright, counts = run(policy, plant, seconds)
assert not {"jax", "jaxlib", "equinox"} & set(sys.modules)
print(f"{len(took):,} decisions at {1 / PERIOD:.0f} Hz, from NumPy alone")
print(told("a decision takes", took))
print(told("it begins late by", late))
print(
    ", ".join(
        f"{what}: {count}"
        for what, count in {"samples lost": plant.lost, **counts}.items()
    )
)
print(f"cos θ, mean of the second half: {upright[len(upright) // 2 :].mean():.3f}")
