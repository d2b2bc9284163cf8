"""Runs that begin with another's weights, of which they keep a copy."""

import hashlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from moca.config import ConfigError, shown
from moca.runs.directory import RunDirectory

FILE = "start.npz"


def keep(directory: RunDirectory, start: Any) -> None:
    """Copies what another run has learned into a directory that is locked, unless it was noted there before."""
    if not (hasattr(start, "learners") and hasattr(start, "directory")):
        raise ConfigError(f"start = {shown(start)} must be a run, as moca.load returns it")
    told = directory.meta.get("start")
    if isinstance(told, dict) and told.get("run") == str(start.path):
        return
    if told is not None:
        raise ConfigError(f"{directory.path} holds a run that began with other weights than those of {start.path}")
    if any(directory.checkpoints.glob("*")) or directory.rows():
        raise ConfigError(f"{directory.path} holds a run already, which began without the weights of another")
    count = len(start.directory.runs)
    taken = np.arange(len(directory.runs)) % count
    directory.save_policy(jax.tree.map(lambda leaf: np.asarray(leaf)[taken], start.learners), FILE)
    digest = hashlib.sha256((directory.path / FILE).read_bytes()).hexdigest()
    directory.note(start={"run": str(start.path), "sha256": digest})


def begun(directory: RunDirectory, state: Any) -> Any:
    """The state with which a run begins: its own, with the weights of another if it was given them.

    Optimisers and moving averages come along; updates are counted from zero, for the schedules.
    """
    told = directory.meta.get("start")
    if told is None:
        return state
    path = directory.path / FILE
    try:
        found = hashlib.sha256(path.read_bytes()).hexdigest()
    except FileNotFoundError:
        found = ""
    if not isinstance(told, dict) or found != told.get("sha256"):
        raise ConfigError(f"{path} is not what the run began with: begin a new run elsewhere")
    like = jax.eval_shape(lambda: state.learner)
    learner = directory.load_policy(like, FILE)._replace(updates=state.learner.updates)
    placed = jax.tree.map(
        lambda new, old: jax.device_put(jnp.asarray(new, old.dtype), old.sharding), learner, state.learner
    )
    return state._replace(learner=placed)
