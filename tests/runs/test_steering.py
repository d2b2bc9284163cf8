"""Training that is made longer, looked at, stopped, and asked in the middle."""

import json
import os
import signal
import time
from contextlib import nullcontext
from functools import partialmethod
from types import SimpleNamespace
from unittest.mock import Mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

import moca
from moca.config import ConfigError
from moca.drivers import make_trainer
from moca.envs.gymnasium import Gymnasium
from moca.files import DiskError
from moca.runs import checkpoint, ending, interrupts, policies, saving
from moca.runs.callbacks import as_callback, stops
from moca.runs.checkpoint import SUFFIX
from moca.runs.directory import LOGS, RunDirectory
from moca.runs.interrupts import InterruptedRun, Request
from moca.runs.learned import by_path
from tests import probes
from tests.envs import hosted

pytestmark = pytest.mark.usefixtures("programs_made_once")

LENGTH = 20
SETTINGS = {"seeds": 2, "noise__sigma": 0.1, "train__decay": 0.1, "dynamics__width": 16, "dynamics__members": 2}
SHARED = {"train__capacity": 2 * LENGTH, "train__horizon": 3 * LENGTH}


def config(episodes, **settings):
    """Two episodes or more are the same program, whatever their number."""
    return probes.tiny(**(SETTINGS | SHARED | {"train__steps": LENGTH * episodes} | settings))


def test_a_program_depends_on_the_number_of_steps_through_schedules_and_memory_alone():
    """And not on when to evaluate. So these runs share one: see `tests/sharing.py`."""
    configs = config(2), config(6, train__eval_every=3)
    one, other = ([each.as_text() for each in make_trainer([own], [0], probes.Drift()).lowered()] for own in configs)
    assert one == other


def learned(path, name="policy.npz"):
    with np.load(path / name) as file:
        return {key: file[key] for key in file.files}


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    """A finished run of three episodes."""
    return moca.train(config(3), tmp_path_factory.mktemp("short") / "run", env=probes.Drift())


@pytest.fixture
def copy(short, tmp_path):
    short.save(tmp_path / "run")
    import shutil

    shutil.copytree(short.path / "checkpoints", tmp_path / "run" / "checkpoints")
    return tmp_path / "run"


def test_a_run_made_longer_is_the_longer_run_with_the_same_schedules(tmp_path):
    """Its memory grows with it, twice, and its schedules end where they did."""
    growing, copy = {"train__capacity": 1000}, tmp_path / "run"
    whole = moca.train(config(6, **growing), tmp_path / "whole", env=probes.Drift())
    moca.train(config(3, train__horizon=0, **growing), copy, env=probes.Drift())
    longer = moca.resume(copy, steps=5 * LENGTH, env=probes.Drift())
    assert longer.config.train.steps == 5 * LENGTH
    longer = moca.resume(copy, steps=6 * LENGTH, env=probes.Drift())
    assert (copy / "metrics.jsonl").read_bytes() == (whole.path / "metrics.jsonl").read_bytes()
    ours, theirs = learned(copy), learned(whole.path)
    assert all((ours[name] == theirs[name]).all() for name in theirs)
    assert longer.directory.totals == [60, 100, 120]
    assert json.loads((copy / "config.json").read_text())["train"]["steps"] == 60  # as it was first asked for
    assert longer.directory.status["state"] == "finished"


def test_a_number_that_no_run_has_is_refused(short):
    with pytest.raises(ConfigError, match=r"run = 2 is out of range: the runs in .* are numbered 0 to 1"):
        short.get_parameters(2)


def test_a_run_that_was_made_longer_and_died_goes_on(copy):
    directory = RunDirectory.open(copy)
    with directory.locked():
        directory.extend(4 * LENGTH)
        directory.note_start(3 * LENGTH)
    assert not RunDirectory.open(copy).over  # finished, at fewer steps than it has
    assert len(moca.load(copy, env=probes.Drift()).evaluate(2)) == 2
    assert moca.resume(copy, env=probes.Drift()).directory.status == {"state": "finished", "step": 80}


def test_a_run_that_cannot_be_made_longer_stays_as_it_was(copy, monkeypatch):
    before = (copy / "meta.json").read_bytes(), (copy / "status.json").read_bytes()
    with pytest.raises(ConfigError, match="your own environment"):
        moca.resume(copy, steps=4 * LENGTH)
    monkeypatch.setattr("moca.memory_estimate.available", lambda: 1000)
    with pytest.raises(ConfigError, match="GB of memory"):
        moca.resume(copy, steps=4 * LENGTH, env=probes.Drift())
    assert ((copy / "meta.json").read_bytes(), (copy / "status.json").read_bytes()) == before


def test_a_run_is_not_made_shorter_nor_odd(copy):
    with pytest.raises(ConfigError, match="less than the 60"):
        moca.resume(copy, steps=40, env=probes.Drift())
    with pytest.raises(ConfigError, match=r"multiple of env\.episode_length"):
        moca.resume(copy, steps=90, env=probes.Drift())
    with pytest.raises(ConfigError, match="it is finished"):
        moca.resume(copy, env=probes.Drift())
    meta = json.loads((copy / "meta.json").read_text())
    (copy / "meta.json").write_text(json.dumps(meta | {"extended": [90]}))  # as for an environment on the host
    with pytest.raises(ConfigError, match=r"multiple of env\.episode_length"):
        moca.resume(copy, env=probes.Drift())


