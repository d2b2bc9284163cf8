"""The smoother against a textbook's, and against the joint Gaussian of a whole episode."""

import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moca import config
from moca.agents import make_agent
from moca.config import ConfigError
from moca.drivers import ScanTrainer
from moca.dynamics import fit, make_model, noise_variance
from moca.replay import Layout, Pair, Transition, add, empty, read, with_gaps, with_pairs
from moca.smoothing import drawn, smooth
from tests import probes
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


def smoothed(rows, noise):
    """By the linear system, if these are the variances of the noise."""
    return jax.device_get(jax.jit(lambda rows, noise: smooth(linear(), rows, noise, noise))(rows, noise))


def test_it_is_the_textbooks_if_told():
    with jax.enable_x64(True):
        actions, seen, missing = episode(60)
        told = jnp.broadcast_to(EACH**2, (60, 3))
        filtered, found = smoothed(rows(actions, seen, missing=missing), told)
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
        _, found = smoothed(jax.tree.map(lambda *leaves: np.concatenate(leaves), *both), told)
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


SMALL = {
    "agent": "moca", "critic__width": 8, "dynamics__width": 8, "dynamics__members": 2, "value__bases": 8,
    "value__low": (-1.0, -1.0), "value__high": (1.0, 1.0), "value__lengthscales": (1.0, 1.0),
    "belief__filter": True, "noise__sigma": 0.3, "belief__smoothing": True, "belief__covariance": "full",
}  # fmt: skip


def test_draws_have_the_moments_of_the_joint_belief():
    with jax.enable_x64(True):
        actions, seen, missing = episode(4)
        told = jnp.broadcast_to(EACH**2, (4, 3))
        _, found = smoothed(rows(actions, seen, missing=missing), told)
        draw = jax.jit(lambda keys: jax.vmap(drawn, (None, 0))(found, keys))
        pairs = jax.device_get(draw(jax.random.split(jax.random.key(0), 100_000)))
        assert pairs.known.all()
        both = np.concatenate([pairs.observation, pairs.next_observation], axis=-1)[:, 2]
        error = both - np.concatenate([found.mean[2], found.next_mean[2]])
        np.testing.assert_allclose(error.mean(0), 0, atol=0.005)
        joint = np.block([[found.covariance[2], found.cross[2]], [found.cross[2].T, found.next_covariance[2]]])
        np.testing.assert_allclose(error.T @ error / len(error), joint, atol=0.002)


def test_the_truth_is_what_is_fitted_to_draws():
    """The M-step's fixed point: smoothed with the true model, a regression on pairs finds it again. On smoothed means
    alone it would find a fraction of the noise."""
    with jax.enable_x64(True):
        actions, seen, missing = episode(4000)
        told = jnp.broadcast_to(EACH**2, (4000, 3))
        _, found = smoothed(rows(actions, seen, missing=missing), told)
        pair = jax.device_get(jax.jit(drawn)(found, jax.random.key(0)))
        for s, following, true in (
            (pair.observation, pair.next_observation, True),
            (found.mean, found.next_mean, False),
        ):
            inputs = np.concatenate([s, actions], axis=1)
            fitted, *_ = np.linalg.lstsq(inputs, np.asarray(following), rcond=None)
            variance = np.mean((following - inputs @ fitted) ** 2, axis=0)
            if true:
                np.testing.assert_allclose(fitted.T, np.concatenate([A, B], axis=1), atol=0.02)
                np.testing.assert_allclose(variance, Q, rtol=0.05)
            else:
                assert (variance < 0.5 * Q).all()


