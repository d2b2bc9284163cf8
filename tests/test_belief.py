"""The filter against textbooks: exact for linear systems, and its pieces against independent formulas."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import moca
from moca import moments as mm
from moca.agents import make_agent
from moca.agents.quadratic import QuadraticAgent
from moca.backup import one_each
from moca.belief import (
    Belief,
    BeliefFilter,
    KalmanFilter,
    Unfiltered,
    anticipate,
    anticipate_diagonal,
    gains,
    predict,
    update,
)
from moca.config import ConfigError, override
from moca.diagnostics import Outlook, check_filter, describe_model
from moca.drivers import ScanTrainer
from moca.dynamics import make_model
from moca.loop import follow
from moca.replay import Layout, Transition, add, empty, pack, read, unpack, with_gaps
from tests import probes

A = np.array([[0.95, 0.1, 0.0], [0.0, 0.8, 0.2], [-0.1, 0.0, 0.9]])
B = np.array([[0.0], [0.1], [0.3]])
Q = np.array([0.01, 0.02, 0.005])
SIGMA = 0.3
R = np.full(3, SIGMA**2)


def linear():
    """An ensemble of two that agree on s′ = As + Ba with variances Q."""

    def predict(s, a):
        mean = jnp.asarray(A) @ s + jnp.asarray(B) @ a
        return mm.GaussianMixture(jnp.full(2, 0.5), mm.DiagonalGaussian(jnp.stack([mean] * 2), jnp.stack([Q] * 2)))

    return SimpleNamespace(predict=predict, predict_batch=jax.vmap(predict))


def trajectory(steps, seed=0):
    """States, actions and observations of the linear system."""
    random = np.random.default_rng(seed)
    states, actions = [random.normal(size=3)], random.uniform(-1, 1, size=(steps, 1))
    for a in actions:
        states.append(A @ states[-1] + B @ a + np.sqrt(Q) * random.normal(size=3))
    states = np.array(states)
    return states, actions, states + SIGMA * random.normal(size=states.shape)


def textbook(actions, seen):
    """Means and covariances of the Kalman filter, and the negative log-likelihood of each observation."""
    mean, covariance, out = seen[0], np.diag(R), []
    for a, o in zip(actions, seen[1:], strict=True):
        mean, covariance = A @ mean + B @ a, A @ covariance @ A.T + np.diag(Q)
        S = covariance + np.diag(R)
        likelihood = -scipy.stats.multivariate_normal(mean, S).logpdf(o)
        gain = covariance @ np.linalg.inv(S)
        mean, covariance = mean + gain @ (o - mean), (np.eye(3) - gain) @ covariance
        out.append((mean, covariance, likelihood))
    return tuple(map(np.array, zip(*out, strict=True)))


def test_it_is_the_kalman_filter_of_a_linear_system():
    with jax.enable_x64(True):
        _, actions, seen = trajectory(30)
        belief, found = Belief(jnp.asarray(seen[0]), jnp.diag(jnp.asarray(R))), []

        @jax.jit
        def step(belief, action, observed):
            prior, spread = predict(linear(), belief, action)
            return spread, *update(prior, observed, jnp.asarray(R))

        for a, o in zip(actions, seen[1:], strict=True):
            spread, after, nll = step(belief, a, o)
            np.testing.assert_allclose(spread, A @ np.asarray(belief.covariance) @ A.T, rtol=1e-12)
            belief = after
            found.append((belief.mean, belief.covariance, nll + 1.5 * np.log(2 * np.pi)))
        for ours, theirs in zip(zip(*found, strict=True), textbook(actions, seen), strict=True):
            np.testing.assert_allclose(np.array(ours), theirs, rtol=1e-5, atol=1e-6)


def test_disagreement_of_the_ensemble_widens_the_prior():
    means = jnp.array([[0.0, 0.0], [1.0, 1.0]])
    mixture = mm.GaussianMixture(jnp.full(2, 0.5), mm.DiagonalGaussian(means, jnp.full((2, 2), 0.1)))
    prior, _ = predict(SimpleNamespace(predict=lambda s, a: mixture), Belief(jnp.zeros(2), jnp.eye(2)), jnp.zeros(1))
    np.testing.assert_allclose(prior.covariance, 0.1 * np.eye(2) + 0.25, rtol=1e-6)


def test_without_noise_the_observation_is_the_belief():
    prior = Belief(jnp.array([1.0, 2.0]), jnp.array([[0.5, 0.2], [0.2, 0.3]]))
    belief, _ = update(prior, jnp.array([1.3, 1.9]), jnp.zeros(2))
    np.testing.assert_allclose(belief.mean, [1.3, 1.9], rtol=1e-6)
    np.testing.assert_allclose(belief.covariance, 0, atol=1e-6)


@pytest.mark.parametrize("full", [False, True])
def test_what_the_next_belief_will_be(full):
    """The mean and covariance of the filter's next mean over all that may be observed, by sampling, from two members
    that disagree; matched, they are P S⁻¹ P."""
    with jax.enable_x64(True):
        random = np.random.default_rng(0)
        roots = random.normal(size=(2, 3, 3)) / 4
        C = roots @ roots.swapaxes(1, 2) + np.diag(Q) if full else np.stack([np.diag(Q), np.diag(2 * Q)])
        means, spread = np.array([[1.0, -1.0, 0.5], [0.6, -0.8, 0.9]]), 0.1 * roots[0] @ roots[0].T
        parts = (
            mm.Gaussian(means[None], C[None])
            if full
            else mm.DiagonalGaussian(means[None], np.diagonal(C, 0, 1, 2)[None])
        )
        mixtures = mm.GaussianMixture(jnp.full((1, 2), 0.5), parts)
        told = (jnp.asarray(spread if full else np.diag(spread))[None], jnp.asarray(R)[None])
        found = jax.jit(anticipate if full else anticipate_diagonal)(mixtures, *told)
        matched = jax.jit(jax.vmap(mm.moment_match))(found)
        middle, away = means.mean(0), means[0] - means.mean(0)
        disagreement = np.outer(away, away) if full else np.diag(away**2)
        spread = spread if full else np.diag(np.diag(spread))
        prior = C.mean(0) + disagreement + spread
        gain = prior @ np.linalg.inv(prior + np.diag(R))
        for k in range(2):
            state = random.multivariate_normal(means[k], C[k] + spread, size=200_000)
            moved = middle + (state + SIGMA * random.normal(size=state.shape) - middle) @ gain.T
            np.testing.assert_allclose(found.components.mean[0, k], moved.mean(0), atol=5e-3)
            np.testing.assert_allclose(found.components.covariance[0, k], np.cov(moved.T), atol=0.02 * prior.max())
        np.testing.assert_allclose(matched.mean[0], middle, rtol=1e-9)
        np.testing.assert_allclose(matched.covariance[0], gain @ prior.T, rtol=1e-6, atol=1e-8)


def test_a_prior_of_low_rank_and_no_noise_are_survived_in_single_precision():
    """Few members that disagree by much tie dimensions to each other; what is left of a variance is rounding."""
    random = np.random.default_rng(0)
    updated = jax.jit(jax.vmap(lambda c, o: update(Belief(jnp.zeros(5), c), o, jnp.zeros(5))[0]))
    for scale in (1.0, 10.0, 100.0):
        away = random.normal(size=(500, 5, 2)) * scale**0.5
        priors = jnp.asarray(away @ away.swapaxes(1, 2) + 8e-7 * np.eye(5), jnp.float32)
        seen = jnp.asarray(random.normal(size=(500, 5)), jnp.float32)
        mean, covariance, *_ = updated(priors, seen)
        np.testing.assert_allclose(mean, seen, atol=0.05)
        assert np.isfinite(covariance).all()


def test_targets_survive_covariances_that_rounding_made_indefinite():
    """Errors of 0.1 %, as of a GPU's fast products, in a stored covariance, and a model that is certain by now."""
    random = np.random.default_rng(0)
    away = random.normal(size=(500, 5, 2))
    spread = away @ away.swapaxes(1, 2) * (1 + 1e-3 * random.normal(size=(500, 5, 5)))
    spread = jnp.asarray((spread + spread.swapaxes(1, 2)) / 2, jnp.float32)
    assert np.linalg.eigvalsh(spread).min() < -1e-4
    components = mm.Gaussian(jnp.zeros((500, 1, 5)), jnp.broadcast_to(1e-9 * jnp.eye(5), (500, 1, 5, 5)))
    matched, noise = mm.GaussianMixture(jnp.ones((500, 1)), components), jnp.full((500, 5), 1e-12)
    found = jax.jit(anticipate)(matched, spread, noise).components.covariance
    assert np.isfinite(jnp.linalg.cholesky(found)).all()
    assert np.abs(found).max() < 1.01 * np.abs(spread).max()


