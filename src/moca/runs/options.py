"""The options of `train` and `sweep`: from the command line to a config and a run directory."""

import argparse
import itertools
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from moca import presets
from moca.arguments import Parser, a_path, add_device, add_trust, at_least_one, seconds
from moca.config import (
    AGENTS,
    NOISES,
    VALUES,
    Config,
    ConfigError,
    checked,
    flatten,
    parse_assignments,
    read_settings,
    shown,
    unused,
)
from moca.envs.trust import import_module_of, resuming
from moca.names import folder_name

PRESET = "tuned"  # the default


def _settings() -> dict[str, tuple[str, str]]:
    """Returns the settings with an option of their own: by option, the setting and its help."""
    return {
        "env": ("env.name", "a MuJoCo Playground or Gymnasium environment, or MODULE:CLASS (default: CartpoleBalance)"),
        "agent": ("agent", f"one of {', '.join(AGENTS)} (default: moca)"),
        "sigma": (
            "noise.sigma",
            "standard deviation of the observation noise, or one for each observed dimension, as in 0.1,0.2 "
            "(default: 0)",
        ),
        "noise": ("noise.kind", f"one of {', '.join(NOISES)} (default: homoscedastic)"),
        "drop": ("sensor.drop", "probability that an observation is missing (default: 0)"),
        "delay": ("sensor.delay", "decisions by which observations are late (default: 0)"),
        "observed": ("sensor.observed", "observed dimensions, counted from 0, as in 0,1,2 (default: all)"),
        "history": ("sensor.history", "earlier observations in the state, if it lacks velocities (default: 0)"),
        "value": ("value.kind", f"function class of V, one of {', '.join(VALUES)} (default: from the preset)"),
        "steps": ("train.steps", "environment steps per run (default: 100000)"),
        "seeds": ("seeds", "number of runs, one per seed (default: 1)"),
        "seed": ("seed", "the first seed (default: 0)"),
        "action-repeat": ("env.action_repeat", "environment steps per decision (default: from the preset)"),
    }


def add_run_options(parser: Parser) -> None:
    """Adds the options that `train` and `sweep` share."""
    parser.add_argument("--preset", help=f"one of {', '.join(presets.PRESETS)} (default: {PRESET})")
    for option, (_, text) in _settings().items():
        parser.add_argument(f"--{option}", help=text)
    parser.add_argument(
        "--filter",
        action=argparse.BooleanOptionalAction,
        help="act and learn on a filtered belief over the state (default: from the preset)",
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="any setting, by its name in config.json"
    )
    parser.add_argument("--config", type=a_path, help="a JSON or TOML file of settings, such as a config.json")
    parser.add_argument("--out", type=a_path, help="the run directory (default: runs/…, named after the settings)")
    add_device(parser)
    parser.add_argument(
        "--checkpoint-every",
        type=seconds,
        default=60.0,
        metavar="SECONDS",
        help="seconds between checkpoints (default: 60)",
    )
    parser.add_argument("--keep", type=at_least_one, default=2, help="checkpoints to keep (default: 2)")
    parser.add_argument("--dry-run", action="store_true", help="print the config and exit without training")
    add_trust(parser)


def given_options(arguments: argparse.Namespace) -> dict[str, tuple[str, Any]]:
    """Returns the settings given as options: by dotted name, the option as written and the value.

    Raises if a setting is given twice, with two values.
    """
    found: list[tuple[str, str, Any]] = []
    assigned = parse_assignments(arguments.set, arguments.agent)
    for option, (name, _) in _settings().items():
        if (value := vars(arguments)[option.replace("-", "_")]) is not None:
            name = "noise.sigmas" if option == "sigma" and "," in value else name
            found.append((name, f"--{option} {value}", value))
    if arguments.filter is not None:
        found.append(("belief.filter", "--filter" if arguments.filter else "--no-filter", arguments.filter))
    found += [(name, f"--set {name}={value}", value) for name, value in assigned]
    given: dict[str, tuple[str, Any]] = {}
    for name, option, value in found:
        first, other = given.setdefault(name, (option, value))
        if other != value and checked({name: other}) != checked({name: value}):
            raise ConfigError(f"{option} contradicts {first}: give one of them")
    return given


def given_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """Returns the settings of the --config file, overridden by those of the options."""
    settings: dict[str, Any] = read_settings(arguments.config) if arguments.config else {}
    return settings | {name: value for name, (_, value) in given_options(arguments).items()}


def make_config(arguments: argparse.Namespace) -> Config:
    """Returns the config. From lowest to highest precedence: preset, file, options."""
    settings, preset = given_settings(arguments), arguments.preset or PRESET
    env = settings.get("env.name", "CartpoleBalance")
    if arguments.trust or "env.name" in given_options(arguments):
        import_module_of(str(env))
    config = presets.build(preset, env, settings, _found(arguments, preset, env, settings))
    note_unused(config, given_options(arguments))
    return config


def note_unused(config: Config, names: Iterable[str]) -> None:
    """Prints which of these settings the agent does not use."""
    if idle := unused(config, names):
        print(f"note: {config.agent} does not use {' and '.join(idle)}", file=sys.stderr)


def _found(arguments: argparse.Namespace, preset: str, env: Any, settings: dict[str, Any]) -> dict[str, Any]:
    """Returns settings measured from the environment: its time limit, and what its preset lacks."""
    if not presets.lacks(preset, env, settings) and not presets.lacks_length(env, settings):
        return {}
    from moca.devices import use_device
    from moca.envs.defaults import measured

    use_device(arguments.device)
    return measured(preset, env, settings, tell=lambda text: print(text, file=sys.stderr))


def run_directory(arguments: argparse.Namespace, config: Config) -> Path:
    """Returns --out, or an unused directory named after the run."""
    if arguments.out:
        return arguments.out
    level = "each" if config.noise.sigmas else f"{config.noise.sigma:g}"
    name = f"{folder_name(config.env.name)}-{config.agent}-{config.noise.kind}-{level}"
    names = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
    return next(path for path in (Path("runs") / each for each in names) if not path.exists())


def refuse_contradictions(arguments: argparse.Namespace, config: Config, began: str | None) -> None:
    """Raises if an option, a file or a preset contradicts the settings of the run.

    `began` is the preset that it began with, if known; other settings may have been given too.
    """
    if arguments.out and arguments.out.resolve() != arguments.resume.resolve():
        raise ConfigError(
            f"--out {arguments.out} contradicts --resume {arguments.resume}: a run is resumed in its own directory"
        )
    own = presets.layered(arguments.preset, config.env.name, config.agent) if arguments.preset else {}
    if arguments.preset and began is not None:
        if arguments.preset != began:
            raise ConfigError(
                f"--preset {arguments.preset} contradicts the run in {arguments.resume}: it began with the preset "
                f"{shown(began)}; omit it, or start a new run with --out"
            )
        own = {}
    given, held = given_settings(arguments), flatten(config)
    sources = dict.fromkeys(own, f"--preset {arguments.preset}") | dict.fromkeys(given, f"--config {arguments.config}")
    sources |= {name: option for name, (option, _) in given_options(arguments).items()}
    for name, value in checked(own | given).items():
        if name == "train.steps" and value != held[name]:
            raise ConfigError(
                f"{sources[name]} contradicts the run in {arguments.resume}, which has {held[name]} steps: for another "
                f"total, {resuming(arguments.resume, config.env.name)} --steps {value}"
            )
        if value != held[name]:
            raise ConfigError(
                f"{sources[name]} contradicts the run in {arguments.resume}: its {name} is {shown(held[name])}, not "
                f"{shown(value)}; omit it, or start a new run with --out"
            )
