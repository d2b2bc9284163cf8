"""Additions of one's own: a class of V, a belief about the next state, an agent. Each is one call, and then a name.

What is registered can be used wherever a name is asked for: `--agent`, `--value`, `moca.train`, a study's grid. A new
closed form needs no name; it is a line in `moca.moments.CLOSED_FORMS`.
"""

import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from jaxtyping import Array, Key

from moca import config
from moca import moments as mm
from moca.agents import CLASSES, Agent
from moca.agents.quadratic import QuadraticAgent
from moca.backup import PREDICTIONS, PredictionRule
from moca.config import ConfigError
from moca.values import BASES, KINDS

PLUGINS = "MOCA_PLUGINS"  # the environment variable that names what is to be imported first
_IMPORTED: set[str] = set()


def register_value(
    name: str,
    make: Callable[[config.ValueConfig, int, Key[Array, ""]], mm.Function],
    bases: Sequence[str] = (),
) -> None:
    """Adds a class of V, for `value.kind`.

    Args:
        name: what the config calls it.
        make: V before it learns, zero everywhere, from the settings, the number of observed dimensions and a key.
        bases: those fields of the class in which V is not linear, where the class does not declare them itself by
            `mm.role`. The twins share them, and they learn at `value.basis_lr`; all other fields learn at `value.lr`.
    """
    _check(name, config.VALUES, "value.kind")
    KINDS[name] = make
    if bases:
        BASES[name] = tuple(bases)
    config.VALUES.append(name)


def register_prediction(name: str, prediction: PredictionRule) -> None:
    """Adds a quadratic agent that differs from MoCA in what it takes the next state to be.

    Args:
        name: what the config calls the agent.
        prediction: the distribution of s′, from the ensemble's mixture, a key and `dynamics.samples`, for one
            transition; it needs a closed form with the class of V.
    """
    _check(name, config.AGENTS, "agent")
    PREDICTIONS[name] = prediction
    _add_agent(name, QuadraticAgent)


def register_agent(name: str, agent: type[Agent]) -> None:
    """Adds an agent: a class with the methods of `moca.agents.Agent`, or one that changes some of `QuadraticAgent`.

    One derived from `QuadraticAgent` predicts s′ as MoCA does.
    """
    _check(name, config.AGENTS, "agent")
    if not (isinstance(agent, type) and issubclass(agent, Agent)):
        raise ConfigError(f"agent {name!r}: {agent!r} is no class derived from moca.agents.Agent")
    if issubclass(agent, QuadraticAgent):
        PREDICTIONS[name] = PREDICTIONS["moca"]
    _add_agent(name, agent)


def import_plugins() -> None:
    """Imports the modules and files that the environment variable MOCA_PLUGINS names, for what they register."""
    for each in plugins():
        try:
            _import(each)
        except ConfigError:
            raise
        except Exception as error:
            hint = f" Did you mean {each}.py?" if Path(f"{each}.py").is_file() else ""
            raise ConfigError(f"{PLUGINS}: cannot import {each}: {error}.{hint}") from error


def plugins() -> list[str]:
    """What that variable names, files by their whole path."""
    parts = filter(None, (part.strip() for part in os.environ.get(PLUGINS, "").split(",")))
    return [str(Path(part).resolve()) if part.endswith(".py") else part for part in parts]


def _import(name: str) -> None:
    """A module, or a file, which may import those that lie beside it."""
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


def _add_agent(name: str, agent: type[Agent]) -> None:
    CLASSES[name] = agent
    config.AGENTS.append(name)
    if issubclass(agent, QuadraticAgent):
        config.QUADRATIC_AGENTS.append(name)


def _check(name: str, taken: Sequence[str], setting: str) -> None:
    if name in taken or re.fullmatch(r"moca-mc-\d+", name):  # the latter are MC with so many samples, in studies
        raise ConfigError(f"{setting} = {name!r} exists already: choose another name")
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", name):
        raise ConfigError(f"{setting} = {name!r} must be made of small letters, digits and '-'")
