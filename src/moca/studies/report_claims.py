"""What a study says of the paper's claims: the conclusion at the top of a report, and all verdicts."""

import re
from collections import Counter
from collections.abc import Sequence
from html import escape

from moca.paper import claims
from moca.paper.claims import Verdict
from moca.studies.report_charts import noise_label
from moca.studies.report_markup import boxed, heads, listed

SYMBOLS = {"holds": "✓", "refuted": "✗", "equal": "=", "undecided": "?", "not measured": "–"}
COUNTED = {
    "holds": ("holds", "hold"), "refuted": ("is refuted", "are refuted"), "equal": ("is equal", "are equal"),
    "undecided": ("is undecided", "are undecided"), "not measured": ("is not measured", "are not measured"),
}  # fmt: skip
MAIN = ("above-moca-ce", "above-bnaf", "above-moca-mc-4", "above-moca-mc-16", "holds-better-than-moca-ce")
FAMILIES = {  # what the names of claims start with
    "Final return": ("ordering", "above-", "mixture-alike", "ce-like-bnaf", "learns-"),
    "Speed": ("faster-than-", "area-above-", "samples-speed"),
    "Stability": ("steadier-than-", "holds-better-than-", "stuck-less"),
    "Samples": ("samples-help", "moca-mc-"),
    "More noise": ("falls-", "gap-widens", "slows-", "reduced-"),
    "Targets": ("targets-vary-", "variance-falls", "one-sample-targets"),
    "Uncertainty": ("calibrated", "epistemic-settles"),
}
NO_CLAIMS = "<p>The paper claims nothing about these tasks.</p>"


def conclusion(verdicts: Sequence[Verdict]) -> str:
    """For each preset how many claims got which verdict, and where the main ones hold."""
    if not verdicts:
        return NO_CLAIMS
    parts = []
    for preset in dict.fromkeys(verdict.preset for verdict in verdicts):
        own = [verdict for verdict in verdicts if verdict.preset == preset]
        paper, beyond = ([v for v in own if v.beyond == far] for far in (False, True))
        text = f"Of the paper’s {len(paper)} claims about these tasks, {_counted(paper)}."
        if beyond:
            text += f" Beyond the paper, at other noise or of other agents, {_counted(beyond)}."
        items = "".join(_main([v for v in own if v.claim == name]) for name in MAIN)
        parts.append(
            f"<h3>Preset {escape(preset)}</h3><p>{text}</p>" + (f'<ul class="plain">{items}</ul>' if items else "")
        )
    return "".join(parts)


def _counted(verdicts: Sequence[Verdict]) -> str:
    """`3 hold, 1 is refuted and 2 are undecided`."""
    counts = Counter(verdict.verdict for verdict in verdicts)
    return listed(f"{counts[word]} {COUNTED[word][counts[word] > 1]}" for word in claims.WORDS if counts[word])


def _main(verdicts: Sequence[Verdict]) -> str:
    """A main claim: each verdict it got, where, and what was measured there."""
    if not verdicts:
        return ""
    several = len({verdict.task for verdict in verdicts}) > 1
    found = []
    for word in claims.WORDS:
        own = [verdict for verdict in verdicts if verdict.verdict == word]
        measured: dict[str, list[str]] = {}  # one reason may stand for several places
        for verdict in own:
            measured.setdefault(_measured(verdict), []).append(_place(verdict, several))
        if own:
            places = ", ".join(f"{', '.join(where)} ({what})" for what, where in measured.items())
            found.append(f"{_word(word)} at {places}")
    first = verdicts[0]
    return f'<li>{escape(first.statement)} <span class="note">({escape(first.rule)})</span>: {"; ".join(found)}.</li>'


def _measured(verdict: Verdict) -> str:
    """With a minus where it has one, and no break before its ±."""
    return escape(re.sub(r"-(?=\d)", "−", verdict.measured).replace(" ±", "\u00a0±"))


