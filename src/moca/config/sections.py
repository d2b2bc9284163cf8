"""Every setting, as frozen data: type, limits, default, and what it does."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from moca.config.checks import ConfigError, convert, nearest_names, shown
from moca.config.fitting import refuse_unfitting
from moca.config.registry import AGENTS, CONSTANT, ENVS, NOISES, VALUES, full_name
from moca.names import GYMNASIUM, OWN

CURVATURES = ("diagonal", "full")
COVARIANCES = ("diagonal", "full")
ACTIVATIONS = ("silu", "gelu", "erf")  # of the ensemble: Gaussian moments pass through the last two in closed form
HEADS = ("vertex", "slope")
RANDOM_ACTIONS = ("uniform", "extreme")
NOISE_LEVELS = ("known", "learned")

DEEPEST = 100  # layers are traced one by one
WIDEST = 2**16


def _setting(default: Any, text: str, **limits: Any) -> Any:
    """A field with its default, one sentence on what it does, and its limits.

    Limits are `low`, `high` (inclusive unless `above`/`below` are given), `infinite`, or `among`. Beside the words of
    `among`, any that begins with one of `prefixes` is allowed, which `complete` puts before some that have none. What
    all numbers must fit is `INT32` and `SIZES`.
    """
    return field(default=default, metadata={"text": text, "limits": limits})


@dataclass(frozen=True)
class EnvConfig:
    """The task, and how its steps are counted. Steps are always environment steps, whatever the action repeat."""

    name: str = _setting(
        "CartpoleBalance",
        "The environment that the agent learns in.",
        among=ENVS,
        prefixes=(GYMNASIUM, OWN),
        complete=full_name,
    )
    episode_length: int = _setting(1000, "The number of environment steps after which an episode is cut.", low=1)
    action_repeat: int = _setting(1, "The number of environment steps for which each action is held.", low=1)
    flatten: bool = _setting(
        False, "Whether Gymnasium's observations of several parts (Dict, Tuple) are flattened into one vector."
    )


@dataclass(frozen=True)
class NoiseConfig:
    """Gaussian noise on what the agent observes [App. A], and a random disturbance of the actions it takes.

    `homoscedastic`: standard deviation `sigma`. `state-norm`: from `sigma_min` to `sigma` with the norm of the state
    over `scales`.
    """

    kind: str = _setting(
        CONSTANT, "How the observation noise depends on the state: not at all, or growing with its norm.", among=NOISES
    )
    sigma: float = _setting(
        0.0, "The standard deviation of the observation noise, or the greatest where it depends on the state.", low=0
    )
    sigma_min: float = _setting(
        0.0, "The least standard deviation of an observation noise that depends on the state.", low=0
    )
    scales: tuple[float, ...] = _setting(
        (),
        "The size of each observed dimension by which state-norm noise measures the state; inf leaves one out.",
        above=0,
        infinite=True,
    )
    action: float = _setting(
        0.0,
        "The standard deviation of a disturbance that is added to every executed action and that nobody observes, in "
        "units of half the action range.",
        low=0,
    )


@dataclass(frozen=True)
class TrainConfig:
    """The loop that all agents share."""

    steps: int = _setting(
        100_000,
        "The number of environment steps of each run, a multiple of env.episode_length but for environments on the "
        "host.",
        low=1,
    )
    horizon: int = _setting(
        0, "The number of environment steps over which exploration and learning rates change; 0 is train.steps.", low=0
    )
    batch: int = _setting(128, "The number of transitions that each update learns from.", low=1)
    capacity: int = _setting(1_000_000, "The number of transitions that the replay memory holds.", low=1)
    updates: int = _setting(1, "The number of updates after each decision.", low=1)
    decay: float = _setting(
        1.0, "The part of every learning rate that is left at the end of training, after a linear fall.", low=0
    )
    warmup: int = _setting(1000, "The number of environment steps with random actions before learning begins.", low=0)
    gamma: float = _setting(0.99, "The factor by which rewards are discounted with each decision.", low=0, below=1)
    eval_episodes: int = _setting(10, "The number of episodes over which each evaluation averages.", low=1)
    eval_every: int = _setting(1, "The number of training episodes from one evaluation to the next.", low=1)


@dataclass(frozen=True)
class SACConfig:
    """Soft actor-critic (Haarnoja et al. 2018): twin critics, tanh-Gaussian actor, learned temperature."""

    width: int = _setting(256, "The number of units in each hidden layer of actor and critics.", low=1, high=WIDEST)
    depth: int = _setting(2, "The number of hidden layers of actor and critics.", low=1, high=DEEPEST)
    actor_lr: float = _setting(3e-4, "The learning rate of the actor.", low=0)
    critic_lr: float = _setting(3e-4, "The learning rate of the critics.", low=0)
    alpha_lr: float = _setting(
        3e-4, "The learning rate of the temperature; zero keeps the temperature where it starts.", low=0
    )
    alpha: float = _setting(1.0, "The temperature, the weight of the entropy, at the start.", above=0)
    tau: float = _setting(
        0.005, "The share of the critics that the target critics take over with each update.", above=0, high=1
    )
    entropy_per_action: float = _setting(-1.0, "The entropy that the temperature aims at, per action dimension.")
    probability: float = _setting(
        0.0, "The probability that a decision while learning is a random action.", low=0, high=1
    )


@dataclass(frozen=True)
class CriticConfig:
    """The quadratic action-value of the paper's agents [Eq. 3]; rates go linearly from the first to the end value."""

    width: int = _setting(256, "The number of units in each hidden layer of the critics.", low=1, high=WIDEST)
    depth: int = _setting(2, "The number of hidden layers of the critics.", low=1, high=DEEPEST)
    lr: float = _setting(1e-4, "The learning rate of the critics' networks at the start.", low=0)
    lr_end: float = _setting(1e-4, "The learning rate of the critics' networks at the end of training.", low=0)
    vertex_lr: float = _setting(1e-5, "The learning rate of the head that gives the best action, at the start.", low=0)
    vertex_lr_end: float = _setting(
        1e-5, "The learning rate of the head that gives the best action, at the end of training.", low=0
    )
    target_period: int = _setting(
        100, "The number of updates after which the target values become copies of the learned ones.", low=1
    )
    head: str = _setting(
        "vertex",
        "Whether the network outputs the best action before clipping (vertex) or that times the curvature (slope).",
        among=HEADS,
    )
    curvature: str = _setting(
        "diagonal", "Whether the curvature P of Q in the action is a diagonal or a full matrix.", among=CURVATURES
    )
    curvature_floor: float = _setting(1e-3, "The least diagonal entry of the curvature P.", above=0)
    keepalive: float = _setting(1e-4, "The weight of the penalty on a curvature below critic.keepalive_min.", low=0)
    keepalive_min: float = _setting(0.5, "The curvature below which the keep-alive penalty sets in.", low=0)


