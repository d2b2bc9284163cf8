"""Gymnasium environments with one fault each, all of which are found and named; and healthy ones, in which none is."""

from unittest import mock

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete

import moca
from moca.cli import main
from moca.config import Config, ConfigError, override
from moca.envs.check import refuse_broken
from moca.envs.check.hosted import UNIFORM, _drawn
from moca.envs.check.trial import action_sequences
from moca.envs.gymnasium import Gymnasium
from moca.runs import launch
from tests import probes
from tests.envs import hosted


class Cart(gymnasium.Env):
    """A mass that is pushed along a line, for a hundred steps; each of its parts can be spoilt."""

    observation_space = Box(-9.0, 9.0, (2,), np.float32)
    action_space = Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state, self.time = self.np_random.uniform(-0.5, 0.5, 2).astype(np.float32), 0
        return self.state.copy(), {}

    def step(self, action):
        place, speed = self.state
        self.time += 1
        speed = np.float32(0.9) * speed + np.float32(0.1) * action[0]
        self.state = np.array([np.clip(place + np.float32(0.1) * speed, -9, 9), speed], np.float32)
        return self.state.copy(), -float(place**2), False, self.time == 100, {}


class Spoilt(Cart):
    """Its rewards are soon NaN."""

    def step(self, action):
        observation, reward, *rest = super().step(action)
        return observation, np.nan if self.time > 2 else reward, *rest


# Healthy ones


class Goals(Cart):
    """Observations of two parts, of which one is nested."""

    observation_space = Dict(goal=Dict(place=Box(-9.0, 9.0, (1,), np.float32)), state=Box(-9.0, 9.0, (2,), np.float32))

    def parts(self, result):
        return {"goal": {"place": np.zeros(1, np.float32)}, "state": result[0]}, *result[1:]

    def reset(self, *, seed=None, options=None):
        return self.parts(super().reset(seed=seed))

    def step(self, action):
        return self.parts(super().step(action))


class Falls(Cart):
    """True ends at the edge, from which the last observation shows; rewards are NumPy's numbers."""

    def step(self, action):
        last, reward, _, truncated, info = super().step(action)
        return last, np.float64(reward), np.bool_(abs(last[1]) > 0.8), truncated, info


class Wide(Cart):
    """Observations without bounds, in double precision, and an action in a range of its own."""

    observation_space = Box(-np.inf, np.inf, (2,), np.float64)
    action_space = Box(np.array([2.0]), np.array([5.0]), dtype=np.float64)

    def reset(self, *, seed=None, options=None):
        first, info = super().reset(seed=seed)
        return 100 * first.astype(np.float64), info

    def step(self, action):
        last, *rest = super().step(action - 3.5)
        return 100 * last.astype(np.float64), *rest


class Counts(Cart):
    """Whole numbers as observations."""

    observation_space = Box(-1000, 1000, (2,), np.int64)

    def reset(self, *, seed=None, options=None):
        first, info = super().reset(seed=seed)
        return (100 * first).astype(np.int64), info

    def step(self, action):
        last, *rest = super().step(action)
        return (100 * last).astype(np.int64), *rest


HEALTHY = [
    pytest.param(lambda: gymnasium.make("Pendulum-v1"), id="Pendulum"),
    pytest.param(lambda: gymnasium.make("MountainCarContinuous-v0"), id="MountainCarContinuous"),
    pytest.param(lambda: gymnasium.make("Pendulum-v1", g=1.0, max_episode_steps=20), id="light"),
    pytest.param(
        lambda: gymnasium.wrappers.RescaleAction(
            gymnasium.make("Pendulum-v1"), np.full(1, -1, np.float32), np.ones(1, np.float32)
        ),
        id="wrapped",
    ),
    pytest.param(lambda: gymnasium.wrappers.TimeAwareObservation(gymnasium.make("Pendulum-v1")), id="timed"),
    pytest.param(lambda: gymnasium.wrappers.FlattenObservation(Goals()), id="flattened"),
    *(pytest.param(kind, id=kind.__name__) for kind in (Cart, Falls, Wide, Counts, hosted.Walk, hosted.Linear)),
]


@pytest.mark.parametrize("make", HEALTHY)
def test_a_healthy_environment_has_nothing_to_note_either(make):
    assert moca.check_env(make()) == []


