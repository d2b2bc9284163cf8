"""max_a Q = V, whatever the action dimension, the curvature and the bounds."""

import itertools
from functools import lru_cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

from moca import config
from moca import moments as mm
from moca.critic import ActionSlice, QuadraticCritic, advantages, box_maximiser, keep_alive


@lru_cache
def critic(size, curvature, head="vertex", seed=0):
    value = mm.RBF(
        jax.random.normal(jax.random.key(9), (6,)), jax.random.normal(jax.random.key(8), (6, 3)), jnp.ones(3)
    )
    settings = config.CriticConfig(width=16, curvature=curvature, head=head)
    made = QuadraticCritic(jax.random.key(seed), settings, value, 3, size)
    # Vertices well outside the box too, and curvature that couples the dimensions.
    scale = lambda head, factor: jax.tree.map(lambda w: factor * w, head)  # noqa: E731
    heads = lambda c: (c.vertex_head, c.cholesky_head)  # noqa: E731
    return eqx.tree_at(heads, made, (scale(made.vertex_head, 30.0), scale(made.cholesky_head, 6.0)))


def grid(size, count):
    return jnp.array(list(itertools.product(np.linspace(-1, 1, count, dtype=np.float32).tolist(), repeat=size)))


@pytest.mark.parametrize("head", config.HEADS)
@pytest.mark.parametrize("curvature", config.CURVATURES)
@pytest.mark.parametrize(("size", "count"), [(1, 2001), (2, 201), (3, 41)])
def test_the_maximum_over_a_grid_is_the_value(size, count, curvature, head):
    made = critic(size, curvature, head)
    points = grid(size, count)

    @jax.jit
    def at(s):
        cut, q = made.slice(s), jax.vmap(made, (None, 0))
        return *cut, q(s, points), q(s, cut.greedy[None]), made.value(s)

    outside = 0
    for seed in range(12):
        slope, factor, greedy, values, best, value = map(np.asarray, at(jax.random.normal(jax.random.key(seed), (3,))))
        vertex = np.linalg.solve(factor @ factor.T, slope)
        np.testing.assert_allclose(best, value, rtol=1e-4, atol=1e-4)
        assert values.max() <= value + 1e-3
        # The nearest grid point cannot be worse than the curvature over half a cell.
        step = 2 / (count - 1)
        slack = 0.5 * np.linalg.norm(factor @ factor.T, 2) * size * (step / 2) ** 2
        slope = np.abs(factor @ factor.T @ (greedy - vertex)).sum() * step / 2
        assert values.max() >= value - slack - slope - 1e-3
        outside += bool((np.abs(vertex) > 1).any())
    assert outside > 2


@pytest.mark.parametrize("curvature", config.CURVATURES)
def test_a_squashed_vertex_is_the_greedy_action(curvature):
    """The NAF that squashes: Q = V − ½ ‖a − tanh m‖²_P, for which nothing is ever outside the box."""
    made = critic(2, curvature, "tanh")
    actions = np.array([[0.0, 0.0], [1.0, -1.0], [-0.3, 0.8]], np.float32)

    @jax.jit
    def at(s):
        _, factor, greedy = made.slice(s)
        squashed = jnp.tanh(made.vertex_head(jax.nn.relu(made.trunk(s))))
        return factor, greedy, squashed, made.value(s), jax.vmap(made, (None, 0))(s, actions)

    for seed in range(5):
        factor, greedy, squashed, value, found = map(np.asarray, at(jax.random.normal(jax.random.key(seed), (3,))))
        np.testing.assert_allclose(greedy, squashed, rtol=1e-6)
        away = (actions - greedy) @ factor
        np.testing.assert_allclose(found, value - 0.5 * np.sum(away**2, axis=1), rtol=1e-4, atol=1e-3)


def test_clipping_is_not_the_maximiser_of_a_coupled_quadratic():
    P, vertex = jnp.array([[1.0, 0.9], [0.9, 1.0]]), jnp.array([2.0, 0.0])
    np.testing.assert_allclose(box_maximiser(P, vertex), [1.0, 0.9], atol=1e-6)


