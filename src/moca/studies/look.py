"""Settings for the tasks of a grid without a preset, measured in another process."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from moca import presets
from moca.config import ConfigError, checked, plain
from moca.envs.trust import SAFE_PATH, module_of, refuse_untrusted, remembered
from moca.names import GYMNASIUM, OWN, PLAYGROUND
from moca.studies import grid, results
from moca.studies.grid import Grid

_CODE = """
import json, sys
from moca.config import ConfigError, plain
from moca.envs.defaults import measured
from moca.envs.trust import import_module_of
from moca.extending import import_plugins
try:
    import_plugins()
    import_module_of(sys.argv[2])
    print(json.dumps(plain(measured(*sys.argv[1:3], json.loads(sys.argv[3])))))
except ConfigError as error:
    sys.exit(str(error))
"""


# In place of measured settings: valid for any task, in a plan that is not run.
_PLACEHOLDERS = {
    "value.low": (-1.0,),
    "value.high": (1.0,),
    "value.lengthscales": (1.0,),
    "noise.scales": (1.0,),
    "sensor.scales": (1.0,),
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
    seen: dict[tuple[Any, ...], Mapping[str, Any]] = {}
    if (directory / results.PLAN).exists():
        held = results.load_grid(directory)
        asked = ((block, grid.to_measure(held, block)) for block in held.blocks if block.found)
        seen = {_key(preset, block.env, settings): block.found for block, (preset, settings) in asked if preset}

    def look(preset: str, env: str, settings: Mapping[str, Any]) -> Mapping[str, Any]:
        if (key := _key(preset, env, settings)) not in seen:
            free = settings.keys().isdisjoint((*_PLACEHOLDERS, "sensor.observed"))
            seen[key] = _PLACEHOLDERS if dry and env in PLAYGROUND and free else _look(preset, env, settings)
        return seen[key]

    plan = grid.looked(plan, look)
    for block in plan.blocks:
        if not block.found and block.env.startswith((GYMNASIUM, OWN)) and module_of(block.env) is None:
            _named(block.env, block.settings)
    return plan


def _key(preset: str, env: str, settings: Mapping[str, Any]) -> tuple[Any, ...]:
    """Returns what the measured settings depend on."""
    how = presets.how_to_measure(preset, env, settings)
    how["repeat"] *= bool(how["history"])  # without a history it makes no difference
    return env, presets.lacks(preset, env, settings), tuple(how.items())


def _named(env: str, settings: Mapping[str, Any]) -> None:
    """Raises if there is no such environment."""
    from moca.envs.named import named  # imports JAX

    named(env, checked({"env.flatten": settings.get("env.flatten", False)})["env.flatten"])


def _look(preset: str, env: str, settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the settings that a config takes from an environment, as in training.

    A random rollout runs on a CPU in a separate process, so this one does not occupy a device.
    """
    given = json.dumps(plain(checked(settings)))
    if presets.lacks(preset, env, settings) - {presets.START}:
        if env.startswith((GYMNASIUM, OWN)) and module_of(env) is None:
            _named(env, settings)
        print(f"{env} has no preset: measuring ranges and scales in a short random rollout …", flush=True)
    elif presets.lacks_length(env, settings) and module_of(env):
        print(f"{env}: looking for its time limit …", flush=True)
    done = subprocess.run(
        [sys.executable, "-c", _CODE, preset, env, given],
        env=os.environ | SAFE_PATH | {"JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        *_, last = done.stderr.strip().splitlines() or [f"the rollout ended with code {done.returncode}"]
        raise ConfigError(f"env = {env}: {last}")
    return json.loads([line for line in done.stdout.splitlines() if line.startswith("{")][-1])