@pytest.mark.parametrize("name", ["extended", "begun"])
@pytest.mark.parametrize("steps", [3, ["80"], [80.0], [True], [0], [2**31]])
def test_lengths_of_another_shape_are_refused(copy, name, steps):
    meta = json.loads((copy / "meta.json").read_text())
    (copy / "meta.json").write_text(json.dumps(meta | {name: steps}))
    with pytest.raises(ConfigError, match=rf"meta\.json is invalid: {name} must be a list"):
        _ = RunDirectory.open(copy).config


def test_a_callback_sees_every_episode_and_stops(tmp_path):
    seen = []

    def look(training):
        seen.append((training.step, training.metrics["return_mean"].shape, len(training.run.rows)))
        return len(seen) < 2

    run = moca.train(config(5), tmp_path / "run", env=probes.Drift(), callback=look)
    assert seen == [(20, (2,), 2), (40, (2,), 4)]
    assert run.directory.status == {"state": "stopped", "step": 40}
    assert len(run.evaluate(2)) == 2
    assert moca.resume(run.path, env=probes.Drift()).directory.status == {"state": "finished", "step": 100}


# Its memory ends before the run does, or with it.
@pytest.mark.parametrize("capacity", [2 * LENGTH, pytest.param(1000, marks=pytest.mark.slow)])
def test_after_a_stop_an_agent_learns_for_as_many_steps_as_asked_for(tmp_path, capacity):
    """Fewer than were planned, then beyond them: it is the run that nobody stopped."""
    asked = {"train__capacity": capacity, "train__horizon": 0}
    stop = lambda training: training.step % 40 != 0  # noqa: E731
    run = moca.train(config(5, **asked), tmp_path / "run", env=probes.Drift(), callback=stop)
    assert run.directory.status == {"state": "stopped", "step": 40}
    run = run.learn(20)
    assert run.directory.status == {"state": "finished", "step": 60}
    run = run.learn(60, callback=stop)
    assert run.directory.status == {"state": "stopped", "step": 80}
    with pytest.raises(ConfigError, match="less than the 80 steps taken"):
        moca.resume(run.path, steps=60, env=probes.Drift())
    with pytest.raises(ConfigError, match=r"multiple of env\.episode_length"):
        run.learn(10)
    run = run.learn(20).learn(20)
    assert run.directory.status == {"state": "finished", "step": 120}
    assert run.directory.requested == [100, 60, 120, 100, 120]
    assert run.directory.totals == [60, 100, 120]
    whole = config(6, **asked | {"train__horizon": 100})
    moca.train(whole, tmp_path / "whole", env=probes.Drift())
    assert (run.path / "metrics.jsonl").read_bytes() == (tmp_path / "whole" / "metrics.jsonl").read_bytes()


@pytest.mark.parametrize(
    ("answer", "stopped"),
    [(False, True), (np.bool_(False), True), (np.array([False]), True), (jnp.array(False), True), (np.True_, False),
     (True, False), (None, False), (0, False), (np.float32(0), False), ("no", False),
     ([[1], [1, 2]], False), (object(), False)],
)  # fmt: skip
def test_false_of_any_library_stops(answer, stopped):
    assert stops(answer) == stopped
    several = as_callback([lambda training: None, lambda training: answer])
    assert stops(several(None)) == stopped


def test_a_truth_value_for_each_run_is_refused():
    with pytest.raises(ConfigError, match=r"one truth value or None, got 2: use \.all\(\)"):
        stops(np.array([False, True]))


def test_a_comparison_of_metrics_stops(tmp_path):
    """As documented; it is NumPy's False."""
    higher = lambda training: training.metrics["return_mean"].mean() > 1e6  # noqa: E731
    run = moca.train(config(5), tmp_path / "run", env=probes.Drift(), callback=higher)
    assert run.directory.status == {"state": "stopped", "step": 20}


def test_a_run_goes_on_keeping_its_best_policies(tmp_path, monkeypatch, capsys):
    """By itself, as soon as it has kept some: until then its own command says how."""
    path, env = tmp_path / "run", probes.Drift()

    def interrupt(training):
        if training.step == 40:
            os.kill(os.getpid(), signal.SIGINT)

    callbacks = [interrupt, moca.EarlyStopping(9), moca.KeepBest(episodes=2)]
    with pytest.raises(InterruptedRun, match=rf"moca train --resume {path} --patience 9$"):
        moca.train(config(4), path, env=env, callback=callbacks)
    assert json.loads((path / "best.json").read_text())[0]["episodes"] == 0
    fresh = Mock(path=tmp_path, config=config(4))
    assert ending.again(fresh, as_callback(callbacks[1:])).endswith("--patience 9 --keep-best")
    candidates = moca.load(path, env=env, which="best")
    assert policies.told(candidates).endswith(": candidates, not yet compared over new episodes")
    monkeypatch.setattr(moca.KeepBest, "__init__", partialmethod(moca.KeepBest.__init__, episodes=2))
    moca.resume(path, env=env, console=True)
    assert all(row["episodes"] == 2 for row in json.loads((path / "best.json").read_text()))
    said, rows = capsys.readouterr().out, json.loads((path / "best.json").read_text())
    assert "compared" not in policies.told(moca.load(path, env=env, which="best"))
    assert "Comparing the best policies over 2 new episodes each" in said
    mean, best = np.mean([row["return_mean"] for row in rows]), max(rows, key=lambda row: row["return_mean"])
    score = f"{best['return_mean']:.1f} ± {best['interval']:.2g} (95 %) over 2 new episodes, at step {best['step']:,}"
    told = f"best policies: return {mean:.1f}, mean of 2 runs; the highest: return {score} (seed {best['seed']})"
    lasts = [row["last"] for row in rows]
    assert f"{told}, used by --which best" in " ".join(said.split())
    assert lasts == [row["return_mean"] for row in moca.load(path, env=env).evaluate(2, moca.runs.callbacks.FRESH + 1)]
    assert "same episodes" not in ending._best([row | {"last": row["return_mean"]} for row in rows], "")
    others = [row | {"last": 7.25 + number} for number, row in enumerate(rows)]
    assert ending._best(others[:1], "").endswith("--which best; over the same episodes the last policy has 7.2")
    assert ending._best(others, ", mean of 2 runs").endswith("; over the same episodes the last policies have 7.8")
    (one,) = ending._best(rows[:1], "").split(", used by")[:1]
    assert one.startswith(f"best policy: return {rows[0]['return_mean']:.1f} ± ")
    assert one.endswith(f"at step {rows[0]['step']:,}")
    last = [row["return_mean"] for row in moca.load(path, env=env).rows[-2:]]
    told = f"last evaluation: return {np.mean(last):.1f} over 2 episodes, at step 80, mean of 2 runs"
    assert told in " ".join(said.split())
    assert "━" not in said  # a bar: this is no terminal


