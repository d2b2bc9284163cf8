"""Covariances of two functions, within and across classes, against numerical integration."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from jax.test_util import check_grads

from moca import moments as mm
from moca.moments._special import bivariate_excess
from tests.moments import problems, reference
from tests.moments.test_expectation import evaluate, integrate_scale_mixture

TOLERANCE = {np.float64: 1e-10, np.float32: 2e-5}
KINDS = ["RBF per basis", "RBF full", "Fourier", "Erf", "ReLU", "GELU", "Quadratic", "Polynomial"]
GATED = ["Erf", "ReLU", "GELU"]
PAIRS = [
    pair
    for pair in itertools.combinations_with_replacement(KINDS, 2)
    if not ("Fourier" in pair and set(pair) & set(GATED))
]


# One of each formula, quick enough for every run; the other pairs are slow tests.
QUICK = [
    ("RBF full", "RBF full"), ("RBF per basis", "Erf"), ("Fourier", "Fourier"), ("Fourier", "Polynomial"),
    ("ReLU", "Polynomial"), ("Erf", "GELU"), ("Quadratic", "Polynomial"),
]  # fmt: skip


def slow(*pair):
    return pytest.param(*pair, marks=pytest.mark.slow)


def few(count):
    """All pairs, of which only the first of the quick ones are run every time."""
    return [p if p in QUICK[:count] else pytest.param(*p, marks=pytest.mark.slow) for p in PAIRS]


KNOWN = [
    ("DiagonalGaussian", "RBF per basis"),
    ("DiagonalGaussian", "Erf"),
    ("Gaussian", "RBF full"),
    ("Gaussian", "GELU"),
    ("GaussianMixture", "Fourier"),
]

covariance, cross_covariance, product = jax.jit(mm.covariance), jax.jit(mm.cross_covariance), jax.jit(mm.product)
variance = jax.jit(mm.variance)
expectation = jax.jit(mm.expectation)
covariances = jax.jit(jax.vmap(mm.covariance, (0, None, None)))


def values(f, x):
    """f at each x, in double precision whatever f was made in."""
    return np.asarray(evaluate(jax.tree.map(lambda leaf: leaf.astype(np.float64), f), x))


def integrate_covariance(p, f, g):
    """By a grid in two dimensions; the kinks of a ReLU are resolved, unit by unit."""
    mean, spread = np.asarray(p.mean, np.float64), np.asarray(p.covariance, np.float64)
    if isinstance(f, mm.ReLU) and isinstance(g, mm.ReLU | mm.Erf | mm.GELU):
        return np.asarray(f.weights) @ unit_matrix(mean, spread, f, g) @ np.asarray(g.weights).T
    if isinstance(g, mm.ReLU):
        return integrate_covariance(p, g, f).T
    if isinstance(f, mm.ReLU):
        total = 0
        for weight, u, b in zip(np.asarray(f.weights).T, np.asarray(f.rows), np.asarray(f.shifts), strict=True):
            x, over = reference.kinked_tensor_rule(mean, spread, u, b)
            of_g, unit = values(g, x), np.maximum(x @ u + b, 0)
            total = total + np.multiply.outer(weight, (over * (unit - over @ unit)) @ of_g)
        return total
    x, over = reference.tensor_rule(mean, spread, 241)
    of_f, of_g = values(f, x), values(g, x)
    return np.tensordot(of_f - np.tensordot(over, of_f, 1), over.reshape(-1, *[1] * (of_g.ndim - 1)) * of_g, (0, 0))


def unit_matrix(mean, spread, f, g):
    """Cov(σ(aᵢ), τ(bⱼ)) for every pair of units."""
    f_rows, g_rows = np.asarray(f.rows, np.float64), np.asarray(g.rows, np.float64)
    m_a, m_b = f_rows @ mean + np.asarray(f.shifts, np.float64), g_rows @ mean + np.asarray(g.shifts, np.float64)
    v_a, v_b = (np.einsum("mi,ij,mj->m", rows, spread, rows) for rows in (f_rows, g_rows))
    between = f_rows @ spread @ g_rows.T
    kinds = type(f).__name__, type(g).__name__
    return np.array(
        [
            [reference.unit_covariance(*kinds, m_a[i], v_a[i], m_b[j], v_b[j], between[i, j]) for j in range(len(m_b))]
            for i in range(len(m_a))
        ]
    )


@pytest.mark.parametrize(
    ("one", "two", "dtype"),
    [
        pytest.param(*p, dtype, marks=() if p in QUICK[:count] else pytest.mark.slow)
        for dtype, count in ((np.float64, 7), (np.float32, 1))
        for p in PAIRS
    ],
)
def test_every_pair_by_quadrature(one, two, dtype):
    """A batch of Gaussians, narrow to wide, three outputs against one; covariance, product and turned order."""
    rng = np.random.default_rng(KINDS.index(one) * 10 + KINDS.index(two))
    f = problems.function(one, rng, 2, 3, dtype=dtype, outputs=(3,))
    g = problems.function(two, rng, 2, 4, dtype=dtype)
    beliefs = [problems.distribution("Gaussian", rng, 2, spread, dtype) for spread in (0.05, 0.5, 2.0)]
    batch = jax.tree.map(lambda *leaves: jnp.stack(leaves), *beliefs)
    got = covariances(batch, f, g)
    assert got.dtype == dtype
    for p, value in zip(beliefs, got, strict=True):
        x, over = reference.tensor_rule(np.asarray(p.mean, np.float64), np.asarray(p.covariance, np.float64))
        square_f, square_g = over @ values(f, x) ** 2, over @ values(g, x) ** 2
        scale = np.sqrt(square_f * square_g)
        error = np.abs(np.asarray(value, np.float64) - integrate_covariance(p, f, g))
        assert (error <= TOLERANCE[dtype] * scale).all(), (error / scale).max()


@pytest.mark.parametrize(
    ("one", "two"), [QUICK[1], ("Erf", "ReLU"), *(pytest.param(*QUICK[i], marks=pytest.mark.slow) for i in (3, 5))]
)
def test_order_and_product(one, two):
    """The covariance turned around, and E[f g] from the covariance and the means."""
    rng = np.random.default_rng(0)
    p = problems.distribution("Gaussian", rng, 2)
    f, g = problems.function(one, rng, 2, 3, outputs=(3,)), problems.function(two, rng, 2, 4)

    @jax.jit
    def every(p, f, g):
        both = mm.covariance(p, f, g), mm.covariance(p, g, f), mm.product(p, f, g)
        return *both, mm.expectation(p, f), mm.expectation(p, g)

    got, turned, times, *means = every(p, f, g)
    np.testing.assert_allclose(turned, got, rtol=1e-9, atol=1e-13)
    np.testing.assert_allclose(times, got + np.multiply.outer(*means), rtol=1e-12)


@pytest.mark.parametrize(
    ("pair", "dtype"),
    [
        pytest.param(pair, dtype, marks=() if dtype == np.float64 or pair == ("ReLU", "GELU") else pytest.mark.slow)
        for pair in itertools.combinations_with_replacement(GATED, 2)
        for dtype in TOLERANCE
    ],
)
def test_pairs_of_units_at_every_correlation(pair, dtype):
    """Two units at a time: widths from 1e-3 to 30, correlations up to one, arguments far out."""
    rng = np.random.default_rng(0)
    rho = np.r_[0.0, 0.5, -0.7, 0.92, 0.93, -0.95, 0.999, -0.99999, 1 - 1e-9, 1.0, -1.0, rng.uniform(-1, 1, 5)]
    count = len(rho)
    m = rng.normal(size=(count, 2)) * rng.choice([0.1, 1, 4], (count, 2))
    m[9] = m[9, 0]
    s = 10 ** rng.uniform(-3, 1.5, (count, 2))
    s[9] = s[9, 0]
    rows = np.stack([np.stack([s[:, 0], 0 * rho], 1), s[:, 1, None] * np.stack([rho, np.sqrt(1 - rho**2)], 1)], 1)
    rows, m = rows.astype(dtype), m.astype(dtype)
    make = [getattr(mm, kind) for kind in pair]
    p = mm.DiagonalGaussian(np.zeros(2, dtype), np.ones(2, dtype))

    def both(rows, m):
        return mm.covariance(p, make[0](None, rows[:1], m[:1]), make[1](None, rows[1:], m[1:]))[0, 0]

    got = np.asarray(jax.jit(jax.vmap(both))(rows, m), np.float64)
    rows, m = rows.astype(np.float64), m.astype(np.float64)
    spread = np.einsum("nij,nkj->nik", rows, rows)
    for i in range(count):
        a, b = (m[i, 0], spread[i, 0, 0]), (m[i, 1], spread[i, 1, 1])
        truth = reference.unit_covariance(*pair, *a, *b, spread[i, 0, 1])
        # In single precision a saturated unit is as good as its argument, m / σ, was rounded.
        sizes = [
            np.sum(w * reference.UNITS[kind](x) ** 2) for kind, (x, w) in zip(pair, map(rule, (a, b)), strict=True)
        ]
        if dtype == np.float32:
            sizes = [size + each[0] ** 2 + each[1] for size, each in zip(sizes, (a, b), strict=True)]
        assert abs(got[i] - truth) <= TOLERANCE[dtype] * np.sqrt(np.prod(sizes)) + 1e-20, (i, rho[i], got[i], truth)


def rule(moments):
    return reference.split_rule(*map(np.asarray, moments))


def test_the_mean_of_a_relu_by_a_rule_that_knows_its_kink():
    """And of several, narrow to wide, in both precisions; a saturated unit relative to its argument."""
    rng = np.random.default_rng(0)
    for dtype in (np.float64, np.float32):
        f = problems.function("ReLU", rng, 3, 40, dtype=dtype)
        for spread in (1e-3, 0.3, 30.0):
            p = problems.distribution("Gaussian", rng, 3, spread, dtype)
            rows, shifts, mean, covariance = (
                np.asarray(a, np.float64) for a in (f.rows, f.shifts, p.mean, p.covariance)
            )
            m, v = rows @ mean + shifts, np.einsum("mi,ij,mj->m", rows, covariance, rows)
            x, over = reference.split_rule(m, v)
            truth = np.sum(over * np.maximum(x, 0), axis=-1)
            got = np.asarray(expectation(p, mm.ReLU(None, f.rows, f.shifts, f.constant)), np.float64)
            error = np.abs(got - float(f.constant) - truth)
            assert (error <= TOLERANCE[dtype] * (np.sqrt(m**2 + v) + abs(float(f.constant)))).all()


def test_the_bivariate_normal_to_fifteen_digits():
    """Plackett's integral by mpmath, in 30 digits, up to correlations of 1 − 1e-8."""
    cases = [
        (-2.3, -0.4, 0.3), (0.7, 5.0, -0.9), (0.7, -0.4, 0.926), (0.0, 0.0, -0.97), (0.7, 0.6999, 0.9999),
        (-2.3, -2.3001, 1 - 1e-8), (0.7, -0.69, -0.9999), (3.0, 2.5, 0.95),
    ]  # fmt: skip
    for h, k, rho in cases:
        with mpmath.workdps(30):
            a, b = mpmath.mpf(h), mpmath.mpf(k)
            turns = mpmath.asin(mpmath.mpf(rho))
            density = lambda t: mpmath.exp(-(a * a - 2 * a * b * mpmath.sin(t) + b * b) / (2 * mpmath.cos(t) ** 2))  # noqa: B023, E731
            near = mpmath.acos(abs(mpmath.mpf(rho)))
            cuts = [turns - mpmath.sign(rho) * near * (mpmath.mpf(4) ** j - 1) for j in range(14)]
            cuts = [c for c in cuts if c * mpmath.sign(rho) > 0] + [mpmath.mpf(0)]
            truth = mpmath.quad(density, cuts[::-1]) / (2 * mpmath.pi)
        np.testing.assert_allclose(bivariate_excess(*map(jnp.asarray, (h, k, rho))), float(truth), rtol=0, atol=1e-15)


