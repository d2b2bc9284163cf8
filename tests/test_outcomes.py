"""Targets that take the observed outcome as far as noise does not explain it."""

import json

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moca import moments as mm
from moca.agents import make_agent
from moca.belief import anticipate_diagonal
from moca.config import ConfigError
from moca.critic import first
from moca.envs.environment import Environment, Step
from moca.outcomes import outcome_share, variance_by_noise
from moca.presets import build
from moca.replay import Transition
from tests import probes

RANGES = {"value.low": [-1.0, -1.0], "value.high": [1.0, 1.0], "value.lengthscales": [0.5, 0.5]}


def test_the_share_has_the_least_mean_square_error():
    """Over all shares, by trying them on targets whose truth is known."""
    with jax.enable_x64(True):
        bias_key, noise_key = jax.random.split(jax.random.key(0))
        bias = 0.7 * jax.random.normal(bias_key, (200_000,))  # of the model
        noise = 1.3 * jax.random.normal(noise_key, (200_000,))  # of the outcome
        found = outcome_share(noise - bias, jnp.full(200_000, 1.3**2))
        shares = jnp.linspace(0, 1, 1001)
        errors = jax.lax.map(lambda share: jnp.mean(((1 - share) * bias + share * noise) ** 2), shares)
        assert abs(found - shares[jnp.argmin(errors)]) < 0.01


@pytest.mark.parametrize(("noise", "share"), [(0.0, 1.0), (4.0, 0.0), (100.0, 0.0)])
def test_without_noise_it_is_the_outcome_and_with_noise_alone_the_model(noise, share):
    assert outcome_share(jnp.array([2.0, -2.0]), jnp.full(2, noise)) == share


def test_targets_that_agree_have_a_finite_share():
    assert jnp.isfinite(outcome_share(jnp.zeros(3), jnp.zeros(3)))


@pytest.mark.parametrize("level", [0.0, 0.1, 3.0])
def test_the_variance_by_noise_is_that_of_a_filter_that_is_repeated(level):
    """Of one true state, with new noise each time: the mean moves by K times the noise."""
    with jax.enable_x64(True):
        prior, slope = jnp.array([0.4, 1.5]), jnp.array([2.0, -1.0])
        noise = jnp.array([level, 2 * level])
        one = mm.GaussianMixture(jnp.ones((1, 1)), mm.DiagonalGaussian(jnp.zeros((1, 1, 2)), prior[None, None]))
        spread = anticipate_diagonal(one, jnp.zeros((1, 2)), noise[None]).components.variance[:, 0]
        found = variance_by_noise(mm.Quadratic(jnp.zeros((2, 2)), slope), jnp.ones((1, 2)), spread, noise[None])
        gain = prior / (prior + noise)
        np.testing.assert_allclose(found, [jnp.sum((slope * gain) ** 2 * noise)], rtol=1e-12, atol=1e-12)


def test_the_variance_by_noise_is_finite_where_nothing_is_uncertain():
    value = mm.Quadratic(jnp.eye(2), jnp.ones(2))
    found = jax.grad(lambda spread: variance_by_noise(value, jnp.ones((1, 2)), spread, jnp.zeros((1, 2))).sum())
    assert variance_by_noise(value, jnp.ones((1, 2)), jnp.zeros((1, 2)), jnp.zeros((1, 2))) == 0
    assert jnp.isfinite(found(jnp.ones((1, 2)))).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"belief.filter": False}, "belief.outcomes = true needs belief.filter = true"),
        ({"agent": "bnaf"}, "the targets of bnaf take the outcome anyway"),
        ({"agent": "sac"}, "the targets of sac take the outcome anyway"),
        ({"belief.width": True}, "cannot be combined with belief.width yet"),
        ({"plan.horizon": 2}, "cannot be combined with plan.horizon above 1 yet"),
    ],
)
def test_what_does_not_fit_is_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        build("told", None, RANGES | {"env.name": "own:Any", "belief.outcomes": True} | settings)


