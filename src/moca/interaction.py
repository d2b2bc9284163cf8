"""What happens around the environment's step: choosing an action before it, storing and learning after it.

The loop that is one compiled program and the loop on the host are made of these functions, each for one run.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, UInt32

from moca import replay as memory
from moca.agents import Agent, Progress, make_agent
from moca.agents.agent import Info
from moca.belief import Belief
from moca.config import Config
from moca.envs.environment import Environment, Spaces, Step
from moca.envs.noise import Noise
from moca.exploration import Dice

BLOCK = 100  # decisions in a row whose random numbers are drawn at once, at most


# Why a run was given up, by number.
CAUSES = (
    "",
    "the environment gave a reward or an observation that is not finite",
    "a learned parameter or an action is not finite",
    "|Q| is above 1e6",
)
Q_LIMIT = 1e6  # [choice]


class RunState(NamedTuple):
    """All that one run carries from episode to episode."""

    learner: Any  # as it was before the run diverged, if it did
    diverged: Int[Array, ""]  # zero, or the number of the cause
    replay: memory.Replay
    key: Key[Array, ""]  # never changes: every episode folds its number into it, and nothing else uses it


def init_run(config: Config, env: Spaces, key: Key[Array, ""]) -> RunState:
    """A run before its first step."""
    capacity = min(config.train.capacity, config.train.steps // config.env.action_repeat)
    learner_key, episode_key = jax.random.split(key)
    learner = make_agent(config, env).init(learner_key)
    replay = memory.empty(capacity, env.observation_size, env.action_size, config.belief.filter)
    return RunState(learner, jnp.zeros((), jnp.int32), replay, episode_key)


class Keys(NamedTuple):
    """The random keys of one episode.

    Training and evaluation have keys of their own, so evaluating more often changes no training run.
    """

    reset: Key[Array, ""]
    first: Key[Array, ""]
    explore: Key[Array, ""]
    loop: Key[Array, ""]
    evaluate: Key[Array, ""]
    diagnose: Key[Array, ""]


def keys_of(state: RunState, number: Int[Array, ""]) -> Keys:
    """The keys of a run's episode of that number."""
    return Keys(*jax.random.split(jax.random.fold_in(state.key, number), len(Keys._fields)))


def decisions_of(config: Config) -> int:
    """How many decisions an episode has."""
    return config.env.episode_length // config.env.action_repeat


def first_learned(config: Config) -> int:
    """The number of the first decision, counted from zero, that is learned from: the warm-up is over with it."""
    return config.train.warmup // config.env.action_repeat


def block_size(config: Config) -> int:
    """How many decisions make a block: a divisor of episode and warm-up, so that it learns from all or from none.

    A warm-up that shares no divisor with the episode makes blocks of one, which is slow on a GPU.
    """
    whole = math.gcd(decisions_of(config), first_learned(config))
    return max(n for n in range(1, BLOCK + 1) if whole % n == 0)


class Draw(NamedTuple):
    """The random numbers of one decision, but for the exploration's, which may hold for many."""

    noise: Float[Array, "obs"]
    rows: UInt32[Array, "updates batch"]
    updates: Any  # with a leading axis over updates
    restart: Key[Array, ""]
    disturbance: Float[Array, "act"]  # of the executed action


def draw(agent: Agent, key: Key[Array, ""]) -> Draw:
    """The random numbers of a decision."""
    noise_key, row_key, update_key, restart_key, action_key = jax.random.split(key, 5)
    train = agent.config.train
    return Draw(
        jax.random.normal(noise_key, (agent.env.observation_size,)),
        jax.random.bits(row_key, (train.updates, train.batch)),
        jax.vmap(agent.draw_update)(jax.random.split(update_key, train.updates)),
        restart_key,
        jax.random.normal(action_key, (agent.env.action_size,)),
    )


class Knowledge(NamedTuple):
    """What a run carries from decision to decision, beside the environment."""

    belief: Belief
    learner: Any
    replay: memory.Replay


class Measured(NamedTuple):
    """What one decision brought, or sums over many."""

    reward: Float[Array, ""]
    learned: Float[Array, ""]  # one if it was learned from, zero during the warm-up
    info: Info


def act(agent: Agent, learner: Any, belief: Belief, index: Int[Array, ""], dice: Dice) -> Float[Array, "act"]:
    """The action of a run's `index`-th decision, counted from the first ever."""
    step = index * agent.config.env.action_repeat
    return agent.explore(learner, belief.mean, dice, Progress(step, step / agent.config.train.steps))


