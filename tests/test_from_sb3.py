"""Every line of the table for those who come from other libraries is run."""

import ast
import json
import re
import shlex
from pathlib import Path

import gymnasium
import jax
import numpy as np
import pandas
import pytest

import moca
from moca import api, figures
from moca.cli import main
from moca.runs.callbacks import Training

ROOT, SAVE, BUILD = Path(__file__).parent.parent, figures.save, api.presets.build
PAGE = (ROOT / "docs" / "from-sb3.md").read_text()
ROWS = [
    [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
    for line in PAGE.splitlines()
    if line.startswith("| ") and not line.startswith("| to do")
]
LINES = [match for row in ROWS for match in re.findall(r"`([^`]+)`", row[2])]
PYTHON = [line for line in LINES if not line.startswith("moca ")]
COMMANDS = [line for line in LINES if line.startswith("moca ")]

# Lines like others that are run every time; they train again, or measure another environment.
REST = [line for line in PYTHON if re.match(r"(scaled|four|often|seventh|tuned|longer|video|page) =|set_ .*__", line)]

SMALL = {
    "belief.filter": False,
    "env.episode_length": 20,
    "train.horizon": 40,  # with the capacity, runs of any length are the same program
    "train.batch": 8,
    "train.warmup": 10,
    "train.eval_episodes": 2,
    "critic.width": 8,
    "dynamics.width": 8,
    "dynamics.members": 2,
    "value.bases": 8,
}


def test_every_row_has_a_line_or_says_why_not():
    for row in ROWS:
        assert len(row) == 4, row
        assert re.fullmatch(r"`[^`]+`", row[2]) or (row[2] == "—" and row[3]), row
    assert len(PYTHON) > 35
    assert len(COMMANDS) > 4


@pytest.fixture(scope="module")
def session(tmp_path_factory, programs_made_once):
    """A function that runs lines of Python, on tiny networks for a few steps, and the names that they made.

    It runs each line once, and returns what each raised.
    """
    names = {"moca": moca, "gymnasium": gymnasium, "pandas": pandas, "jax": jax, "obs": [1.0, 0.0, 0.0]}
    names["folder"] = folder = tmp_path_factory.mktemp("session")
    raised, build = {}, api.presets.build

    def small(preset, task, chosen, *found):
        capacity = {"train.capacity": max(40, chosen.get("train.batch", 0))}
        return build(preset, task, {**SMALL, **capacity, **chosen}, *found)

    def run(lines):
        for line in lines:
            if line in raised:
                continue
            shorter = re.sub(r"(?<=learn\()(20|10)_000", lambda steps: {"20": "40", "10": "20"}[steps[1]], line)
            raised[line] = None
            try:
                exec(compile(shorter, line, "exec"), names)
            except Exception as error:
                raised[line] = error
        return raised

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(api.presets, "build", small)
        patch.setattr(figures, "save", SAVE)  # which is left out where programs are shared
        patch.setattr(moca.KeepBest.__init__, "__defaults__", (2, *moca.KeepBest.__init__.__defaults__[1:]))
        yield run, names


@pytest.mark.parametrize("line", [pytest.param(line, marks=[pytest.mark.slow] * (line in REST)) for line in PYTHON])
def test_a_line_runs(session, line):
    """After those above it; the slow ones need no slow ones."""
    before = [each for each in PYTHON[: PYTHON.index(line)] if each not in REST]
    ast.parse(line)
    error = session[0]([*before, line])[line]
    if "cannot render" in str(error):
        pytest.skip(str(error))  # what draws Gymnasium's environments is not installed
    if error:
        raise error


def test_what_is_run_every_time_does_what_the_table_says(session):
    run, names = session
    run(line for line in PYTHON if line not in REST)
    steps = [row["step"] for row in names["table"].to_dict("records")]
    assert steps == [20, 40, 60]  # the second call of learn went on
    assert names["action"].shape == (1,)
    assert len(names["rows"]) == 1
    returns = [Training(0, {"return_mean": np.array([number])}, None, None) for number in (-300.0, -100.0)]
    assert [names["enough"](each) for each in returns] == [True, False]
    assert names["events"].is_dir()
    assert names["saved"]
    assert names["picture"].is_file()
    assert names["best"].which == "best"
    assert any(name.startswith("critics.") for name in names["parameters"])


@pytest.mark.slow
def test_the_lines_do_what_the_table_says(session):
    run, names = session
    run(PYTHON)
    agent = names["agent"]
    steps = [row["step"] for row in agent.rows]
    assert steps == list(range(20, 20 * len(steps) + 1, 20))
    assert len(names["table"]) == len(names["longer"].rows) - 1 == 3
    assert names["tuned"].config.noise.sigma == 0.1
    again = moca.load(names["folder"] / names["path"])  # it was saved before `longer` learned in the same directory
    assert again.predict(names["obs"]) == pytest.approx(agent.predict(names["obs"]), abs=1e-6)


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_is_understood(line, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    main([*shlex.split(line)[1:], "--dry-run"])
    assert capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("line", [line for line in COMMANDS if not line.startswith("moca study")])
def test_a_command_trains(line, capsys, tmp_path, monkeypatch):
    """Studies are run in tests/studies."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(api.presets, "build", BUILD)  # the session's may still be there
    small = [f"--set={name}={json.dumps(value)}" for name, value in SMALL.items() if name != "train.horizon"]
    name, *options = shlex.split(re.sub(r" --steps \d+", "", line))[1:]
    main([name, *options, "--steps", "40", *small])
    run = moca.load(capsys.readouterr().out.splitlines()[-1])
    assert {row["step"] for row in run.rows} == {20, 40}
    points = 2 if name == "sweep" else 1
    assert len(run.rows) == 2 * points * run.config.seeds
    assert np.isfinite(run.evaluate(episodes=1)[0]["return_mean"])
