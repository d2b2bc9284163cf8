"""Checks of Gymnasium's spaces: which ones agents support, and how to convert the others."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple
from gymnasium.spaces.utils import flatten_space

from moca.envs.check.faults import SpacesError

FLATTEN = "set env.flatten to true: --set env.flatten=true, or moca.MoCA(env, env__flatten=True)"


def refuse_spaces(observed: Space, acted: Space, flatten: bool) -> None:
    """Raises `SpacesError` unless agents support both spaces.

    Observations must be a Box or, with `flatten`, a space that can be flattened into one. Actions
    must be a bounded Box.

    Args:
        observed: The observation space.
        acted: The action space.
        flatten: If True, observations of several parts will be flattened.
    """
    if wrong := [*_observations(observed, flatten), *_actions(acted)]:
        raise SpacesError("; and ".join(wrong))


def spaces_of(env: Any) -> tuple[Space, Space]:
    """Returns the spaces of observations and actions; raises `SpacesError` unless it has both."""
    if missing := [name for name in ("observation_space", "action_space") if getattr(env, name, None) is None]:
        lacking, made = " and no ".join(missing), ", and ".join(f"{each} = gymnasium.spaces.Box(…)" for each in missing)
        raise SpacesError(f"{type(env.unwrapped).__name__} defines no {lacking}: add {made}")
    return env.observation_space, env.action_space


def _observations(space: Space, flatten: bool) -> Iterator[str]:
    """Yields the reason why this observation space is not supported, if there is one."""
    for name, part in _parts(space):
        if isinstance(part, Box) and (len(part.shape) >= 3 or (part.dtype == np.uint8 and len(part.shape) == 2)):
            yield (
                f"{name} are images ({part.dtype}, {'×'.join(map(str, part.shape))}), but MoCA's agents need a "
                "vector: return the state (positions and velocities) or a few features of the image instead, with "
                "gymnasium.wrappers.TransformObservation"
            )
            return
        if not isinstance(part, Box | Discrete | MultiDiscrete | MultiBinary):
            yield f"{name} are a {type(part).__name__}, whose length is not fixed: wrap the environment in a Box"
            return
    if not isinstance(space, Box) and not flatten:
        size = int(np.prod(flatten_space(space).shape or ()))
        kind = "parts as one" if isinstance(space, Dict | Tuple) else "values as a one-hot"
        yield f"observations must be a Box, not {_short(space)}; for its {kind} vector of {size} numbers, {FLATTEN}"


def _parts(space: Space, name: str = "observations") -> Iterator[tuple[str, Space]]:
    """Yields the innermost spaces of a nested space, with a name for each."""
    if isinstance(space, Dict):
        inner = [(f"{name}[{key!r}]", each) for key, each in space.spaces.items()]
    elif isinstance(space, Tuple):
        inner = [(f"{name}[{number}]", each) for number, each in enumerate(space.spaces)]
    else:
        yield name, space
        return
    for inside, each in inner:
        yield from _parts(each, inside)


def _actions(space: Space) -> Iterator[str]:
    """Yields the reason why this action space is not supported, if there is one."""
    if isinstance(space, Dict | Tuple):
        yield (
            f"actions must be one Box, not {_short(space)}: write a gymnasium.ActionWrapper that takes a vector and "
            "splits it into the parts"
        )
    elif not isinstance(space, Box) or not np.issubdtype(space.dtype, np.floating):
        yield (
            f"actions must be a Box of real numbers, not {_short(space)}: MoCA's agents need continuous actions. Use "
            "the continuous version of the task if there is one (MountainCarContinuous-v0 for MountainCar-v0, "
            "LunarLanderContinuous-v3 for LunarLander-v3), or an algorithm for discrete actions, such as DQN"
        )
    else:
        bounded = np.isfinite(space.low) & np.isfinite(space.high)
        for what, good in (("finite", bounded), ("low < high", ~bounded | (space.low < space.high))):
            for index in np.argwhere(~good)[:1]:
                low, high = (float(bound[tuple(index)]) for bound in (space.low, space.high))
                place = ", ".join(map(str, index))
                yield (
                    f"action bounds must be {what} in every dimension, but dimension {place} has low = {low:g} "
                    f"and high = {high:g}: give the range of the actions in the environment, or with a wrapper: "
                    "Gymnasium(lambda: gymnasium.wrappers.TransformAction(env, lambda a: a, "
                    "gymnasium.spaces.Box(-1.0, 1.0, env.action_space.shape)))"
                )


def _short(space: Space) -> str:
    """Returns a short description of a space."""
    if isinstance(space, Dict):
        return f"Dict({', '.join(space.spaces)})"
    return f"Tuple of {len(space.spaces)}" if isinstance(space, Tuple) else str(space)
