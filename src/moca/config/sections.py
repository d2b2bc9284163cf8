"""The settings, as frozen dataclasses: type, limits, default and description of each."""

import dataclasses
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from operator import attrgetter
from typing import Any

from moca.config.checks import ConfigError, convert, refuse_unknown_names, shown
from moca.config.fields import setting as _setting
from moca.config.fitting import foreign, refuse_unfitting
from moca.config.planning import PlanConfig
from moca.config.registry import AGENTS, ENVS, VALUES, full_name
from moca.config.sensing import NoiseConfig, SensorConfig
from moca.names import GYMNASIUM, MJX, MUJOCO, OWN

CURVATURES = ("diagonal", "full")
COVARIANCES = ("diagonal", "full")
ACTIVATIONS = ("silu", "gelu", "erf")  # of the ensemble
HEADS = ("vertex", "slope")
RANDOM_ACTIONS = ("uniform", "extreme")
NOISE_LEVELS = ("known", "learned")

DEEPEST = 100  # layers are traced one by one
WIDEST = 2**16
# Settings that were removed, by the values that switched them off. Older run directories have them.
REMOVED = {"value.encoder": 0, "belief.smoothing": False, "belief.propagation": "derivative"}


@dataclass(frozen=True)
class EnvConfig:
    """The task and its step counts.

    Steps are always environment steps, whatever the action repeat.
    """

    name: str = _setting(
        "CartpoleBalance",
        "The environment that the agent learns in.",
        among=ENVS,
        prefixes=(GYMNASIUM, OWN),
        complete=full_name,
    )
    episode_length: int = _setting(1000, "The number of environment steps after which an episode is cut.", low=1)
    action_repeat: int = _setting(1, "The number of environment steps for which each action is held.", low=1)
    random_start: int = _setting(
        0,
        "The largest number of steps for which a random action is held before an episode begins; they do not count.",
        low=0,
        high=10_000,
    )
    flatten: bool = _setting(
        False, "Whether Gymnasium's observations of several parts (Dict, Tuple) are flattened into one vector."
    )
    physics: str = _setting(
        MJX,
        "What simulates Playground's tasks: MJX, compiled into the training program, or MuJoCo's C library, on the "
        "host.",
        among=(MJX, MUJOCO),
    )


@dataclass(frozen=True)
class TrainConfig:
    """The training loop that all agents share."""

    steps: int = _setting(
        100_000,
        "The number of environment steps of each run, a multiple of env.episode_length except for environments on "
        "the host.",
        low=1,
    )
    horizon: int = _setting(
        0, "The number of environment steps over which exploration and learning rates change; 0 is train.steps.", low=0
    )
    batch: int = _setting(128, "The number of transitions in the batch of each update.", low=1)
    capacity: int = _setting(1_000_000, "The number of transitions that the replay buffer holds.", low=1)
    updates: int = _setting(1, "The number of updates after each decision.", low=1)
    decay: float = _setting(
        1.0, "The fraction of every learning rate that remains at the end of training, after linear decay.", low=0
    )
    warmup: int = _setting(1000, "The number of environment steps with random actions before learning begins.", low=0)
    gamma: float = _setting(0.99, "The discount factor per decision.", low=0, below=1)
    eval_episodes: int = _setting(10, "The number of episodes over which each evaluation averages.", low=1)
    eval_every: int = _setting(1, "The number of training episodes from one evaluation to the next.", low=1)

    @property
    def scheduled_steps(self) -> int:
        """The number of environment steps over which exploration and learning rates change."""
        return self.horizon or self.steps


@dataclass(frozen=True)
class SACConfig:
    """Soft actor-critic: twin critics, tanh-Gaussian actor, learned temperature.

    Haarnoja et al. 2018.
    """

    width: int = _setting(256, "The number of units in each hidden layer of actor and critics.", low=1, high=WIDEST)
    depth: int = _setting(2, "The number of hidden layers of actor and critics.", low=1, high=DEEPEST)
    actor_lr: float = _setting(3e-4, "The learning rate of the actor.", low=0)
    critic_lr: float = _setting(3e-4, "The learning rate of the critics.", low=0)
    alpha_lr: float = _setting(
        3e-4, "The learning rate of the temperature; zero keeps the temperature where it starts.", low=0
    )
    alpha: float = _setting(1.0, "The temperature, the weight of the entropy, at the start.", above=0)
    tau: float = _setting(0.005, "The step size of the target critics' moving average, per update.", above=0, high=1)
    entropy_per_action: float = _setting(
        -1.0, "The target entropy per action dimension, to which the temperature adapts."
    )
    probability: float = _setting(
        0.0, "The probability of a random action at each decision while learning.", low=0, high=1
    )


