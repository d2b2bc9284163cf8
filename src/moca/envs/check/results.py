"""Checks of what `reset` and `step` of a Gymnasium environment return, against its spaces."""

import numbers
from typing import Any

import numpy as np

from moca.envs.check.faults import Findings, short

ITEMS = "observation, reward, terminated, truncated, info"


def good_reset(space: Any, returned: Any, where: str, found: Findings) -> bool:
    """Returns True if training can use what `reset` returned.

    Args:
        space: The observation space. With None, the observation is not checked.
        returned: What `reset` returned.
        where: When that was, as a phrase for messages.
        found: Receives faults and notes, each kind once.
    """
    if not isinstance(returned, tuple) or len(returned) != 2:
        found.once("reset-items", f"reset() returns {short(returned)} {where} instead of the pair observation, info")
        return False
    if not isinstance(returned[1], dict):
        found.once("info-type", f"reset() returns {short(returned[1])} as info {where}")
        return False
    return space is None or _good_observation(space, returned[0], "reset()", where, found)


def good_step(space: Any, returned: Any, where: str, found: Findings) -> bool:
    """Returns True if training can use what `step` returned; see `good_reset` for the arguments."""
    if not isinstance(returned, tuple) or len(returned) != 5:
        count = f"{len(returned)} items" if isinstance(returned, tuple) else short(returned)
        found.once("step-items", f"step() returns {count} {where} instead of the five {ITEMS}")
        return False
    observation, reward, terminated, truncated, info = returned
    good = [
        space is None or _good_observation(space, observation, "step()", where, found),
        _good_reward(reward, where, found),
        _good_end("terminated", terminated, where, found),
        _good_end("truncated", truncated, where, found),
    ]
    if not isinstance(info, dict):
        found.once("info-type", f"step() returns {short(info)} as info {where}")
        good.append(False)
    return all(good)


def _good_observation(space: Any, observation: Any, call: str, where: str, found: Findings) -> bool:
    try:
        array = np.asarray(observation)
        numeric = np.issubdtype(array.dtype, np.number) or array.dtype == bool
    except ValueError:  # parts of different lengths
        numeric = False
    if not numeric:
        found.once("observation-type", f"{call} returns {short(observation)} as observation {where}")
        return False
    if array.shape != space.shape:
        what = f"{call} returns an observation of shape {array.shape} {where}, but observation_space has {space.shape}"
        found.once("observation-shape", what)
        return False
    if not np.can_cast(array.dtype, space.dtype, "same_kind"):
        what = f"{call} returns observations as {array.dtype}, which cannot be cast to {space.dtype}, that of the space"
        found.once("observation-dtype", what)
        return False
    if array.dtype != space.dtype:
        what = f"{call} returns observations as {array.dtype}, but observation_space has {space.dtype}"
        found.once("observation-dtype", what, "note")
    return _good_numbers(space, array, call, where, found)


def _good_numbers(space: Any, array: np.ndarray, call: str, where: str, found: Findings) -> bool:
    """Returns True if all numbers are finite or allowed to be missing.

    Notes the first one outside the space.
    """
    known = ~np.isinf(array) if found.gaps and call == "step()" else np.isfinite(array)
    for index in np.argwhere(~known)[:1]:
        what = f"{call} returns {array[tuple(index)]} as observation{index.tolist()} {where}"
        found.once("observation-not-finite", what)
        return False
    margin = 1e-5 * (1 + np.abs(array))
    for index in np.argwhere((array < space.low - margin) | (array > space.high + margin))[:1]:
        place = tuple(index)
        what = (
            f"{call} returns {array[place]:g} as observation{index.tolist()} {where}, but observation_space allows "
            f"{space.low[place]:g} to {space.high[place]:g}"
        )
        found.once("observation-range", what, "note")
    return True


def _good_reward(reward: Any, where: str, found: Findings) -> bool:
    scalar = isinstance(reward, numbers.Real | np.number) or (isinstance(reward, np.ndarray) and reward.ndim == 0)
    if not scalar or isinstance(reward, complex | np.complexfloating):
        shape = f" an array of shape {reward.shape}" if isinstance(reward, np.ndarray) else f" {short(reward)}"
        found.once("reward-type", f"step() returns{shape} as reward {where}")
        return False
    if not np.isfinite(float(reward)):
        found.once("reward-not-finite", f"step() returns {float(reward)} as reward {where}")
        return False
    return True


def _good_end(name: str, end: Any, where: str, found: Findings) -> bool:
    if isinstance(end, bool | np.bool_):
        return True
    what = f"step() returns {short(end)}, of type {type(end).__name__}, as {name} {where}"
    if end is None or (isinstance(end, numbers.Real) and np.isfinite(float(end))):  # which training casts
        found.once(f"{name}-type", f"{what}, which counts as {bool(end)}", "note")
        return True
    found.once(f"{name}-type", what)
    return False
