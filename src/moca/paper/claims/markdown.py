"""Verdicts as Markdown."""

import re
from collections import Counter
from collections.abc import Sequence

from moca.paper.claims.judging import Verdict
from moca.paper.claims.rules import ABSENT

REASONS = 5  # listed in full

NOTES = """\
- A claim holds, or is refuted, if the difference is significant and at least as large as the smallest effect of interest: 20 points of return on Cartpole, 40 on Pendulum, a tenth of all steps, ten percentage points of seeds. It is equal if the difference is significantly smaller than that, and otherwise undecided. All tests are corrected for the number of claims under the preset. The full rules are in docs/replication.md.
- Figures are differences of means with 95 % intervals, which are not corrected for the number of claims. The verdicts come from corrected tests, so an interval that excludes zero does not settle a claim.
- Where seeds either solve Pendulum or do not, solved seeds are counted in place of a mean.
- An agent that has not learned to do better than nothing is not compared.
- Steps are those to 90 % of the highest mean final return of all agents at that noise; a run that never gets there counts with all its steps.
- Coverage is of what was observed of the next state. Under `told` a filter is told the noise of the observations, and that is most of the predicted deviation; elsewhere it is learned.
- The paper's noise levels are 0.025, 0.05 and, on Cartpole, state-norm 0.05. What concerns other noise or agents is marked as beyond the paper.
- SAC has the best of 64 settings under `raw` (chosen at σ = 0.025) and the usual settings under the other presets.
"""  # noqa: E501


def to_markdown(verdicts: Sequence[Verdict]) -> str:
    """Returns the verdicts as a table: a row per claim, task and noise, a column per preset.

    Claims that were not measured under any preset are one line below it.
    """
    presets = list(dict.fromkeys(verdict.preset for verdict in verdicts))
    rows: dict[tuple[str, str, str], dict[str, Verdict]] = {}
    for verdict in verdicts:
        rows.setdefault((verdict.claim, verdict.task, verdict.noise), {})[verdict.preset] = verdict
    shown = {key: row for key, row in rows.items() if any(v.verdict != ABSENT for v in row.values())}
    absent = [list(row.values()) for key, row in rows.items() if key not in shown]
    heads = [preset or "verdict" for preset in presets]
    lines = [f"| {' | '.join(('claim', 'judged by', 'task', 'noise', *heads))} |", "|---" * (4 + len(presets)) + "|"]
    for (_, task, noise), row in shown.items():
        first = next(iter(row.values()))
        found = [f"**{row[p].verdict}** {row[p].measured}".strip() if p in row else "" for p in presets]
        lines.append(f"| {' | '.join((first.statement, first.rule, task, noise, *found))} |")
    if absent:
        lines += ["", f"{not_measured(absent)}."]
    return "\n".join(lines if shown else lines[3:]) + "\n"


def not_measured(rows: Sequence[Sequence[Verdict]]) -> str:
    """Returns the number of claims that were not measured, and the reasons."""
    found = Counter(why for row in rows for why in {_reason(verdict) for verdict in row})
    often = sorted(found.items(), key=lambda item: (-item[1], item[0]))  # ties in a fixed order
    told = [f"{why} ({count})" for why, count in often[:REASONS]]
    more = len(found) - REASONS
    told += [f"{more} other reason{'s' * (more > 1)}"] if more > 0 else []
    return f"{'One claim was' if len(rows) == 1 else f'{len(rows)} claims were'} not measured: {', '.join(told)}"


def _reason(verdict: Verdict) -> str:
    """Returns the reason without the numbers of one claim, so that equal reasons can be counted."""
    return re.sub(r" \([^()]*\)$", "", verdict.reason or verdict.measured)
