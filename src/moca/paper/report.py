"""The paper's claims in a study's report: a part of its conclusion, and a section."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from moca.pages import templates
from moca.paper import claims
from moca.paper.claims import Verdict
from moca.studies.registry import Section
from moca.studies.report_charts import noise_label
from moca.studies.report_tables import Cell, Row, Table, heads, listed

if TYPE_CHECKING:
    import pandas as pd

SYMBOLS = {"holds": "✓", "refuted": "✗", "equal": "=", "undecided": "?", "not measured": "–"}
MAIN = ("above-moca-ce", "above-bnaf", "above-moca-mc-4", "above-moca-mc-16", "holds-better-than-moca-ce")
FAMILIES = {  # prefixes of the claims' names
    "Final return": ("ordering", "above-", "mixture-alike", "ce-like-bnaf", "learns-"),
    "Speed": ("faster-than-", "area-above-", "samples-speed"),
    "Stability": ("steadier-than-", "holds-better-than-", "stuck-less"),
    "Samples": ("samples-help", "moca-mc-"),
    "More noise": ("falls-", "gap-widens", "slows-", "reduced-"),
    "Targets": ("targets-vary-", "variance-falls", "one-sample-targets"),
    "Uncertainty": ("calibrated", "epistemic-settles"),
}


def section(table: "pd.DataFrame") -> Section:
    """Returns the section on the claims about the tasks in a table."""
    verdicts = claims.judge(table)
    return Section("claims", "All claims", "The paper’s claims", conclusion(verdicts), tables(verdicts))


@cache
def _template() -> Any:
    return templates("moca.paper", "moca.studies").get_template("claims.html").make_module({"symbols": SYMBOLS})


def conclusion(verdicts: Sequence[Verdict]) -> str:
    """Returns, as markup, the counts of verdicts, and where the main claims hold.

    With several presets it says why claims were not measured; with one, `tables` does.
    """
    presets: list[dict[str, Any]] = []
    for preset in (names := _presets(verdicts)):
        own = [verdict for verdict in verdicts if verdict.preset == preset]
        paper, beyond = ([v for v in own if v.beyond == far] for far in (False, True))
        measured = {verdict.claim for verdict in own if verdict.verdict != claims.ABSENT}
        main = [[v for v in own if v.claim == name] for name in MAIN if name in measured]
        absent = [[verdict] for verdict in own if verdict.verdict == claims.ABSENT and len(names) > 1]
        presets.append(
            {
                "name": preset, "count": len(paper), "counted": _counted(paper), "claims": list(map(_main, main)),
                "beyond": _counted(beyond) if beyond else "", "absent": claims.not_measured(absent) if absent else "",
            }
        )  # fmt: skip
    return _template().conclusion(presets)


def _presets(verdicts: Iterable[Verdict]) -> list[str]:
    return list(dict.fromkeys(verdict.preset for verdict in verdicts))


def _counted(verdicts: Sequence[Verdict]) -> str:
    """Returns text such as `3 hold, 1 is refuted and 2 are undecided`."""

    def text(word: str, count: int) -> str:
        if word == claims.HOLDS:
            return "1 holds" if count == 1 else f"{count} hold"
        return f"{count} {'is' if count == 1 else 'are'} {word}"

    counts = Counter(verdict.verdict for verdict in verdicts)
    return listed(text(word, counts[word]) for word in claims.WORDS if counts[word])


def _main(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """Returns each verdict on a main claim, where it applies, and the measurements there."""
    several = len({verdict.task for verdict in verdicts}) > 1
    found = []
    for word in claims.WORDS:
        measured: dict[str, list[str]] = {}  # several places may share a measurement
        for verdict in verdicts:
            if verdict.verdict == word:
                noise = _noises(verdict.noise).replace(" ", "\u00a0")
                place = f"{verdict.task}, {noise}" if several else noise
                measured.setdefault(_measured(verdict), []).append(place)
        if measured:
            found.append((word, ", ".join(f"{', '.join(where)} ({what})" for what, where in measured.items())))
    return {"statement": verdicts[0].statement, "rule": verdicts[0].rule, "found": found}


def _measured(verdict: Verdict) -> str:
    """Returns the measurement, with a true minus sign and no break before its ±."""
    return re.sub(r"-(?=\d)", "−", verdict.measured).replace(" ±", "\u00a0±")


def tables(verdicts: Sequence[Verdict]) -> str:
    """Returns all verdicts as markup: a table for each task and family of claims.

    Claims beyond the paper are collapsed, and claims that were not measured are one line.
    """
    presets, tasks = _presets(verdicts), []
    for task in dict.fromkeys(verdict.task for verdict in verdicts):
        by_claim: dict[tuple[str, str, str], list[Verdict]] = {}
        for verdict in verdicts:
            if verdict.task == task:
                by_claim.setdefault((verdict.claim, verdict.statement, verdict.noise), []).append(verdict)
        rows = list(by_claim.values())
        absent = [row for row in rows if all(verdict.verdict == claims.ABSENT for verdict in row)]
        beyond = [row for row in rows if row not in absent and row[0].beyond]
        paper = [row for row in rows if row not in absent and not row[0].beyond]
        parts = [
            *((name, [row for row in paper if _family(row[0].claim) == name], False) for name in (*FAMILIES, "Others")),
            ("Beyond the paper, other noise or agents", beyond, True),
        ]
        shown = [
            (_table(f"{title}: {task}", own, presets), _count(own) if folded else "")
            for title, own, folded in parts
            if own
        ]
        tasks.append({"name": task, "tables": shown, "absent": claims.not_measured(absent) if absent else ""})
    notes = [line.removeprefix("- ").replace("`", "") for line in claims.NOTES.splitlines()]
    return _template().tables(tasks, notes)


def _count(rows: Sequence[Any]) -> str:
    return "one claim" if len(rows) == 1 else f"{len(rows)} claims"


def _family(claim: str) -> str:
    return next((name for name, starts in FAMILIES.items() if claim.startswith(starts)), "Others")


def _table(caption: str, rows: Sequence[list[Verdict]], presets: Sequence[str]) -> Table:
    by_statement: dict[tuple[str, str], list[list[Verdict]]] = {}
    for row in rows:
        by_statement.setdefault((row[0].statement, row[0].rule), []).append(row)
    cells: list[Row] = []
    for (statement, rule), own in by_statement.items():
        first = [Cell(statement, {"scope": "rowgroup", "rowspan": len(own), "class": "statement"}, (rule,))]
        for row in own:
            told = {v.preset: Cell(_template().cell(v.verdict, _measured(v)), {"data-preset": v.preset}) for v in row}
            where = Cell(_noises(row[0].noise), {"class": "where"})
            cells.append([*first, where, *(told.get(preset, "") for preset in presets)])
            first = []
    return Table(caption, heads("claim", "noise", *(f"preset {preset}" for preset in presets)), cells, "claims")


def _noises(text: str) -> str:
    """Formats `0.025`, or `none → 0.025`."""
    return " → ".join(noise_label("0" if noise == "none" else noise) for noise in text.split(" → "))
