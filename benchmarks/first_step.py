"""Times how long `moca train` takes from the command to the first step and to the first evaluation.

    python benchmarks/first_step.py [OLDER] [--rounds 3]

OLDER is the folder `src` of an older version, which takes turns with this one. Every start has an
empty cache and a process of its own, which ends after its first episode. Writes first_step.json
beside this file; `load` is the load average before a start: on two cores, much more than 1 means
that something else was running.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).parent
CASES = [
    ("CartpoleBalance", "tuned"), ("CartpoleBalance", "told"), ("PendulumSwingup", "tuned"),
    ("PendulumSwingup", "told"), ("gymnasium:Pendulum-v1", "tuned"),
]  # fmt: skip


def start(source: Path, env: str, preset: str) -> dict[str, float]:
    """Returns the seconds from the command to the first step and to the first evaluation."""
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        out, environment = (
            Path(folder) / "run",
            {**os.environ, "PYTHONPATH": str(source), "XDG_CACHE_HOME": folder, "PYTHONUNBUFFERED": "1"},
        )
        command = ["train", "--env", env, "--preset", preset, "--sigma", "0.05", "--steps", "4000", "--out", str(out)]
        begun, found = time.perf_counter(), {"load": load}
        with subprocess.Popen(
            [sys.executable, "-m", "moca", *command], env=environment, stdout=subprocess.PIPE, text=True
        ) as process:
            for line in process.stdout:
                if "; training" in line:
                    found["first step"] = time.perf_counter() - begun
                    break
            rows = out / "metrics.jsonl"
            while process.poll() is None and not (rows.exists() and rows.stat().st_size):
                time.sleep(0.02)
            found["first evaluation"] = time.perf_counter() - begun
            process.kill()
    return {name: round(value, 1) for name, value in found.items()}


def main(older: Path | None, rounds: int) -> None:
    versions = {"now": HERE.parent / "src"} | ({"before": older} if older else {})
    found: dict[str, list] = {}
    for number in range(rounds):
        for env, preset in CASES:
            for name, source in versions.items():
                key = f"{env}, {preset}, {name}"
                found.setdefault(key, []).append(start(source, env, preset))
                print(f"round {number + 1}, {key}: {found[key][-1]}", flush=True)
    for key, each in found.items():
        medians = {name: statistics.median(one[name] for one in each) for name in ("first step", "first evaluation")}
        print(key, medians)
    about = {"cores": os.cpu_count(), "python": sys.version.split()[0], "jax": version("jax"), "starts": found}
    (HERE / "first_step.json").write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("older", nargs="?", type=Path, metavar="OLDER")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    main(given.older, given.rounds)
