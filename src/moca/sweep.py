"""A small search over float settings: every point is a run of one vmapped program."""

import itertools
import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

from moca.config import Config, ConfigError, checked, field_of, flatten, override, real, refuse_unnamed, shown

Choices = Mapping[str, Sequence[float]]
Ranges = Mapping[str, tuple[float, float]]
MOST = 10_000  # points


def points(config: Config, varied: Sequence[Mapping[str, Any]]) -> list[dict[str, float]]:
    """Returns the variations, checked on top of the config; all their settings must be floats."""
    if not isinstance(varied, list | tuple) or not varied:
        raise ConfigError(f"varied must be a list of dictionaries of settings, at least one, got {shown(varied)}")
    found = []
    for settings in varied:
        settled = flatten(override(config, settings))
        for name in settings:
            _refuse_others(name)
        found.append({name: settled[name] for name in settings})
    if len({tuple(sorted(point.items())) for point in found}) < len(found):
        raise ConfigError("two variations are equal: remove one, since each already runs with every seed")
    return found


def label(point: Mapping[str, float]) -> str:
    """Returns the settings of a point as text; `all` if it has none."""
    return ", ".join(f"{name} = {value:g}" for name, value in point.items()) or "all"


def grid(axes: Choices) -> list[dict[str, float]]:
    """Returns every combination of the values of each setting."""
    if math.prod(len(values) for values in axes.values()) > MOST:
        raise ConfigError(f"the grid has more than {MOST} points: remove some values")
    return [dict(zip(axes, point, strict=True)) for point in itertools.product(*axes.values())]


def draws(ranges: Ranges, count: int, seed: int) -> list[dict[str, float]]:
    """Returns `count` random points: log-uniform if the lower end is above zero, else uniform."""
    rng = random.Random(seed)

    def draw(low: float, high: float) -> float:
        return low * (high / low) ** rng.random() if low > 0 else rng.uniform(low, high)

    return [{name: draw(*ends) for name, ends in ranges.items()} for _ in range(count)]


def parse_axes(grids: Sequence[str], ranges: Sequence[str]) -> tuple[Choices, Ranges]:
    """Parses the values of `--grid` and `--random`; raises if a setting occurs twice."""
    refuse_unnamed(text.partition("=")[0] for text in [*grids, *ranges])
    axes = [parse_axis(text, ",") for text in grids]
    drawn = [parse_axis(text, ":") for text in ranges]
    names = [name for name, _ in [*axes, *drawn]]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ConfigError(f"{twice[0]} is swept twice: give all its values in one option")
    return dict(axes), {name: (low, high) for name, (low, high) in drawn}


def parse_axis(text: str, separator: str) -> tuple[str, list[float]]:
    """Parses `sac.critic_lr=1e-4,3e-4` (or `low:high`) into name and numbers.

    Raises if not a float setting.
    """
    name, _, values = text.partition("=")
    _refuse_others(name)
    try:
        numbers = [real(name, value.strip(), -math.inf) for value in values.split(separator)]
    except ConfigError:
        raise ConfigError(f"{name} needs finite numbers separated by '{separator}', got {shown(values)}") from None
    for number in numbers if separator == "," else ():
        checked({name: number})
    if separator == ":" and (len(numbers) != 2 or numbers[0] >= numbers[1]):
        raise ConfigError(f"{name} needs LOW:HIGH with LOW below HIGH, got {shown(values)}")
    return name, numbers


def _refuse_others(name: str) -> None:
    if field_of(name).type is not float:
        raise ConfigError(f"{name} cannot be swept: only real-valued settings can differ within one compiled program")


def ranking(rows: Sequence[Mapping[str, Any]], points: Sequence[Mapping[str, float]]) -> list[str]:
    """Returns one line per point, best first, with the mean return over the last tenth of training.

    A point with a diverged seed ranks last, and the line says how many seeds diverged.
    """
    last = max(row["step"] for row in rows)
    scored = []
    for point in points:
        own = [r for r in rows if r["step"] > 0.9 * last and all(r[name] == value for name, value in point.items())]
        lost = {row["seed"] for row in own if row["step"] == last and row["return_mean"] is None}
        values = [row["return_mean"] for row in own if row["return_mean"] is not None]
        score = sum(values) / len(values) if values and not lost else float("-inf")
        note = f"  ({len(lost)} of {len({row['seed'] for row in own})} seeds diverged)" if lost else ""
        scored.append((score, label(point) + note))
    return [f"{score:8.1f}  {text}" for score, text in sorted(scored, key=lambda item: -item[0])]
