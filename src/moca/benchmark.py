"""Benchmarks, run in one process on this machine. Ratios come first: they carry over to others.

There are two parts: `backup` (the closed form against sampling, and against the machine's peak) and
`agents` (whole training programs).
"""

import platform
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from statistics import harmonic_mean, median
from typing import Any

import jax
import jax.numpy as jnp

from moca import moments as mm
from moca import presets
from moca.drivers import ScanTrainer
from moca.studies.grid import VARIANTS

BATCH, BASES, DIMENSION = 4096, 256, 5  # beliefs, M and d, as in Cartpole's value function
SAMPLES = (4, 16, 64)
EPISODES = 6  # timed per training program; every second one has an evaluation


def machine() -> dict[str, str]:
    """Returns a description of this machine."""
    return {"device": jax.devices()[0].device_kind, "platform": platform.platform(), "jax": jax.__version__}


def on_gpu() -> bool:
    """Returns True if JAX computes on a GPU here."""
    return jax.default_backend() != "cpu"


def describe(part: str, result: Any) -> str:
    """Returns the results of one part as text."""
    if part == "backup":
        return "\n".join(f"{name:28s} {value:9.3f}" for name, value in result.items() if isinstance(value, float))
    titles = ("agent", "task", "width", "runs", "run-steps/s", "no eval.", "ms/step", "MiB/run")
    lines = ["{:13s}{:16s}{:>6s}{:>6s}{:>13s}{:>10s}{:>9s}{:>9s}  cost over".format(*titles)]
    for row in result:
        numbers = "{agent:13s}{env:16s}{width:6d}{runs:6d}{run_steps_per_s:13,.0f}{run_steps_per_s_unevaluated:10,.0f}"
        numbers += "{ms_per_step:9.3f}{mib_per_run:9.1f}  "
        lines.append(numbers.format(**row) + ", ".join(f"{a} {cost:.2f}" for a, cost in row["cost_over"].items()))
    for (width, runs), speed in together(result).items():
        lines.append(f"{'all of them':29s}{width:6d}{runs:6d}{speed:13,.0f}")
    return "\n".join(lines)


def together(rows: Sequence[dict[str, Any]]) -> dict[tuple[int, int], float]:
    """Returns the run-steps per second of all programs, run in sequence, by width and runs."""
    sizes = sorted({(row["width"], row["runs"]) for row in rows})
    own = {size: [row["run_steps_per_s"] for row in rows if (row["width"], row["runs"]) == size] for size in sizes}
    return {size: harmonic_mean(speeds) for size, speeds in own.items() if len(speeds) > 1}


def ratios(result: dict[str, Any]) -> dict[str, float]:
    """Returns the ratios of all parts by name, such as `backup_over_mc4` and `moca_over_ce`."""
    found = {name: value for name, value in result.get("backup", {}).items() if "_over_" in name}
    costs = [row["cost_over"] for row in result.get("agents", []) if row["agent"] == "moca"]
    for cost in costs[:1]:
        found |= {f"moca_over_{other.removeprefix('moca-').replace('-', '')}": value for other, value in cost.items()}
    return found


def backup(rounds: int = 25, batch: int | None = None) -> dict[str, Any]:
    """Returns seconds and ratios of E[V] over a batch, analytic against Monte Carlo.

    `backup_over_mcK` is the analytic time divided by the time to draw and average K samples per
    belief; `…_predrawn` does not count the drawing of normal numbers. `backup_over_ce` compares
    with the value at the mean. `…_share` is the fraction of the machine's measured peak that the
    analytic program reaches: in full float32 arithmetic, and in memory bandwidth if the (batch, M)
    array of bases is written once and read once.
    """
    batch = batch or BATCH * (64 if on_gpu() else 1)  # large enough that kernel launches do not dominate
    value, beliefs, key = problem(batch)
    keys = jax.random.split(key, batch)

    def monte_carlo(p: mm.DiagonalGaussian, f: mm.RBF, key: jax.Array, count: int) -> jax.Array:
        return mm.expectation(mm.Empirical(p.sample(key, count)), f)

    def predrawn(p: mm.DiagonalGaussian, f: mm.RBF, noise: jax.Array) -> jax.Array:
        return mm.expectation(mm.Empirical(p.mean + jnp.sqrt(p.variance) * noise), f)

    each = jax.vmap(mm.expectation, (0, None))
    programs: dict[str, tuple[Callable, tuple]] = {
        "analytic": (each, (beliefs, value)),
        "ce": (each, (mm.Dirac(beliefs.mean), value)),
    }
    for count in SAMPLES:
        sampled = jax.vmap(lambda p, f, key, count=count: monte_carlo(p, f, key, count), (0, None, 0))
        programs[f"mc{count}"] = (sampled, (beliefs, value, keys))
        noise = jax.random.normal(key, (batch, count, DIMENSION))
        programs[f"mc{count}_predrawn"] = (jax.vmap(predrawn, (0, None, 0)), (beliefs, value, noise))
    side, length = (8192, 2**28) if on_gpu() else (2048, 2**25)
    programs["ceiling_product"] = (lambda a, b: jnp.dot(a, b, precision="highest"), (jnp.ones((side, side)),) * 2)
    programs["ceiling_stream"] = (lambda x: 2 * x + 1, (jnp.ones(length),))
    seconds = time_together(programs, rounds)
    arithmetic, bandwidth = 2 * side**3 / seconds["ceiling_product"], 8 * length / seconds["ceiling_stream"]
    # Per belief and basis: a product over three numbers per dimension, the exponential, the
    # weighted sum.
    operations = batch * BASES * (6 * DIMENSION + 2 + 2)
    moved = 4 * batch * (2 * DIMENSION + 1 + 2 * BASES)
    names = [name for name in seconds if name != "analytic" and not name.startswith("ceiling")]
    return {
        **{f"backup_over_{name}": seconds["analytic"] / seconds[name] for name in names},
        "arithmetic_share": operations / seconds["analytic"] / arithmetic,
        "bandwidth_share": moved / seconds["analytic"] / bandwidth,
        "ceiling_gflops": arithmetic / 1e9,
        "ceiling_gbytes_per_s": bandwidth / 1e9,
        "seconds": seconds,
        "problem": {"batch": batch, "bases": BASES, "dimension": DIMENSION, "rounds": rounds},
    }