def test_damaged_best_policies_do_not_stop_a_run(copy, capsys):
    """They are left alone, and a run that is refused because of them is as before."""
    (copy / "best.json").write_text("{{{")
    status = (copy / "status.json").read_bytes()
    with pytest.raises(ConfigError, match=r"best\.json cannot be read"):
        moca.resume(copy, steps=4 * LENGTH, env=probes.Drift(), callback=moca.KeepBest())
    assert (copy / "status.json").read_bytes() == status
    moca.resume(copy, steps=4 * LENGTH, env=probes.Drift(), console=True)
    assert "the best policies are not kept any longer" in capsys.readouterr().out
    assert (copy / "best.json").read_text() == "{{{"


def test_a_path_with_brackets_is_printed_whole(copy, capsys):
    """In the note about best policies that are not kept: it is no markup, and not broken into lines."""
    path = copy.rename(copy.with_name(f"run [bold]x[link] [1] {'long ' * 30}"))
    (path / "best.json").write_text("{{{")
    moca.resume(path, steps=4 * LENGTH, env=probes.Drift(), console=Console(width=80))
    note = f"note: the best policies are not kept any longer: {path / 'best.json'} cannot be read"
    assert note in capsys.readouterr().out


def test_a_run_that_died_while_it_compared_has_its_last_policy_as_best(copy):
    status = json.loads((copy / "status.json").read_text())
    (copy / "status.json").write_text(json.dumps(status | {"state": "running"}))
    moca.resume(copy, env=probes.Drift(), callback=moca.KeepBest(episodes=2))
    assert [row["step"] for row in json.loads((copy / "best.json").read_text())] == [60, 60]


def test_a_run_that_cannot_write_its_best_policies_has_not_finished(tmp_path, monkeypatch):
    def full(*arguments):
        raise DiskError("no space")

    broken = moca.KeepBest(episodes=2)
    monkeypatch.setattr(broken, "_scores", full)
    with pytest.raises(DiskError):
        moca.train(config(2), tmp_path / "run", env=probes.Drift(), callback=broken)
    assert json.loads((tmp_path / "run" / "status.json").read_text())["state"] == "failed"
    moca.train(config(2), tmp_path / "run", env=probes.Drift(), callback=moca.KeepBest(episodes=2))
    assert (tmp_path / "run" / "best.json").exists()


