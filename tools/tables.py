"""The tables of pages whose data are JSON files in results/ and benchmarks/."""

import statistics
from collections.abc import Callable

import numpy as np
import planning
from jsons import data, table


def blocks() -> dict[str, dict[str, str]]:
    """Returns the blocks of each page, by name."""
    return {
        "docs/planning.md": {
            "few steps": planning.few_steps(),
            "balance": planning.balance(),
            "imagined": planning.imagined(),
            "curiosity": planning.curiosity(),
            "horizons": planning.horizons(),
        },
        "docs/cliff.md": {"prediction": prediction(), "cliff": cliff()},
        "docs/mechanism.md": {
            "peak and late": peak_and_late(),
            "mended": mended(),
            "controllers": controllers(),
            "bases": bases(),
        },
        "results/README.md": {"sac-baseline": sac_baseline(), "paper-first": paper_first()},
        "docs/environments.md": {"dimension": dimension(), "suite": suite(), "mujoco": mujoco()},
        "docs/performance.md": {"h200": h200(), "first step": first_step()},
    }


def prediction() -> str:
    """Returns the table of what exact planning earns on the cliff and the hill."""
    rows = [
        f"{name} | {found['best']:.3f} | {found['believed']:.3f} | {found['earned']:.3f} | {found['margin']:.3g}"
        for name, found in data("results/cliff/prediction.json").items()
    ]
    return table(" | best | certainty equivalence believes | and gets | margin of the best", rows)


def cliff() -> str:
    """Returns the table of scores on the cliff and the hill."""
    found, hill = (data("results/cliff/summary.json")[name] for name in ("cliff", "hill"))
    rows = [f"best policy | {found['optimum']:.3f} | {found['optimum_margin']:.2g} | {hill['optimum']:.3f}"]
    for name, each in found.items():
        if isinstance(each, dict):
            agent, *samples = name.split(", ")
            rows.append(
                f"{', '.join([f'`{agent}`', *samples])} | {each['mean']:.3f} ± {each['half_width_95']:.3f} | "
                f"{each['margin']:.2g} | {hill[name]['mean']:.3f}"
            )
    score, margin = found["certainty_equivalent"], found["certainty_equivalent_margin"]
    rows.append(f"exact planner with V at the mean | {score:.3f} | {margin:.2g} | {hill['certainty_equivalent']:.3f}")
    return table(" | cliff | margin | hill", rows)


def peak_and_late() -> str:
    """Returns the table of the policies on Cartpole at their peak and late, means over seeds."""
    found = data("results/mechanism/cartpole.json")
    x, angle, speed, spin = found["linear"]["good"]["gains"]

    def row(name: str, show: Callable[[np.ndarray], str]) -> str:
        return " | ".join(show(np.mean(found["moca"][when][name], axis=0)) for when in ("peak", "late"))

    whole = "{:.0f}".format
    rows = [
        f"return | {row('return', whole)}",
        f"the same policies on exact observations | {row('clean', whole)}",
        f"return in the imagined world, flat / prior | {row('imagined', lambda each: ' / '.join(map(whole, each)))}",
        f"gains of μ̃ at upright: θ, θ̇ (linear controller: {angle}, {spin}) | "
        + row("gain", lambda gain: f"{gain[2]:.2f}, {gain[4]:.2f}"),
        f"gains of μ̃ at upright: x, ẋ (linear controller: {x}, {speed}) | "
        + row("gain", lambda gain: f"{gain[0]:.2f}, {gain[3]:.2f}"),
        "deviation of the action that the noise causes (linear controller: 0.10) | " + row("reaction", "{:.2f}".format),
        f"lost on: upright, centred, control, velocity | {row('lost', lambda each: ', '.join(map(whole, each)))}",
        f"episodes in which the pole falls | {row('fell', lambda share: f'{round(100 * share, 1):.0f} %')}",
    ]
    return table("MoCA, mean of four seeds | peak | late", rows)


MENDED = {
    "as they are": "none",
    "gains": "correct the slopes of μ̃ in x and ẋ at upright only",
    "offset": "take away what μ̃ is at upright, a constant ({:.2g} to {:.2g} in size, of either sign)",
    "cart": "let the linear controller look after the cart",
    "cart and offset": "both",
}


