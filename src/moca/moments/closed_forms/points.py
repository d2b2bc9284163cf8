"""Closed forms under point masses, for any function."""

from collections.abc import Callable
from typing import Any, cast

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from moca.moments.distributions import Dirac, Empirical


def dirac(p: Dirac, f: Callable[..., Any]) -> Float[Array, "*outputs"]:
    """f at the point."""
    return cast(Array, f(p.point))


def empirical(p: Empirical, f: Callable[..., Any]) -> Float[Array, "*outputs"]:
    """Average of f over the points."""
    average: Array = jax.vmap(f)(p.points).mean(axis=0)
    return average


def dirac_covariance(p: Dirac, f: Callable[..., Any], g: Callable[..., Any]) -> Float[Array, "*both"]:
    """Zero: a point has no spread."""
    return jnp.multiply.outer(jnp.zeros_like(f(p.point)), jnp.zeros_like(g(p.point)))


def empirical_covariance(p: Empirical, f: Callable[..., Any], g: Callable[..., Any]) -> Float[Array, "*both"]:
    """The mean product of the deviations of f and g over the points."""
    of_f, of_g = (values - values.mean(axis=0) for values in (jax.vmap(f)(p.points), jax.vmap(g)(p.points)))
    return jnp.tensordot(of_f, of_g, axes=(0, 0), precision="highest") / len(p.points)


def dirac_cross(p: Dirac, f: Callable[..., Any]) -> Float[Array, "*outputs d"]:
    """Zero: a point has no spread."""
    return dirac_covariance(p, f, lambda x: x)


def empirical_cross(p: Empirical, f: Callable[..., Any]) -> Float[Array, "*outputs d"]:
    """The covariance of f and x over the points."""
    return empirical_covariance(p, f, lambda x: x)
