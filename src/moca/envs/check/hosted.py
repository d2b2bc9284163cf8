"""Steps an environment on the host, and checks what it returns and how its numbers behave.

The environment is used as in training: a new one is created, reset with a seed, and reset without a
seed after each episode.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from moca.envs.check.faults import Findings, line_of, said
from moca.envs.check.results import good_reset, good_step
from moca.envs.check.trial import SOON, Actions, action_sequences, actions_matter, find_large, find_restarts
from moca.envs.environment import Step
from moca.envs.host import HostEnvironment

STEPS = 200  # steps per action sequence, in `check_env` unless told, and before training
PATIENCE = 2.0  # seconds after which the check before training stops
FIRST = "at the start"
UNIFORM = "drawn uniformly"  # the name of a sequence of actions


class _Broken(Exception):
    """Raised after a fault that ends the check; the fault is among the findings."""


class _Played(NamedTuple):
    """The outcome of one sequence of actions, with an axis over steps."""

    shown: np.ndarray  # observations before the actions
    observation: np.ndarray  # observations after the actions
    reward: np.ndarray
    ended: np.ndarray  # terminated or truncated
    firsts: list[np.ndarray]  # the first observation of each episode
    again: np.ndarray  # the first observation of a final reset with the same seed


def check_hosted(env: HostEnvironment, steps: int, seed: int, found: Findings) -> None:
    """Plays a dozen action sequences, and adds faults and notes to `found`."""
    sequences = action_sequences(env, steps, np.random.default_rng(seed))
    if played := _find_faults(env, sequences, seed, found):
        _repeatable(env, sequences, seed, played, found)
        trial = _trial(sequences, played)
        find_large(np.nan_to_num(trial.step.observation), found)
        actions_matter(env, trial, found)


def check_quickly(env: HostEnvironment, found: Findings, steps: int = 0) -> None:
    """Finds the faults for which training refuses an environment, in two seconds or little more.

    It also notes if a run on it could not be repeated. With more `steps`, those of an episode,
    random actions go on for as many, if there is time left.
    """
    sequences, deadline = action_sequences(env, STEPS, np.random.default_rng(0)), time.monotonic() + PATIENCE
    if played := _find_faults(env, sequences, 0, found, deadline):
        _repeatable(env, sequences, 0, played, found)
        if steps > STEPS and time.monotonic() < deadline:
            with suppress(_Broken):
                _play(env, _drawn(env, steps), 0, f"with actions {UNIFORM}", found, deadline)


def _drawn(env: HostEnvironment, steps: int) -> Iterator[np.ndarray]:
    """Yields the actions drawn uniformly, as in `action_sequences`, without holding them all."""
    rng, low, high = np.random.default_rng(0), np.array(env.action_low), np.array(env.action_high)
    return (rng.uniform(low, high).astype(np.float32) for _ in range(steps))


def _find_faults(
    env: HostEnvironment, sequences: Actions, seed: int, found: Findings, deadline: float = np.inf
) -> list[_Played]:
    """Plays the action sequences, and adds every fault to `found`; some problems are notes.

    If the environment returns something invalid, the check ends at once. Returns the outcome of
    each sequence that was played until the deadline, or an empty list if there is a fault.
    """
    played = _play_all(env, sequences, seed, found, deadline)
    if _complete(sequences, played):
        find_restarts(env, _trial(sequences, played), found)
    return [] if found.of("fault") else played


def _complete(sequences: Actions, played: list[_Played]) -> bool:
    """Returns True if every sequence was played to its end."""
    return sum(len(each.ended) for each in played) == sequences.sequences[..., 0].size


def _play_all(
    env: HostEnvironment, sequences: Actions, seed: int, found: Findings, deadline: float = np.inf
) -> list[_Played]:
    """Returns the outcome of each sequence.

    Empty if there is a fault, or if the environment cannot be stepped by itself.
    """
    played: list[_Played] = []
    try:
        if not _well_formed(env, seed, found):
            return []
        for number, name in enumerate(sequences.names):
            if played and time.monotonic() > deadline:
                break
            own = seed + max(number - sequences.alike + 1, 0)  # sequences that are compared share a seed
            played.append(_play(env, sequences.sequences[number], own, f"with actions {name}", found, deadline))
    except _Broken:
        return []
    return played


def _called(function: Callable, where: str, found: Findings, *args: Any, **options: Any) -> Any:
    """Calls the function and returns its result; notes an exception and raises `_Broken`."""
    try:
        return function(*args, **options)
    except Exception as error:
        name = f"{getattr(function, '__name__', 'make')}()"
        if isinstance(error, TypeError) and "unexpected keyword" in str(error) and name == "reset()":
            found.once("reset-signature", f"reset() does not accept its arguments ({said(error)})")
        else:
            found.once("raises", f"{name}{line_of(error)} raises {said(error)} {where}")
        raise _Broken from None


def _well_formed(env: HostEnvironment, seed: int, found: Findings) -> bool:
    """Returns True if `reset` and `step` return the right number of items.

    This is checked without wrappers, which would fail on any other number.
    """
    made = env.single()
    if made is None:
        found.once("untried", f"{env.title} was not tried", "note")
        return False
    bare = made.unwrapped
    try:
        first = _called(bare.reset, FIRST, found, seed=seed, options=None)
        if not good_reset(None, first, FIRST, found):
            return False
        stepped = _called(bare.step, "at step 1", found, bare.action_space.sample())
        return good_step(None, stepped, "at step 1", found)
    finally:
        _close(made)


def _close(env: Any) -> None:
    with suppress(Exception):
        env.close()


def _play(
    env: HostEnvironment, actions: Iterable[np.ndarray], seed: int, how: str, found: Findings, deadline: float = np.inf
) -> _Played:
    """Returns the outcome of a sequence of actions; raises `_Broken` at a fault."""
    one: Any = env.single()
    space, box = one.observation_space, one.action_space
    rows: list[tuple] = []
    firsts: list[np.ndarray] = []

    def begin(**options: Any) -> np.ndarray:
        returned = _called(one.reset, f"{FIRST} {how}", found, **options)
        if not good_reset(space, returned, f"{FIRST} {how}", found):
            raise _Broken
        firsts.append(np.array(returned[0], np.float64).ravel())
        return returned[0]

    try:
        now = begin(seed=seed)
        for number, action in enumerate(actions, 1):
            where, before = f"at step {number} {how}", np.array(now, np.float64)
            given = action.reshape(box.shape).clip(box.low, box.high).astype(box.dtype)
            returned = _called(one.step, where, found, given)
            if not good_step(space, returned, where, found):
                raise _Broken
            if not np.array_equal(np.asarray(now, np.float64), before, equal_nan=True):
                found.once(
                    "aliased", f"step() changes the observation that the call before it returned {where}", "note"
                )
            last, reward, *ends, _ = returned
            rows.append((before.ravel(), np.array(last, np.float64).ravel(), float(reward), any(ends)))
            now = begin() if any(ends) else last
            if time.monotonic() > deadline:
                break
        begin(seed=seed)
    finally:
        _close(one)
    shown, observation, rewards, ended = (np.array(part) for part in zip(*rows, strict=True))
    return _Played(shown, observation, rewards, ended, firsts[:-1], firsts[-1])


def _repeatable(env: HostEnvironment, sequences: Actions, seed: int, played: list[_Played], found: Findings) -> None:
    """Finds results that differ between two runs with the same seed and actions."""
    lane = min(sequences.names.index(UNIFORM), len(played) - 1)
    once = played[lane]
    try:
        again = _play(env, sequences.sequences[lane][: min(SOON, len(once.shown))], seed, "", found)
    except _Broken:
        return
    if difference := _difference(once.firsts[0], again.firsts[0]):
        found.once("ignores-seed", f"two resets with seed={seed} differ: {difference}", "note")
        return
    if difference := _difference(once.firsts[0], once.again):
        what = f"reset(seed={seed}) gives different observations before and after an episode: {difference}"
        found.once("unrepeatable", what, "note")
        return
    for number in range(len(again.shown)):
        if difference := _difference(once.observation[number], again.observation[number]):
            what = f"the same seed and actions give different results at step {number + 1}: {difference}"
            found.once("unrepeatable", what, "note")
            return
    if _complete(sequences, played) and len(np.unique([each.firsts[0] for each in played], axis=0)) == 1:
        found.once("same-start", "reset() returns the same observation for every seed", "note")


def _difference(one: np.ndarray, other: np.ndarray) -> str:
    """Describes the first entry in which two observations differ by more than rounding.

    Empty if there is none.
    """
    for (index,) in np.argwhere(~np.isclose(one, other, rtol=1e-3, atol=1e-5, equal_nan=True))[:1]:
        return f"observation[{index}] is {one[index]:g} and {other[index]:g}"
    return ""


def _trial(sequences: Actions, played: list[_Played]) -> Any:
    """Returns the outcomes in the form of a trial of a compiled environment."""
    shown, observation, reward, ended = (np.stack(part) for part in list(zip(*played, strict=True))[:4])
    firsts = np.array([first for each in played[sequences.alike - 1 :] for first in each.firsts])
    step: Any = (observation, reward, ended)
    return SimpleNamespace(actions=sequences, shown=shown, step=Step(*step), firsts=firsts, keys=[])