def mended() -> str:
    """Returns the table of late policies on Cartpole that were changed by hand."""
    found = data("results/mechanism/cartpole.json")["mended"]["moca"]
    sizes = np.abs(found["offsets"])
    rows = [
        f"{change.format(sizes.min(), sizes.max())} | {', '.join(f'{score:.0f}' for score in found[name])} | "
        f"{np.mean(found[name]):.0f}"
        for name, change in MENDED.items()
    ]
    return table("change | seeds 2000 to 2003 | mean", rows)


CONTROLLERS = (
    ("Cartpole: linear, gains found at σ 0.05", "CartpoleBalance", "linear, searched"),
    ("Cartpole: linear, Riccati gains", "CartpoleBalance", "linear, Riccati"),
    ("Cartpole: the zero action", "CartpoleBalance", "nothing"),
    ("Pendulum: pump energy, then spring and damper", "PendulumSwingup", "swing and catch"),
    ("Pendulum: the zero action", "PendulumSwingup", "nothing"),
)


def controllers() -> str:
    """Returns the table of the returns of controllers that were built by hand."""
    found = data("results/controllers/summary.json")
    noises = list(found["CartpoleBalance"]["nothing"])
    rows = [
        " | ".join([title, *(f"{found[task][name][noise]['mean']:.0f}" for noise in noises)])
        for title, task, name in CONTROLLERS
    ]
    return table(f" | σ {float(noises[0]):g} | {' | '.join(noises[1:])}", rows)


STATES = {  # that the bases were fitted on
    "plane": "the plane",
    "close": "close to upright",
    "near": "near, visited under exploration",
    "near and fallen": "near and fallen",
}


def bases() -> str:
    """Returns the table of what the printed bases can represent, each at its best ridge."""
    found, rows = data("results/representation/summary.json"), []
    for task, reference, printed, counts in (
        ("Pendulum, exact value", "exact", 128, (128, 256, 1024)),
        ("Cartpole, Riccati controller", "controller", 256, (256, 1024)),
    ):
        own = found[task.split(",")[0].lower()]
        rows.append(f"{task} | | | | | {own[reference]['return_mean']:.0f}")
        for states in dict.fromkeys(fit["states"] for fit in own["fits"]):
            for count in counts:
                fits = [fit for fit in own["fits"] if (fit["states"], fit["bases"]) == (states, count)]
                best = max(fits, key=lambda fit: (fit["return_median"], fit["ridge"]))
                million = best["updates"] / 1e6
                low, high = best["return_range"]
                first = f"{STATES[states]} | {count} (printed)" if count == printed else f" | {count:,}"
                rows.append(
                    f"{first} | {best['rmse']:.1f} | {best['largest_weight']:,} | "
                    f"{million:.{int(million < 9.95)}f}M | {best['return_median']} ({low} – {high})"
                )
    head = "task, states fitted | M | RMSE | largest weight | updates at 1e-4, at least | return"
    return table(head, rows)


def sac_baseline() -> str:
    """Returns the table of the returns of SAC at its defaults."""
    rows = []
    for task, title in (("CartpoleBalance", "Cartpole Balance"), ("PendulumSwingup", "Pendulum Swingup")):
        found = data("results/sac-baseline/summary.json")[task]
        for noise, cell in found["cells"].items():
            first = f"{title}, {found['steps'] // 1000}k" if noise == "none" else ""
            shown = f"{np.mean(cell['per_seed']):.0f} ± {cell['t95']:.0f} | {cell['noise_free_mean']:.0f}"
            rows.append(f"{first} | {noise.replace('homoscedastic', 'σ')} | {shown}")
    return table("task, steps | noise | return | without noise", rows)


def paper_first() -> str:
    """Returns the table of the returns of the preset `paper` as it is."""
    found, rows = data("results/paper-first/summary.json"), []
    for task, title in (("CartpoleBalance", "Cartpole Balance"), ("PendulumSwingup", "Pendulum Swingup")):
        for agent, name in (("moca", "MoCA"), ("bnaf", "BNAF")):
            own = found[f"{task} {agent}"]
            cells = [own[f"sigma {sigma}"] for sigma in (0.025, 0.05)]
            shown = [f"{np.mean(cell['last_per_seed']):.0f} ± {cell['last_sd']:.0f}" for cell in cells]
            rows.append(f"{title}, {own['steps'] // 1000}k, {name} | {' | '.join(shown)}")
    return table(" | σ 0.025 | σ 0.05", rows)


