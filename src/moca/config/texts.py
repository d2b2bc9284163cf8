"""Settings as text: JSON and TOML files, and assignments on a command line."""

import dataclasses
import json
import math
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from moca.config.checks import ConfigError, shown
from moca.config.sections import Config, checked, override, refuse_unnamed

FILE_LIMIT = 2**20  # bytes in a file of settings


def to_json(config: Config) -> str:
    """Returns the whole config as JSON; infinities become the strings "inf" and "-inf"."""
    return json.dumps(plain(dataclasses.asdict(config)), indent=2)


def from_json(text: str) -> Config:
    """Returns the config that `to_json` wrote; settings that are missing keep their defaults."""
    return override(Config(), settings_of(text))


def read_settings(path: Path) -> dict[str, Any]:
    """Returns the settings in a JSON or TOML file, by dotted name and checked."""
    try:
        if path.exists() and not path.is_file():
            raise ConfigError(f"cannot read the config file {path}: it is not a regular file")
        with path.open("rb") as file:
            content = file.read(FILE_LIMIT + 1)
        if len(content) > FILE_LIMIT:
            raise ConfigError(f"the config file {path} is too large: at most {FILE_LIMIT} bytes are allowed")
        return checked(settings_of(content.decode("utf-8-sig"), path.suffix == ".toml"))
    except OSError as error:
        raise ConfigError(f"cannot read the config file {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"the config file {path} is not UTF-8 text") from None
    except ConfigError as error:
        raise error if str(path) in str(error) else ConfigError(f"the config file {path}: {error}") from None


def parsed(text: str, toml: bool = False, **hooks: Any) -> Any:
    """Returns the content of a text in JSON, read with these hooks of `json`, or in TOML."""
    try:
        return tomllib.loads(text) if toml else json.loads(text, **hooks)
    except RecursionError:
        raise ConfigError("it is nested too deeply") from None
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(f"it is not {'TOML' if toml else 'JSON'}: {error}") from None


def settings_of(text: str, toml: bool = False) -> dict[str, Any]:
    """Returns the settings in the text of a JSON or TOML file, by dotted name."""
    tree = parsed(text, toml, object_pairs_hook=_once, parse_constant=_no_constant)
    if not isinstance(tree, dict):
        raise ConfigError(f'settings must be a table, such as {{"train": {{"gamma": 0.98}}}}, got {shown(tree)}')
    pairs: list[tuple[str, Any]] = []
    for name, value in tree.items():
        pairs += (
            [(f"{name}.{inner}", leaf) for inner, leaf in value.items()] if isinstance(value, dict) else [(name, value)]
        )
    return _once(pairs)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Returns the pairs as a dictionary; raises `ConfigError` if a name occurs twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ConfigError(f"{shown(next(name for name in names if names.count(name) > 1))} is set twice")
    return found


def _no_constant(word: str) -> Any:
    raise ConfigError(f'{word} is not valid JSON: write an infinite number as "inf" or "-inf"')


def parse_assignments(texts: Iterable[str], agent: Any = "") -> list[tuple[str, str]]:
    """Splits assignments such as `critic.lr=3e-4` into names and values.

    `agent` is as in `refuse_unnamed`.
    """
    found = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(
                f"a setting must have the form NAME=VALUE, for example train.gamma=0.98; got {shown(text)}"
            )
        found.append((name.strip(), value.strip()))
    refuse_unnamed((name for name, _ in found), agent)
    return found


def plain(tree: Any) -> Any:
    """Returns settings as JSON can hold them: tuples as lists, infinities as strings."""
    if isinstance(tree, dict):
        return {name: plain(value) for name, value in tree.items()}
    if isinstance(tree, tuple):
        return [plain(value) for value in tree]
    return {math.inf: "inf", -math.inf: "-inf"}.get(tree, tree) if isinstance(tree, float) else tree
