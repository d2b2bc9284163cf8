"""Every setting, as frozen data. Nothing here imports jax: a bad setting is refused in milliseconds.

Fields of type `float` may differ between the runs of one compiled program (they become traced numbers); a change in
any other field compiles another program.
"""

import dataclasses
import difflib
import json
import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_type_hints

from moca.envs.names import GYMNASIUM, OWN, PLAYGROUND

# Lists, to which moca.extending adds.
QUADRATIC_AGENTS = ["moca", "moca-ce", "moca-mc", "moca-mixture", "bnaf", "naf"]
AGENTS = [*QUADRATIC_AGENTS, "sac"]
VALUES = ["rbf", "rbf-learned", "fourier", "erf", "quadratic", "polynomial"]
CURVATURES = ("diagonal", "full")
COVARIANCES = ("diagonal", "full")
ACTIVATIONS = ("silu", "gelu", "erf")  # of the ensemble: Gaussian moments pass through the last two in closed form
HEADS = ("vertex", "slope")
RANDOM_ACTIONS = ("uniform", "extreme")
NOISE_LEVELS = ("known", "learned")
NOISES = ("homoscedastic", "state-norm")


class ConfigError(ValueError):
    """A setting that cannot be; the message names it, its value and what is allowed."""


def _limits(**bounds: Any) -> dict[str, Any]:
    """Metadata of a field: `low`, `high` (inclusive unless `above`/`below` are given), `infinite`, or `among`.

    Beside the words of `among`, any that begins with one of `prefixes` is allowed.
    """
    return {"limits": bounds}


@dataclass(frozen=True)
class Environment:
    """Which task, and how its steps are counted. Steps are always environment steps, whatever the action repeat."""

    name: str = field(default="CartpoleBalance", metadata=_limits(among=PLAYGROUND, prefixes=(GYMNASIUM, OWN)))
    episode_length: int = field(default=1000, metadata=_limits(low=1))
    action_repeat: int = field(default=1, metadata=_limits(low=1))


@dataclass(frozen=True)
class Noise:
    """Gaussian noise on what the agent observes [App. A], and a random disturbance of the actions it takes.

    `homoscedastic`: standard deviation `sigma`. `state-norm`: from `sigma_min` to `sigma` with the norm of the state
    over `scales`, whose dimensions of infinite scale are left out. `action` is process noise: the deviation of a
    disturbance, in units of half the action range, that is added to every executed action and that nobody observes.
    """

    kind: str = field(default="homoscedastic", metadata=_limits(among=NOISES))
    sigma: float = field(default=0.0, metadata=_limits(low=0))
    sigma_min: float = field(default=0.0, metadata=_limits(low=0))
    scales: tuple[float, ...] = field(default=(), metadata=_limits(above=0))
    action: float = field(default=0.0, metadata=_limits(low=0))


@dataclass(frozen=True)
class Train:
    """The loop that all agents share."""

    steps: int = field(default=100_000, metadata=_limits(low=1))
    batch: int = field(default=128, metadata=_limits(low=1))
    capacity: int = field(default=1_000_000, metadata=_limits(low=1))
    updates: int = field(default=1, metadata=_limits(low=1))  # per decision
    decay: float = field(default=1.0, metadata=_limits(low=0))  # of all learning rates, linearly, by the end
    warmup: int = field(default=1000, metadata=_limits(low=0))  # environment steps of random actions before learning
    gamma: float = field(default=0.99, metadata=_limits(low=0, below=1))
    eval_episodes: int = field(default=10, metadata=_limits(low=1))
    eval_every: int = field(default=1, metadata=_limits(low=1))  # training episodes


@dataclass(frozen=True)
class SAC:
    """Soft actor-critic (Haarnoja et al. 2018): twin critics, tanh-Gaussian actor, learned temperature."""

    width: int = field(default=256, metadata=_limits(low=1))
    depth: int = field(default=2, metadata=_limits(low=1))
    actor_lr: float = field(default=3e-4, metadata=_limits(low=0))
    critic_lr: float = field(default=3e-4, metadata=_limits(low=0))
    alpha_lr: float = field(default=3e-4, metadata=_limits(low=0))  # zero keeps the temperature where it starts
    alpha: float = field(default=1.0, metadata=_limits(above=0))
    tau: float = field(default=0.005, metadata=_limits(above=0, high=1))
    entropy_per_action: float = field(default=-1.0, metadata=_limits())  # target entropy over the action dimension
    probability: float = field(default=0.0, metadata=_limits(low=0, high=1))  # of a random action, see Exploration


