"""The claims on the page of a study: the conclusion, and the tables of verdicts."""

import numpy as np

from moca.paper import claims
from moca.paper import report as section
from tests.studies import made
from tests.studies.test_report import Parsed


def judged(claim, noise, verdict, preset="raw", measured="48 ± 25", beyond=False):
    keys = (claim, f"says {claim}", "by a rule", "CartpoleBalance", noise, preset, measured)
    return claims.Verdict(*keys, 1.0, 1.0, 1.0, verdict, beyond=beyond)


def test_the_conclusion():
    """Counts by preset, and where each of the main claims holds, with what was measured."""
    absent = {"verdict": "not measured", "measured": "MoCA has not learned"}
    found = [
        judged("above-moca-ce", "0.05", "holds"),
        judged("above-moca-ce", "0.1", "holds", measured="-9 ± 1", beyond=True),
        judged("above-moca-ce", "0.025", "undecided"), judged("falls-sac", "0.05", "refuted"),
        judged("above-moca-ce", "0.05", preset="tuned", **absent),
        judged("above-moca-ce", "0.025", preset="tuned", **absent),
    ]  # fmt: skip
    parsed = Parsed(section.conclusion(found))
    assert [e["text"] for e in parsed.all("h3")] == ["Preset raw", "Preset tuned"]
    raw, tuned = (e["text"] for e in parsed.all("p"))
    assert raw == (
        "Of the paper’s 3 claims about these tasks, 1 holds, 1 is refuted and 1 is undecided. "
        "Beyond the paper, at other noise or of other agents, 1 holds."
    )
    assert tuned == (
        "Of the paper’s 2 claims about these tasks, 2 are not measured. "
        "2 claims were not measured: MoCA has not learned (2)."
    )
    alone = Parsed(section.conclusion(found[-2:])).all("p")  # of one preset, `tables` says why
    assert [e["text"] for e in alone] == ["Of the paper’s 2 claims about these tasks, 2 are not measured."]
    items = [e["text"].replace("\u00a0", " ") for e in parsed.all("li")]
    assert items == [
        "says above-moca-ce (by a rule): ✓holds at σ 0.05 (48 ± 25), σ 0.1 (−9 ± 1); ?undecided at σ 0.025 (48 ± 25).",
    ]


def test_what_is_beyond_the_paper_is_folded_and_what_is_not_measured_is_one_line():
    found = [
        judged("above-sac", "0.05", "holds"), judged("above-sac", "0.1", "holds", beyond=True),
        judged("above-bnaf", "0.05", "not measured", measured="MoCA-MC (K = 4): not run"),
        judged("above-bnaf", "0.025", "not measured", measured="neither gets there (0 of 2, 1 of 2)"),
        judged("above-bnaf", "0.1", "not measured", measured="MoCA-MC (K = 4): not run"),
    ]  # fmt: skip
    parsed = Parsed(section.tables(found))
    (said,) = [e["text"] for e in parsed.all("summary")]
    assert said.startswith("Beyond the paper, other noise or agents")
    assert said.endswith("(one claim)")
    cells = [(e["text"][1:14], "details" in e["around"]) for e in parsed.all("td") if "data-preset" in e]
    assert [folded for _, folded in cells] == [False, True]
    line = "3 claims were not measured: MoCA-MC (K = 4): not run (2), neither gets there (1)"
    assert [e["text"] for e in parsed.all("p")] == [f"{line}."]
    told = claims.to_markdown(found)
    assert told.splitlines()[-2:] == ["", f"{line}."]
    assert told.count("not measured") == 1
    assert claims.to_markdown(found[2:]) == f"{line}.\n"
    # Measured under one preset, it is in sight under both.
    found.append(judged("above-bnaf", "0.05", "equal", preset="tuned"))
    cells = [e for e in Parsed(section.tables(found)).all("td") if "data-preset" in e]
    assert ["details" in e["around"] for e in cells].count(False) == 3


def test_many_reasons_are_counted():
    found = [[judged("above-sac", "0.05", "not measured", measured=f"reason {number}")] for number in range(7)]
    told = claims.not_measured(found)
    assert told.startswith("7 claims were not measured: reason 0 (1), ")
    assert told.endswith("reason 4 (1), 2 other reasons")
    assert claims.not_measured(found[:1]) == "One claim was not measured: reason 0 (1)"


def test_an_agent_that_was_run_at_another_noise_is_said_to_be():
    """In the count of reasons; a row tells its noise itself."""
    rows = made.table("CartpoleBalance", "moca", "0.05", np.full(5, 900.0))
    found = [verdict for verdict in claims.judge(rows) if verdict.claim == "above-sac"]
    elsewhere = next(verdict for verdict in found if verdict.noise == "0.025")
    assert (elsewhere.measured, elsewhere.reason) == ("MoCA: not run", "MoCA: not run at other noise levels")
    here = next(verdict for verdict in found if verdict.noise == "0.05")
    assert here.measured == here.reason == "SAC: not run"
    told = "2 claims were not measured: MoCA: not run at other noise levels (1), SAC: not run (1)"
    assert claims.not_measured([[elsewhere], [here]]) == told
