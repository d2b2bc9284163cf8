"""A finished run, and what its policies answer: actions, values, predictions, films.

One compiled program per question and shape serves all runs of a directory.
"""

import dataclasses
import shutil
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from moca import files
from moca import moments as mm
from moca.agents import make_agent
from moca.arguments import MOST
from moca.belief import Belief
from moca.config import INT32, Config, ConfigError, as_path, shown, whole
from moca.deploy.checks import checked
from moca.drivers import make_env
from moca.drivers.host_evaluation import evaluate_on_host
from moca.envs.environment import Spaces, make_noise
from moca.envs.host import HostEnvironment
from moca.envs.trust import import_trusted
from moca.evaluation import evaluate as evaluate_learner
from moca.evaluation import rollout
from moca.loop import PolicyState, agent_steps, init_run, policy_start, policy_step
from moca.names import OWN
from moca.runs import export, film, inspection
from moca.runs.directory import RunDirectory
from moca.runs.following import FollowingPolicy


class Prediction(NamedTuple):
    """The Gaussian over the next state: covariance = aleatoric + epistemic; batched along leading axes."""

    mean: np.ndarray  # (…, obs)
    covariance: np.ndarray  # (…, obs, obs)
    aleatoric: np.ndarray  # what the members take for chance, on average
    epistemic: np.ndarray  # what they disagree on


@dataclasses.dataclass(frozen=True)
class Run:
    """A run directory with what one wants of it. Its runs may differ in floats of their configs."""

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
        asked = self._at(run)
        rows, lead = self._observed(observation)
        return np.array(self._programs["act"](*asked, rows)).reshape(*lead, self._env.action_size)

    def policy(self, run: int = 0) -> FollowingPolicy:
        """The greedy policy of one run, to be called with the observations of an episode one after the other."""
        self._at(run)  # an environment that must not be imported is refused here, not at the first observation
        return FollowingPolicy(self, int(run))

    def value(self, observation: Any, run: int = 0) -> np.ndarray:
        """The discounted return that the agent expects from a state (obs,), or from many (n, obs)."""
        asked = self._at(run)
        rows, lead = self._observed(observation)
        return np.array(self._programs["value"](*asked, rows)).reshape(lead)

    @property
    def model(self) -> "Model":
        """The model that predicts the next state; raises where the agent has no such thing."""
        return Model(self)

    def export(self, path: Path | str, run: int = 0) -> Path:
        """Writes one run's policy as a file that `moca.deploy` runs without jax."""
        run = self._refuse_run(run)
        noise = self.directory.configs[run].noise
        origin = {
            "env": self.config.env.name.removeprefix(OWN),
            "seed": self.directory.runs[run]["seed"],
            "noise": {"kind": noise.kind, "sigma": noise.sigma, "sigma_min": noise.sigma_min},
        }
        config, learner = self._at(run)
        return export.write(path, make_agent(config, self._env), learner, origin)

    def save(self, path: Path | str) -> Path:
        """Copies the run directory, without the checkpoints that an unfinished run would need."""
        path = as_path("path", path)
        if path.exists():
            raise ConfigError(f"{path} exists already: choose another path, or remove it")
        with files.writing(f"to {path}"):
            shutil.copytree(self.path, path, ignore=shutil.ignore_patterns("checkpoints", "lock"))
        return path

    def evaluate(self, episodes: int = 10, seed: int = 0) -> list[dict[str, float]]:
        """Returns of the final policies over fresh episodes, one row per run."""
        episodes, seed = whole("episodes", episodes, 1, MOST), whole("seed", seed)
        env, learners = self._restored
        stacked = jax.tree.map(lambda *numbers: np.asarray(numbers, np.float32), *self.directory.configs)
        if isinstance(env, HostEnvironment):
            result = evaluate_on_host(env, self.config, stacked, learners, episodes, seed)
        else:
            result = jax.device_get(self._programs["evaluate"](episodes, jax.random.key(seed), stacked, learners))
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
        env, config = self._env, self.directory.configs[run]
        if isinstance(env, HostEnvironment):
            return path, *film.record(path, env, config, self._at(run)[1], seed)
        states, episode = self._programs["play"](*self._at(run), jax.random.key(seed))
        how = film.write(path, env, states, np.asarray(episode.reward))
        return path, how, float(np.sum(episode.reward))

    def inspect(
        self,
        run: int = 0,
        episode: int = 0,
        steps: int | None = None,
        beside: "Run | None" = None,
        beside_run: int | None = None,
    ) -> inspection.Inspection:
        """One greedy episode, step by step, as a page that a notebook shows and `save` writes.

        Args:
            run: which of the runs.
            episode: the seed of the episode, as that of `render`.
            steps: how many decisions of it; all by default.
            beside: another run in the same environment, shown from the same start.
            beside_run: which of its runs; the same number by default.
        """
        return inspection.inspect(self, run, episode, steps, beside, beside_run)

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

    @cached_property
    def _restored(self) -> tuple[Any, Any]:
        return self.restore()

    @property
    def _env(self) -> Any:
        return self._restored[0]

    @cached_property
    def _placed(self) -> dict[int, tuple[Config, Any]]:
        return {}

    def _at(self, run: int) -> tuple[Config, Any]:
        """Config and learner of one run, on the device."""
        if (run := self._refuse_run(run)) not in self._placed:
            config = jax.tree.map(lambda number: jnp.asarray(number, jnp.float32), self.directory.configs[run])
            learner = jax.tree.map(lambda leaf: leaf[run], self._restored[1])
            self._placed[run] = (config, jax.device_put(learner))
        return self._placed[run]

    def _refuse_run(self, run: int) -> int:
        """The number of a run, if there is one of that number."""
        count = len(self.directory.runs)
        if whole("run", run, -INT32) not in range(count):
            raise ConfigError(f"run = {run} is out of range: the directory holds {count}, numbered from 0")
        return int(run)

    @cached_property
    def _programs(self) -> Mapping[str, Any]:
        """Compiled functions of config and learner, so that one serves every run."""
        env = self._env
        low, high = jnp.array(env.action_low), jnp.array(env.action_high)

        def within(state: PolicyState) -> PolicyState:
            return state._replace(action=jnp.clip(state.action, low, high))

        def act(config: Config, learner: Any, states: Any) -> Any:
            agent = make_agent(config, env)
            return jnp.clip(jax.vmap(lambda s: agent.act(learner, s))(states), low, high)

        def value(config: Config, learner: Any, states: Any) -> Any:
            agent = make_agent(config, env)
            return jax.vmap(lambda s: agent.value(learner, s))(states)

        def foresee(config: Config, learner: Any, states: Any, actions: Any) -> Any:
            inside = env.from_bounds(actions)
            return mm.decompose(learner.model.ensemble.predict_batch(states, inside), full=True)

        def start(config: Config, learner: Any, measured: Any) -> Any:
            return within(policy_start(make_agent(config, env), learner, measured))

        def follow(config: Config, learner: Any, belief: Belief, action: Any, measured: Any, **gaps: Any) -> Any:
            state = PolicyState(belief, action)
            return within(policy_step(make_agent(config, env), learner, state, measured, **gaps))

        def play(config: Config, learner: Any, key: Any) -> Any:
            agent, noise = make_agent(config, env), make_noise(config.noise, env.observation_size)
            return rollout(agent, learner, env, noise, agent_steps(config), key, keep=lambda state, moment: state)

        def watch(steps: int, config: Config, learner: Any, key: Any) -> Any:
            return inspection.watch(config, learner, env, steps, key)

        def evaluate(episodes: int, key: Any, configs: Config, learners: Any) -> Any:
            def one(config: Config, learner: Any) -> dict[str, jax.Array]:
                agent, noise = make_agent(config, env), make_noise(config.noise, env.observation_size)
                return evaluate_learner(agent, learner, env, noise, agent_steps(config), episodes, key)

            return jax.vmap(one)(configs, learners)

        programs = {f.__name__: jax.jit(f) for f in (act, value, foresee, start, follow, play)}
        return programs | {f.__name__: jax.jit(f, static_argnums=0) for f in (watch, evaluate)}

    def _observed(self, observation: Any, gaps: bool = False) -> tuple[np.ndarray, tuple[int, ...]]:
        """Observations as rows, and the axes that stood before."""
        return _rows("an observation", observation, self._env.observation_size, gaps)


