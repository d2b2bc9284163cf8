"""Gymnasium environments, by name or from a function that creates them.

Gymnasium's vector environment steps them. Its automatic resets are disabled, and ended episodes are
restarted here, so that the last observation of an episode is the true one, and a termination can be
distinguished from a time limit.
"""

import copy
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import equinox as eqx
import numpy as np

from moca.config import ConfigError, nearest
from moca.envs.host import HostEnvironment, Outcome
from moca.names import GYMNASIUM

try:
    import gymnasium
    from gymnasium.spaces import Box
    from gymnasium.utils.env_checker import check_env
    from gymnasium.vector import AutoresetMode, SyncVectorEnv
except ImportError:
    raise ConfigError("Gymnasium environments need the package gymnasium: pip install 'moca-rl[gymnasium]'") from None


class Gymnasium(HostEnvironment):
    """A Gymnasium environment with Box observations, which are flattened, and bounded Box actions.

    Args:
        env: A registered name; an environment from `gymnasium.make`, or one that can be copied; or
            a function that creates a new environment at each call.
        settings: Arguments of `gymnasium.make`, if a name is given.
    """

    name: str | None = eqx.field(static=True)
    make: Callable[..., gymnasium.Env] = eqx.field(
        static=True
    )  # called with render_mode, which a user's function ignores
    observation_size: int = eqx.field(static=True)
    action_low: tuple[float, ...] = eqx.field(static=True)
    action_high: tuple[float, ...] = eqx.field(static=True)
    terminates: bool = eqx.field(static=True)
    max_steps: int | None = eqx.field(static=True)

    def __init__(self, env: str | gymnasium.Env | Callable[[], gymnasium.Env], **settings: Any) -> None:
        if isinstance(env, str):
            self.name = None if settings else GYMNASIUM + env
            self.make = partial(_registered, env, settings)
        elif isinstance(env, gymnasium.Env) and not settings:
            self.name, self.make = _name_of(env), partial(_again, env)
        elif callable(env) and not settings:
            self.name, self.make = None, lambda render_mode=None: env()
        else:
            raise ConfigError(
                "Gymnasium(…) needs a name, such as Pendulum-v1, with settings for gymnasium.make; or an environment, "
                f"or a function that creates one, without settings, since every run needs its own. Got {env!r}"
            )
        one = self.make()
        observed, acted = one.observation_space, one.action_space
        self.max_steps = one.spec.max_episode_steps if one.spec else None
        one.close()
        _refuse_spaces(observed, acted)
        self.observation_size = int(np.prod(observed.shape))  # type: ignore[arg-type]
        self.action_low = tuple(float(bound) for bound in acted.low.ravel())  # type: ignore[attr-defined]
        self.action_high = tuple(float(bound) for bound in acted.high.ravel())  # type: ignore[attr-defined]
        self.terminates = True  # unknown in Gymnasium

    @property
    def limit(self) -> int | None:
        return self.max_steps

    def vector(self, count: int, repeat: int = 1, render_mode: str | None = None) -> "GymnasiumVector":
        return GymnasiumVector([lambda: _Repeat(self.make(render_mode=render_mode), repeat)] * count)

    def complaints(self) -> Iterator[tuple[bool, str]]:
        """Yields the findings of Gymnasium's own checker: whether it is a fault, and a sentence."""
        env = self.make().unwrapped
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            try:
                check_env(env, skip_render_check=True)
            except Exception as error:  # the checker asserts, and the environment may raise anything
                yield True, f"Gymnasium's checker stops at {type(error).__name__}: {error}"
            finally:
                env.close()
        yield from ((False, f"Gymnasium's checker says: {_plain(str(each.message))}") for each in said)


def _plain(text: str) -> str:
    """Removes terminal colour codes."""
    return re.sub(r"\x1b\[\d*m", "", text).removeprefix("WARN: ").strip()


