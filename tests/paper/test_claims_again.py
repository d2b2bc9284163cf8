"""Every verdict of results/claims.json, computed a second time from the tables.

Written from the rules in docs/replication.md and from the names of the claims, with pandas, NumPy and SciPy alone, and
with other draws. Nothing of `moca.paper.claims` or `moca.studies.statistics` is used.
"""

import json
from collections import defaultdict
from functools import cache
from itertools import pairwise, product
from math import comb
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import integrate, stats

RESULTS = Path(__file__).parents[2] / "results"
CART, PEND = "CartpoleBalance", "PendulumSwingup"
RIVALS = {CART: ["sac", "bnaf", "moca-ce"], PEND: ["sac", "bnaf", "moca-ce", "moca-mc-4", "moca-mc-16"]}
PRINTED = {CART: ["0.025", "0.05", "state-norm 0.05"], PEND: ["0.025", "0.05"]}
NOTHING = json.loads((RESULTS / "nothing.json").read_text())
BAR = {task: value + (1000 - value) / 10 for task, value in NOTHING.items()}
DELTA = {CART: 20.0, PEND: 40.0}
SOLVED = {CART: 900.0, PEND: 600.0}
RATES_FALL = ["tuned", "told"]
ALPHA, DRAWS, MANY = 0.05, 20_000, 1_000_000


class Missing(Exception):
    """The claim cannot be measured."""


# ---- scores


def run_scores(run):
    """The scores of one run, from its rows in order of steps."""
    steps, returns = run["step"].to_numpy(), run["return_mean"].to_numpy(float)
    found = {"last": steps[-1], "steps": steps, "lost": bool((run["diverged"] > 0).any())}
    threes = np.array([returns[i : i + 3].mean() for i in range(len(returns) - 2)])
    found |= {"threes": threes, "metrics": run}
    if found["lost"]:
        return found | {"final": 0.0, "area": 0.0, "peak": 0.0, "drop": 1000.0}
    final = returns[steps > 0.9 * steps[-1]].mean()
    return found | {"final": final, "area": returns.mean(), "peak": threes.max(), "drop": threes.max() - final}


@cache
def all_runs():
    """The runs of every cell: those of all studies, by preset, task, agent and noise, then by seed."""
    cells = defaultdict(lambda: defaultdict(list))
    for study in json.loads((RESULTS / "claims.json").read_text())["studies"]:
        table = pd.read_parquet(RESULTS / study / "results.parquet").sort_values("step", kind="stable")
        for (*cell, seed), run in table.groupby(["preset", "env", "agent", "noise", "seed"]):
            if cell[1] in RIVALS:
                cells[tuple(cell)][seed].append(run_scores(run))
    best = pd.read_parquet(RESULTS / "searches" / "best.parquet").sort_values("step", kind="stable")
    for (task, agent), rows in best.groupby(["env", "agent"]):
        for seed, run in rows[rows["point"] == best_points()[task, agent]].groupby("seed"):
            cells["best", task, agent, "0.05"][seed].append(run_scores(run.assign(diverged=run["return_mean"].isna())))
    return cells


def best_points():
    """The point of the joint search at which each agent has the highest return over the last fifth, by task."""
    searched = pd.read_parquet(RESULTS / "searches" / "joint.parquet")
    found = {}
    for (task, agent), rows in searched.groupby(["env", "agent"]):
        late = rows[rows["step"] > 0.8 * rows["step"].max()]
        found[task, agent] = late.pivot_table(index="point", columns="seed", values="return_mean").mean(axis=1).idxmax()
    return found


def by_seed(cell, function):
    """A score of each seed, averaged over its repetitions; seeds without one are left out."""
    if cell not in all_runs():
        raise Missing("not run")
    values = {seed: [function(run) for run in runs] for seed, runs in all_runs()[cell].items()}
    kept = {seed: [x for x in each if not np.isnan(x)] for seed, each in values.items()}
    return pd.Series({seed: np.mean(each) for seed, each in kept.items() if each}, dtype=float).sort_index()