def _rows(what: str, numbers: Any, size: int, gaps: bool = False) -> tuple[np.ndarray, tuple[int, ...]]:
    """The numbers as rows of that size, and the axes that stood before."""
    try:
        array = checked(what, numbers, size, gaps).astype(np.float32)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return array.reshape(-1, size), array.shape[:-1]


class Model:
    """The ensemble that predicts the next state."""

    def __init__(self, run: Run) -> None:
        if run._restored[1].model is None:
            raise ConfigError(
                f"{run.config.agent} without a filter has no model of the next state: set belief.filter = true, or use "
                "an agent that predicts (moca, moca-ce, moca-mc, moca-mixture)"
            )
        self._run = run

    def predict(self, observation: Any, action: Any, run: int = 0) -> Prediction:
        """The state after one decision, as a Gaussian: (obs,) and (act,), or (n, obs) and (n, act).

        The observation is taken for the state; of the noise on the next observation there is nothing in it.
        """
        states, lead = self._run._observed(observation)
        actions, also = _rows("an action", action, self._run._env.action_size)
        if lead != also:
            raise ConfigError(f"there must be an action per observation, but got {also} and {lead} of them")
        mean, aleatoric, epistemic = self._run._programs["foresee"](*self._run._at(run), states, actions)
        parts = (mean, aleatoric + epistemic, aleatoric, epistemic)
        return Prediction(*(np.array(part).reshape(*lead, *part.shape[1:]) for part in parts))


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
