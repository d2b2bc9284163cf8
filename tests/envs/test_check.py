"""Environments with one fault each, all of which are found and named; and healthy ones, in which none is."""

from itertools import count
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moca.config import ConfigError
from moca.envs.check import Fault, check_env
from moca.envs.environment import ActionRepeat, Environment, Step
from moca.envs.playground import Playground
from moca.paper.cliff import Ground
from tests import probes
from tests.probes import Drift


def faults(env: Any, **settings: Any) -> list[Fault]:
    return [fault for fault in check_env(env, **settings) if fault.severity == "fault"]


# Healthy ones


class Pole(Environment):
    """A pole that falls over: random starts, a step counter in a dict, and true ends."""

    terminates: bool = eqx.field(static=True, default=True)
    observation_size: int = eqx.field(static=True, default=2)
    action_low: tuple[float, ...] = eqx.field(static=True, default=(-1.0,))
    action_high: tuple[float, ...] = eqx.field(static=True, default=(1.0,))

    def reset(self, key):
        angle = jax.random.uniform(key, (2,), minval=-0.05, maxval=0.05)
        return {"angle": angle, "count": jnp.zeros((), jnp.int32), "first": angle}, angle

    def step(self, state, action):
        angle, speed = state["angle"]
        speed = speed + 0.1 * (2 * jnp.sin(angle) + action[0])
        angle = angle + 0.1 * speed
        moved = jnp.stack([angle, speed])
        ended = jnp.abs(angle) > 0.5
        return state | {"angle": moved, "count": state["count"] + 1}, Step(moved, jnp.cos(angle), ended)


class Arm(Environment):
    """Two asymmetric action dimensions; its state has no name, a Python number and a key in it."""

    terminates: bool = eqx.field(static=True, default=False)
    observation_size: int = eqx.field(static=True, default=3)
    action_low: tuple[float, ...] = eqx.field(static=True, default=(-3.0, 0.0))
    action_high: tuple[float, ...] = eqx.field(static=True, default=(1.0, 0.5))

    def reset(self, key):
        place = jax.random.normal(key, (2,))
        return (place, 0, key), jnp.append(place, 0.0)

    def step(self, state, action):
        place, count, key = state
        key, noise = jax.random.split(key)
        place = 0.9 * place + 0.1 * action + 0.01 * jax.random.normal(noise, (2,))
        observation = jnp.append(place, jnp.sin(count / 10))
        return (place, count + 1.0, key), Step(observation, -jnp.sum(place**2), jnp.array(False))


class Home(Environment):
    """From a fixed place out into a ring of cells; over when back, which is a true end and no restart."""

    terminates: bool = eqx.field(static=True, default=True)
    observation_size: int = eqx.field(static=True, default=1)
    action_low: tuple[float, ...] = eqx.field(static=True, default=(-1.0,))
    action_high: tuple[float, ...] = eqx.field(static=True, default=(1.0,))

    def reset(self, key):
        return jnp.zeros(()), jnp.zeros(1)

    def step(self, state, action):
        state = jnp.clip(state + jnp.sign(action[0]), -4, 4)
        return state, Step(state[None], -jnp.ones(()), state == 0)


class Brittle(Pole):
    """Nothing may be computed with the state after the end."""

    def step(self, state, action):
        state, step = super().step(state, action)
        return state | {"angle": jnp.where(step.terminated, jnp.nan, state["angle"])}, step


class Crash(Pole):
    """The last step is longer than all others, and leads far from where episodes start."""

    def step(self, state, action):
        state, step = super().step(state, action)
        return state, step._replace(observation=step.observation * jnp.where(step.terminated, 10.0, 1.0))


class Thrown(Drift):
    """The last step is longer than all others, but episodes start wherever it may lead."""

    terminates: bool = eqx.field(static=True, default=True)

    def step(self, state, action):
        state = jnp.clip(state + 0.05 * action, -0.9, 0.9)
        ended = jnp.linalg.norm(state) < 0.3
        return state, Step(state - 0.6 * ended, jnp.zeros(()), ended)


class Context(Drift):
    """A bandit that keeps its key: the last observation is the first one, as is right where there is only one."""

    terminates: bool = eqx.field(static=True, default=True)

    def reset(self, key):
        state, observation = super().reset(key)
        return (state, key), observation

    def step(self, state, action):
        return state, Step(state[0], -jnp.sum((state[0] - action) ** 2), jnp.array(True))