@dataclass(frozen=True)
class Critic:
    """The quadratic action-value of the paper's agents [Eq. 3]; rates go linearly from the first to the end value."""

    width: int = field(default=256, metadata=_limits(low=1))
    depth: int = field(default=2, metadata=_limits(low=1))
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
class Value:
    """The class of V. Bounds and lengthscales have one number per observed dimension."""

    kind: str = field(default="rbf", metadata=_limits(among=VALUES))
    bases: int = field(default=256, metadata=_limits(low=1))
    low: tuple[float, ...] = field(default=(), metadata=_limits())
    high: tuple[float, ...] = field(default=(), metadata=_limits())
    lengthscales: tuple[float, ...] = field(default=(), metadata=_limits(above=0))
    encoder: int = field(default=0, metadata=_limits(low=0))  # dimensions of a learned latent state; zero: V is on s
    lr: float = field(default=1e-4, metadata=_limits(low=0))  # of what V is linear in
    constant_lr: float = field(default=0.0, metadata=_limits(low=0))  # of a constant basis; zero leaves it out
    basis_lr: float = field(default=0.0, metadata=_limits(low=0))  # of learned bases and of an encoder
    least: float = field(default=-math.inf, metadata=_limits(infinite=True))  # of E[V(s′)], as rewards bound it
    most: float = field(default=math.inf, metadata=_limits(infinite=True))


@dataclass(frozen=True)
class Dynamics:
    """The ensemble that predicts the next state."""

    members: int = field(default=5, metadata=_limits(low=1))
    width: int = field(default=256, metadata=_limits(low=1))
    depth: int = field(default=2, metadata=_limits(low=1))
    lr: float = field(default=1e-3, metadata=_limits(low=0))
    covariance: str = field(default="diagonal", metadata=_limits(among=COVARIANCES))
    activation: str = field(default="silu", metadata=_limits(among=ACTIVATIONS))
    samples: int = field(default=4, metadata=_limits(low=1))  # K of moca-mc


@dataclass(frozen=True)
class Belief:
    """What the agent takes for the state: the observation, or the mean of a filter's Gaussian belief."""

    filter: bool = field(default=False, metadata=_limits())
    noise: str = field(default="known", metadata=_limits(among=NOISE_LEVELS))
    sigma: float = field(default=0.1, metadata=_limits(above=0))  # where a learned noise level starts
    sigma_lr: float = field(default=0.1, metadata=_limits(low=0))  # of its logarithm, per episode


