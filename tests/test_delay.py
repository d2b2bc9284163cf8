"""Missing and late observations: the filter against textbooks, and what is stored and fitted of them."""

from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from moca import moments as mm
from moca.agents import make_agent
from moca.belief import KalmanFilter
from moca.config import ConfigError
from moca.delay import Delayed
from moca.divergence import plausible
from moca.drivers import ScanTrainer
from moca.dynamics import GaussianEnsemble, fit, make_model, update_statistics
from moca.replay import Late, Layout, Transition, add, empty, pack, read, sensed, unpack, variances, with_gaps
from moca.runs import export
from tests import probes
from tests.test_belief import SIGMA, A, B, Q, R, linear, trajectory

SMALL = {
    "agent": "moca", "critic__width": 8, "dynamics__width": 8, "dynamics__members": 2, "value__bases": 8,
    "value__low": (-1.0, -1.0), "value__high": (1.0, 1.0), "value__lengthscales": (1.0, 1.0),
    "belief__filter": True, "noise__sigma": 0.1,
}  # fmt: skip
MODEL = SimpleNamespace(ensemble=SimpleNamespace(predict=linear().predict, statistics=SimpleNamespace(batches=1.0)))
ENV = SimpleNamespace(
    observation_size=3, measured_size=3, history=None, action_size=1, from_bounds=lambda action: action
)


def textbook(actions, seen, missing, delay=0):
    """Means and covariances of a Kalman filter that skips missing samples and then predicts `delay` steps ahead.

    Also returns the covariance of each mean's innovation: what the newest sample adds to it.
    """
    mean, covariance, found = seen[0], np.diag(R), []
    for t in range(len(actions)):
        gained = np.zeros((3, 3))
        if t >= delay:  # the sample of state t − delay + 1 arrives
            mean, covariance = A @ mean + B @ actions[t - delay], A @ covariance @ A.T + np.diag(Q)
            H = np.eye(3)[~missing[t - delay + 1]]
            S = H @ covariance @ H.T + H @ np.diag(R) @ H.T
            gain = covariance @ H.T @ np.linalg.inv(S)
            gained = gain @ S @ gain.T
            mean = mean + gain @ (H @ np.nan_to_num(seen[t - delay + 1]) - H @ mean)
            covariance = covariance - gain @ H @ covariance
        ahead = (mean, covariance)
        for a in actions[max(t - delay + 1, 0) : t + 1]:
            if delay:
                ahead = (A @ ahead[0] + B @ a, A @ ahead[1] @ A.T + np.diag(Q))
                gained = A @ gained @ A.T
        found.append((*ahead, gained))
    return [np.array(each) for each in zip(*found, strict=True)]


def ours(filter_, actions, seen, delay=0):
    """The same by our filter, whose sensor shows the first sample until the next arrives."""

    def step(belief, x):
        action, sample = x
        belief, spread = filter_.step(MODEL, belief, action, sample, missing=jnp.isnan(sample))
        return belief, (belief.mean, belief.covariance, spread)

    shown = jnp.asarray(seen[np.maximum(np.arange(1, len(seen)) - delay, 0)])
    start = filter_.init(MODEL, jnp.asarray(seen[0]))
    start = jax.tree.map(lambda leaf: leaf.astype(jnp.float64) if leaf.dtype == jnp.float32 else leaf, start)
    return jax.jit(lambda start, xs: jax.lax.scan(step, start, xs)[1])(start, (jnp.asarray(actions), shown))


def with_losses(steps=30):
    """Actions and observations of the linear system; whole samples and single dimensions are missing."""
    _, actions, seen = trajectory(steps)
    missing = np.zeros(seen.shape, bool)
    missing[[4, 5, 6, 12]], missing[9, 1], missing[15, ::2] = True, True, True
    return actions, np.where(missing, np.nan, seen), missing


