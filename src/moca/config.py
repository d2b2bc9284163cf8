"""Every setting, as frozen data. Nothing here imports jax: a bad setting is refused in milliseconds.

Fields of type `float` may differ between the runs of one compiled program (they become traced numbers); a change in
any other field compiles another program.
"""

import dataclasses
import difflib
import json
import math
import numbers
import os
import re
import struct
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

from moca.names import GYMNASIUM, OWN, PLAYGROUND, is_name

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

INT32 = 2**31 - 1  # whole numbers become counters and sizes of arrays
SIZES = (1e-15, 1e15)  # of real numbers but 0 and infinities: float32 holds these, their squares and their inverses
DEEPEST = 100  # layers are traced one by one
WIDEST = 2**16
FILE_LIMIT = 2**20  # bytes of a file of settings
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?|[+-]?inf|nan", re.ASCII | re.IGNORECASE)


class ConfigError(ValueError):
    """A setting that cannot be; the message names it, its value and what is allowed."""


def _limits(**bounds: Any) -> dict[str, Any]:
    """Metadata of a field: `low`, `high` (inclusive unless `above`/`below` are given), `infinite`, or `among`.

    Beside the words of `among`, any that begins with one of `prefixes` is allowed. What all numbers must fit is
    `INT32` and `SIZES`.
    """
    return {"limits": bounds}


@dataclass(frozen=True)
class EnvConfig:
    """Which task, and how its steps are counted. Steps are always environment steps, whatever the action repeat."""

    name: str = field(default="CartpoleBalance", metadata=_limits(among=PLAYGROUND, prefixes=(GYMNASIUM, OWN)))
    episode_length: int = field(default=1000, metadata=_limits(low=1))
    action_repeat: int = field(default=1, metadata=_limits(low=1))


@dataclass(frozen=True)
class NoiseConfig:
    """Gaussian noise on what the agent observes [App. A], and a random disturbance of the actions it takes.

    `homoscedastic`: standard deviation `sigma`. `state-norm`: from `sigma_min` to `sigma` with the norm of the state
    over `scales`, whose dimensions of infinite scale are left out. `action` is process noise: the deviation of a
    disturbance, in units of half the action range, that is added to every executed action and that nobody observes.
    """

    kind: str = field(default="homoscedastic", metadata=_limits(among=NOISES))
    sigma: float = field(default=0.0, metadata=_limits(low=0))
    sigma_min: float = field(default=0.0, metadata=_limits(low=0))
    scales: tuple[float, ...] = field(default=(), metadata=_limits(above=0, infinite=True))
    action: float = field(default=0.0, metadata=_limits(low=0))


@dataclass(frozen=True)
class TrainConfig:
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
    """What the agent takes for the state: the observation, or the mean of a filter's Gaussian belief."""

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
        return _replaced(self, {name: _convert(name, value) for name, value in flatten(self).items()})._fitting()

    def _fitting(self) -> "Config":
        """The config itself, if its settings fit each other."""
        env, noise, train = self.env, self.noise, self.train
        if self.seed + self.seeds - 1 > INT32:
            raise ConfigError(f"seed = {self.seed} with seeds = {self.seeds} leads beyond {INT32}: take a smaller seed")
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
        if not _single(value.least) < _single(value.most):
            raise ConfigError(f"value.least = {shown(value.least)} must lie below value.most = {shown(value.most)}")
        for name in ("high", "lengthscales"):
            if len(getattr(value, name)) != len(value.low):
                raise ConfigError(
                    f"value.{name} has {len(getattr(value, name))} numbers, but value.low has {len(value.low)}"
                )
        if not all(_single(low) < _single(high) for low, high in zip(value.low, value.high, strict=True)):
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
                    f"noise.sigma_min = {shown(noise.sigma_min)} must not exceed noise.sigma = {shown(noise.sigma)}"
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
    if not isinstance(config, Config):
        raise ConfigError(f"config must be a moca.config.Config, as moca.presets.build makes one, got {shown(config)}")
    if not isinstance(settings, Mapping):
        raise ConfigError(f"settings must be a dictionary of values by dotted name, got {shown(settings)}")
    return _replaced(config, {name: _convert(name, value) for name, value in settings.items()}).validated()


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


def to_json(config: Config) -> str:
    """The config in full, as JSON; infinities are the strings "inf" and "-inf"."""
    return json.dumps(plain(dataclasses.asdict(config)), indent=2)


def from_json(text: str) -> Config:
    """The config that `to_json` wrote; what is not named keeps its default."""
    return override(Config(), settings_of(text))


