"""Faults and notes with suggested fixes; exceptions and values as short texts."""

import dataclasses
import re
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from jax import errors

from moca.config import ConfigError

Severity = Literal["fault", "note"]

# Suggested fixes by kind. For kinds not listed here, the fix is given where the fault is found.
FIXES = {
    # attributes
    "gymnasium": "pass a function that creates one, as in Gymnasium(lambda: …) of moca.envs.gymnasium, or a name such "
    "as 'gymnasium:Pendulum-v1'",
    "missing": "add it to the environment",
    "observation-size": "make it a positive int",
    "terminates": "make it True or False",
    "infinite-bounds": "give the range of the actions",
    "empty-bounds": "swap them, or remove fixed dimensions",
    "action-size": "derive the environment from moca.envs.environment.Environment, which sets it",
    # tracing by JAX
    "python-branch": "use jnp.where or jax.lax.cond",
    "numpy-call": "use jax.numpy (jnp) instead",
    "boolean-index": "use jnp.where(mask, ...), which keeps the shape",
    "python-number": "keep it an array (no float(), int(), .item()), and loop with jax.lax",
    "stored-tracer": "keep it in the state",
    "self-mutation": "keep changing values in the state",
    "in-place": "use x = x.at[i].set(value)",
    "mutates-state": "build a new one, with {**state, ...} or state._replace(...)",
    "float64": "use jnp.float32",
    "impure": "draw with jax.random from a key kept in the state",
    # results
    "reset-result": "return the pair (state, observation)",
    "step-result": "return the pair (state, Step(observation, reward, terminated)), with the Step of "
    "moca.envs.environment",
    "state-leaf": "store it on self if it never changes, or make its class an equinox.Module of arrays",
    "state-structure": "return the same structure from reset() and step()",
    "state-shape": "keep its shape, with jnp.squeeze or an index if an axis was added",
    # numbers
    "scan": "keep the structure of states, without side effects",
    "vmap": "use functions that jax.vmap supports, and give callbacks a vmap_method",
    "eager": "use only jax.numpy arrays",
    "jit-differs": "do not depend on whether a value is traced, nor on globals",
    "reset-not-finite": "guard divisions and roots",
    "scale": "rescale it to about one, as networks expect",
    "same-start": "draw the first state with the key, or set env.random_start, unless a fixed start is intended",
    "undeclared-end": "set terminates to True, or leave time limits to the loop",
    "never-ends": "set it to False if no episode can end, which saves resets",
    "auto-reset": "return the last observation, and leave the restart to the loop",
    "ignores-action": "use it, or remove it from the bounds",
    "flat-bounds": "if step() clips actions, use its limits as bounds",
}
# The same for environments on the host.
ON_HOST = {
    "raises": "fix the error",
    "reset-signature": "define it as reset(self, *, seed=None, options=None)",
    "reset-items": "return both; info may be {}",
    "step-items": "return all five; the done of older Gym versions is now terminated and truncated",
    "info-type": "return a dictionary, such as {}",
    "observation-type": "return an array of numbers, np.array(…, np.float32)",
    "observation-shape": "make the two match: squeeze or concatenate the observation, or change observation_space",
    "observation-dtype": "return it as observation.astype(self.observation_space.dtype), or change the space's dtype",
    "observation-range": "widen observation_space, with np.inf where there is no bound, or clip the observation; "
    "training works either way",
    "observation-not-finite": "guard divisions, roots and logarithms, bound what grows (np.clip), or end the episode "
    "earlier; if NaN marks missing values, set sensor.gaps=true (a first observation must be whole)",
    "reward-not-finite": "guard divisions, roots and logarithms, bound what grows (np.clip), or end the episode "
    "earlier",
    "reward-type": "return one number, such as float(reward) or float(np.sum(reward))",
    "terminated-type": "return True or False, such as bool(…)",
    "truncated-type": "return True or False, such as bool(…)",
    "aliased": "return a copy, such as self.state.copy(); training copies observations, but "
    "other code that stores them would see them change",
    "ignores-seed": "call super().reset(seed=seed) and draw from self.np_random; otherwise a run can be neither "
    "repeated nor resumed exactly",
    "unrepeatable": "draw from self.np_random, not from np.random or random, and set everything that changes in reset()"
    "; otherwise a run can be neither repeated nor resumed exactly",
    "untried": "give it a method single() that returns one environment with Gymnasium's reset and step",
    "same-start": "draw the first state from self.np_random, or for Playground's tasks set env.random_start, unless a "
    "fixed start is intended",
}
_EXPLAINED: list[tuple[Any, str, str]] = [
    (errors.TracerBoolConversionError, "python-branch", "branches in Python on a traced value"),
    (errors.TracerArrayConversionError, "numpy-call", "passes a traced value to NumPy"),
    (errors.NonConcreteBooleanIndexError, "boolean-index", "selects entries by a traced mask"),
    (errors.ConcretizationTypeError, "python-number", "converts a traced value to a Python number"),
    (errors.TracerIntegerConversionError, "python-number", "converts a traced value to a Python number"),
    (
        errors.UnexpectedTracerError,
        "stored-tracer",
        "uses a traced value that an earlier call stored on self or in a global",
    ),
    (dataclasses.FrozenInstanceError, "self-mutation", "changes an attribute of the environment"),
]


