"""Drivers schedule the functions of `moca.loop`: in a scan, or in a loop on the host."""

from collections.abc import Sequence

import jax

from moca.agents import make_agent
from moca.config import Config, ConfigError
from moca.drivers import overlap as two_cores
from moca.drivers.host import HostTrainer
from moca.drivers.scan import ScanTrainer
from moca.drivers.trainer import Report, Schedule, Trainer, make_env, refuse_unfit_settings, state_shapes
from moca.envs.environment import Spaces
from moca.envs.host import HostEnvironment
from moca.envs.named import configured
from moca.loop import init_run

__all__ = [
    "HostTrainer",
    "Report",
    "ScanTrainer",
    "Schedule",
    "Trainer",
    "make_env",
    "make_trainer",
    "refuse_overlap",
    "refuse_unfit_settings",
    "state_shapes",
]


def make_trainer(
    configs: Sequence[Config], seeds: Sequence[int], env: Spaces | None = None, overlap: bool = False
) -> Trainer:
    """Returns the trainer for an environment, by default the one named in the configs."""
    env = env or configured(configs[0].env)
    if not isinstance(env, HostEnvironment):
        return ScanTrainer(configs, seeds, env, overlap)
    return HostTrainer(configs, seeds, env)


def refuse_overlap(config: Config, count: int, env: Spaces) -> None:
    """Raises unless that many runs can be trained on two cores by `overlap`.

    `env` is the environment as agents see it, from `make_env`.
    """
    if isinstance(env, HostEnvironment):
        raise ConfigError("overlap needs a compiled environment, but this one is stepped on the host")
    key = jax.eval_shape(lambda: jax.random.key(0))
    learner = jax.eval_shape(lambda key: init_run(config, env, key).learner, key)
    two_cores.cores_for(make_agent(config, env), learner, count)
