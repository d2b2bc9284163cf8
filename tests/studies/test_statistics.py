"""Statistics over seeds: against SciPy, against simulation, and on tables with seeds that diverged."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from moca.config import ConfigError
from moca.studies import grid
from moca.studies import statistics as ss
from tests.studies import synthetic

NAN, INF = np.nan, np.inf
STUDY = grid.Grid(
    "small", (grid.Block("CartpoleBalance", ("sac", "moca"), ("0.025", "0.05")),), presets=("tuned",), seed=3, seeds=4
)
NAMES = ("tuned", "CartpoleBalance")
# Few distinct scores, so that there are ties.
SCORES = st.tuples(st.integers(1, 6), st.integers(1, 3)).flatmap(
    lambda shape: arrays(float, shape, elements=st.sampled_from([NAN, 0.0, 0.5, 1.0, 2.0]))
)


@pytest.fixture(scope="module")
def table():
    return synthetic.table(STUDY, diverged=1)


def draws(*shape, seed=0):
    return np.random.default_rng(seed).normal(700, 50, shape)


# ---- tables


def test_final_scores_are_means_over_the_last_tenth(table):
    scores = ss.final_scores(table)
    assert list(scores.index) == [(*NAMES, agent, noise) for agent in ("sac", "moca") for noise in ("0.025", "0.05")]
    assert list(scores.columns) == [3, 4, 5, 6]
    run = table[(table.agent == "moca") & (table.noise == "0.05") & (table.seed == 5)]
    expected = run.return_mean.to_numpy(float)
    np.testing.assert_allclose(scores.loc[*NAMES, "moca", "0.05"][5], expected[-5:].mean())
    np.testing.assert_allclose(ss.final_scores(table, last=0.5).loc[*NAMES, "moca", "0.05"][5], expected[-25:].mean())


def test_a_diverged_seed_has_no_final_score(table):
    missing = ss.final_scores(table).isna()
    np.testing.assert_array_equal(missing.loc[*NAMES, "sac"], [[True, False, False, False]] * 2)
    assert not missing.loc[*NAMES, "moca"].any(axis=None)
    # Nor where it diverged at the very end.
    late = synthetic.table(STUDY)
    at_end = (late.step == late.step.max()) & (late.seed == 4)
    late.loc[at_end, "diverged"] = 2
    np.testing.assert_array_equal(ss.final_scores(late).isna().to_numpy(), [[False, True, False, False]] * 4)
    _, values = ss.curve(late, *NAMES, "moca", "0.05")
    np.testing.assert_array_equal(np.argwhere(np.isnan(values)), [[49, 1]])


def test_agents_without_the_metric_are_left_out_but_not_those_that_diverged(table):
    assert set(ss.final_scores(table, "coverage_1sigma").index.get_level_values("agent")) == {"moca"}
    lost = table.copy()
    lost.loc[lost.agent == "sac", "diverged"] = 1
    scores = ss.final_scores(lost)
    assert scores.loc[*NAMES, "sac"].isna().all(axis=None)
    assert ss.mean_t(scores.loc[*NAMES, "sac", "0.05"])[-2:] == (0, 4)
    assert ss.final_scores(table.assign(ce_bias=NAN), "ce_bias").empty


def test_tasks_of_different_length_and_tables_put_together(table):
    longer = table.assign(env="PendulumSwingup", step=5 * table.step)
    both = ss.final_scores(pd.concat([table, longer]))
    alone = ss.final_scores(table).to_numpy()
    np.testing.assert_array_equal(both.to_numpy(), np.concatenate([alone, alone]))


def test_rows_come_in_the_tables_order_and_seeds_in_their_own(table):
    order = [("sac", "0.05"), ("moca", "0.025"), ("sac", "0.025"), ("moca", "0.05")]
    parts = [table[(table.agent == agent) & (table.noise == noise)][::-1] for agent, noise in order]
    scores = ss.final_scores(pd.concat(parts))
    assert list(scores.index) == [(*NAMES, *cell) for cell in order]
    assert list(scores.columns) == [3, 4, 5, 6]
    pd.testing.assert_frame_equal(scores.sort_index(), ss.final_scores(table).sort_index())


def test_curve(table):
    steps, values = ss.curve(table, *NAMES, "sac", "0.05")
    np.testing.assert_array_equal(steps, np.arange(1, 51) * 2000)
    assert values.shape == (50, 4)
    np.testing.assert_array_equal(np.isnan(values).sum(axis=0), [25, 0, 0, 0])
    run = table[(table.agent == "sac") & (table.noise == "0.05") & (table.seed == 6)]
    np.testing.assert_array_equal(values[:, 3], run.return_mean)
    # The order of the rows does not matter.
    shuffled = ss.curve(table.sample(frac=1, random_state=0), *NAMES, "sac", "0.05")
    np.testing.assert_array_equal(shuffled[1], values)


@pytest.mark.parametrize(
    ("cell", "metric", "message"),
    [
        (("sacc", "0.05"), "return_mean", r"agent = 'sacc' .* Did you mean sac\? Allowed: sac, moca$"),
        (("sac", "0.5"), "return_mean", r"noise = '0.5' .* Allowed: 0.025, 0.05$"),
        (("sac", "0.05"), "return", r"metric = 'return' .* Did you mean return_std\? Allowed: return_mean, "),
    ],
)
def test_what_is_not_in_the_table_is_named(table, cell, metric, message):
    with pytest.raises(ConfigError, match=message):
        ss.curve(table, *NAMES, *cell, metric)


# ---- intervals


@pytest.mark.parametrize("level", [0.95, 0.8])
def test_t_interval(level):
    scores = draws(9)
    expected = stats.ttest_1samp(scores, 0).confidence_interval(level)
    found = ss.mean_t([*scores, NAN, INF], level)
    np.testing.assert_allclose(found[:3], [scores.mean(), *expected])
    assert found[3:] == (9, 11)


@pytest.mark.parametrize("level", [0.95, 0.8])
def test_difference(level):
    ours, theirs = draws(10), 3 * draws(7, seed=1)
    expected = stats.ttest_ind(ours, theirs, equal_var=False).confidence_interval(level)
    found = ss.difference([NAN, *ours], theirs, level)
    np.testing.assert_allclose(found[:3], [ours.mean() - theirs.mean(), *expected])
    assert found[3:] == (17, 18)


@pytest.mark.parametrize("level", [0.95, 0.8])
def test_paired(level):
    """Against SciPy; what a seed adds to both sides does not count, nor a seed that one of them lost."""
    ours, theirs, shared = draws(10), draws(10, seed=1) - 20, 1e3 * draws(10, seed=2)
    expected = stats.ttest_rel(ours, theirs).confidence_interval(level)
    found = ss.paired([*(ours + shared), NAN, 1.0], [*(theirs + shared), 1.0, NAN], level)
    np.testing.assert_allclose(found[:3], [(ours - theirs).mean(), *expected])
    assert found[3:] == (10, 12)


def test_seeds_are_matched_where_there_are_any_in_common():
    ours, theirs = pd.Series(draws(6), range(6)), pd.Series(draws(6), range(6)) - 5
    both = ss.compared(ours[1:], theirs[:5][::-1])
    np.testing.assert_allclose(both[:3], 5)
    assert both[3:] == (4, 6)
    lost = ss.compared(ours, theirs * NAN)
    assert np.isnan(lost.value)
    assert lost[3:] == (0, 6)
    apart = theirs.set_axis(range(6, 12))
    assert ss.compared(ours, apart) == ss.difference(ours, apart)
    assert ss.compared(ours, apart, 0.5).half_width < ss.compared(ours, apart).half_width


@pytest.mark.parametrize("runs", [1, 2, 10, 30])
def test_t_intervals_of_all_rows_at_once_are_those_of_each(runs):
    rows = draws(runs, 20).T
    lost = np.where(rows > 1, NAN, rows)
    for values in (rows, lost):
        np.testing.assert_equal(ss.means_t(values, 0.9), [ss.mean_t(row, 0.9) for row in values])


@pytest.mark.parametrize("shape", [(1,), (3,), (4,), (9,), (10,), (10, 3), (7, 5)])
def test_iqm(shape):
    scores = draws(*shape)
    expected = stats.trim_mean(scores, 0.25, axis=None)
    assert ss.iqm(scores) == pytest.approx(expected, rel=1e-12)
    assert ss.iqm(np.concatenate([np.full((2, *shape[1:]), NAN), scores])) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("statistic", [np.mean, ss.iqm])
def test_bootstrap_of_one_task(statistic):
    scores = draws(10)
    expected = stats.bootstrap(
        (scores,), statistic, method="percentile", vectorized=False, n_resamples=4000, rng=np.random.default_rng(5)
    ).confidence_interval
    found = ss.bootstrap(statistic, [*scores, NAN], resamples=4000)
    np.testing.assert_allclose(found[:3], [statistic(scores), *expected], atol=0.1 * scores.std() / np.sqrt(10))
    assert found[3:] == (10, 11)


@pytest.mark.parametrize("statistic", [np.mean, ss.iqm])
@pytest.mark.parametrize("shape", [(3,), (10,), (30,), (10, 3)])
def test_statistics_of_all_samples_at_once_are_those_of_each(statistic, shape):
    one_by_one = lambda scores: statistic(scores)  # noqa: E731
    assert ss.bootstrap(statistic, draws(*shape)) == ss.bootstrap(one_by_one, draws(*shape))
    lost = np.where(draws(*shape) > 1.5, NAN, draws(*shape))
    np.testing.assert_equal(ss.bootstrap(statistic, lost), ss.bootstrap(one_by_one, lost))


def test_bootstrap_draws_within_each_task():
    """Tasks far apart: their distance must not enter the interval."""
    scores = draws(10, 3)
    apart = scores + np.array([0, 1e4, 1e5])
    near, far = (ss.bootstrap(np.mean, each, resamples=500) for each in (scores, apart))
    np.testing.assert_allclose(far[1:3], np.array(near[1:3]) + 11e4 / 3)


def test_bootstrap_keeps_the_number_of_runs_that_diverged():
    scores = draws(10, 3)
    scores[4, 1] = NAN
    found = ss.bootstrap(np.nanmean, scores)
    error = np.sqrt((np.array([10, 9, 10]) * np.nanvar(scores, axis=0)).sum()) / 29
    np.testing.assert_allclose(found.half_width, 1.96 * error, rtol=0.07)
    assert found.value == pytest.approx(np.nanmean(scores))
    assert found[3:] == (29, 30)
    assert ss.bootstrap(lambda each: np.isnan(each[:, 1]).sum(), scores)[:3] == (1, 1, 1)


@pytest.mark.parametrize(
    "estimate",
    [
        lambda seed: ss.bootstrap(ss.iqm, draws(10, 2), seed=seed),
        lambda seed: ss.improvement(draws(10), draws(10, seed=1), seed=seed),
    ],
)
def test_draws_depend_on_the_seed_alone(estimate):
    assert estimate(1) == estimate(1)
    assert estimate(1)[1:3] != estimate(2)[1:3]


def test_the_level_of_a_bootstrap():
    scores = draws(10)
    wide, narrow = (ss.bootstrap(np.mean, scores, level=level).half_width for level in (0.95, 0.5))
    assert narrow / wide == pytest.approx(0.674 / 1.96, rel=0.07)


def coverage_of(interval, *, seeds=10, repeats=10_000, seed=0):
    """How often an interval over `seeds` draws of a standard normal holds the true mean, 0."""
    draws = np.random.default_rng(seed).standard_normal((repeats, seeds))
    found = [interval(scores) for scores in draws]
    return float(np.mean([estimate.low <= 0 <= estimate.high for estimate in found]))


def test_coverage_of_the_t_interval():
    assert coverage_of(ss.mean_t) == pytest.approx(0.95, abs=0.01)
    assert coverage_of(lambda scores: ss.mean_t(scores, 0.8), seeds=3) == pytest.approx(0.8, abs=0.012)
    first, again, other = (coverage_of(ss.mean_t, repeats=2000, seed=seed) for seed in (1, 1, 2))
    assert first == again != other


@pytest.mark.parametrize(
    ("statistic", "seeds", "expected"), [(np.mean, 10, 0.906), (np.mean, 5, 0.837), (ss.iqm, 5, 0.900)]
)
def test_the_bootstrap_covers_too_little(statistic, seeds, expected):
    """Beside the t interval over the same draws. With ten seeds `iqm` has 0.939, too near 0.95 for a fast test."""
    found = coverage_of(lambda scores: ss.bootstrap(statistic, scores, resamples=500), seeds=seeds, repeats=800)
    assert found < coverage_of(ss.mean_t, seeds=seeds, repeats=800) - 0.02
    assert found == pytest.approx(expected, abs=0.035)


# ---- comparisons


def test_improvement_is_the_statistic_of_mann_and_whitney():
    ours, theirs = draws(10, 3).round(-1), draws(7, 3, seed=1).round(-1)  # rounded: with ties
    expected = stats.mannwhitneyu(ours, theirs).statistic / 70
    assert ss.improvement(ours[:, 0], theirs[:, 0]).value == pytest.approx(expected[0])
    assert ss.improvement(ours, theirs).value == pytest.approx(expected.mean())


def test_the_interval_of_an_improvement():
    """Against SciPy's, both sides drawn anew."""
    ours, theirs = draws(10), draws(8, seed=1) - 20
    expected = stats.bootstrap(
        (ours, theirs), lambda x, y: np.mean(x[:, None] > y), method="percentile", vectorized=False, n_resamples=4000,
        rng=np.random.default_rng(5),
    ).confidence_interval  # fmt: skip
    np.testing.assert_allclose(ss.improvement(ours, theirs, resamples=4000)[1:3], expected, atol=0.03)


