"""Whether an environment keeps the contract of `moca.envs.environment`, found out before a run is spent on it.

    for fault in check_env(MyEnvironment()):
        print(fault)

Each function is traced twice and the traces are compared, which shows Python's part: types, shapes, branches, hidden
randomness. Then one compiled program uses the environment as the training loop does (vmapped, scanned, started anew
after an end) and shows what its numbers do. What a method decorated with `jax.jit` keeps from its first call is not
seen, nor an exact match with a restart where first states are few.
"""

import dataclasses
import numbers
import re
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from moca.config import ConfigError
from moca.envs.environment import Environment, Spaces, Step
from moca.envs.host import HostEnvironment
from moca.envs.named import named

SCALE = 1e6  # of observations, above which networks learn badly
SMALL = 500  # equations up to which the functions are also called without compiling: each may be a compilation
SOON = 10  # steps over which two runs are compared: later, chaos may have amplified a GPU's rounding
JUMP = 1.5  # times the longest ordinary step: a longer last step back among the first states is a restart


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong or, as a note, seldom meant; the message says what, and how to mend it."""

    kind: str
    message: str
    severity: Literal["fault", "note"] = "fault"

    def __str__(self) -> str:
        return f"{self.severity}: {self.message} [{self.kind}]"


class _Findings(list[Fault]):
    """Faults and notes in the order in which they were found."""

    def fault(self, kind: str, message: str) -> None:
        self.append(Fault(kind, message))

    def note(self, kind: str, message: str) -> None:
        self.append(Fault(kind, message, "note"))

    def of(self, severity: str) -> list[Fault]:
        return [fault for fault in self if fault.severity == severity]


def check_env(env: Spaces | str, *, steps: int = 200, seed: int = 0, strict: bool = False) -> list[Fault]:
    """What is wrong with an environment: faults, then notes. It is healthy if there is no fault; notes do not count.

    Whatever the environment raises becomes a fault. Nothing is printed. What cannot be examined before a fault is
    mended is left for the next time.

    Args:
        env: the environment, not its class, or a name. One of Gymnasium's goes to Gymnasium's own checker.
        steps: how long it is tried, with a dozen sequences of actions at once.
        seed: of the first states and of the random actions.
        strict: raise a `ConfigError` that lists the faults, if there are any.
    """
    if steps < 1:
        raise ConfigError(f"steps is {steps}; an environment is tried for at least 1")
    found = _Findings()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            env = named(env) if isinstance(env, str) else env
            if isinstance(env, HostEnvironment):
                for serious, message in env.complaints():
                    (found.fault if serious else found.note)("gymnasium", message)
            else:
                _examine(cast(Environment, env), steps, seed, found)
        except ConfigError:
            raise
        except Exception as error:  # a broken environment must not break its check
            found.fault("unchecked", f"the check could not go on after {_said(error)}; mend what else was found first")
    faults = found.of("fault")
    if strict:
        _refuse(faults, f"{type(env).__name__} is not a healthy environment")
    return faults + found.of("note")


def refuse_broken(env: Environment) -> None:
    """Raises a `ConfigError` with the faults that show without a step being taken: bounds, shapes, types, impurity."""
    found = _Findings()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _traced(env, jax.random.key(0), found)
    _refuse(found.of("fault"), f"{type(env).__name__} cannot be trained on (moca.check_env may find more)")


def _refuse(faults: list[Fault], what: str) -> None:
    if faults:
        raise ConfigError("\n".join([f"{what}:", *(f"- {fault.message}" for fault in faults)]))


def _traced(env: Environment, key: Any, found: _Findings) -> "tuple[_Traced, _Traced] | None":
    """`reset` and `step` as JAX sees them, or nothing where a fault keeps them from being used."""
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


def _examine(env: Environment, steps: int, seed: int, found: _Findings) -> None:
    """Goes as far as what was found so far lets it."""
    key = jax.random.key(seed)
    traced = _traced(env, key, found)
    if traced is None:
        return
    reset, step = traced
    trial = _try(env, key, _actions(env, steps, np.random.default_rng(seed)), found)
    if trial is None:
        return
    if not found.of("fault"):  # another would show here a second time
        _repeatable(env, key, trial, len(reset.marks) + len(step.marks) <= SMALL, found)
    _finite(trial, found)
    _random_starts(trial, reset, step, found)
    _ends(env, trial, found)
    _actions_matter(env, trial, found)


# Attributes


def _attributes(env: Environment, found: _Findings) -> None:
    if isinstance(env, type):
        found.fault("class", f"{env.__name__} is a class; pass an environment, as by {env.__name__}()")
        return
    if any(base.__module__.startswith("gymnasium.") for base in type(env).__mro__):
        found.fault(
            "gymnasium",
            f"{type(env).__name__} is Gymnasium's; pass a function that makes one, as by Gymnasium(lambda: …) of "
            "moca.envs.gymnasium, or a name such as 'gymnasium:Pendulum-v1'",
        )
        return
    values = {}
    for name in ("observation_size", "action_low", "action_high", "terminates", "reset", "step"):
        try:
            values[name] = getattr(env, name)
        except Exception as error:
            found.fault("missing", f"{name} cannot be read ({_said(error)}); give the environment one")
    size, terminates = values.get("observation_size", 1), values.get("terminates", True)
    if not isinstance(size, int | np.integer) or size < 1:
        found.fault("observation-size", f"observation_size is {_short(size)}; make it a positive int")
    if not isinstance(terminates, bool):
        found.fault("terminates", f"terminates is {_short(terminates)}; make it True or False")
    if "action_low" in values and "action_high" in values:
        _bounds(env, values["action_low"], values["action_high"], found)


def _bounds(env: Environment, low: Any, high: Any, found: _Findings) -> None:
    one_each = "a tuple of numbers, one per action dimension, such as (-1.0,)"
    for name, bound in (("action_low", low), ("action_high", high)):
        if not isinstance(bound, tuple) or not bound or not all(isinstance(x, numbers.Real) for x in bound):
            found.fault("action-bounds", f"{name} is {_short(bound)}; make it {one_each}")
            return
    if len(low) != len(high):
        found.fault(
            "action-bounds", f"action_low has length {len(low)} and action_high {len(high)}; make each {one_each}"
        )
        return
    with np.errstate(over="ignore"):
        lower, upper = np.array(low, np.float32), np.array(high, np.float32)
    if not np.isfinite([lower, upper]).all():
        found.fault(
            "infinite-bounds",
            f"the bounds {low} and {high} are not all finite in float32; give the range actions are to come from",
        )
    elif not (lower < upper).all():
        found.fault(
            "empty-bounds",
            f"action_low {low} is not below action_high {high} throughout; swap them, or drop fixed dimensions",
        )
    size = getattr(env, "action_size", None)
    if size != len(low):
        found.fault(
            "action-size",
            f"action_size is {_short(size)}, and the bounds have length {len(low)}; derive the environment from "
            "moca.envs.environment.Environment, which counts them",
        )


# What the functions are to JAX


class _Traced(NamedTuple):
    """A function as JAX sees it."""

    returned: Any  # with JAX's arrays replaced by their outlines
    marks: list[tuple[str, list[bytes], Any]]  # its constants and equations, with the numbers in them
    mutates: bool  # the arguments
    stored: bool  # it used traced values that are none of its arguments
    warned: list[str]


def _function(env: Environment, name: str, args: tuple, found: _Findings) -> _Traced | None:
    """The traced function, or nothing where that fails; finds what tracing it twice shows."""
    try:
        first = _trace(getattr(env, name), args)
        before = _attached(env)  # only now: what is made once, at the first call, is allowed
        second = _trace(getattr(env, name), args)
        after = _attached(env)
    except Exception as error:
        found.append(_raised(f"{name}()", error))
        return None
    if first.mutates:
        found.fault(
            "mutates-state",
            f"{name}() changes the state it is given; build a new one, as {{**state, ...}} or state._replace(...) do",
        )
    if any("float64" in text and "truncated" in text for text in first.warned):
        found.fault("float64", f"{name}() asks for float64, which JAX cuts to float32; ask for jnp.float32")
    if first.stored or second.stored:
        found.append(_raised(f"{name}()", jax.errors.UnexpectedTracerError("")))
        return None
    if before.keys() != after.keys() or not all(_same(before[each], after[each]) for each in after):
        found.append(_raised(f"{name}()", dataclasses.FrozenInstanceError()))
    elif first.marks != second.marks:
        found.fault(
            "impure",
            f"{name}() differs from call to call (Python's or NumPy's randomness, a global counter); draw with "
            "jax.random from a key kept in the state, and count in the state",
        )
    return first


def _attached(env: Environment) -> dict[str, Any]:
    """The environment's own attributes, as they are now."""
    return dict(getattr(env, "__dict__", {}))


