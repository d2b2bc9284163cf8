"""The verbs: `expectation(p, f)`, `variance`, `covariance`, `product` and `cross_covariance`.

Every one is closed form or an error; which pairs have one stands in `tables.py`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax.tree_util import Partial
from jaxtyping import Array, Float

from moca.moments.dispatch import CLOSED_FORMS, CROSS_COVARIANCES, VARIANCES, look_up, look_up_pair
from moca.moments.distributions import Distribution

Map = Callable[[Array], Array]


@partial(eqx.filter_jit, inline=True)
def evaluate(form: Callable, *arguments: Any) -> Array:
    """A closed form, as one program: by hand, one operation after the other, each would be compiled on its own."""
    return form(*arguments)


def expectation(p: Distribution, f: Map) -> Float[Array, "*outputs"]:
    """E[f(x)] for x ~ p, in closed form [Eq. 5].

    Both are for one point: `jax.vmap(expectation, (0, None))(beliefs, f)` takes a batch of beliefs. Exact when p
    has no spread; differentiable in every array of p and f.

    Raises:
        NoClosedFormError: a TypeError, if the pair has none. Nothing falls back to sampling; for that, say so:
            `expectation(Empirical(p.sample(key, 64)), f)`.
    """
    return evaluate(look_up(CLOSED_FORMS, "expectation", p, f), p, f)


def variance(p: Distribution, f: Map) -> Float[Array, "*outputs"]:
    """Var[f(x)] for x ~ p, of each output, in closed form; raises as `expectation` does."""
    return evaluate(look_up(VARIANCES, "variance", p, f), p, f)


def covariance(p: Distribution, f: Map, g: Map | None = None) -> Float[Array, "*both"]:
    """Cov(f(x), g(x)) for x ~ p, in closed form; raises as `expectation` does.

    A number for two scalar functions, (m, n) for m outputs of f and n of g. Without g, f with itself: the covariance
    matrix of its outputs.
    """
    if g is None or g is f:  # a process is correlated with itself, not with another one that has the same numbers
        return evaluate(Partial(_with_itself, look_up_pair(p, f, f)), p, f)
    return evaluate(look_up_pair(p, f, g), p, f, g)


def _with_itself(form: Callable, p: Distribution, f: Map) -> Array:
    return form(p, f, f)


def product(p: Distribution, f: Map, g: Map) -> Float[Array, "*both"]:
    """E[f(x) g(x)] for x ~ p, in closed form, of the shape of `covariance(p, f, g)`."""
    return covariance(p, f, g) + jnp.multiply.outer(expectation(p, f), expectation(p, g))


def cross_covariance(p: Distribution, f: Map) -> Float[Array, "*outputs d"]:
    """Cov(f(x), x) for x ~ p, in closed form: d numbers for a scalar f, (m, d) for m outputs."""
    return evaluate(look_up(CROSS_COVARIANCES, "cross-covariance", p, f), p, f)
