"""The first look: closed form against sampling as a table and as Figure 1, then MoCA learning to balance a pole."""

import time
from pathlib import Path

import jax
import jax.numpy as jnp
from rich.console import Console
from rich.table import Table

from moca import benchmark, presets
from moca import moments as mm
from moca.runs.launch import train
from moca.studies import toy

STEPS, SIGMA = 40_000, 0.05


def run(folder: Path, console: Console) -> list[Path]:
    """The pictures and the film it made, after the table it printed."""
    console.print("[bold]MoCA[/bold]: the expectation of a value function, in closed form\n")
    console.print(_table())
    console.print("\nDrawing Figure 1: what sampling does to a decision …")
    picture = next(path for path in toy.draw(folder) if path.suffix == ".png")
    console.print(f"\n[bold]MoCA on Cartpole Balance[/bold], observed with noise of σ = {SIGMA:g}; 1000 is perfect")
    return [picture, *_balance(folder, console)]


def _balance(folder: Path, console: Console) -> list[Path]:
    """Trains two seeds, one per core; their learning curve and the film of the better one."""
    settings = {"noise.sigma": SIGMA, "train.steps": STEPS, "train.eval_every": 2, "seeds": 2}
    config = presets.build("tuned", "CartpoleBalance", settings)
    names = (f"cartpole{suffix}" for suffix in ["", *(f"-{n}" for n in range(2, 1000))])
    out = next(path for path in (folder / name for name in names) if not path.exists())
    started = time.perf_counter()
    trained = train(config, out, console=console)
    console.print(f"trained in {time.perf_counter() - started:.0f} s, compilation included; filming …")
    returns = [row["return_mean"] for row in trained.evaluate(episodes=10, seed=1)]
    best = max(range(len(returns)), key=returns.__getitem__)
    film, how, _ = trained.render(best)
    shown = " and ".join(f"{value:.0f}" for value in returns)
    console.print(f"return over ten fresh episodes, by seed: [bold]{shown}[/bold]; film {how}")
    return [out / "figures" / "learning_curve.png", film]


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