def _same(one: Any, other: Any) -> bool:
    """Whether an attribute was left alone, or set to the number or word that it was."""
    return one is other or (isinstance(one, numbers.Number | str) and type(one) is type(other) and one == other)


def _trace(function: Callable, args: tuple) -> _Traced:
    kept: dict[str, Any] = {}

    def run(*args: Any) -> list[Any]:
        before = jax.tree_util.tree_leaves_with_path(args)
        returned = function(*args)
        after = jax.tree_util.tree_leaves_with_path(args)
        kept["mutates"] = [(path, id(leaf)) for path, leaf in before] != [(path, id(leaf)) for path, leaf in after]
        kept["returned"] = jax.tree.map(lambda x: _outline(x) if isinstance(x, jax.Array) else x, returned)
        return [leaf for leaf in jax.tree.leaves(returned) if _is_array(leaf)]

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        program = jax.make_jaxpr(run)(*args)
    stored = any(isinstance(value, jax.core.Tracer) for value in program.consts)
    marks = [] if stored else list(_marks(program))
    return _Traced(kept["returned"], marks, kept["mutates"], stored, [str(each.message) for each in warned])


def _outline(leaf: Any) -> jax.ShapeDtypeStruct:
    """Shape and type of what JAX takes for an array, with the type that JAX gives it."""
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return leaf
    seen = jax.typeof(leaf)
    return jax.ShapeDtypeStruct(seen.shape, seen.dtype, weak_type=seen.weak_type)


