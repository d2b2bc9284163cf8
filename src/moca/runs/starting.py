"""Runs that start from the weights of another run, which they copy."""

from typing import Any

import jax
import numpy as np

from moca import files
from moca.config import Config, ConfigError, flatten, shown
from moca.drivers import make_env, refuse_overlap, refuse_unfit_settings, state_shapes
from moca.envs.environment import Spaces
from moca.loop import init_run
from moca.runs import checkpoint, learned, origin
from moca.runs.directory import RunDirectory

FILE = "start.npz"
NETWORKS = ("critic.", "value.", "dynamics.", "belief.", "sac.", "plan.", "sensor.")  # settings that may change shapes


def refuse_unfit(config: Config, count: int, env: Spaces | None, start: Any, overlap: bool) -> None:
    """Raises if that many runs do not fit their environment, the memory or two cores.

    Or if they cannot start from the weights of another. Called before anything is written.
    """
    if start is not None and not (hasattr(start, "learners") and hasattr(start, "directory")):
        raise ConfigError(f"start = {shown(start)} must be a run, as moca.load returns it")
    whole = make_env(config, env)
    refuse_unfit_settings(config, whole, count, lambda: state_shapes(config, whole, count))
    if overlap:
        refuse_overlap(config, count, whole)
    if start is not None:
        _refuse_other_shapes(config, whole, start)


def _refuse_other_shapes(config: Config, env: Spaces, start: Any) -> None:
    """Raises unless the learners of another run have the shapes of this one's."""
    key = jax.eval_shape(lambda: jax.random.key(0))
    own = _shapes(jax.eval_shape(lambda key: init_run(config, env, key).learner, key))
    theirs = _shapes(jax.eval_shape(lambda: jax.tree.map(lambda leaf: leaf[0], start.learners)))
    if theirs == own:
        return
    held, wanted = flatten(start.config), flatten(config)
    compared: dict[str, tuple[Any, Any]] = {
        "agent": (start.config.agent, config.agent),
        "number of observed dimensions": (start.environment.observation_size, env.observation_size),
        "number of actions": (start.environment.action_size, env.action_size),
    }
    networks = [name for name in wanted if name.startswith(NETWORKS) and isinstance(wanted[name], int | str)]
    compared |= {name: (held[name], wanted[name]) for name in networks}
    different = [f"its {name} is {one}, not {other}" for name, (one, other) in compared.items() if one != other]
    why = ", ".join(different[:3]) or "its arrays have other shapes"
    raise ConfigError(f"cannot start from {start.path}: {why}; the networks must have the same shapes")


def _shapes(learner: Any) -> dict[str, str]:
    """Returns the types and shapes of a learner's arrays, such as `float32[5, 64]`, by path."""
    leaves = zip(learned.paths(learner), jax.tree.leaves(learner), strict=True)
    return {path: f"{leaf.dtype}{list(leaf.shape)}" for path, leaf in leaves}


def copied(directory: RunDirectory, start: Any) -> bool:
    """Returns True if no weights are left to be copied; raises if the run started from others."""
    told: Any = directory.meta.get("start")
    if start is None:
        if told is not None:
            raise ConfigError(f"{directory.path} has a run that started from another run's weights: use --resume")
        return True
    same = isinstance(told, dict) and told.get("run") == str(start.path)
    if same and told.get("sha256"):
        return True
    if told is not None and not same:
        raise ConfigError(f"{directory.path} has a run that did not start from the weights of {start.path}")
    if any(directory.checkpoints.glob("*")) or directory.rows():
        raise ConfigError(f"{directory.path} already has a run, which did not start from another run's weights")
    return False


def keep(directory: RunDirectory, start: Any) -> None:
    """Copies the weights of another run, if any, into a locked directory, unless already copied."""
    if copied(directory, start):
        return
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
