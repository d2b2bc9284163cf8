"""The sensor between environment and agent: noise, bias, stuck and dropped samples, delay, a mask.

A `Sensor` turns the environment's observations into what the agent measures, and keeps its memory
in a `SensorState`. Without faults it is the `Noise` alone, and remembers nothing. NaN marks a
missing sample. The order is that of a real sensor: bias and noise are added to the observation, a
dimension may be stuck at its last value, the sample may be lost, and what is left arrives late. The
mask comes before all of this: dimensions that are not observed do not leave the environment
(`Masked`).

The first sample of an episode is complete, and arrives at once [choice]: an agent must begin
somewhere. Until the next one arrives, a delayed sensor shows the first.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from moca.config import Config, ConfigError, is_off
from moca.envs.environment import Environment, Level, Noise, Spaces, Step, Wrapper, each, make_noise
from moca.envs.history import History
from moca.envs.host import HostEnvironment, HostWrapper, Outcome, Vector

OWN_DRAWS = 0x5E45  # folded into a key whose other uses are splits into a few keys


class SensorDraws(NamedTuple):
    """The random numbers of one sample, uniform in [0, 1); None for faults that are off."""

    drop: Float[Array, ""] | None
    stick: Float[Array, "obs"] | None


class SensorState(NamedTuple):
    """The memory of a sensor; None for what it does not need."""

    dropped: Int[Array, ""] | None = None  # the number of samples that the current dropout still lasts
    stuck: Int[Array, "obs"] | None = None  # and each stuck dimension
    last: Float[Array, "obs"] | None = None  # the last sample, which stuck dimensions repeat
    line: Float[Array, "delay obs"] | None = None  # the samples on their way, the oldest first
    noise: Float[Array, "n obs"] | None = None  # of the last samples, the newest first, if the state has a history


class Sensor(Noise):
    """Noise and further faults: turns observations into measurements, with a memory."""

    bias: Float[Array, "obs"] | None
    drop: Level | None
    stick: Level | None
    drop_steps: int = eqx.field(static=True)
    stick_steps: int = eqx.field(static=True)
    delay: int = eqx.field(static=True)
    gaps: bool = eqx.field(static=True)  # whether NaN in an observation of the environment is a missing value
    history: History | None = eqx.field(static=True)

    def __call__(self, observation: Float[Array, "obs"], normal: Float[Array, "obs"]) -> Float[Array, "obs"]:
        """Returns the observation with noise and bias; of a history, only in its newest part."""
        size = len(observation) if self.history is None else self.history.size
        newest, rest = observation[:size], observation[size:]
        known = jnp.where(jnp.isnan(newest), 0, newest) if self.gaps else newest
        sample = super().__call__(known, normal[:size])
        sample = sample if self.bias is None else sample + self.bias
        sample = jnp.where(jnp.isnan(newest), jnp.nan, sample) if self.gaps else sample
        return sample if self.history is None else jnp.concatenate([sample, rest])

    def draw(self, key: Key[Array, ""], observation_size: int) -> SensorDraws:
        """Returns the random numbers of one sample.

        Other random numbers may be drawn from the same key, if it is split into fewer than
        `OWN_DRAWS` keys.
        """
        drop_key, stick_key = jax.random.split(jax.random.fold_in(key, OWN_DRAWS))
        return SensorDraws(
            None if self.drop is None else jax.random.uniform(drop_key),
            None if self.stick is None else jax.random.uniform(stick_key, (observation_size,)),
        )

    def draw_many(self, key: Key[Array, ""], count: int, observation_size: int) -> SensorDraws:
        keys = jax.random.split(jax.random.fold_in(key, OWN_DRAWS), count)
        return jax.vmap(lambda each: self.draw(each, observation_size))(keys)

    def init(
        self, observation: Float[Array, "obs"], normal: Float[Array, "obs"]
    ) -> tuple[SensorState, Float[Array, "obs"]]:
        (sample, noise), sticks = self._sample(observation, normal, None), self.stick is not None
        return SensorState(
            None if self.drop is None else jnp.zeros((), jnp.int32),
            jnp.zeros(sample.shape, jnp.int32) if sticks else None,
            sample if sticks else None,
            jnp.tile(sample, (self.delay, 1)) if self.delay else None,
            noise,
        ), sample

    def _sample(
        self, observation: Float[Array, "obs"], normal: Float[Array, "obs"], noise: Float[Array, "n size"] | None
    ) -> tuple[Float[Array, "obs"], Float[Array, "n size"] | None]:
        """Returns a sample, and the noise in it and in earlier samples that are part of it.

        In the first of an episode, all have the same noise.
        """
        sample = self(observation, normal)
        if self.history is None:
            return sample, None
        error = (sample - observation)[: self.history.size]
        before = jnp.tile(error, (self.history.length, 1)) if noise is None else noise
        return observation + self.history.noise(error, before), jnp.concatenate([error[None], before[:-1]])

    def measure(
        self, state: SensorState, observation: Float[Array, "obs"], normal: Float[Array, "obs"], draws: SensorDraws
    ) -> tuple[SensorState, Float[Array, "obs"]]:
        sample, noise = self._sample(observation, normal, state.noise)
        state = state._replace(noise=noise)
        if self.stick is not None:
            stuck, lasting = _lasting(state.stuck, draws.stick, self.stick, self.stick_steps)
            sample = jnp.where(stuck, cast(Array, state.last), sample)
            state = state._replace(stuck=lasting, last=sample)
        if self.drop is not None:
            if not self.gaps:  # NaN in an observation stays an error, and is not taken for a dropout
                sample = jnp.where(jnp.isnan(sample), jnp.inf, sample)
            dropped, lasting = _lasting(state.dropped, draws.drop, self.drop, self.drop_steps)
            sample = jnp.where(dropped, jnp.nan, sample)
            state = state._replace(dropped=lasting)
        if self.delay:
            line = jnp.concatenate([cast(Array, state.line), sample[None]])
            state, sample = state._replace(line=line[1:]), line[0]
        return state, sample


def _lasting(left: Any, uniform: Any, probability: Level, steps: int) -> tuple[Array, Array]:
    """Returns whether a fault is present now, and for how many more samples.

    Unless one lasts, a fault begins with that probability.
    """
    left = jnp.where((left == 0) & (uniform < probability), steps, left)
    return left > 0, jnp.maximum(left - 1, 0)


def make_sensor(config: Config, env: Spaces) -> Noise:
    """Returns the sensor for these settings and this environment, already masked.

    Without faults it is the noise alone.
    """
    settings, size = config.sensor, env.measured_size
    noise = make_noise(config.noise, size)
    if not (settings.bias or settings.gaps or settings.remembers):
        return noise
    drop, stick = (None if is_off(p) else jnp.asarray(p, jnp.float32) for p in (settings.drop, settings.stick))
    return Sensor(
        **{field.name: getattr(noise, field.name) for field in dataclasses.fields(noise)},
        bias=each("sensor.bias", settings.bias, size) if settings.bias else None,
        drop=drop,
        stick=stick,
        drop_steps=settings.drop_steps,
        stick_steps=settings.stick_steps,
        delay=settings.delay,
        gaps=settings.gaps,
        history=env.history,
    )


def may_miss(config: Config) -> bool:
    """Returns True if a measurement may be missing.

    With a delay and a filter, those of the first steps of an episode are: nothing has arrived. With
    a history and a filter, only its newest part is measured.
    """
    sensor = config.sensor
    late_or_partial = sensor.delay > 0 or sensor.history > 0
    return sensor.gaps or not is_off(sensor.drop) or (config.belief.filter and late_or_partial)


class Masked(Wrapper, Environment):
    """Hides all but some dimensions of an environment's observations."""

    dimensions: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, inner: Environment, dimensions: tuple[int, ...]) -> None:
        super().__init__(inner, _count(inner, dimensions))
        self.dimensions = dimensions

    def reset(self, key: Key[Array, ""]) -> tuple[Any, Float[Array, "obs"]]:
        state, observation = self.inner.reset(key)
        return state, observation[np.array(self.dimensions)]

    def step(self, state: Any, action: Float[Array, "act"]) -> tuple[Any, Step]:
        state, step = self.inner.step(state, action)
        return state, step._replace(observation=step.observation[np.array(self.dimensions)])


