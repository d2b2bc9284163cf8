"""Playground's tasks of the control suite without their physics.

A task is Python code that calls MJX in two methods, `reset` and `step`. Here they run with a
stand-in for MJX, which notes the quantities of the physics that the task reads. What is left are
programs for the first state, the first observation, and the observation and reward after a step, as
functions of these quantities. Whoever calls the programs provides the physics.
"""

from collections.abc import Callable
from functools import cache
from types import FunctionType, SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, UInt32

from moca.config import ConfigError
from moca.devices import on_cpu
from moca.envs.environment import Described, bounds_of, drawn_start, vector
from moca.envs.playground import LOADING, load

Given = Callable[[str], Any]  # returns a quantity of the physics by its name
SET = ("qpos", "qvel", "ctrl", "act", "mocap_pos", "mocap_quat")  # what `make_data` can be given


class Beginning(NamedTuple):
    """The beginning of an episode, before its physics."""

    key: Key[Array, ""]
    state: dict[str, Array]  # the quantities that the task sets
    action: Float[Array, "act"]  # of a random start
    steps: Int[Array, ""]  # for which it is held


class SuiteTask:
    """A task of the control suite, with programs for many episodes, on a CPU.

    Attributes:
        env: The task in Playground.
        facts: Its spaces.
        fields: The quantities that it reads; rows hold them one after another.
        settling: The number of physics steps without an action that end a reset.
        begin: Returns beginnings, from seeds and the most steps of a random start.
        settle: Returns the quantities that a reset sets after its physics, and first observations,
            from keys and rows.
        judge: Returns observations and rewards after a step, from actions and rows; NaN if any
            quantity in a row is, since a reward of comparisons would not show it.
    """

    def __init__(self, name: str) -> None:
        with LOADING:
            self.env = load(name)
        import mujoco  # after Playground, for which it is told how to render

        data, self._shapes = mujoco.MjData(self.env.mj_model), dict[str, tuple[int, ...]]()

        def noted(name: str) -> Array:
            if not isinstance(getattr(data, name), np.ndarray):  # its copy would never change
                raise TypeError(f"{name} of the physics is not an array")
            found = jnp.asarray(quantity(data, name), jnp.float32)
            self._shapes[name] = found.shape
            return found

        actions = np.asarray(self.env.mj_model.actuator_ctrlrange)
        physics = _Physics(noted)
        try:
            jax.eval_shape(lambda key: physics.within(self.env.reset)(key).obs, jax.random.key(0))
            size = jax.eval_shape(lambda action: _after(self.env, noted, action)[0], actions[:, 0]).shape[0]
        except Exception as error:  # code of Playground's, which may be of another release
            raise ConfigError(
                f"env.physics = mujoco does not fit {name} of this release of Playground "
                f"({type(error).__name__}: {error}): leave it out"
            ) from error
        low, high = bounds_of(actions[:, 0], actions[:, 1], (len(actions),), name)
        self.facts = Described(observation_size=size, action_low=low, action_high=high, terminates=False)
        self.fields, self.settling = tuple(self._shapes), physics.settling
        self.begin = on_cpu(jax.vmap(self._begin, (0, None)))
        self.settle = on_cpu(jax.vmap(self._settle))
        self.judge = on_cpu(jax.vmap(self._judge))

    def _begin(self, seed: UInt32[Array, ""], most: Int[Array, ""]) -> Beginning:
        key = jax.random.key(seed)
        later, action, steps = drawn_start(self.facts, key, most)
        key = jnp.where(most > 0, later, key)
        physics = _Physics(lambda name: jnp.zeros(self._shapes[name]))  # what comes after it is not used here
        physics.within(self.env.reset)(key)
        return Beginning(key, physics.first, action, steps)

    def _settle(self, key: Key[Array, ""], row: Float[Array, "row"]) -> tuple[dict[str, Array], Float[Array, "obs"]]:
        state = _Physics(self._given(row)).within(self.env.reset)(key)
        return jax.tree.map(jnp.asarray, state.data.changed), vector(state.obs)

    def _judge(
        self, action: Float[Array, "act"], row: Float[Array, "row"]
    ) -> tuple[Float[Array, "obs"], Float[Array, ""]]:
        missing = jnp.isnan(row).any()
        found = _after(self.env, self._given(row), action)
        return jax.tree.map(lambda values: jnp.where(missing, jnp.nan, values), found)

    def _given(self, row: Float[Array, "row"]) -> Given:
        """Returns the quantities in a row by name."""
        ends = np.cumsum([np.prod(shape, dtype=int) for shape in self._shapes.values()])
        parts = zip(self._shapes.items(), jnp.split(row, ends[:-1]), strict=True)
        return {name: part.reshape(shape) for (name, shape), part in parts}.__getitem__


task = cache(SuiteTask)  # by name, so that all environments of a task share its programs


def quantity(data: Any, name: str) -> np.ndarray:
    """Returns a quantity of MuJoCo's data in MJX's shape, a view of it if it is an array."""
    found = np.asarray(getattr(data, name))
    return found.reshape(-1, 3, 3) if name.endswith("mat") else found


def _after(env: Any, given: Given, action: Float[Array, "act"]) -> tuple[Float[Array, "obs"], Float[Array, ""]]:
    """Returns the observation and the reward of a step whose physics has already been computed."""
    before = SimpleNamespace(data=_Data(given), info={}, metrics={})  # which the tasks of the suite do not read
    after = _Physics(given).within(env.step)(before, action)
    return vector(after.obs), jnp.asarray(after.reward, jnp.float32)


class _Data:
    """Stands in for MJX's data: what was set, or else what the physics gave."""

    def __init__(self, given: Given, changed: dict[str, Any] | None = None) -> None:
        self._given, self.changed = given, changed or {}

    def __getattr__(self, name: str) -> Any:
        return self.changed[name] if name in self.changed else self._given(name)

    def replace(self, **changes: Any) -> "_Data":
        return _Data(self._given, self.changed | changes)


class _Physics:
    """Stands in for MJX: its steps return quantities that are given."""

    def __init__(self, given: Given) -> None:
        self._given, self.settling = given, 0
        self.first: dict[str, Any] = {}  # what a reset sets before the physics

    def make_data(self, model: Any, **values: Any) -> _Data:
        return _Data(self._given, {name: values[name] for name in SET if values.get(name) is not None})

    def forward(self, model: Any, data: _Data) -> _Data:
        self.first = data.changed
        return _Data(self._given)

    def step(self, model: Any, data: _Data, action: Any, n_substeps: int = 1) -> _Data:
        self.settling = n_substeps
        return _Data(self._given)

    def within(self, method: Any) -> Callable:
        """Returns a task's method as a function that calls this physics in place of MJX."""
        function, known = method.__func__, method.__func__.__globals__
        others = {
            "mjx_env": vars(known["mjx_env"]) | {"make_data": self.make_data, "step": self.step},
            "mjx": vars(known["mjx"]) | {"forward": self.forward},
        }
        others = {name: SimpleNamespace(**module) for name, module in others.items()}
        copied = FunctionType(function.__code__, known | others, closure=function.__closure__)
        return lambda *args: copied(method.__self__, *args)
