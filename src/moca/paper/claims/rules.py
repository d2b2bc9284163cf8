"""The tests and verdicts of the rules in docs/replication.md, on plain arrays.

Nothing here depends on tasks or agents. `compare` tests a list of comparisons, `correct` applies
Holm's method to the p-values of one preset, and `verdict_on` and similar functions turn corrected
p-values into verdicts.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import combinations
from math import comb
from typing import NamedTuple

import numpy as np
from scipy import stats

HOLDS, REFUTED, EQUAL, UNDECIDED, ABSENT = "holds", "refuted", "equal", "undecided", "not measured"
WORDS = (HOLDS, REFUTED, EQUAL, UNDECIDED, ABSENT)

LEVEL = 0.05
DRAWS = 20_000
MORE_DRAWS = (60_000, 1_000_000)  # for corrected p-values too close to the level for fewer draws
SEED = 0
BLOCK = 4_000  # draws held in memory at once
TIE = 1e-9  # relative; statistics this close count as equal


class Comparison(NamedTuple):
    """Two sets of scores to compare, and the smallest difference that matters.

    `ours` and `theirs` are arrays of shape (runs,), in the same order of seeds if `paired`. If
    `counted`, they hold zeros and ones, and Fisher's exact test compares the shares of ones. If
    `delta` is zero, equivalence is not tested.
    """

    ours: np.ndarray
    theirs: np.ndarray
    delta: float
    paired: bool = False
    counted: bool = False

    @property
    def difference(self) -> float:
        """Our mean minus theirs."""
        return float(self.ours.mean() - self.theirs.mean())


class Tested(NamedTuple):
    """The p-values of a comparison: for no difference, and for a difference outside ± delta.

    Either is NaN if the test does not exist.
    """

    p: float
    p_equal: float
    draws: int = 0  # number of random draws; 0 if exact


class Tails(NamedTuple):
    """The shares of draws whose statistic is as extreme as the observed one.

    That is: at least as large, at least as small, and at least as far from zero.
    """

    greater: np.ndarray
    less: np.ndarray
    both: np.ndarray
    exact: bool  # whether every possible draw was enumerated


def compare(comparisons: Sequence[Comparison], draws: int = DRAWS) -> list[Tested]:
    """Tests every comparison; those of the same shape share their draws."""
    found: list[Tested | None] = [None] * len(comparisons)
    groups: dict[tuple[bool, int, int], list[int]] = {}
    for index, each in enumerate(comparisons):
        if each.counted:
            found[index] = Tested(fisher(each.ours, each.theirs), np.nan)
        elif min(each.ours.size, each.theirs.size) < 2:
            found[index] = Tested(1.0, 1.0 if each.delta else np.nan)
        else:
            groups.setdefault((each.paired, each.ours.size, each.theirs.size), []).append(index)
    for (paired, *_), members in groups.items():
        theirs = np.stack([comparisons[i].theirs for i in members for _ in range(3)], axis=1)
        shifts = np.array([s * comparisons[i].delta for i in members for s in (0, 1, -1)])
        ours = np.stack([comparisons[i].ours for i in members for _ in range(3)], axis=1) + shifts
        tails = sign_flips(ours - theirs, draws) if paired else label_permutations(ours, theirs, draws)
        for place, index in enumerate(members):
            equal = max(tails.greater[3 * place + 1], tails.less[3 * place + 2])
            equal = float(equal) if comparisons[index].delta else np.nan
            found[index] = Tested(float(tails.both[3 * place]), equal, 0 if tails.exact else draws)
    return [each for each in found if each is not None]


def sign_flips(differences: np.ndarray, draws: int = DRAWS) -> Tails:
    """Runs the sign-flip test of paired differences, of shape (runs, tests), for each column.

    The statistic is the mean. If there are few enough patterns of signs, all are enumerated and the
    p-values are exact.
    """
    runs = len(differences)
    exact = draws > DRAWS and 2**runs <= draws
    blocks = _all_signs(runs) if exact else _random_signs(runs, draws)
    scale = np.abs(differences).max(axis=0)
    scaled = differences / np.where(scale > 0, scale, 1)
    return _tails((signs @ scaled for signs in blocks), scaled.sum(axis=0), exact)


def label_permutations(ours: np.ndarray, theirs: np.ndarray, draws: int = DRAWS) -> Tails:
    """Runs the permutation test of two independent groups (runs, tests) for each column.

    The statistic is Welch's t. Unlike the difference of means, it keeps the level also if the
    groups differ in spread and size. All permutations are enumerated under the same condition as in
    `sign_flips`.
    """
    size, total = len(ours), len(ours) + len(theirs)
    exact = draws > DRAWS and comb(total, size) <= draws
    blocks = _all_labels(size, total) if exact else _random_labels(size, total, draws)
    pooled = np.concatenate([ours, theirs])
    pooled = pooled - pooled.mean(axis=0)
    scale = np.abs(pooled).max(axis=0)
    pooled = pooled / np.where(scale > 0, scale, 1)
    own = np.zeros((1, total))
    own[0, :size] = 1
    return _tails((_welch(labels, pooled) for labels in blocks), _welch(own, pooled)[0], exact)


def fisher(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Returns the two-sided p-value of Fisher's exact test for equal shares of ones."""
    counts = [[int(side.sum()), side.size - int(side.sum())] for side in (ours, theirs)]
    return float(stats.fisher_exact(counts).pvalue)


