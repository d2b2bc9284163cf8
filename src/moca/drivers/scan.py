"""The driver for compiled environments: one program runs an episode of all runs.

It includes the environment. The end of an episode, with its diagnostics, and the evaluation are
separate programs, compiled in parallel with the first.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from moca import loop
from moca.agents import Agent, make_agent
from moca.agents.agent import Info
from moca.config import Config, refuse_partial
from moca.devices import compiling
from moca.drivers import overlap as two_cores
from moca.drivers.trainer import Trainer
from moca.envs.environment import Environment, Noise, Spaces
from moca.envs.sensors import make_sensor
from moca.evaluation import SCORES, evaluate
from moca.exploration import ExplorationDraws, draw_exploration
from moca.loop import LoopState, RunState, StepDraws, StepInfo
from moca.replay import Replay


def train_episode(
    config: Config, env: Environment, state: RunState, episode: Int[Array, ""], replay: Replay, overlap: bool = False
) -> tuple[LoopState, StepInfo]:
    """Returns the loop's state after the steps of one episode, and sums over them."""
    agent = make_agent(config, env)
    sensor = make_sensor(config, env)
    keys, steps, size = loop.episode_keys(state, episode), loop.agent_steps(config), loop.block_size(config)
    env_state, observation = env.reset(keys.reset)
    sensor_state, belief = loop.first_belief(agent, state.learner, sensor, observation, keys.first)
    start = (env_state, LoopState(belief, state.learner, replay, sensor_state))
    indices = episode * steps + jnp.arange(steps)
    explorations = draw_exploration(keys.explore, config.exploration, steps, env.action_size)
    in_blocks = lambda x: x.reshape(-1, size, *x.shape[1:])  # noqa: E731

    def block(carry: tuple, x: tuple) -> tuple[tuple, StepInfo]:
        indices, explorations, key = x
        xs = (indices, explorations, loop.draw_steps(agent, jax.random.split(key, size)))

        def scan(updates: Int[Array, ""] | int) -> tuple[tuple, StepInfo]:
            after, infos = jax.lax.scan(lambda c, each: step(agent, env, sensor, c, *each, updates), carry, xs)
            return after, jax.tree.map(jnp.sum, infos)

        waiting, updates = indices[0] < loop.warmup_steps(config), config.train.updates
        if overlap:
            return jax.lax.cond(waiting, lambda: scan(0), lambda: two_cores.learn_block(agent, env, sensor, carry, xs))
        if jax.default_backend() == "cpu":  # one program to compile, with a loop that may be empty
            return scan(jnp.where(waiting, 0, updates))
        # A GPU would wait for the host at every loop whose length is not known.
        return jax.lax.cond(waiting, lambda: scan(0), lambda: scan(updates))

    block_keys = jax.random.split(keys.loop, steps // size)
    xs = (*jax.tree.map(in_blocks, (indices, explorations)), block_keys)
    (_, after), infos = jax.lax.scan(block, start, xs)
    totals = jax.tree.map(jnp.sum, infos)
    if overlap:
        learner, totals = two_cores.settle(after.learner, totals)
        after = after._replace(learner=learner)
    return after, totals


def end_episode(
    config: Config, env: Environment, state: RunState, episode: Int[Array, ""], after: LoopState, totals: StepInfo
) -> tuple[RunState, Info]:
    """Returns the run after a training episode, its replay memory left out, and the metrics."""
    run: Any
    run, metrics = loop.finish_episode(make_agent(config, env), state, after, episode, totals)
    return run._replace(replay=None), metrics


def evaluate_run(
    config: Config, env: Environment, state: RunState, episode: Int[Array, ""], overlap: bool = False
) -> dict[str, Float[Array, ""]]:
    """The scores of a run after an episode, NaN if it diverged; its replay memory is not needed."""
    agent = make_agent(config, env)
    sensor = make_sensor(config, env)
    key, over_all = loop.episode_keys(state, episode).evaluate, two_cores.vmap_halves if overlap else jax.vmap
    steps, episodes = loop.agent_steps(config), config.train.eval_episodes
    scores = evaluate(agent, state.learner, env, sensor, steps, episodes, key, over_all)
    return {name: jnp.where(state.diverged > 0, jnp.nan, value) for name, value in scores.items()}


def step(
    agent: Agent,
    env: Environment,
    sensor: Noise,
    carry: tuple[Any, LoopState],
    index: Int[Array, ""],
    exploration: ExplorationDraws,
    draws: StepDraws,
    updates: Int[Array, ""] | int,
) -> tuple[tuple[Any, LoopState], StepInfo]:
    """Takes one step: act, observe, learn."""
    env_state, state = carry
    env_state, state, transition = loop.interact(agent, env, sensor, env_state, state, index, exploration, draws)
    state, info = loop.learn(agent, state, transition, index, draws, updates)
    return (env_state, state), info


class ScanTrainer(Trainer):
    """Trains many runs as one program that includes the environment; arguments as for `Trainer`.

    With `overlap`, a single run learns on two CPU cores: see `moca.drivers.overlap`.
    """

    def __init__(
        self, configs: Sequence[Config], seeds: Sequence[int], env: Spaces | None = None, overlap: bool = False
    ) -> None:
        super().__init__(configs, seeds, env)
        refuse_partial(self.config)
        spread, everywhere = self._spread, self._everywhere
        if overlap:
            cores = two_cores.cores_for(make_agent(self.config, self.env), self.learners, len(configs))
            spread = everywhere = jax.sharding.NamedSharding(cores, jax.sharding.PartitionSpec())
            self.configs, self.state = jax.device_put((self.configs, self.state), spread)

        def of_all(function: Callable) -> Any:
            """The function of one run as a program of all, which may reuse `donated` memory."""

            def one(number: Any, given: tuple, donated: tuple) -> Any:
                config, state, *more = given
                return function(config, self.env, state, number, *more, *donated)

            program = two_cores.on_both(cores, one) if overlap else jax.vmap(one, (None, 0, 0))
            places = (everywhere, spread, spread)
            return jax.jit(program, in_shardings=places, out_shardings=spread, donate_argnums=2)

        self._training = of_all(partial(train_episode, overlap=overlap))
        self._ending = of_all(end_episode)
        self._evaluation = of_all(partial(evaluate_run, overlap=overlap))
        self._compiled: Sequence[Future] = ()  # as `lowered` yields them

    def lowered(self) -> Iterator[Any]:
        """The programs to compile: training, evaluation, and the end of a training episode."""
        number, runs, memory = np.int32(self.episode), (self.configs, self._policies), (self.state.replay,)
        yield self._training.lower(number, runs, memory)
        yield self._evaluation.lower(number, runs, ())
        yield self._ending.lower(number, (*runs, *jax.eval_shape(self._training, number, runs, memory)), ())

    def compile(self) -> None:
        """Compiles training; the other programs may be ready only at the end of an episode."""
        self._compiled = compiling(self.lowered(), in_order=True)
        self._compiled[0].result()

    def memory(self) -> int:
        """Returns the bytes that the compiled programs need, intermediates included."""
        each = [program.result().memory_analysis() for program in self._compiled]
        devices = len(self.state.replay.sharding.device_set)
        return devices * max(one.temp_size_in_bytes + one.argument_size_in_bytes for one in each)

    @property
    def _policies(self) -> RunState:
        """The runs without their memory, which is large."""
        return self.state._replace(replay=None)

    def _train_episode(self) -> dict[str, np.ndarray]:
        if not self._compiled:
            self.compile()
        train, judge, end = self._compiled
        number, runs = np.int32(self.episode), (self.configs, self._policies)
        after, totals = train.result()(number, runs, (self.state.replay,))
        if not (judge.done() and end.done()):
            with self.while_compiling():
                wait(self._compiled)
        run, metrics = end.result()(number, (*runs, after, totals), ())
        self.state = run._replace(replay=after.replay)
        if loop.evaluation_due(self.config, self.episode):
            scores = judge.result()(number, (self.configs, self._policies), ())
        else:
            scores = dict.fromkeys(SCORES, np.full(len(metrics["diverged"]), np.nan, np.float32))
        return dict(sorted(jax.device_get(metrics | scores).items()))
