"""PILCO's prediction as its authors publish it (gp0.m), written out in NumPy; shares no code with `moca.moments`."""

import numpy as np


def predict(inputs, targets, lengthscales, signal, noise, m, s):
    """Mean M, covariance S and V = Σ⁻¹ Cov(x, y) of independent GPs at N(m, s)."""
    n, d = inputs.shape
    outputs = targets.shape[1]
    k, beta, inverse = np.zeros((n, outputs)), np.zeros((n, outputs)), []
    for i in range(outputs):
        z = inputs / lengthscales[i]
        k[:, i] = 0
        gram = signal[i] * np.exp(-((z[:, None] - z[None]) ** 2).sum(-1) / 2)
        inverse.append(np.linalg.inv(gram + noise[i] * np.eye(n)))
        beta[:, i] = inverse[i] @ targets[:, i]
    away = inputs - m
    mean, cross = np.zeros(outputs), np.zeros((d, outputs))
    for i in range(outputs):
        inverse_scale = np.diag(1 / lengthscales[i])
        scaled = away @ inverse_scale
        B = inverse_scale @ s @ inverse_scale + np.eye(d)
        t = np.linalg.solve(B.T, scaled.T).T
        bumps = np.exp(-(scaled * t).sum(1) / 2)
        weighted = bumps * beta[:, i]
        c = signal[i] / np.sqrt(np.linalg.det(B))
        mean[i] = c * weighted.sum()
        cross[:, i] = c * (t @ inverse_scale).T @ weighted
        k[:, i] = np.log(signal[i]) - (scaled**2).sum(1) / 2
    covariance = np.zeros((outputs, outputs))
    for i in range(outputs):
        ii = away / lengthscales[i] ** 2
        for j in range(i + 1):
            R = s @ np.diag(lengthscales[i] ** -2.0 + lengthscales[j] ** -2.0) + np.eye(d)
            t = 1 / np.sqrt(np.linalg.det(R))
            ij = away / lengthscales[j] ** 2
            half = np.linalg.solve(R, s) / 2
            one, two = ii @ half, -ij @ half
            distance = (one * ii).sum(1)[:, None] + (two * -ij).sum(1)[None] - 2 * one @ -ij.T
            L = np.exp(k[:, i][:, None] + k[:, j][None] + distance)
            covariance[i, j] = covariance[j, i] = t * beta[:, i] @ L @ beta[:, j]
            if i == j:
                covariance[i, i] += signal[i] - t * (inverse[i] * L).sum()
    return mean, covariance - np.outer(mean, mean), cross


def trigonometric(m, v, angles):
    """Mean, covariance and input–output covariance of sines and cosines of some of N(m, v), as in gTrig.m."""
    count = len(angles)
    mi, vi = m[angles], v[np.ix_(angles, angles)]
    vii = np.diag(vi)
    mean = np.zeros(2 * count)
    mean[0::2], mean[1::2] = np.exp(-vii / 2) * np.sin(mi), np.exp(-vii / 2) * np.cos(mi)
    lq = -(vii[:, None] + vii[None]) / 2
    q = np.exp(lq)
    plus, minus = np.exp(lq + vi) - q, np.exp(lq - vi) - q
    diff, total = mi[:, None] - mi[None], mi[:, None] + mi[None]
    U1, U2 = plus * np.sin(diff), minus * np.sin(total)
    U3, U4 = plus * np.cos(diff), minus * np.cos(total)
    V = np.zeros((2 * count, 2 * count))
    V[0::2, 0::2], V[1::2, 1::2] = U3 - U4, U3 + U4
    V[0::2, 1::2] = U1 + U2
    V[1::2, 0::2] = V[0::2, 1::2].T
    C = np.zeros((len(m), 2 * count))
    for position, angle in enumerate(angles):
        C[angle, 2 * position], C[angle, 2 * position + 1] = mean[2 * position + 1], -mean[2 * position]
    return mean, V / 2, v @ C