@pytest.mark.parametrize(
    "name",
    ["HalfCheetah-v5", "Hopper-v5", "InvertedPendulum-v5", "InvertedDoublePendulum-v5", "Reacher-v5", "Swimmer-v5"],
)
def test_gymnasiums_mujoco_environments_are_healthy(name, tmp_path, monkeypatch):
    pytest.importorskip("imageio")  # which they want
    monkeypatch.chdir(tmp_path)  # MuJoCo leaves a log
    assert moca.check_env(name, steps=50) == []


def test_parts_are_checked_as_they_are_flattened():
    assert moca.check_env(Gymnasium(Goals, flatten=True)) == moca.check_env(Goals(), flatten=True) == []
    (fault,) = moca.check_env(Goals())
    assert fault.kind == "spaces"
    assert "--set env.flatten=true" in fault.message


# One fault each: (kind, words of the message, environment)

BROKEN = []


def broken(kind, *words):
    """Makes a class one of the broken environments."""

    def add(cls):
        BROKEN.append(pytest.param(kind, words, cls, id=cls.__name__))
        return cls

    return add


@broken("reward-not-finite", "nan as reward at step 60 with actions", "np.clip")
class LateReward(Cart):
    def step(self, action):
        last, reward, *rest = super().step(action)
        return last, np.nan if self.time == 60 else reward, *rest


@broken("reward-not-finite", "-inf as reward at step 1 with actions at the lower bounds", "logarithms")
class EndlessCost(Cart):
    def step(self, action):
        last, _, *rest = super().step(action)
        with np.errstate(divide="ignore"):
            return last, float(np.log(1 + np.clip(action[0], -1, 1))), *rest


@broken("observation-not-finite", "step() returns inf as observation[1] at step 55", "np.clip")
class LateObservation(Cart):
    def step(self, action):
        last, *rest = super().step(action)
        last[1] = np.inf if self.time == 55 else last[1]
        return last, *rest


@broken("observation-not-finite", "reset() returns nan as observation[0] at the start", "roots")
class NoStart(Cart):
    def reset(self, *, seed=None, options=None):
        first, info = super().reset(seed=seed)
        first[0] = np.nan
        return first, info


@broken("observation-shape", "an observation of shape (3,) at step 1", "observation_space has (2,)", "squeeze")
class Longer(Cart):
    def step(self, action):
        last, *rest = super().step(action)
        return np.append(last, 0.0).astype(np.float32), *rest


@broken("observation-dtype", "as float32, which cannot be cast to int32, that of the space", "astype")
class Truncates(Cart):
    observation_space = Box(-9, 9, (2,), np.int32)


@broken("observation-type", "as observation", "np.array(")
class Worded(Cart):
    def reset(self, *, seed=None, options=None):
        return ["left", "slow"], super().reset(seed=seed)[1]


@broken("reward-type", "an array of shape (1,) as reward at step 1", "float(")
class Arrays(Cart):
    def step(self, action):
        last, reward, *rest = super().step(action)
        return last, np.array([reward]), *rest


@broken("terminated-type", "returns 'no', of type str, as terminated at step 1", "True or False")
class Verbal(Cart):
    def step(self, action):
        last, reward, _, *rest = super().step(action)
        return last, reward, "no", *rest


@broken("truncated-type", "of type ndarray, as truncated at step 1", "True or False")
class Listed(Cart):
    def step(self, action):
        *most, _, info = super().step(action)
        return *most, np.array([False]), info


@broken("info-type", "as info at step 1", "{}")
class Uninformed(Cart):
    def step(self, action):
        return *super().step(action)[:4], None


@broken("step-items", "step() returns 4 items at step 1", "terminated, truncated, info", "done")
class Old(Cart):
    def step(self, action):
        last, reward, terminated, truncated, info = super().step(action)
        return last, reward, terminated or truncated, info


@broken("reset-items", "reset() returns array", "the pair observation, info")
class OldReset(Cart):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0]


@broken("reset-signature", "unexpected keyword argument 'seed'", "seed=None, options=None")
class Seedless(Cart):
    def reset(self):
        return super().reset()