def test_a_run_that_died_before_its_weights_were_copied_does_not_begin_with_others(short, tmp_path, monkeypatch):
    path, env = tmp_path / "run", probes.Drift()
    with monkeypatch.context() as broken:
        broken.setattr("moca.runs.starting.keep", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            moca.train(config(2), path, env=env, start=short)
    with pytest.raises(ConfigError, match="does not hold the weights that the run started from"):
        moca.resume(path, env=env)
    run = moca.train(config(2), path, env=env, start=short)
    whole = moca.train(config(2), tmp_path / "whole", env=env, start=short)
    assert (run.path / "metrics.jsonl").read_bytes() == (whole.path / "metrics.jsonl").read_bytes()


def test_an_agent_learns_any_number_of_times():
    env = probes.Drift()
    agent = moca.SAC(env, settings=_settings(), seeds=2)
    first = agent.learn(40).rows
    again = agent.learn(20).rows
    assert [row["step"] for row in again] == [20, 20, 40, 40, 60, 60]
    assert again[:4] == first
    loaded = moca.load(agent.run.path, env=env).learn(20)
    assert loaded.rows[:6] == again
    assert loaded.rows[-1]["step"] == 80


def test_an_agent_that_was_interrupted_can_be_asked_and_goes_on():
    """As in a notebook. It is the run that nobody interrupted."""
    env, agents = probes.Drift(), [moca.SAC(probes.Drift(), settings=_settings(), seeds=2) for _ in range(2)]
    agent, whole = agents

    def interrupt(training):
        if training.step == 20:
            os.kill(os.getpid(), signal.SIGINT)

    def fail(training):
        raise ZeroDivisionError

    with pytest.raises(InterruptedRun):
        agent.learn(40, callback=interrupt)
    assert [row["step"] for row in agent.rows] == [20, 20]
    action = agent.predict(np.zeros(env.observation_size))
    with pytest.raises(ConfigError, match=r"learn\(40\) was interrupted at step 20, with 40 planned"):
        agent.learn(20)
    assert agent.learn(40).rows == whole.learn(40).rows
    assert (agent.predict(np.zeros(env.observation_size)) != action).any()
    with pytest.raises(ZeroDivisionError):
        agent.learn(20, callback=fail)
    with pytest.raises(ConfigError, match=r"learn\(20\) was interrupted at step \d+, with 60 planned"):
        agent.learn(40)
    assert agent.learn(20).rows == whole.learn(20).rows
    with pytest.raises(ConfigError, match=r"multiple of env\.episode_length"):
        agent.learn(10)
    assert agent.learn(20).rows[-1]["step"] == 80  # what was refused has not begun


def _settings():
    from moca.config import flatten

    names = ("agent", "seed", "seeds", "env.name", "train.steps")
    return {name: value for name, value in flatten(config(1)).items() if name not in names}


def test_early_stopping_waits_for_a_rise():
    fresh = SimpleNamespace(rows=[], directory=SimpleNamespace(runs=[{}, {}], begun=[]), config=config(5))
    stop = moca.EarlyStopping(2, rise=1.0)
    stop.start(fresh)
    seen = [0.0, np.nan, 2.0, 2.5, 5.0, 4.0, 4.0]
    answers = [stop(moca.Training(LENGTH, {"return_mean": np.array([x, x])}, None, None)) for x in seen]
    assert answers == [None] * 6 + [False]
    assert stop.reason == "return_mean did not rise in 2 evaluations (--patience)"
    stop = moca.EarlyStopping(5, goal=3.0)
    stop.start(fresh)
    assert stop(moca.Training(LENGTH, {"return_mean": np.array([2.0, np.nan])}, None, None)) is None
    assert stop(moca.Training(LENGTH, {"return_mean": np.array([3.0, 3.0])}, None, None)) is False
    assert stop.reason == "return_mean reached 3"
    with pytest.raises(ConfigError, match="metric = 'score' is unknown"):
        moca.EarlyStopping(metric="score")(moca.Training(0, {"return_mean": np.zeros(1)}, None, None))
    with pytest.raises(ConfigError, match=r"metric = \[\] must be the name of a metric"):
        moca.EarlyStopping(metric=[])


def test_early_stopping_goes_on_counting_after_an_interruption():
    seen = [0.0, 1.0, None, 1.0, 0.5, 1.0, 1.0, 1.0, 1.0, 1.0]
    stop = moca.EarlyStopping(3)
    answer = lambda x: stop(moca.Training(99, {"return_mean": np.full(2, np.nan if x is None else x)}, None, None))  # noqa: E731
    for held, begun, last in (
        (0, [], 5),
        (2, [], 5),
        (4, [], 5),
        (6, [6], 9),
        (8, [2, 6], 9),
    ):  # after a stop, it counts anew
        rows = [{"step": step, "return_mean": x} for step, x in enumerate(seen[:held], 1) for _ in range(2)]
        directory = SimpleNamespace(runs=[{}, {}], begun=begun)
        run = SimpleNamespace(rows=rows, directory=directory, config=config(5, train__warmup=0))
        assert stop.start(run) is None
        answers = [answer(x) for x in seen[held:]]
        assert answers.index(False) + held == last, held
    run.rows, run.directory.begun = rows[:12], []  # it died before it could stop
    assert stop.start(run) is False


def test_early_stopping_does_not_count_the_warm_up(tmp_path, capsys):
    """What ended it is said. A run that died in the warm-up counts nothing of it either."""
    env, falling = probes.Drift(), moca.EarlyStopping(1, rise=1e9)
    run = moca.train(config(6, train__warmup=2 * LENGTH), tmp_path / "run", env=env, callback=falling, console=True)
    assert run.directory.status == {"state": "stopped", "step": 4 * LENGTH}
    told = "stopped by a callback at step 80: return_mean did not rise in 1 evaluation (--patience)"
    assert told in " ".join(capsys.readouterr().out.split())
    rows = SimpleNamespace(rows=run.rows[:6], directory=run.directory, config=run.config)
    assert falling.start(rows) is None
    assert falling(moca.Training(4 * LENGTH, {"return_mean": np.zeros(2)}, None, None)) is False


def test_a_run_that_died_as_it_stopped_stops(tmp_path):
    path, env = tmp_path / "run", probes.Drift()
    falling = [moca.EarlyStopping(1, rise=1e9), moca.KeepBest(episodes=2)]
    run = moca.train(config(4), path, env=env, callback=falling)
    assert run.directory.status == {"state": "stopped", "step": 40}
    before = (path / "metrics.jsonl").read_bytes()
    (path / "status.json").write_text('{"state": "running", "step": 40}')
    run = moca.resume(path, env=env, callback=falling)
    assert run.directory.status == {"state": "stopped", "step": 40}
    assert (path / "metrics.jsonl").read_bytes() == before
    assert moca.resume(path, env=env, callback=falling).directory.status["step"] == 80


@pytest.mark.parametrize("ended", ["finished", "stopped"])
def test_early_stopping_does_not_count_what_an_earlier_call_learned(tmp_path, ended):
    """Whether that call reached its end or another callback stopped it. An interruption changes nothing."""
    env, paths = probes.Drift(), (tmp_path / "run", tmp_path / "whole")
    falling = lambda patience: [moca.EarlyStopping(patience, rise=1e9), moca.KeepBest(episodes=2)]  # noqa: E731
    stop = (lambda training: training.step < 60) if ended == "stopped" else None
    for path in paths:
        run = moca.train(config(3 if ended == "finished" else 9), path, env=env, callback=stop)
        assert run.directory.status == {"state": ended, "step": 60}
        if ended == "stopped":
            run.learn(20)  # fewer than were planned, and without patience

    def interrupt(training):
        if training.step == first + 40:
            os.kill(os.getpid(), signal.SIGTERM)

    run = moca.load(paths[0], env=env)
    first = run.directory.status["step"]
    whole = moca.load(paths[1], env=env).learn(100, falling(3))
    assert whole.directory.status == {"state": "stopped", "step": first + 80}
    with pytest.raises(InterruptedRun):
        run.learn(100, [*falling(3), interrupt])
    assert run.learn(100, falling(3)).directory.status == {"state": "stopped", "step": first + 80}
    for name in ("metrics.jsonl", "best.json", "best.npz", "policy.npz"):
        assert (run.path / name).read_bytes() == (whole.path / name).read_bytes(), name


class Tracked(moca.KeepBest):
    """Notes every episode's learners, and shows returns that were made up."""

    def __init__(self, returns, **options):
        super().__init__(**options)
        self.returns, self.learners = returns, []

    def __call__(self, training):
        self.learners.append(jax.tree.map(np.array, jax.device_get(training.learners)))
        told = {"return_mean": np.array(self.returns[len(self.learners) - 1])}
        return super().__call__(training._replace(metrics=told))


def test_the_best_policy_of_each_run_is_kept_by_fresh_episodes(tmp_path):
    returns = [[1.0, 5.0], [2.0, 4.0], [3.0, 6.0], [0.0, 0.0]]
    keep = Tracked(returns, episodes=8)
    run = moca.train(config(4), tmp_path / "run", env=probes.Drift(), callback=keep)
    candidates = [[0, 1, 2, 3], [0, 2, 3]]  # of each run, the episodes with its highest return so far, and the last
    fresh = [run.evaluate_learners(learners, 8, moca.runs.callbacks.FRESH) for learners in keep.learners]
    wanted = [max(own, key=lambda n, i=i: fresh[n][i]["return_mean"]) for i, own in enumerate(candidates)]
    scores = json.loads((run.path / "best.json").read_text())
    assert [row["step"] for row in scores] == [LENGTH * (1 + number) for number in wanted]
    best = moca.load(run.path, env=probes.Drift(), which="best")
    for i, number in enumerate(wanted):
        ours, theirs = (jax.tree.leaves(tree) for tree in (best.learners, keep.learners[number]))
        assert all((a[i] == b[i]).all() for a, b in zip(ours, theirs, strict=True))
    other = best.evaluate(8, moca.runs.callbacks.FRESH + 1)  # scored on episodes that did not choose it
    assert [row["return_mean"] for row in other] == pytest.approx([row["return_mean"] for row in scores], rel=1e-6)
    half = [2.3646 * row["return_std"] / 7**0.5 for row in other]  # t with seven degrees of freedom
    assert [row["interval"] for row in scores] == pytest.approx(half, rel=1e-4)


def test_what_was_kept_before_is_a_candidate_too(tmp_path, monkeypatch):
    monkeypatch.setattr(moca.KeepBest, "_scores", lambda *_: (np.zeros(2), np.zeros(2)))  # the earliest of equal ones
    run = moca.train(config(2), tmp_path / "run", env=probes.Drift(), callback=Tracked([[9.0, 9.0], [1.0, 1.0]]))
    kept = learned(run.path, "best.npz")
    run.learn(20, Tracked([[-1e9, -1e9]]))
    assert all((learned(run.path, "best.npz")[name] == kept[name]).all() for name in kept)
    (run.path / "best.json").write_text("[3]")
    with pytest.raises(ConfigError, match="does not list a score for each run"):
        run.learn(20, moca.KeepBest())


def test_no_score_stands_beside_another_policy(tmp_path, monkeypatch):
    """A run that dies as it writes the one and not yet the other compares again."""
    made = (moca.train(config(2), tmp_path / name, env=probes.Drift(), callback=Tracked([[9.0, 9.0], [1.0, 1.0]]))
            for name in ("run", "whole"))  # fmt: skip
    run, whole = made
    write = moca.files.write

    def die(path, *parts, **options):
        if path.name == "best.json":
            raise KeyboardInterrupt
        write(path, *parts, **options)

    monkeypatch.setattr(moca.files, "write", die)
    with pytest.raises(KeyboardInterrupt):
        run.learn(20, Tracked([[1e9, 1e9]]))
    assert not (run.path / "best.json").exists()
    monkeypatch.undo()
    run.learn(20, Tracked([]))  # to the end that was planned: the candidates were saved
    whole.learn(20, Tracked([[1e9, 1e9]]))
    assert (run.path / "best.json").read_bytes() == (whole.path / "best.json").read_bytes()
    assert (run.path / "best.npz").read_bytes() == (whole.path / "best.npz").read_bytes()


def test_scores_of_other_policies_are_refused(copy):
    env, before = probes.Drift(), (copy / "policy.npz").read_bytes()
    run = moca.resume(copy, steps=4 * LENGTH, env=env, callback=moca.KeepBest(episodes=2))
    kept = (copy / "best.npz").read_bytes()
    assert len(moca.load(copy, env=env, which="best").evaluate(1)) == 2
    for other in (before, kept + b"\0", None):
        (copy / "best.npz").unlink()
        if other is not None:
            (copy / "best.npz").write_bytes(other)
        for refused in (lambda: moca.load(copy, env=env, which="best").learners, lambda: run.best.best_run):
            with pytest.raises(
                ConfigError, match=r"best\.json has the scores of other policies than those in best\.npz"
            ):
                refused()
        with pytest.raises(ConfigError, match="has the scores of other policies"):
            moca.resume(copy, steps=5 * LENGTH, env=env, callback=moca.KeepBest(episodes=2))
    moca.resume(copy, steps=5 * LENGTH, env=env)  # and without the option a note, and they are left alone
    assert not (copy / "best.npz").exists()


def test_an_interrupted_run_has_the_candidates_of_the_unbroken_one(tmp_path):
    """Three rising evaluations, the first of which is the best policy on new episodes for at least one run."""
    env, rising = probes.Drift(), [[1.0, 1.0], [2.0, 2.0], [3.0, 0.0], [0.0, 0.0]]

    def die(training):
        if training.step == 40:
            raise KeyboardInterrupt

    whole = moca.train(config(4), tmp_path / "whole", env=env, callback=Tracked(rising, episodes=4))
    run = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):  # at the second one, which has not been saved
        moca.train(config(4), run, env=env, callback=[Tracked(rising, episodes=4), die], checkpoint_every=0)
    interrupt = lambda training: os.kill(os.getpid(), signal.SIGTERM)  # noqa: E731
    with pytest.raises(InterruptedRun):
        moca.resume(run, env=env, callback=[Tracked(rising[1:], episodes=4), interrupt])
    moca.resume(run, env=env, callback=Tracked(rising[2:], episodes=4))
    assert (run / "best.json").read_bytes() == (whole.path / "best.json").read_bytes()
    assert (run / "best.npz").read_bytes() == (whole.path / "best.npz").read_bytes()


