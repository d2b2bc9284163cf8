"""The training loop [Alg. 1 l. 2]: act, observe, learn; and the same without learning, to follow a policy.

Every function here is pure and for one run. The drivers only schedule them: `moca.drivers.scan` where the environment
is a part of the compiled program, `moca.drivers.host` where it is not. Steps are the agent's own: an action repeat
makes one of several environment steps. The discount, the update ratio and the warm-up are ours [choice].
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, UInt32

from moca import replay as memory
from moca.agents import Agent, make_agent
from moca.agents.agent import Info
from moca.belief import Belief
from moca.config import Config
from moca.divergence import cause
from moca.envs.environment import Environment, Noise, Spaces, Step
from moca.exploration import ExplorationDraws, Explore
from moca.nets import scheduled

BLOCK = 100  # steps in a row whose random numbers are drawn at once, at most


class RunState(NamedTuple):
    """All that one run carries from episode to episode."""

    learner: Any  # as it was before the run diverged, if it did
    diverged: Int[Array, ""]  # zero, or the number of the cause
    replay: memory.Replay
    key: Key[Array, ""]  # never changes: every episode folds its number into it, and nothing else uses it


class LoopState(NamedTuple):
    """All that one run carries from step to step, beside the environment."""

    belief: Belief
    learner: Any
    replay: memory.Replay


class StepInfo(NamedTuple):
    """Metrics of one step, or sums over many."""

    reward: Float[Array, ""]
    learned: Float[Array, ""]  # one if the step was learned from, zero during the warm-up
    info: Info


class EpisodeKeys(NamedTuple):
    """The random keys of one episode.

    Training and evaluation have keys of their own, so evaluating more often changes no training run.
    """

    reset: Key[Array, ""]
    first: Key[Array, ""]
    explore: Key[Array, ""]
    loop: Key[Array, ""]
    evaluate: Key[Array, ""]
    diagnose: Key[Array, ""]


class StepDraws(NamedTuple):
    """The random numbers of one step, but for the exploration's, which may hold for many."""

    noise: Float[Array, "obs"]
    rows: UInt32[Array, "updates batch"]
    updates: Any  # with a leading axis over updates
    restart: Key[Array, ""]
    disturbance: Float[Array, "act"]  # of the executed action


def init_run(config: Config, env: Spaces, key: Key[Array, ""]) -> RunState:
    """A run before its first step."""
    capacity = replay_size(config, config.train.steps)
    learner_key, episode_key = jax.random.split(key)
    learner = make_agent(config, env).init(learner_key)
    replay = memory.empty(capacity, env.observation_size, env.action_size, config.belief.filter)
    return RunState(learner, jnp.zeros((), jnp.int32), replay, episode_key)


