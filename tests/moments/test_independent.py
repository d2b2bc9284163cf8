"""Closed forms of other libraries: Emukit's own functions, and GPflow's `expectation`, its formulas written out.

`benchmarks/moments.py` compares with GPflow itself, which needs TensorFlow.
"""

import jax
import numpy as np
import pytest
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


def gpflow_expectations(mean, covariance, points, lengthscales):
    """⟨k⟩, ⟨x k⟩ and ⟨k kᵀ⟩ as GPflow has them: unit variance, k of the input with every point."""
    scales = np.diag(lengthscales**2)
    gaps = points - mean
    widened = scales + covariance
    solved = np.linalg.solve(widened, gaps.T).T
    k = np.sqrt(np.linalg.det(scales) / np.linalg.det(widened)) * np.exp(-0.5 * (gaps * solved).sum(1))
    xk = k[:, None] * (mean + solved @ covariance)
    middles = (points[:, None] + points[None]) / 2 - mean
    apart = (((points[:, None] - points[None]) / lengthscales) ** 2).sum(-1)
    halved = scales / 2 + covariance
    weighed = np.einsum("abi,ij,abj->ab", middles, np.linalg.inv(halved), middles)
    kk = np.sqrt(np.linalg.det(scales / 2) / np.linalg.det(halved)) * np.exp(-0.25 * apart - 0.5 * weighed)
    return k, xk, kk


@pytest.mark.parametrize("kind", ["diagonal", "full"])
@pytest.mark.parametrize("d", [1, 5])
def test_kernel_expectations_agree_with_gpflows(kind, d):
    rng = np.random.default_rng(d)
    mean, points, lengthscales = rng.normal(size=d), rng.normal(size=(16, d)), rng.uniform(0.4, 2, d)
    root = rng.normal(size=(d, d))
    covariance = np.diag(rng.uniform(0.05, 1, d)) if kind == "diagonal" else root @ root.T / d + 0.05 * np.eye(d)
    p = mm.DiagonalGaussian(mean, np.diag(covariance)) if kind == "diagonal" else mm.Gaussian(mean, covariance)
    f = mm.RBF(None, points, lengthscales**-2)

    @jax.jit
    def ours(p, f):
        k = mm.expectation(p, f)
        return k, mm.cross_covariance(p, f) + k[:, None] * mean, mm.product(p, f, f)

    for got, want in zip(ours(p, f), gpflow_expectations(mean, covariance, points, lengthscales), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-11, atol=1e-14)


def test_a_process_agrees_with_gpflows_uncertain_conditional():
    """GPflow's prediction at an uncertain input from an inducing distribution q(u) = N(m, S), here the exact posterior.

    mean = E[k]ᵀ K⁻¹ m and variance = signal − tr(K⁻¹ E[kkᵀ]) + tr(K⁻¹ S K⁻¹ E[kkᵀ]) + mᵀ K⁻¹ E[kkᵀ] K⁻¹ m − mean².
    """
    rng = np.random.default_rng(3)
    n, d, signal, noise = 8, 3, 1.3, 0.1
    inputs, targets, scales = 1.5 * rng.normal(size=(n, d)), rng.normal(size=(n, 2)), rng.uniform(0.5, 1.0, d)
    mean, root = rng.normal(size=d), 0.4 * rng.normal(size=(d, d))
    k, _, kk = gpflow_expectations(mean, root @ root.T, inputs, scales)
    gaps = (inputs[:, None] - inputs[None]) / scales
    K = signal * np.exp(-0.5 * np.sum(gaps**2, axis=-1))
    inverse = np.linalg.inv(K)
    smooth = K @ np.linalg.inv(K + noise * np.eye(n))
    m, S = smooth @ targets, noise * smooth
    first, second = signal * k @ inverse, signal**2 * inverse @ kk @ inverse
    means = first @ m
    own = signal - signal**2 * np.sum(inverse * kk) + np.sum(S * second)
    covariance = m.T @ second @ m - np.outer(means, means) + own * np.eye(2)
    ours = mm.propagate(mm.Gaussian(mean, root @ root.T), mm.GP(inputs, targets, scales, signal, noise))
    np.testing.assert_allclose(ours.mean, means, rtol=1e-10)
    np.testing.assert_allclose(ours.covariance, covariance, rtol=1e-9, atol=1e-12)
