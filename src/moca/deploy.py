"""Runs an exported policy with NumPy alone.

    policy = Policy.load("policy.npz")
    policy.reset()  # at the start of every episode
    action = policy(observation)  # to be held for policy.action_repeat steps of the environment

Nothing else of this package is imported, so this file can be copied to wherever a policy is to run. It computes in
double precision what the agent computes in single precision.
"""

import difflib
import json
import math
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

FORMAT = 1
PRETRAINED = Path(__file__).parent / "policies"

Arrays = Mapping[str, np.ndarray]
Belief = tuple[np.ndarray, np.ndarray]  # mean and covariance


def pretrained(name: str) -> "Policy":
    """The trained policy for one of the paper's tasks that comes with the package."""
    known = sorted(path.stem for path in PRETRAINED.glob("*.npz"))
    if name not in known:
        match = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        hint = f" Did you mean {match[0]}?" if match else ""
        raise ValueError(f"there is no trained policy for {name!r}.{hint} There are: {', '.join(known)}")
    return Policy.load(PRETRAINED / f"{name}.npz")


class Policy:
    """A greedy policy, with the filter over the state it was trained with, if any.

    `facts` is what the file says of its origin: agent, task, seed, noise.
    """

    def __init__(self, facts: dict[str, Any], arrays: Arrays) -> None:
        self.facts = facts
        self.action_low, self.action_high = arrays["action_low"], arrays["action_high"]
        greedy = _Actor if facts["kind"] == "actor" else _Quadratic
        self._greedy: Callable[[np.ndarray], np.ndarray] = greedy(facts, arrays)
        self._filter = _Filter(facts, arrays) if facts["filter"] else None
        self.reset()

    @classmethod
    def load(cls, path: Path | str) -> "Policy":
        """The policy in a file that `moca export` wrote."""
        try:
            with np.load(path, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            facts = json.loads(arrays.pop("header").tobytes())
        except FileNotFoundError:
            raise ValueError(f"there is no file {path}") from None
        except (ValueError, OSError, KeyError, AttributeError, zipfile.BadZipFile) as error:
            raise ValueError(f"{path} is no exported policy; moca export DIR writes one") from error
        if facts.get("format") != FORMAT:
            raise ValueError(
                f"{path} has format {facts.get('format')}, but this version of moca reads format {FORMAT}: "
                "export it again with this version, or use the version that wrote it"
            )
        return cls(facts, {name: array.astype(np.float64) for name, array in arrays.items()})

    @property
    def action_repeat(self) -> int:
        """For how many steps of the environment each action is to be held."""
        return self.facts["action_repeat"]

    def reset(self) -> None:
        """Forgets what was observed; the next observation is the first of an episode."""
        self._belief: Belief | None = None
        self._action: np.ndarray | None = None

    def __call__(self, observation: Any) -> np.ndarray:
        """The action after one more observation, in the environment's bounds; it is assumed to be taken."""
        measured = self._checked(observation)
        if measured.ndim != 1:
            raise ValueError(f"a policy follows one episode, but got observations of shape {measured.shape}: use act")
        state = measured
        if self._filter:
            if self._belief is None or self._action is None:
                self._belief = self._filter.start(measured)
            else:
                taken = 2 * (self._action - self.action_low) / (self.action_high - self.action_low) - 1
                self._belief = self._filter.follow(self._belief, taken, measured)
            state = self._belief[0]
        self._action = self.act(state)
        return self._action.copy()

    def act(self, observations: Any) -> np.ndarray:
        """The actions at these observations, (obs,) or (n, obs), each taken for the state; no filter."""
        states = self._checked(observations)
        inside = self._greedy(states.reshape(-1, states.shape[-1])).reshape(*states.shape[:-1], len(self.action_low))
        action = self.action_low + (inside + 1) / 2 * (self.action_high - self.action_low)
        return np.clip(action, self.action_low, self.action_high).astype(np.float32)

    def _checked(self, observations: Any) -> np.ndarray:
        states, size = np.asarray(observations, np.float64), self.facts["observation_size"]
        if states.ndim < 1 or states.shape[-1] != size:
            raise ValueError(f"an observation has {size} numbers, but got an array of shape {states.shape}")
        return states


class _Network:
    """A perceptron, or several with a leading axis in every array; the last layer is linear."""

    def __init__(self, name: str, arrays: Arrays, activation: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]):
        self.layers: list[tuple[np.ndarray, np.ndarray]] = []
        while (weight := f"{name}.weight{len(self.layers)}") in arrays:
            self.layers.append((arrays[weight], arrays[f"{name}.bias{len(self.layers)}"]))
        self.activation = activation

    def __call__(self, x: np.ndarray) -> np.ndarray:
        for number, (weight, bias) in enumerate(self.layers):
            x = (weight @ x[..., None])[..., 0] + bias
            if number < len(self.layers) - 1:
                x, _ = self.activation(x)
        return x

    def with_derivative(self, x: np.ndarray, derivative: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The output, and its derivative by whatever the input has that `derivative` by."""
        for number, (weight, bias) in enumerate(self.layers):
            x, derivative = (weight @ x[..., None])[..., 0] + bias, weight @ derivative
            if number < len(self.layers) - 1:
                x, slope = self.activation(x)
                derivative = slope[..., None] * derivative
        return x, derivative


def _relu(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The activation and its slope."""
    return np.maximum(x, 0), (x > 0).astype(x.dtype)


def _silu(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The activation x σ(x) and its slope."""
    sigmoid = (1 + np.tanh(x / 2)) / 2  # which does not overflow
    return x * sigmoid, sigmoid * (1 + x * (1 - sigmoid))


def _gelu(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The activation x Φ(x) and its slope."""
    below = (1 + np.vectorize(math.erf)(x / np.sqrt(2))) / 2
    return x * below, below + x * np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi)


def _erf(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The activation and its slope."""
    return np.vectorize(math.erf)(x), 2 / np.sqrt(np.pi) * np.exp(-(x**2))


ACTIVATIONS = {"silu": _silu, "gelu": _gelu, "erf": _erf}  # of the ensemble


class _Actor:
    """SAC: the tanh of the actor's mean."""

    def __init__(self, facts: dict[str, Any], arrays: Arrays) -> None:
        self.actor = _Network("actor", arrays, _relu)

    def __call__(self, states: np.ndarray) -> np.ndarray:
        return np.tanh(np.split(self.actor(states), 2, axis=-1)[0])


class _Quadratic:
    """The paper's agents: the best action of a quadratic within [−1, 1]."""

    def __init__(self, facts: dict[str, Any], arrays: Arrays) -> None:
        self.head, self.full = facts["head"], facts["full"]
        self.trunk = _Network("trunk", arrays, _relu)
        self.vertex, self.cholesky = (_Network(name, arrays, _relu) for name in ("vertex", "cholesky"))
        self.least = np.sqrt(arrays["floor"])

    def __call__(self, states: np.ndarray) -> np.ndarray:
        hidden, _ = _relu(self.trunk(states))
        output, raw = self.vertex(hidden), self.cholesky(hidden)
        size = output.shape[-1]
        diagonal = self.least + np.logaddexp(0, raw[:, :size])
        if self.head == "tanh":
            return np.tanh(output)
        if not self.full:
            return np.clip(output if self.head == "vertex" else output / diagonal**2, -1, 1)
        factor = diagonal[:, :, None] * np.eye(size)
        rows, columns = np.tril_indices(size, -1)
        factor[:, rows, columns] = raw[:, size:]
        P = factor @ factor.swapaxes(1, 2)
        vertex = output if self.head == "vertex" else np.linalg.solve(P, output[..., None])[..., 0]
        return np.stack([_box_maximiser(*each) for each in zip(P, vertex, strict=True)])


def _box_maximiser(P: np.ndarray, vertex: np.ndarray, sweeps: int = 60) -> np.ndarray:
    """argmax of −½ (a − μ̃)ᵀ P (a − μ̃) over the box [−1, 1]ⁿ: which bounds hold, then a solve in the free dimensions."""
    action = np.clip(vertex, -1, 1)
    if len(vertex) == 1:
        return action
    for _ in range(sweeps):
        for i in range(len(vertex)):
            pull = P[i] @ (action - vertex) - P[i, i] * (action[i] - vertex[i])
            action[i] = np.clip(vertex[i] - pull / P[i, i], -1, 1)
    free = np.abs(action) < 1
    if free.any():
        pull = P[np.ix_(free, ~free)] @ (action - vertex)[~free]
        action[free] = vertex[free] - np.linalg.solve(P[np.ix_(free, free)], pull)
    return action


class _Filter:
    """The belief over the state: an extended Kalman filter with the ensemble's mean and its derivative."""

    def __init__(self, facts: dict[str, Any], arrays: Arrays) -> None:
        self.members = _Network("ensemble", arrays, ACTIVATIONS[facts.get("activation", "silu")])
        self.mean, self.deviation = arrays["statistics.mean"], arrays["statistics.deviation"]  # of s; of its change
        self.full, self.raised = facts["full_covariance"], facts["raised"]
        low, high = facts["log_variance"]
        self.middle, self.reach = (low + high) / 2, (high - low) / 2
        self.arrays = arrays

    def start(self, measured: np.ndarray) -> Belief:
        """The belief after the first observation."""
        return measured, np.diag(self._noise(measured))

    def follow(self, belief: Belief, action: np.ndarray, measured: np.ndarray) -> Belief:
        """The belief after an action in [−1, 1] and the observation that followed."""
        mean, covariance = self._predicted(belief, action)
        noise = self._noise(mean)
        covariance = covariance + np.diag(np.diagonal(covariance)) * self.raised
        for j in range(len(mean)):
            gain = covariance[:, j] / max(covariance[j, j] + noise[j], np.finfo(np.float32).tiny)
            mean = mean + gain * (measured[j] - mean[j])
            covariance = covariance - gain[:, None] * covariance[j]
        return mean, covariance

    def _predicted(self, belief: Belief, action: np.ndarray) -> Belief:
        """What the next state is believed to be before it is observed."""
        (s, covariance), size = belief, len(belief[0])
        inputs = np.concatenate([(s - self.mean[0]) / self.deviation[0], action])
        by_state = np.vstack([np.diag(1 / self.deviation[0]), np.zeros((len(action), size))])
        raw, slope = self.members.with_derivative(inputs, by_state)
        unit = self.deviation[1]
        F = np.eye(size) + unit[:, None] * slope[:, :size].mean(axis=0)
        means = s + self.mean[1] + unit * raw[:, :size]
        away = means - means.mean(axis=0)
        bounded = self.middle + self.reach * np.tanh((raw[:, size : 2 * size] - self.middle) / self.reach)
        factor = np.exp(bounded / 2)[:, :, None] * np.eye(size)
        if self.full:
            rows, columns = np.tril_indices(size, -1)
            factor[:, rows, columns] = raw[:, 2 * size :]
        factor = unit[:, None] * factor
        own = factor @ factor.swapaxes(1, 2) + away[:, :, None] * away[:, None, :]
        return means.mean(axis=0), F @ covariance @ F.T + own.mean(axis=0)

    def _noise(self, s: np.ndarray) -> np.ndarray:
        """The variance of each observed dimension at this state."""
        if "noise.variance" in self.arrays:
            return self.arrays["noise.variance"]
        (low, high), inverse = self.arrays["noise.range"], self.arrays["noise.inverse_scales"]
        norm = np.linalg.norm(s * inverse) / np.sqrt(np.sum(inverse > 0))
        return np.full(len(s), (low + (high - low) * np.clip(norm, 0, 1)) ** 2)
