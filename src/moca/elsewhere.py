"""Refuses arguments of Stable-Baselines3 with a sentence that says what to use here."""

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from moca.config import ConfigError

P = ParamSpec("P")
R = TypeVar("R")
PAGE = "docs/from-sb3.md has a line for each"
WORDS = {
    "deterministic": "actions are greedy, and an agent explores in training only",
    "device": "JAX's first device is used",
    "episode_start": "agent.policy() follows an episode",
    "log_interval": "every episode is a row of metrics.jsonl",
    "policy": "there are no policy classes: {width} and other settings make the networks",
    "progress_bar": "pass progress=True to learn",
    "reset_num_timesteps": "a second call of learn continues training; create a new agent to start over",
    "state": "agent.policy() follows an episode",
    "tb_log_name": "TensorBoard files are always written, to tensorboard/ in the run directory",
    "tensorboard_log": "TensorBoard files are always written, to tensorboard/ in the run directory",
    "total_timesteps": "call it steps, as in learn(steps=20_000)",
    "verbose": "pass progress=True to learn",
}


def answered(method: Callable[P, R]) -> Callable[P, R]:
    """Returns a method that refuses these arguments with what to do instead."""

    @functools.wraps(method)
    def refusing(*args: P.args, **kwargs: P.kwargs) -> R:
        refuse(method.__name__, kwargs)
        return method(*args, **kwargs)

    return refusing


def refuse(where: str, names: Any, agent: str = "") -> None:
    """Raises if one of the names is Stable-Baselines3's."""
    for name in names:
        if name in WORDS:
            raise ConfigError(f"{name} cannot be set in {where}: {advice(name, agent)}")


def advice(name: str, agent: str = "") -> str:
    """Returns what to do instead of passing that argument, with a setting that the agent uses."""
    return f"{WORDS[name].format(width='sac__width' if agent == 'sac' else 'critic__width')}. {PAGE}"
