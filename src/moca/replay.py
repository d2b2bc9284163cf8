"""The replay buffer: one array of packed rows, written in place and read by one gather.

The write position is not part of it. All runs of a program write the same row at the same step, so
the index is a plain number, not one per run, and the write stays a slice update under `vmap`.
"""

from itertools import accumulate
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, UInt32


class Late(NamedTuple):
    """The step that a late measurement concludes: see `sensed`."""

    observation: Float[Array, "*n obs"]
    action: Float[Array, "*n act"]
    next_observation: Float[Array, "*n obs"]
    spread: Float[Array, "*n obs"]
    arrived: Float[Array, "*n"]  # 0 at the start of an episode, while no measurement has arrived


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
    late: Late | None = None  # with a filter and a delay: the step whose outcome was measured
    width: Float[Array, "*n obs"] | None = None  # with belief.width: that of the belief over s, see `moca.width`
    next_width: Float[Array, "*n obs"] | None = None  # and over s′
    missing: Bool[Array, "*n obs"] | None = None  # dimensions of s′ that were not measured: see `with_gaps`


Replay = Float[Array, "capacity row"]


def empty(
    capacity: int, observation_size: int, action_size: int, filtered: bool, late: bool = False, wide: bool = False
) -> Replay:
    """Returns an empty buffer for `capacity` transitions."""
    row = (4 if filtered else 2) * observation_size + action_size + 2
    row += late * (3 * observation_size + action_size + 1) + wide * 2 * observation_size
    return jnp.zeros((capacity, row))


def add(replay: Replay, index: Int[Array, ""], transition: Transition) -> Replay:
    """Writes the `index`-th transition, counted from the first ever; the oldest is overwritten."""
    row = jnp.concatenate([jnp.atleast_1d(part).astype(replay.dtype) for part in jax.tree.leaves(transition)])
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
    rows, size = replay[indices % len(replay)], observation_size
    filtered = rows.shape[-1] > 2 * size + action_size + 2
    more = rows.shape[-1] - (4 * size + action_size + 2)  # of late measurements, of widths, or of both
    late = more > 2 * size
    wide = more > late * (3 * size + action_size + 1)
    sizes = [size, action_size, 1, size, 1] + filtered * [size, size]
    sizes += late * [size, action_size, size, size, 1] + wide * [size, size]
    observation, action, reward, following, terminated, *rest = jnp.split(rows, list(accumulate(sizes[:-1])), axis=-1)
    belief = rest[:2] if filtered else (None, None)
    found = Transition(observation, action, reward[..., 0], following, terminated[..., 0], *belief)
    if late:
        before, sent, after, spread, arrived = rest[2:7]
        found = found._replace(late=Late(before, sent, after, spread, arrived[..., 0]))
    return found._replace(width=rest[-2], next_width=rest[-1]) if wide else found


def with_gaps(transition: Transition) -> Transition:
    """Returns transitions as stored with `missing` marked, and NaN replaced.

    NaN marks a missing measurement: in `measured` with a filter, which has a belief over s′ anyway,
    and in `next_observation` without, where the agent holds the last observation [choice].
    """
    observation, following, measured = transition.observation, transition.next_observation, transition.measured
    if measured is not None:
        missing = jnp.isnan(measured)
        return transition._replace(measured=jnp.where(missing, following, measured), missing=missing)
    missing = jnp.isnan(following)
    return transition._replace(next_observation=jnp.where(missing, observation, following), missing=missing)


def sensed(transition: Transition) -> Transition:
    """Returns transitions as the sensor saw them, for models of what it measures.

    With a delay these are the steps to the measured states. Where no measurement has arrived there
    is no step: everything is missing, and a new belief starts.
    """
    if transition.late is None:
        return transition
    observation, action, following, spread, arrived = transition.late
    restarts = jnp.where(arrived > 0, transition.terminated, 1)
    return Transition(
        observation, action, transition.reward, following, restarts, transition.measured, spread,
        missing=transition.missing,
    )  # fmt: skip


def with_width(transition: Transition) -> Transition:
    """Returns transitions whose s and s′ are what V sees: means of beliefs, and their widths."""
    if transition.width is None or transition.next_width is None:
        return transition
    return transition._replace(
        observation=jnp.concatenate([transition.observation, transition.width], axis=-1),
        next_observation=jnp.concatenate([transition.next_observation, transition.next_width], axis=-1),
    )
