"""Checks without stepping: attributes, tracing of `reset` and `step`, result types."""

import dataclasses
import numbers
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from moca.envs.check.faults import Findings, said, short
from moca.envs.environment import Environment, Step


class Traced(NamedTuple):
    """A function as traced by JAX."""

    returned: Any  # with arrays replaced by their shapes and types
    marks: list[tuple[str, list[bytes], Any]]  # its constants and equations, including numbers
    mutates: bool  # whether it modifies its arguments
    stored: bool  # whether it used traced values other than its arguments
    warned: list[str]

    @property
    def has_own_key(self) -> bool:
        """True if it creates its own random key."""
        return any(name == "key" or (name == "random_seed" and literals) for name, literals, _ in self.marks)


def check_contract(env: Environment, key: Any, found: Findings) -> tuple[Traced, Traced] | None:
    """Returns the traced `reset` and `step`, or None if a fault prevents their use."""
    _attributes(env, found)
    if found:
        return None
    reset = _function(env, "reset", (key,), found)
    if reset is None or not _good_reset(env, reset.returned, found):
        return None
    state = jax.tree.map(_outline, reset.returned[0])
    step = _function(env, "step", (state, jax.ShapeDtypeStruct((env.action_size,), jnp.float32)), found)
    if step is None or not _good_step(env, state, step.returned, found):
        return None
    return reset, step


# Attributes


def _attributes(env: Environment, found: Findings) -> None:
    """Finds missing or wrong attributes, and objects that are not environments."""
    if isinstance(env, type):
        found.fault("class", f"{env.__name__} is a class", f"pass an environment, as in {env.__name__}()")
        return
    if any(base.__module__.startswith("gymnasium.") for base in type(env).__mro__):
        found.fault("gymnasium", f"{type(env).__name__} is a Gymnasium environment")
        return
    values = {}
    for name in ("observation_size", "action_low", "action_high", "terminates", "reset", "step"):
        try:
            values[name] = getattr(env, name)
        except Exception as error:
            found.fault("missing", f"{name} cannot be read ({said(error)})")
    size, terminates = values.get("observation_size", 1), values.get("terminates", True)
    if not isinstance(size, int | np.integer) or size < 1:
        found.fault("observation-size", f"observation_size is {short(size)}")
    if not isinstance(terminates, bool):
        found.fault("terminates", f"terminates is {short(terminates)}")
    if "action_low" in values and "action_high" in values:
        _bounds(env, values["action_low"], values["action_high"], found)


def _bounds(env: Environment, low: Any, high: Any, found: Findings) -> None:
    one_each = "a tuple of numbers, one per action dimension, such as (-1.0,)"
    for name, bound in (("action_low", low), ("action_high", high)):
        if not isinstance(bound, tuple) or not bound or not all(isinstance(x, numbers.Real) for x in bound):
            found.fault("action-bounds", f"{name} is {short(bound)}", f"make it {one_each}")
            return
    if len(low) != len(high):
        lengths = f"action_low has length {len(low)} and action_high {len(high)}"
        found.fault("action-bounds", lengths, f"make each {one_each}")
        return
    with np.errstate(over="ignore"):
        lower, upper = np.array(low, np.float32), np.array(high, np.float32)
    if not np.isfinite([lower, upper]).all():
        found.fault("infinite-bounds", f"the bounds {low} and {high} are not all finite in float32")
    elif not (lower < upper).all():
        found.fault("empty-bounds", f"action_low {low} is not below action_high {high} in every dimension")
    size = getattr(env, "action_size", None)
    if size != len(low):
        found.fault("action-size", f"action_size is {short(size)}, but the bounds have length {len(low)}")


# Tracing by JAX


