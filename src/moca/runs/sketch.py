"""Tasks seen from the side: points whose places are linear in the observation.

A Gaussian over the observation is then one over each place, with exact mean and covariance.
"""

from typing import NamedTuple

import numpy as np

from moca.config import Config
from moca.names import OWN

INSIDE = {1: 0.6827, 2: 0.9545}  # the share of a Gaussian within so many deviations


class Sketch(NamedTuple):
    """The picture of a task: a body at the first point, and a rod from it to the last."""

    names: tuple[str, ...]  # of the observed dimensions
    points: tuple[str, ...]
    slopes: np.ndarray  # (points, 2, obs): place = slopes @ observation + offsets, in metres
    offsets: np.ndarray  # (points, 2)
    box: tuple[float, float]  # half the width and height of the body at the first point
    rail: float  # half its length
    angle: tuple[int, int]  # which dimensions are the cosine and the sine of the rod's angle
    other: int  # a further dimension that is worth a picture
    label: str  # of that dimension

    def places(self, observations: np.ndarray) -> np.ndarray:
        """Returns the points (…, points, 2) for observations (…, obs)."""
        return np.einsum("pij,...j->...pi", self.slopes, observations) + self.offsets

    def spreads(self, covariances: np.ndarray) -> np.ndarray:
        """Returns the covariances (…, points, 2, 2) of the points."""
        return np.einsum("pij,...jk,plk->...pil", self.slopes, covariances, self.slopes)

    def angles(self, observations: np.ndarray) -> np.ndarray:
        """Returns the angle of the rod in degrees, zero if it stands."""
        cosine, sine = (observations[..., i] for i in self.angle)
        return np.degrees(np.arctan2(sine, cosine))

    def angle_deviations(self, means: np.ndarray, covariances: np.ndarray) -> np.ndarray:
        """Returns the angle's deviation in degrees, linearised at the mean."""
        both = list(self.angle)
        place, spread = means[..., both], covariances[..., both, :][..., both]
        across = np.stack([-place[..., 1], place[..., 0]], axis=-1) / np.sum(place**2, axis=-1, keepdims=True)
        return np.degrees(np.sqrt(np.maximum(np.einsum("...i,...ij,...j->...", across, spread, across), 0)))


def _matrix(size: int, *entries: tuple[int, int, int, float]) -> np.ndarray:
    """Returns slopes with these entries (point, axis, dimension, number) for two points."""
    made = np.zeros((2, 2, size))
    for *where, number in entries:
        made[tuple(where)] = number
    return made


_CARTPOLE = Sketch(
    names=("x", "cos θ", "sin θ", "ẋ", "θ̇"),
    points=("cart", "tip of the pole"),
    slopes=_matrix(5, (0, 0, 0, 1.0), (1, 0, 0, 1.0), (1, 0, 2, 1.0), (1, 1, 1, 1.0)),
    offsets=np.array([[0.0, 1.0], [0.0, 1.0]]),
    box=(0.2, 0.1),
    rail=1.8,
    angle=(1, 2),
    other=0,
    label="position of the cart (m)",
)
_PENDULUM = Sketch(
    names=("sin θ", "cos θ", "θ̇"),
    points=("pivot", "tip of the pole"),
    slopes=_matrix(3, (1, 0, 0, 0.5), (1, 1, 1, 0.5)),
    offsets=np.array([[0.0, 0.6], [0.0, 0.6]]),
    box=(0.03, 0.03),
    rail=0.0,
    angle=(1, 0),
    other=2,
    label="angular velocity (rad/s)",
)
_CARTPOLES = ("CartpoleBalance", "CartpoleBalanceSparse", "CartpoleSwingup", "CartpoleSwingupSparse")
SKETCHES = dict.fromkeys(_CARTPOLES, _CARTPOLE) | {"PendulumSwingup": _PENDULUM}


def sketch_of(config: Config) -> Sketch | None:
    """Returns the sketch of a task, or None if there is none, or if not all of it is observed."""
    name = config.env.name
    if name.startswith(OWN) or config.sensor.observed or config.sensor.history > 0:
        return None
    return SKETCHES.get(name)


def reaches(dimensions: int) -> dict[int, float]:
    """Returns the deviations within which a Gaussian has the shares of 1σ and 2σ."""
    if dimensions == 1:
        return {count: float(count) for count in INSIDE}
    return {count: float(np.sqrt(-2 * np.log(1 - share))) for count, share in INSIDE.items()}
