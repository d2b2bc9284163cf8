"""The loop: what is stored, what is random, what is shared, what is compiled once."""

import gc
import hashlib
import os
import subprocess
import sys
from contextlib import contextmanager
from threading import Barrier, Event
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moca.agents import make_agent
from moca.config import ConfigError
from moca.devices import compiled, for_one_call
from moca.drivers import ScanTrainer
from moca.exploration import normals
from moca.loop import LoopState, StepDraws, draw_step, draw_steps, learn
from moca.nets import decayed
from moca.replay import Layout, Transition, empty, read, sample
from tests import probes

pytestmark = pytest.mark.usefixtures("programs_made_once")
LAYOUT = Layout(2, 1)


def trained(configs=None, seeds=(0,), env=None, episodes=None, scored=True, **settings):
    """A trainer and its reports; some need no scores, for which a program would be compiled."""
    trainer = ScanTrainer(configs or [probes.tiny(**settings)] * len(seeds), seeds, env or probes.Drift())
    trainer = trainer if scored else probes.without_scores(trainer)
    reports = []
    for report in trainer:
        reports.append(report)
        if episodes and len(reports) == episodes:
            break
    return trainer, reports


def leaves(trainer, run=slice(None)):
    return [np.asarray(leaf)[run] for leaf in jax.tree.leaves(trainer.learners)]


def digest(trainer):
    parts = [*leaves(trainer), np.asarray(trainer.state.replay)]
    return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()


@pytest.fixture(scope="module")
def ten():
    return trained(seeds=tuple(range(10)), scored=False)


def test_ten_seeds_are_ten_runs(ten):
    """Ten sets of weights before the first step, ten first transitions, ten first batches."""
    trainer, _ = ten
    fresh = ScanTrainer([probes.tiny()] * 10, range(10), probes.Drift())
    for weight in fresh.learners.actor.weights:
        assert len({np.asarray(own).tobytes() for own in weight}) == 10
    rows = np.asarray(trainer.state.replay)
    assert len({row.tobytes() for row in rows[:, 0]}) == 10
    samples = jax.vmap(lambda replay, key: sample(replay, jax.random.bits(key, (16,)), jnp.array(60), LAYOUT))
    batches = samples(np.broadcast_to(rows[:1], rows.shape), trainer.state.key)
    assert len({np.asarray(own).tobytes() for own in batches.observation}) == 10


def test_no_key_is_used_twice():
    """The learner's key, and what the first hundred episodes split theirs into."""
    key = jax.random.key(0)
    learner, episodes = jax.random.split(key)
    used = [key, learner, episodes, *jax.random.split(learner, 3)]
    for number in range(100):
        episode = jax.random.fold_in(episodes, number)
        used += [episode, *jax.random.split(episode, 5)]
    assert len({jax.random.key_data(k).tobytes() for k in used}) == len(used)
    trainer = ScanTrainer([probes.tiny()], [0], probes.Drift())
    np.testing.assert_array_equal(jax.random.key_data(trainer.state.key[0]), jax.random.key_data(episodes))


def test_no_random_number_is_used_twice():
    """Two blocks of an episode, two episodes, two runs: every action and every noise is one of a kind."""
    settings = {"env__episode_length": 200, "train__steps": 400, "train__warmup": 1000}
    noisy, exact = (probes.tiny(**settings, noise__sigma=sigma) for sigma in (0.5, 0.0))
    trainer, _ = trained([noisy, noisy, exact, exact], (0, 1, 0, 1), scored=False)
    rows, unseen = np.asarray(trainer.state.replay).reshape(2, 800, -1)
    noise = rows[:, 4:6] - unseen[:, 4:6]
    assert len(set(rows[:, 2])) == 800
    assert len(set(noise.ravel().round(5))) > 1500


def test_sampling_is_uniform_over_what_was_written():
    replay = jnp.arange(8.0)[:, None] * jnp.ones(7)
    for written, held in ((3, 3), (8, 8), (50, 8)):
        bits = jax.random.bits(jax.random.key(written), (20_000,))
        rows = np.asarray(sample(replay, bits, jnp.array(written), LAYOUT).reward).astype(int)
        np.testing.assert_allclose(np.bincount(rows, minlength=8)[:held] / len(rows), 1 / held, atol=0.02)
        assert rows.max() == held - 1


def test_the_same_seed_twice_is_the_same_run(ten):
    assert digest(trained(seeds=tuple(range(10)), scored=False)[0]) == digest(ten[0])


