"""Checks, before a run is spent on it, that an environment fulfils `moca.envs.environment`.

    for fault in check_env(MyEnvironment()):
        print(fault)

Each function is traced twice and the traces are compared, which reveals problems in Python code:
types, shapes, branches, hidden randomness. Then one compiled program uses the environment as the
training loop does (vmapped, scanned, restarted after an end) and checks its numbers. Two things are
not detected: values that a method decorated with `jax.jit` keeps from its first call, and exact
matches with a restart if there are few first states.

An environment on the host is stepped with one action sequence after another, and everything it
returns is checked.
"""

import warnings
from typing import Any, cast

import jax

from moca.config import ConfigError, whole
from moca.envs.check.contract import check_contract
from moca.envs.check.faults import Fault, Findings, SpacesError, line_of, said
from moca.envs.check.hosted import STEPS, check_hosted, check_quickly
from moca.envs.check.trial import check_numbers
from moca.envs.environment import Environment, Spaces
from moca.envs.host import HostEnvironment
from moca.envs.named import as_environment, named
from moca.envs.trust import import_module_of
from moca.names import GYMNASIUM, MJX


def check_env(
    env: Spaces | str,
    *,
    steps: int = STEPS,
    seed: int = 0,
    strict: bool = False,
    flatten: bool = False,
    gaps: bool = False,
    physics: str = MJX,
) -> list[Fault]:
    """Returns the faults of an environment, then notes. Only faults make it invalid.

    Training refuses an environment on the host for its faults, and does not mind notes.
    Whatever the environment raises becomes a fault. Nothing is printed. If a fault prevents a
    check, that check is skipped until the fault is fixed.

    Args:
        env: The environment (not its class), or a name. Gymnasium environments are accepted as
            they are.
        steps: Length of the trial, with a dozen sequences of actions in parallel.
        seed: Seed of the first states and of the random actions.
        strict: Raise a `ConfigError` that lists the faults, if there are any.
        flatten: As `env.flatten` in training.
        gaps: As `sensor.gaps` in training.
        physics: As `env.physics` in training, if `env` is a name.
    """
    steps, seed = whole("steps", steps, 1), whole("seed", seed)
    found, tried = Findings(gaps), cast(Any, env)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tried = _adapted(env, flatten, physics, found)
            if isinstance(tried, HostEnvironment):
                check_hosted(tried, steps, seed, found)
            elif not found and (traced := check_contract(tried, jax.random.key(seed), found)):
                check_numbers(tried, steps, seed, *traced, found)
        except ConfigError:
            raise
        except Exception as error:  # a broken environment must not break the check
            first = "the other faults" if found.of("fault") else "this one"
            found.fault("unchecked", f"the check stopped after {said(error)}{line_of(error)}", f"fix {first} first")
    if strict:
        found.refuse(f"{_name(env if tried is None else tried)} is not a valid environment")
    return found.of("fault") + found.of("note")


def _adapted(env: Any, flatten: bool, physics: str, found: Findings) -> Any:
    """Returns the environment, created from its name or adapted from Gymnasium if needed.

    Adds a fault and returns None if its spaces do not fit. Raises if there is none of that name.
    """
    try:
        if isinstance(env, str):
            import_module_of(env)  # the user gave the name
            return named(env, flatten, physics)
        return as_environment(env, flatten)
    except ConfigError as error:
        if isinstance(env, str) and not isinstance(error, SpacesError):
            raise
        found.append(Fault("spaces", str(error)))
        return None


def _name(env: Any) -> str:
    """Returns the name of an environment, or of its class."""
    if isinstance(env, str):
        return env
    if isinstance(env, HostEnvironment) and env.name:
        return env.name.removeprefix(GYMNASIUM)
    return env.title if isinstance(env, Spaces) else type(env).__name__


def refuse_broken(env: Spaces, gaps: bool = False, steps: int = 0) -> list[str]:
    """Returns notes on an environment on the host, such as that no run on it can be repeated.

    Raises a `ConfigError` with the faults that can be found quickly.

    On the host these are all that `check_env` reports, unless the environment is slow. For compiled
    environments, they are those that need no step: bounds, shapes, types, impurity. `gaps` is as
    for `check_env`. On the host, random actions go on for `steps`, as in a long episode.
    """
    found = Findings(gaps)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if isinstance(env, HostEnvironment):
            check_quickly(env, found, steps)
        else:
            check_contract(cast(Environment, env), jax.random.key(0), found)
    found.refuse(f"{_name(env)} cannot be trained on (moca.check_env may find more)")
    return [note.message for note in found.of("note")] if isinstance(env, HostEnvironment) else []
