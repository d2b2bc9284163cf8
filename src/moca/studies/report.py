"""One page about a study: scores, claims, curves, diagnostics, settings. It opens offline and needs nothing beside it.

The page is `report.html` with the parts of it that are made here; `report.js` draws the charts from a block of JSON.
No date and no path goes in, so the same study is the same bytes. What comes from files is text, never markup.
"""

import base64
import hashlib
import json
import math
import os
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np

from moca.config import ConfigError, to_json
from moca.studies import claims, grid, report_charts, results, statistics
from moca.studies.grid import Grid, Job
from moca.studies.report_charts import metric_of, name_of, noise_label, shown_metrics, style_of

if TYPE_CHECKING:
    import pandas as pd

FILM_LIMIT = 1_000_000  # bytes; a larger film is linked, not embedded
SYMBOLS = {"holds": "✓", "refuted": "✗", "equal": "=", "undecided": "?", "not measured": "–"}
DIAGNOSTICS = (
    "coverage_1sigma", "epistemic_std", "aleatoric_std", "ce_bias", "target_variance", "target_bias", "q_mean",
    "saturation",
)  # fmt: skip


def write(directory: Path, out: Path | None = None) -> Path:
    """The page about the study in a directory, by default `report.html` in it.

    Raises:
        ConfigError: if the directory holds no study, or the page cannot be written.
    """
    out = out or directory / "report.html"
    page = render(directory, out.parent)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(page, encoding="utf-8", newline="\n")
    except OSError as error:
        raise ConfigError(f"cannot write the report {out}: {error.strerror}") from None
    return out


def render(directory: Path, beside: Path) -> str:
    """The page as text; large films are linked as seen from the folder `beside`."""
    plan, table = results.load_grid(directory), results.load_results(directory)
    origin = results.load_origin(directory)
    style, script = report_charts.rules() + _asset("report.css"), _asset("report.js")
    agents, presets = _ordered(table, plan), list(table["preset"].unique())
    data = report_charts.collect(table, agents, presets)
    charts = {panel["section"] for panel in data["panels"]}
    films, noise = _films(directory, beside, plan), _AGAINST_NOISE if "noise" in charts else ""
    sections = {
        "scores": "Final scores", "curves": "Learning curves",
        **({"noise": "Return against noise"} if noise else {}),
        "diagnostics": "Diagnostics", "claims": "Claims",
        **({"films": "Films"} if films else {}),
        "configuration": "Configuration", "origin": "Versions", "again": "Do it again",
    }  # fmt: skip
    return Template(_asset("report.html")).substitute(
        policy=f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; media-src data:; "
        "base-uri 'none'; form-action 'none'",
        title=escape(f"Study {plan.name}"),
        style=style,
        script=script,
        contents="".join(f'<li><a href="#{name}">{text}</a></li>' for name, text in sections.items()),
        summary=_summary(plan, table, origin),
        scores=_scores(table) + _improvements(table) + _speeds(table),
        claims=_claims(table),
        agents="".join(_checkbox(agent) for agent in agents),
        choices=_choices(shown_metrics(table), presets),
        noise=noise,
        diagnostics=_diagnostics(table) + (_CALIBRATION if "calibration" in charts else ""),
        films=films,
        configuration=_configuration(plan, directory),
        origin=_origin(origin),
        again=_again(plan, origin),
        data=_embedded(data),
    )


# Words


