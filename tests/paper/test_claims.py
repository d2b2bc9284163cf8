"""The paper's claims, judged on tables whose truth is known."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tools import claims_page

from moca import presets
from moca.looks import LOOKS, label
from moca.paper import claims
from moca.paper.claims import rules, statements
from moca.paper.claims.scores import Scores
from tests.studies.made import table

CART, PEND = claims.CARTPOLE, claims.PENDULUM
HIGH = "0.05"
NOTHING = {CART: 0.0, PEND: 0.0}
SEEDS = 20
# Final returns, far apart, with MoCA and more samples ahead.
FINAL = {"sac": 630, "bnaf": 660, "moca-ce": 690, "moca-mc-4": 750, "moca-mc-16": 820, "moca": 900}


@pytest.fixture(autouse=True)
def _few_draws(monkeypatch):
    """A fifth of the draws, and no second look at p-values near the level: nothing here is near it."""
    compare = rules.compare
    monkeypatch.setattr(rules, "compare", lambda comparisons, draws=4000: compare(comparisons, draws))
    monkeypatch.setattr(rules, "MORE_DRAWS", ())


def world(task, finals=FINAL, noises=(HIGH,), seed=0, sd=10.0, **more):
    """Cells of all these agents at these noises, normal around their means."""
    rng = np.random.default_rng(seed)
    cells = [(agent, mean, noise) for noise in noises for agent, mean in finals.items()]
    return pd.concat(
        [table(task, agent, noise, rng.normal(mean, sd, SEEDS), **more) for agent, mean, noise in cells],
        ignore_index=True,
    )


def verdicts(given, nothing=NOTHING):
    """The verdicts by claim and noise."""
    return {(v.claim, v.noise): v for v in claims.judge(given, nothing)}


def words(given, *starts, nothing=NOTHING):
    """What is said of claims at σ 0.05 whose names start so."""
    found = {
        v.verdict for (name, noise), v in verdicts(given, nothing).items() if name.startswith(starts) and noise == HIGH
    }
    assert found
    return found


# ---- differences


@pytest.mark.parametrize("task", [CART, PEND])
def test_who_is_built_to_be_first_is_first(task):
    given = world(task, sd=5)
    assert words(given, "ordering", "above-", "area-above-") == {rules.HOLDS}
    ranking = verdicts(given)["ordering", HIGH].measured
    assert ranking.startswith(("MoCA 90", "MoCA 89"))
    if task == PEND:
        assert words(given, "samples-help", "moca-mc-") == {rules.HOLDS}
        assert ranking.count(">") == 5


@pytest.mark.parametrize("task", [CART, PEND])
def test_the_opposite_is_refuted(task):
    given = world(task, FINAL | {"moca": 550})
    assert words(given, "ordering", "above-", "area-above-") == {rules.REFUTED}
    swapped = world(task, FINAL | {"moca-mc-4": 820, "moca-mc-16": 750})
    if task == PEND:
        assert words(swapped, "samples-help", "ordering") == {rules.REFUTED}


@pytest.mark.parametrize("task", [CART, PEND])
def test_agents_that_end_alike_are_equal_and_an_ordering_of_them_is_refuted(task):
    given = world(task, dict.fromkeys(FINAL, 800))
    assert words(given, "ordering") == {rules.REFUTED}
    assert words(given, "above-") == {rules.EQUAL}
    blurred = world(task, dict.fromkeys(FINAL, 800), sd=120)
    assert words(blurred, "ordering", "above-", "area-above-") == {rules.UNDECIDED}


def test_a_small_difference_is_not_enough():
    """It is significant, but below the smallest effect of interest: 20 on Cartpole, 40 on Pendulum."""
    for task, gap, expected in ((CART, 15, rules.EQUAL), (CART, 25, rules.HOLDS), (PEND, 25, rules.EQUAL)):
        given = world(task, {"moca": 800 + gap, "bnaf": 800}, sd=2)
        verdict = verdicts(given)["above-bnaf", HIGH]
        assert verdict.verdict == expected
        assert verdict.p < 0.01
        assert verdict.delta == (20 if task == CART else 40)


def test_scores_are_paired_on_pendulum_only():
    """What a seed adds to both agents does not blur who is better, where the rules pair them."""
    luck = np.linspace(-150, 150, SEEDS)
    for task, expected in ((PEND, rules.HOLDS), (CART, rules.UNDECIDED)):
        cells = [table(task, agent, HIGH, 800 + gap + luck) for agent, gap in (("moca", 50), ("bnaf", 0))]
        assert verdicts(cells)["above-bnaf", HIGH].verdict == expected


def test_pairs_are_matched_by_seed():
    finals = np.linspace(650, 950, SEEDS)
    moca = table(PEND, "moca", HIGH, finals + 50)
    bnaf = table(PEND, "bnaf", HIGH, finals[::-1], seeds=np.arange(SEEDS)[::-1])
    more = table(PEND, "bnaf", HIGH, [1000.0], seeds=[99])  # has no partner
    verdict = verdicts(pd.concat([moca, bnaf, more], ignore_index=True))["above-bnaf", HIGH]
    assert (verdict.verdict, verdict.value) == (rules.HOLDS, pytest.approx(50))
    apart = verdicts([moca, table(PEND, "bnaf", HIGH, finals, seeds=np.arange(SEEDS) + 100)])
    assert apart["above-bnaf", HIGH].measured == "no seed in common"


def test_solved_seeds_are_counted_where_scores_are_bimodal():
    good, mixed = np.full(SEEDS, 850.0), np.where(np.arange(SEEDS) < 8, 850.0, 100.0)
    for task, measured in ((PEND, "solved 20 of 20 against 8 of 20"), (CART, "450 ± 180")):
        given = pd.concat([table(task, "moca", HIGH, good), table(task, "bnaf", HIGH, mixed)], ignore_index=True)
        found = verdicts(given)
        assert found["above-bnaf", HIGH].measured == measured
        assert found["above-bnaf", HIGH].verdict == rules.HOLDS
        assert "solved" not in found["area-above-bnaf", HIGH].measured  # only final returns are counted
    assert verdicts(given[given["env"] == CART])["above-bnaf", HIGH].delta == 20
    one_fails = np.where(np.arange(SEEDS) < 19, 850.0, 100.0)
    given = [table(PEND, "moca", HIGH, good), table(PEND, "bnaf", HIGH, one_fails)]
    assert "solved" not in verdicts(given)["above-bnaf", HIGH].measured  # less than a tenth fails


def test_speed():
    """MoCA is there after 5 of 20 evaluations, CE after 10, BNAF in few seeds, SAC in no seed."""
    rise = {"moca": 5, "moca-ce": 10, "bnaf": 5}
    cells = []
    for agent in ("moca", "moca-ce", "bnaf", "sac"):
        curves = np.where(np.arange(1, 21) >= rise.get(agent, 99), 900.0, 300.0) * np.ones((SEEDS, 1))
        if agent == "bnaf":
            curves[3:] = 300
        cells.append(table(CART, agent, HIGH, curves=curves))
    found = verdicts(cells)
    fast = found["faster-than-moca-ce", HIGH]
    assert (fast.verdict, fast.value, fast.delta) == (rules.HOLDS, -5000, 2000)
    assert fast.measured.endswith("reached by 20 of 20 against 20 of 20")
    assert found["faster-than-sac", HIGH].value == 7000 - 20_000  # it counts with all its steps
    assert found["faster-than-bnaf", HIGH].verdict == rules.HOLDS
    renamed = {"moca": "sac", "bnaf": "moca", "sac": "bnaf"}
    other = verdicts([cell.assign(agent=cell["agent"].replace(renamed)) for cell in cells])
    assert other["faster-than-bnaf", HIGH].measured == "neither gets there (3 of 20, 0 of 20)"
    assert other["faster-than-sac", HIGH].verdict == rules.REFUTED


def test_stability_over_seeds_and_within_runs():
    rng = np.random.default_rng(0)
    steady, wild = 800 + rng.normal(0, 5, SEEDS), 800 + rng.normal(0, 90, SEEDS)
    falls = np.concatenate([np.full(10, 900.0), np.full(10, 700.0)]) + rng.normal(0, 5, (SEEDS, 1))
    given = [table(CART, "moca", HIGH, steady), table(CART, "bnaf", HIGH, wild), table(CART, "sac", HIGH, curves=falls)]
    found = verdicts(given)
    assert found["steadier-than-bnaf", HIGH].verdict == rules.HOLDS
    assert found["holds-better-than-bnaf", HIGH].verdict == rules.EQUAL
    assert found["holds-better-than-sac", HIGH].verdict == rules.HOLDS
    assert found["holds-better-than-sac", HIGH].value == pytest.approx(-200, abs=1)
    assert found["steadier-than-sac", HIGH].verdict == rules.EQUAL


def test_a_run_that_diverged_counts_as_the_worst():
    lost = list(range(12))
    given = [
        table(CART, "moca", HIGH, np.full(SEEDS, 800.0)),
        table(CART, "bnaf", HIGH, np.full(SEEDS, 800.0), diverged=lost),
    ]
    found = verdicts(given)
    assert found["above-bnaf", HIGH].value == pytest.approx(480)
    for name in ("above-bnaf", "area-above-bnaf", "faster-than-bnaf", "holds-better-than-bnaf"):
        assert found[name, HIGH].verdict == rules.HOLDS


# ---- more noise


def levels(task, costs, before="0.025", after=HIGH):
    """Everybody at 800, and at the higher noise so much less; MoCA 150 ahead."""
    agents = ("moca", *statements.BASELINES[task])
    start = {agent: 950 if agent == "moca" else 800 for agent in agents}
    end = {agent: start[agent] - costs.get(agent, costs["others"]) for agent in agents}
    return [world(task, start, (before,)), world(task, end, (after,), seed=1)]


@pytest.mark.parametrize("task", [CART, PEND])
def test_noise_that_costs_all_but_moca_dear(task):
    found = {name: v.verdict for (name, n), v in verdicts(levels(task, {"moca": 0, "others": 150})).items() if "→" in n}
    noisy = {name: word for name, word in found.items() if name.startswith(("falls", "gap"))}
    assert set(noisy.values()) == {rules.HOLDS}
    assert len(noisy) == 2 * len(statements.BASELINES[task]) + 1
    reverse = verdicts(levels(task, {"moca": 250, "others": 0}))
    step = "0.025 → 0.05"
    assert reverse["falls-less-than-bnaf", step].verdict == rules.REFUTED
    assert reverse["gap-widens", step].verdict == rules.REFUTED
    assert reverse["falls-bnaf", step].verdict == rules.EQUAL


def test_the_lead_grows_only_if_it_does_over_every_baseline():
    found = verdicts(levels(CART, {"moca": 100, "others": 250, "bnaf": 100}))
    assert found["falls-less-than-sac", "0.025 → 0.05"].verdict == rules.HOLDS
    assert found["gap-widens", "0.025 → 0.05"].verdict == rules.REFUTED


def test_what_noise_costs_is_asked_of_agents_that_learned_without():
    """At the higher noise they need not have: that noise ruins them is the claim."""
    given = levels(CART, {"moca": 0, "others": 150})
    found = verdicts(given, {CART: 650.0, PEND: 0.0})  # 650 is the return of doing nothing, and of them at σ 0.05
    assert found["falls-bnaf", "0.025 → 0.05"].verdict == rules.HOLDS
    assert found["falls-less-than-bnaf", "0.025 → 0.05"].verdict == rules.HOLDS
    assert found["above-bnaf", HIGH].verdict == rules.ABSENT
    lost = verdicts([given[0].assign(return_mean=600.0), given[1]], {CART: 650.0, PEND: 0.0})
    assert lost["falls-bnaf", "0.025 → 0.05"].measured == "BNAF has not learned"


def test_noise_slows_and_reduces():
    quick, slow = (np.where(np.arange(1, 21) >= at, 900.0, 300.0) * np.ones((SEEDS, 1)) for at in (4, 12))
    given = [
        table(CART, "bnaf", "0.025", curves=quick),
        table(CART, "bnaf", HIGH, curves=slow),
        table(CART, "bnaf", "0", curves=quick + 60),
    ]
    found = verdicts(given)
    assert found["slows-bnaf", "0.025 → 0.05"].verdict == rules.HOLDS
    assert found["slows-bnaf", "0.025 → 0.05"].value == 8000
    assert found["reduced-bnaf", "none → 0.025"].verdict == rules.HOLDS
    assert found["reduced-sac", "none → 0.025"].measured == "SAC: not run"


# ---- the gate


@pytest.mark.parametrize("agent", ["moca", "bnaf"])
def test_nothing_is_said_of_an_agent_that_has_not_learned(agent):
    given = world(CART, FINAL | {agent: 90})
    found = verdicts(given)
    for name in ("ordering", "above-bnaf", "faster-than-bnaf", "area-above-bnaf", "steadier-than-bnaf"):
        assert found[name, HIGH].verdict == rules.ABSENT
        assert found[name, HIGH].measured == f"{label(agent)} has not learned"
    assert found["above-sac", HIGH].verdict == (rules.ABSENT if agent == "moca" else rules.HOLDS)


def test_learning_and_then_collapsing_is_learning():
    collapse = np.concatenate([np.full(8, 800.0), np.full(12, 50.0)]) * np.ones((SEEDS, 1))
    given = [table(PEND, "moca", HIGH, np.full(SEEDS, 800.0)), table(PEND, "moca-ce", HIGH, curves=collapse)]
    found = verdicts(given)
    assert found["above-moca-ce", HIGH].verdict == rules.HOLDS
    assert found["holds-better-than-moca-ce", HIGH].verdict == rules.HOLDS


def test_whether_agents_learn_is_a_claim_of_its_own():
    given = world(CART, {"moca": 900, "bnaf": 300, "sac": 730}, ("0.025",), sd=20)
    found = verdicts(given, claims.NOTHING)
    assert [found[f"learns-{a}", "0.025"].verdict for a in ("moca", "bnaf", "sac", "moca-ce")] == [
        rules.HOLDS, rules.REFUTED, rules.UNDECIDED, rules.ABSENT,
    ]  # fmt: skip


def test_seeds_that_get_stuck_are_counted():
    for stuck, expected in ((12, rules.HOLDS), (1, rules.UNDECIDED)):
        naf = np.where(np.arange(SEEDS) < stuck, 50.0, 800.0)
        given = [table(PEND, "bnaf", HIGH, np.full(SEEDS, 800.0)), table(PEND, "naf", HIGH, naf)]
        verdict = verdicts(given)["stuck-less", HIGH]
        assert (verdict.verdict, verdict.measured) == (expected, f"stuck 0 of 20 against {stuck} of 20")
    given = [table(PEND, "bnaf", HIGH, naf), table(PEND, "naf", HIGH, np.full(SEEDS, 50.0))]
    assert verdicts(given)["stuck-less", HIGH].verdict == rules.HOLDS  # that NAF has not learned is the claim


# ---- claims that two agents are alike


@pytest.mark.parametrize(("gap", "expected"), [(0, rules.HOLDS), (60, rules.REFUTED), (-60, rules.REFUTED)])
def test_claims_that_agents_are_alike(gap, expected):
    given = [
        world(CART, {"moca-ce": 800, "bnaf": 800 + gap}, ("0.025",)),
        world(CART, {"moca": 800, "moca-mixture": 800 + gap}),
    ]
    found = verdicts(given)
    assert found["ce-like-bnaf", "0.025"].verdict == expected
    assert found["mixture-alike", HIGH].verdict == expected


# ---- the model and the targets


def targets(task, few=4.0, many=1.0, one=9.0):
    """Sampled and one-sample targets with these variances, ten percent apart from seed to seed."""
    spread = 1 + 0.1 * np.random.default_rng(0).normal(size=(SEEDS, 1))
    finals = np.full(SEEDS, 800.0)
    return [
        table(task, "moca-mc-4", HIGH, finals, target_variance=few * spread),
        table(task, "moca-mc-16", HIGH, finals, target_variance=many * spread[::-1]),
        table(task, "bnaf", HIGH, finals, value_noise_variance=one * spread),
    ]


def test_the_variance_of_targets():
    assert words(targets(PEND), "targets-vary-", "variance-falls", "one-sample-targets") == {rules.HOLDS}
    assert words(targets(PEND, few=0.5), "variance-falls") == {rules.REFUTED}
    assert words(targets(PEND, one=0.5), "one-sample-targets") == {rules.REFUTED}
    assert words(targets(PEND)[:2], "one-sample-targets") == {rules.ABSENT}
    assert {v.beyond for v in claims.judge(targets(CART), NOTHING) if v.claim == "variance-falls"} == {True}


@pytest.mark.parametrize("task", [CART, PEND])
def test_coverage(task):
    noise = 0.005 * np.random.default_rng(0).normal(size=(SEEDS, 20))
    early = 0.1 * (np.arange(20) < 5)
    for level, expected in ((0.69, [rules.HOLDS, rules.HOLDS]), (0.80, [rules.REFUTED, rules.REFUTED])):
        given = table(task, "moca", HIGH, np.full(SEEDS, 800.0), coverage_1sigma=level + noise)
        found = verdicts(given)
        assert [found[name, HIGH].verdict for name in ("calibrated", "calibrated-throughout")] == expected
    given = table(task, "moca", HIGH, np.full(SEEDS, 800.0), coverage_1sigma=0.69 + early + noise)
    found = verdicts(given)
    assert [found[name, HIGH].verdict for name in ("calibrated", "calibrated-throughout")] == [
        rules.HOLDS,
        rules.REFUTED,
    ]
    assert found["calibrated-throughout", HIGH].value == pytest.approx(0.79, abs=0.01)


def test_regions_are_corrected_too():
    """By Holm's method over all of them: here coverage late in training, and at each of 20 evaluations."""
    coverage = 0.71 + 0.05 * np.random.default_rng(3).normal(size=(SEEDS, 20))
    given = table(PEND, "moca", HIGH, np.full(SEEDS, 800.0), coverage_1sigma=coverage)
    p = [rules.region_p(each, *statements.NEAR) for each in (coverage[:, 10:].mean(axis=1), *coverage.T)]
    corrected = rules.holm(np.array(p))
    found = verdicts(given)
    assert found["calibrated", HIGH].p == pytest.approx(corrected[0])
    assert found["calibrated-throughout", HIGH].p == pytest.approx(corrected[1 + np.argmax(coverage.mean(axis=0))])
    assert p[0] < corrected[0]