def test_a_diverged_run_loses():
    found = ss.improvement([1.0, NAN], [-5.0, NAN, -9.0, -8.0])
    assert found.value == (4 + 0.5) / 8
    assert found[3:] == (4, 6)


def test_no_interval_where_all_pairs_went_the_same_way():
    for ours, theirs, value in (
        (draws(10, 7), draws(10, 7) - 1e3, 1),
        ([1.0, 2.0], [3.0, 4.0], 0),
        ([1, 1], [1, 1], 0.5),
    ):
        found = ss.improvement(ours, theirs)
        assert found.value == value
        assert np.isnan(found[1:3]).all()
    assert ss.improvement([1.0, 2.0], [3.0, 4.0]).brief == "0"


@given(SCORES, st.data())
def test_one_improves_as_the_other_does_not(ours, data):
    theirs = data.draw(arrays(float, (data.draw(st.integers(1, 6)), ours.shape[1]), elements=st.integers(0, 2)))
    there, back = ss.improvement(ours, theirs, resamples=20), ss.improvement(theirs, ours, resamples=20)
    assert there.value + back.value == pytest.approx(1)
    if min(len(ours), len(theirs)) > 1 and not np.isnan(there.low):
        assert 0 <= there.low <= there.high <= 1


@given(SCORES, arrays(float, 5, elements=st.floats(-1, 3)).map(np.sort))
def test_a_profile_falls(scores, thresholds):
    found = ss.profile(scores, thresholds)
    assert (np.diff(found) <= 0).all()
    assert ss.profile(scores, [-1]) == np.isfinite(scores).mean()
    assert ss.profile(scores, [2.0]) == 0  # no score is above the greatest