def _is_array(leaf: Any) -> bool:
    """Whether JAX takes it for an array: also NumPy's, Python's numbers and outlines."""
    try:
        _outline(leaf)
    except TypeError:
        return False
    return True


def _marks(program: core.ClosedJaxpr | core.Jaxpr) -> Iterator[tuple[str, list[bytes], Any]]:
    """All that differs between two traces of an impure function: constants, literals, parameters."""
    if isinstance(program, core.ClosedJaxpr):
        for value in program.consts:
            yield "key" if _is_key(value) else "const", [_bytes(value)], None
        program = program.jaxpr
    for equation in program.eqns:
        literals = [_bytes(atom.val) for atom in equation.invars if isinstance(atom, core.Literal)]
        parameters = list(equation.params.values())
        yield equation.primitive.name, literals, _plain(parameters)
        for inner in jax.tree.leaves(parameters):
            if isinstance(inner, core.ClosedJaxpr | core.Jaxpr):
                yield from _marks(inner)


def _is_key(value: Any) -> bool:
    return hasattr(value, "dtype") and jnp.issubdtype(value.dtype, jax.dtypes.prng_key)


def _bytes(value: Any) -> bytes:
    return np.asarray(jax.random.key_data(value) if _is_key(value) else value).tobytes()


def _plain(value: Any) -> Any:
    """A parameter of an equation as far as it is made of numbers and words; of the rest the type."""
    if isinstance(value, list | tuple):
        return tuple(map(_plain, value))
    return repr(value) if isinstance(value, numbers.Number | str | np.dtype) else type(value).__name__


# What the functions return


def _good_reset(env: Environment, returned: Any, found: _Findings) -> bool:
    """Whether a reset returns what a step can be tried with."""
    if not isinstance(returned, tuple) or len(returned) != 2:
        found.fault("reset-result", f"reset() returns {_short(returned)}; return the pair (state, observation)")
        return False
    state, observation = returned
    arrays = _all_arrays("reset()", state, found)
    return _good_array("reset()", "observation", observation, (env.observation_size,), jnp.float32, found) and arrays


