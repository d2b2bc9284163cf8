"""The page about a study: conclusions, scores, curves, settings, in one file that opens offline.

It is rendered from the templates next to this module; its script draws the charts from a block of
JSON. It contains no date and no path, so equal studies give equal bytes. Content from files is
inserted as text, never as markup.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moca import pages
from moca.files import save, writing
from moca.looks import label, look
from moca.names import displayed
from moca.studies import grid, registry, report_charts, report_origin, report_tables, results, statistics
from moca.studies.grid import Grid
from moca.studies.report_charts import metric_of, noise_label, shown_metrics
from moca.studies.report_tables import listed

if TYPE_CHECKING:
    import pandas as pd

AXES = (("full", "full"), ("zoomed", "zoomed on the second half"), ("log", "logarithmic away from 0"))
OURS, SHARED = "moca.studies", "moca"
STYLE = ((SHARED, "page.css"), (OURS, "report.css"), (SHARED, "charts.css"), (OURS, "print.css"))
SCRIPT = ((OURS, "head.js"), (SHARED, "drawing.js"), (OURS, "numbers.js"), (OURS, "charts.js"))
LINES = (("mean", "mean with its 95 % interval"), ("median", "median and middle half of the seeds"))


def write(directory: Path, out: Path | None = None) -> Path:
    """Writes the page about the study in a directory, by default to its `report.html`.

    Returns the path.

    Raises:
        ConfigError: If the directory has no study, or the page cannot be written.
    """
    out = out or directory / "report.html"
    page = render(directory)
    with writing(f"the report {out}"):
        return save(out, page.encode())


def render(directory: Path) -> str:
    """Returns the page about the study in a directory as text."""
    plan, table = results.load_grid(directory), results.load_results(directory)
    presets, origin = grid.by_rank(table["preset"].unique()), results.load_origin(directory)
    table = table.sort_values("preset", key=lambda names: names.map(presets.index), kind="stable")
    agents = _ordered(table, plan)
    data = report_charts.collect(table, agents, presets)
    charts = {panel["section"] for panel in data["panels"]}
    films, sections = report_origin.films(directory, plan), registry.sections(table)
    contents = {
        "conclusion": "Conclusion", **{section.name: section.entry for section in sections},
        "scores": "Final scores", "curves": "Learning curves",
        **({"noise": "Return against noise"} if "noise" in charts else {}),
        "diagnostics": "Diagnostics",
        **({"films": "Videos"} if films else {}),
        "configuration": "Configuration", "origin": "Versions", "again": "How to reproduce",
    }  # fmt: skip
    return pages.templates("moca.studies").get_template("report.html").render(
        **pages.own(STYLE, SCRIPT),
        plan=plan,
        plan_text=grid.to_json(plan),
        contents=contents,
        summary=_summary(plan, table, origin),
        sections=sections,
        scores=report_tables.groups(table),
        agents={agent: look(agent) for agent in agents},
        selectors=_selectors(shown_metrics(table), presets, data["typical"]),
        charts=charts,
        diagnostics=report_tables.diagnostics(table),
        films=films,
        grid=report_origin.blocks(plan),
        settings=report_origin.settings(plan, directory),
        origin=report_origin.origin(origin),
        origin_file=results.ORIGIN,
        again=report_origin.again(plan, origin),
        data=pages.embedded(data),
    )  # fmt: skip


def _summary(plan: Grid, table: "pd.DataFrame", origin: Mapping[str, Any]) -> str:
    runs = table.groupby([*statistics.CELL, "seed"])["diverged"].max()
    cells, asked = table.groupby(statistics.CELL).ngroups, sum(len(job.noises) for job in grid.plan(plan))
    noises: dict[tuple[str, int], dict[str, None]] = {}
    for block in plan.blocks:
        noises.setdefault((block.env, block.steps), {}).update(dict.fromkeys(block.noises))
    tasks = [
        f"{displayed(env)} ({listed(map(noise_label, each))}; {steps:,} steps)" for (env, steps), each in noises.items()
    ]
    agents = listed(label(agent) for agent in _ordered(table, plan))
    seeds = f"{plan.seeds} seeds ({plan.seed} to {plan.seed + plan.seeds - 1})" if plan.seeds > 1 else "one seed"
    presets = f"the preset{'s' if len(plan.presets) > 1 else ''} {listed(grid.by_rank(plan.presets))}"
    text = f"The study {plan.name} compares {agents} on {listed(tasks)}, under {presets}, with {seeds} per cell: "
    text += f"{cells} cells, {len(runs)} runs. "
    if cells < asked:
        text += f"{asked - cells} of the {asked} requested cells are not finished and not included. "
    if machines := dict.fromkeys(report_origin.machine(job) for job in origin.values()):
        text += f"It ran on {listed(machines)}. "
    if lost := int((runs > 0).sum()):
        return text + f"{lost} of {len(runs)} runs diverged; means omit them and state how many seeds remain."
    return text + "No run diverged."


def _ordered(table: "pd.DataFrame", plan: Grid) -> list[str]:
    """Returns the agents in the results, in the order of the plan."""
    there = list(table["agent"].unique())
    planned = dict.fromkeys(agent for block in plan.blocks for agent in block.agents)
    return [*(agent for agent in planned if agent in there), *(agent for agent in there if agent not in planned)]


def _selectors(metrics: Sequence[str], presets: Sequence[str], typical: bool) -> list[tuple[str, str, Any]]:
    """Returns the selectors: metric, preset, axis, and statistic of the seeds."""
    several = [("preset", "Preset", [(preset, preset) for preset in presets])] if len(presets) > 1 else []
    return [
        ("metric", "Metric", [(name, metric_of(name).title) for name in metrics]),
        *several,
        ("axis", "Axis", AXES),
        ("line", "Lines", LINES[::-1] if typical else LINES),
    ]
