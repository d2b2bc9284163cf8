"""Diagnostics of the model: calibration, the two kinds of uncertainty, and what the covariance does to the value."""

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


def ce_bias(predictions: mm.GaussianMixture, value: mm.Function) -> tuple[Float[Array, "n"], Float[Array, "n"]]:
    """E[V(s′)], and E[V(s′)] − V(E[s′]), which certainty equivalence leaves out, for each prediction."""
    expected = jax.vmap(lambda mixture: mm.expectation(mm.moment_match(mixture), value))(predictions)
    return expected, expected - jax.vmap(lambda mixture: value(mixture.mean))(predictions)


def describe_bias(
    taken: mm.GaussianMixture, ends: tuple[mm.GaussianMixture, mm.GaussianMixture], value: mm.Function
) -> dict[str, Float[Array, ""]]:
    """Returns the bias of certainty equivalence, beside the change in value that an action makes.

    `ce_bias` and `ce_bias_std` are its mean and deviation over the transitions, `expected_std` is the deviation of
    E[V(s′)] itself. From one end of the actions to the other the expectation changes by `action_gap` and the bias by
    `ce_gap` (root mean squares): where the second is a sizeable part of the first, ignoring the covariance changes
    which action is best.

    Args:
        taken: predictions for the actions that were taken.
        ends: predictions for the least and for the greatest action.
        value: V.
    """
    expected, bias = ce_bias(taken, value)
    (low, low_bias), (high, high_bias) = (ce_bias(predictions, value) for predictions in ends)
    rms = lambda x: jnp.sqrt(jnp.mean(jnp.square(x)))  # noqa: E731
    return {
        "ce_bias": bias.mean(),
        "ce_bias_std": bias.std(),
        "expected_std": expected.std(),
        "action_gap": rms(high - low),
        "ce_gap": rms(high_bias - low_bias),
    }