def agents(
    names: Sequence[str], widths: Iterable[int], runs: Iterable[int], envs: Iterable[str]
) -> list[dict[str, Any]]:
    """Returns run-steps per second of whole training programs, with and without evaluations.

    Agents are named as in a study, for example `moca-mc-16`. Programs are compiled in parallel,
    which takes `compile_all_s`, and then take turns, episode by episode.
    """
    cells = list(product(widths, runs, envs, names))

    def build(cell: tuple[int, int, str, str]) -> ScanTrainer:
        width, count, env, name = cell
        settings = {"noise.sigma": 0.05, "train.steps": (EPISODES + 2) * 1000, "train.eval_every": 2}
        settings |= VARIANTS.get(name, {"agent": name})
        settings |= {f"{section}.width": width for section in ("critic", "dynamics", "sac")}
        trainer = ScanTrainer([presets.build("paper", env, settings)] * count, range(count))
        trainer.compile()
        return trainer

    started = time.perf_counter()
    with ThreadPoolExecutor() as pool:
        trainers = list(pool.map(build, cells))
    memories = [trainer.memory() for trainer in trainers]  # waits for all programs
    compiling = time.perf_counter() - started
    iterators = [iter(trainer) for trainer in trainers]
    samples: list[list[float]] = [[] for _ in cells]
    for _ in range(EPISODES + 2):
        for iterator, own in zip(iterators, samples, strict=True):
            started = time.perf_counter()
            next(iterator)
            own.append(time.perf_counter() - started)
    rows: list[dict[str, Any]] = []
    for (width, count, env, name), memory, own in zip(cells, memories, samples, strict=True):
        without, evaluated = median(own[2::2]), median(own[3::2])
        rows.append({
            "agent": name, "width": width, "runs": count, "env": env,
            "run_steps_per_s": 1000 * count / evaluated, "ms_per_step": evaluated,
            "run_steps_per_s_unevaluated": 1000 * count / without,
            "compile_all_s": compiling, "mib_per_run": memory / count / 2**20,
        })  # fmt: skip
    for row in rows:
        same = {r["agent"]: r for r in rows if all(r[key] == row[key] for key in ("width", "runs", "env"))}
        row["cost_over"] = {
            other: row["ms_per_step"] / same[other]["ms_per_step"]
            for other in ("moca-ce", "moca-mc-4", "moca-mc-16", "bnaf")
            if other in same and other != row["agent"]
        }
    return rows


def time_together(programs: dict[str, tuple[Callable, tuple]], rounds: int) -> dict[str, float]:
    """Returns the median seconds of each program.

    They take turns, so that other load affects all equally.
    """
    with ThreadPoolExecutor() as pool:
        built = pool.map(lambda work: jax.jit(work[0]).lower(*work[1]).compile(), programs.values())
        compiled = dict(zip(programs, built, strict=True))
    samples: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(rounds + 1):
        for name, program in compiled.items():
            start = time.perf_counter()
            jax.block_until_ready(program(*programs[name][1]))
            samples[name].append(time.perf_counter() - start)
    return {name: median(times[1:]) for name, times in samples.items()}


def problem(batch: int = BATCH) -> tuple[mm.RBF, mm.DiagonalGaussian, jax.Array]:
    """Returns a value function, a batch of beliefs, and a key for sampling."""
    weight_key, center_key, mean_key, variance_key, sample_key = jax.random.split(jax.random.key(0), 5)
    value = mm.RBF(
        jax.random.normal(weight_key, (BASES,)),
        jax.random.uniform(center_key, (BASES, DIMENSION), minval=-2, maxval=2),
        jnp.full(DIMENSION, 1.5),
    )
    beliefs = mm.DiagonalGaussian(
        jax.random.uniform(mean_key, (batch, DIMENSION), minval=-2, maxval=2),
        jax.random.uniform(variance_key, (batch, DIMENSION), maxval=0.1),
    )
    return value, beliefs, sample_key
