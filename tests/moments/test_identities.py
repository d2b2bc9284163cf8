"""Relations that hold whatever the formula: limits, special cases, symmetries, derivatives, transformations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moca import moments as mm
from tests.moments import problems

PAIRS = problems.supported(mm.CLOSED_FORMS)
SPREAD = ["DiagonalGaussian", "Gaussian", "GaussianMixture", "Laplace", "StudentT"]
SPREAD_PAIRS = problems.supported(mm.CLOSED_FORMS, SPREAD)
expectation = jax.jit(mm.expectation)
variance = jax.jit(mm.variance)
expectations = jax.jit(lambda beliefs, f: [mm.expectation(p, f) for p in beliefs])
batched = jax.jit(jax.vmap(mm.expectation, (0, None)))
evaluate = jax.jit(lambda f, x: jax.vmap(f)(x))
slope = jax.jit(jax.value_and_grad(lambda pair: mm.expectation(*pair)))
variance_slope = jax.jit(jax.value_and_grad(lambda pair: mm.variance(*pair)))


def build(kind, function, d=3, spread=0.7, seed=0):
    rng = np.random.default_rng(seed)
    return problems.distribution(kind, rng, d, spread), problems.function(function, rng, d)


def spread_fields(p):
    """Replaces what makes p wide: its (co)variance or scale."""
    target = p.components if isinstance(p, mm.GaussianMixture) else p
    return target.variance if isinstance(target, mm.DiagonalGaussian) else target.shape_matrix


@pytest.mark.parametrize(("kind", "function"), SPREAD_PAIRS)
def test_without_spread_it_is_the_function_itself_with_finite_gradients(kind, function):
    p, f = build(kind, function, spread=0.0)
    points = p.components.mean if kind == "GaussianMixture" else p.mean[None]
    weights = p.weights if kind == "GaussianMixture" else jnp.ones(1)
    value, gradients = slope((p, f))
    np.testing.assert_allclose(value, weights @ evaluate(f, points), rtol=1e-14, atol=1e-14)
    assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(gradients))
    felt = jnp.abs(spread_fields(gradients[0])).max()
    assert (felt == 0) if function == "ReLU" else (felt > 0)  # ½ f″, which is zero beside the kinks


@pytest.mark.parametrize("df", [1, 3, 5])
def test_student_gradients_are_finite_without_spread(df):
    _, f = build("Dirac", "Fourier")

    def value(scale, f):
        return mm.expectation(mm.StudentT(jnp.zeros(3), scale, df), f)

    gradients = jax.tree.leaves(jax.jit(jax.grad(lambda pair: value(*pair)))((jnp.zeros((3, 3)), f)))
    assert all(jnp.isfinite(leaf).all() for leaf in gradients)


@pytest.mark.parametrize(("kind", "function"), PAIRS)
def test_gradient_equals_finite_differences(kind, function):
    check_gradient(slope, build(kind, function))


FELT = [("DiagonalGaussian", "RBF shared"), ("Gaussian", "Erf"), ("Laplace", "Fourier"), ("StudentT", "Quadratic")]


@pytest.mark.parametrize(
    ("kind", "function"),
    [
        each if each.values in FELT else pytest.param(*each.values, marks=pytest.mark.slow)
        for each in problems.supported(mm.VARIANCES)
    ],
)
def test_variance_gradient_equals_finite_differences(kind, function):
    check_gradient(variance_slope, build(kind, function))


def random_like(leaf, rng):
    """Normal numbers; symmetric where the leaf is."""
    draw, turned = rng.normal(size=leaf.shape), np.swapaxes(leaf, -1, -2) if leaf.ndim > 1 else None
    same = turned is not None and turned.shape == leaf.shape and np.array_equal(turned, leaf)
    return draw + np.swapaxes(draw, -1, -2) if same else draw


def check_gradient(slope, pair):
    """In every array of p and f together, along random directions that keep matrices symmetric."""
    rng = np.random.default_rng(0)
    _, gradients = slope(pair)
    for _ in range(2):
        direction = jax.tree.map(lambda leaf: random_like(leaf, rng), pair)
        along = sum(np.sum(g * v) for g, v in zip(*map(jax.tree.leaves, (gradients, direction)), strict=True))
        step = 1e-5
        ends = [slope(jax.tree.map(lambda leaf, v, s=s: leaf + s * v, pair, direction))[0] for s in (-step, step)]
        np.testing.assert_allclose((ends[1] - ends[0]) / (2 * step), along, rtol=1e-5, atol=1e-8)


FEW = [f if f in ("RBF per basis", "Erf") else pytest.param(f, marks=pytest.mark.slow) for f in problems.FUNCTIONS]


@pytest.mark.parametrize("function", FEW)
def test_full_covariance_equals_diagonal_without_correlations(function):
    p, f = build("DiagonalGaussian", function)
    full = mm.Gaussian(p.mean, p.covariance)
    np.testing.assert_allclose(expectation(full, f), expectation(p, f), rtol=1e-13)


@pytest.mark.parametrize("function", FEW)
def test_mixture_of_one_equals_its_component(function):
    p, f = build("Gaussian", function)
    np.testing.assert_allclose(expectation(mm.GaussianMixture([1.0], [p]), f), expectation(p, f), rtol=1e-14)


@pytest.mark.parametrize("verb", [expectation, pytest.param(variance, marks=pytest.mark.slow)])
def test_the_four_forms_of_a_precision_agree(verb):
    rng = np.random.default_rng(0)
    f = problems.function("RBF shared", rng, 3)
    full = jnp.diag(f.precision)[None]
    forms = [f.precision, jnp.tile(f.precision, (5, 1)), full, jnp.tile(full, (5, 1, 1))]
    alike = [mm.RBF(f.weights, f.centers, form, f.constant) for form in forms]
    for kind in ("DiagonalGaussian", "Gaussian"):
        p = problems.distribution(kind, rng, 3)
        np.testing.assert_allclose([verb(p, g) for g in alike], verb(p, f), rtol=1e-11)


def test_monomials_are_the_polynomial_they_spell():
    f = mm.Polynomial.from_monomials([3.0, -1.0, 0.5, 2.0], [[2, 1], [0, 4], [0, 0], [1, 1]])
    for x, y in ([0.3, -1.2], [2.0, 0.7]):
        np.testing.assert_allclose(
            evaluate(f, np.array([[x, y]]))[0], 3 * x**2 * y - y**4 + 0.5 + 2 * x * y, rtol=1e-13
        )


@pytest.mark.parametrize(("kind", "function"), PAIRS)
def test_jit_and_vmap_change_nothing(kind, function):
    p, f = build(kind, function)
    q, _ = build(kind, function, seed=1)
    alone = [expectation(p, f), expectation(q, f)]
    batch = jax.tree.map(lambda *leaves: jnp.stack(leaves), p, q)
    np.testing.assert_allclose(batched(batch, f), alone, rtol=1e-12)


@pytest.mark.parametrize(("kind", "function"), PAIRS)
def test_pytree_round_trip(kind, function):
    p, f = build(kind, function)
    leaves, structure = jax.tree.flatten((p, f))
    assert all(leaf.dtype == jnp.float64 and not leaf.weak_type for leaf in leaves)
    np.testing.assert_array_equal(expectation(*jax.tree.unflatten(structure, leaves)), expectation(p, f))


def test_a_function_of_ones_own_works_under_points():
    square = lambda x: jnp.sum(x**2)  # noqa: E731
    assert mm.expectation(mm.Dirac([1.0, 2.0]), square) == 5
    assert mm.expectation(mm.Empirical([[1.0, 2.0], [0.0, 1.0]]), square) == 3


@settings(max_examples=10, deadline=None)
@given(st.sampled_from([1, 3]), st.just(4), st.integers(0, 2**32 - 1), st.booleans())
def test_moment_matching_has_the_moments_of_the_mixture(d, k, seed, full):
    """Its mean and covariance are the expectations of x and xxᵀ, which the polynomials give for the exact mixture."""
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.ones(k))
    kind = "Gaussian" if full else "DiagonalGaussian"
    mixture = mm.GaussianMixture(weights, [problems.distribution(kind, rng, d) for _ in range(k)])
    matched = mm.moment_match(mixture, full=True)
    unit = np.eye(d * d).reshape(d * d, d, d)
    f = mm.Quadratic(np.r_[unit, np.zeros((d, d, d))], np.r_[np.zeros((d * d, d)), np.eye(d)])
    np.testing.assert_allclose(*expectations((matched, mixture), f), atol=1e-12)
    diagonal = mm.moment_match(mixture, full=False)
    np.testing.assert_allclose(diagonal.variance, jnp.diagonal(matched.covariance), rtol=1e-13)
    assert type(mm.moment_match(mixture)).__name__ == kind


def test_moment_matching_of_two_components_by_hand():
    """Means ±1, variances 1 and 3, equal weights: mean 0, aleatoric 2, epistemic 1."""
    mixture = mm.GaussianMixture([0.5, 0.5], mm.DiagonalGaussian([[1.0], [-1.0]], [[1.0], [3.0]]))
    mean, aleatoric, epistemic = mm.decompose(mixture)
    np.testing.assert_allclose([mean[0], aleatoric[0], epistemic[0]], [0, 2, 1])
    np.testing.assert_allclose(mm.moment_match(mixture).variance, [3])


@pytest.mark.slow
def test_moment_matching_against_samples():
    rng = np.random.default_rng(0)
    mixture = problems.distribution("GaussianMixture", rng, 3)
    x = np.asarray(mixture.sample(jax.random.key(1), 200_000))
    matched = mm.moment_match(mixture)
    np.testing.assert_allclose(x.mean(0), matched.mean, atol=4 * x.std() / np.sqrt(len(x)))
    np.testing.assert_allclose(np.cov(x.T), matched.covariance, atol=0.02)


def test_members_that_agree_leave_nothing_epistemic():
    p = problems.distribution("Gaussian", np.random.default_rng(0), 3)
    parts = mm.decompose(mm.GaussianMixture([0.5, 0.5], [p, p]))
    np.testing.assert_allclose(parts.epistemic, 0, atol=1e-15)
    np.testing.assert_allclose(parts.aleatoric, p.covariance)


@pytest.mark.parametrize("kind", ["DiagonalGaussian", "Gaussian"])
def test_conditioning_is_bayes_rule(kind):
    """Precisions add, and so do precision-weighted means."""
    rng = np.random.default_rng(0)
    p = problems.distribution(kind, rng, 3)
    point, precision = rng.normal(size=3), rng.uniform(0.5, 2, 3)
    posterior = p.condition(point, precision if kind == "DiagonalGaussian" else np.diag(precision))
    prior = np.linalg.inv(p.covariance)
    total = prior + np.diag(precision)
    np.testing.assert_allclose(posterior.covariance, np.linalg.inv(total), rtol=1e-12)
    np.testing.assert_allclose(posterior.mean, np.linalg.solve(total, prior @ p.mean + precision * point), rtol=1e-12)