@dataclass(frozen=True)
class CriticConfig:
    """The quadratic action-value of the paper's agents [Eq. 3]. Learning rates change linearly."""

    width: int = _setting(256, "The number of units in each hidden layer of the critics.", low=1, high=WIDEST)
    depth: int = _setting(2, "The number of hidden layers of the critics.", low=1, high=DEEPEST)
    lr: float = _setting(1e-4, "The learning rate of the critics' networks at the start; set critic.lr_end too.", low=0)
    lr_end: float = _setting(1e-4, "The learning rate of the critics' networks at the end of training.", low=0)
    vertex_lr: float = _setting(
        1e-5,
        "The learning rate of the head that gives the best action, at the start; set critic.vertex_lr_end too.",
        low=0,
    )
    vertex_lr_end: float = _setting(
        1e-5, "The learning rate of the head that gives the best action, at the end of training.", low=0
    )
    target_period: int = _setting(
        100, "The number of updates between copies of the learned values to the target values.", low=1
    )
    head: str = _setting(
        "vertex",
        "The output of the network: the unclipped best action (vertex), or its product with the curvature (slope).",
        among=HEADS,
    )
    curvature: str = _setting(
        "diagonal", "The form of the curvature P of Q in the action: a diagonal or a full matrix.", among=CURVATURES
    )
    curvature_floor: float = _setting(1e-3, "The smallest diagonal entry of the curvature P.", above=0)
    keepalive: float = _setting(1e-4, "The weight of the penalty on a curvature below critic.keepalive_min.", low=0)
    keepalive_min: float = _setting(0.5, "The curvature below which the keep-alive penalty applies.", low=0)


@dataclass(frozen=True)
class ValueConfig:
    """The function class of V. Bounds and lengthscales have one number per observed dimension."""

    kind: str = _setting("rbf", "The function class of the state value V.", among=VALUES)
    bases: int = _setting(256, "The number of basis functions of V.", low=1)
    low: tuple[float, ...] = _setting((), "The lower end of the range of each observed dimension.")
    high: tuple[float, ...] = _setting((), "The upper end of the range of each observed dimension.")
    lengthscales: tuple[float, ...] = _setting(
        (),
        "The length over which V changes along each observed dimension; initial values if bases are learned.",
        above=0,
    )
    lr: float = _setting(1e-4, "The learning rate of the weights in which V is linear.", low=0)
    constant_lr: float = _setting(0.0, "The learning rate of a constant term in V; zero omits the term.", low=0)
    basis_lr: float = _setting(0.0, "The learning rate of learned bases.", low=0)
    least: float = _setting(
        -math.inf, "The lower bound of E[V(s′)] in the target, if the rewards imply one.", infinite=True
    )
    most: float = _setting(
        math.inf, "The upper bound of E[V(s′)] in the target, if the rewards imply one.", infinite=True
    )


@dataclass(frozen=True)
class DynamicsConfig:
    """The ensemble that predicts the next state."""

    members: int = _setting(5, "The number of networks in the ensemble that predicts the next state.", low=1)
    width: int = _setting(256, "The number of units in each hidden layer of the ensemble.", low=1, high=WIDEST)
    depth: int = _setting(2, "The number of hidden layers of the ensemble.", low=1, high=DEEPEST)
    lr: float = _setting(1e-3, "The learning rate of the ensemble.", low=0)
    covariance: str = _setting(
        "diagonal", "The form of each member's predicted covariance: diagonal or full.", among=COVARIANCES
    )
    activation: str = _setting("silu", "The activation function of the ensemble's hidden layers.", among=ACTIVATIONS)
    samples: int = _setting(4, "The number of next states that moca-mc draws for each target (K).", low=1)


@dataclass(frozen=True)
class BeliefConfig:
    """The agent's estimate of the state: the observation, or the mean of a filter's belief."""

    filter: bool = _setting(
        False, "Whether the agent acts and learns on a filtered belief over the state instead of the observation."
    )
    noise: str = _setting(
        "known", "The observation noise used by the filter: its known level, or a learned one.", among=NOISE_LEVELS
    )
    covariance: str = _setting(
        "diagonal",
        "The covariance of the next mean in the target: its diagonal alone, or full.",
        among=COVARIANCES,
    )
    sigma: float = _setting(
        1e-3, "The noise level that a learning filter assumes until the first episode has ended.", above=0
    )
    sigma_lr: float = _setting(
        0.03, "The learning rate of the logarithm of learned noise levels, for ten steps per episode.", low=0
    )
    outcomes: bool = _setting(
        False,
        "Whether targets also take the observed outcome, as far as noise does not explain how it differs from the "
        "prediction.",
    )
    width: bool = _setting(
        False, "Whether the agent also sees how wide its belief is, which gives information a value."
    )


