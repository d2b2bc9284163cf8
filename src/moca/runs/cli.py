"""The commands about runs: `train`, `sweep`, `evaluate`, `render`, `inspect`, `export`."""

import argparse
import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from moca import presets, sweep
from moca.arguments import Parser, a_path, add_device, add_trust, at_least_one, from_zero, seconds
from moca.config import (
    AGENTS,
    NOISES,
    VALUES,
    Config,
    ConfigError,
    checked,
    flatten,
    full_name,
    may_be_on_host,
    parse_assignment,
    read_settings,
    shown,
    to_json,
    whole,
)
from moca.envs.trust import import_module_of
from moca.names import folder_name
from moca.runs import BEST, LAST, refuse_foreign

PRESET = "tuned"  # the default


def add_commands(command: Callable[[str, Callable[[argparse.Namespace], None], str], Parser]) -> None:
    """Adds the commands; `command` registers one and returns its parser."""
    train = command("train", _train, "train an agent: all seeds in one compiled program")
    _add_run_options(train)
    train.add_argument(
        "--resume", type=a_path, metavar="DIR", help="resume the run in DIR exactly; --steps sets a new total"
    )
    train.add_argument(
        "--from", dest="start", type=a_path, metavar="DIR", help="start from the weights of the run in DIR"
    )
    train.add_argument("--patience", type=at_least_one, metavar="N", help="stop after N evaluations without a rise")
    train.add_argument("--keep-best", action="store_true", help="keep each run's best policy: evaluate --which best")
    train.add_argument(
        "--overlap", action="store_true", help="train one run on two CPU cores: faster, same result up to rounding"
    )

    sweep_ = command("sweep", _sweep, "search over real-valued settings, in one compiled program")
    _add_run_options(sweep_)
    sweep_.add_argument("--grid", action="append", default=[], metavar="NAME=A,B,…", help="every combination of these")
    sweep_.add_argument(
        "--random", action="append", default=[], metavar="NAME=LOW:HIGH", help="drawn at random from a range"
    )
    sweep_.add_argument("--samples", type=at_least_one, default=8, help="random points (default: 8)")

    evaluate = command("evaluate", _evaluate, "evaluate the learned policies over new episodes")
    evaluate.add_argument("--episodes", type=at_least_one, default=10, help="episodes per run (default: 10)")
    evaluate.add_argument("--seed", type=from_zero, default=0, help="seed of the episodes (default: 0)")
    add_device(evaluate)

    render = command("render", _render, "render a video of a learned policy")
    render.add_argument("--run", type=from_zero, default=0, help="which run in the directory (default: 0, the first)")
    render.add_argument("--seed", type=from_zero, default=0, help="episode's seed (default: 0)")
    add_device(render)

    inspect = command("inspect", _inspect, "write a page that plays one episode: state, prediction, value, Q")
    inspect.add_argument("--run", type=from_zero, default=0, help="which run in the directory (default: 0, the first)")
    inspect.add_argument("--episode", type=from_zero, default=0, metavar="SEED", help="episode's seed (default: 0)")
    inspect.add_argument("--steps", type=at_least_one, help="number of decisions to show (default: all)")
    inspect.add_argument("--beside", type=a_path, metavar="DIR", help="another run directory, from the same start")
    inspect.add_argument("--beside-run", type=from_zero, metavar="RUN", help="which run there (default: as --run)")
    inspect.add_argument(
        "--out", type=a_path, metavar="FILE", help="file to write (default: inspect.html in the directory)"
    )
    add_device(inspect)

    export = command("export", _export, "export a learned policy as one file for NumPy alone, or as an ONNX model")
    export.add_argument(
        "--run", type=from_zero, help="which run in the directory (default: the one with the highest return)"
    )
    export.add_argument(
        "--out",
        type=a_path,
        default=Path("exported.npz"),
        metavar="FILE",
        help="file to write; an ONNX model if its name ends in .onnx (default: exported.npz)",
    )
    export.set_defaults(device="cpu")

    for each in (evaluate, render, inspect, export):
        each.add_argument("directory", type=a_path, help="a run directory; the run may be unfinished")
        each.add_argument(
            "--which",
            choices=(LAST, BEST),
            default=LAST,
            help="the last policies, or those that --keep-best kept (default: last)",
        )
        add_trust(each)


def _add_run_options(parser: Parser) -> None:
    parser.add_argument(
        "--env", help="a MuJoCo Playground or Gymnasium environment, or MODULE:CLASS (default: CartpoleBalance)"
    )
    parser.add_argument("--agent", help=f"one of {', '.join(AGENTS)} (default: moca)")
    parser.add_argument("--preset", help=f"one of {', '.join(presets.PRESETS)} (default: {PRESET})")
    parser.add_argument("--sigma", help="standard deviation of the observation noise (default: 0)")
    parser.add_argument("--noise", help=f"one of {', '.join(NOISES)} (default: homoscedastic)")
    parser.add_argument("--value", help=f"function class of V, one of {', '.join(VALUES)} (default: from the preset)")
    parser.add_argument(
        "--filter",
        action=argparse.BooleanOptionalAction,
        help="act and learn on a filtered belief over the state (default: from the preset)",
    )
    parser.add_argument("--steps", help="environment steps per run (default: 100000)")
    parser.add_argument("--seeds", help="number of runs, one per seed (default: 1)")
    parser.add_argument("--seed", help="the first seed (default: 0)")
    parser.add_argument("--action-repeat", help="environment steps per decision (default: from the preset)")
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


