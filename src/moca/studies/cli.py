"""The commands about studies: `study`, `figure`, `report`."""

import argparse
import shlex
from collections.abc import Callable
from pathlib import Path

from moca.arguments import Parser, a_path, add_device, add_trust, at_least_one, from_zero, seconds
from moca.config import ConfigError, nearest, parse_assignments
from moca.runs.interrupts import DivergedRun
from moca.studies import grid, look, registry, results


def add_commands(command: Callable[[str, Callable[[argparse.Namespace], None], str], Parser]) -> None:
    """Adds the commands; `command` registers one and returns its parser."""
    study = command("study", _study, "run a grid of agents, tasks and noise levels; run it again to resume")
    study.add_argument("name", help=f"{', '.join(registry.grids())}, or your own TOML file")
    study.add_argument("--seeds", type=from_zero, help="runs per cell (default: from the grid)")
    study.add_argument("--seed", type=from_zero, help="the first seed (default: from the grid, 1000)")
    study.add_argument("--steps", type=from_zero, help="environment steps per run (default: from the grid)")
    study.add_argument("--presets", nargs="+", metavar="PRESET", help="presets to run (default: all in the grid)")
    study.add_argument("--agents", nargs="+", metavar="AGENT", help="agents to run (default: all in the grid)")
    study.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="any setting, applied to all cells"
    )
    study.add_argument("--out", type=a_path, help="the study's directory (default: studies/NAME)")
    study.add_argument("--launcher", choices=["local", "ray"], default="local", help="where jobs run (default: local)")
    study.add_argument(
        "--ray-address", metavar="ADDRESS", help="address of a Ray cluster (default: start one on this machine)"
    )
    study.add_argument(
        "--parallel", type=at_least_one, default=1, help="number of jobs to run at once on each machine (default: 1)"
    )
    study.add_argument(
        "--only", metavar="JOB", help="run only this job, by name or number, in this process; for job arrays"
    )
    study.add_argument(
        "--checkpoint-every",
        type=seconds,
        default=120.0,
        metavar="SECONDS",
        help="seconds between checkpoints (default: 120)",
    )
    add_device(study)
    study.add_argument(
        "--dry-run", action="store_true", help="print the plan, and the time left if it was measured, and exit"
    )
    add_trust(study)

    figure = command("figure", _figure, "draw a figure of the paper, or of a study")
    made = [f"{name}: {figure.text}" for name, figure in registry.figures().items()]
    own = "or the name of a study (see moca study --help), its TOML file or its directory"
    figure.add_argument("name", help=f"{'; '.join(made)}; {own}")
    figure.add_argument("--results", type=a_path, metavar="DIR", help="the study's directory (default: studies/NAME)")
    figure.add_argument("--out", type=a_path, default=Path("figures"), help="folder for the files (default: figures)")
    figure.add_argument(
        "--formats",
        nargs="+",
        choices=["pdf", "svg", "png"],
        default=["pdf", "svg", "png"],
        help="file formats (default: all three)",
    )

    report = command("report", _report, "write a page about a study: scores, claims, curves, settings")
    report.add_argument("directory", type=a_path, help="a study's directory")
    report.add_argument("--out", type=a_path, help="file to write (default: report.html in that directory)")


def _study(arguments: argparse.Namespace) -> None:
    plan = grid.narrowed(
        grid.find(arguments.name),
        seeds=arguments.seeds,
        seed=arguments.seed,
        steps=arguments.steps,
        presets=arguments.presets,
        agents=arguments.agents,
        settings=dict(parse_assignments(arguments.set)),
    )
    if arguments.launcher != "ray" and arguments.ray_address:
        raise ConfigError("--ray-address is for --launcher ray: add that, or leave out the address")
    if arguments.launcher == "ray" and arguments.only:
        raise ConfigError(
            "--only runs a job in this process, so --launcher ray would have no part in it: leave out one"
        )
    out = arguments.out or Path("studies") / plan.name
    results.refuse_no_study(out)  # before tasks are measured
    plan = look.complete(plan, out, arguments.trust, arguments.dry_run)
    jobs = grid.chosen(grid.plan(plan), arguments.only)
    results.refuse_other(out, plan)
    if arguments.launcher == "ray":
        from moca.studies import launch

        launch.import_ray()
    if arguments.dry_run:
        from moca.studies import display

        print(display.describe(out, jobs, min(arguments.parallel, len(jobs))))
        return
    from rich.console import Console

    from moca.studies import launch

    console = Console(markup=False, emoji=False)  # a path may contain brackets
    options = launch.Options(
        arguments.parallel, arguments.device, arguments.checkpoint_every, arguments.ray_address, trust=True
    )
    if arguments.only:
        launch.prepare(out, plan, trust=True)
        launch.work(out, arguments.only, options, console)
        print(out)
        return
    table = launch.study(plan, out, launcher=arguments.launcher, options=options, console=console)
    from moca.studies import report

    print(report.write(out))
    print(table)
    if causes := results.all_diverged(out, jobs):
        raise DivergedRun(f"every run of the study diverged: {causes}")


def _figure(arguments: argparse.Namespace) -> None:
    name, out, formats = arguments.name, arguments.out, tuple(arguments.formats)
    if name in registry.figures():
        if arguments.results:
            raise ConfigError(f"--results is for the figures of a study, and {name} is drawn without one: leave it out")
        paths = registry.figures()[name].draw(out, formats)
    else:
        paths = _figures_of_study(name, arguments.results, out, formats)
    for path in paths:
        print(path)


def _figures_of_study(name: str, directory: Path | None, out: Path, formats: tuple[str, ...]) -> list[Path]:
    """Draws the figures of the study with that name, file or directory; returns their paths."""
    known = [*registry.figures(), *registry.grids()]
    if (Path(name) / results.PLAN).is_file():
        study, directory = results.load_grid(Path(name)).name, directory or Path(name)
    elif name in known or name.endswith(".toml"):
        study = grid.find(name).name
        directory = directory or Path("studies") / study
    elif (Path(name) / "config.json").is_file():
        raise ConfigError(
            f"{name} is a run directory, and this command draws studies: training draws the learning curve, in "
            f"{Path(name) / 'figures'}, and moca inspect {shlex.quote(name)} an episode"
        )
    else:
        allowed = f"{', '.join(known)}, a file ending in .toml, or a study's directory"
        raise ConfigError(f"figure = {name!r} is unknown.{nearest(name, known)} Allowed: {allowed}")
    if not directory.exists():
        raise ConfigError(f"{directory} does not exist: run moca study {name} first, or give --results DIR")
    if (held := results.load_grid(directory).name) != study:
        raise ConfigError(f"--results {directory} holds the study {held}, not {study}")
    from moca.studies import curves

    return curves.draw(directory, out, formats)


def _report(arguments: argparse.Namespace) -> None:
    from moca.studies import report

    print(report.write(arguments.directory, arguments.out))
