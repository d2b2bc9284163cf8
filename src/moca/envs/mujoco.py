"""Playground's tasks of the control suite, with the physics of MuJoCo's C library on the host.

MuJoCo steps many episodes of a task, on several threads where that is faster. The task's own code,
from `moca.envs.suite`, then computes observations and rewards.
"""

import re
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from types import SimpleNamespace
from typing import Any

import equinox as eqx
import numpy as np

from moca.devices import cores
from moca.envs.environment import Described
from moca.envs.host import HostEnvironment, Outcome
from moca.envs.suite import SuiteTask, quantity, task
from moca.names import MUJOCO

SHARE = 2e-4  # seconds of physics that are worth another thread
# What a picture needs.
SHOWN = ("time", "qpos", "qvel", "mocap_pos", "mocap_quat", "xfrc_applied", "geom_xpos", "geom_xmat")


_told: set[str] = set()  # warnings, without their numbers


def tell_once() -> None:
    """Has MuJoCo's warnings printed once each, unless the user has a function for them.

    By itself it prints each one for every environment, and writes them into MUJOCO_LOG.TXT. It is
    not imported for that.
    """
    mujoco = sys.modules.get("mujoco")
    if mujoco and mujoco.get_mju_user_warning() is None:
        mujoco.set_mju_user_warning(_tell)


def _tell(text: str) -> None:
    if (kind := re.sub(r"[\d.]+", "", text)) not in _told:  # numbers are such as the time in an episode
        _told.add(kind)
        print(f"MuJoCo warns: {text}", file=sys.stderr)


class MuJoCo(Described, HostEnvironment):
    """A Playground task of the control suite, simulated by MuJoCo's C library.

    Args:
        name: The task's name in Playground.
        most: As `env.random_start`.
    """

    name: str = eqx.field(static=True)
    most: int = eqx.field(static=True)
    task: SuiteTask = eqx.field(static=True)

    def __init__(self, name: str, most: int = 0) -> None:
        self.name, self.most, self.task = name, most, task(name)
        facts = self.task.facts
        self.observation_size, self.terminates = facts.observation_size, facts.terminates
        self.action_low, self.action_high = facts.action_low, facts.action_high

    @property
    def title(self) -> str:
        return self.name

    @property
    def physics(self) -> str:
        return MUJOCO

    @property
    def env(self) -> Any:
        """The task in Playground."""
        return self.task.env

    def random_start(self, most: int) -> "MuJoCo":
        return MuJoCo(self.name, most)

    def vector(self, count: int, repeat: int = 1) -> "MuJoCoVector":
        return MuJoCoVector(self, count, repeat)

    def single(self) -> "OneEpisode":
        return OneEpisode(self)


