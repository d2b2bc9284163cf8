"""Compares the metrics of short runs with those of an older version, for every agent and preset.

    python tools/same_runs.py OLDER [--agents …] [--presets …] [--envs …] [--rename tuned=told]

OLDER is the folder `src` of an older version: `git worktree add OLDER_TREE COMMIT`. A change that
only moves code leaves metrics.jsonl as it is, byte for byte. Otherwise the output has the largest
relative differences within the first hundred updates and within the whole run, those of small
differences of large numbers (such as ce_gap) apart. Runs use small networks and one CPU device, and
compile with the same flags. All agents, presets and environments take an hour.
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from quick_xla import FLAGS

HERE = Path(__file__).parent.parent / "src"
AGENTS = ["moca", "moca-ce", "moca-mc", "moca-mixture", "bnaf", "naf", "sac"]
PRESETS = ["paper", "raw", "told"]
ENVS = ["CartpoleBalance", "gymnasium:Pendulum-v1"]
EPISODE, WARMUP = 100, 200
SMALL = {"sac": ["sac.width=16"]}
DIFFERENCES = ("ce_gap", "ce_bias", "ce_bias_std", "target_bias", "action_gap")  # of numbers that are nearly equal


def metrics(source: Path, env: str, agent: str, preset: str) -> bytes:
    """Returns metrics.jsonl of a run of 3,000 steps."""
    settings = [
        f"env.episode_length={EPISODE}",
        f"train.warmup={WARMUP}",
        "train.eval_episodes=2",
        "train.eval_every=10",
    ]
    settings += SMALL.get(agent, ["critic.width=16", "dynamics.width=16"])
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        command = ["train", "--env", env, "--agent", agent, "--preset", preset, "--sigma", "0.05", "--device", "cpu"]
        command += ["--steps", "3000", "--seeds", "2", "--out", str(out)]
        command += [part for setting in settings for part in ("--set", setting)]
        environment = {**os.environ, "PYTHONPATH": str(source), "XLA_FLAGS": FLAGS, "TF_CPP_MIN_LOG_LEVEL": "3"}
        run = subprocess.run([sys.executable, "-m", "moca", *command], env=environment, capture_output=True, text=True)
        if run.returncode:
            raise SystemExit(f"{source}: moca {' '.join(command)}\n{run.stderr}")
        return (out / "metrics.jsonl").read_bytes()


def compared(older: bytes, newer: bytes) -> str:
    """Returns in words how far the metrics that both versions measure differ."""
    if older == newer:
        return "the same bytes"
    rows = [[json.loads(line) for line in text.splitlines()] for text in (older, newer)]
    worst: dict[tuple[int, bool], tuple[float, str]] = {}
    for old, new in zip(*rows, strict=True):
        for name in old.keys() & new.keys():
            if not isinstance(old[name], float) or not isinstance(new[name], float) or old[name] == new[name]:
                continue
            size = max(abs(old[name]), abs(new[name]))
            for step in (WARMUP + EPISODE, 3000):
                if old["step"] <= step:
                    key, found = (step, name in DIFFERENCES), (abs(old[name] - new[name]) / size, name)
                    worst[key] = max(worst.get(key, found), found)
    if not worst:
        return f"the same numbers; without {sorted(rows[0][0].keys() - rows[1][0].keys())}"
    parts = [f"{size:.0e} ({name}) up to step {step}" for (step, _), (size, name) in sorted(worst.items())]
    return "; ".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("older", type=Path, metavar="OLDER")
    parser.add_argument("--agents", nargs="+", default=AGENTS)
    parser.add_argument("--presets", nargs="+", default=PRESETS)
    parser.add_argument("--envs", nargs="+", default=ENVS)
    parser.add_argument("--rename", default="", metavar="OLD=NEW", help="a preset with another name today")
    given = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    names = {new: old for old, new in [given.rename.split("=")]} if given.rename else {}
    for env, preset, agent in itertools.product(given.envs, given.presets, given.agents):
        older = metrics(given.older, env, agent, names.get(preset, preset))
        print(f"{env}, {preset}, {agent}: {compared(older, metrics(HERE, env, agent, preset))}", flush=True)


if __name__ == "__main__":
    main()
