"""# An environment of your own

A boat crosses a river to a landing place. The current is strongest in the middle, only its rudder can be set, and the
boat's position is measured with noise. Two functions describe it; everything else is MoCA's. Two minutes on a laptop:

    python examples/own_environment.py [STEPS]
"""

import sys

import equinox as eqx
import jax
import jax.numpy as jnp

import moca
from moca.envs.environment import Environment, Step


class River(Environment):
    """State: how far across, how far downstream of the landing place, heading, in [0, 1] × [−2, 2] × [−1, 1]."""

    observation_size: int = eqx.field(static=True, default=3)
    action_low: tuple[float, ...] = eqx.field(static=True, default=(-1.0,))
    action_high: tuple[float, ...] = eqx.field(static=True, default=(1.0,))
    terminates: bool = eqx.field(static=True, default=False)

    def reset(self, key):
        across, down = jax.random.uniform(key, (2,), minval=jnp.array([0.0, -0.5]), maxval=jnp.array([0.3, 0.5]))
        state = jnp.stack([across, down, 0.0])
        return state, state

    def step(self, state, action):
        across, down, heading = state
        current = 4 * across * (1 - across)
        heading = jnp.clip(heading + 0.2 * action[0], -1, 1)
        across = jnp.clip(across + 0.05 * jnp.cos(heading * jnp.pi / 2), 0, 1)
        down = jnp.clip(down + 0.05 * (current + 1.5 * jnp.sin(heading * jnp.pi / 2)), -2, 2)
        state = jnp.stack([across, down, heading])
        reward = jnp.exp(-10 * ((across - 1) ** 2 + down**2))  # highest at the landing place
        return state, Step(state, reward, jnp.array(False))


steps = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000

# First have it checked: shapes, bounds, purity, use of keys, ends. A fault is a sentence with what to do about it.
faults = moca.check_env(River())
print("\n".join(map(str, faults)) or "no fault found")

# Nobody tuned anything for this river: the range of V is taken from a short look at it, and written into config.json.
agent = moca.MoCA(
    River(), seeds=2, noise__sigma=0.05, env__episode_length=100, env__action_repeat=1, train__warmup=500
).learn(steps, progress=True)
print("range of V:", agent.config.value.low, agent.config.value.high)

# How good is that? Doing nothing drifts downstream; a return near 70 reaches the landing place and stays there.
idle = 0.0
state, _ = River().reset(jax.random.key(0))
for _ in range(100):
    state, outcome = River().step(state, jnp.zeros(1))
    idle += float(outcome.reward)
print(f"doing nothing: {idle:.1f}")
for row in agent.evaluate(episodes=10):
    print(f"MoCA, seed {row['seed']}: {row['return_mean']:.1f}")
