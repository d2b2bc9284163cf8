"""Covariances in one to eight dimensions with one to 64 bases, against NumPy; batches, singular beliefs, gradients.

A ridge function depends on one projection of the state and two of them on two, so that rules in one and two dimensions
integrate them in any number. A Gaussian times a radial basis is a Gaussian again, conditioned here in NumPy.
"""

from functools import cache
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import erf, ndtr

from moca import moments as mm
from tests.moments import problems
from tests.moments.test_gp import process
from tests.moments.test_identities import check_gradient

covariance = jax.jit(mm.covariance)
SIZES = [(1, 64), (8, 1), (8, 64)]
UNITS = {"Fourier": np.cos, "Erf": erf}


def belief(rng, d, dtype=np.float64, floor=0.05):
    """A correlated Gaussian whose projections have a deviation of about one; with floor zero it is singular."""
    root = rng.normal(size=(d, max(1, d - 1) if floor == 0 else d)) / np.sqrt(d)
    return mm.Gaussian(
        np.asarray(0.3 * rng.normal(size=d), dtype), np.asarray(root @ root.T + floor * np.eye(d), dtype)
    )


def function(kind, rng, d, bases, dtype=np.float64):
    if kind == "RBF":
        arrays = rng.normal(size=bases), rng.normal(size=(bases, d)), rng.uniform(0.5, 1.5, d) / d
    else:
        arrays = rng.normal(size=bases), rng.normal(size=(bases, d)) / np.sqrt(d), rng.normal(size=bases)
    return getattr(mm, kind)(*(np.asarray(each, dtype) for each in arrays))


@cache
def rule():
    """The trapezoidal rule for a standard normal, which steep functions do not disturb as they do Gauss–Hermite's."""
    z = np.linspace(-9, 9, 121)
    w = np.exp(-(z**2) / 2)
    return z, w / w.sum()


def ridge_of(f):
    direction, offset = ("frequencies", "phases") if isinstance(f, mm.Fourier) else ("directions", "offsets")
    return UNITS[type(f).__name__], np.float64(getattr(f, direction)), np.float64(getattr(f, offset))


def ridge_mean(f, mean, spread):
    """E of each unit."""
    unit, directions, offsets = ridge_of(f)
    z, w = rule()
    deviation = np.sqrt(np.einsum("id,de,ie->i", directions, spread, directions))
    return unit((directions @ mean + offsets)[:, None] + deviation[:, None] * z) @ w


def by_ridges(f, g, mean, spread):
    """Cov of two ridge functions, pair of units by pair of units."""
    (one, a, b), (two, c, e) = ridge_of(f), ridge_of(g)
    z, w = rule()
    va, vc, shared = (np.einsum("id,de,je->ij", x, spread, y) for x, y in ((a, a), (c, c), (a, c)))
    va, vc = np.diag(va), np.diag(vc)
    slope = shared / np.sqrt(va)[:, None]
    rest = np.sqrt(np.maximum(vc - slope**2, 0))
    first = one((a @ mean + b)[:, None] + np.sqrt(va)[:, None] * z)
    total = np.empty(shared.shape)
    for i in range(len(a)):
        inner = (c @ mean + e)[:, None, None] + slope[i][:, None, None] * z[:, None] + rest[i][:, None, None] * z
        total[i] = (two(inner) @ w) @ (w * first[i])
    apart = total - np.outer(ridge_mean(f, mean, spread), ridge_mean(g, mean, spread))
    return np.float64(f.weights) @ apart @ np.float64(g.weights)


def with_rbf(f, g, mean, spread):
    """Cov of an RBF and a ridge function: the belief times each basis is a Gaussian, of a smaller mass."""
    precision, total = np.diag(np.float64(f.precision)), 0.0
    plain = np.float64(g.weights) @ ridge_mean(g, mean, spread)
    inverse = np.linalg.inv(np.linalg.inv(precision) + spread)
    after = spread - spread @ inverse @ spread
    scale = np.sqrt(np.linalg.det(inverse) / np.linalg.det(precision))
    for weight, center in zip(np.float64(f.weights), np.float64(f.centers), strict=True):
        gap = center - mean
        moved = mean + spread @ inverse @ gap
        value = np.float64(g.weights) @ ridge_mean(g, moved, after)
        total += weight * scale * np.exp(-gap @ inverse @ gap / 2) * (value - plain)
    return total


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("d", "bases"), SIZES)
@pytest.mark.parametrize("kinds", [("Fourier", "Fourier"), ("Erf", "Erf"), ("RBF", "Fourier"), ("RBF", "Erf")])
def test_covariances_in_many_dimensions(kinds, d, bases, dtype):
    rng = np.random.default_rng([d, bases])
    p, f, g = belief(rng, d, dtype), function(kinds[0], rng, d, bases, dtype), function(kinds[1], rng, d, bases, dtype)
    mean, spread = np.float64(p.mean), np.float64(p.covariance)
    truth = (with_rbf if kinds[0] == "RBF" else by_ridges)(f, g, mean, spread)
    got = covariance(p, f, g)
    assert got.dtype == dtype
    scale = np.abs(np.float64(f.weights)).sum() * np.abs(np.float64(g.weights)).sum()
    assert abs(np.float64(got) - truth) <= {np.float64: 1e-10, np.float32: 2e-5}[dtype] * scale


