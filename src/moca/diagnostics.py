"""What the model is worth: calibration, the two kinds of uncertainty, and what covariance does to the value."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from moca import moments as mm
from moca.dynamics import GaussianEnsemble
from moca.replay import Transition


def describe_model(ensemble: GaussianEnsemble, value: mm.Function, episode: Transition) -> dict[str, Float[Array, ""]]:
    """Averages over the transitions of an episode (actions in [−1, 1]).

    `coverage_1sigma` is the share of dimensions in which s′ lies within one predicted standard deviation; a calibrated
    Gaussian has 68.3 %. `ce_bias` is E[V(s′)] − V(E[s′]), what certainty equivalence leaves out.
    """

    def one(s: Array, a: Array, following: Array) -> dict[str, Float[Array, ""]]:
        mixture = ensemble.predict(s, a)
        mean, aleatoric, epistemic = mm.decompose(mixture, full=False)
        matched = mm.moment_match(mixture)
        return {
            "coverage_1sigma": jnp.mean(jnp.abs(following - mean) <= jnp.sqrt(aleatoric + epistemic)),
            "aleatoric_std": jnp.sqrt(aleatoric).mean(),
            "epistemic_std": jnp.sqrt(epistemic).mean(),
            "ce_bias": mm.expectation(matched, value) - value(mean),
        }

    each = jax.vmap(one)(episode.observation, episode.action, episode.next_observation)
    return jax.tree.map(lambda x: x.mean(), each)
