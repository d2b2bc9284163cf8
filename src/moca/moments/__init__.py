"""Exact expectations of value functions under predictive distributions.

    from moca import moments as mm
    belief = mm.DiagonalGaussian(mean, variance)
    value = mm.RBF(weights, centers, precision)
    mm.expectation(belief, value)

No reinforcement learning is needed to use this package, and none is imported.
"""

from moca.moments.dispatch import CLOSED_FORMS, COVARIANCES, CROSS_COVARIANCES, VARIANCES, NoClosedFormError
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
from moca.moments.expectation import covariance, cross_covariance, expectation, product, variance
from moca.moments.functions import GELU, RBF, Erf, Fourier, Function, Matern, Polynomial, Quadratic, ReLU, Sum
from moca.moments.mixtures import Decomposition, GaussianMixture, decompose, moment_match
from moca.moments.propagation import propagate, with_angles, angles
from moca.moments.tables import compatibility

__all__ = [
    "CLOSED_FORMS",
    "COVARIANCES",
    "CROSS_COVARIANCES",
    "GELU",
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
    "Matern",
    "NoClosedFormError",
    "Polynomial",
    "Quadratic",
    "ReLU",
    "StudentT",
    "Sum",
    "angles",
    "compatibility",
    "covariance",
    "cross_covariance",
    "decompose",
    "expectation",
    "moment_match",
    "product",
    "propagate",
    "variance",
    "with_angles",
]