def test_profile():
    np.testing.assert_array_equal(ss.profile([[1.0, NAN], [3.0, 2.0]], [0.0, 1.0, 2.5]), [0.75, 0.5, 0.25])


def test_steps_to_a_threshold():
    seeds = [
        [0, 0, 3, 6, 9],
        [9, 0, 0, 0, 8],  # at the threshold itself
        [0, 6, 6, 6, 0],  # lost again later
        [0, 3, 3, NAN, NAN],
        [0, 2, 2, 2, 4],
    ]
    steps, values = np.arange(10, 60, 10), np.array(seeds).T
    np.testing.assert_array_equal(ss.steps_to(steps, values, 3), [40, 30, 30, INF, INF])
    np.testing.assert_array_equal(ss.steps_to(steps, values, 3, window=1), [30, 10, 20, 20, 50])
    np.testing.assert_array_equal(ss.steps_to(steps, values, 3, window=6), np.full(5, INF))


def test_steps_to_on_a_table(table):
    """The synthetic curves rise as 1 − exp(−6 t): half of the end is reached at t = ln 2 / 6, here 11.6k steps."""
    found = ss.steps_to(*ss.curve(table, *NAMES, "moca", "0.025"), threshold=450)
    np.testing.assert_allclose(found, 14_000, atol=2000)  # the mean of three looks back by one evaluation
    found = ss.steps_to(*ss.curve(table, *NAMES, "sac", "0.025"), threshold=690)
    assert found[0] == INF  # diverged half way