def _options(arguments: argparse.Namespace) -> dict[str, tuple[str, Any]]:
    """Returns the settings given as options: by dotted name, the option as written and the value.

    --set takes precedence over the other options.
    """
    plain = {
        "env.name": ("--env", arguments.env),
        "agent": ("--agent", arguments.agent),
        "seed": ("--seed", arguments.seed),
        "seeds": ("--seeds", arguments.seeds),
        "env.action_repeat": ("--action-repeat", arguments.action_repeat),
        "noise.kind": ("--noise", arguments.noise),
        "noise.sigma": ("--sigma", arguments.sigma),
        "train.steps": ("--steps", arguments.steps),
        "value.kind": ("--value", arguments.value),
        "belief.filter": ("--filter" if arguments.filter else "--no-filter", arguments.filter),
    }
    given = {
        name: (option if isinstance(value, bool) else f"{option} {value}", value)
        for name, (option, value) in plain.items()
        if value is not None
    }
    return given | {name: (f"--set {name}={value}", value) for name, value in map(parse_assignment, arguments.set)}


def _settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """Returns the settings of the --config file, overridden by those of the options."""
    settings: dict[str, Any] = read_settings(arguments.config) if arguments.config else {}
    return settings | {name: value for name, (_, value) in _options(arguments).items()}


def _config(arguments: argparse.Namespace) -> Config:
    """Returns the config. From lowest to highest precedence: preset, file, options, --set."""
    settings, preset = _settings(arguments), arguments.preset or PRESET
    env = settings.get("env.name", "CartpoleBalance")
    if arguments.trust or "env.name" in _options(arguments):
        import_module_of(str(env))
    return presets.build(preset, env, settings, _found(arguments, preset, env, settings))


def _found(arguments: argparse.Namespace, preset: str, env: Any, settings: dict[str, Any]) -> dict[str, Any]:
    """Returns settings measured from the environment: its time limit, and what its preset lacks."""
    lacking = presets.lacks(preset, env, settings)
    limited = "env.episode_length" not in settings and may_be_on_host(full_name(str(env)))
    if not lacking and not limited:
        return {}
    from moca.devices import use_device
    from moca.envs.defaults import defaults, time_limit

    use_device(arguments.device)
    parts = checked({"env.flatten": settings.get("env.flatten", False)})["env.flatten"]
    found = time_limit(env, parts) if limited else {}
    if lacking:
        text = f"{env} has no preset: measuring ranges and scales in short episodes (config.json records them)"
        print(text, file=sys.stderr)
        found |= defaults(env, flatten=parts)
    return found


def _out(arguments: argparse.Namespace, config: Config) -> Path:
    """Returns --out, or an unused directory named after the run."""
    if arguments.out:
        if arguments.out.exists() and not arguments.out.is_dir():
            raise ConfigError(f"--out {arguments.out} exists and is not a directory: choose another")
        refuse_foreign(arguments.out)
        return arguments.out
    name = f"{folder_name(config.env.name)}-{config.agent}-{config.noise.kind}-{config.noise.sigma:g}"
    names = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
    return next(path for path in (Path("runs") / each for each in names) if not path.exists())


def _train(arguments: argparse.Namespace) -> None:
    if arguments.resume:
        _resume(arguments, arguments.resume)
        return
    config = _config(arguments)
    out = _out(arguments, config)
    if arguments.dry_run:
        print(to_json(config))
        return
    _launch(arguments, config, out, [{}])


def _resume(arguments: argparse.Namespace, directory: Path) -> None:
    """Resumes the run in a directory. Options may repeat its settings but not contradict them."""
    _refuse_no_run(directory)
    from moca.runs.directory import RunDirectory

    if arguments.start:
        raise ConfigError(
            f"--from {arguments.start} contradicts --resume {directory}: weights are loaded only when a run starts"
        )
    run, steps = RunDirectory.open(directory), arguments.steps
    arguments.steps = None  # a new total makes the run longer
    _refuse_contradictions(arguments, run.config)
    if arguments.dry_run:
        config = run.config if steps is None else run.longer(whole("--steps", steps, 1))
        if config == run.config:
            run.refuse_other(config, run.runs)
        print(to_json(config))
        return
    launch, options = _start(arguments)
    total = None if steps is None else whole("--steps", steps, 1)
    print(launch.resume(directory, steps=total, trust=arguments.trust, **options).path)