@pytest.mark.parametrize("delay", [0, 1, 3])
def test_missing_and_late_samples_in_a_linear_system(delay):
    with jax.enable_x64(True):
        kalman = KalmanFilter(probes.tiny(noise__sigma=SIGMA), ENV)
        actions, seen, missing = with_losses()
        mean, covariance, gained = textbook(actions, seen, missing, delay)
        found = ours(Delayed(kalman, ENV, delay) if delay else kalman, actions, seen, delay)
        np.testing.assert_allclose(found[0], mean, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found[1], covariance, rtol=1e-5, atol=1e-6)
        if delay:
            np.testing.assert_allclose(found[2], np.diagonal(gained, axis1=1, axis2=2), rtol=1e-4, atol=1e-6)


def test_the_next_mean_of_a_late_filter_varies_by_what_the_late_sample_adds():
    """Over many trajectories: the next mean is f(mean, action) on average, with the variance that the filter tells."""
    with jax.enable_x64(True):
        late = Delayed(KalmanFilter(probes.tiny(noise__sigma=SIGMA), ENV), ENV, 2)
        runs = [trajectory(8, seed)[1:] for seed in range(400)]
        actions, seen = np.stack([each[0] for each in runs]), np.stack([each[1] for each in runs])
        follow = jax.jit(jax.vmap(lambda b, a, o: late.step(MODEL, b, a, o, missing=jnp.isnan(o))))
        belief = jax.jit(jax.vmap(lambda o: late.init(MODEL, o)))(jnp.asarray(seen[:, 0]))
        for t in range(8):
            before, (belief, spread) = belief.mean, follow(belief, actions[:, t], seen[:, max(t - 1, 0)])
        belief, spread, before = jax.device_get((belief, spread, before))
        error = belief.mean - (before @ A.T + actions[:, -1] @ B.T)
        assert (np.abs(error.mean(axis=0)) < 4 * np.sqrt(spread[0] / 400)).all()
        np.testing.assert_allclose(error.var(axis=0), spread[0], rtol=0.25)

        @jax.jit
        def anticipated(before, actions, spread):
            mixtures = jax.vmap(linear().predict)(before, actions)
            return jax.vmap(mm.moment_match)(late.anticipate(MODEL, mixtures, spread))

        matched = anticipated(before, actions[:, -1], spread)
        np.testing.assert_allclose(belief.mean - error, matched.mean, atol=1e-9)
        np.testing.assert_allclose(matched.variance, spread, rtol=1e-6)


def test_where_nothing_was_measured_the_next_mean_is_its_prediction():
    kalman = KalmanFilter(probes.tiny(noise__sigma=0.1), ENV)
    for components in (
        mm.DiagonalGaussian(jnp.ones((1, 2, 3)), jnp.ones((1, 2, 3))),
        mm.Gaussian(jnp.arange(6.0).reshape(1, 2, 3), jnp.tile(jnp.eye(3) + 0.5, (1, 2, 1, 1))),
    ):
        mixtures = mm.GaussianMixture(jnp.full((1, 2), 0.5), components)

        @jax.jit
        def next_mean(mixtures):
            missing = jnp.array([[True, False, True]])
            anticipated = kalman.anticipate(MODEL, mixtures, jnp.full((1, 3), 0.2), missing)
            return jax.vmap(mm.moment_match)(anticipated), mixtures.mean

        found, mean = next_mean(mixtures)
        np.testing.assert_allclose(found.mean, mean, rtol=1e-6)
        variance = np.diagonal(found.covariance, axis1=1, axis2=2)[0]
        if isinstance(components, mm.DiagonalGaussian):
            np.testing.assert_allclose(variance[::2], 0, atol=1e-6)
        assert variance[1] > 1


