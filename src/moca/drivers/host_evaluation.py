"""Greedy episodes in environments on the host: the counterpart of `moca.evaluation`."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from moca.agents import make_agent
from moca.belief import features
from moca.config import Config
from moca.devices import compiled, over_devices
from moca.envs.environment import Spaces
from moca.envs.host import HostEnvironment, Vector
from moca.envs.sensors import make_sensor
from moca.evaluation import Episode, judge, summary
from moca.exploration import normals
from moca.loop import PolicyState, agent_steps, policy_start, policy_step


def env_seed(*path: int) -> int:
    """Returns a seed for an environment; different numbers give different seeds."""
    return int(np.random.SeedSequence(path).generate_state(1)[0])


def lowered(
    function: Callable, arguments: Sequence[Any], runs: int, shared: Sequence[int] = (), donated: Sequence[int] = ()
) -> tuple[Any, Any]:
    """Returns a function of one run as a program of all, not compiled yet, and its output shapes.

    Args:
        function: A function whose arguments belong to one run.
        arguments: Arguments with a leading axis over runs, except the `shared` ones.
        runs: Number of runs.
        shared: Indices of the arguments that all runs have in common.
        donated: Indices of the arguments whose memory the program may reuse.
    """
    spread, everywhere = over_devices(runs)
    places = tuple(everywhere if number in shared else spread for number in range(len(arguments)))
    program = jax.vmap(function, tuple(None if number in shared else 0 for number in range(len(arguments))))
    jitted = jax.jit(program, in_shardings=places, out_shardings=spread, donate_argnums=tuple(donated))
    return jitted.lower(*arguments), jax.eval_shape(jitted, *arguments)  # traced once, for both


def evaluate_on_host(
    env: HostEnvironment, config: Config, configs: Config, learners: Any, episodes: int, seed: int
) -> dict[str, np.ndarray]:
    """Returns the scores of all runs over the same new episodes.

    Args:
        env: The environment.
        config: Settings shared by all runs.
        configs: Settings of every run.
        learners: One per run.
        episodes: Number of episodes.
        seed: Seed of the episodes.
    """
    runs = len(jax.tree.leaves(configs)[0])
    vector = env.vector(runs * episodes, config.env.action_repeat)
    keys = jnp.repeat(jax.random.key(seed)[None], runs)
    seeds = np.tile([env_seed(seed, number) for number in range(episodes)], (runs, 1))
    return GreedyEpisodes(env, config, vector, runs).scores(configs, learners, keys, seeds)


def play_once(
    env: HostEnvironment,
    config: Config,
    learner: Any,
    vector: Vector,
    seed: int,
    watch: Callable[[np.ndarray, "Playing"], None],
) -> Episode:
    """Returns one episode of one run, with noise; `watch` as in `GreedyEpisodes.play`."""
    configs = jax.tree.map(lambda number: np.array([number], np.float32), config)
    learners = jax.tree.map(lambda leaf: np.asarray(leaf)[None], learner)
    episodes = GreedyEpisodes(env, config, vector, 1)
    played = episodes.play(configs, learners, jax.random.key(seed)[None], np.array([[seed]]), watch=watch)
    return Episode(*(part[0, 0] for part in played))


BOOLEAN = ("running", "terminated")  # boolean fields of an episode


class Playing(NamedTuple):
    """Running episodes, with a leading axis over them."""

    policy: PolicyState
    executed: Float[Array, "episodes act"]
    value: Float[Array, "episodes"]  # of the belief
    value_again: Float[Array, "episodes"]  # of a second observation of the state
    normals: Float[Array, "episodes times obs"]  # the noise of all further observations
    again: Float[Array, "episodes times obs"]  # and of second observations
    disturbances: Float[Array, "episodes times act"]  # of all further actions
    measured: Float[Array, "episodes obs"]  # what the policy saw last
    sensor: Any  # its state
    draws: Any  # of all further samples, along a second axis


class GreedyEpisodes:
    """Greedy episodes of many runs in parallel.

    Args:
        env: The environment.
        config: Settings shared by all runs.
        vector: runs × episodes copies of the environment.
        runs: Number of runs.
    """

    def __init__(self, env: Spaces, config: Config, vector: Vector, runs: int) -> None:
        self._env, self._vector, self._runs = env, vector, runs
        self._steps = agent_steps(config)
        self.compiled: list[Any] = []  # those of `programs`; the first episode compiles them if nobody has

    def programs(self, configs: Config, learners: Any, keys: Key[Array, "runs"], episodes: int) -> Iterator[Any]:
        """Yields the programs to compile: for first observations, for later ones, for scores."""
        observation = np.zeros((self._runs, episodes, self._env.observation_size), np.float32)
        arguments = (configs, learners, keys, observation, np.float32(0))
        start, playing = lowered(self._starting, arguments, self._runs, shared=[4])
        yield start
        later = (configs, learners, playing, observation, np.int32(0))
        yield lowered(self._stepping, later, self._runs, shared=[4], donated=[2])[0]
        each: Any = np.zeros((self._runs, episodes, self._steps), np.float32)
        played = Episode(each, each > 0, each > 0, each, each, each)
        yield lowered(self._judging, (configs, played), self._runs)[0]

    def play(
        self,
        configs: Config,
        learners: Any,
        keys: Key[Array, "runs"],
        seeds: np.ndarray,
        noisy: float = 1.0,
        watch: Callable[[np.ndarray, Playing], None] = lambda seen, playing: None,
    ) -> Episode:
        """Plays one episode per seed; the axes of the result are runs, episodes, steps.

        An episode lasts until its end, or as long as a training episode.

        Args:
            configs: One per run.
            learners: One per run.
            keys: One per run, for the noise.
            seeds: Seeds of the environments, runs × episodes.
            noisy: One for noisy observations, zero for exact ones; a filter expects noise in both
                cases.
            watch: Called at every state, the last one included, with its noiseless observation.
        """
        if not self.compiled:
            self.compiled = compiled(self.programs(configs, learners, keys, seeds.shape[1]))
        start, follow, _ = self.compiled
        seen = self._vector.reset(seeds.ravel().tolist()).reshape(*seeds.shape, -1)
        playing = start(configs, learners, keys, seen, np.float32(noisy))
        shape = (*seeds.shape, self._steps)
        parts: Any = [np.zeros(shape, bool if name in BOOLEAN else np.float32) for name in Episode._fields]
        played = Episode(*parts)
        running = np.ones(seeds.shape, bool)
        for time in range(self._steps):
            watch(seen, playing)
            outcome = self._vector.step(np.asarray(playing.executed).reshape(seeds.size, -1))
            reward, ended, terminated, seen = (
                each.reshape(*seeds.shape, *each.shape[1:])
                for each in (outcome.reward, outcome.ended, outcome.terminated, outcome.observation)
            )
            before, playing = playing.value, follow(configs, learners, playing, seen, np.int32(time))
            now = (np.where(running, reward, 0), running, terminated, before, playing.value, playing.value_again)
            for part, each in zip(parts, now, strict=True):
                part[..., time] = each
            running = running & ~ended
            if not running.any():
                break
        watch(seen, playing)
        return played

    def scores(
        self, configs: Config, learners: Any, keys: Key[Array, "runs"], seeds: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Returns the scores over noisy episodes and the same without noise, by run."""
        seen, clean = (self.play(configs, learners, keys, seeds, noisy) for noisy in (1.0, 0.0))
        judged = np.asarray(self.compiled[-1](configs, seen))
        by_run = [summary(*each) for each in zip(judged, clean.reward.sum(axis=-1), strict=True)]
        return {name: np.array([scores[name] for scores in by_run]) for name in by_run[0]}

    def _judging(self, config: Config, episodes: Episode) -> Float[Array, "episodes three"]:
        agent = make_agent(config, self._env)
        return jax.vmap(lambda episode: judge(agent, episode))(episodes)

    def _starting(
        self,
        config: Config,
        learner: Any,
        key: Key[Array, ""],
        observation: Float[Array, "episodes obs"],
        noisy: Float[Array, ""],
    ) -> Playing:
        agent, sensor = make_agent(config, self._env), make_sensor(config, self._env)
        times, size = self._steps + 1, self._env.observation_size

        def one(key: Key[Array, ""], observation: Float[Array, "obs"]) -> Playing:
            _, noise_key, action_key, again_key = jax.random.split(key, 4)
            noises, again = (noisy * normals(k, times, size) for k in (noise_key, again_key))
            disturbances = normals(action_key, times, self._env.action_size)
            sensor_state, measured = sensor.init(observation, noises[0])
            policy = policy_start(agent, learner, measured)
            executed = sensor.disturb(self._env, policy.action, disturbances[0])
            value = agent.value(learner, features(config, policy.belief))
            draws = sensor.draw_many(key, self._steps, size)
            return Playing(policy, executed, value, value, noises, again, disturbances, measured, sensor_state, draws)

        return jax.vmap(one)(jax.random.split(key, len(observation)), observation)

    def _stepping(
        self,
        config: Config,
        learner: Any,
        playing: Playing,
        observation: Float[Array, "episodes obs"],
        time: Int[Array, ""],
    ) -> Playing:
        agent, sensor = make_agent(config, self._env), make_sensor(config, self._env)

        def one(playing: Playing, observation: Float[Array, "obs"]) -> Playing:
            drawn = jax.tree.map(lambda leaf: leaf[time], playing.draws)
            after, measured = sensor.measure(playing.sensor, observation, playing.normals[time + 1], drawn)
            policy = policy_step(agent, learner, playing.policy, measured)
            again = agent.taken_for_state(learner, sensor(observation, playing.again[time + 1]))
            return playing._replace(
                policy=policy,
                executed=sensor.disturb(self._env, policy.action, playing.disturbances[time + 1]),
                value=agent.value(learner, features(config, policy.belief)),
                value_again=agent.value(learner, again),
                measured=measured,
                sensor=after,
            )

        return jax.vmap(one)(playing, observation)
