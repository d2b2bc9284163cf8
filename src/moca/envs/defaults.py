"""Default settings for an environment without a preset, measured in a short random rollout.

They are guesses: random actions visit only a part of the states that a good policy will. Settings
given by the user take precedence.
"""

from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from moca import presets
from moca.config import ConfigError, ExplorationConfig
from moca.devices import for_one_call
from moca.envs.check import refuse_broken
from moca.envs.check.faults import ON_HOST
from moca.envs.environment import ActionRepeat, Environment, Spaces, Wrapper
from moca.envs.history import with_history
from moca.envs.host import HostEnvironment
from moca.envs.mujoco import MuJoCo
from moca.envs.named import named
from moca.envs.playground import Playground
from moca.envs.sensors import masked
from moca.exploration import draw_exploration
from moca.names import MJX

EPISODES = 16  # in parallel, each with a different first state
STEPS = 500
SECONDS = 20.0  # for all episodes of an environment on the host
TIMED = 20  # steps that are timed before, for two seconds at most
LEAST = (2, 50)  # episodes and steps that are not halved further
# Extreme actions held for a while lead further than new actions at every step, which cancel out.
ACTIONS = ExplorationConfig(hold=20.0, random="extreme")
TAIL = 0.01  # the fraction of observations at either end that may be outliers
MARGIN = 0.1  # fraction of the observed range, added at either end
# Fraction of the range, times √d, so that two random states are as many lengthscales apart for
# every dimension d. In the paper's tasks (d = 3 and 5) this is close to the paper's values.
LENGTH = 0.075
_lengths: dict[str, int] = {}  # found in trial episodes, by the environment's title
RANDOM_START = 50  # steps of a random action before an episode whose first state would be the same
USUAL = 10.0  # the size of a usual change from decision to decision, in its unit


def _silent(text: str) -> None:
    pass


class _Plan(NamedTuple):
    """Parallel episodes of random actions, with seeds from that one on."""

    seed: int
    steps: int
    repeat: int = 1
    episodes: int = EPISODES


def measured(
    preset: str, env: Spaces | str | None, settings: Mapping[str, Any], tell: Callable[[str], None] = _silent
) -> dict[str, Any]:
    """Returns the settings that are taken from the environment: ranges, scales, its time limit.

    Args:
        preset: The name of the preset.
        env: The environment, or its name in a config.
        settings: The settings that are given, by dotted name.
        tell: Called with a sentence before what may take long.
    """
    name = None if isinstance(env, Spaces) else env
    lacking, limited = presets.lacks(preset, name, settings), presets.lacks_length(name, settings)
    if not lacking and not limited:
        return {}
    rollout = lacking - {presets.START}
    how = presets.how_to_measure(preset, name, settings)
    spaces = env if isinstance(env, Spaces) else named(str(env), how["flatten"], how["physics"])
    if rollout:
        reason = "a state with a history" if how["history"] else name or cast(Spaces, env).title
        tell(f"{reason} has no preset: measuring ranges and scales in short episodes (config.json records them)")
    # Also that a random start is not needed: a study does not look again for what it has found.
    found = {presets.START: 0} | random_start(spaces) if lacking and not rollout else {}
    found |= defaults(spaces, **how, tell=tell) if rollout else {}
    found |= _time_limit(spaces, not rollout, how["gaps"], tell) if limited else {}
    if isinstance(spaces, HostEnvironment) and not spaces.limit and "env.episode_length" in found:
        _lengths[spaces.title] = found["env.episode_length"]
    return found


def found_in_trials(title: str, length: int) -> bool:
    """Returns True if trial episodes in this process were cut off at that step."""
    return _lengths.get(title) == length


def _time_limit(env: Spaces, measure: bool, gaps: bool, tell: Callable[[str], None]) -> dict[str, Any]:
    """Returns the episode length set by the environment's own time limit, if it has one.

    With `measure`, a limit that it does not declare is looked for in a short random rollout.
    """
    if not isinstance(env, HostEnvironment):
        return {}
    if env.limit or not measure:
        return {"env.episode_length": env.limit} if env.limit else {}
    tell(f"{env.title} declares no time limit: looking for one in short episodes")
    refuse_broken(env, gaps)
    return _play_on_host(env, _affordable(env, _Plan(0, STEPS), tell))[2]