def read_settings(path: Path) -> dict[str, Any]:
    """Settings by dotted name from a JSON or TOML file, each of them checked."""
    try:
        if path.exists() and not path.is_file():
            raise ConfigError(f"cannot read the config file {path}: it is no regular file")
        with path.open("rb") as file:
            content = file.read(FILE_LIMIT + 1)
        if len(content) > FILE_LIMIT:
            raise ConfigError(f"the config file {path} is too large: settings take at most {FILE_LIMIT} bytes")
        found = settings_of(content.decode("utf-8-sig"), path.suffix == ".toml")
        return {name: _convert(name, value) for name, value in found.items()}
    except OSError as error:
        raise ConfigError(f"cannot read the config file {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"the config file {path} is no text in UTF-8") from None
    except ConfigError as error:
        raise error if str(path) in str(error) else ConfigError(f"the config file {path}: {error}") from None


def settings_of(text: str, toml: bool = False) -> dict[str, Any]:
    """Settings by dotted name from the text of a JSON or TOML file: one table, of values and of tables of values."""
    read: Any = tomllib.loads if toml else partial(json.loads, object_pairs_hook=_once, parse_constant=_no_constant)
    try:
        tree = read(text)
    except RecursionError:
        raise ConfigError("it is nested too deeply: settings are a table of tables") from None
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(f"it does not hold settings as {'TOML' if toml else 'JSON'}: {error}") from None
    if not isinstance(tree, dict):
        raise ConfigError(f'settings are a table, such as {{"train": {{"gamma": 0.98}}}}, got {shown(tree)}')
    pairs: list[tuple[str, Any]] = []
    for name, value in tree.items():
        pairs += (
            [(f"{name}.{inner}", leaf) for inner, leaf in value.items()] if isinstance(value, dict) else [(name, value)]
        )
    return _once(pairs)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The pairs as a dictionary; raises if a name is there twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ConfigError(f"{shown(next(name for name in names if names.count(name) > 1))} is set twice")
    return found


def _no_constant(word: str) -> Any:
    raise ConfigError(f'{word} is no JSON: an infinite number is the word "inf" or "-inf"')


def parse_assignment(text: str) -> tuple[str, Any]:
    """`critic.lr=3e-4` as name and value."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"a setting is NAME=VALUE, for example train.gamma=0.98; got {shown(text)}")
    field_of(name.strip())
    return name.strip(), value.strip()


def nearest(word: str, known: Iterable[str]) -> str:
    """ " Did you mean …?" for a mistyped word, or nothing."""
    match = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f" Did you mean {match[0]}?" if match else ""


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


def shown(value: Any) -> str:
    """A value as a message has it: a few letters, numbers with all the digits they need."""
    try:
        if type(value) is float:
            return f"{value:g}" if float(f"{value:g}") == value else repr(value)
        text = repr(value)
    except Exception:  # what a foreign object raises when asked for its words
        text = f"an object of type {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:60]} … {text[-10:]}"


def whole(name: str, value: Any, low: int = 0, high: int = INT32) -> int:
    """`value` as a whole number within these limits; raises `ConfigError` if it is none."""
    return _within(name, _whole(name, value), {"low": low, "high": high})


def real(name: str, value: Any, low: float = 0.0) -> float:
    """`value` as a finite number of at least `low`; raises `ConfigError` if it is none."""
    return _within(name, _real(name, value), {"low": low})


def as_path(name: str, value: Any) -> Path:
    """`value` as a path that a file system can hold; raises `ConfigError` if it is none."""
    if not isinstance(value, str | os.PathLike) or not isinstance(text := os.fspath(value), str):
        raise ConfigError(f"{name} must be a path, got {shown(value)}")
    parts = os.fsencode(text).split(b"/") if text.isprintable() else []
    if not text or not parts or max(map(len, parts)) > 255 or len(text) > 1024:
        raise ConfigError(
            f"{name} = {shown(text)} is no path: it must be made of printable letters, at most 255 between two slashes"
        )
    return Path(text)


def _convert(name: str, value: Any) -> Any:
    """`value`, from a command line, a file or a caller, as the type of its field, if it is within the limits."""
    item = field_of(name)
    kind, limits = item.type, item.metadata["limits"]
    value = _unwrapped(value)
    if kind is float:
        return _within(name, _real(name, value), limits)
    if kind is int:
        return _within(name, _whole(name, value), {"high": INT32, **limits})
    if kind == tuple[float, ...]:
        return tuple(_within(name, number, limits) for number in _list(name, value))
    if kind is bool:
        word = str.lower(value) if isinstance(value, str) else value
        for answer, words in ((True, (True, "true", "yes", "1")), (False, (False, "false", "no", "0"))):
            if isinstance(word, str | bool | int) and word in words:
                return answer
        raise ConfigError(f"{name} must be true or false, got {shown(value)}")
    if not isinstance(value, str):
        raise ConfigError(f"{name} must be a word, got {shown(value)}")
    return _known(name, str.__str__(value), limits)


def _unwrapped(value: Any) -> Any:
    """What an array of one number, such as NumPy's, holds."""
    return value.item() if getattr(value, "ndim", None) == 0 and callable(getattr(value, "item", None)) else value


def _list(name: str, value: Any) -> list[float]:
    """Numbers from a text, as `[1, 2]`, from a list, or from an array with one axis."""
    parts = value.tolist() if getattr(value, "ndim", None) == 1 else value
    if isinstance(value, str):
        inner = value.strip("[]() ")
        parts = [part.strip() for part in inner.split(",")] if inner else []
    try:
        if isinstance(parts, list | tuple):
            return [_real(name, _unwrapped(part)) for part in parts]
    except ConfigError:
        pass
    raise ConfigError(f"{name} must be a list of numbers, got {shown(value)}")


def _real(name: str, value: Any) -> float:
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        number = float(value)
        overflown = math.isinf(number) and value.strip("+-").lower() != "inf"
    elif isinstance(value, numbers.Real) and not isinstance(value, bool):
        try:
            number, overflown = float.__float__(value) if isinstance(value, float) else float(value), False
        except OverflowError:
            overflown = True
    else:
        raise ConfigError(f"{name} must be a number, got {shown(value)}")
    if overflown:
        raise ConfigError(f"{name} = {shown(value)} is out of range: it must be at most {SIZES[1]:g} in size")
    return number


def _whole(name: str, value: Any) -> int:
    if isinstance(value, numbers.Integral) and not isinstance(value, bool):
        return int(value)
    try:
        number = _real(name, value)
    except ConfigError:
        number = math.nan
    if not number.is_integer():
        raise ConfigError(f"{name} must be a whole number, got {shown(value)}")
    return int(number)


def _known(name: str, word: str, limits: Mapping[str, Any]) -> str:
    """`word`, if it is one of those that the field allows."""
    prefixes = limits.get("prefixes", ())
    if any(word.startswith(prefix) for prefix in prefixes):
        if not is_name(word.partition(":")[2]):
            raise ConfigError(
                f"{name} = {shown(word)} is not a name: it is one of Playground's, or {prefixes[0]}NAME, with letters, "
                "digits and any of _ - . : / in NAME"
            )
    elif word not in limits["among"]:
        allowed = ", ".join(limits["among"]) + (f", or {prefixes[0]}NAME" if prefixes else "")
        if isinstance(limits["among"], list):
            allowed += ", and what a file in MOCA_PLUGINS registers"
        hint = nearest(word, limits["among"])
        if prefixes and is_name(word) and re.search(r"-v\d+$", word):
            hint = f" Did you mean {prefixes[0]}{word}?"
        raise ConfigError(f"{name} = {shown(word)} is unknown.{hint} Allowed: {allowed}")
    return word


def _within(name: str, number: Any, limits: Mapping[str, Any]) -> Any:
    """`number`, if it is within the limits, and would be as a float32 too."""
    tests = {
        "low": (lambda number, bound: number >= bound, "at least"),
        "above": (lambda number, bound: number > bound, "above"),
        "high": (lambda number, bound: number <= bound, "at most"),
        "below": (lambda number, bound: number < bound, "below"),
    }
    bounds = {key: bound for key, bound in limits.items() if key in tests}
    wanted = [f"{tests[key][1]} {bound if isinstance(bound, int) else shown(bound)}" for key, bound in bounds.items()]
    inside = all(tests[key][0](number, bound) for key, bound in bounds.items())
    if isinstance(number, float):
        least, most = SIZES
        fits = number == 0 or least <= abs(number) <= most
        if math.isinf(number) or math.isnan(number):
            fits = limits.get("infinite", False) and not math.isnan(number)
            wanted = [*([] if limits.get("infinite") else ["finite"]), *wanted]
        elif not fits:
            size = f"from {least:g} to {most:g} in size"
            wanted.append(size if "above" in bounds else f"0 or {size}")
        elif any(_single(number) == bound != number for bound in bounds.values()):
            fits = False
            wanted.append(f"further from {_single(number):g} than single precision can tell")
        inside = inside and fits
    if not inside:
        raise ConfigError(f"{name} = {shown(number)} is out of range: it must be {' and '.join(wanted) or 'a number'}")
    return number


def _single(number: float) -> float:
    """The number as a float32 holds it."""
    return struct.unpack("f", struct.pack("f", number))[0]


def plain(tree: Any) -> Any:
    """Settings as JSON can hold them: lists for tuples, words for infinities."""
    if isinstance(tree, dict):
        return {name: plain(value) for name, value in tree.items()}
    if isinstance(tree, tuple):
        return [plain(value) for value in tree]
    return {math.inf: "inf", -math.inf: "-inf"}.get(tree, tree) if isinstance(tree, float) else tree
