"""A run that was stopped, killed, starved or poisoned is the run it would have been, or says what happened."""

import dataclasses
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

import moca
from moca.config import ConfigError
from moca.drivers import ScanTrainer
from moca.envs.environment import Step
from moca.runs import checkpoint
from moca.runs.interrupts import InterruptedRun
from moca.runs.launch import resume
from tests import probes

pytestmark = pytest.mark.usefixtures("programs_made_once")

EPISODES = 6
TOO_FAST = 1e15  # a learning rate with which every run diverges
SETTINGS = {"train__steps": 20 * EPISODES, "seeds": 2, "noise__sigma": 0.1, "belief__filter": True}


def config(**settings):
    small = {"dynamics__width": 16, "dynamics__members": 2}
    return probes.tiny(**(SETTINGS | small | settings))


class Slow(probes.Drift):
    """Takes a while, so that there is time to interrupt it; by arithmetic, for a callback keeps JAX from caching."""

    def step(self, state, action):
        busy = jax.lax.fori_loop(0, 25_000, lambda _, x: 3.9 * x * (1 - x), 0.25 + 0 * state)
        return super().step(jnp.where(busy > 1, jnp.nan, state), action)


def digest(path):
    """Of everything that must not depend on how often a run was interrupted."""
    found, complaints = checkpoint.newest(path / "checkpoints")
    assert not complaints
    parts = [array.tobytes() for array in found.arrays] + [(path / "metrics.jsonl").read_bytes()]
    with np.load(path / "policy.npz") as policy:
        parts += [policy[name].tobytes() for name in policy.files]
    return hashlib.sha256(b"".join(parts)).hexdigest()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The run that nothing happened to."""
    return moca.train(config(), tmp_path_factory.mktemp("runs") / "whole", env=Slow()).path


def slow(*arguments):
    return pytest.param(*arguments, marks=pytest.mark.slow)


@pytest.mark.parametrize("number", [signal.SIGTERM, slow(signal.SIGINT), slow(signal.SIGUSR1)])
def test_a_signal_ends_the_episode_saves_and_can_be_gone_on_from(whole, tmp_path, number):
    path = tmp_path / "run"

    def interrupt():
        while not (path / "metrics.jsonl").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), number)

    before = signal.getsignal(number)
    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(InterruptedRun, match=f"stopped by {number.name} at step .* moca train --resume"):
        moca.train(config(), path, env=Slow())
    thread.join()
    assert signal.getsignal(number) is before
    status = json.loads((path / "status.json").read_text())
    assert status["state"] == "interrupted"
    assert 0 < status["step"] < 20 * EPISODES
    # The same call again goes on; so does `resume`.
    moca.train(config(), path, env=Slow()) if number == signal.SIGTERM else resume(path, env=Slow())
    assert digest(path) == digest(whole)
    assert json.loads((path / "status.json").read_text()) == {"state": "finished", "step": 20 * EPISODES}


CODE = """
import sys
sys.path.insert(0, {root!r})
import moca
from tests.runs.test_resume import Slow, config
from tests.sharing import programs_made_once
with programs_made_once():
    for path in {paths!r}:
        moca.train(config(), path, env=Slow(), checkpoint_every=0.0)
"""


def start(*paths):
    """A process that trains in these directories, one after another."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
    code = CODE.format(root=root, paths=[str(path) for path in paths])
    return subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)


def wait_for_rows(path, rows, process):
    while process.poll() is None:
        if path.exists() and path.read_text().count("\n") >= rows:
            return
        time.sleep(0.005)


def test_a_killed_run_goes_on_bit_for_bit(tmp_path):
    """In another process, and it is the uninterrupted run of the first, which makes it two processes with one hash.

    Not against a run of this one: JAX may have started here with another number of devices.
    """
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    with start(whole, killed) as process:
        wait_for_rows(killed / "metrics.jsonl", 6, process)
        assert process.poll() is None
        process.kill()
    with (killed / "metrics.jsonl").open("a") as file:
        file.write('{"step": 100, "half a row')  # what a kill may leave
    with start(killed) as process:
        assert process.wait() == 0
    assert digest(killed) == digest(whole)


