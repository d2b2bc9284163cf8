"""Moment matching through a function: from a belief about x to a Gaussian over f(x)."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from moca.moments.distributions import DiagonalGaussian, Dirac, Distribution, Empirical, Gaussian
from moca.moments.expectation import Map, covariance, cross_covariance, expectation, variance
from moca.moments.functions import Fourier, Polynomial, Sum
from moca.moments.mixtures import GaussianMixture, moment_match
from moca.moments.networks import MatchedNetwork, match_diagonal, match_full, unchecked


def propagate(p: Distribution, f: Map, joint: bool = False, diagonal: bool = False) -> Gaussian | DiagonalGaussian:
    """Returns the Gaussian with the mean and covariance of f(x) for x ~ p; of (x, f(x)) if `joint`.

    The two moments are exact. The Gaussian itself is an approximation, unless f is affine and p is
    Gaussian. Through a `MatchedNetwork` the moments are matched layer by layer, and are not exact.

    Args:
        p: The belief about x.
        f: Any function with a covariance under p, or a `MatchedNetwork`.
        joint: Return the joint Gaussian of x and f(x); the dimensions of x come first.
        diagonal: Return variances only. A network then treats its units as independent, which costs
            one number per unit instead of one per pair. Cannot be combined with `joint`.
    """
    if joint and diagonal:
        raise ValueError("propagate cannot combine joint=True and diagonal=True: a joint Gaussian needs covariances")
    if isinstance(f, MatchedNetwork):
        if diagonal and not isinstance(p, DiagonalGaussian | Gaussian):
            raise TypeError(f"with diagonal=True a network needs a Gaussian, got {type(p).__name__}: see moment_match")
        mean, spread, cross = (match_diagonal if diagonal else match_full)(p, f)  # type: ignore[arg-type]
    else:
        mean, spread = expectation(p, f), variance(p, f) if diagonal else covariance(p, f)
        cross = cross_covariance(p, f) if joint else jnp.zeros(())
    if diagonal:
        return DiagonalGaussian(jnp.atleast_1d(mean), jnp.maximum(jnp.atleast_1d(spread), 0))
    return join(p, mean, spread, cross) if joint else as_gaussian(mean, spread)


def join(
    p: Distribution, mean: Float[Array, "*m"], spread: Float[Array, "*m_m"], cross: Float[Array, "*m d"]
) -> Gaussian:
    """Returns the Gaussian over (x, y) from the moments of x, those of y, and Cov(y, x)."""
    mean, cross = jnp.atleast_1d(mean), jnp.atleast_2d(cross)
    spread = spread.reshape(len(mean), len(mean))
    own_mean, own = moments_of(p)
    return as_gaussian(jnp.concatenate([own_mean, mean]), jnp.block([[own, cross.T], [cross, spread]]))


def as_gaussian(mean: Float[Array, "*m"], covariance: Float[Array, "*m_m"]) -> Gaussian:
    """Returns a Gaussian with a computed covariance, symmetrised; a scalar becomes one dimension.

    The covariance is not checked: rounding may make a zero eigenvalue slightly negative.
    """
    mean = jnp.atleast_1d(mean)
    covariance = covariance.reshape(len(mean), len(mean))
    symmetric: Gaussian = unchecked(Gaussian, mean, (covariance + covariance.T) / 2)
    return symmetric


def moments_of(p: Distribution) -> tuple[Float[Array, "d"], Float[Array, "d d"]]:
    """Returns mean and covariance of x ~ p."""
    match p:
        case GaussianMixture():
            matched = moment_match(p, full=True)
            return matched.mean, matched.covariance
        case Dirac():
            return p.mean, jnp.zeros((p.dimension, p.dimension), p.mean.dtype)
        case Empirical():
            return p.mean, covariance(p, lambda x: x)
    return p.mean, p.covariance  # type: ignore[attr-defined]


def angles(dimension: int, dimensions: int | Sequence[int], dtype: jnp.dtype | None = None) -> Sum:
    """Returns the function that replaces the angles among its inputs by their sines and cosines.

    In place of each angle there are two outputs, its sine and then its cosine; other inputs are
    passed through. With `angles(3, [1])`, (a, θ, b) becomes (a, sin θ, cos θ, b).
    """
    chosen = np.atleast_1d(np.asarray(dimensions, dtype=int))
    if len(chosen) == 0 or len(set(chosen.tolist())) < len(chosen) or not ((chosen >= 0) & (chosen < dimension)).all():
        raise ValueError(
            f"the angles must be different dimensions from 0 to {dimension - 1}, at least one, got {chosen.tolist()}"
        )
    kept, waves, frequencies = [], [], np.repeat(np.eye(dimension)[np.sort(chosen)], 2, axis=0)
    for j in range(dimension):
        for _ in range(2 if j in chosen else 1):
            kept.append(np.eye(dimension)[j] * (j not in chosen))
            waves.append(j in chosen)
    weights = np.zeros((len(kept), len(frequencies)))
    weights[np.flatnonzero(waves), np.arange(len(frequencies))] = 1
    phases = np.tile([-np.pi / 2, 0.0], len(chosen))
    dtype = jnp.result_type(float) if dtype is None else dtype
    straight = Polynomial((jnp.zeros(len(kept), dtype), jnp.asarray(np.stack(kept), dtype)))
    return straight + Fourier(*(jnp.asarray(each, dtype) for each in (weights, frequencies, phases)))


def with_angles(p: Distribution, dimensions: int | Sequence[int]) -> Gaussian:
    """Returns the Gaussian with the moments of x, with some angles replaced by sine and cosine.

    The order is that of `angles`. All covariances are exact: of sines with cosines, of different
    angles, and of angles with the rest of the state. `cross_covariance(p, angles(d, dimensions))`
    gives those with x itself.
    """
    turned = angles(p.dimension, dimensions, moments_of(p)[0].dtype)
    return as_gaussian(expectation(p, turned), covariance(p, turned))
