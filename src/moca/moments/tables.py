"""Tables of the pairs with a closed form: distributions × functions, and functions × functions."""

from itertools import product
from typing import Any

from moca.moments import composite as made
from moca.moments import gp
from moca.moments.closed_forms import independent, matern, points, polynomial, rbf, ridge
from moca.moments.dispatch import CLOSED_FORMS, COVARIANCES, CROSS_COVARIANCES, VARIANCES, Form, find, find_pair
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
from moca.moments.functions import GELU, RBF, Erf, Fourier, Matern, Polynomial, Quadratic, ReLU, Sum
from moca.moments.gp import GP
from moca.moments.mixtures import GaussianMixture
from moca.moments.supports import Box, ClippedGaussian, TruncatedGaussian

GAUSSIANS = (DiagonalGaussian, Gaussian)
HEAVY_TAILED = (Laplace, StudentT)
SUPPORTS = (Box, TruncatedGaussian, ClippedGaussian)
GATED = (Erf, ReLU, GELU)
POLYNOMIALS = (Quadratic, Polynomial)
FUNCTIONS = (RBF, Fourier, *GATED, *POLYNOMIALS)

OF_GAUSSIANS: dict[type, Form] = {
    RBF: rbf.gaussian_rbf,
    Fourier: ridge.elliptical_fourier,
    **dict.fromkeys(GATED, ridge.gaussian_ridge),
    Quadratic: polynomial.elliptical_quadratic,
    Polynomial: polynomial.elliptical_polynomial,
}
OF_HEAVY_TAILED: dict[type, Form] = {f: OF_GAUSSIANS[f] for f in (Fourier, *POLYNOMIALS)}
OF_SUPPORTS: dict[type, Form] = {
    RBF: independent.independent_rbf,
    **dict.fromkeys(POLYNOMIALS, independent.independent_polynomial),
}

_OF_ONE: dict[Any, Form] = {
    (Dirac, object): points.dirac,
    (Empirical, object): points.empirical,
    (Distribution, Sum): made.sum_expectation,
    **{(p, f): form for p in GAUSSIANS for f, form in OF_GAUSSIANS.items()},
    **{(GaussianMixture, f): made.mixture for f in FUNCTIONS},
    **{(p, f): form for p in HEAVY_TAILED for f, form in OF_HEAVY_TAILED.items()},
    **{(p, f): form for p in SUPPORTS for f, form in OF_SUPPORTS.items()},
    (DiagonalGaussian, Matern): matern.gaussian_matern,
    (GaussianMixture, Matern): made.mixture,  # for diagonal components
    (Box, Matern): matern.box_matern,
    **{(p, GP): gp.gaussian_gp for p in GAUSSIANS},
    (GaussianMixture, GP): made.mixture,
}
CLOSED_FORMS |= _OF_ONE

_OF_TWO: dict[Any, Form] = {
    (Dirac, object, object): points.dirac_covariance,
    (Empirical, object, object): points.empirical_covariance,
    (Distribution, Sum, object): made.sum_covariance,
    (Distribution, object, Sum): made.sum_covariance,
    **{(Elliptical, f, g): polynomial.elliptical_polynomial_covariance for f, g in product(POLYNOMIALS, repeat=2)},
    **{(p, Fourier, Fourier): ridge.elliptical_fourier_covariance for p in HEAVY_TAILED},
    **{(p, RBF, RBF): independent.independent_rbf_covariance for p in SUPPORTS},
    **dict.fromkeys(product(SUPPORTS, POLYNOMIALS, POLYNOMIALS), independent.independent_polynomial_covariance),
    (DiagonalGaussian, Matern, Matern): matern.gaussian_matern_covariance,
    (DiagonalGaussian, RBF, Matern): made.rbf_with_any,
    (Box, Matern, Matern): matern.box_matern_covariance,
}
COVARIANCES |= _OF_TWO
for p in GAUSSIANS:
    COVARIANCES |= {
        (p, RBF, RBF): rbf.gaussian_rbf_covariance,
        **{(p, RBF, g): made.rbf_with_any for g in FUNCTIONS if g is not RBF},
        (p, Fourier, Fourier): ridge.gaussian_fourier_covariance,
        **{(p, f, g): ridge.gaussian_gated_covariance for f, g in product(GATED, repeat=2)},
        **{
            (p, f, g): polynomial.gaussian_polynomial_ridge_covariance
            for f, g in product(POLYNOMIALS, (Fourier, *GATED))
        },
    }
