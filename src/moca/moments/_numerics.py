"""Arithmetic shared by the closed forms."""

from functools import partial

import jax.numpy as jnp

# Full float32 products. Recent GPUs default to TF32, whose relative error on a basis (median 3e-4,
# up to 8e-3) is as large as the effect of a covariance.
dot = partial(jnp.dot, precision="highest")
