"""The training loop [Alg. 1 l. 2]: one compiled program per episode, for all runs at once.

Runs differ in their seed and in any float of their config; they are vmapped, and sharded over the devices there are.
What all runs share (the step, the index into the replay) stays outside the vmapped state. The discount, the update
ratio and the warm-up are ours [choice].
"""

import dataclasses
import os
import platform
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from moca import config as settings
from moca import overlap
from moca.agents import Agent, make_agent
from moca.config import Config, ConfigError
from moca.envs.environment import ActionRepeat, Environment, Spaces
from moca.envs.named import named
from moca.envs.noise import Noise, make_noise
from moca.evaluation import SCORES, evaluate
from moca.exploration import Dice
from moca.interaction import (
    Draw,
    Knowledge,
    Measured,
    RunState,
    absorb,
    block_size,
    conclude,
    decisions_of,
    draw,
    evaluation_due,
    first_belief,
    first_learned,
    init_run,
    interact,
    keys_of,
)
from moca.memory import refuse_too_large


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


class Report(NamedTuple):
    """What one episode of all runs measured."""

    step: int  # environment steps so far, per run
    metrics: dict[str, np.ndarray]  # one number per run; nan where nothing was measured


def make_env(config: Config, env: Spaces | None = None) -> Spaces:
    """The environment the config names, or the one given instead, with the config's action repeat.

    One on the host is told about the repeat only when many of it are made.
    """
    env = env or named(config.env.name)
    if isinstance(env, Environment) and config.env.action_repeat > 1:
        return ActionRepeat(env, config.env.action_repeat)
    return env