@pytest.mark.parametrize("covariance", ["diagonal", "full"])
@pytest.mark.parametrize("noisy", [False, True])
def test_the_likelihood_is_that_of_the_dimensions_measured(covariance, noisy):
    settings = probes.tiny(dynamics__width=4, dynamics__members=2, dynamics__covariance=covariance).dynamics
    s, following = np.asarray(jax.random.normal(jax.random.key(1), (2, 5, 3)))
    a, extra = jnp.ones((5, 1)), np.full((5, 3), 0.3, np.float32) if noisy else None
    missing = np.zeros((5, 3), bool)
    missing[1], missing[2, 1], missing[3, :2] = True, True, True

    @jax.jit
    def asked(s, following):
        ensemble = GaussianEnsemble(jax.random.key(0), settings, 3, 1)
        statistics = update_statistics(ensemble.statistics, s, following - s)
        ensemble = eqx.tree_at(lambda e: e.statistics, ensemble, statistics)
        parts = ensemble.predict_batch(s, a).components
        loss = ensemble.nll(s, a, jnp.where(missing, 1e3, following), extra, jnp.asarray(missing))
        return loss, parts.mean, parts.covariance, statistics.deviation[1]

    found, means, covariances, unit = map(np.asarray, asked(s, following))
    for n in range(5):
        known = ~missing[n]
        for k in range(2):
            cov = (covariances[n, k] + (0 if extra is None else np.diag(extra[n])))[np.ix_(known, known)]
            wanted = 0.0
            if known.any():
                wanted = -scipy.stats.multivariate_normal(means[n, k][known], cov).logpdf(following[n][known])
            wanted -= np.log(unit[known]).sum() + known.sum() * np.log(2 * np.pi) / 2  # in units of changes
            np.testing.assert_allclose(found[k, n], wanted / 3, rtol=1e-3, atol=1e-4)


