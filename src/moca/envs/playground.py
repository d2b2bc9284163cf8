"""MuJoCo Playground's environments, by name.

Playground's training wrappers are not used: they restart every episode from one cached state,
replace the last observation by the next first one, and report a time limit as a termination.

The second half of this file rewrites the traced physics (its jaxpr), equation by equation, so that
it compiles and runs faster. Many equations only handle constants: they normalise indices, or select
properties of bodies one by one. XLA folds these too, but only after the program has been batched
and lowered, and once for every place that steps the environment. Here NumPy folds them, and
repeated equations are computed once.

A physics step also solves two-by-two systems and runs line searches of four iterations. On a GPU
each of these is dozens of kernel launches for a few numbers; as plain arithmetic the compiler fuses
them. `unrolled` therefore unrolls short loops and writes out tiny factorisations.
"""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from ctypes.util import find_library
from functools import cache, partial
from threading import Lock
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal
from jaxtyping import Array, Float, Key

from moca.config import ConfigError
from moca.envs.environment import Environment, Step, bounds_of, vector, vector_size


class Playground(Environment):
    """A Playground environment, simulated by MJX in JAX (Warp is not deterministic on GPUs).

    If observations are dictionaries, the agent sees the entry `state`, which is meant for policies;
    the other entries are for critics with privileged information.
    """

    name: str = eqx.field(static=True)
    env: Any = eqx.field(static=True)
    observation_size: int = eqx.field(static=True)
    action_low: tuple[float, ...] = eqx.field(static=True)
    action_high: tuple[float, ...] = eqx.field(static=True)
    terminates: bool = eqx.field(static=True)

    def __init__(self, name: str) -> None:
        self.name = name
        with _LOADING:
            self.env, self.observation_size, self.action_low, self.action_high, self.terminates = _load(name)

    # In a training program, jit keeps the traces, which take seconds, for all programs that step
    # the same environment.
    @partial(jax.jit, static_argnums=0)
    def reset(self, key: Key[Array, ""]) -> tuple[Any, Float[Array, "obs"]]:
        state = folded(self.env.reset)(key)
        return state, vector(state.obs)

    @partial(jax.jit, static_argnums=0)
    def step(self, state: Any, action: Float[Array, "act"]) -> tuple[Any, Step]:
        state = unrolled(self.env.step)(state, action)
        return state, Step(vector(state.obs), jnp.asarray(state.reward, jnp.float32), state.done > 0)


_LOADING = Lock()  # threads would each load one, and could leave standard output redirected


@cache
def _load(name: str) -> tuple[Any, int, tuple[float, ...], tuple[float, ...], bool]:
    """Returns the environment, its observation size and action bounds, and if it terminates."""
    if "DISPLAY" not in os.environ and find_library("EGL"):
        os.environ.setdefault("MUJOCO_GL", "egl")  # before MuJoCo is imported, so that rendering needs no display
    with redirect_stdout(sys.stderr):  # it prints notes about optional parts
        from mujoco_playground import dm_control_suite, registry

    try:
        env = registry.load(name, config_overrides={"impl": "jax"})
    except Exception as error:
        raise ConfigError(
            f"Playground could not load {name} ({type(error).__name__}: {error}). Its robot models are "
            "downloaded when first used, which needs git and a network"
        ) from error
    size = vector_size(jax.eval_shape(env.reset, jax.random.key(0)).obs, name)
    # The control suite passes actions to the actuators unchanged, and never terminates an episode.
    # The other environments rescale actions from ±1 themselves, and may terminate.
    suite = name in dm_control_suite.ALL_ENVS
    bounds = env.mj_model.actuator_ctrlrange if suite else [(-1.0, 1.0)] * env.action_size
    low, high = np.asarray(bounds).T
    return env, size, *bounds_of(low, high, (env.action_size,), name), not suite


SHORT = 8  # the most iterations of a loop that is unrolled
TINY = 4  # the most rows of a matrix whose factorisation is written out

Rewrites = Mapping[str, Callable[..., list[Any] | None]]


def folded(function: Callable) -> Callable:
    """Returns a copy of a pure function whose traced program is smaller.

    The compiler fuses it differently, so that a result may differ in its last bit.
    """
    return _rewritten(function, _FOLDED)


def unrolled(function: Callable) -> Callable:
    """Returns a copy of a pure function with short loops unrolled and factorisations written out.

    Its results differ by rounding only.
    """
    return _rewritten(function, _UNROLLED)


