"""A trainer's checkpoints: saving from time to time, and restoring the newest valid one."""

import math
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.console import Console

from moca.config import ConfigError
from moca.divergence import plausible
from moca.drivers import Schedule, Trainer
from moca.envs.sensors import may_miss
from moca.files import writing
from moca.loop import replay_size
from moca.received import read_rows
from moca.runs import checkpoint, starting
from moca.runs.directory import LOGS, RunDirectory
from moca.runs.shapes import is_row, is_time

SOON = 1.0  # seconds between the first two checkpoints
CANDIDATES = 100  # the most policies of a run among which `KeepBest` chooses
Leaves = list[np.ndarray]


class Saver:
    """Saves the trainer from time to time, in a thread, without delaying training.

    The first save of a run is due at once, so that its policies can be used from then on, and the
    next ones after intervals that double until they are `every` seconds: what answers in the middle
    of a run is never much older than half of it. The arrays that `candidates` returns are saved
    with it.
    """

    def __init__(
        self, trainer: Trainer, directory: RunDirectory, every: float, keep: int, candidates: Callable[[], Leaves]
    ) -> None:
        self._trainer, self._directory, self._every, self._keep = trainer, directory, every, keep
        self._interval = min(SOON, every)
        self._candidates = candidates
        self._thread = ThreadPoolExecutor(1)
        self._copy = checkpoint.HostCopy(trainer.state)
        self._pending: Future | None = None
        self._last = time.perf_counter() if any(directory.checkpoints.glob("*")) else -math.inf

    def save_if_due(self) -> None:
        """Starts a save if the last is finished and old enough; raises its error if it failed."""
        if time.perf_counter() - self._last >= self._interval and (self._pending is None or self._pending.done()):
            self._interval = self._interval if self._last == -math.inf else min(2 * self._interval, self._every)
            self.save()

    def save(self) -> None:
        """Starts a save, after the previous one has ended."""
        self.wait()
        trainer, directory = self._trainer, self._directory
        facts = checkpoint.Facts(trainer.episode, directory.lengths(), directory.meta.get("identity"))
        held = checkpoint.Checkpoint(facts, self._copy(trainer.state) + self._candidates())
        step = trainer.step

        def write() -> None:
            directory.refuse_lost()
            directory.sync()  # first the logs, which the checkpoint refers to
            checkpoint.save(directory.checkpoints, step, held, self._keep)

        self._pending = self._thread.submit(write)
        self._last = time.perf_counter()

    def wait(self) -> None:
        """Waits until nothing is being written; raises the error of a failed save."""
        pending, self._pending = self._pending, None
        with writing(f"a checkpoint to {self._directory.path}"):
            if pending is not None:
                pending.result()


def layouts(directory: RunDirectory, state: Any) -> list[checkpoint.Shapes]:
    """Returns the possible layouts of checkpoints.

    When another number of steps was requested, the replay buffer had another size. The candidates
    of `KeepBest` may follow.
    """
    runs, most, row = state.replay.shape
    others = {replay_size(directory.config, steps) for steps in directory.requested} - {most}
    memories = [jax.ShapeDtypeStruct((runs, size, row), state.replay.dtype) for size in others]
    states = [checkpoint.layout(state._replace(replay=memory)) for memory in (state.replay, *memories)]
    learner = checkpoint.layout(state.learner)
    candidates: list[checkpoint.Shapes] = [
        [
            ("int64", (runs,)),
            ("float64", (runs,)),
            ("int64", (n, runs)),
            *((kind, (n, *each)) for kind, each in learner),
        ]
        for n in range(1, CANDIDATES + 1)
    ]
    return [before + after for before in states for after in ([], *candidates)]


def _parts(arrays: Leaves, like: Any) -> tuple[Leaves, Leaves]:
    """Splits the arrays of a checkpoint into those of the training state and of the candidates.

    The state has the structure of `like`.
    """
    count = len(jax.tree.leaves(like))
    return arrays[:count], arrays[count:]


