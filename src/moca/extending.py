"""Registration of your own agents, predictions of s′, classes of V, noises and environments.

Each takes one call. The registered name can then be used everywhere: `--agent`, `--value`,
`--noise`, `--env`, `moca.train`, the grid of a study. The built-in ones are added by the same
functions, in `moca.config.registry`. A new closed form needs no name; add it to
`moca.moments.CLOSED_FORMS`.
"""

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from moca import presets
from moca.agents import Agent
from moca.agents.quadratic import QuadraticAgent
from moca.backup import PredictionRule
from moca.config import ConfigError, registry
from moca.config.registry import add_noise as register_noise
from moca.config.registry import add_value as register_value
from moca.envs.environment import Spaces
from moca.looks import Look

__all__ = [
    "import_plugins",
    "plugins",
    "register_agent",
    "register_env",
    "register_noise",
    "register_prediction",
    "register_value",
]

PLUGINS = "MOCA_PLUGINS"  # environment variable with modules to import first
_IMPORTED: set[str] = set()


def register_env(name: str, make: Callable[[], Spaces] | str, settings: Mapping[str, Any] | None = None) -> None:
    """Registers an environment, for `env.name`.

    Args:
        name: Its name in a config.
        make: Its class, or a function that creates it; or a string `module:name`.
        settings: Settings for this environment in every preset, by dotted name: `value.low`,
            `value.high`, `value.lengthscales`, `noise.scales`. If not given, they are measured in a
            short random rollout.
    """
    registry.add_env(name, make)
    if settings:
        presets.ENVIRONMENTS[name] = dict(settings)


def register_prediction(name: str, prediction: PredictionRule, look: Look | None = None) -> None:
    """Registers a quadratic agent that differs from MoCA in its prediction of the next state.

    Args:
        name: The agent's name in a config.
        prediction: Returns the distribution of s′ for one transition, from the ensemble's mixture,
            a key and `dynamics.samples`. It needs a closed form with the class of V.
        look: Its label and line in figures and pages; by default a grey line with the agent's name.
    """
    registry.add_agent(name, QuadraticAgent, prediction, look)


def register_agent(
    name: str, agent: type[Agent], look: Look | None = None, settings: Mapping[str, Mapping[str, Any]] | None = None
) -> None:
    """Registers an agent: a subclass of `moca.agents.Agent`, or of `QuadraticAgent`.

    A subclass of `QuadraticAgent` predicts s′ as MoCA does.

    Args:
        name: Its name in a config.
        agent: The class.
        look: As in `register_prediction`.
        settings: By preset, the settings in which this agent differs from the preset's general
            ones.
    """
    if not (isinstance(agent, type) and issubclass(agent, Agent)):
        raise ConfigError(f"agent {name!r}: {agent!r} is not a subclass of moca.agents.Agent")
    for preset in settings or {}:
        presets.refuse_unknown(preset)
    quadratic = issubclass(agent, QuadraticAgent)
    registry.add_agent(name, agent, "moca.backup:one_gaussian" if quadratic else None, look, quadratic)
    for preset, own in (settings or {}).items():
        presets.PRESETS[preset][name] = dict(own)


def import_plugins() -> None:
    """Imports the modules and files in the environment variable MOCA_PLUGINS."""
    for each in plugins():
        try:
            _import(each)
        except ConfigError:
            raise
        except Exception as error:
            hint = f" Did you mean {each}.py?" if Path(f"{each}.py").is_file() else ""
            raise ConfigError(f"{PLUGINS}: cannot import {each}: {error}.{hint}") from error


def plugins() -> list[str]:
    """Returns the modules and files listed in MOCA_PLUGINS, files as absolute paths."""
    parts = filter(None, (part.strip() for part in os.environ.get(PLUGINS, "").split(",")))
    return [str(Path(part).resolve()) if part.endswith(".py") else part for part in parts]


def _import(name: str) -> None:
    """Imports a module, or a file, which may import its neighbours."""
    if not name.endswith(".py"):
        importlib.import_module(name)
        return
    if name in _IMPORTED:
        return
    path = Path(name)
    known_as = f"moca_plugin_{path.stem}" if path.stem in sys.modules else path.stem
    spec = importlib.util.spec_from_file_location(known_as, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[known_as] = module
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[known_as]
        raise
    _IMPORTED.add(name)