@pytest.mark.parametrize("d", [5, pytest.param(8, marks=pytest.mark.slow)])
def test_polynomials_with_polynomials_in_many_dimensions(d):
    """Gauss and Hermite's rule of five nodes per dimension is exact up to degree nine."""
    rng = np.random.default_rng(d)
    p = problems.distribution("Gaussian", rng, d)
    f, g = (problems.function("Polynomial", rng, d, outputs=(2,)) for _ in range(2))
    z, w = np.polynomial.hermite_e.hermegauss(5)
    grid = np.stack(np.meshgrid(*[z] * d, indexing="ij"), -1).reshape(-1, d)
    over = np.prod(np.stack(np.meshgrid(*[w / w.sum()] * d, indexing="ij"), -1), -1).ravel()
    x = np.asarray(p.mean) + grid @ np.linalg.cholesky(p.covariance).T
    of_f, of_g = (np.concatenate([values(each, part) for part in np.array_split(x, 20)]) for each in (f, g))
    truth = (of_f - over @ of_f).T @ (over[:, None] * of_g)
    scale = np.sqrt(np.multiply.outer(over @ of_f**2, over @ of_g**2))
    assert (np.abs(covariance(p, f, g) - truth) <= 1e-10 * scale).all()


@pytest.mark.parametrize("kind", ["GELU", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("Fourier", "Erf"))])
@pytest.mark.parametrize("d", [3, pytest.param(8, marks=pytest.mark.slow)])
def test_polynomials_with_units_in_many_dimensions(kind, d):
    """Along the unit a fine rule, across it Gauss and Hermite's with three nodes, exact for a cubic."""
    rng = np.random.default_rng(d)
    p = problems.distribution("Gaussian", rng, d)
    f = mm.Polynomial(problems.function("Polynomial", rng, d).tensors)
    g = problems.function(kind, rng, d, 1)
    u = np.linalg.cholesky(p.covariance).T @ np.asarray(g.rows)[0]
    turn = np.linalg.qr(np.column_stack([u, rng.normal(size=(d, d - 1))]))[0]
    fine = np.linspace(-10, 10, 121)
    z, w = np.polynomial.hermite_e.hermegauss(3)
    axes = [fine, *[z] * (d - 1)]
    weights = [reference.normal_density(fine) * (fine[1] - fine[0]), *[w / w.sum()] * (d - 1)]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, d)
    over = np.prod(np.stack(np.meshgrid(*weights, indexing="ij"), -1), -1).ravel()
    x = np.asarray(p.mean) + grid @ (np.linalg.cholesky(p.covariance) @ turn).T
    of_f, of_g = values(f, x), values(g, x)
    truth = over @ ((of_f - over @ of_f) * of_g)
    assert abs(covariance(p, f, g) - truth) <= 1e-10 * np.sqrt((over @ of_f**2) * (over @ of_g**2))


