"""Checks that settings are consistent with each other."""

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from moca.config.checks import INT32, ConfigError, shown, single
from moca.config.registry import AGENTS, BUILT_IN, CONSTANT, ENVS, NOISES, QUADRATIC_AGENTS
from moca.config.sensing import is_off
from moca.names import GYMNASIUM, MJX, OWN, PLAYGROUND, SUITE

if TYPE_CHECKING:
    from moca.config.sections import Config


def foreign(agent: Any, models: bool = False) -> set[str]:
    """Returns the sections of the settings that an agent does not use; none for one of the user's.

    With `models`, it has a model even if it predicts nothing, as a filter needs one.
    """
    if not isinstance(agent, str) or agent not in BUILT_IN:
        return set()
    found = {"critic", "value"} if agent == "sac" else {"sac"}
    return found | (set() if AGENTS[agent].prediction else {"plan"} if models else {"plan", "dynamics"})


def unused(config: "Config", names: Iterable[str]) -> list[str]:
    """Returns the settings among those named that the agent does not use."""
    sections = foreign(config.agent, config.belief.filter) - ({"value"} if config.belief.width else set())
    return [name for name in names if name.partition(".")[0] in sections]


def refuse_unfitting(config: "Config") -> None:
    """Raises `ConfigError` if settings contradict each other."""
    for fits in (_counts_fit, _physics_fits, _belief_fits, _value_fits, _plan_fits, _noise_fits, _sensor_fits):
        fits(config)


