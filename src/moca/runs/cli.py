"""The commands about runs: `train`, `sweep`, `evaluate`, `render`, `inspect`, `export`."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from moca import files, sweep
from moca.arguments import Parser, a_path, add_device, add_trust, at_least_one, from_zero, leave
from moca.config import Config, ConfigError, to_json, whole
from moca.runs import BEST, LAST, refuse_foreign
from moca.runs.interrupts import DivergedRun
from moca.runs.options import (
    PRESET,
    add_run_options,
    make_config,
    note_unused,
    refuse_contradictions,
    run_directory,
)

OTHER = "choose another --out"
SAMPLES = 8  # random points of a sweep
Command = Callable[[str, Callable[[argparse.Namespace], None], str], Parser]


def add_commands(command: Command) -> None:
    """Adds the commands; `command` registers one and returns its parser."""
    _add_training(command)
    of_zoo = (_add_evaluate(command), _add_render(command))  # whose directory may be left out: see moca.zoo.cli
    for each in (*of_zoo, _add_inspect(command), _add_export(command)):
        many: dict[str, Any] = {"nargs": "?"} if each in of_zoo else {}
        each.add_argument("directory", type=a_path, help="a run directory; the run may be unfinished", **many)
        each.add_argument(
            "--which",
            choices=(LAST, BEST),
            default=LAST,
            help="the last policies, or those that --keep-best kept (default: last)",
        )
        add_trust(each)


def _add_training(command: Command) -> None:
    train = command("train", _train, "train an agent: all seeds in one compiled program")
    add_run_options(train)
    train.add_argument(
        "--resume", type=a_path, metavar="DIR", help="resume the run in DIR exactly; --steps sets a new total"
    )
    train.add_argument(
        "--from", dest="start", type=a_path, metavar="DIR", help="start from the weights of the run in DIR"
    )
    train.add_argument(
        "--patience", type=at_least_one, metavar="N", help="stop after N evaluations without a higher return"
    )
    train.add_argument("--keep-best", action="store_true", help="keep each run's best policy, used by --which best")
    train.add_argument(
        "--overlap", action="store_true", help="train one run on two CPU cores: faster, same result up to rounding"
    )

    sweep_ = command("sweep", _sweep, "search over real-valued settings, in one compiled program")
    add_run_options(sweep_)
    sweep_.add_argument("--grid", action="append", default=[], metavar="NAME=A,B,…", help="every combination of these")
    sweep_.add_argument(
        "--random", action="append", default=[], metavar="NAME=LOW:HIGH", help="drawn at random from a range"
    )
    sweep_.add_argument("--samples", type=at_least_one, help=f"random points (default: {SAMPLES})")


def _add_evaluate(command: Command) -> Parser:
    evaluate = command("evaluate", _evaluate, "evaluate the learned policies over new episodes")
    evaluate.add_argument("--episodes", type=at_least_one, help="episodes per run (default: 10; with --zoo: 30)")
    evaluate.add_argument("--seed", type=from_zero, default=0, help="seed of the episodes (default: 0)")
    add_device(evaluate)
    return evaluate


def _add_render(command: Command) -> Parser:
    render = command("render", _render, "render a video of a learned policy")
    render.add_argument("--run", type=from_zero, default=0, help="which run in the directory (default: 0, the first)")
    render.add_argument("--seed", type=from_zero, default=0, help="episode's seed (default: 0)")
    render.add_argument(
        "--ahead",
        type=from_zero,
        default=0,
        metavar="N",
        help="draw the next N decisions as the agent expects them, with bands of 68 and 95 %% (default: 0)",
    )
    add_device(render)
    return render


def _add_inspect(command: Command) -> Parser:
    inspect = command("inspect", _inspect, "write a page that plays one episode: state, prediction, value, Q")
    inspect.add_argument("--run", type=from_zero, default=0, help="which run in the directory (default: 0, the first)")
    inspect.add_argument("--episode", type=from_zero, default=0, metavar="SEED", help="episode's seed (default: 0)")
    inspect.add_argument("--steps", type=at_least_one, help="number of decisions to show (default: all)")
    inspect.add_argument(
        "--ahead", type=from_zero, metavar="N", help="number of decisions to forecast at each step (default: 15)"
    )
    inspect.add_argument(
        "--beside", type=a_path, metavar="DIR", help="another run directory, whose episode starts in the same state"
    )
    inspect.add_argument(
        "--beside-run", type=from_zero, metavar="RUN", help="which run in that directory (default: the same as --run)"
    )
    inspect.add_argument(
        "--out", type=a_path, metavar="FILE", help="file to write (default: inspect.html in the directory)"
    )
    add_device(inspect)
    return inspect


def _add_export(command: Command) -> Parser:
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
    return export


def _train(arguments: argparse.Namespace) -> None:
    if arguments.resume:
        _resume(arguments, arguments.resume)
        return
    if arguments.start:
        _refuse_no_run(arguments.start)
    config, out = _asked(arguments)
    _launch(arguments, config, out, [{}])


def _asked(arguments: argparse.Namespace) -> tuple[Config, Path]:
    """Returns the settings and the directory.

    Raises if --out is unfit, before anything is measured.
    """
    if arguments.out:
        refuse_foreign(arguments.out)
    config = make_config(arguments)
    return config, run_directory(arguments, config)


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
    refuse_contradictions(arguments, run.config, run.meta.get("preset"))
    total = None if steps is None else whole("--steps", steps, 1)
    launch, options = _start(arguments)
    if arguments.dry_run:
        config = launch.before.resume(run, total, trust=arguments.trust, overlap=arguments.overlap)
        launch.before.refuse_held(directory, options["callback"])
        print(to_json(config))
        return
    print(launch.resume(directory, steps=total, trust=arguments.trust, **options).path)


def _sweep(arguments: argparse.Namespace) -> None:
    axes, ranges = sweep.parse_axes(arguments.grid, arguments.random)
    if arguments.samples and not ranges:
        raise ConfigError("--samples needs --random NAME=LOW:HIGH, the range that they are drawn from")
    if not axes and not ranges:
        raise ConfigError("nothing to sweep: give --grid NAME=A,B,… or --random NAME=LOW:HIGH")
    grid = sweep.grid(axes)
    config, out = _asked(arguments)  # which may measure the environment
    random_points = sweep.draws(ranges, arguments.samples or SAMPLES, config.seed) if ranges else [{}]
    points = sweep.points(config, [{**point, **extra} for point in grid for extra in random_points])
    note_unused(config, [*axes, *ranges])
    _launch(arguments, config, out, points)


def _launch(arguments: argparse.Namespace, config: Config, out: Path, points: list[dict[str, float]]) -> None:
    launch, options = _start(arguments)
    if getattr(arguments, "start", None):  # sweep has no --from
        from moca.runs.run import load

        options["start"] = load(arguments.start, trust=arguments.trust)
    if arguments.dry_run:
        asked = {name: options[name] for name in ("start", "overlap") if name in options}
        config = launch.before.begin(config, out, points, **asked).config
        launch.before.refuse_held(out, options["callback"])
        print(to_json(config) if points == [{}] else "\n".join(map(sweep.label, points)))
        return
    run = launch.train(config, out, varied=points, preset=arguments.preset or PRESET, **options)
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

    given = vars(arguments)  # these are not options of sweep
    patience = given.get("patience")
    return [*([EarlyStopping(patience)] if patience else []), *([KeepBest()] if given.get("keep_best") else [])]


def _refuse_no_run(directory: Path) -> None:
    """Raises if there is no run in the directory. Called before jax is imported."""
    if not (directory / "config.json").is_file():
        raise ConfigError(f"{directory} is not a run directory: it has no config.json")


def _load(arguments: argparse.Namespace, number: int | None, directory: Path | None = None) -> Any:
    """Loads the run in `directory`, by default the one on the command line.

    Raises, before anything is compiled, if it has no run of that number or no such policies.
    """
    from moca.devices import use_device
    from moca.runs import policies
    from moca.runs.run import load

    use_device(arguments.device)
    run = load(directory or arguments.directory, which=arguments.which, trust=arguments.trust)
    policies.refuse_none(run, number)
    return run


def busy(text: str) -> Any:
    """Shows on standard error what is being done."""
    from rich.console import Console

    from moca.runs.display import working

    return working(Console(stderr=True), text)


def _tell_steps(run: Any, number: int | None = None, before: str = "") -> None:
    """Prints how many steps the policies in use learned for, which may be fewer than the run's."""
    from moca.runs import policies

    print(f"{before}{policies.told(run, number)}")