def test_what_settles():
    share = np.arange(1, 21) / 20
    noise = 1 + 0.001 * np.random.default_rng(0).normal(size=(SEEDS, 1))
    for curve, expected in ((0.1 + 0 * share, rules.HOLDS), (0.1 - 0.09 * share, rules.REFUTED)):
        given = table(PEND, "moca", HIGH, np.full(SEEDS, 800.0), epistemic_std=curve * noise)
        assert words(given, "epistemic-settles") == {expected}
        falling = verdicts(given.assign(preset="tuned"))["epistemic-settles", HIGH]
        assert (falling.verdict, falling.measured) == (rules.ABSENT, "learning rates fall")
    assert {name: presets.build(name, PEND, {}).train.decay < 1 for name in ("raw", "tuned", "paper")} == {
        "raw": False, "tuned": True, "paper": False,
    }  # fmt: skip


# ---- which claims there are


def test_claims_beyond_the_paper_are_marked():
    given = [
        world(CART, noises=("0.025", HIGH, "0.1", "state-norm 0.2", "action 0.5")),
        world(PEND, noises=("action 0.3",)),
    ]
    found = claims.judge(given, NOTHING)
    beyond = {(v.task, v.noise) for v in found if v.beyond}
    assert {(CART, "0.1"), (CART, "state-norm 0.2"), (CART, "action 0.5"), (PEND, "action 0.3")} <= beyond
    own = {v.noise for v in found if not v.beyond}
    assert own == {
        "0.025", "0.05", "state-norm 0.05", "0.025 → 0.05", "none → 0.025", "none → state-norm 0.05",
    }  # fmt: skip
    of_agents = {v.claim for v in found if v.beyond and v.noise == HIGH}
    assert of_agents == {
        "above-moca-mc-4", "above-moca-mc-16", "samples-help", "moca-mc-4-above-moca-ce", "moca-mc-16-above-moca-ce",
        "targets-vary-moca-mc-4", "targets-vary-moca-mc-16", "variance-falls", "one-sample-targets",
    }  # fmt: skip