def metric(cell, name, share=1.0):
    def mean(run):
        rows = run["metrics"]
        if run["lost"] or name not in rows:
            return np.nan
        return rows.loc[rows["step"] > (1 - share) * run["last"], name].astype(float).mean()

    found = by_seed(cell, mean)
    if found.empty:
        raise Missing("no metric")
    return found


def first_step(run, threshold):
    passed = run["threes"] >= threshold
    return np.inf if run["lost"] or not passed.any() else run["steps"][2:][passed][0]


def score(cell, name):
    task = cell[1]
    if name in ("final", "area", "peak", "drop"):
        return by_seed(cell, lambda run: run[name])
    if name == "spread":
        final = score(cell, "final")
        return abs(final - np.median(final))
    if name == "stuck":
        return (score(cell, "final") < BAR[task]).astype(float)
    if name in ("steps", "own steps"):
        limit = threshold_of(cell, name)
        return by_seed(cell, lambda run: min(first_step(run, limit), run["last"]))
    return metric(cell, name)


def threshold_of(cell, name):
    preset, task, agent, noise = cell
    if name == "own steps":
        return 0.9 * score((preset, task, agent, "0.025"), "final").mean()
    rivals = [other for other in all_runs() if (other[0], other[1], other[3]) == (preset, task, noise)]
    return 0.9 * max(score(other, "final").mean() for other in rivals)


def has_learned(cell):
    peaks = score(cell, "peak")
    if len(peaks) < 2:
        return False
    low, _ = stats.t.interval(0.95, len(peaks) - 1, peaks.mean(), stats.sem(peaks))
    return low > BAR[cell[1]]


# ---- what each claim compares


def parts_of(row):
    """The parts of a claim: ("more", ours, theirs, sign, gates), or ("in", values, low, high, gates).

    A side is (agent, noise, score), or (agent, noise, score, earlier noise) for a change.
    """
    name, task, noise = row["claim"], row["task"], row["noise"]
    before, _, after = noise.partition(" → ")
    before = "0" if before == "none" else before

    def more(ours, theirs, what="final", sign=1):
        return ("more", (ours, noise, what), (theirs, noise, what), sign, [(ours, noise), (theirs, noise)])

    def there(agent, *noises):
        return any(all((preset, task, agent, n) in all_runs() for n in noises) for preset in presets())

    def less_loss(agent):
        gates = [("moca", before), (agent, before)]
        return ("more", ("moca", after, "final", before), (agent, after, "final", before), 1, gates)

    start, rival = next(((start, name.removeprefix(start)) for start in STARTS if name.startswith(start)), (name, ""))
    if name == "ordering":
        rivals = [agent for agent in RIVALS[task] if noise in PRINTED[task] or there(agent, noise)]
        both = {"moca-mc-4", "moca-mc-16"} <= set(rivals)
        return [more("moca", agent) for agent in rivals] + [more("moca-mc-16", "moca-mc-4")] * both
    if name == "gap-widens":
        rivals = [agent for agent in RIVALS[task] if noise == "0.025 → 0.05" or there(agent, before, after)]
        leads = [
            ("more", ("moca", after, "final"), (a, after, "final"), 1, [("moca", after), (a, after)]) for a in rivals
        ]
        return [less_loss(agent) for agent in rivals] + leads
    if name == "one-sample-targets":
        sides = ("bnaf", noise, "value_noise_variance"), ("moca-mc-16", noise, "target_variance")
        vary = ("in", ("moca-mc-16", noise, "target_variance"), 0, np.inf, [("moca-mc-16", noise)])
        return [("more", *sides, 1, [("bnaf", noise), ("moca-mc-16", noise)]), vary]
    simple = {
        "above-": lambda: more("moca", rival),
        "moca-mc-4-above-": lambda: more("moca-mc-4", rival),
        "moca-mc-16-above-": lambda: more("moca-mc-16", rival),
        "faster-than-": lambda: more("moca", rival, "steps", -1),
        "area-above-": lambda: more("moca", rival, "area"),
        "steadier-than-": lambda: more("moca", rival, "spread", -1),
        "holds-better-than-": lambda: more("moca", rival, "drop", -1),
        "samples-help": lambda: more("moca-mc-16", "moca-mc-4"),
        "samples-speed": lambda: more("moca-mc-16", "moca-mc-4", "steps", -1),
        "falls-less-than-": lambda: less_loss(rival),
        "falls-": lambda: ("more", (rival, after, "final"), (rival, before, "final"), -1, [(rival, before)]),
        "reduced-": lambda: ("more", (rival, after, "final"), (rival, before, "final"), -1, [(rival, before)]),
        "slows-": lambda: ("more", (rival, after, "own steps"), (rival, before, "own steps"), 1, [(rival, before)]),
        "ce-like-bnaf": lambda: more("moca-ce", "bnaf"),
        "mixture-alike": lambda: more("moca-mixture", "moca"),
        "variance-falls": lambda: more("moca-mc-16", "moca-mc-4", "target_variance", -1),
        "stuck-less": lambda: ("more", ("bnaf", noise, "stuck"), ("naf", noise, "stuck"), -1, [("bnaf", noise)]),
        "learns-": lambda: ("in", (rival, noise, "peak"), BAR[task], np.inf, []),
        "targets-vary-": lambda: ("in", (rival, noise, "target_variance"), 0, np.inf, [(rival, noise)]),
        "calibrated": lambda: ("in", ("moca", noise, "late coverage"), 0.633, 0.733, [("moca", noise)]),
        "calibrated-throughout": lambda: ("in", ("moca", noise, "each coverage"), 0.633, 0.733, [("moca", noise)]),
        "epistemic-settles": lambda: ("in", ("moca", noise, "epistemic change"), -0.1, 0.1, [("moca", noise)]),
    }
    return [simple[start]()]


