"""The interface of environments, and the noise between environment and agent [App. A].

An environment is two pure functions:

    state, observation = env.reset(key)
    state, step = env.step(state, action)

Environments have no time limit: the loop truncates episodes, and does not treat that as a
termination.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from moca import config


class Step(NamedTuple):
    """The result of one action."""

    observation: Float[Array, "obs"]  # of the next state, also if that state is the last
    reward: Float[Array, ""]
    terminated: Bool[Array, ""]  # the task itself ended, and there are no further rewards


class Spaces(eqx.Module):
    """The facts about an environment that an agent needs."""

    observation_size: eqx.AbstractVar[int]
    action_low: eqx.AbstractVar[tuple[float, ...]]
    action_high: eqx.AbstractVar[tuple[float, ...]]
    terminates: eqx.AbstractVar[bool]  # False promises that `terminated` is never true

    @property
    def action_size(self) -> int:
        """Number of action dimensions."""
        return len(self.action_low)

    @property
    def title(self) -> str:
        """The name of the environment's class, for messages."""
        return type(self).__name__

    @property
    def observation_names(self) -> tuple[str, ...]:
        """Short names of the observed dimensions, for pictures; empty if they have none."""
        return ()

    @property
    def history(self) -> Any:
        """The `History` that observations are made of, or None if they are single observations."""
        return None

    @property
    def reward_function(self) -> Any:
        """The reward as a `moca.reward.KnownReward`, or None: planning agents then learn it.

        It is a function of the observation, without noise, before a step and of the action, in
        [−1, 1].
        """
        return None

    @property
    def measured_size(self) -> int:
        """Number of dimensions that the sensor measures."""
        return self.observation_size if self.history is None else self.history.size

    def to_bounds(self, action: Float[Array, "*n act"]) -> Float[Array, "*n act"]:
        """Maps an action from [−1, 1] to the environment's bounds."""
        low, high = jnp.array(self.action_low), jnp.array(self.action_high)
        return low + (action + 1) / 2 * (high - low)

    def from_bounds(self, action: Float[Array, "*n act"]) -> Float[Array, "*n act"]:
        """Maps an action from the environment's bounds to [−1, 1]."""
        low, high = jnp.array(self.action_low), jnp.array(self.action_high)
        return 2 * (action - low) / (high - low) - 1


class Described(Spaces):
    """The facts as fields, for an environment that learns them when it is made."""

    observation_size: int = eqx.field(static=True)
    action_low: tuple[float, ...] = eqx.field(static=True)
    action_high: tuple[float, ...] = eqx.field(static=True)
    terminates: bool = eqx.field(static=True)


class Wrapper(Described):
    """The facts about an environment around another one, whose actions and ends are its own."""

    inner: Any

    def __init__(self, inner: Spaces, observation_size: int) -> None:
        self.inner, self.observation_size, self.terminates = inner, observation_size, inner.terminates
        self.action_low, self.action_high = inner.action_low, inner.action_high


class Environment(Spaces):
    """A pure environment, so that a whole run compiles into one program.

    All randomness comes from `key`.
    """

    @abstractmethod
    def reset(self, key: Key[Array, ""]) -> tuple[Any, Float[Array, "obs"]]:
        """Returns a first state, and its observation."""

    @abstractmethod
    def step(self, state: Any, action: Float[Array, "act"]) -> tuple[Any, Step]:
        """Returns the next state, and the result of the action."""


class ActionRepeat(Wrapper, Environment):
    """Repeats each action `times` times; rewards add up, and a termination ends the repetition."""

    times: int = eqx.field(static=True)

    def __init__(self, inner: Environment, times: int) -> None:
        super().__init__(inner, inner.observation_size)
        self.times = times

    @property
    def reward_function(self) -> Any:
        return self.inner.reward_function if self.times == 1 else None  # of several steps, the rewards are added

    def reset(self, key: Key[Array, ""]) -> tuple[Any, Float[Array, "obs"]]:
        return self.inner.reset(key)

    def step(self, state: Any, action: Float[Array, "act"]) -> tuple[Any, Step]:
        def once(carry: tuple[Any, Step], _: None) -> tuple[tuple[Any, Step], None]:
            state, step = carry
            next_state, after = self.inner.step(state, action)
            moved = (next_state, after._replace(reward=step.reward + after.reward))
            if not self.inner.terminates:
                return moved, None
            return jax.tree.map(lambda a, b: jnp.where(step.terminated, a, b), carry, moved), None

        shapes = jax.eval_shape(self.inner.step, state, action)[1]
        nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        # On a CPU a second copy of the physics takes seconds to compile, and is not faster.
        unroll = 1 if jax.default_backend() == "cpu" else 2
        return jax.lax.scan(once, (state, nothing), length=self.times, unroll=unroll)[0]


