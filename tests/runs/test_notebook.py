"""What a notebook displays of runs, metrics, films and progress."""

import io
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from types import SimpleNamespace
from unittest.mock import Mock

import gymnasium
import IPython
import IPython.display
import numpy as np
import pytest
from rich.console import Console

import moca
from moca.config import Config, override
from moca.drivers import Report
from moca.runs import BEST, notebook
from moca.runs.answers import Model
from moca.runs.directory import RunDirectory
from moca.runs.display import Display, make_console, working
from moca.runs.run import Run


class Tags(HTMLParser):
    """The tags and the text of some HTML; raises where an element is not closed."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.text, self.open = [], "", []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data


@pytest.fixture
def run(tmp_path):
    """Two runs that never learned, with three evaluations."""
    settings = {"agent": "sac", "seeds": 2, "noise.sigma": 0.05, "train.steps": 3000}
    directory = RunDirectory(tmp_path / "a <b> & c")
    directory.path.mkdir()
    directory.begin(override(Config(), settings), [{"seed": 0}, {"seed": 1}])
    for step, returns in ((1000, [1.0, np.nan]), (2000, [10.0, 30.0]), (3000, [20.0, 40.0])):
        unknown = dict.fromkeys(("return_noise_free", "critic_loss"), np.full(2, np.nan))
        metrics = {"return_mean": np.array(returns), "diverged": np.zeros(2), **unknown}
        directory.append(Report(step, metrics), 0.1)
    directory.write_status("finished", 3000)
    return Run(directory)


def test_a_run_in_a_line(run):
    assert repr(run) == (
        f"Run({str(run.path)!r}: SAC on CartpoleBalance, 2 runs, finished, 3,000 of 3,000 steps, "
        "σ = 0.05, return 30.0 ± 10.0)"
    )
    assert repr(Run(run.directory, which=BEST)).endswith("no best policies were kept)")
    (run.path / "best.npz").touch()
    assert repr(Run(run.directory, which=BEST)).endswith("the best policies)")


def test_a_run_whose_process_died_is_interrupted(run):
    """It cannot say so itself, as after a power cut; its lock is then free."""
    run.directory.write_status("running", 1000)
    assert "interrupted, 3,000 of 3,000 steps" in repr(run)
    with run.directory.locked():
        assert "running, 3,000 of 3,000 steps" in repr(run)
    assert "interrupted" in run._repr_html_()


def test_a_run_that_another_handle_made_longer(run):
    assert "3,000 of 3,000 steps" in repr(run)
    RunDirectory(run.path).note(extended=[5000])
    RunDirectory(run.path).write_status("finished", 5000)
    assert "5,000 of 5,000 steps" in repr(run)


def test_a_run_as_html(run):
    shown = Tags(html := run._repr_html_())
    assert "SAC on CartpoleBalance" in shown.text
    assert "return 30.0 ± 10.0" in shown.text
    assert str(run.path) in shown.text  # as text: its brackets are no tag
    assert not {"b>", "script", "style"} & {tag for tag, _ in shown.tags}
    assert not re.search(r"#[0-9a-f]{3,6}|rgb|white|black", html)  # colours are those of the page
    svg = ET.fromstring(re.search(r"<svg.*</svg>", html)[0])
    lines = [each.get("points").split() for each in svg.iter("polyline")]
    assert [len(line) for line in lines] == [3, 2]
    assert lines[1][-1] == "300.0,2.0"  # the highest return, at the end
    assert [each.text for each in svg.iter("text")] == ["40", "1", "0", "3,000 steps"]


def test_a_directory_that_cannot_be_read_has_a_repr(tmp_path, run):
    (run.path / "config.json").write_text("{")
    assert repr(Run(RunDirectory(run.path))).startswith(f"Run({str(run.path)!r}: ")


def test_an_agent_says_whether_it_has_learned():
    agent = moca.SAC("CartpoleBalance")
    assert repr(agent) == "SAC('CartpoleBalance'): nothing learned yet, call learn(steps)"
    assert agent._repr_html_() is None
    assert repr(moca.pretrained("CartpoleBalance")) == (
        "Policy(moca on CartpoleBalance: 5 numbers observed, 1 action, a filter)"
    )


def test_what_is_asked_for_by_name_says_what_it_is(run):
    assert repr(moca.EarlyStopping(3, goal=5)) == "EarlyStopping(3, rise=0, goal=5, metric='return_mean')"
    assert repr(moca.KeepBest()) == "KeepBest(episodes=30, candidates=3)"
    predicts = SimpleNamespace(path=run.path, config=Config(), learners=Mock(), environment=Mock(observation_size=5))
    assert repr(Model(predicts)) == f"Model({str(run.path)!r}: 5 members, predicts 5 numbers as a Gaussian)"
    assert repr(moca.SAC(gymnasium.make("Pendulum-v1"))).startswith("SAC('Pendulum-v1'): nothing learned yet")
    assert repr(moca.SAC(gymnasium.make("Pendulum-v1", g=1.0))).startswith("SAC('Pendulum-v1'): nothing learned yet")


def test_rows_are_a_list_and_a_table(run):
    assert run.rows == run.directory.rows()
    shown = Tags(run.rows._repr_html_())
    assert [tag for tag, _ in shown.tags].count("tr") == 1 + 6
    assert "critic_loss" not in shown.text  # nothing was measured
    many = notebook.Rows({"<name>": number} for number in range(100))
    shown = Tags(many._repr_html_())
    assert "the last 20 of 100 rows" in shown.text
    assert "<name>" in shown.text
    assert [tag for tag, _ in shown.tags].count("tr") == 1 + 20


def test_a_film_plays_inline(tmp_path):
    path = tmp_path / "film.mp4"
    film = notebook.Film(path, "drawn <here>", 3.21)
    assert "video" not in dict(Tags(film._repr_html_()).tags)  # it is not there
    path.write_bytes(b"film")
    shown = Tags(film._repr_html_())
    assert dict(shown.tags)["video"]["src"] == "data:video/mp4;base64,ZmlsbQ=="
    assert "return 3.2, drawn <here>" in shown.text
    where, how, total = film
    assert (where, how, total) == (path, "drawn <here>", 3.21)


@pytest.fixture
def kernel(monkeypatch):
    """A notebook, as far as we look at it; what it displayed."""
    shown = []

    def display(what, display_id):
        assert display_id is True
        shown.append(what._repr_html_())
        return SimpleNamespace(update=lambda again: shown.append(again._repr_html_()))

    monkeypatch.setattr(IPython, "get_ipython", lambda: SimpleNamespace(kernel=None))
    monkeypatch.setattr(IPython.display, "display", display)
    return shown


def test_progress_in_a_notebook(kernel, capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # as Jupyter sets it
    assert notebook.in_notebook()
    with working(make_console(quiet=False), "compiling"):
        assert capsys.readouterr().out == "compiling\n"
    with Display(make_console(quiet=False), steps=3000, runs=1).live() as display:
        for step in (1000, 2000, 3000):
            report = Report(step, {"return_mean": np.array([12.3]), "diverged": np.zeros(1)})
            display.update(report, seconds=0.5, steps=1000)
    assert 'value="0" max="3000"' in kernel[0]
    assert 'value="3000"' in kernel[-1]
    assert "3,000/3,000 steps  2,000 steps/s, return 12" in kernel[-1]
    assert len(kernel) == 3  # begun, once within a tenth of a second, ended
    assert capsys.readouterr().out == ""
    with Display(make_console(quiet=True), steps=3000, runs=1).live() as display:
        display.update(report, seconds=0.5, steps=1000)
    assert len(kernel) == 3


def test_elsewhere_there_is_no_notebook(capsys):
    assert not notebook.in_notebook()
    with working(Console(), "compiling"):
        assert capsys.readouterr().out == "compiling\n"


def test_runs_that_diverged_are_counted():
    out = io.StringIO()
    with Display(Console(file=out, width=100), steps=30, runs=2).live() as display:
        for number, diverged in enumerate(([0, 0], [0, 1], [1, 1]), 1):
            returns = np.where(diverged, np.nan, 12.3)
            report = Report(10 * number, {"return_mean": returns, "diverged": np.array(diverged)})
            display.update(report, seconds=2.0, steps=10)
    told = [line for line in out.getvalue().splitlines() if "/30 steps, " in line]
    assert told[0].endswith("10/30 steps, return 12 ± 0")  # the speed would be that of compiling
    assert told[1].endswith("left, return 12 ± 0 (1 of 2 runs, the others diverged)")
    assert told[2].endswith("10 steps/s over 2 runs, (all runs diverged)")


def test_the_time_left_is_measured_without_compiling():
    """Programs compile in the first episode, also after a resume."""
    out = io.StringIO()
    with Display(Console(file=out, width=100), steps=9000, runs=1, done=6000, warmup=1500).live() as display:
        for step, seconds in ((7000, 500.0), (8000, 20.0)):
            report = Report(step, {"return_mean": np.array([12.3]), "diverged": np.zeros(1)})
            display.update(report, seconds, steps=1000)
    told = [line for line in out.getvalue().splitlines() if "/9,000 steps, " in line]
    assert "left" not in told[0]
    assert "steps/s" not in told[0]
    assert "50 steps/s, 20 s left" in told[1]


def test_the_time_left_is_measured_while_learning():
    """Episodes of the warm-up are fast, and say nothing about those with learning."""
    out = io.StringIO()
    with Display(Console(file=out, width=100), steps=5000, runs=1, warmup=1500).live() as display:
        for number, seconds in enumerate((1.0, 20.0, 100.0, 140.0, 60.0), 1):
            report = Report(1000 * number, {"return_mean": np.array([12.3]), "diverged": np.zeros(1)})
            display.update(report, seconds, steps=1000)
    told = [line for line in out.getvalue().splitlines() if "/5,000 steps, " in line]
    assert ["left" in line for line in told] == [False, False, True, True, False]
    assert "3,000/5,000 steps, 10 steps/s, 3 min left, return 12" in told[2]  # 2 x 100 s
    assert "7 steps/s, 2 min left" in told[3]  # (100 + 140) / 2 = 120 s
