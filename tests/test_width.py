"""V sees how wide the belief is: what it sees, what is stored, and what it predicts."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import moca
from moca import moments as mm
from moca.agents import make_agent
from moca.agents.quadratic import QuadraticAgent
from moca.belief import Belief, features
from moca.config import ConfigError
from moca.drivers import ScanTrainer
from moca.replay import Late, Layout, Transition, add, empty, read, with_width
from moca.runs import export
from moca.width import RANGE, at_width, value_settings
from tests import probes

SMALL = {
    "agent": "moca", "critic__width": 8, "dynamics__width": 8, "dynamics__members": 2, "value__bases": 8,
    "value__low": (-1.0, -1.0), "value__high": (1.0, 1.0), "value__lengthscales": (0.5, 2.0),
    "belief__filter": True, "belief__width": True, "noise__sigma": 0.1,
}  # fmt: skip


def test_the_agent_sees_the_mean_and_the_logarithm_of_each_deviation():
    config, mean = probes.tiny(**SMALL), jnp.array([3.0, 4.0])
    seen = features(config, Belief(mean, jnp.array([[0.04, 0.1], [0.1, 1.0]])))
    np.testing.assert_allclose(seen, [3, 4, np.log(0.2 / 0.5), np.log(1 / 2)], rtol=1e-6)
    known = features(config, Belief(mean, jnp.zeros((2, 2))))
    np.testing.assert_array_equal(known[2:], [RANGE[0]] * 2)
    blind = probes.tiny(**SMALL | {"belief__width": False})
    np.testing.assert_array_equal(features(blind, Belief(mean, jnp.eye(2))), mean)


def test_v_has_a_range_for_the_width():
    settings = value_settings(probes.tiny(**SMALL))
    assert settings.low == (-1, -1) + RANGE[:1] * 2
    assert settings.high == (1, 1) + RANGE[1:] * 2
    assert settings.lengthscales == (0.5, 2, 1, 1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"belief__filter": False}, "needs belief.filter = true: an observation alone has no width"),
        ({"sensor__history": 2}, "cannot be combined with sensor.history yet"),
        ({"plan__horizon": 2}, "cannot be combined with plan.horizon = 2 yet"),
        ({"agent": "moca-plan"}, "cannot be combined with agent = moca-plan yet"),
    ],
)
def test_what_is_not_supported_is_refused(settings, message):
    with pytest.raises(ConfigError, match=re.escape(f"belief.width = true {message}")):
        probes.tiny(**SMALL | settings)


@pytest.mark.parametrize("value", ["rbf", "erf", "fourier"])
@pytest.mark.parametrize("full", [False, True])
def test_the_expectation_over_the_mean_at_a_known_width(value, full):
    draw = np.random.default_rng(0)
    rows, weights = draw.normal(size=(4, 2)), draw.normal(size=4)
    made = {
        "rbf": mm.RBF(weights, centers=rows, precision=np.array([2.0, 3.0])),
        "erf": mm.Erf(weights, rows, draw.normal(size=4)),
        "fourier": mm.Fourier(weights, rows, draw.normal(size=4)),
    }[value]
    mean, variance, width = np.array([[[0.3], [-0.4]]]), np.array([[[0.2], [0.1]]]), np.array([[0.7]])
    parts = mm.Gaussian(mean, variance[..., None]) if full else mm.DiagonalGaussian(mean, variance)
    both = at_width(mm.GaussianMixture(np.array([[0.3, 0.7]]), parts), jnp.asarray(width))
    found = mm.expectation(jax.tree.map(lambda leaf: leaf[0], both), made)
    nodes, mass = np.polynomial.hermite_e.hermegauss(40)
    points = np.stack([(mean[0] + np.sqrt(variance[0]) * nodes).T, np.full((40, 2), 0.7)], axis=-1)
    exact = np.einsum("n,nk,k", mass / mass.sum(), jax.vmap(jax.vmap(made))(jnp.asarray(points)), [0.3, 0.7])
    np.testing.assert_allclose(found, exact, rtol=1e-4, atol=1e-6)


def test_rows_with_widths_are_read_as_they_were_written():
    pair = lambda a: jnp.array([a, a + 1.0])  # noqa: E731
    plain = Transition(pair(1), jnp.ones(1), jnp.array(4.0), pair(5), jnp.ones(()), pair(7), pair(9))
    late = Late(pair(11), jnp.zeros(1), pair(13), pair(15), jnp.ones(()))
    for stored in (plain, plain._replace(late=late)):
        stored = stored._replace(width=pair(20), next_width=pair(30))
        layout = Layout(2, 1, filtered=True, late=stored.late is not None, wide=True)
        found = read(add(empty(4, layout), jnp.array(1), stored), jnp.array(1), layout)
        assert jax.tree.structure(found) == jax.tree.structure(stored)
        for one, two in zip(jax.tree.leaves(found), jax.tree.leaves(stored), strict=True):
            np.testing.assert_array_equal(one, two)
        seen = with_width(found)
        np.testing.assert_array_equal(seen.observation, [1, 2, 20, 21])
        np.testing.assert_array_equal(seen.next_observation, [5, 6, 30, 31])


AGENTS = [
    {"agent": "moca"},
    {"agent": "moca-mc", "dynamics__covariance": "full"},
    {"agent": "bnaf", "sensor__drop": 0.2},
    {"agent": "sac"},
    {"agent": "moca", "sensor__delay": 2, "value__kind": "erf", "belief__covariance": "full"},
]


@pytest.mark.parametrize("settings", [AGENTS[0], *(pytest.param(each, marks=pytest.mark.slow) for each in AGENTS[1:])])
def test_every_agent_acts_and_learns_on_mean_and_width(settings):
    config = probes.tiny(**SMALL | settings)
    trainer = ScanTrainer([config], [0], probes.Drift())
    for report in trainer:
        odd = {name for name, values in report.metrics.items() if not np.isfinite(values).all()}
        assert odd <= {"value_noise_variance"}, odd
    agent, learner = make_agent(config, probes.Drift()), probes.first(trainer.learners)
    rows = jax.device_get(read(trainer.state.replay[0], jnp.arange(60), agent.layout))
    same = np.arange(59) % 20 < 19  # the next step is of the same episode
    np.testing.assert_array_equal(rows.next_width[:-1][same], rows.width[1:][same])
    assert rows.width.std() > 0
    narrow, wide = (jnp.concatenate([jnp.zeros(2), jnp.full(2, width)]) for width in (-4.0, 2.0))
    value, act = (jax.jit(lambda seen, f=f: f(learner, seen)) for f in (agent.value, agent.act))
    assert value(narrow) != value(wide)
    assert (act(narrow) != act(wide)).all()
    beliefs = [Belief(jnp.zeros(2), jnp.eye(2) * variance) for variance in (1e-4, 1.0)]
    decide = jax.jit(lambda belief: (agent.decide(learner, belief)[1], agent.act(learner, features(config, belief))))
    actions, same = zip(*map(decide, beliefs), strict=True)
    np.testing.assert_array_equal(actions[0], same[0])
    assert (actions[0] != actions[1]).all()
    if isinstance(agent, QuadraticAgent):
        predicted = jax.jit(lambda rows: agent.predict(learner, rows, jax.random.key(0)).mean)(rows)
        np.testing.assert_allclose(predicted[:, 2:], rows.next_width, rtol=1e-5)


def test_a_policy_that_sees_the_width_is_not_exported(tmp_path):
    agent = make_agent(probes.tiny(**SMALL), probes.Drift())
    with pytest.raises(ConfigError, match=r"with belief\.width = true cannot be exported yet"):
        export.write(tmp_path / "policy.npz", agent, None, {})


@pytest.mark.slow
def test_a_finished_run_answers(tmp_path):
    """An observation alone is as wide as its noise; evaluation, a policy and a page work as with any filter."""
    settings = {name: value for name, value in SMALL.items() if name != "agent"}
    agent = moca.MoCA(probes.Drift(), preset="raw", env__episode_length=20, train__warmup=10, **settings).learn(60)
    one = np.array([0.1, 0.2], np.float32)
    policy = agent.policy()
    np.testing.assert_allclose(agent.predict(one), policy(one), rtol=1e-6)
    assert np.isfinite(agent.value(one))
    assert np.isfinite(agent.evaluate(2)[0]["return_mean"])
    assert agent.inspect(steps=5) is not None
