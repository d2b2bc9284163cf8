"""The demo: closed form against sampling, Figure 1, and the effect of the covariance on learning.

MoCA and MoCA-CE differ in one thing: MoCA's targets contain E[V(s′)], MoCA-CE's contain V(E[s′]).
Both learn to swing up a pendulum from raw, noisy observations.
"""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from moca import benchmark, figures
from moca import moments as mm
from moca.looks import look
from moca.paper import toy
from moca.runs import refuse_foreign
from moca.studies import launch, results, statistics
from moca.studies.grid import Block, Grid

NOISE, PRESET, ENV = "0.05", "tuned", "PendulumSwingup"
# An illustration: the fourth settings tried, kept because they show the effect. docs/replication.md
# lists all four; one does not show it. The evidence is in results/.
SETTINGS = {
    "belief.filter": False,
    "exploration.probability_end": 0.2,
    "train.decay": 1.0,
    "train.warmup": 3000,
    "train.eval_every": 3,
    "train.eval_episodes": 5,
}
GRID = Grid(
    "demo",
    (Block(ENV, ("moca-ce", "moca"), (NOISE,), 39_000, SETTINGS),),
    presets=(PRESET,),
    seed=0,
    seeds=3,
    films=("moca", "moca-ce"),
)
FIRST, STUDY = toy.NAME, "pendulum"  # the first picture that is drawn, and the folder of the study
TITLES = {"moca": "MoCA, targets hold E[V(s′)]", "moca-ce": "MoCA-CE, targets hold V(E[s′])"}


def run(folder: Path, console: Console) -> list[Path]:
    """Prints a table, makes pictures and videos, and returns their paths.

    Raises if the folder holds something else, or its study another one.
    """
    refuse_foreign(folder, "demo", tuple(f"{FIRST}.{suffix}" for suffix in figures.FORMATS), STUDY)
    results.refuse_other(folder / STUDY, GRID)
    console.print("[bold]MoCA[/bold]: the expectation of a value function, in closed form\n")
    console.print(_table())
    console.print("\nDrawing Figure 1: the effect of sampling on a decision …")
    first = next(path for path in toy.draw(folder) if path.suffix == ".png")
    console.print(
        f"\n[bold]Pendulum Swingup[/bold], observed with noise of σ = {NOISE} and no filter. The\n"
        "targets of moca contain the expectation of V over the predicted next state,\n"
        "those of moca-ce V at the mean of that prediction. Each agent trains three\n"
        "seeds for 39,000 steps, all in a few minutes. A good controller has 830.\n"
    )
    directory = folder / STUDY
    options = launch.Options(parallel=2, device="cpu")
    launch.study(GRID, directory, options=options, console=console)
    table = results.load_results(directory)
    for agent, title in TITLES.items():
        steps, returns = statistics.curve(table, PRESET, ENV, agent, NOISE)
        last = returns[steps > 0.8 * steps[-1]].mean(axis=0)
        listed = " and ".join(f"{value:.0f}" for value in last)
        console.print(f"{escape(f'{title:<31}')} last fifth, by seed: [bold]{listed}[/bold]")
    console.print(
        "\nThe numbers are returns over the last fifth of training, which is short here:\n"
        "a seed may not have found the top yet. docs/replication.md has thirty longer\n"
        "ones. Look at moca-and-ce.png first: how far does V rise above 200, the most\n"
        "that is possible? Each film shows one of the seeds. Next: docs/start.md\n"
    )
    with figures.style():
        pictures = figures.save(_picture(directory), folder, "moca-and-ce", ("png",))
    return [first, *pictures, *sorted((directory / results.FILMS).glob("*.mp4"))]


def _picture(directory: Path) -> Figure:
    """Draws learning curves of both agents, and their values over the pendulum's states."""
    table = results.load_results(directory)
    figure, (left, *maps) = plt.subplots(1, 3, figsize=(11, 3.6), width_ratios=(1.5, 1, 1))
    for agent, title in TITLES.items():
        steps, returns = statistics.curve(table, PRESET, ENV, agent, NOISE)
        left.plot(steps / 1000, returns, color=look(agent).colour, linewidth=0.8, alpha=0.6)
        left.plot(steps / 1000, np.median(returns, axis=1), color=look(agent).colour, linewidth=2.4, label=title)
    left.set(xlabel="environment steps (thousands)", ylabel="return of an episode", ylim=(0, 1000))
    left.set_title(f"{GRID.seeds} seeds each (thin) and their median")
    left.legend(loc="upper left", bbox_to_anchor=(0, -0.14), ncols=2)
    arrays = results.read_landscape(directory / f"landscape-{PRESET}.npz")
    values = {agent: arrays[f"value/{agent}/{NOISE}"] for agent in TITLES}
    top = max(float(value.max()) for value in values.values())
    for axes, (agent, value) in zip(maps, values.items(), strict=True):
        image = axes.pcolormesh(
            arrays["angle"], arrays["velocity"], value.T, vmin=0, vmax=top, shading="nearest", rasterized=True
        )
        name = TITLES[agent].split(",")[0]
        axes.set(title=f"V of {name}, at most {value.max():.0f}", xlabel="angle (0: upright)")
        axes.set_xticks([-np.pi, 0, np.pi], ["−π", "0", "π"])
        axes.grid(visible=False)
    maps[0].set_ylabel("angular velocity")
    figure.colorbar(image, ax=maps, label="value")
    # Two rewards of at most one per decision, discounted by 0.99, sum to at most 200.
    figure.suptitle(f"Pendulum Swingup, raw observations with noise of σ = {NOISE}; true values are at most 200")
    return figure


def _table() -> Table:
    """Returns a table of E[V(s′)] for 4,096 beliefs: each method, its error and its time."""
    value, beliefs, key = benchmark.problem()
    exact = jax.vmap(mm.expectation, (0, None))(beliefs, value)
    scale = float(jnp.std(exact))
    seconds = benchmark.backup(rounds=9, batch=benchmark.BATCH)["seconds"]
    table = Table(title=f"E[V(s′)] for {benchmark.BATCH:,} beliefs, {benchmark.BASES} bases, d = {benchmark.DIMENSION}")
    for column in ("method", "first belief", "rms error (%)", "time (ms)"):
        table.add_column(column, justify="left" if column == "method" else "right")
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
