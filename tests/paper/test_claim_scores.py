"""Scores of runs, on curves whose scores can be told by hand."""

import numpy as np
import pandas as pd
import pytest

from moca.paper.claims.scores import CARTPOLE, NOTHING, PENDULUM, AbsentError, Scores
from moca.paper.tasks import TASKS
from tests.studies.made import table

RAMP = np.arange(1.0, 21) * 10  # twenty evaluations of a run of 20,000 steps


def scores(*tables, task=CARTPOLE, nothing=NOTHING):
    return Scores(tables, "raw", task, nothing)


def one(curve, **more):
    """The cell of MoCA at σ 0.05 with these curves, one per seed."""
    return table(CARTPOLE, "moca", "0.05", curves=np.atleast_2d(curve), **more)


def test_scores_of_a_curve():
    falling = np.concatenate([RAMP[:15], [0, 0, 0, 40, 60]])
    found = scores(one([RAMP, falling]))
    assert found.of("moca", "0.05", "final").tolist() == [195, 50]  # the last two of twenty
    assert found.of("moca", "0.05", "area").tolist() == [105, (1200 + 100) / 20]
    assert found.of("moca", "0.05", "peak").tolist() == [190, 140]
    assert found.of("moca", "0.05", "drop").tolist() == [-5, 90]
    assert found.of("moca", "0.05", "spread").tolist() == [72.5, 72.5]


def test_steps_to_the_best_agents_level():
    best = table(CARTPOLE, "bnaf", "0.05", curves=np.full((2, 20), 150.0))
    never = np.full(20, 80.0)
    found = scores(one([RAMP, never]), best)  # 135 is what counts: reached by the mean of 130, 140, 150
    assert found.of("moca", "0.05", "steps").tolist() == [15_000, 20_000]
    assert found.of("bnaf", "0.05", "steps").tolist() == [3000, 3000]
    assert found.reached("moca", "0.05", "steps") == 0.5
    assert found.all_steps("moca", "0.05") == 20_000


def test_steps_to_an_agents_own_level():
    low = table(CARTPOLE, "moca", "0.025", curves=np.full((2, 20), 50.0))
    found = scores(one([RAMP, RAMP]), low)  # 45 is what counts: reached by the mean of 40, 50, 60
    assert found.of("moca", "0.05", "steps of its own").tolist() == [6000, 6000]


def test_a_run_that_diverged_scores_lowest():
    found = scores(one([RAMP, RAMP], diverged=[1], coverage_1sigma=0.7))
    worst = {"final": 0, "area": 0, "peak": 0, "drop": 1000, "steps": 20_000, "stuck": 1}
    assert {name: found.of("moca", "0.05", name).iloc[1] for name in worst} == worst
    assert found.of("moca", "0.05", "coverage_1sigma").index.tolist() == [0]  # of other metrics it has none
    assert found.reached("moca", "0.05", "steps") == 0.5


def test_repetitions_are_averaged_by_seed():
    again = one([RAMP + 100, RAMP + 100], seeds=[1, 2])
    found = scores(one([RAMP, RAMP]), again)
    assert found.of("moca", "0.05", "final").to_dict() == {0: 195, 1: 245, 2: 295}
    lost = scores(one([RAMP, RAMP]), one([RAMP, RAMP], diverged=[0]))
    assert lost.of("moca", "0.05", "final").tolist() == [97.5, 195]
    assert lost.reached("moca", "0.05", "steps") == 0.75


def test_stuck_and_solved():
    bar = 0.8 + 0.1 * (1000 - 0.8)
    finals = np.array([bar - 1, bar + 1, 599, 600])
    found = scores(table(PENDULUM, "moca", "0.05", finals), task=PENDULUM)
    assert found.of("moca", "0.05", "stuck").tolist() == [1, 0, 0, 0]
    assert found.solved("moca", "0.05").tolist() == [0, 0, 0, 1]
    assert scores(table(CARTPOLE, "moca", "0.05", [899, 900])).solved("moca", "0.05").tolist() == [0, 1]


@pytest.mark.parametrize(("solved", "expected"), [(0, False), (1, False), (2, True), (18, True), (19, False)])
def test_bimodal_cells(solved, expected):
    assert TASKS[PENDULUM].splits(100 + 700 * (np.arange(20) < solved)) == expected
    assert not TASKS[CARTPOLE].splits(100 + 900 * (np.arange(20) < solved))


def test_an_agent_has_learned_if_its_peaks_lie_above_doing_nothing():
    collapsed = np.concatenate([np.full(10, 900.0), np.full(10, 100.0)])
    found = scores(one([collapsed + seed for seed in range(5)]))
    assert found.learned("moca", "0.05")  # though it ends far below
    bar = NOTHING[CARTPOLE] + 0.1 * (1000 - NOTHING[CARTPOLE])
    unsure = scores(table(CARTPOLE, "moca", "0.05", bar + np.array([-30.0, 50, 40, -20])))
    assert not unsure.learned("moca", "0.05")  # on average above the bar, but the interval is not
    assert scores(table(CARTPOLE, "moca", "0.05", bar + np.array([9.0, 10, 11, 10]))).learned("moca", "0.05")
    assert not scores(table(CARTPOLE, "moca", "0.05", [1000.0])).learned("moca", "0.05")  # one seed cannot tell


def test_metrics():
    rising = np.tile(np.linspace(0.05, 1, 20), (2, 1))
    found = scores(one([RAMP, RAMP], coverage_1sigma=rising, epistemic_std=1.0))
    np.testing.assert_allclose(found.of("moca", "0.05", "coverage_1sigma"), 0.525)
    np.testing.assert_allclose(found.of("moca", "0.05", "coverage_1sigma, second half"), 0.775)
    np.testing.assert_allclose(found.every("moca", "0.05", "coverage_1sigma").to_numpy(), rising.T)
    np.testing.assert_allclose(found.change("moca", "0.05", "coverage_1sigma"), 0.2 / 0.925)
    np.testing.assert_allclose(found.change("moca", "0.05", "epistemic_std"), 0, atol=1e-12)
    with pytest.raises(AbsentError, match="no target variance"):
        found.of("moca", "0.05", "target_variance")
    for agent, reason in (("moca", "not run at other noise levels"), ("sac", "not run")):
        with pytest.raises(AbsentError, match=f"^{reason}$"):
            found.of(agent, "0.1", "final")


def test_rows_in_any_order():
    given = one([RAMP, RAMP[::-1]])
    shuffled = given.sample(frac=1, random_state=0)
    for name in ("final", "peak", "steps"):
        pd.testing.assert_series_equal(
            scores(given).of("moca", "0.05", name), scores(shuffled).of("moca", "0.05", name)
        )
