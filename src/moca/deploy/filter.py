"""The filter over the state, in NumPy; written for `graph.py` too, as `greedy.py` is."""

from typing import Any

import numpy as np

from .files import LARGEST, take
from .greedy import ACTIVATIONS, Network, triangular

MeanAndCovariance = tuple[np.ndarray, np.ndarray]  # of a Gaussian


class Filter:
    """An extended Kalman filter with the ensemble's mean and its derivative."""

    def __init__(self, facts: dict[str, Any], arrays: dict[str, np.ndarray], actions: int) -> None:
        size = facts["observation_size"]
        members = len(first) if (first := arrays.get("ensemble.weight0", np.array(()))).ndim else 0
        self.raised = facts["raised"]
        below = size * (size - 1) // 2 if facts["full_covariance"] else 0
        activation = ACTIVATIONS[facts.get("activation", "silu")]
        self.members = Network("ensemble", arrays, activation, size + actions, 2 * size + below, (members,))
        widest = max(weight.shape[1] for weight, _ in self.members.layers)
        if not 0 < 8 * members * size * max(size, widest) <= LARGEST:  # bytes of a derivative or of covariances
            raise ValueError(f"a filter of {members} networks, {widest} wide, over {size} dimensions is too large")
        self.mean, self.deviation = (  # of s and of its change
            take(arrays, f"statistics.{name}", 2, size) for name in ("mean", "deviation")
        )
        if not (self.deviation > 0).all():
            raise ValueError("statistics.deviation must be above 0")
        self.calibration, self.added = (  # the second is missing in files of earlier versions
            take(arrays, name, size) if (name := f"ensemble.{part}") in arrays else np.full(size, default)
            for part, default in (("calibration", 1.0), ("added", 0.0))
        )
        if not (self.calibration > 0).all() or (self.added < 0).any():
            raise ValueError("ensemble.calibration must be above 0, and ensemble.added must not be negative")
        low, high = facts["log_variance"]
        self.middle, self.reach = (low + high) / 2, (high - low) / 2
        self.variance: np.ndarray | None = None
        if "noise.variance" in arrays:
            self.variance = take(arrays, "noise.variance", size)
            grows = "noise.growing" in arrays  # with the state
            self.growing, shares, self.most = (
                take(arrays, f"noise.{name}", size) if grows else np.zeros(size)
                for name in ("growing", "shares", "most")
            )
            with np.errstate(under="ignore"):
                self.weights = shares / np.maximum(self.mean[0] ** 2 + self.deviation[0] ** 2, 1e-12)
            if min(each.min() for each in (self.variance, self.growing, shares, self.most)) < 0:
                raise ValueError("noise.variance, noise.growing, noise.shares and noise.most must not be negative")
            return
        self.range, self.inverse = take(arrays, "noise.range", 2), take(arrays, "noise.inverse_scales", size)
        if not 0 <= self.range[0] <= self.range[1] or (self.inverse < 0).any() or not self.inverse.any():
            raise ValueError("noise.range must increase from at least 0, and noise.inverse_scales must not be negative")

    def start(self, measured: np.ndarray) -> MeanAndCovariance:
        """Returns the belief after the first observation."""
        return measured, self._noise(measured)[:, None] * np.eye(len(measured))

    def follow(self, belief: MeanAndCovariance, action: np.ndarray, measured: np.ndarray) -> MeanAndCovariance:
        """Returns the belief after an action in [−1, 1] and an observation.

        NaN entries are ignored.
        """
        mean, covariance = self._predicted(belief, action)
        missing = np.isnan(measured)
        noise = np.where(missing, np.inf, self._noise(mean))  # so that nothing is gained there
        measured = np.where(missing, 0.0, measured)
        covariance = covariance * (1 + self.raised * np.eye(len(measured)))
        for j in range(len(measured)):
            gain = covariance[:, j] / np.maximum(covariance[j, j] + noise[j], np.finfo(np.float32).tiny)
            mean = mean + gain * (measured[j] - mean[j])
            covariance = covariance - gain[:, None] * covariance[j]
        return mean, covariance

    def _predicted(self, belief: MeanAndCovariance, action: np.ndarray) -> MeanAndCovariance:
        """Returns the belief about the next state before it is observed."""
        (s, covariance), size = belief, len(belief[0])
        inputs = np.concatenate([(s - self.mean[0]) / self.deviation[0], action])
        by_state = np.vstack([np.diag(1 / self.deviation[0]), np.zeros((len(action), size))])
        raw, slope = self.members.with_derivative(inputs, by_state)
        unit = self.deviation[1]
        F = np.eye(size) + unit[:, None] * slope[:, :size].mean(axis=0)
        means = s + self.mean[1] + unit * raw[:, :size]
        away = means - means.mean(axis=0)
        bounded = self.middle + self.reach * np.tanh((raw[:, size : 2 * size] - self.middle) / self.reach)
        factor = (unit * self.calibration)[:, None] * triangular(np.exp(bounded / 2), raw[:, 2 * size :])
        own = factor @ factor.swapaxes(1, 2) + away[:, :, None] * away[:, None, :]
        return means.mean(axis=0), F @ covariance @ F.T + own.mean(axis=0) + np.diag((unit * self.added) ** 2)

    def _noise(self, s: np.ndarray) -> np.ndarray:
        """Returns the noise variance of each observed dimension at this state."""
        if self.variance is not None:
            return self.variance + self.growing * np.minimum((self.weights * s**2).sum(), self.most)
        low, high = self.range
        norm = np.sqrt(((s * self.inverse) ** 2).sum() / np.sum(self.inverse > 0))
        return (low + (high - low) * np.clip(norm, 0, 1)) ** 2 * np.ones(len(s))
