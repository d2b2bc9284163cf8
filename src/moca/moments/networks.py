"""Moments of deep networks, matched after each layer. They are exact for one hidden layer only.

One hidden layer is a function (`Erf`, `ReLU`, `GELU`, `Fourier`) with exact moments. A
`MatchedNetwork` has several layers: each receives a Gaussian, and passes on the Gaussian with the
exact first two moments of its output. This replacement is the only error, and `matching_error`
measures it.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from moca.moments import _checks as check
from moca.moments._numerics import dot
from moca.moments.closed_forms.ridge import unit_mean, unit_variance
from moca.moments.composite import mean_slope
from moca.moments.distributions import DiagonalGaussian, Distribution, Gaussian
from moca.moments.expectation import covariance, cross_covariance, expectation
from moca.moments.functions import GELU, Erf, Fourier, Function, ReLU, Ridge
from moca.moments.numerical import nodes_and_weights

SAFETY = 1.5  # factor on the estimated error: without it, one estimate in fifty was too small
LAYERS: dict[str, Any] = {"erf": Erf, "relu": ReLU, "gelu": GELU, "sine": Fourier}


class MatchedNetwork(Function):
    """f(x) = layerₙ(… layer₁(x)): a network whose moments `propagate` matches layer by layer.

    Only `propagate` accepts it, since its result is not an exact moment; `expectation` and the
    others raise.

    Args:
        layers: Ridge functions (`Erf`, `ReLU`, `GELU`, `Fourier`). The outputs of each must match
            the inputs of the next.
    """

    layers: tuple[Ridge, ...]

    def __init__(self, layers: Sequence[Ridge]) -> None:
        self.layers = tuple(layers)

    def __check_init__(self) -> None:
        if not self.layers:
            raise ValueError("MatchedNetwork.layers needs at least one layer")
        for number, layer in enumerate(self.layers):
            if not isinstance(layer, Ridge):
                raise TypeError(f"layer {number} of the network must be a Ridge, got {type(layer).__name__}")
        for number, (one, two) in enumerate(zip(self.layers, self.layers[1:], strict=False)):
            if one.outputs != (two.dimension,):
                raise ValueError(
                    f"layer {number} of the network has outputs {one.outputs}, but layer {number + 1} takes dimension "
                    f"{two.dimension}"
                )

    @classmethod
    def dense(
        cls, weights: Sequence[check.Numbers], biases: Sequence[check.Numbers], activation: str
    ) -> "MatchedNetwork":
        """Returns the network Wₙ σ(… σ(W₁x + b₁)) + bₙ, with activation σ.

        Args:
            weights: W₁ to Wₙ, each (outputs, inputs); at least two.
            biases: b₁ to bₙ, each (outputs,).
            activation: "erf", "relu", "gelu" or "sine".
        """
        if activation not in LAYERS:
            raise ValueError(f"the activation must be one of {', '.join(LAYERS)}, got {activation!r}")
        if len(weights) < 2 or len(weights) != len(biases):
            raise ValueError(
                f"dense needs two or more weights and equally many biases, got {len(weights)} and {len(biases)}"
            )
        kind, moved = LAYERS[activation], jnp.pi / 2 if activation == "sine" else 0.0
        *inner, (last, constant) = zip(weights, biases, strict=True)
        shifts = [check.as_float(b) - moved for _, b in inner]
        layers = [kind(None, w, b) for (w, _), b in zip(inner[:-1], shifts[:-1], strict=True)]
        return cls([*layers, kind(last, inner[-1][0], shifts[-1], constant)])

    @property
    def dimension(self) -> int:
        return self.layers[0].dimension

    @property
    def outputs(self) -> tuple[int, ...]:
        return self.layers[-1].outputs

    def _evaluate(self, x: Float[Array, "d"]) -> Float[Array, "*outputs"]:
        for layer in self.layers:
            x = layer(x)
        return x


class Matched(NamedTuple):
    """Matched moments of a network's output, and the covariance of the output with the input."""

    mean: Float[Array, "*outputs"]
    covariance: Float[Array, "..."]
    cross: Float[Array, "*outputs d"]


def match_full(p: Distribution, network: MatchedNetwork) -> Matched:
    """Matches moments through the layers with full covariances, for each pair of units.

    The covariance with the input goes through E[∇layer]: Cov(f(y), x) = E[∇f] Cov(y, x) for a
    Gaussian (x, y).
    """
    first, *rest = network.layers
    mean, spread, cross = expectation(p, first), covariance(p, first), cross_covariance(p, first)
    for layer in rest:
        q = unchecked(Gaussian, mean, (spread + spread.T) / 2)
        cross = dot(mean_slope(q, layer), cross)
        mean, spread = expectation(q, layer), covariance(q, layer)
    return Matched(mean, spread, cross)


def match_diagonal(p: DiagonalGaussian | Gaussian, network: MatchedNetwork) -> Matched:
    """Matches means and variances only, as if units were independent: one number per unit."""
    cross = p.covariance
    q: DiagonalGaussian | Gaussian = p
    for layer in network.layers:
        arguments, spreads = layer.arguments(q.mean), q.along(layer.rows)
        cross = dot(mean_slope(q, layer), cross)
        mean = layer.weigh(unit_mean(layer, arguments, spreads)) + layer.constant
        each = unit_variance(layer, arguments, spreads)
        variance = each if layer.weights is None else dot(layer.weights**2, each)
        q = unchecked(DiagonalGaussian, jnp.atleast_1d(mean), jnp.atleast_1d(variance))
    return Matched(mean, variance, cross)


def unchecked(kind: type, mean: Array, spread: Array) -> Any:
    """Returns an unchecked Gaussian: rounding may leave its variances slightly negative."""
    blank = kind(jnp.zeros_like(mean), jnp.zeros_like(spread))
    return jax.tree.unflatten(jax.tree.structure(blank), [mean, spread])


class MatchingError(NamedTuple):
    """An estimate of the difference between the matched moments of a network and the true ones."""

    mean: Float[Array, "*outputs"]
    covariance: Float[Array, "*both"]


def matching_error(p: DiagonalGaussian | Gaussian, network: MatchedNetwork, points: int = 24) -> MatchingError:
    """Estimates the error of `propagate(p, network)`, for up to three input dimensions.

    The estimate is the difference between the matched moments and those by a Gauss–Hermite rule
    with `points` nodes per dimension, plus the change of the rule when its nodes are halved, times
    1.5 for safety. Costs points^d evaluations of the network.
    """
    if not isinstance(network, MatchedNetwork):
        raise TypeError(f"matching_error needs a MatchedNetwork, got {type(network).__name__}")
    if p.dimension > 3:
        raise ValueError(
            f"matching_error supports up to three input dimensions, got {p.dimension}: compare with samples"
        )
    matched = match_full(p, network)
    fine, coarse = (_integrated(p, network, count) for count in (points, max(2, points // 2)))
    return MatchingError(
        *(
            SAFETY * (jnp.abs(given - better) + jnp.abs(better - worse))
            for given, better, worse in zip(matched[:2], fine, coarse, strict=True)
        )
    )


def _integrated(p: DiagonalGaussian | Gaussian, f: Function, points: int) -> tuple[Array, Array]:
    x, weights = nodes_and_weights(p, points)
    values = jax.vmap(f)(x)
    mean = jnp.tensordot(weights, values, axes=1, precision="highest")
    centred = values - mean
    weighted = weights.reshape(-1, *(1,) * (values.ndim - 1)) * centred
    return mean, jnp.tensordot(weighted, centred, axes=(0, 0), precision="highest")
