"""Runs that start from the weights of another run, which they copy."""

from typing import Any

import jax
import numpy as np

from moca import files
from moca.config import ConfigError, shown
from moca.runs import checkpoint, origin
from moca.runs.directory import RunDirectory

FILE = "start.npz"


def refuse_other(start: Any) -> None:
    """Raises if this is not a run whose weights load. Called before anything is written."""
    if start is None:
        return
    if not (hasattr(start, "learners") and hasattr(start, "directory")):
        raise ConfigError(f"start = {shown(start)} must be a run, as moca.load returns it")
    _ = start.learners


def keep(directory: RunDirectory, start: Any) -> None:
    """Copies the weights of another run, if any, into a locked directory, unless already copied."""
    told: Any = directory.meta.get("start")
    if start is None:
        if told is not None:
            raise ConfigError(f"{directory.path} has a run that started from another run's weights: use --resume")
        return
    same = isinstance(told, dict) and told.get("run") == str(start.path)
    if same and told.get("sha256"):
        return
    if told is not None and not same:
        raise ConfigError(f"{directory.path} has a run that started from other weights than those of {start.path}")
    if any(directory.checkpoints.glob("*")) or directory.rows():
        raise ConfigError(f"{directory.path} already has a run, which did not start from another run's weights")
    count = len(start.directory.runs)
    taken = np.arange(len(directory.runs)) % count
    path = directory.save_policy(jax.tree.map(lambda leaf: np.asarray(leaf)[taken], start.learners), FILE)
    told = {"run": str(start.path), "sha256": files.digest(path)}
    whole = origin.identity(directory._read("config.json"), directory.runs, told)
    directory.note(start=told, identity=whole)


def begun(directory: RunDirectory, state: Any) -> Any:
    """Returns the initial state of a run, with the weights of another run if it was given one.

    Optimisers and moving averages are copied too. Updates are counted from zero, for the schedules.
    """
    told = directory.meta.get("start")
    if told is None:
        return state
    path = directory.path / FILE
    found = files.digest(path)
    if not isinstance(told, dict) or not found or found != told.get("sha256"):
        raise ConfigError(f"{path} does not hold the weights that the run started from: start a new run elsewhere")
    learner = directory.load_policy(state.learner, FILE)._replace(updates=state.learner.updates)
    return state._replace(learner=checkpoint.from_host(jax.tree.leaves(learner), state.learner))