@pytest.mark.parametrize("size", [2, 3, 6])
def test_the_box_maximiser_satisfies_the_optimality_conditions(size):
    """Zero gradient where free, gradient pointing outwards where bound: all that a concave problem asks."""
    solve = jax.jit(box_maximiser)
    for seed in range(30):
        drawn = np.asarray(jax.random.normal(jax.random.key(seed), (size + 1, size)))
        root, vertex = drawn[:size], drawn[size]
        P = root @ root.T + np.float32(0.1) * np.eye(size, dtype=np.float32)
        action = np.asarray(solve(P, 2 * vertex))
        gradient = -P @ (action - 2 * vertex)
        assert (np.abs(action) <= 1 + 1e-5).all()
        free = np.abs(action) < 1 - 1e-5
        np.testing.assert_allclose(np.where(free, gradient, 0), 0, atol=2e-3)
        assert (np.where(free, 1.0, gradient * np.sign(action)) > -2e-3).all()


def test_the_box_maximiser_has_the_right_derivative():
    P = jnp.array([[1.0, 0.9], [0.9, 1.0]])
    jacobian = jax.jit(jax.jacobian(lambda v: box_maximiser(P, v)))(jnp.array([2.0, 0.0]))
    # a = (1, μ̃₂ + 0.9 (μ̃₁ − 1)) near there.
    np.testing.assert_allclose(jacobian, [[0, 0], [0.9, 1.0]], atol=1e-5)


def test_curvature_has_its_floor():
    made = critic(2, "full")
    flat = eqx.tree_at(lambda c: c.cholesky_head, made, jax.tree.map(lambda w: w - 50, made.cholesky_head))
    factor = flat.slice(jnp.ones(3)).factor
    assert (jnp.diagonal(factor) ** 2 >= made.floor - 1e-9).all()


def test_keep_alive_by_hand():
    np.testing.assert_allclose(keep_alive(jnp.array([[0.5, 0.0], [0.5, 0.5]]), 2.0), (2 - 0.75) ** 2)
    assert keep_alive(jnp.eye(2), 2.0) == 0


@pytest.mark.parametrize("curvature", config.CURVATURES)
def test_both_heads_are_the_same_quadratic(curvature):
    """A slope head that outputs Pμ̃ has the advantage of a vertex head that outputs μ̃, for any action."""
    by_vertex = critic(2, curvature)
    s, actions = jnp.array([0.3, -0.2, 0.1]), grid(2, 5)

    @jax.jit
    def both(by_slope):
        slope, _, greedy = by_vertex.slice(s)
        output = by_slope.vertex_head(jax.nn.relu(by_slope.trunk(s)))
        bias = by_slope.vertex_head.biases[-1] + slope - output
        by_slope = eqx.tree_at(lambda c: c.vertex_head.biases[-1], by_slope, bias)
        return greedy, by_slope.slice(s).greedy, *(jax.vmap(q, (None, 0))(s, actions) for q in (by_vertex, by_slope))

    greedy, same, q, again = both(critic(2, curvature, "slope"))
    np.testing.assert_allclose(same, greedy, rtol=1e-4)
    np.testing.assert_allclose(again, q, rtol=1e-4, atol=1e-3)


def test_without_curvature_the_action_is_at_a_bound_and_gradients_are_finite():
    made = critic(1, "diagonal", "slope")
    made = eqx.tree_at(lambda c: c.cholesky_head.biases[-1], made, jnp.array([-60.0]))
    s = jnp.array([0.3, -0.2, 0.1])

    @jax.jit
    def at_a_bound(made):
        cut = made.slice(s)
        return cut.slope, cut.greedy, cut.advantage(-cut.greedy), jax.grad(lambda c: c(s, jnp.array([0.3])))(made)

    slope, greedy, advantage, gradient = jax.device_get(at_a_bound(made))
    assert abs(float(greedy[0])) == 1
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))
    np.testing.assert_allclose(advantage, -2 * abs(slope[0]), rtol=1e-2)


def rule(mean, deviation, truncated, low=-1.0, high=1.0):
    """Nodes and weights of a Gaussian between two bounds: by pieces, with atoms at the bounds if it is clipped."""
    nodes, weights = np.polynomial.legendre.leggauss(60)
    ends = np.linspace(low, high, 9)
    half = np.diff(ends)[:, None] / 2
    nodes, weights = (ends[:-1, None] + half * (1 + nodes)).ravel(), (half * weights).ravel()
    weights = weights * norm.pdf(nodes, mean, deviation)
    if truncated:
        return nodes, weights / weights.sum()
    atoms = norm.cdf(low, mean, deviation), norm.sf(high, mean, deviation)
    return np.append(nodes, (low, high)), np.append(weights, atoms)


