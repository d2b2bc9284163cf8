"""What a run's policies answer step by step: actions along an episode, and predictions of the next state."""

from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from moca.agents import make_agent
from moca.belief import Belief, KalmanFilter
from moca.config import ConfigError
from moca.deploy.checks import NOTHING_TO_GO_ON, checked, sane

if TYPE_CHECKING:
    from moca.runs.run import Run


class Prediction(NamedTuple):
    """The Gaussian over the next state: covariance = aleatoric + epistemic; batched along leading axes."""

    mean: np.ndarray  # (…, obs)
    covariance: np.ndarray  # (…, obs, obs)
    aleatoric: np.ndarray  # what the members take for chance, on average
    epistemic: np.ndarray  # what they disagree on


def as_rows(what: str, numbers: Any, size: int, gaps: bool = False) -> tuple[np.ndarray, tuple[int, ...]]:
    """The numbers as rows of that size, and the axes that stood before."""
    try:
        array = checked(what, numbers, size, gaps).astype(np.float32)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return array.reshape(-1, size), array.shape[:-1]


class FollowingPolicy:
    """A greedy policy that follows one episode and keeps its belief over the state.

    reset() at the start of every episode; then an action for each observation. Without a filter the belief is the
    observation, and this is `predict`. With one, NaN is a missing value, where the belief is not corrected; `missing`
    counts them, over all episodes.
    """

    def __init__(self, run: "Run", number: int) -> None:
        self._run, self._number = run, number
        self._last: tuple[Belief, Any] | None = None
        self.missing = 0

    def reset(self) -> None:
        """Forgets what was observed; the next observation is the first of an episode."""
        self._last = None

    @property
    def belief(self) -> Belief | None:
        """The belief after the last observation; None before the first."""
        return None if self._last is None else self._last[0]

    @cached_property
    def _fills_gaps(self) -> bool:
        """True if the belief can go on without a value: there is a filter, and it is ours."""
        return type(make_agent(self._run.directory.configs[self._number], self._run.environment).filter) is KalmanFilter

    def __call__(self, observation: Any) -> np.ndarray:
        """The action after one more observation, in the environment's bounds; it is assumed to be taken.

        Raises:
            ConfigError: if a value is missing that is needed, or is none that can have been measured, as with
                `moca.deploy.Policy`. The policy stays as it was.
        """
        run, number = self._run, self._number
        rows, lead = run._observed(observation, gaps=self._fills_gaps)
        if lead:
            raise ConfigError(
                f"a policy follows one episode, but got {lead} observations: make one for each, or use predict"
            )
        measured, missing, following = rows[0], np.isnan(rows[0]), None
        if self._last is not None:
            gaps = {"missing": missing} if missing.any() else {}
            following = run._programs["follow"](*run._at(number), *self._last, measured, **gaps)
        if following is None or not _sane(following[0]):
            if missing.any():
                raise ConfigError(NOTHING_TO_GO_ON)
            following = run._programs["start"](*run._at(number), measured)
        action = np.array(following[1])
        if not np.isfinite(action).all():
            raise ConfigError("the policy has no action here: its numbers overflow")
        self._last = following
        self.missing += int(missing.sum())
        return action


def _sane(belief: Belief) -> bool:
    return belief.covariance is None or bool(sane(np.asarray(belief.mean), np.asarray(belief.covariance)))


class Model:
    """The ensemble that predicts the next state."""

    def __init__(self, run: "Run") -> None:
        if run.learners.model is None:
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
        actions, also = as_rows("an action", action, self._run.environment.action_size)
        if lead != also:
            raise ConfigError(f"there must be an action per observation, but got {also} and {lead} of them")
        mean, aleatoric, epistemic = self._run._programs["foresee"](*self._run._at(run), states, actions)
        parts = (mean, aleatoric + epistemic, aleatoric, epistemic)
        return Prediction(*(np.array(part).reshape(*lead, *part.shape[1:]) for part in parts))
