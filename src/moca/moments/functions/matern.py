"""Products of one-dimensional Matérn kernels."""

import math

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from moca.moments import _checks as check
from moca.moments._special import MATERN
from moca.moments.functions.base import Centred, check_rows, role, set_weights


class Matern(Centred):
    """V(x) = Σᵢ wᵢ Πⱼ k(√(2ν) |xⱼ − cᵢⱼ| / ℓⱼ) + constant, a product of Matérn kernels.

    k(t) is e⁻ᵗ, (1 + t) e⁻ᵗ or (1 + t + t²/3) e⁻ᵗ. The kernel is a product over dimensions, not a
    function of the distance, because only the product has closed forms.

    Args:
        weights: wᵢ, shape (M,); (m, M) for m outputs; None makes the bases the outputs.
        centers: cᵢ, shape (M, d).
        lengthscales: ℓ, shape (d,).
        nu: 0.5, 1.5 or 2.5.
        constant: Added everywhere, zero by default.
    """

    lengthscales: Float[Array, "d"] = role("positive")
    nu: float = eqx.field(static=True)  # type: ignore[misc]
    constant: Float[Array, "*outputs"] = role("constant")

    def __init__(
        self,
        weights: check.Numbers | None,
        centers: check.Numbers,
        lengthscales: check.Numbers,
        nu: float = 1.5,
        constant: check.Numbers = 0.0,
    ) -> None:
        self.centers = check.as_float(centers)
        self.lengthscales = check.as_float(lengthscales)
        self.nu = float(nu)
        self.weights, self.constant = set_weights(weights, constant, self.centers)

    def __check_init__(self) -> None:
        check_rows(self, "centers", self.centers)
        expected = self.centers.shape[1:]
        check.has_shape(self, "lengthscales", self.lengthscales, expected, f"centers {self.centers.shape}")
        check.is_finite(self, centers=self.centers, lengthscales=self.lengthscales)
        check.is_positive(self, lengthscales=self.lengthscales)
        if self.nu not in MATERN:
            raise ValueError(f"Matern.nu must be 0.5, 1.5 or 2.5, got {self.nu:g}")

    @property
    def rates(self) -> Float[Array, "d"]:
        """√(2ν) / ℓ, the rate of decay in each dimension."""
        return math.sqrt(2 * self.nu) / self.lengthscales

    def features(self, x: Float[Array, "d"]) -> Float[Array, "m"]:
        t = self.rates * jnp.abs(x - self.centers)
        terms = sum(c * t**k for k, c in enumerate(MATERN[self.nu]))
        return jnp.prod(terms * jnp.exp(-t), axis=-1)
