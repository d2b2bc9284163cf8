"""Learning the noise of a sensor: against textbooks where the answer is known, and on signals that are."""

from functools import partial
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tools.quick_xla import OPTIMISED

from moca import config, dynamics, noise_levels
from moca import moments as mm
from moca.dynamics import NoiseLevels, noise_variance
from moca.nets import ADAM
from moca.noise_levels import apparent_noise, innovation_nll, linearise, windows
from moca.replay import Transition
from tests.test_belief import SIGMA, Q, linear, textbook, trajectory

UNCHANGED = (jnp.ones(3), jnp.zeros((3, 3)))  # the model's own covariance
EACH = np.array([0.1, 0.3, 0.6])  # deviations of the noise, one per dimension


def rows(actions, seen, means=None, missing=None):
    """What a replay holds of an episode; the model is linearised at the means, by default what was seen."""
    means = seen if means is None else means
    zeros, missing = jnp.zeros(len(actions)), np.zeros(seen[1:].shape, bool) if missing is None else missing
    found = (means[:-1], actions, zeros, means[1:], zeros, np.where(missing, 0.0, seen[1:]))
    return Transition(*map(jnp.asarray, found), missing=jnp.asarray(missing))


def test_the_likelihood_is_the_kalman_filters():
    with jax.enable_x64(True):
        states, actions, seen = trajectory(40)
        nll = jax.jit(lambda rows: innovation_nll(linearise(linear(), rows), *[told] * 2, *UNCHANGED))
        told = jnp.full((40, 3), SIGMA**2)
        found = nll(rows(actions, seen))
        np.testing.assert_allclose(found + 1.5 * np.log(2 * np.pi), textbook(actions, seen)[2], rtol=1e-6)
        again = nll(rows(actions, seen, means=np.concatenate([seen[:1], states[1:] + 3.0])))
        np.testing.assert_allclose(again, found, rtol=1e-9)  # a linear model is the same everywhere


def test_a_belief_starts_anew_after_an_end_and_at_every_window():
    with jax.enable_x64(True):
        _, actions, seen = trajectory(120)
        linearised = jax.jit(lambda rows: linearise(linear(), rows))
        whole = linearised(rows(actions, seen))
        ended = rows(actions, seen)
        ended = ended._replace(terminated=ended.terminated.at[9].set(1.0))
        assert np.flatnonzero(linearised(ended).starts).tolist() == [0, 10]
        moved = rows(actions, seen)
        moved = moved._replace(observation=moved.observation.at[30].add(1e-6))
        assert np.flatnonzero(linearised(moved).starts).tolist() == [0, 30]
        cut = windows(whole)
        assert cut.at.shape == (3, 50, 3)
        np.testing.assert_array_equal(cut.missing[2, 20:], True)
        np.testing.assert_array_equal(cut.start[1, 0], seen[50])
        noise = jnp.full((3, 50, 3), SIGMA**2)
        found = jax.jit(jax.vmap(innovation_nll, (0, 0, 0, None, None)))(cut, noise, noise, *UNCHANGED)
        expected = [textbook(actions[t : t + 50], seen[t : t + 51])[2] for t in (0, 50)]
        np.testing.assert_allclose(found[:2] + 1.5 * np.log(2 * np.pi), expected, rtol=1e-6, atol=1e-7)


class Motion(eqx.Module):
    """The linear system as a model with statistics, whose own deviation is some factor of the true one."""

    statistics: dynamics.Statistics
    calibration: dynamics.Calibration
    factor: jax.Array
    history = None

    def predict(self, s, a):
        mixture = linear().predict(s, a)
        variance = (
            mixture.components.variance * (self.factor * self.calibration.factor) ** 2 + self.calibration.added**2
        )
        return mm.GaussianMixture(mixture.weights, mm.DiagonalGaussian(mixture.components.mean, variance))


class Forgetful(Motion):
    """A model whose predictions do not depend on the state: its errors are white, whatever they are due to."""

    def predict(self, s, a):
        variance = (self.factor * self.calibration.factor) ** 2 + self.calibration.added**2
        return mm.GaussianMixture(jnp.ones(1), mm.DiagonalGaussian(jnp.zeros((1, 3)), variance[None]))


def fitted(episodes, factor, rounds=60, kind=Motion):
    """The levels after many episodes' worth of steps on the likelihood."""
    square = jnp.ones((2, 3))
    model = kind(
        dynamics.Statistics(jnp.ones(()), jnp.zeros((2, 3)), square), dynamics.Calibration.none(3), jnp.asarray(factor)
    )
    noise = NoiseLevels.of(jnp.log(jnp.full(3, 0.15)))
    state = dynamics.ModelState(model, None, noise, ADAM.init(noise))
    for _ in range(rounds):
        state = likelier(state, episodes)
    return state


