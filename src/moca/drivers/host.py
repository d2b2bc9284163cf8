"""The driver for environments on the host: one program acts in all runs, another one learns.

The first step needs three of the programs; the first episode compiles the others when they are due.

Every run has a separate environment. Each episode starts with resets whose seeds follow from the
run's seed and the episode's number, so that a resumed run equals an uninterrupted one.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from moca import loop, replay
from moca.agents import Agent, make_agent
from moca.agents.agent import Info
from moca.belief import Belief
from moca.config import Config
from moca.devices import compiled
from moca.drivers.host_evaluation import GreedyEpisodes, env_seed, lowered
from moca.drivers.trainer import Trainer
from moca.envs.environment import Noise, Spaces, Step
from moca.envs.host import HostEnvironment, Outcome
from moca.envs.sensors import make_sensor
from moca.evaluation import SCORES
from moca.exploration import ExplorationDraws, draw_exploration
from moca.loop import LoopState, RunState, StepDraws, StepInfo
from moca.replay import Transition


class EpisodeDraws(NamedTuple):
    """The random numbers of an episode, with a leading axis over its steps."""

    exploration: ExplorationDraws
    keys: Key[Array, "steps"]
    first: Int[Array, ""]  # the index of its first step, counted from the first ever


class Taken(NamedTuple):
    """A step that has been taken in the environment."""

    draws: EpisodeDraws  # of the whole episode
    action: Float[Array, "act"]  # the chosen one
    outcome: Outcome


class HostTrainer(Trainer):
    """Trains many runs, each with a separate environment on the host.

    Arguments as for `Trainer`.
    """

    env: HostEnvironment
    ready = "compiled the first steps"

    def __init__(self, configs: Sequence[Config], seeds: Sequence[int], env: Spaces | None = None) -> None:
        super().__init__(configs, seeds, env)
        self._seeds, episodes = list(seeds), self.config.train.eval_episodes
        repeat = self.config.env.action_repeat
        self._envs = self.env.vector(len(seeds), repeat)
        judged = self.env.vector(len(seeds) * episodes, repeat)
        self._greedy = GreedyEpisodes(self.env, self.config, judged, len(seeds))
        self._programs: list[Any] = []  # to begin an episode, to act and to store
        self._later: list[Any] = []  # to learn, and to finish an episode
        self._left: Iterator[Any] = iter(())  # programs not compiled yet
        self._zeros: Any = None  # the sums over no steps

    def compile(self) -> None:
        """Compiles what the first step needs; the first episode compiles the rest."""
        self._left = self._lowered()
        self._programs = compiled(islice(self._left, 3))

    def _compile_later(self) -> list[Any]:
        """Returns the programs to learn and to finish an episode."""
        if not self._later:
            with self.while_compiling():
                *self._later, start, follow, judge = compiled(self._left)
            self._greedy.compiled = [start, follow, judge]
        return self._later

    def _lowered(self) -> Iterator[Any]:
        """Yields the programs to compile; each is traced while earlier ones are compiled."""
        runs, number = len(self._seeds), np.int32(0)
        observation = np.zeros((runs, self.env.observation_size), np.float32)
        given = jax.eval_shape(lambda: self.state)
        before = given._replace(replay=None)
        begin, begun = lowered(self._begin, (self.configs, before, number, number, observation), runs, shared=[2, 3])
        yield begin
        draws, sensor, belief, learner, key = begun
        act_program, (action, _, _) = lowered(
            self._act, (self.configs, learner, belief, draws, number), runs, shared=[4]
        )
        yield act_program
        ends = np.zeros(runs, bool)
        outcome = Outcome(observation, observation[:, 0], ends, ends, observation)
        state = LoopState(belief, learner, given.replay, sensor)
        taken, taking = Taken(draws, action, outcome), jax.vmap(self._take, (0, 0, 0, None))
        shapes = jax.eval_shape(taking, self.configs, state, taken, number)[1]
        totals = self._zeros = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
        for function in (self._store, self._learn):
            yield lowered(function, (self.configs, state, totals, taken, number), runs, shared=[4], donated=[1, 2])[0]
        yield self._lowered_finish(before, state, totals, loop.agent_steps(self.config))
        yield from self._greedy.programs(self.configs, learner, key, self.config.train.eval_episodes)

    def _lowered_finish(self, before: RunState, state: LoopState, totals: StepInfo, steps: int) -> Any:
        """The program that ends an episode of so many steps."""
        arguments = (self.configs, before, state, totals, np.int32(0), np.int32(0))
        return lowered(partial(self._finish, steps), arguments, len(self._seeds), shared=[4, 5], donated=[2])[0]

    def _train_episode(self) -> dict[str, np.ndarray]:
        if not self._programs:
            self.compile()
        begin, act_program, store = self._programs
        number, configs = np.int32(self.episode), self.configs
        repeat = self.config.env.action_repeat
        first, after = (self.schedule.agent_steps(self.episode + more, repeat) for more in (0, 1))
        observation = self._envs.reset([env_seed(seed, self.episode, 0) for seed in self._seeds])
        before = self.state._replace(replay=None)  # its buffer is donated to the programs of a step
        draws, sensor, belief, learner, key = begin(configs, before, number, np.int32(first), observation)
        state, totals = LoopState(belief, learner, self.state.replay, sensor), jax.tree.map(np.copy, self._zeros)
        for index in map(np.int32, range(first, after)):
            action, executed, belief = act_program(configs, state.learner, state.belief, draws, index)
            taken = Taken(draws, action, self._envs.step(np.asarray(executed)))
            program = store if index < loop.warmup_steps(self.config) else self._compile_later()[0]
            state, totals = program(configs, state._replace(belief=belief), totals, taken, index)
        finish = self._compile_later()[1]
        if after - first < loop.agent_steps(self.config):  # the last episode, if the total is no multiple of its length
            finish = self._lowered_finish(before, state, totals, after - first).compile()
        self.state, measured = finish(configs, before, state, totals, number, np.int32(first))
        metrics = jax.device_get(measured)
        return dict(sorted((metrics | self._scores(key, metrics["diverged"] > 0)).items()))

    def _scores(self, keys: Key[Array, "runs"], diverged: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the evaluation after an episode; NaN for diverged runs, and if none is due."""
        scores = {name: np.full(len(self._seeds), np.nan) for name in SCORES}
        if loop.evaluation_due(self.config, self.episode) or self.episode + 1 == self.episodes:
            numbers = range(1, self.config.train.eval_episodes + 1)
            seeds = np.array([[env_seed(seed, self.episode, each) for each in numbers] for seed in self._seeds])
            scores = self._greedy.scores(self.configs, self.learners, keys, seeds)
        return {name: np.where(diverged, np.nan, values).astype(np.float32) for name, values in scores.items()}

    # The programs, each written for one run.

    def _parts(self, config: Config) -> tuple[Agent, Noise]:
        return make_agent(config, self.env), make_sensor(config, self.env)

    def _begin(
        self,
        config: Config,
        run: RunState,
        number: Int[Array, ""],
        first: Int[Array, ""],
        observation: Float[Array, "obs"],
    ) -> tuple[EpisodeDraws, Any, Belief, Any, Key[Array, ""]]:
        """Returns an episode's random numbers, sensor, belief, learner, and evaluation key."""
        agent, sensor = self._parts(config)
        keys, steps = loop.episode_keys(run, number), loop.agent_steps(config)
        sensor_state, belief = loop.first_belief(agent, run.learner, sensor, observation, keys.first)
        size = loop.block_size(config)
        blocks = jax.random.split(keys.loop, steps // size)
        each = jax.vmap(lambda key: jax.random.split(key, size))(blocks).ravel()
        exploration = draw_exploration(keys.explore, config.exploration, steps, self.env.action_size)
        learner = jax.tree.map(jnp.copy, run.learner)
        return EpisodeDraws(exploration, each, first), sensor_state, belief, learner, keys.evaluate

    def _act(
        self, config: Config, learner: Any, belief: Belief, draws: EpisodeDraws, index: Int[Array, ""]
    ) -> tuple[Float[Array, "act"], Float[Array, "act"], Belief]:
        """Returns the chosen and the executed action of a step, and the belief after deciding."""
        agent, sensor = self._parts(config)
        number = index - draws.first
        state = LoopState(belief, learner, jnp.zeros((0, 0)))  # acting does not use the replay buffer
        belief, action = loop.act(agent, state, index, jax.tree.map(lambda leaf: leaf[number], draws.exploration))
        executed = sensor.disturb(self.env, action, loop.draw_step(agent, draws.keys[number]).disturbance)
        return action, executed, belief

    def _store(
        self, config: Config, state: LoopState, totals: StepInfo, taken: Taken, index: Int[Array, ""]
    ) -> tuple[LoopState, StepInfo]:
        """Returns the state after a step of the warm-up, and the updated totals."""
        _, state, transition, _ = self._observe(config, state, taken, index)
        state = state._replace(replay=replay.add(state.replay, index, transition))
        return state, totals._replace(reward=totals.reward + transition.reward)

    def _learn(
        self, config: Config, state: LoopState, totals: StepInfo, taken: Taken, index: Int[Array, ""]
    ) -> tuple[LoopState, StepInfo]:
        """Returns the state after a later step, and the updated totals."""
        state, info = self._take(config, state, taken, index)
        return state, jax.tree.map(jnp.add, totals, info)

    def _take(
        self, config: Config, state: LoopState, taken: Taken, index: Int[Array, ""]
    ) -> tuple[LoopState, StepInfo]:
        """Returns the state after learning from a step, and the step's metrics."""
        agent, state, transition, drawn = self._observe(config, state, taken, index)
        return loop.learn(agent, state, transition, index, drawn, config.train.updates)

    def _observe(
        self, config: Config, state: LoopState, taken: Taken, index: Int[Array, ""]
    ) -> tuple[Agent, LoopState, Transition, StepDraws]:
        """Returns the agent, its state and the transition after a step, and the random numbers."""
        agent, sensor = self._parts(config)
        draws, action, outcome = taken
        drawn = loop.draw_step(agent, draws.keys[index - draws.first])
        step = Step(*(jnp.asarray(part) for part in (outcome.observation, outcome.reward, outcome.terminated)))
        after, transition = loop.observe(agent, sensor, state, action, step, drawn)
        _, noise_key = jax.random.split(drawn.restart_key)
        current, ended = jnp.asarray(outcome.current), jnp.asarray(outcome.ended)
        sensor_state, belief = loop.restart(agent, sensor, state.learner, after, current, ended, noise_key)
        return agent, state._replace(belief=belief, sensor=sensor_state), transition, drawn

    def _finish(
        self,
        steps: int,
        config: Config,
        run: RunState,
        state: LoopState,
        totals: StepInfo,
        number: Int[Array, ""],
        first: Int[Array, ""],
    ) -> tuple[RunState, Info]:
        """Returns the run after the episode, and its metrics."""
        return loop.finish_episode(self._parts(config)[0], run, state, number, totals, first, steps)
