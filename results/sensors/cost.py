"""Measures the CPU time of an episode of Cartpole with each filter, evaluation excluded.

    python results/sensors/cost.py [OLDER]

OLDER is the folder `src` of an older version, whose `tuned` was told the noise; at filing it was
that of commit 2840f89. Writes cost.json: medians of the seconds, and of the ratios to the first
case. Each case runs in a separate process on one core, one episode at a time, by turns.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
EPISODES = 12
CASES = {  # cost.json also has smoothing, which the code had until 2fecfe1
    "told, diagonal": {"belief.noise": "known", "belief.covariance": "diagonal"},
    "learned, diagonal": {"belief.noise": "learned", "belief.covariance": "diagonal"},
    "learned, full": {"belief.noise": "learned", "belief.covariance": "full"},
}
CHILD = """
import json, os, sys, time
os.sched_setaffinity(0, {0})
from moca import presets
from moca.drivers import ScanTrainer
settings = {"train.steps": 60_000, "noise.sigma": 0.05, "train.eval_every": 60, **json.loads(sys.argv[1])}
episodes = iter(ScanTrainer([presets.build("tuned", "CartpoleBalance", settings)], [0]))
for _ in range(3):
    next(episodes)
print("ready", flush=True)
for _ in sys.stdin:
    started = time.process_time()
    next(episodes)
    print(time.process_time() - started, flush=True)
"""


def start(source: Path, settings: dict[str, str]) -> subprocess.Popen:
    """Returns a process that has trained for three episodes, and trains one for each line."""
    command = [sys.executable, "-c", CHILD, json.dumps(settings)]
    environment = {**os.environ, "PYTHONPATH": str(source)}
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=HERE
    )
    if process.stdout.readline().strip() != "ready":
        raise SystemExit(f"{source} {settings} failed")
    return process


def main(older: list[str]) -> None:
    import numpy as np

    cases = {"at filing": (Path(older[0]).resolve(), {})} if older else {}
    cases |= {name: (HERE.parent.parent / "src", settings) for name, settings in CASES.items()}
    processes = {name: start(*case) for name, case in cases.items()}
    seconds: dict[str, list[float]] = {name: [] for name in processes}
    for _ in range(EPISODES):
        for name, process in processes.items():
            print(file=process.stdin, flush=True)
            seconds[name].append(float(process.stdout.readline()))
    first = np.array(next(iter(seconds.values())))
    found = {
        name: {"seconds": round(float(np.median(each)), 3), "ratio": round(float(np.median(each / first)), 3)}
        for name, each in seconds.items()
    }
    (HERE / "cost.json").write_text(json.dumps(found, indent=2) + "\n")
    print(json.dumps(found, indent=2))
    for process in processes.values():
        process.terminate()


if __name__ == "__main__":
    main(sys.argv[1:])
