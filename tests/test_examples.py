"""The tutorials that are scripts run, with fewer steps where they train. Notebooks run in CI: tools/notebooks.py."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TUTORIALS = {
    "own_value.py": (["2000"], "seed 0: return"),
    "control_loop.py": (["3"], "300 decisions at 100 Hz, from NumPy alone"),
    "reading_results.py": ([str(ROOT / "results" / "degradation")], "report.html"),
}


LONG = ("own_value.py",)  # it compiles the whole of a preset


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in LONG else ()) for name in TUTORIALS]
)
def test_a_tutorial_runs(name, tmp_path):
    arguments, said = TUTORIALS[name]
    command = [sys.executable, str(ROOT / "examples" / name), *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert said in done.stdout
    if name == "control_loop.py":
        lost, missed, held = map(int, re.search(r"lost: (\d+), .*missed: (\d+), .*held: (\d+)", done.stdout).groups())
        assert lost > 0
        assert missed > 0
        assert held < lost
        assert float(done.stdout.split()[-1]) > 0.5  # the pole stays up, even on a busy machine


def test_every_script_is_tried():
    plugins = {"ramp.py"}  # in test_extending.py
    assert {path.name for path in (ROOT / "examples").glob("*.py")} == {*TUTORIALS} | plugins
