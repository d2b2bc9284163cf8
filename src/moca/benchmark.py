"""What the closed form costs beside sampling: ratios measured in one run, on whatever machine this is."""

import platform
import time
from collections.abc import Callable
from statistics import median

import jax
import jax.numpy as jnp

from moca import moments as mm

BATCH, BASES, DIMENSION = 4096, 256, 5  # beliefs, M and d: Cartpole's value function
SAMPLES = (4, 16, 64)


def run(rounds: int = 25) -> dict:
    """Seconds and ratios of the expectation E[V] over a batch, analytic against Monte Carlo.

    `backup_over_mcK` is the analytic time over that of drawing and averaging K samples per belief; `…_predrawn` gives
    the sampler its normal numbers for free. `backup_over_ce` is over the value at the mean alone.
    """
    value, beliefs, key = problem()
    keys = jax.random.split(key, BATCH)

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
        noise = jax.random.normal(key, (BATCH, count, DIMENSION))
        programs[f"mc{count}_predrawn"] = (jax.vmap(predrawn, (0, None, 0)), (beliefs, value, noise))
    seconds = time_together(programs, rounds)
    ratios = {f"backup_over_{name}": seconds["analytic"] / seconds[name] for name in seconds if name != "analytic"}
    return {
        **ratios,
        "seconds": seconds,
        "problem": {"batch": BATCH, "bases": BASES, "dimension": DIMENSION, "rounds": rounds},
        "machine": {"device": jax.devices()[0].device_kind, "platform": platform.platform(), "jax": jax.__version__},
    }


def time_together(programs: dict[str, tuple[Callable, tuple]], rounds: int) -> dict[str, float]:
    """Median seconds of each compiled program, taking turns so that a busy machine slows all alike."""
    compiled = {name: jax.jit(program).lower(*args).compile() for name, (program, args) in programs.items()}
    samples: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(rounds + 1):
        for name, program in compiled.items():
            start = time.perf_counter()
            jax.block_until_ready(program(*programs[name][1]))
            samples[name].append(time.perf_counter() - start)
    return {name: median(times[1:]) for name, times in samples.items()}


def problem() -> tuple[mm.RBF, mm.DiagonalGaussian, jax.Array]:
    """A value function, a batch of beliefs, and a key for those who sample."""
    weight_key, center_key, mean_key, variance_key, sample_key = jax.random.split(jax.random.key(0), 5)
    value = mm.RBF(
        jax.random.normal(weight_key, (BASES,)),
        jax.random.uniform(center_key, (BASES, DIMENSION), minval=-2, maxval=2),
        jnp.full(DIMENSION, 1.5),
    )
    beliefs = mm.DiagonalGaussian(
        jax.random.uniform(mean_key, (BATCH, DIMENSION), minval=-2, maxval=2),
        jax.random.uniform(variance_key, (BATCH, DIMENSION), maxval=0.1),
    )
    return value, beliefs, sample_key