def agent_and_batch(sigma, name="moca", **settings):
    """An agent that has seen a batch of a random walk in two dimensions, and the batch."""
    settings = {"critic__width": 8, "dynamics__width": 8, "train__batch": 16, "value__bases": 8} | settings
    given = {"belief__filter": True, "noise__sigma": sigma, "value__kind": "erf", "agent": name} | settings
    config = probes.tiny(**given, **{f"value__{part}": json.dumps(RANGES[f"value.{part}"]) for part in PARTS})
    agent = make_agent(config, Plane())
    normals = jax.random.normal(jax.random.key(1), (4, 16, 2))
    before, after = normals[0], normals[0] + 0.3 * normals[1]
    spread = jnp.full((16, 3 if agent.filter.correlated else 2), 0.01)
    batch = Transition(before, normals[2, :, :1], normals[3, :, 0], after, jnp.zeros(16).at[0].set(1), after, spread)
    state = agent.init(jax.random.key(2))
    bump = lambda w: w + jax.random.normal(jax.random.key(3), w.shape)  # noqa: E731
    state = eqx.tree_at(lambda s: s.critics.value.weights, state, replace_fn=bump)
    state = eqx.tree_at(lambda s: s.targets.weights, state, replace_fn=bump)
    return agent, *jax.jit(lambda: (agent.fit_model(state, batch, agent.draw_update(jax.random.key(4)))[0], batch))()


class Plane(Environment):
    observation_size: int = eqx.field(static=True, default=2)
    action_low: tuple[float, ...] = eqx.field(static=True, default=(-1.0,))
    action_high: tuple[float, ...] = eqx.field(static=True, default=(1.0,))
    terminates: bool = eqx.field(static=True, default=True)

    def reset(self, key):
        return jnp.zeros(2), jnp.zeros(2)

    def step(self, state, action):
        return state, Step(state, jnp.ones(()), jnp.array(False))


PARTS = ("low", "high", "lengthscales")


def targets_of(agent, state, batch, count=16):
    """Targets by the model, by the outcomes, and of the agent, and its λ."""

    def found(state):
        predictions = agent.predict(state, batch, jax.random.key(5))
        model = agent.target(batch, predictions, state.targets)
        outcome = agent.target(batch, mm.Dirac(batch.next_observation), state.targets)
        return model, outcome, *agent._with_outcomes(state, batch, model, count)

    return map(np.asarray, jax.jit(found)(state))


@pytest.mark.parametrize("name", ["moca", "moca-ce", "moca-mc"])
def test_without_noise_targets_are_the_outcomes(name):
    model, outcome, found, share = targets_of(*agent_and_batch(0.0, name))
    assert share == 1
    np.testing.assert_allclose(found, outcome, rtol=1e-6)
    assert np.abs(model - outcome).max() > 0.1


@pytest.mark.parametrize("covariance", ["diagonal", "full"])
def test_targets_lie_between_and_imagined_ones_stay(covariance):
    """With noise as large as the changes, the share is inside (0, 1)."""
    model, outcome, found, share = targets_of(*agent_and_batch(0.1, belief__covariance=covariance), count=12)
    assert 0 < share < 1
    np.testing.assert_allclose(found[:12], (model + share * (outcome - model))[:12], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(found[12:], model[12:])


def test_the_share_of_an_agent_is_that_of_its_filter():
    """By the gain of each dimension, and with transitions that end, whose outcome has no value."""
    agent, state, batch = agent_and_batch(0.1)
    model, outcome, _, share = targets_of(agent, state, batch)
    _, aleatoric, epistemic = mm.decompose(state.model.ensemble.predict_batch(batch.observation, batch.action))
    prior = aleatoric + epistemic + batch.spread
    moved = prior / (prior + 0.01) * 0.1  # K times a deviation of the noise
    slopes = jax.vmap(jax.grad(first(state.targets)))(batch.next_observation)
    noise = (agent.config.train.gamma * (1 - batch.terminated)) ** 2 * jnp.sum((slopes * moved) ** 2, axis=1)
    assert batch.terminated.sum() == 1
    np.testing.assert_allclose(share, 1 - noise.mean() / np.mean((outcome - model) ** 2), rtol=1e-4)


@pytest.mark.parametrize(
    "settings", [{"belief__noise": "learned", "belief__covariance": "full"}, {"plan__imagined": 2}]
)
def test_an_update_reports_the_share(settings):
    agent, state, batch = agent_and_batch(0.1, belief__outcomes=True, **settings)
    _, info = jax.jit(lambda s: agent.update(s, batch, agent.draw_update(jax.random.key(6))))(state)
    assert 0 <= info["outcome_share"] <= 1
    assert all(np.isfinite(number) for number in info.values())
