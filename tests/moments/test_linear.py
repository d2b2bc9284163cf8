"""Small linear systems, against NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moca.moments.linear import root, solve, whiten


def matrices(count=40, size=9):
    parts = np.random.default_rng(0).normal(size=(count, 2 * size, size))
    return parts.mT @ parts, parts[:, 0]


@pytest.mark.parametrize("size", [9, 30])
def test_many_systems_are_solved(size):
    with jax.enable_x64(True):
        full, right = matrices(size=size)
        for each in (full, np.linalg.cholesky(full), np.linalg.cholesky(full).mT):
            found = jax.jit(jax.vmap(solve))(each, right)
            np.testing.assert_allclose(found, np.linalg.solve(each, right[..., None])[..., 0], rtol=1e-9)


@pytest.mark.parametrize("size", [9, 30])
def test_many_matrices_are_whitened(size):
    with jax.enable_x64(True):
        full, right = matrices(size=size)
        logs, found = jax.jit(jax.vmap(whiten))(full, right)
        np.testing.assert_allclose(logs, np.linalg.slogdet(full)[1], rtol=1e-12)
        np.testing.assert_allclose(
            found, np.linalg.solve(np.linalg.cholesky(full), right[..., None])[..., 0], rtol=1e-8
        )


def test_many_roots_are_found_and_differentiated():
    with jax.enable_x64(True):
        full, _ = matrices()
        np.testing.assert_allclose(jax.jit(jax.vmap(root))(full), np.linalg.cholesky(full), rtol=1e-9, atol=1e-12)
        log_determinant = lambda S: 2 * jnp.sum(jnp.log(jnp.diagonal(root(S))))  # noqa: E731
        slope = jax.vmap(jax.grad(log_determinant))(full)
        np.testing.assert_allclose((slope + slope.mT) / 2, np.linalg.inv(full), rtol=1e-8, atol=1e-12)


def test_the_root_of_a_singular_matrix():
    vectors = jnp.asarray(np.random.default_rng(1).normal(size=(4, 2)), jnp.float32)
    found = root(vectors @ vectors.T, 1e-5)
    np.testing.assert_allclose(found @ found.T, vectors @ vectors.T, atol=1e-5)
    np.testing.assert_array_equal(root(jnp.zeros((3, 3))), 0)
    assert np.isnan(root(jnp.full((2, 2), jnp.nan))[0, 0])
