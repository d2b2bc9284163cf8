"""Diagnostics of the model: calibration, the two kinds of uncertainty, and what the covariance does to the value."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float
from scipy.special import ndtri

from moca import moments as mm
from moca.dynamics import GaussianEnsemble
from moca.replay import Transition

CENTRAL = {percent: float(ndtri(0.5 + percent / 200)) for percent in range(10, 100, 10)}  # in standard deviations


class Outlook(NamedTuple):
    """The predicted and the actual observation of s′, for each transition and dimension."""

    mean: Float[Array, "n obs"]
    variance: Float[Array, "n obs"]  # of the observation, all that is known to add to it included
    aleatoric: Float[Array, "n obs"]  # what the members take for chance, on average
    epistemic: Float[Array, "n obs"]  # what they disagree on
    following: Float[Array, "n obs"]

    @property
    def distance(self) -> Float[Array, "n obs"]:
        """The distance of the outcome from its prediction, in predicted standard deviations."""
        return jnp.abs(self.following - self.mean) / jnp.sqrt(self.variance)


def outlook(predictions: mm.GaussianMixture, episode: Transition, noise: Float[Array, "n obs"] | None) -> Outlook:
    """Predictions of the transitions of an episode beside their outcomes.

    `noise` are the variances of the observations where a filter knows them; they are no part of the two kinds of
    uncertainty.
    """
    mean, aleatoric, epistemic = mm.decompose(predictions, full=False)
    variance, following = aleatoric + epistemic, episode.next_observation
    if noise is not None and episode.measured is not None and episode.spread is not None:
        variance, following = variance + episode.spread + noise, episode.measured
    return Outlook(mean, variance, aleatoric, epistemic, following)


def describe_model(
    ensemble: GaussianEnsemble, episode: Transition, noise: Float[Array, "n obs"] | None
) -> dict[str, Float[Array, ""]]:
    """Averages over the transitions of an episode (actions in [−1, 1]).

    `coverage_1sigma` is the share of dimensions in which what was observed of s′ lies within one predicted standard
    deviation; a calibrated Gaussian has 68.3 %. `calibration_10` … `calibration_90` are the shares within its central
    10 … 90 %. `noise` are the variances of the observations where a filter knows
    them; they are no part of the two deviations.
    """
    seen = outlook(ensemble.predict_batch(episode.observation, episode.action), episode, noise)
    shares = {f"calibration_{percent}": jnp.mean(seen.distance <= z) for percent, z in CENTRAL.items()}
    return shares | {
        "coverage_1sigma": jnp.mean(jnp.abs(seen.following - seen.mean) <= jnp.sqrt(seen.variance)),
        "aleatoric_std": jnp.sqrt(seen.aleatoric).mean(),
        "epistemic_std": jnp.sqrt(seen.epistemic).mean(),
    }


def ce_bias(predictions: mm.GaussianMixture, value: mm.Function) -> tuple[Float[Array, "n"], Float[Array, "n"]]:
    """E[V(s′)], and E[V(s′)] − V(E[s′]), which certainty equivalence leaves out, for each prediction."""
    expected = jax.vmap(lambda mixture: mm.expectation(mm.moment_match(mixture), value))(predictions)
    return expected, expected - jax.vmap(lambda mixture: value(mixture.mean))(predictions)


class Stakes(NamedTuple):
    """The value of the next state of each transition, and how far actions and the covariance change it."""

    expected: Float[Array, "n"]  # E[V(s′)]
    bias: Float[Array, "n"]  # E[V(s′)] − V(E[s′])
    action_gap: Float[Array, "n"]  # the change of the first from one end of the actions to the other
    ce_gap: Float[Array, "n"]  # and of the second


def stakes(
    taken: mm.GaussianMixture, ends: tuple[mm.GaussianMixture, mm.GaussianMixture], value: mm.Function
) -> Stakes:
    """The stakes of each transition.

    Args:
        taken: predictions for the actions that were taken.
        ends: predictions for the least and for the greatest action.
        value: V.
    """
    (low, low_bias), (high, high_bias) = (ce_bias(predictions, value) for predictions in ends)
    return Stakes(*ce_bias(taken, value), high - low, high_bias - low_bias)


def describe_bias(found: Stakes) -> dict[str, Float[Array, ""]]:
    """Returns the bias of certainty equivalence, beside the change in value that an action makes.

    `ce_bias` and `ce_bias_std` are its mean and deviation over the transitions, `expected_std` is the deviation of
    E[V(s′)] itself. From one end of the actions to the other the expectation changes by `action_gap` and the bias by
    `ce_gap` (root mean squares): where the second is a sizeable part of the first, ignoring the covariance changes
    which action is best.
    """
    rms = lambda x: jnp.sqrt(jnp.mean(jnp.square(x)))  # noqa: E731
    return {
        "ce_bias": found.bias.mean(),
        "ce_bias_std": found.bias.std(),
        "expected_std": found.expected.std(),
        "action_gap": rms(found.action_gap),
        "ce_gap": rms(found.ce_gap),
    }