class MuJoCoVector:
    """Many episodes of a task, each with its own data of MuJoCo.

    An episode depends on its seed and actions alone, not on other episodes or the number of
    threads, up to rounding: programs for different numbers of episodes may round differently.
    MuJoCo resets a simulation that diverges; here its observations and rewards are NaN until the
    reset.
    """

    def __init__(self, env: MuJoCo, count: int, repeat: int) -> None:
        import mujoco  # after Playground, for which it is told how to render

        self._env, self._mujoco, self._task, self._model = env, mujoco, env.task, env.env.mj_model
        # It would print, and write MUJOCO_LOG.TXT where the user works.
        if mujoco.get_mju_user_warning() in (None, _tell):
            mujoco.set_mju_user_warning(lambda text: None)  # its counts, which are read below, go on
        self._repeats = np.full(count, repeat)
        self._datas = [mujoco.MjData(self._model) for _ in range(count)]
        self._read = [[quantity(data, name) for name in self._task.fields] for data in self._datas]
        diverged = slice(int(mujoco.mjtWarning.mjWARN_BADQPOS), int(mujoco.mjtWarning.mjWARN_BADQACC) + 1)
        self._warned = [data.warning.number[diverged] for data in self._datas]  # MuJoCo counts in place
        self._substeps = env.env.n_substeps
        self._seconds = 0.0  # of one episode's physics in the last call

    def reset(self, seeds: Sequence[int]) -> np.ndarray:
        """Starts all episodes and returns the first observations."""
        begun = self._task.begin(np.array(seeds, np.uint32), np.int32(self._env.most))
        first = {name: np.asarray(values) for name, values in begun.state.items()}
        rows = self._rows(1)  # that of a random start replaces the first
        self._together(lambda number: self._begin(number, first, rows[0]))
        changed, observation = self._task.settle(begun.key, rows[0])
        for name, values in changed.items():
            for data, value in zip(self._datas, np.asarray(values), strict=True):
                setattr(data, name, value)
        if not self._env.most:
            return np.asarray(observation)
        actions, steps = np.asarray(begun.action), np.asarray(begun.steps)
        self._advance(actions, steps, rows)
        return np.where(steps[:, None] > 0, self._task.judge(actions, rows[0])[0], observation)

    def step(self, actions: np.ndarray) -> Outcome:
        """Steps all episodes. NaN actions are replaced by zero, and MuJoCo clips actions.

        Runs with NaN actions stop after the episode.
        """
        actions = np.nan_to_num(actions).reshape(len(self._datas), -1).astype(np.float32)
        rows = self._rows(self._repeats[0])
        self._advance(actions, self._repeats, rows)
        repeated = np.tile(actions, (len(rows), 1))
        observations, rewards = self._task.judge(repeated, rows.reshape(len(repeated), -1))
        last, never = np.asarray(observations)[-len(actions) :], np.zeros(len(actions), bool)
        return Outcome(last, np.asarray(rewards).reshape(len(rows), -1).sum(axis=0), never, never, last)

    def picture(self) -> Any:
        """Returns the first episode's state, as Playground draws it."""
        return SimpleNamespace(data=SimpleNamespace(**{name: np.copy(getattr(self._datas[0], name)) for name in SHOWN}))

    def _rows(self, times: int) -> np.ndarray:
        return np.zeros((times, len(self._datas), sum(view.size for view in self._read[0])), np.float32)

    def _advance(self, actions: np.ndarray, steps: np.ndarray, rows: np.ndarray) -> None:
        """Takes so many steps in every episode, and writes a row after each of the last ones.

        An episode without a step keeps its row.
        """

        def advance(number: int) -> None:
            data = self._datas[number]
            data.ctrl = actions[number]
            for left in reversed(range(steps[number])):
                self._mujoco.mj_step(self._model, data, nstep=self._substeps)
                if left < len(rows):
                    self._keep(number, rows[-1 - left, number])

        self._together(advance)

    def _begin(self, number: int, first: dict[str, np.ndarray], rows: np.ndarray) -> None:
        """Begins one episode, and writes its row."""
        data = self._datas[number]
        self._mujoco.mj_resetData(self._model, data)
        for name, values in first.items():
            setattr(data, name, values[number])
        self._mujoco.mj_forward(self._model, data)
        if self._task.settling:
            self._mujoco.mj_step(self._model, data, nstep=self._task.settling)
        self._keep(number, rows[number])

    def _keep(self, number: int, row: np.ndarray) -> None:
        """Writes what the task reads of one episode into a row: NaN if its physics has diverged."""
        if any(self._warned[number].tolist()):
            row[:] = np.nan
        else:
            np.concatenate([view.ravel() for view in self._read[number]], out=row, casting="same_kind")

    def _together(self, function: Callable[[int], None]) -> None:
        """Calls a function of an episode for all, on several threads if it takes long enough."""
        count = len(self._datas)
        parts = max(1, min(cores(), count, int(count * self._seconds / SHARE)))
        chunks = [range(part, count, parts) for part in range(parts)]

        def work(chunk: range) -> float:
            begun = time.perf_counter()
            for number in chunk:
                function(number)
            return (time.perf_counter() - begun) / len(chunk)

        took = list(_pool().map(work, chunks)) if parts > 1 else [work(chunks[0])]
        self._seconds = min(took)


class OneEpisode:
    """One episode at a time, with Gymnasium's `reset` and `step`."""

    def __init__(self, env: MuJoCo) -> None:
        self._vector, size = env.vector(1), (env.observation_size,)
        low, high = (np.array(bounds, np.float32) for bounds in (env.action_low, env.action_high))
        self.observation_space = _box(np.full(size, -np.inf, np.float32), np.full(size, np.inf, np.float32))
        self.action_space = _box(low, high)

    @property
    def unwrapped(self) -> "OneEpisode":
        return self

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        """Starts an episode, the first one unless a seed is given."""
        return self._vector.reset([seed or 0])[0], {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Takes one step."""
        outcome = self._vector.step(action[None])
        return outcome.observation[0], float(outcome.reward[0]), False, False, {}


def _box(low: np.ndarray, high: np.ndarray) -> Any:
    """Returns what is used of Gymnasium's Box."""
    return SimpleNamespace(low=low, high=high, shape=low.shape, dtype=low.dtype, sample=low.copy)


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(cores(), thread_name_prefix="mujoco")
