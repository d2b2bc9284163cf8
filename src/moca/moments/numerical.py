"""Numerical alternatives to the closed forms: quadrature, sigma points, and a comparison of all.

Nothing in this package falls back to them.
"""

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from moca.moments.dispatch import NoClosedFormError, batch_error, check_order
from moca.moments.distributions import DiagonalGaussian, Distribution, Gaussian
from moca.moments.expectation import Map, expectation
from moca.moments.mixtures import GaussianMixture

MOST_NODES = 4_000_000


def quadrature(p: Distribution, f: Map, points: int = 32) -> Float[Array, "*outputs"]:
    """E[f(x)] by a tensor Gauss–Hermite rule with `points` nodes per dimension.

    For Gaussians and their mixtures. Exact for polynomials of degree 2 · points − 1. Otherwise the
    error falls with the number of points, faster for functions that are smooth on the scale of p's
    deviation. Costs points^d evaluations of f.
    """
    check_order("quadrature", p, f)
    if isinstance(p, GaussianMixture):
        each = jax.vmap(lambda q: quadrature(q, f, points))(p.components)
        return jnp.tensordot(p.weights, each, axes=1, precision="highest")
    x, weights = nodes_and_weights(p, points)
    return jnp.tensordot(weights, jax.vmap(f)(x), axes=1, precision="highest")


def nodes_and_weights(p: Any, points: int) -> tuple[Float[Array, "n d"], Float[Array, "n"]]:
    """Returns the nodes of the rule for a Gaussian, and their weights, which sum to one."""
    p = _gaussian("quadrature", p)
    if points**p.dimension > MOST_NODES:
        raise ValueError(
            f"quadrature with {points} points in each of {p.dimension} dimensions has more than {MOST_NODES} nodes: "
            "use fewer points, or sigma_points"
        )
    z, w = np.polynomial.hermite_e.hermegauss(points)
    grid = np.stack(np.meshgrid(*[z] * p.dimension, indexing="ij"), -1).reshape(-1, p.dimension)
    weights = np.prod(np.stack(np.meshgrid(*[w / w.sum()] * p.dimension, indexing="ij"), -1), axis=-1).ravel()
    dtype = p.mean.dtype
    return p.mean + p._spread(jnp.asarray(grid, dtype)), jnp.asarray(weights, dtype)


def sigma_points(p: Any, f: Map) -> Float[Array, "*outputs"]:
    """E[f(x)] by the unscented rule: the mean and two points along each axis of p.

    For Gaussians and their mixtures. Exact for polynomials of degree three. The points are √3
    deviations from the mean; in more than three dimensions √d, and the mean then has zero weight.
    Costs 2d + 1 evaluations of f.
    """
    check_order("sigma_points", p, f)
    if isinstance(p, GaussianMixture):
        return jnp.tensordot(
            p.weights, jax.vmap(lambda q: sigma_points(q, f))(p.components), axes=1, precision="highest"
        )
    p = _gaussian("sigma_points", p)
    d = p.dimension
    square = float(max(3, d))
    noise = np.sqrt(square) * np.concatenate([np.zeros((1, d)), np.eye(d), -np.eye(d)])
    weights = np.r_[1 - d / square, np.full(2 * d, 1 / (2 * square))]
    x = p.mean + p._spread(jnp.asarray(noise, p.mean.dtype))
    return jnp.tensordot(jnp.asarray(weights, p.mean.dtype), jax.vmap(f)(x), axes=1, precision="highest")


def _gaussian(verb: str, p: Any) -> DiagonalGaussian | Gaussian:
    """Returns p; raises unless it is one Gaussian."""
    if not isinstance(p, DiagonalGaussian | Gaussian):
        raise NoClosedFormError(
            f"{verb} supports DiagonalGaussian, Gaussian and GaussianMixture, got {type(p).__name__}; "
            "to sample, pass Empirical(p.sample(key, count)) to expectation"
        )
    if p.batch_shape:
        raise batch_error(verb, p)
    return p


def compare(p: Distribution, f: Map, samples: int = 100_000, key: Key[Array, ""] | None = None) -> None:
    """Prints E[f(x)] in closed form, by quadrature, by sigma points and by sampling.

    Errors are the largest differences from the first row: the closed form, or quadrature if there
    is no closed form. Times are those of a second call, after compilation.
    """
    check_order("compare", p, f)
    key = jax.random.key(0) if key is None else key

    def sampled(p: Distribution) -> Array:
        return jax.vmap(f)(p.sample(key, samples)).mean(axis=0)

    methods: list[tuple[str, Callable[..., Any]]] = [
        ("closed form", lambda p: expectation(p, f)),
        ("quadrature", lambda p: quadrature(p, f, 32 if p.dimension <= 2 else 12)),
        ("sigma points", lambda p: sigma_points(p, f)),
        (f"{samples:,} samples", sampled),
    ]
    reference = None
    print(f"{'method':<18}{'E[f]':>24}{'error':>12}{'time':>12}")
    for name, method in methods:
        try:
            value, seconds = _timed(jax.jit(method), p)
        except (TypeError, ValueError) as error:
            print(f"{name:<18}{'none':>24}    ({str(error).split('. ')[0].split(';')[0]})")
            continue
        reference = value if reference is None else reference
        shown = f"{float(value):.10g}" if value.ndim == 0 else f"{value.size} outputs"
        print(f"{name:<18}{shown:>24}{np.abs(value - reference).max():>12.1e}{seconds * 1e3:>9.3f} ms")


def _timed(program: Callable[..., Any], p: Distribution) -> tuple[np.ndarray, float]:
    value = np.asarray(program(p))
    start = time.perf_counter()
    program(p).block_until_ready()
    return value, time.perf_counter() - start
