"""The registry of agents, classes of V, noises and environments, by their names in a config.

The built-in ones are listed below, one line each. `moca.register_agent` and the like add a user's
through the same functions. An entry is an object, or a string `module:name` that is imported on
first use. Nothing here imports jax.
"""

import re
from collections.abc import Callable, Iterable
from functools import partial
from pkgutil import resolve_name
from typing import Any, NamedTuple

from moca.config.checks import ConfigError
from moca.looks import COLOURS, LOOKS, Look
from moca.names import GYMNASIUM, OWN, PLAYGROUND, is_name

Load = Callable[[], Any]


class AgentEntry(NamedTuple):
    """The registry entry of an agent."""

    load: Load  # its class
    prediction: Load | None  # the rule for the distribution of s′; None if s′ is taken as observed


class NoiseEntry(NamedTuple):
    """The registry entry of a kind of observation noise."""

    load: Load  # the standard deviation, as a function of sigma, sigma_min, scales and the observation
    scaled: bool  # whether it needs noise.scales


AGENTS: dict[str, AgentEntry] = {}
QUADRATIC_AGENTS: list[str] = []  # agents with a V over the state, which needs the state's range
VALUES: dict[str, Load] = {}  # functions that create V
NOISES: dict[str, NoiseEntry] = {}
CONSTANT = "homoscedastic"  # noise that does not depend on the state
BUILT_IN: list[str] = []  # agents whose settings are known
ENVS: dict[str, Load | None] = dict.fromkeys(PLAYGROUND)  # functions that create each; None for MuJoCo Playground's


def add_agent(name: str, agent: Any, prediction: Any = None, look: Look | None = None, quadratic: bool = True) -> None:
    """Adds an agent: its class, its prediction rule for s′ if any, and its look in figures."""
    _check(name, AGENTS, "agent")
    AGENTS[name] = AgentEntry(_loader(agent), None if prediction is None else _loader(prediction))
    if quadratic:
        QUADRATIC_AGENTS.append(name)
    if look is not None and look.ink.startswith("#"):  # pages refer to colours by name
        COLOURS[name], look = look.ink, look._replace(ink=name)
    if look is not None:
        LOOKS[name] = look


def add_value(name: str, make: Any) -> None:
    """Registers a function class for V, for `value.kind`.

    Args:
        name: Its name in a config.
        make: Returns V (a `mm.Function`) before training, zero everywhere, from the settings, the
            number of observed dimensions and a key. Fields in which V is not linear say so by
            `mm.role`: the twins share them, and they learn at `value.basis_lr`. All other fields
            learn at `value.lr`.
    """
    _check(name, VALUES, "value.kind")
    VALUES[name] = _loader(make)


def add_noise(name: str, deviation: Any, scaled: bool = False) -> None:
    """Registers Gaussian observation noise, for `noise.kind`.

    Args:
        name: Its name in a config.
        deviation: Returns the standard deviation of each dimension (or one for all, along an axis
            of length one) from `noise.sigma`, `noise.sigma_min`, `noise.scales` and the noiseless
            observation. It must equal sigma if sigma_min equals sigma: studies use this for
            constant noise.
        scaled: Whether it needs `noise.scales`, one number per observed dimension; otherwise it
            receives ().
    """
    _check(name, (*NOISES, "action"), "noise.kind")  # in studies, "action" means a disturbance of the actions
    NOISES[name] = NoiseEntry(_loader(deviation), scaled)


def add_env(name: str, make: Load | str) -> None:
    """Adds an environment, which calling `make` creates."""
    _check(name, ENVS, "env.name", r"\w[\w.-]*", "letters, digits and any of _ - .")
    load = _loader(make)
    ENVS[name] = lambda: load()()


def full_name(name: str) -> str:
    """Returns the name of an environment in a config.

    Names such as `Pendulum-v1`, and classes (`module:Class`), get the prefix of Gymnasium.
    """
    registered = re.search(r"-v\d+$", name) and ":" not in name
    a_class = re.fullmatch(r"[^\W\d][\w.]*:[^\W\d]\w*", name) and not name.startswith((GYMNASIUM, OWN))
    bare = (registered or a_class) and name not in ENVS and is_name(name)
    return GYMNASIUM + name if bare else name


def _loader(reference: Any) -> Load:
    return partial(resolve_name, reference) if isinstance(reference, str) else lambda: reference


def _check(
    name: str,
    taken: Iterable[str],
    setting: str,
    pattern: str = r"[a-z0-9][a-z0-9-]*",
    words: str = "lowercase letters, digits and '-'",
) -> None:
    if name in taken or re.fullmatch(r"moca-mc-\d+", name):  # in studies, moca-mc-K is MC with K samples
        raise ConfigError(f"{setting} = {name!r} already exists: choose another name")
    if not re.fullmatch(pattern, name) or len(name) > 100:
        raise ConfigError(f"{setting} = {name!r} must consist of {words}")


_QUADRATIC = "moca.agents.quadratic:QuadraticAgent"
add_agent("moca", _QUADRATIC, "moca.backup:one_gaussian", Look("MoCA", "MoCA", "moca", "o", "-", 2.2, place=0))
add_agent("moca-ce", _QUADRATIC, "moca.backup:mean_alone", Look("MoCA-CE", "CE", "ce", "s", "--", 1.6, "9 4", 6))
add_agent(
    "moca-mc", _QUADRATIC, "moca.backup:samples_of_it", Look("MoCA-MC", "MC", "mc", ">", (0, (4, 1)), 1.4, "5 2", 2)
)
add_agent(
    "moca-mixture",
    _QUADRATIC,
    "moca.backup:whole_mixture",
    Look("MoCA (mixture)", "mixture", "mixture", "*", (0, (3, 1)), 1.4, "5 3", 1),
)
add_agent(
    "moca-plan",
    "moca.agents.planning:PlanningAgent",
    "moca.backup:one_gaussian",
    Look("MoCA (plan)", "plan", "plan", "p", (0, (8, 1, 1, 1)), 1.8, "9 2", 1),
)
add_agent("bnaf", _QUADRATIC, None, Look("BNAF", "BNAF", "bnaf", "D", "-.", 1.6, "5 3", 7))
add_agent("naf", "moca.agents.naf:NAFAgent", None, Look("NAF (tanh)", "NAF", "naf", "P", (0, (1, 2)), 1.1, "3 3", 10))
add_agent(
    "sac", "moca.agents.sac:SACAgent", None, Look("SAC", "SAC", "sac", "X", ":", 1.6, "9 2 2 2 2 2", 8), quadratic=False
)
BUILT_IN.extend(AGENTS)

add_value("rbf", "moca.values:rbf")
add_value("rbf-learned", "moca.values:rbf")
add_value("fourier", "moca.values:fourier")
add_value("erf", "moca.values:erf")
add_value("quadratic", "moca.values:quadratic")
add_value("polynomial", "moca.values:polynomial")

add_noise(CONSTANT, "moca.envs.environment:homoscedastic")
add_noise("state-norm", "moca.envs.environment:state_norm", scaled=True)
add_noise("light-dark", "moca.tasks.light_dark:deviation")
