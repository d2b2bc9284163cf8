"""What docs/reliability.md promises names a test that there is."""

import re

from tests.attacks.stub import ROOT


def test_every_promise_names_a_test():
    tables = (ROOT / "docs" / "reliability.md").read_text().split("| what is done | what must hold | tests |\n")[1:]
    rows = [row for table in tables for row in table.split("\n\n")[0].splitlines()[1:]]
    assert len(rows) > 25
    for row in rows:
        named = re.findall(r"`([\w/]+\.py)`", row.rpartition(" | ")[2])
        assert named, row
        assert all((ROOT / "tests" / name).is_file() for name in named), row
