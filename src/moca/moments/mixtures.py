"""Mixtures of Gaussians, and moment matching."""

from collections.abc import Sequence
from typing import NamedTuple, cast

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from moca.moments import _checks as check
from moca.moments.distributions import DiagonalGaussian, Distribution, Gaussian


class GaussianMixture(Distribution):
    """Σₖ weightsₖ · componentsₖ, such as the prediction of an ensemble.

    `components` is a `DiagonalGaussian` or `Gaussian` whose arrays have a leading axis of length K,
    or a sequence of K such distributions. `weights` must be non-negative and sum to one. Inside
    `jax.jit` this cannot be checked: weights are then divided by their sum, and negative ones give
    NaN.
    """

    weights: Float[Array, "*batch k"]
    components: DiagonalGaussian | Gaussian

    def __init__(
        self,
        weights: check.Numbers,
        components: DiagonalGaussian | Gaussian | Sequence[DiagonalGaussian] | Sequence[Gaussian],
    ) -> None:
        self.weights = check.as_weights(weights)
        if isinstance(components, Sequence):
            kinds = {type(c).__name__ for c in components}
            if len(kinds) != 1:
                raise ValueError(f"GaussianMixture.components must all be of one type, got {sorted(kinds)}")
            components = jax.tree.map(lambda *leaves: jnp.stack(leaves), *components)
        self.components = cast(DiagonalGaussian | Gaussian, components)

    def __check_init__(self) -> None:
        if not isinstance(self.components, DiagonalGaussian | Gaussian):
            raise TypeError(
                f"GaussianMixture.components must be DiagonalGaussian or Gaussian, got {type(self.components).__name__}"
            )
        count = self.components.batch_shape
        check.has_shape(self, "weights", self.weights, count, f"components with leading axes {count}")
        check.is_finite(self, weights=self.weights)
        check.is_nonnegative(self, weights=self.weights)
        check.sums_to_one(self, weights=self.weights)

    @property
    def mean(self) -> Float[Array, "*batch d"]:
        """Σₖ weightsₖ meanₖ."""
        return _average(self.weights, self.components.mean)

    @property
    def dimension(self) -> int:
        return self.components.dimension

    @property
    def batch_shape(self) -> tuple[int, ...]:
        return self.weights.shape[:-1]

    def sample(self, key: Key[Array, ""], count: int) -> Float[Array, "count d"]:
        choice_key, point_key = jax.random.split(key)
        chosen = jax.random.categorical(choice_key, jnp.log(self.weights), shape=(count,))
        components = jax.tree.map(lambda leaf: leaf[chosen], self.components)
        keys = jax.random.split(point_key, count)
        return cast(Array, jax.vmap(lambda p, k: p.sample(k, 1)[0])(components, keys))


class Decomposition(NamedTuple):
    """Moments of a mixture: its mean, and its (co)variance in two parts."""

    mean: Float[Array, "*batch d"]
    aleatoric: Float[Array, "..."]
    epistemic: Float[Array, "..."]


def decompose(mixture: GaussianMixture, *, full: bool | None = None) -> Decomposition:
    """Returns mean, aleatoric and epistemic covariance of a mixture [Eq. 4].

    aleatoric = Σₖ wₖ Σₖ,  epistemic = Σₖ wₖ Δₖ Δₖᵀ with Δₖ = μₖ − μ̄ (law of total variance).

    Args:
        mixture: The ensemble's prediction.
        full: Whether to return d × d matrices or their diagonals. The default follows the
            components. `full=True` on diagonal components keeps the correlations in their
            disagreement.
    """
    if not isinstance(mixture, GaussianMixture):
        raise TypeError(f"decompose and moment_match need a GaussianMixture, got {type(mixture).__name__}")
    weights, components = mixture.weights, mixture.components
    mean = mixture.mean
    delta = components.mean - mean[..., None, :]
    if full if full is not None else isinstance(components, Gaussian):
        # A product, and diagonals that are averaged first: XLA takes long for sums of K matrices.
        epistemic = jnp.matmul((weights[..., None] * delta).mT, delta, precision="highest")
        if isinstance(components, Gaussian):
            return Decomposition(mean, _average(weights, components.covariance), epistemic)
        return Decomposition(mean, DiagonalGaussian(mean, _average(weights, components.variance)).covariance, epistemic)
    return Decomposition(mean, _average(weights, components.variance), _average(weights, delta**2))


def moment_match(mixture: GaussianMixture, *, full: bool | None = None) -> DiagonalGaussian | Gaussian:
    """Returns the Gaussian with the mixture's mean and covariance [Eq. 4].

    Arguments are those of `decompose`.
    """
    mean, aleatoric, epistemic = decompose(mixture, full=full)
    return (Gaussian if aleatoric.ndim > mean.ndim else DiagonalGaussian)(mean, aleatoric + epistemic)


def _average(weights: Float[Array, "*batch k"], values: Float[Array, "*batch_and_event"]) -> Float[Array, "..."]:
    """Σₖ weightsₖ valuesₖ over the axis of the components."""
    axis = weights.ndim - 1
    return jnp.sum(weights.reshape(weights.shape + (1,) * (values.ndim - weights.ndim)) * values, axis=axis)
