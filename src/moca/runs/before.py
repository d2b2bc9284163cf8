"""Checks before a run begins or is resumed, before anything is written; a dry run does the same."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from moca import presets
from moca.config import Config, ConfigError, may_be_on_host, override, refuse_partial
from moca.devices import keep_compiled, use_all_cores
from moca.divergence import CAUSES
from moca.envs.check import refuse_broken
from moca.envs.environment import Environment, Spaces
from moca.envs.host import HostEnvironment
from moca.envs.named import found
from moca.envs.trust import import_trusted, module_of, resuming, search_path
from moca.names import GYMNASIUM, OWN
from moca.runs import lock, refuse_foreign, starting
from moca.runs.callbacks import as_callback, refuse_other_scores
from moca.runs.directory import RunDirectory
from moca.runs.run import Run


class NewRun(NamedTuple):
    """A run that can begin."""

    config: Config
    env: Spaces | None  # if not the one named in the config
    runs: list[dict[str, float]]  # seed and varied settings of each run
    notes: list[str]  # on the environment


def begin(
    config: Config,
    out: Path,
    varied: Sequence[Mapping[str, float]],
    env: Spaces | None = None,
    *,
    start: Any = None,
    trust: bool = False,
    overlap: bool = False,
) -> NewRun:
    """Returns the run that `train` would begin; raises if it would refuse to."""
    refuse_foreign(out)
    if isinstance(env, HostEnvironment) and env.name:
        config, env = naming(config, env), None  # so that the directory is self-contained
    use_all_cores()  # before checks of the environment, or meta.json, start JAX
    keep_compiled()
    if env is None:
        import_trusted(out, config.env.name, trust)
    else:
        config = override(config, {"env.name": OWN + env.title})
    checked = env or found(config.env)
    if config.env.name.startswith(GYMNASIUM) and module_of(config.env.name) is None:
        config = override(config, {"env.name": cast(HostEnvironment, checked).name})  # with its version
    notes = refuse_broken(checked, config.sensor.gaps, config.env.episode_length) if checked else []
    _refuse_partial(config, checked)
    runs = [{"seed": config.seed + i, **settings} for settings in varied for i in range(config.seeds)]
    starting.refuse_unfit(config, len(runs), env, start, overlap)
    directory = RunDirectory(out)
    directory.refuse(config, runs)  # before there is even a lock
    if directory.holds_a_run():
        starting.copied(directory, start)
    return NewRun(config, env, runs, notes)


def naming(config: Config, env: Spaces | None) -> Config:
    """Returns the settings with those of an environment on the host that has a name."""
    if not isinstance(env, HostEnvironment) or not env.name:
        return config
    same = {"env.name": env.name, "env.flatten": env.flatten, "env.physics": env.physics}
    return override(config, same | {presets.START: config.env.random_start or getattr(env, "most", 0)})


def resume(
    directory: RunDirectory,
    steps: int | None,
    env: Spaces | None = None,
    *,
    trust: bool = False,
    overlap: bool = False,
) -> Config:
    """Returns the settings of a run that `resume` would continue; raises if it would refuse to."""
    import_trusted(directory.path, directory.config.env.name, trust)
    use_all_cores()
    keep_compiled()
    config = directory.config if steps is None else directory.longer(steps)
    if config == directory.config and directory.over == "finished":
        total, again = directory.totals[-1], resuming(directory.path, config.env.name)
        raise ConfigError(
            f"{directory.path}: it is finished, with {total:,} steps; for more: {again} --steps N, N above {total}"
        )
    if config == directory.config:
        directory.refuse_other(config, directory.runs)  # before there is even a lock
    Run(directory, env).refuse_without_env()
    _refuse_partial(config, env)
    starting.refuse_unfit(config, len(directory.runs), env, None, overlap)
    return config


def refuse_held(out: Path, callback: Any = None) -> None:
    """Raises for what training refuses while it holds the lock: a dry run does not take it.

    Another process may be training in the directory, or its best policies may be damaged.
    """
    if owner := lock.owner(out):
        raise lock.in_use(out, owner)
    refuse_other_scores(as_callback(callback), Run(RunDirectory(out)))


def _refuse_partial(config: Config, env: Spaces | None) -> None:
    """Raises if a compiled environment would end with a partial episode."""
    if isinstance(env or found(config.env), Environment):
        refuse_partial(config)


def advice(cause: str, env: Spaces, config: Config) -> str:
    """Returns how to look for the cause of a divergence in an environment on the host, or nothing.

    Args:
        cause: One of `moca.divergence.CAUSES`.
        env: The environment.
        config: The settings of the run.
    """
    name, steps = config.env.name, config.env.episode_length
    if cause != CAUSES[1] or not isinstance(env, HostEnvironment) or not may_be_on_host(name):
        return ""
    changed = {"env.flatten": config.env.flatten, "sensor.gaps": config.sensor.gaps}
    needed = [setting for setting, on in changed.items() if on]
    if name.startswith(OWN):
        options = "".join(f", {setting.partition('.')[2]}=True" for setting in needed)
        return f"; moca.check_env(env, steps={steps}{options}) may say why"
    asked = f"moca check {shlex.quote(name.removeprefix(GYMNASIUM))} --steps {steps}"
    return f"; {' '.join([*search_path(name), asked, *(f'--set {setting}=true' for setting in needed)])} may say why"
