"""The command line. Heavy imports wait until the arguments have been checked."""

import argparse
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from moca import __version__, presets, settings
from moca.arguments import Parser, a_path, add_device, at_least_one, from_zero, leave
from moca.config import AGENTS, Config, ConfigError, nearest, override, parse_assignments
from moca.extras import missing
from moca.files import DiskError
from moca.quiet import hide_log
from moca.runs import cli as runs
from moca.runs import interrupts
from moca.studies import cli as studies
from moca.studies.grid import VARIANTS
from moca.zoo import cli as zoo


def _part(text: str) -> str:
    parts = ("backup", "agents")
    if text not in parts:
        raise argparse.ArgumentTypeError(f"{text!r} is unknown.{nearest(text, parts)} Allowed: {', '.join(parts)}")
    return text


def _demo(arguments: argparse.Namespace) -> None:
    from rich.console import Console

    from moca import demo
    from moca.devices import use_device

    use_device("cpu")
    for path in demo.run(arguments.out, Console()):
        print(path)


def _benchmark(arguments: argparse.Namespace) -> None:
    import json

    from rich.console import Console

    from moca import benchmark
    from moca.devices import use_all_cores

    use_all_cores()
    console = Console(stderr=True)
    on_gpu = benchmark.on_gpu()
    widths = arguments.widths or ([64, 256] if on_gpu else [64])
    counts = arguments.runs or ([10, 240] if on_gpu else [1])
    parts = {
        "backup": lambda: benchmark.backup(arguments.rounds),
        "agents": lambda: benchmark.agents(arguments.agents, widths, counts, arguments.envs),
    }
    result: dict[str, Any] = {"machine": benchmark.machine()}
    for part in arguments.parts or parts:
        with console.status(f"Timing {part} …"):
            result[part] = parts[part]()
        if not arguments.json:
            print(benchmark.describe(part, result[part]))
    if arguments.json:
        print(json.dumps(benchmark.ratios(result) | result, indent=2))
    else:
        print("machine: " + ", ".join(f"{name} {value}" for name, value in result["machine"].items()))


def _doctor(arguments: argparse.Namespace) -> None:
    from moca import doctor
    from moca.devices import use_device

    use_device(arguments.device)
    if not doctor.examine(print):
        sys.exit(1)


def _check(arguments: argparse.Namespace) -> None:
    from moca.devices import use_device
    from moca.envs.check import check_env

    given = {"env.name": arguments.env, "agent": "sac", "belief.filter": True}  # which sensor.gaps needs
    config = override(Config(), given | dict(parse_assignments(arguments.set)))  # raises at an impossible name
    told: dict[str, Any] = {"flatten": config.env.flatten, "gaps": config.sensor.gaps, "physics": config.env.physics}
    use_device("cpu")
    print(f"trying {arguments.env} with a dozen action sequences of {arguments.steps} steps …", file=sys.stderr)
    found = check_env(arguments.env, steps=arguments.steps, seed=arguments.seed, **told)
    for fault in found:
        print(fault)
    if any(fault.severity == "fault" for fault in found):
        sys.exit(1)
    print(f"{arguments.env}: no fault in {arguments.steps} step{'s' * (arguments.steps > 1)}")


def _settings(arguments: argparse.Namespace) -> None:
    print((settings.as_json if arguments.json else settings.as_text)(arguments.name))


def _add_benchmark(benchmark: Parser) -> None:
    """Adds the options of `moca benchmark`."""
    benchmark.add_argument(
        "parts",
        nargs="*",
        type=_part,
        metavar="PART",
        help="what to time: backup, agents (default: both, which takes a few minutes)",
    )
    benchmark.add_argument("--json", action="store_true", help="print JSON")
    benchmark.add_argument(
        "--rounds", type=at_least_one, default=25, help="number of timings of each backup (default: 25)"
    )
    agents = ["moca", "moca-ce", "moca-mc-4", "moca-mc-16", "bnaf"]
    benchmark.add_argument(
        "--agents",
        nargs="+",
        choices=[*AGENTS, *VARIANTS],
        metavar="AGENT",
        default=agents,
        help=f"agents to time, any of {', '.join([*AGENTS, *VARIANTS])} (default: {' '.join(agents)})",
    )
    benchmark.add_argument(
        "--widths", nargs="+", type=at_least_one, help="widths of all networks (default: 64; on a GPU 64 256)"
    )
    benchmark.add_argument(
        "--runs", nargs="+", type=at_least_one, help="runs in one program (default: 1; on a GPU 10 240)"
    )
    tasks = sorted(presets.ENVIRONMENTS)
    told = f"tasks, any of {', '.join(tasks)} (default: {tasks[0]})"
    benchmark.add_argument("--envs", nargs="+", choices=tasks, metavar="TASK", default=tasks[:1], help=told)


