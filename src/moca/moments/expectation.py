"""The verbs: `expectation(p, f)`, `variance`, `covariance`, `product` and `cross_covariance`.

Every one is closed form or an error; which pairs have one stands in `tables.py`.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from moca.moments.dispatch import CLOSED_FORMS, CROSS_COVARIANCES, VARIANCES, look_up, look_up_pair
from moca.moments.distributions import Distribution

Map = Callable[[Array], Array]


@partial(jax.jit, static_argnums=(0, 1, 2), inline=True)
def _program(form: Callable, structure: Any, places: tuple[int, ...], leaves: Sequence[Array]) -> Array:
    return form(*jax.tree.unflatten(structure, [leaves[place] for place in places]))


def evaluate(form: Callable, *arguments: Any) -> Array:
    """A closed form as one program: called by hand, each of its operations would be compiled on its own.

    Arrays that arguments share stay shared, so that a form can tell whether two functions are one. A function that is
    not made of arrays alone, such as a lambda, may change between two calls, and is not compiled.
    """
    leaves, structure = jax.tree.flatten(arguments)
    if not all(map(eqx.is_array, leaves)):
        return form(*arguments)
    unique = {id(leaf): leaf for leaf in leaves}
    order = {key: place for place, key in enumerate(unique)}
    return _program(form, structure, tuple(order[id(leaf)] for leaf in leaves), list(unique.values()))


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
    g = f if g is None else g
    return evaluate(look_up_pair(p, f, g), p, f, g)


def product(p: Distribution, f: Map, g: Map) -> Float[Array, "*both"]:
    """E[f(x) g(x)] for x ~ p, in closed form, of the shape of `covariance(p, f, g)`."""
    return covariance(p, f, g) + jnp.multiply.outer(expectation(p, f), expectation(p, g))


def cross_covariance(p: Distribution, f: Map) -> Float[Array, "*outputs d"]:
    """Cov(f(x), x) for x ~ p, in closed form: d numbers for a scalar f, (m, d) for m outputs."""
    return evaluate(look_up(CROSS_COVARIANCES, "cross-covariance", p, f), p, f)
