"""Functions whose expectations have closed forms.

Each is a pytree of trainable arrays that maps one state to one number, or to m numbers. Use
`jax.vmap` for batches.
"""

from moca.moments.functions.base import Function, Sum, role
from moca.moments.functions.matern import Matern
from moca.moments.functions.polynomial import Polynomial, Quadratic
from moca.moments.functions.rbf import RBF
from moca.moments.functions.ridge import GELU, Erf, Fourier, Gated, ReLU, Ridge

__all__ = [
    "GELU", "RBF", "Erf", "Fourier", "Function", "Gated", "Matern", "Polynomial", "Quadratic", "ReLU", "Ridge", "Sum",
    "role",
]  # fmt: skip