def test_a_run_that_starts_over_has_no_candidates_from_before(tmp_path):
    """Not even the policies kept from the episodes that are trained again."""
    env, path, returns = probes.Drift(), tmp_path / "run", [[np.nan, np.nan], [9.0, 9.0]]
    moca.train(config(2), path, env=env, callback=Tracked([[9.0, 9.0], [1.0, 1.0]], episodes=4))
    (path / "status.json").unlink()
    for each in (path / "checkpoints").iterdir():
        each.unlink()
    keep = Tracked(returns, episodes=4)
    moca.resume(path, env=env, callback=keep)
    assert len(keep.learners) == 2  # both episodes again
    whole = moca.train(config(2), tmp_path / "whole", env=env, callback=Tracked(returns, episodes=4))
    assert (path / "best.json").read_bytes() == (whole.path / "best.json").read_bytes()
    assert (path / "best.npz").read_bytes() == (whole.path / "best.npz").read_bytes()


def test_candidates_that_no_run_can_have_are_damage(tmp_path, capsys):
    """In a checkpoint whose hash was made anew."""
    env, path = probes.Drift(), tmp_path / "run"
    interrupt = lambda training: os.kill(os.getpid(), signal.SIGTERM) if training.step == 40 else None  # noqa: E731
    with pytest.raises(InterruptedRun):
        moca.train(config(3), path, env=env, callback=[moca.KeepBest(2), interrupt], checkpoint_every=0, keep=9)
    (path / "best.json").unlink()
    newest = max((path / "checkpoints").iterdir())
    facts, arrays = checkpoint.load(newest)
    directory = RunDirectory.open(path)
    state = make_trainer(directory.configs, [0, 1], env).state
    assert [[array.dtype.name, array.shape] for array in arrays] in [
        [list(each) for each in layout] for layout in saving.layouts(directory, state)
    ]
    count, logs = len(jax.tree.leaves(state)), {name: (path / name).read_bytes() for name in LOGS}
    for place, value in ((count, -1), (count + 2, 10**6), (count + 2, -1), (count + 3, np.nan)):
        forged = [array.copy() for array in arrays]
        forged[place].flat[0] = value
        checkpoint.save(newest.parent, int(newest.stem), checkpoint.Checkpoint(facts, forged), 9)
        trainer = make_trainer(directory.configs, [0, 1], env)
        for name, content in logs.items():
            (path / name).write_bytes(content)
        saving.go_back_to_checkpoint(trainer, directory, Console(width=1000))
        assert trainer.step == 20, (place, value)
        assert "contains invalid numbers; going back" in capsys.readouterr().out


