"""Bad observations: a missing value is done without, the impossible is refused, and no policy is silenced."""

import equinox as eqx
import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import moca
from moca.agents import make_agent
from moca.config import Config, ConfigError, override
from moca.deploy import Policy
from moca.deploy.checks import LIMIT
from moca.runs import export
from moca.runs.directory import RunDirectory
from moca.runs.run import Run
from tests.test_deploy import FILTER, SCALED, Plane, learners_of

SMALL = {"critic.width": 8, "dynamics.width": 8, "dynamics.members": 3, "sac.width": 8}
SMALL |= {"value.low": (-1.0,) * 3, "value.high": (1.0,) * 3, "value.lengthscales": (1.0,) * 3}
CASES = {
    "filter": {"critic.head": "slope", **FILTER, **SCALED},
    "full covariance": {"agent": "sac", "dynamics.covariance": "full", **FILTER, "belief.noise": "learned"},
    "none": {"agent": "sac"},
    "blind": {"agent": "sac", **FILTER},  # a filter that has not learned yet believes each observation alone
}
LENGTH = 40


def followers(tmp_path, case, change=lambda learner: learner):
    """The same policy twice: as the file that runs on NumPy, and as what follows from a run directory."""
    config = override(Config(), SMALL | CASES[case])
    learner = change(learners_of(config, Plane()))
    if case == "blind":
        learner = eqx.tree_at(lambda s: s.model.ensemble.statistics.batches, learner, np.float32(0))
    export.write(tmp_path / "policy.npz", make_agent(config, Plane()), learner, {"env": "Plane"})
    directory = RunDirectory(tmp_path / "run")
    directory.path.mkdir()
    directory.begin(config, [{"seed": 0}])
    directory.save_policy(jax.tree.map(lambda leaf: np.asarray(leaf)[None], learner))
    run = Run(directory, Plane())
    return Policy.load(tmp_path / "policy.npz"), run.policy(), run


@pytest.fixture(scope="module", params=CASES)
def both(request, tmp_path_factory):
    return request.param, *followers(tmp_path_factory.mktemp("policy"), request.param)


def walk(gaps):
    rng = np.random.default_rng(1)
    steps = np.cumsum(0.1 * rng.normal(size=(LENGTH, 3)), axis=0)
    missing = rng.random(steps.shape) < gaps
    missing[0] = False
    return np.where(missing, np.nan, steps)


def test_numpy_and_jax_do_without_the_same_values(both):
    case, ours, theirs, _ = both
    if case in ("none", "blind"):
        pytest.skip("it has no filter")
    for policy in (ours, theirs):
        policy.reset()
        policy.missing = 0
    observed = walk(0.3)
    observed[5] = np.nan  # everything
    for number, observation in enumerate(observed):
        np.testing.assert_allclose(ours(observation), theirs(observation), rtol=0, atol=1e-5, err_msg=str(number))
    mean, covariance = ours._last[0]
    np.testing.assert_allclose(theirs.belief.mean, mean, rtol=0, atol=1e-5)
    np.testing.assert_allclose(theirs.belief.covariance, covariance, rtol=0, atol=1e-5)
    assert ours.missing == theirs.missing == np.isnan(observed).sum()


def test_a_missing_value_is_not_corrected(tmp_path):
    """The belief is that of Kalman's update with the rows that are there, in matrices; with none, the prediction."""
    policy, _, _ = followers(tmp_path, "full covariance")
    policy([0.1, -0.2, 0.3])
    before, action = policy._last
    taken = 2 * (action - policy.action_low) / (policy.action_high - policy.action_low) - 1
    mean, covariance = policy._filter._predicted(before, taken)
    policy([np.nan, 0.4, np.nan])
    covariance = covariance + np.diag(np.diagonal(covariance)) * policy._filter.raised
    rows = np.array([[0.0, 1.0, 0.0]])
    gain = covariance @ rows.T @ np.linalg.inv(rows @ covariance @ rows.T + policy._filter._noise(mean)[1])
    np.testing.assert_allclose(policy._last[0][0], mean + gain @ (np.array([0.4]) - rows @ mean), rtol=1e-9)
    np.testing.assert_allclose(policy._last[0][1], covariance - gain @ rows @ covariance, rtol=1e-9, atol=1e-12)
    before, action = policy._last
    taken = 2 * (action - policy.action_low) / (policy.action_high - policy.action_low) - 1
    policy([np.nan] * 3)
    np.testing.assert_allclose(policy._last[0][0], policy._filter._predicted(before, taken)[0], rtol=1e-9)


