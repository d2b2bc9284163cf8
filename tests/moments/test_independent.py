"""Another library's closed form: Emukit's Bayesian quadrature integrates the same kernel against the same Gaussian."""

import jax
import numpy as np
from emukit.quadrature.interfaces import IRBF
from emukit.quadrature.kernels import QuadratureRBFGaussianMeasure
from emukit.quadrature.measures import GaussianMeasure

from moca import moments as mm


class Kernel(IRBF):
    """The squared exponential kernel, as Emukit asks for it."""

    def __init__(self, lengthscales):
        self._lengthscales = lengthscales

    @property
    def lengthscales(self):
        return self._lengthscales

    @property
    def variance(self):
        return 1.0

    def K(self, x1, x2):
        return np.exp(-0.5 * (((x1[:, None] - x2[None]) / self._lengthscales) ** 2).sum(-1))


def test_expectation_and_variance_agree_with_emukit():
    expectations = jax.jit(lambda p, *fs: [mm.expectation(p, f) for f in fs])
    rng = np.random.default_rng(0)
    for d in (1, 3, 8):
        lengthscales, mean, variance = rng.uniform(0.3, 2, d), rng.normal(size=d), rng.uniform(0.1, 2, d)
        centers, weights = rng.normal(size=(20, d)), rng.normal(size=20)
        kernel = QuadratureRBFGaussianMeasure(Kernel(lengthscales), GaussianMeasure(mean, variance))
        p, f = mm.DiagonalGaussian(mean, variance), mm.RBF(weights, centers, lengthscales**-2)
        # Its double integral is the expectation once more over the centre, here the belief's own.
        widened = mm.RBF([1.0], [mean], 1 / (lengthscales**2 + variance))
        scale = np.sqrt(lengthscales**2 / (lengthscales**2 + variance)).prod()
        once, twice = expectations(p, f, widened)
        np.testing.assert_allclose(once, float((kernel.qK(centers) @ weights)[0]), rtol=1e-12)
        np.testing.assert_allclose(scale * twice, kernel.qKq(), rtol=1e-12)