@pytest.mark.slow
@pytest.mark.parametrize("d", [1, 4, 8])
@pytest.mark.parametrize("m", [1, 64])
def test_ridge_functions_of_many_units_and_dimensions(d, m):
    """Whole functions, M = 64: the sum over pairs of units by bivariate quadrature."""
    for kind in GATED:
        rng = np.random.default_rng(d)
        p = problems.distribution("Gaussian", rng, d)
        f, g = problems.function(kind, rng, d, m), problems.function("GELU", rng, d, 2)
        each = unit_matrix(np.asarray(p.mean), np.asarray(p.covariance), f, g)
        truth = np.asarray(f.weights) @ each @ np.asarray(g.weights)
        assert abs(covariance(p, f, g) - truth) <= 1e-10 * np.sqrt(
            mm.product(p, f, f) * mm.product(p, g, g)
        ) + 1e-10 * (np.abs(f.weights) @ np.abs(each) @ np.abs(g.weights))


@pytest.mark.parametrize("kind", ["Laplace", "StudentT"])
def test_heavy_tails_across_functions(kind):
    """Quadratic with polynomial, Fourier with Fourier, and either with x, by integration over the scale."""
    rng = np.random.default_rng(1)
    p = problems.distribution(kind, rng, 1)
    q, f = problems.function("Quadratic", rng, 1), problems.function("Polynomial", rng, 1)
    g, h = problems.function("Fourier", rng, 1), problems.function("Fourier", rng, 1, 3)
    for one, two in ((q, f), (g, h)):
        mean = float(expectation(p, one))
        truth = integrate_scale_mixture(p, lambda x, one=one, two=two, mean=mean: (one(x) - mean) * two(x))
        np.testing.assert_allclose(covariance(p, one, two), truth, rtol=1e-8)
    for one in (f, g):
        truth = integrate_scale_mixture(p, lambda x, one=one: one(x) * (x[0] - p.mean[0]))
        np.testing.assert_allclose(cross_covariance(p, one)[0], truth, rtol=1e-8)