PLAYGROUND = [
    "--set", "env.episode_length=100", "--set", "train.warmup=100", "--set", "train.eval_episodes=1",
    "--set", "critic.width=16", "--set", "dynamics.width=16", "--set", "value.bases=16", "--set", "sac.width=16",
    "--sigma", "0.05", "--steps", "1000", "--seeds", "2", "--checkpoint-every", "0", "--device", "cpu",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("env", ["CartpoleBalance", "PendulumSwingup"])
@pytest.mark.parametrize("agent", ["moca", "moca-mc", "bnaf", "sac"])
def test_kills_on_the_real_tasks(tmp_path, env, agent):
    """Killed after a random number of episodes, again and again, until it is done: 3 kills in each of 8 cases."""
    random = np.random.default_rng([*env.encode(), *agent.encode()])
    command = [sys.executable, "-m", "moca", "train", "--env", env, "--agent", agent, *PLAYGROUND, "--out"]
    subprocess.run([*command, str(tmp_path / "whole")], check=True, capture_output=True)
    path, kills = tmp_path / "killed", 0
    for rows in np.sort(random.integers(2, 19, size=3)):
        with subprocess.Popen([*command, str(path)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            wait_for_rows(path / "metrics.jsonl", rows, process)
            time.sleep(random.uniform(0, 0.05))
            kills += process.poll() is None
            process.kill()
    subprocess.run([*command, str(path)], check=True, capture_output=True)
    assert kills == 3
    assert digest(path) == digest(tmp_path / "whole")


@pytest.mark.slow  # tests/attacks has the same with a program that needs no compiling
def test_two_processes_do_not_train_in_one_directory(tmp_path):
    path = tmp_path / "run"
    with start(path) as process:
        wait_for_rows(path / "metrics.jsonl", 1, process)
        with pytest.raises(ConfigError, match=f"is in use: process {process.pid}"):
            moca.train(config(), path, env=Slow())
        process.kill()


RELEASES = sorted((Path(__file__).parents[1] / "fixtures").glob("release-*"))  # one more with each


@pytest.mark.parametrize("release", RELEASES, ids=lambda path: path.name)
def test_an_unfinished_directory_of_an_earlier_release_goes_on(tmp_path, release):
    """MoCA on two dimensions, stopped after two of six episodes."""
    path = tmp_path / "run"
    shutil.copytree(release, path)
    before = (path / "metrics.jsonl").read_text()
    run = resume(path, env=probes.Drift())
    assert (path / "metrics.jsonl").read_text().startswith(before)
    assert [row["step"] for row in run.rows] == [20 * (1 + number // 2) for number in range(12)]
    assert json.loads((path / "status.json").read_text()) == {"state": "finished", "step": 120}
    assert np.isfinite(run.predict([0.1, 0.2])).all()


def test_another_run_is_not_gone_on_with(whole):
    with pytest.raises(ConfigError, match="already has a run, and it is finished"):
        moca.train(config(), whole, env=Slow())
    with pytest.raises(ConfigError, match=r"already has a run, with other settings \(train.gamma\)"):
        moca.train(config(train__gamma=0.5), whole, env=Slow())
    with pytest.raises(ConfigError, match="already has a run, with other seeds"):
        moca.train(config(), whole, env=Slow(), varied=[{"train.gamma": 0.9}])


class Poisoned(probes.Drift):
    """Once its first dimension passes `limit`, the reward or the observation is not a number."""

    what: str = eqx.field(static=True, default="reward")
    limit: float = eqx.field(static=True, default=9.0)

    def step(self, state, action):
        state, (observation, reward, ended) = super().step(state, action)
        bad = jnp.where(state[0] > self.limit, jnp.nan, 0.0)
        if self.what == "reward":
            return state, Step(observation, reward + bad, ended)
        return state, Step(observation + bad, reward, ended)


def ten(env, **settings):
    """Ten runs to the end; the fourth has other settings."""
    plain = {"seeds": 1, "belief__filter": False}
    configs = [config(**plain)] * 10
    configs[3] = config(**(plain | settings))
    trainer = ScanTrainer(configs, range(10), env)
    return trainer, [report.metrics["diverged"] for report in trainer]


@pytest.fixture(scope="module")
def clean():
    return ten(Poisoned())[0]


def others_are_untouched(trainer, clean, bad):
    rest = [run for run in range(10) if run != bad]
    for a, b in zip(jax.tree.leaves(trainer.state), jax.tree.leaves(clean.state), strict=True):
        a, b = (jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x for x in (a, b))
        np.testing.assert_array_equal(np.asarray(a)[rest], np.asarray(b)[rest])


@pytest.mark.parametrize("run", [3, slow(9)])
def test_a_gradient_that_is_no_number_is_one_runs_own_matter(clean, run):
    """A discount that is no number makes every target of that run, and every gradient, one that is none."""
    trainer = ScanTrainer([config(seeds=1, belief__filter=False)] * 10, range(10), Poisoned())
    gamma = trainer.configs.train.gamma.at[run].set(jnp.nan)
    trainer.configs = dataclasses.replace(
        trainer.configs,
        train=dataclasses.replace(
            trainer.configs.train, gamma=jax.device_put(gamma, trainer.configs.train.gamma.sharding)
        ),
    )
    diverged = [report.metrics["diverged"] for report in trainer]
    assert diverged[0].tolist() == [2.0 * (number == run) for number in range(10)]
    others_are_untouched(trainer, clean, run)


@pytest.mark.parametrize("what", ["reward", slow("observation")])
def test_a_poisoned_run_leaves_the_others_alone(clean, what):
    reached = np.asarray(clean.state.replay)[:, :, 3 + 1].max(axis=1)  # of the first dimension of s′
    limit, bad = float(np.sort(reached)[-2:].mean()), int(reached.argmax())
    trainer, diverged = ten(Poisoned(what=what, limit=limit))
    assert diverged[-1].tolist() == [float(run == bad) for run in range(10)]
    others_are_untouched(trainer, clean, bad)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(trainer.learners) if leaf.dtype == jnp.float32)


def test_a_run_whose_parameters_explode_keeps_its_last_good_state(clean):
    trainer, diverged = ten(Poisoned(), sac__critic_lr=TOO_FAST)
    assert diverged[0][3] in (2, 3)
    assert (np.delete(diverged, 3, axis=1) == 0).all()
    others_are_untouched(trainer, clean, 3)
    fresh = ScanTrainer([config(seeds=1, belief__filter=False)] * 10, range(10), Poisoned())
    for now, start in zip(jax.tree.leaves(trainer.learners), jax.tree.leaves(fresh.learners), strict=True):
        np.testing.assert_array_equal(np.asarray(now)[3], np.asarray(start)[3])


def test_a_diverged_run_is_named_and_counted(tmp_path, capsys):
    console = Console(force_terminal=False, width=200)
    points = [{"sac.critic_lr": TOO_FAST}, {"sac.critic_lr": 1e-3}]
    run = moca.train(config(seeds=1), tmp_path / "run", env=probes.Drift(), varied=points, console=console)
    printed = capsys.readouterr().out
    assert "seed 0 diverged in the episode that ended at step 20: " in printed
    assert "(1 of 2 runs, the others diverged)" in printed
    (named,) = json.loads((run.path / "status.json").read_text())["diverged"]
    assert (named["sac.critic_lr"], named["step"]) == (TOO_FAST, 20)
    assert [row["return_mean"] is None for row in run.rows[-2:]] == [True, False]


@pytest.mark.slow  # tests/attacks has the same with a program that needs no compiling
@pytest.mark.parametrize("limit", [20_000, 200])
def test_a_full_disk_is_a_sentence_and_loses_nothing(tmp_path, limit):
    """A limit on the size of a file: a checkpoint does not fit, or not even the log."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
    path = tmp_path / "run"
    code = (
        f"import sys, resource, signal; sys.path.insert(0, {root!r})\n"
        "import moca; from moca.config import ConfigError; from tests.runs.test_resume import Slow, config\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))\n"
        f"try: moca.train(config(), {str(path)!r}, env=Slow(), checkpoint_every=0.0)\n"
        "except ConfigError as error: sys.exit(f'sentence: {error}')\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 1
    assert f"cannot write {'a checkpoint ' if limit > 1000 else ''}to {path}: File too large" in run.stderr
    assert "Traceback" not in run.stderr
    for name in ("metrics.jsonl", "timing.jsonl"):
        for line in (path / name).read_text().splitlines() if (path / name).exists() else []:
            json.loads(line)
    assert checkpoint.newest(path / "checkpoints")[1] == []
    moca.train(config(), path, env=Slow())  # with room again it goes on


@pytest.mark.slow
def test_a_file_system_that_fills_up(tmp_path):
    """Thirty megabytes, of which each checkpoint takes nine: the fourth does not fit."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a file system of 30 MB")
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=30m", "tmpfs", str(disk)], check=True)
    try:
        root = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
        run, fresh = disk / "run", tmp_path / "fresh"
        code = (
            f"import sys; sys.path.insert(0, {root!r})\n"
            "import moca; from moca.config import ConfigError; from tests.runs.test_resume import config, probes\n"
            f"big = dict(out={str(run)!r}, env=probes.Drift(), checkpoint_every=0.0, keep=9)\n"
            "try: moca.train(config(sac__width=256, seeds=3), **big)\n"
            "except ConfigError as error: sys.exit(f'sentence: {error}')\n"
        )
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert result.returncode == 1
        assert f"cannot write a checkpoint to {run}: No space left on device" in result.stderr
        assert "Traceback" not in result.stderr
        kept = sorted((run / "checkpoints").iterdir())
        assert len(kept) >= 2
        assert all(path.suffix == ".checkpoint" and checkpoint.load(path) for path in kept)
        rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        assert rows[-1]["step"] < 20 * EPISODES
        shutil.copytree(run, fresh)
        resume(fresh, env=probes.Drift())  # with room again it goes on
        assert json.loads((fresh / "status.json").read_text())["state"] == "finished"
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.slow
def test_memory_does_not_grow_and_nothing_is_compiled_twice():
    trainer = ScanTrainer([config(train__steps=20 * 210, seeds=1)], [0], probes.Drift())
    sizes = []
    for report in trainer:
        if report.step // 20 in (10, 210):
            sizes.append(int(Path("/proc/self/statm").read_text().split()[1]))
            compiled = trainer._training._cache_size()
    assert compiled == trainer._training._cache_size() == 0  # it was compiled ahead of time, once
    assert sizes[1] < 1.05 * sizes[0]
