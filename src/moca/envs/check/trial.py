"""A trial of the environment in a program like the training loop, and its checks."""

from collections.abc import Callable
from itertools import product
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from moca.envs.check.contract import Traced, is_key
from moca.envs.check.faults import Findings, said
from moca.envs.environment import Environment, Spaces, Step

SMALL = 500  # the most equations of functions that are also called uncompiled: each may be compiled separately
SCALE = 1e6  # size of observations above which networks learn badly
SOON = 10  # steps over which two runs are compared: later, chaos may amplify rounding on a GPU
JUMP = 1.5  # times the longest ordinary step: a longer last step back to the first states is a restart


def check_numbers(env: Environment, steps: int, seed: int, reset: Traced, step: Traced, found: Findings) -> None:
    """Tries the environment with its traced functions, as far as the faults found so far allow."""
    key = jax.random.key(seed)
    trial = _try(env, key, action_sequences(env, steps, np.random.default_rng(seed)), found)
    if trial is None:
        return
    if not found.of("fault"):  # else the same fault would be reported again
        _repeatable(env, key, trial, len(reset.marks) + len(step.marks) <= SMALL, found)
    _finite(trial, found)
    _random_starts(trial, reset, step, found)
    _ends(env, trial, found)
    actions_matter(env, trial, found)


# The trial


class Actions(NamedTuple):
    """Sequences of actions, by name."""

    names: list[str]
    sequences: np.ndarray  # sequences × steps × dimensions
    alike: int  # the number of sequences, at the front, that start in the same state


def action_sequences(env: Spaces, steps: int, rng: np.random.Generator) -> Actions:
    """Returns sequences of actions at the bounds and between them."""
    low, high = np.array(env.action_low), np.array(env.action_high)
    shape, tenth = (steps, len(low)), (high - low) / 10
    # Each with a variant that differs in one dimension at a time, to test whether that dimension
    # matters.
    pairs = {
        "at the lower bounds": (low, low + tenth),
        "at the upper bounds": (high, high - tenth),
        "drawn uniformly": (rng.uniform(low, high, shape), rng.uniform(low, high, shape)),
    }
    sequences = {name: one for name, (one, _) in pairs.items()}
    for (name, (one, other)), i in product(pairs.items(), range(len(low))):
        sequences[_but_in(name, i)] = np.where(np.arange(len(low)) == i, other, one)
    alike = len(sequences)
    for number in range(4):
        sequences[f"drawn from the bounds, sequence {number}"] = np.where(rng.random(shape) < 0.5, low, high)
        sequences[f"drawn uniformly, sequence {number}"] = rng.uniform(low, high, shape)
    stacked = np.stack([np.broadcast_to(sequence, shape) for sequence in sequences.values()])
    return Actions(list(sequences), stacked.astype(np.float32), alike)


def _but_in(name: str, dimension: int) -> str:
    """Returns the name of a sequence that differs from another in one dimension."""
    return f"{name} except in dimension {dimension}"


class _Trial(NamedTuple):
    """The results of the actions; arrays have axes over sequences and steps."""

    actions: Actions
    shown: np.ndarray  # observations before the actions
    step: Step
    fresh: np.ndarray | None  # if episodes may end: another first observation at every step
    keys: list[tuple[np.ndarray, np.ndarray]]  # for each random key in the state: its data before and after the step
    again: tuple[np.ndarray, Step]  # `shown` and `step` of a second run of the program

    @property
    def firsts(self) -> np.ndarray:
        """All observations of first states, drawn with different keys."""
        own = self.shown[self.actions.alike - 1 :, 0]
        if self.fresh is None:
            return own
        return np.concatenate([own, self.fresh[self.actions.alike - 1 :].reshape(-1, own.shape[-1])])


def _try(env: Environment, key: jax.Array, actions: Actions, found: Findings) -> _Trial | None:
    """Runs all actions in one program built like the training loop; returns None if that fails."""
    count, steps, _ = actions.sequences.shape

    def one(number: jax.Array, sequence: jax.Array) -> tuple:
        def step(carry: tuple, x: tuple) -> tuple[tuple, tuple]:
            state, shown = carry
            action, key = x
            next_state, (observation, reward, terminated) = env.step(state, action)
            result = Step(_float(observation), _float(reward), jnp.asarray(terminated) != 0)
            kept = list(zip(_keys(state), _keys(next_state), strict=True))
            carry, fresh = (next_state, result.observation), None
            if env.terminates:
                state, fresh = env.reset(key)
                fresh = _float(fresh)
                carry = jax.tree.map(lambda new, old: jnp.where(result.terminated, new, old), (state, fresh), carry)
            return carry, (shown, result, fresh, kept)

        state, observation = env.reset(jax.random.fold_in(key, number))
        restarts = jax.random.split(jax.random.fold_in(key, count + number), steps)
        return jax.lax.scan(step, (state, _float(observation)), (sequence, restarts))[1]

    # Sequences that start in the same state all have number zero, whose key draws that state.
    args = (np.maximum(np.arange(count) - actions.alike + 1, 0), actions.sequences)
    program = jax.jit(jax.vmap(one))
    try:
        (shown, step, fresh, kept), again = jax.device_get((program(*args), program(*args)[:2]))
    except Exception as error:
        _not_transformed(one, args, error, found)
        return None
    return _Trial(actions, shown, step, fresh, kept, again)