@dataclass(frozen=True)
class ValueConfig:
    """The class of V. Bounds and lengthscales have one number per observed dimension."""

    kind: str = _setting("rbf", "The class of functions that the state value V is taken from.", among=VALUES)
    bases: int = _setting(256, "The number of basis functions of V.", low=1)
    low: tuple[float, ...] = _setting((), "The lower end of the range in which each observed dimension lies.")
    high: tuple[float, ...] = _setting((), "The upper end of the range in which each observed dimension lies.")
    lengthscales: tuple[float, ...] = _setting(
        (), "The length over which V changes along each observed dimension, at the start where bases learn.", above=0
    )
    encoder: int = _setting(
        0, "The number of learned latent dimensions that V is a function of; zero takes the state.", low=0, high=WIDEST
    )
    lr: float = _setting(1e-4, "The learning rate of the weights, which V is linear in.", low=0)
    constant_lr: float = _setting(0.0, "The learning rate of a constant in V; zero leaves the constant out.", low=0)
    basis_lr: float = _setting(0.0, "The learning rate of bases that learn, and of the encoder.", low=0)
    least: float = _setting(
        -math.inf, "The lower bound of E[V(s′)] in the target, where the rewards imply one.", infinite=True
    )
    most: float = _setting(
        math.inf, "The upper bound of E[V(s′)] in the target, where the rewards imply one.", infinite=True
    )


