"""Drivers schedule the functions of `moca.loop`: in a scan, or in a loop on the host."""

from collections.abc import Sequence

from moca.config import Config, ConfigError
from moca.drivers.host import HostTrainer
from moca.drivers.scan import ScanTrainer
from moca.drivers.trainer import Report, Schedule, Trainer, make_env
from moca.envs.environment import Spaces
from moca.envs.host import HostEnvironment
from moca.envs.named import named

__all__ = ["HostTrainer", "Report", "ScanTrainer", "Schedule", "Trainer", "make_env", "make_trainer"]


def make_trainer(
    configs: Sequence[Config], seeds: Sequence[int], env: Spaces | None = None, overlap: bool = False
) -> Trainer:
    """Returns the trainer for an environment, by default the one named in the configs."""
    env = env or named(configs[0].env.name, configs[0].env.flatten)
    if not isinstance(env, HostEnvironment):
        return ScanTrainer(configs, seeds, env, overlap)
    if overlap:
        raise ConfigError("overlap needs a compiled environment, but this one is stepped on the host")
    return HostTrainer(configs, seeds, env)
