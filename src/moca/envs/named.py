"""Environments by the name a config has for them."""

import sys
from collections.abc import Callable
from typing import Any

from moca.config import ENVS, ConfigError, full_name, may_be_on_host, shown
from moca.envs.environment import Spaces
from moca.envs.playground import Playground
from moca.envs.trust import refuse_untrusted
from moca.names import GYMNASIUM, OWN


def named(name: str, flatten: bool = False) -> Spaces:
    """The environment of that name: one of Playground's, one that was registered, Gymnasium's, or of a class.

    One that would import a module of its own is refused unless that was imported before: see `moca.envs.trust`.

    Args:
        name: as in a config.
        flatten: whether observations of several parts are flattened, where the environment is Gymnasium's.
    """
    name = full_name(name)
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
            f"env.name = {name!r}: an environment of your own is used from Python, as by "
            "moca.MoCA(MyEnvironment()).learn(steps) or moca.load(path, env=MyEnvironment())"
        )
    if (make := ENVS.get(name)) is None:
        return Playground(name)
    if not isinstance(env := make(), Spaces):
        raise ConfigError(f"env.name = {name!r} is registered as what makes {shown(env)}, which is no environment")
    return env


def _made(name: str, kind: Callable[[], Spaces]) -> Spaces:
    try:
        return kind()
    except Exception as error:  # whatever its code raises
        raise ConfigError(f"env.name = {name!r} cannot be made: it raises {type(error).__name__}: {error}") from None


def is_gymnasiums(env: Any) -> bool:
    """Returns True if it is one of Gymnasium's environments."""
    gymnasium = sys.modules.get("gymnasium")  # which is loaded if there is one
    return gymnasium is not None and isinstance(env, gymnasium.Env)


def as_environment(env: Any, flatten: bool = False) -> Any:
    """An environment as ours: one of Gymnasium's is adapted, as by `named`, anything else is returned as it is."""
    if not is_gymnasiums(env):
        return env
    from moca.envs.gymnasium import Gymnasium

    return Gymnasium(env, flatten=flatten)


def found(name: str, flatten: bool = False) -> Spaces | None:
    """The environment of that name; None for one of Playground's, whose name was checked with the config."""
    return named(name, flatten) if may_be_on_host(name) else None
