"""Settings as data: what the paper prints, and what was found to work."""

from collections.abc import Mapping
from math import inf
from typing import Any

from moca.config import Config, ConfigError, nearest, override

# Facts about a task that hold whatever the preset. The scales are those of App. A; sine and cosine are left out.
ENVIRONMENTS: dict[str, dict[str, Any]] = {
    "CartpoleBalance": {"noise.scales": (2.4, inf, inf, 2.0, 3.0)},
}

PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    # [App. D]; "" holds for every environment.
    "paper": {"": {"train.batch": 128}},
    "tuned": {"": {"train.batch": 128}},
}


def build(preset: str, env: str, settings: Mapping[str, Any]) -> Config:
    """The config of a preset for an environment, with `settings` (by dotted name) on top."""
    if preset not in PRESETS:
        raise ConfigError(f"preset = {preset!r} is unknown.{nearest(preset, PRESETS)} Allowed: {', '.join(PRESETS)}")
    layers = [{"env.name": env}, ENVIRONMENTS.get(env, {}), PRESETS[preset][""], PRESETS[preset].get(env, {}), settings]
    merged: dict[str, Any] = {}
    for layer in layers:
        merged.update(layer)
    return override(Config(), merged)
