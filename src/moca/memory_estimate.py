"""An estimate of the memory that a training program needs, made before it is compiled."""

import math
import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from moca import moments as mm
from moca.config import AGENTS, Config, ConfigError


def refuse_too_large(config: Config, state: Any, runs: int, observed: int, acted: int) -> None:
    """Raises if the runs need more memory than there is; the message says which setting to lower.

    Args:
        config: Settings shared by the runs.
        state: Shapes of the runs' states, with a leading axis over runs.
        runs: Number of runs.
        observed: Size of an observation.
        acted: Size of an action.
    """
    parts = _of_state(config, state)
    for what, size in (_in_between(config, observed, acted) | _in_planning(config, observed, acted)).items():
        parts[what] = parts.get(what, 0) + runs * size
    need, have = sum(parts.values()), available()
    if need > have:
        largest = max(parts, key=lambda what: parts[what])
        fewer = ", or train fewer runs at once" if runs > 1 else ""
        raise ConfigError(
            f"training needs at least {need / 1e9:,.1f} GB of memory, but only {have / 1e9:,.1f} GB are available: "
            f"lower {largest} ({parts[largest] / 1e9:,.1f} GB){fewer}"
        )


def _of_state(config: Config, state: Any) -> dict[str, int]:
    """Returns the bytes of the runs' states, by the setting that determines them."""
    learner = state.learner._asdict() if hasattr(state.learner, "_asdict") else {"learner": state.learner}
    networks = AGENTS[config.agent].load().sized_by
    parts = {"train.capacity": _bytes(state.replay)}
    for name, field in learner.items():
        what = "dynamics.width or dynamics.members" if name == "model" else networks
        what = "plan.bases" if name == "reward" else what
        parts[what] = parts.get(what, 0) + _bytes(field)
    return parts


def _in_between(config: Config, observed: int, acted: int) -> dict[str, int]:
    """Returns the bytes that one run needs for batches, samples and evaluations, by setting."""
    train, dynamics = config.train, config.dynamics
    steps = config.env.episode_length // config.env.action_repeat
    prediction = _prediction(config, observed)
    modelled = prediction is not None or config.belief.filter
    hidden = dynamics.members * dynamics.width * dynamics.depth if modelled else 0
    samples = math.prod(prediction.points.shape) if isinstance(prediction, mm.Empirical) else 0
    return {
        "train.batch or train.updates": 4 * train.updates * train.batch * (2 * observed + acted + 3),
        "train.batch, dynamics.members or dynamics.samples": 4 * train.batch * (hidden + samples),
        "train.eval_episodes or env.episode_length": 4 * 2 * train.eval_episodes * steps * 3,
    }


def _in_planning(config: Config, observed: int, acted: int) -> dict[str, int]:
    """Returns the bytes that one run needs for predictions of several steps, by setting.

    Predictions of a batch are derived by state and action, except those of points.
    """
    plan, train, dynamics, parts = config.plan, config.train, config.dynamics, {}
    if plan.horizon > 1:  # which only an agent with a model may have
        prediction = _prediction(config, observed)
        branches = len(prediction.weights) if isinstance(prediction, mm.GaussianMixture) else 1
        branches = len(prediction.points) if isinstance(prediction, mm.Empirical) else branches
        derived = 1 if isinstance(prediction, mm.Dirac | mm.Empirical) else dynamics.depth + observed + acted
        each = dynamics.members * dynamics.width * derived + plan.bases
        parts["train.batch, plan.horizon or plan.bases"] = 4 * train.batch * branches * each
    own = AGENTS[config.agent].load().numbers_to_decide(config, observed)
    return parts | {what: 4 * count for what, count in own.items()}


def _prediction(config: Config, observed: int) -> Any:
    """Returns the shapes of what the agent's rule makes of one mixture; None if it has no rule."""
    if (load := AGENTS[config.agent].prediction) is None:
        return None
    rule, dynamics = load(), config.dynamics
    full = "full" in (dynamics.covariance, config.belief.covariance if config.belief.filter else "")

    def of_one(key: jax.Array) -> mm.Distribution:
        mean, one = jnp.zeros((dynamics.members, observed)), jnp.ones(dynamics.members)
        spread = jnp.broadcast_to(jnp.eye(observed), (*mean.shape, observed)) if full else jnp.ones_like(mean)
        mixture = mm.GaussianMixture(one / one.size, (mm.Gaussian if full else mm.DiagonalGaussian)(mean, spread))
        return rule(mixture, key, dynamics.samples)

    return jax.eval_shape(of_one, jax.eval_shape(lambda: jax.random.key(0)))


def _bytes(tree: Any) -> int:
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def available() -> int:
    """Returns the bytes of memory of all accelerators, or of this machine if there are none."""
    devices = jax.devices()
    limits = [(device.memory_stats() or {}).get("bytes_limit", 0) for device in devices if device.platform != "cpu"]
    if limits and all(limits):
        return sum(limits)
    host = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    group = Path("/sys/fs/cgroup/memory.max")  # the limit set by a container or a scheduler
    text = group.read_text().strip() if group.is_file() else ""
    return min(host, int(text)) if text.isdigit() else host
