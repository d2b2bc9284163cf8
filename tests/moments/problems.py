"""Random distributions and functions of every kind, for tests that run over all of them."""

import numpy as np
import pytest

from moca import moments as mm

DISTRIBUTIONS = ["Dirac", "Empirical", "DiagonalGaussian", "Gaussian", "GaussianMixture", "Laplace", "StudentT"]
FUNCTIONS = [
    "RBF shared",
    "RBF per basis",
    "RBF full",
    "RBF shared full",
    "Fourier",
    "Erf",
    "ReLU",
    "GELU",
    "Quadratic",
    "Polynomial",
]
DF = 11  # of the Student-t: odd, and enough for every moment used


def covariance(rng, d, spread):
    """A random covariance with standard deviations of about `spread`; zero for spread = 0."""
    root = rng.normal(size=(d, d + 2)) / np.sqrt(d + 2)
    return spread**2 * (root @ root.T + 0.1 * np.eye(d))


def distribution(kind, rng, d, spread=0.7, dtype=np.float64):
    """One distribution of that kind around the origin; `spread` is its standard deviation."""

    def array(x):
        return np.asarray(x, dtype)

    def mean():
        return array(rng.normal(size=d))

    def matrix():
        c = array(covariance(rng, d, spread))
        return np.triu(c) + np.triu(c, 1).T

    match kind:
        case "Dirac":
            return mm.Dirac(mean())
        case "Empirical":
            return mm.Empirical(array(rng.normal(size=(5, d))))
        case "DiagonalGaussian":
            return mm.DiagonalGaussian(mean(), array(spread**2 * rng.uniform(0.1, 1, d)))
        case "Gaussian":
            return mm.Gaussian(mean(), matrix())
        case "GaussianMixture":
            weights = array([0.2, 0.5, 0.3])
            return mm.GaussianMixture(weights, [mm.Gaussian(mean(), matrix()) for _ in weights])
        case "Laplace":
            return mm.Laplace(mean(), matrix())
        case "StudentT":
            return mm.StudentT(mean(), matrix(), DF)


def function(kind, rng, d, m=5, width=1.0, dtype=np.float64, outputs=()):
    """One function of that kind whose features vary over lengths of about `width`."""

    def array(x):
        return np.asarray(x, dtype)

    weights = array(rng.normal(size=(*outputs, m)))
    rows = array(rng.normal(size=(m, d)))
    scale = 1 / (width * rng.uniform(0.7, 1.5, size=(m, d)))
    full = np.stack([covariance(rng, d, 1 / width) for _ in range(m)])
    constant = array(rng.normal(size=outputs))
    match kind:
        case "RBF shared":
            return mm.RBF(weights, rows, array(scale[0] ** 2), constant)
        case "RBF per basis":
            return mm.RBF(weights, rows, array(scale**2), constant)
        case "RBF full":
            return mm.RBF(weights, rows, array((full + full.swapaxes(1, 2)) / 2), constant)
        case "RBF shared full":
            return mm.RBF(weights, rows, array((full + full.swapaxes(1, 2))[:1] / 2), constant)
        case "Fourier":
            return mm.Fourier(weights, array(rows / width), array(rng.uniform(0, 6, m)), constant)
        case "Erf" | "ReLU" | "GELU":
            return getattr(mm, kind)(weights, array(rows / width), array(rng.normal(size=m)), constant)
        case "Quadratic":
            return mm.Quadratic(
                array(rng.normal(size=(*outputs, d, d))), array(rng.normal(size=(*outputs, d))), constant
            )
        case "Polynomial":
            return mm.Polynomial([array(rng.normal(size=(*outputs, *(d,) * k))) for k in range(5)])


# One of every closed form. Tests over all pairs run these every time, and the others when slow tests run.
QUICK = [
    ("Dirac", "GELU"),
    ("Empirical", "Erf"),
    ("DiagonalGaussian", "RBF shared"),
    ("DiagonalGaussian", "RBF per basis"),
    ("DiagonalGaussian", "Polynomial"),
    ("Gaussian", "RBF full"),
    ("Gaussian", "Fourier"),
    ("Gaussian", "Erf"),
    ("Gaussian", "ReLU"),
    ("Gaussian", "GELU"),
    ("Gaussian", "Quadratic"),
    ("GaussianMixture", "RBF shared full"),
    ("Laplace", "Fourier"),
    ("Laplace", "Polynomial"),
    ("StudentT", "Fourier"),
    ("StudentT", "Quadratic"),
]


def supported(table, among=DISTRIBUTIONS):
    """Every (distribution kind, function kind) that the table holds, as parameters of a test."""
    pairs = []
    for p in among:
        for f in FUNCTIONS:
            types = getattr(mm, p), getattr(mm, f.split()[0])
            if types in table or (types[0], object) in table:
                pairs.append(pytest.param(p, f, marks=() if (p, f) in QUICK else pytest.mark.slow))
    return pairs


def smooth(table):
    """Those that a grid integrates well: all but spread-out ReLUs, whose kinks `test_covariance` resolves."""
    return [each for each in supported(table) if each.values[1] != "ReLU" or each.values[0] in ("Dirac", "Empirical")]
