"""The training loop [Alg. 1 l. 2]: one compiled program per episode, for all runs at once.

Runs differ in their seed and in any float of their config; they are vmapped, and sharded over the devices there are.
What all runs share (the step, the index into the replay) stays outside the vmapped state. The discount, the update
ratio and the warm-up are ours [choice].
"""

import dataclasses
import os
import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, UInt32

from moca import config as settings
from moca import replay as memory
from moca.agents import Agent, Progress, make_agent
from moca.agents.agent import Info
from moca.belief import Belief
from moca.config import Config, ConfigError
from moca.envs.environment import ActionRepeat, Environment
from moca.envs.noise import Noise, make_noise
from moca.envs.playground import Playground
from moca.evaluation import evaluate
from moca.exploration import Dice


def _register(section: type, data: Callable[[dataclasses.Field], bool]) -> None:
    """Makes a config section a pytree: the fields that `data` picks may be traced, the others are static."""
    fields = dataclasses.fields(section)
    jax.tree_util.register_dataclass(
        section, [f.name for f in fields if data(f)], [f.name for f in fields if not data(f)]
    )


for _section in [type(getattr(settings.Config(), f.name)) for f in dataclasses.fields(Config)]:
    if dataclasses.is_dataclass(_section):
        _register(_section, lambda f: f.type is float)
_register(Config, lambda f: f.name not in ("agent", "seed", "seeds"))


BLOCK = 100  # decisions whose random numbers are drawn at once: the largest divisor of an episode's up to this


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


class Report(NamedTuple):
    """What one episode of all runs measured."""

    step: int  # environment steps so far, per run
    metrics: dict[str, np.ndarray]  # one number per run; nan where nothing was measured


def make_env(config: Config, env: Environment | None = None) -> Environment:
    """The environment the config names, or the one given instead, with the config's action repeat."""
    env = env or Playground(config.env.name)
    return ActionRepeat(env, config.env.action_repeat) if config.env.action_repeat > 1 else env


