"""A run directory with what one wants of it: actions, values, evaluation, films, files for elsewhere."""

import dataclasses
import shutil
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import numpy as np

from moca import files
from moca.agents import make_agent
from moca.arguments import MOST
from moca.config import INT32, Config, ConfigError, as_path, shown, whole
from moca.drivers import make_env
from moca.drivers.host_evaluation import evaluate_on_host
from moca.envs.environment import Spaces, make_noise
from moca.envs.host import HostEnvironment
from moca.envs.trust import import_trusted
from moca.evaluation import evaluate as evaluate_learner
from moca.evaluation import rollout
from moca.loop import agent_steps, init_run
from moca.names import OWN
from moca.runs import export, film
from moca.runs.directory import RunDirectory
from moca.runs.inference import FollowingPolicy, Inference, Model


@dataclasses.dataclass(frozen=True)
class Run:
    """A run directory with what one wants of it."""

    directory: RunDirectory
    env: Spaces | None = None  # the environment it was trained on, if its config names another

    @property
    def path(self) -> Path:
        """The place where it lies."""
        return self.directory.path

    @property
    def config(self) -> Config:
        """Its settings."""
        return self.directory.config

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Its metrics: one dictionary per episode and run."""
        return self.directory.rows()

    def predict(self, observation: Any, run: int = 0) -> np.ndarray:
        """The greedy action for an observation (obs,), or the actions for many (n, obs); each is taken for the state.

        An agent with a filter acts on a belief that grows over an episode: `policy` keeps one.
        """
        run = self._refuse_run(run)
        return self._inference.predict(observation, run)

    def policy(self, run: int = 0) -> FollowingPolicy:
        """The greedy policy of one run, to be called with the observations of an episode one after the other."""
        run = self._refuse_run(run)
        return FollowingPolicy(self._inference, run)

    def value(self, observation: Any, run: int = 0) -> np.ndarray:
        """The discounted return that the agent expects from a state (obs,), or from many (n, obs)."""
        run = self._refuse_run(run)
        return self._inference.value(observation, run)

    @property
    def model(self) -> Model:
        """The model that predicts the next state; raises where the agent has no such thing."""
        return Model(self._inference)

    def export(self, path: Path | str, run: int = 0) -> Path:
        """Writes one run's policy as a file that `moca.deploy` runs without jax."""
        run = self._refuse_run(run)
        noise = self.directory.configs[run].noise
        origin = {
            "env": self.config.env.name.removeprefix(OWN),
            "seed": self.directory.runs[run]["seed"],
            "noise": {"kind": noise.kind, "sigma": noise.sigma, "sigma_min": noise.sigma_min},
        }
        return export.write(path, *self._inference.member(run), origin)

    def save(self, path: Path | str) -> Path:
        """Copies the run directory, without the checkpoints that an unfinished run would need."""
        path = as_path("path", path)
        if path.exists():
            raise ConfigError(f"{path} exists already: choose another path, or remove it")
        with files.writing(f"to {path}"):
            shutil.copytree(self.path, path, ignore=shutil.ignore_patterns("checkpoints", "lock"))
        return path

    @cached_property
    def _inference(self) -> Inference:
        env, learners = self.restore()
        return Inference(env, self.directory.configs, learners)

    def _refuse_run(self, run: int) -> int:
        """The number of a run, if there is one of that number."""
        count = len(self.directory.runs)
        if whole("run", run, -INT32) not in range(count):
            raise ConfigError(f"run = {run} is out of range: the directory holds {count}, numbered from 0")
        return int(run)

    def evaluate(self, episodes: int = 10, seed: int = 0) -> list[dict[str, float]]:
        """Returns of the final policies over fresh episodes, one row per run."""
        episodes, seed = whole("episodes", episodes, 1, MOST), whole("seed", seed)
        env, learners = self.restore()
        steps = agent_steps(self.config)

        def one(config: Config, learner: Any) -> dict[str, jax.Array]:
            agent, noise = make_agent(config, env), make_noise(config.noise, env.observation_size)
            return evaluate_learner(agent, learner, env, noise, steps, episodes, jax.random.key(seed))

        stacked = jax.tree.map(lambda *numbers: np.asarray(numbers, np.float32), *self.directory.configs)
        if isinstance(env, HostEnvironment):
            result = evaluate_on_host(env, self.config, stacked, learners, episodes, seed)
        else:
            result = jax.device_get(jax.jit(jax.vmap(one))(stacked, learners))
        return [
            {**run, **{name: float(values[i]) for name, values in result.items()}}
            for i, run in enumerate(self.directory.runs)
        ]

    def render(self, run: int = 0, seed: int = 0, path: Path | None = None) -> tuple[Path, str, float]:
        """Films one greedy episode of one run: the file, how it was drawn, and the return it shows."""
        run, seed = self._refuse_run(run), whole("seed", seed)
        if path is None:
            files.refuse_odd(self.path / "rollout.mp4")
        path = self.path / "rollout.mp4" if path is None else as_path("path", path)
        env, learners = self.restore()
        config, learner = self.directory.configs[run], jax.tree.map(lambda leaf: leaf[run], learners)
        if isinstance(env, HostEnvironment):
            return path, *film.record(path, env, config, learner, seed)
        agent, noise = make_agent(config, env), make_noise(config.noise, env.observation_size)
        steps, everything = agent_steps(config), lambda state: state
        play = jax.jit(lambda learner, key: rollout(agent, learner, env, noise, steps, key, keep=everything))
        states, episode = play(learner, jax.random.key(seed))
        how = film.write(path, env, states, np.asarray(episode.reward))
        return path, how, float(np.sum(episode.reward))

    def refuse_without_env(self) -> None:
        """Raises if the run is on an environment that only its user has, and it was not given."""
        name = self.config.env.name
        if name.startswith(OWN) and self.env is None:
            raise ConfigError(
                f"{self.path} was trained on {name.removeprefix(OWN)}, an environment of your own: moca.load(path, "
                "env=…)"
            )

    def restore(self) -> tuple[Any, Any]:
        """Environment and learners, these with a leading axis over runs."""
        self.refuse_without_env()
        config = self.config
        env = make_env(config, self.env)
        like = jax.eval_shape(
            jax.vmap(lambda key: init_run(config, env, key).learner),
            jax.eval_shape(lambda: jax.random.split(jax.random.key(0), len(self.directory.runs))),
        )
        return env, self.directory.load_policy(like)


def load(path: Path | str, env: Spaces | None = None, *, trust: bool = False) -> Run:
    """The run in that directory; one trained on an environment of your own needs that environment again.

    With `trust` it may name an environment for which a module of someone's own is imported.
    """
    refuse_other_env(env)
    directory = RunDirectory.open(as_path("path", path))
    import_trusted(directory.path, directory.config.env.name, trust)
    return Run(directory, env)


def refuse_other_env(env: Any) -> None:
    """Raises unless it is an environment, or None."""
    if env is not None and not isinstance(env, Spaces):
        raise ConfigError(
            f"env = {shown(env)} must be an environment, as an object of one of moca's classes for them, or None"
        )