def _refuse_contradictions(arguments: argparse.Namespace, config: Config) -> None:
    """Raises if an option, a file or a preset contradicts the settings of the run."""
    if arguments.out and arguments.out.resolve() != arguments.resume.resolve():
        raise ConfigError(
            f"--out {arguments.out} contradicts --resume {arguments.resume}: a run is resumed in its own directory"
        )
    own = presets.layered(arguments.preset, config.env.name, config.agent) if arguments.preset else {}
    given, held = _settings(arguments), flatten(config)
    sources = dict.fromkeys(own, f"--preset {arguments.preset}") | dict.fromkeys(given, f"--config {arguments.config}")
    sources |= {name: option for name, (option, _) in _options(arguments).items()}
    for name, value in checked(own | given).items():
        if value != held[name]:
            raise ConfigError(
                f"{sources[name]} contradicts the run in {arguments.resume}: its {name} is {shown(held[name])}, not "
                f"{shown(value)}; omit it, or start a new run with --out"
            )


def _sweep(arguments: argparse.Namespace) -> None:
    config = _config(arguments)
    axes, ranges = sweep.parse_axes(arguments.grid, arguments.random)
    if not axes and not ranges:
        raise ConfigError("nothing to sweep: give --grid NAME=A,B,… or --random NAME=LOW:HIGH")
    random_points = sweep.draws(ranges, arguments.samples, config.seed) if ranges else [{}]
    points = sweep.points(config, [{**point, **extra} for point in sweep.grid(axes) for extra in random_points])
    out = _out(arguments, config)
    if arguments.dry_run:
        for point in points:
            print(", ".join(f"{name} = {value:g}" for name, value in point.items()))
        return
    _launch(arguments, config, out, points)


def _launch(arguments: argparse.Namespace, config: Config, out: Path, points: list[dict[str, float]]) -> None:
    launch, options = _start(arguments)
    if start := getattr(arguments, "start", None):  # sweep has no --from
        from moca.runs.run import load

        _refuse_no_run(start)
        options["start"] = load(start, trust=arguments.trust)
    run = launch.train(config, out, varied=points, **options)
    if len(points) > 1:
        for text in sweep.ranking(run.rows, points):
            print(text)
    print(run.path)


def _start(arguments: argparse.Namespace) -> tuple[Any, dict[str, Any]]:
    """Selects the device; returns the module that trains, and the common options."""
    from moca.devices import use_device
    from moca.runs import launch

    use_device(arguments.device)
    return launch, {
        "checkpoint_every": arguments.checkpoint_every,
        "keep": arguments.keep,
        "overlap": getattr(arguments, "overlap", False),  # not an option of sweep
        "console": True,
        "callback": _callbacks(arguments),
    }


def _callbacks(arguments: argparse.Namespace) -> list[Any]:
    """Returns the callbacks for --patience and --keep-best."""
    from moca.runs.callbacks import EarlyStopping, KeepBest

    patience, keep = (
        getattr(arguments, "patience", None),
        getattr(arguments, "keep_best", False),
    )  # not options of sweep
    return [*([EarlyStopping(patience)] if patience else []), *([KeepBest()] if keep else [])]


def _refuse_no_run(directory: Path) -> None:
    """Raises if there is no run in the directory. Called before jax is imported."""
    if not (directory / "config.json").is_file():
        raise ConfigError(f"{directory} is not a run directory: it has no config.json")


def _load(arguments: argparse.Namespace, directory: Path | None = None) -> Any:
    """Loads the run in `directory`, by default the one on the command line."""
    directory = directory or arguments.directory
    _refuse_no_run(directory)
    from moca.devices import use_device
    from moca.runs.run import load

    use_device(arguments.device)
    return load(directory, which=arguments.which, trust=arguments.trust)


def _evaluate(arguments: argparse.Namespace) -> None:
    for row in _load(arguments).evaluate(arguments.episodes, arguments.seed):
        print(", ".join(f"{name} {value:g}" for name, value in row.items() if value == value))  # without NaN


def _render(arguments: argparse.Namespace) -> None:
    path, how, total = _load(arguments).render(arguments.run, arguments.seed)
    print(f"return {total:.1f}, {how}")
    print(path)


def _inspect(arguments: argparse.Namespace) -> None:
    if arguments.beside_run is not None and arguments.beside is None:
        raise ConfigError("--beside-run needs --beside DIR, the directory that holds it")
    for directory in filter(None, (arguments.directory, arguments.beside)):
        _refuse_no_run(directory)
    run, beside = _load(arguments), arguments.beside and _load(arguments, arguments.beside)
    page = run.inspect(arguments.run, arguments.episode, arguments.steps, beside, arguments.beside_run)
    for view in page.views:
        print(f"{view.look.label}: {view.told}")
    print(page.save(arguments.out or arguments.directory / "inspect.html"))


def _export(arguments: argparse.Namespace) -> None:
    run = _load(arguments)
    number = run.best_run if arguments.run is None else arguments.run
    path = run.export(arguments.out, number)
    if len(run.directory.runs) > 1:
        chosen = "" if arguments.run is not None else ", the one with the highest return"
        print(f"run {number} of {len(run.directory.runs)} (seed {run.directory.runs[number]['seed']}){chosen}")
    print(path)
