"""States made of recent observations: what they hold, their noise, their model and their filter."""

from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from moca.agents import make_agent
from moca.belief import Belief, predict, update
from moca.config import ConfigError, DynamicsConfig
from moca.drivers import ScanTrainer
from moca.drivers.trainer import make_env
from moca.dynamics import GaussianEnsemble, fit, make_model
from moca.envs.defaults import defaults
from moca.envs.environment import Environment, Step
from moca.envs.gymnasium import Gymnasium
from moca.envs.history import History, WithHistory, with_history
from moca.envs.sensors import make_sensor
from moca.loop import follow, policy_start, policy_step
from moca.replay import Transition
from tests import probes
from tests.envs import hosted

SCALES = (0.5, 2.0)
LAYOUT = History(2, SCALES)


def manual(observations, t):
    """The state after t decisions, from the observations so far; before the first there was no change."""
    before = [observations[max(t - k, 0)] for k in range(4)]
    changes = [(a - b) / np.array(SCALES) for a, b in pairwise(before)]
    return np.concatenate([observations[t], *changes[:2]])


class Falling(Environment):
    """A mass that is pushed; only where it is shows, and its height."""

    terminates: bool = eqx.field(static=True, default=False)
    observation_size: int = eqx.field(static=True, default=2)
    action_low: tuple[float, ...] = eqx.field(static=True, default=(-1.0,))
    action_high: tuple[float, ...] = eqx.field(static=True, default=(1.0,))

    def reset(self, key):
        place = jax.random.uniform(key, (2,), minval=-1.0)
        return (place, jnp.zeros(2)), place

    def step(self, state, action):
        place, speed = state
        speed = 0.95 * speed + 0.1 * action - 0.05 * place
        place = place + speed
        return (place, speed), Step(place, -jnp.sum(place**2), jnp.array(False))


def test_a_state_holds_the_last_observations_as_changes():
    env = WithHistory(Falling(), LAYOUT)
    state, first = env.reset(jax.random.key(0))
    inner, place = Falling().reset(jax.random.key(0))
    observations, states = [np.asarray(place)], [np.asarray(first)]
    for action in np.linspace(-1, 1, 6)[:, None]:
        state, step = env.step(state, jnp.asarray(action, jnp.float32))
        inner, alone = Falling().step(inner, jnp.asarray(action, jnp.float32))
        observations.append(np.asarray(alone.observation))
        states.append(np.asarray(step.observation))
    for t in range(7):
        np.testing.assert_allclose(states[t], manual(observations, t), rtol=1e-5, atol=1e-6)


def test_on_the_host_it_is_the_same_and_starts_anew_with_an_episode():
    env = with_history(Gymnasium(hosted.Walk), 2, SCALES)
    vector, alone = env.vector(2), Gymnasium(hosted.Walk).vector(2)
    seen = [[each] for each in alone.reset([3, 4])]
    np.testing.assert_allclose(vector.reset([3, 4]), [manual(each, 0) for each in seen])
    ended = False
    for _ in range(40):
        actions = np.tile(np.array([0.5, 2.0], np.float32), (2, 1))
        outcome, plain = vector.step(actions), alone.step(actions)
        for i in range(2):
            seen[i].append(plain.observation[i])
            np.testing.assert_allclose(outcome.observation[i], manual(seen[i], len(seen[i]) - 1), rtol=1e-4, atol=1e-5)
            if plain.ended[i]:
                ended, seen[i] = True, [plain.current[i]]
            np.testing.assert_allclose(outcome.current[i], manual(seen[i], len(seen[i]) - 1), rtol=1e-4, atol=1e-5)
    assert ended


def config(**changes):
    ranges = {f"value__{name}": (size,) * 6 for name, size in (("low", -3.0), ("high", 3.0), ("lengthscales", 1.0))}
    settings = {"sensor__history": 2, "sensor__scales": SCALES, "noise__sigmas": (0.1, 0.3), "env__episode_length": 20}
    return probes.tiny(**{"agent": "moca", "train__steps": 60, "train__warmup": 20, **ranges, **settings, **changes})


