"""The examples of docs/training.md that need a package of others run, with a stub in its place."""

import contextlib
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import moca
from moca.config import flatten
from tests import probes

PAGE = (Path(__file__).parents[2] / "docs" / "training.md").read_text()
EPISODE = 20


def example(package):
    """The code that imports a package, for three episodes; it has a dozen lines at most."""
    (code,) = (block for block in re.findall(r"```py\n(.*?)```", PAGE, re.DOTALL) if f"{package}." in block)
    assert len([line for line in code.splitlines() if line.strip()]) <= 12
    assert "50_000" in code
    return code.replace("50_000", str(3 * EPISODE)).replace("n_trials=50", "n_trials=2")


@pytest.fixture
def agents(monkeypatch, programs_made_once):
    """The agents that an example makes, each small and on a small environment."""
    config = probes.tiny(env__episode_length=EPISODE, train__warmup=5, train__batch=4)
    separate = ("agent", "seed", "seeds", "env.name", "train.steps")
    tiny = {name: value for name, value in flatten(config).items() if name not in separate}
    made = []

    def make(env, *, preset, value__lr=1e-3):
        assert (env, preset) == ("PendulumSwingup", "raw")
        made.append(moca.SAC(probes.Drift(), settings=tiny | {"value.lr": value__lr}))
        return made[-1]

    monkeypatch.setattr(moca, "MoCA", make)
    return made


class Pruned(Exception):
    pass


class Study:
    """Prunes the second trial after its first report."""

    def __init__(self):
        self.values = []

    def optimize(self, objective, n_trials):
        for number in range(n_trials):
            reports = []
            trial = SimpleNamespace(
                suggest_float=lambda name, low, high, log: low,
                report=lambda value, step, reports=reports: reports.append((step, value)),
                should_prune=lambda number=number, reports=reports: number > 0 and bool(reports),
            )
            try:
                self.values.append(objective(trial))
            except Pruned:
                self.values.append(reports)


def test_a_search_stops_what_does_not_promise_much(agents, monkeypatch):
    study = Study()
    stub = SimpleNamespace(create_study=lambda direction: study, TrialPruned=Pruned)
    monkeypatch.setitem(sys.modules, "optuna", stub)
    exec(example("optuna"), {})
    score, reports = study.values
    assert isinstance(score, float)
    assert reports == [(EPISODE, agents[1].rows[0]["return_mean"])]
    assert [agent.run.directory.status["step"] for agent in agents] == [3 * EPISODE, EPISODE]
    assert [agent.config.value.lr for agent in agents] == [1e-3, 1e-3]


def test_a_tracker_gets_every_episode(agents, monkeypatch):
    logged = []
    log = lambda metrics, step: logged.append((step, metrics["return_mean"]))  # noqa: E731
    monkeypatch.setitem(sys.modules, "mlflow", SimpleNamespace(start_run=contextlib.nullcontext, log_metrics=log))
    exec(example("mlflow"), {})
    assert logged == [(row["step"], row["return_mean"]) for row in agents[0].rows]
    assert [step for step, _ in logged] == [EPISODE, 2 * EPISODE, 3 * EPISODE]
