"""Exact expectations of value functions under predictive distributions.

    from moca import moments as mm
    belief = mm.DiagonalGaussian(mean, variance)
    value = mm.RBF(weights, centers, precision)
    mm.expectation(belief, value)

No reinforcement learning is needed to use this package, and none is imported.
"""

from moca.moments.distributions import (
    DiagonalGaussian,
    Dirac,
    Distribution,
    Elliptical,
    Empirical,
    Gaussian,
    Laplace,
    StudentT,
)
from moca.moments.expectation import CLOSED_FORMS, VARIANCES, NoClosedFormError, compatibility, expectation, variance
from moca.moments.functions import RBF, Erf, Fourier, Function, Polynomial, Quadratic
from moca.moments.mixtures import Decomposition, GaussianMixture, decompose, moment_match

__all__ = [
    "CLOSED_FORMS",
    "RBF",
    "VARIANCES",
    "Decomposition",
    "DiagonalGaussian",
    "Dirac",
    "Distribution",
    "Elliptical",
    "Empirical",
    "Erf",
    "Fourier",
    "Function",
    "Gaussian",
    "GaussianMixture",
    "Laplace",
    "NoClosedFormError",
    "Polynomial",
    "Quadratic",
    "StudentT",
    "compatibility",
    "decompose",
    "expectation",
    "moment_match",
    "variance",
]