def test_the_noise_of_a_state_is_that_of_its_observations():
    """Observed with noise, it is the history of noisy observations."""
    env = make_env(config(), Falling())
    sensor = make_sensor(config(), env)
    state, truth = env.reset(jax.random.key(0))
    normals = np.random.default_rng(0).normal(size=(8, 6)).astype(np.float32)
    held, first = sensor.init(truth, jnp.asarray(normals[0]))
    noisy, found = [np.asarray(truth)[:2] + normals[0, :2] * (0.1, 0.3)], [np.asarray(first)]
    for normal in normals[1:]:
        state, step = env.step(state, jnp.ones(1))
        held, sample = sensor.measure(held, step.observation, jnp.asarray(normal), None)
        noisy.append(np.asarray(step.observation)[:2] + normal[:2] * (0.1, 0.3))
        found.append(np.asarray(sample))
    for t in range(8):
        np.testing.assert_allclose(found[t], manual(noisy, t), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("covariance", ["diagonal", "full"])
def test_only_the_newest_part_is_predicted(covariance):
    settings = DynamicsConfig(width=8, depth=1, members=2, covariance=covariance)
    state, action = jnp.arange(6) / 3.0, jnp.array([0.4])

    @jax.jit
    def asked():
        ensemble = GaussianEnsemble(jax.random.key(0), settings, 6, 1, LAYOUT)
        ones = jnp.ones((2, 6))
        ensemble = eqx.tree_at(lambda e: e.statistics, ensemble, ensemble.statistics._replace(square=ones))
        parts = ensemble.predict(state, action).components
        nll = ensemble.nll(state[None], action[None], LAYOUT.follow(state, jnp.array([0.3, 0.1]))[None])
        return parts.mean, parts.covariance, jax.vmap(LAYOUT.follow, (None, 0))(state, parts.mean[:, :2]), nll

    means, covariances, followed, nll = map(np.asarray, asked())
    onto = np.asarray(LAYOUT.onto)
    for k in range(2):
        np.testing.assert_allclose(means[k], followed[k], rtol=1e-6)
        np.testing.assert_allclose(covariances[k], onto @ covariances[k, :2, :2] @ onto.T, rtol=1e-5)
    expected = [
        -scipy.stats.multivariate_normal.logpdf([0.3, 0.1], m[:2], c[:2, :2]) / 2 - np.log(2 * np.pi) / 2
        for m, c in zip(means, covariances, strict=True)
    ]
    np.testing.assert_allclose(nll[:, 0], expected, rtol=1e-4)


def test_what_is_predicted_is_the_deviation_from_constant_speed():
    """So that a model learns the effect of an action in units of such effects, not of the whole motion."""
    state, action = np.arange(6, dtype=np.float32) / 3, jnp.zeros(1)

    @jax.jit
    def asked():
        model = make_model(jax.random.key(0), DynamicsConfig(width=8, depth=1, members=2), None, 6, 1, LAYOUT)
        still = jax.tree.map(jnp.zeros_like, model.ensemble.members)
        moved = eqx.tree_at(lambda e: e.members, model.ensemble, still).predict(jnp.asarray(state), action).mean
        states = jax.random.normal(jax.random.key(1), (400, 6))
        push = 0.01 * jax.random.normal(jax.random.key(2), (400, 2))
        after = LAYOUT.follow(states, LAYOUT.coast(states)[:, :2] + push)
        batch = Transition(states, jnp.zeros((400, 1)), jnp.zeros(400), after, jnp.zeros(400))
        model, _ = fit(model, 0.0, batch, jnp.ones((2, 400), jnp.uint8))
        return moved, model.ensemble.statistics.deviation[1, :2]

    moved, deviation = map(np.asarray, asked())
    np.testing.assert_allclose(moved[:2], state[:2] + state[2:4] * SCALES, rtol=1e-6)
    np.testing.assert_allclose(moved[2:], np.concatenate([state[2:4], state[2:4]]), rtol=1e-6)
    np.testing.assert_allclose(deviation, 0.01, rtol=0.1)


def test_a_filter_corrects_changes_by_the_newest_observation_alone():
    """Its belief is that of a textbook filter over the whole state, of which the first part is measured."""
    agent = make_agent(config(belief__filter=True), make_env(config(belief__filter=True), Falling()))
    learner = jax.jit(agent.init)(jax.random.key(0))
    trained = learner.model.ensemble.statistics._replace(batches=jnp.ones(()), square=jnp.ones((2, 6)))
    model = learner.model._replace(ensemble=eqx.tree_at(lambda e: e.statistics, learner.model.ensemble, trained))
    learner = learner._replace(model=model)
    root = np.random.default_rng(0).normal(size=(6, 6)) / 3
    belief = Belief(jnp.arange(6) / 5.0, jnp.asarray(root @ root.T, jnp.float32))
    measured = jnp.array([0.4, 0.1, 9.0, 9.0, 9.0, 9.0])  # the rest is not looked at
    unseen = measured.at[2:].set(jnp.nan)

    @jax.jit
    def asked(learner):
        start = policy_start(agent, learner, measured)
        prior, _ = predict(learner.model.ensemble, belief, jnp.zeros(1))
        everything, _ = update(prior, measured, jnp.array([0.01, 0.09, 0.01, 0.01, 0.01, 0.01]))
        followed = follow(agent, learner, belief, jnp.zeros(1), measured, jnp.zeros(()), jnp.array(False))
        return *followed, prior, everything, start, policy_step(agent, learner, start, unseen)

    after, row, prior, everything, start, second = jax.device_get(asked(learner))
    measured = np.asarray(measured)
    H, P = np.eye(2, 6), np.asarray(prior.covariance, np.float64)
    gain = P @ H.T @ np.linalg.inv(H @ P @ H.T + np.diag([0.01, 0.09]))
    np.testing.assert_allclose(after.mean, prior.mean + gain @ (measured[:2] - prior.mean[:2]), rtol=2e-3, atol=2e-3)
    np.testing.assert_allclose(after.covariance, P - gain @ H @ P, atol=5e-3)
    np.testing.assert_array_equal(np.isnan(row.measured), LAYOUT.hidden)
    assert np.abs(everything.mean - after.mean).max() > 0.1
    assert (np.diagonal(start.belief.covariance)[2:] == 0).all()  # there is no change yet, by definition
    np.testing.assert_array_equal(second.belief.mean.shape, (6,))


def test_before_the_model_learns_changes_come_from_the_observations():
    agent = make_agent(config(belief__filter=True), make_env(config(belief__filter=True), Falling()))

    @jax.jit
    def asked():
        learner = agent.init(jax.random.key(0))
        belief = agent.filter.init(learner.model, LAYOUT.start(jnp.array([0.1, 0.2])))
        measured = LAYOUT.follow(belief.mean, jnp.array([0.4, 0.1]))
        once, _ = follow(agent, learner, belief, jnp.zeros(1), measured, jnp.zeros(()), jnp.array(False))
        twice, _ = follow(agent, learner, once, jnp.zeros(1), measured, jnp.zeros(()), jnp.array(False))
        return measured, once, twice

    measured, once, after = asked()
    np.testing.assert_allclose(once.mean, measured, rtol=1e-6)
    noise = np.random.default_rng(0).normal(size=(100_000, 3, 2)) * (0.1, 0.3)  # newest first
    states = np.concatenate([noise[:, 0], *(-np.diff(noise, axis=1) / SCALES).transpose(1, 0, 2)], axis=1)
    np.testing.assert_allclose(after.covariance, np.cov(states.T), atol=2e-3)


def test_units_and_ranges_are_measured():
    found = defaults(Falling(), history=1, steps=200)
    assert len(found["sensor.scales"]) == 2 == len(found["noise.scales"])
    assert len(found["value.low"]) == len(found["value.lengthscales"]) == 4
    assert (np.array(found["value.high"][2:]) > 5).all()  # a usual change is ten units
    alone = defaults(Falling(), history=1, steps=200, observed=(1,))
    np.testing.assert_allclose(alone["sensor.scales"], found["sensor.scales"][1:])


@pytest.mark.parametrize(
    "changes",
    [pytest.param({"belief__filter": True, "belief__noise": "learned"}, marks=pytest.mark.slow), {}],
    ids=["filter", "none"],
)
def test_agents_learn_on_it(changes):
    *_, report = ScanTrainer([config(**changes)], [0], Falling())
    assert all(np.isfinite(values).all() for name, values in report.metrics.items() if name != "value_noise_variance")
    assert ("noise_level_1" in report.metrics) == bool(changes)
    assert "noise_level_2" not in report.metrics


def test_units_must_fit():
    with pytest.raises(ConfigError, match=r"sensor\.scales has 1 numbers, but there are 2 observed dimensions"):
        make_env(config(sensor__scales=(1.0,)), Falling())
