"""Runs an exported policy with NumPy alone.

    policy = Policy.load("exported.npz")
    policy.reset()  # at the start of every episode
    action = policy(observation)  # hold it for policy.action_repeat steps

No other part of this package is imported, so this folder can be copied to the machine that runs the
policy. It computes in double precision what the agent computes in single precision.

Files need not be trusted: they are checked, sizes first, before they are used, and cannot execute
code. Observations may be bad: NaN marks a missing value, which a filter can handle. Any other value
that cannot be a measurement raises a `ValueError`, and the policy's belief does not change.
"""

import difflib
import reprlib
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from .checks import NOTHING_TO_GO_ON, bounds, check_facts, checked, numbers, sane
from .files import LARGEST, read_arrays, read_facts
from .filter import Filter, MeanAndCovariance
from .greedy import Actor, QuadraticActor

FORMAT = 1
_PACKAGE = Path(__file__).parent.parent
# The zoo: two of its policies come with the package. The others are in an installed `moca_zoo`, or
# in the folder `zoo` of a clone.
FOLDERS = (
    _PACKAGE / "policies",
    *(Path(folder) for folder in getattr(find_spec("moca_zoo"), "submodule_search_locations", None) or ()),
    _PACKAGE.parent.parent / "zoo",
)


def trained() -> dict[str, Path]:
    """Returns the files of the trained policies at hand, by name."""
    found = {path.stem: path for folder in reversed(FOLDERS) for path in folder.glob("*.npz")}
    return dict(sorted(found.items()))


def lacking() -> str:
    """Returns how to install the zoo's other policies; an empty string if they are at hand."""
    if any(folder.is_dir() for folder in FOLDERS[1:]):
        return ""
    return "The other policies of the zoo are not installed: in a clone of MoCA, pip install ./zoo"


def pretrained(name: str) -> "Policy":
    """Returns a trained policy of the zoo, which `moca zoo` lists.

    `CartpoleBalance` and `PendulumSwingup` are included in the package.
    """
    if name not in (paths := trained()):
        match = difflib.get_close_matches(name, paths, n=1, cutoff=0.5)
        hint = f" Did you mean {match[0]}?" if match else ""
        known = f"Available: {', '.join(paths)}. {lacking()}".rstrip(". ")
        raise ValueError(f"there is no trained policy for {name!r}.{hint} {known}")
    return Policy.load(paths[name])


class Policy:
    """A greedy policy, with the filter over the state it was trained with, if any.

    `facts` holds the file's statements about its origin: agent, task, seed, step, noise. `missing`
    counts the missing values in observations so far, over all episodes.
    """

    def __init__(self, facts: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        check_facts(facts)
        left = {name: numbers(name, array) for name, array in arrays.items()}
        if (size := sum(array.nbytes for array in left.values())) > 2 * LARGEST:
            raise ValueError(f"it has {size:,} bytes in double precision, at most {2 * LARGEST:,} are allowed")
        self.facts = facts
        self.action_low, self.action_high = bounds(left)
        greedy = Actor if facts["kind"] == "actor" else QuadraticActor
        self._greedy: Callable[[np.ndarray], np.ndarray] = greedy(facts, left, len(self.action_low))
        self._filter = Filter(facts, left, len(self.action_low)) if facts["filter"] else None
        if left:
            raise ValueError(f"it has unknown arrays: {reprlib.repr(sorted(left))}")
        self._last: tuple[Any, np.ndarray] | None = None  # the belief, if there is a filter, and the action
        self.missing = 0
        for _ in range(2):  # a first observation and a second one, to find errors now
            self(np.zeros(facts["observation_size"]))
        self.reset()

    @classmethod
    def load(cls, path: Path | str) -> "Policy":
        """Loads a policy that `moca export` wrote; raises `ValueError` if the file is invalid."""
        try:
            arrays = read_arrays(path)
            facts = read_facts(arrays.pop("header", None))
            if type(facts.get("format")) is not int or facts["format"] != FORMAT:
                raise ValueError(
                    f"it has format {reprlib.repr(facts.get('format'))}, but this version of moca reads format "
                    f"{FORMAT}: export it again with this version, or use the version that wrote it"
                )
            return cls(facts, arrays)
        except FileNotFoundError:
            raise ValueError(f"there is no file {path}") from None
        except ValueError as error:
            raise ValueError(f"{path} is not a policy exported by moca export DIR: {error}") from None

    def __repr__(self) -> str:
        facts, count = self.facts, len(self.action_low)
        return (
            f"Policy({facts.get('agent', 'an agent')} on {facts.get('env', 'an environment')}: "
            f"{facts['observation_size']} numbers observed, {count} action{'s' * (count > 1)}, "
            f"{'a' if self._filter else 'no'} filter)"
        )

    @property
    def action_repeat(self) -> int:
        """The number of environment steps for which each action is to be held."""
        return self.facts["action_repeat"]

    def reset(self) -> None:
        """Forgets all observations; the next one is the first of an episode."""
        self._last = None

    def __call__(self, observation: Any) -> np.ndarray:
        """Returns the action after one more observation, within the bounds.

        It is assumed to be executed.

        With a filter, NaN marks a missing value: it does not correct the belief, and `missing`
        counts it. The first observation of an episode must be complete, and so must the next one
        after the belief has been lost to too many missing values.

        Raises:
            ValueError: If a needed value is missing, or a value cannot be a measurement (beyond
                ±`LIMIT`). The policy's belief does not change.
        """
        measured = checked("an observation", observation, self.facts["observation_size"], gaps=self._filter is not None)
        if measured.ndim != 1:
            raise ValueError(f"expected one observation, got an array of shape {measured.shape}: use `act` for a batch")
        belief = self._believed(self._filter, measured) if self._filter else None
        action = self._act(measured if belief is None else belief[0])
        self._last = (belief, action)
        self.missing += int(np.isnan(measured).sum())
        return action.copy()

    def act(self, observations: Any) -> np.ndarray:
        """Returns the actions for observations, (obs,) or (n, obs), without the filter."""
        return self._act(checked("an observation", observations, self.facts["observation_size"]))

    def _believed(self, filter_: Filter, measured: np.ndarray) -> MeanAndCovariance:
        """Returns the belief after one more observation."""
        if self._last is not None:
            before, action = self._last
            with np.errstate(all="ignore"):
                belief = filter_.follow(before, self._inside(action), measured)
            if sane(*belief):
                return belief
        if np.isnan(measured).any():
            raise ValueError(NOTHING_TO_GO_ON)
        return filter_.start(measured)

    def _act(self, states: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            inside = self._greedy(states.reshape(-1, states.shape[-1]))
        if not np.isfinite(inside).all():
            raise ValueError("the policy has no action for this observation: its computation overflows")
        return self._in_bounds(inside).reshape(*states.shape[:-1], len(self.action_low))

    def _in_bounds(self, inside: np.ndarray) -> np.ndarray:
        """Returns actions in [−1, 1] in the units of the environment."""
        action = self.action_low + (inside + 1) / 2 * (self.action_high - self.action_low)
        return np.clip(action, self.action_low, self.action_high).astype(np.float32)

    def _inside(self, action: np.ndarray) -> np.ndarray:
        """Actions of the environment as those in [−1, 1]."""
        return 2 * (action - self.action_low) / (self.action_high - self.action_low) - 1

    def to_onnx(self, path: Path | str) -> Path:
        """Writes the policy, including its filter, as an ONNX model (see `moca.deploy.graph`).

        Needs the package `onnx`.
        """
        from .graph import write

        return write(self, path)