def test_samples_of_the_next_belief_are_finite_if_few_directions_are_uncertain():
    """In single precision, a covariance of low rank has no Cholesky factor."""
    away = np.random.default_rng(0).normal(size=(500, 5, 2))
    components = mm.DiagonalGaussian(jnp.zeros((500, 2, 5)), jnp.full((500, 2, 5), 1e-9))
    mixtures, noise = mm.GaussianMixture(jnp.full((500, 2), 0.5), components), jnp.ones((500, 5))
    spread = jnp.asarray(away @ away.swapaxes(1, 2), jnp.float32)
    for given in (mixtures, one_each(mixtures)):
        found = jax.jit(anticipate)(given, spread, noise).components.covariance
        assert np.isfinite(jnp.linalg.cholesky(found)).all()


def test_covariances_are_multiplied_in_full_precision():
    """Fast products of GPUs, of ten bits, would make them indefinite; those of networks may be fast."""
    ensemble = make_model(jax.random.key(0), override(probes.tiny(), {}).dynamics, None, 2, 1).ensemble
    mixtures = mm.GaussianMixture(jnp.full((4, 3), 1 / 3), mm.Gaussian(jnp.zeros((4, 3, 2)), jnp.ones((4, 3, 2, 2))))
    programs = [
        jax.make_jaxpr(lambda c: predict(ensemble, Belief(jnp.zeros(2), c), jnp.zeros(1)))(jnp.eye(2)),
        jax.make_jaxpr(lambda s: anticipate(mixtures, s, jnp.ones((4, 2))))(jnp.ones((4, 2, 2))),
    ]
    for program in programs:
        products = [e for e in program.eqns if e.primitive.name == "dot_general"]
        square = [e for e in products if all(v.aval.shape[-2:] == (2, 2) for v in e.invars)]
        assert square
        assert all(set(e.params["precision"]) == {jax.lax.Precision.HIGHEST} for e in square)


