"""Parts that the command lines share: a parser that suggests the nearest word, and types of arguments."""

import argparse
import os
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from moca.config import ConfigError, as_path, nearest, real, shown, whole

MOST = 100_000  # of what is kept, drawn or run at once


class Parser(argparse.ArgumentParser):
    """Says which argument was wrong, what is allowed and what was probably meant; exits with 2."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        known = [option for action in self._actions for option in action.option_strings]
        if unknown := re.search(r"unrecognized arguments: (\S+)", message):
            message += "." + nearest(unknown[1].split("=")[0], known)
        elif choice := re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message):
            message += "." + nearest(choice[1], [c.strip(" '") for c in choice[2].split(",")])
        leave(2, f"{self.prog}: {message}\nSee {self.prog} --help.", sys.stderr)


def leave(code: int, text: object, stream: Any) -> NoReturn:
    """Ends the program with that exit code, after a last word if there is anywhere to print it to."""
    for each, words in ((sys.stdout, ""), (stream, f"{text}\n" if text else "")):
        try:
            each.write(words)
            each.flush()
        except (OSError, ValueError):
            with suppress(OSError, ValueError):  # so that it is not tried again at the very end, which has its own code
                os.dup2(os.open(os.devnull, os.O_WRONLY), each.fileno())
    sys.exit(code)


def at_least_one(text: str) -> int:
    """A whole number above zero."""
    try:
        return whole("", text, 1, MOST)
    except ConfigError:
        wanted = f"a whole number of at least 1 is needed, got {shown(text)}; {MOST} is the most"
        raise argparse.ArgumentTypeError(wanted) from None


def from_zero(text: str) -> int:
    """A whole number that is not negative: a seed, or the number of a run."""
    try:
        return whole("", text)
    except ConfigError:
        raise argparse.ArgumentTypeError(f"a whole number of at least 0 is needed, got {shown(text)}") from None


def seconds(text: str) -> float:
    """A length of time."""
    try:
        return real("", text)
    except ConfigError:
        raise argparse.ArgumentTypeError(f"a number of seconds, at least 0, is needed, got {shown(text)}") from None


def a_path(text: str) -> Path:
    """A path that a file system can hold."""
    try:
        return as_path("it", text)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def add_trust(parser: Parser) -> None:
    """The option that lets a file name a module to import."""
    parser.add_argument(
        "--trust",
        action="store_true",
        help="import the module that a run's or a study's file names for its environment, and so run its code",
    )


def add_device(parser: Parser) -> None:
    """The option that says where to compute."""
    parser.add_argument("--device", choices=["cpu", "gpu"], help="default: the best there is")
