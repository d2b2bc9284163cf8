"""A run, finished or not, and queries of its policies: actions, values, predictions, videos.

All runs of a directory share one compiled program per query and shape.
"""

import dataclasses
import shutil
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console

from moca import files
from moca import moments as mm
from moca.agents import make_agent
from moca.arguments import MOST
from moca.belief import Belief
from moca.config import INT32, Config, ConfigError, as_path, shown, whole
from moca.drivers import make_env, state_shapes
from moca.drivers.host_evaluation import evaluate_on_host
from moca.elsewhere import answered
from moca.envs.environment import Spaces
from moca.envs.host import HostEnvironment
from moca.envs.named import as_environment, is_gymnasiums
from moca.envs.sensors import make_sensor
from moca.envs.trust import import_trusted
from moca.evaluation import evaluate as evaluate_learner
from moca.evaluation import rollout
from moca.loop import PolicyState, agent_steps, policy_start, policy_step
from moca.names import OWN
from moca.pytrees import alike
from moca.runs import BEST, LAST, export, film, forecast_film, inspection, learned, notebook, policies
from moca.runs.answers import FollowingPolicy, Model, as_rows, last_returns
from moca.runs.directory import RunDirectory


@dataclasses.dataclass(frozen=True, repr=False)
class Run:
    """A run directory and its policies. Its runs may differ in float settings."""

    directory: RunDirectory
    env: Spaces | None = None  # the training environment, if the config does not name it
    which: str = LAST  # which policies to use: the last, or the best ones kept by `KeepBest`

    @property
    def path(self) -> Path:
        """The run directory."""
        return self.directory.path

    @property
    def config(self) -> Config:
        """The settings."""
        return self.directory.config

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The metrics: one dictionary per episode and run."""
        return notebook.Rows(self.directory.rows())

    def __repr__(self) -> str:
        try:
            return notebook.describe(self)
        except ConfigError as error:  # repr must not fail on a damaged directory
            return f"Run({str(self.path)!r}: {error})"

    def _repr_html_(self) -> str:
        return notebook.describe_html(self)

    @answered
    def predict(self, observation: Any, run: int = 0) -> np.ndarray:
        """Returns the greedy action for an observation (obs,), or actions for many (n, obs).

        Each observation is treated as the state. An agent with a filter acts on a belief that
        develops over an episode; use `policy` to keep one.
        """
        asked = self._at(run)
        rows, lead = self._observed(observation)
        return np.array(self._programs["act"](*asked, rows)).reshape(*lead, self.environment.action_size)

    def policy(self, run: int = 0) -> FollowingPolicy:
        """Returns the greedy policy of one run, to be called with successive observations."""
        self._at(run)  # raises here, not at the first observation, if the environment is not trusted
        return FollowingPolicy(self, int(run))

    def value(self, observation: Any, run: int = 0) -> np.ndarray:
        """Returns the expected discounted return from a state (obs,), or from many (n, obs)."""
        asked = self._at(run)
        rows, lead = self._observed(observation)
        return np.array(self._programs["value"](*asked, rows)).reshape(lead)

    def get_parameters(self, run: int = 0) -> dict[str, np.ndarray]:
        """Returns copies of all learned arrays of one run, by path (`critics.trunk.weights.0`)."""
        learner = jax.tree.map(lambda leaf: leaf[self._refuse_run(run)], self.learners)
        return {name: array.copy() for name, array in learned.by_path(learner).items()}

    @property
    def model(self) -> "Model":
        """The model of the next state; raises if the agent has no model."""
        return Model(self)

    def export(self, path: Path | str, run: int | None = None) -> export.Exported:
        """Writes one run's policy, by default that of `best_run`, as a file for `moca.deploy`.

        A name that ends in .onnx gives an ONNX model, as `Policy.to_onnx` does. The path that is
        returned says which policy it is: `run`, `seed` and `step`.
        """
        return export.of_run(self, self.best_run if run is None else self._refuse_run(run), path)

    @property
    def best_run(self) -> int:
        """The number of the run with the highest return over the last tenth of its policy's steps.

        With `which="best"`, the one whose kept policy has the highest score.
        """
        if self.which == BEST:
            from moca.runs.callbacks import read_scores  # which needs this module

            kept = [row["return_mean"] for row in read_scores(self)]
            scores = [-np.inf if score is None else score for score in kept]
        else:
            scores = last_returns(self.directory, self.policy_steps[0])
        return scores.index(max(scores))

    @answered
    def learn(self, steps: int, callback: Any = None, progress: bool | Console = False) -> "Run":
        """Trains for that many more environment steps; arguments as for `MoCA.learn`.

        A run that was interrupted continues to its planned end, as after the same call.
        """
        from moca.runs.launch import resume

        directory, more = RunDirectory.open(self.path), whole("steps", steps, 1)
        total = directory.status["step"] + more if directory.ended else directory.totals[-1]
        return resume(self.path, steps=total, env=self.env, console=progress, callback=callback)

    def save(self, path: Path | str) -> Path:
        """Copies the run directory, without checkpoints; returns the new path."""
        path = as_path("path", path)
        if path.exists():
            raise ConfigError(f"{path} already exists: choose another path, or remove it")
        with files.writing(f"to {path}"):
            shutil.copytree(self.path, path, symlinks=True, ignore=shutil.ignore_patterns("checkpoints", "lock"))
        return path

    def evaluate(self, episodes: int = 10, seed: int = 0) -> list[dict[str, float]]:
        """Evaluates the policies over new episodes; returns one row per run."""
        return self.evaluate_learners(None, episodes, seed)

    def evaluate_learners(self, learners: Any, episodes: int = 10, seed: int = 0) -> list[dict[str, float]]:
        """Evaluates learners, such as those passed to a callback; returns one row per run.

        `learners` may be None: those of the run.
        """
        episodes, seed, env = whole("episodes", episodes, 1, MOST), whole("seed", seed), self.environment
        learners = self.learners if learners is None else learners
        stacked = jax.tree.map(lambda *numbers: np.asarray(numbers, np.float32), *alike(self.directory.configs))
        if isinstance(env, HostEnvironment):
            result = evaluate_on_host(env, self.config, stacked, learners, episodes, seed)
        else:
            result = jax.device_get(self._programs["evaluate"](episodes, jax.random.key(seed), stacked, learners))
        return notebook.Rows(
            {**run, **{name: float(values[i]) for name, values in result.items()}}
            for i, run in enumerate(self.directory.runs)
        )

    def render(self, run: int = 0, seed: int = 0, path: Path | None = None, *, ahead: int = 0) -> notebook.Film:
        """Renders one greedy episode; returns the file, how it was drawn, and the return.

        With `ahead`, so many decisions are drawn ahead of the body, as the agent expects them.
        """
        run, seed, ahead = self._refuse_run(run), whole("seed", seed), whole("ahead", ahead, 0, inspection.FURTHEST)
        if path is None:
            files.refuse_odd(path := self.path / ("ahead.mp4" if ahead else "rollout.mp4"))
        path = as_path("path", path)
        filmed = forecast_film.episode(self, run, seed, path, ahead) if ahead else film.episode(self, run, seed, path)
        return notebook.Film(path, *filmed)

    def inspect(
        self,
        episode: int = 0,
        *,
        run: int = 0,
        steps: int | None = None,
        beside: "Run | None" = None,
        beside_run: int | None = None,
        ahead: int = inspection.AHEAD,
    ) -> inspection.Inspection:
        """Returns a page about one greedy episode; notebooks show it, `save` writes it.

        Args:
            episode: Seed of the episode, as `seed` in `render`.
            run: Number of the run.
            steps: Number of decisions to show; all by default.
            beside: Another run in the same environment, shown from the same initial state.
            beside_run: Number of the run in `beside`; the same as `run` by default.
            ahead: Number of decisions to forecast at each step; none if zero.
        """
        return inspection.inspect(self, run, episode, steps, beside, beside_run, ahead)

    def refuse_without_env(self) -> None:
        """Raises if the run needs the user's own environment and it was not given."""
        name = self.config.env.name
        if name.startswith(OWN) and self.env is None:
            raise ConfigError(
                f"{self.path} was trained on your own environment {name.removeprefix(OWN)}: pass it as in "
                "moca.load(path, env=…). A run trained on --env module:Class needs no such argument"
            )

    @property
    def best(self) -> "Run":
        """The same run with the best policies, kept by `KeepBest`, instead of the last."""
        best = dataclasses.replace(self, which=BEST)
        best.__dict__.update(environment=self.environment, _programs=self._programs)  # share compiled programs
        return best

    @property
    def learners(self) -> Any:
        """The learners of all runs, stacked: final ones, or the newest checkpoint's; read once."""
        return self._policies.learners

    @property
    def policy_steps(self) -> list[int]:
        """The environment steps behind each run's policy; until the run ends, of a checkpoint."""
        known = "_policies" in self.__dict__ or self.__dict__.get("_trainer") is not None  # that of a run in training
        if self.which == LAST and self.directory.ended and not known:
            return policies.steps_at_end(self.directory)
        return self._policies.steps

    @cached_property
    def _policies(self) -> policies.Policies:
        return policies.found(self, self._like)

    @cached_property
    def _like(self) -> Any:
        """The shapes of the states of all runs, stacked."""
        return state_shapes(self.config, self.environment, len(self.directory.runs))

    @cached_property
    def environment(self) -> Any:
        """The training environment, with its action repeat."""
        self.refuse_without_env()
        return make_env(self.config, self.env)

    @cached_property
    def _placed(self) -> dict[int, tuple[Config, Any]]:
        return {}

    def _at(self, run: int) -> tuple[Config, Any]:
        """Returns config and learner of one run, on the device."""
        if (run := self._refuse_run(run)) not in self._placed:
            config = jax.tree.map(lambda number: jnp.asarray(number, jnp.float32), self.directory.configs[run])
            learner = jax.tree.map(lambda leaf: leaf[run], self.learners)
            self._placed[run] = (config, jax.device_put(learner))
        return self._placed[run]

    def _refuse_run(self, run: int) -> int:
        """Returns the number of a run; raises if there is no such run."""
        count = len(self.directory.runs)
        if whole("run", run, -INT32) not in range(count):
            raise ConfigError(f"run = {run} is out of range: the runs in {self.path} are numbered 0 to {count - 1}")
        return int(run)

    @cached_property
    def _programs(self) -> Mapping[str, Any]:
        """Compiled functions of config and learner, shared by all runs."""
        env = self.environment
        low, high = jnp.array(env.action_low), jnp.array(env.action_high)

        def within(state: PolicyState) -> PolicyState:
            return state._replace(action=jnp.clip(state.action, low, high))

        def act(config: Config, learner: Any, states: Any) -> Any:
            agent = make_agent(config, env)
            return jnp.clip(
                jax.vmap(lambda s: agent.act(learner, agent.taken_for_state(learner, s)))(states), low, high
            )

        def value(config: Config, learner: Any, states: Any) -> Any:
            agent = make_agent(config, env)
            return jax.vmap(lambda s: agent.value(learner, agent.taken_for_state(learner, s)))(states)

        def foresee(config: Config, learner: Any, states: Any, actions: Any) -> Any:
            inside = env.from_bounds(actions)
            return mm.decompose(learner.model.ensemble.predict_batch(states, inside), full=True)

        def start(config: Config, learner: Any, measured: Any) -> Any:
            return within(policy_start(make_agent(config, env), learner, measured))

        def follow(config: Config, learner: Any, belief: Belief, action: Any, measured: Any, **gaps: Any) -> Any:
            state = PolicyState(belief, action)
            return within(policy_step(make_agent(config, env), learner, state, measured, **gaps))

        def play(config: Config, learner: Any, key: Any) -> Any:
            agent, sensor = make_agent(config, env), make_sensor(config, env)
            return rollout(agent, learner, env, sensor, agent_steps(config), key, keep=lambda state, moment: state)

        def watch(steps: int, ahead: int, config: Config, learner: Any, key: Any) -> Any:
            return inspection.watch(config, learner, env, steps, ahead, key)

        def evaluate(episodes: int, key: Any, configs: Config, learners: Any) -> Any:
            def one(config: Config, learner: Any) -> dict[str, jax.Array]:
                agent, sensor = make_agent(config, env), make_sensor(config, env)
                return evaluate_learner(agent, learner, env, sensor, agent_steps(config), episodes, key)

            return jax.vmap(one)(configs, learners)

        programs = {f.__name__: jax.jit(f) for f in (act, value, foresee, start, follow, play)}
        programs["watch"] = jax.jit(watch, static_argnums=(0, 1))
        return programs | {"evaluate": jax.jit(evaluate, static_argnums=0)}

    def _observed(self, observation: Any, gaps: bool = False) -> tuple[np.ndarray, tuple[int, ...]]:
        """Returns observations as rows, and their leading axes."""
        return as_rows("an observation", observation, self.environment.observation_size, gaps)


def load(path: Path | str, env: Any = None, *, which: str = LAST, trust: bool = False) -> Run:
    """Loads the run in a directory, finished or not.

    Args:
        path: The run directory.
        env: The environment, if the run was trained on your own.
        which: "last" for the last policies, "best" for those kept by `KeepBest`.
        trust: Whether the config may name an environment that imports a user's module.
    """
    refuse_other_env(env)
    if which not in (LAST, BEST):
        raise ConfigError(f"which = {shown(which)} is unknown. Allowed: {LAST}, {BEST}")
    directory = RunDirectory.open(as_path("path", path))
    env = as_environment(env, directory.config.env.flatten)
    import_trusted(directory.path, directory.config.env.name, trust)
    return Run(directory, env, which)


def refuse_other_env(env: Any) -> None:
    """Raises unless `env` is an environment or None."""
    if env is not None and not isinstance(env, Spaces) and not is_gymnasiums(env):
        raise ConfigError(f"env = {shown(env)} must be an environment of moca's classes, or None")