HEALTHY = [
    *(case[0] for case in probes.known(0.9)),
    Drift(),
    Pole(),
    Arm(),
    Home(),
    Brittle(),
    Crash(),
    Thrown(),
    Context(),
    Ground(),
    ActionRepeat(Drift(), 1),
    ActionRepeat(Pole(), 3),
    ActionRepeat(probes.Discounted(), 5),
]


@pytest.mark.parametrize("env", HEALTHY, ids=lambda env: type(env).__name__)
def test_a_healthy_environment_has_no_fault(env):
    assert faults(env) == []


@pytest.mark.parametrize("name", ["CartpoleBalance", pytest.param("PendulumSwingup", marks=pytest.mark.slow)])
def test_playgrounds_environments_have_nothing_to_note_either(name):
    assert check_env(Playground(name), steps=30) == []


# One fault each: (kind, word of the fix, environment)

BROKEN: list[Any] = []


def broken(kind: str, fix: str):
    """Makes a class one of the broken environments."""

    def add(cls: type) -> type:
        BROKEN.append(pytest.param(kind, fix, cls, id=cls.__name__))
        return cls

    return add


def field(value: Any) -> Any:
    return eqx.field(static=True, default=value)


@broken("observation-size", "positive int")
class FloatSize(Drift):
    observation_size: float = field(2.0)


@broken("terminates", "True or False")
class EndsUnsaid(Drift):
    terminates: Any = field(None)


@broken("action-bounds", "tuple of numbers")
class NumberBounds(Drift):
    action_low: Any = field(-1.0)


@broken("action-bounds", "one per action dimension")
class UnequalBounds(Drift):
    action_high: tuple[float, ...] = field((1.0, 1.0))


@broken("infinite-bounds", "give the range")
class InfiniteBounds(Drift):
    action_high: tuple[float, ...] = field((float("inf"),))


@broken("empty-bounds", "swap them")
class SwappedBounds(Drift):
    action_low: tuple[float, ...] = field((1.0,))
    action_high: tuple[float, ...] = field((-1.0,))


@broken("missing", "add it to the environment")
class Sizeless:
    terminates, action_low, action_high, action_size = False, (-1.0,), (1.0,), 1
    reset, step = Drift.reset, Drift.step


@broken("action-size", "derive the environment")
class Underived:
    terminates, action_low, action_high, observation_size = False, (-1.0,), (1.0,), 2
    reset, step = Drift.reset, Drift.step


@broken("reset-result", "pair (state, observation)")
class OnlyObserved(Drift):
    def reset(self, key):
        return jax.random.uniform(key, (3,))


@broken("observation-type", "the state first")
class Swapped(Pole):
    def reset(self, key):
        return super().reset(key)[::-1]


@broken("step-result", "Step(observation, reward, terminated)")
class Gymnast(Drift):
    def step(self, state, action):
        state, step = super().step(state, action)
        return step.observation, state, step.reward, step.terminated, {}


@broken("step-result", "Step(observation, reward, terminated)")
class PlainTuple(Drift):
    def step(self, state, action):
        state, step = super().step(state, action)
        return state, tuple(step)


@broken("observation-shape", "observation_size")
class LongObservation(Drift):
    def step(self, state, action):
        state, step = super().step(state, action)
        return state, step._replace(observation=jnp.append(state, 0.0))


@broken("observation-type", "jnp.stack")
class ListObservation(Drift):
    def reset(self, key):
        state, observation = super().reset(key)
        return state, list(observation)


@broken("observation-dtype", "astype(jnp.float32)")
class Counted(Drift):
    def step(self, state, action):
        state, step = super().step(state, action)
        return state, step._replace(observation=(10 * state).astype(jnp.int32))


@broken("observation-dtype", "which JAX truncates to float32")
class Doubled(Drift):
    def reset(self, key):
        return super().reset(key)[0], np.zeros(2)


@broken("float64", "jnp.float32")
class AsksForDouble(Drift):
    def step(self, state, action):
        state, step = super().step(state, action)
        return state, step._replace(reward=step.reward.astype(jnp.float64))


@broken("reward-shape", "squeeze")
class VectorReward(Drift):
    def step(self, state, action):
        state, step = super().step(state, action)
        return state, step._replace(reward=step.reward[None])


@broken("reward-type", "jnp.asarray(x, jnp.float32)")
class PythonReward(Drift):
    def step(self, state, action):
        state, step = super().step(state, action)
        return state, step._replace(reward=1.0)