def _float(x: Any) -> jax.Array:
    """Casts an array to the expected type; a wrong type has been reported already."""
    return jnp.asarray(x, jnp.float32)


def _keys(state: Any) -> list[jax.Array]:
    """Returns the data of the random keys in a state, typed or not."""
    leaves = [jax.random.key_data(leaf) if is_key(leaf) else jnp.asarray(leaf) for leaf in jax.tree.leaves(state)]
    usual = jax.eval_shape(lambda: jax.random.key_data(jax.random.key(0)))
    return [leaf for leaf in leaves if (leaf.shape, leaf.dtype) == (usual.shape, usual.dtype)]


def _not_transformed(one: Callable, args: tuple, error: Exception, found: Findings) -> None:
    """Reports where a program fails although its functions could be traced."""
    try:
        jax.eval_shape(one, *(arg[0] for arg in args))
    except Exception as alone:
        return found.fault("scan", f"steps fail in jax.lax.scan ({said(alone)})")
    try:
        jax.eval_shape(jax.vmap(one), *args)
    except Exception as many:
        return found.fault("vmap", f"many environments at once fail ({said(many)})")
    return found.fault("raises", f"the compiled steps raise {said(error)}", "check callbacks and memory")


# Checks of the numbers


def _repeatable(env: Environment, key: jax.Array, trial: _Trial, small: bool, found: Findings) -> None:
    """Finds results that differ between runs or, in a `small` program, from uncompiled calls."""
    once, again = ([x[:, :SOON] for x in (shown, *step)] for shown, step in ((trial.shown, trial.step), trial.again))
    if not _close(once, again):
        found.fault("impure", "two runs of one compiled program differ", ", not in a callback")
        return
    if not small:
        return
    lane = trial.actions.names.index("at the upper bounds")
    try:
        state, first = env.reset(jax.random.fold_in(key, 0))
        action = jnp.asarray(trial.actions.sequences[lane, 0])
        plain, twice = (env.step(state, action)[1] for _ in range(2))
    except Exception as error:
        found.fault("eager", f"uncompiled calls fail although compiled ones work ({said(error)})")
        return
    if not _close(plain, twice):
        two = "step() returns two results for one state and action"
        found.fault("impure", two, ", and modify neither state nor self")
    elif not _close((first, *plain), (trial.shown[lane, 0], *(x[lane, 0] for x in trial.step))):
        found.fault("jit-differs", "compiled and uncompiled calls give different results")


def _close(one: Any, other: Any) -> bool:
    """Returns True if two results are equal up to rounding."""
    pairs = zip(one, other, strict=True)
    return all(np.allclose(np.asarray(a), np.asarray(b), rtol=1e-3, atol=1e-5, equal_nan=True) for a, b in pairs)


def _finite(trial: _Trial, found: Findings) -> None:
    """Finds NaN and infinite numbers, and observations that are too large."""
    if not np.isfinite(trial.firsts).all():
        found.fault("reset-not-finite", "reset() returns an observation that is not finite")
    ended = trial.step.terminated
    # After an end without restart, numbers may be anything.
    counted = (np.cumsum(ended, axis=1) - ended == 0) | (trial.fresh is not None)
    observation, reward = np.asarray(trial.step.observation), np.asarray(trial.step.reward)
    fix = "guard divisions and roots, bound growing values (jnp.clip), or terminate the episode before"
    known = np.isfinite(observation) | (np.isnan(observation) & found.gaps)
    for name, finite in (("observation", known.all(axis=-1)), ("reward", np.isfinite(reward))):
        if (hits := counted & ~finite).any():
            where = _first(hits, trial.actions)
            found.fault(f"{name}-not-finite", f"the {name} of step() is not finite {where}", fix)
    find_large(np.where(counted[..., None] & np.isfinite(observation), observation, 0), found)


def find_large(observations: np.ndarray, found: Findings) -> None:
    """Finds observations that are too large."""
    largest = np.abs(observations).max(axis=(0, 1))
    if largest.max() > SCALE:
        found.note("scale", f"dimension {largest.argmax()} of the observation reaches {largest.max():.0e}")


def _first(hits: np.ndarray, actions: Actions) -> str:
    """Describes the first of these steps."""
    sequence, step = np.argwhere(hits)[0]
    return f"at step {step + 1} with actions {actions.names[sequence]}"


def _random_starts(trial: _Trial, reset: Traced, step: Traced, found: Findings) -> None:
    """Reports initial states that never vary, and keys that the environment creates itself."""
    if np.array_equal(trial.firsts, np.broadcast_to(trial.firsts[0], trial.firsts.shape), equal_nan=True):
        if reset.has_own_key:
            own = "reset() draws with its own fixed key"
            found.fault("fixed-key", own, "draw with the key that it receives")
        else:
            found.note("same-start", "reset() returns the same observation for every key")
    if step.has_own_key:
        own = "step() creates its own random key, so episodes share their random numbers"
        found.note("fixed-key", own, "keep a key in the state and split it, unless a constant is intended")