def _summary(plan: Grid, table: "pd.DataFrame", origin: Mapping[str, Any]) -> str:
    runs = table.groupby([*statistics.CELL, "seed"])["diverged"].max()
    cells, asked = table.groupby(statistics.CELL).ngroups, sum(len(job.noises) for job in grid.plan(plan))
    tasks = [
        f"{block.env} ({_listed(noise_label(noise) for noise in block.noises)}; {block.steps:,} steps)"
        for block in plan.blocks
    ]
    agents = _listed(name_of(agent) for agent in _ordered(table, plan))
    seeds = f"{plan.seeds} seeds ({plan.seed} to {plan.seed + plan.seeds - 1})" if plan.seeds > 1 else "one seed"
    presets = f"the preset {plan.presets[0]}" if len(plan.presets) == 1 else f"the presets {_listed(plan.presets)}"
    text = f"The study {plan.name} compares {agents} on {_listed(tasks)}, under {presets}, with {seeds} per cell: "
    text += f"{cells} cells, {len(runs)} runs. "
    if cells < asked:
        text += f"Of the {asked} cells asked for, {asked - cells} are not finished and not in here. "
    if machines := dict.fromkeys(_machine(job) for job in origin.values()):
        text += f"It ran on {_listed(machines)}. "
    if lost := int((runs > 0).sum()):
        text += f"{lost} of {len(runs)} runs diverged; all means leave them out, and say how many seeds remain."
    else:
        text += "No run diverged."
    return escape(text)


def _machine(job: Mapping[str, Any]) -> str:
    counts = Counter(job.get("device") or ["an unknown device"])
    return _listed(name if count == 1 else f"{count} × {name}" for name, count in counts.items())


def _listed(items: Iterable[str]) -> str:
    """`a, b and c`."""
    *most, last = items
    return f"{', '.join(most)} and {last}" if most else last


def _ordered(table: "pd.DataFrame", plan: Grid) -> list[str]:
    """The agents in the results, in the order of the plan."""
    there = list(table["agent"].unique())
    planned = dict.fromkeys(agent for block in plan.blocks for agent in block.agents)
    return [*(agent for agent in planned if agent in there), *(agent for agent in there if agent not in planned)]


# Tables


def _scores(table: "pd.DataFrame") -> str:
    """A table per preset and task: agents down, noise levels across."""
    scores = statistics.final_scores(table)
    parts = [
        '<p class="note">Mean return over the last tenth of training: first the mean over seeds ± its 95 % t interval, '
        "then the interquartile mean with its 95 % bootstrap interval, which is too narrow for few seeds. Bold: better "
        "than every other agent in the column, each 95 % interval of the difference being above zero. Evaluations are "
        "shared by seed, so differences are taken seed by seed (Welch where no seed is shared).</p>"
    ]
    for (preset, env), block in scores.groupby(level=["preset", "env"], sort=False):
        agents, noises = (list(block.index.unique(level)) for level in ("agent", "noise"))
        each = {(row[2], row[3]): block.loc[row] for row in block.index}
        bold = {best for noise in noises if (best := _best({a: s for (a, n), s in each.items() if n == noise}, noise))}
        places = _decimals(block.to_numpy())
        head = [
            '<th scope="col" rowspan="2">agent</th>'
            + "".join(f'<th scope="colgroup" colspan="2">{escape(noise_label(noise))}</th>' for noise in noises),
            '<th scope="col">mean</th><th scope="col">IQM</th>' * len(noises),
        ]
        rows = [
            _row_head(name_of(agent))
            + "".join(_score(each.get((agent, noise)), places, (agent, noise) in bold) for noise in noises)
            for agent in agents
        ]
        parts.append(_table(f"{env}, preset {preset}", head, rows, "numbers"))
    return "".join(parts)


def _improvements(table: "pd.DataFrame") -> str:
    """How likely MoCA scores above each other agent: a table per preset and task that has both, else nothing."""
    parts = []
    for (preset, env), block in statistics.final_scores(table).groupby(level=["preset", "env"], sort=False):
        each = {(row[2], row[3]): block.loc[row] for row in block.index}
        agents, noises = (list(block.index.unique(level)) for level in ("agent", "noise"))
        others = [agent for agent in agents if agent != "moca"]
        if "moca" not in agents or not others:
            continue
        rows = [
            _row_head(name_of(other))
            + "".join(_probability(each.get(("moca", noise)), each.get((other, noise))) for noise in noises)
            for other in others
        ]
        parts.append(_table(f"P(MoCA > agent): {env}, preset {preset}", _by_noise(noises), rows, "numbers"))
    if not parts:
        return ""
    note = (
        '<h3>Probability of improvement</h3><p class="note">That a run of MoCA, drawn at random, ends above one of the '
        "other agent, with its 95 % bootstrap interval; a tie counts half, and a run that diverged loses. Runs are "
        "drawn without regard to what seeds share.</p>"
    )
    return note + "".join(parts)