def dimension() -> str:
    """Returns the table of results/dimension/run.py: a row per size, a column per agent."""
    rows = data("results/dimension/summary.json")["rows"]
    names = list(dict.fromkeys(row["agent"] for row in rows))
    lines = [f"| dimensions, actions | doing nothing | {' | '.join(names)} |", "|---" * (2 + len(names)) + "|"]
    for size in dict.fromkeys(row["dimensions"] for row in rows):
        own = {row["agent"]: row for row in rows if row["dimensions"] == size}
        cells = [
            f"{', '.join(f'{x:.0f}' for x in row['return'])} ({row['ms per step']:.1f} ms)" for row in own.values()
        ]
        lines.append(f"| {size}, {size // 2} | {own[names[0]]['doing nothing']:.0f} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def suite() -> str:
    """Returns the table of results/suite/time.py: a row per task, the fastest first."""
    tasks = data("results/suite/environments.json")["tasks"]
    lines = [
        "| task | observations, actions | steps per second of one run | 100k steps | compiling |",
        "|---" * 5 + "|",
    ]
    for name, found in sorted(tasks.items(), key=lambda item: -item[1]["steps_per_second"]):
        each = found["steps_per_second"] / found["runs"]
        took = 100_000 / each / 60
        lines.append(
            f"| {name} | {found['observations']}, {found['actions']} | {each:,.0f} | "
            f"{f'{took:.0f}' if took >= 1 else '< 1'} min | {found['compile_seconds']:.0f} s |"
        )
    return "\n".join(lines) + "\n"


def mujoco() -> str:
    """Returns the table of its steps per second beside those of MJX: a row per task."""
    ours, theirs = (data(f"results/suite/{name}.json")["tasks"] for name in ("mujoco", "environments"))
    lines = ["| task | one episode | forty, together | MJX, forty on an H200, together |", "|---" * 4 + "|"]
    for name, found in sorted(ours.items(), key=lambda item: -item[1]["40"]["steps_per_second"]):
        counts = [*(found[runs]["steps_per_second"] for runs in ("1", "40")), theirs[name]["steps_per_second"]]
        lines.append(f"| {name} | {' | '.join(f'{round(count, 2 - len(str(count))):,}' for count in counts)} |")
    return "\n".join(lines) + "\n"


AGENTS = {
    "moca": "MoCA",
    "moca-ce": "MoCA-CE",
    "moca-mc-4": "MoCA-MC, 4 samples",
    "moca-mc-16": "MoCA-MC, 16 samples",
    "bnaf": "BNAF",
}


def h200() -> str:
    """Returns the table of run-steps per second of 240 runs on one H200."""
    found = data("results/benchmarks/h200-agents240.json")["agents"]
    speeds = {(each["agent"], each["width"], each["env"]): each["run_steps_per_s"] for each in found}
    columns = [(width, env) for width in (256, 64) for env in ("CartpoleBalance", "PendulumSwingup")]
    rows = [
        f"{name} | {' | '.join(brief(speeds[agent, *column]) for column in columns)}" for agent, name in AGENTS.items()
    ]
    total = {  # as many steps of each
        width: brief(statistics.harmonic_mean([speed for (_, own, _), speed in speeds.items() if own == width]))
        for width in (256, 64)
    }
    rows.append(f"all five, on both tasks, one after the other | **{total[256]}** | | **{total[64]}** | ")
    head = "run-steps/s of 240 runs | Cartpole, 256 wide | Pendulum, 256 wide | Cartpole, 64 wide | Pendulum, 64 wide"
    return table(head, rows)


def brief(speed: float) -> str:
    """A speed in thousands, to three digits."""
    return f"{speed / 1000:#.3g}".removesuffix(".") + "k"


def first_step() -> str:
    """Returns the table of seconds from the command to the first step, medians over starts."""
    starts = data("benchmarks/first_step.json")["starts"]
    rows = []
    for case in (name.removesuffix(", now") for name in starts if name.endswith("now")):
        median = lambda when, until, case=case: (  # noqa: E731
            f"{statistics.median(one[until] for one in starts[f'{case}, {when}']):.0f} s"
        )
        env, preset = case.removeprefix("gymnasium:").split(", ")
        before = median("before", "first evaluation") if f"{case}, before" in starts else ""
        rows.append(
            f"{env}, `{preset}` | {median('now', 'first step')} | {median('now', 'first evaluation')} | {before}"
        )
    head = "from the command | to the first step | to the first evaluation | before: to both"
    return table(head, rows)