@pytest.mark.parametrize("kinds", [("Fourier", "Fourier"), ("Erf", "Erf"), ("RBF", "Erf")])
def test_a_belief_that_is_singular(kinds):
    rng = np.random.default_rng(1)
    p, f, g = belief(rng, 3, floor=0), function(kinds[0], rng, 3, 8), function(kinds[1], rng, 3, 8)
    truth = (with_rbf if kinds[0] == "RBF" else by_ridges)(f, g, np.asarray(p.mean), np.asarray(p.covariance))
    np.testing.assert_allclose(covariance(p, f, g), truth, atol=1e-9)


@pytest.mark.parametrize("kind", ["Box", "TruncatedGaussian", "ClippedGaussian"])
def test_supports_in_eight_dimensions(kind):
    """A product of integrals over one dimension each, by Gauss–Legendre; what is clipped sits on the bounds."""
    rng, d = np.random.default_rng(4), 8
    mean, variance, lower, upper = (
        rng.normal(size=d),
        rng.uniform(0.2, 2, d),
        -rng.uniform(0.5, 2, d),
        rng.uniform(0.5, 2, d),
    )
    f = mm.RBF(rng.normal(size=64), rng.normal(size=(64, d)), rng.uniform(0.2, 1, d))
    nodes, weights = np.polynomial.legendre.leggauss(80)
    x = lower + (upper - lower) * (nodes[:, None] + 1) / 2
    density = np.exp(-((x - mean) ** 2) / (2 * variance)) / np.sqrt(2 * np.pi * variance)
    mass = weights[:, None] * (upper - lower) / 2 * density
    low, high = ndtr((lower - mean) / np.sqrt(variance)), ndtr((mean - upper) / np.sqrt(variance))
    bump = lambda at: np.exp(-np.asarray(f.precision) * (at - np.asarray(f.centers)[:, None]) ** 2 / 2)  # noqa: E731
    if kind == "Box":
        p, inside = mm.Box(lower, upper), np.einsum("n,mnd->md", weights / 2, bump(x))
    else:
        p = getattr(mm, kind)(mm.DiagonalGaussian(mean, variance), lower, upper)
        inside = np.einsum("nd,mnd->md", mass, bump(x))
        if kind == "TruncatedGaussian":
            inside = inside / (1 - low - high)
        else:
            inside = inside + low * bump(lower[None])[:, 0] + high * bump(upper[None])[:, 0]
    truth = np.asarray(f.weights) @ inside.prod(axis=1)
    np.testing.assert_allclose(jax.jit(mm.expectation)(p, f), truth, rtol=1e-10, atol=1e-12)


def network(rng):
    sizes = (2, 6, 6, 2)
    weights = [rng.normal(size=(b, a)) / np.sqrt(a) for a, b in pairwise(sizes)]
    return mm.MatchedNetwork.dense(weights, [0.3 * rng.normal(size=b) for b in sizes[1:]], "erf")


def matern(rng):
    return mm.Matern(rng.normal(size=3), rng.normal(size=(3, 2)), np.ones(2), nu=2.5)


ANSWERS = {
    "a process": (lambda rng: process(rng, n=6, d=2), lambda q, f: mm.propagate(q, f, joint=True)),
    "a network": (network, lambda q, f: mm.propagate(q, f, joint=True)),
    "angles": (lambda rng: None, lambda q, f: mm.with_angles(q, [1])),
    "Matern": (matern, mm.cross_covariance),
    "crossed with x": (lambda rng: function("Erf", rng, 2, 4), mm.cross_covariance),
}


@pytest.mark.parametrize("kind", ANSWERS)
def test_a_batch_is_its_members(kind):
    rng = np.random.default_rng(2)
    make, answer = ANSWERS[kind]
    f, p = make(rng), mm.DiagonalGaussian(rng.normal(size=(3, 2)), rng.uniform(0.1, 0.5, (3, 2)))
    together = jax.jit(jax.vmap(lambda q: answer(q, f)))(p)
    one = jax.jit(lambda q: answer(q, f))
    alone = [one(jax.tree.map(lambda leaf, i=i: leaf[i], p)) for i in range(3)]
    for batch, *each in zip(*map(jax.tree.leaves, (together, *alone)), strict=True):
        np.testing.assert_allclose(batch, np.stack(each), rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("kind", [kind for kind in ANSWERS if kind != "Matern"])
def test_gradients_by_finite_differences(kind):
    rng = np.random.default_rng(3)
    make, answer = ANSWERS[kind]
    f, p = make(rng), problems.distribution("DiagonalGaussian", rng, 2)
    mixed = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape), jax.eval_shape(answer, p, f))

    def number(pair):
        return sum(jnp.sum(a * b) for a, b in zip(*map(jax.tree.leaves, (answer(*pair), mixed)), strict=True))

    check_gradient(jax.jit(jax.value_and_grad(number)), (p, f))
