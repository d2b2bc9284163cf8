"""Checks of single values: numbers, strings and paths from a command line, a file or a caller."""

import difflib
import math
import numbers
import operator
import os
import re
import struct
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import Field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from moca.names import is_name

INT32 = 2**31 - 1  # integers become counters and array sizes
SIZES = (1e-15, 1e15)  # magnitudes allowed for real numbers: float32 holds them, their squares and their inverses
_BOUNDS: dict[str, tuple[Callable[[Any, Any], bool], str]] = {
    "low": (operator.ge, "at least"),
    "above": (operator.gt, "above"),
    "high": (operator.le, "at most"),
    "below": (operator.lt, "below"),
}
# Settings by their names in Stable-Baselines3, if those resemble none of ours or a wrong one.
_ELSEWHERE = {
    "action_noise": ("exploration.sigma", "exploration.probability"),
    "buffer_size": ("train.capacity",),
    "gradient_steps": ("train.updates",),
    "learning_rate": ("critic.lr", "value.lr", "dynamics.lr", "sac.actor_lr", "sac.critic_lr"),
    "learning_starts": ("train.warmup",),
    "net_arch": ("critic.width", "dynamics.width", "sac.width"),
    "policy_kwargs": ("critic.width", "dynamics.width", "sac.width"),
    "target_update_interval": ("critic.target_period",),
}
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?|[+-]?inf|nan", re.ASCII | re.IGNORECASE)


class ConfigError(ValueError):
    """An invalid setting. The message names the setting, its value and what is allowed."""


def nearest(word: str, known: Iterable[str]) -> str:
    """Returns " Did you mean …?" with the nearest known word, or an empty string."""
    return all_nearest([word], known)


def all_nearest(words: Iterable[str], known: Iterable[str]) -> str:
    """Returns the same for several words at once."""
    known = list(known)
    found = [match for word in words for match in _closest(word, known)]
    return f" Did you mean {' and '.join(found)}?" if found else ""


def _closest(word: str, known: Iterable[str]) -> list[str]:
    """Returns the nearest known word, whatever its case, or nothing."""
    lower = {each.lower(): each for each in known}
    return [lower[match] for match in difflib.get_close_matches(word.lower(), lower, n=1, cutoff=0.5)]


def nearest_names(name: str, known: Iterable[str], foreign: Collection[str] = ()) -> str:
    """Returns the three most similar dotted names as text, such as `a, b or c`.

    A name without a dot is also compared with their last parts. For a name from Stable-Baselines3,
    returns its counterparts. Those in `foreign` sections come last.
    """
    name = name[:100]  # a longer one resembles no setting

    def likeness(each: str) -> tuple[bool, float]:
        own, section = difflib.SequenceMatcher(None, name, each).ratio(), each.partition(".")[0]
        if "." not in name:
            own = max(own, difflib.SequenceMatcher(None, name, each.rpartition(".")[2]).ratio())
        return section not in foreign or name.startswith(f"{section}."), own

    there = sorted(_ELSEWHERE.get(name, ()), key=lambda each: each.partition(".")[0] in foreign)
    *most, last = there or sorted(known, key=likeness, reverse=True)[:3]
    return f"{', '.join(most)} or {last}" if most else last


def refuse_unknown_names(
    names: Iterable[Any], known: Collection[str], foreign: Collection[str] = (), removed: Collection[str] = ()
) -> None:
    """Raises `ConfigError` if settings have unknown names: a sentence for each, guesses last.

    Args:
        names: The names, which may be no strings.
        known: The dotted names of all settings.
        foreign: Sections whose settings are the last to be suggested.
        removed: Names of settings of an earlier version.
    """
    facts, guesses = [], []
    for name in (name for name in names if not isinstance(name, str) or name not in known):
        if not isinstance(name, str):
            facts.append(f"a setting must be named by a dotted string, such as train.gamma, got {shown(name)}")
        elif name in removed:
            facts.append(f"the setting {name} was removed in version 0.2: CHANGELOG.md says why")
        elif any(each.startswith(f"{name}.") for each in known):
            facts.append(f"there is no setting {shown(name)}: it is a section, which moca settings {name} lists")
        else:
            near = nearest_names(name, known, foreign)
            guesses.append(f"there is no setting {shown(name)}. Did you mean {near}?")
    if told := [*(f"{fact}." for fact in facts), *guesses]:
        rest = (sentence[0].upper() + sentence[1:] for sentence in told[1:])
        raise ConfigError(" ".join([told[0], *rest, *["moca settings lists all"] * bool(guesses)]).removesuffix("."))


