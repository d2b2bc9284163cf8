"""The committed studies are whole, and everything drawn or written from them is what the code makes of them now."""

import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import moca
from moca.paper.grids import GRIDS
from moca.studies import grid, results

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["cartpole", "pendulum"])
def test_every_cell_is_there(name):
    directory = ROOT / "results" / name
    study = GRIDS[name]
    assert results.load_grid(directory) == study
    table = moca.load_results(directory)
    cells = table.groupby(["preset", "env", "agent", "noise"])
    asked = {(j.preset, j.config.env.name, j.agent, noise) for j in grid.plan(study) for noise in j.noises}
    assert set(cells.groups) == asked
    for _, cell in cells:
        assert sorted(cell["seed"].unique()) == list(range(1000, 1010))
        assert (cell.groupby("seed")["step"].count() == 50).all()
        assert cell["step"].max() == study.blocks[0].steps
    assert set(results.load_origin(directory)) == {job.name for job in grid.plan(study)}


@pytest.mark.parametrize("asked", [["--quick"], pytest.param([], marks=pytest.mark.slow)], ids=["quick", "whole"])
def test_figures_pages_and_claims_are_what_the_tables_give(asked):
    """Byte for byte, with the versions that are pinned."""
    pinned = dict(re.findall(r"^([\w-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), flags=re.MULTILINE))
    for package in ("matplotlib", "pandas"):
        if pinned[package] != version(package):
            pytest.skip(f"{package} is {version(package)} here; the figures were drawn with {pinned[package]}")
    command = [sys.executable, "tools/results.py", "--check", *asked]
    check = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert check.returncode == 0, check.stdout + check.stderr
