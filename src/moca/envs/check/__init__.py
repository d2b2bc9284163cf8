"""Finds out, before a run is spent on it, if an environment keeps the contract of `moca.envs.environment`.

    for fault in check_env(MyEnvironment()):
        print(fault)

Each function is traced twice and the traces are compared, which shows Python's part: types, shapes, branches, hidden
randomness. Then one compiled program uses the environment as the training loop does (vmapped, scanned, started anew
after an end) and shows what its numbers do. What a method decorated with `jax.jit` keeps from its first call is not
seen, nor an exact match with a restart where first states are few.

An environment on the host is stepped one sequence of actions after the other, and everything it returns is looked at.
"""

import warnings
from typing import Any, cast

import jax

from moca.config import ConfigError
from moca.envs.check.contract import check_contract
from moca.envs.check.faults import Fault, Findings, said
from moca.envs.check.hosted import check_hosted, check_quickly
from moca.envs.check.trial import check_numbers
from moca.envs.environment import Environment, Spaces
from moca.envs.host import HostEnvironment
from moca.envs.named import as_environment, named
from moca.names import GYMNASIUM


def check_env(env: Spaces | str, *, steps: int = 200, seed: int = 0, strict: bool = False) -> list[Fault]:
    """Faults of an environment, then notes. It is healthy if there is no fault; notes do not count.

    Whatever the environment raises becomes a fault. Nothing is printed. What cannot be examined before a fault is
    mended is left for the next time.

    Args:
        env: the environment, not its class, or a name. One of Gymnasium's may be given as it is.
        steps: how long it is tried, with a dozen sequences of actions at once.
        seed: of the first states and of the random actions.
        strict: raise a `ConfigError` that lists the faults, if there are any.
    """
    if steps < 1:
        raise ConfigError(f"steps is {steps}; an environment is tried for at least 1")
    found = Findings()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            env = named(env) if isinstance(env, str) else env
            tried: Any = _adapted(env, found)
            if isinstance(tried, HostEnvironment):
                check_hosted(tried, steps, seed, found)
            elif not found and (traced := check_contract(tried, jax.random.key(seed), found)):
                check_numbers(tried, steps, seed, *traced, found)
        except ConfigError:
            raise
        except Exception as error:  # a broken environment must not break its check
            found.fault("unchecked", f"the check could not go on after {said(error)}")
    if strict:
        found.refuse(f"{_name(env)} is not a healthy environment")
    return found.of("fault") + found.of("note")


def _adapted(env: Any, found: Findings) -> Any:
    """The environment, one of Gymnasium's as ours; None, and a fault, where its spaces cannot be used."""
    try:
        return as_environment(env)
    except ConfigError as error:
        found.append(Fault("spaces", str(error)))
        return None


def _name(env: Any) -> str:
    """The name of an environment, or of its class."""
    if not isinstance(env, HostEnvironment):
        return type(env).__name__
    return (env.name or type(env.single().unwrapped).__name__).removeprefix(GYMNASIUM)


def refuse_broken(env: Spaces) -> None:
    """Raises a `ConfigError` with the faults that show soon.

    Of a compiled environment these are the ones that show without a step being taken: bounds, shapes, types, impurity.
    """
    found = Findings()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if isinstance(env, HostEnvironment):
            check_quickly(env, found)
        else:
            check_contract(cast(Environment, env), jax.random.key(0), found)
    found.refuse(f"{_name(env)} cannot be trained on (moca.check_env may find more)")