def perceive(
    agent: Agent, noise: Noise, learner: Any, belief: Belief, action: Float[Array, "act"], step: Step, draw: Draw
) -> tuple[Belief, memory.Transition]:
    """The belief after an action and what it brought, and what is to be stored of it."""
    measured = noise(step.observation, draw.noise)
    after, spread = agent.track(learner, belief, action, measured)
    ended = step.terminated.astype(step.reward.dtype)
    kept = None if spread is None else measured
    return after, memory.Transition(belief.mean, action, step.reward, after.mean, ended, kept, spread)


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

    What is stored keeps the true last observation.
    """
    fresh = first_belief(agent, learner, noise, observation, key)
    return jax.tree.map(lambda new, old: jnp.where(ended, new, old), fresh, belief)


def interact(
    agent: Agent,
    env: Environment,
    noise: Noise,
    env_state: Any,
    knowledge: Knowledge,
    index: Int[Array, ""],
    dice: Dice,
    draw: Draw,
) -> tuple[Any, Belief, memory.Transition]:
    """One decision [Alg. 1 l. 3]: the environment and the belief after it, and what is to be stored."""
    belief, learner, _ = knowledge
    action = act(agent, learner, belief, index, dice)
    env_state, step = env.step(env_state, noise.disturb(env, action, draw.disturbance))
    belief, transition = perceive(agent, noise, learner, belief, action, step, draw)
    if env.terminates:
        reset_key, noise_key = jax.random.split(draw.restart)
        fresh_state, observation = env.reset(reset_key)
        belief = restart(agent, noise, learner, belief, observation, step.terminated, noise_key)
        env_state = jax.tree.map(lambda new, old: jnp.where(step.terminated, new, old), fresh_state, env_state)
    return env_state, belief, transition


def absorb(
    agent: Agent,
    knowledge: Knowledge,
    transition: memory.Transition,
    index: Int[Array, ""],
    draw: Draw,
    learning: bool,
) -> tuple[Knowledge, Measured]:
    """What is known with the transition stored [Alg. 1 l. 4] and, if so wished, batches learned from."""
    env = agent.env
    belief, learner, replay = knowledge
    replay = memory.add(replay, index, transition)

    def learn(learner: Any) -> tuple[Any, Info]:
        """One update per batch [Alg. 1 l. 5]."""
        batches = memory.sample(replay, draw.rows, index + 1, env.observation_size, env.action_size)
        learner, info = jax.lax.scan(lambda state, x: agent.update(state, *x), learner, (batches, draw.updates))
        return learner, jax.tree.map(jnp.mean, info)

    if learning:
        learner, info = learn(learner)
    else:
        info = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(learn, learner)[1])
    learned = jnp.asarray(learning, jnp.float32)
    return Knowledge(belief, learner, replay), Measured(transition.reward, learned, info)


def first_belief(
    agent: Agent, learner: Any, noise: Noise, observation: Float[Array, "obs"], key: Key[Array, ""]
) -> Belief:
    """The belief with which an episode starts."""
    return agent.observe(learner, noise(observation, jax.random.normal(key, observation.shape)))


def evaluation_due(config: Config, number: Any) -> Any:
    """Whether the episode of that number is followed by an evaluation: every few are, and the last."""
    done = number + 1
    return (done % config.train.eval_every == 0) | (done * config.env.episode_length == config.train.steps)


def conclude(
    agent: Agent,
    state: RunState,
    knowledge: Knowledge,
    number: Int[Array, ""],
    totals: Measured,
    ended: Float[Array, "decisions"] | None = None,
) -> tuple[RunState, Info]:
    """The run after an episode of training, and what was measured; with the learner of before if it diverged.

    Args:
        agent: the agent.
        state: the run before the episode.
        knowledge: what it knows after.
        number: the episode's, counted from zero.
        totals: sums over its decisions.
        ended: one where another episode begins after a decision; where the task ended, if not given.
    """
    decisions = decisions_of(agent.config)
    indices = number * decisions + jnp.arange(decisions)
    episode = memory.read(knowledge.replay, indices, agent.env.observation_size, agent.env.action_size)
    metrics = {name: value / totals.learned for name, value in totals.info.items()}
    metrics |= agent.diagnose(state.learner, knowledge.learner, episode, keys_of(state, number).diagnose)
    filtered = episode if ended is None else episode._replace(terminated=ended)
    learner = agent.learn_noise(knowledge.learner, filtered)
    diverged = jnp.where(state.diverged > 0, state.diverged, _cause(learner, episode, metrics))
    learner = jax.tree.map(lambda new, old: jnp.where(diverged > 0, old, new), learner, state.learner)
    metrics |= {"train_return": totals.reward}
    metrics = {name: jnp.where(diverged > 0, jnp.nan, value) for name, value in metrics.items()}
    metrics |= {"diverged": diverged.astype(jnp.float32)}
    return RunState(learner, diverged, knowledge.replay, state.key), metrics


def plausible(state: RunState) -> bool:
    """Whether runs can be in this state, given as arrays on the host with a leading axis over runs.

    A run that diverged has a learner as it was before, but may have stored what made it diverge.
    """
    if not ((state.diverged >= 0) & (state.diverged < len(CAUSES))).all():
        return False
    numbers = [*jax.tree.leaves(state.learner), state.replay[state.diverged == 0]]
    floats = [leaf for leaf in numbers if np.issubdtype(leaf.dtype, np.floating)]
    counts = [leaf for leaf in numbers if np.issubdtype(leaf.dtype, np.signedinteger)]
    return all(np.isfinite(leaf).all() for leaf in floats) and all((leaf >= 0).all() for leaf in counts)


def _cause(learner: Any, episode: memory.Transition, metrics: Info) -> Int[Array, ""]:
    """The number of the cause for which a run is to be given up after an episode; zero if there is none."""

    def finite(tree: Any) -> Array:
        numbers = [leaf for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.floating)]
        return jnp.stack([jnp.isfinite(leaf).all() for leaf in numbers]).all()

    rows = jax.vmap(finite)(episode._replace(action=jnp.zeros_like(episode.action)))
    # What followed an action that is no number is the agent's doing.
    environment = ~rows.all() & finite(episode.action[jnp.argmin(rows)])
    exploded = jnp.abs(metrics.get("q_mean", jnp.zeros(()))) > Q_LIMIT
    agent = ~finite((episode, learner))
    return jnp.where(environment, 1, jnp.where(agent, 2, jnp.where(exploded, 3, 0)))
