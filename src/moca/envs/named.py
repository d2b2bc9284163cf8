"""Environments by the name a config has for them."""

from moca.config import ConfigError
from moca.envs.environment import Spaces
from moca.envs.playground import Playground
from moca.envs.trust import refuse_untrusted
from moca.names import GYMNASIUM, OWN


def named(name: str) -> Spaces:
    """The environment of that name: one of Playground's, or Gymnasium's after `gymnasium:`.

    One that would import a module of its own is refused unless that was imported before: see `moca.envs.trust`.
    """
    if name.startswith(GYMNASIUM):
        refuse_untrusted(name)
        from moca.envs.gymnasium import Gymnasium  # an optional package

        return Gymnasium(name.removeprefix(GYMNASIUM))
    if name.startswith(OWN):
        raise ConfigError(
            f"env.name = {name!r}: an environment of your own is used from Python, as by "
            "moca.MoCA(MyEnvironment()).learn(steps) or moca.load(path, env=MyEnvironment())"
        )
    return Playground(name)


def refuse_unknown(name: str) -> None:
    """Raises, before anything is written, where that would fail; Playground's names were checked with the config."""
    if name.startswith((GYMNASIUM, OWN)):
        named(name)
