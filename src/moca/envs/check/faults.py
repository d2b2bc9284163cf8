"""Faults and notes with suggested fixes; exceptions and values as short texts."""

import dataclasses
import re
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import equinox as eqx
import jax
import numpy as np
from jax import errors

from moca.config import ConfigError

Severity = Literal["fault", "note"]

# Suggested fixes by kind. For kinds not listed here, the fix is given where the fault is found.
FIXES = {
    "unchecked": "fix the other faults first",
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
    "same-start": "draw the first state with the key, unless a fixed start is intended",
    "undeclared-end": "set terminates to True, or leave time limits to the loop",
    "never-ends": "set it to False if no episode can end, which saves resets",
    "auto-reset": "return the last observation, and leave the restart to the loop",
    "ignores-action": "use it, or remove it from the bounds",
    "flat-bounds": "if step() clips actions, use its limits as bounds",
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
_NOT_THEIRS = [Path(__file__).parent, *(Path(str(module.__file__)).parent for module in (jax, eqx, np))]


@dataclass(frozen=True)
class Fault:
    """A fault, or a note on something unusual; the message says what is wrong and how to fix it."""

    kind: str
    message: str
    severity: Severity = "fault"

    def __str__(self) -> str:
        return f"{self.severity}: {self.message} [{self.kind}]"


class Findings(list[Fault]):
    """Faults and notes in the order found."""

    def fault(self, kind: str, what: str, fix: str = "", severity: Severity = "fault") -> None:
        """Adds a fault, with the fix of its kind and `fix`."""
        self.append(Fault(kind, f"{what}; {FIXES.get(kind, '')}{fix}", severity))

    def note(self, kind: str, what: str, fix: str = "") -> None:
        """Adds a note, which does not make the environment invalid."""
        self.fault(kind, what, fix, "note")

    def raised(self, where: str, error: Exception) -> None:
        """Adds the fault that corresponds to an exception of the environment."""
        where += _line(error)
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


def _line(error: Exception) -> str:
    """Returns the place in the environment's code where an exception was raised, if known."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if not frame.filename.startswith("<frozen") and not any(map(path.is_relative_to, _NOT_THEIRS)):
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