def test_only_agents_that_were_run_are_asked_for_beyond_the_paper():
    given = world(CART, {"moca": 900, "bnaf": 700, "moca-ce": 750}, ("action 0.5",))
    found = verdicts(given)
    assert found["ordering", "action 0.5"].verdict == rules.HOLDS
    assert ("above-sac", "action 0.5") not in found
    assert found["above-sac", HIGH].verdict == rules.ABSENT  # what the paper claims is always listed


def test_a_task_without_claims():
    assert claims.judge(world("CartpoleSwingup")) == []
    assert {v.task for v in claims.judge(world(PEND))} == {PEND}


def test_no_claim_is_listed_twice():
    cells = [
        (t, a, n)
        for t in (CART, PEND)
        for a in LOOKS
        for n in (*statements.NOISES[t], *statements.BEYOND[t], "0", "action 1")
    ]
    names = [(c.name, c.task, c.noise) for c in statements.claims(cells)]
    assert len(names) == len(set(names))
    assert all(c.rule and c.statement for c in statements.claims(cells))


# ---- all claims of a preset


def test_every_comparison_is_corrected_for_all_others_once():
    """An ordering is made of the same comparisons as the claims about single agents, so it adds none."""
    given = world(CART, {"moca": 840, "bnaf": 800, "sac": 805, "moca-ce": 810})
    found = {v.claim: v for v in claims.judge(given, NOTHING) if v.noise == HIGH and np.isfinite(v.p)}
    scores = Scores([given], "raw", CART, NOTHING)
    sides = []
    for score in ("final", "steps", "area", "spread", "drop"):
        for agent in ("sac", "bnaf", "moca-ce"):
            ours, theirs = (scores.of(each, HIGH, score).to_numpy() for each in ("moca", agent))
            sides.append(rules.Comparison(ours, theirs, 2000 if score == "steps" else 20))
    p = np.array([each.p for each in rules.compare(sides)])
    starts = ("above-", "faster-than-", "area-above-", "steadier-than-", "holds-better-than-")
    names = [f"{start}{agent}" for start in starts for agent in ("sac", "bnaf", "moca-ce")]
    np.testing.assert_allclose([found[name].p for name in names], rules.holm(p))
    assert found["ordering"].p == max(found[f"above-{agent}"].p for agent in ("sac", "bnaf", "moca-ce"))