@partial(jax.jit, compiler_options=OPTIMISED)  # it runs longer than it compiles
def likelier(state, episodes):
    return noise_levels._likelier(state, episodes, 0.03)


variances = jax.jit(noise_variance)


@pytest.mark.parametrize("factor", [1.0, 4.0, 0.1])
def test_levels_of_every_dimension_are_found(factor):
    """Within five per cent of what a textbook filter would be told; also if the model takes its own noise for four
    times what it is, or for a tenth, and with a tenth of the samples missing."""
    random = np.random.default_rng(0)
    episodes = []
    for seed in range(4):
        states, actions, _ = trajectory(1000, seed)
        seen = states + EACH * random.normal(size=states.shape)
        episodes.append(rows(actions, seen, missing=random.random((1000, 3)) < 0.1))
    episodes = jax.tree.map(lambda *leaves: jnp.stack(leaves), *episodes)
    state = fitted(episodes, factor)
    variance = np.mean(variances(state.noise, state.ensemble.statistics, episodes.next_observation), axis=(0, 1))
    np.testing.assert_allclose(np.sqrt(variance), EACH, rtol=0.05)
    own = np.array(mm.decompose(state.ensemble.predict(jnp.zeros(3), jnp.zeros(1))).aleatoric)
    np.testing.assert_allclose(np.sqrt(own / Q), 1, rtol=0.2)
    assert (state.ensemble.calibration.factor <= 1).all()  # what is too certain gets more, not by a factor


@pytest.mark.slow
def test_what_may_be_noise_of_either_kind_is_the_sensors():
    random = np.random.default_rng(0)
    seen = 0.3 * random.normal(size=(1001, 3))
    episodes = jax.tree.map(lambda leaf: leaf[None], rows(np.zeros((1000, 1)), seen))
    state = fitted(episodes, 0.2, rounds=300, kind=Forgetful)
    np.testing.assert_allclose(
        np.sqrt(noise_variance(state.noise, state.ensemble.statistics, jnp.zeros(3))), 0.3, rtol=0.1
    )


def test_noise_that_grows_with_the_state_is_found():
    random = np.random.default_rng(0)
    episodes = []
    for seed in range(4):
        states, actions, _ = trajectory(1000, seed)
        states = 3 * states  # linear, so it moves alike; noise of the process is nine times as large
        deviation = 0.3 * np.linalg.norm(states, axis=1, keepdims=True)
        episodes.append(rows(3 * actions, states + deviation * random.normal(size=states.shape), means=states))
    state = fitted(jax.tree.map(lambda *leaves: jnp.stack(leaves), *episodes), 3.0, rounds=120)
    points = jnp.array([[1.0, 0.0, 0.0], [0.0, 1.0, 1.0], [2.0, 1.0, 0.0]])
    found = np.sqrt(noise_variance(state.noise, state.ensemble.statistics, points))
    squares = np.square(points).sum(axis=1, keepdims=True) + 9 * Q.sum()  # around a prediction the state varies by Q
    np.testing.assert_allclose(found, 0.3 * np.sqrt(squares) * np.ones((3, 3)), rtol=0.1)


def test_noise_that_grows_up_to_a_size_is_found():
    random = np.random.default_rng(0)
    episodes = []
    for seed in range(4):
        states, actions, _ = trajectory(1000, seed)
        deviation = 0.05 + 0.3 * np.minimum(np.linalg.norm(3 * states, axis=1, keepdims=True), 1.0)
        episodes.append(rows(3 * actions, 3 * states + deviation * random.normal(size=states.shape), means=3 * states))
    state = fitted(jax.tree.map(lambda *leaves: jnp.stack(leaves), *episodes), 3.0)
    far = np.sqrt(noise_variance(state.noise, state.ensemble.statistics, jnp.array([[2.0, 1.0, 0.0], [2.0, 2.0, 1.0]])))
    np.testing.assert_allclose(far, 0.35, rtol=0.1)


