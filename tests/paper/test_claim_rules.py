"""The tests and verdicts of the rules: against SciPy, against definitions written out, and against simulation."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from moca.paper.claims import rules
from moca.paper.claims.rules import ABSENT, EQUAL, HOLDS, REFUTED, UNDECIDED, Comparison

RNG = np.random.default_rng


def welch_t(x, y, axis=-1):
    return stats.ttest_ind(x, y, axis=axis, equal_var=False).statistic


# ---- permutation tests


@pytest.mark.parametrize("alternative", ["greater", "less", "two-sided"])
@pytest.mark.parametrize("draws", [rules.DRAWS, 1_000_000])
def test_sign_flips_are_those_of_scipy(alternative, draws):
    each = RNG(1).normal(0.4, 1, 9)
    right = stats.permutation_test(
        (each,), np.mean, permutation_type="samples", alternative=alternative, n_resamples=np.inf
    ).pvalue
    tails = rules.sign_flips(each[:, None], draws)
    found = {"greater": tails.greater, "less": tails.less, "two-sided": tails.both}[alternative][0]
    assert tails.exact == (draws > rules.DRAWS)
    assert found == pytest.approx(right, abs=1e-12 if tails.exact else 0.012)


@pytest.mark.parametrize("alternative", ["greater", "less"])
@pytest.mark.parametrize("draws", [rules.DRAWS, 1_000_000])
def test_label_permutations_are_those_of_scipy(alternative, draws):
    """With Welch's statistic, and groups of different size and spread."""
    x, y = RNG(2).normal(0.5, 1, 5), RNG(3).normal(0, 3, 7)
    right = stats.permutation_test((x, y), welch_t, alternative=alternative, n_resamples=np.inf, vectorized=True).pvalue
    tails = rules.label_permutations(x[:, None], y[:, None], draws)
    found = {"greater": tails.greater, "less": tails.less}[alternative][0]
    assert tails.exact == (draws > rules.DRAWS)
    assert found == pytest.approx(right, abs=1e-12 if tails.exact else 0.015)


def test_two_sided_permutations_count_both_tails():
    x, y = RNG(4).normal(1, 1, 6), RNG(5).normal(0, 1, 6)
    tails = rules.label_permutations(x[:, None], y[:, None], 1_000_000)
    assert tails.both[0] == pytest.approx(2 * tails.greater[0])  # groups of one size: the law is symmetric
    swapped = rules.label_permutations(y[:, None], x[:, None], 1_000_000)
    assert (swapped.both[0], swapped.less[0]) == pytest.approx((tails.both[0], tails.greater[0]))


@pytest.mark.parametrize(("runs", "others", "spread"), [(10, 10, 1), (30, 30, 1), (24, 8, 3), (8, 24, 3)])
def test_the_level_is_kept_without_a_difference(runs, others, spread):
    """Also where groups differ in size and spread, which permuting differences of means would not do."""
    x, y = RNG(6).normal(0, 1, (runs, 1500)), RNG(7).normal(0, spread, (others, 1500))
    p = rules.label_permutations(x, y, 2000).both
    assert abs((p <= 0.05).mean() - 0.05) < (0.02 if spread == 1 else 0.03)
    if runs == others:
        p = rules.sign_flips(x - y, 2000).both
        assert abs((p <= 0.05).mean() - 0.05) < 0.02


def test_a_permutation_of_means_would_not_keep_it():
    """Why the statistic is Welch's t: the smaller group has the larger spread."""
    x, y = RNG(6).normal(0, 1, (24, 300)), RNG(7).normal(0, 3, (8, 300))
    pooled, rng, seen = np.concatenate([x, y]), RNG(8), abs(x.mean(axis=0) - y.mean(axis=0))
    hits = np.zeros(300)
    for _ in range(400):
        order = rng.permutation(32)
        hits += abs(pooled[order[:24]].mean(axis=0) - pooled[order[24:]].mean(axis=0)) >= seen
    assert ((1 + hits) / 401 <= 0.05).mean() > 0.15


def test_a_large_difference_is_found():
    x, y = RNG(9).normal(1.5, 1, (12, 500)), RNG(10).normal(0, 1, (12, 500))
    assert (rules.label_permutations(x, y, 2000).both <= 0.05).mean() > 0.9
    assert (rules.sign_flips(x - y, 2000).both <= 0.05).mean() > 0.85
    assert (rules.label_permutations(x, y, 2000).less > 0.9).mean() > 0.9
    far = rules.label_permutations(x + 99, y)
    assert set(far.both) == {1 / 20_001}  # the data count as one of the draws: no p-value is zero
    assert set(far.greater) == {1 / 20_001}
    assert set(far.less) == {1}


