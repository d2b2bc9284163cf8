"""Every setting, as frozen data, and how settings fit each other."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from moca.config.checks import INT32, ConfigError, convert, nearest, shown, single
from moca.config.registry import AGENTS, CONSTANT, ENVS, NOISES, QUADRATIC_AGENTS, VALUES
from moca.names import GYMNASIUM, OWN

CURVATURES = ("diagonal", "full")
COVARIANCES = ("diagonal", "full")
ACTIVATIONS = ("silu", "gelu", "erf")  # of the ensemble: Gaussian moments pass through the last two in closed form
HEADS = ("vertex", "slope")
RANDOM_ACTIONS = ("uniform", "extreme")
NOISE_LEVELS = ("known", "learned")

DEEPEST = 100  # layers are traced one by one
WIDEST = 2**16


def _limits(**bounds: Any) -> dict[str, Any]:
    """Metadata of a field: `low`, `high` (inclusive unless `above`/`below` are given), `infinite`, or `among`.

    Beside the words of `among`, any that begins with one of `prefixes` is allowed. What all numbers must fit is
    `INT32` and `SIZES`.
    """
    return {"limits": bounds}


@dataclass(frozen=True)
class EnvConfig:
    """The task, and how its steps are counted. Steps are always environment steps, whatever the action repeat."""

    name: str = field(default="CartpoleBalance", metadata=_limits(among=ENVS, prefixes=(GYMNASIUM, OWN)))
    episode_length: int = field(default=1000, metadata=_limits(low=1))
    action_repeat: int = field(default=1, metadata=_limits(low=1))


@dataclass(frozen=True)
class NoiseConfig:
    """Gaussian noise on what the agent observes [App. A], and a random disturbance of the actions it takes.

    `homoscedastic`: standard deviation `sigma`. `state-norm`: from `sigma_min` to `sigma` with the norm of the state
    over `scales`, whose dimensions of infinite scale are left out. `action` is process noise: the deviation of a
    disturbance, in units of half the action range, that is added to every executed action and that nobody observes.
    """

    kind: str = field(default=CONSTANT, metadata=_limits(among=NOISES))
    sigma: float = field(default=0.0, metadata=_limits(low=0))
    sigma_min: float = field(default=0.0, metadata=_limits(low=0))
    scales: tuple[float, ...] = field(default=(), metadata=_limits(above=0, infinite=True))
    action: float = field(default=0.0, metadata=_limits(low=0))


@dataclass(frozen=True)
class TrainConfig:
    """The loop that all agents share."""

    steps: int = field(default=100_000, metadata=_limits(low=1))
    horizon: int = field(default=0, metadata=_limits(low=0))  # steps over which schedules run; 0: `steps`
    batch: int = field(default=128, metadata=_limits(low=1))
    capacity: int = field(default=1_000_000, metadata=_limits(low=1))
    updates: int = field(default=1, metadata=_limits(low=1))  # per decision
    decay: float = field(default=1.0, metadata=_limits(low=0))  # of all learning rates, linearly, by the end
    warmup: int = field(default=1000, metadata=_limits(low=0))  # environment steps of random actions before learning
    gamma: float = field(default=0.99, metadata=_limits(low=0, below=1))
    eval_episodes: int = field(default=10, metadata=_limits(low=1))
    eval_every: int = field(default=1, metadata=_limits(low=1))  # training episodes


@dataclass(frozen=True)
class SACConfig:
    """Soft actor-critic (Haarnoja et al. 2018): twin critics, tanh-Gaussian actor, learned temperature."""

    width: int = field(default=256, metadata=_limits(low=1, high=WIDEST))
    depth: int = field(default=2, metadata=_limits(low=1, high=DEEPEST))
    actor_lr: float = field(default=3e-4, metadata=_limits(low=0))
    critic_lr: float = field(default=3e-4, metadata=_limits(low=0))
    alpha_lr: float = field(default=3e-4, metadata=_limits(low=0))  # zero keeps the temperature where it starts
    alpha: float = field(default=1.0, metadata=_limits(above=0))
    tau: float = field(default=0.005, metadata=_limits(above=0, high=1))
    entropy_per_action: float = field(default=-1.0, metadata=_limits())  # target entropy over the action dimension
    probability: float = field(default=0.0, metadata=_limits(low=0, high=1))  # of a random action


@dataclass(frozen=True)
class CriticConfig:
    """The quadratic action-value of the paper's agents [Eq. 3]; rates go linearly from the first to the end value."""

    width: int = field(default=256, metadata=_limits(low=1, high=WIDEST))
    depth: int = field(default=2, metadata=_limits(low=1, high=DEEPEST))
    lr: float = field(default=1e-4, metadata=_limits(low=0))
    lr_end: float = field(default=1e-4, metadata=_limits(low=0))
    vertex_lr: float = field(default=1e-5, metadata=_limits(low=0))
    vertex_lr_end: float = field(default=1e-5, metadata=_limits(low=0))
    target_period: int = field(default=100, metadata=_limits(low=1))  # updates between hard copies
    head: str = field(default="vertex", metadata=_limits(among=HEADS))  # what the network outputs: μ̃, or Pμ̃
    curvature: str = field(default="diagonal", metadata=_limits(among=CURVATURES))
    curvature_floor: float = field(default=1e-3, metadata=_limits(above=0))  # least diagonal entry of P
    keepalive: float = field(default=1e-4, metadata=_limits(low=0))
    keepalive_min: float = field(default=0.5, metadata=_limits(low=0))


