"""The command line. Nothing heavy is imported before the arguments are known to be good."""

import argparse
import difflib
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from moca import __version__


class Parser(argparse.ArgumentParser):
    """Says which argument was wrong, what is allowed and what was probably meant; exits with 2."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        known = [option for action in self._actions for option in action.option_strings]
        if unknown := re.search(r"unrecognized arguments: (\S+)", message):
            message += self._nearest(unknown[1].split("=")[0], known)
        elif choice := re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message):
            message += self._nearest(choice[1], [c.strip(" '") for c in choice[2].split(",")])
        print(f"{self.prog}: {message}\nSee {self.prog} --help.", file=sys.stderr)
        sys.exit(2)

    @staticmethod
    def _nearest(word: str, known: list[str]) -> str:
        match = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
        return f". Did you mean {match[0]}?" if match else ""


def _at_least_one(text: str) -> int:
    if not text.lstrip("-").isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a whole number of at least 1 is needed, got {text!r}")
    return int(text)


def _demo(arguments: argparse.Namespace) -> None:
    from rich.console import Console

    from moca import demo

    print(demo.run(arguments.out, Console()))


def _figure(arguments: argparse.Namespace) -> None:
    from moca.studies import toy

    for path in toy.draw(arguments.out, tuple(arguments.formats)):
        print(path)


def _benchmark(arguments: argparse.Namespace) -> None:
    import json

    from moca import benchmark

    result = benchmark.run(arguments.rounds)
    if arguments.json:
        print(json.dumps(result, indent=2))
        return
    for name, value in result.items():
        if isinstance(value, float):
            print(f"{name:26s} {value:8.3f}")
    for group in ("seconds", "problem", "machine"):
        print(
            f"{group}: "
            + ", ".join(f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in result[group].items())
        )


def _parser() -> tuple[Parser, dict[str, Parser]]:
    """The parser, and each command's own."""
    parser = Parser(prog="moca", description="Value targets that carry predictive uncertainty in closed form.")
    parser.add_argument("--version", action="version", version=f"moca {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="command")
    parsers = {}

    def command(name: str, run: Callable[[argparse.Namespace], None], text: str) -> Parser:
        parsers[name] = commands.add_parser(name, help=text, description=text)
        parsers[name].set_defaults(run=run)
        return parsers[name]

    demo = command("demo", _demo, "a first look: closed form against sampling, and Figure 1")
    demo.add_argument("--out", type=Path, default=Path("demo"), help="folder for the pictures (default: demo)")

    figure = command("figure", _figure, "draw a figure of the paper")
    figure.add_argument("name", choices=["toy"], help="toy: Figure 1, analytic against Monte Carlo expectation")
    figure.add_argument("--out", type=Path, default=Path("figures"), help="folder for the files (default: figures)")
    figure.add_argument(
        "--formats", nargs="+", choices=["pdf", "svg", "png"], default=["pdf", "svg", "png"], help="default: all three"
    )

    benchmark = command("benchmark", _benchmark, "time the closed-form backup beside Monte Carlo, as ratios")
    benchmark.add_argument("--json", action="store_true", help="print JSON")
    benchmark.add_argument("--rounds", type=_at_least_one, default=25, help="how often each is timed (default: 25)")
    return parser, parsers


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command named in `argv`."""
    parser, parsers = _parser()
    arguments, unknown = parser.parse_known_args(argv)
    if unknown:
        parsers.get(arguments.command, parser).error(f"unrecognized arguments: {' '.join(unknown)}")
    if arguments.command is None:
        parser.print_help()
        sys.exit(2)
    try:
        arguments.run(arguments)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
