"""The origin of a study, as data: videos, settings, versions, and the commands to reproduce it."""

import base64
import json
import shlex
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from moca.config import ConfigError, to_json
from moca.looks import label
from moca.names import displayed
from moca.received import read_text
from moca.studies import grid, registry, results
from moca.studies.grid import Grid, Job
from moca.studies.report_charts import noise_label
from moca.studies.report_tables import Row, Table, heads, listed, row_head


class Again(NamedTuple):
    """The commands that reproduce a study, and notes on them."""

    lines: list[str]
    notes: list[str]


def films(directory: Path, plan: Grid) -> list[tuple[str, str]]:
    """Returns the name of each video, and its content in base64."""
    found = []
    jobs = {job.name: job for job in grid.plan(plan)}
    for film in sorted((directory / results.FILMS).glob("*.mp4")):
        if film.is_symlink() or not film.is_file():  # a link might point outside the study
            continue
        name = _filmed(jobs[film.stem]) if film.stem in jobs else film.stem
        found.append((name, base64.b64encode(film.read_bytes()).decode()))
    return found


def _filmed(job: Job) -> str:
    name, noise = displayed(job.config.env.name), noise_label(job.noises[job.strongest])
    return f"{label(job.agent)} on {name}, preset {job.preset}, {noise}, a typical seed"


def blocks(plan: Grid) -> Table:
    """Returns a table of the blocks of a grid."""
    rows: list[Row] = []
    for block in plan.blocks:
        settings = ", ".join(f"{name} = {value}" for name, value in block.settings.items()) or "as the preset"
        noises = ", ".join(map(noise_label, block.noises))
        rows.append([row_head(displayed(block.env)), ", ".join(block.agents), noises, f"{block.steps:,}", settings])
    return Table("The grid", heads("task", "agents", "noise", "steps", "settings"), rows)


def settings(plan: Grid, directory: Path) -> dict[str, str]:
    """Returns the settings of each job as text, by name."""
    found = {}
    for job in grid.plan(plan):
        recorded = directory / results.CELLS / job.name / "config.json"
        ours = recorded.is_file() and not recorded.is_symlink()  # a link might point outside the study
        found[job.name] = read_text(recorded).strip() if ours else to_json(job.config)
    return found


def origin(origin: Mapping[str, Any]) -> Table | None:
    """Returns a table of versions and machines, or None if unknown; equal jobs share a row."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for name, job in origin.items():
        versions = (job.get("versions") or {}).items()
        packages = ", ".join(f"{package} {version}" for package, version in versions if version)
        key = (job.get("commit") or "not known", job.get("python") or "not known", machine(job), packages)
        alike.setdefault(tuple(map(str, key)), []).append(name)
    rows: list[Row] = []
    for (commit, *rest), names in alike.items():
        hours = f"{sum(origin[name].get('seconds', 0) for name in names) / 3600:.2f}"
        rows.append([row_head(commit), *rest, "all" if len(names) == len(origin) else ", ".join(names), hours])
    head = heads("commit", "Python", "machine", "packages", "jobs", "hours")
    return Table("Software and machines of the jobs", head, rows) if rows else None


def again(plan: Grid, origin: Mapping[str, Any]) -> Again:
    """Returns the commands that run a study, draw its figures and write its page."""
    commits = list(dict.fromkeys(str(job["commit"]) for job in origin.values() if job.get("commit")))
    dirty = [commit.removesuffix("-dirty") for commit in commits if commit.endswith("-dirty")]
    directory, notes = f"studies/{plan.name}", []
    lines = [f"git checkout {shlex.quote(commit)}" for commit in commits if len(commits) == 1 and not dirty]
    if command := study_command(plan):
        lines += [command, shlex.join(["moca", "figure", plan.name])]
    else:
        code = f"p = Path({directory!r}); launch.study(results.load_grid(p), p)"
        imports = "from pathlib import Path; from moca.studies import launch, results"
        lines.append(shlex.join(["python", "-c", f"{imports}; {code}"]))
        lines.append(shlex.join(["moca", "figure", directory]))
        notes.append(f"The study is not a named grid: its {results.PLAN} must be in {directory}.")
    if dirty:
        changes = f"The tree had uncommitted changes, on top of {listed(dirty)}"
        notes.append(f"{changes}: no commit is known to reproduce the numbers.")
    return Again([*lines, shlex.join(["moca", "report", directory])], notes)


def study_command(plan: Grid) -> str | None:
    """Returns the command that runs the grid, if it is a named one, possibly narrowed."""
    if plan.name not in registry.grids():
        return None
    ours = registry.grids()[plan.name]
    words, usual = ["moca", "study", plan.name], _options(ours)
    options = {name: value for name, value in _options(plan).items() if value != usual[name]}
    for name, value in options.items():
        words += [f"--{name}", *([str(value)] if isinstance(value, int) else value)]
    own = ours.blocks[0].settings
    settings = {name: value for name, value in plan.blocks[0].settings.items() if own.get(name) != value}
    for name, value in settings.items():
        words += ["--set", f"{name}={value if isinstance(value, str) else json.dumps(value)}"]
    asked = replace(plan, blocks=tuple(replace(block, found={}) for block in plan.blocks))
    try:
        return shlex.join(words) if grid.narrowed(ours, **options, settings=settings) == asked else None
    except ConfigError:
        return None


def _options(plan: Grid) -> dict[str, Any]:
    """Returns what the options of `moca study` may change in a grid."""
    steps, agents = plan.blocks[0].steps, plan.blocks[0].agents
    return {"seeds": plan.seeds, "seed": plan.seed, "steps": steps, "presets": plan.presets, "agents": agents}


def machine(job: Mapping[str, Any]) -> str:
    """Returns the devices that a job ran on."""
    counts = Counter(job.get("device") or ["an unknown device"])
    return listed(name if count == 1 else f"{count} × {name}" for name, count in counts.items())
