"""The closed forms: one function per expectation or covariance of a compatible family."""

from moca.moments.closed_forms.independent import (
    independent_polynomial,
    independent_polynomial_covariance,
    independent_polynomial_cross,
    independent_rbf,
    independent_rbf_covariance,
    independent_rbf_cross,
)
from moca.moments.closed_forms.matern import (
    box_matern,
    box_matern_covariance,
    gaussian_matern,
    gaussian_matern_covariance,
)
from moca.moments.closed_forms.points import (
    dirac,
    dirac_covariance,
    dirac_cross,
    empirical,
    empirical_covariance,
    empirical_cross,
)
from moca.moments.closed_forms.polynomial import (
    elliptical_polynomial,
    elliptical_polynomial_covariance,
    elliptical_polynomial_cross,
    elliptical_quadratic,
    gaussian_polynomial_ridge_covariance,
)
from moca.moments.closed_forms.rbf import (
    gaussian_rbf,
    gaussian_rbf_covariance,
    gaussian_rbf_cross,
    given_each_basis,
    rbf_bases,
)
from moca.moments.closed_forms.ridge import (
    elliptical_fourier,
    elliptical_fourier_covariance,
    elliptical_fourier_cross,
    gaussian_fourier_covariance,
    gaussian_gated_covariance,
    gaussian_ridge,
)

__all__ = [
    "box_matern", "box_matern_covariance", "dirac", "dirac_covariance", "dirac_cross", "elliptical_fourier",
    "elliptical_fourier_covariance", "elliptical_fourier_cross", "elliptical_polynomial",
    "elliptical_polynomial_covariance", "elliptical_polynomial_cross", "elliptical_quadratic", "empirical",
    "empirical_covariance", "empirical_cross", "gaussian_fourier_covariance", "gaussian_gated_covariance",
    "gaussian_matern", "gaussian_matern_covariance", "gaussian_polynomial_ridge_covariance", "gaussian_rbf",
    "gaussian_rbf_covariance", "gaussian_rbf_cross", "gaussian_ridge", "given_each_basis", "independent_polynomial",
    "independent_polynomial_covariance", "independent_polynomial_cross", "independent_rbf",
    "independent_rbf_covariance", "independent_rbf_cross", "rbf_bases",
]  # fmt: skip