def _ends(env: Environment, trial: _Trial, found: Findings) -> None:
    """Finds ends that were not declared, never occur, or show the start of the next episode."""
    ended = np.asarray(trial.step.terminated)
    if not env.terminates and ended.any():
        where = _first(ended, trial.actions)
        found.fault("undeclared-end", f"terminates is False, but terminated was True {where}")
    elif env.terminates and not ended.any():
        found.note("never-ends", f"terminates is True, but no episode ended within {ended.shape[1]} steps")
    else:
        find_restarts(env, trial, found)


def find_restarts(env: Spaces, trial: _Trial, found: Findings) -> None:
    """Finds episodes whose last observation is the first one of another episode."""
    if how := _restarted(env, trial):
        what = "at the end of an episode step() seems to return the first observation of another"
        found.fault("auto-reset", f"{what} ({how})")


def _restarted(env: Spaces, trial: _Trial) -> str:
    """Returns the evidence that most last observations are those of resets; empty if there is none.

    A restart shows the episode's own first observation (a cached one), or the result of `reset` for
    a key in the state, or it jumps back to the first observations by more than any ordinary step.
    This cannot be decided if the observation stands still, as in a bandit, nor by equality if first
    observations repeat.
    """
    shown, after, ended = trial.shown, np.asarray(trial.step.observation), np.asarray(trial.step.terminated)
    firsts = trial.firsts
    moved = ended & ~_equal(shown, after)
    if not np.isfinite(after).all() or not moved.any():
        return ""

    def most(signs: np.ndarray, among: np.ndarray) -> bool:
        return bool(among.any() and signs[among].mean() > 0.5)

    if len(np.unique(firsts, axis=0)) > 0.9 * len(firsts):
        begun = shown.copy()  # the first observation of the episode that each step belongs to
        for step in range(1, shown.shape[1]):
            begun[:, step] = np.where(ended[:, step - 1, None], shown[:, step], begun[:, step - 1])
        if most(_equal(after, begun), moved & ~_equal(shown, begun)):
            return "that of the same episode"
        few = tuple(np.argwhere(moved)[:8].T)
        if any(most(_drawn(env, before[few], then[few], after[few]), moved[few]) for before, then in trial.keys):
            return "that of a reset with a key from the state"
    if ended.all():
        return ""
    margin = 1e-6 * (1 + np.abs(firsts).max(axis=0))
    low, high = firsts.min(axis=0) - margin, firsts.max(axis=0) + margin
    back, home = (((x >= low) & (x <= high)).all(axis=-1) for x in (after, shown))
    lengths = np.abs(after - shown)
    jumps = (lengths > JUMP * lengths[~ended].max(axis=0) + margin).any(axis=-1)
    return "it jumps back to where episodes start" if most(back & jumps, moved & ~home) else ""


def _equal(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Marks the observations that are equal up to the last digit."""
    return np.abs(one - other).max(axis=-1) <= 1e-6 * (1 + np.abs(other).max(axis=-1))


def _drawn(env: Any, before: np.ndarray, after: np.ndarray, observations: np.ndarray) -> np.ndarray:
    """Marks observations equal to those of resets with keys in, or split from, the state."""

    def resets(data: jax.Array) -> jax.Array:
        key = jax.random.wrap_key_data(data)
        candidates = jnp.concatenate([key[None], jax.random.split(key, 4)])
        return jax.vmap(lambda k: _float(env.reset(k)[1]))(candidates)

    drawn = jax.jit(jax.vmap(jax.vmap(resets)))(jnp.stack([before, after], axis=1))
    return np.asarray(_equal(np.asarray(drawn), observations[:, None, None]).any(axis=(1, 2)))


def actions_matter(env: Spaces, trial: _Trial, found: Findings) -> None:
    """Finds actions that change nothing."""

    def flat(name: str) -> list[str]:
        """Returns the dimensions in which other actions make no difference."""
        names, values = trial.actions.names, (trial.shown, *trial.step)
        a, others = names.index(name), [names.index(_but_in(name, i)) for i in range(env.action_size)]
        same = [all(np.allclose(x[a], x[b], rtol=1e-6, atol=0, equal_nan=True) for x in values) for b in others]
        return [str(i) for i in np.flatnonzero(same)]

    ignored = flat("drawn uniformly")
    if ignored:
        which = "the action" if len(ignored) == env.action_size else f"the action's dimension {', '.join(ignored)}"
        found.note("ignores-action", f"step() ignores {which}")
        return
    for name in ("at the lower bounds", "at the upper bounds"):
        if dimensions := ", ".join(flat(name)):
            what = f"actions {name} have the same effect as those a tenth further in (dimension {dimensions})"
            found.note("flat-bounds", what)
