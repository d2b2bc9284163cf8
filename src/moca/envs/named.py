"""Environments by their names in a config."""

import sys
from typing import Any

from moca.config import ENVS, ConfigError, full_name, shown
from moca.envs.environment import Environment, Spaces
from moca.envs.playground import Playground
from moca.envs.trust import refuse_untrusted
from moca.names import GYMNASIUM, OWN


def named(name: str) -> Spaces:
    """Returns the environment of that name: Playground's, a registered one, or Gymnasium's.

    Raises if the name would import a module that has not been imported yet: see `moca.envs.trust`.
    """
    name = full_name(name)
    if name.startswith(GYMNASIUM):
        refuse_untrusted(name)
        from moca.envs.gymnasium import Gymnasium  # an optional package

        return Gymnasium(name.removeprefix(GYMNASIUM))
    if name.startswith(OWN):
        raise ConfigError(
            f"env.name = {name!r}: your own environment can only be used from Python, as in "
            "moca.MoCA(MyEnvironment()).learn(steps) or moca.load(path, env=MyEnvironment())"
        )
    if (make := ENVS.get(name)) is None:
        return Playground(name)
    if not isinstance(env := make(), Spaces):
        raise ConfigError(
            f"env.name = {name!r} is registered with a function that returns {shown(env)}, which is not an environment"
        )
    return env


def as_environment(env: Any) -> Any:
    """Adapts an environment of Gymnasium; returns anything else unchanged."""
    gymnasium = sys.modules.get("gymnasium")  # already loaded if `env` is one of its environments
    if gymnasium is None or not isinstance(env, gymnasium.Env):
        return env
    from moca.envs.gymnasium import Gymnasium

    return Gymnasium(env)


def refuse_unknown(name: str) -> None:
    """Raises if `named` would fail. Playground's names were checked with the config."""
    if name.startswith((GYMNASIUM, OWN)) or ENVS.get(name):
        from moca.envs.check import refuse_broken  # imported late: it imports this module

        if isinstance(env := named(name), Environment):
            refuse_broken(env)
