"""The policies of a run that answer questions, and the steps behind them."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from moca.runs import BEST, lock, saving
from moca.runs.directory import RunDirectory

if TYPE_CHECKING:
    from moca.drivers import Trainer
    from moca.runs.run import Run


class Policies(NamedTuple):
    """The learners of all runs, stacked, and the environment steps behind each."""

    learners: Any
    steps: list[int]  # empty if unknown: a run died as it wrote its best policies
    compared: bool = True  # False for candidates for the best policies, of an interrupted run


def renew(run: "Run", trainer: "Trainer | None") -> None:
    """Makes a run answer with the present policies of its trainer.

    Without one, it answers with those of its directory again. To be called after every episode:
    what the run answered with before is forgotten.
    """
    for name in ("_policies", "_placed"):
        run.__dict__.pop(name, None)
    run.__dict__["_trainer"] = trainer


def found(run: "Run", like: Any) -> Policies:
    """Returns the policies that a run answers with, in the structure of `like`.

    They are the best ones, the final ones, or those of the newest checkpoint; in a callback, those
    of the trainer.
    """
    directory, trainer = run.directory, run.__dict__.get("_trainer")
    if trainer is not None:  # copies, since the memory of the trainer's own is used again
        learners = jax.tree.map(np.array, jax.device_get(trainer.learners))
        return Policies(learners, [trainer.step] * len(directory.runs))
    if run.which == BEST:
        scores = _best_scores(run)
        learners, compared = directory.load_policy(like.learner, f"{BEST}.npz"), all(map(_is_compared, scores))
        return Policies(learners, [row["step"] for row in scores], compared)
    newest = None if directory.ended else saving.newest_policies(directory, like)
    if newest is None:
        return Policies(directory.load_policy(like.learner), steps_at_end(directory))
    learners, step = newest
    return Policies(learners, [step] * len(directory.runs))


def _best_scores(run: "Run") -> list[dict[str, Any]]:
    from moca.runs.callbacks import read_scores  # which needs the module of `Run`

    if (run.path / f"{BEST}.npz").exists() and not (run.path / f"{BEST}.json").exists():
        return []
    return read_scores(run)  # raises if there are none, or if they are of other policies


def _is_compared(score: Mapping[str, Any]) -> bool:
    """Returns False if the score is that of an evaluation in training: the run was interrupted."""
    return score.get("interval", 0) is not None


def refuse_none(run: "Run", number: int | None = None) -> None:
    """Raises if there is no run of that number, or if no best policies were kept: at once."""
    if number is not None:
        run._refuse_run(number)
    if run.which == BEST:
        _best_scores(run)


def steps_at_end(directory: RunDirectory) -> list[int]:
    """Returns the steps behind each policy in policy.npz, which is written when training ends."""
    step = directory.status["step"] if directory.ended else max(directory.begun, default=0)
    return [step] * len(directory.runs)


def progress(directory: RunDirectory) -> int:
    """Returns the environment steps done; of a run in training, those of its newest row.

    status.json then has the step at which training began.
    """
    status = directory.status
    rows = directory.rows() if status["state"] in ("running", "unknown") else []
    return rows[-1]["step"] if rows else status["step"]


def state(directory: RunDirectory) -> str:
    """Returns the state of a run, which is interrupted if its process died without writing so."""
    found = directory.status["state"]
    return "interrupted" if found == "running" and not lock.owner(directory.path) else found


def told(run: "Run", number: int | None = None) -> str:
    """Returns the steps behind the policies as text, and those of the run if it is further.

    With a `number`, it is about the policy of that run alone.
    """
    behind = run.policy_steps if number is None else run.policy_steps[number : number + 1]
    steps, at = sorted(set(behind)), progress(run.directory)
    name = ("best " if run.which == BEST else "") + ("policies" if number is None else "policy")
    if not steps:
        return f"{name} after an unknown number of steps"
    text = f"{name} after step {steps[0]:,}" + f" to {steps[-1]:,}" * (len(steps) > 1)
    if run.which == BEST:
        which = "candidates" if number is None else "a candidate"
        return text if run._policies.compared else f"{text}: {which}, not yet compared over new episodes"
    return f"{text}; the run is at {at:,}" if at > steps[-1] else text