def test_a_run_alone_is_the_run_among_others(ten):
    """To 1e-5 after the first updates; rounding may differ from the first step on."""
    among, _ = trained(seeds=tuple(range(10)), episodes=1, scored=False)
    alone, _ = trained(seeds=(3,), episodes=1)
    for a, b in zip(leaves(alone, 0), leaves(among, 3), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_settings_that_are_floats_share_a_program():
    low, high = probes.tiny(train__gamma=0.5), probes.tiny(train__gamma=0.95)
    together, _ = trained([low, high], (0, 0), episodes=2, scored=False)
    alone, _ = trained([high], (0,), episodes=2)
    for a, b in zip(leaves(alone, 0), leaves(together, 1), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    assert any(np.abs(leaf[0] - leaf[1]).max() > 1e-6 for leaf in leaves(together))
    with pytest.raises(ConfigError, match="settings of type float"):
        ScanTrainer([low, probes.tiny(sac__width=8)], (0, 1), probes.Drift())


class Marked(probes.Drift):
    """Its step has an operation that occurs nowhere else."""

    def step(self, state, action):
        state, step = super().step(state, action)
        return jax.lax.atan2(state, jnp.ones_like(state)), step


def test_each_program_contains_the_environment_once():
    """Physics takes long to compile: neither an action repeat nor the warm-up adds a copy on a CPU."""
    trainer = ScanTrainer([probes.tiny(env__action_repeat=2)], (0,), Marked())
    assert [program.compile().as_text().count(" atan2(") for program in trainer.lowered()] == [1, 1, 0]


def test_programs_are_compiled_in_parallel():
    together = Barrier(2, timeout=10)  # broken if one has to wait for the other
    assert compiled(SimpleNamespace(compile=lambda n=n: (together.wait(), n)[1]) for n in range(2)) == [0, 1]


def test_the_first_steps_wait_for_the_training_program_alone(programs_made_once, monkeypatch):
    """The others may be compiled until the first episode is over, which then waits within `while_compiling`."""
    programs_made_once.clear()
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    trainer, ready, waited = ScanTrainer([probes.tiny()], (0,), probes.Drift()), Event(), []
    train, *others = trainer.lowered()
    slow = [SimpleNamespace(compile=lambda each=each: (ready.wait(10), each.compile())[1]) for each in others]
    monkeypatch.setattr(trainer, "lowered", lambda: [train, *slow])
    trainer.compile()
    assert [program.done() for program in trainer._compiled] == [True, False, False]

    @contextmanager
    def noted():
        waited.append([program.done() for program in trainer._compiled])
        ready.set()
        yield

    trainer.while_compiling = noted
    next(reports := iter(trainer))
    next(reports)
    assert waited == [[True, False, False]]


def test_a_level_of_optimisation_that_was_asked_for_is_kept(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=false")
    assert for_one_call() == {"xla_backend_optimization_level": 1}
    monkeypatch.setenv("XLA_FLAGS", "--xla_backend_optimization_level=0")
    assert for_one_call() == {}


def test_garbage_is_looked_for_less_often_only_while_programs_are_made():
    before, meanwhile = gc.get_threshold(), []

    def programs():
        meanwhile.append(gc.get_threshold())
        yield SimpleNamespace(compile=lambda: None)
        raise ConfigError("it cannot be traced")

    gc.set_threshold(700, 10, 10)
    try:
        with pytest.raises(ConfigError, match="cannot be traced"):
            compiled(programs())
        assert (meanwhile, gc.get_threshold()) == ([(20_000, 10, 10)], (700, 10, 10))
    finally:
        gc.set_threshold(*before)


def test_the_random_numbers_of_many_steps_are_those_of_each():
    """They are drawn with other shapes, which must not change them."""
    config = probes.tiny(agent="moca-ce", train__updates=3, value__low=(0.0,) * 2, value__high=(1.0,) * 2,
                         value__lengthscales=(1.0,) * 2)  # fmt: skip
    agent, keys = make_agent(config, probes.Drift()), jax.random.split(jax.random.key(1), 4)
    many, one = jax.jit(lambda keys: draw_steps(agent, keys))(keys), jax.jit(lambda key: draw_step(agent, key))
    for number, key in enumerate(keys):
        noise_key, row_key, update_key, restart_key, action_key = jax.random.split(key, 5)
        members, batch = config.dynamics.members, config.train.batch
        lessons = [jax.random.split(each) for each in jax.random.split(update_key, 3)]
        resamples = [jax.random.bits(fit_key, (members, batch)) % batch for fit_key, _ in lessons]
        counts = [[np.bincount(row, minlength=batch) for row in np.asarray(rows)] for rows in resamples]
        drawn = jax.tree.map(lambda leaf, own=number: leaf[own], many)
        for draws in (drawn, one(key)):
            np.testing.assert_array_equal(draws.noise, jax.random.normal(noise_key, (2,)))
            np.testing.assert_array_equal(draws.disturbance, jax.random.normal(action_key, (1,)))
            np.testing.assert_array_equal(draws.batch_words, jax.random.bits(row_key, (3, batch)))
            np.testing.assert_array_equal(draws.update_draws.multiplicity, counts)
            assert (draws.update_draws.prediction == jnp.stack([key for _, key in lessons])).all()
            assert draws.restart_key == restart_key
    np.testing.assert_array_equal(normals(keys[0], 4, 3), jax.random.normal(keys[0], (4, 3)))


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize(("updates", "learned", "told"), [(2, 2, 3.0), (0, 0, 0.0)])
def test_a_step_learns_from_so_many_batches_and_tells_their_average(traced, updates, learned, told):
    agent = SimpleNamespace(
        config=probes.tiny(train__updates=2), env=probes.Drift(), gaps=False, layout=Layout(2, 1),
        update=lambda learner, batch, number: (learner + 1, {"number": number}),
    )  # fmt: skip
    state = LoopState(None, jnp.zeros(()), empty(4, agent.layout), None)
    draws = StepDraws(None, jnp.zeros((2, 16), jnp.uint32), jnp.array([1.0, 5.0]), None, None, None)
    seen = Transition(jnp.ones(2), jnp.ones(1), jnp.ones(()), jnp.ones(2), jnp.zeros(()))
    step = lambda count: learn(agent, state, seen, jnp.array(0), draws, count)  # noqa: E731
    after, info = jax.jit(step)(updates) if traced else step(updates)
    assert (after.learner, info.info["number"], info.learned) == (learned, told, float(updates > 0))
    assert after.replay[0].sum() == 6


def test_nothing_compiles_after_the_first_episode(programs_made_once):
    programs_made_once.clear()
    events = []
    jax.monitoring.register_event_duration_secs_listener(lambda name, *_, **__: events.append(name))
    trainer = ScanTrainer([probes.tiny()] * 2, (0, 1), probes.Drift())
    reports = iter(trainer)
    next(reports)
    seen = [name for name in events if "compile" in name]
    assert seen
    events.clear()
    assert len(list(reports)) == 2
    assert [name for name in events if "compile" in name or "trace" in name] == []


def test_evaluating_more_often_leaves_training_unchanged():
    often, reports = trained()
    seldom, rarely = trained(train__eval_every=2)
    for a, b in zip(leaves(often), leaves(seldom), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)
    assert [bool(np.isnan(r.metrics["return_mean"][0])) for r in rarely] == [True, False, False]  # and the last
    assert [bool(np.isnan(r.metrics["return_mean"][0])) for r in reports] == [False, False, False]


def test_the_true_last_observation_and_the_end_are_stored():
    """Two-step episodes of `Discounted`: 0 → 1 → end, then a fresh 0; only the second step is an end."""
    trainer, _ = trained(env=probes.Discounted(), scored=False, train__warmup=1000)
    observation, _, reward, following, terminated = np.asarray(trainer.state.replay)[0].T
    np.testing.assert_array_equal(observation, np.tile([0.0, 1.0], 30))
    np.testing.assert_array_equal(following, 1)
    np.testing.assert_array_equal(reward, np.tile([0.0, 1.0], 30))
    np.testing.assert_array_equal(terminated, np.tile([0.0, 1.0], 30))


def test_a_time_limit_is_no_end():
    trainer, _ = trained(env=probes.Endless(), scored=False)
    assert not np.asarray(trainer.state.replay)[0, :, -1].any()


def test_warm_up_learns_nothing_and_measures_nothing():
    trainer, reports = trained(train__warmup=20, episodes=1, scored=False)
    assert np.isnan(reports[0].metrics["critic_loss"]).all()
    fresh = ScanTrainer([probes.tiny(train__warmup=20)], (0,), probes.Drift())
    for a, b in zip(leaves(trainer), leaves(fresh), strict=True):
        np.testing.assert_array_equal(a, b)


def test_learning_begins_with_the_first_decision_after_the_warm_up():
    """Of an episode's ten decisions of two steps each, the first three lie within a warm-up of seven steps."""
    trainer, _ = trained(train__warmup=7, env__action_repeat=2, episodes=1, scored=False)
    assert int(trainer.learners.updates[0]) == 7


def test_steps_are_environment_steps_whatever_the_repeat():
    trainer, reports = trained(env__action_repeat=4, train__warmup=1000, scored=False)
    assert [report.step for report in reports] == [20, 40, 60]
    assert np.asarray(trainer.state.replay).shape[1] == 15


@pytest.mark.slow
def test_several_updates_per_step_learn_more():
    one, _ = trained(train__updates=1)
    four, _ = trained(train__updates=4)
    counts = [int(jax.tree.leaves(t.learners.critic_optimiser)[0][0]) for t in (one, four)]
    assert counts[0] > 40
    assert counts[1] == 4 * counts[0]


def test_the_return_of_an_evaluation_stops_at_the_end():
    _, reports = trained(env=probes.Constant())
    np.testing.assert_allclose(reports[-1].metrics["return_mean"], 1.0)


@pytest.mark.slow
def test_runs_are_spread_over_the_devices():
    code = (
        "import jax, numpy as np\n"
        "from tests import probes\n"
        "from moca.drivers import ScanTrainer\n"
        "t = ScanTrainer([probes.tiny()] * 4, range(4), probes.Drift()); [r for r in t]\n"
        "print(len(t.state.replay.sharding.device_set), float(np.abs(np.asarray(t.state.replay)).sum()))"
    )
    totals = []
    for devices in (1, 2):
        run = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True,
            env={**os.environ, "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}"},
        )  # fmt: skip
        used, total = run.stdout.split()
        assert int(used) == devices
        totals.append(float(total))
    np.testing.assert_allclose(*totals, rtol=1e-4)


def test_training_uses_all_cores(tmp_path):
    """Each run on a core of its own, unless the user has said how many devices there are to be."""
    code = (
        "import jax, moca, sys\n"
        "from moca.drivers import ScanTrainer\n"
        "from tests import probes\n"
        "def told(self):\n"
        "    print(len(jax.devices()), len(self.state.replay.sharding.device_set))\n"
        "    sys.exit()\n"
        "ScanTrainer.compile = told  # where the runs lie is known before anything is compiled\n"
        f"moca.train(probes.tiny(seeds=2), {str(tmp_path)!r} + '/run', env=probes.Drift())"
    )
    for settings, devices in (({}, os.cpu_count()), ({"JAX_NUM_CPU_DEVICES": "1"}, 1)):
        target = code.replace("/run", f"/run{devices}")
        environment = {**os.environ, "JAX_PLATFORMS": "cpu", **settings}
        run = subprocess.run(
            [sys.executable, "-c", target], capture_output=True, text=True, check=True, env=environment
        )
        assert [int(number) for number in run.stdout.split()] == [devices, min(devices, 2)]


def test_without_noise_both_scores_are_the_same_episodes():
    _, reports = trained()
    np.testing.assert_array_equal(reports[-1].metrics["return_mean"], reports[-1].metrics["return_noise_free"])
    _, reports = trained(noise__sigma=0.5)
    assert (reports[-1].metrics["return_mean"] != reports[-1].metrics["return_noise_free"]).all()


def test_what_follows_the_end_of_an_evaluation_does_not_count():
    class Breaks(probes.Constant):
        def step(self, state, action):
            broken = state > 1.5
            step = super().step(state, action)[1]
            return state + 1, step._replace(reward=jnp.where(broken, jnp.nan, step.reward))

    _, reports = trained(env=Breaks(), train__warmup=1000)
    np.testing.assert_array_equal(reports[-1].metrics["return_mean"], 1.0)


FILTER = {"belief__filter": True, "dynamics__width": 16, "dynamics__members": 2, "train__warmup": 20}


def test_what_the_filter_stores():
    """The mean it acts on is between prediction and observation; before the model learns it is the observation."""
    trainer, _ = trained(noise__sigma=0.3, episodes=2, scored=False, **FILTER)
    rows = jax.device_get(read(trainer.state.replay[0], jnp.arange(40), Layout(2, 1, filtered=True)))
    warm, filtered = slice(0, 20), slice(21, 40)
    np.testing.assert_array_equal(rows.next_observation[warm], rows.measured[warm])
    np.testing.assert_allclose(rows.spread[warm], 0.3**2, rtol=1e-6)
    assert (np.abs(rows.next_observation[filtered] - rows.measured[filtered]) > 1e-4).mean() > 0.9
    np.testing.assert_array_equal(rows.observation[1:20], rows.next_observation[:19])
    np.testing.assert_array_equal(rows.observation[21:], rows.next_observation[20:-1])


def test_without_noise_the_filter_changes_nothing():
    trainer, _ = trained(episodes=2, scored=False, **FILTER)
    rows = jax.device_get(read(trainer.state.replay[0], jnp.arange(40), Layout(2, 1, filtered=True)))
    np.testing.assert_allclose(rows.next_observation, rows.measured, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(rows.spread[21:], 0, atol=1e-9)


def test_rates_fall_to_the_share_that_was_asked_for():
    config = probes.tiny(train__decay=0.1, train__steps=120, train__warmup=20)
    rates = [decayed(config, 2.0, jnp.array(n)) for n in (0, 50, 100, 200)]
    np.testing.assert_allclose(rates, [2.0, 1.1, 0.2, 0.2], rtol=1e-6)
    still, falling = (trained(train__decay=decay)[0] for decay in (1.0, 0.0))
    assert any((a != b).any() for a, b in zip(leaves(still), leaves(falling), strict=True))
