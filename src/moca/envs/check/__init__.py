"""Checks, before a run is spent on it, that an environment fulfils `moca.envs.environment`.

    for fault in check_env(MyEnvironment()):
        print(fault)

Each function is traced twice and the traces are compared, which reveals problems in Python code:
types, shapes, branches, hidden randomness. Then one compiled program uses the environment as the
training loop does (vmapped, scanned, restarted after an end) and checks its numbers. Two things are
not detected: values that a method decorated with `jax.jit` keeps from its first call, and exact
matches with a restart if there are few first states.
"""

import warnings
from typing import cast

import jax

from moca.config import ConfigError
from moca.envs.check.contract import check_contract
from moca.envs.check.faults import Fault, Findings, said
from moca.envs.check.trial import check_numbers
from moca.envs.environment import Environment, Spaces
from moca.envs.host import HostEnvironment
from moca.envs.named import named


def check_env(env: Spaces | str, *, steps: int = 200, seed: int = 0, strict: bool = False) -> list[Fault]:
    """Returns the faults of an environment, then notes. Only faults make it invalid.

    Whatever the environment raises becomes a fault. Nothing is printed. If a fault prevents a
    check, that check is skipped until the fault is fixed.

    Args:
        env: The environment (not its class), or a name. Gymnasium environments go to Gymnasium's
            checker.
        steps: Length of the trial, with a dozen sequences of actions in parallel.
        seed: Seed of the first states and of the random actions.
        strict: Raise a `ConfigError` that lists the faults, if there are any.
    """
    if steps < 1:
        raise ConfigError(f"steps = {steps} must be at least 1")
    found = Findings()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            env = named(env) if isinstance(env, str) else env
            if isinstance(env, HostEnvironment):
                for serious, message in env.complaints():
                    found.append(Fault("gymnasium", message, "fault" if serious else "note"))
            else:
                env = cast(Environment, env)
                if traced := check_contract(env, jax.random.key(seed), found):
                    check_numbers(env, steps, seed, *traced, found)
        except ConfigError:
            raise
        except Exception as error:  # a broken environment must not break the check
            found.fault("unchecked", f"the check stopped after {said(error)}")
    if strict:
        found.refuse(f"{type(env).__name__} is not a valid environment")
    return found.of("fault") + found.of("note")


def refuse_broken(env: Environment) -> None:
    """Raises a `ConfigError` with the faults that can be found without stepping the environment."""
    found = Findings()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_contract(env, jax.random.key(0), found)
    found.refuse(f"{type(env).__name__} cannot be trained on (moca.check_env may find more)")
