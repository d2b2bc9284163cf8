"""The sensor: each of its faults and their combinations against a plain loop, and in the drivers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moca import presets
from moca.agents import make_agent
from moca.config import ConfigError
from moca.drivers import make_env, make_trainer
from moca.envs.check import refuse_broken
from moca.envs.environment import ActionRepeat, Noise
from moca.envs.gymnasium import Gymnasium
from moca.envs.sensors import Masked, make_sensor
from moca.loop import agent_steps, draw_step
from moca.replay import Layout, read
from moca.runs import film
from tests import probes
from tests.envs.hosted import Walk

STEPS = 4000
SMALL = {
    "critic__width": 8, "dynamics__width": 8, "dynamics__members": 2, "value__bases": 8,
    "value__low": (-1.0, -1.0), "value__high": (1.0, 1.0), "value__lengthscales": (1.0, 1.0),
}  # fmt: skip


def measured(steps=STEPS, observations=None, seed=0, size=2, **settings):
    """What a sensor shows of these observations (zeros), after the first; its normal and its uniform draws."""
    sensor = make_sensor(probes.tiny(**settings), Masked(probes.Drift(), tuple(range(size))))
    normals = jax.random.normal(jax.random.key(seed), (steps + 1, size))
    seen = jnp.zeros((steps + 1, size)) if observations is None else observations
    draws = sensor.draw_many(jax.random.key(seed + 1), steps, size)
    state, first = sensor.init(seen[0], normals[0])
    step = lambda state, x: sensor.measure(state, *x)  # noqa: E731
    _, rest = jax.lax.scan(step, state, (seen[1:], normals[1:], draws))
    return np.concatenate([first[None], rest]), np.asarray(normals), draws


def lengths(present):
    """The lengths of unbroken stretches, without one that may go on."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], present.astype(int)])))
    return edges[1::2] - edges[: len(edges) // 2 * 2 : 2]


def test_without_faults_it_is_the_noise_and_has_no_state():
    config = probes.tiny(noise__sigma=0.3)
    sensor = make_sensor(config, probes.Drift())
    assert type(sensor) is Noise
    state, first = sensor.init(jnp.ones(2), jnp.ones(2))
    after, later = sensor.measure(state, jnp.ones(2), jnp.full(2, -1.0), sensor.draw(jax.random.key(0), 2))
    assert state is after is sensor.draw(jax.random.key(0), 2) is None
    np.testing.assert_allclose([first, later], [[1.3, 1.3], [0.7, 0.7]], rtol=1e-6)
    assert jax.tree.leaves(config.sensor) == []


def test_noise_and_bias_of_each_dimension():
    found, _, _ = measured(noise__sigmas=(0.1, 2.0), sensor__bias=(-1.0, 3.0))
    np.testing.assert_allclose(found.std(axis=0), [0.1, 2.0], rtol=0.05)
    np.testing.assert_allclose(found.mean(axis=0), [-1.0, 3.0], atol=0.15)


def test_the_noise_of_each_dimension_may_grow_with_the_state():
    settings = {"noise__kind": "state-norm", "noise__scales": (1.0, 1.0), "noise__sigma_min": 0.1}
    far, near = (
        measured(observations=jnp.full((STEPS + 1, 2), place), noise__sigmas=(0.2, 2.0), **settings)[0].std(axis=0)
        for place in (5.0, 0.0)
    )
    np.testing.assert_allclose([far, near], [[0.2, 2.0], [0.1, 0.1]], rtol=0.05)


@pytest.mark.parametrize(("probability", "steps"), [(0.2, 1), (0.1, 3)])
def test_dropouts_are_as_frequent_and_as_long_as_they_should_be(probability, steps):
    found, _, _ = measured(sensor__drop=probability, sensor__drop_steps=steps)
    missing = np.isnan(found)
    assert (missing[:, 0] == missing[:, 1]).all()
    assert not missing[0].any()
    share = probability * steps / (1 - probability + probability * steps)
    np.testing.assert_allclose(missing.mean(), share, rtol=0.1)
    own = lengths(missing[:, 0])
    assert (own % steps == 0).all()
    assert own.min() == steps


def test_a_stuck_dimension_repeats_its_last_value_and_the_other_does_not():
    found, normals, _ = measured(sensor__stick=0.05, sensor__stick_steps=4, noise__sigma=1.0)
    stuck = found != normals
    share = 0.05 * 4 / (0.95 + 0.05 * 4)
    np.testing.assert_allclose(stuck.mean(axis=0), share, rtol=0.15)
    np.testing.assert_array_equal(found[1:][stuck[1:]], found[:-1][stuck[1:]])
    assert (lengths(stuck[:, 0]) % 4 == 0).all()
    np.testing.assert_allclose((stuck[:, 0] & stuck[:, 1]).mean(), share**2, rtol=0.4)


def test_a_delay_shows_the_first_sample_and_then_all_others_late():
    found, normals, _ = measured(steps=20, sensor__delay=3, noise__sigma=1.0)
    np.testing.assert_array_equal(found, normals[np.maximum(np.arange(21) - 3, 0)])


def test_all_together_are_what_a_plain_loop_makes():
    settings = {"drop": 0.2, "drop_steps": 2, "stick": 0.3, "stick_steps": 3, "delay": 2, "bias": (5.0, -5.0)}
    named = {f"sensor__{name}": value for name, value in settings.items()}
    found, normals, draws = measured(steps=300, noise__sigmas=(1.0, 2.0), **named)
    last, stuck, dropped, line = normals[0] * [1, 2] + [5, -5], np.zeros(2, int), 0, []
    wanted, line = [last], [last, last]
    for normal, drop, stick in zip(normals[1:], np.asarray(draws.drop), np.asarray(draws.stick), strict=True):
        sample = normal * [1, 2] + [5, -5]
        for i in range(2):
            if stuck[i] == 0 and stick[i] < 0.3:
                stuck[i] = 3
            if stuck[i] > 0:
                stuck[i], sample[i] = stuck[i] - 1, last[i]
        last = sample.copy()
        if dropped == 0 and drop < 0.2:
            dropped = 2
        if dropped > 0:
            dropped, sample = dropped - 1, np.full(2, np.nan)
        line.append(sample)
        wanted.append(line.pop(0))
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_missing_values_of_the_environment_are_kept_or_stay_an_error():
    seen = jnp.array([[0.0, 0.0], [jnp.nan, 1.0]] * 10 + [[0.0, 0.0]])
    norm = {"noise__kind": "state-norm", "noise__scales": (1.0, 1.0), "noise__sigma": 0.5}
    kept, _, _ = measured(20, seen, sensor__gaps=True, belief__filter=True, sensor__drop=0.1, **norm)
    dropped = np.isnan(kept).all(axis=1)
    assert 0 < dropped.sum() < 20
    np.testing.assert_array_equal(np.isnan(kept[~dropped]), np.isnan(seen)[~dropped])
    faulty, _, _ = measured(20, seen, sensor__drop=0.1)
    assert np.isinf(faulty[:, 0]).any()
    assert not np.isinf(faulty[:, 1]).any()


def test_its_draws_are_its_own_and_leave_all_others_as_they_are():
    key = jax.random.key(5)
    plain, faulty = (draw_step(make_agent(probes.tiny(sensor__drop=p), probes.Drift()), key) for p in (0.0, 0.3))
    others = faulty._replace(update_draws=None, sensor=None)
    for one, other in zip(plain._replace(update_draws=None), others, strict=True):
        assert jnp.array_equal(one, other) if one is not None else other is None
    others = [jax.random.uniform(each) for each in jax.random.split(key, 5)]
    assert faulty.sensor.drop not in others


def test_a_mask_hides_dimensions():
    config = probes.tiny(sensor__observed=(1,), env__action_repeat=2)
    env = make_env(config, probes.Drift())
    assert isinstance(env, ActionRepeat)
    assert env.observation_size == 1
    whole = ActionRepeat(probes.Drift(), 2)
    (state, first), (_, both) = (each.reset(jax.random.key(0)) for each in (env, whole))
    np.testing.assert_array_equal(first, both[1:])
    after, expected = (each.step(state, jnp.ones(1))[1] for each in (env, whole))
    np.testing.assert_array_equal(after.observation, expected.observation[1:])
    assert after.reward == expected.reward
    with pytest.raises(ConfigError, match=r"sensor.observed = \[0, 2\] is out of range: the environment has 2 dim"):
        make_env(probes.tiny(sensor__observed=(0, 2)), probes.Drift())


def test_a_preset_states_the_ranges_of_observed_dimensions_alone():
    found = presets.build("tuned", "CartpoleBalance", {"sensor.observed": "[0, 3]", "noise.kind": "state-norm"})
    assert (found.value.low, found.value.high) == ((-2.5, -10.0), (2.5, 10.0))
    assert (found.value.lengthscales, found.noise.scales) == ((0.6, 3.0), (2.4, 2.0))
    with pytest.raises(ConfigError, match=r"sensor.observed = \[5\] is out of range: the environment has 5 dimensions"):
        presets.build("tuned", "CartpoleBalance", {"sensor.observed": (5,)})


def test_a_history_on_the_host_is_filmed(tmp_path):
    settings = {"sensor__observed": (1,), "sensor__history": 2, "sensor__scales": (0.1,)}
    config = probes.tiny(agent="sac", train__steps=20, **settings)
    trainer = make_trainer([config], [0], Gymnasium(lambda: Walk("rgb_array")))
    learner = probes.first(trainer.learners)
    assert "Gymnasium" in film.record(tmp_path / "film.mp4", trainer.env, config, learner, 0)[0]


def test_a_mask_hides_dimensions_on_the_host(tmp_path):
    config = probes.tiny(agent="sac", sensor__observed=(1,), train__steps=20)
    trainer = make_trainer([config], [0], Gymnasium(lambda: Walk("rgb_array")))
    (report,) = trainer
    assert trainer.env.observation_size == 1
    assert np.isfinite(report.metrics["return_mean"]).all()
    rows = read(trainer.state.replay[0], jnp.arange(20), Layout(1, 2))
    assert rows.observation.shape == (20, 1)
    assert np.ptp(rows.observation) > 0
    learner = probes.first(trainer.learners)
    assert "Gymnasium" in film.record(tmp_path / "film.mp4", trainer.env, config, learner, 0)[0]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sensor__drop": 1.0}, "sensor.drop = 1 is out of range: it must be at least 0 and below 1"),
        ({"sensor__stick": -0.1}, "sensor.stick = -0.1 is out of range: it must be at least 0 and at most 1"),
        ({"sensor__delay": 0.5}, "sensor.delay must be a whole number, got 0.5"),
        ({"sensor__delay": 20}, "sensor.delay = 20 must be below the 20 decisions of an episode"),
        ({"sensor__observed": (1, 0)}, "sensor.observed = [1, 0] must be different numbers in ascending order"),
        ({"sensor__observed": "0,0.5"}, "sensor.observed must be a whole number, got 0.5"),
        ({"sensor__gaps": True}, "sensor.gaps = true needs belief.filter = true"),
        ({"noise__sigma": 0.1, "noise__sigmas": (0.1, 0.2)}, "noise.sigma = 0.1 and noise.sigmas = [0.1, 0.2] cannot"),
        (
            {"noise__kind": "state-norm", "noise__scales": (1,), "noise__sigma_min": 0.2, "noise__sigmas": (0.1, 0.3)},
            "noise.sigma_min = 0.2 must not exceed noise.sigmas = 0.1",
        ),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings, message):
    with pytest.raises(ConfigError) as error:
        probes.tiny(**settings)
    assert message in str(error.value)


