"""Checks of a policy's arrays, and of its observations."""

import reprlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .files import take
from .greedy import ACTIVATIONS

LIMIT = 1e6  # the largest observation, or number in a policy, allowed: squares still fit float32
NOTHING_TO_GO_ON = (
    "an observation with missing values needs an existing belief: the first observation of an episode must be "
    "complete, and so must the next one after the belief has been lost to too many missing values"
)


def checked(what: str, numbers: Any, size: int, gaps: bool = False) -> np.ndarray:
    """Returns `numbers` as an array with `size` entries along its last axis; raises if invalid.

    Args:
        what: Their description, for messages.
        numbers: Any value.
        size: Expected length of the last axis.
        gaps: Whether NaN is allowed, as a missing value.
    """
    try:
        array = np.asarray(numbers)
        if array.dtype.kind in "OSUMmc":
            raise ValueError
        with np.errstate(over="ignore"):
            array = array.astype(np.float64)
    except (ValueError, TypeError):
        raise ValueError(f"{what} must consist of real numbers, got {reprlib.repr(numbers)}") from None
    if array.ndim < 1 or array.shape[-1] != size:
        raise ValueError(f"{what} must have {size} numbers, got an array of shape {array.shape}")
    if not gaps and np.isnan(array).any():
        raise ValueError(f"{what} contains NaN, and there is no filter to handle missing values")
    if (np.abs(array) > LIMIT).any():
        raise ValueError(f"{what} contains {array[np.abs(array) > LIMIT][0]:g}: measurements must be within ±{LIMIT:g}")
    return array


def sane(mean: np.ndarray, covariance: np.ndarray) -> Any:
    """Returns True if the numbers of a belief are finite and within the range of observations."""
    return (np.abs(mean) <= LIMIT).all() & (np.abs(covariance) <= LIMIT**2).all()


Rule = tuple[Callable[[Any], bool], str]  # whether a fact is valid, and a description of valid ones


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


_TRUTH, _WORD = _a(bool, "true or false"), _a(str, "a string")


def _rules(facts: Mapping[str, Any]) -> dict[str, Rule]:
    """Returns the rules for all facts of a policy of this kind."""
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
            "log_variance": (lambda value: _range(value) and value[0] < value[1], "two increasing numbers within ±100"),
            "raised": (lambda value: _number(value, 0, 1), "a number from 0 to 1"),
        }
    return rules


_ORIGIN: dict[str, Rule] = {  # optional facts
    "env": _WORD, "agent": _WORD, "version": _WORD, "seed": _a(int, "a whole number"), "noise": _a(dict, "a table"),
}  # fmt: skip


def check_facts(facts: Mapping[str, Any]) -> None:
    rules = _rules(facts)
    for name in rules:
        if name not in facts:
            raise ValueError(f"it lacks the fact {name}")
    for name, (allowed, words) in (rules | _ORIGIN | {"activation": _among(*ACTIVATIONS)}).items():
        if name in facts and not allowed(facts[name]):
            raise ValueError(f"its {name} is {reprlib.repr(facts[name])}, not {words}")


def numbers(name: str, array: Any) -> np.ndarray:
    """Returns the array in double precision.

    Raises unless all numbers are finite and within `LIMIT`.
    """
    array = np.asarray(array)
    if array.dtype.name not in ("float32", "float64"):
        raise ValueError(f"{reprlib.repr(name)} has type {array.dtype}, not float32 or float64")
    if not (np.abs(array) <= LIMIT).all():
        raise ValueError(f"{reprlib.repr(name)} contains a number that is not finite, or beyond ±{LIMIT:g}")
    return array.astype(np.float64)


def bounds(arrays: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the smallest and the largest action."""
    size = arrays["action_low"].size if "action_low" in arrays else 0
    low, high = (take(arrays, name, size) for name in ("action_low", "action_high"))
    if not 1 <= size <= 1000 or not (low.astype(np.float32) < high.astype(np.float32)).all():
        raise ValueError("action_low must be below action_high, in one to a thousand dimensions")
    return low, high
