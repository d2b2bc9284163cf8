"""Diagnostics: the model's calibration and uncertainty, the covariance's effect on V."""

from statistics import NormalDist
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from moca import moments as mm
from moca.dynamics import GaussianEnsemble
from moca.replay import Transition, variances

# Half-widths of central intervals, in standard deviations.
CENTRAL = {percent: NormalDist().inv_cdf(0.5 + percent / 200) for percent in range(10, 100, 10)}
REPEATS = 8  # independent draws of moca-mc's targets, from which their variance is measured


class Outlook(NamedTuple):
    """The predicted and the actual observation of s′, for each transition and dimension."""

    mean: Float[Array, "n obs"]
    variance: Float[Array, "n obs"]  # of the observation, including observation noise
    aleatoric: Float[Array, "n obs"]  # the members' average variance
    epistemic: Float[Array, "n obs"]  # the variance of the members' means
    next_observation: Float[Array, "n obs"]

    @property
    def error(self) -> Float[Array, "n obs"]:
        """The outcome less its prediction, in predicted standard deviations."""
        return (self.next_observation - self.mean) / jnp.sqrt(self.variance)

    @property
    def distance(self) -> Float[Array, "n obs"]:
        """The size of the error."""
        return jnp.abs(self.error)


def outlook(predictions: mm.GaussianMixture, episode: Transition, noise: Float[Array, "n obs"] | None) -> Outlook:
    """Returns the predictions of an episode's transitions together with their outcomes.

    `noise` holds the variances of the observation noise if a filter knows them. They are not
    included in the aleatoric and epistemic parts.
    """
    mean, aleatoric, epistemic = mm.decompose(predictions, full=False)
    variance, next_observation = aleatoric + epistemic, episode.next_observation
    if noise is not None and episode.measured is not None and episode.spread is not None:
        variance, next_observation = variance + variances(episode.spread, noise.shape[-1]) + noise, episode.measured
    return Outlook(mean, variance, aleatoric, epistemic, next_observation)


def check_filter(seen: Outlook, episode: Transition) -> dict[str, Float[Array, ""]]:
    """Returns two checks of a filter, from the innovations: the errors of predicted observations.

    `innovation_squared` is their mean square, in predicted variances: 1 if these are right.
    `innovation_correlation` is the correlation of successive innovations. It is 0 for the best
    filter, negative if the filter takes the observation noise for smaller than it is, and positive
    if for larger. What is missing is not counted, nor are pairs across the end of an episode.
    """
    error = seen.error
    known = jnp.ones(error.shape, bool) if episode.missing is None else ~episode.missing
    pairs = known[1:] & known[:-1] & (episode.terminated[:-1, None] == 0)
    square = jnp.mean(jnp.square(error), where=known)
    together = jnp.mean(error[1:] * error[:-1], where=pairs)
    return {"innovation_squared": square, "innovation_correlation": together / square}


def describe_model(
    ensemble: GaussianEnsemble, episode: Transition, noise: Float[Array, "n obs"] | None
) -> dict[str, Float[Array, ""]]:
    """Returns averages over the transitions of an episode (with actions in [−1, 1]).

    What is missing is not counted.

    `coverage_1sigma` is the fraction of dimensions in which the next observation is within one
    predicted standard deviation; a calibrated Gaussian has 68.3 %. `calibration_10` …
    `calibration_90` are the fractions within the central 10 … 90 %. `noise` holds the variances of
    the observation noise if a filter knows them; they are not included in `aleatoric_std` and
    `epistemic_std`. With a filter, the numbers of `check_filter` are included.
    """
    seen = outlook(ensemble.predict_batch(episode.observation, episode.action), episode, noise)
    known = None if episode.missing is None else ~episode.missing
    found = {f"calibration_{percent}": jnp.mean(seen.distance <= z, where=known) for percent, z in CENTRAL.items()}
    inside = jnp.abs(seen.next_observation - seen.mean) <= jnp.sqrt(seen.variance)
    if noise is not None and episode.measured is not None:
        found |= check_filter(seen, episode)
    return found | {
        "coverage_1sigma": jnp.mean(inside, where=known),
        "aleatoric_std": jnp.sqrt(seen.aleatoric).mean(),
        "epistemic_std": jnp.sqrt(seen.epistemic).mean(),
    }


def ce_bias(predictions: mm.GaussianMixture, value: mm.Function) -> tuple[Float[Array, "n"], Float[Array, "n"]]:
    """Returns E[V(s′)] and E[V(s′)] − V(E[s′]), the term that certainty equivalence omits."""
    expected = jax.vmap(lambda mixture: mm.expectation(mm.moment_match(mixture), value))(predictions)
    return expected, expected - jax.vmap(lambda mixture: value(mixture.mean))(predictions)


class Stakes(NamedTuple):
    """The value of each transition's next state, and its change by actions and covariance."""

    expected: Float[Array, "n"]  # E[V(s′)]
    bias: Float[Array, "n"]  # E[V(s′)] − V(E[s′])
    action_gap: Float[Array, "n"]  # the change of `expected` from one end of the action range to the other
    ce_gap: Float[Array, "n"]  # the change of `bias` from one end to the other


def stakes(
    taken: mm.GaussianMixture, ends: tuple[mm.GaussianMixture, mm.GaussianMixture], value: mm.Function
) -> Stakes:
    """Returns the stakes of each transition.

    Args:
        taken: Predictions for the actions taken.
        ends: Predictions for the smallest and for the largest action.
        value: V.
    """
    (low, low_bias), (high, high_bias) = (ce_bias(predictions, value) for predictions in ends)
    return Stakes(*ce_bias(taken, value), high - low, high_bias - low_bias)


def describe_bias(found: Stakes) -> dict[str, Float[Array, ""]]:
    """Returns the bias of certainty equivalence, and the change in value that an action makes.

    `ce_bias` and `ce_bias_std` are the mean and deviation of the bias over the transitions;
    `expected_std` is the deviation of E[V(s′)]. From one end of the action range to the other, the
    expectation changes by `action_gap` and the bias by `ce_gap` (root mean squares). If `ce_gap` is
    a sizeable part of `action_gap`, ignoring the covariance changes which action is best.
    """
    rms = lambda x: jnp.sqrt(jnp.mean(jnp.square(x)))  # noqa: E731
    return {
        "ce_bias": found.bias.mean(),
        "ce_bias_std": found.bias.std(),
        "expected_std": found.expected.std(),
        "action_gap": rms(found.action_gap),
        "ce_gap": rms(found.ce_gap),
    }


def describe_sampling(
    sampled: Float[Array, "repeats two n"], exact: Float[Array, "two n"], gamma: Any
) -> dict[str, Float[Array, ""]]:
    """Returns the variance and bias of the sampled γ minᵢ E[Vᵢ⁻], averaged over an episode.

    `target_variance` is the variance of the sampled target over independent draws. `target_bias` is
    its mean minus the closed form. Each critic's sample average is unbiased; the smaller of the two
    is not. The bias is therefore the smaller average minus the average of the critic whose
    expectation is smaller. Both use the same draws, so that sampling noise cancels.
    """
    smaller, least = exact.argmin(axis=0), sampled.min(axis=1)
    unbiased = jnp.where(smaller == 0, sampled[:, 0], sampled[:, 1])
    return {
        "target_variance": gamma**2 * least.var(axis=0, ddof=1).mean(),
        "target_bias": gamma * (least - unbiased).mean(),
    }