def test_without_noise_the_next_belief_is_the_next_state():
    components = mm.DiagonalGaussian(jnp.zeros((4, 2, 3)), jnp.full((4, 2, 3), 0.2))
    mixtures = mm.GaussianMixture(jnp.full((4, 2), 0.5), components)
    found = jax.jit(anticipate_diagonal)(mixtures, jnp.full((4, 3), 0.1), jnp.zeros((4, 3)))
    np.testing.assert_allclose(found.components.variance, 0.3, rtol=1e-6)
    spread = 0.1 * jnp.broadcast_to(jnp.array([[1.0, 0.5, 0.0], [0.5, 1.0, 0.0], [0.0, 0.0, 1.0]]), (4, 3, 3))
    found = jax.jit(anticipate)(mixtures, spread, jnp.zeros((4, 3)))
    np.testing.assert_allclose(found.components.covariance[:, 0], 0.2 * jnp.eye(3) + spread, atol=2e-4)


@pytest.mark.parametrize(
    "wrapped", [{}, pytest.param({"sensor.delay": 1}, marks=pytest.mark.slow)], ids=["plain", "late"]
)
def test_a_full_covariance_reaches_the_target(wrapped):
    """An agent that plans is in `tests/agents/test_planning.py`."""
    ranges = {"value.low": (-3.0, -3.0), "value.high": (3.0, 3.0), "value.lengthscales": (1.0, 1.0)}
    settings = {"belief.filter": True, "noise.sigma": 0.3, "train.steps": 60, "train.warmup": 20, **ranges, **wrapped}
    config = override(probes.tiny(), {"agent": "moca", **settings, "belief.covariance": "full"})
    trainer = probes.without_scores(ScanTrainer([config], [0], probes.Drift()))
    *_, report = trainer
    assert np.isfinite(report.metrics["critic_loss"]).all()
    correlations_are_used(config, trainer)


def correlations_are_used(config, trainer):
    """Of beliefs whose dimensions are correlated, the off-diagonal part is stored, read and used."""
    agent, last = make_agent(config, trainer.env), jnp.arange(config.train.steps - 20, config.train.steps)

    @jax.jit
    def predicted(state):
        rows = read(state.replay, last, agent.layout)
        spread = unpack(rows.spread, 2)
        alone = rows._replace(spread=pack(spread * jnp.eye(2), True))
        return spread, *(agent.predict(state.learner, each, jax.random.key(0)).covariance for each in (rows, alone))

    spread, found, without = predicted(probes.first(trainer.state))
    assert np.abs(spread[:, 0, 1]).max() > 1e-4
    assert (np.abs(found - without).max(axis=(1, 2)) > 0.1 * np.abs(spread[:, 0, 1])).any()


