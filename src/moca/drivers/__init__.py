"""Drivers schedule the functions of `moca.loop`: a scan for compiled environments, a loop on the host for others."""

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
    """The trainer for that environment, or for the one the configs name; arguments as for `ScanTrainer`."""
    env = env or named(configs[0].env.name, configs[0].env.flatten)
    if not isinstance(env, HostEnvironment):
        return ScanTrainer(configs, seeds, env, overlap)
    if overlap:
        raise ConfigError("overlap needs a compiled environment, and this one is stepped on the host")
    return HostTrainer(configs, seeds, env)
