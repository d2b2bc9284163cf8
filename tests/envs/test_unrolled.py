"""The rewritten physics is the physics: same numbers, without the loops and the calls to a linear-algebra library."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moca.envs.playground import Playground, unrolled


def primitives(function, *args):
    """Names of all primitives in what `function` traces to, those of inner programs included."""
    names = []

    def walk(jaxpr):
        for equation in jaxpr.eqns:
            unrolls = equation.params.get("unroll", 1)
            names.append(f"{equation.primitive.name}{unrolls if unrolls > 1 else ''}")
            for value in equation.params.values():
                for part in value if isinstance(value, tuple) else [value]:
                    inner = getattr(part, "jaxpr", part)
                    if hasattr(inner, "eqns"):
                        walk(inner)

    walk(jax.make_jaxpr(function)(*args).jaxpr)
    return names


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_small_systems_are_solved_as_a_library_would(size):
    with jax.enable_x64(True):
        root = jax.random.normal(jax.random.key(size), (size, size), jnp.float64)
        matrix, right = root @ root.T + jnp.eye(size), jnp.arange(1.0, size + 1)

        def solve(matrix, right):
            return jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(matrix), right), jnp.linalg.cholesky(matrix)

        solution, factor = unrolled(solve)(matrix, right)
        np.testing.assert_allclose(matrix @ solution, right, rtol=1e-12)
        np.testing.assert_allclose(factor, np.linalg.cholesky(matrix), rtol=1e-12, atol=1e-14)
        assert ("cholesky" in primitives(unrolled(solve), matrix, right)) == (size > 4)


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("transposed", [True, False])
@pytest.mark.parametrize("unit", [True, False])
def test_every_kind_of_triangle(lower, transposed, unit):
    with jax.enable_x64(True):
        full = jax.random.normal(jax.random.key(0), (3, 3), jnp.float64) + 3 * jnp.eye(3)
        triangle = jnp.tril(full) if lower else jnp.triu(full)
        right = jax.random.normal(jax.random.key(1), (3, 2), jnp.float64)

        def solve(matrix, right):
            return jax.scipy.linalg.solve_triangular(
                matrix, right, trans=int(transposed), lower=lower, unit_diagonal=unit
            )

        np.testing.assert_allclose(unrolled(solve)(triangle, right), solve(triangle, right), rtol=1e-12)
        assert "triangular_solve" not in primitives(unrolled(solve), triangle, right)


def test_a_matrix_that_is_not_positive_gives_nan():
    for matrix in (-jnp.eye(2), jnp.ones((2, 2))):
        assert jnp.isnan(unrolled(jnp.linalg.cholesky)(matrix)).any()


@pytest.mark.parametrize("reverse", [True, False])
@pytest.mark.parametrize("length", [4, 20])
def test_short_loops_are_unrolled_and_long_ones_are_not(length, reverse):
    def loop(x, matrix):
        def body(carry, row):
            return carry * 0.9 + row + jnp.linalg.cholesky(matrix)[0, 0], carry

        return jax.lax.scan(body, x, jnp.arange(float(length)), reverse=reverse)

    arguments = jnp.array(1.0), jnp.eye(2)
    for new, old in zip(unrolled(loop)(*arguments), loop(*arguments), strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-6)
    names = primitives(unrolled(loop), *arguments)
    assert (f"scan{length}" in names, "cholesky" in names) == ((True, False) if length == 4 else (False, True))


def test_the_physics_of_cartpole_stay_what_they_are():
    env = Playground("CartpoleBalance")
    state, _ = env.reset(jax.random.key(0))
    action = jnp.array([0.3])
    assert "cholesky" in primitives(env.env.step, state, action)
    assert "cholesky" not in primitives(env.step, state, action)

    def roll(step):
        return jax.jit(
            lambda s: jax.lax.scan(lambda s, a: ((s := step(s, a)), s.obs), s, jnp.sin(jnp.arange(50.0))[:, None])
        )

    plain, rewritten = (roll(step)(state)[1] for step in (env.env.step, lambda s, a: env.step(s, a)[0]))
    np.testing.assert_allclose(plain, rewritten, atol=2e-5)