def test_the_same_draws_every_time():
    x, y = RNG(11).normal(0, 1, (20, 3)), RNG(12).normal(0.5, 1, (20, 3))
    for one, two in zip(rules.label_permutations(x, y), rules.label_permutations(x, y), strict=True):
        np.testing.assert_array_equal(one, two)
    assert rules.DRAWS == 20_000


def test_scores_without_any_spread():
    same = np.full(10, 7.0)
    (tested,) = rules.compare([Comparison(same, same, 2.0)])
    assert tested.p == 1
    assert tested.p_equal < 0.001
    (apart,) = rules.compare([Comparison(same + 5, same, 2.0)])
    assert apart.p < 0.001
    assert apart.p_equal == 1
    (paired,) = rules.compare([Comparison(same, same, 2.0, paired=True)])
    assert (paired.p, paired.p_equal) == (1, pytest.approx(2**-10, rel=0.5))


# ---- equivalence


@pytest.mark.parametrize("paired", [True, False])
def test_equivalence_is_two_one_sided_tests_of_shifted_scores(paired):
    x, y = RNG(13).normal(0.2, 1, 14), RNG(14).normal(0, 1, 14)
    (tested,) = rules.compare([Comparison(x, y, 1.5, paired)])
    if paired:
        sides = [rules.sign_flips((x + s - y)[:, None]) for s in (1.5, -1.5)]
    else:
        sides = [rules.label_permutations((x + s)[:, None], y[:, None]) for s in (1.5, -1.5)]
    assert tested.p_equal == max(sides[0].greater[0], sides[1].less[0])
    about = max(
        stats.ttest_rel(x + 1.5, y, alternative="greater").pvalue,
        stats.ttest_rel(x - 1.5, y, alternative="less").pvalue,
    )
    if paired:
        assert tested.p_equal == pytest.approx(about, rel=0.5)


@pytest.mark.parametrize("paired", [True, False])
def test_who_differs_by_the_smallest_effect_is_rarely_called_equal(paired):
    x, y = RNG(15).normal(1.0, 1, (16, 600)), RNG(16).normal(0, 1, (16, 600))
    found = rules.compare([Comparison(*each, 1.0, paired) for each in zip(x.T, y.T, strict=True)], 2000)
    assert np.mean([each.p_equal <= 0.05 for each in found]) < 0.08
    close = rules.compare([Comparison(*each, 2.5, paired) for each in zip(x.T, y.T, strict=True)], 2000)
    assert np.mean([each.p_equal <= 0.05 for each in close]) > 0.9


def test_without_a_smallest_effect_nothing_is_equal():
    (tested,) = rules.compare([Comparison(RNG(0).normal(size=9), RNG(1).normal(size=9), 0.0)])
    assert np.isnan(tested.p_equal)
    assert rules.verdict_on(0.0, 1, 0.0, 1.0, tested.p_equal) == UNDECIDED


def test_one_run_decides_nothing():
    one, many = np.array([1000.0]), np.zeros(10)
    for paired in (True, False):
        (tested,) = rules.compare([Comparison(one, one if paired else many, 20.0, paired)])
        assert (tested.p, tested.p_equal) == (1, 1)


# ---- counts


@given(st.integers(0, 12), st.integers(0, 9))
def test_counts_by_fishers_test(first, second):
    x, y = (np.arange(12) < first).astype(float), (np.arange(9) < second).astype(float)
    law = stats.hypergeom(21, first + second, 12)
    chances = law.pmf(np.arange(13))
    right = chances[chances <= chances[first] * (1 + 1e-7)].sum()
    assert rules.fisher(x, y) == pytest.approx(right, abs=1e-9)
    (tested,) = rules.compare([Comparison(x, y, 0.1, counted=True)])
    assert tested.p == rules.fisher(x, y)
    assert np.isnan(tested.p_equal)  # shares are not tested for equivalence


# ---- correction


def test_holm_by_hand():
    np.testing.assert_allclose(rules.holm(np.array([0.01, 0.04, 0.03, 0.005])), [0.03, 0.06, 0.06, 0.02])
    np.testing.assert_allclose(rules.holm(np.array([0.5, np.nan, 0.4, 0.9])), [1, np.nan, 1, 1])
    assert rules.holm(np.empty(0)).size == 0


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_by_definition(p):
    """Step down: the i-th smallest is rejected if it and all smaller ones are at most α / (m − i + 1)."""
    rejected = set()
    for number, index in enumerate(sorted(range(len(p)), key=lambda i: p[i])):
        if p[index] * (len(p) - number) > rules.LEVEL:
            break
        rejected.add(index)
    assert set(np.flatnonzero(rules.holm(np.array(p)) <= rules.LEVEL)) == rejected
    in_order = np.sort(p)
    expected = [min(1, max((len(p) - j) * in_order[j] for j in range(i + 1))) for i in range(len(p))]
    np.testing.assert_allclose(np.sort(rules.holm(np.array(p))), expected)


