"""Settings for the tasks of a grid that nobody tuned. Nothing here imports jax: another process looks at the tasks."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from moca.config import ConfigError
from moca.studies import grid, results
from moca.studies.grid import Grid

_CODE = """
import json, sys
from moca.config import ConfigError, plain
from moca.envs.defaults import defaults
try:
    print(json.dumps(plain(defaults(sys.argv[1]))))
except ConfigError as error:
    sys.exit(str(error))
"""


def complete(plan: Grid, directory: Path) -> Grid:
    """The grid with all that its tasks need; what the study in that directory found before is taken from there."""
    before: dict[str, Mapping[str, Any]] = {}
    if (directory / results.PLAN).exists():
        before = {block.env: block.found for block in results.load_grid(directory).blocks if block.found}
    seen: dict[str, Mapping[str, Any]] = {}

    def look(env: str) -> Mapping[str, Any]:
        if env not in seen:
            seen[env] = before.get(env) or _look(env)
        return seen[env]

    return grid.looked(plan, look)


def _look(env: str) -> Mapping[str, Any]:
    """On a CPU and in a process of its own, so that this one's devices stay free for the study."""
    print(f"taking a short look at {env}, on which nothing was tuned …", flush=True)
    done = subprocess.run(
        [sys.executable, "-c", _CODE, env], env=os.environ | {"JAX_PLATFORMS": "cpu"}, capture_output=True, text=True
    )
    if done.returncode:
        raise ConfigError(f"env = {env}: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(done.stdout.splitlines()[-1])
