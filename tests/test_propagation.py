"""The filter's prediction by moments: against the derivative where both are exact, and against quadrature."""

import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moca import config, dynamics
from moca.agents import make_agent
from moca.belief import Belief, predict, predict_by_moments
from moca.config import ConfigError
from moca.drivers import ScanTrainer
from moca.runs import export
from tests import probes

SMALL = {
    "agent": "moca", "critic__width": 8, "dynamics__width": 8, "dynamics__members": 2, "value__bases": 8,
    "value__low": (-1.0, -1.0), "value__high": (1.0, 1.0), "value__lengthscales": (1.0, 1.0),
    "belief__filter": True, "noise__sigma": 0.3, "dynamics__activation": "gelu", "belief__propagation": "moments",
}  # fmt: skip
ROOT = np.array([[0.9, 0.0], [-0.5, 0.7]])  # of the covariance of a broad belief
ACTION = jnp.array([0.3])


def ensemble(depth, activation="gelu"):
    """Three small networks over two dimensions with statistics of their own, in the precision that is set."""
    settings = config.DynamicsConfig(members=3, width=8, depth=depth, activation=activation)
    with jax.enable_x64(False):  # other numbers are drawn in double precision
        made = dynamics.GaussianEnsemble(jax.random.key(0), settings, 2, 1)
    members = jax.tree.map(lambda leaf: 2 * leaf.astype(jnp.result_type(float)), made.members)
    mean, square = jnp.array([[0.3, -0.2], [0.1, 0.0]]), jnp.array([[1.0, 2.0], [0.5, 0.8]])
    statistics = dynamics.Statistics(jnp.ones(()), mean, square)
    return eqx.tree_at(lambda e: (e.members, e.statistics), made, (members, statistics))


by_moments, by_derivative = (
    eqx.filter_jit(lambda model, belief, way=way: way(model, belief, ACTION)) for way in (predict_by_moments, predict)
)
several_by_moments = eqx.filter_jit(eqx.filter_vmap(by_moments, in_axes=(None, 0)))


def broad(root=ROOT):
    return Belief(jnp.array([0.4, -0.6]), jnp.asarray(root @ root.T))


