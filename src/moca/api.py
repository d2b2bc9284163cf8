"""Agents as objects: create one for an environment, train it, query it.

    agent = moca.MoCA("CartpoleBalance", noise__sigma=0.05).learn(40_000)
    action = agent.predict(observation)

Training writes a run directory, and all queries go to its `Run`, as after `moca.load`.
"""

import shutil
import tempfile
import warnings
import weakref
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
from rich.console import Console

from moca import elsewhere, presets
from moca.config import Config, ConfigError, as_path, checked, refuse_unnamed, shown
from moca.devices import keep_compiled, use_all_cores
from moca.envs.defaults import measured
from moca.envs.environment import Spaces
from moca.envs.named import as_environment
from moca.envs.trust import import_module_of
from moca.names import OWN
from moca.runs import OVER, refuse_foreign
from moca.runs.answers import FollowingPolicy, Model
from moca.runs.before import naming
from moca.runs.export import Exported
from moca.runs.inspection import Inspection
from moca.runs.launch import train
from moca.runs.notebook import Film
from moca.runs.run import Run, load

_FIXED = {
    "agent": "choose the class, such as moca.SAC",
    "env.name": "pass it as the first argument",
    "seed": "pass it as a separate argument",
    "seeds": "pass it as a separate argument",
    "train.steps": "pass it to learn",
}


