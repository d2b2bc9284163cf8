"""The page about sensors shows what lies in results/."""

import importlib.util

from tests.conftest import ROOT


def test_the_table_of_the_page_is_that_of_the_results():
    path = ROOT / "results" / "sensors" / "run.py"
    spec = importlib.util.spec_from_file_location("sensors", path)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    page = (ROOT / "docs" / "sensors.md").read_text()
    lines = script.table()
    assert len(lines) == 12
    for line in lines:
        assert line in page
