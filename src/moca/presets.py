"""Presets: the paper's settings, and settings that were found to work."""

from collections.abc import Mapping
from math import inf
from typing import Any

from moca.config import (
    NOISES,
    QUADRATIC_AGENTS,
    Config,
    ConfigError,
    checked,
    flatten,
    full_name,
    may_be_on_host,
    nearest,
    override,
    shown,
)
from moca.names import PLAYGROUND

# Facts about a task, the same in every preset. The scales are those of App. A, without sine and
# cosine. Bounds and lengthscales are those of App. B.4 and B.5, in Playground's order of
# dimensions.
ENVIRONMENTS: dict[str, dict[str, Any]] = {
    "CartpoleBalance": {  # x, cos θ, sin θ, ẋ, θ̇
        "noise.scales": (2.4, inf, inf, 2.0, 3.0),
        "value.low": (-2.5, -1.0, -1.0, -10.0, -15.0),
        "value.high": (2.5, 1.0, 1.0, 10.0, 15.0),
        "value.lengthscales": (0.6, 0.5, 0.5, 3.0, 4.0),
    },
    "PendulumSwingup": {  # sin θ, cos θ, θ̇
        "value.low": (-1.0, -1.0, -8.0),
        "value.high": (1.0, 1.0, 8.0),
        "value.lengthscales": (0.5, 0.5, 2.0),
    },
}

# The table of App. D, with M of App. B.3.
_PRINTED = {
    "critic.lr": 1e-4,
    "critic.lr_end": 1e-4,
    "train.batch": 128,
    "exploration.probability": 0.2,
    "exploration.probability_end": 0.2,
    "critic.target_period": 100,
    "critic.keepalive": 1e-4,
    "value.kind": "rbf",
    "value.lr": 1e-4,
    "value.basis_lr": 0.0,
    "value.constant_lr": 0.0,  # Eq. 6 has no constant
    "value.least": -inf,  # Eq. 5 has no bounds
    "value.most": inf,
}

# SAC with the settings that most implementations share: see moca.agents.sac.
SAC_USUAL: dict[str, Any] = {
    "sac.width": 256,
    "sac.actor_lr": 3e-4,
    "sac.critic_lr": 3e-4,
    "sac.alpha_lr": 3e-4,
    "sac.entropy_per_action": -1.0,
    "sac.probability": 0.0,
    "train.batch": 128,
    "train.updates": 1,
}

# The values that App. D prints for each task, except the vertex head's rate, with M of App. B.3.
_PRINTED_FOR: dict[str, dict[str, Any]] = {
    "CartpoleBalance": {
        "value.bases": 256,
        "exploration.sigma": 1.0,
        "exploration.sigma_end": 0.1,
        "exploration.anneal": 0.5,
        "critic.keepalive_min": 0.5,
    },
    "PendulumSwingup": {
        "value.bases": 128,
        "exploration.sigma": 0.3,
        "exploration.sigma_end": 0.3,
        "critic.keepalive_min": 2.0,
    },
}

# Small networks that learn fast, and exploration that goes far.
_FAST: dict[str, Any] = {
    "critic.width": 64,
    "critic.lr": 1e-3,
    "critic.lr_end": 1e-3,
    "critic.vertex_lr": 1e-3,
    "critic.vertex_lr_end": 1e-3,
    "value.basis_lr": 3e-3,
    "dynamics.width": 64,
    "dynamics.members": 3,
    "exploration.sigma": 0.3,
    "exploration.random": "extreme",
}

# Settings that were found to work, one set for all tasks, with a filter that is told how large the
# noise is. docs/learning.md lists the differences from the paper.
_TOLD: dict[str, dict[str, Any]] = {
    "": {
        **_FAST,
        "env.action_repeat": 2,
        "train.updates": 2,
        "train.decay": 0.1,
        "critic.head": "slope",
        "critic.keepalive": 0.0,
        "value.kind": "erf",
        "value.lr": 3e-3,
        "belief.filter": True,
        "exploration.probability": 0.2,
        "exploration.probability_end": 0.0,
        "exploration.hold": 10.0,
    },
    "CartpoleBalance": {"value.least": 0.0},  # rewards are never negative
    "PendulumSwingup": {"value.least": 0.0},
}