def test_presets_are_judged_apart_and_raw_comes_first():
    given = world(CART)
    both = claims.judge([given.assign(preset="paper", return_mean=50.0), given])
    assert [v.preset for v in both[:4]] == ["raw", "paper"] * 2
    alone = claims.judge(given)
    assert [v[:7] for v in both if v.preset == "raw"] == [v[:7] for v in alone]


def test_repetitions_are_merged():
    first, second = world(CART, seed=1), world(CART, seed=2)
    merged = verdicts([first, second])["above-bnaf", HIGH]
    single = [verdicts(each)["above-bnaf", HIGH].value for each in (first, second)]
    assert merged.value == pytest.approx(np.mean(single))
    stacked = verdicts(pd.concat([first, second], ignore_index=True))["above-bnaf", HIGH]
    assert stacked[:8] == merged[:8]
    assert claims.to_markdown(claims.judge([first, first])) == claims.to_markdown(claims.judge(first))


def test_one_seed_concludes_nothing():
    given = world(CART)
    found = claims.judge(given[given["seed"] == 3], NOTHING)
    assert {v.verdict for v in found} == {rules.ABSENT}


# ---- what hangs on no preset


def test_cost():
    rows = [("moca", 1.0), ("moca-ce", 0.98), ("moca-mc-16", 1.5)]
    times = [{"agent": a, "env": CART, "cost_over": {o: t / u for o, u in rows if o != a}} for a, t in rows]
    found = {v.claim: v for v in claims_page.judge([{"agents": times}, {"growth": {}}])}
    assert found["cost-like-ce"].verdict == found["cost-below-mc"].verdict == rules.HOLDS
    assert found["cost-like-ce"].measured == "1.02 in one program"
    slower = [{**row, "cost_over": {"moca-ce": 1.2, "moca-mc-16": 1.1}} for row in times[:1]]
    found = {v.claim: v.verdict for v in claims_page.judge([{"agents": slower}])}
    assert found["cost-like-ce"] == found["cost-below-mc"] == rules.REFUTED
    mixed = {v.claim: v.verdict for v in claims_page.judge([{"agents": slower}, {"agents": times}])}
    assert mixed["cost-like-ce"] == mixed["cost-below-mc"] == rules.UNDECIDED
    assert {v.verdict for v in claims_page.judge([]) if v.claim.startswith("cost")} == {rules.ABSENT}


