"""Look-up of closed forms by type.

The tables *are* the compatibility matrix; `tables.py` fills them.

To add a pair, write one function and register it in one line:

    CLOSED_FORMS[MyDistribution, MyFunction] = my_closed_form
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from moca.moments.distributions import Distribution
from moca.moments.functions import Function

Form = Callable[..., Any]

CLOSED_FORMS: dict[tuple[type, type], Form] = {}
"""Closed forms of `expectation`, by the classes of distribution and function."""
VARIANCES: dict[tuple[type, type], Form] = {}
"""Closed forms of `variance`, by the classes of distribution and function."""
CROSS_COVARIANCES: dict[tuple[type, type], Form] = {}
"""Closed forms of `cross_covariance`, by the classes of distribution and function."""
COVARIANCES: dict[tuple[type, type, type], Form] = {}
"""Closed forms of `covariance`, by the classes of distribution and of two functions, in either order."""


class NoClosedFormError(TypeError):
    """Raised if no closed form is registered for a distribution and a function."""


def look_up(table: dict[tuple[type, type], Form], verb: str, p: Distribution, f: Callable[..., Any]) -> Form:
    """Returns the closed form for the pair, after checking dimensions and batch axes."""
    check_order(verb, p, f)
    found = find(table, type(p), type(f))
    if found is None:
        supported = ", ".join(_name(b) for a, b in table if isinstance(p, a))
        raise NoClosedFormError(
            f"no closed form for the {verb} of {type(f).__name__} under {type(p).__name__}. Supported under it: "
            f"{supported}. To estimate by sampling instead, pass Empirical(p.sample(key, count))."
        )
    _check(verb, p, f)
    return found


def look_up_pair(p: Distribution, f: Callable[..., Any], g: Callable[..., Any]) -> Form:
    """Returns the closed form for the covariance of f and g, in this order."""
    check_order("covariance", p, f, g)
    found, turned = find_pair(type(p), type(f), type(g)), find_pair(type(p), type(g), type(f))
    if found is None and turned is None:
        supported = ", ".join(f"{_name(a)} × {_name(b)}" for q, a, b in COVARIANCES if issubclass(type(p), q))
        raise NoClosedFormError(
            f"no closed form for the covariance of {type(f).__name__} and {type(g).__name__} under {type(p).__name__}. "
            f"Supported under it: {supported or 'none'}. "
            "To estimate by sampling instead, pass Empirical(p.sample(key, count))."
        )
    _check("covariance", p, f, g)
    if found is not None:
        return found
    return _transposed(turned)


def find(table: dict[tuple[type, type], Form], p: type, f: type) -> Form | None:
    """Returns the entry for the nearest base classes of the two types, or None."""
    return next((table[a, b] for b in f.__mro__ for a in p.__mro__ if (a, b) in table), None)


def find_pair(p: type, f: type, g: type) -> Form | None:
    """Returns the entry for the nearest base classes of the three types, or None."""
    keys = ((a, b, c) for b in f.__mro__ for c in g.__mro__ for a in p.__mro__)
    return next((COVARIANCES[key] for key in keys if key in COVARIANCES), None)


@cache
def _transposed(form: Form) -> Form:
    """Returns the closed form with its functions swapped; cached, so that it compiles once."""
    return lambda p, f, g: form(p, g, f).T


def check_order(verb: str, p: object, *functions: object) -> None:
    """Raises unless the first argument is a distribution and the others are functions."""
    given = ", ".join(type(each).__name__ for each in (p, *functions))
    if isinstance(p, Function) or (not isinstance(p, Distribution) and any(map(_is_distribution, functions))):
        raise TypeError(f"{verb}: the distribution comes first, then the function, but got ({given})")
    if not isinstance(p, Distribution):
        raise TypeError(
            f"{verb} needs a distribution of moca.moments, got {type(p).__name__}: for a known point, pass Dirac(x)"
        )
    if any(map(_is_distribution, functions)):
        raise TypeError(f"{verb} needs one distribution, then the function, but got ({given})")


def _is_distribution(thing: object) -> bool:
    return isinstance(thing, Distribution)


def _check(verb: str, p: Distribution, *functions: Callable[..., Any]) -> None:
    if p.batch_shape:
        raise batch_error(verb, p, len(functions))
    for f in functions:
        if isinstance(f, Function) and f.dimension != p.dimension:
            raise ValueError(
                f"{type(p).__name__} has dimension {p.dimension}, but {type(f).__name__} takes dimension {f.dimension}"
            )


def batch_error(verb: str, p: Distribution, functions: int = 1) -> ValueError:
    """Returns the error for a batch where one point is expected; it shows how to use `jax.vmap`."""
    call = f"{verb.replace('-', '_')}({', '.join('qfg'[: functions + 1])})"
    return ValueError(
        f"{verb} takes one point, but this {type(p).__name__} holds a batch of shape {p.batch_shape}: "
        f"use jax.vmap(lambda q: {call})(p). Functions built on {verb}, such as propagate, are batched the same way"
    )


def _name(kind: type) -> str:
    return "any" if kind is object else kind.__name__
