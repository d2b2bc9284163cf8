"""From a config to a finished run directory, and back from a directory to its policies."""

import dataclasses
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.console import Console

from moca.agents import make_agent
from moca.config import Config, ConfigError, override
from moca.envs.environment import Environment
from moca.envs.noise import make_noise
from moca.evaluation import evaluate as evaluate_learner
from moca.evaluation import rollout
from moca.runs import film
from moca.runs.directory import RunDirectory
from moca.runs.display import Display, label, learning_curve
from moca.training import Trainer, init_run, make_env, use_all_cores


@dataclasses.dataclass(frozen=True)
class Run:
    """A run directory with what one wants of it."""

    directory: RunDirectory
    env: Environment | None = None  # the environment it was trained on, if its config names another

    @property
    def path(self) -> Path:
        """Where it lies."""
        return self.directory.path

    @property
    def config(self) -> Config:
        """Its settings."""
        return self.directory.config

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Its metrics: one dictionary per episode and run."""
        return self.directory.rows()

    def evaluate(self, episodes: int = 10, seed: int = 0) -> list[dict[str, float]]:
        """Returns of the final policies over fresh episodes, one row per run."""
        env, learners = self._restore()
        decisions = self.config.env.episode_length // self.config.env.action_repeat

        def one(config: Config, learner: Any) -> dict[str, jax.Array]:
            agent, noise = make_agent(config, env), make_noise(config.noise, env.observation_size)
            return evaluate_learner(agent, learner, env, noise, decisions, episodes, jax.random.key(seed))

        configs = [override(self.config, _settings(run)) for run in self.directory.runs]
        stacked = jax.tree.map(lambda *numbers: np.asarray(numbers, np.float32), *configs)
        result = jax.device_get(jax.jit(jax.vmap(one))(stacked, learners))
        return [
            {**run, **{name: float(values[i]) for name, values in result.items()}}
            for i, run in enumerate(self.directory.runs)
        ]

    def render(self, run: int = 0, seed: int = 0, path: Path | None = None) -> tuple[Path, str, float]:
        """Films one greedy episode of one run: the file, how it was drawn, and the return it shows."""
        count = len(self.directory.runs)
        if not 0 <= run < count:
            raise ConfigError(f"run = {run} is out of range: the directory holds {count}, numbered from 0")
        env, learners = self._restore()
        config = override(self.config, _settings(self.directory.runs[run]))
        learner = jax.tree.map(lambda leaf: leaf[run], learners)
        agent, noise = make_agent(config, env), make_noise(config.noise, env.observation_size)
        decisions = config.env.episode_length // config.env.action_repeat
        everything = lambda state: state  # noqa: E731
        play = jax.jit(lambda learner, key: rollout(agent, learner, env, noise, decisions, key, keep=everything))
        states, rewards = play(learner, jax.random.key(seed))
        path = path or self.path / "rollout.mp4"
        how = film.write(path, env, states, np.asarray(rewards))
        return path, how, float(np.sum(rewards))

    def _restore(self) -> tuple[Environment, Any]:
        config, custom = self.config, self.directory.meta["custom_env"]
        if custom and self.env is None:
            raise ConfigError(
                f"{self.path} was trained on {custom}, an environment of your own: moca.load(path, env=…)"
            )
        env = make_env(config, self.env)
        like = jax.eval_shape(
            jax.vmap(lambda key: init_run(config, env, key).learner),
            jax.eval_shape(lambda: jax.random.split(jax.random.key(0), len(self.directory.runs))),
        )
        return env, self.directory.load_policy(like)


def train(
    config: Config,
    out: Path | str,
    *,
    varied: Sequence[Mapping[str, float]] = ({},),
    env: Environment | None = None,
    console: Console | None = None,
) -> Run:
    """Trains `config.seeds` runs of every variation in one program, and leaves a run directory behind.

    Args:
        config: the settings.
        out: a directory that holds no run yet.
        varied: settings by dotted name, all of them floats; each is run with every seed.
        env: the environment, if not the one the config names.
        console: where progress goes; nowhere by default.
    """
    use_all_cores()
    console = console or Console(quiet=True)
    seeds = [config.seed + i for i in range(config.seeds)]
    variations = [dict(settings) for settings in varied for _ in seeds]
    configs = [override(config, settings) for settings in variations]
    custom = None if env is None else type(env).__name__
    directory = RunDirectory.create(Path(out), config, variations, seeds * len(varied), custom)
    directory.write_status("compiling", 0)
    trainer = Trainer(configs, seeds * len(varied), env)
    started = time.perf_counter()
    with console.status("Compiling the training program (half a minute, once) …"):
        trainer.compile()
    console.print(
        f"compiled in {time.perf_counter() - started:.0f} s; training {len(configs)} run{'s' * (len(configs) > 1)}"
    )
    _follow(trainer, directory, varied, console)
    directory.save_policy(trainer.learners)
    title = f"{config.agent} on {custom or config.env.name}, {config.noise.kind} σ = {config.noise.sigma:g}"
    learning_curve(directory.rows(), varied, title, directory.path / "figures")
    return Run(directory, env)


def load(path: Path | str, env: Environment | None = None) -> Run:
    """The run in that directory; one trained on an environment of your own needs that environment again."""
    return Run(RunDirectory.open(Path(path)), env)


def _follow(trainer: Trainer, directory: RunDirectory, varied: Sequence[Mapping[str, float]], console: Console) -> None:
    """Trains to the end, or to an interruption after which what there is has been written down."""
    from tensorboardX import SummaryWriter

    length = trainer.config.env.episode_length
    display = Display(console, trainer.config.train.steps, len(directory.runs))
    writers = [SummaryWriter(str(directory.path / "tensorboard" / label(point).replace(" ", ""))) for point in varied]
    state = "failed"
    directory.write_status("running", 0)
    with display.live():
        before = time.perf_counter()
        try:
            for report in trainer:
                now = time.perf_counter()
                directory.append(report, now - before)
                display.update(report, now - before, length)
                for name, values in report.metrics.items():
                    for writer, own in zip(writers, values.reshape(len(varied), -1), strict=True):
                        if np.isfinite(own).any():
                            writer.add_scalar(name, float(np.nanmean(own)), report.step)
                before = now
            state = "finished"
        except KeyboardInterrupt:
            directory.save_policy(trainer.learners)
            state = "interrupted"
            raise
        finally:
            directory.write_status(state, trainer.episode * length)
            for writer in writers:
                writer.close()


def _settings(run: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in run.items() if name != "seed"}
