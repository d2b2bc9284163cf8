"""The command line about studies: a dry run refuses what the study would, and own studies have figures."""

import re
import sys

import pytest

from moca.cli import main
from moca.studies import grid, launch, look, report
from tests.studies import synthetic

MINE = """
presets = ["raw"]
seeds = 2
films = []
[[blocks]]
env = "{env}"
agents = {agents}
noises = ["0", "0.05"]
steps = 2000
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A study of one's own, in the folder where commands run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(launch, "study", lambda *_, **__: pytest.fail("it was run"))
    monkeypatch.setattr(launch, "work", lambda *_, **__: pytest.fail("a job was run"))
    path = tmp_path / "mine.toml"
    path.write_text(MINE.format(env="CartpoleBalance", agents='["moca", "sac"]'))
    (tmp_path / "file").touch()
    (tmp_path / "thesis" / "cells").mkdir(parents=True)
    (tmp_path / "thesis" / "cells" / "table.csv").touch()
    (tmp_path / "nowhere.toml").write_text(MINE.format(env="Nowhere-v1", agents='["sac"]'))
    (tmp_path / "own.toml").write_text(MINE.format(env="own:Spring", agents='["sac"]'))
    synthetic.write(tmp_path / "other", grid.narrowed(grid.find("mine.toml"), seeds=3))
    monkeypatch.setitem(sys.modules, "ray", None)
    return path


@pytest.mark.parametrize("dry", [["--dry-run"], []])
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ["mine.toml", "--only", "nothing"],
            "only = 'nothing' is not a job of this study. Allowed: 0 to 1, or raw-Cart",
        ),
        (["mine.toml", "--only", "2"], "only = '2' is not a job of this study"),
        (["mine.toml", "--out", "other"], "other has another study (it differs in seeds): choose another --out"),
        (["mine.toml", "--out", "file"], "file exists and is not a directory: choose another"),
        (["mine.toml", "--out", "thesis"], "thesis is not empty and not a study directory (it contains cells)"),
        (["mine.toml", "--launcher", "ray"], "--launcher ray needs Ray: pip install 'moca-rl[ray]'"),
        (["mine.toml", "--ray-address", "head:6379"], "--ray-address is for --launcher ray"),
        (["mine.toml", "--launcher", "ray", "--only", "0"], "--only runs a job in this process"),
        (["nowhere.toml"], "Gymnasium has no Nowhere-v1"),
        (["own.toml"], "your own environment can only be used from Python"),
        (["mine.toml", "--set", "critic.lrr=1"], "there is no setting 'critic.lrr'"),
    ],
)
def test_a_dry_run_refuses_what_the_study_would(mine, capsys, arguments, told, dry):
    with pytest.raises(SystemExit) as stopped:
        main(["study", *arguments, *dry])
    assert stopped.value.code == 2
    assert told in capsys.readouterr().err
    assert not (mine.parent / "studies").exists()


def test_a_directory_is_looked_at_before_tasks_are_measured(mine, capsys, monkeypatch):
    monkeypatch.setattr(look, "complete", lambda *_: pytest.fail("they were measured"))
    for out in ("thesis", "file"):
        with pytest.raises(SystemExit):
            main(["study", "mine.toml", "--out", out])
        assert f"{out} " in capsys.readouterr().err


def test_a_dry_run_shows_the_jobs_that_would_be_run(mine, capsys):
    main(["study", "mine.toml", "--dry-run"])
    assert "4 cells in 2 jobs" in capsys.readouterr().out
    main(["study", "mine.toml", "--only", "1", "--dry-run"])
    told = capsys.readouterr().out
    assert "2 cells in 1 job; " in told
    assert "raw-CartpoleBalance-sac" in told
    assert "raw-CartpoleBalance-moca" not in told


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["a run"], "a run is a run directory, and this command draws studies: training draws the learning curve, in "
                    "a run/figures, and moca inspect 'a run' an episode"),
        (["toy", "--results", "other"], "--results is for the figures of a study, and toy is drawn without one: leave"),
    ],
)  # fmt: skip
def test_what_is_no_figure_of_a_study_is_said_before_anything_is_drawn(mine, arguments, told, capsys):
    (mine.parent / "a run").mkdir()
    (mine.parent / "a run" / "config.json").touch()
    with pytest.raises(SystemExit):
        main(["figure", *arguments, "--formats", "png"])
    assert told in capsys.readouterr().err
    assert not (mine.parent / "figures").exists()


def test_the_page_of_a_study_displays_tasks_without_their_prefix(tmp_path):
    (tmp_path / "own.toml").write_text(MINE.format(env="two:Two", agents='["sac"]'))
    synthetic.write(tmp_path / "own", grid.find(str(tmp_path / "own.toml")))
    page = report.write(tmp_path / "own").read_text()
    assert "SAC on two:Two (" in page
    assert ">two:Two, preset raw</caption>" in page
    assert '"title":"two:Two, ' in page
    assert '<th scope="row">two:Two</th>' in page
    shown = re.sub(r'"group":"[^"]*"|<pre.*?</pre>', "", page, flags=re.DOTALL)  # settings are in full
    assert "gymnasium:two" not in shown


def test_figures_of_ones_own_study(mine, capsys):
    with pytest.raises(SystemExit):
        main(["figure", "mine.toml", "--formats", "png"])
    assert "studies/mine does not exist: run moca study mine.toml first" in capsys.readouterr().err
    synthetic.write(mine.parent / "studies" / "mine", grid.find("mine.toml"))
    drawn = []
    for name in ("mine.toml", "studies/mine"):
        main(["figure", name, "--formats", "png"])
        drawn.append(capsys.readouterr().out.split())
    assert drawn[0] == drawn[1]
    assert "figures/learning-CartpoleBalance-raw.png" in drawn[0]
