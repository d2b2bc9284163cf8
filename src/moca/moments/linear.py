"""Small linear systems, many at once, by plain arithmetic.

From jaxlib 0.10 on, LAPACK's functions divide a batch among the threads of a pool and wait for them
inside one of these threads. Two devices of a CPU share the pool. If both arrive there at once, each
waits for a thread of the other, and the program hangs. So no program that trains calls LAPACK.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

UNROLLED = 24  # Loops over at most so many rows are unrolled: five times as fast, and longer to compile.


def solve(matrix: Float[Array, "n n"], right: Float[Array, "n *m"]) -> Float[Array, "n *m"]:
    """Returns the solution x of `matrix` x = `right`.

    The matrix must be positive definite or triangular. Gauss–Jordan elimination then needs no
    pivoting.
    """
    size = len(matrix)

    def eliminate(k: Array, both: Float[Array, "n both"]) -> Float[Array, "n both"]:
        row = both[k] / both[k, k]
        return (both - both[:, k, None] * row).at[k].set(row)

    both = jnp.concatenate([matrix, right.reshape(size, -1)], axis=1)
    both = jax.lax.fori_loop(0, size, eliminate, both, unroll=size <= UNROLLED)
    solved: Array = both[:, size:].reshape(right.shape)
    return solved


def whiten(matrix: Float[Array, "n n"], right: Float[Array, "n *m"]) -> tuple[Float[Array, ""], Float[Array, "n *m"]]:
    """Returns log |A| and L⁻¹ `right` for a positive definite matrix A = L Lᵀ, with L lower."""
    size = len(matrix)

    def eliminate(k: Array, both: Float[Array, "n both"]) -> Float[Array, "n both"]:
        row = both[k] / jnp.sqrt(both[k, k])
        below = jnp.where(jnp.arange(size) > k, row[:size], 0)
        return (both - below[:, None] * row).at[k].set(row)

    both = jnp.concatenate([matrix, right.reshape(size, -1)], axis=1)
    both = jax.lax.fori_loop(0, size, eliminate, both, unroll=size <= UNROLLED)  # [Lᵀ, L⁻¹ right] at the end
    return 2 * jnp.sum(jnp.log(jnp.diagonal(both))), both[:, size:].reshape(right.shape)


def root(matrix: Float[Array, "n n"], tolerance: float = 0.0) -> Float[Array, "n n"]:
    """Returns the lower triangle L with L Lᵀ = `matrix`, which is positive semidefinite.

    A remainder of a diagonal entry of at most `tolerance` times that entry counts as zero.
    """
    size, least = len(matrix), tolerance * jnp.diagonal(matrix)

    def column(k: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        rest, found = carry
        none = rest[k, k] <= least[k]
        column = jnp.where(none, 0, rest[:, k] / jnp.sqrt(jnp.where(none, 1, rest[k, k])))
        column = jnp.where(jnp.arange(size) < k, 0, column)
        return rest - column[:, None] * column, found.at[:, k].set(column)

    start = (matrix, jnp.zeros_like(matrix))
    factor: Array = jax.lax.fori_loop(0, size, column, start, unroll=size <= UNROLLED)[1]
    return factor
