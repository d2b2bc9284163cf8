"""The page about the paper's claims, as Markdown and JSON, and the claims that have no preset.

These are the cost of the closed form, and Figure 1. They are not tested statistically. A claim
about time holds if it is true of every program timed, and is refuted if it is true of none of them.
A printed number holds if ours has the same digits.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

import numpy as np

from moca import moments as mm
from moca.paper import claims
from moca.paper.claims import ABSENT, CARTPOLE, HOLDS, REFUTED, UNDECIDED, Verdict
from moca.paper.toy import Toy

SAME_COST = (0.95, 1.05)
PRINTED = {"A": 0.057, "B": 0.025}
INTRO = """\
What the paper states about its experiments, in our words, and what the studies in this folder say about it, by the
rules in [docs/replication.md](../docs/replication.md). `tools/results.py` writes this page, and
`claims.json` with p-values and unrounded differences; `tests/paper/test_claims_again.py` computes every
verdict a second time."""


def page(verdicts: Sequence[Verdict], equal: Sequence[Verdict], fixed: Sequence[Verdict]) -> str:
    """Returns the text of results/claims.md."""
    own, beyond = ([verdict for verdict in verdicts if verdict.beyond == far] for far in (False, True))
    parts = {
        "": f"{INTRO}\n\nThe paper's claims, each counted once per task and noise:\n\n{counts(own)}",
        "What the paper claims": claims.to_markdown(own),
        "Each agent at its own best": "MoCA, MoCA-CE and BNAF on raw observations, each at the best of the same 32 "
        f"settings. Fresh seeds; corrected for these comparisons alone.\n\n{claims.to_markdown(equal)}",
        "Beyond the paper": f"Noise and agents that the paper does not have.\n\n{claims.to_markdown(beyond)}",
        "The same under every preset": claims.to_markdown(fixed),
        "Notes": claims.NOTES,
    }
    text = "\n".join(f"## {head}\n\n{part}" if head else part for head, part in parts.items())
    return f"# The paper's claims\n\n{text}"


def counts(verdicts: Sequence[Verdict]) -> str:
    """Returns the counts of claims as a table: a row per verdict, a column per preset."""
    presets = list(dict.fromkeys(verdict.preset for verdict in verdicts))
    found = Counter((verdict.verdict, verdict.preset) for verdict in verdicts)
    lines = [f"| verdict | {' | '.join(presets)} |", "|---" * (1 + len(presets)) + "|"]
    for word in claims.WORDS:
        lines.append(f"| {word} | {' | '.join(str(found[word, preset]) for preset in presets)} |")
    return "\n".join(lines) + "\n"


def to_json(verdicts: Sequence[Verdict], studies: Sequence[str]) -> str:
    """Returns the studies, and the verdicts with their numbers; missing ones are null."""
    keys = ("claim", "preset", "task", "noise", "beyond", "verdict")
    numbers = ("value", "delta", "p", "p_equal")
    lines = []
    for verdict in verdicts:
        row = {key: getattr(verdict, key) for key in keys}
        row |= {key: _rounded(getattr(verdict, key)) for key in numbers}
        lines.append(json.dumps(row, ensure_ascii=False))
    return f'{{"studies": {json.dumps(list(studies))},\n"verdicts": [\n' + ",\n".join(lines) + "\n]}\n"


def _rounded(number: float) -> float | None:
    return float(f"{number:.4g}") if isfinite(number) else None


def judge(benchmarks: Sequence[Mapping[str, Any]]) -> list[Verdict]:
    """Returns the verdicts on cost and on Figure 1; their preset is empty.

    Args:
        benchmarks: The files that `moca benchmark agents --out` writes, as data.
    """
    return [*_cost(benchmarks), *_figure_1()]


def _cost(benchmarks: Sequence[Mapping[str, Any]]) -> list[Verdict]:
    low, high = SAME_COST
    same, less = f"{low:g} ≤ ratio of the times per step ≤ {high:g}", "ratio of the times per step < 1"
    like_ce = ("cost-like-ce", "MoCA's step costs as much as MoCA-CE's", same)
    below_mc = ("cost-below-mc", "MoCA's step costs less than with 16 samples", less)
    return [_timed(benchmarks, like_ce, "moca-ce", SAME_COST), _timed(benchmarks, below_mc, "moca-mc-16", (0.0, 1.0))]


def _timed(
    benchmarks: Sequence[Mapping[str, Any]], claim: tuple[str, str, str], other: str, region: tuple[float, float]
) -> Verdict:
    rows = [row for each in benchmarks for row in each.get("agents", []) if row["agent"] == "moca"]
    ratios = [row["cost_over"][other] for row in rows if row["env"] == CARTPOLE and other in row["cost_over"]]
    keys = (*claim, CARTPOLE, "", "")
    if not ratios:
        return Verdict(*keys, "not timed", np.nan, np.nan, np.nan, ABSENT)
    inside = [region[0] <= ratio <= region[1] for ratio in ratios]
    verdict = HOLDS if all(inside) else UNDECIDED if any(inside) else REFUTED
    programs = f"in {len(ratios)} programs" if len(ratios) > 1 else "in one program"
    spread = f"{min(ratios):.2f} to {max(ratios):.2f}" if len(ratios) > 1 else f"{ratios[0]:.2f}"
    return Verdict(*keys, f"{spread} {programs}", float(np.mean(ratios)), min(ratios), max(ratios), verdict)


def _figure_1() -> list[Verdict]:
    toy, found = Toy(), []
    for action, mean in {"A": toy.mean_a, "B": toy.mean_b}.items():
        value = float(mm.expectation(toy.belief(mean), toy.value))
        verdict = HOLDS if round(value, 3) == PRINTED[action] else REFUTED
        statement = f"Figure 1: the expected value of action {action} is {PRINTED[action]}"
        rule = "the same three digits, with parameters of ours, which the paper does not print"
        name = f"figure-1-{action.lower()}"
        found.append(Verdict(name, statement, rule, "toy", "", "", f"{value:.5f}", value, value, value, verdict))
    return found