@dataclass(frozen=True)
class Exploration:
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
    seed: int = field(default=0, metadata=_limits(low=0, high=2**31 - 1))
    seeds: int = field(default=1, metadata=_limits(low=1, high=100_000))
    env: Environment = field(default_factory=Environment)
    noise: Noise = field(default_factory=Noise)
    train: Train = field(default_factory=Train)
    critic: Critic = field(default_factory=Critic)
    value: Value = field(default_factory=Value)
    dynamics: Dynamics = field(default_factory=Dynamics)
    belief: Belief = field(default_factory=Belief)
    exploration: Exploration = field(default_factory=Exploration)
    sac: SAC = field(default_factory=SAC)

    def validated(self) -> "Config":
        """The config itself, if every field is in its range and the fields fit each other; raises `ConfigError` if not.

        Not done by the constructor: inside a compiled program the numbers of a config have no value yet.
        """
        for name, value in flatten(self).items():
            _check(name, value, field_of(name))
        env, noise, train = self.env, self.noise, self.train
        if env.episode_length % env.action_repeat:
            raise ConfigError(
                f"env.action_repeat = {env.action_repeat} must divide env.episode_length = {env.episode_length}"
            )
        if train.steps % env.episode_length:
            raise ConfigError(
                f"train.steps = {train.steps} must be a multiple of env.episode_length = {env.episode_length}: "
                f"try {max(1, round(train.steps / env.episode_length)) * env.episode_length}"
            )
        if train.batch > train.capacity:
            raise ConfigError(f"train.batch = {train.batch} must not exceed train.capacity = {train.capacity}")
        if self.belief.noise == "learned":
            if not self.belief.filter:
                raise ConfigError(
                    "belief.noise = learned needs belief.filter = true: nothing else uses the noise level"
                )
            if train.capacity < env.episode_length // env.action_repeat:
                raise ConfigError(
                    f"belief.noise = learned needs a whole episode: train.capacity = {train.capacity} must be at least "
                    f"{env.episode_length // env.action_repeat}"
                )
        value = self.value
        if value.encoder and not value.basis_lr:
            raise ConfigError("value.encoder needs value.basis_lr above 0: an encoder that does not learn is no use")
        if not value.least < value.most:
            raise ConfigError(f"value.least = {value.least:g} must lie below value.most = {value.most:g}")
        for name in ("high", "lengthscales"):
            if len(getattr(value, name)) != len(value.low):
                raise ConfigError(
                    f"value.{name} has {len(getattr(value, name))} numbers, but value.low has {len(value.low)}"
                )
        if not all(low < high for low, high in zip(value.low, value.high, strict=True)):
            raise ConfigError(f"value.low = {list(value.low)} must lie below value.high = {list(value.high)}")
        if self.agent in QUADRATIC_AGENTS and not value.low:
            raise ConfigError(
                f"{self.agent} needs value.low, value.high and value.lengthscales, and {env.name} has no preset: say "
                "in which range each observed dimension lies and over which length values change there"
            )
        if noise.kind == "state-norm":
            if not any(math.isfinite(scale) for scale in noise.scales):
                raise ConfigError(
                    "noise.kind = state-norm needs noise.scales, a number per observed dimension, of which inf leaves "
                    f"one out, but not all: {list(noise.scales)} is none for {env.name}; CartpoleBalance has "
                    "[2.4,inf,inf,2,3]"
                )
            if noise.sigma_min > noise.sigma:
                raise ConfigError(
                    f"noise.sigma_min = {noise.sigma_min:g} must not exceed noise.sigma = {noise.sigma:g}"
                )
        return self


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
    top: dict[str, Any] = {}
    sections: dict[str, dict[str, Any]] = {}
    for name, value in settings.items():
        value = _convert(name, value, field_of(name))
        section, _, inner = name.rpartition(".")
        if section:
            sections.setdefault(section, {})[inner] = value
        else:
            top[name] = value
    for section, values in sections.items():
        top[section] = dataclasses.replace(getattr(config, section), **values)
    return dataclasses.replace(config, **top).validated()


def to_json(config: Config) -> str:
    """The config in full, as JSON; infinities are the strings "inf" and "-inf"."""
    return json.dumps(plain(dataclasses.asdict(config)), indent=2)


def from_json(text: str) -> Config:
    """The config that `to_json` wrote; what is not named keeps its default."""
    return override(Config(), _dotted(json.loads(text)))


def read_settings(path: Path) -> dict[str, Any]:
    """Settings by dotted name from a JSON or TOML file."""
    try:
        text = path.read_text()
        return _dotted(tomllib.loads(text) if path.suffix == ".toml" else json.loads(text))
    except OSError as error:
        raise ConfigError(f"cannot read the config file {path}: {error.strerror}") from None
    except (ValueError, AttributeError) as error:
        kind = "TOML" if path.suffix == ".toml" else "JSON"
        raise ConfigError(f"the config file {path} does not hold settings as {kind}: {error}") from None


