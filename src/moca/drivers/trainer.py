"""The part of a trainer that is the same for every driver: many runs, their state, one episode after the other.

Runs differ in their seed and in any float of their config; they are vmapped, and sharded over the devices there are.
What all runs share (the step, the index into the replay) stays outside the vmapped state.
"""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from operator import sub
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from moca.config import Config, ConfigError
from moca.devices import over_devices
from moca.envs.environment import ActionRepeat, Environment, Spaces, make_noise
from moca.envs.named import named
from moca.loop import init_run
from moca.memory import refuse_too_large


class Report(NamedTuple):
    """Metrics of one episode of all runs."""

    step: int  # environment steps so far, per run
    metrics: dict[str, np.ndarray]  # one number per run; NaN where nothing was measured


class Schedule(NamedTuple):
    """The lengths of a run's episodes: all are `length` steps long, but for the last before one of the totals.

    A run that was made longer has several totals, at each of which an episode ended, whole or not.
    """

    length: int
    totals: Sequence[int]

    @property
    def episodes(self) -> int:
        """The number of episodes in all."""
        return sum(count for _, count in self._parts(sum(self.totals)))

    def steps(self, episodes: int) -> int:
        """The number of environment steps in the first episodes."""
        return sum(min(count * self.length, steps) for steps, count in self._parts(episodes))

    def decisions(self, episodes: int, repeat: int) -> int:
        """The number of decisions in them, if each takes `repeat` steps, or what is left of an episode."""
        each, total = -(-self.length // repeat), 0
        for steps, count in self._parts(episodes):
            whole = min(count, steps // self.length)
            total += whole * each + (count - whole) * -(-(steps % self.length) // repeat)
        return total

    def _parts(self, episodes: int) -> Iterator[tuple[int, int]]:
        """Returns, from total to total, the steps there and how many of the first episodes they hold."""
        for steps in map(sub, self.totals, [0, *self.totals]):
            count = min(episodes, -(-steps // self.length))
            yield steps, count
            episodes -= count


def make_env(config: Config, env: Spaces | None = None) -> Spaces:
    """The environment the config names, or the one given instead, with the config's action repeat.

    One on the host is told about the repeat only when many of it are made.
    """
    env = env or named(config.env.name, config.env.flatten)
    if isinstance(env, Environment) and config.env.action_repeat > 1:
        return ActionRepeat(env, config.env.action_repeat)
    return env


class Trainer(ABC):
    """Many runs side by side. Iterate over it to train; `learners` is what they have learned so far.

    Args:
        configs: one per run. They may differ in floats; everything else must be alike.
        seeds: one per run.
        env: the environment, if not the one the configs name.
    """

    def __init__(self, configs: Sequence[Config], seeds: Sequence[int], env: Spaces | None = None) -> None:
        configs = [dataclasses.replace(config.validated(), seed=0, seeds=1) for config in configs]
        if len({jax.tree.structure(config) for config in configs}) != 1:
            raise ConfigError(
                "the runs of one program may differ in their seeds and in settings that are floats, in no others"
            )
        self.config = configs[0]
        self.env: Any = make_env(self.config, env)
        make_noise(self.config.noise, self.env.observation_size)  # refuses scales of another dimension
        low, size = self.config.value.low, self.env.observation_size
        if low and len(low) != size:
            raise ConfigError(f"value.low has {len(low)} numbers, but the environment shows {size} dimensions")
        self.episode = 0
        self.schedule = Schedule(self.config.env.episode_length, [self.config.train.steps])
        stacked = jax.tree.map(lambda *numbers: jnp.asarray(numbers, jnp.float32), *configs)
        keys = jax.vmap(jax.random.key)(jnp.asarray(seeds, jnp.uint32))
        self._spread, self._everywhere = over_devices(len(configs))
        self.configs, keys = jax.device_put((stacked, keys), self._spread)
        start = jax.vmap(lambda c, k: init_run(c, self.env, k))
        # What is run once need not be fast: on a CPU this takes a third of the time to compile, to the same numbers.
        options = {"xla_backend_optimization_level": 1} if jax.default_backend() == "cpu" else {}
        begin = jax.jit(start, out_shardings=self._spread, compiler_options=options)
        sizes = (len(configs), self.env.observation_size, self.env.action_size)
        refuse_too_large(self.config, jax.eval_shape(begin, self.configs, keys), *sizes)
        self.state = begin(self.configs, keys)

    @property
    def episodes(self) -> int:
        """The number of training episodes in all."""
        return self.schedule.episodes

    @property
    def step(self) -> int:
        """The number of environment steps so far, per run."""
        return self.schedule.steps(self.episode)

    @property
    def learners(self) -> Any:
        """The agents' states, with a leading axis over runs."""
        return self.state.learner

    @abstractmethod
    def compile(self) -> None:
        """Compiles the programs; the first episode would otherwise."""

    @abstractmethod
    def memory(self) -> int:
        """Bytes that the compiled program needs on all devices, for its state and for intermediate results."""

    @abstractmethod
    def _train_episode(self) -> dict[str, np.ndarray]:
        """The metrics of the next episode, after which `state` is the one that follows."""

    def __iter__(self) -> Iterator[Report]:
        while self.episode < self.episodes:
            metrics = self._train_episode()
            self.episode += 1
            yield Report(self.step, metrics)

    def _memory_of(self, compiled: Any) -> int:
        analysis = compiled.memory_analysis()
        devices = len(self.state.replay.sharding.device_set)
        return devices * (analysis.temp_size_in_bytes + analysis.argument_size_in_bytes)

    def _number(self) -> Int[Array, ""]:
        return jnp.asarray(self.episode, jnp.int32)
