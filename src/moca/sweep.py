"""A small search over float settings: every point is a run of one vmapped program."""

import itertools
import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

from moca.config import ConfigError, field_of

Grid = Mapping[str, Sequence[float]]
Ranges = Mapping[str, tuple[float, float]]


def grid(axes: Grid) -> list[dict[str, float]]:
    """Every combination of the values of each setting."""
    return [dict(zip(axes, point, strict=True)) for point in itertools.product(*axes.values())]


def draws(ranges: Ranges, count: int, seed: int) -> list[dict[str, float]]:
    """`count` random points: log-uniform where the lower end is above zero, uniform otherwise."""
    rng = random.Random(seed)

    def draw(low: float, high: float) -> float:
        return low * (high / low) ** rng.random() if low > 0 else rng.uniform(low, high)

    return [{name: draw(*ends) for name, ends in ranges.items()} for _ in range(count)]


def parse_axis(text: str, separator: str) -> tuple[str, list[float]]:
    """`sac.critic_lr=1e-4,3e-4` (or `low:high`) as name and numbers; refuses settings that are not floats."""
    name, _, values = text.partition("=")
    item = field_of(name)
    if item.type is not float:
        raise ConfigError(f"{name} cannot be swept: only settings that are real numbers share a compiled program")
    try:
        numbers = [float(value) for value in values.split(separator)]
    except ValueError:
        raise ConfigError(f"{name} needs numbers separated by '{separator}', got {values!r}") from None
    if not all(map(math.isfinite, numbers)):
        raise ConfigError(f"{name} needs finite numbers, got {values!r}")
    if separator == ":" and (len(numbers) != 2 or numbers[0] >= numbers[1]):
        raise ConfigError(f"{name} needs LOW:HIGH with LOW below HIGH, got {values!r}")
    return name, numbers


def ranking(rows: Sequence[Mapping[str, Any]], points: Sequence[Mapping[str, float]]) -> list[str]:
    """One line per point, best first: mean return over its seeds in the last tenth of the training.

    A seed that diverged makes the point's score nothing at all, and is counted.
    """
    last = max(row["step"] for row in rows)
    scored = []
    for point in points:
        own = [r for r in rows if r["step"] > 0.9 * last and all(r[name] == value for name, value in point.items())]
        lost = {row["seed"] for row in own if row["step"] == last and row["return_mean"] is None}
        values = [row["return_mean"] for row in own if row["return_mean"] is not None]
        score = sum(values) / len(values) if values and not lost else float("-inf")
        note = f"  ({len(lost)} of {len({row['seed'] for row in own})} seeds diverged)" if lost else ""
        scored.append((score, ", ".join(f"{name} = {value:g}" for name, value in point.items()) + note))
    return [f"{score:8.1f}  {text}" for score, text in sorted(scored, key=lambda item: -item[0])]
