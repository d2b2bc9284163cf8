"""The training loop [Alg. 1 l. 2]: act, observe, learn; and rollouts of a policy without learning.

Every function here is pure and for one run. The drivers schedule them: `moca.drivers.scan` if the
environment is part of the compiled program, `moca.drivers.host` otherwise. Steps are agent steps:
with an action repeat, one agent step is several environment steps. The discount, the update ratio
and the warm-up are ours [choice].
"""

import math
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, UInt32

from moca import replay
from moca.agents import Agent, make_agent
from moca.agents.agent import Info
from moca.belief import Belief, late_part, width
from moca.config import Config
from moca.divergence import cause
from moca.envs.environment import Environment, Noise, Spaces, Step
from moca.envs.sensors import make_sensor
from moca.exploration import ExplorationDraws, Explore
from moca.noise_levels import learn_noise
from moca.replay import Replay, Transition

BLOCK = 100  # the most successive steps whose random numbers are drawn at once
SensorAndBelief = tuple[Any, Belief]  # the sensor's state, and the belief


class RunState(NamedTuple):
    """The state that one run carries from episode to episode."""

    learner: Any  # from before the divergence, if the run diverged
    diverged: Int[Array, ""]  # zero, or the number of the cause
    replay: Replay
    key: Key[Array, ""]  # constant: every episode folds its number into it, and nothing else uses it


class LoopState(NamedTuple):
    """The state that one run carries from step to step, without the environment's."""

    belief: Belief
    learner: Any
    replay: Replay
    sensor: Any = None  # its state, if it has one


class PolicyState(NamedTuple):
    """The state of a policy: its belief, and the action chosen for it."""

    belief: Belief
    action: Float[Array, "act"]


class StepInfo(NamedTuple):
    """Metrics of one step, or sums over many."""

    reward: Float[Array, ""]
    learned: Float[Array, ""]  # one if an update followed, zero during the warm-up
    info: Info


class EpisodeKeys(NamedTuple):
    """The random keys of one episode.

    Training and evaluation have separate keys, so more frequent evaluation does not change
    training.
    """

    reset: Key[Array, ""]
    first: Key[Array, ""]
    explore: Key[Array, ""]
    loop: Key[Array, ""]
    evaluate: Key[Array, ""]
    diagnose: Key[Array, ""]


class StepDraws(NamedTuple):
    """The random numbers of one step, except exploration's, which may be held for many steps."""

    noise: Float[Array, "obs"]  # standard normal
    batch_words: UInt32[Array, "updates batch"]  # random words; each selects one transition of a batch
    update_draws: Any  # `Agent.draw_update`, with a leading axis over updates
    restart_key: Key[Array, ""]  # for the first state of the next episode, if this one ends
    disturbance: Float[Array, "act"]  # of the executed action, standard normal
    sensor: Any  # `Sensor.draw`


def init_run(config: Config, env: Spaces, key: Key[Array, ""]) -> RunState:
    """Returns the initial state of a run."""
    capacity = replay_size(config, config.train.steps)
    learner_key, episode_key = jax.random.split(key)
    agent = make_agent(config, env)
    buffer = replay.empty(capacity, agent.layout)
    return RunState(agent.init(learner_key), jnp.zeros((), jnp.int32), buffer, episode_key)


