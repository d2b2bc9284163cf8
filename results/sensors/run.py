"""Trains `tuned` with imperfect sensors: noise, lost and late samples, no velocities.

    python results/sensors/run.py                     # every program, as processes
    python results/sensors/run.py noise moca-learned  # those of one row and one agent
    python results/sensors/run.py --merge             # one table of what the folder holds
    python results/sensors/run.py --table             # the table of docs/sensors.md from it

The noise is told or learned. Writes one table per program into the folder `parts` beside it (or
into the folder that the environment variable OUT names): a row per seed and evaluation. `--merge`
writes results.parquet from them.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

SEEDS = range(9200, 9220)  # on which nothing was chosen
CARTPOLE, PENDULUM = ("CartpoleBalance", 100_000), ("PendulumSwingup", 250_000)
# By name: task and steps, settings, and the levels of the noise, which share a program.
ROWS: dict[str, tuple[tuple[str, int], dict[str, Any], list[dict[str, Any]]]] = {
    "noise": (CARTPOLE, {}, [{"noise.sigmas": (0.05,) * 5}, {"noise.sigmas": (0.02, 0.05, 0.05, 0.1, 0.2)}]),
    "state-norm": (CARTPOLE, {"noise.kind": "state-norm"}, [{"noise.sigma": 0.2}]),
    "pendulum": (PENDULUM, {}, [{"noise.sigma": 0.05}, {"noise.sigma": 0.1}]),
    "drop": (CARTPOLE, {"sensor.drop": 0.2}, [{"noise.sigma": 0.05}]),
    "delay": (CARTPOLE, {"sensor.delay": 2}, [{"noise.sigma": 0.02}]),
    "positions": (
        CARTPOLE, {"sensor.observed": (0, 1, 2), "sensor.history": 3}, [{"noise.sigma": 0.0}, {"noise.sigma": 0.01}]
    ),
    "pendulum-positions": (PENDULUM, {"sensor.observed": (0, 1), "sensor.history": 3}, [{"noise.sigma": 0.01}]),
}  # fmt: skip
# results.parquet also has moca-smoothing, a model fitted to smoothed states, which the code had
# until 2fecfe1.
AGENTS: dict[str, dict[str, Any]] = {
    "moca-told": {"agent": "moca", "belief.noise": "known"},
    "moca-learned": {"agent": "moca"},
    "moca-diagonal": {"agent": "moca", "belief.covariance": "diagonal"},
    "moca-ce-learned": {"agent": "moca-ce"},
    "bnaf-learned": {"agent": "bnaf"},
    "sac-learned": {"agent": "sac"},
    "sac-frames": {"agent": "sac", "belief.filter": False, "sensor.history": 3},  # four frames and no belief
}
HERE = Path(__file__).parent


def folder() -> Path:
    """The folder of the tables of programs."""
    return Path(os.environ.get("OUT", HERE / "parts"))


def run(row: str, agent: str) -> Path:
    """Trains one program and writes its table."""
    import numpy as np
    import pandas as pd

    from moca import presets
    from moca.devices import use_device
    from moca.drivers import ScanTrainer
    from moca.envs.defaults import defaults

    use_device(None)
    (task, steps), settings, levels = ROWS[row]
    settings = {**settings, **AGENTS[agent], "train.steps": steps, "train.eval_every": steps // 25_000}
    told = presets.how_to_measure("tuned", task, settings)
    found = defaults(task, **told) if presets.lacks("tuned", task, settings) else {}
    configs = [presets.build("tuned", task, {**settings, **level}, found) for level in levels for _ in SEEDS]
    started = time.perf_counter()
    trainer = ScanTrainer(configs, [*SEEDS] * len(levels))
    trainer.compile()
    print(f"{row} {agent}: compiled in {time.perf_counter() - started:.0f} s", flush=True)
    started, table, path = time.perf_counter(), [], folder() / f"{row}-{agent}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    for report in trainer:
        if not np.isfinite(report.metrics["return_mean"]).any():
            continue
        kept = [name for name in report.metrics if name.startswith(("noise_level_", "innovation", "missing_share"))]
        for i, config in enumerate(configs):
            table.append(
                {"preset": "tuned", "row": row, "env": task, "agent": agent, "seed": SEEDS[i % len(SEEDS)],
                 "noise": config.noise.level or "0", "step": report.step,
                 **{name: np.float32(report.metrics[name][i]) for name in ("return_mean", "aleatoric_std", *kept)
                    if name in report.metrics}}
            )  # fmt: skip
        if report.step % (steps // 5) == 0:
            pd.DataFrame(table).to_parquet(path, compression="zstd")
            means = pd.DataFrame(table).query("step == step.max()").groupby("noise")["return_mean"].mean().round()
            seconds = time.perf_counter() - started
            print(f"{row} {agent}: step {report.step} after {seconds:.0f} s: {means.to_dict()}", flush=True)
    return path


def merge() -> Path:
    """Writes one table of all programs that have run."""
    import pandas as pd

    whole = pd.concat([pd.read_parquet(path) for path in sorted(folder().glob("*.parquet"))], ignore_index=True)
    whole.to_parquet(HERE / "results.parquet", compression="zstd")
    return HERE / "results.parquet"


TITLES = {
    ("noise", "(0.05, 0.05, 0.05, 0.05, 0.05)"): "Cartpole, σ 0.05",
    ("noise", "(0.02, 0.05, 0.05, 0.1, 0.2)"): "Cartpole, σ (0.02, 0.05, 0.05, 0.1, 0.2)",
    ("state-norm", "0.2"): "Cartpole, state-norm 0.2",
    ("drop", "0.05"): "Cartpole, σ 0.05, a fifth of the samples lost",
    ("delay", "0.02"): "Cartpole, σ 0.02, two decisions late",
    ("positions", "0"): "Cartpole, positions only, no noise",
    ("positions", "0.01"): "Cartpole, positions only, σ 0.01",
    ("pendulum", "0.05"): "Pendulum, σ 0.05",
    ("pendulum", "0.1"): "Pendulum, σ 0.1",
    ("pendulum-positions", "0.01"): "Pendulum, positions only, σ 0.01",
}
COLUMNS = {
    "moca-told": "told",
    "moca-learned": "**learned**",
    "moca-diagonal": "diagonals",
    "moca-ce-learned": "MoCA-CE",
    "bnaf-learned": "BNAF",
    "sac-learned": "SAC",
    "sac-frames": "SAC, four frames, no belief",
}


def table() -> list[str]:
    """Returns the lines of the table: means over the last tenth, with 95 % intervals over seeds."""
    import pandas as pd
    from scipy import stats

    whole = pd.read_parquet(HERE / "results.parquet")
    late = whole[whole["step"] > 0.9 * whole.groupby("env")["step"].transform("max")]
    scores = late.groupby(["row", "noise", "agent", "seed"])["return_mean"].mean()
    lines = ["| task | " + " | ".join(COLUMNS.values()) + " |", "|---" * (1 + len(COLUMNS)) + "|"]
    for key, title in TITLES.items():
        cells = [title]
        for agent in COLUMNS:
            if (*key, agent) not in scores.index.droplevel("seed"):
                cells.append("–")
                continue
            own = scores[(*key, agent)]
            half = stats.t.ppf(0.975, len(own) - 1) * own.sem()
            cells.append(f"{own.mean():.1f} ± {half:.1f}")
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def main(arguments: list[str]) -> None:
    if arguments == ["--merge"]:
        print(merge())
        return
    if arguments == ["--table"]:
        print("\n".join(table()))
        return
    if arguments and arguments[0] == "--one":
        print(run(*json.loads(arguments[1])))
        return
    rows, agents = [each for each in arguments if each in ROWS], [each for each in arguments if each in AGENTS]
    waiting = [(row, agent) for agent in agents or AGENTS for row in rows or ROWS]
    if "--list" in arguments:
        waiting = [tuple(each.split("/")) for each in arguments[arguments.index("--list") + 1 :]]
    environment, running = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}, []
    while waiting or running:
        while waiting and len(running) < 15:
            command = [sys.executable, __file__, "--one", json.dumps(waiting.pop(0))]
            running.append(subprocess.Popen(command, env=environment))
        running = [process for process in running if process.poll() is None]
        time.sleep(0.5)


if __name__ == "__main__":
    main(sys.argv[1:])
