"""MuJoCo Playground's environments, by name.

Playground's training wrappers are not used: they restart every episode from one cached state,
replace the last observation by the next first one, and report a time limit as a termination.

The second half of this file makes the physics fast, by unrolling short loops and writing out tiny
factorisations. A physics step solves two-by-two systems and runs line searches of four iterations.
On a GPU each of these is dozens of kernel launches for a few numbers; as plain arithmetic the
compiler fuses them.
"""

import io
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from ctypes.util import find_library
from functools import cache, partial
from threading import Lock
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal
from jaxtyping import Array, Float, Key

from moca.config import ConfigError
from moca.envs.environment import Described, Environment, Step, bounds_of, vector, vector_size
from moca.names import SUITE


class Playground(Described, Environment):
    """A Playground environment, simulated by MJX in JAX (Warp is not deterministic on GPUs).

    If observations are dictionaries, the agent sees the entry `state`, which is meant for policies;
    the other entries are for critics with privileged information.
    """

    name: str = eqx.field(static=True)
    env: Any = eqx.field(static=True)

    def __init__(self, name: str) -> None:
        self.name = name
        with LOADING:
            self.env, self.observation_size, self.action_low, self.action_high, self.terminates = _load(name)

    # In a training program, jit keeps the traces, which take seconds, for all programs that step
    # the same environment.
    @partial(jax.jit, static_argnums=0)
    def reset(self, key: Key[Array, ""]) -> tuple[Any, Float[Array, "obs"]]:
        state = self.env.reset(key)
        return state, vector(state.obs)

    @partial(jax.jit, static_argnums=0)
    def step(self, state: Any, action: Float[Array, "act"]) -> tuple[Any, Step]:
        state = unrolled(self.env.step)(state, action)
        return state, Step(vector(state.obs), jnp.asarray(state.reward, jnp.float32), state.done > 0)


@contextmanager
def _without_warp() -> Iterator[None]:
    """Hides Warp from MJX within the block: it is not used here, and takes 4 s to import.

    A program that needs both imports `mujoco.mjx` first.
    """
    hidden = "warp" not in sys.modules
    if hidden:
        sys.modules["warp"] = None  # type: ignore[assignment]
    try:
        with redirect_stdout(io.StringIO()):  # it prints that Warp, an optional part, is not there
            yield
    finally:
        if hidden:
            del sys.modules["warp"]


LOADING = Lock()  # concurrent threads would each load one, and could leave standard output redirected


def load(name: str) -> Any:
    """Returns Playground's environment of that name; raises `ConfigError` if it cannot be loaded.

    Call it with `LOADING` held.
    """
    if "DISPLAY" not in os.environ and find_library("EGL"):
        os.environ.setdefault("MUJOCO_GL", "egl")  # before MuJoCo is imported, so that rendering needs no display
    with _without_warp():
        from mujoco_playground import registry

    try:
        return registry.load(name, config_overrides={"impl": "jax"})
    except Exception as error:
        raise ConfigError(
            f"Playground could not load {name} ({type(error).__name__}: {error}). Its robot models are "
            "downloaded when first used, which needs git and a network"
        ) from error


@cache
def _load(name: str) -> tuple[Any, int, tuple[float, ...], tuple[float, ...], bool]:
    """Returns the environment, its observation size and action bounds, and if it terminates."""
    env = load(name)
    size = vector_size(jax.eval_shape(env.reset, jax.random.key(0)).obs, name)
    # The control suite passes actions to the actuators unchanged, and never terminates an episode.
    # The other environments rescale actions from ±1 themselves, and may terminate.
    suite = name in SUITE
    bounds = env.mj_model.actuator_ctrlrange if suite else [(-1.0, 1.0)] * env.action_size
    low, high = np.asarray(bounds).T
    return env, size, *bounds_of(low, high, (env.action_size,), name), not suite


SHORT = 8  # the most iterations of a loop that is unrolled
TINY = 4  # the most rows of a matrix whose factorisation is written out


def unrolled(function: Callable) -> Callable:
    """Returns a pure function with its short loops unrolled and small factorisations written out.

    Its results differ by rounding only.
    """

    def rewritten(*args: Any) -> Any:
        traced, shape = jax.make_jaxpr(function, return_shape=True)(*args)
        outputs = _evaluate(traced, jax.tree.leaves(args))
        return jax.tree.unflatten(jax.tree.structure(shape), outputs)

    return rewritten


def _evaluate(traced: ClosedJaxpr, args: Sequence[Array]) -> list[Array]:
    """Evaluates a traced program for `args`, equation by equation."""
    jaxpr = traced.jaxpr
    values: dict[Any, Any] = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*traced.consts, *args], strict=True))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, Literal) else values[atom]

    for equation in jaxpr.eqns:
        inputs = [read(atom) for atom in equation.invars]
        rewrite = _REWRITES.get(equation.primitive.name)
        with equation.ctx.manager:
            outputs = rewrite(inputs, equation.params) if rewrite else None
            if outputs is None:
                outputs = equation.primitive.bind(*inputs, **equation.primitive.get_bind_params(equation.params))
                outputs = outputs if equation.primitive.multiple_results else [outputs]
        values.update(zip(equation.outvars, outputs, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _scan(inputs: list[Array], params: dict[str, Any]) -> list[Array] | None:
    if params["length"] > SHORT:
        return None
    body = params["jaxpr"]
    rewritten = jax.make_jaxpr(lambda *args: _evaluate(body, args))(*body.in_avals)
    return jax.lax.scan_p.bind(*inputs, **(params | {"jaxpr": rewritten, "unroll": params["length"]}))


def _cholesky(inputs: list[Array], params: dict[str, Any]) -> list[Array] | None:
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


def _triangular_solve(inputs: list[Array], params: dict[str, Any]) -> list[Array] | None:
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


def _call(inputs: list[Array], params: dict[str, Any]) -> list[Array]:
    return _evaluate(params["jaxpr"], inputs)


_REWRITES: dict[str, Callable[[list[Array], dict[str, Any]], list[Array] | None]] = {
    "scan": _scan,
    "cholesky": _cholesky,
    "triangular_solve": _triangular_solve,
    "jit": _call,
}
