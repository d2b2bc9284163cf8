"""The replay buffer: one array of packed rows, written in place and read by one gather.

The write position is not part of it. All runs of a program write the same row at the same step, so
the index is a plain number, not one per run, and the write stays a slice update under `vmap`.
"""

from itertools import accumulate
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt32


class Late(NamedTuple):
    """The step that a late measurement concludes: see `sensed`."""

    observation: Float[Array, "*n obs"]
    action: Float[Array, "*n act"]
    next_observation: Float[Array, "*n obs"]
    spread: Float[Array, "*n packed"]
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
    spread: Float[Array, "*n packed"] | None = None  # and the covariance of s′ inherited from s: see `pack`
    late: Late | None = None  # with a filter and a delay: the step whose outcome was measured
    width: Float[Array, "*n obs"] | None = None  # with belief.width: that of the belief over s, see `moca.width`
    next_width: Float[Array, "*n obs"] | None = None  # and over s′
    missing: Bool[Array, "*n obs"] | None = None  # dimensions of s′ that were not measured: see `with_gaps`
    action_variance: Float[Array, "*n act"] | None = None  # if imagined actions are distributions; `action` is the mean


Replay = Float[Array, "capacity row"]


class Layout(NamedTuple):
    """The parts of a row. A filter, late samples and a V that sees the width add further parts."""

    observation: int  # sizes
    action: int
    filtered: bool = False  # whether covariances are stored, and what was measured
    late: bool = False
    correlated: bool = False  # whether stored covariances are full, and not diagonals
    wide: bool = False  # whether the widths of beliefs are stored

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of columns of each part."""
        seen, acted = self.observation, self.action
        packed = seen * (seen + 1) // 2 if self.correlated else seen
        sizes = (seen, acted, 1, seen, 1) + self.filtered * (seen, packed)
        return sizes + self.late * (seen, acted, seen, packed, 1) + self.wide * (seen, seen)


def empty(capacity: int, layout: Layout) -> Replay:
    """Returns an empty buffer for `capacity` transitions."""
    return jnp.zeros((capacity, sum(layout.sizes)))


def pack(covariance: Float[Array, "*n obs obs"], correlated: bool) -> Float[Array, "*n packed"]:
    """Returns the diagonal of a covariance or, if `correlated`, its lower triangle, row by row."""
    if not correlated:
        return jnp.maximum(jnp.diagonal(covariance, axis1=-2, axis2=-1), 0)
    rows, columns = np.tril_indices(covariance.shape[-1])
    return covariance[..., rows, columns]


def unpack(packed: Float[Array, "*n packed"], size: int) -> Float[Array, "*n obs obs"]:
    """Returns the covariance that was packed, of so many dimensions."""
    if packed.shape[-1] == size:
        return packed[..., None] * jnp.eye(size, dtype=packed.dtype)
    larger, smaller = np.maximum(*np.indices((size, size))), np.minimum(*np.indices((size, size)))
    return packed[..., larger * (larger + 1) // 2 + smaller]


def variances(packed: Float[Array, "*n packed"], size: int) -> Float[Array, "*n obs"]:
    """Returns the diagonal of the covariance that was packed, of so many dimensions."""
    numbers = np.arange(size)
    return packed if packed.shape[-1] == size else packed[..., numbers * (numbers + 3) // 2]


def add(replay: Replay, index: Int[Array, ""], transition: Transition) -> Replay:
    """Writes the `index`-th transition, counted from the first ever; the oldest is overwritten.

    Raises if it is not laid out as the rows are.
    """
    row = jnp.concatenate([jnp.atleast_1d(part).astype(replay.dtype) for part in jax.tree.leaves(transition)])
    if len(row) != replay.shape[-1]:
        raise ValueError(
            f"a transition of {len(row)} numbers does not fit a replay buffer with rows of {replay.shape[-1]}: "
            "`step` of a filter must return a belief and a covariance packed by `moca.replay.pack` if its "
            "keeps_covariance is True, and otherwise a belief and None"
        )
    return jax.lax.dynamic_update_index_in_dim(replay, row, index % len(replay), axis=0)


def sample(replay: Replay, words: UInt32[Array, "*n"], written: Int[Array, ""], layout: Layout) -> Transition:
    """Returns one transition per random word, uniform over the `written` so far."""
    return read(replay, places(len(replay), words, written), layout)


def places(capacity: int, words: UInt32[Array, "*n"], written: Int[Array, ""]) -> Int[Array, "*n"]:
    """Returns one row index per random word, uniform over those written, up to a bias of 2⁻³²."""
    return (words % jnp.minimum(written, capacity).astype(jnp.uint32)).astype(jnp.int32)


def read(replay: Replay, indices: Int[Array, "*n"], layout: Layout) -> Transition:
    """Returns the transitions with these indices, counted from the first ever."""
    rows = replay[indices % len(replay)]
    parts = jnp.split(rows, list(accumulate(layout.sizes))[:-1], axis=-1)
    observation, action, reward, next_observation, terminated, *rest = parts
    belief = rest[:2] if layout.filtered else (None, None)
    found = Transition(observation, action, reward[..., 0], next_observation, terminated[..., 0], *belief)
    if layout.late:
        before, sent, after, spread, arrived = rest[2:7]
        found = found._replace(late=Late(before, sent, after, spread, arrived[..., 0]))
    return found._replace(width=rest[-2], next_width=rest[-1]) if layout.wide else found


def with_gaps(transition: Transition) -> Transition:
    """Returns transitions as stored with `missing` marked, and NaN replaced.

    NaN marks a missing measurement: in `measured` with a filter, which has a belief over s′ anyway,
    and in `next_observation` without, where the agent holds the last observation [choice].
    """
    observation, next_observation, measured = transition.observation, transition.next_observation, transition.measured
    if measured is not None:
        missing = jnp.isnan(measured)
        return transition._replace(measured=jnp.where(missing, next_observation, measured), missing=missing)
    missing = jnp.isnan(next_observation)
    return transition._replace(next_observation=jnp.where(missing, observation, next_observation), missing=missing)


def sensed(transition: Transition) -> Transition:
    """Returns transitions between measured states, for models of what the sensor measures.

    Without a delay these are the transitions themselves. With one, each step leads to the state
    whose measurement has just arrived. Where none has arrived, the step counts as the end of an
    episode, so that a new belief starts.
    """
    if transition.late is None:
        return transition
    observation, action, next_observation, spread, arrived = transition.late
    restarts = jnp.where(arrived > 0, transition.terminated, 1)
    return Transition(
        observation, action, transition.reward, next_observation, restarts, transition.measured, spread,
        missing=transition.missing,
    )  # fmt: skip


def with_width(transition: Transition) -> Transition:
    """Returns transitions whose s and s′ are what V sees: means of beliefs, and stored widths."""
    if transition.width is None or transition.next_width is None:
        return transition
    return transition._replace(
        observation=jnp.concatenate([transition.observation, transition.width], axis=-1),
        next_observation=jnp.concatenate([transition.next_observation, transition.next_width], axis=-1),
    )