def signals(steps=2000, noise=(0.02, 0.05, 0.1)):
    """A swing, and a mass pushed to and fro with its speed; with noise."""
    random = np.random.default_rng(0)
    time, actions = np.arange(steps + 1) * 0.02, np.repeat(random.choice([-1.0, 1.0], steps // 4), 4)[:, None]
    speed = np.append(0, np.cumsum(0.18 * actions[:, 0]))
    place = np.append(0, np.cumsum(0.02 * speed[:-1]))
    states = np.stack([np.sin(2 * time), place - place.mean(), speed - speed.mean()], axis=1)
    return states, actions, states + np.array(noise) * random.normal(size=states.shape)


apparent = jax.jit(apparent_noise, static_argnums=(1, 2))


def deviations(actions, measured, states, size, actions_known=True, missing=None, estimate=apparent):
    """The low and the high estimate."""
    given = rows(actions, measured, means=states, **({} if missing is None else {"missing": missing}))
    given = given._replace(measured=jnp.where(given.missing, given.next_observation, given.measured))  # as in a replay
    return [np.sqrt(v) for v in estimate(given, size, actions_known)]


def test_what_looks_like_noise_is_noise_in_smooth_motion():
    states, actions, seen = signals()
    missing = np.random.default_rng(1).random((2000, 3)) < 0.1
    for found in deviations(actions, seen, states, 3):
        np.testing.assert_allclose(found, (0.02, 0.05, 0.1), rtol=0.06)
    for found in deviations(actions, seen, states, 3, missing=missing):
        np.testing.assert_allclose(found, (0.02, 0.05, 0.1), rtol=0.1)
    for found in deviations(actions, seen, states, 2):
        np.testing.assert_allclose(found[2], 1)
    for quiet in deviations(actions, states, states, 3):
        assert (quiet < 1e-3).all()


def test_what_is_rarely_measured_is_not_taken_for_quiet():
    states, actions, seen = signals()
    missing = np.zeros((2000, 3), bool)
    missing[::2, 1] = True  # never four times in a row
    low, high = deviations(actions, seen, states, 3, missing=missing)
    assert low[1] <= 1e-6
    assert np.isinf(high[1])
    for found in (low, high):
        np.testing.assert_allclose(found[[0, 2]], (0.02, 0.1), rtol=0.06)
    few = np.random.default_rng(1).random((2000, 1)) < 0.65  # thirty are left, fewer than twice the regressors
    low, high = deviations(actions, seen, states, 3, missing=np.repeat(few, 3, axis=1))
    assert np.isinf(high).all()
    low, high = deviations(actions, seen, states, 3, actions_known=False, missing=np.repeat(few, 3, axis=1))
    np.testing.assert_allclose(high, (0.02, 0.05, 0.1), rtol=0.4)


def test_pushes_that_no_action_explains_look_like_noise_to_the_high_estimate_alone():
    states, actions, _ = signals()
    # One operation after another: rounded otherwise, the low estimate is three quarters of the high one.
    low, high = deviations(np.ones_like(actions), states, states, 3, estimate=apparent_noise)
    assert high[1] > 4e-4
    assert low[1] < high[1] / 2  # a place; in its speed, each push is a jump, and pushes to and fro look like noise


def test_noise_of_the_process_looks_like_noise_too_and_bounds_it_from_above():
    states, actions, seen = trajectory(2000)
    assert (deviations(actions, seen, states, 3)[1] > SIGMA * 0.97).all()


def test_actions_that_answer_to_the_noise_do_not_hide_it():
    """A controller that feeds the noise back: with the actions known, a part of the noise seems to be explained."""
    random = np.random.default_rng(0)
    states, actions, seen = [np.zeros(1)], [], [np.zeros(1)]
    for _ in range(4000):
        actions.append(-3 * seen[-1])
        states.append(states[-1] + 0.01 * actions[-1])
        seen.append(states[-1] + 0.1 * random.normal(size=1))
    told = np.array(actions), np.array(seen), np.array(states), 1
    assert deviations(*told)[1][0] < 0.08
    np.testing.assert_allclose(deviations(*told, actions_known=False)[1][0], 0.1, rtol=0.05)


def test_levels_are_moved_into_their_bounds():
    noise = NoiseLevels.of(jnp.log(jnp.array([0.5, 0.01, 0.2])))
    statistics = dynamics.Statistics(jnp.ones(()), jnp.zeros((2, 3)), jnp.ones((2, 3)))
    model = dynamics.ModelState(SimpleNamespace(statistics=statistics), None, noise, None)
    states = jnp.ones((1, 9, 3))
    episodes = Transition(states, states, states[..., 0], states, states[..., 0])
    after = noise_levels._bounded(model, episodes, (jnp.array([0.01, 0.01, 0.01]), jnp.array([0.04, 0.04, 0.1]))).noise
    np.testing.assert_allclose(noise_variance(after, statistics, jnp.ones(3))[:2], [0.04, 0.01], rtol=1e-5)
    np.testing.assert_allclose(after.constant[2], noise.constant[2])


def test_a_known_noise_is_not_learned():
    belief = config.BeliefConfig(filter=True, noise="known")
    agent = SimpleNamespace(config=SimpleNamespace(belief=belief))
    assert noise_levels.learn_noise(agent, SimpleNamespace(model=3), None, None, None) == 3
