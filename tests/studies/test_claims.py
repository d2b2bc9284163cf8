"""The paper's claims, judged on tables whose truth is known."""

import numpy as np
import pandas as pd
import pytest

from moca.studies import claims, grid
from moca.studies.statistics import Estimate
from tests.studies import synthetic

METRICS = ["return_mean", "saturation", "coverage_1sigma", "epistemic_std", "target_variance"]
COMPARED = ("above-", "faster-than-", "steadier-than-")


@pytest.fixture(scope="module")
def made():
    """The studies of the paper's tasks under one preset; one seed of each SAC cell diverged."""
    studies = [grid.narrowed(grid.GRIDS[name], presets=["tuned"]) for name in ("cartpole", "pendulum", "degradation")]
    return pd.concat([synthetic.table(study, diverged=1) for study in studies], ignore_index=True)


@pytest.fixture
def table(made):
    return made.copy()


def verdicts(table, *starts):
    """What is said of the claims whose names start so."""
    found = [verdict for verdict in claims.judge(table) if verdict.claim.startswith(starts)]
    assert found
    return {verdict.verdict for verdict in found}


def others(table, *noises):
    """The return of all agents but MoCA, at these noise levels or all."""
    return (table["agent"] != "moca") & (table["noise"].isin(noises) if noises else True), "return_mean"


@pytest.mark.parametrize(
    ("estimates", "region", "expected"),
    [
        ([(1, 0.5, 1.5)], claims.POSITIVE, claims.HOLDS),
        ([(1, -0.5, 2.5)], claims.POSITIVE, claims.OPEN),
        ([(-1, -1.5, -0.5)], claims.POSITIVE, claims.FAILS),
        ([(-1, -1.5, -0.5)], claims.NEGATIVE, claims.HOLDS),
        ([(1, 0.5, 1.5)], claims.NEGATIVE, claims.FAILS),
        ([(0, 0, 0)], claims.POSITIVE, claims.OPEN),
        ([(0, -3, 3)], (-5, 5), claims.HOLDS),
        ([(4, 1, 7)], (-5, 5), claims.OPEN),
        ([(8, 6, 10)], (-5, 5), claims.FAILS),
        ([(1, np.nan, np.nan)], claims.POSITIVE, claims.OPEN),
        ([(1, 0.5, 1.5), (2, 1, 3)], claims.POSITIVE, claims.HOLDS),
        ([(1, 0.5, 1.5), (2, -1, 5)], claims.POSITIVE, claims.OPEN),
        ([(1, 0.5, 1.5), (-2, -3, -1), (2, -1, 5)], claims.POSITIVE, claims.FAILS),
    ],
)
def test_the_rule(estimates, region, expected):
    claim = claims.Claim("x", "x", "t", "0", "q", region, lambda cells: [Estimate(*e, 10, 10) for e in estimates])
    assert claims._verdict(claim, None, "p").verdict == expected


@pytest.mark.parametrize(
    ("estimates", "region", "shown"),
    [
        ([(1, 0.5, 1.5), (-2, -9, 5), (-1, -1.5, -0.5)], claims.POSITIVE, -1),  # the one that fails, not the lowest
        ([(-1, -1.5, -0.5), (-3, -4, -2)], claims.POSITIVE, -3),
        ([(1, 0.5, 1.5), (2, -1, 5)], claims.POSITIVE, 2),  # the one that is open, not the lowest
        ([(3, 2, 4), (1, 0.5, 1.5)], claims.POSITIVE, 1),
        ([(3, 2, 4), (-4, -4.5, -3.5)], (-5, 5), -4),
    ],
)
def test_what_is_shown_is_what_decided(estimates, region, shown):
    claim = claims.Claim("x", "x", "t", "0", "q", region, lambda cells: [Estimate(*e, 10, 10) for e in estimates])
    verdict = claims._verdict(claim, None, "p")
    assert verdict.value == shown
    assert verdict.measured.startswith(f"{shown}")


def test_claims_that_were_built_in_hold(table):
    built = ("above-", "faster-", "ordering", "learns-", "samples-help", "targets-", "variance-", "calibrated")
    assert verdicts(table, *built, "epistemic-settles", "less-saturated") == {claims.HOLDS}


def test_what_was_measured_is_what_is_in_the_table(table):
    found = {(v.claim, v.noise): v for v in claims.judge(table) if v.task == claims.CARTPOLE}
    last = table[(table["env"] == claims.CARTPOLE) & (table["noise"] == "0.05") & (table["step"] > 90_000)]
    means = last[last["diverged"] == 0].groupby("agent")["return_mean"].mean()
    both = last[last["seed"] > last["seed"].min()].groupby("agent")["return_mean"].mean()  # seeds that SAC did not lose
    verdict = found["above-sac", "0.05"]
    assert verdict.value == pytest.approx(both["moca"] - both["sac"], rel=1e-5)
    assert verdict.low < verdict.value < verdict.high
    assert verdict.measured.endswith("(9 of 10 seeds)")
    assert "seeds" not in found["above-bnaf", "0.05"].measured
    ranking = found["ordering", "0.05"].measured
    assert ranking.startswith(f"MoCA {means['moca']:.0f} > MoCA-CE {means['moca-ce']:.0f} > ")
    assert found["ordering", "0.05"].value == found["above-moca-ce", "0.05"].value  # the closest
    assert found["faster-than-bnaf", "0.05"].value < -50_000  # BNAF never reaches 90 % of what MoCA does
    assert found["faster-than-bnaf", "0.05"].measured.endswith(", reached by 10 of 10 against 0 of 10")


