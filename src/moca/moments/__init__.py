"""Exact expectations of value functions under predictive distributions.

    from moca import moments as mm
    belief = mm.DiagonalGaussian(mean, variance)
    value = mm.RBF(weights, centers, precision)
    mm.expectation(belief, value)

This package uses no reinforcement learning and imports none.
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
from moca.moments.functions import GELU, RBF, Erf, Fourier, Function, Matern, Polynomial, Quadratic, ReLU, Sum, role
from moca.moments.gp import GP
from moca.moments.mixtures import Decomposition, GaussianMixture, decompose, moment_match
from moca.moments.networks import MatchedNetwork, MatchingError, matching_error
from moca.moments.numerical import compare, quadrature, sigma_points
from moca.moments.propagation import angles, propagate, with_angles
from moca.moments.supports import Box, ClippedGaussian, TruncatedGaussian
from moca.moments.tables import compatibility

__all__ = [
    "CLOSED_FORMS", "COVARIANCES", "CROSS_COVARIANCES", "GELU", "GP", "RBF", "VARIANCES", "Box", "ClippedGaussian",
    "Decomposition", "DiagonalGaussian", "Dirac", "Distribution", "Elliptical", "Empirical", "Erf", "Fourier",
    "Function", "Gaussian", "GaussianMixture", "Laplace", "MatchedNetwork", "MatchingError", "Matern",
    "NoClosedFormError", "Polynomial", "Quadratic", "ReLU", "StudentT", "Sum", "TruncatedGaussian", "angles", "compare",
    "compatibility", "covariance", "cross_covariance", "decompose", "expectation", "matching_error", "moment_match",
    "product", "propagate", "quadrature", "role", "sigma_points", "variance", "with_angles",
]  # fmt: skip
