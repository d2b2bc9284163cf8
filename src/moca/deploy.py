"""Runs an exported policy with NumPy alone.

    policy = Policy.load("policy.npz")
    policy.reset()  # at the start of every episode
    action = policy(observation)  # to be held for policy.action_repeat steps of the environment

Nothing else of this package is imported, so this file can be copied to wherever a policy is to run. It computes in
double precision what the agent computes in single precision.

A file may come from anywhere: it is checked, sizes first, before anything is made of it, and none makes code run. An
observation may be bad: NaN is a missing value, which a filter does without; anything else that cannot be a measurement
is a `ValueError`, and the policy stays as it was.
"""

import difflib
import json
import math
import os
import reprlib
import stat
import warnings
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

FORMAT = 1
PRETRAINED = Path(__file__).parent / "policies"
LIMIT = 1e6  # no observation, and no number of a policy, is greater: squares of what is fit well into float32
LARGEST = 2**28  # bytes of numbers in a policy
SLACK = 2**20  # bytes that a file may have besides its numbers
KINDS = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64")

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

    `facts` is what the file says of its origin: agent, task, seed, noise. `missing` counts the values that were missing
    in observations so far, over all episodes.
    """

    def __init__(self, facts: dict[str, Any], arrays: Arrays) -> None:
        _check_facts(facts)
        left = {name: _numbers(name, array) for name, array in arrays.items()}
        if (size := sum(array.nbytes for array in left.values())) > 2 * LARGEST:
            raise ValueError(f"it has {size:,} bytes of numbers in double precision, and may have {2 * LARGEST:,}")
        self.facts = facts
        self.action_low, self.action_high = _bounds(left)
        greedy = _Actor if facts["kind"] == "actor" else _Quadratic
        self._greedy: Callable[[np.ndarray], np.ndarray] = greedy(facts, left, len(self.action_low))
        self._filter = _Filter(facts, left, len(self.action_low)) if facts["filter"] else None
        if left:
            raise ValueError(f"it has arrays that nothing uses: {reprlib.repr(sorted(left))}")
        self._last: tuple[Any, np.ndarray] | None = None  # belief, if there is a filter, and action
        self.missing = 0
        for _ in range(2):  # a first observation and one that follows: whatever does not work is found now
            self(np.zeros(facts["observation_size"]))
        self.reset()

    @classmethod
    def load(cls, path: Path | str) -> "Policy":
        """The policy in a file that `moca export` wrote; a `ValueError` says what is wrong with any other."""
        try:
            arrays = read_arrays(path)
            facts = _facts(arrays.pop("header", None))
            if type(facts.get("format")) is not int or facts["format"] != FORMAT:
                raise ValueError(
                    f"it has format {reprlib.repr(facts.get('format'))}, but this version of moca reads format "
                    f"{FORMAT}: export it again with this version, or use the version that wrote it"
                )
            return cls(facts, arrays)
        except FileNotFoundError:
            raise ValueError(f"there is no file {path}") from None
        except ValueError as error:
            raise ValueError(f"{path} is no exported policy, as moca export DIR writes one: {error}") from None

    @property
    def action_repeat(self) -> int:
        """For how many steps of the environment each action is to be held."""
        return self.facts["action_repeat"]

    def reset(self) -> None:
        """Forgets what was observed; the next observation is the first of an episode."""
        self._last = None

    def __call__(self, observation: Any) -> np.ndarray:
        """The action after one more observation, in the environment's bounds; it is assumed to be taken.

        With a filter, NaN is a missing value: the belief is not corrected there, and `missing` counts it. The first
        observation of an episode has to be whole, and so has the next after so many gaps that the belief is lost.

        Raises:
            ValueError: if a value is missing that is needed, or is none that can have been measured (beyond ±`LIMIT`).
                The policy stays as it was.
        """
        measured = checked("an observation", observation, self.facts["observation_size"], gaps=self._filter is not None)
        if measured.ndim != 1:
            raise ValueError(f"a policy follows one episode, but got observations of shape {measured.shape}: use act")
        belief = self._believed(self._filter, measured) if self._filter else None
        action = self._act(measured if belief is None else belief[0])
        self._last = (belief, action)
        self.missing += int(np.isnan(measured).sum())
        return action.copy()

    def act(self, observations: Any) -> np.ndarray:
        """The actions at these observations, (obs,) or (n, obs), each taken for the state; no filter."""
        return self._act(checked("an observation", observations, self.facts["observation_size"]))

    def _believed(self, filter_: "_Filter", measured: np.ndarray) -> Belief:
        """The belief with one more observation in it."""
        if self._last is not None:
            before, action = self._last
            taken = 2 * (action - self.action_low) / (self.action_high - self.action_low) - 1
            with np.errstate(all="ignore"):
                belief = filter_.follow(before, taken, measured)
            if sane(*belief):
                return belief
        if np.isnan(measured).any():
            raise ValueError(NOTHING_TO_GO_ON)
        return filter_.start(measured)

    def _act(self, states: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            inside = self._greedy(states.reshape(-1, states.shape[-1]))
        if not np.isfinite(inside).all():
            raise ValueError("the policy has no action here: its numbers overflow")
        action = self.action_low + (inside + 1) / 2 * (self.action_high - self.action_low)
        action = np.clip(action, self.action_low, self.action_high).astype(np.float32)
        return action.reshape(*states.shape[:-1], len(self.action_low))


NOTHING_TO_GO_ON = (
    "an observation with missing values needs a belief to go on from: the first of an episode has to be whole, and so "
    "has the next after so many gaps that the belief is lost"
)


def checked(what: str, numbers: Any, size: int, gaps: bool = False) -> np.ndarray:
    """`numbers` as an array of `size` along its last axis; raises where they cannot be measurements.

    Args:
        what: they are, in a sentence.
        numbers: anything.
        size: how many.
        gaps: whether NaN may stand for a missing one.
    """
    try:
        array = np.asarray(numbers)
        if array.dtype.kind in "OSUMmc":
            raise ValueError
        with np.errstate(over="ignore"):
            array = array.astype(np.float64)
    except (ValueError, TypeError):
        raise ValueError(f"{what} is made of real numbers, but got {reprlib.repr(numbers)}") from None
    if array.ndim < 1 or array.shape[-1] != size:
        raise ValueError(f"{what} has {size} numbers, but got an array of shape {array.shape}")
    if not gaps and np.isnan(array).any():
        raise ValueError(f"{what} is not a number in some place, and there is no filter that could do without it")
    if (np.abs(array) > LIMIT).any():
        raise ValueError(f"{what} has {array[np.abs(array) > LIMIT][0]:g}: no measurement lies beyond ±{LIMIT:g}")
    return array


def sane(mean: np.ndarray, covariance: np.ndarray) -> bool:
    """Whether a belief is one: its numbers are finite, and within what could be observed."""
    return bool((np.abs(mean) <= LIMIT).all() and (np.abs(covariance) <= LIMIT**2).all())


# Files


def opened(path: Path | str) -> BinaryIO:
    """The file for reading; a `ValueError` where it is something else, such as a pipe, which might never end."""
    wait_for_nobody = getattr(os, "O_NONBLOCK", 0)
    try:
        file = open(Path(path), "rb", opener=lambda name, flags: os.open(name, flags | wait_for_nobody))  # noqa: SIM115
    except TypeError:
        raise ValueError(f"{path!r} is no path") from None
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise ValueError("it is no regular file")
    return file


def read_arrays(path: Path | str, most: int = LARGEST) -> dict[str, np.ndarray]:
    """The arrays of an .npz file that may come from anywhere.

    Before any is read, what the file says of their sizes must add up, to `most` bytes at most.

    Raises:
        FileNotFoundError: if there is none.
        ValueError: if they are no arrays of numbers; it says why, but not which file.
    """
    try:
        with warnings.catch_warnings(), opened(path) as file:
            warnings.simplefilter("error")  # NumPy's, about formats that are none of ours
            if (size := os.fstat(file.fileno()).st_size) > most + SLACK:
                raise ValueError(f"it has {size:,} bytes, and may have {most + SLACK:,}")
            with zipfile.ZipFile(file) as archive:
                return _members(archive, most)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ValueError(error.strerror or str(error)) from None
    except MemoryError:
        raise ValueError("it does not fit into memory") from None
    except Exception as error:  # the decoders of a zip and of NumPy's headers raise what they like
        text = " ".join(str(error).split())
        raise ValueError(text if isinstance(error, ValueError) else f"it is damaged ({text})") from None


def _members(archive: zipfile.ZipFile, most: int) -> dict[str, np.ndarray]:
    infos = archive.infolist()
    names = [info.filename.removesuffix(".npy") for info in infos]
    if len(set(names)) < len(names):
        raise ValueError("it has two arrays of one name")
    headers = [_header(archive, info) for info in infos]
    if (total := sum(math.prod(shape) * dtype.itemsize for shape, dtype, _, _ in headers)) > most:
        raise ValueError(f"it claims to hold {total:,} bytes of numbers, and may hold {most:,}")
    arrays = {}
    for name, info, (shape, dtype, in_columns, start) in zip(names, infos, headers, strict=True):
        with archive.open(info) as member:
            array = np.frombuffer(member.read(info.file_size), dtype, math.prod(shape), start)
        arrays[name] = array.reshape(shape[::-1]).T if in_columns else array.reshape(shape)
    return arrays


def _header(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> tuple[tuple[int, ...], np.dtype, bool, int]:
    """Shape, dtype, whether the first axis is the fastest, and where the numbers start."""
    name = reprlib.repr(info.filename)
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or info.flag_bits & 1:
        raise ValueError(f"{name} is encrypted, or compressed in a way that NumPy does not")
    with archive.open(info) as member:
        version = np.lib.format.read_magic(member)
        if version not in ((1, 0), (2, 0)):
            raise ValueError(f"{name} has version {version} of NumPy's format")
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, in_columns, dtype = read(member)
        start = member.tell()
    if dtype.name not in KINDS or not dtype.isnative:
        raise ValueError(f"{name} holds {reprlib.repr(str(dtype))}, not plain numbers")
    if min(shape, default=0) < 0 or info.file_size != start + math.prod(shape) * dtype.itemsize:
        raise ValueError(f"{name} is not as long as its shape {reprlib.repr(shape)} says")
    return shape, dtype, in_columns, start


def _facts(header: np.ndarray | None) -> dict[str, Any]:
    """What the header of a file says."""
    if header is None or header.dtype != np.uint8 or header.ndim != 1 or header.size > SLACK:
        raise ValueError("it has no header")
    try:
        facts = json.loads(header.tobytes(), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"its header cannot be read ({reprlib.repr(str(error))})") from None
    if not isinstance(facts, dict):
        raise ValueError("its header is no table")
    return facts


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(table := dict(pairs)) < len(pairs):
        raise ValueError("a name stands there twice")
    return table


Rule = tuple[Callable[[Any], bool], str]  # whether a fact can be, and what it can be in words


def _among(*words: str) -> Rule:
    return lambda value: type(value) is str and value in words, f"one of {', '.join(words)}"


def _whole(most: int) -> Rule:
    return lambda value: type(value) is int and 1 <= value <= most, f"a whole number from 1 to {most:,}"


def _a(kind: type, words: str) -> Rule:
    return lambda value: type(value) is kind, words


def _number(value: Any, low: float, high: float) -> bool:
    return type(value) in (int, float) and low <= value <= high


def _range(value: Any) -> bool:
    return type(value) is list and len(value) == 2 and all(_number(each, -100, 100) for each in value)


_TRUTH, _WORD = _a(bool, "true or false"), _a(str, "a word")


def _rules(facts: Mapping[str, Any]) -> dict[str, Rule]:
    """Those for all that must be said of a policy of this kind."""
    rules = {
        "kind": _among("actor", "quadratic"),
        "observation_size": _whole(10_000),
        "action_repeat": _whole(10_000),
        "filter": _TRUTH,
    }
    if facts.get("kind") == "quadratic":
        rules |= {"head": _among("vertex", "slope", "tanh"), "full": _TRUTH}
    if facts.get("filter") is True:
        rules |= {
            "full_covariance": _TRUTH,
            "log_variance": (lambda value: _range(value) and value[0] < value[1], "two numbers within ±100 that rise"),
            "raised": (lambda value: _number(value, 0, 1), "a number from 0 to 1"),
        }
    return rules


_ORIGIN: dict[str, Rule] = {  # what may be said beside
    "env": _WORD, "agent": _WORD, "version": _WORD, "seed": _a(int, "a whole number"), "noise": _a(dict, "a table"),
}  # fmt: skip


def _check_facts(facts: Mapping[str, Any]) -> None:
    rules = _rules(facts)
    for name in rules:
        if name not in facts:
            raise ValueError(f"it does not say its {name}")
    for name, (allowed, words) in (rules | _ORIGIN | {"activation": _among(*ACTIVATIONS)}).items():
        if name in facts and not allowed(facts[name]):
            raise ValueError(f"its {name} is {reprlib.repr(facts[name])}, not {words}")


def _numbers(name: str, array: Any) -> np.ndarray:
    """In double precision, if all are finite and no greater than `LIMIT`."""
    array = np.asarray(array)
    if array.dtype.name not in ("float32", "float64"):
        raise ValueError(f"{reprlib.repr(name)} holds {array.dtype}, not float32 or float64")
    if not (np.abs(array) <= LIMIT).all():
        raise ValueError(f"{reprlib.repr(name)} holds a number that is not finite, or beyond ±{LIMIT:g}")
    return array.astype(np.float64)


def _take(arrays: dict[str, np.ndarray], name: str, *shape: int) -> np.ndarray:
    """The array of that name and shape, no longer among the others."""
    if name not in arrays:
        raise ValueError(f"it has no {name}")
    if (array := arrays.pop(name)).shape != shape:
        raise ValueError(f"{name} has the shape {array.shape}, where {shape} fits")
    return array


def _bounds(arrays: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The least and the greatest action."""
    size = arrays["action_low"].size if "action_low" in arrays else 0
    low, high = (_take(arrays, name, size) for name in ("action_low", "action_high"))
    if not 1 <= size <= 1000 or not (low.astype(np.float32) < high.astype(np.float32)).all():
        raise ValueError("action_low must lie below action_high, in one to a thousand dimensions")
    return low, high


