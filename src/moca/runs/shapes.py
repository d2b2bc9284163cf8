"""Checks of the data in a run directory's files, which may come from elsewhere."""

import math
from collections.abc import Mapping
from typing import Any

from moca.divergence import CAUSES


def is_run(run: Any) -> bool:
    """Returns True for a valid entry of `runs`."""
    if not isinstance(run, dict) or type(run.get("seed")) is not int or not 0 <= run["seed"] < 2**32:
        return False
    return all(is_number(value) for value in run.values())


def are_steps(totals: Any) -> bool:
    """Returns True for a list of numbers of steps."""
    return isinstance(totals, list) and all(type(steps) is int and 0 < steps < 2**31 for steps in totals)


def is_number(value: Any) -> bool:
    """Returns True for a number that fits a float."""
    return (type(value) is float and math.isfinite(value)) or (type(value) is int and abs(value) < 2**53)


def is_time(row: Mapping[str, Any]) -> bool:
    """Returns True for a valid row of timing.jsonl."""
    return type(row.get("step")) is int and is_number(row.get("seconds"))


def is_row(row: Mapping[str, Any]) -> bool:
    """Returns True for a valid row of metrics.jsonl: numbers, or null if not measured."""
    if not {"step", "seed", "diverged", "return_mean", "return_noise_free"} <= row.keys():
        return False
    known = type(row["step"]) is int and row["step"] >= 0 and row["diverged"] in range(len(CAUSES))
    return known and all(value is None or is_number(value) for value in row.values())