def _evaluate(arguments: argparse.Namespace) -> None:
    _refuse_no_run(arguments.directory)
    from moca.runs.display import has_return, score_lines

    run = _load(arguments, None)
    with busy(f"Compiling, then evaluating {arguments.episodes} episodes …"):
        rows = run.evaluate(arguments.episodes, arguments.seed)
    _tell_steps(run)
    for text in score_lines(rows, run.directory.status.get("diverged", [])):
        print(text)
    if not any(map(has_return, rows)):
        leave(DivergedRun.code, "", sys.stdout)  # as training does


def _render(arguments: argparse.Namespace) -> None:
    _refuse_no_run(arguments.directory)
    run = _load(arguments, arguments.run)
    with busy("Compiling, then filming an episode …"):
        path, how, total = run.render(arguments.run, arguments.seed, ahead=arguments.ahead)
    _tell_steps(run, arguments.run)
    print(f"return {total:.1f}, {how}")
    print(path)


def _inspect(arguments: argparse.Namespace) -> None:
    if arguments.beside_run is not None and arguments.beside is None:
        raise ConfigError("--beside-run needs --beside DIR, the directory that holds it")
    for directory in filter(None, (arguments.directory, arguments.beside)):
        _refuse_no_run(directory)
    out = arguments.out or arguments.directory / "inspect.html"
    files.refuse_odd(out, advice=OTHER if arguments.out else "remove it")
    beside_run = arguments.run if arguments.beside_run is None else arguments.beside_run
    run, beside = _load(arguments, arguments.run), arguments.beside and _load(arguments, beside_run, arguments.beside)
    with busy("Compiling, then playing an episode …"):
        which = {"run": arguments.run, "steps": arguments.steps, "beside": beside, "beside_run": beside_run}
        which |= {} if arguments.ahead is None else {"ahead": arguments.ahead}
        page = run.inspect(arguments.episode, **which)
        path = page.save(out)
    for each, number in ((run, arguments.run), (beside, beside_run))[: 2 if beside else 1]:
        _tell_steps(each, number, f"{each.path}: " * (beside is not None))
    for each, view in zip((run, beside), page.views, strict=False):
        print(f"{each.path}: " * (beside is not None) + f"{view.look.label}: {view.told}")
    print(path)


def _export(arguments: argparse.Namespace) -> None:
    _refuse_no_run(arguments.directory)
    files.refuse_odd(arguments.out, advice=OTHER)
    files.refuse_no_policy(arguments.out)
    run = _load(arguments, arguments.run)
    number = run.best_run if arguments.run is None else arguments.run
    path = run.export(arguments.out, number)
    _tell_steps(run, number)
    if len(run.directory.runs) > 1:
        score = "score in best.json" if arguments.which == BEST else "return"
        chosen = "" if arguments.run is not None else f", the one with the highest {score}"
        print(f"run {number} of {len(run.directory.runs)} (seed {run.directory.runs[number]['seed']}){chosen}")
    print(path)
