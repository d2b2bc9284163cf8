"""The paper's claims that do not depend on a preset: the cost of the closed form, and Figure 1.

They are not tested statistically. A claim about time holds if it is true of every program timed,
and is refuted if it is true of none of them. A printed number holds if ours has the same digits.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from moca.paper.claims.judging import Verdict
from moca.paper.claims.rules import ABSENT, HOLDS, REFUTED, UNDECIDED
from moca.paper.tasks import CARTPOLE

SAME_COST = (0.95, 1.05)
PRINTED = {"A": 0.057, "B": 0.025}


def judge_fixed(benchmarks: Sequence[Mapping[str, Any]]) -> list[Verdict]:
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
    from moca import moments as mm
    from moca.paper.toy import Toy

    toy, found = Toy(), []
    for action, mean in {"A": toy.mean_a, "B": toy.mean_b}.items():
        value = float(mm.expectation(toy.belief(mean), toy.value))
        verdict = HOLDS if round(value, 3) == PRINTED[action] else REFUTED
        statement = f"Figure 1: the expected value of action {action} is {PRINTED[action]}"
        rule = "the same three digits, with parameters of ours, which the paper does not print"
        name = f"figure-1-{action.lower()}"
        found.append(Verdict(name, statement, rule, "toy", "", "", f"{value:.5f}", value, value, value, verdict))
    return found