def test_matched_first_or_last_the_next_belief_is_the_same():
    """Also where a dimension is not measured at all."""
    random = np.random.default_rng(0)
    with jax.enable_x64(True):
        root = random.normal(size=(4, 3, 3))
        spread, noise = jnp.asarray(root @ root.mT), jnp.asarray([[0.5, 1e15, 0.1]] * 4)
        components = mm.DiagonalGaussian(random.normal(size=(4, 2, 3)), random.uniform(0.1, 1, size=(4, 2, 3)))
        mixtures = mm.GaussianMixture(jnp.array([[0.3, 0.7]] * 4), components)
        last = jax.jit(lambda *given: jax.vmap(mm.moment_match)(anticipate(*given)))(mixtures, spread, noise)
        first = jax.jit(lambda given, *told: anticipate(one_each(given), *told))(mixtures, spread, noise)
        assert first.weights.shape == (4, 1)
        np.testing.assert_allclose(first.components.mean[:, 0], last.mean, atol=1e-12)
        np.testing.assert_allclose(first.components.covariance[:, 0], last.covariance, atol=1e-6)
        prior = mm.moment_match(mixtures, full=True).covariance + spread
        exact = prior @ np.linalg.solve(prior + jax.vmap(jnp.diag)(noise), prior)
        np.testing.assert_allclose(first.components.covariance[:, 0], exact, atol=1e-6)


def test_gains_are_those_of_the_update():
    """Also where a dimension is not measured at all, and one is known exactly."""
    with jax.enable_x64(True):
        root = np.random.default_rng(0).normal(size=(3, 3))
        prior, noise = root @ root.T, np.array([0.5, 1e15, 0.0])
        gain = np.asarray(jax.jit(gains)(jnp.asarray(prior)[None], jnp.asarray(noise)[None]))[0]
        np.testing.assert_allclose(gain, prior @ np.linalg.inv(prior + np.diag(noise)), atol=1e-6)
        innovation = np.array([0.3, 0.0, -0.2])
        moved, _ = jax.jit(update)(Belief(jnp.zeros(3), jnp.asarray(prior)), innovation, noise)
        np.testing.assert_allclose(moved.mean, gain @ innovation, atol=1e-9)


def believed(noise, actions, seen, lost):
    """What a filter stores of an episode if it takes these for the noise variances; some samples are lost."""

    def step(belief, x):
        action, measured, lost = x
        prior, spread = predict(linear(), belief, action)
        after, _ = update(prior, jnp.where(lost, prior.mean, measured), jnp.where(lost, jnp.inf, noise))
        return after, (belief.mean, after.mean, pack(spread, False))

    start = Belief(seen[0], jnp.diag(noise))
    _, (before, after, spread) = jax.lax.scan(step, start, (actions, seen[1:], lost))
    measured, zeros = jnp.where(lost, jnp.nan, seen[1:]), jnp.zeros(len(actions))
    return with_gaps(Transition(before, actions, zeros, after, zeros, measured, spread))


@jax.jit
def described(noise, actions, seen, lost):
    rows = believed(noise, actions, seen, lost)
    return describe_model(linear(), rows, jnp.broadcast_to(noise, lost.shape))


def checked(factor, gaps=0.0):
    """The checks of a filter that takes the noise variances for so many times what they are."""
    _, actions, seen = trajectory(10_000)
    lost = np.random.default_rng(1).random((10_000, 3)) < gaps
    with jax.enable_x64(True):
        told = described(factor * R, actions, seen, lost)
        return float(told["innovation_squared"]), float(told["innovation_correlation"])


@pytest.mark.parametrize("gaps", [0.0, 0.3])
def test_innovations_show_whether_the_noise_is_what_the_filter_takes_it_for(gaps):
    """Of size one and white if it is; their correlation has the sign of the error."""
    square, correlation = checked(1.0, gaps)
    np.testing.assert_allclose(square, 1, atol=0.03)
    np.testing.assert_allclose(correlation, 0, atol=0.02)
    square, correlation = checked(1 / 16, gaps)
    assert square > 2
    assert correlation < -0.15
    square, correlation = checked(16.0, gaps)
    assert square < 0.5
    assert correlation > 0.15


