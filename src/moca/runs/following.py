"""A greedy policy that follows one episode."""

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from moca.agents import make_agent
from moca.belief import Belief, KalmanFilter
from moca.config import ConfigError
from moca.deploy.checks import NOTHING_TO_GO_ON, sane

if TYPE_CHECKING:
    from moca.runs.run import Run


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
        return type(make_agent(self._run.directory.configs[self._number], self._run._env).filter) is KalmanFilter

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
    return belief.covariance is None or sane(np.asarray(belief.mean), np.asarray(belief.covariance))
