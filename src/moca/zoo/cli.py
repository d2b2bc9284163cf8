"""The command `moca zoo`, and `--zoo NAME` of `moca evaluate` and `moca render`."""

import argparse
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from moca import files
from moca.arguments import Parser
from moca.config import ConfigError
from moca.runs.cli import Command, busy

EPISODES = {True: 30, False: 10}  # the default, with --zoo and without
ABOUT_RUNS = ("which", "trust", "run", "ahead")  # options that mean nothing with --zoo


def add_commands(command: Command, parsers: Mapping[str, Parser]) -> None:
    """Adds `moca zoo`, and the options of the commands that can use its policies."""
    listing = command("zoo", _list, "list trained policies with their scores, or show how one was made")
    listing.add_argument("name", nargs="?", metavar="NAME", help="one of them, to show its card")
    listing.add_argument("--json", action="store_true", help="print JSON")
    for name, run in (("evaluate", _evaluate), ("render", _render)):
        parser = parsers[name]
        parser.add_argument("--zoo", metavar="NAME", help="a policy of the zoo instead of a run: see moca zoo")
        parser.set_defaults(handler=_either(parser, run, parser.get_default("handler")))
    parsers["evaluate"].add_argument(
        "--sigma", help="with --zoo: standard deviation of the observation noise (default: the card's)"
    )


def _either(parser: Parser, of_zoo: Callable[..., None], of_run: Callable[..., None]) -> Callable[..., None]:
    """Returns a handler for a run directory or --zoo, whichever is given."""

    def handle(arguments: argparse.Namespace) -> None:
        given = vars(arguments)
        if (arguments.zoo is None) == (arguments.directory is None):
            raise ConfigError("give either a run directory or --zoo NAME; moca zoo lists the names")
        if arguments.zoo is None and given.get("sigma") is not None:
            raise ConfigError("--sigma needs --zoo: a run is evaluated under the noise of its training")
        if arguments.zoo is not None:
            for name in ABOUT_RUNS:
                if name in given and given[name] != parser.get_default(name):
                    raise ConfigError(f"--{name} is for run directories, and cannot be combined with --zoo")
        if "episodes" in given and arguments.episodes is None:
            arguments.episodes = EPISODES[arguments.zoo is not None]
        (of_run if arguments.zoo is None else of_zoo)(arguments)

    return handle


def _list(arguments: argparse.Namespace) -> None:
    from moca.deploy import lacking
    from moca.zoo import cards

    if arguments.json:
        found = {arguments.name: cards.card(arguments.name)} if arguments.name else cards.cards()
        print(json.dumps({name: {**card, "bytes": cards.size(name)} for name, card in found.items()}, indent=2))
        return
    print(cards.told(arguments.name) if arguments.name else cards.table())
    if not arguments.name and (sentence := lacking()):
        print(sentence)


def _played(arguments: argparse.Namespace, episodes: int, doing: str, **options: Any) -> Any:
    """Returns the card's score, the noise, and episodes of the policy."""
    from moca.zoo import cards

    policy, card = cards.load(arguments.zoo)
    config = cards.config(card, vars(arguments).get("sigma"))
    with busy(f"Compiling, then {doing} …"):
        from moca.devices import use_device
        from moca.zoo.play import play

        use_device(arguments.device)
        played = play([policy], config, episodes, arguments.seed, **options)
    return card, config, played


def _evaluate(arguments: argparse.Namespace) -> None:
    card, config, played = _played(arguments, arguments.episodes, f"evaluating {arguments.episodes} episodes")
    from moca.zoo import cards
    from moca.zoo.play import difference, score

    (returns,), expected = played.returns, card["score"]
    found, many = score(returns), len(returns) > 1
    text = cards.brief(found) if many else f"{found['mean']:.1f}"
    print(f"score {text} over {len(returns)} episodes, least {found['min']:.1f}; {config.noise.words}")
    print(f"expected {cards.brief(expected)} over {expected['episodes']} episodes; {cards.config(card).noise.words}")
    if config != cards.config(card):
        print("not comparable: the noise differs")
    elif not many:
        print("one episode has no interval: give --episodes 2 or more")
    else:
        away, most = difference(found, expected)
        verdict = "within" if abs(away) <= most else "outside"
        print(f"difference {round(away, 1) + 0.0:+.1f}, {verdict} the expected ± {most:.1f}")


def _render(arguments: argparse.Namespace) -> None:
    from moca.zoo import cards

    cards.card(arguments.zoo)  # raises at an unknown name, before it becomes that of a file
    files.refuse_odd(path := Path(f"{arguments.zoo}.mp4"))
    *_, played = _played(arguments, 1, "filming an episode", filmed=True)
    from moca.runs import film

    print(f"return {played.returns.item():.1f}, {film.write(path, played.env, played.states, played.rewards[0, 0])}")
    print(path)