def _function(env: Environment, name: str, args: tuple, found: Findings) -> Traced | None:
    """Traces a function twice; returns the trace, or None on failure, and records differences."""
    try:
        first = _trace(getattr(env, name), args)
        before = _attached(env)  # only now: attributes that the first call creates are allowed
        second = _trace(getattr(env, name), args)
        after = _attached(env)
    except Exception as error:
        found.raised(f"{name}()", error)
        return None
    if first.mutates:
        found.fault("mutates-state", f"{name}() modifies the state it receives")
    if any("float64" in text and "truncated" in text for text in first.warned):
        found.fault("float64", f"{name}() uses float64, which JAX truncates to float32")
    if first.stored or second.stored:
        found.raised(f"{name}()", jax.errors.UnexpectedTracerError(""))
        return None
    if before.keys() != after.keys() or not all(_same(before[each], after[each]) for each in after):
        found.raised(f"{name}()", dataclasses.FrozenInstanceError())
    elif first.marks != second.marks:
        differs = f"{name}() differs between calls (Python's or NumPy's randomness, a global counter)"
        found.fault("impure", differs, ", and count in the state")
    return first


def _attached(env: Environment) -> dict[str, Any]:
    """Returns the current attributes of the environment."""
    return dict(getattr(env, "__dict__", {}))


def _same(one: Any, other: Any) -> bool:
    """Returns True for the same object, and for numbers or strings of one type that are equal."""
    return one is other or (isinstance(one, numbers.Number | str) and type(one) is type(other) and one == other)


def _trace(function: Callable, args: tuple) -> Traced:
    kept: dict[str, Any] = {}

    def places(args: tuple) -> list[tuple[Any, int]]:
        return [(path, id(leaf)) for path, leaf in jax.tree_util.tree_leaves_with_path(args)]

    def run(*args: Any) -> list[Any]:
        before = places(args)
        returned = function(*args)
        kept["mutates"] = before != places(args)
        kept["returned"] = jax.tree.map(lambda x: _outline(x) if isinstance(x, jax.Array) else x, returned)
        return [leaf for leaf in jax.tree.leaves(returned) if _is_array(leaf)]

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        program = jax.make_jaxpr(run)(*args)
    stored = any(isinstance(value, jax.core.Tracer) for value in program.consts)
    marks = [] if stored else list(_marks(program))
    return Traced(kept["returned"], marks, kept["mutates"], stored, [str(each.message) for each in warned])


def _outline(leaf: Any) -> jax.ShapeDtypeStruct:
    """Returns shape and type of an array, with the type that JAX gives it."""
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return leaf
    seen = jax.typeof(leaf)
    return jax.ShapeDtypeStruct(seen.shape, seen.dtype, weak_type=seen.weak_type)


def _is_array(leaf: Any) -> bool:
    """Returns True for anything that JAX accepts as an array: NumPy arrays and numbers too."""
    try:
        _outline(leaf)
    except TypeError:
        return False
    return True


def _marks(program: core.ClosedJaxpr | core.Jaxpr) -> Iterator[tuple[str, list[bytes], Any]]:
    """Yields all that may differ between traces of an impure function."""
    if isinstance(program, core.ClosedJaxpr):
        for value in program.consts:
            yield "key" if is_key(value) else "const", [_bytes(value)], None
        program = program.jaxpr
    for equation in program.eqns:
        literals = [_bytes(atom.val) for atom in equation.invars if isinstance(atom, core.Literal)]
        parameters = list(equation.params.values())
        yield equation.primitive.name, literals, _plain(parameters)
        for inner in jax.tree.leaves(parameters):
            if isinstance(inner, core.ClosedJaxpr | core.Jaxpr):
                yield from _marks(inner)


def is_key(value: Any) -> bool:
    """Returns True for a typed random key."""
    return hasattr(value, "dtype") and jnp.issubdtype(value.dtype, jax.dtypes.prng_key)


def _bytes(value: Any) -> bytes:
    return np.asarray(jax.random.key_data(value) if is_key(value) else value).tobytes()


def _plain(value: Any) -> Any:
    """Returns the numbers and strings in an equation's parameter, and only the type of the rest."""
    if isinstance(value, list | tuple):
        return tuple(map(_plain, value))
    return repr(value) if isinstance(value, numbers.Number | str | np.dtype) else type(value).__name__


# Results of the functions