def _probability(ours: "pd.Series | None", theirs: "pd.Series | None") -> str:
    if ours is None or theirs is None:
        return "<td>–</td>"
    found = statistics.improvement(ours, theirs)
    interval = f" [{_number(found.low, 2)}, {_number(found.high, 2)}]" if math.isfinite(found.low) else ""
    return f"<td>{_number(found.value, 2)}{interval}</td>"


def _speeds(table: "pd.DataFrame") -> str:
    """How soon each agent is good: a table per preset and task that has MoCA, else nothing."""
    parts = []
    for (preset, env), block in statistics.final_scores(table).groupby(level=["preset", "env"], sort=False):
        agents, noises = (list(block.index.unique(level)) for level in ("agent", "noise"))
        if "moca" not in agents:
            continue
        columns = []
        for noise in noises:
            here = [row[2] for row in block.index if row[3] == noise]
            means = [statistics.mean_t(block.loc[preset, env, agent, noise]).value for agent in here]
            threshold = claims.REACHED * max((mean for mean in means if math.isfinite(mean)), default=math.nan)
            curves = {agent: statistics.curve(table, preset, env, agent, noise) for agent in here}
            columns.append({agent: statistics.steps_to(*each, threshold) for agent, each in curves.items()})
        rows = [
            _row_head(name_of(agent)) + "".join(_speed(column.get(agent)) for column in columns) for agent in agents
        ]
        parts.append(_table(f"Steps to 90 % of the best: {env}, preset {preset}", _by_noise(noises), rows, "numbers"))
    if not parts:
        return ""
    note = (
        '<h3>Speed</h3><p class="note">Median over seeds of the steps until three evaluations in a row average 90 % of '
        "the best mean in the column of final scores; none unless more than half of the seeds get there.</p>"
    )
    return note + "".join(parts)


def _speed(steps: np.ndarray | None) -> str:
    if steps is None:
        return "<td>–</td>"
    note = f'<span class="note">reached by {np.isfinite(steps).sum()} of {steps.size}</span>'
    return f"<td>{_number(float(np.median(steps)), 0)}{note}</td>"


def _by_noise(noises: Sequence[str]) -> list[str]:
    return _heads("agent", *map(noise_label, noises))


def _score(scores: "pd.Series | None", places: int, bold: bool) -> str:
    """The two cells of a score."""
    if scores is None:
        return "<td>–</td>" * 2
    mean, iqm = statistics.mean_t(scores), statistics.bootstrap(statistics.iqm, scores)
    text = _plus_minus(mean, places)
    note = f'<span class="note">{mean.seeds} of {mean.asked} seeds</span>' if mean.seeds < mean.asked else ""
    interval = f" [{_number(iqm.low, places)}, {_number(iqm.high, places)}]" if math.isfinite(iqm.low) else ""
    return (
        f"<td>{f'<strong>{text}</strong>' if bold else text}{note}</td><td>{_number(iqm.value, places)}{interval}</td>"
    )


def _best(scores: Mapping[str, "pd.Series"], noise: str) -> tuple[str, str] | None:
    """The agent and noise level of the best scores, if they stand apart from all others.

    Evaluations are shared by seed, so agents are compared seed by seed.
    """
    means = {agent: statistics.mean_t(each).value for agent, each in scores.items()}
    means = {agent: mean for agent, mean in means.items() if math.isfinite(mean)}
    if len(means) < 2:
        return None
    best = max(means, key=means.__getitem__)
    ours, *theirs = (scores[agent].dropna() for agent in (best, *(other for other in means if other != best)))
    apart = all(statistics.compared(ours, each).low > 0 for each in theirs)
    return (best, noise) if apart else None