def drawn_start(
    spaces: Spaces, key: Key[Array, ""], most: int | Int[Array, ""]
) -> tuple[Key[Array, ""], Float[Array, "act"], Int[Array, ""]]:
    """Returns the key for what follows, a random action, and for how many steps to hold it."""
    key, action_key, count_key = jax.random.split(key, 3)
    action = spaces.to_bounds(jax.random.uniform(action_key, (spaces.action_size,), minval=-1))
    return key, action, jax.random.randint(count_key, (), 0, most + 1)


class RandomStart(Wrapper, Environment):
    """Begins each episode with a random action, held for up to `most` steps, that nobody sees."""

    most: int = eqx.field(static=True)

    def __init__(self, inner: Environment, most: int) -> None:
        super().__init__(inner, inner.observation_size)
        self.most = most

    @property
    def reward_function(self) -> Any:
        return self.inner.reward_function

    def reset(self, key: Key[Array, ""]) -> tuple[Any, Float[Array, "obs"]]:
        key, action, count = drawn_start(self, key, self.most)

        def once(before: tuple[Any, Array], number: Array) -> tuple[tuple[Any, Array], None]:
            state, step = self.inner.step(before[0], action)
            go_on = (number < count) & ~step.terminated  # an episode cannot begin with its end
            return jax.tree.map(lambda a, b: jnp.where(go_on, a, b), (state, step.observation), before), None

        return jax.lax.scan(once, self.inner.reset(key), jnp.arange(self.most))[0]

    def step(self, state: Any, action: Float[Array, "act"]) -> tuple[Any, Step]:
        return self.inner.step(state, action)


def vector_size(observation: Any, name: str) -> int:
    """Returns the size of the vector that `vector` makes of an observation.

    Raises if it is not an array.

    Args:
        observation: An observation, or its shape. In a dictionary, the entry `state` is used.
        name: The name of the environment, for the message.
    """
    shown: Any = observation.get("state") if isinstance(observation, Mapping) else observation
    if not hasattr(shown, "shape"):
        said = ", ".join(observation) if isinstance(observation, Mapping) else type(observation).__name__
        raise config.ConfigError(
            f"observations of {name} must be an array, or a dictionary with an array named state, but are {said}: "
            "wrap the environment so that it returns a vector"
        )
    return int(np.prod(shown.shape))


def vector(observation: Any) -> Float[Array, "obs"]:
    """Returns an observation as a vector; from a dictionary, the entry `state` is used."""
    shown = observation["state"] if isinstance(observation, Mapping) else observation
    return jnp.ravel(jnp.asarray(shown, jnp.float32))


