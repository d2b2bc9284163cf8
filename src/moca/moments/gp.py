"""Gaussian processes at uncertain inputs: PILCO's prediction (Deisenroth and Rasmussen, 2011)."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve
from jaxtyping import Array, Float

from moca.moments import _checks as check
from moca.moments.closed_forms.points import empirical_covariance
from moca.moments.closed_forms.rbf import given_each_basis, rbf_bases
from moca.moments.distributions import DiagonalGaussian, Dirac, Empirical, Gaussian
from moca.moments.expectation import covariance
from moca.moments.functions import RBF, Function


class GP(Function):
    """The posterior of independent Gaussian processes with squared exponential kernels.

    kₐ(x, x′) = signalₐ exp(−½ Σⱼ (xⱼ − x′ⱼ)² / ℓₐⱼ²), with mean zero and observation noise of
    variance noiseₐ. A GP is a random function: `expectation` averages over x and the process.
    `covariance(p, gp)` is the covariance of the posterior means plus, on the diagonal, the expected
    posterior variance, without observation noise.

    Args:
        inputs: Inputs of the data, (N, d).
        targets: Observed outputs, (N, m).
        lengthscales: ℓ, (m, d); or (d,) for all outputs.
        signal: Variances of the processes, (m,) or a number.
        noise: Variances of the observation noise, (m,) or a number; above zero.
    """

    inputs: Float[Array, "n d"]
    targets: Float[Array, "n m"]
    lengthscales: Float[Array, "m d"]
    signal: Float[Array, "m"]
    noise: Float[Array, "m"]

    def __init__(
        self,
        inputs: check.Numbers,
        targets: check.Numbers,
        lengthscales: check.Numbers,
        signal: check.Numbers = 1.0,
        noise: check.Numbers = 1e-2,
    ) -> None:
        self.inputs, self.targets = check.as_float(inputs), check.as_float(targets)
        m, d = self._sizes(self.inputs, self.targets)
        scales = check.as_float(lengthscales, like=self.inputs)
        if scales.ndim == 1:
            check.has_shape(self, "lengthscales", scales, (d,), f"inputs {self.inputs.shape}")
        self.lengthscales = jnp.broadcast_to(scales, (m, d)) if scales.ndim < 2 else scales
        signal, noise = (check.as_float(each, like=self.inputs) for each in (signal, noise))
        self.signal, self.noise = (jnp.broadcast_to(v, (m,)) if v.ndim == 0 else v for v in (signal, noise))

    def __check_init__(self) -> None:
        (n, d), m = self.inputs.shape, self.targets.shape[1]
        check.has_shape(self, "targets", self.targets, (n, m), f"inputs {self.inputs.shape}")
        check.has_shape(self, "lengthscales", self.lengthscales, (m, d), f"{m} outputs of {d} inputs")
        check.is_finite(self, inputs=self.inputs, targets=self.targets)
        for name in ("signal", "noise"):
            check.has_shape(self, name, getattr(self, name), (m,), f"{m} outputs")
        check.is_positive(self, lengthscales=self.lengthscales, signal=self.signal, noise=self.noise)

    @classmethod
    def fit(cls, inputs: check.Numbers, targets: check.Numbers, steps: int = 300, rate: float = 0.05) -> "GP":
        """Returns the GP whose hyperparameters maximise the marginal likelihood, found by Adam.

        As in PILCO, a penalty applies to lengthscales more than a hundred times larger or smaller
        than the inputs' spread, and to signals above 500 times the noise deviation. Without it,
        noiseless data would lead to a singular matrix. Fitting needs optax, of the extra `train`.
        """
        inputs, targets = check.as_float(inputs), check.as_float(targets)
        cls._sizes(inputs, targets)
        try:
            import optax
        except ModuleNotFoundError:
            raise ModuleNotFoundError("GP.fit needs optax; install it with: pip install 'moca-rl[train]'") from None

        spread, size = inputs.std(axis=0) + 1e-6, targets.var(axis=0) + 1e-6
        start = (jnp.log(jnp.tile(spread, (targets.shape[1], 1))), jnp.log(size), jnp.log(0.05 * size))
        adam = optax.adam(rate)

        def loss(logs: tuple[Any, ...]) -> Float[Array, ""]:
            scales, signal, noise = logs
            curb = jnp.sum(((scales - start[0]) / math.log(100)) ** 30)
            curb += jnp.sum(((signal - noise) / (2 * math.log(500))) ** 30)
            return curb - cls(inputs, targets, *map(jnp.exp, logs)).log_likelihood().sum()

        def step(carry: tuple[Any, ...], _: None) -> tuple[Any, ...]:
            logs, state = carry
            updates, state = adam.update(jax.grad(loss)(logs), state)
            return (optax.apply_updates(logs, updates), state), None

        run = jax.jit(lambda carry: jax.lax.scan(step, carry, None, length=steps)[0])
        logs, _ = run((start, adam.init(start)))
        return cls(inputs, targets, *map(jnp.exp, logs))

    @classmethod
    def _sizes(cls, inputs: Array, targets: Array) -> tuple[int, int]:
        """Returns the numbers of outputs and inputs."""
        for field, array in (("inputs", inputs), ("targets", targets)):
            if array.ndim != 2:
                raise ValueError(f"GP.{field} must have two axes, with one row per point, got shape {array.shape}")
        return targets.shape[1], inputs.shape[1]

    @property
    def dimension(self) -> int:
        return self.inputs.shape[1]

    @property
    def outputs(self) -> tuple[int, ...]:
        return self.targets.shape[1:]

    def solve(self) -> tuple[Float[Array, "m n n"], Float[Array, "m n"]]:
        """Returns the Cholesky factors of K + noise · I, and (K + noise · I)⁻¹ targets."""

        def one(scales: Array, signal: Array, noise: Array, target: Array) -> tuple[Array, Array]:
            features = RBF(None, self.inputs, scales**-2).features
            factor = jnp.linalg.cholesky(
                signal * jax.vmap(features)(self.inputs) + noise * jnp.eye(len(target), dtype=target.dtype)
            )
            return factor, cho_solve((factor, True), target)

        return jax.vmap(one)(self.lengthscales, self.signal, self.noise, self.targets.T)

    def log_likelihood(self) -> Float[Array, "m"]:
        """The log marginal likelihood of each output's targets."""
        factor, solved = self.solve()
        fit = jnp.sum(self.targets.T * solved, axis=1) / 2
        size = jnp.sum(jnp.log(jnp.diagonal(factor, axis1=1, axis2=2)), axis=1)
        return -fit - size - len(self.inputs) * jnp.log(2 * jnp.pi) / 2

    def posterior(self, x: check.Numbers) -> tuple[Float[Array, "m"], Float[Array, "m"]]:
        """Returns mean and variance of each output at one known input."""
        x = check.as_float(x)
        factor, solved = self.solve()
        kernel = self.signal[:, None] * jax.vmap(lambda s: RBF(None, self.inputs, s**-2)(x))(self.lengthscales)
        white = jax.vmap(lambda L, k: jax.scipy.linalg.solve_triangular(L, k, lower=True))(factor, kernel)
        return jnp.sum(kernel * solved, axis=1), self.signal - jnp.sum(white**2, axis=1)

    def _evaluate(self, x: Float[Array, "d"]) -> Float[Array, "m"]:
        """The posterior mean."""
        return self.posterior(x)[0]


