"""The tables of docs/planning.md that come from results/planning."""

import re

import numpy as np
from jsons import data, table

TASKS = {  # those of `efficient`: title, steps, the score that nine of ten seeds should reach
    "swing-0": ("Cartpole Swingup, no noise", 10_000, 800),
    "swing-05": ("Cartpole Swingup, σ 0.05", 16_000, 750),
    "balance-05": ("Cartpole Balance, σ 0.05", 6_000, 950),
    "pendulum-05": ("Pendulum Swingup, σ 0.05", 12_000, 750),
}


def finals(part: str, name: str) -> np.ndarray:
    """The scores of a cell of efficient.json, sorted: means of the last two evaluations."""
    rows = data("results/planning/efficient.json")[part][name]["rows"]
    return np.sort(np.mean([row["return_mean"] for row in rows[-2:]], axis=0))


def few_steps() -> str:
    """Returns the table of what `efficient` reaches on two sets of seeds."""
    cells, rows = data("results/planning/efficient.json"), []
    for name, (title, steps, asked) in TASKS.items():
        second, first = finals("second", name), finals("first", name)
        listed = [", ".join(f"{score:.0f}" for score in scores) for scores in (second, first)]
        met = [int((scores >= asked).sum()) for scores in (second, first)]
        last = cells["first"][name]["rows"][-1]["step"]
        before = str(met[1]) if met[1] >= 9 else f"**{met[1]}**: {listed[1]}"
        cut = f" (cut off at {last:,})" if last < steps else ""
        rows.append(
            f"{title}, {steps:,} steps | {asked} in 9 of 10 | **{met[0]}**: {listed[0]} | {second.mean():.0f} | "
            f"{before}{cut}"
        )
    return table("task | asked for | seeds 9320 – 9329 | their mean | seeds 9300 – 9309", rows)


def searched() -> dict[str, dict[str, np.ndarray]]:
    """Returns the scores of search.json by round and cell, then by variant.

    Half a point is added to those that were saved without their fractions.
    """
    return {
        f"{number}/{name}": {
            variant: np.array(found["last"], float) + 0.5 * found.get("sorted", False)
            for variant, found in cell["variants"].items()
        }
        for number, every in data("results/planning/search.json")["rounds"].items()
        for name, cell in every["cells"].items()
    }


# On Cartpole Balance: the change, and where its scores are, with semicolons between values and +
# between repetitions.
TRIED = (
    (
        "none: 20, 20, 20 and 30 seeds of the searches; 50 fresh ones",
        "4/bal:base + 5/bal-average:new + 6/bal-floats:- + 6/bal-again:-; fresh:-",
    ),
    ("full covariances of the belief; again, 40 further seeds", "6/bal-full:-; 7/choose-balance-search:-"),
    ("random actions with probability 0.05; 0", "6/bal-floats:probability 0.05; 6/bal-floats:probability 0"),
    ("curiosity 1; 0.3", "4/bal:k1; 4/bal:k.3"),
    ("curiosity 1, `plan.noise` 0.7", "6/bal-floats:curiosity 1, noise 0.7"),
    ("γ 0.97; 0.985", "6/bal-floats:gamma 0.97; 6/bal-floats:gamma 0.985"),
    (
        "the model's rate 0.003; critics' and V's rates doubled; halved",
        "6/bal-floats:lr 0.003; 6/bal-floats:lr 0.002, lr_end 0.002, vertex_lr 0.002, vertex_lr_end 0.002, "
        "lr 0.006, basis_lr 0.006; 4/bal:lr.5",
    ),
    ("noise of the actions 0.1, later 0.05", "6/bal-floats:sigma 0.1, sigma_end 0.05"),
    ("targets copied every 50 updates, twice", "4/bal-p50:- + 5/bal-p50:k3"),
    (
        "networks 128 wide; batches of 256; five members; a warm-up of 400",
        "6/bal-128:-; 4/bal-b256:-; 4/bal-m5:-; 6/bal-warm400:-",
    ),
    ("a moving average of the weights decides, 0.99; 0.998", "5/bal-average:a.99; 5/bal-average:a.998"),
    ("caution 0.25; 1", "4/bal-caution:c.25; 4/bal-caution:c1"),
    ("critics see the state in units of its range", "6/bal-standardised:-"),
    ("`moca-plan`", "6/bal-plan:-"),
    ("targets three steps ahead with three imagined steps, 30 seeds", "6/bal-h3-i3:-"),
    (
        "targets three steps ahead, 30 seeds, cut off after 5,000 steps (without, then, on the same seeds: 0.63, 943)",
        "6/bal-h3:-",
    ),
)


def balance() -> str:
    """Returns the table of the share of seeds that hold the pole, by change to `efficient`."""
    fresh = np.concatenate([finals(part, "balance-05") for part in ("first", "second", "third")])
    scores, asked = searched() | {"fresh": {"-": fresh}}, TASKS["balance-05"][2]
    rows = []
    for change, places in TRIED:
        share = re.sub(r"[^;+]+", lambda place: f"{(at(scores, place) >= asked).mean():.2f}", places)
        mean = re.sub(r"[^;+]+", lambda place: f"{at(scores, place).mean():.0f}", places)
        rows.append(" | ".join((change, *(each.replace(";", "; ").replace("+", ", ") for each in (share, mean)))))
    return table("change to `efficient` | share | mean", rows)