def bounds_of(low: Any, high: Any, shape: Any, name: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Returns lower and upper bounds of actions, per dimension.

    Raises if they are infinite or equal.
    """
    lows, highs = (np.broadcast_to(np.asarray(bound, np.float64), shape).ravel() for bound in (low, high))
    if not (np.isfinite(lows).all() and np.isfinite(highs).all() and (lows < highs).all()):
        raise config.ConfigError(
            f"actions of {name} must have finite bounds, low below high, not {lows.tolist()} and {highs.tolist()}"
        )
    return tuple(lows.tolist()), tuple(highs.tolist())


Level = Float[Array, ""]
Levels = Level | Float[Array, "obs"]  # of all dimensions, or of each


def homoscedastic(
    sigma: Levels, sigma_min: Level, scales: tuple[float, ...], observation: Float[Array, "*n obs"]
) -> Levels:
    """σ for every state."""
    return sigma


def state_norm(
    sigma: Levels, sigma_min: Level, scales: tuple[float, ...], observation: Float[Array, "*n obs"]
) -> Float[Array, "*n obs"] | Float[Array, "*n 1"]:
    """σ_min + (σ − σ_min) clip(‖s ⊘ s_max‖ / m_max, 0, 1) [App. A.2].

    The norm leaves out dimensions with an infinite scale, and m_max² is the number of the others.
    """
    inverse = [1 / scale for scale in scales]
    counted = sum(scale > 0 for scale in inverse)
    norm = jnp.linalg.norm(observation * jnp.array(inverse, observation.dtype), axis=-1, keepdims=True)
    return sigma_min + (sigma - sigma_min) * jnp.clip(norm / math.sqrt(counted), 0, 1)


class Noise(eqx.Module):
    """Gaussian noise on observations (not on physics and rewards) and on executed actions.

    One draw per time step is used as s′ and as the next s [choice]. Noise that depends on the state
    is constant if σ_min = σ, so that runs with either kind can share a program.

    It is also the sensor without other faults: see `moca.envs.sensors`.
    """

    sigma: Levels
    sigma_min: Level
    action: Level  # standard deviation of the disturbance, in units of half the action range
    scales: tuple[float, ...] = eqx.field(static=True)
    formula: Callable[..., Levels] = eqx.field(static=True)  # what was registered for the kind of noise

    def deviation(self, observation: Float[Array, "*n obs"]) -> Float[Array, "*n obs"]:
        """σ(s) of each dimension."""
        return jnp.broadcast_to(self.formula(self.sigma, self.sigma_min, self.scales, observation), observation.shape)

    def __call__(self, observation: Float[Array, "obs"], normal: Float[Array, "obs"]) -> Float[Array, "obs"]:
        """s̃ = s + σ(s) ε for a standard normal ε [App. A.1]."""
        return observation + self.deviation(observation) * normal

    def draw(self, key: Key[Array, ""], observation_size: int) -> Any:
        """Returns further random numbers of one sample: none."""

    def draw_many(self, key: Key[Array, ""], count: int, observation_size: int) -> Any:
        """Returns those of many samples, along a leading axis."""

    def init(self, observation: Float[Array, "obs"], normal: Float[Array, "obs"]) -> tuple[Any, Float[Array, "obs"]]:
        """Returns the sensor's state and the measurement at the start of an episode."""
        return None, self(observation, normal)

    def measure(
        self, state: Any, observation: Float[Array, "obs"], normal: Float[Array, "obs"], draws: Any
    ) -> tuple[Any, Float[Array, "obs"]]:
        """Returns the sensor's state and the measurement after one more step."""
        return state, self(observation, normal)

    def disturb(self, spaces: Spaces, action: Float[Array, "act"], normal: Float[Array, "act"]) -> Float[Array, "act"]:
        """Returns the executed action: the chosen one plus a disturbance, clipped to the bounds."""
        low, high = jnp.array(spaces.action_low), jnp.array(spaces.action_high)
        return jnp.clip(action + self.action * (high - low) / 2 * normal, low, high)


def refuse_other_count(name: str, numbers: Sequence[Any], observation_size: int) -> None:
    """Raises unless a setting has one number per observed dimension."""
    if len(numbers) != observation_size:
        raise config.ConfigError(
            f"{name} has {len(numbers)} numbers, but there are {observation_size} observed dimensions"
        )


def each(name: str, numbers: Sequence[Any], observation_size: int) -> Float[Array, "obs"]:
    """Returns a setting with one number per observed dimension as an array.

    Raises if their number differs.
    """
    refuse_other_count(name, numbers, observation_size)
    return jnp.stack([jnp.asarray(number, jnp.float32) for number in numbers])


def make_noise(settings: config.NoiseConfig, observation_size: int) -> Noise:
    """Returns the noise for these settings and this observation size."""
    kind = config.NOISES[settings.kind]
    if kind.scaled:
        refuse_other_count("noise.scales", settings.scales, observation_size)
    levels = (settings.sigma, settings.sigma_min, settings.action)
    sigma, sigma_min, action = (jnp.asarray(level, jnp.float32) for level in levels)
    if settings.sigmas:
        sigma = each("noise.sigmas", settings.sigmas, observation_size)
    return Noise(sigma, sigma_min, action, settings.scales if kind.scaled else (), kind.load())
