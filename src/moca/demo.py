"""The first look: closed form against sampling, as a table and as Figure 1."""

from pathlib import Path

import jax
import jax.numpy as jnp
from rich.console import Console
from rich.table import Table

from moca import benchmark
from moca import moments as mm
from moca.studies import toy


def run(folder: Path, console: Console) -> Path:
    """The picture it drew, after the table it printed."""
    console.print("[bold]MoCA[/bold]: the expectation of a value function, in closed form\n")
    console.print(_table())
    console.print("\nDrawing Figure 1: what sampling does to a decision …")
    return next(path for path in toy.draw(folder) if path.suffix == ".png")


def _table() -> Table:
    """E[V(s′)] for 4,096 beliefs over five dimensions and 256 bases: each way, its error and its time."""
    value, beliefs, key = benchmark.problem()
    exact = jax.vmap(mm.expectation, (0, None))(beliefs, value)
    scale = float(jnp.std(exact))
    seconds = benchmark.backup(rounds=9, batch=benchmark.BATCH)["seconds"]
    table = Table(title=f"E[V(s′)] for {benchmark.BATCH:,} beliefs, {benchmark.BASES} bases, d = {benchmark.DIMENSION}")
    for column in ("way", "first belief", "rms error (%)", "time (ms)"):
        table.add_column(column, justify="left" if column == "way" else "right")
    rows = {"closed form": ("analytic", exact), "value at the mean": ("ce", jax.vmap(value)(beliefs.mean))}
    for count in benchmark.SAMPLES:
        keys = jax.random.split(key, benchmark.BATCH)
        sampled = jax.vmap(lambda p, k, n=count: mm.expectation(mm.Empirical(p.sample(k, n)), value))(beliefs, keys)
        rows[f"Monte Carlo, {count} samples"] = (f"mc{count}", sampled)
    for name, (timing, values) in rows.items():
        error = float(jnp.sqrt(jnp.mean((values - exact) ** 2))) / scale
        shown = "exact" if timing == "analytic" else f"{100 * error:.1f}"
        table.add_row(name, f"{float(values[0]):.4f}", shown, f"{1e3 * seconds[timing]:.2f}")
    return table
