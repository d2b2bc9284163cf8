"""# A class of V of your own

Any function whose mean under a Gaussian can be written down can serve as V. Here it is
a sum of ramps, a layer of rectified units. Class, closed form and registration are in
`examples/ramp.py`. This script checks the closed form and trains an agent with it. It
takes a minute on a laptop:

    python examples/own_value.py [STEPS]
"""

import sys

import jax
import jax.numpy as jnp
from ramp import Ramp

import moca
from moca import moments as mm

# Is it right? Against many samples, with the error that so many samples leave.
value = Ramp(
    jnp.array([1.0, -2.0]), jnp.array([[1.0, 0.5], [0.3, -1.0]]), jnp.array([0.1, 0.4])
)
belief = mm.DiagonalGaussian(jnp.array([0.2, -0.1]), jnp.array([0.5, 0.3]))
values = jax.vmap(value)(belief.sample(jax.random.key(0), 1_000_000))
error = values.std() / 1000
exact = mm.expectation(belief, value)
print(f"closed form {exact:.4f}, samples {values.mean():.4f} ± {error:.4f}")
assert abs(exact - values.mean()) < 5 * error

# Importing the file has registered it: to an agent it is a setting like any other.
steps = int(sys.argv[1]) if len(sys.argv) > 1 else 30_000
agent = moca.MoCA("CartpoleBalance", noise__sigma=0.05, value__kind="ramp").learn(
    steps, progress=True
)
for row in agent.evaluate(episodes=5):
    print(f"seed {row['seed']}: return {row['return_mean']:.0f}")