def _dotted(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Nested settings by dotted name."""
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        flat |= {f"{name}.{inner}": leaf for inner, leaf in value.items()} if isinstance(value, dict) else {name: value}
    return flat


def parse_assignment(text: str) -> tuple[str, Any]:
    """`critic.lr=3e-4` as name and value."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"a setting is NAME=VALUE, for example train.gamma=0.98; got {text!r}")
    field_of(name.strip())
    return name.strip(), value.strip()


def nearest(word: str, known: Iterable[str]) -> str:
    """ " Did you mean …?" for a mistyped word, or nothing."""
    match = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f" Did you mean {match[0]}?" if match else ""


def field_of(name: str) -> dataclasses.Field:
    """The field a dotted name means."""
    section, _, inner = name.rpartition(".")
    owner: Any = Config
    if section:
        owner = get_type_hints(Config).get(section)
    found = {f.name: f for f in dataclasses.fields(owner)} if dataclasses.is_dataclass(owner) else {}
    if inner not in found or (not section and dataclasses.is_dataclass(get_type_hints(Config)[inner])):
        known = [*flatten(_DEFAULTS)]
        raise ConfigError(f"there is no setting {name!r}.{nearest(name, known)} All settings: {', '.join(known)}")
    return found[inner]


def _convert(name: str, value: Any, item: dataclasses.Field) -> Any:
    """`value`, from a command line or a file, as the type of its field."""
    kind: Any = item.type
    try:
        if kind is float and not isinstance(value, bool):
            return float(value)
        if kind is int and not isinstance(value, bool):
            whole = float(value)
            if whole.is_integer():
                return int(whole)
        if kind is bool and str(value).lower() in ("true", "yes", "1", "false", "no", "0"):
            return str(value).lower() in ("true", "yes", "1")
        if kind is str and isinstance(value, str):
            return value
        if kind == tuple[float, ...]:
            parts = value.strip("[]() ").split(",") if isinstance(value, str) else value
            return tuple(float(part) for part in parts if part != "")
    except (TypeError, ValueError):
        pass
    wanted = {float: "a number", int: "a whole number", bool: "true or false", str: "a word"}.get(
        kind, "a list of numbers"
    )
    raise ConfigError(f"{name} must be {wanted}, got {value!r}")


def _check(name: str, value: Any, item: dataclasses.Field) -> None:
    limits = item.metadata.get("limits", {})
    prefixes = limits.get("prefixes", ())
    free = any(str(value).startswith(prefix) and value != prefix for prefix in prefixes)
    if "among" in limits and not free and value not in limits["among"]:
        shown = ", ".join(limits["among"]) + (f", or {prefixes[0]}NAME" if prefixes else "")
        if isinstance(limits["among"], list):
            shown += ", and what a file in MOCA_PLUGINS registers"
        raise ConfigError(f"{name} = {value!r} is unknown.{nearest(str(value), limits['among'])} Allowed: {shown}")
    for number in value if isinstance(value, tuple) else [value]:
        if isinstance(number, int | float):
            _check_range(name, number, limits, isinstance(value, tuple) or limits.get("infinite", False))


def _check_range(name: str, number: float, limits: Mapping[str, Any], may_be_infinite: bool) -> None:
    tests = {
        "low": (lambda bound: number >= bound, "at least"),
        "above": (lambda bound: number > bound, "above"),
        "high": (lambda bound: number <= bound, "at most"),
        "below": (lambda bound: number < bound, "below"),
    }
    allowed = " and ".join(f"{tests[key][1]} {bound:g}" for key, bound in limits.items() if key in tests)
    inside = all(tests[key][0](bound) for key, bound in limits.items() if key in tests)
    if math.isnan(number) or (math.isinf(number) and not may_be_infinite) or not inside:
        finite = math.isfinite(number) or may_be_infinite
        wanted = [*([] if finite else ["finite"]), *([allowed] if allowed else [])]
        raise ConfigError(f"{name} = {number:g} is out of range: it must be {' and '.join(wanted) or 'a number'}")


def plain(tree: Any) -> Any:
    """Settings as JSON can hold them: lists for tuples, words for infinities."""
    if isinstance(tree, dict):
        return {name: plain(value) for name, value in tree.items()}
    if isinstance(tree, tuple):
        return [plain(value) for value in tree]
    return {math.inf: "inf", -math.inf: "-inf"}.get(tree, tree) if isinstance(tree, float) else tree


_DEFAULTS = Config()
