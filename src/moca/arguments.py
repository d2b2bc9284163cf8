"""Parts of all command lines: a parser that suggests the nearest word, types, and durations."""

import argparse
import os
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from moca.config import ConfigError, all_nearest, as_path, nearest, real, shown, whole

MOST = 100_000  # the largest count that an option accepts


class Parser(argparse.ArgumentParser):
    """Reports which argument is wrong, what is allowed and the nearest match; exits with code 2."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        known = [option for action in self._actions for option in action.option_strings]
        if unknown := re.search(r"unrecognized arguments: (.+)", message):
            message += "." + all_nearest((word.split("=")[0] for word in unknown[1].split() if word[0] == "-"), known)
        elif choice := re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message):
            message += "." + nearest(choice[1], [c.strip(" '") for c in choice[2].split(",")])
        leave(2, f"{self.prog}: {message}\nSee {self.prog} --help.", sys.stderr)


def leave(code: int, text: object, stream: Any) -> NoReturn:
    """Exits with the given code, after printing `text` to `stream` if that is still possible."""
    for each, words in ((sys.stdout, ""), (stream, f"{text}\n" if text else "")):
        try:
            each.write(words)
            each.flush()
        except (OSError, ValueError):
            with suppress(OSError, ValueError):  # or the flush at exit fails and changes the exit code
                os.dup2(os.open(os.devnull, os.O_WRONLY), each.fileno())
    sys.exit(code)


def at_least_one(text: str) -> int:
    """Returns `text` as a positive integer."""
    return _expected(f"a whole number from 1 to {MOST}", text, lambda: whole("", text, 1, MOST))


def from_zero(text: str) -> int:
    """Returns `text` as a non-negative integer: a seed, or the number of a run."""
    return _expected("a whole number of at least 0", text, lambda: whole("", text))


def seconds(text: str) -> float:
    """Returns `text` as a duration in seconds."""
    return _expected("a number of seconds, at least 0", text, lambda: real("", text))


def _expected(what: str, text: str, read: Callable[[], Any]) -> Any:
    try:
        return read()
    except ConfigError:
        raise argparse.ArgumentTypeError(f"expected {what}, got {shown(text)}") from None


def duration(seconds: float) -> str:
    """Returns a duration as text, such as 40 s, 12 min or 3.5 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def a_path(text: str) -> Path:
    """Returns `text` as a path, if it is valid on a file system."""
    try:
        return as_path("the path", text)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def add_trust(parser: Parser) -> None:
    """Adds the option that allows a file to name a module to import."""
    parser.add_argument(
        "--trust",
        action="store_true",
        help="import, and so execute, the module that a run or study file names for its environment",
    )


def add_device(parser: Parser) -> None:
    """Adds the option that selects the device."""
    parser.add_argument("--device", choices=["cpu", "gpu"], help="where to compute (default: a GPU if there is one)")