def test_a_signal_while_policies_are_compared_keeps_the_newest(tmp_path, monkeypatch, capsys):
    """It did nothing until all episodes were over."""
    request, left = Request(), {}

    def compared(own, run, *_):
        request.leave("SIGTERM")  # as the thread that receives signals does, which then ends the process
        left.update(run.directory.status, best=json.loads((run.path / "best.json").read_text()))
        raise KeyboardInterrupt

    monkeypatch.setattr(interrupts, "noted", lambda: nullcontext(request))
    monkeypatch.setattr(moca.KeepBest, "_scores", compared)
    with pytest.raises(KeyboardInterrupt):
        moca.train(config(3), tmp_path / "run", env=probes.Drift(), callback=moca.KeepBest(2))
    assert left["state"] == "interrupted"
    assert [row["episodes"] for row in left["best"]] == [0] * len(left["best"])
    assert "stopped by SIGTERM while comparing policies; resume with: " in capsys.readouterr().out
    monkeypatch.undo()
    run = moca.resume(tmp_path / "run", env=probes.Drift())
    assert [row["episodes"] for row in json.loads((run.path / "best.json").read_text())] != [0] * len(left["best"])


def test_a_run_can_be_asked_before_it_has_ended(tmp_path):
    env = probes.Drift()
    asked = []

    def look(training):
        if training.step == 60:
            while not list((tmp_path / "run" / "checkpoints").glob("*.checkpoint")):  # written by a thread of its own
                time.sleep(0.01)
            asked.extend(moca.load(tmp_path / "run", env=env).evaluate(3))
            asked.append(training.run.evaluate_learners(training.learners, 3))

    moca.train(config(4), tmp_path / "run", env=env, callback=look, checkpoint_every=0)
    assert len(asked) == 3
    with pytest.raises(ConfigError, match=r"has no best\.json: train with --keep-best or callback=moca.KeepBest\(\)"):
        _ = moca.load(tmp_path / "run", env=env).best.learners
    with pytest.raises(ConfigError, match="which = 'worst' is unknown"):
        moca.load(tmp_path / "run", env=env, which="worst")