@dataclass(frozen=True)
class DynamicsConfig:
    """The ensemble that predicts the next state."""

    members: int = _setting(5, "The number of networks in the ensemble that predicts the next state.", low=1)
    width: int = _setting(256, "The number of units in each hidden layer of the ensemble.", low=1, high=WIDEST)
    depth: int = _setting(2, "The number of hidden layers of the ensemble.", low=1, high=DEEPEST)
    lr: float = _setting(1e-3, "The learning rate of the ensemble.", low=0)
    covariance: str = _setting(
        "diagonal", "Whether each member predicts a diagonal or a full covariance.", among=COVARIANCES
    )
    activation: str = _setting("silu", "The activation function of the ensemble's hidden layers.", among=ACTIVATIONS)
    samples: int = _setting(4, "The number of next states that moca-mc draws for each target (K).", low=1)


@dataclass(frozen=True)
class BeliefConfig:
    """The agent's estimate of the state: the observation, or the mean of a filter's Gaussian belief."""

    filter: bool = _setting(
        False, "Whether the agent acts and learns on a filtered belief over the state instead of the observation."
    )
    noise: str = _setting(
        "known", "Whether the filter is told the observation noise or learns its level.", among=NOISE_LEVELS
    )
    sigma: float = _setting(0.1, "The noise level at which a filter that learns it starts.", above=0)
    sigma_lr: float = _setting(0.1, "The learning rate of the logarithm of a learned noise level, per episode.", low=0)


@dataclass(frozen=True)
class ExplorationConfig:
    """Random with a probability, else Gaussian around the greedy action; in units of half the action range."""

    probability: float = _setting(0.2, "The probability of a random action at the start.", low=0, high=1)
    probability_end: float = _setting(0.2, "The probability of a random action once it is annealed.", low=0, high=1)
    sigma: float = _setting(
        1.0, "The standard deviation around the greedy action at the start, in units of half the action range.", low=0
    )
    sigma_end: float = _setting(
        0.1, "The standard deviation around the greedy action once it is annealed, in the same units.", low=0
    )
    anneal: float = _setting(
        0.5, "The share of training over which exploration goes to its end values.", above=0, high=1
    )
    hold: float = _setting(
        1.0,
        "The mean number of decisions after which it is drawn anew whether to act at random, and which random action.",
        low=1,
    )
    random: str = _setting(
        "uniform",
        "Whether random actions are uniform, or one of the two ends in every dimension (extreme).",
        among=RANDOM_ACTIONS,
    )


@dataclass(frozen=True)
class Config:
    """All settings of a set of runs that differ in their seed."""

    agent: str = _setting("moca", "The agent that learns.", among=AGENTS)
    seed: int = _setting(0, "The first of the seeds.", low=0)
    seeds: int = _setting(1, "The number of runs, each with a seed of its own.", low=1, high=100_000)
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
        config = _replaced(self, checked(flatten(self)))
        refuse_unfitting(config)
        return config


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
    known = fields()
    if name in known:
        return known[name]
    if any(each.startswith(f"{name}.") for each in known):
        raise ConfigError(f"there is no setting {shown(name)}: it is a section, and moca settings {name} lists it")
    *most, last = nearest_names(name, known)
    raise ConfigError(
        f"there is no setting {shown(name)}. Did you mean {', '.join(most)} or {last}? moca settings lists all"
    )


@cache
def fields() -> dict[str, dataclasses.Field]:
    """Every field by its dotted name, in order."""
    found: dict[str, dataclasses.Field] = {}
    for item in dataclasses.fields(Config):
        if dataclasses.is_dataclass(section := item.type):
            found |= {f"{item.name}.{inner.name}": inner for inner in dataclasses.fields(section)}
        else:
            found[item.name] = item
    return found
