"""Moments of an ensemble's predictions over an uncertain state, in place of its derivative."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from moca import moments as mm
from moca.dynamics import ACTIVATIONS, GaussianEnsemble
from moca.nets import MLP, matmul


def propagate(ensemble: GaussianEnsemble, belief: mm.Gaussian, action: Float[Array, "act"]) -> mm.GaussianMixture:
    """Returns the members' predictions for an uncertain state, as a mixture of full Gaussians.

    Each member's own variance is taken at the mean of the belief [choice].
    """
    known, means = ensemble.predict(belief.mean, action), means_over(ensemble, belief, action)
    components = mm.Gaussian(means.mean, means.covariance + known.components.covariance)
    return mm.GaussianMixture(known.weights, components)


def means_over(ensemble: GaussianEnsemble, belief: mm.Gaussian, action: Float[Array, "act"]) -> mm.Gaussian:
    """Returns the Gaussian of each member's mean over an uncertain state, along a leading axis.

    The moments are matched layer by layer (`mm.MatchedNetwork`). The activation must be gelu or
    erf: silu has no closed form.
    """
    unit, size = ensemble.statistics.deviation[1], belief.dimension

    def member(network: MLP) -> mm.Gaussian:
        both = mm.propagate(belief, _mean_change(ensemble, network, action), joint=True)
        mean = both.mean[:size] + ensemble.statistics.mean[1] + unit * both.mean[size:]
        onto = jnp.concatenate([jnp.eye(size), jnp.diag(unit)], axis=1)
        return mm.Gaussian(mean, matmul(matmul(onto, both.covariance), onto.T))

    return jax.vmap(member)(ensemble.members)


def _mean_change(ensemble: GaussianEnsemble, network: MLP, action: Float[Array, "act"]) -> mm.MatchedNetwork:
    """Returns one member's mean change, in standard units, as a function of the state alone."""
    name = next(name for name, each in ACTIVATIONS.items() if each is ensemble.members.activation)
    if name == "silu":
        raise ValueError("moments through silu have no closed form: set dynamics.activation to gelu or erf")
    (mean, _), (deviation, _) = ensemble.statistics.mean, ensemble.statistics.deviation
    size = len(mean)
    weights, biases = list(network.weights), list(network.biases)
    first, acting = weights[0][:, :size] / deviation, weights[0][:, size:]
    weights[0], biases[0] = first, biases[0] + acting @ action - first @ mean
    weights[-1], biases[-1] = weights[-1][:size], biases[-1][:size]
    return mm.MatchedNetwork.dense(weights, biases, name)