def bounded_naf(vertex, factor):
    """A(a) of Eq. 3 as it is printed, and the slice that the critic makes of it."""
    P, vertex = factor @ factor.T, np.asarray(vertex)
    greedy = np.asarray(box_maximiser(jnp.asarray(P), jnp.asarray(vertex)))
    norm2 = lambda x: np.einsum("...i,ij,...j", x, P, x)  # noqa: E731
    slices = ActionSlice(jnp.asarray(P @ vertex), jnp.asarray(factor), jnp.asarray(greedy))
    return lambda a: -norm2(a - vertex) / 2 + norm2(greedy - vertex) / 2, slices


ONE = ([1.7], np.array([[1.3]]))
TWO = ([1.4, -0.6], np.array([[1.1, 0.0], [0.7, 0.9]]))


@pytest.mark.parametrize("truncated", [False, True])
@pytest.mark.parametrize(("vertex", "factor"), [ONE, TWO])
@pytest.mark.parametrize("wide", [0.2, 1.0, 4.0])
def test_the_expected_advantage_is_that_by_quadrature(vertex, factor, wide, truncated):
    """Mean and variance of Q(s, a) over a clipped or truncated Gaussian, Eq. 3's correction inside."""
    with jax.enable_x64(True):
        exact, slices = bounded_naf(vertex, factor)
        size, mean = len(vertex), np.array([0.8, -0.3])[: len(vertex)]
        deviation = wide * np.array([1.0, 0.7])[:size]
        rules = [rule(*each, truncated) for each in zip(mean, deviation, strict=True)]
        points = np.stack(np.meshgrid(*(nodes for nodes, _ in rules), indexing="ij"), axis=-1)
        weights = np.prod(np.stack(np.meshgrid(*(w for _, w in rules), indexing="ij")), axis=0)
        kind = mm.TruncatedGaussian if truncated else mm.ClippedGaussian
        action = kind(mm.DiagonalGaussian(mean, deviation**2), -np.ones(size), np.ones(size))
        average = np.sum(weights * exact(points))
        variance = np.sum(weights * (exact(points) - average) ** 2)
        found = jax.jit(lambda s: (s.expected_advantage(action), mm.variance(action, s.quadratic())))(slices)
        np.testing.assert_allclose(found[0], average, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(found[1], variance, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(mm.expectation(action, slices.quadratic()), average, rtol=1e-10, atol=1e-12)


def test_the_expected_advantage_of_correlated_clipped_actions_needs_their_covariance():
    """There is no class for them, but clipping is a difference of two rectifiers, whose moments are exact."""
    with jax.enable_x64(True):
        exact, slices = bounded_naf(*TWO)
        mean, covariance = np.array([0.8, -0.3]), np.array([[0.5, 0.3], [0.3, 0.4]])
        gaussian = mm.Gaussian(mean, covariance)
        with pytest.raises(TypeError, match="DiagonalGaussian"):
            mm.ClippedGaussian(gaussian, -np.ones(2), np.ones(2))
        eye = np.eye(2)
        clip = mm.ReLU(np.hstack([eye, -eye]), np.vstack([eye, eye]), np.array([1.0, 1, -1, -1]), -np.ones(2))
        found = slices.expected_advantage(mm.propagate(gaussian, clip))
        slope = covariance[0, 1] / covariance[0, 0]
        deviation = np.sqrt(covariance[1, 1] - slope * covariance[0, 1])
        average, spread = 0.0, np.sqrt(covariance[0, 0])
        for low, high in ((-1 - 9 * spread, -1), (-1, 1), (1, 1 + 9 * spread)):
            for x, weight in zip(*(each[:-2] for each in rule(mean[0], spread, False, low, high)), strict=True):
                nodes, weights = rule(mean[1] + slope * (x - mean[0]), deviation, False)
                points = np.stack([np.full_like(nodes, np.clip(x, -1, 1)), nodes], axis=-1)
                average += weight * np.sum(weights * exact(points))
        np.testing.assert_allclose(found, average, rtol=1e-10)


def test_advantages_of_actions_without_variance_are_those_of_points():
    made = critic(2, "full")
    states, actions = jax.random.normal(jax.random.key(0), (5, 3)), jnp.linspace(-1, 1, 10).reshape(5, 2)
    slices = jax.vmap(made.slice)(states)
    points, sure = (advantages(slices, actions, each) for each in (None, jnp.zeros((5, 2))))
    np.testing.assert_allclose(points, sure, rtol=1e-6)
    assert (advantages(slices, actions, jnp.full((5, 2), 0.1)) < points).all()
