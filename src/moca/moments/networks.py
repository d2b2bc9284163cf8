"""Networks: moments through layers, matched after each. With one hidden layer they are exact, with more they are not.

One hidden layer is a function of its own (`Erf`, `ReLU`, `GELU`, `Fourier`), exact in every verb. A `MatchedNetwork` is
several: a Gaussian goes into each, and the Gaussian with the layer's two exact moments goes into the next. That
replacement is the only error, and `matching_error` measures it.
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

SAFETY = 1.5  # of the estimated error: without it one in fifty was too small
LAYERS: dict[str, Any] = {"erf": Erf, "relu": ReLU, "gelu": GELU, "sine": Fourier}


class MatchedNetwork(Function):
    """f(x) = layerₙ(… layer₁(x)): a network whose moments `propagate` matches layer by layer.

    Only `propagate` takes one, as its result is no exact moment; `expectation` and the others refuse it.

    Args:
        layers: ridge functions (`Erf`, `ReLU`, `GELU`, `Fourier`), each with as many outputs as the next has inputs.
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
        """The network Wₙ σ(… σ(W₁x + b₁)) + bₙ, with erf, relu, gelu or sine after all layers but the last.

        Args:
            weights: W₁ to Wₙ, each (outputs, inputs); at least two.
            biases: b₁ to bₙ, each (outputs,).
            activation: the name of σ.
        """
        if activation not in LAYERS:
            raise ValueError(f"the activation must be one of {', '.join(LAYERS)}, got {activation!r}")
        if len(weights) < 2 or len(weights) != len(biases):
            raise ValueError(
                f"dense needs two or more weights and as many biases, got {len(weights)} and {len(biases)}"
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
    """Moments through the layers with full covariances: a bivariate normal for each pair of units of a layer.

    The covariance with the input goes through E[∇layer]: Cov(f(y), x) = E[∇f] Cov(y, x) for a Gaussian (x, y).
    """
    first, *rest = network.layers
    mean, spread, cross = expectation(p, first), covariance(p, first), cross_covariance(p, first)
    for layer in rest:
        q = _unchecked(Gaussian, mean, (spread + spread.T) / 2)
        cross = dot(mean_slope(q, layer), cross)
        mean, spread = expectation(q, layer), covariance(q, layer)
    return Matched(mean, spread, cross)


def match_diagonal(p: DiagonalGaussian | Gaussian, network: MatchedNetwork) -> Matched:
    """Moments through the layers with variances alone, as if units were independent: one number per unit."""
    cross = p.covariance
    q: DiagonalGaussian | Gaussian = p
    for layer in network.layers:
        arguments, spreads = layer.arguments(q.mean), q.along(layer.rows)
        cross = dot(mean_slope(q, layer), cross)
        mean = layer.weigh(unit_mean(layer, arguments, spreads)) + layer.constant
        each = unit_variance(layer, arguments, spreads)
        variance = each if layer.weights is None else dot(layer.weights**2, each)
        q = _unchecked(DiagonalGaussian, jnp.atleast_1d(mean), jnp.atleast_1d(variance))
    return Matched(mean, variance, cross)


def _unchecked(kind: type, mean: Array, spread: Array) -> DiagonalGaussian | Gaussian:
    """A Gaussian of computed moments, which rounding may have left a little below zero."""
    blank = kind(jnp.zeros_like(mean), jnp.zeros_like(spread))
    return jax.tree.unflatten(jax.tree.structure(blank), [mean, spread])


class MatchingError(NamedTuple):
    """An estimate of how far the matched moments of a network are from the true ones."""

    mean: Float[Array, "*outputs"]
    covariance: Float[Array, "*both"]


def matching_error(p: DiagonalGaussian | Gaussian, network: MatchedNetwork, points: int = 24) -> MatchingError:
    """An estimate of the error of `propagate(p, network)`, for up to three input dimensions.

    The matched moments less those by a Gauss–Hermite rule of `points` nodes per dimension, plus what the rule itself
    changes by when it has half the nodes, and half as much again for safety. Costs points^d evaluations of the network.
    """
    if not isinstance(network, MatchedNetwork):
        raise TypeError(f"matching_error takes a MatchedNetwork, got {type(network).__name__}")
    if p.dimension > 3:
        raise ValueError(f"matching_error is for up to three input dimensions, got {p.dimension}: compare with samples")
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