@pytest.mark.parametrize(
    ("kind", "function", "outputs"),
    [
        pytest.param(kind, function, outputs, marks=() if (kind, function) in KNOWN else pytest.mark.slow)
        for kind in ("DiagonalGaussian", "Gaussian", "GaussianMixture")
        for function, outputs in zip(KINDS, itertools.cycle([(), (2,)]), strict=False)
    ],
)
def test_with_x_it_is_the_covariance_with_the_identity(kind, function, outputs):
    """Stein's lemma against the general formulas, for scalars and for several outputs."""
    rng = np.random.default_rng(0)
    p = problems.distribution(kind, rng, 3)
    identity = mm.Polynomial((jnp.zeros(3), jnp.eye(3)))
    f = problems.function(function, rng, 3, outputs=outputs)
    value = cross_covariance(p, f)
    assert value.shape == (*outputs, 3)
    np.testing.assert_allclose(value, covariance(p, f, identity), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("one", "two"), [("RBF full", "Erf"), slow("Quadratic", "Fourier"), slow("Erf", "GELU")])
def test_mixtures_have_the_covariances_of_their_parts(one, two):
    rng = np.random.default_rng(0)
    p = problems.distribution("GaussianMixture", rng, 2)
    f, g = problems.function(one, rng, 2, outputs=(2,)), problems.function(two, rng, 2)
    truth = 0
    for w, mean, spread in zip(p.weights, p.components.mean, p.components.covariance, strict=True):
        x, over = reference.tensor_rule(np.asarray(mean), np.asarray(spread))
        truth = truth + float(w) * np.einsum("n,na,n->a", over, values(f, x), values(g, x))
    np.testing.assert_allclose(product(p, f, g), truth, rtol=1e-9)


