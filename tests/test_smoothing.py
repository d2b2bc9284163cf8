"""The smoother against a textbook's, and against the joint Gaussian of a whole episode."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moca.dynamics import noise_variance
from moca.smoothing import smooth
from tests.test_belief import A, B, Q, linear, trajectory
from tests.test_noise_levels import EACH, fitted, rows


def textbook(actions, seen, missing, noise):
    """Kalman's filter and the smoother of Rauch, Tung and Striebel: means, covariances, and Cov(s, s′)."""
    means, covariances, priors = [seen[0]], [np.diag(noise)], []
    for a, o, lost in zip(actions, seen[1:], missing, strict=True):
        mean, covariance = A @ means[-1] + B @ a, A @ covariances[-1] @ A.T + np.diag(Q)
        priors.append((mean, covariance))
        H = np.eye(3)[~lost]
        gain = covariance @ H.T @ np.linalg.inv(H @ (covariance + np.diag(noise)) @ H.T)
        means.append(mean + gain @ H @ (np.where(lost, 0, o) - mean))
        covariances.append(covariance - gain @ H @ covariance)
    smooth_means, smooth_covariances, cross = [means[-1]], [covariances[-1]], []
    for (prior_mean, prior), mean, covariance in zip(priors[::-1], means[-2::-1], covariances[-2::-1], strict=True):
        gain = covariance @ A.T @ np.linalg.inv(prior)
        cross.append(gain @ smooth_covariances[-1])
        smooth_means.append(mean + gain @ (smooth_means[-1] - prior_mean))
        smooth_covariances.append(covariance + gain @ (smooth_covariances[-1] - prior) @ gain.T)
    found = (means, covariances, smooth_means[::-1], smooth_covariances[::-1], cross[::-1])
    return tuple(map(np.array, found))


def conditioned(actions, seen, missing, noise):
    """Mean and covariance of all states of an episode at once, by conditioning their joint Gaussian."""
    steps = len(actions)
    differences, drive = np.eye(3 * (steps + 1)), [seen[0], *(B @ a for a in actions)]
    for t in range(steps):
        differences[3 * (t + 1) : 3 * (t + 2), 3 * t : 3 * (t + 1)] = -A
    onto = np.linalg.inv(differences)
    covariance = onto @ np.diag(np.concatenate([noise, *[Q] * steps])) @ onto.T
    mean = onto @ np.concatenate(drive)
    H = np.eye(3 * (steps + 1))[3:][~missing.ravel()]
    gain = covariance @ H.T @ np.linalg.inv(H @ covariance @ H.T + H @ np.diag(np.tile(noise, steps + 1)) @ H.T)
    return mean + gain @ (seen[1:][~missing] - H @ mean), covariance - gain @ H @ covariance


def episode(steps, seed=0):
    """Actions and observations with noise of each dimension, and what is missing: single values and whole samples."""
    random = np.random.default_rng(seed)
    states, actions, _ = trajectory(steps, seed)
    missing = random.random((steps, 3)) < 0.1
    missing[5:8] = True
    return actions, states + EACH * random.normal(size=states.shape), missing


def test_it_is_the_textbooks_if_told():
    with jax.enable_x64(True):
        actions, seen, missing = episode(60)
        told = jnp.broadcast_to(EACH**2, (60, 3))
        filtered, found = smooth(linear(), rows(actions, seen, missing=missing), told, told)
        means, covariances, smooth_means, smooth_covariances, cross = textbook(actions, seen, missing, EACH**2)
        for ours, theirs in (
            (filtered.before.mean, means[:-1]),
            (filtered.after.mean, means[1:]),
            (filtered.after.covariance, covariances[1:]),
            (found.mean, smooth_means[:-1]),
            (found.covariance, smooth_covariances[:-1]),
            (found.next_mean, smooth_means[1:]),
            (found.next_covariance, smooth_covariances[1:]),
            (found.cross, cross),
        ):
            np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-7)
        assert (np.trace(found.covariance[1:], axis1=1, axis2=2) < np.trace(covariances[1:-1], axis1=1, axis2=2)).all()


def test_it_is_the_joint_gaussian_of_each_episode():
    """Of two, one after the other in the rows; neither knows of the other."""
    with jax.enable_x64(True):
        parts = [episode(20, seed) for seed in (1, 2)]
        both = [rows(actions, seen, missing=missing) for actions, seen, missing in parts]
        both[0] = both[0]._replace(terminated=both[0].terminated.at[-1].set(1.0))
        told = jnp.broadcast_to(EACH**2, (40, 3))
        _, found = smooth(linear(), jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *both), told, told)
        for k, (actions, seen, missing) in enumerate(parts):
            own = jax.tree.map(lambda leaf, k=k: leaf[20 * k : 20 * (k + 1)], found)
            mean, covariance = conditioned(actions, seen, missing, EACH**2)
            blocks = covariance.reshape(21, 3, 21, 3)
            np.testing.assert_allclose(own.mean, mean.reshape(21, 3)[:-1], atol=1e-6)
            np.testing.assert_allclose(own.next_mean, mean.reshape(21, 3)[1:], atol=1e-6)
            for t in range(20):
                np.testing.assert_allclose(own.covariance[t], blocks[t, :, t], atol=1e-7)
                np.testing.assert_allclose(own.next_covariance[t], blocks[t + 1, :, t + 1], atol=1e-7)
                np.testing.assert_allclose(own.cross[t], blocks[t, :, t + 1], atol=1e-7)


@pytest.mark.slow
def test_it_is_the_textbooks_within_five_per_cent_if_the_noise_is_learned():
    """Deviations of beliefs, and means in units of them: the model knows A and B, and learns a factor of Q, and R."""
    parts = [episode(1000, seed) for seed in range(8)]
    each = [rows(actions, seen, missing=missing) for actions, seen, missing in parts]
    state = fitted(jax.tree.map(lambda *leaves: jnp.stack(leaves), *each), 1.0)
    variance = partial(noise_variance, state.noise, state.ensemble.statistics)
    noise, first = variance(each[0].next_observation), variance(each[0].observation)
    np.testing.assert_allclose(np.sqrt(noise.mean(0)), EACH, rtol=0.05)
    filtered, found = jax.jit(partial(smooth, state.ensemble))(each[0], noise, first)
    means, covariances, smooth_means, smooth_covariances, _ = textbook(*parts[0], EACH**2)
    for ours, covariance, mean, exact in (
        (filtered.after.mean, filtered.after.covariance, means[1:], covariances[1:]),
        (found.next_mean, found.next_covariance, smooth_means[1:], smooth_covariances[1:]),
    ):
        learned, true = (np.sqrt(np.diagonal(each, axis1=1, axis2=2)) for each in (covariance, exact))
        np.testing.assert_allclose(learned.mean(0), true.mean(0), rtol=0.05)
        assert (np.sqrt(np.mean(((ours - mean) / true) ** 2, axis=0)) < 0.05).all()
