"""Mutants follow the code: a formula that is rewritten would otherwise drop out of `make mutants` unnoticed."""

import pytest

from tests import mutants


@pytest.mark.parametrize("suite", mutants.SUITES)
def test_every_mutant_can_be_made(suite):
    folder, given, _ = mutants.SUITES[suite]
    found = [mutants.misplaced(mutants.ROOT / "src", folder, file, old) for file, old, _ in given]
    assert not list(filter(None, found))


def test_every_fix_of_run_directories_has_a_mutant():
    for fix in mutants.FIXES:
        assert sum(old.startswith(fix) for _, old, _ in mutants.DIRECTORIES) == 1, fix
