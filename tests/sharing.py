"""Programs that are made once for many runs: to trace and load a program takes longer than to run it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import matplotlib.pyplot as plt
import numpy as np
import pytest

from moca import figures
from moca.config import Config
from moca.drivers import HostTrainer, ScanTrainer, host, host_evaluation
from moca.drivers.trainer import Trainer
from moca.envs.environment import Environment
from moca.runs.run import Run


@contextmanager
def programs_made_once() -> Iterator[dict]:
    """Within it, runs with the same settings, shapes and environment share their programs; yields what was made.

    Only for tests of what is around programs: files, callbacks, commands, an environment on the host. A test that
    replaces a part of a program, or counts what is compiled, clears the dictionary first. A run's learning curve is
    made and not rendered, which takes longer than the run; `tests/runs/test_launch.py` looks at the file.
    """
    made: dict[tuple, Any] = {}

    def once(build, *key):
        if key not in made:
            made[key] = build()
        return made[key]

    def compile_once(trainer):
        evaluation = trainer._evaluation.__name__  # which some trainers do without
        shapes = _shapes((_as_in_programs(trainer.configs), trainer.state))
        make = lambda: (build(trainer) or trainer._compiled, jax.tree.structure(trainer.configs))  # noqa: E731
        trainer._compiled, kind = once(make, type(trainer), evaluation, _facts(trainer.env), shapes)
        trainer.configs = jax.tree.unflatten(kind, jax.tree.leaves(trainer.configs))  # as the program was made for

    def prepare(trainer):
        trainer.configs = _as_in_programs(trainer.configs)
        host_build(trainer)

    def begin_once(trainer, env):
        program = once(lambda: beginning(trainer, env), Trainer, _facts(env), trainer._spread)
        return lambda configs, keys: program(_as_at_the_start(configs), keys)

    def lower_once(function, arguments, runs, shared=(), donated=()):
        method, bound = (function.func, function.args) if isinstance(function, partial) else (function, ())
        owner = method.__self__
        env = owner.env if isinstance(owner, Trainer) else owner._env
        key = (method.__func__, bound, _facts(env), _shapes(arguments), runs, *shared, "donated", *donated)
        return once(lambda: lower(function, arguments, runs, shared, donated), *key)

    build, beginning, lower, programs = ScanTrainer.compile, Trainer._beginning, host.lowered, Run._programs.func
    host_build = HostTrainer.compile
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ScanTrainer, "compile", compile_once)
        patch.setattr(HostTrainer, "compile", prepare)
        patch.setattr(Trainer, "_beginning", begin_once)
        patch.setattr(figures, "save", lambda figure, *_: plt.close(figure) or [])
        for module in (host, host_evaluation):
            patch.setattr(module, "lowered", lower_once)
        patch.setattr(Run, "_programs", property(lambda run: once(lambda: programs(run), Run, _facts(run.environment))))
        yield made


def _as_in_programs(configs: Config) -> Config:
    """Of the number of steps, programs contain the horizon of schedules and the size of the memory; nothing of when
    to evaluate."""
    train = configs.train
    return replace(configs, train=replace(train, horizon=train.horizon or train.steps, steps=0, eval_every=1))


def _as_at_the_start(configs: Config) -> Config:
    """Of the number of steps, the first state of a run contains the size of the memory alone."""
    train, steps = configs.train, configs.train.capacity * configs.env.action_repeat
    return replace(configs, train=replace(train, horizon=0, steps=min(train.steps, steps), eval_every=1))


def _facts(env: Any) -> tuple:
    """All that a program contains of an environment; of one on the host it is what agents are told."""
    if not isinstance(env, Environment):
        return (env.observation_size, env.action_low, env.action_high, env.terminates, repr(env.history))
    constants, kind = jax.tree.flatten(env)
    return (kind, *(np.asarray(constant).tobytes() for constant in constants))


def _shapes(given: Any) -> tuple:
    """Structure, which holds settings that are no floats, shapes and places of a program's arguments."""
    leaves, kind = jax.tree.flatten(given)
    return (kind, *((np.shape(leaf), str(leaf.dtype), getattr(leaf, "sharding", None)) for leaf in leaves))
