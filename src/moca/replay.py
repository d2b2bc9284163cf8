"""The replay buffer: one array of packed rows, written in place and read by one gather.

The write position is not part of it. All runs of a program write the same row at the same step, so
the index is a plain number, not one per run, and the write stays a slice update under `vmap`.
"""

from itertools import accumulate
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, UInt32


class Transition(NamedTuple):
    """(s, a, r, s′, d), one or many along leading axes.

    With a filter, s and s′ are means of beliefs.
    """

    observation: Float[Array, "*n obs"]
    action: Float[Array, "*n act"]
    reward: Float[Array, "*n"]
    next_observation: Float[Array, "*n obs"]
    terminated: Float[Array, "*n"]  # 1 if the task itself ended, 0 at a time limit
    measured: Float[Array, "*n obs"] | None = None  # with a filter: the observation of s′
    spread: Float[Array, "*n obs"] | None = None  # and the variance of s′ inherited from s


Replay = Float[Array, "capacity row"]


def empty(capacity: int, observation_size: int, action_size: int, filtered: bool) -> Replay:
    """Returns an empty buffer for `capacity` transitions."""
    return jnp.zeros((capacity, (4 if filtered else 2) * observation_size + action_size + 2))


def add(replay: Replay, index: Int[Array, ""], transition: Transition) -> Replay:
    """Writes the `index`-th transition, counted from the first ever; the oldest is overwritten."""
    row = jnp.concatenate([jnp.atleast_1d(part).astype(replay.dtype) for part in transition if part is not None])
    return jax.lax.dynamic_update_index_in_dim(replay, row, index % len(replay), axis=0)


def sample(
    replay: Replay, bits: UInt32[Array, "*n"], written: Int[Array, ""], observation_size: int, action_size: int
) -> Transition:
    """Returns one transition per random word, uniform over the `written` so far."""
    return read(replay, places(len(replay), bits, written), observation_size, action_size)


def places(capacity: int, bits: UInt32[Array, "*n"], written: Int[Array, ""]) -> Int[Array, "*n"]:
    """Returns one row index per random word, uniform over those written, up to a bias of 2⁻³²."""
    return (bits % jnp.minimum(written, capacity).astype(jnp.uint32)).astype(jnp.int32)


def read(replay: Replay, indices: Int[Array, "*n"], observation_size: int, action_size: int) -> Transition:
    """Returns the transitions with these indices, counted from the first ever."""
    rows = replay[indices % len(replay)]
    filtered = rows.shape[-1] > 2 * observation_size + action_size + 2
    sizes = (observation_size, action_size, 1, observation_size, 1) + filtered * (observation_size,)
    observation, action, reward, following, terminated, *rest = jnp.split(rows, list(accumulate(sizes)), axis=-1)
    belief = rest if filtered else (None, None)
    return Transition(observation, action, reward[..., 0], following, terminated[..., 0], *belief)