def replay_size(config: Config, steps: int) -> int:
    """Returns the capacity of the replay buffer of a run with that many steps."""
    return min(config.train.capacity, -(-steps // config.env.action_repeat))


def episode_keys(state: RunState, number: Int[Array, ""]) -> EpisodeKeys:
    """Returns the keys of a run's episode with that number."""
    return EpisodeKeys(*jax.random.split(jax.random.fold_in(state.key, number), len(EpisodeKeys._fields)))


def agent_steps(config: Config) -> int:
    """Returns the number of agent steps in an episode. On the host, the last may exceed its end."""
    return -(-config.env.episode_length // config.env.action_repeat)


def warmup_steps(config: Config) -> int:
    """Returns the number of agent steps in the warm-up; the next one is the first with updates."""
    return config.train.warmup // config.env.action_repeat


def block_size(config: Config) -> int:
    """Returns the number of steps in a block, a divisor of episode and warm-up.

    All steps of a block are then before or after the end of the warm-up. A warm-up that shares no
    divisor with the episode gives blocks of one step, which is slow on a GPU.
    """
    whole = math.gcd(agent_steps(config), warmup_steps(config))
    return max(n for n in range(1, BLOCK + 1) if whole % n == 0)


def draw_step(agent: Agent, key: Key[Array, ""]) -> StepDraws:
    """Returns the random numbers of a step."""
    return jax.tree.map(lambda leaf: leaf[0], draw_steps(agent, key[None]))


def draw_steps(agent: Agent, keys: Key[Array, "steps"]) -> StepDraws:
    """Returns the random numbers of many steps, with a leading axis over them.

    They are drawn with as few axes as possible and reshaped afterwards, since XLA takes several
    times as long to compile draws with more axes.
    """
    train = agent.config.train
    noise_keys, word_keys, update_keys, restart_keys, action_keys = jax.vmap(jax.random.split, (0, None), 1)(keys, 5)
    each_update = jax.vmap(jax.random.split, (0, None))(update_keys, train.updates)
    update_draws = jax.vmap(agent.draw_update)(each_update.ravel())
    words = jax.vmap(lambda key: jax.random.bits(key, (train.updates * train.batch,)))(word_keys)
    return StepDraws(
        jax.vmap(lambda key: jax.random.normal(key, (agent.env.observation_size,)))(noise_keys),
        words.reshape(len(keys), train.updates, train.batch),
        jax.tree.map(lambda leaf: leaf.reshape(*each_update.shape, *leaf.shape[1:]), update_draws),
        restart_keys,
        jax.vmap(lambda key: jax.random.normal(key, (agent.env.action_size,)))(action_keys),
        jax.vmap(lambda key: make_sensor(agent.config, agent.env).draw(key, agent.env.observation_size))(keys),
    )


def first_belief(
    agent: Agent, learner: Any, sensor: Noise, observation: Float[Array, "obs"], key: Key[Array, ""]
) -> SensorAndBelief:
    """Returns the sensor's state and the belief after the first observation of an episode."""
    state, measured = sensor.init(observation, jax.random.normal(key, observation.shape))
    return state, agent.filter.init(learner.model, measured)


def act(agent: Agent, state: LoopState, index: Int[Array, ""], exploration: ExplorationDraws) -> PolicyState:
    """Returns belief and action of a run's `index`-th step, counted from zero [Alg. 1 l. 3]."""
    step = index * agent.config.env.action_repeat
    explore = Explore(exploration, step, step / agent.config.train.scheduled_steps)
    return PolicyState(*agent.decide(state.learner, state.belief, explore))


def observe(
    agent: Agent, sensor: Noise, state: LoopState, action: Float[Array, "act"], step: Step, draws: StepDraws
) -> tuple[SensorAndBelief, Transition]:
    """Returns sensor and belief after an action and its outcome, and the transition to store."""
    after, measured = sensor.measure(state.sensor, step.observation, draws.noise, draws.sensor)
    outcome = (action, measured, step.reward, step.terminated)
    belief, transition = follow(agent, state.learner, state.belief, *outcome)
    return (after, belief), transition


def follow(
    agent: Agent,
    learner: Any,
    belief: Belief,
    action: Float[Array, "act"],
    measured: Float[Array, "obs"],
    reward: Float[Array, ""],
    terminated: Bool[Array, ""],
) -> tuple[Belief, Transition]:
    """Returns the belief after an action and the measured next observation, and the transition."""
    gaps = _gaps(agent, measured)
    after, spread = agent.filter.step(learner.model, belief, action, measured, **gaps)
    marked = lambda x: jnp.where(gaps["missing"], jnp.nan, x) if gaps else x  # noqa: E731  (see `replay.with_gaps`)
    mean, kept = (marked(after.mean), None) if spread is None else (after.mean, marked(measured))
    if (late := late_part(belief, after)) is not None:
        kept = jnp.where(late.arrived > 0, cast(Array, kept), jnp.nan)
    ended, widths = terminated.astype(reward.dtype), [width(agent.config, each) for each in (belief, after)]
    return after, Transition(belief.mean, action, reward, mean, ended, kept, spread, late, *widths)


def _gaps(agent: Agent, measured: Float[Array, "obs"]) -> dict[str, Bool[Array, "obs"]]:
    """Returns the argument that tells a filter which dimensions are missing, if any may be."""
    return {"missing": jnp.isnan(measured) | agent.hidden} if agent.gaps else {}


def restart(
    agent: Agent,
    sensor: Noise,
    learner: Any,
    before: SensorAndBelief,
    observation: Float[Array, "obs"],
    ended: Bool[Array, ""],
    key: Key[Array, ""],
) -> SensorAndBelief:
    """Returns sensor and belief, or those after the first observation if a new episode began.

    The stored transition keeps the true last observation.
    """
    fresh = first_belief(agent, learner, sensor, observation, key)
    return jax.tree.map(lambda new, old: jnp.where(ended, new, old), fresh, before)


def interact(
    agent: Agent,
    env: Environment,
    sensor: Noise,
    env_state: Any,
    state: LoopState,
    index: Int[Array, ""],
    exploration: ExplorationDraws,
    draws: StepDraws,
) -> tuple[Any, LoopState, Transition]:
    """Takes one step in a compiled environment.

    Returns its state, that of the loop with a new belief, and the transition.
    """
    belief, action = act(agent, state, index, exploration)
    env_state, step = env.step(env_state, sensor.disturb(env, action, draws.disturbance))
    after, transition = observe(agent, sensor, state._replace(belief=belief), action, step, draws)
    if env.terminates:
        reset_key, noise_key = jax.random.split(draws.restart_key)
        fresh_state, observation = env.reset(reset_key)
        after = restart(agent, sensor, state.learner, after, observation, step.terminated, noise_key)
        env_state = jax.tree.map(lambda new, old: jnp.where(step.terminated, new, old), fresh_state, env_state)
    sensor_state, belief = after
    return env_state, state._replace(belief=belief, sensor=sensor_state), transition


def update_inputs(
    agent: Agent, buffer: Replay, draws: StepDraws, number: Int[Array, ""] | int, index: Int[Array, ""]
) -> tuple[Transition, Any]:
    """Returns what an update of the `index`-th step needs: a stored batch and random numbers."""
    words, drawn = jax.tree.map(lambda leaf: leaf[number], (draws.batch_words, draws.update_draws))
    stored = replay.sample(buffer, words, index + 1, agent.layout)
    return (replay.with_gaps(stored) if agent.gaps else stored), drawn


def learn(
    agent: Agent,
    state: LoopState,
    transition: Transition,
    index: Int[Array, ""],
    draws: StepDraws,
    updates: Int[Array, ""] | int,
) -> tuple[LoopState, StepInfo]:
    """Stores the transition [Alg. 1 l. 4], then makes `updates` updates [Alg. 1 l. 5]."""
    buffer = replay.add(state.replay, index, transition)

    def update(learner: Any, number: Int[Array, ""] | int) -> tuple[Any, Info]:
        return agent.update(learner, *update_inputs(agent, buffer, draws, number, index))

    def add(number: Int[Array, ""], carry: tuple[Any, Info]) -> tuple[Any, Info]:
        learner, info = update(carry[0], number)
        return learner, jax.tree.map(jnp.add, carry[1], info)

    shapes = jax.eval_shape(update, state.learner, 0)[1]
    nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    learner, sums = jax.lax.fori_loop(0, updates, add, (state.learner, nothing))
    info = jax.tree.map(lambda total: total / agent.config.train.updates, sums)
    learned = jnp.asarray(updates > 0, jnp.float32)
    return state._replace(learner=learner, replay=buffer), StepInfo(transition.reward, learned, info)


def finish_episode(
    agent: Agent,
    before: RunState,
    state: LoopState,
    number: Int[Array, ""],
    totals: StepInfo,
    first: Int[Array, ""] | None = None,
    steps: int | None = None,
) -> tuple[RunState, Info]:
    """Returns the run after a training episode, and its metrics.

    A run that diverged keeps its learner from before the episode.

    Args:
        agent: The agent.
        before: The run before the episode.
        state: The loop's state after the episode.
        number: The number of the episode, counted from zero.
        totals: Sums over its steps.
        first: The index of its first step, if earlier episodes were not all of full length.
        steps: Its number of steps, if it is not of full length.
    """
    full = agent_steps(agent.config)
    indices = (number * full if first is None else first) + jnp.arange(steps or full)
    episode = replay.read(state.replay, indices, agent.layout)
    metrics = {name: value / totals.learned for name, value in totals.info.items()}
    if agent.gaps:
        episode = replay.with_gaps(episode)
        metrics["missing_share"] = jnp.mean(cast(Array, episode.missing))
    metrics |= agent.diagnose(before.learner, state.learner, episode, episode_keys(before, number).diagnose)
    learner = state.learner._replace(model=learn_noise(agent, state.learner, state.replay, indices, number))
    diverged = jnp.where(before.diverged > 0, before.diverged, cause(learner, episode, metrics))
    learner = jax.tree.map(lambda new, old: jnp.where(diverged > 0, old, new), learner, before.learner)
    metrics |= {"train_return": totals.reward}
    metrics = {name: jnp.where(diverged > 0, jnp.nan, value) for name, value in metrics.items()}
    metrics["diverged"] = diverged.astype(jnp.float32)
    return RunState(learner, diverged, state.replay, before.key), metrics


def evaluation_due(config: Config, number: Any) -> Any:
    """Returns True if an evaluation follows that episode."""
    done = number + 1
    return (done % config.train.eval_every == 0) | (done * config.env.episode_length == config.train.steps)


def policy_start(agent: Agent, learner: Any, measured: Float[Array, "obs"]) -> PolicyState:
    """Returns belief and greedy action after the first observation of an episode."""
    return PolicyState(*agent.decide(learner, agent.filter.init(learner.model, measured)))


def policy_step(
    agent: Agent,
    learner: Any,
    state: PolicyState,
    measured: Float[Array, "obs"],
    missing: Bool[Array, "obs"] | None = None,
) -> PolicyState:
    """Returns belief and greedy action after executing the last action and observing the result.

    A filter ignores the dimensions that are `missing`; by default, those that are NaN if the
    settings say that samples may be missing.
    """
    gaps = _gaps(agent, measured) if missing is None else {"missing": missing}
    belief, _ = agent.filter.step(learner.model, state.belief, state.action, measured, **gaps)
    return PolicyState(*agent.decide(learner, belief))