STARTS = (
    "above-", "moca-mc-4-above-", "moca-mc-16-above-", "faster-than-", "area-above-", "steadier-than-",
    "holds-better-than-", "falls-less-than-", "falls-", "reduced-", "slows-", "learns-", "targets-vary-",
)  # fmt: skip


def presets():
    return {cell[0] for cell in all_runs()}


# ---- tests


def comparison(preset, task, ours, theirs):
    """Two arrays of scores, the smallest effect of interest, and "count", "pair" or "pool"."""

    def values(agent, noise, what, earlier=None):
        found = score((preset, task, agent, noise), what)
        return found if earlier is None else (found - score((preset, task, agent, earlier), what)).dropna()

    x, y = values(*ours), values(*theirs)
    if ours[2] in ("steps", "own steps"):
        reached = []
        for agent, noise, what in (ours, theirs):
            cell = (preset, task, agent, noise)
            limit = threshold_of(cell, what)
            reached.append(by_seed(cell, lambda run, limit=limit: float(np.isfinite(first_step(run, limit)))).mean())
        if max(reached) < 0.5:
            raise Missing("neither gets there")
        runs = all_runs()[preset, task, *ours[:2]]
        return x, y, 0.1 * next(iter(runs.values()))[0]["last"], "pair" if task == PEND else "pool"
    if ours[2] == "stuck":
        return x, y, 0.1, "count"
    if task == PEND and ours[2] == "final" and len(ours) == 3:
        solved = [(each >= SOLVED[task]).astype(float) for each in (x, y)]
        if any(0.1 <= each.mean() <= 0.9 for each in solved):
            return *solved, 0.1, "count"
    delta = DELTA[task] if ours[2] in ("final", "area", "peak", "drop", "spread") else 0.0
    return x, y, delta, "pair" if task == PEND else "pool"


def region_values(preset, task, side):
    """One array of scores for each test of a region."""
    agent, noise, what = side
    cell = (preset, task, agent, noise)
    if what == "late coverage":
        return [metric(cell, "coverage_1sigma", 0.5).to_numpy()]
    if what == "each coverage":
        metric(cell, "coverage_1sigma")
        rows = [
            run["metrics"].assign(seed=s) for s, runs in all_runs()[cell].items() for run in runs if not run["lost"]
        ]
        table = pd.concat(rows)
        table = table.pivot_table(index="step", columns="seed", values="coverage_1sigma", aggfunc="mean").astype(float)
        return [row.dropna().to_numpy() for _, row in table.iterrows()]
    if what == "epistemic change":
        metric(cell, "epistemic_std")

        def change(run):
            rows = run["metrics"]
            rows = rows[rows["step"] > 0.8 * run["last"]]
            slope = np.polyfit(rows["step"] / run["last"], rows["epistemic_std"].astype(float), 1)[0]
            return np.nan if run["lost"] else 0.2 * slope / rows["epistemic_std"].astype(float).mean()

        return [by_seed(cell, change).to_numpy()]
    return [score(cell, what).to_numpy()]