def test_a_run_can_be_asked_after_its_first_episode(tmp_path, monkeypatch):
    """However seldom it is saved: a first checkpoint is written at once, the others later."""
    env, path, asked = probes.Drift(), tmp_path / "run", []

    def names():
        return [int(each.stem) for each in sorted((path / "checkpoints").glob(f"*{SUFFIX}"))]

    def look(training):
        if training.step == 40:
            until = time.monotonic() + 10
            while not names() and time.monotonic() < until:  # a thread writes it
                time.sleep(0.01)
            asked.append(moca.load(path, env=env).evaluate(2))
        return training.step != 60

    monkeypatch.setattr(saving, "SOON", 1000.0)
    run = moca.train(config(6), path, env=env, callback=look, keep=9, checkpoint_every=1000)
    assert len(asked[0]) == 2
    assert names() == [20, 60]
    moca.resume(run.path, env=env, keep=9, checkpoint_every=1000)
    assert names() == [20, 60, 120]


def test_an_interrupted_run_answers_from_its_checkpoint(tmp_path, monkeypatch):
    env, path = probes.Drift(), tmp_path / "run"

    def interrupt(training):
        if training.step == 40:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(InterruptedRun):
        moca.train(config(4), path, env=env, callback=[interrupt, moca.KeepBest()])
    assert not (path / "policy.npz").exists()
    assert (path / "best.npz").exists()
    assert len(moca.load(path, env=env).evaluate(2)) == 2
    assert moca.load(path, env=env, which="best").best_run in (0, 1)
    before = sorted(each.name for each in path.rglob("*"))
    _ = moca.load(path, env=env).learners
    assert sorted(each.name for each in path.rglob("*")) == before


def test_callbacks_of_another_kind_are_refused(tmp_path):
    for wrong in (3, "stop", moca.KeepBest):
        with pytest.raises(ConfigError, match="callback = "):
            moca.train(config(1), tmp_path / "run", env=probes.Drift(), callback=wrong)


def test_a_run_begins_with_the_weights_of_another(short, tmp_path):
    env, seen = probes.Drift(), []
    settings = {"seeds": 3, "train__warmup": 20}  # so that nothing is learned in the first episode

    def look(training):
        seen.append(jax.device_get(training.learners))
        return False

    run = moca.train(config(2, **settings), tmp_path / "run", env=env, start=short, callback=look)
    given = short.learners
    for ours, theirs in zip(jax.tree.leaves(seen[0].actor), jax.tree.leaves(given.actor), strict=True):
        np.testing.assert_array_equal(ours, theirs[[0, 1, 0]])
    assert (seen[0].updates == 0).all()
    assert (given.updates > 0).all()
    assert json.loads((run.path / "meta.json").read_text())["start"]["run"] == str(short.path)
    meta = (run.path / "meta.json").read_text()
    with pytest.raises(ConfigError, match="started from another run's weights: use --resume"):
        moca.train(config(2, **settings), run.path, env=env)
    (run.path / "meta.json").write_text(json.dumps({k: v for k, v in json.loads(meta).items() if k != "start"}))
    with pytest.raises(ConfigError, match=r"meta\.json was edited after the run started"):
        moca.load(run.path, env).learn(20)
    (run.path / "meta.json").write_text(meta)
    run = run.learn(20)  # from a checkpoint
    assert run.directory.status["state"] == "finished"
    (run.path / "start.npz").write_bytes(b"")
    for each in (run.path / "checkpoints").iterdir():
        each.unlink()
    with pytest.raises(ConfigError, match=r"start\.npz does not hold the weights that the run started from"):
        run.learn(20)


def test_weights_of_another_shape_or_kind_are_refused(short, tmp_path):
    env = probes.Drift()
    ranges = {"value__low": (-1.0, -1.0), "value__high": (1.0, 1.0), "value__lengthscales": (1.0, 1.0)}
    for settings, why in (
        ({"sac__width": 8, "noise__sigma": 0.3}, r"its sac\.width is 16, not 8"),
        ({"agent": "bnaf", **ranges}, "its agent is sac, not bnaf"),
        ({"sensor__observed": (0,)}, "its number of observed dimensions is 2, not 1"),
    ):
        with pytest.raises(ConfigError, match=rf"cannot start from .*: {why}; the networks must have the same shapes"):
            moca.train(config(2, **settings), tmp_path / "other", env=env, start=short)
    assert not (tmp_path / "other").exists()
    with pytest.raises(ConfigError, match="start = 3 must be a run"):
        moca.train(config(2), tmp_path / "wrong", env=env, start=3)
    moca.train(config(2), tmp_path / "run", env=env, callback=lambda training: False)
    with pytest.raises(ConfigError, match="did not start from another run"):
        moca.train(config(2), tmp_path / "run", env=env, start=short)


def test_weights_that_were_copied_and_not_noted_are_copied_again(short, tmp_path):
    """The process died between the two writes."""
    env, path = probes.Drift(), tmp_path / "run"
    path.mkdir()
    directory = RunDirectory(path)
    moca.runs.learned.write(path / "start.npz", {"other": np.zeros(3)})
    with directory.locked():
        directory.begin(short.config, short.directory.runs)
        moca.runs.starting.keep(directory, short)
        found = directory.load_policy(short.learners, "start.npz")
        assert all((a == b).all() for a, b in zip(*map(jax.tree.leaves, (found, short.learners)), strict=True))
        moca.runs.starting.keep(directory, short)  # noted
        with pytest.raises(ConfigError, match="did not start from the weights"):
            moca.runs.starting.keep(directory, moca.load(short.save(tmp_path / "other"), env=env))


