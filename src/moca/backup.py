"""The Bellman target, and the one thing in which the paper's agents differ: what they take the next state to be."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from moca import moments as mm
from moca.critic import twin_axes

PredictionRule = Callable[[mm.GaussianMixture, Key[Array, ""], int], mm.Distribution]
Backup = Callable[[mm.Distribution, mm.Function], Float[Array, ""]]  # of one prediction and one value function


def one_gaussian(mixture: mm.GaussianMixture, key: Key[Array, ""], samples: int) -> mm.Distribution:
    """MoCA: the mixture's mean and covariance, and nothing else of it."""
    return mm.moment_match(mixture)


def mean_alone(mixture: mm.GaussianMixture, key: Key[Array, ""], samples: int) -> mm.Distribution:
    """MoCA-CE: certainty equivalence."""
    return mm.Dirac(mixture.mean)


def samples_of_it(mixture: mm.GaussianMixture, key: Key[Array, ""], samples: int) -> mm.Distribution:
    """MoCA-MC: draws from the moment-matched Gaussian, for the expectation that MoCA has in closed form [choice]."""
    return mm.Empirical(mm.moment_match(mixture).sample(key, samples))


def whole_mixture(mixture: mm.GaussianMixture, key: Key[Array, ""], samples: int) -> mm.Distribution:
    """MoCA (mixture): as the ensemble has it."""
    return mixture


def twin_values(
    predictions: mm.Distribution, values: mm.Function, backup: Backup = mm.expectation
) -> Float[Array, "two n"]:
    """E[Vᵢ(s′)] of both functions (see `twin`) for n predictions, or what `backup` has in place of E."""
    over_batch = jax.vmap(backup, (0, None))
    return jax.vmap(over_batch, (None, twin_axes(values)))(predictions, values)


def bellman_target(
    reward: Float[Array, "n"],
    terminated: Float[Array, "n"],
    gamma: float,
    predictions: mm.Distribution,
    values: mm.Function,
    bounds: tuple[float, float] = (-jnp.inf, jnp.inf),
    backup: Backup = mm.expectation,
) -> Float[Array, "n"]:
    """r + γ (1 − d) minᵢ E[Vᵢ⁻(s′)] for n transitions [Eq. 5] [Alg. 1 l. 11]; the expectation kept within `bounds`."""
    expected = jnp.clip(jnp.min(twin_values(predictions, values, backup), axis=0), *bounds)
    return reward + gamma * (1 - terminated) * expected