def test_figure_1(monkeypatch):
    from moca.paper import toy

    assert {v.verdict for v in claims_page.judge([]) if v.claim.startswith("figure")} == {rules.HOLDS}
    monkeypatch.setattr(toy.Toy, "__init__", lambda self: object.__setattr__(self, "mean_a", 1.2) or None)
    found = {v.claim: v.verdict for v in claims_page.judge([])}
    assert (found["figure-1-a"], found["figure-1-b"]) == (rules.REFUTED, rules.HOLDS)


def test_doing_nothing_is_what_was_measured():
    measured = json.loads((Path(__file__).parents[2] / "results" / "nothing.json").read_text())
    assert measured == claims.NOTHING


# ---- as text


def test_markdown_has_a_row_per_claim_and_a_column_per_preset():
    given = world(CART)
    found = claims.judge([given, given.assign(preset="paper", return_mean=given["return_mean"] / 2)], NOTHING)
    lines = claims.to_markdown(found).splitlines()
    assert lines[0] == "| claim | judged by | task | noise | raw | paper |"
    claimed = {(v.claim, v.task, v.noise) for v in found}
    measured = {(v.claim, v.task, v.noise) for v in found if v.verdict != claims.ABSENT}
    table = lines[: 2 + len(measured)]
    assert {line.count("|") for line in table} == {7}
    assert lines[len(table)] == ""
    assert lines[-1].startswith(f"{len(claimed - measured)} claims were not measured: ")
    assert len(lines) == len(table) + 2
    row = next(line for line in lines if line.startswith("| MoCA ends higher than BNAF |") and f"| {HIGH} |" in line)
    both = [v for v in found if (v.claim, v.noise) == ("above-bnaf", HIGH)]
    assert row.endswith(" | ".join(f"**holds** {v.measured}" for v in both) + " |")
    counted = claims_page.counts(found).splitlines()
    totals = Counter((v.verdict, v.preset) for v in found)
    assert counted[0] == "| verdict | raw | paper |"
    assert counted[2:] == [f"| {w} | {totals[w, 'raw']} | {totals[w, 'paper']} |" for w in rules.WORDS]


def test_json_has_the_numbers():
    found = claims.judge(world(CART), NOTHING)
    data = json.loads(claims_page.to_json(found, ["one"]))
    assert data["studies"] == ["one"]
    assert len(data["verdicts"]) == len(found)
    row = next(row for row in data["verdicts"] if row["claim"] == "above-bnaf" and row["noise"] == HIGH)
    assert row["verdict"] == rules.HOLDS
    assert row["value"] == pytest.approx(240, abs=10)
    assert row["p"] < 0.01
    absent = next(row for row in data["verdicts"] if row["verdict"] == rules.ABSENT)
    assert absent["value"] is None


def test_the_notes_are_a_list():
    assert all(line.startswith("- ") and line.endswith(".") for line in claims.NOTES.splitlines())
