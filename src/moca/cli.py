"""The command line. Nothing heavy is imported before the arguments are known to be good."""

import argparse
import itertools
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from moca import __version__, presets, sweep
from moca.arguments import Parser, a_path, add_trust, at_least_one, from_zero, leave, seconds
from moca.config import (
    AGENTS,
    NOISES,
    VALUES,
    Config,
    ConfigError,
    nearest,
    parse_assignment,
    read_settings,
    to_json,
)
from moca.envs.trust import import_module_of
from moca.extras import missing
from moca.files import DiskError
from moca.names import folder_name
from moca.runs import interrupts
from moca.studies import cli as studies
from moca.studies.grid import VARIANTS


def _part(text: str) -> str:
    parts = ("backup", "agents", "growth")
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
    runs = arguments.runs or ([10, 240] if on_gpu else [1])
    parts = {
        "backup": lambda: benchmark.backup(arguments.rounds),
        "agents": lambda: benchmark.agents(arguments.agents, widths, runs, arguments.envs),
        "growth": benchmark.growth,
    }
    result: dict[str, Any] = {"machine": benchmark.machine()}
    for part in arguments.parts or ("backup", "agents"):
        with console.status(f"Timing {part} …"):
            result[part] = parts[part]()
        if not arguments.json:
            print(benchmark.describe(part, result[part]))
    if arguments.json:
        print(json.dumps(benchmark.ratios(result) | result, indent=2))
    else:
        print("machine: " + ", ".join(f"{name} {value}" for name, value in result["machine"].items()))


def _config(arguments: argparse.Namespace) -> Config:
    """Preset, then the file, then the plain options, then --set: the later wins."""
    settings: dict[str, Any] = read_settings(arguments.config) if arguments.config else {}
    plain = {
        "env.name": arguments.env,
        "agent": arguments.agent,
        "seed": arguments.seed,
        "seeds": arguments.seeds,
        "env.action_repeat": arguments.action_repeat,
        "noise.kind": arguments.noise,
        "noise.sigma": arguments.sigma,
        "train.steps": arguments.steps,
        "value.kind": arguments.value,
        "belief.filter": arguments.filter,
    }
    given = {name: value for name, value in plain.items() if value is not None}
    given |= dict(map(parse_assignment, arguments.set))
    settings |= given
    env = settings.get("env.name", "CartpoleBalance")
    if arguments.trust or "env.name" in given:
        import_module_of(str(env))
    found = _look(arguments, env) if presets.lacks(arguments.preset, env, settings) else {}
    return presets.build(arguments.preset, env, settings, found)


def _look(arguments: argparse.Namespace, env: str) -> dict[str, Any]:
    """Settings for an environment without a preset."""
    from moca.devices import use_device
    from moca.envs.defaults import defaults

    print(f"{env} has no preset: taking ranges and scales from a look at it (config.json has them)", file=sys.stderr)
    use_device(arguments.device)
    return defaults(env)


def _out(arguments: argparse.Namespace, config: Config) -> Path:
    """--out, or a directory named after the run that is not there yet."""
    if arguments.out:
        if arguments.out.exists() and not arguments.out.is_dir():
            raise ConfigError(f"--out {arguments.out} is there already, and is no directory: choose another")
        return arguments.out
    name = f"{folder_name(config.env.name)}-{config.agent}-{config.noise.kind}-{config.noise.sigma:g}"
    names = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
    return next(path for path in (Path("runs") / each for each in names) if not path.exists())


def _train(arguments: argparse.Namespace) -> None:
    if arguments.resume:
        _refuse_no_run(arguments.resume)
        print(
            _finish(
                arguments,
                lambda launch, console: launch.resume(
                    arguments.resume, trust=arguments.trust, **_saving(arguments), console=console
                ),
            ).path
        )
        return
    config = _config(arguments)
    if arguments.dry_run:
        print(to_json(config))
        return
    _launch(arguments, config, [{}])


def _sweep(arguments: argparse.Namespace) -> None:
    config = _config(arguments)
    axes, ranges = sweep.parse_axes(arguments.grid, arguments.random)
    if not axes and not ranges:
        raise ConfigError("nothing to sweep: give --grid NAME=A,B,… or --random NAME=LOW:HIGH")
    random_points = sweep.draws(ranges, arguments.samples, config.seed) if ranges else [{}]
    points = sweep.points(config, [{**point, **extra} for point in sweep.grid(axes) for extra in random_points])
    if arguments.dry_run:
        for point in points:
            print(", ".join(f"{name} = {value:g}" for name, value in point.items()))
        return
    _launch(arguments, config, points)