# ---- small cases


@pytest.mark.parametrize("scores", [[5.0], [NAN, 5.0], [[5.0, 6.0]], [[5.0, 6.0], [NAN, 7.0]]])
def test_one_seed_has_no_interval(scores):
    asked = np.size(scores)
    seeds = np.isfinite(scores).sum()
    found = [ss.bootstrap(np.nanmean, scores)]
    if np.ndim(scores) == 1:
        found += [ss.mean_t(scores), ss.difference(scores, [1.0, 2.0]), ss.difference([1.0, 2.0], scores)]
    for estimate in found:
        assert np.isfinite(estimate.value)
        assert np.isnan([estimate.low, estimate.high, estimate.half_width]).all()
    assert found[0][3:] == (seeds, asked)
    assert np.isnan(ss.improvement(scores[:1], scores).high)


def test_none_is_left():
    lost = [NAN, NAN]
    for estimate in (ss.mean_t(lost), ss.bootstrap(ss.iqm, lost), ss.difference(lost, [1.0, 2.0])):
        assert np.isnan(estimate[:3]).all()
    assert ss.mean_t(lost)[3:] == ss.bootstrap(np.mean, lost)[3:] == (0, 2)
    assert np.isnan(ss.iqm(lost))
    assert ss.improvement(lost, [1.0, 2.0])[::3] == (0, 2)