# What they compute


class _Network:
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
            weights = _take(arrays, weight, *shape)
            self.layers.append((weights, _take(arrays, f"{name}.bias{len(self.layers)}", *shape[:-1])))
            self.outputs = shape[-2]
        if not self.layers or not self.outputs or self.outputs != (outputs or self.outputs):
            raise ValueError(f"{name} has {len(self.layers)} layers that end in {self.outputs}, not {outputs}, numbers")
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

    def __init__(self, facts: dict[str, Any], arrays: dict[str, np.ndarray], actions: int) -> None:
        self.actor = _Network("actor", arrays, _relu, facts["observation_size"], 2 * actions)

    def __call__(self, states: np.ndarray) -> np.ndarray:
        return np.tanh(np.split(self.actor(states), 2, axis=-1)[0])


class _Quadratic:
    """The paper's agents: the best action of a quadratic within [−1, 1]."""

    def __init__(self, facts: dict[str, Any], arrays: dict[str, np.ndarray], actions: int) -> None:
        self.head, self.full = facts["head"], facts["full"]
        self.trunk = _Network("trunk", arrays, _relu, facts["observation_size"])
        self.vertex = _Network("vertex", arrays, _relu, self.trunk.outputs, actions)
        below = actions * (actions - 1) // 2 if self.full else 0
        self.cholesky = _Network("cholesky", arrays, _relu, self.trunk.outputs, actions + below)
        floor = _take(arrays, "floor")
        if floor < 0:
            raise ValueError(f"floor is {floor}, and must not be negative")
        self.least = np.sqrt(floor)

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

    def __init__(self, facts: dict[str, Any], arrays: dict[str, np.ndarray], actions: int) -> None:
        size = facts["observation_size"]
        members = len(first) if (first := arrays.get("ensemble.weight0", np.array(()))).ndim else 0
        self.full, self.raised = facts["full_covariance"], facts["raised"]
        below = size * (size - 1) // 2 if self.full else 0
        activation = ACTIVATIONS[facts.get("activation", "silu")]
        self.members = _Network("ensemble", arrays, activation, size + actions, 2 * size + below, (members,))
        widest = max(weight.shape[1] for weight, _ in self.members.layers)
        if not 0 < 8 * members * size * max(size, widest) <= LARGEST:  # bytes of a derivative, or of covariances
            raise ValueError(f"a filter of {members} networks, {widest} wide, over {size} dimensions is too large")
        self.mean, self.deviation = (  # of s; of its change
            _take(arrays, f"statistics.{name}", 2, size) for name in ("mean", "deviation")
        )
        if not (self.deviation > 0).all():
            raise ValueError("statistics.deviation must be above 0")
        low, high = facts["log_variance"]
        self.middle, self.reach = (low + high) / 2, (high - low) / 2
        self.variance: np.ndarray | None = None
        if "noise.variance" in arrays:
            self.variance = _take(arrays, "noise.variance", size)
            if not (self.variance >= 0).all():
                raise ValueError("noise.variance must not be negative")
            return
        self.range, self.inverse = _take(arrays, "noise.range", 2), _take(arrays, "noise.inverse_scales", size)
        if not 0 <= self.range[0] <= self.range[1] or (self.inverse < 0).any() or not self.inverse.any():
            raise ValueError("noise.range must rise from 0 or more, and noise.inverse_scales must not be negative")

    def start(self, measured: np.ndarray) -> Belief:
        """The belief after the first observation."""
        return measured, np.diag(self._noise(measured))

    def follow(self, belief: Belief, action: np.ndarray, measured: np.ndarray) -> Belief:
        """The belief after an action in [−1, 1] and the observation that followed, as far as that is not NaN."""
        mean, covariance = self._predicted(belief, action)
        noise = self._noise(mean)
        covariance = covariance + np.diag(np.diagonal(covariance)) * self.raised
        for j in np.flatnonzero(~np.isnan(measured)):
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
        if self.variance is not None:
            return self.variance
        low, high = self.range
        norm = np.linalg.norm(s * self.inverse) / np.sqrt(np.sum(self.inverse > 0))
        return np.full(len(s), (low + (high - low) * np.clip(norm, 0, 1)) ** 2)