@dataclass(frozen=True)
class ValueConfig:
    """The class of V. Bounds and lengthscales have one number per observed dimension."""

    kind: str = field(default="rbf", metadata=_limits(among=VALUES))
    bases: int = field(default=256, metadata=_limits(low=1))
    low: tuple[float, ...] = field(default=(), metadata=_limits())
    high: tuple[float, ...] = field(default=(), metadata=_limits())
    lengthscales: tuple[float, ...] = field(default=(), metadata=_limits(above=0))
    encoder: int = field(
        default=0, metadata=_limits(low=0, high=WIDEST)
    )  # dimensions of a learned latent state; zero: V is on s
    lr: float = field(default=1e-4, metadata=_limits(low=0))  # of what V is linear in
    constant_lr: float = field(default=0.0, metadata=_limits(low=0))  # of a constant basis; zero leaves it out
    basis_lr: float = field(default=0.0, metadata=_limits(low=0))  # of learned bases and of an encoder
    least: float = field(default=-math.inf, metadata=_limits(infinite=True))  # of E[V(s′)], as rewards bound it
    most: float = field(default=math.inf, metadata=_limits(infinite=True))


@dataclass(frozen=True)
class DynamicsConfig:
    """The ensemble that predicts the next state."""

    members: int = field(default=5, metadata=_limits(low=1))
    width: int = field(default=256, metadata=_limits(low=1, high=WIDEST))
    depth: int = field(default=2, metadata=_limits(low=1, high=DEEPEST))
    lr: float = field(default=1e-3, metadata=_limits(low=0))
    covariance: str = field(default="diagonal", metadata=_limits(among=COVARIANCES))
    activation: str = field(default="silu", metadata=_limits(among=ACTIVATIONS))
    samples: int = field(default=4, metadata=_limits(low=1))  # K of moca-mc


@dataclass(frozen=True)
class BeliefConfig:
    """The agent's estimate of the state: the observation, or the mean of a filter's Gaussian belief."""

    filter: bool = field(default=False, metadata=_limits())
    noise: str = field(default="known", metadata=_limits(among=NOISE_LEVELS))
    sigma: float = field(default=0.1, metadata=_limits(above=0))  # where a learned noise level starts
    sigma_lr: float = field(default=0.1, metadata=_limits(low=0))  # of its logarithm, per episode


