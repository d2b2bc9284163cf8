"""One run on two cores is the run it would be on one: see `tests/two_cores.py`, which these start."""

import json
import os
import subprocess
import sys

import pytest


def outcomes(*arguments):
    run = subprocess.run(
        [sys.executable, "-m", "tests.two_cores", *arguments],
        capture_output=True, text=True, check=True, env={**os.environ, "JAX_NUM_CPU_DEVICES": "2"},
    )  # fmt: skip
    return json.loads(run.stdout.splitlines()[-1])


def check(found):
    assert found["compared"]
    for outcome in found["compared"].values():
        assert outcome["devices"] == [2, 1]
        assert outcome["difference"] < 1e-4
    assert max(found["repeated"], default=0) == 0


@pytest.fixture(scope="module")
def quick():
    return outcomes()


def test_the_overlap_changes_no_result(quick):
    """Weights, memory and metrics, with batches that hold the newest transition and several of them per decision."""
    check(quick)


@pytest.mark.slow
def test_the_overlap_changes_no_result_of_other_agents():
    """And the same run twice, and resumed, and beside another."""
    check(outcomes("slow"))


def test_only_what_can_overlap_does(quick):
    """Everything else is refused in a sentence that says why."""
    reasons = quick["cores"]
    assert reasons.pop("moca") == ""
    expected = {
        "somebody else's": "other is not one of the built-in agents",
        "no model": "bnaf without a filter has no model",
        "wide": "dynamics.width = 256 is above 128",
    }
    assert reasons.keys() == expected.keys()
    assert all(expected[name] in reason for name, reason in reasons.items())
