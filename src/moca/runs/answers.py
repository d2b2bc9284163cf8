"""Step-by-step queries of a run: actions along an episode, and predictions of the next state."""

from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from moca.agents import make_agent
from moca.belief import Belief, KalmanFilter
from moca.config import ConfigError
from moca.delay import Delayed
from moca.deploy.checks import NOTHING_TO_GO_ON, checked, sane
from moca.runs.directory import RunDirectory

if TYPE_CHECKING:
    from moca.runs.run import Run


class Prediction(NamedTuple):
    """A Gaussian over the next state, with covariance = aleatoric + epistemic; may be batched."""

    mean: np.ndarray  # (…, obs)
    covariance: np.ndarray  # (…, obs, obs)
    aleatoric: np.ndarray  # the members' average covariance
    epistemic: np.ndarray  # the covariance of the members' means


def as_rows(what: str, numbers: Any, size: int, gaps: bool = False) -> tuple[np.ndarray, tuple[int, ...]]:
    """Returns the numbers as rows of that size, and their leading axes."""
    try:
        array = checked(what, numbers, size, gaps).astype(np.float32)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return array.reshape(-1, size), array.shape[:-1]


class FollowingPolicy:
    """A greedy policy that follows one episode and keeps its belief over the state.

    Call reset() at the start of every episode, then pass one observation at a time. Without a
    filter the belief is the observation, and the result is that of `predict`. With a filter, NaN
    marks a missing value, which does not correct the belief; `missing` counts them over all
    episodes.
    """

    def __init__(self, run: "Run", number: int) -> None:
        self._run, self._number = run, number
        self._last: tuple[Belief, Any] | None = None
        self.missing = 0

    def __repr__(self) -> str:
        state = "before the first observation" if self._last is None else "within an episode"
        return f"FollowingPolicy(run {self._number} of {str(self._run.path)!r}, {state})"

    def reset(self) -> None:
        """Forgets all observations; the next one is the first of an episode."""
        self._last = None

    @property
    def belief(self) -> Belief | None:
        """The belief after the last observation; None before the first."""
        return None if self._last is None else self._last[0]

    @cached_property
    def _fills_gaps(self) -> bool:
        """True if the belief can handle missing values: a built-in filter that has learned."""
        own = make_agent(self._run.directory.configs[self._number], self._run.environment).filter
        if type(own.inner if isinstance(own, Delayed) else own) is not KalmanFilter:
            return False
        return bool(self._run.learners.model.ensemble.statistics.batches[self._number] > 0)

    def __call__(self, observation: Any) -> np.ndarray:
        """Returns the action after one more observation, within the bounds.

        It is assumed to be executed.

        Raises:
            ConfigError: If a needed value is missing, or a value cannot be a measurement, as in
                `moca.deploy.Policy`. The policy's belief does not change.
        """
        run, number = self._run, self._number
        rows, lead = run._observed(observation, gaps=self._fills_gaps)
        if lead:
            raise ConfigError(
                f"expected one observation, got {lead}: create a policy for each episode, or use `predict` for a batch"
            )
        measured, missing, found = rows[0], np.isnan(rows[0]), None
        if self._last is not None:
            gaps = {"missing": missing} if missing.any() else {}
            found = run._programs["follow"](*run._at(number), *self._last, measured, **gaps)
            mean, covariance = found[0].mean, found[0].covariance
            if covariance is not None and not sane(np.asarray(mean), np.asarray(covariance)):
                found = None  # the belief is lost
        if found is None:
            if missing.any():
                raise ConfigError(NOTHING_TO_GO_ON)
            found = run._programs["start"](*run._at(number), measured)
        action = np.array(found[1])
        if not np.isfinite(action).all():
            raise ConfigError("the policy has no action for this observation: its computation overflows")
        self._last = found
        self.missing += int(missing.sum())
        return action


class Model:
    """The ensemble that predicts the next state."""

    def __init__(self, run: "Run") -> None:
        if run.learners.model is None:
            raise ConfigError(
                f"{run.config.agent} without a filter has no model of the next state: set belief.filter = true, or use "
                "an agent that predicts (moca, moca-ce, moca-mc, moca-mixture)"
            )
        self._run = run

    def __repr__(self) -> str:
        run, size = self._run, self._run.environment.observation_size
        numbers = f"{size} number{'s' * (size > 1)}"
        return f"Model({str(run.path)!r}: {run.config.dynamics.members} members, predicts {numbers} as a Gaussian)"

    def predict(self, observation: Any, action: Any, run: int = 0) -> Prediction:
        """Returns a Gaussian over the next state, for one or n observations and actions.

        The observation is treated as the state. The Gaussian does not include observation noise.
        """
        states, lead = self._run._observed(observation)
        actions, also = as_rows("an action", action, self._run.environment.action_size)
        if lead != also:
            raise ConfigError(
                f"there must be one action per observation, but got {also} actions and {lead} observations"
            )
        mean, aleatoric, epistemic = self._run._programs["foresee"](*self._run._at(run), states, actions)
        parts = (mean, aleatoric + epistemic, aleatoric, epistemic)
        return Prediction(*(np.array(part).reshape(*lead, *part.shape[1:]) for part in parts))


def last_returns(directory: RunDirectory, until: float = np.inf) -> list[float]:
    """Returns each run's mean return over the last tenth of its steps; −∞ if it has none.

    Later rows than those of the step `until` are not counted.
    """
    rows, runs = [row for row in directory.rows() if row["step"] <= until], len(directory.runs)
    late = [(i % runs, row["return_mean"]) for i, row in enumerate(rows) if row["step"] > 0.9 * rows[-1]["step"]]
    each = [[value for own, value in late if own == run and value is not None] for run in range(runs)]
    return [float(np.mean(values)) if values else -np.inf for values in each]
