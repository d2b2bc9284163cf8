"""# Training an agent

MoCA learns to balance a pole under observation noise; then it is evaluated, asked about values and predictions, filmed,
and saved as a file that runs without jax. Two minutes on a laptop:

    python examples/training.py [STEPS]
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

import moca

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 40_000

# Two seeds, one compiled program. Any setting of the preset can be changed by keyword: critic__lr=3e-4 is `critic.lr`.
agent = moca.MoCA("CartpoleBalance", seeds=2, noise__sigma=0.05)
agent.learn(steps, progress=True)

# Fresh episodes of the greedy policies, one row per seed.
for row in agent.evaluate(episodes=5):
    print(f"seed {row['seed']}: return {row['return_mean']:.0f}")

# Questions about a state: x, cos θ, sin θ, and the two velocities. An upright pole, and one that leans.
states = np.array([[0.0, 1.0, 0.0, 0.0, 0.0], [0.0, 0.9, 0.44, 0.0, 0.0]])
print("actions", agent.predict(states).ravel())
print("values ", agent.value(states))

# What the model expects to happen next, and how it divides its doubt.
prediction = agent.model.predict(states, agent.predict(states))
print("next θ̇ ", prediction.mean[:, 4], "±", np.sqrt(prediction.covariance[:, 4, 4]))
print("of which not knowing the dynamics:", np.sqrt(prediction.epistemic[:, 4, 4]))

# Under noise the agent acts on a belief that grows over an episode; `policy` keeps it.
policy = agent.policy()
noisy = states[1] + 0.05 * np.random.default_rng(0).normal(size=(3, 5))
print("three looks at one state:", [float(policy(observation)[0]) for observation in noisy])

# The run directory holds everything; `moca.load` brings it back. The exported file needs NumPy alone.
out = Path(tempfile.mkdtemp(prefix="cartpole-", dir="."))  # a fresh one every time
print(agent.save(out / "run"))
print(agent.export(out / "exported.npz"))
print(agent.render(path=out / "film.mp4")[0])