def _rewritten(function: Callable, rewrites: Rewrites) -> Callable:
    def copy(*args: Any) -> Any:
        traced, shape = jax.make_jaxpr(function, return_shape=True)(*args)
        outputs = _evaluate(traced, jax.tree.leaves(args), rewrites)
        return jax.tree.unflatten(jax.tree.structure(shape), outputs)

    return copy


def _evaluate(traced: ClosedJaxpr, args: Sequence[Any], rewrites: Rewrites) -> list[Any]:
    """Evaluates a traced program for `args`, equation by equation. NumPy arrays are constants."""
    jaxpr = traced.jaxpr
    inputs = [*map(_constant, traced.consts), *args]
    values: dict[Any, Any] = dict(zip([*jaxpr.constvars, *jaxpr.invars], inputs, strict=True))
    known: dict[Any, list[Any]] = {}

    def read(atom: Any) -> Any:
        if not isinstance(atom, Literal):
            return values[atom]
        kind: Any = atom.aval
        return np.asarray(atom.val, kind.dtype)[()]

    for equation in _needed(jaxpr):
        inputs = [read(atom) for atom in equation.invars]
        if equation.primitive.name in _SIMPLE:
            key = (equation.primitive.name, str(equation.params), *map(_identity, inputs))
            if key not in known:
                known[key] = _bind(equation, inputs)
            outputs = known[key]
        else:
            rewrite = rewrites.get(equation.primitive.name, lambda *_: None)
            outputs = rewrite(inputs, equation.params, rewrites) or _bind(equation, inputs)
        values.update(zip(equation.outvars, outputs, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _needed(jaxpr: Jaxpr) -> list[JaxprEqn]:
    """Returns the equations that the results depend on."""
    needed, wanted = [], {atom for atom in jaxpr.outvars if not isinstance(atom, Literal)}
    for equation in reversed(jaxpr.eqns):
        if equation.effects or not wanted.isdisjoint(equation.outvars):
            needed.append(equation)
            wanted |= {atom for atom in equation.invars if not isinstance(atom, Literal)}
    return needed[::-1]


def _constant(value: Any) -> Any:
    """Returns a constant of a traced program as a NumPy array; random keys stay as they are."""
    return np.asarray(value) if jnp.issubdtype(value.dtype, np.generic) else value


def _identity(value: Any) -> Any:
    """Returns a key that is equal for identical values."""
    return (value.dtype, value.shape, value.tobytes()) if isinstance(value, np.ndarray | np.generic) else id(value)


def _bind(equation: JaxprEqn, inputs: list[Any]) -> list[Any]:
    """Returns the results of one equation.

    They are constants if the primitive is simple and its inputs are constants.
    """
    fold = _SIMPLE.get(equation.primitive.name)
    if fold and all(isinstance(value, np.ndarray | np.generic) for value in inputs) and _exact(equation, inputs):
        return [fold(*inputs, **equation.params)]
    with equation.ctx.manager:
        outputs = equation.primitive.bind(*inputs, **equation.primitive.get_bind_params(equation.params))
    return outputs if equation.primitive.multiple_results else [outputs]


def _exact(equation: JaxprEqn, inputs: list[Any]) -> bool:
    """Returns False for arithmetic that rounds.

    A compiler may fuse a product and a sum and round once; NumPy rounds twice.
    """
    rounds = equation.primitive.name in ("add", "sub", "mul", "rem")
    return not rounds or np.issubdtype(inputs[0].dtype, np.integer) or inputs[0].dtype == bool


def _broadcast(x: Any, shape: tuple[int, ...], broadcast_dimensions: tuple[int, ...], **_: Any) -> Any:
    expanded = np.ones(len(shape), int)
    expanded[list(broadcast_dimensions)] = np.shape(x)
    return np.broadcast_to(np.reshape(x, expanded), shape)


def _slice(x: Any, start_indices: Any, limit_indices: Any, strides: Any) -> Any:
    strides = strides or (1,) * np.ndim(x)
    return x[tuple(map(slice, start_indices, limit_indices, strides))]


def _gather(*inputs: Any, **params: Any) -> Any:
    with jax.ensure_compile_time_eval():
        return np.asarray(jax.lax.gather_p.bind(*inputs, **params))


# Primitives whose equations are omitted if their inputs are constants or the same equation was
# evaluated before.
_SIMPLE: dict[str, Callable[..., Any]] = {
    "add": lambda x, y, **_: np.add(x, y),
    "sub": lambda x, y, **_: np.subtract(x, y),
    "mul": lambda x, y, **_: np.multiply(x, y),
    "rem": lambda x, y, **_: np.fmod(x, y),
    "eq": lambda x, y, **_: np.equal(x, y),
    "ne": lambda x, y, **_: np.not_equal(x, y),
    "lt": lambda x, y, **_: np.less(x, y),
    "and": lambda x, y, **_: np.bitwise_and(x, y),
    "or": lambda x, y, **_: np.bitwise_or(x, y),
    "select_n": lambda which, no, yes: np.where(which, yes, no),
    "broadcast_in_dim": _broadcast,
    "slice": _slice,
    "squeeze": lambda x, dimensions: np.squeeze(x, dimensions),
    "reshape": lambda x, new_sizes, **_: np.reshape(x, new_sizes),
    "transpose": lambda x, permutation: np.transpose(x, permutation),
    "concatenate": lambda *parts, dimension: np.concatenate(parts, dimension),
    "convert_element_type": lambda x, new_dtype, **_: np.asarray(x).astype(new_dtype),
    "gather": _gather,
}


def _call(inputs: list[Any], params: dict[str, Any], rewrites: Rewrites) -> list[Any]:
    return _evaluate(params["jaxpr"], inputs, rewrites)


def _scan(inputs: list[Any], params: dict[str, Any], rewrites: Rewrites, unroll: int | None = None) -> list[Any]:
    """Evaluates a loop whose body is rewritten too, with the constants it closes over folded."""
    carried, first = params["num_carry"], params["num_consts"]
    consts, start, xs = inputs[:first], inputs[first : first + carried], inputs[first + carried :]

    def body(carry: list[Any], xs: list[Any]) -> tuple[list[Any], list[Any]]:
        outputs = _evaluate(params["jaxpr"], [*consts, *carry, *xs], rewrites)
        return outputs[:carried], outputs[carried:]

    rounds = unroll or params["unroll"]
    carry, ys = jax.lax.scan(body, start, xs, params["length"], reverse=params["reverse"], unroll=rounds)
    return [*carry, *ys]


def _unroll(inputs: list[Any], params: dict[str, Any], rewrites: Rewrites) -> list[Any]:
    if params["length"] > SHORT:
        return _scan(inputs, params, _FOLDED)
    return _scan(inputs, params, rewrites, params["length"])


def _cholesky(inputs: list[Array], params: dict[str, Any], rewrites: Rewrites) -> list[Array] | None:
    (matrix,) = inputs
    if matrix.ndim != 2 or len(matrix) > TINY or not jnp.issubdtype(matrix.dtype, jnp.floating):
        return None
    return [_factor(matrix)]


def _factor(matrix: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """Returns the lower Cholesky factor, entry by entry.

    NaN if the matrix is not positive definite.
    """
    size = len(matrix)
    factor: list[list[Any]] = [[jnp.zeros((), matrix.dtype)] * size for _ in range(size)]
    for row in range(size):
        for column in range(row + 1):
            rest = matrix[row, column] - sum(factor[row][k] * factor[column][k] for k in range(column))
            positive = jnp.where(rest > 0, rest, jnp.nan)
            factor[row][column] = jnp.sqrt(positive) if row == column else rest / factor[column][column]
    return jnp.stack([jnp.stack(row) for row in factor])


def _triangular_solve(inputs: list[Array], params: dict[str, Any], rewrites: Rewrites) -> list[Array] | None:
    matrix, right = inputs
    if matrix.ndim != 2 or len(matrix) > TINY or not params["left_side"] or params["conjugate_a"]:
        return None
    matrix, lower = (matrix.T, not params["lower"]) if params["transpose_a"] else (matrix, params["lower"])
    size = len(matrix)
    solution: list[Any] = [None] * size
    for row in range(size) if lower else reversed(range(size)):
        known = range(row) if lower else range(row + 1, size)
        rest = right[row] - sum(matrix[row, k] * solution[k] for k in known)
        solution[row] = rest if params["unit_diagonal"] else rest / matrix[row, row]
    return [jnp.stack(solution)]


_FOLDED: Rewrites = {"jit": _call, "scan": _scan}
_UNROLLED: Rewrites = {"jit": _call, "scan": _unroll, "cholesky": _cholesky, "triangular_solve": _triangular_solve}