def _good_step(env: Environment, first: Any, returned: Any, found: _Findings) -> bool:
    """Whether a step returns what a loop can go on with."""
    if not isinstance(returned, tuple) or len(returned) != 2 or not isinstance(returned[1], Step):
        found.fault(
            "step-result",
            f"step() returns {_short(returned)}; return the pair (state, Step(observation, reward, terminated)), with "
            "the Step of moca.envs.environment",
        )
        return False
    state, (observation, reward, terminated) = returned
    good = [
        _good_array("step()", "observation", observation, (env.observation_size,), jnp.float32, found),
        _good_array("step()", "reward", reward, (), jnp.float32, found),
        _good_array("step()", "terminated", terminated, (), jnp.bool_, found),
        _all_arrays("step()", state, found) and _same_state(first, jax.tree.map(_outline, state), found),
    ]
    return all(good)


def _good_array(where: str, name: str, value: Any, shape: tuple[int, ...], dtype: Any, found: _Findings) -> bool:
    """Whether this is an array of that shape. Another type is a fault, but can be gone on with."""
    wanted = f"jnp.{jnp.dtype(dtype).name}"
    if not hasattr(value, "dtype"):
        number = isinstance(value, numbers.Real)
        what = f"a Python {type(value).__name__}" if number else _short(value)
        one = "return the state first, then the observation as one array (jnp.stack, jnp.concatenate)"
        fix = one if shape else f"return jnp.asarray(x, {wanted})"
        found.fault(f"{name}-type", f"{where} returns {what} as {name}; {fix}")
        return number and not shape
    if value.shape != shape:
        fix = "set observation_size to its length, or concatenate its parts" if shape else "sum it up or squeeze it"
        found.fault(f"{name}-shape", f"{where} returns {name} with shape {value.shape} instead of {shape}; {fix}")
        return False
    if value.dtype != dtype:
        cut = ", which JAX cuts to float32" * (value.dtype == np.float64 and not jax.config.read("jax_enable_x64"))
        found.fault(
            f"{name}-dtype", f"{where} returns {name} as {value.dtype}{cut}; return it as {name}.astype({wanted})"
        )
    return True


