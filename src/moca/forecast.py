"""Forecasts: the states and rewards that an agent expects next, with covariances, in closed form.

A forecast starts from the belief N(m, P) about the state. What the agent will know later is random
from today's point of view: later means of its belief are N(mₖ, Cₖ), around which the state has the
covariance Pₖ that the filter will then have. The policy reacts to the mean alone, so its action
depends on Cₖ, not on Pₖ. The covariance of the state is Cₖ + Pₖ. No sample is drawn.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from moca import moments as mm
from moca.belief import Belief, gained
from moca.nets import matmul
from moca.planning import World, joint_with_action


class Forecast(NamedTuple):
    """The next steps as an agent expects them. Entry k is of the state after k + 1 decisions."""

    mean: Float[Array, "steps obs"]
    covariance: Float[Array, "steps obs obs"]
    action: Float[Array, "steps act"]  # the mean of the action that leads there, in [−1, 1]
    reward: Float[Array, "steps"] | None  # the expected reward on the way there; None if none is learned


def forecast_policy(world: World, belief: Belief, steps: int) -> Forecast:
    """Returns the forecast under the greedy policy, which will react to what it observes.

    Means and covariances move as in `moca.planning`. Each step adds the prediction's own covariance
    to P. The next observation then moves the mean of the belief: with R the noise, P (P + R)⁻¹ P is
    taken from P and added to C. For a linear system this is exact. Late and missing observations
    are taken to arrive in time [choice].
    """
    model, reward, filter, critic = world
    ensemble, size = model.ensemble, belief.mean.shape[0]

    def mean_of(both: Float[Array, "obs_act"]) -> tuple[Float[Array, "obs"], mm.GaussianMixture]:
        mixture = ensemble.predict(both[:size], both[size:])
        return mixture.mean, mixture

    def step(carry: tuple[Array, Array, Array], _: None) -> tuple[tuple[Array, Array, Array], Forecast]:
        mean, moved, unknown = carry
        both, joint = (each[0] for each in joint_with_action(critic, mean[None], moved[None])[:2])
        expected = None if reward is None else reward.expectation(ensemble.statistics, mm.Gaussian(both, joint))
        slope, mixture = jax.jacfwd(mean_of, has_aux=True)(both)
        mean, aleatoric, epistemic = mm.decompose(mixture, full=True)
        inherited = matmul(matmul(slope[:, :size], unknown), slope[:, :size].T)
        prior = symmetric(inherited + aleatoric + epistemic)
        moved = symmetric(matmul(matmul(slope, joint), slope.T))
        total, noise = moved + prior, filter.noise_variance(model, mean)
        shown = prior if noise is None else gained(prior[None], noise[None])[0]
        return (mean, moved + shown, prior - shown), Forecast(mean, total, both[size:], expected)

    nothing = jnp.zeros((size, size))
    known = nothing if belief.covariance is None else belief.covariance
    return jax.lax.scan(step, (belief.mean, nothing, known), length=steps)[1]


def symmetric(matrix: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """Returns a matrix without the asymmetry of rounding errors."""
    return (matrix + matrix.T) / 2