def test_a_model_is_fitted_to_pairs_where_they_are_known():
    """As if they had been observed without noise; other rows, and their gaps, are as before."""
    random = np.random.default_rng(0)
    s, after, measured, first, second = (jnp.asarray(each, jnp.float32) for each in random.normal(size=(5, 4, 2)))
    known, missing = jnp.array([1.0, 0.0, 1.0, 0.0]), jnp.array([[True, False]] * 4)
    zeros, spread, noise = jnp.zeros(4), jnp.full((4, 2), 0.2), jnp.full((4, 2), 0.1)
    plain = Transition(s, s[:, :1], zeros, after, zeros, measured, spread, missing=missing)
    settings = config.DynamicsConfig(members=2, width=8), config.BeliefConfig()
    model = jax.jit(lambda key: make_model(key, *settings, 2, 1))(jax.random.key(0))
    learned = jax.jit(lambda batch, noise: fit(model, 1e-3, batch, jnp.ones((2, 4), jnp.uint8), noise))
    paired = plain._replace(pair=Pair(first, second, known))
    drawn_here = known[:, None] > 0
    by_hand = plain._replace(
        observation=jnp.where(drawn_here, first, s),
        next_observation=jnp.where(drawn_here, second, after),
        measured=jnp.where(drawn_here, second, measured),
        spread=jnp.where(drawn_here, 0, spread),
        missing=missing & ~drawn_here,
    )
    found, expected = learned(paired, noise), learned(by_hand, noise * ~drawn_here)
    jax.tree.map(np.testing.assert_array_equal, found, expected)
    assert found[1] != learned(plain, noise)[1]


def test_rows_with_pairs_are_read_as_they_were_written():
    layout = Layout(2, 1, filtered=True, wide=True, smoothed=True)
    buffer, numbers = empty(3, layout), jnp.arange(1.0, 3.0)
    plain = Transition(numbers, numbers[:1], numbers[0], numbers, numbers[1], 3 * numbers, 4 * numbers)
    row = plain._replace(width=5 * numbers, next_width=6 * numbers, pair=Pair.unknown(numbers))
    buffer = add(buffer, jnp.array(4), row)
    pairs = Pair(7 * numbers[None], 8 * numbers[None], jnp.ones(1))
    jax.tree.map(np.testing.assert_array_equal, read(buffer, jnp.array(4), layout), row)
    buffer = with_pairs(buffer, jnp.array([4]), pairs)
    expected = row._replace(pair=jax.tree.map(lambda leaf: leaf[0], pairs))
    jax.tree.map(np.testing.assert_array_equal, read(buffer, jnp.array(4), layout), expected)
    np.testing.assert_array_equal(buffer[jnp.array([0, 2])], 0)


@pytest.mark.slow
def test_training_with_it():
    """The newest episodes have pairs near their states once the model is trained; equal seeds agree, and another run
    follows from it. What values are learned on is what the filter believed."""
    ends = {}
    for smoothing in (True, False):
        settings = SMALL | {"belief__smoothing": smoothing, "train__steps": 80, "sensor__drop": 0.1}
        trainer = probes.without_scores(ScanTrainer([probes.tiny(**settings)] * 2, [3, 3], probes.Drift()))
        reports = list(trainer)
        assert np.isfinite(reports[-1].metrics["critic_loss"]).all()
        np.testing.assert_array_equal(*trainer.state.replay)
        agent = make_agent(probes.tiny(**settings), trainer.env)
        ends[smoothing] = jax.device_get(with_gaps(read(trainer.state.replay[0], jnp.arange(80), agent.layout)))
    found = ends[True]
    assert (np.asarray(found.pair.known) == 1).all()
    assert np.abs(found.pair.observation[40:] - found.observation[40:]).mean() < 0.4
    assert np.abs(found.pair.observation - found.observation).max() > 1e-3
    inside = np.arange(80) % 20 > 0
    np.testing.assert_array_equal(found.observation[inside], found.next_observation[:-1][inside[1:]])
    np.testing.assert_allclose(found.observation[:21], ends[False].observation[:21], rtol=1e-5)
    assert np.abs(found.observation[41:] - ends[False].observation[41:]).max() > 1e-6


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"belief__filter": False}, "needs belief.filter = true: only a filter's beliefs can be smoothed"),
        ({"sensor__delay": 2}, "cannot be combined with sensor.delay yet: set sensor.delay to 0"),
        ({"sensor__history": 2}, "cannot be combined with sensor.history yet: set sensor.history to 0"),
        ({"train__capacity": 19}, "needs whole episodes: train.capacity = 19 must be at least 20"),
    ],
)
def test_what_is_not_supported_is_refused(settings, message):
    with pytest.raises(ConfigError, match=re.escape(f"belief.smoothing = true {message}")):
        probes.tiny(**SMALL | settings)
