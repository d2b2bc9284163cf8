"""Runs an exported policy with NumPy alone.

    policy = Policy.load("exported.npz")
    policy.reset()  # at the start of every episode
    action = policy(observation)  # hold it for policy.action_repeat steps

Nothing else of this package is imported, so this folder can be copied to wherever a policy is to run. It computes in
double precision what the agent computes in single precision.

A file may come from anywhere: it is checked, sizes first, before anything is made of it, and none makes code run. An
observation may be bad: NaN is a missing value, which a filter does without; anything else that cannot be a measurement
is a `ValueError`, and the policy stays as it was.
"""

import difflib
import reprlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .checks import NOTHING_TO_GO_ON, bounds, check_facts, checked, numbers, sane
from .files import LARGEST, read_arrays, read_facts
from .filter import Belief, Filter
from .greedy import Actor, Quadratic

FORMAT = 1
PRETRAINED = Path(__file__).parent.parent / "policies"


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

    def __init__(self, facts: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        check_facts(facts)
        left = {name: numbers(name, array) for name, array in arrays.items()}
        if (size := sum(array.nbytes for array in left.values())) > 2 * LARGEST:
            raise ValueError(f"it has {size:,} bytes of numbers in double precision, and may have {2 * LARGEST:,}")
        self.facts = facts
        self.action_low, self.action_high = bounds(left)
        greedy = Actor if facts["kind"] == "actor" else Quadratic
        self._greedy: Callable[[np.ndarray], np.ndarray] = greedy(facts, left, len(self.action_low))
        self._filter = Filter(facts, left, len(self.action_low)) if facts["filter"] else None
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
            raise ValueError(f"{path} is no exported policy, as moca export DIR writes one: {error}") from None

    def __repr__(self) -> str:
        facts, count = self.facts, len(self.action_low)
        return (
            f"Policy({facts.get('agent', 'an agent')} on {facts.get('env', 'an environment')}: "
            f"{facts['observation_size']} numbers observed, {count} action{'s' * (count > 1)}, "
            f"{'a' if self._filter else 'no'} filter)"
        )

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

    def _believed(self, filter_: Filter, measured: np.ndarray) -> Belief:
        """The belief with one more observation in it."""
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
            raise ValueError("the policy has no action here: its numbers overflow")
        return self._in_bounds(inside).reshape(*states.shape[:-1], len(self.action_low))

    def _in_bounds(self, inside: np.ndarray) -> np.ndarray:
        """Actions in [−1, 1] as those of the environment."""
        action = self.action_low + (inside + 1) / 2 * (self.action_high - self.action_low)
        return np.clip(action, self.action_low, self.action_high).astype(np.float32)

    def _inside(self, action: np.ndarray) -> np.ndarray:
        """Actions of the environment as those in [−1, 1]."""
        return 2 * (action - self.action_low) / (self.action_high - self.action_low) - 1

    def to_onnx(self, path: Path | str) -> Path:
        """Writes the policy, its filter included, as an ONNX model; needs `onnx`. See `moca.deploy.graph`."""
        from .graph import write

        return write(self, path)
