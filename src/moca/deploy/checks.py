"""Checks of what a policy is made of, and of what it observes."""

import reprlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .files import take
from .greedy import ACTIVATIONS

LIMIT = 1e6  # no observation, and no number of a policy, is greater: squares of what is fit well into float32
NOTHING_TO_GO_ON = (
    "an observation with missing values needs a belief to go on from: the first of an episode has to be whole, and so "
    "has the next after so many gaps that the belief is lost"
)


def checked(what: str, numbers: Any, size: int, gaps: bool = False) -> np.ndarray:
    """`numbers` as an array of `size` along its last axis; raises where they cannot be measurements.

    Args:
        what: they are, in a sentence.
        numbers: anything.
        size: how many.
        gaps: whether NaN may stand for a missing one.
    """
    try:
        array = np.asarray(numbers)
        if array.dtype.kind in "OSUMmc":
            raise ValueError
        with np.errstate(over="ignore"):
            array = array.astype(np.float64)
    except (ValueError, TypeError):
        raise ValueError(f"{what} is made of real numbers, but got {reprlib.repr(numbers)}") from None
    if array.ndim < 1 or array.shape[-1] != size:
        raise ValueError(f"{what} has {size} numbers, but got an array of shape {array.shape}")
    if not gaps and np.isnan(array).any():
        raise ValueError(f"{what} is not a number in some place, and there is no filter that could do without it")
    if (np.abs(array) > LIMIT).any():
        raise ValueError(f"{what} has {array[np.abs(array) > LIMIT][0]:g}: no measurement lies beyond ±{LIMIT:g}")
    return array


def sane(mean: np.ndarray, covariance: np.ndarray) -> Any:
    """Returns True if the numbers of a belief are finite, and within what could be observed."""
    return (np.abs(mean) <= LIMIT).all() & (np.abs(covariance) <= LIMIT**2).all()


Rule = tuple[Callable[[Any], bool], str]  # whether a fact can be, and what it can be in words


def _among(*words: str) -> Rule:
    return lambda value: type(value) is str and value in words, f"one of {', '.join(words)}"


def _whole(most: int) -> Rule:
    return lambda value: type(value) is int and 1 <= value <= most, f"a whole number from 1 to {most:,}"


def _a(kind: type, words: str) -> Rule:
    return lambda value: type(value) is kind, words


def _number(value: Any, low: float, high: float) -> bool:
    return type(value) in (int, float) and low <= value <= high


def _range(value: Any) -> bool:
    return type(value) is list and len(value) == 2 and all(_number(each, -100, 100) for each in value)


_TRUTH, _WORD = _a(bool, "true or false"), _a(str, "a word")


def _rules(facts: Mapping[str, Any]) -> dict[str, Rule]:
    """Those for all that must be said of a policy of this kind."""
    rules = {
        "kind": _among("actor", "quadratic"),
        "observation_size": _whole(10_000),
        "action_repeat": _whole(10_000),
        "filter": _TRUTH,
    }
    if facts.get("kind") == "quadratic":
        rules |= {"head": _among("vertex", "slope", "tanh"), "full": _TRUTH}
    if facts.get("filter") is True:
        rules |= {
            "full_covariance": _TRUTH,
            "log_variance": (lambda value: _range(value) and value[0] < value[1], "two numbers within ±100 that rise"),
            "raised": (lambda value: _number(value, 0, 1), "a number from 0 to 1"),
        }
    return rules


_ORIGIN: dict[str, Rule] = {  # what may be said beside
    "env": _WORD, "agent": _WORD, "version": _WORD, "seed": _a(int, "a whole number"), "noise": _a(dict, "a table"),
}  # fmt: skip


def check_facts(facts: Mapping[str, Any]) -> None:
    rules = _rules(facts)
    for name in rules:
        if name not in facts:
            raise ValueError(f"it does not say its {name}")
    for name, (allowed, words) in (rules | _ORIGIN | {"activation": _among(*ACTIVATIONS)}).items():
        if name in facts and not allowed(facts[name]):
            raise ValueError(f"its {name} is {reprlib.repr(facts[name])}, not {words}")


def numbers(name: str, array: Any) -> np.ndarray:
    """In double precision, if all are finite and no greater than `LIMIT`."""
    array = np.asarray(array)
    if array.dtype.name not in ("float32", "float64"):
        raise ValueError(f"{reprlib.repr(name)} holds {array.dtype}, not float32 or float64")
    if not (np.abs(array) <= LIMIT).all():
        raise ValueError(f"{reprlib.repr(name)} holds a number that is not finite, or beyond ±{LIMIT:g}")
    return array.astype(np.float64)


def bounds(arrays: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The least and the greatest action."""
    size = arrays["action_low"].size if "action_low" in arrays else 0
    low, high = (take(arrays, name, size) for name in ("action_low", "action_high"))
    if not 1 <= size <= 1000 or not (low.astype(np.float32) < high.astype(np.float32)).all():
        raise ValueError("action_low must lie below action_high, in one to a thousand dimensions")
    return low, high