def at(scores: dict[str, dict[str, np.ndarray]], place: re.Match) -> np.ndarray:
    """The scores of a round, cell and variant."""
    cell, variant = place[0].strip().split(":")
    return scores[cell][variant]


IMAGINED = (  # Cartpole Swingup without noise: the change, updates per decision, where its scores are
    ("no imagination", 4, "1/u4", "base"),
    ("no imagination", 10, "1/u10", "base"),
    ("one imagined step", 4, "1/u4-i1", "base"),
    ("one imagined step", 10, "1/u10-i1", "base"),
    ("one imagined step, targets copied every 25 updates", 10, "1/u10-i1-p25", "base"),
    ("three imagined steps, targets copied every 25 updates", 10, "1/u10-i3-p25", "base"),
    (
        "none; four steps per decision, γ 0.98 per decision, targets copied every 25 (so below)",
        10, "1/r4-u10-p25", "base",
    ),
    ("one imagined step", 10, "1/r4-u10-i1-p25", "base"),
    ("three imagined steps", 10, "2/i3", "s0"),
    ("eight imagined steps", 10, "2/i8", "s0"),
    ("eight, `plan.noise` 1 (as `efficient`, which needs it under noise: {} against {})", 10, "2/i8", "n1"),
    ("five, `plan.noise` 1", 10, "2/i5", "n1"),
    ("five, `plan.noise` 1", 20, "3/swing-i5-u20", "s0"),
)  # fmt: skip


def imagined() -> str:
    """Returns the table of scores by the number of imagined steps."""
    scores, asked = searched(), TASKS["swing-0"][2]
    noisy = [f"{scores['2/i8'][variant].mean():.0f}" for variant in ("n1s05", "s05")]
    rows = []
    for change, updates, cell, variant in IMAGINED:
        own = scores[cell][variant]
        rows.append(f"{change.format(*noisy)} | {updates} | {own.mean():.0f} | {(own >= asked).sum()}")
    return table(f" | updates per decision | score | ≥ {asked}", rows)


CURIOUS = (  # Pendulum Swingup: the reward of novelty, and where its scores are
    ("κ 0.3", "3/var-half", "0.3"),
    ("κ 3", "3/var-half", "3.0"),
    ("κ 30", "3/var-half", "30.0"),
    ("κ 3, five members", "3/var-half-k5", "3.0"),
    ("square root of the sum, κ 10", "3/std-half", "10.0"),
    ("½ Σ log(1 + epistemic / aleatoric), κ 1", "3/gain-half", "1.0"),
)


def curiosity() -> str:
    """Returns the table of scores by the reward of novelty."""
    scores, asked = searched(), TASKS["pendulum-05"][2]
    without = scores["2/pendulum"]["n1s05"]
    means, met = ([f(own) for own in scores["3/hold"].values()] for f in (np.mean, lambda own: (own >= asked).sum()))
    rows = [
        f"no curiosity, four imagined steps | {without.mean():.0f} | {(without >= asked).sum()}",
        "no curiosity, random actions half or nine tenths of the time | "
        f"{min(means):.0f} – {max(means):.0f} | {min(met)} – {max(met)}",
    ]
    best = max(scores[cell][variant].mean() for _, cell, variant in CURIOUS[:3])
    for name, cell, variant in CURIOUS:
        own = scores[cell][variant]
        shown = f"{own.mean():.0f}"
        shown = f"**{shown}**" if own.mean() == best else shown
        rows.append(f"{name} | {shown} | {(own >= asked).sum()}")
    return table(f" | score | ≥ {asked}", rows)


def horizons() -> str:
    """Returns the table of returns by horizon and prediction, when all cells still ran."""
    cells = data("results/planning/horizons.json")["cells"]
    agents = {"MoCA": "moca", "CE": "moca-ce", "4 samples": "moca-mc4", "16 samples": "moca-mc16"}
    rows = []
    for title, task, evaluation in (
        ("Swingup, no noise", "0", 5),
        ("Swingup, σ 0.05", "05", 5),
        ("Pendulum, σ 0.05", "pendulum", 6),
    ):
        for horizon in (1, 3, 5):
            shown = []
            for agent in agents.values():
                returns = np.array(cells.get(f"{agent}-h{horizon}-{task}", {"returns": [0]})["returns"])
                shown.append(with_error(returns[evaluation - 1]) if len(returns) >= evaluation else "–")
            rows.append(f"{title}, H = {horizon} | {' | '.join(shown)}")
    return table(f" | {' | '.join(agents)}", rows)


def with_error(scores: np.ndarray) -> str:
    """The mean and its standard error."""
    return f"{scores.mean():.0f} ± {scores.std(ddof=1) / len(scores) ** 0.5:.0f}"
