"""One page about a study: verdicts, scores, curves, settings. It opens offline and needs nothing beside it.

The page is `report.html` with the parts of it that are made here; `report.js` draws the charts from a block of JSON.
No date and no path goes in, so the same study is the same bytes. What comes from files is text, never markup.
"""

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

import numpy as np

from moca.runs.files import writing
from moca.studies import (
    claims,
    grid,
    report_charts,
    report_claims,
    report_origin,
    report_tables,
    results,
    statistics,
)  # fmt: skip
from moca.studies.grid import Grid
from moca.studies.report_charts import metric_of, name_of, noise_label, shown_metrics, style_of
from moca.studies.report_markup import listed

if TYPE_CHECKING:
    import pandas as pd


def write(directory: Path, out: Path | None = None) -> Path:
    """The page about the study in a directory, by default `report.html` in it.

    Raises:
        ConfigError: if the directory holds no study, or the page cannot be written.
    """
    out = out or directory / "report.html"
    page = render(directory, out.parent)
    with writing(f"the report {out}"):
        out.parent.mkdir(parents=True, exist_ok=True)
        results.write(out, page.encode())
    return out


def render(directory: Path, beside: Path) -> str:
    """The page as text; large films are linked as seen from the folder `beside`."""
    plan, table = results.load_grid(directory), _sorted(results.load_results(directory))
    origin = results.load_origin(directory)
    style, script = report_charts.rules() + _asset("report.css"), _asset("report.js")
    agents, presets = _ordered(table, plan), list(table["preset"].unique())
    data = report_charts.collect(table, agents, presets)
    charts = {panel["section"] for panel in data["panels"]}
    films, noise = report_origin.films(directory, beside, plan), _AGAINST_NOISE if "noise" in charts else ""
    verdicts = claims.judge(table)
    sections = {
        "conclusion": "Conclusion", "claims": "All claims", "scores": "Final scores", "curves": "Learning curves",
        **({"noise": "Return against noise"} if noise else {}),
        "diagnostics": "Diagnostics",
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
        conclusion=report_claims.conclusion(verdicts),
        claims=report_claims.tables(verdicts),
        scores=report_tables.scores(table) + report_tables.improvements(table) + report_tables.speeds(table),
        agents="".join(_checkbox(agent) for agent in agents),
        choices=_choices(shown_metrics(table), presets, data["typical"]),
        noise=noise,
        diagnostics=report_tables.diagnostics(table) + (_CALIBRATION if "calibration" in charts else ""),
        films=films,
        configuration=report_origin.configuration(plan, directory),
        origin=report_origin.origin(origin),
        again=report_origin.again(plan, origin),
        data=_embedded(data),
    )


# Words


def _summary(plan: Grid, table: "pd.DataFrame", origin: Mapping[str, Any]) -> str:
    runs = table.groupby([*statistics.CELL, "seed"])["diverged"].max()
    cells, asked = table.groupby(statistics.CELL).ngroups, sum(len(job.noises) for job in grid.plan(plan))
    noises: dict[tuple[str, int], dict[str, None]] = {}
    for block in plan.blocks:
        noises.setdefault((block.env, block.steps), {}).update(dict.fromkeys(block.noises))
    tasks = [f"{env} ({listed(map(noise_label, each))}; {steps:,} steps)" for (env, steps), each in noises.items()]
    agents = listed(name_of(agent) for agent in _ordered(table, plan))
    seeds = f"{plan.seeds} seeds ({plan.seed} to {plan.seed + plan.seeds - 1})" if plan.seeds > 1 else "one seed"
    presets = (
        f"the preset {plan.presets[0]}" if len(plan.presets) == 1 else f"the presets {listed(_by_rank(plan.presets))}"
    )
    text = f"The study {plan.name} compares {agents} on {listed(tasks)}, under {presets}, with {seeds} per cell: "
    text += f"{cells} cells, {len(runs)} runs. "
    if cells < asked:
        text += f"Of the {asked} cells asked for, {asked - cells} are not finished and not in here. "
    if machines := dict.fromkeys(report_origin.machine(job) for job in origin.values()):
        text += f"It ran on {listed(machines)}. "
    if lost := int((runs > 0).sum()):
        text += f"{lost} of {len(runs)} runs diverged; all means leave them out, and say how many seeds remain."
    else:
        text += "No run diverged."
    return escape(text)


def _ordered(table: "pd.DataFrame", plan: Grid) -> list[str]:
    """The agents in the results, in the order of the plan."""
    there = list(table["agent"].unique())
    planned = dict.fromkeys(agent for block in plan.blocks for agent in block.agents)
    return [*(agent for agent in planned if agent in there), *(agent for agent in there if agent not in planned)]


def _sorted(table: "pd.DataFrame") -> "pd.DataFrame":
    """The results with the presets in the order for readers."""
    places = {name: place for place, name in enumerate(_by_rank(table["preset"].unique()))}
    return table.iloc[np.argsort(table["preset"].map(places), kind="stable")]


def _by_rank(presets: Iterable[str]) -> list[str]:
    order = claims.ORDER
    return sorted(presets, key=lambda name: order.index(name) if name in order else len(order))


# Charts


_AGAINST_NOISE = (
    '<section aria-labelledby="noise"><h2 id="noise">Return against noise</h2>'
    '<p class="note">The final scores of the tables above.</p>'
    '<div class="charts" data-section="noise"></div></section>'
)
_CALIBRATION = (
    "<h3>Calibration of the model</h3>"
    '<p class="note">How much of what was observed lay within the central part of the prediction that should hold so '
    "much, over the last tenth of training. A calibrated model is on the dotted line. Below it the model is too "
    "sure.</p>"
    '<div class="charts" data-section="calibration"></div>'
)


def _checkbox(agent: str) -> str:
    style = style_of(agent)
    return (
        f'<label><input type="checkbox" name="agent" value="{escape(agent)}" checked>'
        f'<svg class="swatch ink-{style.ink}" viewBox="0 0 32 12" aria-hidden="true">'
        f'<line x1="0" x2="32" y1="6" y2="6" stroke-dasharray="{style.dash}"/></svg>{escape(name_of(agent))}</label>'
    )


AXES = (("full", "full"), ("zoomed", "zoomed on the second half"), ("log", "logarithmic away from 0"))
LINES = (("mean", "mean with its 95 % interval"), ("median", "median and middle half of the seeds"))


def _choices(metrics: Sequence[str], presets: Sequence[str], typical: bool) -> str:
    """The metric, the preset where there are several, the axis, and what of the seeds to draw."""
    text = _selector("metric", "Metric", [(name, metric_of(name).title) for name in metrics])
    if len(presets) > 1:
        text += _selector("preset", "Preset", [(preset, preset) for preset in presets])
    text += _selector("axis", "Axis", AXES)
    text += _selector("line", "Lines", LINES[::-1] if typical else LINES)
    return text + '<label><input type="checkbox" name="seeds">each seed as a thin line</label>'


def _selector(name: str, label: str, options: Sequence[tuple[str, str]]) -> str:
    each = "".join(f'<option value="{escape(value)}">{escape(text)}</option>' for value, text in options)
    return f'<label>{label} <select name="{name}">{each}</select></label>'


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