def test_innovations_that_are_missing_and_pairs_across_an_end_do_not_count():
    random = np.random.default_rng(0)
    mean, following = random.normal(size=(2, 6, 2))
    variance, missing = random.uniform(0.5, 2, size=(6, 2)), random.random((6, 2)) < 0.3
    ended = np.array([0, 0, 1, 0, 0, 0.0])
    seen = Outlook(mean, variance, variance, variance, following)
    found = check_filter(seen, Transition(mean, mean, ended, mean, ended, missing=jnp.asarray(missing)))
    error = (following - mean) / np.sqrt(variance)
    squares = [error[t, j] ** 2 for t in range(6) for j in range(2) if not missing[t, j]]
    pairs = [
        error[t, j] * error[t + 1, j]
        for t in (0, 1, 3, 4)
        for j in range(2)
        if not (missing[t, j] or missing[t + 1, j])
    ]
    assert 0 < len(pairs) < 8
    np.testing.assert_allclose(found["innovation_squared"], np.mean(squares), rtol=1e-5)
    np.testing.assert_allclose(found["innovation_correlation"], np.mean(pairs) / np.mean(squares), rtol=1e-5)


class Averaging(BeliefFilter):
    """A running average of the observations: a filter without covariances."""

    def init(self, model, measured):
        return Belief(measured, None)

    def step(self, model, belief, action, measured):
        return Belief(0.5 * belief.mean + 0.5 * measured, None), None


class Forgetful(KalmanFilter):
    """One that says it keeps a covariance, and returns none."""

    def step(self, *given, **gaps):
        return super().step(*given, **gaps)[0], None


def user_agent(made):
    """An agent with a filter of its own, registered as `mine`."""
    moca.register_agent(
        "mine", type("Mine", (QuadraticAgent,), {"make_filter": lambda self: made(self.config, self.env)})
    )


RANGES = {"value.low": (-3.0, -3.0), "value.high": (3.0, 3.0), "value.lengthscales": (1.0, 1.0), "noise.sigma": 0.3}
LEARNED = {"belief.filter": True, "belief.noise": "learned"} | RANGES


def test_a_filter_without_covariances_trains_where_the_settings_have_one(registries):
    """A row holds no covariance then, and the belief's means are the states; nothing asks for a noise."""
    user_agent(lambda config, env: Averaging())
    config = override(probes.tiny(), {"agent": "mine", "train.steps": 20, **LEARNED})
    trainer = probes.without_scores(ScanTrainer([config], [0], probes.Drift()))
    (report,) = trainer
    assert np.isfinite([value for name, value in report.metrics.items() if name.startswith(("critic", "calib"))]).all()
    assert "noise_level" not in report.metrics
    layout = make_agent(config, trainer.env).layout
    assert layout == Layout(2, 1)
    rows = jax.device_get(read(trainer.state.replay[0], jnp.arange(20), layout))
    np.testing.assert_array_equal(rows.observation[1:], rows.next_observation[:-1])
    assert np.diff(rows.next_observation, axis=0).std() < 0.8 * 2**0.5 * 0.3
    assert rows.measured is None


def test_a_row_that_does_not_fit_the_buffer_is_refused(registries):
    user_agent(Forgetful)
    agent = make_agent(override(probes.tiny(), {"agent": "mine", **LEARNED, "belief.noise": "known"}), probes.Drift())

    def stored(key):
        learner, (s, a, r) = agent.init(key), (jnp.zeros(2), jnp.zeros(1), jnp.zeros(()))
        belief = agent.filter.init(learner.model, s)
        return add(empty(4, agent.layout), 0, follow(agent, learner, belief, a, s, r, jnp.array(False))[1])

    with pytest.raises(
        ValueError, match=r"7 numbers does not fit .* rows of 11: `step` of a filter .* keeps_covariance"
    ):
        jax.eval_shape(stored, jax.random.key(0))


def test_a_filter_and_the_settings_must_agree(registries):
    user_agent(lambda config, env: KalmanFilter(config, env) if config.belief.covariance == "full" else Unfiltered())
    for settings, message in (
        ({"belief.covariance": "full"}, "KalmanFilter keeps a covariance, which needs belief.filter = true"),
        (
            {"belief.filter": True, "belief.width": True},
            "belief.width = true needs a filter that keeps a covariance, and Unfiltered",
        ),
    ):
        with pytest.raises(ConfigError, match=message):
            make_agent(override(probes.tiny(), {"agent": "mine", **RANGES, **settings}), probes.Drift())
