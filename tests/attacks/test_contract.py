"""What docs/reliability.md promises names tests that there are, and says which of them are slow."""

import ast
import re
import subprocess
import sys

import pytest

from tests.attacks.stub import ROOT

NAMED = re.compile(r"`([\w/]+\.py)(?:::(\w+))?`( \(slow\))?")


def promises():
    """The tests of each row of the tables: (file, function, whether it is said to be slow)."""
    tables = (ROOT / "docs" / "reliability.md").read_text().split("| what is done | what must hold | tests |\n")[1:]
    for table in tables:
        for row in table.split("\n\n")[0].splitlines()[1:]:
            yield row, NAMED.findall(row.rpartition(" | ")[2])


def marks(file):
    """The functions of a file, and the marks on each of them or on all; those of single cases are left out."""
    tree = ast.parse((ROOT / "tests" / file).read_text())
    assigned = [node for node in tree.body if isinstance(node, ast.Assign)]
    shared = [node.value for node in assigned if ast.unparse(node.targets[0]) == "pytestmark"]
    return {
        node.name: {re.match(r"pytest\.mark\.(\w+)|", ast.unparse(each))[1] for each in (*node.decorator_list, *shared)}
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
    }


def test_every_promise_names_its_tests():
    found = list(promises())
    assert len(found) > 25
    for row, named in found:
        functions = [(file, function, slow) for file, function, slow in named if file != "mutants.py"]
        assert functions, row
        for file, function, slow in functions:
            assert function.startswith("test_"), row
            assert function in marks(file), f"{file} has no {function}"
            assert "skip" not in marks(file)[function], function
            assert ("slow" in marks(file)[function]) == bool(slow), (
                f"{function} is slow, or is not, unlike the page says"
            )


@pytest.mark.slow
def test_every_test_that_is_named_is_collected():
    named = {f"tests/{file}::{function}" for _, tests in promises() for file, function, _ in tests if function}
    command = [sys.executable, "-m", "pytest", "-o", "addopts=", "--collect-only", "-q", *sorted(named)]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout[-2000:]
    assert {line.split("[")[0] for line in found.stdout.splitlines() if "::" in line} == named