def fisher(x, y):
    """Two-sided: all tables with the same margins that are at most as likely as the one that was seen."""
    a, n, m = int(x.sum()), len(x), len(y)
    total = a + int(y.sum())
    chance = {
        i: comb(n, i) * comb(m, total - i) / comb(n + m, total) for i in range(max(0, total - m), min(n, total) + 1)
    }
    return min(1.0, sum(p for p in chance.values() if p <= chance[a] * (1 + 1e-7)))


def welch(x, y):
    """Welch's t along the first axis."""
    spread = x.var(axis=0, ddof=1) / len(x) + y.var(axis=0, ddof=1) / len(y)
    return (x.mean(axis=0) - y.mean(axis=0)) / np.sqrt(np.maximum(spread, 1e-18))


def is_exact(x, how):
    return how == "count" or (how == "pair" and len(x) <= 14)


def permutation_p(x, y, delta, how, draws, rng):
    """The p-values of no difference, and of no equivalence (NaN without a smallest effect); exact for few pairs."""
    x, y = np.asarray(x, float), np.asarray(y, float)
    if min(len(x), len(y)) < 2:
        return 1.0, 1.0 if delta else np.nan
    hits, done = np.zeros(3), 0
    shifts = (0.0, delta, -delta)
    if is_exact(x, how):
        signs = np.array(list(product((-1, 1), repeat=len(x)))).T
        means = [((x + s - y)[:, None] * signs).mean(axis=0) for s in shifts]
        slack = 1e-9 * max(1, abs(x).max(), abs(y).max())
        seen = [(x + s - y).mean() for s in shifts]
        equal = max((means[1] >= seen[1] - slack).mean(), (means[2] <= seen[2] + slack).mean())
        return (abs(means[0]) >= abs(seen[0]) - slack).mean(), equal if delta else np.nan
    while done < draws:
        size = min(20_000, draws - done)
        done += size
        if how == "pair":
            signs = rng.integers(0, 2, (len(x), size)) * 2 - 1
            drawn = [((x + s - y)[:, None] * signs).mean(axis=0) for s in shifts]
            seen = [(x + s - y).mean() for s in shifts]
        else:
            order = rng.random((len(x) + len(y), size)).argsort(axis=0)
            pools = [np.concatenate([x + s, y]) - y.mean() for s in shifts]
            drawn = [welch(pool[order[: len(x)]], pool[order[len(x) :]]) for pool in pools]
            seen = [welch(pool[: len(x)], pool[len(x) :]) for pool in pools]
        slack = [1e-9 * max(1, abs(value)) for value in seen]
        hits[0] += (abs(drawn[0]) >= abs(seen[0]) - slack[0]).sum()
        hits[1] += (drawn[1] >= seen[1] - slack[1]).sum()
        hits[2] += (drawn[2] <= seen[2] + slack[2]).sum()
    p = (1 + hits) / (1 + draws)
    return p[0], max(p[1:]) if delta else np.nan


def step_down(p, near=()):
    """Holm's method: which of these p-values are rejected. Fills `near` with (key, m p) of those close to the level."""
    ordered = sorted((key for key in p if not np.isnan(p[key])), key=lambda key: p[key])
    rejected, going = set(), True
    for number, key in enumerate(ordered):
        level = ALPHA / (len(ordered) - number)
        if isinstance(near, dict) and level / 5 < p[key] < level * 5:
            near[key] = p[key] / level
        going = going and p[key] <= level
        if going:
            rejected.add(key)
    return rejected