@broken("raises", "step() (line ", "test_check_hosted.py) raises ZeroDivisionError", "at step 30 with actions")
class Breaks(Cart):
    def step(self, action):
        result = super().step(action)
        return result if self.time < 30 else result[1 // 0]


@broken("auto-reset", "seems to return the first observation of another", "the last observation")
class Restarts(Falls):
    def step(self, action):
        last, reward, terminated, truncated, info = super().step(action)
        if terminated or truncated:
            last, _ = self.reset()
        return last, reward, terminated, truncated, info


@broken("spaces", "NoSpaces defines no observation_space and no action_space: add observation_space = gymnasium.spa")
class NoSpaces(gymnasium.Env):
    pass


@broken("spaces", "NoActions defines no action_space: add action_space = gymnasium.spaces.Box(…)")
class NoActions(gymnasium.Env):
    observation_space = Cart.observation_space


@broken("spaces", "dimension 0 has low = -inf and high = inf", "TransformAction")
class Boundless(Cart):
    action_space = Box(-np.inf, np.inf, (1,), np.float32)


@broken("spaces", "dimension 1 has low = 1 and high = 1", "give the range")
class Fixed(Cart):
    action_space = Box(np.array([-1.0, 1.0], np.float32), np.array([1.0, 1.0], np.float32))


@broken("spaces", "not Discrete(2)", "MountainCarContinuous-v0")
class Choices(Cart):
    action_space = Discrete(2)


@broken("spaces", "observations are images (uint8, 8×8×3)", "TransformObservation")
class Pictures(Cart):
    observation_space = Box(0, 255, (8, 8, 3), np.uint8)


@pytest.mark.parametrize(("kind", "words", "cls"), BROKEN)
def test_a_fault_is_found_and_no_other(kind, words, cls):
    (fault,) = [fault for fault in moca.check_env(cls()) if fault.severity == "fault"]
    assert fault.kind == kind
    for each in words:
        assert each in fault.message
    assert "\n" not in fault.message


@pytest.mark.parametrize("cls", [Old, Longer, Arrays, LateReward, Verbal, OldReset])
def test_gymnasiums_wrappers_hide_no_fault(cls):
    (expected,) = [fault for fault in moca.check_env(cls()) if fault.severity == "fault"]
    gymnasium.register("MocaPlanted-v0", entry_point=cls, max_episode_steps=150)
    try:
        assert moca.check_env("MocaPlanted-v0") == [expected]
    finally:
        gymnasium.registry.pop("MocaPlanted-v0", None)


# Notes, which do not count


class Aliased(Cart):
    """It returns one array, and changes that."""

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.shown = self.state.copy()
        return self.shown, {}

    def step(self, action):
        last, *rest = super().step(action)
        self.shown[:] = last
        return self.shown, *rest


class Beyond(Cart):
    observation_space = Box(-9.0, np.array([9.0, 0.4], np.float32), (2,), np.float32)


class Numbered(Cart):
    def step(self, action):
        last, reward, terminated, *rest = super().step(action)
        return last, reward, int(terminated), *rest


class Unsaid(Cart):
    def step(self, action):
        *most, _, info = super().step(action)
        return *most, None, info


class Doubled(Cart):
    def step(self, action):
        last, *rest = super().step(action)
        return last.astype(np.float64), *rest


class Vast(Cart):
    observation_space = Box(-1e9, 1e9, (2,), np.float32)

    def step(self, action):
        last, *rest = super().step(action)
        return last * np.array([1, 1e8], np.float32), *rest


class Deaf(Cart):
    def step(self, action):
        return super().step(0 * action)


class Same(Cart):
    def reset(self, *, seed=None, options=None):
        _, info = super().reset(seed=seed)
        self.state = np.zeros(2, np.float32)
        return self.state.copy(), info


class Chance(Cart):
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = np.random.default_rng().uniform(-0.5, 0.5, 2).astype(np.float32)
        return self.state.copy(), {}


class Goes(Cart):
    def __init__(self):
        self.random = np.random.default_rng(0)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = self.random.uniform(-0.5, 0.5, 2).astype(np.float32)
        return self.state.copy(), {}


class Hidden(Cart):
    def step(self, action):
        self.state = self.state + np.random.default_rng().normal(0, 0.1, 2).astype(np.float32)
        return super().step(action)


@pytest.mark.parametrize(
    ("cls", "kind", "words"),
    [
        (Aliased, "aliased", "step() changes the observation that the call before it returned at step 1 with actions"),
        (Beyond, "observation-range", "as observation[1] at"),
        (Numbered, "terminated-type", "returns 0, of type int, as terminated at step 1, which counts as False"),
        (Unsaid, "truncated-type", "returns None, of type NoneType, as truncated at step 1"),
        (Doubled, "observation-dtype", "as float64, but observation_space has float32"),
        (Vast, "scale", "dimension 1 of the observation reaches"),
        (Deaf, "ignores-action", "step() ignores the action"),
        (Same, "same-start", "or for Playground's tasks set env.random_start"),
        (Chance, "ignores-seed", "two resets with seed=0 differ: observation[0] is"),
        (Goes, "unrepeatable", "before and after an episode: observation[0]"),
        (Hidden, "unrepeatable", "give different results at step 1: observation["),
    ],
)
def test_what_training_bears_is_noted(cls, kind, words):
    (note,) = moca.check_env(cls())
    assert (note.kind, note.severity) == (kind, "note")
    assert words in note.message
    quick = refuse_broken(Gymnasium(cls))
    assert [words in each for each in quick] == [True] * (kind not in ("scale", "ignores-action"))  # these take longer


def test_a_value_out_of_range_is_named_with_its_bounds():
    (note,) = moca.check_env(Beyond())
    assert "but observation_space allows -9 to 0.4; widen observation_space" in note.message


def test_training_copies_observations_that_share_memory():
    actions = np.random.default_rng(0).uniform(-1, 1, (30, 2, 1)).astype(np.float32)
    both = [Gymnasium(kind).vector(2) for kind in (Cart, Aliased)]
    np.testing.assert_array_equal(*(vector.reset([1, 2]) for vector in both))
    stepped = [[vector.step(each) for each in actions] for vector in both]
    for one, other in zip(*stepped, strict=True):
        for ours, theirs in zip(one, other, strict=True):
            np.testing.assert_array_equal(ours, theirs)


# Missing values


class Gaps(Cart):
    """Its speed is missing at every other step; each of its parts can be spoilt."""

    missing = np.nan

    def step(self, action):
        last, *rest = super().step(action)
        last[1] = self.missing if self.time % 2 else last[1]
        return last, *rest


class GapsAtFirst(NoStart, Gaps):
    pass


class GapsAndEndless(Gaps):
    missing = np.inf


class GapsAndNoReward(LateReward, Gaps):
    pass


class GapsAndVast(Vast, Gaps):
    pass


def test_missing_values_hide_no_large_ones():
    assert [note.kind for note in moca.check_env(GapsAndVast(), gaps=True)] == ["scale"]


@pytest.mark.parametrize(
    ("cls", "words"),
    [
        (GapsAtFirst, "reset() returns nan as observation[0] at the start"),
        (GapsAndEndless, "step() returns inf as observation[1] at step 1"),
        (GapsAndNoReward, "step() returns nan as reward at step 60"),
    ],
)
def test_with_missing_values_everything_else_is_checked(cls, words):
    assert moca.check_env(Gaps(), gaps=True) == []
    refuse_broken(Gymnasium(Gaps), gaps=True)
    (fault,) = moca.check_env(cls(), gaps=True)
    assert words in fault.message
    with pytest.raises(ConfigError, match="cannot be trained on"):
        refuse_broken(Gymnasium(cls), gaps=True)


# Before a run is spent on it


class Later(Cart):
    """In its second episode, after more steps than a first look would take."""

    steps = 0

    def step(self, action):
        self.steps += 1
        last, reward, *rest = super().step(action)
        return last, np.nan if self.steps == 190 else reward, *rest


@pytest.mark.parametrize("cls", [*(each.values[2] for each in BROKEN if each.values[0] != "spaces"), Later])
def test_training_refuses_every_fault_before_it_compiles(cls, tmp_path, monkeypatch):
    monkeypatch.setattr("moca.envs.check.hosted.PATIENCE", np.inf)
    monkeypatch.setattr(launch, "make_trainer", None)
    config = probes.tiny(env__name="own:Cart", sac__width=8)
    with pytest.raises(
        ConfigError, match=rf"{cls.__name__} cannot be trained on \(moca.check_env may find more\):\n- "
    ):
        moca.train(config, tmp_path / "run", env=cls())
    assert not (tmp_path / "run").exists()
    with pytest.raises(ConfigError, match=r"cannot be trained on"):
        moca.MoCA(cls())  # before it is looked at for the ranges of V


class VeryLate(Cart):
    """Its episodes have 400 steps."""

    def step(self, action):
        last, reward, *_ = super().step(action)
        return last, np.nan if self.time == 301 else reward, False, self.time == 400, {}


def test_a_fault_late_in_an_episode_is_found_before_training(tmp_path, monkeypatch):
    """In the trial that looks for the length of an episode, or, if that is known, by the check."""
    monkeypatch.setattr("moca.envs.check.hosted.PATIENCE", np.inf)
    monkeypatch.setattr(launch, "make_trainer", None)
    assert moca.check_env(VeryLate()) == []
    for agent in (moca.SAC, moca.MoCA):
        with pytest.raises(ConfigError, match=r"VeryLate.* reward that is not finite at or before step 301 of a trial"):
            agent(VeryLate())
    config = probes.tiny(env__name="own:Cart", sac__width=8, env__episode_length=400, train__steps=400)
    with pytest.raises(ConfigError, match="nan as reward at step 301 with actions drawn uniformly"):
        moca.train(config, tmp_path / "run", env=VeryLate())


def test_a_late_fault_is_named_without_ones_that_take_too_long(monkeypatch):
    monkeypatch.setattr("moca.envs.check.hosted.PATIENCE", 0.0)
    assert refuse_broken(Gymnasium(VeryLate), steps=400) == []


def test_the_actions_of_an_endless_episode_are_not_held_all_at_once(monkeypatch):
    """They are those that the check of a short one draws."""
    monkeypatch.setattr("moca.envs.check.hosted.PATIENCE", 0.5)
    assert refuse_broken(Gymnasium(Cart), steps=10**9) == []
    env = Gymnasium(hosted.Walk)
    sequences = action_sequences(env, 30, np.random.default_rng(0))
    drawn = sequences.sequences[sequences.names.index(UNIFORM)]
    np.testing.assert_array_equal(list(_drawn(env, 30)), drawn)


def test_a_check_that_stops_does_not_blame_other_faults(monkeypatch):
    monkeypatch.setattr("moca.envs.check.check_hosted", lambda *given: [][0])
    (fault,) = moca.check_env(Cart())
    assert fault.kind == "unchecked"
    assert "other faults" not in fault.message


def test_a_slow_environment_is_not_kept_waiting(monkeypatch):
    steps = []

    class Slow(Cart):
        def step(self, action):
            steps.append(action)
            return super().step(action)

    monkeypatch.setattr("moca.envs.check.hosted.PATIENCE", 0.0)
    refuse_broken(Gymnasium(Slow))
    assert len(steps) == 3  # the bare one's, one of the first sequence, and the same again


def test_notes_are_printed_once_when_training_starts(tmp_path, capsys):
    config = override(Config(), {"agent": "sac", "train.steps": 40, "env.episode_length": 20, "train.eval_episodes": 1})
    with mock.patch("moca.runs.launch._train"):
        for cls, count in ((Chance, 1), (Cart, 0)):
            moca.train(config, tmp_path / cls.__name__, env=Gymnasium(cls), console=True)
            told = capsys.readouterr().out
            assert told.count("note: two resets with seed=0 differ: observation[0] is") == count
            assert told.count("can be neither repeated nor resumed exactly") == count


def test_strict_raises_and_names_are_known():
    with pytest.raises(ConfigError, match=r"LateReward is not a valid environment:\n- step\(\) returns nan"):
        moca.check_env(LateReward(), strict=True)
    with pytest.raises(ConfigError, match="Did you mean Pendulum-v1"):
        moca.check_env("gymnasium:Pendulun-v1")
    with pytest.raises(ConfigError, match=r"Choices is not a valid environment:\n- actions must be a Box"):
        moca.check_env(Choices(), strict=True)
    with pytest.raises(ConfigError, match=r"CartPole-v1 is not a valid environment:\n- actions must be a Box"):
        moca.check_env("CartPole-v1", strict=True)


def test_the_command(capsys):
    main(["check", "tests.envs.hosted:Ramp", "--steps", "20"])
    said = capsys.readouterr()
    assert said.out.endswith("tests.envs.hosted:Ramp: no fault in 20 steps\n")
    assert said.err == "trying tests.envs.hosted:Ramp with a dozen action sequences of 20 steps …\n"
    with pytest.raises(SystemExit, match="1"):
        main(["check", "tests.envs.test_check_hosted:Spoilt", "--steps", "20"])
    assert "fault: step() returns nan as reward at step 3" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="1"):
        main(["check", "CartPole-v1"])
    assert capsys.readouterr().out.startswith("fault: actions must be a Box of real numbers, not Discrete(2)")
    for name, setting in (("Goals", "env.flatten"), ("Gaps", "sensor.gaps")):  # as a run would be given them
        main(["check", f"tests.envs.test_check_hosted:{name}", "--steps", "20", "--set", f"{setting}=true"])
        assert capsys.readouterr().out.endswith(f"{name}: no fault in 20 steps\n")
    with pytest.raises(SystemExit, match="2"):
        main(["check", "CartPoll-v1"])
    assert "Did you mean CartPole-v1" in capsys.readouterr().err