class GymnasiumVector:
    """Gymnasium's vector environment in one process, with restarts."""

    def __init__(self, makers: Sequence[Callable[[], gymnasium.Env]]) -> None:
        self.envs: Any = SyncVectorEnv(makers, autoreset_mode=AutoresetMode.DISABLED)

    def reset(self, seeds: Sequence[int]) -> np.ndarray:
        """Returns first observations."""
        return self._flat(self.envs.reset(seed=[int(seed) for seed in seeds])[0])

    def step(self, actions: np.ndarray) -> Outcome:
        """Steps all environments. NaN actions are replaced by zero.

        Their runs stop after the episode.
        """
        box = self.envs.single_action_space
        actions = (
            np.nan_to_num(actions).reshape(-1, *box.shape).clip(box.low, box.high)
        )  # rounding may leave the bounds
        observation, reward, terminated, truncated, _ = self.envs.step(actions.astype(box.dtype))
        ended, current = terminated | truncated, observation
        if ended.any():
            current, _ = self.envs.reset(options={"reset_mask": ended})
        return Outcome(self._flat(observation), reward.astype(np.float32), terminated, ended, self._flat(current))

    @property
    def fps(self) -> float:
        """Frames per second, at one frame per step."""
        return float(self.envs.metadata.get("render_fps") or 30)

    def picture(self) -> np.ndarray:
        """Renders the current state of the first environment."""
        try:
            picture = self.envs.envs[0].render()
        except gymnasium.error.DependencyNotInstalled as error:
            raise ConfigError(f"Gymnasium cannot render this environment: {error}") from None
        if not isinstance(picture, np.ndarray):
            raise ConfigError(
                "only an environment created with render_mode='rgb_array' can be rendered: pass that in the function "
                "that creates it"
            )
        return picture

    def _flat(self, observation: Any) -> np.ndarray:
        return np.asarray(observation).reshape(self.envs.num_envs, -1).astype(np.float32)


class _Repeat(gymnasium.Wrapper):
    """Repeats each action `times` times, until an end; rewards add up."""

    def __init__(self, env: gymnasium.Env, times: int) -> None:
        super().__init__(env)
        self._times = times

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        total = 0.0
        for _ in range(self._times):
            observation, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            if terminated or truncated:
                break
        return observation, total, terminated, truncated, info


def _registered(name: str, settings: dict[str, Any], render_mode: str | None = None) -> gymnasium.Env:
    """Returns the environment of that name; raises `ConfigError` if it cannot be created."""
    options = settings | ({"render_mode": render_mode} if render_mode else {})
    try:
        return gymnasium.make(name, **options)
    except gymnasium.error.UnregisteredEnv as error:
        raise ConfigError(f"Gymnasium has no {name}.{nearest(name, gymnasium.registry)} It says: {error}") from None
    except (gymnasium.error.Error, ImportError) as error:
        raise ConfigError(f"Gymnasium cannot make {name}: {error}") from None


def _name_of(env: gymnasium.Env) -> str | None:
    """Returns the name that recreates the environment.

    None if it has other settings or wrappers.
    """
    spec = env.spec
    known = gymnasium.registry.get(spec.id) if spec else None
    if spec is None or known is None or spec.additional_wrappers:
        return None
    settings = {name: value for name, value in spec.kwargs.items() if name != "render_mode"}
    same = settings == known.kwargs and spec.max_episode_steps == known.max_episode_steps
    return GYMNASIUM + spec.id if same else None


def _again(env: gymnasium.Env, render_mode: str | None = None) -> gymnasium.Env:
    """Returns another environment of the same kind."""
    options: dict[str, Any] = {"render_mode": render_mode} if render_mode else {}
    try:
        return gymnasium.make(env.spec, **options) if env.spec else copy.deepcopy(env)
    except Exception as error:  # a wrapper without a spec, or an environment that cannot be copied
        raise ConfigError(
            f"{env} cannot be copied, but every run needs its own: pass a function that creates it, as in "
            f"Gymnasium(lambda: …). Gymnasium reports: {error}"
        ) from None


def _refuse_spaces(observed: Any, acted: Any) -> None:
    """Raises unless observations are a Box and actions a bounded Box."""
    if not isinstance(observed, Box):
        raise ConfigError(
            f"observations must be a Box, not {observed}: wrap the environment, as in "
            "Gymnasium(lambda: gymnasium.wrappers.FlattenObservation(gymnasium.make(…)))"
        )
    if not isinstance(acted, Box) or not np.issubdtype(acted.dtype, np.floating):
        raise ConfigError(
            f"actions must be a Box of real numbers, not {acted}: MoCA's agents need continuous actions. Use the "
            "continuous version of the task if there is one, as MountainCarContinuous-v0 for MountainCar-v0"
        )
    if not (np.isfinite(acted.low).all() and np.isfinite(acted.high).all() and (acted.low < acted.high).all()):
        raise ConfigError(
            f"actions must have finite bounds, low below high, not {acted}: set them as in Gymnasium(lambda: "
            "gymnasium.wrappers.TransformAction(env, lambda a: a, gymnasium.spaces.Box(-1.0, 1.0, env.action_space."
            "shape)))"
        )
