"""# A file that registers a class of V

A sum of ramps, its mean under a Gaussian, and the name it goes by.

    MOCA_PLUGINS=examples/ramp.py moca train --value ramp --sigma 0.05
"""

import jax
import jax.numpy as jnp
from jax.scipy.stats import norm
from jaxtyping import Array, Float

import moca
from moca import moments as mm
from moca.values import directions, points_within


class Ramp(mm.Function):
    """V(x) = Σᵢ wᵢ max(0, uᵢᵀx + bᵢ)."""

    weights: Float[Array, "m"]
    slopes: Float[Array, "m d"] = mm.role("basis")
    kinks: Float[Array, "m"] = mm.role("basis")

    @property
    def dimension(self):
        return self.slopes.shape[-1]

    def _evaluate(self, x):
        return self.weights @ jax.nn.relu(self.slopes @ x + self.kinks)


# Under a Gaussian the argument of each ramp is N(m, s²), and
# E[max(0, ·)] = m Φ(m/s) + s φ(m/s).
def gaussian_ramp(p, f):
    """E[V] under a Gaussian, diagonal or full: `p.along(u)` is uᵀΣu."""
    mean, deviation = f.slopes @ p.mean + f.kinks, jnp.sqrt(p.along(f.slopes) + 1e-12)
    ratio = mean / deviation
    return f.weights @ (mean * norm.cdf(ratio) + deviation * norm.pdf(ratio))


mm.CLOSED_FORMS[mm.Gaussian, Ramp] = mm.CLOSED_FORMS[mm.DiagonalGaussian, Ramp] = (
    gaussian_ramp
)


# V starts at zero, with its ramps spread over the range of the states. The parameters
# in which V is not linear are its bases.
def make_ramp(settings, observation_size, key):
    """V before it learns."""
    slope_key, point_key = jax.random.split(key)
    slopes = directions(settings, slope_key)
    kinks = -jnp.sum(slopes * points_within(settings, point_key), axis=1)
    return Ramp(jnp.zeros(settings.bases), slopes, kinks)


moca.register_value("ramp", make_ramp)