def test_a_run_without_an_evaluation_has_no_score(tmp_path):
    """Interrupted when only one of two had any."""
    keep = Tracked([[1.0, np.nan]] * 2)
    run = moca.train(config(2), tmp_path / "run", env=probes.Drift(), callback=[keep, lambda training: False])
    (run.path / "best.json").unlink()
    keep.start(run)
    keep(moca.Training(20, {}, keep.learners[0], run))
    keep.end(moca.Training(20, {}, keep.learners[0], run), interrupted=True)
    assert [row["return_mean"] for row in moca.runs.callbacks.read_scores(run)] == [1.0, None]
    keep.start(run)
    assert list(keep._highest) == [1.0, -np.inf]


def test_the_best_of_the_kept_policies_is_that_with_the_highest_score(tmp_path):
    """Whatever the metrics of the last steps say; and only whole steps are scores of a run."""
    run = SimpleNamespace(which="best", path=tmp_path, rows=[], directory=SimpleNamespace(runs=[{}, {}, {}]))
    scores = [{"step": 20, "return_mean": score} for score in (1.0, 3.0, None)]
    (tmp_path / "best.json").write_text(json.dumps(scores))
    assert moca.Run.best_run.fget(run) == 1
    for step in (1e300, -5, 1.5):
        (tmp_path / "best.json").write_text(json.dumps([{"step": step, "return_mean": 1.0}, *scores[1:]]))
        with pytest.raises(ConfigError, match="does not list a score for each run"):
            _ = moca.Run.best_run.fget(run)


def test_a_copy_of_a_run_holds_nothing_from_elsewhere(short, tmp_path):
    (tmp_path / "secret").write_text("not yours")
    link = short.path / "notes.txt"
    link.symlink_to(tmp_path / "secret")
    copy = short.save(tmp_path / "copy")
    link.unlink()
    assert (copy / "notes.txt").is_symlink()


def test_a_callback_may_ask_the_run_and_is_answered_by_the_present_policies(tmp_path):
    """From before the first episode on; afterwards it is the finished run that answers."""
    asked, held = {}, []

    class Asking(moca.Callback):
        def start(self, run):
            held.append((run, run.evaluate(2)))

        def __call__(self, training):
            run = training.run
            assert run.policy_steps == [training.step] * 2
            assert run.export(tmp_path / f"{training.step}.npz").step == training.step
            first = jax.tree.map(lambda leaf: leaf[0], training.learners)
            for name, array in by_path(first).items():
                assert (array == run.get_parameters()[name]).all(), name
            asked[training.step] = run.predict(np.ones(2)), run.evaluate(2), run.evaluate_learners(training.learners, 2)

    trained = moca.train(config(3), tmp_path / "run", env=probes.Drift(), callback=Asking())
    loaded = moca.load(tmp_path / "run", probes.Drift())
    assert list(asked) == [20, 40, 60]
    assert all(own == given for _, own, given in asked.values())
    assert not np.array_equal(asked[20][0], asked[40][0])
    for run in (trained, loaded, held[0][0]):
        np.testing.assert_array_equal(run.predict(np.ones(2)), asked[60][0])
        assert run.evaluate(2) == asked[60][1]
        assert run.export(tmp_path / "last.npz").step == 60


def test_a_callback_may_ask_a_run_in_an_environment_on_the_host(tmp_path):
    asked = []

    def ask(training):
        assert training.run.policy_steps == [training.step] * 2
        asked.append((training.run.predict(np.ones(2)), training.run.evaluate(1)))
        assert training.run.evaluate_learners(training.learners, 1) == asked[-1][1]

    trained = moca.train(config(2, env__name="own:Walk"), tmp_path / "run", env=Gymnasium(hosted.Walk), callback=ask)
    assert len(asked) == 2
    np.testing.assert_array_equal(trained.predict(np.ones(2)), asked[1][0])
    assert trained.evaluate(1) == asked[1][1]


def test_a_run_that_a_callback_holds_lets_go_of_a_trainer_that_did_not_begin(copy):
    held = []

    class Failing(moca.Callback):
        def start(self, run):
            held.append((run, run.policy_steps))
            raise RuntimeError("not today")

    with pytest.raises(RuntimeError, match="not today"):
        moca.resume(copy, steps=4 * LENGTH, env=probes.Drift(), callback=Failing())
    ((run, steps),) = held
    assert steps == [3 * LENGTH] * 2
    assert run.__dict__["_trainer"] is None
    assert len(run.evaluate(2)) == 2


def test_at_the_start_of_a_stopped_run_steps_are_those_of_the_policies_that_answer(tmp_path):
    """Which are of an older checkpoint, if the newest is damaged."""
    told, path, env = [], tmp_path / "run", probes.Drift()

    class Telling(moca.Callback):
        def start(self, run):
            told.append((run.policy_steps, policies.found(run, run._like).steps))

    stop = lambda training: training.step < 40  # noqa: E731
    moca.train(config(4), path, env=env, callback=stop, checkpoint_every=0.0)
    newest = max((path / "checkpoints").glob(f"*{SUFFIX}"))
    newest.write_bytes(newest.read_bytes()[:100])
    moca.resume(path, env=env, callback=Telling())
    assert told == [([20, 20], [20, 20])]