@dataclass(frozen=True)
class ExplorationConfig:
    """Exploration: random actions with some probability, else noise on the greedy action."""

    probability: float = _setting(0.2, "The probability of a random action at the start.", low=0, high=1)
    probability_end: float = _setting(0.2, "The probability of a random action after annealing.", low=0, high=1)
    sigma: float = _setting(
        1.0, "The standard deviation around the greedy action at the start, in units of half the action range.", low=0
    )
    sigma_end: float = _setting(
        0.1, "The standard deviation around the greedy action after annealing, in the same units.", low=0
    )
    anneal: float = _setting(
        0.5, "The fraction of training over which exploration is annealed to its end values.", above=0, high=1
    )
    hold: float = _setting(
        1.0,
        "The mean number of decisions for which a random action, or the choice to act greedily, is kept.",
        low=1,
    )
    random: str = _setting(
        "uniform",
        "The distribution of random actions: uniform, or one of the two bounds in each dimension (extreme).",
        among=RANDOM_ACTIONS,
    )


@dataclass(frozen=True)
class Config:
    """All settings of a set of runs that differ only in their seed."""

    agent: str = _setting("moca", "The agent that learns.", among=AGENTS)
    seed: int = _setting(0, "The first seed; further runs use the next integers.", low=0)
    seeds: int = _setting(1, "The number of runs, each with its own seed.", low=1, high=100_000)
    env: EnvConfig = field(default_factory=EnvConfig)
    noise: NoiseConfig = field(default_factory=NoiseConfig)
    sensor: SensorConfig = field(default_factory=SensorConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    critic: CriticConfig = field(default_factory=CriticConfig)
    value: ValueConfig = field(default_factory=ValueConfig)
    dynamics: DynamicsConfig = field(default_factory=DynamicsConfig)
    belief: BeliefConfig = field(default_factory=BeliefConfig)
    plan: PlanConfig = field(default_factory=PlanConfig)
    exploration: ExplorationConfig = field(default_factory=ExplorationConfig)
    sac: SACConfig = field(default_factory=SACConfig)

    def validated(self) -> "Config":
        """Returns the config with plain numbers; raises `ConfigError` if a setting is invalid.

        The constructor does not check: inside a compiled program the numbers are traced.
        """
        for item in dataclasses.fields(self):
            kind, value = item.type, getattr(self, item.name)
            if isinstance(kind, type) and dataclasses.is_dataclass(kind) and not isinstance(value, kind):
                raise ConfigError(f"{item.name} must be a moca.config.{kind.__name__}, got {shown(value)}")
        config = _replaced(self, checked(flatten(self)))
        refuse_unfitting(config)
        return config


def flatten(config: Config) -> dict[str, Any]:
    """Returns every setting by its dotted name, in order."""
    return {name: attrgetter(name)(config) for name in fields()}


def override(config: Config, settings: Mapping[str, Any]) -> Config:
    """Returns the config with some settings replaced, by dotted name, and all settings checked."""
    if not isinstance(config, Config):
        raise ConfigError(
            f"config must be a moca.config.Config, for example from moca.presets.build, got {shown(config)}"
        )
    if not isinstance(settings, Mapping):
        raise ConfigError(f"settings must be a dictionary of values by dotted name, got {shown(settings)}")
    return _replaced(config, checked(settings)).validated()


def checked(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Converts every setting to the type of its field; raises if one is invalid.

    Leaves out `REMOVED` settings that are off.
    """
    kept = {name: value for name, value in settings.items() if (name, value) not in REMOVED.items()}
    refuse_unnamed(kept)
    return {name: convert(name, value, fields()[name]) for name, value in kept.items()}


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


def field_of(name: str, agent: Any = "") -> dataclasses.Field:
    """Returns the field with that dotted name; arguments and errors as in `refuse_unnamed`."""
    refuse_unnamed([name], agent)
    return fields()[name]


def refuse_unnamed(names: Iterable[Any], agent: Any = "") -> None:
    """Raises `ConfigError` if some of the names are not settings, with a sentence for each.

    Suggestions begin with those that the `agent` uses, if it is given.
    """
    refuse_unknown_names(names, fields(), foreign(agent), REMOVED)


@cache
def fields() -> dict[str, dataclasses.Field]:
    """Returns every field by its dotted name, in order."""
    found: dict[str, dataclasses.Field] = {}
    for item in dataclasses.fields(Config):
        if dataclasses.is_dataclass(section := item.type):
            found |= {f"{item.name}.{inner.name}": inner for inner in dataclasses.fields(section)}
        else:
            found[item.name] = item
    return found