def quadrature(model, belief):
    """Each member's mean at the nodes of a Gauss–Hermite rule over the belief, and the weights."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    grid = np.stack(np.meshgrid(nodes, nodes), axis=-1).reshape(-1, 2)
    states = np.asarray(belief.mean) + grid @ np.linalg.cholesky(belief.covariance).T
    at = jax.jit(jax.vmap(lambda state: model.predict(state, ACTION).components.mean))
    means = at(jnp.asarray(states))
    return np.asarray(means), np.outer(weights, weights).ravel() / weights.sum() ** 2


@pytest.mark.parametrize("activation", ["gelu", "erf"])
@pytest.mark.parametrize(("depth", "error"), [(1, 1e-9), (2, 0.02)])
def test_a_broad_belief_goes_through_every_network(depth, error, activation):
    """Exactly for one hidden layer, nearly for two; the derivative is far off."""
    with jax.enable_x64(True):
        model, belief = ensemble(depth, activation), broad()
        prior, spread = by_moments(model, belief)
        points, weights = quadrature(model, belief)
        expected = np.einsum("n,nki->ki", weights, points)
        away = points - expected
        inherited = np.einsum("n,nki,nkj->ij", weights, away, away) / 3
        apart = expected - expected.mean(0)
        own = np.diag(jax.jit(lambda s: model.predict(s, ACTION))(belief.mean).components.variance.mean(0))
        np.testing.assert_allclose(prior.mean, expected.mean(0), atol=error)
        np.testing.assert_allclose(spread, inherited, atol=error)
        np.testing.assert_allclose(prior.covariance, inherited + apart.T @ apart / 3 + own, atol=error)
        assert np.linalg.eigvalsh(spread).min() > 0
        rough, flat = by_derivative(model, belief)
        assert max(np.abs(rough.mean - expected.mean(0)).max(), np.abs(flat - inherited).max()) > 0.03


def test_through_linear_networks_it_is_the_derivative():
    """Where all have the same slope; if not, what the derivative leaves out is that they disagree about it."""
    with jax.enable_x64(True):
        random, belief = ensemble(1), broad()
        straight = eqx.tree_at(lambda e: e.members.biases[0], random, random.members.biases[0] + 60)  # gelu(x) = x
        same = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[:1], leaf.shape), straight.members)
        apart = eqx.tree_at(lambda m: m.biases[1], same, straight.members.biases[1])
        agreed = eqx.tree_at(lambda e: e.members, straight, apart)
        for ours, theirs in zip(
            jax.tree.leaves(by_moments(agreed, belief)),
            jax.tree.leaves(by_derivative(agreed, belief)),
            strict=True,
        ):
            np.testing.assert_allclose(ours, theirs, atol=1e-9)
        slopes = jax.jit(jax.jacfwd(lambda s: straight.predict(s, ACTION).components.mean))(belief.mean)
        (prior, spread), (rough, flat) = (way(straight, belief) for way in (by_moments, by_derivative))
        odd = slopes - slopes.mean(0)
        np.testing.assert_allclose(spread - flat, (odd @ belief.covariance @ odd.mT).mean(0), atol=1e-9)
        np.testing.assert_allclose(prior.mean, rough.mean, atol=1e-9)


@pytest.mark.parametrize("size", [0.0, 1e-5, 1e-2, 3.0])
def test_narrow_and_wide_beliefs_in_single_precision(size):
    """Of many at once; what is carried has no negative variance that matters."""
    with jax.enable_x64(True):
        exact = jax.tree.map(np.asarray, by_moments(ensemble(2), broad(size * ROOT)))
    model, belief = ensemble(2), broad(np.float32(size * ROOT))
    many = jax.tree.map(lambda leaf: jnp.stack([leaf] * 3), belief)
    prior, spread = several_by_moments(model, many)
    scale = size**2 + 1e-9
    np.testing.assert_allclose(prior.mean[1], exact[0].mean, rtol=2e-5)
    np.testing.assert_allclose(spread[1] / scale, exact[1] / scale, atol=1e-3)
    assert np.linalg.eigvalsh(spread[2] / scale).min() > -1e-3


@pytest.mark.slow
def test_training_with_it():
    """Equal seeds agree, in one program; another propagation gives another run, from the first update on."""
    ends = {}
    for way in ("derivative", "moments"):
        settings = SMALL | {"belief__propagation": way, "belief__covariance": "full"}
        trainer = probes.without_scores(ScanTrainer([probes.tiny(**settings)] * 2, [3, 3], probes.Drift()))
        reports = list(trainer)
        assert np.isfinite(reports[-1].metrics["critic_loss"]).all()
        ends[way] = np.asarray(trainer.state.replay)
        np.testing.assert_array_equal(*ends[way])
    derived, matched = (ends[way][0] for way in ("derivative", "moments"))
    np.testing.assert_allclose(matched[:11], derived[:11], rtol=1e-6)  # the warm-up
    assert 1e-6 < np.abs(matched[11:] - derived[11:]).max() < 3


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"belief__filter": False}, "needs belief.filter = true: an observation alone has no covariance"),
        ({"dynamics__activation": "silu"}, "needs dynamics.activation = gelu or erf"),
        ({"sensor__delay": 2}, "cannot be combined with sensor.delay yet: set sensor.delay to 0"),
        ({"sensor__history": 2}, "cannot be combined with sensor.history yet: set sensor.history to 0"),
    ],
)
def test_what_is_not_supported_is_refused(settings, message):
    with pytest.raises(ConfigError, match=re.escape(f"belief.propagation = moments {message}")):
        probes.tiny(**SMALL | settings)


def test_a_policy_with_moments_is_not_exported(tmp_path):
    agent = make_agent(probes.tiny(**SMALL), probes.Drift())
    with pytest.raises(ConfigError, match=r"with belief\.propagation = moments cannot be exported yet"):
        export.write(tmp_path / "policy.npz", agent, None, {})