def test_missing_samples_teach_the_model_nothing():
    settings = probes.tiny(dynamics__width=4, dynamics__members=2).dynamics
    model = jax.jit(lambda key: make_model(key, settings, None, 2, 1))(jax.random.key(0))
    learned = jax.jit(lambda batch: fit(model, 1e-2, batch, jnp.ones((2, len(batch.reward)), jnp.uint8))[0])
    s, following = np.array(jax.random.normal(jax.random.key(1), (2, 8, 2)))
    following[3:] = np.nan
    zeros = np.zeros((8, 1), np.float32)
    marked = jax.device_get(with_gaps(Transition(s, zeros, zeros[:, 0], jnp.asarray(following), zeros[:, 0])))
    np.testing.assert_array_equal(marked.next_observation[3:], s[3:])
    fitted = learned(marked)
    changed = marked.next_observation.copy()
    changed[3:] += 1
    other = learned(marked._replace(next_observation=changed))
    for one, two in zip(jax.tree.leaves(fitted), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(one, two)
    alone = jax.tree.map(lambda leaf: leaf[:3], marked._replace(missing=None))
    np.testing.assert_allclose(
        fitted.ensemble.statistics.deviation[1],
        learned(alone).ensemble.statistics.deviation[1],
        rtol=1e-6,
    )


def test_training_with_a_filter_that_is_late_and_loses_samples():
    settings = SMALL | {"sensor__delay": 2, "sensor__drop": 0.2, "train__steps": 100}
    trainer = ScanTrainer([probes.tiny(**settings)], [0], probes.Drift())
    reports = list(trainer)
    assert all(np.isfinite(report.metrics["return_mean"]).all() for report in reports)
    for name in ("coverage_1sigma", "innovation_squared", "innovation_correlation"):
        assert all(np.isfinite(report.metrics[name]).all() for report in reports)
    layout = Layout(2, 1, filtered=True, late=True)
    rows = jax.device_get(with_gaps(read(trainer.state.replay[0], jnp.arange(100), layout)))
    early = np.arange(100) % 20 < 2
    assert rows.missing[early].all()
    assert 0 < rows.missing[~early].mean() < 0.5
    np.testing.assert_allclose(reports[-1].metrics["missing_share"], rows.missing[80:].mean(), rtol=1e-6)
    own = sensed(rows)
    np.testing.assert_array_equal(rows.late.arrived, ~early)
    np.testing.assert_array_equal(own.terminated, early)
    # The step that a sample concludes is that of two decisions ago, and begins where the one before it ended.
    later = np.flatnonzero(~early)
    np.testing.assert_array_equal(own.action[later], rows.action[later - 2])
    inside = later[later % 20 > 2]
    np.testing.assert_array_equal(own.observation[inside], own.next_observation[inside - 1])
    known = later[~np.asarray(rows.missing[later, 0])]
    assert np.abs(own.next_observation[known] - own.measured[known]).mean() < 0.2


def test_rows_with_and_without_a_delay_are_read_as_they_were_written():
    plain = Transition(jnp.array([1.0, 2.0]), jnp.array([3.0]), jnp.array(4.0), jnp.array([5.0, 6.0]), jnp.ones(()))
    late = Late(jnp.array([7.0, 8.0]), jnp.array([9.0]), jnp.zeros(2), jnp.array([10.0, 11.0]), jnp.ones(()))
    for filtered, delayed in ((False, False), (True, False), (True, True)):
        config = probes.tiny(**SMALL | {"belief__filter": filtered, "sensor__delay": 2 * delayed})
        agent = make_agent(config, probes.Drift())
        stored = plain._replace(measured=jnp.ones(2), spread=jnp.full(2, 0.5)) if filtered else plain
        assert isinstance(agent.filter, Delayed) == delayed
        stored = stored._replace(late=late) if delayed else stored
        found = read(add(empty(4, agent.layout), jnp.array(1), stored), jnp.array(1), agent.layout)
        assert jax.tree.structure(found) == jax.tree.structure(stored)
        for one, two in zip(jax.tree.leaves(found), jax.tree.leaves(stored), strict=True):
            np.testing.assert_array_equal(one, two)


def test_rows_of_equal_length_are_told_apart():
    """With 8 dimensions and 3 actions, a late row is as long as one with a full covariance."""
    late, full = Layout(8, 3, filtered=True, late=True), Layout(8, 3, filtered=True, correlated=True)
    assert sum(late.sizes) == sum(full.sizes)
    row = jnp.arange(2.0 * sum(late.sizes)).reshape(2, -1)
    assert read(row, jnp.array(0), late).late.action.shape == (3,)
    assert read(row, jnp.array(0), full).spread.shape == (36,)
    agents = [make_agent(probes.tiny(**SMALL | each), probes.Drift()) for each in ({"sensor__delay": 2}, {})]
    assert [agent.layout.late for agent in agents] == [True, False]


def test_covariances_of_correlated_dimensions_are_kept_whole():
    root = np.random.default_rng(0).normal(size=(4, 3, 3))
    covariance = jnp.asarray(root @ root.swapaxes(1, 2))
    for correlated, expected in ((True, covariance), (False, covariance * jnp.eye(3))):
        packed = pack(covariance, correlated)
        np.testing.assert_allclose(unpack(packed, 3), expected, rtol=1e-6)
        np.testing.assert_allclose(variances(packed, 3), np.diagonal(covariance, axis1=1, axis2=2), rtol=1e-6)
        for late in (False, True):
            s, zero = jnp.ones(3), jnp.zeros(())
            more = Late(s, s[:1], s, packed[0], zero) if late else None
            stored = Transition(s, s[:1], zero, s, zero, s, packed[1], more)
            layout = Layout(3, 1, True, late, correlated)
            found = read(add(empty(2, layout), jnp.array(0), stored), jnp.array(0), layout)
            np.testing.assert_array_equal(found.spread, packed[1])


def test_a_policy_that_expects_a_delay_is_not_exported(tmp_path):
    agent = make_agent(probes.tiny(**SMALL | {"sensor__delay": 2}), probes.Drift())
    with pytest.raises(ConfigError, match=r"expects sensor\.delay = 2 cannot be exported yet"):
        export.write(tmp_path / "policy.npz", agent, None, {})


def test_a_memory_with_missing_samples_can_be_resumed_from():
    state = SimpleNamespace(diverged=np.zeros(1, int), learner={}, replay=np.array([[[1.0, np.nan]]]))
    assert plausible(state, gaps=True)
    assert not plausible(state)
    assert not plausible(SimpleNamespace(**vars(state) | {"replay": np.array([[[1.0, np.inf]]])}), gaps=True)


@pytest.mark.slow
@pytest.mark.parametrize("faults", [{"sensor__drop": 0.2}, {"sensor__delay": 2}])
def test_noise_is_learned_from_samples_that_are_missing_or_late(faults):
    changes = {"belief__noise": "learned", "noise__sigma": 0.2, "train__steps": 400, "env__episode_length": 100}
    *_, report = ScanTrainer([probes.tiny(**SMALL | changes | {"train__warmup": 100} | faults)], [0], probes.Drift())
    np.testing.assert_allclose(report.metrics["noise_level"], 0.2, rtol=0.3)