def _claims(table: "pd.DataFrame") -> str:
    """A table per task: claims and noise levels down, presets across."""
    verdicts = claims.judge(table)
    if not verdicts:
        return "<p>The paper claims nothing about these tasks.</p>"
    presets = list(dict.fromkeys(verdict.preset for verdict in verdicts))
    parts = []
    for preset in presets:
        counts = Counter(verdict.verdict for verdict in verdicts if verdict.preset == preset)
        told = ", ".join(f"{SYMBOLS[name]}\u00a0{name}:\u00a0{counts[name]}" for name in SYMBOLS if counts[name])
        parts.append(f"<p>Preset {escape(preset)}: {escape(told)}.</p>")
    for task in dict.fromkeys(verdict.task for verdict in verdicts):
        parts.append(_claims_table(task, [verdict for verdict in verdicts if verdict.task == task], presets))
    notes = "".join(f"<li>{escape(line.removeprefix('- '))}</li>" for line in claims.NOTES.splitlines())
    parts.append(f'<ul class="note plain">{notes}</ul>')
    return "".join(parts)


def _claims_table(task: str, verdicts: Sequence[claims.Verdict], presets: Sequence[str]) -> str:
    rules: dict[tuple[str, str], dict[str, dict[str, claims.Verdict]]] = {}
    for verdict in verdicts:
        by_noise = rules.setdefault((verdict.statement, verdict.rule), {})
        by_noise.setdefault(verdict.noise, {})[verdict.preset] = verdict
    head = _heads("claim", "noise", *(f"preset {preset}" for preset in presets))
    rows = []
    for (statement, rule), by_noise in rules.items():
        first = (
            f'<th scope="rowgroup" rowspan="{len(by_noise)}" class="statement">{escape(statement)}'
            f'<span class="note">{escape(rule)}</span></th>'
        )
        for noise, by_preset in by_noise.items():
            rows.append(
                f'{first}<td class="where">{escape(_noises(noise))}</td>{"".join(map(_verdict, by_preset.values()))}'
            )
            first = ""
    return _table(task, head, rows, "claims")


def _noises(text: str) -> str:
    """`0.025`, or `none → 0.025`, for readers."""
    return " → ".join(noise_label("0" if noise == "none" else noise) for noise in text.split(" → "))


def _verdict(verdict: claims.Verdict) -> str:
    """A table cell with the symbol, the word and the number."""
    word = verdict.verdict
    return (
        f'<td data-preset="{escape(verdict.preset)}"><span class="verdict {word.replace(" ", "-")}">'
        f'<span aria-hidden="true">{SYMBOLS[word]}</span>{word}</span> '
        f"{escape(verdict.measured)}</td>"
    )


def _diagnostics(table: "pd.DataFrame") -> str:
    """What the model and the critic were like at the end: a table per preset and task."""
    scores = {name: statistics.final_scores(table, name) for name in DIAGNOSTICS if name in table}
    head = _heads("agent", "noise", *(metric_of(name).title for name in scores))
    parts = ['<p class="note">Means over the last tenth of training and over seeds, ± the 95 % t interval.</p>']
    for (preset, env), block in table.groupby(["preset", "env"], sort=False):
        columns = []  # of texts by cell
        for name, each in scores.items():
            values = each[[cell[:2] == (preset, env) for cell in each.index]] * metric_of(name).factor
            places = _decimals(values.to_numpy())
            columns.append({cell[2:]: _plus_minus(statistics.mean_t(row), places) for cell, row in values.iterrows()})
        rows = []
        for agent, cells in block.groupby("agent", sort=False):
            noises = list(cells["noise"].unique())
            first = f'<th scope="rowgroup" rowspan="{len(noises)}">{escape(name_of(agent))}</th>'
            for noise in noises:
                texts = (escape(noise_label(noise)), *(column.get((agent, noise), "") for column in columns))
                rows.append(first + "".join(f"<td>{text}</td>" for text in texts))
                first = ""
        parts.append(_table(f"{env}, preset {preset}", head, rows, "numbers"))
    return "".join(parts)