class MoCA:
    """An agent, before or after training.

    Args:
        env: The name of a Playground or Gymnasium environment; an environment from
            `gymnasium.make`; or your own environment.
        seed: The first seed.
        seeds: Number of runs trained at once. Queries take `run=` and use the first run, 0, by
            default.
        preset: The settings to start from. For an environment without a preset, some are measured
            in a short random rollout.
        out: The run directory; by default a temporary one that is removed with the agent.
        start: An agent or a run whose weights are the initial ones. Its networks must have the same
            shapes.
        settings: Further settings by dotted name, as in config.json.
        named: The same as keywords, such as `critic__lr=1e-3` for `critic.lr`.
    """

    agent = "moca"

    def __init__(
        self,
        env: Any,
        *more: Any,
        seed: int = 0,
        seeds: int = 1,
        preset: str = "tuned",
        out: Path | str | None = None,
        start: "MoCA | Run | None" = None,
        settings: Mapping[str, Any] | None = None,
        **named: Any,
    ) -> None:
        name = f"moca.{type(self).__name__}"
        if more:
            raise ConfigError(
                f"{name} takes the environment alone, as in {name}({shown(more[0])}): "
                f"{elsewhere.advice('policy', self.agent)}"
            )
        if not isinstance(settings, Mapping | None):
            raise ConfigError(f"settings must be a dictionary of values by dotted name, got {shown(settings)}")
        chosen = {**(settings or {}), **{name.replace("__", "."): value for name, value in named.items()}}
        elsewhere.refuse(name, chosen, self.agent)
        for each in chosen:
            if each in _FIXED:
                raise ConfigError(f"{each} cannot be set in {name}: {_FIXED[each]}")
        refuse_unnamed(chosen, self.agent)
        chosen |= checked(chosen)
        one = chosen.get("env.episode_length", Config().env.episode_length)  # until learn sets the number of steps
        flatten = chosen.get("env.flatten", False)
        if not isinstance(env := as_environment(env, flatten), str | Spaces):
            hint = f"; pass an environment, as in {env.__name__}()" if isinstance(env, type) else ""
            raise ConfigError(
                "env must be a name, such as CartpoleBalance, a Gymnasium environment, or an environment of moca's "
                f"classes, got {shown(env)}{hint}"
            )
        task = env if isinstance(env, str) else None
        self._env: Spaces | None = None if isinstance(env, str) else env
        use_all_cores()  # before the random rollout starts JAX
        keep_compiled()
        import_module_of(task or "")
        chosen |= {"agent": self.agent, "seed": seed, "seeds": seeds, "train.steps": one}
        chosen |= {} if isinstance(env, str) else {"env.name": OWN + env.title}
        self._layers = (preset, task, chosen, measured(preset, env, chosen))
        self._build(one)  # reports invalid settings now
        self._out = None if out is None else as_path("out", out)
        if self._out is not None:
            refuse_foreign(self._out)
        self._run: Run | None = None
        self._asked = 0  # the number of steps in the last call of learn
        self._start = start.run if isinstance(start, MoCA) else start
        if not isinstance(self._start, Run | None):
            raise ConfigError(
                f"start = {shown(start)} must be an agent that has learned, or a run, as moca.load gives it"
            )

    @elsewhere.answered
    def learn(self, steps: int, callback: Any = None, progress: bool | Console = False) -> Self:
        """Trains each run for `steps` environment steps and returns the agent.

        Steps are taken in addition to those of earlier calls.

        Args:
            steps: Environment steps. Schedules of exploration and learning rates end with the first
                call and keep their last values in later ones; `train__horizon` sets another length.
            callback: Called after each episode, and can stop training: see `moca.train`.
            progress: Whether to show progress, or a `rich.console.Console` to show it on.

        After an interruption or an error, the agent can be used as it is, and the same call resumes
        training.
        """
        self._refuse_unfinished(steps)
        self._asked = steps
        try:
            self._run = self._trained(steps, callback, progress)
        except ConfigError:
            raise
        except BaseException:  # an interruption, or an error in a callback: what was learned before stays usable
            with suppress(ConfigError, OSError):
                held = load(cast(Path, self._out), self._env)
                self._run = held if held.rows else self._run
            raise
        directory = self._run.directory
        if lost := directory.status.get("diverged"):
            warnings.warn(
                f"{len(lost)} of {len(directory.runs)} runs diverged and were stopped: {'; '.join(map(_told, lost))}",
                RuntimeWarning,
                stacklevel=3,
            )
        return self

    def _trained(self, steps: int, callback: Any, progress: bool | Console) -> Run:
        """Trains from the beginning, or from where the run stands."""
        if self._run is not None:
            return self._run.learn(steps, callback, progress)
        config = self._build(steps)
        if self._out is None:
            self._out = Path(tempfile.mkdtemp(prefix="moca-"))
            weakref.finalize(self, shutil.rmtree, self._out, ignore_errors=True)
        options = {"env": self._env, "start": self._start, "console": progress, "callback": callback}
        return train(config, self._out, preset=self._layers[0], **options)

    def _refuse_unfinished(self, steps: int) -> None:
        """Raises if the last call was interrupted and this one asks for another number of steps."""
        if self._run is None or steps == self._asked:
            return
        status = self._run.directory.status
        if status["state"] not in ("stopped", *OVER):
            raise ConfigError(
                f"learn({self._asked}) was interrupted at step {status['step']}, with {self._run.directory.totals[-1]} "
                f"planned: call learn({self._asked}) again to train to that end"
            )

    def _build(self, steps: int) -> Config:
        preset, task, chosen, found = self._layers
        return presets.build(preset, task, {**chosen, "train.steps": steps}, found)

    @property
    def run(self) -> Run:
        """The trained run, as returned by `moca.load`."""
        if self._run is None:
            raise ConfigError(f"this {type(self).__name__} has not been trained yet: call learn(steps) first")
        return self._run

    @property
    def config(self) -> Config:
        """The settings of the training; before the first `learn`, `train.steps` is one episode."""
        if self._run is not None:
            return self._run.config
        return naming(self._build(self._layers[2]["train.steps"]), self._env)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The metrics: one dictionary per episode and run."""
        return self.run.rows

    @property
    def model(self) -> Model:
        """See `Run.model`."""
        return self.run.model

    def __repr__(self) -> str:
        name = type(self).__name__
        if self._run is not None:
            return f"{name}: {self._run!r}"
        env = self._layers[1] or cast(Spaces, self._env).title
        return f"{name}({env!r}): nothing learned yet, call learn(steps)"

    def _repr_html_(self) -> str | None:
        return None if self._run is None else self._run._repr_html_()

    @elsewhere.answered
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

    def render(self, run: int = 0, seed: int = 0, path: Path | None = None, *, ahead: int = 0) -> Film:
        """See `Run.render`. Pass a path if the run directory is temporary."""
        return self.run.render(run, seed, path, ahead=ahead)

    def inspect(
        self, episode: int = 0, *, run: int = 0, beside: "MoCA | Run | None" = None, **options: Any
    ) -> Inspection:
        """See `Run.inspect`; `beside` may be another agent."""
        other = beside.run if isinstance(beside, MoCA) else beside
        return self.run.inspect(episode, run=run, beside=other, **options)

    def save(self, path: Path | str) -> Path:
        """See `Run.save`."""
        return self.run.save(path)

    def export(self, path: Path | str, run: int | None = None) -> Exported:
        """See `Run.export`."""
        return self.run.export(path, run)


def _told(lost: Mapping[str, Any]) -> str:
    return f"seed {lost['seed']} by step {lost['step']:,}, {lost['cause']}"


# One class for each agent of ours, written out: type checkers, editors and the reference page read
# the source, and would not see classes that are made of the registry.


class MoCACE(MoCA):
    """MoCA-CE (certainty equivalence): V at the mean of the prediction."""

    agent = "moca-ce"


class MoCAMC(MoCA):
    """MoCA-MC: the expectation of V, estimated from samples."""

    agent = "moca-mc"


class MoCAMixture(MoCA):
    """MoCA (mixture): the expectation of V under the ensemble's mixture itself."""

    agent = "moca-mixture"


class MoCAPlan(MoCA):
    """MoCA (plan): decides by improving a sequence of actions on its expected return."""

    agent = "moca-plan"


class BNAF(MoCA):
    """BNAF: V at the observed next state, without a model unless a filter needs one."""

    agent = "bnaf"


class NAF(MoCA):
    """NAF: as BNAF, with the best action squashed by a tanh instead of clipped."""

    agent = "naf"


class SAC(MoCA):
    """Soft actor-critic, the model-free baseline."""

    agent = "sac"
