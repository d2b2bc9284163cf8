"""The commands about studies: `study`, `figure`, `report`."""

import argparse
from collections.abc import Callable
from pathlib import Path

from moca.arguments import Parser, a_path, add_device, add_trust, at_least_one, from_zero, seconds
from moca.config import ConfigError, nearest, parse_assignment
from moca.studies import grid, look, registry, results


def add_commands(command: Callable[[str, Callable[[argparse.Namespace], None], str], Parser]) -> None:
    """Adds the commands to the command line, through its own function for that."""
    study = command("study", _study, "run a grid of agents, tasks and noise levels; the same command goes on with it")
    study.add_argument("name", help=f"{', '.join(registry.grids())}, or a TOML file of your own")
    study.add_argument("--seeds", type=from_zero, help="runs per cell (default: as the grid)")
    study.add_argument("--seed", type=from_zero, help="the first of the seeds (default: as the grid, 1000)")
    study.add_argument("--steps", type=from_zero, help="environment steps per run (default: as the grid)")
    study.add_argument("--presets", nargs="+", metavar="PRESET", help="default: all of the grid")
    study.add_argument("--agents", nargs="+", metavar="AGENT", help="default: all of the grid")
    study.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="any setting, for all cells")
    study.add_argument("--out", type=a_path, help="the study's directory (default: studies/NAME)")
    study.add_argument("--launcher", choices=["local", "ray"], default="local", help="default: local")
    study.add_argument("--ray-address", metavar="ADDRESS", help="of a Ray cluster (default: one of this machine alone)")
    study.add_argument("--parallel", type=at_least_one, default=1, help="jobs at once on a machine (default: 1)")
    study.add_argument("--only", metavar="JOB", help="this job alone, by name or number, in this process; for arrays")
    study.add_argument("--checkpoint-every", type=seconds, default=120.0, metavar="SECONDS", help="default: 120")
    add_device(study)
    study.add_argument("--dry-run", action="store_true", help="print the plan and about how long it takes, and stop")
    add_trust(study)

    figure = command("figure", _figure, "draw a figure of the paper, or of a study")
    made = [f"{name}: {figure.text}" for name, figure in registry.figures().items()]
    own = f"{', '.join(registry.grids())}, a TOML file of your own, or a study's directory: from that study's results"
    figure.add_argument("name", help=f"{'; '.join(made)}; {own}")
    figure.add_argument("--results", type=a_path, metavar="DIR", help="the study's directory (default: studies/NAME)")
    figure.add_argument("--out", type=a_path, default=Path("figures"), help="folder for the files (default: figures)")
    figure.add_argument(
        "--formats", nargs="+", choices=["pdf", "svg", "png"], default=["pdf", "svg", "png"], help="default: all three"
    )

    report = command("report", _report, "one page about a study: scores, claims, curves, settings; opens offline")
    report.add_argument("directory", type=a_path, help="a study's directory")
    report.add_argument("--out", type=a_path, help="the page (default: report.html in that directory)")


def _study(arguments: argparse.Namespace) -> None:
    plan = grid.narrowed(
        grid.find(arguments.name),
        seeds=arguments.seeds,
        seed=arguments.seed,
        steps=arguments.steps,
        presets=arguments.presets,
        agents=arguments.agents,
        settings=dict(map(parse_assignment, arguments.set)),
    )
    out = arguments.out or Path("studies") / plan.name
    plan = look.complete(plan, out, arguments.trust)
    jobs = grid.chosen(grid.plan(plan), arguments.only)
    results.refuse_other(out, plan)
    if arguments.launcher == "ray":
        from moca.studies import launch

        launch.import_ray()
    if arguments.dry_run:
        from moca.studies import display

        print(display.describe(out, jobs))
        return
    from rich.console import Console

    from moca.studies import launch

    console = Console(markup=False, emoji=False)  # a path may have brackets
    options = launch.Options(
        arguments.parallel, arguments.device, arguments.checkpoint_every, arguments.ray_address, trust=True
    )
    if arguments.only:
        launch.prepare(out, plan, trust=True)
        launch.work(out, arguments.only, options, console)
        print(out)
        return
    table = launch.study(plan, out, launcher=arguments.launcher, options=options, console=console)
    print(_page(out, None))
    print(table)


def _figure(arguments: argparse.Namespace) -> None:
    name, out, formats = arguments.name, arguments.out, tuple(arguments.formats)
    if name in registry.figures():
        paths = registry.figures()[name].draw(out, formats)
    else:
        paths = _figures_of_study(name, arguments.results, out, formats)
    for path in paths:
        print(path)


def _figures_of_study(name: str, directory: Path | None, out: Path, formats: tuple[str, ...]) -> list[Path]:
    """The figures of a study that has a name or a file, or of the one in a directory."""
    known = [*registry.figures(), *registry.grids()]
    if (Path(name) / results.PLAN).is_file():
        study, directory = results.load_grid(Path(name)).name, directory or Path(name)
    elif name in known or name.endswith(".toml"):
        study = grid.find(name).name
        directory = directory or Path("studies") / study
    else:
        allowed = f"{', '.join(known)}, a file ending in .toml, or a study's directory"
        raise ConfigError(f"figure = {name!r} is unknown.{nearest(name, known)} Allowed: {allowed}")
    if not directory.exists():
        raise ConfigError(f"{directory} is not there: run moca study {name} first, or give --results DIR")
    if (held := results.load_grid(directory).name) != study:
        raise ConfigError(f"--results {directory} holds the study {held}, not {study}")
    from moca.studies import curves

    return curves.draw(directory, out, formats)


def _report(arguments: argparse.Namespace) -> None:
    print(_page(arguments.directory, arguments.out))


def _page(directory: Path, out: Path | None) -> Path:
    from moca.studies import report

    return report.write(directory, out)
