"""Callbacks after each episode: your own functions, early stopping, keeping the best policies."""

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from rich.console import Console

from moca import files
from moca.arguments import MOST
from moca.config import ConfigError, real, shown, whole
from moca.evaluation import interval
from moca.received import read_json
from moca.runs import BEST
from moca.runs.run import Run
from moca.runs.saving import CANDIDATES
from moca.runs.shapes import is_number

FRESH = 1 << 30  # first seed for choosing among candidates; the next seeds score the chosen one


class Training(NamedTuple):
    """The state of training after an episode, as a callback sees it."""

    step: int  # environment steps so far, per run
    metrics: Mapping[str, np.ndarray]  # one number per run; NaN where nothing was measured
    learners: Any  # the agents' states, with a leading axis over runs
    run: Run  # settings and rows so far; it answers with the present policies


class Callback:
    """Called after each episode; returning False stops training. A plain function works as well."""

    options = ""  # of `moca train`, with which a run goes on as it began
    ending = ""  # what `end` does, if it takes long
    keeps_best = False  # whether it writes best.json
    reason = ""  # why it stopped training, for the line that says so

    def take(self, candidates: list[np.ndarray], like: Any) -> None:
        """Called before `start` with the candidates for the best policy that the checkpoint has.

        Args:
            candidates: Their arrays. The list is empty if training starts from the beginning.
            like: Learners, for their structure.
        """

    def start(self, run: Run) -> bool | None:
        """Called once, after compilation; False ends training at once.

        If it raises, the run is as before.
        """

    def __call__(self, training: Training) -> bool | None:
        """Called after each episode; False stops training."""

    def candidates(self) -> list[np.ndarray]:
        """Returns the candidates that `KeepBest` holds, which are saved with each checkpoint."""
        return []

    def end(self, training: Training, interrupted: bool) -> None:
        """Called once at the end. After an interruption there is little time left."""


def stops(answer: Any) -> bool:
    """Returns True if a callback's answer is False, be it Python's, NumPy's or JAX's."""
    if not isinstance(answer, np.bool_ | np.ndarray | jax.Array) or answer.dtype != bool:
        return answer is False
    if answer.size != 1:
        raise ConfigError(f"a callback must return one truth value or None, got {answer.size}: use .all() or .any()")
    return not answer.any()


class _Function(Callback):
    def __init__(self, function: Callable[[Training], bool | None]) -> None:
        self._function = function

    def __call__(self, training: Training) -> bool | None:
        return self._function(training)


def as_callback(given: Any) -> Callback:
    """Returns a callback from a callback, a function, a list of them, or None."""
    if given is None:
        return Callback()
    if isinstance(given, Callback):
        return given
    if isinstance(given, list | tuple):
        return _Several([as_callback(each) for each in given])
    if callable(given) and not isinstance(given, type):
        return _Function(given)
    raise ConfigError(
        f"callback = {shown(given)} must be a function of a moca.Training, a moca.Callback, or a list of them"
    )


def refuse_other_scores(callback: Callback, run: Run) -> None:
    """Raises if the callback keeps the best policies, but those in the directory are damaged."""
    if callback.keeps_best and (run.path / f"{BEST}.json").exists():
        read_scores(run)


def keeping_best(callback: Callback, run: Run, candidates: bool, console: Console) -> Callback:
    """Returns a callback that also keeps the best policies, if the run kept some or candidates."""
    kept = (run.path / f"{BEST}.json").exists()
    if callback.keeps_best or not (kept or candidates):
        return callback
    try:
        _ = kept and (read_scores(run), run.best.learners)
    except (ConfigError, OSError) as error:
        console.print(f"note: the best policies are not kept any longer: {error}", markup=False, soft_wrap=True)
        return callback
    return _Several([callback, KeepBest()])


class _Several(Callback):
    def __init__(self, callbacks: list[Callback]) -> None:
        self._callbacks = callbacks
        self.options = " ".join(each.options for each in callbacks if each.options)
        self.ending = "; ".join(each.ending for each in callbacks if each.ending)
        self.keeps_best = any(each.keeps_best for each in callbacks)

    @property
    def reason(self) -> str:  # type: ignore[override]
        return "; ".join(each.reason for each in self._callbacks if each.reason)

    def take(self, candidates: list[np.ndarray], like: Any) -> None:
        for each in self._callbacks:
            each.take(candidates, like)

    def start(self, run: Run) -> bool | None:
        answers = [each.start(run) for each in self._callbacks]
        return False if any(map(stops, answers)) else None

    def __call__(self, training: Training) -> bool | None:
        answers = [each(training) for each in self._callbacks]  # all are called for every episode
        return False if any(map(stops, answers)) else None

    def candidates(self) -> list[np.ndarray]:
        return next((each.candidates() for each in self._callbacks if each.keeps_best), [])

    def end(self, training: Training, interrupted: bool) -> None:
        for each in self._callbacks:
            each.end(training, interrupted)


