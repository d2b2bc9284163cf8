"""One run on two CPU cores: one updates the model while the other updates the critics and acts.

The critics' update i needs the model's update i, and the next action needs the critics' update i.
But the model's update i + 1 needs only its batch, and all transitions but the newest exist before
the critics' update i. So each core does its part, and they exchange the results. This is exactly
Algorithm 1, in less time. If the newest transition is in the model's next batch, the model waits.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Int, UInt32

from moca import replay
from moca.agents import Agent
from moca.agents.agent import Info
from moca.config import ConfigError
from moca.envs.environment import Environment, Noise
from moca.exploration import ExplorationDraws
from moca.loop import LoopState, StepDraws, StepInfo, interact, update_inputs
from moca.replay import Replay, Transition

AXIS = "core"
MODEL, VALUES = 0, 1  # the part that each core learns
WIDEST = 128  # the widest ensemble: matrix products of wider layers use both cores already


def cores_for(agent: Agent, learner: Any, count: int = 1) -> jax.sharding.Mesh:
    """Returns the two cores for one run.

    Raises `ConfigError` if overlap is impossible or useless.
    """
    config, devices = agent.config, jax.devices()
    hindrances = {
        f"it is for a single run, and {count} runs use all cores already": count > 1,
        "JAX has fewer than two CPU cores here": jax.default_backend() != "cpu" or len(devices) < 2,
        f"{config.agent} is not one of the built-in agents": not type(agent).__module__.startswith("moca.agents."),
        f"{config.agent} without a filter has no model to train in parallel with its critics": learner.model is None,
        f"dynamics.width = {config.dynamics.width} is above {WIDEST}, where matrix products use both cores already": (
            config.dynamics.width > WIDEST
        ),
    }
    if found := [reason for reason, holds in hindrances.items() if holds]:
        raise ConfigError(f"overlap is not possible: {found[0]}")
    return jax.sharding.Mesh(np.array(devices[:2]), (AXIS,))


def on_both(cores: jax.sharding.Mesh, part: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a part of one run's episode as a program for both cores.

    Its first argument is the episode's number. The other ones, and the results, have a leading axis
    over runs.
    """

    def program(number: Any, *arguments: Any) -> Any:
        found = part(number, *jax.tree.map(lambda leaf: leaf[0], arguments))
        return jax.tree.map(lambda leaf: leaf[None], found)

    same = jax.sharding.PartitionSpec()
    return jax.shard_map(program, mesh=cores, in_specs=same, out_specs=same, check_vma=False)


class Work(NamedTuple):
    """The state of one core. The parts that the other core updates are stale until exchanged."""

    env_state: Any
    state: LoopState  # without the replay buffer: both cores write the same into theirs
    newest: Transition
    totals: StepInfo


class Done(NamedTuple):
    """The numbers of agent steps in a block, and of batches used by model and critics."""

    steps: Array
    fits: Array
    updates: Array


StepBlock = tuple[Array, ExplorationDraws, StepDraws]  # indices of agent steps, and their random numbers


def learn_block(
    agent: Any, env: Environment, sensor: Noise, carry: tuple[Any, LoopState], block: StepBlock
) -> tuple[tuple[Any, LoopState], StepInfo]:
    """Runs a block of agent steps with learning.

    Returns the state and sums, to be passed to `settle`.

    Args:
        agent: A built-in agent, whose `update` is `fit_model` followed by `fit_values`.
        env: The environment.
        sensor: The sensor.
        carry: The environment's state and the loop's state.
        block: For each agent step its index, its exploration and its other random numbers.
    """
    env_state, state = carry
    core, count = jax.lax.axis_index(AXIS), len(block[0]) * agent.config.train.updates

    def turn(before: tuple[Work, Replay, Done]) -> tuple[Work, Replay, Done]:
        work, buffer, done = before
        due = _due(agent, block, len(buffer), done)

        def fit(work: Work) -> Work:
            learner, info = agent.fit_model(work.state.learner, *_inputs(agent, block, buffer, done.fits))
            return _learned(work, learner._replace(updates=learner.updates + 1), info)

        def update(work: Work) -> Work:
            return _learned(work, *agent.fit_values(work.state.learner, *_inputs(agent, block, buffer, done.updates)))

        def step(work: Work) -> Work:
            whole = work.state._replace(replay=buffer)
            env_state, after, newest = interact(agent, env, sensor, work.env_state, whole, *_at(block, done.steps))
            newest = jax.tree.map(lambda new, old: new.astype(old.dtype), newest, work.newest)
            totals = work.totals._replace(reward=work.totals.reward + newest.reward)
            return Work(env_state, _alone(after), newest, totals)

        work = _when((core == MODEL) & due.fits, fit, work)
        work = _when((core == VALUES) & due.updates, update, work)
        work = _when((core == VALUES) & due.steps, step, work)
        work = _tell(work)
        done = Done(*map(jnp.add, done, due))
        return work, replay.add(buffer, _at(block[0], done.steps - 1), work.newest), done

    newest = replay.read(state.replay, block[0][0], agent.layout)
    info = jax.eval_shape(agent.update, state.learner, *_inputs(agent, block, state.replay, 0))[1]
    totals = StepInfo(jnp.zeros(()), jnp.zeros(()), {name: jnp.zeros(()) for name in info})
    start = Work(env_state, _alone(state), newest, totals)
    none = Done(*[jnp.zeros((), jnp.int32)] * 3)
    work, buffer, _ = jax.lax.while_loop(lambda now: now[2].updates < count, turn, (start, state.replay, none))
    return (work.env_state, work.state._replace(replay=buffer)), work.totals