def test_agents_are_compared_seed_by_seed(table):
    """What a seed adds to all of them does not blur who is better; without common seeds it does."""
    shifted = table.assign(return_mean=table["return_mean"] + 300 * (table["seed"] % 2))
    assert verdicts(shifted, "above-") == {claims.HOLDS}
    shifted["seed"] += 100 * (shifted["agent"] == "moca")
    assert claims.OPEN in verdicts(shifted, "above-")
    sac = next(v for v in claims.judge(shifted) if v.claim == "above-sac")
    assert sac.measured.endswith("(19 of 20 seeds)")


def test_claims_fail_where_the_opposite_was_built_in(table):
    swapped = {"moca": "bnaf", "bnaf": "moca", "moca-mc-4": "moca-mc-16", "moca-mc-16": "moca-mc-4"}
    flipped = table.assign(agent=table["agent"].replace(swapped))
    ends = ("above-moca-mc", "above-bnaf", "faster-than-bnaf", "ordering", "samples-help", "variance-falls")
    assert verdicts(flipped, *ends) == {claims.FAILS}
    fewer_better = table.assign(agent=table["agent"].replace({k: v for k, v in swapped.items() if "mc" in k}))
    found = {v.task: v.verdict for v in claims.judge(fewer_better) if v.claim == "ordering"}
    assert found == {claims.CARTPOLE: claims.HOLDS, claims.PENDULUM: claims.FAILS}
    share = table["step"] / table.groupby("env")["step"].transform("max")
    spoilt = table.assign(
        saturation=1 - table["saturation"],
        coverage_1sigma=table["coverage_1sigma"] + 0.1,
        epistemic_std=0.1 - 0.05 * share,  # still falling at the end
    )
    assert verdicts(spoilt, "less-saturated", "calibrated", "epistemic-settles") == {claims.FAILS}
    early = table.assign(coverage_1sigma=table["coverage_1sigma"] + 0.2 * (share < 0.4))
    assert verdicts(early, "calibrated-throughout") == {claims.FAILS}
    assert {v.verdict for v in claims.judge(early) if v.claim == "calibrated"} == {claims.HOLDS}


@pytest.mark.parametrize(
    ("slope", "level", "change", "expected"),
    [
        (0.1, 0.1, 0.02 / 0.191, claims.FAILS),  # ten evaluations, the last at the end
        (-0.05, 0.1, -0.01 / 0.0545, claims.FAILS),
        (-0.01, 5, -0.002 / 4.9909, claims.HOLDS),  # settled, however little it moved before
    ],
)
def test_what_settles_no_longer_changes_relative_to_its_level(table, slope, level, change, expected):
    own = table[(table["agent"] == "moca") & (table["env"] == claims.PENDULUM)]
    own = own.assign(epistemic_std=level + slope * own["step"] / own["step"].max())
    found = [v for v in claims.judge(own) if v.claim == "epistemic-settles"]
    assert {v.verdict for v in found} == {expected}
    np.testing.assert_allclose([v.value for v in found], change, rtol=1e-3)


def test_nothing_is_concluded_where_all_agents_are_the_same(table):
    keys = ["env", "noise", "seed", "step"]
    of_moca = table[table["agent"] == "moca"].set_index(keys)[METRICS]
    rest = table.drop(columns=METRICS).assign(diverged=0)
    same = rest.join(of_moca, on=keys)
    assert verdicts(same, *COMPARED, "ordering", "falls-less", "gap-widens", "samples-help") == {claims.OPEN}
    assert verdicts(same, "ce-like-bnaf") == {claims.HOLDS}


@pytest.mark.parametrize(("change", "expected"), [(-200, claims.HOLDS), (200, claims.FAILS)])
def test_noise_that_costs_all_but_moca_dear(table, change, expected):
    table.loc[others(table, "0.05", "0.1")] += change
    assert verdicts(table, "falls-", "gap-widens") == {expected}
    assert verdicts(table, "slows-") == ({claims.HOLDS} if change < 0 else {claims.FAILS})


def test_the_lead_is_over_the_best_baseline(table):
    """It does not grow because a bad one becomes worse."""
    table.loc[others(table, "0.05", "0.1")[0] & (table["agent"] == "bnaf"), "return_mean"] -= 300
    assert verdicts(table, "falls-bnaf") == {claims.HOLDS}
    assert verdicts(table, "gap-widens") == {claims.OPEN}


def test_without_a_lead_none_grows(table):
    """Also where MoCA loses less than the best baseline does."""
    table.loc[table["agent"] == "moca", "return_mean"] -= 400
    table.loc[others(table, "0.05", "0.1")] -= 100
    found = [v for v in claims.judge(table) if v.claim == "gap-widens"]
    assert {v.verdict for v in found} == {claims.FAILS}
    assert all(v.value < -50 and v.high < 0 for v in found)  # the lead, not its change


