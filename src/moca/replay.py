"""The replay memory: one array of packed rows, written in place and read by one gather.

The position is no part of it: every run of a program writes the same row at the same step, so the index is a plain
number that is not carried per run, and the write stays a slice update when runs are vmapped.
"""

from itertools import accumulate
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, UInt32


class Transition(NamedTuple):
    """(s, a, r, s′, d); with leading axes, many of them. Under a filter s and s′ are means of beliefs."""

    observation: Float[Array, "*n obs"]
    action: Float[Array, "*n act"]
    reward: Float[Array, "*n"]
    next_observation: Float[Array, "*n obs"]
    terminated: Float[Array, "*n"]  # one where the task itself ended; a time limit leaves it zero
    measured: Float[Array, "*n obs"] | None = None  # under a filter: what was observed of s′,
    spread: Float[Array, "*n obs"] | None = None  # and the variance of s′ that comes from not knowing s


Replay = Float[Array, "capacity row"]


def empty(capacity: int, observation_size: int, action_size: int, filtered: bool) -> Replay:
    """A memory for `capacity` transitions."""
    return jnp.zeros((capacity, (4 if filtered else 2) * observation_size + action_size + 2))


def add(replay: Replay, index: Int[Array, ""], transition: Transition) -> Replay:
    """The memory with its `index`-th transition (counted from the first ever) written; the oldest gives way."""
    row = jnp.concatenate([jnp.atleast_1d(part).astype(replay.dtype) for part in transition if part is not None])
    return jax.lax.dynamic_update_index_in_dim(replay, row, index % len(replay), axis=0)


def sample(
    replay: Replay, bits: UInt32[Array, "*n"], written: Int[Array, ""], observation_size: int, action_size: int
) -> Transition:
    """For each random word a transition, uniform over the `written` so far."""
    return read(replay, places(len(replay), bits, written), observation_size, action_size)


def places(capacity: int, bits: UInt32[Array, "*n"], written: Int[Array, ""]) -> Int[Array, "*n"]:
    """For each random word a row, uniform over those written so far (to the 2⁻³² of a remainder's bias)."""
    return (bits % jnp.minimum(written, capacity).astype(jnp.uint32)).astype(jnp.int32)


def read(replay: Replay, indices: Int[Array, "*n"], observation_size: int, action_size: int) -> Transition:
    """The transitions with these numbers, counted from the first ever."""
    rows = replay[indices % len(replay)]
    filtered = rows.shape[-1] > 2 * observation_size + action_size + 2
    sizes = (observation_size, action_size, 1, observation_size, 1) + filtered * (observation_size,)
    observation, action, reward, following, terminated, *rest = jnp.split(rows, list(accumulate(sizes)), axis=-1)
    belief = rest if filtered else (None, None)
    return Transition(observation, action, reward[..., 0], following, terminated[..., 0], *belief)
