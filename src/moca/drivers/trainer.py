"""The part of a trainer that all drivers share: many runs, their state, one episode at a time.

Runs differ in their seed and in float settings. They are vmapped and sharded over the devices.
Values that all runs share (the step, the index into the replay buffer) stay outside the vmapped
state.
"""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from operator import sub
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from moca import pytrees
from moca.config import Config, ConfigError
from moca.devices import for_one_call, over_devices
from moca.envs.environment import ActionRepeat, Environment, RandomStart, Spaces, refuse_other_count
from moca.envs.history import with_history
from moca.envs.host import HostEnvironment
from moca.envs.named import configured
from moca.envs.sensors import make_sensor, masked
from moca.loop import init_run
from moca.memory_estimate import refuse_too_large


class Report(NamedTuple):
    """Metrics of one episode of all runs."""

    step: int  # environment steps so far, per run
    metrics: dict[str, np.ndarray]  # one number per run; NaN where nothing was measured


class Schedule(NamedTuple):
    """The lengths of a run's episodes.

    An episode has `length` steps, unless one of the totals is reached first: there it ends early. A
    run that was extended has several totals.
    """

    length: int
    totals: Sequence[int]  # environment steps, ascending

    @property
    def episodes(self) -> int:
        """The total number of episodes."""
        return sum(count for _, count in self._parts(sum(self.totals)))

    def steps(self, episodes: int) -> int:
        """Returns the number of environment steps in the first `episodes` episodes."""
        return sum(min(count * self.length, steps) for steps, count in self._parts(episodes))

    def agent_steps(self, episodes: int, repeat: int) -> int:
        """Returns the number of agent steps in the first `episodes` episodes.

        An agent step takes `repeat` environment steps, or fewer at the end of an episode.
        """
        each, total = -(-self.length // repeat), 0
        for steps, count in self._parts(episodes):
            whole = min(count, steps // self.length)
            total += whole * each + (count - whole) * -(-(steps % self.length) // repeat)
        return total

    def _parts(self, episodes: int) -> Iterator[tuple[int, int]]:
        """Yields the steps of each stretch between totals, and how many of the episodes it has."""
        for steps in map(sub, self.totals, [0, *self.totals]):
            count = min(episodes, -(-steps // self.length))
            yield steps, count
            episodes -= count


def make_env(config: Config, env: Spaces | None = None) -> Spaces:
    """Returns the config's environment, or `env` if given, as the agent sees it.

    With random starts, the mask, the repeat and the history applied, in that order.

    For an environment on the host, the repeat is applied when its vector is created, and MuJoCo
    takes the steps of a random start itself.
    """
    sensor = config.sensor
    whole: Any = env or configured(config.env)
    if most := config.env.random_start:
        whole = whole.random_start(most) if isinstance(whole, HostEnvironment) else RandomStart(whole, most)
    env = masked(whole, sensor.observed)
    if isinstance(env, Environment) and config.env.action_repeat > 1:
        env = ActionRepeat(env, config.env.action_repeat)
    if not sensor.history:
        return env
    refuse_other_count("sensor.scales", sensor.scales, env.observation_size)
    return with_history(env, sensor.history, sensor.scales)


def state_shapes(config: Config, env: Spaces, runs: int) -> Any:
    """Returns the shapes of the states of that many runs, stacked; `env` is from `make_env`."""
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), runs))
    return jax.eval_shape(jax.vmap(lambda key: init_run(config, env, key)), keys)


def refuse_unfit_settings(config: Config, env: Spaces, runs: int, shapes: Callable[[], Any]) -> None:
    """Raises if settings do not fit the environment, or the runs do not fit into memory.

    Args:
        config: Settings shared by the runs.
        env: The environment as agents see it, from `make_env`.
        runs: Number of runs.
        shapes: Returns the shapes of their states.
    """
    make_sensor(config, env)  # checks lists of one number per dimension
    if config.value.low:  # a learner that has no V does not look at it
        refuse_other_count("value.low", config.value.low, env.observation_size)
    refuse_too_large(config, shapes(), runs, env.observation_size, env.action_size)


class Trainer(ABC):
    """Trains many runs side by side, one episode per iteration.

    `learners` holds their current state.

    Args:
        configs: One per run. They may differ in floats only.
        seeds: One per run.
        env: The environment, if not the one named in the configs.
    """

    ready = "compiled"  # what `compile` has done
    while_compiling: Callable[[], AbstractContextManager] = nullcontext  # entered where an episode compiles programs

    def __init__(self, configs: Sequence[Config], seeds: Sequence[int], env: Spaces | None = None) -> None:
        configs = pytrees.alike([dataclasses.replace(config.validated(), seed=0, seeds=1) for config in configs])
        if len({jax.tree.structure(config) for config in configs}) != 1:
            raise ConfigError("the runs of one program may differ only in their seeds and in settings of type float")
        self.config = configs[0]
        self.env: Any = make_env(self.config, env)
        self.episode = 0
        self.schedule = Schedule(self.config.env.episode_length, [self.config.train.steps])
        stacked = jax.tree.map(lambda *numbers: jnp.asarray(numbers, jnp.float32), *configs)
        keys = jax.vmap(jax.random.key)(jnp.asarray(seeds, jnp.uint32))
        self._spread, self._everywhere = over_devices(len(configs))
        self.configs, keys = jax.device_put((stacked, keys), self._spread)
        begin = self._beginning(self.env)
        refuse_unfit_settings(self.config, self.env, len(configs), lambda: jax.eval_shape(begin, self.configs, keys))
        self.state = begin(self.configs, keys)

    @property
    def episodes(self) -> int:
        """The total number of training episodes."""
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
        """Compiles at least what the first step needs; otherwise the first episode does."""

    @abstractmethod
    def _train_episode(self) -> dict[str, np.ndarray]:
        """Trains for one episode, updates `state`, and returns the metrics."""

    def __iter__(self) -> Iterator[Report]:
        while self.episode < self.episodes:
            metrics = self._train_episode()
            self.episode += 1
            yield Report(self.step, metrics)

    def _beginning(self, env: Any) -> Any:
        """Returns the program that makes the first state of every run."""
        start = jax.vmap(lambda config, key: init_run(config, env, key))
        return jax.jit(start, out_shardings=self._spread, compiler_options=for_one_call())
