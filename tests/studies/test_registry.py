"""What a package adds is found on the command line, in figures and on the page; studies without any do as well."""

import pytest
from markupsafe import Markup

from moca import cli
from moca.studies import curves, grid, registry, report
from tests.studies import synthetic

BLOCK = grid.Block("CartpoleBalance", ("sac", "moca"), ("0.05",), 50_000)
OWN = grid.Grid("own", (BLOCK,), presets=("tuned",), seeds=10)


@pytest.fixture
def alone(monkeypatch):
    """A registry without the paper."""
    registry.grids()
    for name, empty in (("_GRIDS", {}), ("_TASKS", {}), ("_FIGURES", {}), ("_SECTIONS", [])):
        monkeypatch.setattr(registry, name, empty)


def study(tmp_path):
    return synthetic.write(tmp_path / "study", OWN)


def section(table):
    return registry.Section("mine", "Mine", "My own words", Markup("<p>so</p>"), Markup("<p>it is</p>"))


def nothing(folder, formats):
    return [folder / f"nothing.{formats[0]}"]


def test_nothing_is_needed(alone, tmp_path):
    main = report.write(study(tmp_path)).read_text().split("<main>")[1].split("<script")[0]
    assert "claims" not in main
    assert " solved" not in main
    assert not registry.task("PendulumSwingup").count([900.0])
    with pytest.raises(grid.ConfigError, match="is unknown"):
        grid.find("cartpole")


def test_what_is_added_is_found(alone, tmp_path, capsys):
    drawn = registry.Figure("of nothing", f"{__name__}:nothing")
    task = registry.Task(solved=850.0, figure="mine", noises=frozenset({"0.05"}))
    registry.add(
        grids={"own": OWN}, tasks={"CartpoleBalance": task}, figures={"nothing": drawn}, section=f"{__name__}:section"
    )
    assert grid.find("own") is OWN
    directory = study(tmp_path)
    page = report.write(directory).read_text()
    assert '<a href="#mine">Mine</a>' in page
    assert '<h2 id="mine">My own words</h2>\n<p>it is</p>' in page
    assert " of 10 solved" in page
    assert "mine-tuned.svg" in [path.name for path in curves.draw(directory, tmp_path / "figures", ("svg",))]
    cli.main(["figure", "nothing", "--out", str(tmp_path), "--formats", "svg"])
    assert str(tmp_path / "nothing.svg") in capsys.readouterr().out
