"""Additions of one's own: an agent, a belief about the next state, a class of V, a noise, an environment.

Each is one call, and then a name that can be used wherever one is asked for: `--agent`, `--value`, `--noise`, `--env`,
`moca.train`, a study's grid. Our own are added by the same functions, in `moca.config.registry`. A new closed form
needs no name; it is a line in `moca.moments.CLOSED_FORMS`.
"""

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxtyping import Array, Float, Key

from moca import config, presets
from moca import moments as mm
from moca.agents import Agent
from moca.agents.quadratic import QuadraticAgent
from moca.backup import PredictionRule
from moca.config import ConfigError, registry
from moca.envs.environment import Spaces
from moca.looks import Look

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
    registry.add_value(name, make, bases)


def register_noise(
    name: str,
    deviation: Callable[
        [Float[Array, ""], Float[Array, ""], tuple[float, ...], Float[Array, "*n obs"]], Float[Array, "*n obs"]
    ],
    scaled: bool = False,
) -> None:
    """Adds a Gaussian noise on observations, for `noise.kind`.

    Args:
        name: what the config calls it.
        deviation: the standard deviation of each dimension (or one of them for all, as an axis of length one) from
            `noise.sigma`, `noise.sigma_min`, `noise.scales` and what would be observed without noise. It must be sigma
            wherever that is equal to sigma_min: a study has a constant level in this way.
        scaled: whether it needs `noise.scales`, a number for each observed dimension; it gets () otherwise.
    """
    registry.add_noise(name, deviation, scaled)


def register_env(name: str, make: Callable[[], Spaces], settings: Mapping[str, Any] | None = None) -> None:
    """Adds an environment, for `env.name`.

    Args:
        name: what the config calls it.
        make: its class, or a function that makes one.
        settings: those that hold for it whatever the preset, by dotted name: `value.low`, `value.high`,
            `value.lengthscales`, `noise.scales`. Without any they are taken from a short look at it.
    """
    registry.add_env(name, make)
    if settings:
        presets.ENVIRONMENTS[name] = dict(settings)


def register_prediction(name: str, prediction: PredictionRule, look: Look | None = None) -> None:
    """Adds a quadratic agent that differs from MoCA in what it takes the next state to be.

    Args:
        name: what the config calls the agent.
        prediction: the distribution of s′, from the ensemble's mixture, a key and `dynamics.samples`, for one
            transition; it needs a closed form with the class of V.
        look: its name and line in figures and on pages; without one it is grey and goes by its own name.
    """
    registry.add_agent(name, QuadraticAgent, prediction, look)


def register_agent(
    name: str, agent: type[Agent], look: Look | None = None, settings: Mapping[str, Mapping[str, Any]] | None = None
) -> None:
    """Adds an agent: a class with the methods of `moca.agents.Agent`, or one that changes some of `QuadraticAgent`.

    One derived from `QuadraticAgent` predicts s′ as MoCA does.

    Args:
        name: what the config calls it.
        agent: the class.
        look: as for `register_prediction`.
        settings: by preset, those in which the agent's differ from what the preset has for all.
    """
    if not (isinstance(agent, type) and issubclass(agent, Agent)):
        raise ConfigError(f"agent {name!r}: {agent!r} is no class derived from moca.agents.Agent")
    for preset in settings or {}:
        presets.refuse_unknown(preset)
    quadratic = issubclass(agent, QuadraticAgent)
    registry.add_agent(name, agent, "moca.backup:one_gaussian" if quadratic else None, look, quadratic)
    for preset, own in (settings or {}).items():
        presets.PRESETS[preset][name] = dict(own)


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
    """Returns the modules and files that the variable names, files by their whole path."""
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
