"""Environments by the name a config has for them."""

import sys
from typing import Any

from moca.config import ENVS, ConfigError, full_name, shown
from moca.envs.environment import Environment, Spaces
from moca.envs.playground import Playground
from moca.envs.trust import refuse_untrusted
from moca.names import GYMNASIUM, OWN


def named(name: str) -> Spaces:
    """The environment of that name: one of Playground's, one that was registered, or Gymnasium's.

    One that would import a module of its own is refused unless that was imported before: see `moca.envs.trust`.
    """
    name = full_name(name)
    if name.startswith(GYMNASIUM):
        refuse_untrusted(name)
        from moca.envs.gymnasium import Gymnasium  # an optional package

        return Gymnasium(name.removeprefix(GYMNASIUM))
    if name.startswith(OWN):
        raise ConfigError(
            f"env.name = {name!r}: an environment of your own is used from Python, as by "
            "moca.MoCA(MyEnvironment()).learn(steps) or moca.load(path, env=MyEnvironment())"
        )
    if (make := ENVS.get(name)) is None:
        return Playground(name)
    if not isinstance(env := make(), Spaces):
        raise ConfigError(f"env.name = {name!r} is registered as what makes {shown(env)}, which is no environment")
    return env


def as_environment(env: Any) -> Any:
    """An environment as ours: one of Gymnasium's is adapted, anything else is returned as it is."""
    gymnasium = sys.modules.get("gymnasium")  # which is loaded if there is one of its environments
    if gymnasium is None or not isinstance(env, gymnasium.Env):
        return env
    from moca.envs.gymnasium import Gymnasium

    return Gymnasium(env)


def refuse_unknown(name: str) -> None:
    """Raises, before anything is written, where that would fail; Playground's names were checked with the config."""
    if name.startswith((GYMNASIUM, OWN)) or ENVS.get(name):
        from moca.envs.check import refuse_broken  # which imports this file

        if isinstance(env := named(name), Environment):
            refuse_broken(env)