class EarlyStopping(Callback):
    """Stops when the mean over runs has not improved for `patience` evaluations, or reaches a goal.

    Evaluations during the warm-up (`train.warmup`), when nothing is learned, do not count.

    Args:
        patience: Number of evaluations without improvement.
        rise: The smallest increase that counts as an improvement.
        goal: Stop as soon as the mean reaches this value.
        metric: A column of metrics.jsonl.
    """

    def __init__(
        self, patience: int = 10, *, rise: float = 0.0, goal: float | None = None, metric: str = "return_mean"
    ) -> None:
        if not isinstance(metric, str):
            raise ConfigError(f"metric = {shown(metric)} must be the name of a metric, such as return_mean")
        self._patience, self._rise, self._metric = whole("patience", patience, 1), real("rise", rise), metric
        self._goal = np.inf if goal is None else real("goal", goal, -np.inf)
        self.options = f"--patience {self._patience}"

    def __repr__(self) -> str:
        return f"EarlyStopping({self._patience}, rise={self._rise:g}, goal={self._goal:g}, metric={self._metric!r})"

    def start(self, run: Run) -> bool | None:
        """Replays the evaluations before an interruption, but not those before an end or a stop.

        Returns False if the last episode was one to stop at, and the run died before it did.
        """
        self._best, self._since, self._warmup = -np.inf, 0, run.config.train.warmup
        since, runs, ended = max(run.directory.begun, default=0), len(run.directory.runs), False
        rows = [row for row in run.rows if row["step"] > since]
        for first in range(0, len(rows), runs):
            values = np.array([row.get(self._metric) for row in rows[first : first + runs]], float)
            # With less patience than before, it may have stopped earlier.
            if ended := self._stops(rows[first]["step"], values):
                self._best, self._since = -np.inf, 0
        return False if ended else None

    def __call__(self, training: Training) -> bool | None:
        """Checks the metric, if it was measured."""
        if self._metric not in training.metrics:
            known = ", ".join(sorted(training.metrics))
            raise ConfigError(f"metric = {shown(self._metric)} is unknown. Allowed: {known}")
        return False if self._stops(training.step, training.metrics[self._metric]) else None

    def _stops(self, step: int, values: np.ndarray) -> bool:
        self.reason = ""
        if step <= self._warmup or not np.isfinite(values).any():
            return False
        mean = float(np.nanmean(values))
        rose = mean > self._best + self._rise or not np.isfinite(self._best)
        self._best, self._since = (mean, 0) if rose else (self._best, self._since + 1)
        if mean >= self._goal:
            self.reason = f"{self._metric} reached {self._goal:g}"
        elif self._since >= self._patience:
            count = f"{self._patience} evaluation{'s' * (self._patience > 1)}"
            self.reason = f"{self._metric} did not rise in {count} (--patience)"
        return bool(self.reason)