def newest_policies(directory: RunDirectory, like: Any) -> tuple[Any, int] | None:
    """Returns the learners of the newest valid checkpoint and their step, or None.

    Changes nothing in the directory.
    """
    for path in checkpoint.newest_first(directory.checkpoints):
        try:
            found = checkpoint.load(path, layouts(directory, like))
        except checkpoint.DamagedError:
            if not os.path.lexists(path):  # the run goes on, and has replaced it by a newer one
                return newest_policies(directory, like)
            continue
        state = checkpoint.unflatten(_parts(found.arrays, like)[0], like)
        if found.facts.identity == directory.meta.get("identity") and plausible(state, may_miss(directory.config)):
            schedule = Schedule(directory.config.env.episode_length, directory.totals)
            return state.learner, schedule.steps(found.facts.episode)
    return None


def _other_log(directory: RunDirectory, lengths: Mapping[str, int], ends: list[int]) -> str | None:
    """Returns the name of a log that does not begin with the rows of the episodes; None if both do.

    Args:
        directory: The run directory.
        lengths: The lengths of these rows in each log, in bytes.
        ends: The last step of each episode.
    """
    metrics, timing = LOGS
    wanted = {metrics: [{"step": end, **run} for end in ends for run in directory.runs]}
    wanted[timing] = [{"step": end} for end in ends]
    for name, expected in wanted.items():
        is_valid = is_row if name == metrics else is_time
        try:
            found = read_rows(directory.path / name, lengths[name]) if lengths[name] else []
        except (ConfigError, FileNotFoundError):
            return name
        same = (is_valid(row) and row.items() >= own.items() for row, own in zip(found, expected, strict=False))
        if len(found) != len(expected) or not all(same):
            return name
    return None


def go_back_to_checkpoint(trainer: Trainer, directory: RunDirectory, console: Console) -> Leaves:
    """Restores trainer and logs from the newest valid checkpoint, or to the start.

    Returns the candidates of `KeepBest` in it.
    """

    def accept(path: Path, found: checkpoint.Checkpoint) -> None:
        episode, lengths, identity = found.facts
        if identity != directory.meta.get("identity"):
            raise ConfigError(f"{path} is a checkpoint of another run: remove it")
        if episode > trainer.episodes or path.stem != f"{trainer.schedule.steps(episode):012d}":
            raise checkpoint.DamagedError(f"{path} is damaged: its step does not match its name")
        if lengths.keys() != set(LOGS):
            raise checkpoint.DamagedError(f"{path} is damaged: it names logs that a run does not have")
        ends = [trainer.schedule.steps(number + 1) for number in range(episode)]
        if other := _other_log(directory, lengths, ends):
            raise checkpoint.DamagedError(f"{path} refers to rows that {other} does not have")
        state, candidates = _parts(found.arrays, trainer.state)
        good = plausible(checkpoint.unflatten(state, trainer.state), may_miss(trainer.config))
        if not good or (candidates and not _are_candidates(candidates, int(path.stem))):
            raise checkpoint.DamagedError(f"{path} contains invalid numbers")

    found, complaints = checkpoint.newest(directory.checkpoints, layouts(directory, trainer.state), accept)
    for number, complaint in enumerate(complaints, 1):
        back = "going back to the one before" if found or number < len(complaints) else "starting over"
        console.print(f"{complaint}; {back}", markup=False, soft_wrap=True)
    if found is None:
        trainer.state = starting.begun(directory, trainer.state)  # raises if it cannot
        directory.cut(dict.fromkeys(LOGS, 0))
        return []
    state, candidates = _parts(found.arrays, trainer.state)
    trainer.state = checkpoint.from_host(checkpoint.fitted(state, trainer.state), trainer.state)
    trainer.episode = found.facts.episode
    directory.cut(found.facts.lengths)
    console.print(f"resuming from step {trainer.step:,}")
    return candidates


def _are_candidates(arrays: Leaves, step: int) -> bool:
    """Returns True if they can be the candidates of a run at that step: see `KeepBest`."""
    seen, _, steps, *learners = arrays
    counted = (seen >= 0).all() and (steps >= 0).all() and (steps <= step).all()
    return bool(counted) and all(np.isfinite(each).all() for each in learners)