def test_no_spread():
    assert ss.mean_t([2.0, 2.0])[:3] == ss.bootstrap(ss.iqm, [2.0, 2.0])[:3] == (2, 2, 2)
    assert ss.difference([2.0, 2.0], [1.0, 1.0])[:3] == (1, 1, 1)
    np.testing.assert_allclose(ss.difference([2e-200, 4e-200], [1.0, 1.0]).low, -1)


def test_an_infinite_score_does_not_spoil_an_interval():
    found = ss.bootstrap(ss.iqm, [INF, *draws(9)])
    assert 600 < found.low < found.value < 800
    assert found.high == INF  # one draw in fourteen has it three times


@pytest.mark.parametrize(
    ("estimate", "text"),
    [
        ((901.2, 889.0, 913.4, 9, 10), "901 ± 12 (9 of 10 seeds)"),
        ((0.81, 0.62, 0.93, 20, 20), "0.81 [0.62, 0.93] (20 of 20 seeds)"),
        ((0.1234, 0.1134, 0.1334, 3, 3), "0.123 ± 0.010 (3 of 3 seeds)"),
        ((0.25, 0.25, 0.25, 4, 4), "0.25 ± 0 (4 of 4 seeds)"),
        ((901.2, NAN, NAN, 1, 2), "901.2 (1 of 2 seeds)"),
        ((52_340, 39_000, 65_680, 2, 2), "52,000 ± 13,000 (2 of 2 seeds)"),
        ((52_340, NAN, NAN, 1, 1), "52,340 (1 of 1 seeds)"),
        ((-0.3, -16.3, 15.7, 2, 2), "0 ± 16 (2 of 2 seeds)"),
        ((-0.02, -9.98, 9.94, 2, 2), "0 ± 10 (2 of 2 seeds)"),
        ((-0.0, -0.0, -0.0, 2, 2), "0 ± 0 (2 of 2 seeds)"),
        ((NAN, NAN, NAN, 0, 2), "nan (0 of 2 seeds)"),
    ],
)
def test_an_estimate_in_words(estimate, text):
    assert str(ss.Estimate(*estimate)) == f"{ss.Estimate(*estimate)}" == text