@pytest.mark.parametrize("name", ["noise__sigmas", "sensor__bias"])
def test_lists_need_one_number_per_observed_dimension(name):
    with pytest.raises(ConfigError, match="has 3 numbers, but there are 2 observed dimensions"):
        make_trainer([probes.tiny(**{name: (0.1, 0.1, 0.1)})], [0], probes.Drift())


def test_levels_share_a_program_and_an_agent_without_a_filter_holds_its_last_observation():
    shared = {"agent": "moca", "noise__sigmas": (0.1, 0.2), **SMALL}
    levels = [{"sensor__drop": 0.0}, {"sensor__drop": 0.4, "sensor__bias": (1.0, 0.0)}]
    plain = {"sensor__bias": (0.0, 0.0)}
    configs = [probes.tiny(**shared, **(plain | each)) for each in levels]
    trainer = probes.without_scores(make_trainer(configs, [0, 0], probes.Drift()))
    reports = list(trainer)
    shares = np.array([report.metrics["missing_share"] for report in reports])
    assert (shares[:, 0] == 0).all()
    assert abs(shares[:, 1].mean() - 0.4) < 0.15
    assert all(np.isfinite(report.metrics["dynamics_nll"]).all() for report in reports)
    rows = read(trainer.state.replay[1], jnp.arange(60), Layout(2, 1))
    missing, inner = np.isnan(rows.next_observation), np.arange(60) % agent_steps(trainer.config) < 19
    np.testing.assert_array_equal(missing[:, 0], missing[:, 1])
    following = np.where(missing, rows.observation, rows.next_observation)
    np.testing.assert_array_equal(rows.observation[1:][inner[:-1]], following[:-1][inner[:-1]])


