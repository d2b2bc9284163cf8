"""Runs that diverged: why, and whether a stored state is one that a run can be in."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from moca.replay import Transition

# Why a run was given up, by number.
CAUSES = (
    "",
    "the environment gave a reward or an observation that is not finite",
    "a learned parameter or an action is not finite",
    "|Q| is above 1e6",
)
Q_LIMIT = 1e6  # [choice]


def cause(learner: Any, episode: Transition, metrics: dict[str, Float[Array, ""]]) -> Int[Array, ""]:
    """The number of the cause for which a run is given up after an episode; zero if there is none."""

    def finite(tree: Any) -> Array:
        numbers = [leaf for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.floating)]
        return jnp.stack([jnp.isfinite(leaf).all() for leaf in numbers]).all()

    rows = jax.vmap(finite)(episode._replace(action=jnp.zeros_like(episode.action)))
    # What followed an action that is NaN is the agent's doing.
    environment = ~rows.all() & finite(episode.action[jnp.argmin(rows)])
    exploded = jnp.abs(metrics.get("q_mean", jnp.zeros(()))) > Q_LIMIT
    agent = ~finite((episode, learner))
    return jnp.where(environment, 1, jnp.where(agent, 2, jnp.where(exploded, 3, 0)))


def plausible(state: Any) -> bool:
    """Returns True if runs can be in this state, given as arrays on the host with a leading axis over runs.

    A run that diverged has a learner as it was before, but may have stored what made it diverge.
    """
    if not ((state.diverged >= 0) & (state.diverged < len(CAUSES))).all():
        return False
    numbers = [*jax.tree.leaves(state.learner), state.replay[state.diverged == 0]]
    floats = [leaf for leaf in numbers if np.issubdtype(leaf.dtype, np.floating)]
    counts = [leaf for leaf in numbers if np.issubdtype(leaf.dtype, np.signedinteger)]
    return all(np.isfinite(leaf).all() for leaf in floats) and all((leaf >= 0).all() for leaf in counts)