def holm(p: np.ndarray) -> np.ndarray:
    """Applies Holm's step-down correction to the p-values that are not NaN."""
    p = np.asarray(p, dtype=float)
    corrected, (order, factors) = np.full(p.shape, np.nan), _ascending(p)
    corrected[order] = np.minimum(1, np.maximum.accumulate(factors * p[order]))
    return corrected


def _ascending(p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the places of the p-values that are not NaN, lowest first, and Holm's factors."""
    order = np.argsort(p, kind="stable")[: np.count_nonzero(~np.isnan(p))]  # NaN sorts last
    return order, order.size - np.arange(order.size)


def correct(comparisons: Sequence[Comparison]) -> list[Tested]:
    """Returns the p-values of one preset's comparisons, corrected by Holm's method.

    Differences and equivalences are corrected separately. If a corrected value is within four
    standard errors of the level, so that other draws could decide otherwise, the test is repeated
    with more draws.
    """
    tested = compare(comparisons)
    for draws in MORE_DRAWS:
        unsure = _unsure(tested)
        for index, again in zip(unsure, compare([comparisons[i] for i in unsure], draws), strict=True):
            tested[index] = again
    p, p_equal = (holm(np.array([each[kind] for each in tested])).tolist() for kind in (0, 1))
    return [Tested(a, b, each.draws) for a, b, each in zip(p, p_equal, tested, strict=True)]


def region_p(values: np.ndarray, low: float, high: float) -> float:
    """Returns 1 − the highest level at which a t interval is inside or outside a region.

    NaN values are ignored. With fewer than two values there is no decision.
    """
    values = values[np.isfinite(values)]
    if values.size < 2:
        return 1.0
    error = values.std(ddof=1) / np.sqrt(values.size)
    gap = min(abs(values.mean() - bound) for bound in (low, high))
    if error == 0:
        return float(gap == 0)
    return float(2 * stats.t.sf(gap / error, values.size - 1))


def verdict_on(difference: float, sign: int, delta: float, p: float, p_equal: float) -> str:
    """Returns the verdict on the claim that a difference has this sign."""
    if p <= LEVEL and abs(difference) >= delta:
        return HOLDS if difference * sign > 0 else REFUTED
    return EQUAL if p_equal <= LEVEL else UNDECIDED


def verdict_on_region(mean: float, low: float, high: float, p: float) -> str:
    """Returns the verdict on the claim that a mean is in a region."""
    if not p <= LEVEL:
        return UNDECIDED
    return HOLDS if low < mean < high else REFUTED


def alike(verdict: str) -> str:
    """Returns the verdict on the claim that two agents are equal, from that on their difference."""
    return {EQUAL: HOLDS, HOLDS: REFUTED, REFUTED: REFUTED}.get(verdict, verdict)


def together(verdicts: Sequence[str]) -> str:
    """Returns the verdict on a claim of several parts."""
    if len(verdicts) == 1:
        return verdicts[0]
    if all(verdict == HOLDS for verdict in verdicts):
        return HOLDS
    if any(verdict in (REFUTED, EQUAL) for verdict in verdicts):
        return REFUTED
    return ABSENT if ABSENT in verdicts else UNDECIDED


def _unsure(tested: Sequence[Tested]) -> list[int]:
    """Returns the tests whose decision at the level could change with other draws."""
    draws = np.array([each.draws for each in tested])
    found: set[int] = set()
    for kind in (0, 1):
        p = np.array([each[kind] for each in tested])
        order, factors = _ascending(p)
        error = np.sqrt(p[order] * (1 - p[order]) / np.maximum(draws[order], 1))
        near = (np.abs(factors * p[order] - LEVEL) < 4 * factors * error) & (draws[order] > 0)
        found |= set(order[near].tolist())
    return sorted(found)


def _tails(blocks: Iterator[np.ndarray], own: np.ndarray, exact: bool) -> Tails:
    """Counts how often the statistics of draws, in blocks, reach those of the data."""
    slack = TIE * np.maximum(1, np.abs(own))
    counts, total = np.zeros((3, own.size)), 0
    for drawn in blocks:
        counts[0] += (drawn >= own - slack).sum(axis=0)
        counts[1] += (drawn <= own + slack).sum(axis=0)
        counts[2] += (np.abs(drawn) >= np.abs(own) - slack).sum(axis=0)
        total += len(drawn)
    # The data themselves are one of the patterns; a random sample must include them.
    greater, less, both = counts / total if exact else (1 + counts) / (1 + total)
    return Tails(greater, less, both, exact)


def _welch(labels: np.ndarray, pooled: np.ndarray) -> np.ndarray:
    """Returns Welch's t of the groups that each row of labels selects from `pooled`."""
    size, all_squares = int(labels[0].sum()), (pooled**2).sum(axis=0)
    rest = len(pooled) - size
    sums = labels @ pooled
    others = pooled.sum(axis=0) - sums
    if size == rest:  # which square is in which group then does not matter
        spread = (all_squares - (sums * sums + others * others) / size) / ((size - 1) * size)
    else:
        squares = labels @ pooled**2
        other_squares = all_squares - squares
        spread = (squares - sums * sums / size) / ((size - 1) * size)
        spread += (other_squares - others * others / rest) / ((rest - 1) * rest)
    gap = sums / size - others / rest
    # Without spread within the groups the statistic is infinite, or zero if the groups are equal
    # too.
    gap[np.abs(gap) < TIE] = 0
    return gap / np.sqrt(np.maximum(spread, TIE**2, out=spread), out=spread)


def _random_signs(runs: int, draws: int) -> Iterator[np.ndarray]:
    rng = np.random.default_rng(SEED)
    for start in range(0, draws, BLOCK):
        yield rng.choice([-1.0, 1.0], size=(min(BLOCK, draws - start), runs))


def _all_signs(runs: int) -> Iterator[np.ndarray]:
    for start in range(0, 2**runs, BLOCK):
        patterns = np.arange(start, min(start + BLOCK, 2**runs))
        yield 2.0 * (patterns[:, None] >> np.arange(runs) & 1) - 1


def _random_labels(size: int, total: int, draws: int) -> Iterator[np.ndarray]:
    for block in _shuffled(size, total, draws):
        yield np.unpackbits(block, axis=1, count=total).astype(float)


@lru_cache(maxsize=16)  # a study and all studies together ask for the same draws
def _shuffled(size: int, total: int, draws: int) -> list[np.ndarray]:
    """Returns blocks of shuffled labels, eight labels in a byte."""
    rng, labels = np.random.default_rng(SEED), np.arange(total) < size
    rows = (min(BLOCK, draws - start) for start in range(0, draws, BLOCK))
    return [np.packbits(rng.permuted(np.tile(labels, (each, 1)), axis=1), axis=1) for each in rows]


def _all_labels(size: int, total: int) -> Iterator[np.ndarray]:
    chosen = np.array(list(combinations(range(total), size)))
    for start in range(0, len(chosen), BLOCK):
        block = chosen[start : start + BLOCK]
        labels = np.zeros((len(block), total))
        np.put_along_axis(labels, block, 1, axis=1)
        yield labels