def shown(value: Any) -> str:
    """Returns a value as text for a message: shortened, with all significant digits."""
    try:
        if type(value) is float:
            return f"{value:g}" if float(f"{value:g}") == value else repr(value)
        text = repr(value)
    except Exception:  # a user's __repr__ may raise anything
        text = f"an object of type {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:60]} … {text[-10:]}"


def whole(name: str, value: Any, low: int = 0, high: int = INT32) -> int:
    """Returns `value` as an integer; raises `ConfigError` unless it is one within the limits."""
    return _within(name, _whole(name, value), {"low": low, "high": high})


def real(name: str, value: Any, low: float = 0.0) -> float:
    """Returns `value` as a float; raises `ConfigError` unless it is finite and at least `low`."""
    return _within(name, _real(name, value), {"low": low})


def as_path(name: str, value: Any) -> Path:
    """Returns `value` as a path; raises `ConfigError` unless it is valid on a file system."""
    if not isinstance(value, str | os.PathLike) or not isinstance(text := os.fspath(value), str):
        raise ConfigError(f"{name} must be a path, got {shown(value)}")
    parts = os.fsencode(text).split(b"/") if text.isprintable() else []
    if not text or not parts or max(map(len, parts)) > 255 or len(text) > 1024:
        raise ConfigError(
            f"{name} = {shown(text)} is not a valid path: use printable characters, at most 255 between two slashes"
        )
    return Path(text)


def convert(name: str, value: Any, item: Field) -> Any:
    """Returns `value`, converted to the type of its field; raises `ConfigError` if out of range."""
    kind, limits = item.type, item.metadata["limits"]
    value = _unwrapped(value)
    if kind is float:
        return _within(name, _real(name, value), limits)
    if kind is int:
        return _within(name, _whole(name, value), limits | {"high": limits.get("high", INT32)})
    if kind == tuple[float, ...]:
        return tuple(_within(name, number, limits) for number in _list(name, value))
    if kind == tuple[int, ...]:
        numbers = (_whole(name, number) for number in _list(name, value))
        return tuple(_within(name, number, limits | {"high": limits.get("high", INT32)}) for number in numbers)
    if kind is bool:
        word = str.lower(value) if isinstance(value, str) else value
        for answer, words in ((True, (True, "true", "yes", "1")), (False, (False, "false", "no", "0"))):
            if isinstance(word, str | bool | int) and word in words:
                return answer
        raise ConfigError(f"{name} must be true or false, got {shown(value)}")
    if not isinstance(value, str):
        raise ConfigError(f"{name} must be a string, got {shown(value)}")
    return _known(name, str.__str__(value), limits)


def _unwrapped(value: Any) -> Any:
    """Returns the number in an array without axes; returns any other value unchanged."""
    return value.item() if getattr(value, "ndim", None) == 0 and callable(getattr(value, "item", None)) else value


def _list(name: str, value: Any) -> list[float]:
    """Returns the numbers in a string such as `[1, 2]`, a list, or a one-dimensional array."""
    parts = value.tolist() if getattr(value, "ndim", None) == 1 else value
    if isinstance(value, str):
        inner = value.strip("[]() ")
        parts = [part.strip() for part in inner.split(",")] if inner else []
    try:
        if isinstance(parts, list | tuple):
            return [_real(name, _unwrapped(part)) for part in parts]
    except ConfigError:
        pass
    raise ConfigError(f"{name} must be a list of numbers, got {shown(value)}")


def _real(name: str, value: Any) -> float:
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        number = float(value)
        overflown = math.isinf(number) and value.strip("+-").lower() != "inf"
    elif isinstance(value, numbers.Real) and not isinstance(value, bool):
        try:
            number, overflown = float.__float__(value) if isinstance(value, float) else float(value), False
        except OverflowError:
            overflown = True
    else:
        raise ConfigError(f"{name} must be a number, got {shown(value)}")
    if overflown:
        raise ConfigError(f"{name} = {shown(value)} is out of range: it must be at most {SIZES[1]:g} in size")
    return number


def _whole(name: str, value: Any) -> int:
    if isinstance(value, numbers.Integral) and not isinstance(value, bool):
        return int(value)
    try:
        number = _real(name, value)
    except ConfigError:
        number = math.nan
    if not number.is_integer():
        raise ConfigError(f"{name} must be a whole number, got {shown(value)}")
    return int(number)