def _place(verdict: Verdict, several: bool) -> str:
    noise = _noises(verdict.noise).replace(" ", "\u00a0")
    return escape(f"{verdict.task}, {noise}" if several else noise)


def tables(verdicts: Sequence[Verdict]) -> str:
    """All verdicts: for each task and family a table with claims and noise levels down, presets across.

    What goes beyond the paper and what could not be measured is folded away.
    """
    if not verdicts:
        return NO_CLAIMS
    presets = list(dict.fromkeys(verdict.preset for verdict in verdicts))
    parts = []
    for task in dict.fromkeys(verdict.task for verdict in verdicts):
        rows: dict[tuple[str, str, str], list[Verdict]] = {}
        for verdict in verdicts:
            if verdict.task == task:
                rows.setdefault((verdict.claim, verdict.statement, verdict.noise), []).append(verdict)
        absent = [row for row in rows.values() if all(verdict.verdict == claims.ABSENT for verdict in row)]
        beyond = [row for row in rows.values() if row not in absent and row[0].beyond]
        paper = [row for row in rows.values() if row not in absent and not row[0].beyond]
        parts.append(f"<h3>{escape(task)}</h3>")
        for family in (*FAMILIES, "Others"):
            if own := [row for row in paper if _family(row[0].claim) == family]:
                parts.append(_table(f"{family}: {task}", own, presets))
        parts.append(_folded(f"Beyond the paper, other noise or agents: {task}", beyond, presets))
        parts.append(_folded(f"Not measured: {task}", absent, presets))
    notes = "".join(
        f"<li>{escape(line.removeprefix('- ').replace('`', ''))}</li>" for line in claims.NOTES.splitlines()
    )
    return "".join(parts) + f'<h3>How to read the verdicts</h3><ul class="note plain">{notes}</ul>'


def _family(claim: str) -> str:
    return next((name for name, starts in FAMILIES.items() if claim.startswith(starts)), "Others")


def _folded(caption: str, rows: Sequence[list[Verdict]], presets: Sequence[str]) -> str:
    if not rows:
        return ""
    count = "one claim" if len(rows) == 1 else f"{len(rows)} claims"
    inside = _table(caption, rows, presets)
    return f"<details><summary>{escape(caption)} ({count})</summary>{inside}</details>"


def _table(caption: str, rows: Sequence[list[Verdict]], presets: Sequence[str]) -> str:
    by_statement: dict[tuple[str, str], list[list[Verdict]]] = {}
    for row in rows:
        by_statement.setdefault((row[0].statement, row[0].rule), []).append(row)
    lines = []
    for (statement, rule), own in by_statement.items():
        first = (
            f'<th scope="rowgroup" rowspan="{len(own)}" class="statement">{escape(statement)}'
            f'<span class="note">{escape(rule)}</span></th>'
        )
        for row in own:
            cells = {verdict.preset: _cell(verdict) for verdict in row}
            told = "".join(cells.get(preset, "<td></td>") for preset in presets)
            lines.append(f'{first}<td class="where">{escape(_noises(row[0].noise))}</td>{told}')
            first = ""
    return boxed(caption, heads("claim", "noise", *(f"preset {preset}" for preset in presets)), lines, "claims")


def _noises(text: str) -> str:
    """`0.025`, or `none → 0.025`, for readers."""
    return " → ".join(noise_label("0" if noise == "none" else noise) for noise in text.split(" → "))


def _cell(verdict: Verdict) -> str:
    """A table cell with the symbol, the word and the number."""
    return f'<td data-preset="{escape(verdict.preset)}">{_word(verdict.verdict)} {_measured(verdict)}</td>'


def _word(word: str) -> str:
    symbol = f'<span aria-hidden="true">{SYMBOLS[word]}</span>'
    return f'<span class="verdict {word.replace(" ", "-")}">{symbol}{word}</span>'