def _all_arrays(where: str, state: Any, found: _Findings) -> bool:
    strange = [(path, leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(state) if not _is_array(leaf)]
    for path, leaf in strange:
        found.fault(
            "state-leaf",
            f"{where} returns a {type(leaf).__name__} as {_name(path)}, which is no array; keep it on self if it never "
            "changes, or make its class an equinox.Module of arrays",
        )
    return not strange


def _same_state(first: Any, state: Any, found: _Findings) -> bool:
    """Whether the state after a step is like the first one, as `jax.lax.scan` needs it."""
    then, now = (dict(jax.tree_util.tree_leaves_with_path(tree)) for tree in (first, state))
    structures: list[Any] = [jax.tree.structure(tree) for tree in (first, state)]
    if structures[0] != structures[1]:
        lost, gained = [_name(p) for p in then if p not in now], [_name(p) for p in now if p not in then]
        changes = ["loses " + ", ".join(lost)] * bool(lost) + ["gains " + ", ".join(gained)] * bool(gained)
        how = " and ".join(changes) or "changes the type of a container, or a static field"
        found.fault("state-structure", f"the state {how} in step(); let reset() and step() return the same structure")
        return False
    changed = [(_name(path), old, now[path]) for path, old in then.items() if not _carries(old, now[path])]
    for name, old, new in changed:
        if old.shape != new.shape:
            found.fault(
                "state-shape",
                f"{name} has shape {old.shape} after reset() and {new.shape} after step(); keep its shape, with "
                "jnp.squeeze or an index where an axis was added",
            )
        else:
            found.fault(
                "state-dtype",
                f"{name} is {old.dtype} after reset() and {new.dtype} after step(); start as {new.dtype}, or cast it "
                f"in step() with .astype(jnp.{old.dtype})",
            )
    return not changed


def _carries(old: Any, new: Any) -> bool:
    """Whether a scan takes the two for one: a Python number has no type of its own."""
    same = old.dtype == new.dtype or (old.weak_type and jnp.promote_types(old.dtype, new.dtype) == new.dtype)
    return old.shape == new.shape and same


# What its numbers do


class _Actions(NamedTuple):
    """Sequences of actions, by name."""

    names: list[str]
    sequences: np.ndarray  # sequences × steps × dimensions
    alike: int  # so many, the first ones, begin in the same state


def _actions(env: Environment, steps: int, rng: np.random.Generator) -> _Actions:
    low, high = np.array(env.action_low), np.array(env.action_high)
    shape = (steps, len(low))
    sequences = {
        "at the lower bounds": np.broadcast_to(low, shape),
        "at the upper bounds": np.broadcast_to(high, shape),
        "drawn uniformly": rng.uniform(low, high, shape),
    }
    # The same again with one dimension different, which shows whether it matters.
    others = {
        "at the lower bounds": np.broadcast_to(low + (high - low) / 10, shape),
        "at the upper bounds": np.broadcast_to(high - (high - low) / 10, shape),
        "drawn uniformly": rng.uniform(low, high, shape),
    }
    for (name, sequence), i in product(list(sequences.items()), range(len(low))):
        sequences[_other(name, i)] = np.where(np.arange(len(low)) == i, others[name], sequence)
    alike = len(sequences)
    for number in range(4):
        sequences[f"drawn from the bounds, sequence {number}"] = np.where(rng.random(shape) < 0.5, low, high)
        sequences[f"drawn uniformly, sequence {number}"] = rng.uniform(low, high, shape)
    return _Actions(list(sequences), np.stack(list(sequences.values())).astype(np.float32), alike)


def _other(name: str, dimension: int) -> str:
    return f"{name} but in dimension {dimension}"


class _Trial(NamedTuple):
    """What the actions brought; arrays have axes over sequences and steps."""

    actions: _Actions
    shown: np.ndarray  # observations before the actions
    step: Step
    fresh: np.ndarray | None  # where episodes may end: the observation of another first state at every step
    keys: list[tuple[np.ndarray, np.ndarray]]  # for each random key in the state: its data before and after the step
    again: tuple[np.ndarray, Step]  # `shown` and `step` of a second run of the program

    @property
    def firsts(self) -> np.ndarray:
        """All observations of first states, drawn by different keys."""
        own = self.shown[self.actions.alike - 1 :, 0]
        if self.fresh is None:
            return own
        return np.concatenate([own, self.fresh[self.actions.alike - 1 :].reshape(-1, own.shape[-1])])


def _try(env: Environment, key: jax.Array, actions: _Actions, found: _Findings) -> _Trial | None:
    """What all actions bring, by one program that is built like the training loop; nothing if it cannot be."""
    count, steps, _ = actions.sequences.shape

    def one(number: jax.Array, sequence: jax.Array) -> tuple:
        def step(carry: tuple, x: tuple) -> tuple[tuple, tuple]:
            state, shown = carry
            action, key = x
            following, (observation, reward, terminated) = env.step(state, action)
            result = Step(_float(observation), _float(reward), jnp.asarray(terminated) != 0)
            kept = list(zip(_keys(state), _keys(following), strict=True))
            carry, fresh = (following, result.observation), None
            if env.terminates:
                state, fresh = env.reset(key)
                fresh = _float(fresh)
                carry = jax.tree.map(lambda new, old: jnp.where(result.terminated, new, old), (state, fresh), carry)
            return carry, (shown, result, fresh, kept)

        state, observation = env.reset(_start(key, number))
        restarts = jax.random.split(jax.random.fold_in(key, count + number), steps)
        return jax.lax.scan(step, (state, _float(observation)), (sequence, restarts))[1]

    args = (np.maximum(np.arange(count) - actions.alike + 1, 0), actions.sequences)
    program = jax.jit(jax.vmap(one))
    try:
        (shown, step, fresh, kept), again = jax.device_get((program(*args), program(*args)[:2]))
    except Exception as error:
        found.append(_not_transformed(one, args, error))
        return None
    return _Trial(actions, shown, step, fresh, kept, again)


def _start(key: jax.Array, number: jax.Array | int) -> jax.Array:
    """The key of the first state with that number; all sequences that begin alike have number zero."""
    return jax.random.fold_in(key, number)


def _float(x: Any) -> jax.Array:
    """Another type was found before, and is no reason to stop."""
    return jnp.asarray(x, jnp.float32)


def _keys(state: Any) -> list[jax.Array]:
    """The data of the random keys in a state, whether they are typed or not."""
    leaves = [jax.random.key_data(leaf) if _is_key(leaf) else jnp.asarray(leaf) for leaf in jax.tree.leaves(state)]
    usual = jax.eval_shape(lambda: jax.random.key_data(jax.random.key(0)))
    return [leaf for leaf in leaves if (leaf.shape, leaf.dtype) == (usual.shape, usual.dtype)]


def _not_transformed(one: Callable, args: tuple, error: Exception) -> Fault:
    """Where a program fails whose functions could be traced."""
    try:
        jax.eval_shape(one, *(arg[0] for arg in args))
    except Exception as alone:
        fix = "let states keep their structure, without side effects"
        return Fault("scan", f"steps fail in jax.lax.scan ({_said(alone)}); {fix}")
    try:
        jax.eval_shape(jax.vmap(one), *args)
    except Exception as many:
        fix = "use functions that jax.vmap knows, and give callbacks a vmap_method"
        return Fault("vmap", f"many environments at once fail ({_said(many)}); {fix}")
    return Fault("raises", f"the compiled steps raise {_said(error)}; look into callbacks and into memory")


def _repeatable(env: Environment, key: jax.Array, trial: _Trial, small: bool, found: _Findings) -> None:
    """Finds results that differ from run to run, or between compiled and plain calls."""
    draw = "draw with jax.random from a key kept in the state"
    once, again = ([x[:, :SOON] for x in (shown, *step)] for shown, step in ((trial.shown, trial.step), trial.again))
    if not _close(once, again):
        found.fault("impure", f"two runs of one compiled program differ; {draw}, not in a callback")
        return
    if not small:
        return
    lane = trial.actions.names.index("at the upper bounds")
    try:
        state, first = env.reset(_start(key, 0))
        action = jnp.asarray(trial.actions.sequences[lane, 0])
        plain, twice = (env.step(state, action)[1] for _ in range(2))
    except Exception as error:
        found.fault("eager", f"plain calls fail where compiled ones work ({_said(error)}); use jax.numpy's arrays only")
        return
    if not _close(plain, twice):
        found.fault(
            "impure", f"step() gives two results for one state and action; {draw}, and change neither state nor self"
        )
    elif not _close((first, *plain), (trial.shown[lane, 0], *(x[lane, 0] for x in trial.step))):
        found.fault(
            "jit-differs",
            "compiled and plain calls give different results; let nothing depend on whether a value is traced, nor on "
            "globals",
        )


def _close(one: Any, other: Any) -> bool:
    """Whether two results are the same up to rounding."""
    pairs = zip(one, other, strict=True)
    return all(np.allclose(np.asarray(a), np.asarray(b), rtol=1e-3, atol=1e-5, equal_nan=True) for a, b in pairs)


def _finite(trial: _Trial, found: _Findings) -> None:
    """Finds numbers that are none, and observations that are too large."""
    if not np.isfinite(trial.firsts).all():
        found.fault(
            "reset-not-finite", "reset() gives an observation that is not finite; guard its divisions and roots"
        )
    ended = trial.step.terminated
    # After an end that nothing restarts, numbers may be anything.
    counted = (np.cumsum(ended, axis=1) - ended == 0) | (trial.fresh is not None)
    observation, reward = np.asarray(trial.step.observation), np.asarray(trial.step.reward)
    for name, finite in (("observation", np.isfinite(observation).all(axis=-1)), ("reward", np.isfinite(reward))):
        if (counted & ~finite).any():
            where = _first(counted & ~finite, trial.actions)
            found.fault(
                f"{name}-not-finite",
                f"the {name} of step() is not finite {where}; guard divisions and roots, bound what grows "
                "(jnp.clip), or end the episode before",
            )
    largest = np.abs(np.where(counted[..., None] & np.isfinite(observation), observation, 0)).max(axis=(0, 1))
    if largest.max() > SCALE:
        found.note(
            "scale",
            f"the observation's dimension {largest.argmax()} reaches {largest.max():.0e}; rescale it to about one, "
            "which networks expect",
        )


def _first(hits: np.ndarray, actions: _Actions) -> str:
    """The first of these steps, in words."""
    sequence, step = np.argwhere(hits)[0]
    return f"at step {step + 1} with actions {actions.names[sequence]}"


def _random_starts(trial: _Trial, reset: _Traced, step: _Traced, found: _Findings) -> None:
    """Finds first states that never change, and random keys that the environment makes itself."""

    def own_key(traced: _Traced) -> bool:
        return any(name == "key" or (name == "random_seed" and literals) for name, literals, _ in traced.marks)

    if np.array_equal(trial.firsts, np.broadcast_to(trial.firsts[0], trial.firsts.shape), equal_nan=True):
        if own_key(reset):
            found.fault("fixed-key", "reset() draws with a key of its own, always alike; draw with the key it is given")
        else:
            found.note(
                "same-start",
                "reset() gives one observation for every key; draw the first state with the key, unless one fixed "
                "start is meant",
            )
    if own_key(step):
        found.note(
            "fixed-key",
            "step() has a random key of its own, so episodes share their random numbers; keep a key in the state and "
            "split it, unless a constant is drawn",
        )


def _ends(env: Environment, trial: _Trial, found: _Findings) -> None:
    """Finds ends that were not announced, never come, or show the start of the next episode."""
    ended = np.asarray(trial.step.terminated)
    if not env.terminates and ended.any():
        found.fault(
            "undeclared-end",
            f"terminates is False, but terminated was True {_first(ended, trial.actions)}; set terminates to True, or "
            "leave time limits to the loop",
        )
    elif env.terminates and not ended.any():
        found.note(
            "never-ends",
            f"terminates is True, but no episode ended within {ended.shape[1]} steps; set it to False if none can, "
            "which saves resets",
        )
    elif env.terminates and (how := _restarted(env, trial)):
        found.fault(
            "auto-reset",
            f"at the end of an episode step() seems to return a first observation ({how}); return the last one, and "
            "leave the restart to the loop",
        )


def _restarted(env: Environment, trial: _Trial) -> str:
    """Why the observations at most ends look like those of resets; empty if they do not.

    A restart shows the episode's own first observation again (a cached one), or what `reset` gives for a key from the
    state, or it jumps: from elsewhere back among the first observations, by more than any ordinary step. Where the
    observation stands still, as in a bandit, nothing can be told; nor by equality where first observations repeat.
    """
    shown, after, ended = trial.shown, np.asarray(trial.step.observation), np.asarray(trial.step.terminated)
    firsts = trial.firsts
    moved = ended & ~_equal(shown, after)
    if not np.isfinite(after).all() or not moved.any():
        return ""

    def most(signs: np.ndarray, among: np.ndarray) -> bool:
        return bool(among.any() and signs[among].mean() > 0.5)

    if len(np.unique(firsts, axis=0)) > 0.9 * len(firsts):
        begun = shown.copy()  # the first observation of the episode that each step belongs to
        for step in range(1, shown.shape[1]):
            begun[:, step] = np.where(ended[:, step - 1, None], shown[:, step], begun[:, step - 1])
        if most(_equal(after, begun), moved & ~_equal(shown, begun)):
            return "the episode's own"
        few = tuple(np.argwhere(moved)[:8].T)
        if any(most(_drawn(env, before[few], then[few], after[few]), moved[few]) for before, then in trial.keys):
            return "that of a reset with a key from the state"
    if ended.all():
        return ""
    margin = 1e-6 * (1 + np.abs(firsts).max(axis=0))
    low, high = firsts.min(axis=0) - margin, firsts.max(axis=0) + margin
    back, home = (((x >= low) & (x <= high)).all(axis=-1) for x in (after, shown))
    lengths = np.abs(after - shown)
    jumps = (lengths > JUMP * lengths[~ended].max(axis=0) + margin).any(axis=-1)
    return "it jumps back to where episodes start" if most(back & jumps, moved & ~home) else ""


def _equal(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Which observations are the same up to the last digit."""
    return np.abs(one - other).max(axis=-1) <= 1e-6 * (1 + np.abs(other).max(axis=-1))


def _drawn(env: Environment, before: np.ndarray, after: np.ndarray, observations: np.ndarray) -> np.ndarray:
    """Which observations are those of resets with the keys of the state, or with keys split off them."""

    def resets(data: jax.Array) -> jax.Array:
        key = jax.random.wrap_key_data(data)
        candidates = jnp.concatenate([key[None], jax.random.split(key, 4)])
        return jax.vmap(lambda k: _float(env.reset(k)[1]))(candidates)

    drawn = jax.jit(jax.vmap(jax.vmap(resets)))(jnp.stack([before, after], axis=1))
    return np.asarray(_equal(np.asarray(drawn), observations[:, None, None]).any(axis=(1, 2)))


def _actions_matter(env: Environment, trial: _Trial, found: _Findings) -> None:
    """Finds actions that change nothing."""

    def flat(name: str) -> list[str]:
        """The dimensions in which these actions could be others without a difference."""
        names, values = trial.actions.names, (trial.shown, *trial.step)
        a, others = names.index(name), [names.index(_other(name, i)) for i in range(env.action_size)]
        same = [all(np.allclose(x[a], x[b], rtol=1e-6, atol=0, equal_nan=True) for x in values) for b in others]
        return [str(i) for i in np.flatnonzero(same)]

    ignored = flat("drawn uniformly")
    if ignored:
        which = "the action" if len(ignored) == env.action_size else f"the action's dimension {', '.join(ignored)}"
        found.note("ignores-action", f"step() ignores {which}; use it, or drop it from the bounds")
        return
    for name in ("at the lower bounds", "at the upper bounds"):
        if dimensions := flat(name):
            found.note(
                "flat-bounds",
                f"actions {name} do what those a tenth further in do (dimension {', '.join(dimensions)}); if "
                "step() clips actions, give its limits as bounds",
            )


# Exceptions in words

_EXPLAINED: list[tuple[Any, str, str]] = [
    (
        jax.errors.TracerBoolConversionError,
        "python-branch",
        "branches in Python on a traced value; use jnp.where or jax.lax.cond",
    ),
    (jax.errors.TracerArrayConversionError, "numpy-call", "gives a traced value to NumPy; use jax.numpy (jnp) instead"),
    (
        jax.errors.NonConcreteBooleanIndexError,
        "boolean-index",
        "picks entries by a traced mask; use jnp.where(mask, ...), which keeps the shape",
    ),
    (
        (jax.errors.ConcretizationTypeError, jax.errors.TracerIntegerConversionError),
        "python-number",
        "makes a traced value a Python number; keep it an array (no float(), int(), .item()), and loop with jax.lax",
    ),
    (
        jax.errors.UnexpectedTracerError,
        "stored-tracer",
        "uses a traced value that an earlier call stored on self or in a global; keep it in the state",
    ),
    (
        dataclasses.FrozenInstanceError,
        "self-mutation",
        "changes an attribute of the environment; keep what changes in the state",
    ),
]


def _raised(where: str, error: Exception) -> Fault:
    """The fault that an exception of the environment shows."""
    where += _line(error)
    for kinds, kind, words in _EXPLAINED:
        if isinstance(error, kinds):
            return Fault(kind, f"{where} {words}")
    if isinstance(error, TypeError) and "item assignment" in str(error):
        return Fault("in-place", f"{where} assigns into an array; use x = x.at[i].set(value)")
    return Fault("raises", f"{where} raises {_said(error)}; mend it, and try the function inside jax.jit")


_LIBRARIES = [Path(str(module.__file__)).parent for module in (jax, eqx, np)]


def _line(error: Exception) -> str:
    """Where in the environment's own code an exception arose, if that can be told."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        foreign = frame.filename == __file__ or frame.filename.startswith("<frozen")
        if not foreign and not any(path.is_relative_to(library) for library in _LIBRARIES):
            return f" (line {frame.lineno} of {path.name})"
    return ""


def _said(error: Exception) -> str:
    """An exception in one line."""
    text = next((line for line in _text(str, error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {_cut(text)}" if text else type(error).__name__


def _short(value: Any) -> str:
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


def _name(path: tuple) -> str:
    return f"state{jax.tree_util.keystr(path)}"