@dataclass(frozen=True)
class ExplorationConfig:
    """Random with a probability, else Gaussian around the greedy action; in units of half the action range.

    Which of the two, and the random action, are drawn anew after `hold` decisions on average. Random actions are
    uniform, or one of the two ends in every dimension.
    """

    probability: float = field(default=0.2, metadata=_limits(low=0, high=1))
    probability_end: float = field(default=0.2, metadata=_limits(low=0, high=1))
    sigma: float = field(default=1.0, metadata=_limits(low=0))
    sigma_end: float = field(default=0.1, metadata=_limits(low=0))
    anneal: float = field(default=0.5, metadata=_limits(above=0, high=1))  # fraction of training until the end values
    hold: float = field(default=1.0, metadata=_limits(low=1))
    random: str = field(default="uniform", metadata=_limits(among=RANDOM_ACTIONS))


@dataclass(frozen=True)
class Config:
    """All settings of a set of runs that differ in their seed."""

    agent: str = field(default="moca", metadata=_limits(among=AGENTS))
    seed: int = field(default=0, metadata=_limits(low=0))
    seeds: int = field(default=1, metadata=_limits(low=1, high=100_000))
    env: EnvConfig = field(default_factory=EnvConfig)
    noise: NoiseConfig = field(default_factory=NoiseConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    critic: CriticConfig = field(default_factory=CriticConfig)
    value: ValueConfig = field(default_factory=ValueConfig)
    dynamics: DynamicsConfig = field(default_factory=DynamicsConfig)
    belief: BeliefConfig = field(default_factory=BeliefConfig)
    exploration: ExplorationConfig = field(default_factory=ExplorationConfig)
    sac: SACConfig = field(default_factory=SACConfig)

    def validated(self) -> "Config":
        """The config with plain numbers, if each is in its range and they fit each other; raises `ConfigError` if not.

        Not done by the constructor: inside a compiled program the numbers of a config have no value yet.
        """
        for item in dataclasses.fields(self):
            kind, value = item.type, getattr(self, item.name)
            if isinstance(kind, type) and dataclasses.is_dataclass(kind) and not isinstance(value, kind):
                raise ConfigError(f"{item.name} must be a moca.config.{kind.__name__}, got {shown(value)}")
        return _fitting(_replaced(self, checked(flatten(self))))


def _fitting(config: Config) -> Config:
    """The config itself, if its settings fit each other."""
    for fits in (_counts_fit, _belief_fits, _value_fits, _noise_fits):
        fits(config)
    return config


def _counts_fit(config: Config) -> None:
    env, train = config.env, config.train
    if config.seed + config.seeds - 1 > INT32:
        raise ConfigError(f"seed = {config.seed} with seeds = {config.seeds} leads beyond {INT32}: take a smaller seed")
    if env.episode_length % env.action_repeat:
        raise ConfigError(
            f"env.action_repeat = {env.action_repeat} must divide env.episode_length = {env.episode_length}"
        )
    if train.steps % env.episode_length:
        raise ConfigError(
            f"train.steps = {train.steps} must be a multiple of env.episode_length = {env.episode_length}: "
            f"try {max(1, round(train.steps / env.episode_length)) * env.episode_length}"
        )
    if (updates := train.steps // env.action_repeat * train.updates) > INT32:
        raise ConfigError(
            f"train.steps = {train.steps} with train.updates = {train.updates} makes {updates} updates, more than "
            f"the {INT32} that can be counted: lower one of the two"
        )
    if train.batch > train.capacity:
        raise ConfigError(f"train.batch = {train.batch} must not exceed train.capacity = {train.capacity}")


def _belief_fits(config: Config) -> None:
    if config.belief.noise != "learned":
        return
    if not config.belief.filter:
        raise ConfigError("belief.noise = learned needs belief.filter = true: nothing else uses the noise level")
    if config.train.capacity < (needed := config.env.episode_length // config.env.action_repeat):
        raise ConfigError(
            f"belief.noise = learned needs a whole episode: train.capacity = {config.train.capacity} must be at least "
            f"{needed}"
        )


def _value_fits(config: Config) -> None:
    value = config.value
    if value.encoder and not value.basis_lr:
        raise ConfigError("value.encoder needs value.basis_lr above 0: an encoder that does not learn is no use")
    if not single(value.least) < single(value.most):
        raise ConfigError(f"value.least = {shown(value.least)} must lie below value.most = {shown(value.most)}")
    for name in ("high", "lengthscales"):
        if len(numbers := getattr(value, name)) != len(value.low):
            raise ConfigError(f"value.{name} has {len(numbers)} numbers, but value.low has {len(value.low)}")
    if not all(single(low) < single(high) for low, high in zip(value.low, value.high, strict=True)):
        raise ConfigError(f"value.low = {list(value.low)} must lie below value.high = {list(value.high)}")
    if config.agent in QUADRATIC_AGENTS and not value.low:
        raise ConfigError(
            f"{config.agent} needs value.low, value.high and value.lengthscales, and {config.env.name} has no preset: "
            "say in which range each observed dimension lies and over which length values change there"
        )


def _noise_fits(config: Config) -> None:
    noise = config.noise
    if NOISES[noise.kind].scaled and not any(math.isfinite(scale) for scale in noise.scales):
        raise ConfigError(
            f"noise.kind = {noise.kind} needs noise.scales, a number per observed dimension, of which inf leaves one "
            f"out, but not all: {list(noise.scales)} is none for {config.env.name}; CartpoleBalance has "
            "[2.4,inf,inf,2,3]"
        )
    if noise.kind != CONSTANT and noise.sigma_min > noise.sigma:
        raise ConfigError(
            f"noise.sigma_min = {shown(noise.sigma_min)} must not exceed noise.sigma = {shown(noise.sigma)}"
        )


def flatten(config: Config) -> dict[str, Any]:
    """Every setting by its dotted name, in order."""
    flat: dict[str, Any] = {}
    for item in dataclasses.fields(config):
        value = getattr(config, item.name)
        if dataclasses.is_dataclass(value):
            flat.update(
                {f"{item.name}.{inner.name}": getattr(value, inner.name) for inner in dataclasses.fields(value)}
            )
        else:
            flat[item.name] = value
    return flat


def override(config: Config, settings: Mapping[str, Any]) -> Config:
    """The config with some settings, by dotted name, replaced and everything checked once more."""
    if not isinstance(config, Config):
        raise ConfigError(f"config must be a moca.config.Config, as moca.presets.build makes one, got {shown(config)}")
    if not isinstance(settings, Mapping):
        raise ConfigError(f"settings must be a dictionary of values by dotted name, got {shown(settings)}")
    return _replaced(config, checked(settings)).validated()


def checked(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Converts every setting to the type of its field; raises if one has another type or is out of range."""
    return {name: convert(name, value, field_of(name)) for name, value in settings.items()}


def _replaced(config: Config, settings: Mapping[str, Any]) -> Config:
    top: dict[str, Any] = {}
    sections: dict[str, dict[str, Any]] = {}
    for name, value in settings.items():
        section, _, inner = name.rpartition(".")
        if section:
            sections.setdefault(section, {})[inner] = value
        else:
            top[name] = value
    for section, values in sections.items():
        top[section] = dataclasses.replace(getattr(config, section), **values)
    return dataclasses.replace(config, **top)


def field_of(name: str) -> dataclasses.Field:
    """The field a dotted name means."""
    if not isinstance(name, str):
        raise ConfigError(f"a setting has a dotted name, such as train.gamma, got {shown(name)}")
    known = _fields()
    if name not in known:
        hint = nearest(name, known)
        if inside := [each for each in known if name and each.startswith(f"{name}.")]:
            hint = f" It is a group of them, with {inside[0]}."
        raise ConfigError(f"there is no setting {shown(name)}.{hint} All settings: {', '.join(known)}")
    return known[name]


@cache
def _fields() -> dict[str, dataclasses.Field]:
    """Every field by its dotted name, in order."""
    found: dict[str, dataclasses.Field] = {}
    for item in dataclasses.fields(Config):
        if dataclasses.is_dataclass(section := item.type):
            found |= {f"{item.name}.{inner.name}": inner for inner in dataclasses.fields(section)}
        else:
            found[item.name] = item
    return found