def regions_down(tests):
    """The verdicts on regions: t intervals, each at the level that Holm's method leaves it."""
    p = {}
    for key, (values, low, high) in tests.items():
        if len(values) < 2:
            p[key] = 1.0
            continue
        error = stats.sem(values)
        nearest = min(abs(values.mean() - end) for end in (low, high))
        p[key] = 2 * stats.t.sf(nearest / error, len(values) - 1)
    found, going = {}, True
    for number, key in enumerate(sorted(tests, key=lambda key: p[key])):
        values, low, high = tests[key]
        found[key] = "undecided"
        if not going or len(values) < 2:
            continue
        level = ALPHA / (len(tests) - number)
        left, right = stats.t.interval(1 - level, len(values) - 1, values.mean(), stats.sem(values))
        if low < left and right < high:
            found[key] = "holds"
        elif right < low or high < left:
            found[key] = "refuted"
        else:
            going = False
    return found


# ---- verdicts


def measured(rows, preset):
    """What can be tested under a preset: comparisons and regions by their sides, and the parts that cannot be."""
    compared, regions, missing = {}, {}, set()
    for row in rows:
        for part in parts_of(row):
            key = (row["task"], *part[1:3]) if part[0] == "more" else (row["task"], part[1], part[2], part[3])
            try:
                if row["claim"] == "epistemic-settles" and preset in RATES_FALL:
                    raise Missing("rates fall")
                for agent, noise in part[4]:
                    if not has_learned((preset, row["task"], agent, noise)):
                        raise Missing("not learned")
                if part[0] == "more":
                    compared[key] = compared.get(key) or comparison(preset, *key)
                elif (*key, 0) not in regions:
                    for number, values in enumerate(region_values(preset, row["task"], part[1])):
                        regions[*key, number] = (values, part[2], part[3])
            except Missing:
                missing.add((row["claim"], row["noise"], key))
    return compared, regions, missing


def p_values(compared, refine):
    """The p-values of all comparisons; with `refine`, those near the level from many more draws."""
    rng = np.random.default_rng(20_260_101)
    p, p_equal = {}, {}
    for key, (x, y, delta, how) in compared.items():
        if how == "count":
            p[key], p_equal[key] = fisher(x, y), np.nan
            continue
        if how == "pair":
            x, y = (each[x.index.intersection(y.index)] for each in (x, y))
        p[key], p_equal[key] = permutation_p(x, y, delta, how, DRAWS, rng)
    unclear = [{}, {}]
    for family, near in zip((p, p_equal), unclear, strict=True):
        step_down(family, near)
    again = {key for near in unclear for key in near if not is_exact(compared[key][0], compared[key][3])}
    for key in sorted(again, key=str) if refine else ():
        x, y, delta, how = compared[key]
        if how == "pair":
            x, y = (each[x.index.intersection(y.index)] for each in (x, y))
        p[key], p_equal[key] = permutation_p(x, y, delta, how, MANY, rng)
    return p, p_equal


def judged(rows, preset, refine):
    """The verdict on each row, and whether it hangs on a p-value that the draws leave open."""
    compared, regions, missing = measured(rows, preset)
    p, p_equal = p_values(compared, refine)
    in_region = regions_down(regions)
    near, near_equal = {}, {}
    differ, equal = step_down(p, near), step_down(p_equal, near_equal)
    open_keys = {
        key
        for family, ratios in ((p, near), (p_equal, near_equal))
        for key, ratio in ratios.items()
        if abs(ratio - 1) < 4 * ratio / np.sqrt(family[key] * (MANY if refine else DRAWS))
        and not is_exact(compared[key][0], compared[key][3])
    }
    for row in rows:
        found, open_ = [], False
        for kind, *part in parts_of(row):
            key = (row["task"], *part[:2]) if kind == "more" else (row["task"], *part[:3])
            if (row["claim"], row["noise"], key) in missing:
                found.append("not measured")
            elif kind == "in":
                found += [verdict for (*own, _), verdict in in_region.items() if tuple(own) == key]
            else:
                found.append(on_difference(key, part[2], compared[key], differ, equal))
                open_ |= key in open_keys
        if row["claim"] in ("ce-like-bnaf", "mixture-alike"):
            found = [{"equal": "holds", "holds": "refuted"}.get(each, each) for each in found]
        yield row, combined(found), open_