def _good_reset(env: Environment, returned: Any, found: Findings) -> bool:
    """Returns True if the result of a reset can be used to try a step."""
    if not isinstance(returned, tuple) or len(returned) != 2:
        found.fault("reset-result", f"reset() returns {short(returned)}")
        return False
    state, observation = returned
    arrays = _all_arrays("reset()", state, found)
    return _good_array("reset()", "observation", observation, (env.observation_size,), jnp.float32, found) and arrays


def _good_step(env: Environment, first: Any, returned: Any, found: Findings) -> bool:
    """Returns True if the result of a step can be used in a loop."""
    if not isinstance(returned, tuple) or len(returned) != 2 or not isinstance(returned[1], Step):
        found.fault("step-result", f"step() returns {short(returned)}")
        return False
    state, (observation, reward, terminated) = returned
    good = [
        _good_array("step()", "observation", observation, (env.observation_size,), jnp.float32, found),
        _good_array("step()", "reward", reward, (), jnp.float32, found),
        _good_array("step()", "terminated", terminated, (), jnp.bool_, found),
        _all_arrays("step()", state, found) and _same_state(first, jax.tree.map(_outline, state), found),
    ]
    return all(good)


def _good_array(where: str, name: str, value: Any, shape: tuple[int, ...], dtype: Any, found: Findings) -> bool:
    """Returns True if this is an array of that shape. A wrong dtype is a fault, but can be used."""
    wanted = f"jnp.{jnp.dtype(dtype).name}"
    if not hasattr(value, "dtype"):
        number = isinstance(value, numbers.Real)
        what = f"a Python {type(value).__name__}" if number else short(value)
        one = "return the state first, then the observation as one array (jnp.stack, jnp.concatenate)"
        fix = one if shape else f"return jnp.asarray(x, {wanted})"
        found.fault(f"{name}-type", f"{where} returns {what} as {name}", fix)
        return number and not shape
    if value.shape != shape:
        fix = "set observation_size to its length, or concatenate its parts" if shape else "sum it up or squeeze it"
        found.fault(f"{name}-shape", f"{where} returns {name} with shape {value.shape} instead of {shape}", fix)
        return False
    if value.dtype != dtype:
        cut = ", which JAX truncates to float32" * (value.dtype == np.float64 and not jax.config.read("jax_enable_x64"))
        fix = f"return it as {name}.astype({wanted})"
        found.fault(f"{name}-dtype", f"{where} returns {name} as {value.dtype}{cut}", fix)
    return True


def _all_arrays(where: str, state: Any, found: Findings) -> bool:
    strange = [(path, leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(state) if not _is_array(leaf)]
    for path, leaf in strange:
        found.fault("state-leaf", f"{where} returns a {type(leaf).__name__} as {_name(path)}, which is not an array")
    return not strange


def _same_state(first: Any, state: Any, found: Findings) -> bool:
    """Returns True if a step keeps the structure of the state, as `jax.lax.scan` requires."""
    then, now = (dict(jax.tree_util.tree_leaves_with_path(tree)) for tree in (first, state))
    structures: list[Any] = [jax.tree.structure(tree) for tree in (first, state)]
    if structures[0] != structures[1]:
        lost, gained = [_name(p) for p in then if p not in now], [_name(p) for p in now if p not in then]
        changes = ["loses " + ", ".join(lost)] * bool(lost) + ["gains " + ", ".join(gained)] * bool(gained)
        how = " and ".join(changes) or "changes the type of a container, or a static field"
        found.fault("state-structure", f"the state {how} in step()")
        return False
    before = len(found)
    for path, old in then.items():
        name, new = _name(path), now[path]
        # A scan accepts another type for a Python number, which has none of its own.
        fits = old.weak_type and jnp.promote_types(old.dtype, new.dtype) == new.dtype
        if old.shape != new.shape:
            found.fault("state-shape", f"{name} has shape {old.shape} after reset() and {new.shape} after step()")
        elif old.dtype != new.dtype and not fits:
            fix = f"start as {new.dtype}, or cast it in step() with .astype(jnp.{old.dtype})"
            found.fault("state-dtype", f"{name} is {old.dtype} after reset() and {new.dtype} after step()", fix)
    return len(found) == before


def _name(path: tuple) -> str:
    return f"state{jax.tree_util.keystr(path)}"
