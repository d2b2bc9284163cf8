"""What --out may name: a refusal is told before anything is loaded, and never says to remove the user's own files."""

import os
from unittest.mock import Mock

import pytest
from rich.console import Console

from moca import demo
from moca.cli import main
from moca.config import ConfigError
from moca.runs import export
from moca.runs import run as runs
from moca.runs.inspection import Inspection
from moca.studies import launch
from tests.runs.test_cli import refused, run  # noqa: F401, a fixture


@pytest.mark.parametrize("command", ["export", "inspect"])
@pytest.mark.parametrize(
    ("put", "kind"), [(os.mkdir, "a folder"), (lambda path: os.symlink("/tmp", path), "a symbolic link")]
)
def test_a_folder_is_not_to_be_removed(run, tmp_path, capsys, monkeypatch, command, put, kind):  # noqa: F811
    monkeypatch.setattr(runs, "load", lambda *_, **__: pytest.fail("it was loaded"))
    put(out := tmp_path / "mine")
    told = refused(capsys, command, run, "--out", out)
    assert f"{out} should be an ordinary file, but it is {kind}: choose another --out" in told
    assert os.path.lexists(out)


@pytest.mark.parametrize("name", ["policy.txt", "policy", "policy.NPZ", ".npz"])
def test_an_exported_policy_has_a_name_of_its_kind(run, tmp_path, capsys, monkeypatch, name):  # noqa: F811
    with pytest.raises(ConfigError, match=f"{name} must end in .npz"):
        export.write(tmp_path / name, Mock(), None, {})
    monkeypatch.setattr(runs, "load", lambda *_, **__: pytest.fail("it was loaded"))
    told = refused(capsys, "export", run, "--out", tmp_path / name)
    assert f"{name} must end in .npz (for NumPy) or .onnx (an ONNX model)" in told
    assert not (tmp_path / name).exists()


def test_a_folder_in_the_place_of_the_page_is_refused_before_anything_is_loaded(run, capsys, monkeypatch):  # noqa: F811
    monkeypatch.setattr(runs, "load", lambda *_, **__: pytest.fail("it was loaded"))
    (run / "inspect.html").mkdir()
    assert "inspect.html should be an ordinary file, but it is a folder: remove it" in refused(capsys, "inspect", run)


def test_a_page_is_not_saved_to_a_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(Inspection, "html", "")
    with pytest.raises(ConfigError, match="it is a folder: choose another file"):
        Inspection("env", 0, (), Mock(), ()).save(tmp_path)


@pytest.fixture
def undrawn(monkeypatch):
    """The names of the folders in which the demo drew."""
    drawn = []
    monkeypatch.setattr(demo, "_table", lambda: drawn.append("table") or "")
    monkeypatch.setattr(demo.toy, "draw", lambda folder: drawn.append(folder.name) or [folder / "figure1.png"])
    monkeypatch.setattr(launch, "study", Mock(side_effect=ConfigError("drawn")))
    return drawn


@pytest.mark.parametrize("name", ["chapter.tex", "pendulum/mine.py", "config.json", "moca-and-ce.png"])
def test_a_demo_does_not_write_among_other_files(tmp_path, undrawn, capsys, name):
    (tmp_path / "mine" / name).parent.mkdir(parents=True)
    (tmp_path / "mine" / name).touch()
    told = refused(capsys, "demo", "--out", tmp_path / "mine")
    assert f"{tmp_path / 'mine'} is not empty and not a demo directory (it contains {name.split('/')[0]})" in told
    assert not undrawn


def test_a_demo_is_not_written_to_a_file_nor_into_another_study(tmp_path, undrawn, capsys):
    (tmp_path / "file").touch()
    assert "file exists and is not a directory" in refused(capsys, "demo", "--out", tmp_path / "file")
    (tmp_path / "mine" / "pendulum").mkdir(parents=True)
    (tmp_path / "mine" / "figure1.svg").touch()
    (tmp_path / "mine" / "pendulum" / "data.csv").touch()
    assert "pendulum is not empty and not a study directory" in refused(capsys, "demo", "--out", tmp_path / "mine")
    assert not undrawn


@pytest.mark.parametrize("names", [[], [".DS_Store"], ["figure1.pdf"], ["figure1.svg.7.writing"]])
def test_a_demo_that_was_interrupted_goes_on(tmp_path, undrawn, names):
    for name in names:
        (tmp_path / name).touch()
    with pytest.raises(ConfigError, match="drawn"):
        demo.run(tmp_path, Console(quiet=True))
    assert undrawn == ["table", tmp_path.name]
    with pytest.raises(SystemExit):
        main(["demo", "--out", str(tmp_path)])