@broken("terminated-type", "jnp.asarray(x, jnp.bool)")
class PythonEnd(Drift):
    def step(self, state, action):
        state, step = super().step(state, action)
        return state, step._replace(terminated=False)


@broken("terminated-dtype", "astype(jnp.bool)")
class FloatEnd(Pole):
    def step(self, state, action):
        state, step = super().step(state, action)
        return state, step._replace(terminated=step.terminated.astype(jnp.float32))


@broken("state-leaf", "state['name']")
class NamedState(Drift):
    def reset(self, key):
        state, observation = super().reset(key)
        return {"x": state, "name": "start"}, observation


@broken("state-structure", "gains state['speed']")
class GrowingState(Pole):
    def step(self, state, action):
        state, step = super().step(state, action)
        return state | {"speed": step.observation[1]}, step


@broken("state-shape", "state['count']")
class WideningState(Pole):
    def step(self, state, action):
        state, step = super().step(state, action)
        return state | {"count": state["count"][None]}, step


@broken("state-dtype", "state['count']")
class DriftingType(Pole):
    def step(self, state, action):
        state, step = super().step(state, action)
        return state | {"count": state["count"] * 0.5}, step


@broken("python-branch", "jnp.where")
class Branches(Drift):
    def step(self, state, action):
        if state[0] > 0:
            action = -action
        return super().step(state, action)


@broken("numpy-call", "jax.numpy")
class CallsNumpy(Drift):
    def step(self, state, action):
        return super().step(state, jnp.asarray(np.clip(np.asarray(action), -1, 1)))


@broken("python-number", "keep it an array")
class AsksForFloat(Drift):
    def step(self, state, action):
        return super().step(state, action * float(state[0]))


@broken("boolean-index", "jnp.where")
class Masks(Drift):
    def step(self, state, action):
        state, step = super().step(state, action)
        return state, step._replace(reward=state[state > 0].sum())


@broken("in-place", ".at[i].set")
class Assigns(Drift):
    def step(self, state, action):
        state[0] = 0.0
        return super().step(state, action)


@broken("mutates-state", "build a new one")
class Overwrites(Pole):
    def step(self, state, action):
        following, step = super().step(state, action)
        state.update(following)
        return state, step


@broken("self-mutation", "in the state")
class CountsOnSelf(Drift):
    def step(self, state, action):
        self.count = 1
        return super().step(state, action)


class Loose:
    """No equinox module, so that it can be changed."""

    terminates, action_low, action_high, action_size, observation_size = False, (-1.0,), (1.0,), 1, 2
    count: Any = 0
    reset, step = Drift.reset, Drift.step


@broken("self-mutation", "in the state")
class Counter(Loose):
    def step(self, state, action):
        self.count += 1
        return Drift.step(self, state + 0.01 * self.count, action)


MEMORY: dict[str, Any] = {}


@broken("stored-tracer", "keep it in the state")
class Remembers(Drift):
    def reset(self, key):
        MEMORY["goal"] = super().reset(key)[0]
        return super().reset(key)

    def step(self, state, action):
        return super().step(state + MEMORY["goal"], action)


@broken("impure", "differs between calls")
class HiddenNoise(Drift):
    def step(self, state, action):
        return super().step(state + 0.1 * np.random.default_rng().normal(size=2).astype(np.float32), action)


@broken("impure", "not in a callback")
class NoisyCallback(Drift):
    def step(self, state, action):
        noise = jax.pure_callback(
            lambda x: np.random.default_rng().normal(size=x.shape).astype(np.float32),
            jax.ShapeDtypeStruct((2,), jnp.float32),
            state,
            vmap_method="expand_dims",
        )
        return super().step(state + 0.1 * noise.reshape(2), action)


@broken("impure", "modify neither state nor self")
class AddsInPlace(Drift):
    def reset(self, key):
        return np.ones(2, np.float32), super().reset(key)[1]

    def step(self, state, action):
        state += 0.1
        return state, Step(jnp.sin(state), action[0], jnp.array(False))


@broken("jit-differs", "traced")
class TwoFaced(Drift):
    def step(self, state, action):
        return super().step(state if isinstance(state, jax.core.Tracer) else 2 * state, action)


@broken("eager", "only jax.numpy arrays")
class OnlyCompiled(Drift):
    def reset(self, key):
        return np.ones(2, np.float32), super().reset(key)[1]

    def step(self, state, action):
        return super().step(state.at[0].add(0.1), action)


