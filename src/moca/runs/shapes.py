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


def fault_in_meta(meta: Mapping[str, Any]) -> str:
    """Returns what is wrong with the content of a meta.json; an empty string if nothing is."""
    runs = meta.get("runs")
    if not isinstance(meta.get("identity", {}), dict):
        return "its identity must be an object"
    if not isinstance(runs, list) or not runs or not all(is_run(run) for run in runs):
        return "it must list the runs, each with its seed and numeric settings"
    if len({tuple(run) for run in runs}) != 1:
        return "its runs have different settings"
    if not isinstance(meta.get("preset"), str | None):
        return "its preset must be a name"
    for name in ("extended", "begun"):
        listed = meta.get(name, [])
        if not isinstance(listed, list) or not all(type(steps) is int and 0 < steps < 2**31 for steps in listed):
            return f"{name} must be a list of numbers of steps"
    return ""


def is_lost(entry: Any) -> bool:
    """Returns True for a valid entry of `diverged` in status.json: run, step and cause."""
    if not isinstance(entry, dict) or type(entry.get("step")) is not int:
        return False
    return (
        isinstance(why := entry.get("cause"), str)
        and why.isprintable()
        and is_run({name: value for name, value in entry.items() if name != "cause"})
    )


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