def test_who_has_not_learned_loses_nothing(table):
    flat = table.copy()
    flat.loc[flat["agent"] == "bnaf", "return_mean"] = 50.0
    gated = ("falls-bnaf", "falls-less-than-bnaf", "steadier-than-bnaf", "slows-bnaf", "ce-like-bnaf")
    found = [v for v in claims.judge(flat) if v.claim in gated]
    assert {(v.claim, v.verdict, v.measured) for v in found} == {
        (name, claims.ABSENT, "BNAF has not learned") for name in gated
    }
    assert claims.ABSENT not in verdicts(flat, "falls-sac", "steadier-than-sac", "slows-sac", "above-", "faster-")
    flat["agent"] = flat["agent"].replace({"moca": "bnaf", "bnaf": "moca"})
    assert verdicts(flat, "falls-less", "steadier-") == {claims.ABSENT}


def test_who_never_gets_there_is_not_fast(table):
    """SAC alone gets there; of the others MoCA and BNAF do in 3 and 4 seeds."""
    reached = {"sac": 10, "moca": 3, "bnaf": 4}
    lucky = (table["seed"] - table["seed"].min()) < table["agent"].map(reached).fillna(0)
    table["return_mean"] = np.where(lucky, 900.0, 100.0)
    table["diverged"] = 0
    found = {v.claim: v for v in claims.judge(table) if v.claim.startswith("faster")}
    neither = found["faster-than-bnaf"]
    assert (neither.verdict, neither.measured) == (claims.ABSENT, "neither gets there (3 of 10, 4 of 10)")
    assert found["faster-than-sac"].verdict == claims.FAILS
    assert found["faster-than-sac"].measured.endswith(", reached by 3 of 10 against 10 of 10")


def test_lower_noise_is_no_noise_where_a_study_has_it(table):
    table = table[table["noise"] != "0"]
    assert verdicts(table, "reduced-") == {claims.ABSENT}
    quiet = table[table["noise"] == "0.025"].assign(noise="0", sigma=0.0)
    quiet["return_mean"] += 100
    assert verdicts(pd.concat([table, quiet]), "reduced-") == {claims.HOLDS}


@pytest.mark.parametrize(("steadier", "expected"), [(True, claims.HOLDS), (False, claims.FAILS)])
def test_seeds_that_differ(table, steadier, expected):
    rows, column = others(table)
    table.loc[rows if steadier else ~rows, column] += (60 * (table["seed"] - table["seed"].mean())).astype("float32")
    assert verdicts(table, "steadier-") == {expected}


def test_what_is_not_there_was_not_measured(table):
    fewer = table[table["agent"] != "sac"].drop(columns=["coverage_1sigma", "target_variance"])
    assert verdicts(fewer, "above-sac", "calibrated", "targets-", "variance-", "ordering", "gap-") == {claims.ABSENT}
    assert verdicts(fewer, "above-bnaf", "faster-than-bnaf") == {claims.HOLDS}
    pendulum = claims.judge(table[table["env"] == claims.PENDULUM])
    assert {verdict.task for verdict in pendulum} == {claims.PENDULUM}


def test_one_seed_or_none_that_is_left_concludes_nothing(table):
    assert verdicts(table[table["seed"] == table["seed"].max()], *COMPARED, "learns-", "calibrated") == {claims.OPEN}
    table.loc[table["agent"] == "bnaf", "diverged"] = 1
    assert verdicts(table, "above-bnaf", "steadier-than-bnaf", "ce-like") == {claims.OPEN}


def test_the_caveats_are_a_list():
    assert all(line.startswith("- ") and line.endswith(".") for line in claims.CAVEATS.splitlines())
    assert "shared by seed" in claims.CAVEATS


def test_a_run_that_is_there_twice_counts_once(table):
    assert claims.to_markdown(claims.judge(pd.concat([table, table]))) == claims.to_markdown(claims.judge(table))


def test_markdown_has_a_row_per_claim_and_a_column_per_preset(table):
    worse = table.assign(preset="paper", return_mean=table["return_mean"] / 2)
    found = claims.judge(pd.concat([table, worse]))
    lines = claims.to_markdown(found).splitlines()
    assert lines[0] == "| claim | judged by | task | noise | tuned | paper |"
    assert len(lines) == 2 + len(found) // 2 == 2 + len({(v.claim, v.task, v.noise) for v in found})
    assert {line.count("|") for line in lines} == {7}
    row = next(line for line in lines if line.startswith("| MoCA ends higher than BNAF |"))
    ours, theirs = (next(v for v in found if v.claim == "above-bnaf" and v.preset == p) for p in ("tuned", "paper"))
    assert f"| **holds** {ours.measured} | **holds** {theirs.measured} |" in row
    alone = [verdict for verdict in found if verdict.preset == "tuned" or verdict.claim != "above-bnaf"]
    assert claims.to_markdown(alone).splitlines()[lines.index(row)].endswith(f"| **holds** {ours.measured} |  |")
