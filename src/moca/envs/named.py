"""Environments by the name a config has for them."""

from moca.envs.environment import Spaces
from moca.envs.names import GYMNASIUM
from moca.envs.playground import Playground


def named(name: str) -> Spaces:
    """The environment of that name: one of Playground's, or Gymnasium's after `gymnasium:`."""
    if name.startswith(GYMNASIUM):
        from moca.envs.gymnasium import Gymnasium  # an optional package

        return Gymnasium(name.removeprefix(GYMNASIUM))
    return Playground(name)