def _parser() -> tuple[Parser, dict[str, Parser]]:
    """Returns the main parser, and the parser of each command by name."""
    parser = Parser(prog="moca", description="Value targets that carry predictive uncertainty in closed form.")
    parser.add_argument("--version", action="version", version=f"moca {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="command")
    parsers = {}

    def command(name: str, run: Callable[[argparse.Namespace], None], text: str) -> Parser:
        parsers[name] = commands.add_parser(name, help=text, description=text)
        parsers[name].set_defaults(handler=run)
        return parsers[name]

    demo = command(
        "demo", _demo, "a first look: closed form against sampling, Figure 1, and the effect of the covariance"
    )
    demo.add_argument("--out", type=a_path, default=Path("demo"), help="folder for pictures and videos (default: demo)")

    runs.add_commands(command)
    zoo.add_commands(command, parsers)

    listed = command(
        "settings", _settings, "list all settings: type, allowed values, default, presets, and what each does"
    )
    listed.add_argument("name", nargs="?", help="a section, such as critic, or a setting, such as critic.lr")
    listed.add_argument("--json", action="store_true", help="print JSON")

    check = command("check", _check, "try an environment: shapes, types, numbers, seeds; what is wrong and what to do")
    check.add_argument("env", metavar="ENV", help="a Playground or Gymnasium environment, or MODULE:CLASS")
    check.add_argument("--steps", type=at_least_one, default=200, help="length of the trial (default: 200)")
    check.add_argument("--seed", type=from_zero, default=0, help="seed of states and actions (default: 0)")
    check.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of training; env.flatten, env.physics and sensor.gaps change what is checked",
    )

    doctor = command("doctor", _doctor, "check this machine: versions, device, a self-test")
    add_device(doctor)

    _add_benchmark(command("benchmark", _benchmark, "time the backup and training programs"))
    studies.add_commands(command)
    return parser, parsers


def _import_plugins() -> None:
    """Imports the modules in MOCA_PLUGINS, since what they register may appear in the arguments."""
    if os.environ.get("MOCA_PLUGINS"):
        from moca.extending import import_plugins

        try:
            import_plugins()
        except ConfigError as error:
            print(f"moca: error: {error}", file=sys.stderr)
            sys.exit(2)


def _open_streams() -> None:
    """Opens closed standard streams on /dev/null, or a run's files would take their numbers.

    Characters that standard output cannot encode are escaped.
    """
    while (handle := os.open(os.devnull, os.O_RDWR)) < 3:
        os.set_inheritable(handle, True)
    os.close(handle)
    for name, number, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, closefd=False))
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command named in `argv`."""
    if argv is None:
        argv = sys.argv[1:]
        _open_streams()
        interrupts.own_process()
    hide_log()
    _import_plugins()
    parser, parsers = _parser()
    if bare := [word for word in argv if re.fullmatch(r"--[\w-]+=--", word)]:
        parser.error(f"{bare[0].removesuffix('=--')} needs a value, got --")  # argparse would make a list of it
    arguments, unknown = parser.parse_known_args(argv)
    if unknown:
        parsers.get(arguments.command, parser).error(f"unrecognized arguments: {' '.join(unknown)}")
    if arguments.command is None:
        parser.print_help()
        sys.exit(2)
    try:
        arguments.handler(arguments)
        sys.stdout.flush()
    except (interrupts.InterruptedRun, interrupts.DivergedRun) as stopped:
        leave(stopped.code, stopped, sys.stdout)
    except DiskError as error:
        leave(error.code, f"moca {arguments.command}: {error}", sys.stderr)
    except ConfigError as error:
        parsers[arguments.command].error(str(error))
    except ModuleNotFoundError as error:
        if (sentence := missing(error)) is None:
            raise
        parsers[arguments.command].error(sentence)
    except BrokenPipeError:  # the reader, such as head, has closed the pipe
        leave(DiskError.code, "", sys.stderr)
    except OSError as error:
        what = f"{error.filename}: " if error.filename else "cannot print: "
        leave(DiskError.code, f"moca {arguments.command}: {what}{error.strerror or error}", sys.stderr)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(interrupts.AT_ONCE)
