"""# The closed forms

What is V worth at a state that is not known exactly? `moca.moments` answers without sampling: a distribution, a
function, one verb. This script compares the answer with what planners use in its place. About five seconds:

    python examples/closed_forms.py
"""

import jax
import jax.numpy as jnp

from moca import moments as mm

# A narrow hill at the origin, in two dimensions, and a belief beside it that is not sure where it is.
value = mm.RBF(weights=jnp.array([1.0]), centers=jnp.zeros((1, 2)), precision=jnp.array([25.0, 25.0]))
belief = mm.DiagonalGaussian(mean=jnp.array([0.4, 0.0]), variance=jnp.array([0.09, 0.01]))

# Certainty equivalence asks V at the mean, which lies off the hill.
print(f"V(E[s])               {value(belief.mean):.4f}")

# The expectation sees that part of the belief lies on the hill.
exact = mm.expectation(belief, value)
print(f"E[V(s)]               {exact:.4f}")

# Samples see it too, on average. Each row is one target a learner would be given.
keys = jax.random.split(jax.random.key(0), 1000)
for count in (4, 16, 64):
    targets = jax.vmap(lambda key, n=count: mm.expectation(mm.Empirical(belief.sample(key, n)), value))(keys)
    print(f"{count:>3} samples           {targets.mean():.4f} ± {targets.std():.4f}")

# How uncertain is V itself? That is closed form, too, for this pair.
print(f"sd of V(s)            {jnp.sqrt(mm.variance(belief, value)):.4f}")

# An ensemble is a mixture. Its two kinds of uncertainty add up to the variance of the one Gaussian that matches it.
members = mm.DiagonalGaussian(jnp.array([[0.1, 0.0], [0.7, 0.0]]), jnp.full((2, 2), 0.01))
mixture = mm.GaussianMixture(jnp.array([0.5, 0.5]), members)
mean, aleatoric, epistemic = mm.decompose(mixture)
print(f"matched mean          {mean}, aleatoric {aleatoric}, epistemic {epistemic}")
print(f"E[V] of the mixture   {mm.expectation(mixture, value):.4f}")
print(f"E[V] once matched     {mm.expectation(mm.moment_match(mixture), value):.4f}")

# Everything is differentiable, in the belief and in the function, and batches go through vmap.
pull = jax.grad(lambda mean: mm.expectation(mm.DiagonalGaussian(mean, belief.variance), value))(belief.mean)
print(f"∂E[V]/∂mean           {pull}")

# Which pairs there are:
print(mm.compatibility())
