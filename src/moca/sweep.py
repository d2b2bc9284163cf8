"""A small search over float settings: every point is a run of one vmapped program."""

import itertools
import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

from moca.config import Config, ConfigError, field_of, flatten, override, real, shown

Grid = Mapping[str, Sequence[float]]
Ranges = Mapping[str, tuple[float, float]]
MOST = 10_000  # points


def points(config: Config, varied: Sequence[Mapping[str, Any]]) -> list[dict[str, float]]:
    """Settings by dotted name, all of them floats, each set checked on top of the config; there must be some."""
    if not isinstance(varied, list | tuple) or not varied:
        raise ConfigError(f"varied must be a list of dictionaries of settings, at least one, got {shown(varied)}")
    checked = []
    for settings in varied:
        settled = flatten(override(config, settings))
        for name in settings:
            _refuse_others(name)
        checked.append({name: settled[name] for name in settings})
    if len({tuple(sorted(point.items())) for point in checked}) < len(checked):
        raise ConfigError("two of the variations are the same: each is run with every seed")
    return checked


def grid(axes: Grid) -> list[dict[str, float]]:
    """Every combination of the values of each setting."""
    if math.prod(len(values) for values in axes.values()) > MOST:
        raise ConfigError(f"the grid has more than {MOST} points: leave out some")
    return [dict(zip(axes, point, strict=True)) for point in itertools.product(*axes.values())]


def draws(ranges: Ranges, count: int, seed: int) -> list[dict[str, float]]:
    """`count` random points: log-uniform where the lower end is above zero, uniform otherwise."""
    rng = random.Random(seed)

    def draw(low: float, high: float) -> float:
        return low * (high / low) ** rng.random() if low > 0 else rng.uniform(low, high)

    return [{name: draw(*ends) for name, ends in ranges.items()} for _ in range(count)]


def parse_axes(grids: Sequence[str], ranges: Sequence[str]) -> tuple[Grid, Ranges]:
    """Parses what `--grid` and `--random` were given, by setting; refuses one that is there twice."""
    axes = [parse_axis(text, ",") for text in grids]
    drawn = [parse_axis(text, ":") for text in ranges]
    names = [name for name, _ in [*axes, *drawn]]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ConfigError(f"{twice[0]} is swept twice: give all its values at once")
    return dict(axes), {name: (low, high) for name, (low, high) in drawn}


def parse_axis(text: str, separator: str) -> tuple[str, list[float]]:
    """`sac.critic_lr=1e-4,3e-4` (or `low:high`) as name and numbers; refuses settings that are not floats."""
    name, _, values = text.partition("=")
    _refuse_others(name)
    try:
        numbers = [real(name, value.strip(), -math.inf) for value in values.split(separator)]
    except ConfigError:
        raise ConfigError(f"{name} needs finite numbers separated by '{separator}', got {shown(values)}") from None
    if separator == ":" and (len(numbers) != 2 or numbers[0] >= numbers[1]):
        raise ConfigError(f"{name} needs LOW:HIGH with LOW below HIGH, got {shown(values)}")
    return name, numbers


def _refuse_others(name: str) -> None:
    if field_of(name).type is not float:
        raise ConfigError(f"{name} cannot be swept: only settings that are real numbers share a compiled program")


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
