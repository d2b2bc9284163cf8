"""Programs that train must not call LAPACK: see `moca.moments.linear`."""

import re
import subprocess
import sys

import pytest

from moca.drivers import ScanTrainer
from tests import probes

PLANAR = probes.Drift(action_low=(-1.0, -1.0), action_high=(1.0, 1.0))  # an action for each dimension
VALUE = {"value__low": (-1.0,) * 2, "value__high": (1.0,) * 2, "value__lengthscales": (1.0,) * 2, "value__bases": 8}
FILTER = {"agent": "moca", "belief__filter": True, "belief__noise": "learned", "belief__covariance": "full"}


@pytest.mark.parametrize(
    "settings",
    [
        FILTER,
        pytest.param({**FILTER, "dynamics__covariance": "full"}, marks=pytest.mark.slow),
        {"agent": "moca", "dynamics__covariance": "full", "critic__curvature": "full"},
        pytest.param({"agent": "bnaf", "critic__curvature": "full", "critic__head": "slope"}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_training_calls_no_lapack(settings):
    """See `moca.moments.linear`: programs that are spread over several cores could hang there."""
    trainer = ScanTrainer([probes.tiny(**VALUE, **settings)] * 2, (0, 1), PLANAR)
    calls = {name for each in trainer.lowered() for name in re.findall(r"custom_call @(\w+)", each.as_text())}
    assert not {name for name in calls if name.startswith(("lapack", "blas"))}


@pytest.mark.slow
def test_ten_runs_with_whole_covariances_come_to_an_end(tmp_path):
    """Each of these hung in its first episodes with two cores, as long as it called LAPACK."""
    command = [sys.executable, "-m", "moca", "train", "--env", "CartpoleBalance", "--steps", "3000", "--seeds", "10"]
    small = [f"--set={each}" for each in ("critic.width=16", "dynamics.width=16", "dynamics.covariance=full")]
    ended = subprocess.run([*command, *small, f"--out={tmp_path / 'runs'}", "--device=cpu"], timeout=400)
    assert ended.returncode == 0
