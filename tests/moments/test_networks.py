"""Moments through layers: exact for one, matched beyond, with an estimate of what matching costs."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moca import moments as mm
from tests.moments import problems, reference

ACTIVATIONS = ["erf", "relu", "gelu", "sine"]
SOME = ["sine", *(pytest.param(each, marks=pytest.mark.slow) for each in ("erf", "relu", "gelu"))]
evaluate = jax.jit(lambda f, x: jax.vmap(f)(x))
joint = jax.jit(lambda p, f: mm.propagate(p, f, joint=True))
alone = jax.jit(lambda p, f: mm.propagate(p, f))
diagonal = jax.jit(lambda p, f: mm.propagate(p, f, diagonal=True))


def network(rng, sizes, activation="erf", dtype=np.float64):
    """Weights N(0, 1/fan-in), biases a tenth of that."""
    pairs = list(itertools.pairwise(sizes))
    weights = [np.asarray(rng.normal(size=(b, a)) / np.sqrt(a), dtype) for a, b in pairs]
    biases = [np.asarray(0.1 * rng.normal(size=b), dtype) for _, b in pairs]
    return mm.MatchedNetwork.dense(weights, biases, activation), weights, biases


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_it_is_the_network_it_spells(activation):
    f, weights, biases = network(np.random.default_rng(0), (3, 8, 7, 2), activation)
    unit = {
        "erf": jax.scipy.special.erf, "relu": jax.nn.relu, "sine": jnp.sin,
        "gelu": lambda a: jax.nn.gelu(a, approximate=False),
    }[activation]  # fmt: skip
    x = y = np.array([0.3, -0.7, 1.2])
    for w, b in zip(weights[:-1], biases[:-1], strict=True):
        y = unit(w @ y + b)
    np.testing.assert_allclose(f(x), weights[-1] @ y + biases[-1], rtol=1e-12)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", [np.float64, pytest.param(np.float32, marks=pytest.mark.slow)])
def test_one_hidden_layer_is_exact(activation, dtype):
    """The moments of (x, f(x)) by quadrature in one dimension, where kinks can be resolved by brute force."""
    rng = np.random.default_rng(1)
    f, _, _ = network(rng, (1, 6, 2), activation, dtype)
    p = mm.DiagonalGaussian(np.array([0.3], dtype), np.array([0.8], dtype))
    q = joint(p, f)
    z, over = reference.split_rule(np.zeros(()), np.ones(()), panels=400)
    x = 0.3 + np.sqrt(0.8) * z
    y = np.concatenate([x[:, None], np.asarray(evaluate(f, x[:, None].astype(dtype)))], 1)
    mean = over @ y
    truth = (y - mean).T @ (over[:, None] * (y - mean))
    tolerance = {np.float64: 1e-10, np.float32: 2e-5}[dtype] if activation != "relu" else 2e-5
    np.testing.assert_allclose(q.mean, mean, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(q.covariance, truth, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("activation", SOME)
def test_two_layers_are_two_steps(activation):
    """Each matched by itself, the cross-covariance through the mean derivative; zero spread is exact."""
    rng = np.random.default_rng(0)
    f, _, _ = network(rng, (3, 6, 5, 2), activation)
    p = problems.distribution("Gaussian", rng, 3)
    middle = joint(p, f.layers[0])
    last = joint(mm.Gaussian(middle.mean[3:], middle.covariance[3:, 3:]), f.layers[1])
    whole = joint(p, f)
    np.testing.assert_allclose(whole.mean[3:], last.mean[6:], rtol=1e-12)
    np.testing.assert_allclose(whole.covariance[3:, 3:], last.covariance[6:, 6:], rtol=1e-11)
    slope = np.linalg.lstsq(last.covariance[:6, :6], last.covariance[:6, 6:], rcond=1e-10)[0].T
    truth = slope @ middle.covariance[3:, :3]
    np.testing.assert_allclose(whole.covariance[3:, :3], truth, rtol=1e-6, atol=1e-8)
    still = mm.Gaussian(p.mean, np.zeros((3, 3)))
    np.testing.assert_allclose(joint(still, f).mean[3:], evaluate(f, p.mean[None])[0], rtol=1e-13)
    np.testing.assert_allclose(joint(still, f).covariance, 0, atol=1e-14)
    gradient = jax.jit(jax.grad(lambda p: mm.propagate(p, f).covariance.sum()))(still)
    assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


@pytest.mark.parametrize("activation", SOME)
def test_diagonal_keeps_what_one_layer_makes_of_each_unit(activation):
    rng = np.random.default_rng(0)
    f, weights, _ = network(rng, (3, 6, 2), activation)
    p = problems.distribution("Gaussian", rng, 3)
    units = mm.MatchedNetwork([type(f.layers[0])(None, f.layers[0].rows, f.layers[0].shifts)])
    each = diagonal(p, units)
    np.testing.assert_allclose(each.variance, jax.jit(mm.variance)(p, units.layers[0]), rtol=1e-10)
    whole = diagonal(p, f)
    np.testing.assert_allclose(whole.variance, weights[-1] ** 2 @ each.variance, rtol=1e-12)
    np.testing.assert_allclose(whole.mean, jax.jit(mm.expectation)(p, f.layers[0]), rtol=1e-12)


def test_what_a_network_refuses():
    rng = np.random.default_rng(0)
    f, weights, biases = network(rng, (4, 3, 3, 2))
    p = mm.DiagonalGaussian(np.zeros(4), np.ones(4))
    for build, message in (
        (lambda: mm.expectation(p, f), "no closed form for the expectation of MatchedNetwork under DiagonalGaussian"),
        (lambda: mm.covariance(p, f), "no closed form for the covariance of MatchedNetwork and MatchedNetwork"),
        (lambda: mm.matching_error(p, f), "up to three input dimensions, got 4"),
        (lambda: mm.MatchedNetwork.dense(weights, biases, "silu"), "one of erf, relu, gelu, sine, got 'silu'"),
        (lambda: mm.MatchedNetwork.dense(weights, biases[1:], "erf"), "equally many biases, got 3 and 2"),
        (lambda: mm.MatchedNetwork([]), "at least one layer"),
        (lambda: mm.MatchedNetwork([f.layers[1], f.layers[1]]), r"layer 0 of the network has outputs \(2,\)"),
        (lambda: mm.propagate(mm.Laplace(np.zeros(4), np.eye(4)), f, diagonal=True), "a network needs a Gaussian"),
        (lambda: mm.propagate(mm.Laplace(np.zeros(4), np.eye(4)), f), "expectation of Erf under Laplace"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            build()


estimate = jax.jit(lambda p, f: (mm.propagate(p, f), mm.matching_error(p, f)))


def true_error(p, f, q, points):
    """By a much finer rule than the estimate's."""
    x, over = mm.numerical.nodes_and_weights(p, points)
    y, over = np.asarray(evaluate(f, x)), np.asarray(over)
    mean = over @ y
    spread = (over[:, None] * (y - mean)).T @ (y - mean)
    return np.abs(q.mean - mean), np.abs(np.diagonal(q.covariance) - np.diagonal(spread))