def gaussian_gp(p: DiagonalGaussian | Gaussian, f: GP) -> Float[Array, "m"]:
    """E[kₐ]ᵀ (Kₐ + noise I)⁻¹ yₐ for each output a."""
    _, solved = f.solve()
    return f.signal * jnp.sum(solved * _bases(p, f), axis=1)


def gaussian_gp_covariance(p: DiagonalGaussian | Gaussian, f: GP, g: GP) -> Float[Array, "m m"]:
    """Covₓ(μₐ(x), μ_b(x)), plus Eₓ[σₐ²(x)] = signal − tr((K + noise I)⁻¹ E[k kᵀ]) on the diagonal.

    Costs (mN)² expectations.
    """
    _refuse_two(f, g)
    factor, solved = f.solve()
    weights = f.signal[:, None] * solved

    def pair(one: Array, two: Array) -> Float[Array, "n n"]:
        kernels = RBF(None, f.inputs, one**-2), RBF(None, f.inputs, two**-2)
        return given_each_basis(p, kernels[0], lambda q: rbf_bases(q, kernels[1]))

    a, b = np.triu_indices(len(solved))  # the rest by symmetry
    pairs = jax.vmap(pair)(f.lengthscales[a], f.lengthscales[b])
    upper = jnp.einsum("ci,cij,cj->c", weights[a], pairs, weights[b], precision="highest")
    means = jnp.zeros((len(solved), len(solved)), upper.dtype).at[a, b].set(upper).at[b, a].set(upper)
    bases = _bases(p, f)
    own = pairs[a == b] + bases[:, :, None] * bases[:, None, :]
    # The inverse is the same for every belief of a batch.
    inverse = jax.vmap(lambda L: cho_solve((L, True), jnp.eye(len(L), dtype=L.dtype)))(factor)
    explained = f.signal**2 * jnp.sum(inverse * own, axis=(1, 2))
    return means + jnp.diag(f.signal - explained)


def gaussian_gp_with_any(p: DiagonalGaussian | Gaussian, f: GP, g: Function) -> Float[Array, "m *outputs"]:
    """Covₓ(μₐ(x), g(x)): the posterior mean is a sum of RBFs.

    The rest of the process is independent of g.
    """
    weights = f.signal[:, None] * f.solve()[1]
    means: Callable[..., Array] = jax.vmap(lambda w, scales: covariance(p, RBF(w, f.inputs, scales**-2), g))
    return means(weights, f.lengthscales)


def _refuse_two(f: GP, g: GP) -> None:
    """Raises unless f and g are the same object: equal numbers do not make one process."""
    if not all(one is two for one, two in zip(jax.tree.leaves(f), jax.tree.leaves(g), strict=True)):
        raise TypeError("covariance(p, gp) takes one GP. To combine two, build one GP with the outputs of both")


def _bases(p: DiagonalGaussian | Gaussian, f: GP) -> Float[Array, "m n"]:
    """E[k(x, xᵢ)] / signal, for each output."""
    return jax.vmap(lambda scales: rbf_bases(p, RBF(None, f.inputs, scales**-2)))(f.lengthscales)


def dirac_gp_covariance(p: Dirac, f: GP, g: GP) -> Float[Array, "m m"]:
    """The posterior variances at the point."""
    _refuse_two(f, g)
    return jnp.diag(f.posterior(p.point)[1])


def empirical_gp_covariance(p: Empirical, f: GP, g: GP) -> Float[Array, "m m"]:
    """The covariance of the posterior means over the points, plus mean posterior variances."""
    _refuse_two(f, g)
    return empirical_covariance(p, f, f) + jnp.diag(jax.vmap(f.posterior)(p.points)[1].mean(axis=0))
