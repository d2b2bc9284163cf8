"""Registers configs as pytrees: settings of type float may be traced, all others are static.

The numbers of a list are traced if its field says so. A probability of the sensor that is exactly
zero is static: its fault is then not a part of the compiled program.

`moca.config` itself does not import jax, so that invalid settings are reported quickly.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, cast

import jax
import numpy as np

from moca.config import Config, SensorConfig, is_off

FAULTS = ("drop", "stick")


def _is_traced(field: dataclasses.Field) -> bool:
    return field.type is float or field.metadata["limits"].get("traced", False)


def _register(section: type, traced: list[str]) -> None:
    static = [field.name for field in dataclasses.fields(section) if field.name not in traced]
    jax.tree_util.register_dataclass(section, traced, static)


def _flat_sensor(sensor: SensorConfig) -> tuple[list[Any], tuple]:
    """Returns the numbers to trace, and all else: their names, and the static settings."""
    held = {field.name: getattr(sensor, field.name) for field in dataclasses.fields(sensor)}
    traced = [field.name for field in dataclasses.fields(sensor) if _is_traced(field)]
    names = tuple(name for name in traced if not is_off(held[name]))
    static = tuple((name, value) for name, value in held.items() if name not in names)
    return [held[name] for name in names], (names, static)


def _sensor(aside: tuple, numbers: Sequence[Any]) -> SensorConfig:
    names, static = aside
    return SensorConfig(**dict(static), **dict(zip(names, numbers, strict=True)))


def alike(configs: Sequence[Config]) -> list[Config]:
    """Returns the configs of runs that share a program, as pytrees of one structure.

    A fault of the sensor that only some of them have is traced in all.
    """
    present = [name for name in FAULTS if not all(is_off(getattr(each.sensor, name)) for each in configs)]

    def with_faults(sensor: SensorConfig) -> SensorConfig:
        zeros: dict[str, Any] = {name: np.float32(0) for name in present if is_off(getattr(sensor, name))}
        return dataclasses.replace(sensor, **zeros)

    return [dataclasses.replace(each, sensor=with_faults(each.sensor)) for each in configs]


_sections = {field.name: field.type for field in dataclasses.fields(Config) if dataclasses.is_dataclass(field.type)}
jax.tree_util.register_pytree_node(SensorConfig, _flat_sensor, _sensor)
for _section in set(_sections.values()) - {SensorConfig}:
    _register(cast(type, _section), [field.name for field in dataclasses.fields(_section) if _is_traced(field)])
_register(Config, list(_sections))