def defaults(
    env: Spaces | str,
    seed: int = 0,
    steps: int = STEPS,
    flatten: bool = False,
    gaps: bool = False,
    observed: tuple[int, ...] = (),
    history: int = 0,
    repeat: int = 1,
    episode: int = 0,
    physics: str = MJX,
    tell: Callable[[str], None] = _silent,
) -> dict[str, Any]:
    """Returns measured settings: range, lengthscales and bounds of V, scales of the noise.

    Args:
        env: The environment, or its name in a config.
        seed: The seed of first states and actions.
        steps: The length of the rollout, in sixteen parallel episodes.
        flatten: As `env.flatten`, if `env` is a name.
        gaps: As `sensor.gaps`.
        observed: As `sensor.observed`; used only if there is a history.
        history: As `sensor.history`. Ranges are then those of the state.
        repeat: As `env.action_repeat`, over which changes are measured if there is a history.
        episode: As `env.episode_length`, if known: compiled environments and Playground's do not
            end by themselves.
        physics: As `env.physics`, if `env` is a name.
        tell: Called with a sentence if the environment is so slow that less is played.
    """
    env = named(env, flatten, physics) if isinstance(env, str) else env
    plan = _Plan(seed, steps, repeat if history else 1)
    if isinstance(env, HostEnvironment) and not _is_playgrounds(env):
        refuse_broken(env, gaps)
        plan = _affordable(env, plan, tell, times=2 if history else 1)
    elif episode:
        plan = plan._replace(steps=min(steps, episode))
    if history:
        return _with_history(masked(env, observed), plan, history)
    seen, rewards, found = _played(env, plan)
    return found | _ranges(seen) | _bounds(rewards[np.isfinite(rewards)])