def _table(caption: str, head: Sequence[str], rows: Sequence[str], kind: str = "") -> str:
    """A table in a box that scrolls; rows and head are cells already."""
    lines = lambda rows: "".join(f"<tr>{row}</tr>" for row in rows)  # noqa: E731
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}"><table class="{kind}">'
        f"<caption>{escape(caption)}</caption><thead>{lines(head)}</thead><tbody>{lines(rows)}</tbody></table></div>"
    )


def _heads(*titles: str) -> list[str]:
    """A head of one row."""
    return ["".join(f'<th scope="col">{escape(title)}</th>' for title in titles)]


def _row_head(text: str) -> str:
    return f'<th scope="row">{escape(text)}</th>'


def _decimals(values: np.ndarray) -> int:
    """As many as leave three digits of the largest."""
    size = np.abs(values[np.isfinite(values)]).max(initial=0)
    return min(6, max(0, 2 - math.floor(math.log10(size)))) if size > 0 else 0


def _number(value: float, places: int) -> str:
    if not math.isfinite(value):
        return "–"
    return f"{round(value, places) + 0.0:,.{places}f}".replace("-", "−")  # no minus before a zero


def _plus_minus(estimate: statistics.Estimate, places: int) -> str:
    margin = f" ± {_number(estimate.half_width, places)}" if math.isfinite(estimate.half_width) else ""
    return _number(estimate.value, places) + margin


# Charts


_AGAINST_NOISE = (
    '<section aria-labelledby="noise"><h2 id="noise">Return against noise</h2>'
    '<p class="note">The final scores of the first tables; bands are 95 % t intervals.</p>'
    '<div class="charts" data-section="noise"></div></section>'
)
_CALIBRATION = (
    "<h3>Calibration of the model</h3>"
    '<p class="note">How much of what was observed lay within the central part of the prediction that should hold so '
    "much, over the last tenth of training; bands are ± one standard deviation over seeds. A calibrated model is on "
    "the dotted line. Below it the model is too sure.</p>"
    '<div class="charts" data-section="calibration"></div>'
)


def _checkbox(agent: str) -> str:
    style = style_of(agent)
    return (
        f'<label><input type="checkbox" name="agent" value="{escape(agent)}" checked>'
        f'<svg class="swatch ink-{style.ink}" viewBox="0 0 32 12" aria-hidden="true">'
        f'<line x1="0" x2="32" y1="6" y2="6" stroke-dasharray="{style.dash}"/></svg>{escape(name_of(agent))}</label>'
    )


def _choices(metrics: Sequence[str], presets: Sequence[str]) -> str:
    """The metric, the preset where there are several, and whether to draw every seed."""
    text = _selector("metric", "Metric", [(name, metric_of(name).title) for name in metrics])
    if len(presets) > 1:
        # The last is what was found to work, and what most readers want to see.
        text += _selector("preset", "Preset", [(preset, preset) for preset in reversed(presets)])
    return text + '<label><input type="checkbox" name="seeds">each seed as a thin line</label>'


def _selector(name: str, label: str, options: Sequence[tuple[str, str]]) -> str:
    each = "".join(f'<option value="{escape(value)}">{escape(text)}</option>' for value, text in options)
    return f'<label>{label} <select name="{name}">{each}</select></label>'


# What it was made from


def _films(directory: Path, beside: Path, plan: Grid) -> str:
    """Small films embedded, large ones linked; empty where there are none."""
    parts = []
    jobs = {job.name: job for job in grid.plan(plan)}
    for film in sorted((directory / results.FILMS).glob("*.mp4")):
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


