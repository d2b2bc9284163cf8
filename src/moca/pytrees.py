"""Registers configs as pytrees: settings of type float may be traced, all others are static.

`moca.config` itself does not import jax, so that invalid settings are reported quickly.
"""

import dataclasses
from typing import cast

import jax

from moca.config import Config


def _register(section: type, traced: list[str]) -> None:
    static = [field.name for field in dataclasses.fields(section) if field.name not in traced]
    jax.tree_util.register_dataclass(section, traced, static)


_sections = {field.name: field.type for field in dataclasses.fields(Config) if dataclasses.is_dataclass(field.type)}
for _section in _sections.values():
    _register(cast(type, _section), [field.name for field in dataclasses.fields(_section) if field.type is float])
_register(Config, list(_sections))