# The same, with a filter that learns the noise. See docs/sensors.md.
_TUNED = {**_TOLD, "": {**_TOLD[""], "belief.noise": "learned", "belief.covariance": "full"}}

PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    # [App. D] [App. B.3]; "" applies to every environment.
    "paper": {
        "": _PRINTED,
        "CartpoleBalance": {
            **_PRINTED_FOR["CartpoleBalance"],
            "critic.vertex_lr": 1e-5,
            "critic.vertex_lr_end": 1e-5,
        },
        "PendulumSwingup": {
            **_PRINTED_FOR["PendulumSwingup"],
            "critic.vertex_lr": 5e-6,
            "critic.vertex_lr_end": 5e-6,
        },
    },
    # The paper's method on raw, noisy observations, with the smallest changes that make it learn:
    # learned bases of V, faster rates, and random actions that are held. The paper does not print
    # widths, K and the model's rate. See docs/replication.md.
    "raw": {
        "": {
            **_PRINTED,
            **_FAST,
            "value.kind": "rbf-learned",
            "value.lr": 1e-2,
            "dynamics.lr": 3e-4,
            "exploration.hold": 20.0,
        },
        **_PRINTED_FOR,
        # The best of 64 settings on both tasks: see docs/replication.md.
        "sac": {
            "sac.actor_lr": 1e-3,
            "sac.critic_lr": 1e-3,
            "sac.alpha_lr": 1e-3,
            "sac.probability": 0.2,
            "train.batch": 256,
            "train.updates": 2,
        },
    },
    "tuned": _TUNED,
    "told": _TOLD,
    # For few steps of experience: many updates on imagined transitions. See docs/planning.md.
    "efficient": {
        **_TOLD,
        "": {
            **_TOLD[""],
            "env.action_repeat": 4,
            "train.gamma": 0.98,
            "train.updates": 10,
            "critic.target_period": 25,
            "plan.imagined": 8,
            "plan.curiosity": 3.0,
        },
        **{agent: {"plan.imagined": 0, "plan.curiosity": 0.0} for agent in ("bnaf", "naf", "sac")},
    },
}


# Settings that a short random rollout measures for an environment without an entry above: see
# moca.envs.defaults.
_MEASURED = ("value.low", "value.high", "value.lengthscales", "noise.scales", "sensor.scales")
START = "env.random_start"
# Ranges of one dimension, with which all other settings can be checked before any are measured.
_STAND_INS = dict(zip(_MEASURED, ((0.0,), (1.0,), (1.0,), (1.0,), ()), strict=True))


def lacks(preset: str, env: str | None, settings: Mapping[str, Any]) -> frozenset[str]:
    """Returns the names of settings that are missing and must be measured in the environment.

    Measuring takes a while, so all other settings are checked first. `START` needs resets alone,
    the others a random rollout.
    """
    predicting = settings.get("agent", Config().agent) in QUADRATIC_AGENTS
    scaled = any(settings.get("noise.kind") == name for name, kind in NOISES.items() if kind.scaled)
    wanted = {*(_MEASURED[:3] if predicting else ()), *(_MEASURED[3:4] if scaled else ())}
    history = how_to_measure(preset, env, settings)["history"]
    wanted |= {"sensor.scales"} if history else set()
    if env is not None and full_name(env) in PLAYGROUND:  # all agents begin alike, those without V too
        wanted |= {START}
    if (env in ENVIRONMENTS and not history) or wanted <= set(settings):
        return frozenset()
    rest = {name: value for name, value in settings.items() if name not in _MEASURED}
    build(preset, env, rest | _STAND_INS)
    return frozenset(wanted - set(settings))


def lacks_length(env: str | None, settings: Mapping[str, Any]) -> bool:
    """Returns True if the length of an episode may be the environment's own time limit."""
    return "env.episode_length" not in settings and (env is None or may_be_on_host(full_name(str(env))))


