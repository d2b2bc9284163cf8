"""Networks in NumPy, and the greedy actions of actors and of quadratic critics.

`graph.py` traces these functions into an ONNX graph: no branch depends on a value of an array, and
nothing is assigned in place.
"""

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from .files import take


class Network:
    """A perceptron, or several with a leading axis in every array; the last layer is linear."""

    def __init__(
        self,
        name: str,
        arrays: dict[str, np.ndarray],
        activation: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]],
        inputs: int,
        outputs: int | None = None,
        lead: tuple[int, ...] = (),
    ) -> None:
        self.layers: list[tuple[np.ndarray, np.ndarray]] = []
        self.outputs = inputs
        while (weight := f"{name}.weight{len(self.layers)}") in arrays:
            shape = (*lead, *arrays[weight].shape[-2:-1], self.outputs)
            weights = take(arrays, weight, *shape)
            self.layers.append((weights, take(arrays, f"{name}.bias{len(self.layers)}", *shape[:-1])))
            self.outputs = shape[-2]
        if not self.layers or not self.outputs or self.outputs != (outputs or self.outputs):
            raise ValueError(f"{name} has {len(self.layers)} layers with {self.outputs} outputs, but needs {outputs}")
        self.activation = activation

    def __call__(self, x: np.ndarray) -> np.ndarray:
        for number, (weight, bias) in enumerate(self.layers):
            x = (weight @ x[..., None])[..., 0] + bias
            if number < len(self.layers) - 1:
                x, _ = self.activation(x)
        return x

    def with_derivative(self, x: np.ndarray, derivative: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the output and its derivative, given the derivative of the input."""
        for number, (weight, bias) in enumerate(self.layers):
            x, derivative = (weight @ x[..., None])[..., 0] + bias, weight @ derivative
            if number < len(self.layers) - 1:
                x, slope = self.activation(x)
                derivative = slope[..., None] * derivative
        return x, derivative


erf = np.frompyfunc(math.erf, 1, 1)  # NumPy has none


def relu(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The activation and its slope."""
    return np.maximum(x, 0), (x > 0).astype(x.dtype)


def _silu(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The activation x σ(x) and its slope."""
    sigmoid = (1 + np.tanh(x / 2)) / 2  # does not overflow
    return x * sigmoid, sigmoid * (1 + x * (1 - sigmoid))


def _gelu(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The activation x Φ(x) and its slope."""
    below = (1 + erf(x / np.sqrt(2)).astype(x.dtype)) / 2
    return x * below, below + x * np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi)


def _erf(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The activation and its slope."""
    return erf(x).astype(x.dtype), 2 / np.sqrt(np.pi) * np.exp(-(x**2))


ACTIVATIONS = {"silu": _silu, "gelu": _gelu, "erf": _erf}  # activations of the ensemble


class Actor:
    """SAC: the tanh of the actor's mean."""

    def __init__(self, facts: dict[str, Any], arrays: dict[str, np.ndarray], actions: int) -> None:
        self.actor = Network("actor", arrays, relu, facts["observation_size"], 2 * actions)

    def __call__(self, states: np.ndarray) -> np.ndarray:
        return np.tanh(np.split(self.actor(states), 2, axis=-1)[0])


class QuadraticActor:
    """The paper's agents: the best action of a quadratic within [−1, 1]."""

    def __init__(self, facts: dict[str, Any], arrays: dict[str, np.ndarray], actions: int) -> None:
        self.head, self.full = facts["head"], facts["full"]
        self.trunk = Network("trunk", arrays, relu, facts["observation_size"])
        self.vertex = Network("vertex", arrays, relu, self.trunk.outputs, actions)
        below = actions * (actions - 1) // 2 if self.full else 0
        self.cholesky = Network("cholesky", arrays, relu, self.trunk.outputs, actions + below)
        floor = take(arrays, "floor")
        if floor < 0:
            raise ValueError(f"floor is {floor}, but must not be negative")
        self.least = np.sqrt(floor)

    def __call__(self, states: np.ndarray) -> np.ndarray:
        hidden, _ = relu(self.trunk(states))
        output, raw = self.vertex(hidden), self.cholesky(hidden)
        size = output.shape[-1]
        diagonal = self.least + np.logaddexp(0, raw[:, :size])
        if self.head == "tanh":
            return np.tanh(output)
        if not self.full:
            return np.clip(output if self.head == "vertex" else output / diagonal**2, -1, 1)
        factor = triangular(diagonal, raw[:, size:])
        P = factor @ factor.swapaxes(1, 2)
        vertex = output if self.head == "vertex" else np.linalg.solve(P, output[:, :, None])[:, :, 0]
        return _box_maximiser(P, vertex)


def triangular(diagonal: np.ndarray, below: np.ndarray) -> np.ndarray:
    """Returns lower triangular matrices.

    Args:
        diagonal: their diagonals, (…, n).
        below: the entries below, row by row; without any, the matrices are diagonal.
    """
    zero = np.zeros((*diagonal.shape[:-1], 1))
    return np.concatenate([diagonal, below, zero], axis=-1)[..., _places(diagonal.shape[-1], below.shape[-1])]


@cache
def _places(size: int, below: int) -> np.ndarray:
    """Returns the index of each entry of a matrix among the diagonal, the rest and a zero."""
    places = np.full((size, size), -1)
    places[np.diag_indices(size)] = np.arange(size)
    rows, columns = (each[:below] for each in np.tril_indices(size, -1))
    places[rows, columns] = size + np.arange(below)
    return places


def _box_maximiser(P: np.ndarray, vertex: np.ndarray, sweeps: int = 60) -> np.ndarray:
    """Returns the argmax of −½ (a − μ̃)ᵀ P (a − μ̃) over [−1, 1]ⁿ, as `moca.critic` does."""
    size = vertex.shape[-1]

    def sweep(action: np.ndarray) -> np.ndarray:
        for i in range(size):
            slope = (P[:, i] * (action - vertex)).sum(axis=1) / P[:, i, i]
            action = np.where(np.arange(size) == i, np.clip(action - slope[:, None], -1, 1), action)
        return action

    action = np.clip(vertex, -1, 1)
    if size == 1:
        return action
    action = repeated(sweeps, sweep, action)
    free = np.abs(action) < 1
    system = np.where(free[:, :, None] & free[:, None, :], P, np.eye(size))
    held = np.where(free, 0.0, action - vertex)
    pull = np.where(free, -(P @ held[:, :, None])[:, :, 0], 0.0)
    return np.where(free, vertex + np.linalg.solve(system, pull[:, :, None])[:, :, 0], action)


def repeated(times: int, step: Callable[[np.ndarray], np.ndarray], x: Any) -> np.ndarray:
    """Returns x after applying `step` that many times."""
    if hasattr(x, "repeated"):  # a value of a graph, where this becomes a loop
        return x.repeated(times, step)
    for _ in range(times):
        x = step(x)
    return x
