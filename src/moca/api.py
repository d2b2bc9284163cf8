"""Agents as objects: make one for an environment, let it learn, ask it.

    agent = moca.MoCA("CartpoleBalance", noise__sigma=0.05).learn(40_000)
    action = agent.predict(observation)

What it learned is a run directory, and every question goes to its `Run`, as after `moca.load`.
"""

import shutil
import tempfile
import warnings
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
from rich.console import Console

from moca import presets
from moca.config import Config, ConfigError, as_path, checked, field_of, full_name, may_be_on_host, shown
from moca.devices import use_all_cores
from moca.envs.defaults import defaults, time_limit
from moca.envs.environment import Spaces
from moca.envs.named import as_environment
from moca.envs.trust import import_module_of
from moca.names import OWN
from moca.runs.answers import FollowingPolicy, Model
from moca.runs.inspection import Inspection
from moca.runs.launch import train
from moca.runs.notebook import Film
from moca.runs.run import Run

_FIXED = {
    "agent": "choose the class, as moca.SAC",
    "env.name": "it is the first argument",
    "seed": "it is an argument of its own",
    "seeds": "it is an argument of its own",
    "train.steps": "it is the argument of learn",
}


class MoCA:
    """An agent before or after it has learned.

    Args:
        env: a name, Playground's or Gymnasium's; an environment that `gymnasium.make` made; or one of your own.
        seed: the first of the seeds.
        seeds: how many runs learn at once; questions take `run=` and are answered by the first, 0, unless told.
        preset: the settings to start from; for an environment without any, some are taken from a short look at it.
        out: the run directory; by default a temporary one that goes with the agent.
        start: an agent or a run whose weights are the initial ones; its networks have the same shapes.
        settings: any others by dotted name, as in config.json.
        named: the same as keywords, as `critic__lr=1e-3` for `critic.lr`.
    """

    agent = "moca"

    def __init__(
        self,
        env: Any,
        *,
        seed: int = 0,
        seeds: int = 1,
        preset: str = "tuned",
        out: Path | str | None = None,
        start: "MoCA | Run | None" = None,
        settings: Mapping[str, Any] | None = None,
        **named: Any,
    ) -> None:
        if not isinstance(settings, Mapping | None):
            raise ConfigError(f"settings must be a dictionary of values by dotted name, got {shown(settings)}")
        chosen = {**(settings or {}), **{name.replace("__", "."): value for name, value in named.items()}}
        for name in chosen:
            field_of(name)
            if name in _FIXED:
                raise ConfigError(f"{name} is no setting of moca.{type(self).__name__}: {_FIXED[name]}")
        chosen |= checked(chosen)
        one = chosen.get("env.episode_length", Config().env.episode_length)  # until learn says how many steps
        flatten = chosen.get("env.flatten", False)
        if not isinstance(env := as_environment(env, flatten), str | Spaces):
            raise ConfigError(
                "an environment is a name, such as CartpoleBalance, one of Gymnasium's, or an object of one of moca's "
                f"classes for them, but got {shown(env)}"
            )
        task = env if isinstance(env, str) else None
        self._env: Spaces | None = None if isinstance(env, str) else env
        use_all_cores()  # before a look at the environment starts JAX
        import_module_of(task or "")
        chosen |= {"agent": self.agent, "seed": seed, "seeds": seeds, "train.steps": one}
        chosen |= {} if task else {"env.name": OWN + type(env).__name__}
        found = defaults(env, flatten=flatten) if presets.lacks(preset, task, chosen) else {}
        if not task or may_be_on_host(full_name(task)):
            found |= time_limit(env, flatten)
        self._layers = (preset, task, chosen, found)
        self._build(one)  # refuses now what is wrong
        self._out = None if out is None else as_path("out", out)
        self._run: Run | None = None
        self._start = start.run if isinstance(start, MoCA) else start
        if not isinstance(self._start, Run | None):
            raise ConfigError(
                f"start = {shown(start)} must be an agent that has learned, or a run, as moca.load gives it"
            )

    def learn(self, steps: int, callback: Any = None, progress: bool | Console = False) -> Self:
        """The agent itself, after so many environment steps per run, or so many more if it has learned before.

        Args:
            steps: environment steps. Exploration and learning rates are spread over those of the first call, and keep
                their last values in later ones; `train__horizon` spreads them over another number.
            callback: called after each episode, and can stop: see `moca.train`.
            progress: whether progress is shown, or a `rich.console.Console` on which it is.

        If it was interrupted, the same call goes on.
        """
        if self._run is not None:
            self._run = self._run.learn(steps, callback, progress)
        else:
            config = self._build(steps)
            if self._out is None:
                self._out = Path(tempfile.mkdtemp(prefix="moca-"))
                weakref.finalize(self, shutil.rmtree, self._out, ignore_errors=True)
            options = {"env": self._env, "start": self._start, "console": progress, "callback": callback}
            self._run = train(config, self._out, **options)
        directory = self._run.directory
        if lost := directory.status.get("diverged"):
            warnings.warn(
                f"{len(lost)} of {len(directory.runs)} runs diverged and were given up: {'; '.join(map(_told, lost))}",
                RuntimeWarning,
                stacklevel=2,
            )
        return self

    def _build(self, steps: int) -> Config:
        preset, task, chosen, found = self._layers
        return presets.build(preset, task, {**chosen, "train.steps": steps}, found)

    @property
    def run(self) -> Run:
        """The run that was learned, as `moca.load` returns it."""
        if self._run is None:
            raise ConfigError(f"this {type(self).__name__} has not learned anything yet: call learn(steps) first")
        return self._run

    @property
    def config(self) -> Config:
        """The settings it learned with."""
        return self.run.config

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Its metrics: one dictionary per episode and run."""
        return self.run.rows

    @property
    def model(self) -> Model:
        """See `Run.model`."""
        return self.run.model

    def __repr__(self) -> str:
        name = type(self).__name__
        if self._run is not None:
            return f"{name}: {self._run!r}"
        env = self._layers[1] or type(self._env).__name__
        return f"{name}({env!r}): nothing learned yet, call learn(steps)"

    def _repr_html_(self) -> str | None:
        return None if self._run is None else self._run._repr_html_()

    def predict(self, observation: Any, run: int = 0) -> np.ndarray:
        """See `Run.predict`."""
        return self.run.predict(observation, run)

    def get_parameters(self, run: int = 0) -> dict[str, np.ndarray]:
        """See `Run.get_parameters`."""
        return self.run.get_parameters(run)

    def policy(self, run: int = 0) -> FollowingPolicy:
        """See `Run.policy`."""
        return self.run.policy(run)

    def value(self, observation: Any, run: int = 0) -> np.ndarray:
        """See `Run.value`."""
        return self.run.value(observation, run)

    def evaluate(self, episodes: int = 10, seed: int = 0) -> list[dict[str, float]]:
        """See `Run.evaluate`."""
        return self.run.evaluate(episodes, seed)

    def render(self, run: int = 0, seed: int = 0, path: Path | None = None) -> Film:
        """See `Run.render`; give a path if the run directory is a temporary one."""
        return self.run.render(run, seed, path)

    def inspect(self, run: int = 0, episode: int = 0, steps: int | None = None) -> Inspection:
        """See `Run.inspect`; for two agents side by side, `agent.run.inspect(beside=other.run)`."""
        return self.run.inspect(run, episode, steps)

    def save(self, path: Path | str) -> Path:
        """See `Run.save`."""
        return self.run.save(path)

    def export(self, path: Path | str, run: int | None = None) -> Path:
        """See `Run.export`."""
        return self.run.export(path, run)


def _told(lost: Mapping[str, Any]) -> str:
    return f"seed {lost['seed']} by step {lost['step']:,}, {lost['cause']}"


class MoCACE(MoCA):
    """Certainty equivalence: V at the mean of the prediction."""

    agent = "moca-ce"


class MoCAMC(MoCA):
    """The expectation of V from samples."""

    agent = "moca-mc"


class MoCAMixture(MoCA):
    """The expectation of V under the ensemble's mixture itself."""

    agent = "moca-mixture"


class BNAF(MoCA):
    """V at the observed next state; no model, unless a filter needs one."""

    agent = "bnaf"


class NAF(MoCA):
    """As BNAF, with the best action squashed by a tanh instead of clipped."""

    agent = "naf"


class SAC(MoCA):
    """Soft actor-critic, the model-free baseline."""

    agent = "sac"
