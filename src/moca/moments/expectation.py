"""The one verb: `expectation(p, f)`, and its companion `variance(p, f)`.

`CLOSED_FORMS` and `VARIANCES` *are* the compatibility matrix. A new pair is one function and one line:

    CLOSED_FORMS[MyDistribution, MyFunction] = my_closed_form
"""

from collections.abc import Callable

import jax
from jaxtyping import Array, Float

from moca.moments import closed_forms as cf
from moca.moments._numerics import dot
from moca.moments.distributions import (
    DiagonalGaussian,
    Dirac,
    Distribution,
    Empirical,
    Gaussian,
    Laplace,
    StudentT,
)
from moca.moments.functions import RBF, Erf, Fourier, Function, Polynomial, Quadratic
from moca.moments.mixtures import GaussianMixture

TypePair = tuple[type, type]


class NoClosedFormError(TypeError):
    """A distribution and a function of which nobody has registered a closed form."""


def expectation(p: Distribution, f: Callable[[Array], Array]) -> Float[Array, ""]:
    """E[f(x)] for x ~ p, in closed form [Eq. 5].

    Both are for one point: `jax.vmap(expectation, (0, None))(beliefs, f)` takes a batch of beliefs. Exact when p
    has no spread; differentiable in every array of p and f.

    Raises:
        NoClosedFormError: a TypeError, if the pair has none. Nothing falls back to sampling; for that, say so:
            `expectation(Empirical(p.sample(key, 64)), f)`.
    """
    return _look_up(CLOSED_FORMS, "expectation", p, f)(p, f)


def variance(p: Distribution, f: Callable[[Array], Array]) -> Float[Array, ""]:
    """Var[f(x)] for x ~ p, in closed form; raises as `expectation` does."""
    return _look_up(VARIANCES, "variance", p, f)(p, f)


def _mixture(p: GaussianMixture, f: Function) -> Float[Array, ""]:
    """Σₖ weightsₖ Eₖ[f], with no collapse to one Gaussian."""
    return dot(p.weights, jax.vmap(expectation, (0, None))(p.components, f))


def _mixture_variance(p: GaussianMixture, f: Function) -> Float[Array, ""]:
    """Average variance plus variance of the averages (law of total variance)."""
    means = jax.vmap(expectation, (0, None))(p.components, f)
    variances = jax.vmap(variance, (0, None))(p.components, f)
    centred = means - dot(p.weights, means)
    return dot(p.weights, variances + centred**2)


CLOSED_FORMS: dict[TypePair, Callable] = {
    (Dirac, object): cf.dirac,
    (Empirical, object): cf.empirical,
    (DiagonalGaussian, RBF): cf.gaussian_rbf,
    (DiagonalGaussian, Fourier): cf.elliptical_fourier,
    (DiagonalGaussian, Erf): cf.gaussian_erf,
    (DiagonalGaussian, Quadratic): cf.elliptical_quadratic,
    (DiagonalGaussian, Polynomial): cf.elliptical_polynomial,
    (Gaussian, RBF): cf.gaussian_rbf,
    (Gaussian, Fourier): cf.elliptical_fourier,
    (Gaussian, Erf): cf.gaussian_erf,
    (Gaussian, Quadratic): cf.elliptical_quadratic,
    (Gaussian, Polynomial): cf.elliptical_polynomial,
    (GaussianMixture, RBF): _mixture,
    (GaussianMixture, Fourier): _mixture,
    (GaussianMixture, Erf): _mixture,
    (GaussianMixture, Quadratic): _mixture,
    (GaussianMixture, Polynomial): _mixture,
    (Laplace, Fourier): cf.elliptical_fourier,
    (Laplace, Quadratic): cf.elliptical_quadratic,
    (Laplace, Polynomial): cf.elliptical_polynomial,
    (StudentT, Fourier): cf.elliptical_fourier,
    (StudentT, Quadratic): cf.elliptical_quadratic,
    (StudentT, Polynomial): cf.elliptical_polynomial,
}

VARIANCES: dict[TypePair, Callable] = {
    (Dirac, object): cf.dirac_variance,
    (Empirical, object): cf.empirical_variance,
    (DiagonalGaussian, RBF): cf.gaussian_rbf_variance,
    (DiagonalGaussian, Quadratic): cf.elliptical_quadratic_variance,
    (Gaussian, RBF): cf.gaussian_rbf_variance,
    (Gaussian, Quadratic): cf.elliptical_quadratic_variance,
    (GaussianMixture, RBF): _mixture_variance,
    (GaussianMixture, Quadratic): _mixture_variance,
    (Laplace, Quadratic): cf.elliptical_quadratic_variance,
    (StudentT, Quadratic): cf.elliptical_quadratic_variance,
}


def compatibility() -> str:
    """The compatibility matrix as a Markdown table: E where the expectation is closed form, V where the variance is."""
    pairs = list(CLOSED_FORMS) + list(VARIANCES)
    rows = list(dict.fromkeys(p for p, _ in pairs))
    columns = [f for f in dict.fromkeys(f for _, f in pairs) if f is not object]
    lines = ["| | " + " | ".join(f.__name__ for f in columns) + " | any function |"]
    lines.append("|---" * (len(columns) + 2) + "|")
    for p in rows:
        cells = []
        for f in [*columns, object]:
            marks = ["E"] * (_find(CLOSED_FORMS, p, f) is not None) + ["V"] * (_find(VARIANCES, p, f) is not None)
            cells.append(", ".join(marks) or "–")
        lines.append(f"| **{p.__name__}** | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _look_up(table: dict[TypePair, Callable], verb: str, p: Distribution, f: Callable) -> Callable:
    """The closed form for the pair, once both are known to be for one point of one dimension."""
    found = _find(table, type(p), type(f))
    if found is None:
        supported = ", ".join(f"{a.__name__} × {'any' if b is object else b.__name__}" for a, b in table)
        raise NoClosedFormError(
            f"no closed form for the {verb} of {type(f).__name__} under {type(p).__name__}. Supported: {supported}. "
            "To estimate by sampling instead, pass Empirical(p.sample(key, count))."
        )
    if p.batch_shape:
        raise ValueError(
            f"{verb} takes one point, but this {type(p).__name__} holds a batch of shape {p.batch_shape}: "
            f"use jax.vmap({verb}, (0, None))(p, f)"
        )
    if isinstance(f, Function) and f.dimension != p.dimension:
        raise ValueError(
            f"{type(p).__name__} has dimension {p.dimension}, but {type(f).__name__} takes dimension {f.dimension}"
        )
    return found


def _find(table: dict[TypePair, Callable], p: type, f: type) -> Callable | None:
    """The entry for the nearest base classes of the two types."""
    return next((table[a, b] for b in f.__mro__ for a in p.__mro__ if (a, b) in table), None)