class MaskedHost(HostWrapper):
    """Hides dimensions of an environment on the host."""

    dimensions: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, inner: HostEnvironment, dimensions: tuple[int, ...]) -> None:
        super().__init__(inner, _count(inner, dimensions))
        self.dimensions = dimensions

    def vector(self, count: int, repeat: int = 1) -> "MaskedVector":
        return MaskedVector(self.inner.vector(count, repeat), self.dimensions)


class MaskedVector:
    """The environments of a `MaskedHost`."""

    def __init__(self, inner: Vector, dimensions: tuple[int, ...]) -> None:
        self.inner, self._dimensions = inner, list(dimensions)

    def reset(self, seeds: Sequence[int]) -> np.ndarray:
        return self.inner.reset(seeds)[:, self._dimensions]

    def step(self, actions: np.ndarray) -> Outcome:
        outcome = self.inner.step(actions)
        seen = (whole[:, self._dimensions] for whole in (outcome.observation, outcome.current))
        return outcome._replace(**dict(zip(("observation", "current"), seen, strict=True)))


def _count(env: Spaces, dimensions: tuple[int, ...]) -> int:
    if max(dimensions) >= env.observation_size:
        raise ConfigError(
            f"sensor.observed = {list(dimensions)} is out of range: the environment has {env.observation_size} "
            f"dimensions, numbered from 0 to {env.observation_size - 1}"
        )
    return len(dimensions)


def masked(env: Any, dimensions: tuple[int, ...]) -> Any:
    """Returns the environment with only these dimensions observed, or all if there are none."""
    if not dimensions:
        return env
    return MaskedHost(env, dimensions) if isinstance(env, HostEnvironment) else Masked(env, dimensions)