def _alone(state: Any) -> LoopState:
    """Returns the loop's state without its replay buffer."""
    return state._replace(replay=None)


def _at(block: Any, number: Int[Array, ""] | int) -> Any:
    """Returns the entry of one step of a block; past the end, that of the last step."""
    return jax.tree.map(lambda leaf: leaf[jnp.minimum(number, len(leaf) - 1)], block)


def _inputs(agent: Any, block: StepBlock, buffer: Replay, number: Int[Array, ""] | int) -> tuple[Transition, Any]:
    """Returns a batch of the block, and the random numbers of its update."""
    each = agent.config.train.updates
    index, _, draws = _at(block, number // each)
    return update_inputs(agent, buffer, draws, number % each, index)


def _due(agent: Any, block: StepBlock, capacity: int, done: Done) -> Done:
    """Marks the parts of the work that are due; the model may have to wait for a new transition."""
    each, steps = agent.config.train.updates, len(block[0])
    step = done.fits // each
    index, _, draws = _at(block, step)
    rows = replay.places(capacity, draws.batch_words[done.fits % each], index + 1)
    stored = (done.steps > step) | (rows != index % capacity).all()
    updating = done.updates < done.fits
    stepping = (done.steps < steps) & (done.steps * each == done.updates + updating)
    return Done(stepping, (done.fits < steps * each) & stored, updating)


def settle(learner: Any, totals: StepInfo) -> tuple[Any, StepInfo]:
    """Combines the cores' results into the learner and the sums of an episode."""
    (fitted, partial), (learner, totals) = _from_both((learner, totals))
    info = jax.tree.map(jnp.add, partial.info, totals.info)
    return learner._replace(model=fitted.model), totals._replace(info=info)


def vmap_halves(function: Callable) -> Callable:
    """`jax.vmap` over an even number of elements, half of them on each core."""

    def whole(*arguments: Any) -> Any:
        def half(leaf: Array) -> Array:
            size = len(leaf) // 2
            return jax.lax.dynamic_slice_in_dim(leaf, jax.lax.axis_index(AXIS) * size, size)

        own = jax.vmap(function)(*jax.tree.map(half, arguments))
        return jax.tree.map(lambda leaf: jax.lax.all_gather(leaf, AXIS, tiled=True), own)

    return whole


def _when(due: Bool[Array, ""], part: Callable[[Work], Work], work: Work) -> Work:
    """Does a part of the work if it is due.

    Written as a loop of at most one iteration, since a branch would copy everything it leaves
    unchanged.
    """
    start = (due, work)
    return jax.lax.while_loop(lambda state: state[0], lambda state: (jnp.array(False), part(state[1])), start)[1]


def _learned(work: Work, learner: Any, info: Info) -> Work:
    """Adds the results of one more batch: the learner, and its metrics in the totals."""
    reward, learned, sums = work.totals
    sums = sums | {name: sums[name] + value for name, value in info.items()}
    return work._replace(state=work.state._replace(learner=learner), totals=StepInfo(reward, learned + 1, sums))


def _tell(work: Work) -> Work:
    """Exchanges results between the cores: the ensemble, and the newest transition."""
    learner = work.state.learner
    (ensemble, _), (_, newest) = _from_both((learner.model.ensemble, work.newest))
    learner = learner._replace(model=learner.model._replace(ensemble=ensemble))
    return work._replace(state=work.state._replace(learner=learner), newest=newest)


def _from_both(tree: Any) -> tuple[Any, Any]:
    """Sends each core's tree to both; returns the tree of the model's core, then the other one.

    Each tree is sent as one message: independent messages may leave the cores in different orders,
    and then each core waits for the other forever.
    """
    words, unravel = ravel_pytree(jax.tree.map(lambda leaf: jax.lax.bitcast_convert_type(leaf, jnp.uint32), tree))
    heard = jax.lax.ppermute(words, AXIS, [(MODEL, VALUES), (VALUES, MODEL)])
    own = jax.lax.axis_index(AXIS) == MODEL

    def unpacked(words: UInt32[Array, "words"]) -> Any:
        return jax.tree.map(lambda a, b: jax.lax.bitcast_convert_type(b, a.dtype), tree, unravel(words))

    return unpacked(jnp.where(own, words, heard)), unpacked(jnp.where(own, heard, words))