COVARIANCES |= {
    (GaussianMixture, f, g): made.mixture_covariance
    for f, g in product((*FUNCTIONS, Matern), repeat=2)
    if find_pair(DiagonalGaussian, f, g) is not None
}
_OF_PROCESSES: dict[Any, Form] = {
    (Dirac, GP, GP): gp.dirac_gp_covariance,
    (Empirical, GP, GP): gp.empirical_gp_covariance,
    **{(p, GP, GP): gp.gaussian_gp_covariance for p in GAUSSIANS},
    **{(p, GP, g): gp.gaussian_gp_with_any for p, g in product(GAUSSIANS, FUNCTIONS)},
    **{(GaussianMixture, GP, g): made.mixture_covariance for g in (GP, *FUNCTIONS)},
}
COVARIANCES |= _OF_PROCESSES

VARIANCES |= {(p, f): made.own_variance for p, f in CLOSED_FORMS if find_pair(p, f, f) is not None}
VARIANCES |= {(Distribution, Sum): made.own_variance}

_WITH_X: dict[Any, Form] = {
    (Dirac, object): points.dirac_cross,
    (Empirical, object): points.empirical_cross,
    (Distribution, Sum): made.sum_cross,
    **dict.fromkeys(product(GAUSSIANS, FUNCTIONS), made.gaussian_cross),
    **{(p, RBF): rbf.gaussian_rbf_cross for p in GAUSSIANS},
    (DiagonalGaussian, Matern): made.gaussian_cross,
    **{(p, GP): made.gaussian_cross for p in GAUSSIANS},
    (GaussianMixture, GP): made.mixture_cross,
    **{(GaussianMixture, f): made.mixture_cross for f in (*FUNCTIONS, Matern)},
    **dict.fromkeys(product((*HEAVY_TAILED, *SUPPORTS), POLYNOMIALS), made.polynomial_cross),
    **{(p, Fourier): ridge.elliptical_fourier_cross for p in HEAVY_TAILED},
    **{(p, RBF): independent.independent_rbf_cross for p in SUPPORTS},
}
CROSS_COVARIANCES |= _WITH_X


def compatibility() -> str:
    """Returns two Markdown tables: closed forms of each pair, covariances of two functions.

    E marks the expectation, V the variance, X the covariance with x. In the second table, G stands
    for Gaussians and their mixtures, D for diagonal ones only, H for heavy-tailed distributions
    too, and B for boxes.
    """
    tables = CLOSED_FORMS, VARIANCES, CROSS_COVARIANCES
    pairs = [(p, f) for p, f in dict.fromkeys(pair for table in tables for pair in table) if f is not Sum]
    columns = [f for f in dict.fromkeys(f for _, f in pairs) if f is not object]
    lines = [_row("", [f.__name__ for f in columns] + ["any function"]), "|---" * (len(columns) + 2) + "|"]
    for p in dict.fromkeys(p for p, _ in pairs):
        cells = [
            ", ".join(mark for mark, table in zip("EVX", tables, strict=True) if find(table, p, f) is not None) or "–"
            for f in [*columns, object]
        ]
        lines.append(_row(f"**{p.__name__}**", cells))
    both = [f for f in columns if any(f in pair[1:] for pair in COVARIANCES)]
    lines += ["", _row("covariance of", [f.__name__ for f in both]), "|---" * (len(both) + 1) + "|"]
    for f in both:
        lines.append(_row(f"**{f.__name__}**", [_pair_marks(f, g) for g in both]))
    return "\n".join(lines)


def _pair_marks(f: type, g: type) -> str:
    marks = {"G": Gaussian, "D": DiagonalGaussian, "H": Laplace, "B": Box}
    held = [m for m, p in marks.items() if find_pair(p, f, g) is not None or find_pair(p, g, f) is not None]
    return ", ".join(m for m in held if m != "D" or "G" not in held) or "–"


def _row(head: str, cells: list[str]) -> str:
    return f"| {head} | " + " | ".join(cells) + " |" if head else "| | " + " | ".join(cells) + " |"