def on_difference(key, sign, compared, differ, equal):
    x, y, delta, how = compared
    if how == "pair":
        x, y = (each[x.index.intersection(y.index)] for each in (x, y))
    difference = x.mean() - y.mean()
    if key in differ and abs(difference) >= delta:
        return "holds" if difference * sign > 0 else "refuted"
    return "equal" if key in equal else "undecided"


def combined(found):
    if len(found) == 1 or set(found) == {"holds"}:
        return found[0]
    if {"refuted", "equal"} & set(found):
        return "refuted"
    return "not measured" if "not measured" in found else "undecided"


def rows_by_preset():
    rows = defaultdict(list)
    for row in json.loads((RESULTS / "claims.json").read_text())["verdicts"]:
        rows[row["preset"]].append(row)
    return rows


def disagreements(refine):
    """Where the two computations differ although the draws settle it, and the share of verdicts they leave open."""
    wrong, left_open = [], []
    for preset, rows in rows_by_preset().items():
        if preset:
            for row, verdict, open_ in judged(rows, preset, refine):
                left_open.append(open_)
                if verdict != row["verdict"] and not open_:
                    wrong.append((preset, row["claim"], row["task"], row["noise"], row["verdict"], verdict))
    return wrong, np.mean(left_open)


@pytest.mark.slow
def test_every_verdict_that_the_draws_settle():
    wrong, left_open = disagreements(refine=False)
    assert wrong == []
    assert left_open < 0.1


@pytest.mark.slow
def test_every_verdict():
    wrong, left_open = disagreements(refine=True)
    assert wrong == []
    assert left_open < 0.02


def test_every_difference():
    """The numbers behind single comparisons are the same too."""
    checked = 0
    for preset, rows in rows_by_preset().items():
        for row in rows:
            parts = parts_of(row) if preset else []
            if len(parts) != 1 or parts[0][0] != "more" or row["value"] is None:
                continue
            x, y, delta, how = comparison(preset, row["task"], *parts[0][1:3])
            if how == "pair":
                x, y = (each[x.index.intersection(y.index)] for each in (x, y))
            np.testing.assert_allclose(row["value"], x.mean() - y.mean(), rtol=1e-3, atol=1e-3 * (delta or 1e-6))
            np.testing.assert_allclose(row["delta"], delta, rtol=1e-3)
            checked += 1
    assert checked > 50


def test_what_hangs_on_no_preset():
    from moca.paper.toy import Toy

    found = {row["claim"]: row["verdict"] for row in rows_by_preset()[""]}
    timed = [
        row for path in RESULTS.glob("benchmarks/*.json") for row in json.loads(path.read_text()).get("agents", [])
    ]
    for name, rival, low, high in (("cost-like-ce", "moca-ce", 0.95, 1.05), ("cost-below-mc", "moca-mc-16", 0, 1)):
        times = {(r["agent"], r["width"], r["runs"], r["env"], r["compile_all_s"]): r["ms_per_step"] for r in timed}
        ratios = [
            t / times[rival, *key[1:]] for key, t in times.items() if key[0] == "moca" and (rival, *key[1:]) in times
        ]
        inside = [low <= round(ratio, 3) <= high for ratio in ratios]
        assert found[name] == ("holds" if all(inside) else "undecided" if any(inside) else "refuted")
    toy = Toy()
    for action, mean, printed in (("a", toy.mean_a, 0.057), ("b", toy.mean_b, 0.025)):

        def weighted(s, mean=mean):
            return np.exp(-(((s - toy.center) / toy.lengthscale) ** 2) / 2) * stats.norm.pdf(s, mean, toy.spread)

        value = sum(integrate.quad(weighted, *ends)[0] for ends in pairwise((-10, -1, 0, 1, 10)))
        assert found[f"figure-1-{action}"] == ("holds" if f"{value:.3f}" == f"{printed:.3f}" else "refuted")


def test_no_claim_is_left_out():
    """Every row stands for a claim that is known here, and none is there twice under a preset."""
    for preset, rows in rows_by_preset().items():
        names = [(row["claim"], row["task"], row["noise"]) for row in rows]
        assert len(names) == len(set(names))
        for row in rows:
            assert not preset or parts_of(row)
