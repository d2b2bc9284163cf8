"""results/planning/pilco.py judges by its rule, and docs/planning.md says what pilco.json holds."""

import importlib
import json
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
CELLS = json.loads((ROOT / "results" / "planning" / "pilco.json").read_text())


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "results" / "planning")
    return importlib.import_module("pilco")


def test_solved_is_the_first_of_five_good_evaluations(script):
    lucky = [10, 0, 10, 10, 10, 10, 0, 9, 9, 10, 9, 10, 0]
    never = [8] * 13
    assert script.solved(np.array([lucky, never]).T) == [32.0, None]


@pytest.mark.parametrize("name", CELLS)
def test_the_page_has_the_seconds_of_the_file(name, script):
    cell = CELLS[name]
    assert cell["settings"] == json.loads(json.dumps(script.CELLS[name][2]))
    assert script.solved(np.array(cell["held"]).T) == cell["solved"]
    times = sorted(each for each in cell["solved"] if each is not None)
    page = (ROOT / "docs" / "planning.md").read_text()
    assert ", ".join(f"{each:.0f}" for each in times) in page