def _launch(arguments: argparse.Namespace, config: Config, points: list[dict[str, float]]) -> None:
    out = _out(arguments, config)
    run = _finish(
        arguments,
        lambda launch, console: launch.train(config, out, varied=points, **_saving(arguments), console=console),
    )
    if len(points) > 1:
        for text in sweep.ranking(run.rows, points):
            print(text)
    print(run.path)


def _saving(arguments: argparse.Namespace) -> dict[str, Any]:
    overlap = getattr(arguments, "overlap", False)  # a sweep has several runs
    return {"checkpoint_every": arguments.checkpoint_every, "keep": arguments.keep, "overlap": overlap}


def _finish(arguments: argparse.Namespace, start: Callable[[Any, Any], Any]) -> Any:
    """What `start` returns, which trains."""
    from rich.console import Console

    from moca.devices import use_device
    from moca.runs import launch

    use_device(arguments.device)
    return start(launch, Console(markup=False, emoji=False))  # a path may have brackets


def _refuse_no_run(directory: Path) -> None:
    """Before jax is imported."""
    if not (directory / "config.json").is_file():
        raise ConfigError(f"{directory} is no run directory: it holds no config.json")


def _evaluate(arguments: argparse.Namespace) -> None:
    _refuse_no_run(arguments.directory)
    from moca.devices import use_device
    from moca.runs.launch import load

    use_device(arguments.device)
    for row in load(arguments.directory, trust=arguments.trust).evaluate(arguments.episodes, arguments.seed):
        print(", ".join(f"{name} {value:g}" for name, value in row.items()))


def _render(arguments: argparse.Namespace) -> None:
    _refuse_no_run(arguments.directory)
    from moca.devices import use_device
    from moca.runs.launch import load

    use_device(arguments.device)
    path, how, total = load(arguments.directory, trust=arguments.trust).render(arguments.run, arguments.seed)
    print(f"return {total:.1f}, {how}")
    print(path)


def _export(arguments: argparse.Namespace) -> None:
    _refuse_no_run(arguments.directory)
    from moca.devices import use_device
    from moca.runs.launch import load

    use_device("cpu")
    print(load(arguments.directory, trust=arguments.trust).export(arguments.out, arguments.run))


def _doctor(arguments: argparse.Namespace) -> None:
    from moca import doctor
    from moca.devices import use_device

    use_device(arguments.device)
    if not doctor.examine(print):
        sys.exit(1)


