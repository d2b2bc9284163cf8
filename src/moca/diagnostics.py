"""What the model is worth: calibration, the two kinds of uncertainty, and what covariance does to the value."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float
from scipy.special import ndtri

from moca import moments as mm
from moca.dynamics import GaussianEnsemble
from moca.replay import Transition

CENTRAL = {percent: float(ndtri(0.5 + percent / 200)) for percent in range(10, 100, 10)}  # in standard deviations


def describe_model(
    ensemble: GaussianEnsemble, episode: Transition, noise: Float[Array, "n obs"] | None
) -> dict[str, Float[Array, ""]]:
    """Averages over the transitions of an episode (actions in [−1, 1]).

    `coverage_1sigma` is the share of dimensions in which what was observed of s′ lies within one predicted standard
    deviation; a calibrated Gaussian has 68.3 %. `calibration_10` … `calibration_90` are the shares within its central
    10 … 90 %. `noise` are the variances of the observations where a filter knows
    them; they are no part of the two deviations.
    """
    mixtures = ensemble.predict_batch(episode.observation, episode.action)
    mean, aleatoric, epistemic = mm.decompose(mixtures, full=False)
    variance, following = aleatoric + epistemic, episode.next_observation
    if noise is not None and episode.measured is not None and episode.spread is not None:
        variance, following = variance + episode.spread + noise, episode.measured
    distance = jnp.abs(following - mean) / jnp.sqrt(variance)
    shares = {f"calibration_{percent}": jnp.mean(distance <= z) for percent, z in CENTRAL.items()}
    return shares | {
        "coverage_1sigma": jnp.mean(jnp.abs(following - mean) <= jnp.sqrt(variance)),
        "aleatoric_std": jnp.sqrt(aleatoric).mean(),
        "epistemic_std": jnp.sqrt(epistemic).mean(),
    }


def ce_bias(predictions: mm.GaussianMixture, value: mm.Function) -> Float[Array, ""]:
    """The mean of E[V(s′)] − V(E[s′]): what certainty equivalence leaves out."""
    each = jax.vmap(lambda mixture: mm.expectation(mm.moment_match(mixture), value) - value(mixture.mean))
    return each(predictions).mean()