class KeepBest(Callback):
    """Keeps the best policy of each run in best.npz, for `moca.load(path, which="best")`.

    A policy becomes a candidate if it has its run's highest evaluation so far. To avoid choosing a
    lucky evaluation, the last few candidates of each run and its last policy are compared at the
    end over new episodes, and the best one is scored over further ones. best.json holds that score,
    its 95 % interval and the step, and the last policy's score over the same episodes. A policy
    kept earlier is also a candidate.

    Args:
        episodes: Number of new episodes each time.
        candidates: Number of candidates compared per run.
    """

    options, keeps_best = "--keep-best", True

    def __init__(self, episodes: int = 30, candidates: int = 3) -> None:
        self._episodes = whole("episodes", episodes, 2, MOST)
        self._most = whole("candidates", candidates, 2, CANDIDATES)
        self.ending = f"Comparing the best policies over {self._episodes} new episodes each …"
        self._saved: tuple[list[np.ndarray], Any] = [], None

    def __repr__(self) -> str:
        return f"KeepBest(episodes={self._episodes}, candidates={self._most})"

    def take(self, candidates: list[np.ndarray], like: Any) -> None:
        """Stores the candidates of a checkpoint."""
        self._saved = candidates, jax.tree.structure(like)

    def start(self, run: Run) -> None:
        """Starts with the candidates of the checkpoint, or the policies kept earlier."""
        runs, rows, (saved, structure) = len(run.directory.runs), run.rows, self._saved
        self._highest = np.full(runs, -np.inf)
        self._seen = np.zeros(runs, np.int64)  # candidates of each run so far
        self._held: list[tuple[Any, np.ndarray]] = []  # learners and their steps, by run
        scores = read_scores(run) if (run.path / f"{BEST}.json").exists() else []  # none if the run died
        if saved:
            self._seen, self._highest, steps, *leaves = saved
            self._held = [
                (jax.tree.unflatten(structure, [leaf[place] for leaf in leaves]), own)
                for place, own in enumerate(steps)
            ]
        elif scores and max(row["step"] for row in scores) <= (rows[-1]["step"] if rows else 0):
            self._keep_only(jax.tree.map(np.array, run.best.learners), scores)

    def _keep_only(self, learners: Any, scores: list[dict[str, Any]]) -> None:
        """Makes these policies the only candidates."""
        self._held = [(learners, np.array([row["step"] for row in scores], np.int64))]
        self._highest = np.array([-np.inf if row["return_mean"] is None else row["return_mean"] for row in scores])
        self._seen = np.ones(len(scores), np.int64)

    def candidates(self) -> list[np.ndarray]:
        """Returns the numbers of candidates, highest returns, steps, and learners, as copies."""
        if not self._held:
            return []
        held = [[*jax.tree.leaves(learners), steps] for learners, steps in self._held]
        *leaves, steps = map(np.stack, zip(*held, strict=True))
        return [self._seen.copy(), self._highest.copy(), steps, *leaves]

    def __call__(self, training: Training) -> None:
        """Stores new candidates."""
        returns = training.metrics["return_mean"]
        better = np.flatnonzero(returns > self._highest)
        if not better.size:
            return
        learners = jax.device_get(training.learners)
        for run in better:
            place = min(self._seen[run] % self._most, len(self._held))
            if place == len(self._held):
                copy = jax.tree.map(np.array, learners)
                self._held.append((copy, np.full(len(returns), training.step)))
            held, steps = self._held[place]
            for ours, theirs in zip(jax.tree.leaves(held), jax.tree.leaves(learners), strict=True):
                ours[run] = theirs[run]
            steps[run], self._highest[run] = training.step, returns[run]
            self._seen[run] += 1

    def end(self, training: Training, interrupted: bool) -> None:
        """Compares the candidates and writes the best of each run; if interrupted, the newest."""
        held = self._held
        if not interrupted:
            held = [*held, (jax.device_get(training.learners), np.full(len(self._seen), training.step))]
        if not held:
            return
        run, runs = training.run, np.arange(len(self._seen))
        if interrupted:
            chosen = np.maximum(self._seen - 1, 0) % self._most
        else:
            scores = np.array([self._scores(run, each, FRESH)[0] for each, _ in held])
            taken = np.arange(len(held))[:, None] < self._seen  # the other entries are copies
            taken[-1] = True
            chosen = np.where(taken & np.isfinite(scores), scores, -np.inf).argmax(axis=0)
        picked = jax.tree.map(lambda *leaves: np.stack(leaves)[chosen, runs], *(each for each, _ in held))
        steps = np.stack([steps for _, steps in held])[chosen, runs]
        mean, half = (self._highest, self._highest * np.nan) if interrupted else self._scores(run, picked, FRESH + 1)
        last = self._highest * np.nan if interrupted else self._scores(run, held[-1][0], FRESH + 1)[0]
        with run.directory.writing():
            rows = [
                {**each, "step": int(steps[i]), "return_mean": float(mean[i]) if np.isfinite(mean[i]) else None,
                 "last": float(last[i]) if np.isfinite(last[i]) else None,
                 "interval": None if interrupted else float(half[i]), "episodes": 0 if interrupted else self._episodes}
                for i, each in enumerate(run.directory.runs)
            ]  # fmt: skip
            (run.path / f"{BEST}.json").unlink(missing_ok=True)  # it scores the policies that are now replaced
            digest = files.digest(run.directory.save_policy(picked, f"{BEST}.npz"))
            told = [row | {"sha256": digest} for row in rows]
            files.write(run.path / f"{BEST}.json", (json.dumps(told, indent=1) + "\n").encode())
        if not interrupted:
            self._keep_only(picked, rows)

    def _scores(self, run: Run, learners: Any, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns mean returns over new episodes, and half the width of their 95 % intervals."""
        rows = run.evaluate_learners(learners, self._episodes, seed)
        std = np.array([row["return_std"] for row in rows]) * np.sqrt(self._episodes / (self._episodes - 1))
        return np.array([row["return_mean"] for row in rows]), interval(std, self._episodes)


def read_scores(run: Run) -> list[dict[str, Any]]:
    """Returns the scores of the best policies, one row per run: see `KeepBest`.

    Raises:
        ConfigError: If there are none, or if best.npz holds other policies than were scored.
    """
    path = run.path / f"{BEST}.json"
    try:
        rows = read_json(path)
    except FileNotFoundError:
        how = "train with --keep-best or callback=moca.KeepBest(), which writes it when training ends or stops"
        raise ConfigError(f"{run.path} has no {path.name}: {how}") from None
    runs, wanted = run.directory.runs, {"step", "return_mean"}
    if (
        not isinstance(rows, list)
        or len(rows) != len(runs)
        or not all(isinstance(row, dict) and wanted <= row.keys() for row in rows)
        or not all(type(row["step"]) is int and 0 <= row["step"] < 2**31 for row in rows)
        or not all(row["return_mean"] is None or is_number(row["return_mean"]) for row in rows)
    ):
        raise ConfigError(f"{path} does not list a score for each run: remove it together with {BEST}.npz")
    told = {str(row["sha256"]) for row in rows if "sha256" in row}  # none in version 0.1.0
    if told and told != {files.digest(run.path / f"{BEST}.npz")}:
        raise ConfigError(f"{path} has the scores of other policies than those in {BEST}.npz: remove both files")
    return rows
