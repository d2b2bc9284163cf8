"""The light-dark task: its noise and reward, its exact planner against simulated episodes, and its figure."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import moca
from moca.config import override
from moca.envs.environment import make_noise
from moca.tasks import light_dark as task
from moca.tasks import light_dark_figure as figure
from moca.tasks.light_dark_planner import Planner, best_blind, noise, simulate


@pytest.fixture(scope="module")
def planned():
    planner = Planner(241, 21, 41)
    value, actions = planner.best()
    return planner, value, planner.policy(actions)


def test_it_is_an_environment():
    assert not moca.check_env(task.LightDark())


def test_noise_is_small_at_the_light_and_the_same_everywhere_in_the_dark():
    made = make_noise(task.CONFIG.noise, 1)
    places = jnp.array([[-8.0], [-6.0], [-3.5], [-1.0], [3.0]])
    expected = [[0.1], [0.1], [np.sqrt(0.1)], [1.0], [1.0]]
    np.testing.assert_allclose(made.deviation(places), expected, rtol=1e-5)
    np.testing.assert_allclose(noise(np.asarray(places)), expected, rtol=1e-5)


def test_a_step_moves_and_pays():
    env = task.LightDark()
    (_, key), first = env.reset(jax.random.key(0))
    assert abs(first[0]) <= task.START
    _, step = env.step((jnp.array([1.0]), key), jnp.array([1.0]))
    assert abs(step.observation[0] - 3) < 5 * task.PROCESS
    np.testing.assert_allclose(step.reward, task.reward(float(step.observation[0]), np.exp), rtol=1e-5)
    assert task.reward(task.GOAL, np.exp) == 1
    assert task.reward(task.GOAL + 0.5, np.exp) < -0.2


def test_the_planner_predicts_the_return_of_its_policy(planned):
    """In the world that it plans in; and nearly in the true one, where noise depends on the true position."""
    planner, value, policy = planned
    optimum = planner.optimum(value)
    np.testing.assert_allclose(simulate(policy, 20_000, at_truth=False).mean(), optimum, rtol=0.02)
    np.testing.assert_allclose(simulate(policy, 20_000).mean(), optimum, rtol=0.03)


def test_no_policy_is_better_than_the_best(planned):
    planner, value, policy = planned
    draw = np.random.default_rng(0)
    for size in (0.1, 0.3):
        other = lambda *seen, size=size: np.clip(policy(*seen) + size * draw.normal(), -1, 1)  # noqa: E731
        assert simulate(other, 5000, at_truth=False).mean() < planner.optimum(value) - 0.3


def test_the_best_policy_goes_to_the_light_first_and_comes_back(planned):
    _, _, policy = planned
    wide, narrow = (policy(0, np.array([-2.0, 0.0]), np.array([width] * 2)) for width in (1.0, 0.1))
    assert (wide < -0.9).all()
    assert (narrow > 0.5).all()


def test_no_function_of_the_mean_alone_comes_near(planned):
    planner, value, policy = planned
    blind, _ = best_blind(rounds=15)
    assert 0 < simulate(blind, 5000, seed=1).mean() < 0.75 * planner.optimum(value)
    assert simulate(policy, 5000, seed=1).mean() > 0.9 * planner.optimum(value)


@pytest.mark.slow
def test_agents_are_trained_judged_and_drawn(tmp_path, monkeypatch):
    """Hardly trained, so nothing is said of the returns: shapes, files and numbers alone."""
    monkeypatch.setattr(task, "AGENTS", {name: task.AGENTS[name] for name in figure.PANELS})
    monkeypatch.setattr(figure, "AGENTS", task.AGENTS)
    monkeypatch.setattr(task, "EPISODES", 10)
    results = task.run(2, override(task.CONFIG, {"train.steps": 400, "train.updates": 1}))
    found = {"optimum": 10.0, "optimum_simulated": 9.9, "best_blind": 6.0, "nothing": -0.2}
    for trained in results.values():
        assert trained.returns.shape == (2,)
        assert trained.paths.shape == (task.SHOWN, task.STEPS, 3)
        assert (trained.paths[:, :, 2] > 0).all()
    files = figure.picture(results, found, tmp_path, ("png",))
    assert {path.name for path in files} == {"light-dark.png", "light-dark.json"}
    summary = figure.summary(results, found)
    share = summary["moca, mean alone"]
    assert share["percent"] == pytest.approx(100 * (share["mean"] + 0.2) / 10.2, abs=0.1)