def train_episode(
    config: Config, env: Environment, state: RunState, episode: Int[Array, ""], on_two_cores: bool = False
) -> tuple[RunState, dict[str, Float[Array, ""]]]:
    """One episode of interaction and learning, then the evaluation; the metrics of both."""
    agent = make_agent(config, env)
    noise = make_noise(config.noise, env.observation_size)
    keys = keys_of(state, episode)
    decisions = decisions_of(config)
    env_state, observation = env.reset(keys.reset)
    belief = first_belief(agent, state.learner, noise, observation, keys.first)
    start = (env_state, Knowledge(belief, state.learner, state.replay))
    size = block_size(config)
    indices = episode * decisions + jnp.arange(decisions)
    explorations = agent.draw_exploration(keys.explore, decisions)
    in_blocks = lambda x: x.reshape(-1, size, *x.shape[1:])  # noqa: E731

    def block(carry: tuple, x: tuple) -> tuple[tuple, Measured]:
        indices, explorations, key = x
        xs = (indices, explorations, jax.vmap(lambda k: draw(agent, k))(jax.random.split(key, size)))

        def steps(learning: bool) -> tuple[tuple, Measured]:
            after, measured = jax.lax.scan(lambda c, each: _step(agent, env, noise, c, *each, learning), carry, xs)
            return after, jax.tree.map(jnp.sum, measured)

        learned = lambda: overlap.learn_block(agent, env, noise, carry, xs) if on_two_cores else steps(True)  # noqa: E731
        # A branch here, and not at every step, where a GPU would wait for the host.
        return jax.lax.cond(indices[0] < first_learned(config), lambda: steps(False), learned)

    block_keys = jax.random.split(keys.loop, decisions // size)
    xs = (*jax.tree.map(in_blocks, (indices, explorations)), block_keys)
    (_, knowledge), measured = jax.lax.scan(block, start, xs)
    totals = jax.tree.map(jnp.sum, measured)
    if on_two_cores:
        learner, totals = overlap.settle(knowledge.learner, totals)
        knowledge = knowledge._replace(learner=learner)
    state, metrics = conclude(agent, state, knowledge, episode, totals)
    judged = (decisions, config.train.eval_episodes, keys.evaluate)
    over_all = overlap.vmap_halves if on_two_cores else jax.vmap
    evaluated = jax.lax.cond(
        evaluation_due(config, episode),
        lambda: evaluate(agent, state.learner, env, noise, *judged, over_all),
        lambda: dict.fromkeys(SCORES, jnp.full((), jnp.nan)),
    )
    return state, metrics | {n: jnp.where(state.diverged > 0, jnp.nan, value) for n, value in evaluated.items()}


def _step(
    agent: Agent,
    env: Environment,
    noise: Noise,
    carry: tuple,
    index: Int[Array, ""],
    dice: Dice,
    draw: Draw,
    learning: bool,
) -> tuple[tuple[Any, Knowledge], Measured]:
    """One decision: act, store, learn."""
    env_state, knowledge = carry
    env_state, belief, transition = interact(agent, env, noise, env_state, knowledge, index, dice, draw)
    knowledge, measured = absorb(agent, knowledge._replace(belief=belief), transition, index, draw, learning)
    return (env_state, knowledge), measured


def use_all_cores() -> None:
    """Where JAX runs on a CPU, gives it one device per core, over which runs are then spread.

    A program on one device leaves most cores idle when its networks are small. To be called before JAX computes
    anything; later, or where the number was set by `JAX_NUM_CPU_DEVICES` or `XLA_FLAGS`, it changes nothing.
    """
    chosen = getattr(jax.config, "jax_num_cpu_devices", -1) >= 0
    chosen |= "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if not chosen:
        with suppress(RuntimeError):  # JAX has started
            jax.config.update("jax_num_cpu_devices", _cores())


def _cores() -> int:
    """How many this process may use, which a scheduler may have made fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


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


class Runs(ABC):
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
        """How many there are in all."""
        return self.config.train.steps // self.config.env.episode_length

    @property
    def learners(self) -> Any:
        """The agents' states, with a leading axis over runs."""
        return self.state.learner

    @abstractmethod
    def compile(self) -> None:
        """Builds what is to be run; the first episode would otherwise."""

    @abstractmethod
    def memory(self) -> int:
        """Bytes that the program, once compiled, needs on all devices for its state and for what is in between."""

    @abstractmethod
    def _train_episode(self) -> dict[str, np.ndarray]:
        """The metrics of the next episode, after which `state` is the one that follows."""

    def __iter__(self) -> Iterator[Report]:
        while self.episode < self.episodes:
            metrics = self._train_episode()
            self.episode += 1
            yield Report(self.episode * self.config.env.episode_length, metrics)

    def _memory_of(self, compiled: Any) -> int:
        analysis = compiled.memory_analysis()
        devices = len(self.state.replay.sharding.device_set)
        return devices * (analysis.temp_size_in_bytes + analysis.argument_size_in_bytes)

    def _number(self) -> Int[Array, ""]:
        return jnp.asarray(self.episode, jnp.int32)


class Trainer(Runs):
    """Many runs as one program, the environment a part of it; arguments as for `Runs`."""

    def __init__(self, configs: Sequence[Config], seeds: Sequence[int], env: Spaces | None = None) -> None:
        super().__init__(configs, seeds, env)
        program: Callable = jax.vmap(lambda c, s, e: train_episode(c, self.env, s, e), in_axes=(0, 0, None))
        spread, everywhere = self._spread, self._everywhere
        alone = len(configs) == 1
        cores = overlap.cores_for(make_agent(self.config, self.env), self.learners) if alone else None
        if cores:
            program = overlap.on_both(cores, lambda c, s, e: train_episode(c, self.env, s, e, on_two_cores=True))
            spread = everywhere = jax.sharding.NamedSharding(cores, jax.sharding.PartitionSpec())
            self.configs, self.state = jax.device_put((self.configs, self.state), spread)
        self._program = jax.jit(
            program, in_shardings=(spread, spread, everywhere), out_shardings=spread, donate_argnums=1
        )
        self._compiled: Any = None

    def compile(self) -> None:
        self._compiled = self._program.lower(self.configs, self.state, self._number()).compile()

    def memory(self) -> int:
        return self._memory_of(self._compiled)

    def _train_episode(self) -> dict[str, np.ndarray]:
        if self._compiled is None:
            self.compile()
        self.state, metrics = self._compiled(self.configs, self.state, self._number())
        return jax.device_get(metrics)


def over_devices(runs: int) -> tuple[jax.sharding.Sharding, jax.sharding.Sharding]:
    """Runs split evenly over as many of the devices as divide their number; and what each device has a copy of."""
    devices = jax.devices()
    count = max(n for n in range(1, len(devices) + 1) if runs % n == 0)
    mesh = jax.sharding.Mesh(np.array(devices[:count]), ("runs",))
    spread, everywhere = jax.sharding.PartitionSpec("runs"), jax.sharding.PartitionSpec()
    return jax.sharding.NamedSharding(mesh, spread), jax.sharding.NamedSharding(mesh, everywhere)
