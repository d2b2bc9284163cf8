"""Registers configs as pytrees: settings of type float may be traced, all others are static.

The numbers of a list are traced if its field says so. A probability of the sensor that is exactly
zero is static, and so is a caution of zero: what they stand for is then not a part of the compiled
program.

`moca.config` itself does not import jax, so that invalid settings are reported quickly.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, cast

import jax
import numpy as np

from moca.config import Config, is_off

# Settings that are static if they are zero, by section.
OPTIONAL: dict[str, tuple[str, ...]] = {"sensor": ("drop", "stick"), "plan": ("caution", "curiosity")}


def _register(section: type, optional: Sequence[str] = ()) -> None:
    """Registers a section; those of its numbers that are optional are static if they are zero."""
    fields = dataclasses.fields(section)
    traced = [
        field.name
        for field in fields
        if dataclasses.is_dataclass(field.type) or field.type is float or field.metadata["limits"].get("traced", False)
    ]

    def flat(settings: Any) -> tuple[list[Any], tuple]:
        """Returns the numbers to trace, and all else: their names, and the static settings."""
        held = {field.name: getattr(settings, field.name) for field in fields}
        on = tuple(name for name in traced if name not in optional or not is_off(held[name]))
        return [held[name] for name in on], (on, tuple((name, held[name]) for name in held if name not in on))

    def whole(aside: tuple, numbers: Sequence[Any]) -> Any:
        on, static = aside
        return section(**dict(static), **dict(zip(on, numbers, strict=True)))

    jax.tree_util.register_pytree_node(section, flat, whole)


def alike(configs: Sequence[Config]) -> list[Config]:
    """Returns the configs of runs that share a program, as pytrees of one structure.

    A number that is static if it is zero, but is not zero in all of them, is traced in all.
    """

    def traced(config: Config, section: str) -> Any:
        own, every = getattr(config, section), [getattr(each, section) for each in configs]
        present = (name for name in OPTIONAL[section] if any(not is_off(getattr(each, name)) for each in every))
        zeros: dict[str, Any] = {name: np.float32(0) for name in present if is_off(getattr(own, name))}
        return dataclasses.replace(own, **zeros)

    return [dataclasses.replace(each, **{section: traced(each, section) for section in OPTIONAL}) for each in configs]


for _field in dataclasses.fields(Config):
    if dataclasses.is_dataclass(_field.type):
        _register(cast(type, _field.type), OPTIONAL.get(_field.name, ()))
_register(Config)
