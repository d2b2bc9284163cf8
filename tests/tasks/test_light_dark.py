"""The light-dark task: its noise and reward, its planner against simulated episodes, and its study."""

import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import moca
from moca.config import override
from moca.envs.environment import make_noise
from moca.tasks import light_dark as task

STUDY = Path(__file__).parents[2] / "results" / "light_dark"
PLANNER = SimpleNamespace(**runpy.run_path(str(STUDY / "planner.py")))


@pytest.fixture(scope="module")
def study():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(STUDY)  # as where it is started as a script
        yield SimpleNamespace(**runpy.run_path(str(STUDY / "run.py")))
    sys.modules.pop("planner")


@pytest.fixture(scope="module")
def planned():
    planner = PLANNER.BeliefPlanner(241, 21, 41)
    value, actions = planner.best()
    return planner, value, planner.policy(actions)


def test_it_is_an_environment():
    assert not moca.check_env(task.LightDark())


def test_noise_is_small_at_the_light_and_the_same_everywhere_in_the_dark(study):
    made = make_noise(study.CONFIG.noise, 1)
    places = jnp.array([[-8.0], [-6.0], [-3.5], [-1.0], [3.0]])
    expected = [[0.1], [0.1], [np.sqrt(0.13)], [1.3], [1.3]]
    np.testing.assert_allclose(made.deviation(places), expected, rtol=1e-5)
    np.testing.assert_allclose(PLANNER.noise(np.asarray(places)), expected, rtol=1e-5)


def test_a_step_moves_and_pays():
    env = task.LightDark()
    (_, key), first = env.reset(jax.random.key(0))
    assert abs(first[0]) <= task.START
    _, step = env.step((jnp.array([1.0]), key), jnp.array([1.0]))
    assert abs(step.observation[0] - 2.5) < 5 * task.PROCESS
    np.testing.assert_allclose(step.reward, task.reward(float(step.observation[0]), np.exp), rtol=1e-5)
    np.testing.assert_allclose(task.reward(task.GOAL, np.exp), 1)
    np.testing.assert_allclose(task.reward(2.5, np.exp), 1.7 * np.exp(-2) - 0.7 * np.exp(-1 / 2.88), rtol=1e-6)


def test_the_planner_predicts_the_return_of_its_policy(planned):
    """In the world that it plans in; and nearly in the true one, where noise depends on the true position."""
    planner, value, policy = planned
    optimum = planner.optimum(value)
    np.testing.assert_allclose(PLANNER.simulate(policy, 20_000, at_truth=False).mean(), optimum, rtol=0.02)
    np.testing.assert_allclose(PLANNER.simulate(policy, 20_000).mean(), optimum, rtol=0.03)


def test_no_policy_is_better_than_the_best(planned):
    planner, value, policy = planned
    draw = np.random.default_rng(0)
    for size in (0.1, 0.3):
        other = lambda *seen, size=size: np.clip(policy(*seen) + size * draw.normal(), -1, 1)  # noqa: E731
        assert PLANNER.simulate(other, 5000, at_truth=False).mean() < planner.optimum(value) - 0.3


def test_the_best_policy_goes_to_the_light_first_and_comes_back(planned):
    _, _, policy = planned
    wide, narrow = (policy(0, np.array([-2.0, 0.0]), np.array([width] * 2)) for width in (1.0, 0.1))
    assert (wide < -0.9).all()
    assert (narrow > 0.2).all()


def test_no_function_of_the_mean_alone_comes_near(planned, study):
    planner, value, policy = planned
    blind = study.best_blind(rounds=15)
    assert 0 < PLANNER.simulate(blind, 5000, seed=1).mean() < 0.75 * planner.optimum(value)
    assert PLANNER.simulate(policy, 5000, seed=1).mean() > 0.9 * planner.optimum(value)


@pytest.mark.slow
def test_agents_are_trained_and_judged(study):
    """Hardly trained, so nothing is said of the returns: only that there is one for each seed, in the right units."""
    short = {"train.steps": 300, "train.updates": 1, "belief.width": True}
    returns = study.trained(override(study.CONFIG, short), [0, 1])
    assert returns.shape == (2,)
    assert np.isfinite(returns).all()
    assert study.share(6.0, {"nothing": 2.0, "optimum": 10.0}) == 50
