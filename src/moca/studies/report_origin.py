"""What a study was made from: its films, settings, versions, and how to do it again."""

import base64
import json
import os
import shlex
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

from moca.config import ConfigError, to_json
from moca.received import read_text
from moca.studies import grid, results
from moca.studies.grid import Grid, Job
from moca.studies.report_charts import name_of, noise_label
from moca.studies.report_markup import boxed, details, heads, listed, row_head

FILM_LIMIT = 1_000_000  # bytes; a larger film is linked, not embedded


def films(directory: Path, beside: Path, plan: Grid) -> str:
    """Small films embedded, large ones linked; empty where there are none."""
    parts = []
    jobs = {job.name: job for job in grid.plan(plan)}
    for film in sorted((directory / results.FILMS).glob("*.mp4")):
        if film.is_symlink() or not film.is_file():  # which might show what is not the study's
            continue
        name, size = escape(_filmed(jobs[film.stem]) if film.stem in jobs else film.stem), film.stat().st_size
        if size <= FILM_LIMIT:
            source = base64.b64encode(film.read_bytes()).decode()
            shown = f'<video controls muted loop playsinline aria-label="{name}" src="data:video/mp4;base64,{source}">'
            parts.append(f"<figure>{shown}</video><figcaption>{name}</figcaption></figure>")
        else:
            link = quote(Path(os.path.relpath(film, beside)).as_posix())
            parts.append(
                f'<figure><figcaption><a href="{escape(link)}">{name}</a></figcaption><p class="note">'
                f"{size / 1e6:.1f} MB, too large for this page: a file beside it.</p></figure>"
            )
    if not parts:
        return ""
    inside = f'<h2 id="films">Films</h2><div class="charts">{"".join(parts)}</div>'
    return f'<section aria-labelledby="films">{inside}</section>'


def _filmed(job: Job) -> str:
    noise = job.noises[job.strongest]
    return f"{name_of(job.agent)} on {job.config.env.name}, preset {job.preset}, {noise_label(noise)}, a typical seed"


def configuration(plan: Grid, directory: Path) -> str:
    head = heads("task", "agents", "noise", "steps", "settings")
    rows = []
    for block in plan.blocks:
        settings = ", ".join(f"{name} = {value}" for name, value in block.settings.items()) or "as the preset"
        noises = ", ".join(map(noise_label, block.noises))
        entries = (", ".join(block.agents), noises, f"{block.steps:,}", settings)
        rows.append(row_head(block.env) + "".join(f"<td>{escape(entry)}</td>" for entry in entries))
    jobs = "".join(details(job.name, _settings(directory, job)) for job in grid.plan(plan))
    presets, seeds = escape(", ".join(plan.presets)), f"{plan.seeds}, from {plan.seed} on"
    return (
        f"{boxed('The grid', head, rows)}<p>Presets: {presets}. Seeds per cell: {seeds}.</p>"
        f"{details('study.json', grid.to_json(plan))}"
        '<h3>Settings of every job</h3><p class="note">The cells of a job differ in the noise alone; the settings hold '
        "the greatest level. They are as recorded, or where the run is not there as this version plans them.</p>"
        f'<div class="jobs">{jobs}</div>'
    )


def _settings(directory: Path, job: Job) -> str:
    """What a job was run with."""
    recorded = directory / results.CELLS / job.name / "config.json"
    ours = recorded.is_file() and not recorded.is_symlink()  # which might show what is not the study's
    return read_text(recorded).strip() if ours else to_json(job.config)


def origin(origin: Mapping[str, Any]) -> str:
    """What the jobs were run with; those that were run alike share a row."""
    if not origin:
        return f"<p>Not known: the study has no {results.ORIGIN}.</p>"
    alike: dict[tuple[str, ...], list[str]] = {}
    for name, job in origin.items():
        versions = ", ".join(
            f"{package} {version}" for package, version in (job.get("versions") or {}).items() if version
        )
        key = (job.get("commit") or "not known", job.get("python") or "not known", machine(job), versions)
        alike.setdefault(tuple(map(str, key)), []).append(name)
    head = heads("commit", "Python", "machine", "packages", "jobs", "hours")
    rows = []
    for (commit, *rest), names in alike.items():
        hours = f"{sum(origin[name].get('seconds', 0) for name in names) / 3600:.2f}"
        entries = (*rest, "all" if len(names) == len(origin) else ", ".join(names), hours)
        rows.append(row_head(commit) + "".join(f"<td>{escape(entry)}</td>" for entry in entries))
    return boxed("What the jobs were run with", head, rows)


def again(plan: Grid, origin: Mapping[str, Any]) -> str:
    commits = list(dict.fromkeys(str(job["commit"]) for job in origin.values() if job.get("commit")))
    dirty = [commit.removesuffix("-dirty") for commit in commits if commit.endswith("-dirty")]
    directory = f"studies/{plan.name}"
    lines = [f"git checkout {shlex.quote(commit)}" for commit in commits if len(commits) == 1 and not dirty]
    if command := study_command(plan):
        lines += [command, shlex.join(["moca", "figure", plan.name])]
        note = ""
    else:
        code = f"p = Path({directory!r}); launch.study(results.load_grid(p), p)"
        imports = "from pathlib import Path; from moca.studies import launch, results"
        lines.append(shlex.join(["python", "-c", f"{imports}; {code}"]))
        note = (
            f'<p class="note">The study is a grid of its own; its {results.PLAN} has to be in {escape(directory)}.</p>'
        )
    if dirty:
        note += (
            f'<p class="note">The tree had uncommitted changes, on top of {escape(listed(dirty))}: no checkout '
            "is known to give the same numbers.</p>"
        )
    lines.append(shlex.join(["moca", "report", directory]))
    return f'<pre tabindex="0">{escape(chr(10).join(lines))}</pre>{note}'


def study_command(plan: Grid) -> str | None:
    """The command that runs the grid, if it is one of ours, perhaps narrowed."""
    if plan.name not in grid.GRIDS:
        return None
    ours = grid.GRIDS[plan.name]
    words, options = ["moca", "study", plan.name], {}
    steps, agents = ([getattr(block, key) for block in plan.blocks] for key in ("steps", "agents"))
    given = {"seeds": plan.seeds, "seed": plan.seed, "steps": steps[0], "presets": plan.presets, "agents": agents[0]}
    usual = {
        "seeds": ours.seeds, "seed": ours.seed, "steps": ours.blocks[0].steps, "presets": ours.presets,
        "agents": ours.blocks[0].agents,
    }  # fmt: skip
    for name, value in given.items():
        if value != usual[name]:
            options[name] = value
            words += [f"--{name}", *([str(value)] if isinstance(value, int) else value)]
    own = ours.blocks[0].settings
    settings = {name: value for name, value in plan.blocks[0].settings.items() if own.get(name) != value}
    for name, value in settings.items():
        words += ["--set", f"{name}={value if isinstance(value, str) else json.dumps(value)}"]
    try:
        same = grid.narrowed(ours, **options, settings=settings) == _asked(plan)
    except ConfigError:
        return None
    return shlex.join(words) if same else None


def _asked(plan: Grid) -> Grid:
    """The grid without what was found out about its tasks."""
    return replace(plan, blocks=tuple(replace(block, found={}) for block in plan.blocks))


def machine(job: Mapping[str, Any]) -> str:
    counts = Counter(job.get("device") or ["an unknown device"])
    return listed(name if count == 1 else f"{count} × {name}" for name, count in counts.items())
