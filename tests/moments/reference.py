"""Expectations by numerical integration in NumPy, sharing no code with `moca.moments`.

The trapezoidal rule converges faster than any power for the integrands here (analytic, with Gaussian tails), so a
hundred nodes placed where the integrand lives give full double precision.
"""

import itertools

import numpy as np
import scipy.linalg
import scipy.special


def normal_density(z):
    return np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)


def rbf(mean, covariance, centers, precisions):
    """E[φᵢ] for N(mean, covariance): rotate to where the integrand is a product, integrate each factor.

    `precisions` is (M, d, d). The nodes follow the product of the two bumps; the integrand itself is left as it is.
    """
    root = np.linalg.cholesky(covariance)
    values = []
    for c, precision in zip(centers, precisions, strict=True):
        curvature, rotation = np.linalg.eigh(root.T @ precision @ root)
        offset = rotation.T @ scipy.linalg.solve_triangular(root, c - mean, lower=True)
        curvature = np.maximum(curvature, 0)
        middle, width = curvature * offset / (1 + curvature), 1 / np.sqrt(1 + curvature)
        nodes = np.linspace(-12, 12, 121)
        z = middle + width * nodes[:, None]
        integrand = normal_density(z) * np.exp(-curvature * (z - offset) ** 2 / 2)
        values.append(np.prod(integrand.sum(0) * width * (nodes[1] - nodes[0])))
    return np.array(values)


def rbf_products(mean, variance, centers, precisions):
    """E[φᵢ φⱼ] for a diagonal Gaussian (positive variances) and diagonal precisions (M, d)."""
    m, d = centers.shape
    products = np.ones((m, m))
    for k in range(d):
        lam_i, lam_j = precisions[:, None, k], precisions[None, :, k]
        # Everything relative to the mean: a narrow belief far from zero would lose its digits otherwise.
        to_i, to_j = centers[:, None, k] - mean[k], centers[None, :, k] - mean[k]
        total = 1 / variance[k] + lam_i + lam_j
        nodes = np.linspace(-12, 12, 121)
        y = (lam_i * to_i + lam_j * to_j) / total + nodes[:, None, None] / np.sqrt(total)
        exponent = y**2 / variance[k] + lam_i * (y - to_i) ** 2 + lam_j * (y - to_j) ** 2
        step = (nodes[1] - nodes[0]) / np.sqrt(total)
        products *= np.exp(-exponent / 2).sum(0) * step / np.sqrt(2 * np.pi * variance[k])
    return products


def ridge(function, mean, variance):
    """E[function(t)] for t ~ N(mean, variance), arrays alike; the function varies over lengths of about one."""
    values = []
    for m, v in zip(mean, variance, strict=True):
        deviation = np.sqrt(v)
        if deviation == 0:
            values.append(function(m))
            continue
        count = int(np.ceil(24 * deviation / min(deviation / 4, 0.25))) + 1
        z = np.linspace(-12, 12, count)
        values.append(np.sum(normal_density(z) * function(m + deviation * z)) * (z[1] - z[0]))
    return np.array(values)


def polynomial(tensors, mean, matrix, first, second):
    """Σₖ tensorsₖ : E[x⊗ᵏ] / k! with the moment tensors of mean + √τ S^½ ε written out pairing by pairing."""
    total = float(tensors[0]) + tensors[1] @ mean
    if len(tensors) > 2:
        total += np.einsum("ij,ij", tensors[2], first * matrix + np.outer(mean, mean)) / 2
    if len(tensors) > 3:
        third = np.einsum("i,j,k->ijk", mean, mean, mean)
        for pairing in ("ij,k->ijk", "ik,j->ijk", "jk,i->ijk"):
            third = third + first * np.einsum(pairing, matrix, mean)
        total += np.einsum("ijk,ijk", tensors[3], third) / 6
    if len(tensors) > 4:
        fourth = np.einsum("i,j,k,l->ijkl", mean, mean, mean, mean)
        for one, two in (("ij", "kl"), ("ik", "jl"), ("il", "jk"), ("jk", "il"), ("jl", "ik"), ("kl", "ij")):
            fourth = fourth + first * np.einsum(f"{one},{two[0]},{two[1]}->ijkl", matrix, mean, mean)
        for one, two in (("ij", "kl"), ("ik", "jl"), ("il", "jk")):
            fourth = fourth + second * np.einsum(f"{one},{two}->ijkl", matrix, matrix)
        total += np.einsum("ijkl,ijkl", tensors[4], fourth) / 24
    return total


def student_characteristic(df, q):
    """The characteristic function of a Student-t at ωᵀSω = q, by scipy's Bessel function."""
    t = np.sqrt(df * q)
    order = df / 2
    return scipy.special.kv(order, t) * t**order / (scipy.special.gamma(order) * 2 ** (order - 1))