BAD = {
    "contains NaN": ([0.1, np.nan, 0.2], "missing|contains NaN"),
    "infinite": ([0.1, np.inf, 0.2], "measurements must be within"),
    "minus infinity": ([-np.inf, 0.1, 0.2], "measurements must be within"),
    "absurd": ([0.1, 0.1, -3.4e38], "measurements must be within"),
    "beyond float32": ([0.1, 0.1, 1e300], "measurements must be within"),
    "just beyond": ([0.1, 0.1, 1.01 * LIMIT], "measurements must be within"),
    "too few": ([0.1, 0.2], "must have 3 numbers"),
    "none": (None, "real numbers"),
    "words": (["0.1", "0.2", "0.3"], "real numbers"),
    "complex": ([1j, 0, 0], "real numbers"),
    "ragged": ([[1], [1, 2], 3], "real numbers"),
    "two": (np.zeros((2, 3)), "one observation"),
}


@pytest.mark.parametrize("bad", BAD)
def test_what_cannot_be_is_refused_and_nothing_changes(both, bad):
    case, *policies, run = both
    observation, words = BAD[bad]
    observed = walk(0)[:6]
    for policy in policies:
        policy.reset()
        unbroken = [policy(each) for each in observed]
        policy.reset()
        policy.missing = 0
        with pytest.raises(ValueError, match=words):  # as the first
            policy(observation)
        broken = []
        for each in observed:
            broken.append(policy(each))
            if bad != "contains NaN" or case in ("none", "blind"):
                with pytest.raises(ValueError, match=words):
                    policy(observation)
        assert np.array_equal(unbroken, broken)
        assert policy.missing == 0
    if bad != "two":
        for asked in (policies[0].act, run.predict, run.value):
            with pytest.raises(ValueError, match=words):
                asked(observation)


def test_the_model_is_asked_about_nothing_impossible(both):
    case, _, _, run = both
    if case == "none":
        pytest.skip("it has no model")
    with pytest.raises(ConfigError, match="an action contains inf"):
        run.model.predict([0.0] * 3, [np.inf, 0.0])
    with pytest.raises(ConfigError, match="an observation contains NaN"):
        run.model.predict([np.nan] * 3, [0.0, 0.5])


def drifting(learner):
    """With a model that expects every step to lead far away."""
    mean = np.array([[0.0] * 3, [2e5] * 3], np.float32)
    return eqx.tree_at(lambda s: s.model.ensemble.statistics.mean, learner, mean)


def fed(policy, observation, times):
    for _ in range(times):
        policy(observation)


def test_after_too_many_gaps_a_whole_observation_is_needed(tmp_path):
    low, high = np.array(Plane().action_low), np.array(Plane().action_high)
    for policy in followers(tmp_path, "filter", drifting)[:2]:
        policy([0.3, 0.2, 0.1])
        with pytest.raises(ValueError, match="belief has been lost to too many missing values"):
            fed(policy, [np.nan] * 3, 20)
        assert 0 < policy.missing < 60
        with pytest.raises(ValueError, match="belief has been lost"):
            policy([np.nan] * 3)
        action = policy([0.1, 0.2, 0.3])
        assert (low <= action).all()
        assert (action <= high).all()


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_a_belief_that_was_lost_begins_anew(both, number):
    case, ours, theirs, _ = both
    if case in ("none", "blind"):
        pytest.skip("it has no filter")
    for policy in (ours, theirs):
        policy.reset()
        first = policy([0.1, 0.2, 0.3])
        mean, covariance, *_ = policy._last[0]
        lost = (mean, np.full_like(covariance, number))
        policy._last = (lost if policy is ours else theirs.belief._replace(covariance=lost[1]), first)
        with pytest.raises(ValueError, match="belief has been lost"):
            policy([0.1, np.nan, 0.3])
        assert np.array_equal(policy([0.1, 0.2, 0.3]), first)


values = st.floats(-2, 2) | st.just(float("nan")) | st.floats(allow_nan=True, allow_infinity=True)


@pytest.mark.parametrize("name", ["CartpoleBalance", "PendulumSwingup"])
def test_no_sequence_of_observations_silences_a_policy(name):
    policy = moca.pretrained(name)
    size = policy.facts["observation_size"]

    @given(st.lists(st.lists(values, min_size=size, max_size=size), max_size=12))
    def follow(observations):
        policy.reset()
        for observation in [*observations, [0.5] * size]:
            before, counted = policy._last, policy.missing
            try:
                action = policy(observation)
            except ValueError:
                assert policy._last is before
                assert policy.missing == counted
                assert observation != [0.5] * size
            else:
                assert (policy.action_low <= action).all()
                assert (action <= policy.action_high).all()
                assert policy.missing == counted + np.isnan(observation).sum()

    follow()