def _parser() -> tuple[Parser, dict[str, Parser]]:
    """The parser, and each command's own."""
    parser = Parser(prog="moca", description="Value targets that carry predictive uncertainty in closed form.")
    parser.add_argument("--version", action="version", version=f"moca {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="command")
    parsers = {}

    def command(name: str, run: Callable[[argparse.Namespace], None], text: str) -> Parser:
        parsers[name] = commands.add_parser(name, help=text, description=text)
        parsers[name].set_defaults(handler=run)
        return parsers[name]

    demo = command(
        "demo", _demo, "a first look: closed form against sampling, Figure 1, and what the covariance is worth"
    )
    demo.add_argument("--out", type=a_path, default=Path("demo"), help="folder for pictures and films (default: demo)")

    train = command("train", _train, "train an agent: all seeds in one compiled program")
    _add_run_options(train)
    train.add_argument("--resume", type=a_path, metavar="DIR", help="go on with the unfinished run in DIR, exactly")
    train.add_argument(
        "--overlap", action="store_true", help="one run on two CPU cores: faster, and the same up to rounding"
    )

    sweep_ = command("sweep", _sweep, "a small search over settings that are real numbers, in one compiled program")
    _add_run_options(sweep_)
    sweep_.add_argument("--grid", action="append", default=[], metavar="NAME=A,B,…", help="every combination of these")
    sweep_.add_argument("--random", action="append", default=[], metavar="NAME=LOW:HIGH", help="drawn at random")
    sweep_.add_argument("--samples", type=at_least_one, default=8, help="how many random points (default: 8)")

    evaluate = command("evaluate", _evaluate, "returns of the learned policies over fresh episodes")
    evaluate.add_argument("directory", type=a_path, help="a run directory")
    evaluate.add_argument("--episodes", type=at_least_one, default=10, help="per run (default: 10)")
    evaluate.add_argument("--seed", type=from_zero, default=0, help="of the episodes (default: 0)")
    evaluate.add_argument("--device", choices=["cpu", "gpu"], help="default: the best there is")

    render = command("render", _render, "a film of a learned policy")
    render.add_argument("directory", type=a_path, help="a run directory")
    render.add_argument("--run", type=from_zero, default=0, help="which of its runs (default: the first, 0)")
    render.add_argument("--seed", type=from_zero, default=0, help="of the episode (default: 0)")
    render.add_argument("--device", choices=["cpu", "gpu"], help="default: the best there is")

    export = command("export", _export, "a learned policy as one file that runs with NumPy alone: see moca.deploy")
    export.add_argument("directory", type=a_path, help="a run directory")
    export.add_argument("--run", type=from_zero, default=0, help="which of its runs (default: the first, 0)")
    export.add_argument("--out", type=a_path, default=Path("exported.npz"), help="the file (default: exported.npz)")

    for each in (evaluate, render, export):
        add_trust(each)

    doctor = command("doctor", _doctor, "what this machine has, and whether it works: versions, device, a self-test")
    doctor.add_argument("--device", choices=["cpu", "gpu"], help="default: the best there is")

    benchmark = command("benchmark", _benchmark, "time the backup, whole training programs, and their growth")
    benchmark.add_argument(
        "parts",
        nargs="*",
        type=_part,
        metavar="PART",
        help="backup, agents, growth (default: backup agents, a few minutes)",
    )
    benchmark.add_argument("--json", action="store_true", help="print JSON")
    benchmark.add_argument("--rounds", type=at_least_one, default=25, help="how often a backup is timed (default: 25)")
    agents = ["moca", "moca-ce", "moca-mc-4", "moca-mc-16", "bnaf"]
    benchmark.add_argument(
        "--agents", nargs="+", choices=[*AGENTS, *VARIANTS], default=agents, help=f"(default: {' '.join(agents)})"
    )
    benchmark.add_argument("--widths", nargs="+", type=at_least_one, help="of all networks (64; on a GPU also 256)")
    benchmark.add_argument("--runs", nargs="+", type=at_least_one, help="in one program (1; on a GPU 10 240)")
    tasks = sorted(presets.ENVIRONMENTS)
    benchmark.add_argument("--envs", nargs="+", choices=tasks, default=tasks[:1], help=f"(default: {tasks[0]})")
    studies.add_commands(command)
    return parser, parsers


def _add_run_options(parser: Parser) -> None:
    parser.add_argument("--env", help="a MuJoCo Playground environment, or gymnasium:NAME (default: CartpoleBalance)")
    parser.add_argument("--agent", help=f"one of {', '.join(AGENTS)} (default: moca)")
    parser.add_argument("--preset", default="tuned", help=f"one of {', '.join(presets.PRESETS)} (default: tuned)")
    parser.add_argument("--sigma", help="standard deviation of the observation noise (default: 0)")
    parser.add_argument("--noise", help=f"one of {', '.join(NOISES)} (default: homoscedastic)")
    parser.add_argument("--value", help=f"class of V, one of {', '.join(VALUES)} (default: as the preset)")
    parser.add_argument(
        "--filter",
        action=argparse.BooleanOptionalAction,
        help="act and learn on a filtered belief over the state (default: as the preset)",
    )
    parser.add_argument("--steps", help="environment steps per run (default: 100000)")
    parser.add_argument("--seeds", help="how many runs (default: 1)")
    parser.add_argument("--seed", help="the first of the seeds (default: 0)")
    parser.add_argument("--action-repeat", help="environment steps per decision (default: as the preset)")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="any setting, as in config.json"
    )
    parser.add_argument("--config", type=a_path, help="a JSON or TOML file of settings, config.json for example")
    parser.add_argument("--out", type=a_path, help="the run directory (default: runs/…, after the settings)")
    parser.add_argument("--device", choices=["cpu", "gpu"], help="default: the best there is")
    parser.add_argument(
        "--checkpoint-every", type=seconds, default=60.0, metavar="SECONDS", help="from one to the next (default: 60)"
    )
    parser.add_argument("--keep", type=at_least_one, default=2, help="how many checkpoints are kept (default: 2)")
    parser.add_argument("--dry-run", action="store_true", help="print what would be run, and stop")
    add_trust(parser)


def _import_plugins() -> None:
    """What a user has added must be known before arguments are read; there is nothing to load for all others."""
    if os.environ.get("MOCA_PLUGINS"):
        from moca.extending import import_plugins

        try:
            import_plugins()
        except ConfigError as error:
            print(f"moca: error: {error}", file=sys.stderr)
            sys.exit(2)


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command named in `argv`."""
    _import_plugins()
    parser, parsers = _parser()
    if argv is None:
        argv = sys.argv[1:]
        interrupts.own_process()
    if bare := [word for word in argv if re.fullmatch(r"--[\w-]+=--", word)]:
        parser.error(f"{bare[0].removesuffix('=--')} needs a value, and -- is none")  # argparse makes a list of it
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
    except BrokenPipeError:  # a reader that has seen enough
        leave(DiskError.code, "", sys.stderr)
    except OSError as error:
        what = f"{error.filename}: " if error.filename else "cannot print: "
        leave(DiskError.code, f"moca {arguments.command}: {what}{error.strerror or error}", sys.stderr)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(interrupts.AT_ONCE)
