"""Runs that start from the weights of another run, which they copy."""

from typing import Any

import jax
import numpy as np

from moca import files
from moca.config import Config, ConfigError, flatten, override, shown
from moca.drivers import make_env, refuse_overlap
from moca.envs.environment import Spaces
from moca.loop import init_run
from moca.runs import checkpoint, learned, origin
from moca.runs.directory import RunDirectory

FILE = "start.npz"


def refuse_unfit(config: Config, count: int, env: Spaces | None, start: Any, overlap: bool) -> None:
    """Raises if that many runs cannot start from the weights of another, or not with `overlap`.

    Called before anything is written.
    """
    if start is not None and not (hasattr(start, "learners") and hasattr(start, "directory")):
        raise ConfigError(f"start = {shown(start)} must be a run, as moca.load returns it")
    if start is None and not overlap:
        return
    whole = make_env(config, env)
    if overlap:
        refuse_overlap(config, count, whole)
    if start is not None:
        leaves = zip(learned.paths(start.learners), jax.tree.leaves(start.learners), strict=True)
        theirs = {path: (leaf.shape[1:], leaf.dtype) for path, leaf in leaves}
        if theirs != _shapes(config, whole):
            why = _difference(config, whole, start)
            raise ConfigError(f"cannot start from {start.path}: {why}; the networks must have the same shapes")


def _shapes(config: Config, env: Any) -> dict[str, Any]:
    """Returns the shapes and types of a learner's arrays, by path."""
    learner = jax.eval_shape(lambda key: init_run(config, env, key).learner, jax.eval_shape(lambda: jax.random.key(0)))
    leaves = zip(learned.paths(learner), jax.tree.leaves(learner), strict=True)
    return {path: (leaf.shape, leaf.dtype) for path, leaf in leaves}


def _difference(config: Config, env: Any, start: Any) -> str:
    """Returns what gives the learners of another run other shapes."""
    theirs = start.config
    sizes = [(each.observation_size, each.action_size) for each in (start.environment, env)]
    for name, (held, own) in {
        "agent": (theirs.agent, config.agent),
        "number of observed dimensions": (sizes[0][0], sizes[1][0]),
        "number of actions": (sizes[0][1], sizes[1][1]),
    }.items():
        if held != own:
            return f"its {name} is {held}, not {own}"
    shapes, held, own = _shapes(config, env), flatten(theirs), flatten(config)

    def matters(name: str) -> bool:
        try:
            return _shapes(override(config, {name: held[name]}), env) != shapes
        except ConfigError:  # it goes with another setting that differs
            return True

    different = [name for name in own if held[name] != own[name] and isinstance(own[name], int | str)]
    found = [f"its {name} is {shown(held[name])}, not {shown(own[name])}" for name in different if matters(name)]
    return ", ".join(found[:3]) or "its arrays have other shapes"


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
