"""The text of `moca settings`, from the metadata of each config field. Nothing here imports jax."""

import json
from difflib import get_close_matches
from typing import Any, NamedTuple

from moca import presets
from moca.config import Config, ConfigError, bounds_in_words, field_of, fields, flatten, plain, shown, words_allowed

TYPES: dict[Any, str] = {
    bool: "true or false",
    float: "number",
    int: "whole number",
    str: "string",
    tuple[float, ...]: "list of numbers",
    tuple[int, ...]: "list of whole numbers",
}


class Setting(NamedTuple):
    """A setting and its description."""

    name: str
    type: str
    allowed: str
    default: Any
    presets: dict[str, dict[str, Any]]  # its values in each preset: see `presets.values_of`
    text: str  # its description, one sentence

    @property
    def briefly_allowed(self) -> str:
        """The allowed values, or the command that lists them if the list is long."""
        return self.allowed if len(self.allowed) <= 80 else f"see moca settings {self.name}"


def find(name: str | None = None) -> list[Setting]:
    """Returns all settings, those of a section, or the one of that name.

    Raises `ConfigError` if unknown.
    """
    if name in sections():
        return sections()[str(name)]
    if name is None:
        return [_setting(each) for each in fields()]
    if name not in fields() and "." not in name and (near := get_close_matches(name, sections(), n=1, cutoff=0.7)):
        raise ConfigError(f"there is no section {shown(name)}. Did you mean {near[0]}? moca settings lists all")
    return [_setting(name)]


def sections() -> dict[str, list[Setting]]:
    """Returns the settings by section; those without a section come first, under ""."""
    found: dict[str, list[Setting]] = {}
    for name in fields():
        found.setdefault(name.rpartition(".")[0], []).append(_setting(name))
    return found


def about(section: str) -> str:
    """Returns the description of a section: the first line of its class's docstring."""
    kind = type(getattr(Config(), section)) if section else Config
    return str(kind.__doc__).strip().splitlines()[0]


def _setting(name: str) -> Setting:
    item = field_of(name)
    limits = item.metadata["limits"]
    allowed = [f"one of {words_allowed(limits)}"] if "among" in limits else bounds_in_words(limits)
    infinite = ["inf" if allowed else "any number, inf and -inf"] if limits.get("infinite") else []
    return Setting(
        name,
        TYPES[item.type],
        ", or ".join([" and ".join(allowed), *infinite] if allowed else infinite) or "any",
        flatten(Config())[name],
        presets.values_of(name),
        item.metadata["text"],
    )


def value(given: Any) -> str:
    """Returns a value as `--set` accepts it."""
    if isinstance(given, tuple):
        return f"[{','.join(map(value, given))}]"
    return str(given).lower() if isinstance(given, bool) else given if isinstance(given, str) else shown(given)


def values(own: dict[str, Any]) -> str:
    """Returns the values in a preset as text: the general one, then exceptions."""
    special = [f"{key}: {value(each)}" for key, each in own.items() if key]
    return value(own[""]) + (f" ({'; '.join(special)})" if special else "")


def as_json(name: str | None) -> str:
    """Returns the settings with that name as a JSON list of objects."""
    return json.dumps([plain(setting._asdict()) for setting in find(name)], indent=2, ensure_ascii=False)


def as_text(name: str | None) -> str:
    """Returns the settings with that name as text: one in full, several in two lines each."""
    if name is not None and name not in sections():
        return _full(find(name)[0])
    blocks = []
    for section, own in sections().items():
        if name in (None, section):
            title = f"{section}: {about(section)}" if section else about(section)
            blocks.append("\n".join([title, "", *map(_brief, own)]))
    return "\n\n".join(blocks)


def _brief(setting: Setting) -> str:
    facts = [setting.type, *([setting.briefly_allowed] if setting.allowed != "any" else [])]
    other: dict[str, list[str]] = {}  # presets with the same value, grouped
    for preset, own in setting.presets.items():
        if own != {"": setting.default}:
            other.setdefault(values(own), []).append(preset)
    facts += [f"{', '.join(having)} {text}" for text, having in other.items()]
    return f"  {setting.name} = {value(setting.default)}  ({'; '.join(facts)})\n      {setting.text}"


def _full(setting: Setting) -> str:
    rows = {
        "type": setting.type,
        "allowed": setting.allowed,
        "default": value(setting.default),
        **{f"preset {preset}": values(own) for preset, own in setting.presets.items()},
        "as an option": f"--set {setting.name}=VALUE",
    }
    width = max(map(len, rows)) + 1
    lines = [f"  {title:{width}} {text}" for title, text in rows.items()]
    return "\n".join([setting.name, f"  {setting.text}", "", *lines])
