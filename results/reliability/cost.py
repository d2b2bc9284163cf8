"""Measures what reliability costs: how long saving stalls training, and the CPU time to start.

    python results/reliability/cost.py [OLDER]

Two runs on Cartpole. OLDER is the folder `src` of an older version to compare the start with, by
turns; at filing it was that of commit 2840f89. Writes cost.json. Both versions train for one
episode with settings that both have, and load their compiled programs from a cache.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
TURNS, SAVES = 5, 20
TRAIN = ["train", "--preset", "raw", "--sigma", "0.05", "--steps", "1000", "--seeds", "2"]
STALL = """
import json, sys, time
from moca import presets
from moca.runs import saving
from moca.runs.launch import train

stalls, save = [], saving.Saver.save

def timed(saver):
    started = time.perf_counter()
    save(saver)
    stalls.append(time.perf_counter() - started)

saving.Saver.save = timed
config = presets.build("tuned", "CartpoleBalance", {"noise.sigma": 0.05, "seeds": 2, "train.steps": 100_000})
train(config, sys.argv[1], checkpoint_every=0, console=False, callback=lambda _: len(stalls) < int(sys.argv[2]))
print(json.dumps(stalls))
"""


def stalls(folder: Path) -> list[float]:
    """Returns the seconds that each checkpoint stalled a run that saves after every episode.

    The last one, after the end of training, waits until the one before it is on disk. It stalls
    nothing.
    """
    command = [sys.executable, "-c", STALL, str(folder / "run"), str(SAVES)]
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent.parent / "src")}
    return json.loads(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)[:-1]


def start(source: Path, out: Path, cache: Path) -> float:
    """Returns the CPU seconds of a command that trains for one episode."""
    environment = {**os.environ, "PYTHONPATH": str(source), "JAX_COMPILATION_CACHE_DIR": str(cache)}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "moca", *TRAIN, "--out", str(out)]
    subprocess.run(command, env=environment, capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return sum(getattr(after, name) - getattr(before, name) for name in ("ru_utime", "ru_stime"))


def main(older: list[str]) -> None:
    import numpy as np

    found: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        milliseconds = 1000 * np.array(stalls(folder))
        found["stall"] = {
            "saves": len(milliseconds), "median_ms": round(float(np.median(milliseconds)), 2),
            "largest_ms": round(float(milliseconds.max()), 2),
        }  # fmt: skip
        if older:
            sources = {"at filing": Path(older[0]).resolve(), "now": HERE.parent.parent / "src"}
            seconds: dict[str, list[float]] = {name: [] for name in sources}
            for turn in range(-1, TURNS):  # the first fills the caches
                for name, source in sources.items():
                    taken = start(source, folder / f"{name} {turn}", folder / f"{name} cache")
                    seconds[name] += [taken] * (turn >= 0)
            ratios = np.divide(seconds["now"], seconds["at filing"])
            found["start"] = {
                **{name: round(float(np.median(each)), 2) for name, each in seconds.items()},
                "ratio": round(float(np.median(ratios)), 3),
            }
    (HERE / "cost.json").write_text(json.dumps(found, indent=2) + "\n")
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main(sys.argv[1:])
