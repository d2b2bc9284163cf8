"""Divergence: detecting its cause, and checking that a stored state is plausible."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from moca.replay import Transition

# Reasons for which a run is stopped, by number.
CAUSES = (
    "",
    "the environment returned a reward or an observation that is not finite",
    "a learned parameter or an action is not finite",
    "|Q| is above 1e6",
)
Q_LIMIT = 1e6  # [choice]


def cause(learner: Any, episode: Transition, metrics: dict[str, Float[Array, ""]]) -> Int[Array, ""]:
    """Returns the number of the cause if the run diverged in this episode, else zero."""

    def finite(tree: Any) -> Array:
        numbers = [leaf.ravel() for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.floating)]
        return jnp.isfinite(jnp.concatenate(numbers)).all()  # together: separate checks take longer to compile

    rows = jax.vmap(finite)(episode._replace(action=jnp.zeros_like(episode.action)))
    # Whatever follows an action that is NaN is the agent's fault.
    environment = ~rows.all() & finite(episode.action[jnp.argmin(rows)])
    exploded = jnp.abs(metrics.get("q_mean", jnp.zeros(()))) > Q_LIMIT
    agent = ~finite((episode, learner))
    return jnp.where(environment, 1, jnp.where(agent, 2, jnp.where(exploded, 3, 0)))


def plausible(state: Any, gaps: bool = False) -> bool:
    """Returns True if a training state is valid: finite numbers, and counts that are not negative.

    The replay buffer of a diverged run is not checked: it may hold the values that caused the
    divergence. Its learner is the one from before.

    Args:
        state: Arrays on the host, with a leading axis over runs.
        gaps: Whether NaN in the replay buffer marks missing samples.
    """
    if not ((state.diverged >= 0) & (state.diverged < len(CAUSES))).all():
        return False
    rows = state.replay[state.diverged == 0]
    numbers = [*jax.tree.leaves(state.learner), rows[~np.isnan(rows)] if gaps else rows]
    floats = [leaf for leaf in numbers if np.issubdtype(leaf.dtype, np.floating)]
    counts = [leaf for leaf in numbers if np.issubdtype(leaf.dtype, np.signedinteger)]
    return all(np.isfinite(leaf).all() for leaf in floats) and all((leaf >= 0).all() for leaf in counts)