@broken("vmap", "vmap_method")
class Unbatched(Drift):
    def step(self, state, action):
        kept = jax.pure_callback(lambda x: x, jax.ShapeDtypeStruct((2,), jnp.float32), state)
        return super().step(kept, action)


CALLS = count()


@broken("scan", "keep the structure")
class Fickle(Drift):
    def step(self, state, action):
        state, step = super().step(state, action)
        return (state, state) if next(CALLS) > 1 else state, step


@broken("raises", "check callbacks")
class FailingCallback(Drift):
    def step(self, state, action):
        kept = jax.pure_callback(
            lambda x: x / (1 // 0), jax.ShapeDtypeStruct((2,), jnp.float32), state, vmap_method="sequential"
        )
        return super().step(kept, action)


@broken("fixed-key", "the key that it receives")
class OwnKey(Drift):
    def reset(self, key):
        return super().reset(jax.random.key(0))


@broken("observation-not-finite", "at the upper bounds")
class Explodes(Drift):
    def step(self, state, action):
        state = state * (1 + 5 * (action[0] > 0.999))
        return state, Step(state, jnp.ones(()), jnp.array(False))


class Gaps(Drift):
    def step(self, state, action):
        state, step = super().step(state, action)
        return state, step._replace(observation=step.observation.at[0].set(jnp.nan))


def test_missing_values_are_no_fault_on_request():
    assert [fault.kind for fault in check_env(Gaps(), steps=20)] == ["observation-not-finite"]
    assert check_env(Gaps(), steps=20, gaps=True) == []
    assert [fault.kind for fault in faults(Explodes(), gaps=True)] == ["observation-not-finite"]


@broken("reward-not-finite", "guard divisions and roots")
class RootOfNegative(Drift):
    def step(self, state, action):
        state, step = super().step(state, action)
        return state, step._replace(reward=jnp.sqrt(action[0]))


@broken("reward-not-finite", "guard divisions and roots")
class RareStart(Context):
    """Only some episodes show it, so that it takes many."""

    def step(self, state, action):
        state, step = super().step(state, action)
        return state, step._replace(reward=jnp.sqrt(0.99 - state[0][0]))


@broken("reset-not-finite", "guard")
class BadStart(Drift):
    def reset(self, key):
        state, observation = super().reset(key)
        return state, observation.at[0].set(jnp.nan)


@broken("undeclared-end", "set terminates to True")
class SurpriseEnd(Brittle):
    terminates: bool = field(False)


@broken("raises", "ZeroDivisionError")
class Raises(Drift):
    def step(self, state, action):
        return super().step(state, action / (1 // 0))


@broken("raises", "reset()")
class TakesNothing(Drift):
    def reset(self):
        return super().reset(jax.random.key(0))


class Cached(Pole):
    """Starts again by itself from that of the same episode first state, as Brax's wrapper does."""

    def step(self, state, action):
        following, step = super().step(state, action)
        following["angle"] = jnp.where(step.terminated, state["first"], following["angle"])
        return following, step._replace(observation=following["angle"])


class Keyed(Pole):
    """Starts again by itself with a key from the state; starts lie wherever ends do."""

    def reset(self, key):
        key, draw = jax.random.split(key)
        angle = jax.random.uniform(draw, (2,), minval=-3, maxval=3) * jnp.array([0.17, 1.0])
        return {"angle": angle, "count": jnp.zeros((), jnp.int32), "key": key}, angle

    def step(self, state, action):
        key, draw = jax.random.split(state["key"])
        following, step = super().step(state, action)
        fresh, observation = self.reset(draw)
        following = jax.tree.map(lambda a, b: jnp.where(step.terminated, a, b), fresh, following | {"key": key})
        return following, step._replace(observation=jnp.where(step.terminated, observation, step.observation))


class Jumps(Pole):
    """Starts again by itself at one fixed place."""

    def reset(self, key):
        return {"angle": jnp.zeros(2), "count": jnp.zeros((), jnp.int32)}, jnp.zeros(2)

    def step(self, state, action):
        following, step = super().step(state, action)
        following["angle"] = jnp.where(step.terminated, 0.0, following["angle"])
        return following, step._replace(observation=following["angle"])


BROKEN += [
    pytest.param("auto-reset", sign, cls, id=cls.__name__)
    for cls, sign in [(Cached, "that of the same episode"), (Keyed, "a key from the state"), (Jumps, "jumps back")]
]


@pytest.mark.parametrize(("kind", "fix", "cls"), BROKEN)
def test_a_fault_is_found_and_no_other(kind, fix, cls):
    (fault,) = faults(cls())
    assert fault.kind == kind
    assert fix in fault.message
    assert "\n" not in fault.message


# Notes, which do not count


class Deaf(Drift):
    def step(self, state, action):
        return super().step(state, 0 * action)


class HalfDeaf(Arm):
    def step(self, state, action):
        return super().step(state, action.at[1].set(0.25))


class Clips(Arm):
    def step(self, state, action):
        return super().step(state, jnp.clip(action, -1, 1))


class Vast(Drift):
    def step(self, state, action):
        state, step = super().step(state, action)
        return state, step._replace(observation=state * jnp.array([1.0, 1e9]))


class FrozenNoise(Drift):
    def step(self, state, action):
        return super().step(state + 0.1 * jax.random.normal(jax.random.key(0), (2,)), action)


class Patient(Drift):
    terminates: bool = field(True)


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        (Deaf(), ["ignores-action"]),
        (HalfDeaf(), ["ignores-action"]),
        (Clips(), ["flat-bounds"]),
        (Vast(), ["scale"]),
        (FrozenNoise(), ["fixed-key"]),
        (Patient(), ["never-ends"]),
        (probes.Endless(), ["same-start", "ignores-action"]),
        (Pole(), []),
        (Arm(), []),
    ],
    ids=lambda value: "" if isinstance(value, list) else type(value).__name__,
)
def test_what_is_seldom_meant_is_noted(env, expected):
    found = check_env(env)
    assert [fault.kind for fault in found] == expected
    assert all(fault.severity == "note" for fault in found)


def test_a_note_says_which_dimension_and_which_bound():
    assert "dimension 1;" in check_env(HalfDeaf())[0].message
    (note,) = check_env(Clips())
    assert "at the lower bounds" in note.message
    assert "(dimension 0)" in note.message


# The function itself


class Several(Drift):
    observation_size: Any = field("two")
    terminates: Any = field(0)
    action_low: tuple[float, ...] = field((1.0,))


def test_all_faults_of_a_kind_of_check_are_listed_at_once():
    assert [fault.kind for fault in check_env(Several())] == ["observation-size", "terminates", "empty-bounds"]


def test_strict_raises_all_faults_in_one_error_and_lets_notes_pass():
    with pytest.raises(
        ConfigError, match=r"Several.*\n- observation_size is 'two'.*\n- terminates is 0.*\n- action_low"
    ):
        check_env(Several(), strict=True)
    assert [fault.kind for fault in check_env(Deaf(), strict=True)] == ["ignores-action"]


def test_faults_come_before_notes_and_read_as_a_line():
    class Both(Deaf):
        def step(self, state, action):
            state, step = super().step(state, action)
            return state, step._replace(reward=jnp.sqrt(state[0] - 9))

    found = check_env(Both())
    assert [str(fault).split(":")[0] for fault in found] == ["fault", "note"]
    assert str(found[1]) == "note: step() ignores the action; use it, or remove it from the bounds [ignores-action]"


def test_a_class_is_no_environment():
    (fault,) = check_env(Drift)
    assert fault.kind == "class"
    assert "Drift()" in fault.message


@pytest.mark.parametrize("env", [None, 3, object(), jnp.ones])
def test_anything_at_all_can_be_checked(env):
    assert {fault.kind for fault in check_env(env)} == {"missing"}


def test_an_exception_names_the_function_the_line_and_itself_in_one_line():
    class Talkative(Drift):
        def step(self, state, action):
            raise RuntimeError("first line\nsecond line")

    (fault,) = check_env(Talkative())
    line = Talkative.step.__code__.co_firstlineno + 1
    assert fault.message.startswith(f"step() (line {line} of test_check.py) raises RuntimeError: first line;")


def test_the_same_seed_finds_the_same(capsys):
    assert check_env(Explodes(), seed=3) == check_env(Explodes(), seed=3)
    assert capsys.readouterr() == ("", "")


def test_an_end_is_found_wherever_the_steps_lead():
    class Late(Drift):
        def reset(self, key):
            state, observation = super().reset(key)
            return (state, 0), observation

        def step(self, state, action):
            following, step = super().step(state[0], action)
            return (following, state[1] + 1), step._replace(terminated=state[1] == 50)

    assert faults(Late(), steps=50) == []
    (fault,) = faults(Late(), steps=51)
    assert "at step 51 " in fault.message


def test_no_steps_are_refused():
    with pytest.raises(ConfigError, match="at least 1"):
        check_env(Drift(), steps=0)
