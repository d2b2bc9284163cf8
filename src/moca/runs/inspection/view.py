"""One agent in an episode: its arrays, what it lacks, and how often its predictions were right."""

import base64
import dataclasses

import numpy as np

from moca.looks import Look
from moca.runs.sketch import INSIDE, Sketch

NO_MODEL = "{} has no model of the next state, so there is no prediction."
NO_PARABOLA = "{} has no quadratic Q(s, ·), so only the action is shown."
NO_STAKES = "{} uses the observed next state, so there is no E[V(s′)]."
NO_FILTER = "{} has no filter: it uses each observation as the state."
NO_AHEAD = "{} has no forecast of several steps."
TOO_FAR = "{}’s forecast overflows: choose a smaller --ahead."


@dataclasses.dataclass(frozen=True, repr=False)
class View:
    """One agent in the episode."""

    look: Look
    told: str  # the run and its settings
    arrays: dict[str, np.ndarray]  # see `episode.describe`; one entry per step of the episode
    film: bytes | None = None
    unfilmed: str = ""  # why there is no video
    sketch: Sketch | None = None  # the task's, if it has one
    overflows: bool = False  # whether the forecast does, which is then left out

    def __repr__(self) -> str:
        return f"View({self.look.label}: {self.told}; {self.steps:,} steps)"

    @property
    def steps(self) -> int:
        """The number of decisions."""
        return len(self.arrays["value"])

    @property
    def lacks(self) -> dict[str, str]:
        """Returns a sentence for each empty panel."""
        need = {"filter": ("uncertainty", NO_FILTER), "model": ("predicted", NO_MODEL)}
        need |= {"parabola": ("vertex", NO_PARABOLA), "stakes": ("expected", NO_STAKES)}
        need |= {"ahead": ("ahead", TOO_FAR if self.overflows else NO_AHEAD)}
        found = {panel: text for panel, (name, text) in need.items() if name not in self.arrays}
        if "model" in found and "stakes" in found:
            found["stakes"] = NO_MODEL
        return {panel: text.format(self.look.label) for panel, text in found.items()}

    @property
    def film_text(self) -> str:
        """The video in base64."""
        return base64.b64encode(self.film or b"").decode()

    @property
    def coverage(self) -> dict[int, np.ndarray]:
        """The shares of outcomes within one and two predicted deviations, per dimension, in %."""
        distance = self.arrays["distance"]
        return {count: 100 * np.mean(distance <= count, axis=0) for count in INSIDE}

    @property
    def outcome(self) -> np.ndarray:
        """The states with which forecasts are compared: with a filter, the truth.

        Without a filter the agent takes observations for states, so its forecasts are of those.
        """
        if "uncertainty" not in self.arrays:
            return self.arrays["observed"]
        return self.arrays.get("truth", self.arrays["believed"])

    @property
    def ahead_deviation(self) -> np.ndarray:
        """The deviations of the forecast, (steps, ahead, obs)."""
        return np.sqrt(np.maximum(np.diagonal(self.arrays["ahead_covariance"], axis1=-2, axis2=-1), 0))

    @property
    def ahead_coverage(self) -> dict[int, dict[int, np.ndarray]]:
        """The same shares for the forecast, by the number of decisions ahead."""
        mean, deviation, outcome = self.arrays["ahead"], self.ahead_deviation, self.outcome
        most = min(mean.shape[1], len(outcome) - 1)
        found = {}
        for k in sorted({k for k in (1, 2, 5, 10, 15, 20, 25, 50, 100) if k < most} | ({most} if most else set())):
            error = np.abs(outcome[k:] - mean[:-k, k - 1])
            within = {count: error <= count * deviation[:-k, k - 1] for count in INSIDE}
            found[k] = {count: 100 * np.mean(each, axis=0) for count, each in within.items()}
        return found