@pytest.mark.parametrize("kind", ["Dirac", "Empirical"])
def test_points(kind):
    rng = np.random.default_rng(0)
    p = problems.distribution(kind, rng, 2)
    f, g = problems.function("Erf", rng, 2, outputs=(2,)), problems.function("Fourier", rng, 2)
    x = np.asarray(p.sample(jax.random.key(0), 1)) if kind == "Dirac" else np.asarray(p.points)
    of_f, of_g = values(f, x), values(g, x)
    truth = (of_f - of_f.mean(0)).T @ of_g / len(x)
    np.testing.assert_allclose(covariance(p, f, g), truth, atol=1e-14)
    np.testing.assert_allclose(cross_covariance(p, f), (of_f - of_f.mean(0)).T @ x / len(x), atol=1e-14)
    np.testing.assert_allclose(mm.variance(p, f), of_f.var(0), atol=1e-14)


@pytest.mark.parametrize(("one", "two"), [("Fourier", "Quadratic"), slow("RBF full", "Polynomial")])
def test_sums_and_multiples(one, two):
    """Bilinear, whatever the classes."""
    rng = np.random.default_rng(0)
    p = problems.distribution("Gaussian", rng, 2)
    f, g = problems.function(one, rng, 2, outputs=(2,)), problems.function(two, rng, 2, outputs=(2,))
    h = 2.0 * f - g
    x = rng.normal(size=2)

    @jax.jit
    def every(p, f, g, h):
        alone = [(each(x), mm.expectation(p, each), mm.cross_covariance(p, each)) for each in (f, g, h)]
        pairs = (f, f), (g, g), (f, g), (h, h), (g, h)
        return alone, [mm.covariance(p, *pair) for pair in pairs], mm.variance(p, h)

    (of_f, of_g, of_h), (own_f, own_g, cross, own_h, g_with_h), spread = every(p, f, g, h)
    for one_f, one_g, one_h, tolerance in zip(of_f, of_g, of_h, (1e-14, 1e-13, 1e-12), strict=True):
        np.testing.assert_allclose(one_h, 2 * one_f - one_g, rtol=tolerance)
    truth = 4 * own_f - 2 * (cross + cross.T) + own_g
    np.testing.assert_allclose(own_h, truth, rtol=1e-12)
    np.testing.assert_allclose(spread, np.diag(truth), rtol=1e-12)
    np.testing.assert_allclose(g_with_h, 2 * cross.T - own_g, rtol=1e-12)
    assert len((h + h).terms) == 4