@pytest.mark.slow
def test_a_fault_of_probability_zero_is_the_same_run_without_it():
    shared = {"noise__sigma": 0.1, "train__steps": 40}
    off, on = probes.tiny(**shared), probes.tiny(**shared, sensor__drop=0.5)
    (alone, both) = (make_trainer(configs, [0] * len(configs), probes.Drift()) for configs in ([off], [off, on]))
    ours, theirs = (list(trainer)[-1].metrics["return_mean"][0] for trainer in (alone, both))
    np.testing.assert_allclose(alone.state.replay[0], both.state.replay[0], atol=1e-5)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)


class Gappy(Walk):
    """Its second dimension is missing at every other step."""

    def step(self, action):
        observation, *rest = super().step(action)
        return np.where([False, self._time % 2 == 1], np.nan, observation), *rest


def test_an_environment_may_mark_missing_values_itself():
    with pytest.raises(ConfigError, match="if NaN marks missing values, set sensor"):
        refuse_broken(Gymnasium(Gappy))
    refuse_broken(Gymnasium(Gappy), gaps=True)
    settings = {"agent": "moca", "belief__filter": True, "noise__sigma": 0.1, "sensor__gaps": True, **SMALL}
    trainer = make_trainer([probes.tiny(**settings)], [0], Gymnasium(Gappy))
    reports = list(trainer)
    assert not any(report.metrics["diverged"].any() for report in reports)
    missing = np.isnan(read(trainer.state.replay[0], jnp.arange(60), Layout(2, 2, filtered=True)).measured)
    assert not missing[:, 0].any()
    assert 0.4 < missing[:, 1].mean() < 0.7


@pytest.mark.slow
def test_samples_are_lost_on_the_host_too():
    settings = {"agent": "moca", "belief__filter": True, "noise__sigma": 0.1, "sensor__drop": 0.3, **SMALL}
    trainer = make_trainer([probes.tiny(**settings)], [0], Gymnasium(Walk))
    shares = [report.metrics["missing_share"] for report in trainer]
    assert 0.15 < np.mean(shares) < 0.45
    rows = read(trainer.state.replay[0], jnp.arange(60), Layout(2, 2, filtered=True))
    assert np.isfinite(rows.next_observation).all()
    np.testing.assert_allclose(np.isnan(rows.measured).mean(), np.mean(shares), rtol=1e-6)