class SpacesError(ConfigError):
    """An environment with spaces that agents do not support."""


@dataclass(frozen=True)
class Fault:
    """A fault, or a note on something unusual; the message says what is wrong and how to fix it."""

    kind: str
    message: str
    severity: Severity = "fault"

    def __str__(self) -> str:
        return f"{self.severity}: {self.message} [{self.kind}]"


class Findings(list[Fault]):
    """Faults and notes in the order found.

    With `gaps`, NaN in an observation of a step is a missing value and no fault: see `sensor.gaps`.
    """

    def __init__(self, gaps: bool = False) -> None:
        super().__init__()
        self.gaps = gaps

    def fault(self, kind: str, what: str, fix: str = "", severity: Severity = "fault") -> None:
        """Adds a fault, with the fix of its kind and `fix`."""
        self.append(Fault(kind, f"{what}; {FIXES.get(kind, '')}{fix}", severity))

    def once(self, kind: str, what: str, severity: Severity = "fault") -> None:
        """Adds a fault or note of an environment on the host, unless there is one of its kind."""
        if not any(fault.kind == kind for fault in self.of(severity)):
            self.append(Fault(kind, f"{what}; {ON_HOST[kind]}", severity))

    def note(self, kind: str, what: str, fix: str = "") -> None:
        """Adds a note, which does not make the environment invalid."""
        self.fault(kind, what, fix, "note")

    def raised(self, where: str, error: Exception) -> None:
        """Adds the fault that corresponds to an exception of the environment."""
        where += line_of(error)
        for error_type, kind, words in _EXPLAINED:
            if isinstance(error, error_type):
                return self.fault(kind, f"{where} {words}")
        if isinstance(error, TypeError) and "item assignment" in str(error):
            return self.fault("in-place", f"{where} assigns into an array")
        return self.fault("raises", f"{where} raises {said(error)}", "fix it, and try the function inside jax.jit")

    def of(self, severity: Severity) -> list[Fault]:
        """Returns those of one severity."""
        return [fault for fault in self if fault.severity == severity]

    def refuse(self, what: str) -> None:
        """Raises a `ConfigError` that lists the faults, if there are any."""
        if faults := self.of("fault"):
            raise ConfigError("\n".join([f"{what}:", *(f"- {fault.message}" for fault in faults)]))


def _not_theirs() -> list[Path]:
    """Returns the folders of code that is not the environment's own."""
    packages = [sys.modules[name] for name in ("jax", "equinox", "numpy", "gymnasium") if name in sys.modules]
    ours = Path(__file__).parents[1]
    return [ours / "check", ours / "gymnasium.py", *(Path(str(module.__file__)).parent for module in packages)]


def line_of(error: Exception) -> str:
    """Returns the place in the environment's code where an exception was raised, if known."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if not frame.filename.startswith("<frozen") and not any(map(path.is_relative_to, _not_theirs())):
            return f" (line {frame.lineno} of {path.name})"
    return ""


def said(error: Exception) -> str:
    """Returns an exception as one line."""
    text = next((line for line in _text(str, error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {_cut(text)}" if text else type(error).__name__


def short(value: Any) -> str:
    """Returns a short text for any value; arrays as in float32[2, 3]."""
    return _cut(re.sub(r"ShapeDtypeStruct\(shape=\((.*?),?\), dtype=(\w+).*?\)", r"\2[\1]", _text(repr, value)))


def _text(function: Callable[[Any], str], value: Any) -> str:
    try:
        return function(value)
    except Exception:  # a broken object may also have a broken repr
        return f"a {type(value).__name__}"


def _cut(text: str) -> str:
    """Cuts a text to one line of at most a hundred characters."""
    text = " ".join(text.split())
    return text if len(text) <= 100 else text[:97] + "..."
