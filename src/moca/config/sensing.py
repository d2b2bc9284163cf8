"""The settings of what stands between the environment and the agent: noise, and the sensor."""

import dataclasses
from dataclasses import dataclass

from moca.config.fields import setting
from moca.config.registry import CONSTANT, NOISES


@dataclass(frozen=True)
class NoiseConfig:
    """Gaussian noise on observations [App. A], and a random disturbance of the executed actions.

    `homoscedastic`: standard deviation `sigma`. `state-norm`: the standard deviation grows from
    `sigma_min` to `sigma` with the norm of the state divided by `scales`.
    """

    kind: str = setting(
        CONSTANT,
        "The kind of observation noise: independent of the state, or growing with the state's norm.",
        among=NOISES,
    )
    sigma: float = setting(
        0.0, "The standard deviation of the observation noise, or its maximum where it depends on the state.", low=0
    )
    sigmas: tuple[float, ...] = setting(
        (), "The standard deviation of each observed dimension, in place of noise.sigma.", low=0, traced=True
    )
    sigma_min: float = setting(
        0.0, "The smallest standard deviation of observation noise that depends on the state.", low=0
    )
    scales: tuple[float, ...] = setting(
        (),
        "The scale of each observed dimension in the norm that state-norm noise uses; inf ignores a dimension.",
        above=0,
        infinite=True,
    )
    action: float = setting(
        0.0,
        "The standard deviation of an unobserved disturbance added to every executed action, in "
        "units of half the action range.",
        low=0,
    )

    @property
    def level(self) -> str:
        """The standard deviation of the observation noise as text; empty if there is none."""
        if any(self.sigmas):
            return f"({', '.join(f'{sigma:g}' for sigma in self.sigmas)})"
        return f"{self.sigma:g}" if self.sigma else ""

    @property
    def words(self) -> str:
        """The noise in words, such as `σ = 0.1, action noise 0.5`, or `no noise`."""
        observed = f"σ = {self.level}" if self.kind == CONSTANT else f"{self.kind} noise, σ ≤ {self.level}"
        given = [observed] * bool(self.level) + [f"action noise {self.action:g}"] * bool(self.action)
        return ", ".join(given) or "no noise"


@dataclass(frozen=True)
class SensorConfig:
    """Faults of the sensor, besides noise: what it does not show, drops, repeats, or shows late.

    All are off by default, and any of them can be combined. Steps are decisions of the agent. A
    probability of exactly zero removes its fault from the compiled program.
    """

    observed: tuple[int, ...] = setting(
        (),
        "The dimensions that the agent observes, counted from 0, in ascending order; an empty list is all of them.",
        low=0,
    )
    bias: tuple[float, ...] = setting((), "A constant added to each observed dimension.", traced=True)
    drop: float = setting(
        0.0, "The probability at each decision that the sensor drops out: the whole observation is missing.",
        low=0, below=1,
    )  # fmt: skip
    drop_steps: int = setting(1, "The number of decisions that a dropout lasts.", low=1)
    stick: float = setting(
        0.0, "The probability at each decision, and for each observed dimension, that its value gets stuck.",
        low=0, high=1,
    )  # fmt: skip
    stick_steps: int = setting(1, "The number of decisions for which a stuck value is repeated.", low=1)
    delay: int = setting(0, "The number of decisions by which observations are late.", low=0, high=100)
    history: int = setting(
        0,
        "The number of earlier observations in the state, as changes: for sensors that do not show velocities.",
        low=0,
        high=20,
    )
    scales: tuple[float, ...] = setting(
        (), "The unit of a change of each observed dimension in the history; measured by default.", above=0
    )
    gaps: bool = setting(
        False, "Whether NaN in an observation of the environment marks a missing value, which needs belief.filter."
    )

    @property
    def faults(self) -> list[str]:
        """The settings that differ from a perfect sensor, as text."""
        given = {item.name: getattr(self, item.name) for item in dataclasses.fields(self)}
        changed = {name: value for name, value in given.items() if value != getattr(SensorConfig, name)}
        return [
            f"sensor.{name} = {list(value) if isinstance(value, tuple) else value}" for name, value in changed.items()
        ]

    @property
    def remembers(self) -> bool:
        """True if an observation depends on more than the current state and noise."""
        return bool(self.delay or self.history) or not (is_off(self.drop) and is_off(self.stick))


def is_off(number: object) -> bool:
    """Returns True for a setting of exactly zero; a program leaves out what it scales."""
    return type(number) is float and number == 0
