"""Environments by their names in a config."""

import sys
from collections.abc import Callable
from typing import Any

from moca.config import ENVS, ConfigError, EnvConfig, checked, full_name, may_be_on_host, refuse_physics, shown
from moca.envs.environment import Spaces
from moca.envs.mujoco import MuJoCo
from moca.envs.playground import Playground
from moca.envs.trust import refuse_untrusted
from moca.names import GYMNASIUM, MJX, OWN


def named(name: str, flatten: bool = False, physics: str = MJX) -> Spaces:
    """Returns the environment of that name: Playground, registered, Gymnasium, or a class.

    Raises if the name would import a module that has not been imported yet: see `moca.envs.trust`.

    Args:
        name: The name in a config.
        flatten: If True, observations of several parts of a Gymnasium environment are flattened.
        physics: What simulates Playground's tasks, as `env.physics`.
    """
    name = full_name(name)
    refuse_physics(name, checked({"env.physics": physics})["env.physics"])
    if name.startswith(GYMNASIUM):
        refuse_untrusted(name)
        module, _, last = name.removeprefix(GYMNASIUM).rpartition(":")
        held = getattr(sys.modules.get(module), last, None)
        if isinstance(held, type) and issubclass(held, Spaces):  # one of ours, by its class
            return _made(name, held)
        from moca.envs.gymnasium import Gymnasium  # an optional package

        return Gymnasium(name.removeprefix(GYMNASIUM), flatten=flatten)
    if name.startswith(OWN):
        raise ConfigError(
            f"env.name = {name!r}: your own environment can only be used from Python, as in "
            "moca.MoCA(MyEnvironment()).learn(steps) or moca.load(path, env=MyEnvironment())"
        )
    if (make := ENVS.get(name)) is None:
        return Playground(name) if physics == MJX else MuJoCo(name)
    if not isinstance(env := make(), Spaces):
        raise ConfigError(
            f"env.name = {name!r} is registered with a function that returns {shown(env)}, which is not an environment"
        )
    return env


def _made(name: str, kind: Callable[[], Spaces]) -> Spaces:
    try:
        return kind()
    except Exception as error:  # a user's class may raise anything
        raise ConfigError(f"env.name = {name!r} cannot be made: it raises {type(error).__name__}: {error}") from None


def is_gymnasiums(env: Any) -> bool:
    """Returns True if `env` is an environment of Gymnasium."""
    gymnasium = sys.modules.get("gymnasium")  # already loaded if `env` is one of its environments
    return gymnasium is not None and isinstance(env, gymnasium.Env)


def as_environment(env: Any, flatten: bool = False) -> Any:
    """Adapts an environment of Gymnasium; returns anything else unchanged."""
    if not is_gymnasiums(env):
        return env
    from moca.envs.gymnasium import Gymnasium

    return Gymnasium(env, flatten=flatten)


def configured(env: EnvConfig) -> Spaces:
    """Returns the environment that is named in a config."""
    return named(env.name, env.flatten, env.physics)


def found(env: EnvConfig) -> Spaces | None:
    """Returns the configured environment; None for Playground's, checked with the config."""
    return configured(env) if may_be_on_host(env.name) else None
