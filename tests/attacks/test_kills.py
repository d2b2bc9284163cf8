"""kill -9 at a hundred random moments: four agents on a compiled and on a host environment, and a study."""

import os
import shutil
import subprocess
import sys
import time

import numpy as np
import pytest

from tests.attacks.stub import ROOT
from tests.runs.test_resume import digest
from tests.studies.test_launch import same

AGENTS = ("moca", "moca-mc", "bnaf", "sac")
KILLS = 11  # of each of eight runs; and twelve of the study

RUN = """
import sys
import moca
from tests import probes
path, agent, env = sys.argv[1:]
low, high = {"drift": ((-2, -2), (2, 2)), "host": ((-1, -1, -8), (1, 1, 8))}[env]
small = {"critic__width": 8, "dynamics__width": 8, "dynamics__members": 2, "value__bases": 8, "train__batch": 16}
small |= {"value__low": low, "value__high": high, "value__lengthscales": (1,) * len(low), "train__eval_episodes": 1}
config = probes.tiny(agent=agent, train__steps=600, seeds=2, noise__sigma=0.1, belief__filter=True, **small)
if env == "host":
    config = moca.config.override(config, {"env.name": "gymnasium:Pendulum-v1"})
own = probes.Drift() if env == "drift" else None
moca.train(config, path, env=own, callback=moca.KeepBest(2), checkpoint_every=0.0)
"""
STUDY = """
import sys
from dataclasses import replace
from pathlib import Path
from tests.studies.test_launch import QUICK, STUDY, launch
longer = replace(STUDY.blocks[0], steps=6000)
launch.study(replace(STUDY, blocks=(longer,)), Path(sys.argv[1]), options=QUICK)
"""


def start(code, *arguments, devices=None):
    command = [sys.executable, "-c", code, *map(str, arguments)]
    environment = os.environ | ({"JAX_NUM_CPU_DEVICES": str(devices)} if devices else {})
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)


def rows(path):
    return sum(log.read_bytes().count(b"\n") for log in path.rglob("metrics.jsonl"))


def kill_at_random_moments(code, path, most, kills, random, *arguments):
    """Kills it that often, each time after some more rows and a random while; then lets it finish.

    On a busy machine it may end before it is killed; then another one is begun.
    """
    done, killed = 0, 0
    while killed < kills:
        with start(code, path, *arguments) as process:
            beyond = done + random.integers(0, max(2, (most - done) // (kills - killed)))
            while process.poll() is None and rows(path) <= beyond:
                time.sleep(0.001)
            time.sleep(random.uniform(0, 0.02))
            ended = process.poll() is not None
            process.kill()
        if ended:
            assert process.returncode == 0
            shutil.rmtree(path)
        killed += not ended
        done = 0 if ended else rows(path)
    with start(code, path, *arguments) as process:
        assert process.wait() == 0


@pytest.mark.slow
@pytest.mark.parametrize("env", ["drift", "host"])
@pytest.mark.parametrize("agent", AGENTS)
def test_a_killed_run_is_the_unbroken_one(tmp_path, agent, env):
    with start(RUN, tmp_path / "whole", agent, env) as process:
        assert process.wait() == 0
    random = np.random.default_rng([*agent.encode(), *env.encode()])
    kill_at_random_moments(RUN, tmp_path / "killed", 60, KILLS, random, agent, env)
    assert digest(tmp_path / "killed") == digest(tmp_path / "whole")
    for name in ("best.json", "best.npz"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.slow
def test_a_killed_study_is_the_unbroken_one(tmp_path):
    with start(STUDY, tmp_path / "whole") as process:
        assert process.wait() == 0
    kill_at_random_moments(STUDY, tmp_path / "killed", 200, 100 - 8 * KILLS, np.random.default_rng(0))
    same(tmp_path / "killed", tmp_path / "whole")


@pytest.mark.slow
def test_another_number_of_devices_goes_on_with_it(tmp_path):
    path = tmp_path / "run"
    with start(RUN, path, "moca", "drift", devices=2) as process:
        while process.poll() is None and rows(path) < 20:
            time.sleep(0.001)
        process.kill()
    before = (path / "metrics.jsonl").read_bytes()
    with start(RUN, path, "moca", "drift", devices=1) as process:
        assert process.wait() == 0
    after = (path / "metrics.jsonl").read_bytes()
    assert after.count(b"\n") == 60
    kept = before[: len(before) // 2]  # the last rows may be of after the last checkpoint
    assert after.startswith(kept)
