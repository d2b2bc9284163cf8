"""A function with its short loops unrolled and its tiny factorisations written out.

A physics step solves two-by-two systems and runs line searches of four iterations. On a GPU each of those is dozens of
launches for a handful of numbers; as plain arithmetic the compiler fuses them.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Literal
from jaxtyping import Array, Float

SHORT = 8  # loops of at most that many iterations
TINY = 4  # matrices of at most that many rows


def unrolled(function: Callable) -> Callable:
    """`function` (of arrays, pure) as a rewritten copy of what it traces to; its results differ by rounding only."""

    def rewritten(*args: Any) -> Any:
        traced, shape = jax.make_jaxpr(function, return_shape=True)(*args)
        outputs = _evaluate(traced, jax.tree.leaves(args))
        return jax.tree.unflatten(jax.tree.structure(shape), outputs)

    return rewritten


def _evaluate(traced: ClosedJaxpr, args: Sequence[Array]) -> list[Array]:
    """What the traced program returns for `args`, equation by equation."""
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
    """The lower Cholesky factor, entry by entry; nan where the matrix is not positive definite."""
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