@pytest.mark.parametrize(
    "function",
    [f if f in ("Erf", "Quadratic") else pytest.param(f, marks=pytest.mark.slow) for f in problems.FUNCTIONS],
)
def test_outputs_are_functions_side_by_side(function):
    """Weights (m, M) against m scalar functions; no weights against the identity."""
    rng = np.random.default_rng(0)
    p = problems.distribution("Gaussian", rng, 3)
    f = problems.function(function, rng, 3, outputs=(2,))
    if function in ("Quadratic", "Polynomial"):
        rows = [jax.tree.map(lambda leaf, i=i: leaf[i], f) for i in range(2)]
    else:
        parts = lambda g: (g.weights, g.constant)  # noqa: E731
        rows = [eqx.tree_at(parts, f, (f.weights[i], f.constant[i])) for i in range(2)]
        bare = eqx.tree_at(lambda g: (g.weights, g.constant), f, (None, jnp.zeros(f.count)))
        eye = eqx.tree_at(lambda g: (g.weights, g.constant), f, (jnp.eye(f.count), jnp.zeros(f.count)))
        np.testing.assert_allclose(covariance(p, bare, bare), covariance(p, eye, eye), rtol=1e-13)
        np.testing.assert_allclose(expectation(p, bare), expectation(p, eye), rtol=1e-13)
        np.testing.assert_allclose(bare(p.mean), eye(p.mean), rtol=1e-13)
    np.testing.assert_allclose(expectation(p, f), [expectation(p, r) for r in rows], rtol=1e-13)
    truth = [[covariance(p, a, b) for b in rows] for a in rows]
    got = covariance(p, f, f)
    np.testing.assert_allclose(got, truth, rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(variance(p, f), np.diag(got), rtol=1e-12)


@pytest.mark.parametrize(("one", "two"), few(2))
def test_without_spread_nothing_varies(one, two):
    """Zero, with finite gradients; and just above zero still right: the slopes' product times the covariance."""
    rng = np.random.default_rng(0)
    f, g = problems.function(one, rng, 2, 3), problems.function(two, rng, 2, 3)
    mean = rng.normal(size=2)

    def value(covariance, mean):
        return mm.covariance(mm.Gaussian(mean, covariance), f, g)

    zero = jnp.zeros((2, 2))
    got, (by_spread, by_mean) = jax.jit(jax.value_and_grad(value, (0, 1)))(zero, jnp.asarray(mean))
    assert abs(got) < 1e-15
    assert jnp.isfinite(by_mean).all()
    truth = jnp.multiply.outer(jax.grad(f)(mean), jax.grad(g)(mean))
    np.testing.assert_allclose(by_spread + by_spread.T, truth + truth.T, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "pair",
    [
        ("Erf", "ReLU"),
        *(
            pytest.param(p, marks=pytest.mark.slow)
            for p in (("RBF full", "Erf"), ("ReLU", "ReLU"), ("Polynomial", "GELU"))
        ),
    ],
)
def test_a_nearly_singular_covariance(pair):
    """Rank one, exactly or up to 1e-14: as in one dimension."""
    rng = np.random.default_rng(0)
    line = np.array([0.6, -0.8])
    mean, scale = rng.normal(size=2), 0.7
    f, g = (problems.function(kind, rng, 2, 3) for kind in pair)
    z, over = reference.split_rule(np.zeros(()), np.ones(()), panels=400)
    x = mean + scale * z[:, None] * line
    of_f, of_g = values(f, x), values(g, x)
    truth = over @ ((of_f - over @ of_f) * of_g)
    slope = jax.jit(jax.value_and_grad(lambda q: mm.covariance(q, f, g)))
    for extra in (0.0, 1e-14):
        p = mm.Gaussian(mean, scale**2 * np.outer(line, line) + extra * np.eye(2))
        tolerance = 1e-7 if "ReLU" in pair else 1e-10  # the rule does not know where the line meets the kinks
        value, gradient = slope(p)
        np.testing.assert_allclose(value, truth, rtol=tolerance)
        assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


@pytest.mark.parametrize(("one", "two"), few(1))
def test_gradient_equals_finite_differences(one, two):
    rng = np.random.default_rng(2)
    p = problems.distribution("Gaussian", rng, 2)
    f, g = problems.function(one, rng, 2, 2), problems.function(two, rng, 2, 2)
    value = jax.jit(lambda arrays: mm.covariance(*arrays))
    check_grads(value, ((p, f, g),), order=1, modes=["rev"], eps=1e-5, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("one", "two"), few(3))
def test_derivatives_forwards(one, two):
    rng = np.random.default_rng(2)
    p = problems.distribution("Gaussian", rng, 2)
    f, g = problems.function(one, rng, 2, 2), problems.function(two, rng, 2, 2)
    value = jax.jit(lambda arrays: mm.covariance(*arrays))
    check_grads(value, ((p, f, g),), order=1, modes=["fwd"], eps=1e-5, rtol=1e-5)


def test_every_product_is_in_full_precision():
    rng = np.random.default_rng(0)
    from tests.moments.test_numerics import dots

    for number, (one, two) in enumerate(QUICK):
        for kind in ("DiagonalGaussian", "Gaussian")[number % 2 :][:1]:
            p = problems.distribution(kind, rng, 2)
            f, g = problems.function(one, rng, 2, outputs=(2,)), problems.function(two, rng, 2)
            for verb, arguments in ((mm.covariance, (p, f, g)), (mm.cross_covariance, (p, f))):
                for equation in dots(jax.make_jaxpr(verb)(*arguments).jaxpr):
                    precision = equation.params["precision"]
                    assert precision is not None, (one, two, kind)
                    assert {str(p).split(".")[-1] for p in precision} == {"HIGHEST"}, (one, two)
