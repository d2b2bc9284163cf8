"""Faults and notes with how to mend them; exceptions and values in a few words."""

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

# How each kind is mended. A kind that is not here says so where it is found.
FIXES = {
    "unchecked": "mend what else was found first",
    # attributes
    "gymnasium": "pass a function that makes one, as by Gymnasium(lambda: …) of moca.envs.gymnasium, or a name such as "
    "'gymnasium:Pendulum-v1'",
    "missing": "give the environment one",
    "observation-size": "make it a positive int",
    "terminates": "make it True or False",
    "infinite-bounds": "give the range actions are to come from",
    "empty-bounds": "swap them, or drop fixed dimensions",
    "action-size": "derive the environment from moca.envs.environment.Environment, which counts them",
    # what the functions are to JAX
    "python-branch": "use jnp.where or jax.lax.cond",
    "numpy-call": "use jax.numpy (jnp) instead",
    "boolean-index": "use jnp.where(mask, ...), which keeps the shape",
    "python-number": "keep it an array (no float(), int(), .item()), and loop with jax.lax",
    "stored-tracer": "keep it in the state",
    "self-mutation": "keep what changes in the state",
    "in-place": "use x = x.at[i].set(value)",
    "mutates-state": "build a new one, as {**state, ...} or state._replace(...) do",
    "float64": "ask for jnp.float32",
    "impure": "draw with jax.random from a key kept in the state",
    # what they return
    "reset-result": "return the pair (state, observation)",
    "step-result": "return the pair (state, Step(observation, reward, terminated)), with the Step of "
    "moca.envs.environment",
    "state-leaf": "keep it on self if it never changes, or make its class an equinox.Module of arrays",
    "state-structure": "let reset() and step() return the same structure",
    "state-shape": "keep its shape, with jnp.squeeze or an index where an axis was added",
    # what the numbers do
    "scan": "let states keep their structure, without side effects",
    "vmap": "use functions that jax.vmap knows, and give callbacks a vmap_method",
    "eager": "use jax.numpy's arrays only",
    "jit-differs": "let nothing depend on whether a value is traced, nor on globals",
    "reset-not-finite": "guard its divisions and roots",
    "scale": "rescale it to about one, which networks expect",
    "same-start": "draw the first state with the key, unless one fixed start is meant",
    "undeclared-end": "set terminates to True, or leave time limits to the loop",
    "never-ends": "set it to False if none can, which saves resets",
    "auto-reset": "return the last one, and leave the restart to the loop",
    "ignores-action": "use it, or drop it from the bounds",
    "flat-bounds": "if step() clips actions, give its limits as bounds",
}
_EXPLAINED: list[tuple[Any, str, str]] = [
    (errors.TracerBoolConversionError, "python-branch", "branches in Python on a traced value"),
    (errors.TracerArrayConversionError, "numpy-call", "gives a traced value to NumPy"),
    (errors.NonConcreteBooleanIndexError, "boolean-index", "picks entries by a traced mask"),
    (errors.ConcretizationTypeError, "python-number", "makes a traced value a Python number"),
    (errors.TracerIntegerConversionError, "python-number", "makes a traced value a Python number"),
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
    """One thing that is wrong or, as a note, seldom meant; the message says what, and how to mend it."""

    kind: str
    message: str
    severity: Severity = "fault"

    def __str__(self) -> str:
        return f"{self.severity}: {self.message} [{self.kind}]"


class Findings(list[Fault]):
    """Faults and notes in the order in which they were found."""

    def fault(self, kind: str, what: str, fix: str = "", severity: Severity = "fault") -> None:
        """Adds one that is mended as its kind is, and by `fix`."""
        self.append(Fault(kind, f"{what}; {FIXES.get(kind, '')}{fix}", severity))

    def note(self, kind: str, what: str, fix: str = "") -> None:
        """Adds one that does not count."""
        self.fault(kind, what, fix, "note")

    def raised(self, where: str, error: Exception) -> None:
        """Adds the fault that an exception of the environment shows."""
        where += _line(error)
        for error_type, kind, words in _EXPLAINED:
            if isinstance(error, error_type):
                return self.fault(kind, f"{where} {words}")
        if isinstance(error, TypeError) and "item assignment" in str(error):
            return self.fault("in-place", f"{where} assigns into an array")
        return self.fault("raises", f"{where} raises {said(error)}", "mend it, and try the function inside jax.jit")

    def of(self, severity: Severity) -> list[Fault]:
        """Those of one severity."""
        return [fault for fault in self if fault.severity == severity]

    def refuse(self, what: str) -> None:
        """Raises a `ConfigError` that lists the faults, if there are any."""
        if faults := self.of("fault"):
            raise ConfigError("\n".join([f"{what}:", *(f"- {fault.message}" for fault in faults)]))


def _line(error: Exception) -> str:
    """The place in the environment's own code where an exception arose, if that can be told."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if not frame.filename.startswith("<frozen") and not any(map(path.is_relative_to, _NOT_THEIRS)):
            return f" (line {frame.lineno} of {path.name})"
    return ""


def said(error: Exception) -> str:
    """An exception in one line."""
    text = next((line for line in _text(str, error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {_cut(text)}" if text else type(error).__name__


def short(value: Any) -> str:
    """Any value in a few words, arrays as in float32[2, 3]."""
    return _cut(re.sub(r"ShapeDtypeStruct\(shape=\((.*?),?\), dtype=(\w+).*?\)", r"\2[\1]", _text(repr, value)))


def _text(function: Callable[[Any], str], value: Any) -> str:
    try:
        return function(value)
    except Exception:  # what is broken may not be able to say so
        return f"a {type(value).__name__}"


def _cut(text: str) -> str:
    """A text in at most a hundred characters of one line."""
    text = " ".join(text.split())
    return text if len(text) <= 100 else text[:97] + "..."