def _configuration(plan: Grid, directory: Path) -> str:
    head = _heads("task", "agents", "noise", "steps", "settings")
    rows = []
    for block in plan.blocks:
        settings = ", ".join(f"{name} = {value}" for name, value in block.settings.items()) or "as the preset"
        noises = ", ".join(map(noise_label, block.noises))
        entries = (", ".join(block.agents), noises, f"{block.steps:,}", settings)
        rows.append(_row_head(block.env) + "".join(f"<td>{escape(entry)}</td>" for entry in entries))
    jobs = "".join(_details(job.name, _settings(directory, job)) for job in grid.plan(plan))
    presets, seeds = escape(", ".join(plan.presets)), f"{plan.seeds}, from {plan.seed} on"
    return (
        f"{_table('The grid', head, rows)}<p>Presets: {presets}. Seeds per cell: {seeds}.</p>"
        f"{_details('study.json', grid.to_json(plan))}"
        '<h3>Settings of every job</h3><p class="note">The cells of a job differ in the noise alone; the settings hold '
        "the greatest level. They are as recorded, or where the run is not there as this version plans them.</p>"
        f'<div class="jobs">{jobs}</div>'
    )


def _settings(directory: Path, job: Job) -> str:
    """What a job was run with."""
    recorded = directory / results.CELLS / job.name / "config.json"
    return recorded.read_text().strip() if recorded.is_file() else to_json(job.config)


def _details(summary: str, content: str) -> str:
    return f'<details><summary>{escape(summary)}</summary><pre tabindex="0">{escape(content)}</pre></details>'


def _origin(origin: Mapping[str, Any]) -> str:
    """What the jobs were run with; those that were run alike share a row."""
    if not origin:
        return f"<p>Not known: the study has no {results.ORIGIN}.</p>"
    alike: dict[tuple[str, ...], list[str]] = {}
    for name, job in origin.items():
        versions = ", ".join(
            f"{package} {version}" for package, version in (job.get("versions") or {}).items() if version
        )
        key = (job.get("commit") or "not known", job.get("python") or "not known", _machine(job), versions)
        alike.setdefault(tuple(map(str, key)), []).append(name)
    head = _heads("commit", "Python", "machine", "packages", "jobs", "hours")
    rows = []
    for (commit, *rest), names in alike.items():
        hours = f"{sum(origin[name].get('seconds', 0) for name in names) / 3600:.2f}"
        entries = (*rest, "all" if len(names) == len(origin) else ", ".join(names), hours)
        rows.append(_row_head(commit) + "".join(f"<td>{escape(entry)}</td>" for entry in entries))
    return _table("What the jobs were run with", head, rows)


def _again(plan: Grid, origin: Mapping[str, Any]) -> str:
    commits = list(dict.fromkeys(str(job["commit"]) for job in origin.values() if job.get("commit")))
    dirty = [commit.removesuffix("-dirty") for commit in commits if commit.endswith("-dirty")]
    directory = f"studies/{plan.name}"
    lines = [f"git checkout {shlex.quote(commit)}" for commit in commits if len(commits) == 1 and not dirty]
    if command := _study_command(plan):
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
            f'<p class="note">The tree had uncommitted changes, on top of {escape(_listed(dirty))}: no checkout '
            "is known to give the same numbers.</p>"
        )
    lines.append(shlex.join(["moca", "report", directory]))
    return f'<pre tabindex="0">{escape(chr(10).join(lines))}</pre>{note}'


def _study_command(plan: Grid) -> str | None:
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


# The page itself


def _asset(name: str) -> str:
    return (files("moca.studies") / name).read_text(encoding="utf-8")


def _hash(content: str) -> str:
    """What a page's security policy names its own script and style by."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def _embedded(data: Any) -> str:
    """JSON that cannot end the script element it stands in, nor begin a comment there."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c")