def test_differences_and_equivalences_are_corrected_separately():
    apart = Comparison(RNG(1).normal(5, 1, 12), RNG(2).normal(0, 1, 12), 0.5)
    alike = Comparison(RNG(3).normal(0, 0.01, 12), RNG(4).normal(0, 0.01, 12), 0.5)
    counted = Comparison(np.ones(12), np.zeros(12), 0.1, counted=True)
    tested, corrected = (judge([apart, alike, counted]) for judge in (rules.compare, rules.correct))
    np.testing.assert_allclose([each.p for each in corrected], rules.holm(np.array([each.p for each in tested])))
    assert corrected[1].p_equal == pytest.approx(2 * tested[1].p_equal)  # two equivalences, three differences
    assert np.isnan(corrected[2].p_equal)


def test_what_draws_leave_open_is_tested_again(monkeypatch):
    """Close to the level a test has more draws; with few runs it is then exact."""
    monkeypatch.setattr(rules, "MORE_DRAWS", (100_000,))
    rng = RNG(17)
    found = [Comparison(rng.normal(0.95, 1, 10), rng.normal(0, 1, 10), 1.0, paired=True) for _ in range(40)]
    close = [c for c in found if 0.045 < rules.compare([c], 1_000_000)[0].p < 0.055]
    assert close
    assert rules.correct(close[:1]) == rules.compare(close[:1], 1_000_000)
    far = Comparison(np.arange(10.0), np.arange(10.0) - 50, 1.0, paired=True)
    assert rules.correct([far])[0].draws == rules.DRAWS


# ---- verdicts


@pytest.mark.parametrize(
    ("difference", "sign", "p", "p_equal", "expected"),
    [
        (25, 1, 0.01, 1, HOLDS),
        (-25, -1, 0.01, 1, HOLDS),
        (-25, 1, 0.01, 1, REFUTED),
        (25, -1, 0.01, 1, REFUTED),
        (25, 1, 0.06, 1, UNDECIDED),  # large but not significant
        (15, 1, 0.01, 0.2, UNDECIDED),  # significant but small, and not shown to be
        (15, 1, 0.01, 0.04, EQUAL),  # significant and shown to be small
        (-2, 1, 0.9, 0.01, EQUAL),
        (20, 1, 0.05, 1, HOLDS),  # at the edges
        (19.9, 1, 0.001, 1, UNDECIDED),
        (0, 1, 1, np.nan, UNDECIDED),
    ],
)
def test_the_table_of_verdicts(difference, sign, p, p_equal, expected):
    assert rules.verdict_on(difference, sign, 20.0, p, p_equal) == expected


def test_alike():
    assert [rules.alike(word) for word in rules.WORDS] == [REFUTED, REFUTED, HOLDS, UNDECIDED, ABSENT]


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([HOLDS, HOLDS], HOLDS),
        ([HOLDS, REFUTED, UNDECIDED], REFUTED),
        ([HOLDS, EQUAL], REFUTED),
        ([EQUAL], EQUAL),
        ([HOLDS, ABSENT, UNDECIDED], ABSENT),
        ([ABSENT, REFUTED], REFUTED),
        ([HOLDS, UNDECIDED], UNDECIDED),
        ([ABSENT], ABSENT),
    ],
)
def test_claims_of_several_parts(parts, expected):
    assert rules.together(parts) == expected
    assert rules.together(parts[::-1]) == expected


@pytest.mark.parametrize("mean", [-1.4, -0.8, 0.0, 0.7, 1.3])
def test_a_region_is_decided_by_the_t_interval(mean):
    values = RNG(18).normal(mean, 1, 12)
    p = rules.region_p(values, -1.0, 1.0)
    for level in (0.2, 0.05, 0.01, 1e-4):
        low, high = stats.t.interval(1 - level, 11, values.mean(), stats.sem(values))
        inside, outside = low > -1 and high < 1, high < -1 or low > 1
        assert (p < level) == (inside or outside)
        if p < level:
            assert rules.verdict_on_region(values.mean(), -1, 1, p * 0.05 / level) == (HOLDS if inside else REFUTED)
    assert rules.verdict_on_region(values.mean(), -1, 1, 0.06) == UNDECIDED


def test_regions_at_their_ends():
    assert rules.region_p(np.array([0.5]), 0, 1) == 1
    assert rules.region_p(np.array([0.5, 0.5]), 0, 1) == 0
    assert rules.region_p(np.array([0.5, np.nan, 0.5]), 0.5, 1) == 1
    assert rules.region_p(RNG(0).normal(5, 1, 9), 0, np.inf) < 1e-4
