"""Ridge functions: sums of units σ(uᵢᵀx + bᵢ). One hidden layer of a network is such a sum.

Under a Gaussian the arguments of the units are Gaussian. Each class defines σ; the moments are in
`closed_forms/ridge.py`.
"""

from abc import abstractmethod
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import erf
from jaxtyping import Array, Float

from moca.moments import _checks as check
from moca.moments._numerics import dot
from moca.moments.functions.base import Features, check_rows, role, set_weights


class Ridge(Features):
    """V(x) = Σᵢ wᵢ σ(uᵢᵀx + bᵢ) + constant."""

    fields: eqx.AbstractClassVar[tuple[str, str]]  # those with uᵢ and with bᵢ

    def __check_init__(self) -> None:
        rows, shifts = self.fields
        check_rows(self, rows, self.rows)
        check.has_shape(self, shifts, self.shifts, (self.count,), f"{rows} {self.rows.shape}")
        check.is_finite(self, **{rows: self.rows, shifts: self.shifts})

    @property
    def rows(self) -> Float[Array, "m d"]:
        """uᵢ."""
        return jnp.asarray(getattr(self, self.fields[0]))  # NumPy arrays after loading

    @property
    def shifts(self) -> Float[Array, "m"]:
        """bᵢ."""
        return jnp.asarray(getattr(self, self.fields[1]))

    @staticmethod
    @abstractmethod
    def unit(argument: Float[Array, "*n"]) -> Float[Array, "*n"]:
        """σ, elementwise."""

    @property
    def dimension(self) -> int:
        return self.rows.shape[1]

    @property
    def count(self) -> int:
        return self.rows.shape[0]

    def arguments(self, x: Float[Array, "d"]) -> Float[Array, "m"]:
        """uᵢᵀx + bᵢ."""
        return dot(self.rows, x) + self.shifts

    def features(self, x: Float[Array, "d"]) -> Float[Array, "m"]:
        return self.unit(self.arguments(x))


class Fourier(Ridge):
    """V(x) = Σᵢ wᵢ cos(ωᵢᵀx + bᵢ) + constant: random Fourier features, or learned ones.

    A sine is a cosine with phase −π/2.

    Args:
        weights: wᵢ, shape (M,); (m, M) for m outputs; None makes the bases the outputs.
        frequencies: ωᵢ, shape (M, d).
        phases: bᵢ, shape (M,).
        constant: Added everywhere, zero by default.
    """

    weights: Float[Array, "*outputs m"] | None
    frequencies: Float[Array, "m d"] = role("basis")
    phases: Float[Array, "m"] = role("basis")
    constant: Float[Array, "*outputs"] = role("constant")
    fields: ClassVar[tuple[str, str]] = ("frequencies", "phases")

    def __init__(
        self,
        weights: check.Numbers | None,
        frequencies: check.Numbers,
        phases: check.Numbers,
        constant: check.Numbers = 0.0,
    ) -> None:
        self.frequencies = check.as_float(frequencies)
        self.phases = check.as_float(phases)
        self.weights, self.constant = set_weights(weights, constant, self.frequencies)

    @staticmethod
    def unit(argument: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return jnp.cos(argument)


class Gate(NamedTuple):
    """σ(a) = scale · aᵖ · P(z < a) + constant, z ~ N(0, variance): that of erf, ReLU and GELU."""

    scale: float
    power: int
    variance: float


class Gated(Ridge):
    """A ridge function whose unit is a gate, aᵖ P(z < a).

    Args:
        weights: wᵢ, shape (M,); (m, M) for m outputs; None makes the bases the outputs.
        directions: uᵢ, shape (M, d).
        offsets: bᵢ, shape (M,).
        constant: Added everywhere, zero by default.
    """

    weights: Float[Array, "*outputs m"] | None
    directions: Float[Array, "m d"] = role("basis")
    offsets: Float[Array, "m"] = role("basis")
    constant: Float[Array, "*outputs"] = role("constant")
    fields: ClassVar[tuple[str, str]] = ("directions", "offsets")
    gate: eqx.AbstractClassVar[Gate]

    def __init__(
        self,
        weights: check.Numbers | None,
        directions: check.Numbers,
        offsets: check.Numbers,
        constant: check.Numbers = 0.0,
    ) -> None:
        self.directions = check.as_float(directions)
        self.offsets = check.as_float(offsets)
        self.weights, self.constant = set_weights(weights, constant, self.directions)


class Erf(Gated):
    """V(x) = Σᵢ wᵢ erf(uᵢᵀx + bᵢ) + constant: a network with one hidden layer."""

    gate: ClassVar[Gate] = Gate(2.0, 0, 0.5)  # minus one, which does not affect covariances
    __init__ = Gated.__init__

    @staticmethod
    def unit(argument: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return erf(argument)


class ReLU(Gated):
    """V(x) = Σᵢ wᵢ max(0, uᵢᵀx + bᵢ) + constant."""

    gate: ClassVar[Gate] = Gate(1.0, 1, 0.0)
    __init__ = Gated.__init__

    @staticmethod
    def unit(argument: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return jax.nn.relu(argument)


class GELU(Gated):
    """V(x) = Σᵢ wᵢ aᵢ Φ(aᵢ) + constant with aᵢ = uᵢᵀx + bᵢ and the exact normal CDF Φ."""

    gate: ClassVar[Gate] = Gate(1.0, 1, 1.0)
    __init__ = Gated.__init__

    @staticmethod
    def unit(argument: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return argument * jax.scipy.special.ndtr(argument)