def _counts_fit(config: "Config") -> None:
    env, train = config.env, config.train
    if config.seed + config.seeds - 1 > INT32:
        raise ConfigError(
            f"seed = {config.seed} with seeds = {config.seeds} gives seeds above {INT32}: use a smaller seed"
        )
    if not may_be_on_host(env.name):
        refuse_partial(config)
    if (updates := train.steps // env.action_repeat * train.updates) > INT32:
        raise ConfigError(
            f"train.steps = {train.steps} with train.updates = {train.updates} makes {updates} updates, more than "
            f"the maximum of {INT32}: lower one of the two"
        )
    if train.batch > train.capacity:
        raise ConfigError(f"train.batch = {train.batch} must not exceed train.capacity = {train.capacity}")


def _physics_fits(config: "Config") -> None:
    refuse_physics(config.env.name, config.env.physics)


def refuse_physics(name: str, physics: str) -> None:
    """Raises if the environment of that name cannot have those physics."""
    if physics != MJX and name not in SUITE:
        kind = "another of Playground's" if name in PLAYGROUND else "none of Playground's"
        raise ConfigError(
            f"env.physics = {physics} is for Playground's tasks of the DeepMind control suite, such as WalkerWalk, "
            f"and env.name = {name} is {kind}: leave out env.physics"
        )


def may_be_on_host(name: str) -> bool:
    """Returns False if an environment of that name is certainly a compiled one."""
    return name.startswith((GYMNASIUM, OWN)) or ENVS.get(name) is not None


def refuse_partial(config: "Config") -> None:
    """Raises if a decision or an episode would be partial: compiled ones have a fixed length."""
    env, train = config.env, config.train
    length = _multiple(env.action_repeat, env.episode_length)
    steps, wrong, changed = _multiple(length, train.steps), [], {}
    if length != env.episode_length:
        wrong.append(f"env.action_repeat = {env.action_repeat} must divide env.episode_length = {env.episode_length}")
        changed["env.episode_length"] = length
    if train.steps % env.episode_length:
        wrong.append(f"train.steps = {train.steps} must be a multiple of env.episode_length = {env.episode_length}")
    if steps != train.steps:
        changed["train.steps"] = steps
    if wrong:
        tried = " and ".join(f"{name} = {value}" for name, value in changed.items())
        raise ConfigError(f"{', and '.join(wrong)}: try {tried}")


def _multiple(unit: int, number: int) -> int:
    """Returns the positive multiple of `unit` that is nearest to a number."""
    return max(1, round(number / unit)) * unit


def _belief_fits(config: "Config") -> None:
    belief = config.belief
    if belief.width:
        given = "belief.width = true"
        _need_filter(config, given, "an observation alone has no width")
        _refuse_history(config, given)
        if name := _planning(config):
            raise ConfigError(f"{given} cannot be combined with {name} yet: use moca without planning")
    if belief.outcomes:
        given = "belief.outcomes = true"
        _need_filter(config, given, "only a filter knows how much of an outcome is noise")
        if AGENTS[config.agent].prediction is None:
            raise ConfigError(
                f"{given} needs an agent that predicts the next state: the targets of {config.agent} take the outcome "
                "anyway"
            )
        if belief.width or config.plan.horizon > 1:
            other = "belief.width" if belief.width else "plan.horizon above 1"
            raise ConfigError(f"{given} cannot be combined with {other} yet: leave out one of the two")
    if belief.noise == "learned":
        given = "belief.noise = learned"
        _need_filter(config, given, "only the filter uses the noise level")
        if config.train.capacity < (needed := -(-config.env.episode_length // config.env.action_repeat)):
            raise ConfigError(
                f"{given} needs whole episodes: train.capacity = {config.train.capacity} must be at least {needed}"
            )


def _need_filter(config: "Config", given: str, because: str) -> None:
    if not config.belief.filter:
        raise ConfigError(f"{given} needs belief.filter = true: {because}")


def _refuse_history(config: "Config", given: str) -> None:
    if config.sensor.history:
        raise ConfigError(f"{given} cannot be combined with sensor.history yet: set sensor.history to 0")


def _value_fits(config: "Config") -> None:
    value = config.value
    if not single(value.least) < single(value.most):
        raise ConfigError(f"value.least = {shown(value.least)} must be below value.most = {shown(value.most)}")
    for name in ("high", "lengthscales"):
        if len(numbers := getattr(value, name)) != len(value.low):
            raise ConfigError(f"value.{name} has {len(numbers)} numbers, but value.low has {len(value.low)}")
    if not all(single(low) < single(high) for low, high in zip(value.low, value.high, strict=True)):
        raise ConfigError(f"value.low = {list(value.low)} must be below value.high = {list(value.high)}")
    if config.agent in QUADRATIC_AGENTS and not value.low:
        raise ConfigError(
            f"{config.agent} needs value.low, value.high and value.lengthscales, and {config.env.name} has no preset: "
            "give the range of each observed dimension and the length over which V changes along it"
        )


def _plan_fits(config: "Config") -> None:
    name = _planning(config)
    if not name:
        return
    if AGENTS[config.agent].prediction is None:
        raise ConfigError(
            f"{name} needs an agent that predicts the next state, which {config.agent} does not: choose moca, or leave "
            "planning off"
        )
    _refuse_history(config, name)
    _variance_fits(config)


def _variance_fits(config: "Config") -> None:
    plan, weighted = config.plan, config.plan.horizon > 1 and config.plan.weights == "variance"
    given = {
        "plan.actions = gaussian": plan.imagined and plan.actions == "gaussian",
        "plan.weights = variance": weighted,
    }
    for name in (name for name, asked in given.items() if asked and config.agent == "moca-ce"):
        raise ConfigError(
            f"{name} needs a prediction with a variance, and moca-ce takes the mean alone: choose moca, moca-mc or "
            "moca-mixture"
        )
    if weighted and config.agent == "moca-mc" and config.dynamics.samples < 2:
        raise ConfigError(
            "plan.weights = variance needs dynamics.samples of at least 2 for moca-mc: one sample has no variance"
        )


def _planning(config: "Config") -> str:
    """Returns the setting that asks for planning, if there is one."""
    plan = config.plan
    given = {
        f"plan.horizon = {plan.horizon}": plan.horizon > 1,
        f"plan.imagined = {plan.imagined}": plan.imagined > 0,
        f"plan.curiosity = {shown(plan.curiosity)}": not is_off(plan.curiosity),
        "agent = moca-plan": config.agent == "moca-plan",
    }
    return next((name for name, asked in given.items() if asked), "")


def _noise_fits(config: "Config") -> None:
    noise = config.noise
    if NOISES[noise.kind].scaled and not any(math.isfinite(scale) for scale in noise.scales):
        raise ConfigError(
            f"noise.kind = {noise.kind} needs noise.scales, one number per observed dimension of {config.env.name}, "
            f"with inf for dimensions to ignore, but not for all; got {list(noise.scales)}. CartpoleBalance uses "
            "[2.4,inf,inf,2,3]"
        )
    if noise.sigmas and noise.sigma:
        raise ConfigError(
            f"noise.sigma = {shown(noise.sigma)} and noise.sigmas = {shown(list(noise.sigmas))} cannot both be set: "
            "give one standard deviation for all observed dimensions, or one for each"
        )
    name, most = ("noise.sigmas", min(noise.sigmas)) if noise.sigmas else ("noise.sigma", noise.sigma)
    if noise.kind != CONSTANT and noise.sigma_min > most:
        raise ConfigError(f"noise.sigma_min = {shown(noise.sigma_min)} must not exceed {name} = {shown(most)}")


def _sensor_fits(config: "Config") -> None:
    sensor = config.sensor
    if list(sensor.observed) != sorted(set(sensor.observed)):
        raise ConfigError(
            f"sensor.observed = {shown(list(sensor.observed))} must be different numbers in ascending order"
        )
    if sensor.gaps:
        _need_filter(config, "sensor.gaps = true", "only a filter can handle missing values")
    if sensor.delay >= (steps := -(-config.env.episode_length // config.env.action_repeat)):
        raise ConfigError(f"sensor.delay = {sensor.delay} must be below the {steps} decisions of an episode")
