"""The operations: `expectation(p, f)`, `variance`, `covariance`, `product` and `cross_covariance`.

Each returns a closed form or raises an error. `tables.py` lists the pairs that have one.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from moca.moments.dispatch import CLOSED_FORMS, CROSS_COVARIANCES, VARIANCES, check_order, look_up, look_up_pair
from moca.moments.distributions import Distribution

Map = Callable[[Array], Array]


@partial(jax.jit, static_argnums=(0, 1, 2), inline=True)
def _program(form: Callable[..., Any], structure: Any, places: tuple[int, ...], leaves: Sequence[Array]) -> Array:
    return cast(Array, form(*jax.tree.unflatten(structure, [leaves[place] for place in places])))


def evaluate(form: Callable[..., Any], *arguments: Any) -> Array:
    """Runs a closed form as one compiled program, instead of compiling each operation separately.

    Arrays shared between arguments stay shared, so that a form can tell whether two functions are
    the same. A function that does not consist of arrays alone, such as a lambda, is not compiled:
    it may change between two calls.
    """
    leaves, structure = jax.tree.flatten(arguments)
    if not all(map(eqx.is_array, leaves)):
        return cast(Array, form(*arguments))
    unique = {id(leaf): leaf for leaf in leaves}
    order = {key: place for place, key in enumerate(unique)}
    places = tuple(order[id(leaf)] for leaf in leaves)
    return cast(Array, _program(form, structure, places, list(unique.values())))


def expectation(p: Distribution, f: Map) -> Float[Array, "*outputs"]:
    """E[f(x)] for x ~ p, in closed form [Eq. 5].

    Both arguments are for one point; use `jax.vmap(expectation, (0, None))(beliefs, f)` for a batch
    of beliefs. The result is exact also when p has no spread, and differentiable in every array of
    p and f.

    Raises:
        NoClosedFormError: A TypeError, if the pair has no closed form. There is no fallback to
            sampling; to sample, call `expectation(Empirical(p.sample(key, 64)), f)`.
    """
    return evaluate(look_up(CLOSED_FORMS, "expectation", p, f), p, f)


def variance(p: Distribution, f: Map) -> Float[Array, "*outputs"]:
    """Var[f(x)] for x ~ p, of each output, in closed form; raises as `expectation` does."""
    return evaluate(look_up(VARIANCES, "variance", p, f), p, f)


def covariance(p: Distribution, f: Map, g: Map | None = None) -> Float[Array, "*both"]:
    """Cov(f(x), g(x)) for x ~ p, in closed form; raises as `expectation` does.

    A number for two scalar functions, (m, n) for m outputs of f and n of g. Without g, the
    covariance matrix of the outputs of f.
    """
    g = f if g is None else g
    return evaluate(look_up_pair(p, f, g), p, f, g)


def product(p: Distribution, f: Map, g: Map) -> Float[Array, "*both"]:
    """E[f(x) g(x)] for x ~ p, in closed form, with the shape of `covariance(p, f, g)`."""
    check_order("product", p, f, g)
    return covariance(p, f, g) + jnp.multiply.outer(expectation(p, f), expectation(p, g))


def cross_covariance(p: Distribution, f: Map) -> Float[Array, "*outputs d"]:
    """Cov(f(x), x) for x ~ p, in closed form: d numbers for a scalar f, (m, d) for m outputs."""
    return evaluate(look_up(CROSS_COVARIANCES, "cross-covariance", p, f), p, f)