@pytest.mark.parametrize(
    ("seed", "cases", "dimensions"),
    [(3, 10, [2]), *(pytest.param(seed, 100, [1, 2, 3], marks=pytest.mark.slow) for seed in (3, 4, 5))],
)
def test_the_estimate_brackets_the_error(seed, cases, dimensions):
    """Random networks and beliefs: mean and variance at least the true errors in 95 of 100, near them in the median."""
    rng = np.random.default_rng(seed)
    held, ratios = [], []
    for case in range(cases):
        d = dimensions[case % len(dimensions)]
        f, _, _ = network(rng, (d, 16, 16, 16, 1))
        p = mm.DiagonalGaussian(rng.normal(size=d), rng.uniform(0.05, 1, d) ** 2)
        q, error = estimate(p, f)
        true = true_error(p, f, q, {1: 200, 2: 80, 3: 36}[d])
        each = [float(guess.ravel()[0] / truth[0]) for guess, truth in zip(error, true, strict=True)]
        held.append(min(each) >= 1)
        ratios += each
    print(f"held in {np.mean(held):.3f} of {len(held)}, median ratio {np.median(ratios):.3f}")
    assert np.mean(held) >= 0.95
    assert np.median(ratios) <= 3


@pytest.mark.slow
def test_three_layers_of_sixty_four_against_a_million_samples():
    """Twenty networks: mean within 0.1 of the output's deviation, variance within 15 % in the median."""
    rng = np.random.default_rng(0)
    means, variances, without = [], [], []
    for number in range(20):
        f, _, _ = network(rng, (4, 64, 64, 64, 1), "erf", np.float32)
        p = mm.DiagonalGaussian(rng.normal(size=4).astype(np.float32), (rng.uniform(0, 1, 4) ** 2).astype(np.float32))
        q, apart = alone(p, f), diagonal(p, f)
        y = np.concatenate(
            [
                np.asarray(evaluate(f, p.sample(key, 100_000)), np.float64)
                for key in jax.random.split(jax.random.key(number), 10)
            ]
        )
        means.append(abs(float(q.mean[0]) - y.mean()) / y.std())
        variances.append(abs(float(q.variance[0]) / y.var() - 1))
        without.append(abs(float(apart.variance[0]) / y.var() - 1))
    print(f"mean {max(means):.3f}, variance {np.median(variances):.3f}, diagonal {np.median(without):.3f}")
    assert max(means) <= 0.1
    assert np.median(variances) <= 0.15