def init_run(config: Config, env: Environment, key: Key[Array, ""]) -> RunState:
    """A run before its first step."""
    capacity = min(config.train.capacity, config.train.steps // config.env.action_repeat)
    learner_key, episode_key = jax.random.split(key)
    learner = make_agent(config, env).init(learner_key)
    replay = memory.empty(capacity, env.observation_size, env.action_size, config.belief.filter)
    return RunState(learner, jnp.zeros((), jnp.int32), replay, episode_key)


def train_episode(
    config: Config, env: Environment, state: RunState, episode: Int[Array, ""]
) -> tuple[RunState, dict[str, Float[Array, ""]]]:
    """One episode of interaction and learning, then the evaluation; the metrics of both.

    Training and evaluation have keys of their own, so evaluating more often changes no training run.
    """
    agent = make_agent(config, env)
    noise = make_noise(config.noise, env.observation_size)
    keys = jax.random.split(jax.random.fold_in(state.key, episode), 6)
    reset_key, first_key, explore_key, loop_key, eval_key, diagnose_key = keys
    decisions = config.env.episode_length // config.env.action_repeat
    env_state, observation = env.reset(reset_key)
    seen = noise(observation, jax.random.normal(first_key, observation.shape))
    start = (env_state, agent.observe(state.learner, seen), state.learner, state.replay)
    size = max(n for n in range(1, BLOCK + 1) if decisions % n == 0)
    indices = episode * decisions + jnp.arange(decisions)
    explorations = agent.draw_exploration(explore_key, decisions)
    in_blocks = lambda x: x.reshape(-1, size, *x.shape[1:])  # noqa: E731

    def block(carry: tuple, x: tuple) -> tuple[tuple, tuple]:
        indices, explorations, key = x
        draws = jax.vmap(lambda k: _draw(agent, env, k))(jax.random.split(key, size))
        return jax.lax.scan(lambda c, each: _step(agent, env, noise, c, *each), carry, (indices, explorations, draws))

    block_keys = jax.random.split(loop_key, decisions // size)
    xs = (*jax.tree.map(in_blocks, (indices, explorations)), block_keys)
    (_, _, learner, replay), (rewards, learned, info) = jax.lax.scan(block, start, xs)

    metrics = {name: jnp.sum(values) / jnp.sum(learned) for name, values in info.items()}
    newest = memory.read(replay, indices, env.observation_size, env.action_size)
    metrics |= agent.diagnose(state.learner, learner, newest, diagnose_key)
    learner = agent.learn_noise(learner, newest)
    diverged = jnp.where(state.diverged > 0, state.diverged, _cause(learner, newest, metrics))
    learner = jax.tree.map(lambda new, old: jnp.where(diverged > 0, old, new), learner, state.learner)
    evaluated = jax.lax.cond(
        ((episode + 1) % config.train.eval_every == 0)
        | ((episode + 1) * config.env.episode_length == config.train.steps),
        lambda: evaluate(agent, learner, env, noise, decisions, config.train.eval_episodes, eval_key),
        lambda: dict.fromkeys(("return_mean", "return_std", "return_noise_free"), jnp.full((), jnp.nan)),
    )
    metrics |= evaluated | {"train_return": rewards.sum()}
    metrics = {name: jnp.where(diverged > 0, jnp.nan, value) for name, value in metrics.items()}
    return RunState(learner, diverged, replay, state.key), metrics | {"diverged": diverged.astype(jnp.float32)}


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


class Draw(NamedTuple):
    """The random numbers of one decision, but for the exploration's, which may hold for many."""

    noise: Float[Array, "obs"]
    rows: UInt32[Array, "updates batch"]
    updates: Any  # with a leading axis over updates
    restart: Key[Array, ""]


def _draw(agent: Agent, env: Environment, key: Key[Array, ""]) -> Draw:
    noise_key, row_key, update_key, restart_key = jax.random.split(key, 4)
    train = agent.config.train
    return Draw(
        jax.random.normal(noise_key, (env.observation_size,)),
        jax.random.bits(row_key, (train.updates, train.batch)),
        jax.vmap(agent.draw_update)(jax.random.split(update_key, train.updates)),
        restart_key,
    )


def _step(
    agent: Agent, env: Environment, noise: Noise, carry: tuple, index: Int[Array, ""], dice: Dice, draw: Draw
) -> tuple[tuple, tuple[Float[Array, ""], Float[Array, ""], Info]]:
    """One decision: act, store, learn [Alg. 1 l. 3] [Alg. 1 l. 4]."""
    env_state, belief, learner, replay = carry
    config = agent.config
    step = index * config.env.action_repeat
    action = agent.explore(learner, belief.mean, dice, Progress(step, step / config.train.steps))
    env_state, (observation, reward, terminated) = env.step(env_state, action)
    measured = noise(observation, draw.noise)
    next_belief, spread = agent.track(learner, belief, action, measured)
    ended = terminated.astype(reward.dtype)
    kept = None if spread is None else measured
    transition = memory.Transition(belief.mean, action, reward, next_belief.mean, ended, kept, spread)
    replay = memory.add(replay, index, transition)
    batches = memory.sample(replay, draw.rows, index + 1, env.observation_size, env.action_size)
    learning = step + config.env.action_repeat > config.train.warmup
    learner, info = _learn(agent, learner, batches, draw.updates, learning)
    if env.terminates:
        fresh = _restart(agent, learner, noise, draw.restart)
        env_state, next_belief = jax.tree.map(
            lambda new, old: jnp.where(terminated, new, old), fresh, (env_state, next_belief)
        )
    return (env_state, next_belief, learner, replay), (reward, learning.astype(jnp.float32), info)


def _learn(agent: Agent, learner: Any, batches: memory.Transition, draws: Any, learning: Array) -> tuple[Any, Info]:
    """The learner after one update per batch [Alg. 1 l. 5], or as it was with zeros for info while it warms up.

    A select, not a branch: on a GPU a branch waits for the host at every step, and the select is part of the
    optimisers' own kernels.
    """
    learned, info = jax.lax.scan(lambda state, x: agent.update(state, *x), learner, (batches, draws))
    learner = jax.tree.map(lambda new, old: jnp.where(learning, new, old), learned, learner)
    return learner, jax.tree.map(lambda x: jnp.where(learning, x.mean(), 0), info)


def _restart(agent: Agent, learner: Any, noise: Noise, key: Key[Array, ""]) -> tuple[Any, Belief]:
    """A fresh episode, for where the last one ended; what was stored keeps the true last observation."""
    reset_key, noise_key = jax.random.split(key)
    env_state, observation = agent.env.reset(reset_key)
    seen = noise(observation, jax.random.normal(noise_key, observation.shape))
    return env_state, agent.observe(learner, seen)


def use_all_cores() -> None:
    """Where JAX runs on a CPU, gives it one device per core, over which runs are then spread.

    A program on one device leaves most cores idle when its networks are small. To be called before JAX computes
    anything; later, or where the number was set by `JAX_NUM_CPU_DEVICES` or `XLA_FLAGS`, it changes nothing.
    """
    chosen = getattr(jax.config, "jax_num_cpu_devices", -1) >= 0
    chosen |= "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if not chosen:
        with suppress(RuntimeError):  # JAX has started
            jax.config.update("jax_num_cpu_devices", os.cpu_count() or 1)


def use_device(device: str | None) -> None:
    """Has JAX use that kind of device, all cores of a CPU among them, and says so if it is not there."""
    use_all_cores()
    keep_compiled()
    if device:
        jax.config.update("jax_platforms", {"cpu": "cpu", "gpu": "cuda"}[device])
    try:
        jax.devices()
    except (RuntimeError, AssertionError):  # which of the two depends on what of CUDA is installed
        raise ConfigError(
            f"--device {device or 'of any kind'}: JAX finds none here. Install moca-rl[cuda12] or moca-rl[cuda13], "
            "or use --device cpu"
        ) from None


def keep_compiled() -> None:
    """Has JAX keep the programs it compiles, so that the next start is quick, unless it was told where to already.

    What is loaded from there is run, so the folder is this user's alone; one that others can write to is not used. It
    has a part for each machine: what was compiled for one processor may not run on another.
    """
    if getattr(jax.config, "jax_compilation_cache_dir", None):
        return
    try:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        folder = base / "moca" / "compiled" / (platform.node() or "here")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.stat().st_uid != os.getuid() or folder.stat().st_mode & 0o077:
            return
    except (OSError, RuntimeError):  # no home, or none to write to
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 2.0)


class Trainer:
    """Many runs as one program. Iterate over it to train; `learners` is what they have learned so far.

    Args:
        configs: one per run. They may differ in floats; everything else must be alike.
        seeds: one per run.
        env: the environment, if not the one the configs name.
    """

    def __init__(self, configs: Sequence[Config], seeds: Sequence[int], env: Environment | None = None) -> None:
        configs = [dataclasses.replace(config.validated(), seed=0, seeds=1) for config in configs]
        if len({jax.tree.structure(config) for config in configs}) != 1:
            raise ConfigError(
                "the runs of one program may differ in their seeds and in settings that are floats, in no others"
            )
        self.config = configs[0]
        self.env = make_env(self.config, env)
        make_noise(self.config.noise, self.env.observation_size)  # refuses scales of another dimension
        self.episode = 0
        stacked = jax.tree.map(lambda *numbers: jnp.asarray(numbers, jnp.float32), *configs)
        keys = jax.vmap(jax.random.key)(jnp.asarray(seeds, jnp.uint32))
        spread, everywhere = _over_devices(len(configs))
        self.configs, keys = jax.device_put((stacked, keys), spread)
        start = jax.vmap(lambda c, k: init_run(c, self.env, k))
        self.state = jax.jit(start, out_shardings=spread)(self.configs, keys)
        program = jax.vmap(lambda c, s, e: train_episode(c, self.env, s, e), in_axes=(0, 0, None))
        self._program = jax.jit(
            program, in_shardings=(spread, spread, everywhere), out_shardings=spread, donate_argnums=1
        )
        self._compiled: Any = None

    @property
    def episodes(self) -> int:
        """How many there are in all."""
        return self.config.train.steps // self.config.env.episode_length

    @property
    def learners(self) -> Any:
        """The agents' states, with a leading axis over runs."""
        return self.state.learner

    def compile(self) -> None:
        """Builds the program; the first episode would otherwise."""
        self._compiled = self._program.lower(self.configs, self.state, self._number()).compile()

    def memory(self) -> int:
        """Bytes that the program, once compiled, needs on all devices for its state and for what is in between."""
        analysis = self._compiled.memory_analysis()
        devices = len(self.state.replay.sharding.device_set)
        return devices * (analysis.temp_size_in_bytes + analysis.argument_size_in_bytes)

    def __iter__(self) -> Iterator[Report]:
        if self._compiled is None:
            self.compile()
        while self.episode < self.episodes:
            self.state, metrics = self._compiled(self.configs, self.state, self._number())
            metrics = jax.device_get(metrics)
            self.episode += 1
            yield Report(self.episode * self.config.env.episode_length, metrics)

    def _number(self) -> Int[Array, ""]:
        return jnp.asarray(self.episode, jnp.int32)


def _over_devices(runs: int) -> tuple[jax.sharding.Sharding, jax.sharding.Sharding]:
    """Runs split evenly over as many of the devices as divide their number; and what each device has a copy of."""
    devices = jax.devices()
    count = max(n for n in range(1, len(devices) + 1) if runs % n == 0)
    mesh = jax.sharding.Mesh(np.array(devices[:count]), ("runs",))
    spread, everywhere = jax.sharding.PartitionSpec("runs"), jax.sharding.PartitionSpec()
    return jax.sharding.NamedSharding(mesh, spread), jax.sharding.NamedSharding(mesh, everywhere)
