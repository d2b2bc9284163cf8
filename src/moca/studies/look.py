"""Settings for the tasks of a grid without a preset, measured in another process."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from moca.config import ConfigError, checked
from moca.envs.trust import SAFE_PATH, module_of, refuse_untrusted, remembered
from moca.names import GYMNASIUM, OWN, PLAYGROUND
from moca.studies import grid, results
from moca.studies.grid import Block, Grid

_CODE = """
import json, sys
from moca.config import ConfigError, plain
from moca.envs.defaults import defaults
from moca.envs.trust import import_module_of
from moca.extending import import_plugins
try:
    import_plugins()
    import_module_of(sys.argv[1])
    print(json.dumps(plain(defaults(sys.argv[1], flatten=sys.argv[2] == "True"))))
except ConfigError as error:
    sys.exit(str(error))
"""


# In place of measured settings: valid for any task, in a plan that is not run.
_PLACEHOLDERS = {
    "value.low": (-1.0,),
    "value.high": (1.0,),
    "value.lengthscales": (1.0,),
    "noise.scales": (1.0,),
}


def complete(plan: Grid, directory: Path, trust: bool = False, dry: bool = False) -> Grid:
    """Returns the grid with the settings that its tasks need; raises if a task does not exist.

    Settings measured earlier for the study in that directory are reused. Raises `ConfigError` for a
    task that would import a user's module, unless `trust` is given or was given before for that
    directory. If `dry`, Playground's tasks are not measured, since their physics takes long to
    compile: placeholders are enough for a plan.
    """
    for block in plan.blocks:
        if not trust and not remembered(directory, block.env):
            refuse_untrusted(block.env)
    seen: dict[tuple[str, bool], Mapping[str, Any]] = {}
    if (directory / results.PLAN).exists():
        seen = {_key(block): block.found for block in results.load_grid(directory).blocks if block.found}

    def look(block: Block) -> Mapping[str, Any]:
        if _key(block) not in seen:
            skipped = dry and block.env in PLAYGROUND and block.settings.keys().isdisjoint(_PLACEHOLDERS)
            seen[_key(block)] = _PLACEHOLDERS if skipped else _look(*_key(block))
        return seen[_key(block)]

    plan = grid.looked(plan, look)
    for block in plan.blocks:
        if not block.found and block.env.startswith((GYMNASIUM, OWN)) and module_of(block.env) is None:
            from moca.envs.named import named  # imports JAX

            named(*_key(block))
    return plan


def _key(block: Block) -> tuple[str, bool]:
    """Returns what the measured settings depend on: the task, and if observations are flattened."""
    return block.env, bool(checked({"env.flatten": block.settings.get("env.flatten", False)})["env.flatten"])


def _look(env: str, flatten: bool) -> Mapping[str, Any]:
    """Returns settings for an environment without a preset, from a short random rollout.

    The rollout runs on a CPU in a separate process, so this one does not occupy a device.
    """
    print(f"{env} has no preset: measuring ranges and scales in a short random rollout …", flush=True)
    done = subprocess.run(
        [sys.executable, "-c", _CODE, env, str(flatten)],
        env=os.environ | SAFE_PATH | {"JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        *_, last = done.stderr.strip().splitlines() or [f"the rollout ended with code {done.returncode}"]
        raise ConfigError(f"env = {env}: {last}")
    return json.loads(done.stdout.splitlines()[-1])