def how_to_measure(preset: str, env: str | None, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns how to measure the environment, as keywords of `moca.envs.defaults.defaults`."""
    names = {
        "flatten": "env.flatten", "gaps": "sensor.gaps", "observed": "sensor.observed", "history": "sensor.history",
        "repeat": "env.action_repeat", "episode": "env.episode_length", "physics": "env.physics",
    }  # fmt: skip
    given = {**flatten(Config()), **layered(preset, env or "", ""), **settings}
    return {argument: checked({name: given[name]})[name] for argument, name in names.items()}


def refuse_unknown(preset: str) -> None:
    """Raises `ConfigError` unless there is a preset of that name."""
    if not isinstance(preset, str) or preset not in PRESETS:
        raise ConfigError(
            f"preset = {shown(preset)} is unknown.{nearest(str(preset), PRESETS)} Allowed: {', '.join(PRESETS)}"
        )


def build(preset: str, env: str | None, settings: Mapping[str, Any], found: Mapping[str, Any] | None = None) -> Config:
    """Returns the config of a preset for an environment, with `settings` (by dotted name) on top.

    `env` is None for an environment that is not Playground's. `found` holds the settings that were
    measured in it. Of lists with one number per dimension, only the observed dimensions are used.
    """
    refuse_unknown(preset)
    if not isinstance(settings, Mapping) or not isinstance(env, str | None):
        raise ConfigError(
            f"settings must be a dictionary by dotted name and env a name, got {shown(settings)} and {shown(env)}"
        )
    told = how_to_measure(preset, env, settings)
    facts, found = _of_observed(ENVIRONMENTS.get(env or "", {}), told["observed"]), dict(found or {})
    if told["history"]:  # what was measured is of the state
        facts = {name: numbers for name, numbers in facts.items() if name not in _MEASURED[:3]}
    else:
        found = _of_observed(found, told["observed"])
    name = {"env.name": env} if env else {}
    own = layered(preset, env or "", str(settings.get("agent", Config().agent)))
    if not checked({"belief.filter": settings.get("belief.filter", True)})["belief.filter"]:
        own["belief.noise"] = Config().belief.noise  # there is no filter that could learn it
    config = override(Config(), {**name, **found, **facts, **own, **settings})
    size = len(facts.get("value.low", config.value.low))
    if len(config.value.low) != size:
        raise ConfigError(f"value.low has {len(config.value.low)} numbers, but {env} has {size} observed dimensions")
    return config


def _of_observed(numbers: Mapping[str, Any], observed: tuple[int, ...]) -> dict[str, Any]:
    """Returns settings with one number per dimension for the observed dimensions alone."""
    size = min((len(each) for name, each in numbers.items() if name in _MEASURED), default=0)
    if observed and size and max(observed) >= size:
        raise ConfigError(
            f"sensor.observed = {list(observed)} is out of range: the environment has {size} dimensions, numbered from "
            f"0 to {size - 1}"
        )
    return {
        name: tuple(each[i] for i in observed) if observed and name in _MEASURED else each
        for name, each in numbers.items()
    }


def layered(preset: str, env: str, agent: str) -> dict[str, Any]:
    """Returns the settings of a preset, overridden by the task's, then by the agent's."""
    refuse_unknown(preset)
    return {name: value for key in ("", env, agent) for name, value in PRESETS[preset].get(key, {}).items()}


def values_of(name: str) -> dict[str, dict[str, Any]]:
    """Returns the values of a setting in each preset.

    The general value is under "", followed by those of tasks and agents that differ from it.
    """
    default = flatten(Config())[name]
    found: dict[str, dict[str, Any]] = {}
    for preset, layers in PRESETS.items():
        general = layers[""].get(name, default)
        tasks = {task: {**facts, **layers[""], **layers.get(task, {})} for task, facts in ENVIRONMENTS.items()}
        special = {**{key: own for key, own in layers.items() if key}, **tasks}
        other = {key: own[name] for key, own in special.items() if own.get(name, general) != general}
        found[preset] = {"": general, **other}
    return found
