"""The pages about sensors and about the value of information show what lies in results/."""

import importlib.util
import json

import pytest

from tests.conftest import ROOT


def script(name, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "results" / name)  # as where it is started as a script
    spec = importlib.util.spec_from_file_location(name, ROOT / "results" / name / "run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("name", "page", "rows"), [("sensors", "sensors", 12), ("light_dark", "light-dark", 8)])
def test_the_table_of_the_page_is_that_of_the_results(name, page, rows, monkeypatch):
    text = (ROOT / "docs" / f"{page}.md").read_text()
    lines = script(name, monkeypatch).table()
    assert len(lines) == rows
    for line in lines:
        assert line in text


def test_the_rule_of_the_light_dark_task_is_met(monkeypatch):
    """With the width in V at least 90 % of the optimum, without it at most 75 %; nor can any policy that is blind."""
    found = json.loads((ROOT / "results" / "light_dark" / "summary.json").read_text())
    assert found["moca, mean and width"]["percent"] >= 90
    assert found["moca, mean alone"]["percent"] <= 75
    assert script("light_dark", monkeypatch).share(found["best_blind"], found) <= 75


def test_the_page_says_what_the_filter_costs():
    found = json.loads((ROOT / "results" / "sensors" / "cost.json").read_text())
    text = " ".join((ROOT / "docs" / "sensors.md").read_text().split())
    costs = [found[case]["ratio"] for case in ("learned, full", "learned, diagonal")]
    assert f"takes {costs[0]:.2f} times the CPU time" in text
    assert f"{costs[1]:.2f} times with diagonals" in text
    assert costs[0] <= 1.3