def tensor_rule(mean, covariance, count=161, reach=10.0):
    """Nodes (n, d) and weights (n,) of the tensor trapezoidal rule for N(mean, covariance); for d of one or two."""
    z = np.linspace(-reach, reach, count)
    grid = np.stack(np.meshgrid(*[z] * len(mean), indexing="ij"), -1).reshape(-1, len(mean))
    weights = np.prod(normal_density(grid), axis=1) * (z[1] - z[0]) ** len(mean)
    values, vectors = np.linalg.eigh(covariance)
    return mean + grid @ (vectors * np.sqrt(np.maximum(values, 0))).T, weights


UNITS = {
    "Erf": scipy.special.erf,
    "ReLU": lambda a: np.maximum(a, 0),
    "GELU": lambda a: a * scipy.special.ndtr(a),
    "Fourier": np.cos,
}
NODES, WEIGHTS = np.polynomial.legendre.leggauss(24)


def split_rule(mean, variance, kink=0.0, reach=9.5, panels=8):
    """Nodes and weights for N(mean, variance), arrays alike, that know of a kink: panels of 24 nodes on either side."""
    deviation = np.sqrt(variance)
    edge = np.clip(np.where(deviation > 0, (kink - mean) / np.maximum(deviation, 1e-300), 0), -reach, reach)
    nodes, weights = [], []
    grades = np.linspace(0, 1, panels + 1) ** 3  # finer towards the kink, near which units vary
    for end in (-reach, reach):
        for near, far in itertools.pairwise(grades):
            low, width = edge + near * (end - edge), (far - near) * (end - edge)
            z = (low + width / 2)[..., None] + width[..., None] / 2 * NODES
            nodes.append(mean[..., None] + deviation[..., None] * z)
            weights.append(np.abs(width)[..., None] / 2 * WEIGHTS * normal_density(z))
    return np.concatenate(nodes, -1), np.concatenate(weights, -1)


def between_kinks(mean, variance, kinks, reach=9.5, panels=8):
    """Nodes and weights for N(mean, variance), two numbers, finer towards each of several kinks."""
    deviation = np.sqrt(variance)
    inner = np.clip([(k - mean) / deviation if deviation > 0 else 0.0 for k in kinks], -reach, reach)
    edges = np.unique([-reach, *inner, reach])
    grades = np.linspace(0, 1, panels + 1) ** 3
    nodes, weights = [], []
    for low, high in itertools.pairwise(edges):
        half = (high - low) / 2
        cuts = np.unique(np.r_[low + half * grades, high - half * grades])
        middle, width = (cuts[1:] + cuts[:-1]) / 2, np.diff(cuts)
        z = (middle[:, None] + width[:, None] / 2 * NODES).ravel()
        nodes.append(mean + deviation * z)
        weights.append((width[:, None] / 2 * WEIGHTS).ravel() * normal_density(z))
    return np.concatenate(nodes), np.concatenate(weights)


def unit_covariance(one, two, m_a, v_a, m_b, v_b, c):
    """Cov(one(a), two(b)) for numbers: over a, and over b given a, both with the kink at zero resolved."""
    one, two = UNITS[one], UNITS[two]
    slope = c / v_a if v_a > 0 else 0.0
    crossing = m_a - m_b / slope if slope else 0.0  # where the mean of b given a changes sign: nearly a kink
    a, over_a = between_kinks(m_a, v_a, [0.0, crossing])
    b, over_b = split_rule(m_b + slope * (a - m_a), np.full(a.shape, max(v_b - slope * c, 0.0)))
    b_alone, over_b_alone = split_rule(np.asarray(m_b), np.asarray(v_b))
    mean_b = np.sum(over_b_alone * two(b_alone))
    return np.sum(over_a * one(a) * (np.sum(over_b * two(b), -1) - mean_b))


def kinked_tensor_rule(mean, covariance, direction, offset, count=161, reach=10.0):
    """The tensor rule in two dimensions, its first axis across the line directionᵀx + offset = 0 and split there."""
    root = np.linalg.cholesky(covariance)
    along = root.T @ direction
    size = np.linalg.norm(along)
    turn = np.stack([along / size, np.array([-along[1], along[0]]) / size], 1)
    one, over_one = split_rule(np.zeros(()), np.ones(()), -(direction @ mean + offset) / size)
    two = np.linspace(-reach, reach, count)
    grid = np.stack(np.meshgrid(one, two, indexing="ij"), -1).reshape(-1, 2)
    weights = np.outer(over_one, normal_density(two) * (two[1] - two[0])).ravel()
    return mean + grid @ (root @ turn).T, weights