def _affordable(env: HostEnvironment, plan: _Plan, tell: Callable[[str], None], times: int = 1) -> _Plan:
    """Returns the plan, with fewer or shorter episodes if they would take longer than `SECONDS`.

    Both are halved until it fits, so that a somewhat slower computer usually plays the same.
    """
    first, each = _seconds(env, plan)

    def needed(less: _Plan) -> float:
        return times * less.episodes * (first + less.steps * each)

    less = plan
    while needed(less) > SECONDS and less.episodes > LEAST[0]:
        less = less._replace(episodes=less.episodes // 2)
    while needed(less) > SECONDS and less.steps > LEAST[1]:
        less = less._replace(steps=less.steps // 2)
    if less != plan:
        length = f"{less.steps} steps: {less.episodes * less.steps * times} in all, in about {needed(less):.0f} s"
        tell(f"a step takes {1000 * each:.3g} ms, so there are only {less.episodes} episodes of {length}")
    return less


def _seconds(env: HostEnvironment, plan: _Plan) -> tuple[float, float]:
    """Returns how long an environment takes to begin, and for a step with its share of resets."""
    begun = perf_counter()
    vector = env.vector(1, plan.repeat)
    made = perf_counter()
    vector.reset([plan.seed])
    first = last = perf_counter()
    rng, ends = np.random.default_rng(plan.seed), 0
    took: list[float] = []
    while len(took) < TIMED and last - first < 2:
        action = rng.uniform(env.action_low, env.action_high).astype(np.float32)
        ends += int(vector.step(action[None]).ended[0])
        took.append((now := perf_counter()) - last)
        last = now
    # The median, since a busy computer makes single steps slow.
    return first - begun, float(np.median(took)) + ends / len(took) * (first - made)


def _with_history(env: Spaces, plan: _Plan, history: int) -> dict[str, Any]:
    """Returns settings for a state with a history; changes are measured first, in units of one."""
    if isinstance(env, Environment):
        env, plan = ActionRepeat(env, plan.repeat), plan._replace(repeat=1)
    size = env.observation_size
    seen, *_ = _played(with_history(env, 1, (1.0,) * size), plan)
    usual = np.sqrt(np.mean(np.square(seen[:, size:]), axis=0)) / USUAL
    scales = _rounded(np.where(usual > 0, usual, 1.0))
    seen, rewards, found = _played(with_history(env, history, scales), plan)
    found |= _ranges(seen)
    found["noise.scales"] = found["noise.scales"][:size]
    return found | _bounds(rewards[np.isfinite(rewards)]) | {"sensor.scales": scales}


def _played(env: Spaces, plan: _Plan) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    """Returns the finite observations of random episodes, all rewards, and settings found there."""
    if isinstance(env, HostEnvironment):
        observations, rewards, found = _play_on_host(env, plan)
    else:
        observations, rewards, found = _play(cast(Environment, env), plan)
    seen = observations.reshape(-1, env.observation_size)
    seen = seen[np.isfinite(seen).all(axis=1)]
    if not len(seen):
        raise ConfigError(
            f"{type(env).__name__} gives no finite observation under random actions: moca.check_env may say why"
        )
    return seen, rewards, found


def _ranges(seen: Float[np.ndarray, "n obs"]) -> dict[str, Any]:
    """Returns the range of each observed dimension, and its lengthscale."""
    low, high = np.quantile(seen.astype(np.float64), [TAIL, 1 - TAIL], axis=0)
    middle, half = (low + high) / 2, (0.5 + MARGIN) * (high - low)
    unit = np.maximum(1, np.abs(middle))
    constant = half < 1e-6 * unit
    half = np.where(constant, unit, half)  # a dimension that did not change may do so later
    scales = np.where(constant, np.inf, np.maximum(np.abs(low), np.abs(high)))
    length = min(1.0, LENGTH * seen.shape[1] ** 0.5)
    return {
        "value.low": _rounded(middle - half),
        "value.high": _rounded(middle + half),
        "value.lengthscales": _rounded(2 * half * length),
        "noise.scales": _rounded(scales),
    }


def _bounds(rewards: Float[np.ndarray, "n"]) -> dict[str, float]:
    """Returns bounds on E[V], assuming that rewards keep their sign."""
    if not len(rewards) or rewards.min() >= 0:
        return {"value.least": 0.0}
    return {"value.most": 0.0} if rewards.max() <= 0 else {}


def _rounded(numbers: Float[np.ndarray, "obs"]) -> tuple[float, ...]:
    """Rounds to three digits; the measurements are no more precise."""
    return tuple(float(f"{number:.3g}") for number in numbers)


def _play(env: Environment, plan: _Plan) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    """Returns observations and rewards of random episodes; a new one starts where one ends.

    Also returns the setting of random starts, if they should be.
    """

    def step(carry: tuple[Any, Key[Array, ""]], action: Float[Array, "act"]) -> tuple[tuple, tuple]:
        state, key = carry
        key, reset_key = jax.random.split(key)
        state, (observation, reward, terminated) = env.step(state, action)
        if env.terminates:
            fresh, _ = env.reset(reset_key)
            state = jax.tree.map(lambda new, old: jnp.where(terminated, new, old), fresh, state)
        return (state, key), (observation, reward)

    def episode(key: Key[Array, ""]) -> tuple[Array, Array, Array]:
        first_key, action_key, later_key = jax.random.split(key, 3)
        state, first = env.reset(first_key)
        return *jax.lax.scan(step, (state, later_key), _actions(env, action_key, plan.steps))[1], first

    keys = jax.random.split(jax.random.key(plan.seed), plan.episodes)
    observations, rewards, firsts = jax.device_get(jax.jit(jax.vmap(episode))(keys))
    return observations, rewards, _random_start(env, firsts)


def random_start(env: Spaces, seed: int = 0) -> dict[str, Any]:
    """Returns the setting of random starts, found by resets alone."""
    if isinstance(env, HostEnvironment):
        return _random_start(env, env.vector(EPISODES).reset(range(seed, seed + EPISODES)))
    keys = jax.random.split(jax.random.key(seed), EPISODES)
    reset = jax.jit(jax.vmap(cast(Environment, env).reset), compiler_options=for_one_call())
    return _random_start(env, jax.device_get(reset(keys)[1]))


def _random_start(env: Spaces, firsts: Float[np.ndarray, "n obs"]) -> dict[str, Any]:
    """Returns the setting of random starts, if all of Playground's are alike."""
    varied = len(np.unique(firsts, axis=0)) > 1 or not _is_playgrounds(env)  # one's own may be as intended
    return {} if varied else {presets.START: RANDOM_START}


def _is_playgrounds(env: Spaces) -> bool:
    """Returns True if the innermost environment is one of Playground's."""
    while isinstance(env, Wrapper):
        env = env.inner
    return isinstance(env, Playground | MuJoCo)


def _play_on_host(env: HostEnvironment, plan: _Plan) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    """Does the same on the host, step by step; also returns the episode length, if it was found."""
    vector, seeds = env.vector(plan.episodes, plan.repeat), range(plan.seed, plan.seed + plan.episodes)
    firsts = vector.reset(seeds)
    keys = jax.random.split(jax.random.key(plan.seed), plan.episodes)
    draw = jax.jit(jax.vmap(lambda key: _actions(env, key, plan.steps), out_axes=1), compiler_options=for_one_call())
    actions = np.asarray(draw(keys))
    outcomes = [vector.step(each) for each in actions]
    cut = _truncated_at(np.stack([each.ended for each in outcomes]), np.stack([each.terminated for each in outcomes]))
    found = {} if cut is None else {"env.episode_length": cut * plan.repeat}
    found |= _random_start(env, firsts)
    rewards = np.stack([each.reward for each in outcomes])
    for late, _ in np.argwhere(~np.isfinite(rewards))[: not _is_playgrounds(env)] + 1:
        raise ConfigError(
            f"{env.title} gives a reward that is not finite at or before step {late * plan.repeat} of a trial with "
            f"random actions: {ON_HOST['reward-not-finite']}"
        )
    return np.stack([each.observation for each in outcomes]), rewards, found


def _truncated_at(ended: Bool[np.ndarray, "steps n"], terminated: Bool[np.ndarray, "steps n"]) -> int | None:
    """Returns the number of steps after which episodes are truncated, or None.

    At least two episodes must be truncated, all after that number of steps, and none may last
    longer, those still running at the end included. Others may terminate earlier.
    """
    ends = np.argwhere(ended.T)  # in order of time for each of the parallel episodes
    parallel, at = ends.T
    lengths = np.where(np.diff(parallel, prepend=-1), at + 1, np.diff(at, prepend=0))
    cut, running = lengths[~terminated.T[ended.T]], np.flip(ended, axis=0).cumsum(axis=0) == 0
    if len(cut) < 2 or running.sum(axis=0).max() >= cut[0]:
        return None
    return int(cut[0]) if (cut == lengths.max()).all() else None


def _actions(env: Spaces, key: Key[Array, ""], steps: int) -> Float[Array, "steps act"]:
    low, high = jnp.array(env.action_low), jnp.array(env.action_high)
    return low + (draw_exploration(key, ACTIONS, steps, env.action_size).random + 1) / 2 * (high - low)
