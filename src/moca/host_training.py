"""The training loop for environments of the host: all runs act in one compiled program, step, and learn in another.

Every run has an environment of its own. Each episode starts with resets whose seeds follow from the run's seed and the
episode's number, so that a run that goes on from a checkpoint is the run it would have been.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from moca import replay as memory
from moca.agents import Agent, make_agent
from moca.agents.agent import Info
from moca.belief import Belief
from moca.config import Config
from moca.envs.environment import Spaces, Step
from moca.envs.host import HostEnvironment, Outcome
from moca.envs.named import named
from moca.envs.noise import Noise, make_noise
from moca.evaluation import SCORES
from moca.exploration import Dice
from moca.host_evaluation import GreedyEpisodes, build, env_seed
from moca.interaction import (
    Knowledge,
    Measured,
    RunState,
    absorb,
    act,
    block_size,
    conclude,
    decisions_of,
    draw,
    evaluation_due,
    first_belief,
    first_learned,
    keys_of,
    perceive,
    restart,
)
from moca.training import Runs, Trainer


def make_trainer(configs: Sequence[Config], seeds: Sequence[int], env: Spaces | None = None) -> Runs:
    """What trains on that environment, or on the one the configs name; arguments as for `Runs`."""
    env = env or named(configs[0].env.name)
    return (HostTrainer if isinstance(env, HostEnvironment) else Trainer)(configs, seeds, env)


class Luck(NamedTuple):
    """The random numbers of an episode, those of each decision in a row."""

    dice: Dice
    keys: Key[Array, "decisions"]


class HostTrainer(Runs):
    """Many runs, each with an environment of its own on the host; arguments as for `Runs`."""

    env: HostEnvironment

    def __init__(self, configs: Sequence[Config], seeds: Sequence[int], env: Spaces | None = None) -> None:
        super().__init__(configs, seeds, env)
        self._seeds, episodes = list(seeds), self.config.train.eval_episodes
        repeat = self.config.env.action_repeat
        self._envs = self.env.vector(len(seeds), repeat)
        judged = self.env.vector(len(seeds) * episodes, repeat)
        self._greedy = GreedyEpisodes(self.env, self.config, judged, len(seeds))
        self._programs: Any = None

    def compile(self) -> None:
        runs, number = len(self._seeds), np.int32(0)
        observation = np.zeros((runs, self.env.observation_size), np.float32)
        before = self.state._replace(replay=None)
        begin, begun = build(self._begin, (self.configs, self.state, number, observation), runs, shared=[2])
        luck, belief, learner, totals = begun
        decide, (action, _) = build(self._decide, (self.configs, learner, belief, luck, number), runs, shared=[4])
        ends = np.zeros(runs, bool)
        outcome = Outcome(observation, observation[:, 0], ends, ends, observation)
        knowledge = Knowledge(belief, learner, self.state.replay)
        arguments: tuple = (self.configs, knowledge, totals, luck, action, outcome, number)
        store, learn = (
            build(partial(self._absorb, learning), arguments, runs, shared=[6], donated=[1, 2])[0]
            for learning in (False, True)
        )
        ended = np.zeros((runs, decisions_of(self.config)), np.float32)
        arguments = (self.configs, before, knowledge, totals, ended, number)
        finish, (_, _, keys) = build(self._finish, arguments, runs, shared=[5], donated=[2])
        self._greedy.compile(self.configs, learner, keys, self.config.train.eval_episodes)
        self._programs = (begin, decide, store, learn, finish)

    def memory(self) -> int:
        return self._memory_of(self._programs[3])

    def _train_episode(self) -> dict[str, np.ndarray]:
        if self._programs is None:
            self.compile()
        begin, decide, store, learn, finish = self._programs
        number, decisions, configs = np.int32(self.episode), decisions_of(self.config), self.configs
        observation = self._envs.reset([env_seed(seed, self.episode, 0) for seed in self._seeds])
        luck, belief, learner, totals = begin(configs, self.state, number, observation)
        knowledge, ended = Knowledge(belief, learner, self.state.replay), []
        for index in range(self.episode * decisions, (self.episode + 1) * decisions):
            action, executed = decide(configs, knowledge.learner, knowledge.belief, luck, np.int32(index))
            outcome = self._envs.step(np.asarray(executed))
            absorbed = store if index < first_learned(self.config) else learn
            knowledge, totals = absorbed(configs, knowledge, totals, luck, action, outcome, np.int32(index))
            ended.append(outcome.ended)
        before = self.state._replace(replay=None)  # the learning has written over it
        ends = np.stack(ended, axis=1).astype(np.float32)
        self.state, measured, keys = finish(configs, before, knowledge, totals, ends, number)
        metrics = jax.device_get(measured)
        return dict(sorted((metrics | self._scores(keys, metrics["diverged"] > 0)).items()))

    def _scores(self, keys: Key[Array, "runs"], diverged: np.ndarray) -> dict[str, np.ndarray]:
        """The evaluation after an episode; nan for runs that diverged, and where none is due."""
        scores = {name: np.full(len(self._seeds), np.nan) for name in SCORES}
        if evaluation_due(self.config, self.episode):
            numbers = range(1, self.config.train.eval_episodes + 1)
            seeds = np.array([[env_seed(seed, self.episode, each) for each in numbers] for seed in self._seeds])
            scores = self._greedy.scores(self.configs, self.learners, keys, seeds)
        return {name: np.where(diverged, np.nan, values).astype(np.float32) for name, values in scores.items()}

    # The programs, each as it is for one run.

    def _parts(self, config: Config) -> tuple[Agent, Noise]:
        return make_agent(config, self.env), make_noise(config.noise, self.env.observation_size)

    def _begin(
        self, config: Config, state: RunState, number: Int[Array, ""], observation: Float[Array, "obs"]
    ) -> tuple[Luck, Belief, Any, Measured]:
        """The episode's random numbers, first belief and totals of zero, and a learner to be written over."""
        agent, noise = self._parts(config)
        keys, decisions = keys_of(state, number), decisions_of(config)
        belief = first_belief(agent, state.learner, noise, observation, keys.first)
        size = block_size(config)
        blocks = jax.random.split(keys.loop, decisions // size)
        each = jax.vmap(lambda key: jax.random.split(key, size))(blocks).ravel()
        transition = memory.read(state.replay, number, self.env.observation_size, self.env.action_size)
        knowledge = Knowledge(belief, state.learner, state.replay)
        absorbed = lambda: absorb(agent, knowledge, transition, number, draw(agent, each[0]), True)  # noqa: E731
        shapes = jax.eval_shape(absorbed)[1]
        totals = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        luck = Luck(agent.draw_exploration(keys.explore, decisions), each)
        return luck, belief, jax.tree.map(jnp.copy, state.learner), totals

    def _decide(
        self, config: Config, learner: Any, belief: Belief, luck: Luck, index: Int[Array, ""]
    ) -> tuple[Float[Array, "act"], Float[Array, "act"]]:
        """The action of a decision, as chosen and as executed."""
        agent, noise = self._parts(config)
        number = index % decisions_of(config)
        action = act(agent, learner, belief, index, jax.tree.map(lambda leaf: leaf[number], luck.dice))
        return action, noise.disturb(self.env, action, draw(agent, luck.keys[number]).disturbance)

    def _absorb(
        self,
        learning: bool,
        config: Config,
        knowledge: Knowledge,
        totals: Measured,
        luck: Luck,
        action: Float[Array, "act"],
        outcome: Outcome,
        index: Int[Array, ""],
    ) -> tuple[Knowledge, Measured]:
        """What is known after a decision, and the totals with it."""
        agent, noise = self._parts(config)
        drawn = draw(agent, luck.keys[index % decisions_of(config)])
        step = Step(*(jnp.asarray(part) for part in (outcome.observation, outcome.reward, outcome.terminated)))
        belief, learner, _ = knowledge
        belief, transition = perceive(agent, noise, learner, belief, action, step, drawn)
        _, noise_key = jax.random.split(drawn.restart)
        current, ended = jnp.asarray(outcome.current), jnp.asarray(outcome.ended)
        belief = restart(agent, noise, learner, belief, current, ended, noise_key)
        knowledge, measured = absorb(agent, knowledge._replace(belief=belief), transition, index, drawn, learning)
        return knowledge, jax.tree.map(jnp.add, totals, measured)

    def _finish(
        self,
        config: Config,
        state: RunState,
        knowledge: Knowledge,
        totals: Measured,
        ended: Float[Array, "decisions"],
        number: Int[Array, ""],
    ) -> tuple[RunState, Info, Key[Array, ""]]:
        """The run after the episode, what was measured, and the key of its evaluation."""
        agent, _ = self._parts(config)
        after, metrics = conclude(agent, state, knowledge, number, totals, ended)
        return after, metrics, keys_of(state, number).evaluate