def _known(name: str, word: str, limits: Mapping[str, Any]) -> str:
    """Returns `word`; raises `ConfigError` if the field does not allow it."""
    prefixes, word = limits.get("prefixes", ()), limits.get("complete", str)(word)
    if any(word.startswith(prefix) for prefix in prefixes):
        if not is_name(word.partition(":")[2]):
            raise ConfigError(
                f"{name} = {shown(word)} is not a name: use one of Playground's, or {prefixes[0]}NAME, with letters, "
                "digits and any of _ - . : / in NAME"
            )
    elif word not in limits["among"]:
        allowed = words_allowed(limits)
        if isinstance(limits["among"], dict):
            allowed += ", or a name registered by a module in MOCA_PLUGINS"
        if prefixes and (hint := _nearest_environment(word, limits["among"])):
            raise ConfigError(f"{name} = {shown(word)} is unknown.{hint} moca settings {name} lists all")
        hint = nearest(word, limits["among"])
        raise ConfigError(f"{name} = {shown(word)} is unknown.{hint} Allowed: {allowed}")
    return word


def _nearest_environment(word: str, known: Iterable[str]) -> str:
    """Returns what an unknown environment's name may have meant, or an empty string."""
    stem = word.removesuffix(".py")
    named = stem.isidentifier() and is_name(stem)
    own = f" For a class of your own: {stem}:CLASS." if named and (stem != word or _is_module(stem)) else ""
    if not own and re.fullmatch(r"[^\W\d][\w.]*\.[^\W\d]\w*", word):
        return f" For a class of your own, write MODULE:CLASS: {':'.join(word.rsplit('.', 1))}."
    word = word.removeprefix("gym:")[:100].lower()
    found = [*_closest(word, known), *_in_gymnasium(word)]
    found.sort(key=lambda each: difflib.SequenceMatcher(None, each.lower(), word).ratio(), reverse=True)
    same = [each for each in found if each.lower() == word]
    return f"{own} Did you mean {' or '.join(same or found)}?" if found else own


def _is_module(word: str) -> bool:
    """Returns True if a module of that name can be found, here or on the path; imports nothing."""
    with suppress(ImportError, OSError, ValueError):
        here = Path(f"{word}.py").is_file() or Path(word, "__init__.py").is_file()
        return here or find_spec(word) is not None
    return False


def _in_gymnasium(word: str) -> list[str]:
    """Returns Gymnasium's environment of that name, or the newest version of a similar one.

    Nothing if there is none, or if Gymnasium is not installed. Importing it takes a while.
    """
    try:
        from gymnasium import registry
    except ImportError:
        return []
    if same := [each for each in registry if each.lower() == word]:
        return same
    versions: dict[str, list[int]] = {}
    for name, _, version in (each.rpartition("-v") for each in registry):
        if version.isdecimal():
            versions.setdefault(name, []).append(int(version))
    known = {name.lower(): name for name in versions}
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.8)
    return [f"{known[match]}-v{max(versions[known[match]])}" for match in close]


def words_allowed(limits: Mapping[str, Any]) -> str:
    """Returns the allowed words as text for a message."""
    prefixes = limits.get("prefixes", ())
    return ", ".join(limits["among"]) + (f", or {prefixes[0]}NAME or MODULE:CLASS" if prefixes else "")


def bounds_in_words(limits: Mapping[str, Any]) -> list[str]:
    """Returns the bounds as text, such as `at least 0`."""
    bounds = {key: bound for key, bound in limits.items() if key in _BOUNDS}
    return [f"{_BOUNDS[key][1]} {bound if isinstance(bound, int) else shown(bound)}" for key, bound in bounds.items()]


def _within(name: str, number: Any, limits: Mapping[str, Any]) -> Any:
    """Returns `number`; raises `ConfigError` if it, or its float32 value, is outside the limits."""
    bounds = {key: bound for key, bound in limits.items() if key in _BOUNDS}
    wanted = bounds_in_words({key: bound for key, bound in bounds.items() if bound != INT32 or number > INT32})
    inside = all(_BOUNDS[key][0](number, bound) for key, bound in bounds.items())
    if isinstance(number, float):
        least, most = SIZES
        fits = number == 0 or least <= abs(number) <= most
        if math.isinf(number) or math.isnan(number):
            fits = limits.get("infinite", False) and not math.isnan(number)
            wanted = [*([] if limits.get("infinite") else ["finite"]), *wanted]
        elif not fits:
            size = f"from {least:g} to {most:g} in size"
            wanted.append(size if "above" in bounds else f"0 or {size}")
        elif any(single(number) == bound != number for bound in bounds.values()):
            fits = False
            wanted.append(f"distinguishable from {single(number):g} in single precision")
        inside = inside and fits
    if not inside:
        raise ConfigError(f"{name} = {shown(number)} is out of range: it must be {' and '.join(wanted) or 'a number'}")
    return number


def single(number: float) -> float:
    """Returns the number rounded to float32."""
    return struct.unpack("f", struct.pack("f", number))[0]