def replay_size(config: Config, steps: int) -> int:
    """The number of transitions that the replay memory of a run of so many steps holds."""
    return min(config.train.capacity, -(-steps // config.env.action_repeat))


def episode_keys(state: RunState, number: Int[Array, ""]) -> EpisodeKeys:
    """The keys of a run's episode of that number."""
    return EpisodeKeys(*jax.random.split(jax.random.fold_in(state.key, number), len(EpisodeKeys._fields)))


def agent_steps(config: Config) -> int:
    """The number of agent steps in an episode; on the host, the last may be longer than what is left of it."""
    return -(-config.env.episode_length // config.env.action_repeat)


def first_update(config: Config) -> int:
    """The number of the first step, counted from zero, that is learned from: the warm-up is over with it."""
    return config.train.warmup // config.env.action_repeat


def block_size(config: Config) -> int:
    """The number of steps in a block: a divisor of episode and warm-up, so that all of a block learns or nothing.

    A warm-up that shares no divisor with the episode makes blocks of one, which is slow on a GPU.
    """
    whole = math.gcd(agent_steps(config), first_update(config))
    return max(n for n in range(1, BLOCK + 1) if whole % n == 0)


def draw_step(agent: Agent, key: Key[Array, ""]) -> StepDraws:
    """The random numbers of a step."""
    noise_key, row_key, update_key, restart_key, action_key = jax.random.split(key, 5)
    train = agent.config.train
    return StepDraws(
        jax.random.normal(noise_key, (agent.env.observation_size,)),
        jax.random.bits(row_key, (train.updates, train.batch)),
        jax.vmap(agent.draw_update)(jax.random.split(update_key, train.updates)),
        restart_key,
        jax.random.normal(action_key, (agent.env.action_size,)),
    )


def first_belief(
    agent: Agent, learner: Any, noise: Noise, observation: Float[Array, "obs"], key: Key[Array, ""]
) -> Belief:
    """The belief with which an episode starts."""
    return agent.filter.init(learner.model, noise(observation, jax.random.normal(key, observation.shape)))


def act(agent: Agent, state: LoopState, index: Int[Array, ""], draws: ExplorationDraws) -> Float[Array, "act"]:
    """The action of a run's `index`-th step, counted from the first ever [Alg. 1 l. 3]."""
    step = index * agent.config.env.action_repeat
    return agent.act(state.learner, state.belief.mean, Explore(draws, step, step / scheduled(agent.config)))


def observe(
    agent: Agent, noise: Noise, state: LoopState, action: Float[Array, "act"], step: Step, draws: StepDraws
) -> tuple[Belief, memory.Transition]:
    """The belief after an action and its outcome, and the transition to store."""
    measured = noise(step.observation, draws.noise)
    return follow(agent, state.learner, state.belief, action, measured, step.reward, step.terminated)


def follow(
    agent: Agent,
    learner: Any,
    belief: Belief,
    action: Float[Array, "act"],
    measured: Float[Array, "obs"],
    reward: Float[Array, ""],
    terminated: Bool[Array, ""],
) -> tuple[Belief, memory.Transition]:
    """The belief after an action and what was measured of its outcome, and the transition."""
    after, spread = agent.filter.step(learner.model, belief, action, measured)
    kept = None if spread is None else measured
    ended = terminated.astype(reward.dtype)
    return after, memory.Transition(belief.mean, action, reward, after.mean, ended, kept, spread)


def restart(
    agent: Agent,
    noise: Noise,
    learner: Any,
    belief: Belief,
    observation: Float[Array, "obs"],
    ended: Bool[Array, ""],
    key: Key[Array, ""],
) -> Belief:
    """The belief, or where an episode ended the one from the first observation of the next.

    The transition that is stored keeps the true last observation.
    """
    fresh = first_belief(agent, learner, noise, observation, key)
    return jax.tree.map(lambda new, old: jnp.where(ended, new, old), fresh, belief)


def interact(
    agent: Agent,
    env: Environment,
    noise: Noise,
    env_state: Any,
    state: LoopState,
    index: Int[Array, ""],
    explore: ExplorationDraws,
    draws: StepDraws,
) -> tuple[Any, Belief, memory.Transition]:
    """One step in a compiled environment: its state and the belief afterwards, and the transition to store."""
    action = act(agent, state, index, explore)
    env_state, step = env.step(env_state, noise.disturb(env, action, draws.disturbance))
    belief, transition = observe(agent, noise, state, action, step, draws)
    if env.terminates:
        reset_key, noise_key = jax.random.split(draws.restart)
        fresh_state, observation = env.reset(reset_key)
        belief = restart(agent, noise, state.learner, belief, observation, step.terminated, noise_key)
        env_state = jax.tree.map(lambda new, old: jnp.where(step.terminated, new, old), fresh_state, env_state)
    return env_state, belief, transition


def batches(agent: Agent, replay: memory.Replay, rows: UInt32[Array, "*n"], index: Int[Array, ""]) -> memory.Transition:
    """Batches from the transitions stored up to the `index`-th step."""
    return memory.sample(replay, rows, index + 1, agent.env.observation_size, agent.env.action_size)


def learn(
    agent: Agent,
    state: LoopState,
    transition: memory.Transition,
    index: Int[Array, ""],
    draws: StepDraws,
    learning: bool,
) -> tuple[LoopState, StepInfo]:
    """The state with the transition stored [Alg. 1 l. 4] and, where `learning`, batches learned from [Alg. 1 l. 5]."""
    replay = memory.add(state.replay, index, transition)

    def updates(learner: Any) -> tuple[Any, Info]:
        xs = (batches(agent, replay, draws.rows, index), draws.updates)
        learner, info = jax.lax.scan(lambda learner, x: agent.update(learner, *x), learner, xs)
        return learner, jax.tree.map(jnp.mean, info)

    if learning:
        learner, info = updates(state.learner)
    else:
        shapes = jax.eval_shape(updates, state.learner)[1]
        learner, info = state.learner, jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    learned = jnp.asarray(learning, jnp.float32)
    return LoopState(state.belief, learner, replay), StepInfo(transition.reward, learned, info)


def finish_episode(
    agent: Agent,
    before: RunState,
    state: LoopState,
    number: Int[Array, ""],
    totals: StepInfo,
    ended: Float[Array, "steps"] | None = None,
    first: Int[Array, ""] | None = None,
) -> tuple[RunState, Info]:
    """The run after an episode of training, and its metrics; with the learner of before if it diverged.

    Args:
        agent: the agent.
        before: the run before the episode.
        state: the loop's state after it.
        number: the episode's, counted from zero.
        totals: sums over its steps.
        ended: one where another episode begins after a step; where the task ended, if not given.
        first: the index of its first step, counted from the first ever, if the episodes before it were not all whole.
    """
    steps = agent_steps(agent.config)
    indices = (number * steps if first is None else first) + jnp.arange(steps if ended is None else len(ended))
    episode = memory.read(state.replay, indices, agent.env.observation_size, agent.env.action_size)
    metrics = {name: value / totals.learned for name, value in totals.info.items()}
    metrics |= agent.diagnose(before.learner, state.learner, episode, episode_keys(before, number).diagnose)
    filtered = episode if ended is None else episode._replace(terminated=ended)
    learner = state.learner._replace(model=agent.filter.learn_noise(state.learner.model, filtered))
    diverged = jnp.where(before.diverged > 0, before.diverged, cause(learner, episode, metrics))
    learner = jax.tree.map(lambda new, old: jnp.where(diverged > 0, old, new), learner, before.learner)
    metrics |= {"train_return": totals.reward}
    metrics = {name: jnp.where(diverged > 0, jnp.nan, value) for name, value in metrics.items()}
    metrics |= {"diverged": diverged.astype(jnp.float32)}
    return RunState(learner, diverged, state.replay, before.key), metrics


def evaluation_due(config: Config, number: Any) -> Any:
    """Returns True if an evaluation follows the episode of that number: every few do, and the last."""
    done = number + 1
    return (done % config.train.eval_every == 0) | (done * config.env.episode_length == config.train.steps)


class PolicyState(NamedTuple):
    """The state of a greedy policy: its belief, and the action that it takes on it."""

    belief: Belief
    action: Float[Array, "act"]


def policy_start(agent: Agent, learner: Any, measured: Float[Array, "obs"]) -> PolicyState:
    """Belief and greedy action after the first observation of an episode."""
    belief = agent.filter.init(learner.model, measured)
    return PolicyState(belief, agent.act(learner, belief.mean))


def policy_step(
    agent: Agent,
    learner: Any,
    state: PolicyState,
    measured: Float[Array, "obs"],
    missing: Bool[Array, "obs"] | None = None,
) -> PolicyState:
    """Belief and greedy action after the last action was taken and the next observation made.

    A filter does not use the dimensions that are `missing`.
    """
    gaps = {} if missing is None else {"missing": missing}
    belief, _ = agent.filter.step(learner.model, state.belief, state.action, measured, **gaps)
    return PolicyState(belief, agent.act(learner, belief.mean))
