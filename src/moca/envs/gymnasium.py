"""Gymnasium's environments, by name or from a function that makes them.

Gymnasium's vector environment steps them; its automatic resets are off, and what ended is restarted here. So the last
observation of an episode is the true one, and the end of a task and a time limit are told apart.
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
    raise ConfigError("Gymnasium's environments need the package gymnasium: pip install 'moca-rl[gymnasium]'") from None


class Gymnasium(HostEnvironment):
    """A Gymnasium environment with a Box of observations, which are flattened, and a bounded Box of actions.

    Args:
        env: a registered name; an environment that `gymnasium.make` made, or that can be copied; or a function that
            makes a new one whenever it is called.
        settings: for `gymnasium.make`, where a name was given.
    """

    name: str | None = eqx.field(static=True)
    make: Callable[..., gymnasium.Env] = eqx.field(static=True)  # takes render_mode, which a user's function ignores
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
                f"Gymnasium(…) takes a name, such as Pendulum-v1, with settings for gymnasium.make; or an environment, "
                f"or a function that makes one, for every run needs one of its own, and no settings. It got {env!r}"
            )
        one = self.make()
        observed, acted = one.observation_space, one.action_space
        self.max_steps = one.spec.max_episode_steps if one.spec else None
        one.close()
        _refuse_spaces(observed, acted)
        self.observation_size = int(np.prod(observed.shape))  # type: ignore[arg-type]
        self.action_low = tuple(float(bound) for bound in acted.low.ravel())  # type: ignore[attr-defined]
        self.action_high = tuple(float(bound) for bound in acted.high.ravel())  # type: ignore[attr-defined]
        self.terminates = True  # Gymnasium does not say

    @property
    def limit(self) -> int | None:
        return self.max_steps

    def vector(self, count: int, repeat: int = 1, render_mode: str | None = None) -> "GymnasiumVector":
        return GymnasiumVector([lambda: _Repeat(self.make(render_mode=render_mode), repeat)] * count)

    def complaints(self) -> Iterator[tuple[bool, str]]:
        """Returns what Gymnasium's own checker finds: pairs of whether it is a fault, and a sentence."""
        env = self.make().unwrapped
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            try:
                check_env(env, skip_render_check=True)
            except Exception as error:  # it raises whatever the environment raises, and asserts
                yield True, f"Gymnasium's checker stops at {type(error).__name__}: {error}"
            finally:
                env.close()
        yield from ((False, f"Gymnasium's checker says: {_plain(str(each.message))}") for each in said)


def _plain(text: str) -> str:
    """Without the colours of a terminal."""
    return re.sub(r"\x1b\[\d*m", "", text).removeprefix("WARN: ").strip()


class GymnasiumVector:
    """Gymnasium's own vector environment, in one process, and the restarts."""

    def __init__(self, makers: Sequence[Callable[[], gymnasium.Env]]) -> None:
        self.envs: Any = SyncVectorEnv(makers, autoreset_mode=AutoresetMode.DISABLED)

    def reset(self, seeds: Sequence[int]) -> np.ndarray:
        """First observations."""
        return self._flat(self.envs.reset(seed=[int(seed) for seed in seeds])[0])

    def step(self, actions: np.ndarray) -> Outcome:
        """Steps all environments. A NaN action counts as zero: its run is given up after the episode."""
        box = self.envs.single_action_space
        actions = np.nan_to_num(actions).reshape(-1, *box.shape).clip(box.low, box.high)  # rounding may lead outside
        observation, reward, terminated, truncated, _ = self.envs.step(actions.astype(box.dtype))
        ended, current = terminated | truncated, observation
        if ended.any():
            current, _ = self.envs.reset(options={"reset_mask": ended})
        return Outcome(self._flat(observation), reward.astype(np.float32), terminated, ended, self._flat(current))

    @property
    def fps(self) -> float:
        """Frames per second, if one is taken of every step."""
        return float(self.envs.metadata.get("render_fps") or 30)

    def picture(self) -> np.ndarray:
        """Renders the first environment as it is now."""
        try:
            picture = self.envs.envs[0].render()
        except gymnasium.error.DependencyNotInstalled as error:
            raise ConfigError(f"Gymnasium cannot draw this environment: {error}") from None
        if not isinstance(picture, np.ndarray):
            raise ConfigError(
                "only an environment made with render_mode='rgb_array' can be filmed: let the function that makes it "
                "say so"
            )
        return picture

    def _flat(self, observation: Any) -> np.ndarray:
        return np.asarray(observation).reshape(self.envs.num_envs, -1).astype(np.float32)


class _Repeat(gymnasium.Wrapper):
    """The same action `times` times, until an end; rewards add up."""

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
    """The environment of that name, or a sentence that says why there is none."""
    options = settings | ({"render_mode": render_mode} if render_mode else {})
    try:
        return gymnasium.make(name, **options)
    except gymnasium.error.UnregisteredEnv as error:
        raise ConfigError(f"Gymnasium has no {name}.{nearest(name, gymnasium.registry)} It says: {error}") from None
    except (gymnasium.error.Error, ImportError) as error:
        raise ConfigError(f"Gymnasium cannot make {name}: {error}") from None


def _name_of(env: gymnasium.Env) -> str | None:
    """The name by which a config can make the same again; None if it has settings or wrappers of its own."""
    spec = env.spec
    known = gymnasium.registry.get(spec.id) if spec else None
    if spec is None or known is None or spec.additional_wrappers:
        return None
    settings = {name: value for name, value in spec.kwargs.items() if name != "render_mode"}
    same = settings == known.kwargs and spec.max_episode_steps == known.max_episode_steps
    return GYMNASIUM + spec.id if same else None


def _again(env: gymnasium.Env, render_mode: str | None = None) -> gymnasium.Env:
    """Another environment of the same kind."""
    options: dict[str, Any] = {"render_mode": render_mode} if render_mode else {}
    try:
        return gymnasium.make(env.spec, **options) if env.spec else copy.deepcopy(env)
    except Exception as error:  # a wrapper that does not say how it was made, or what cannot be copied
        raise ConfigError(
            f"{env} cannot be made again, and every run needs one of its own: give a function that makes it, as in "
            f"Gymnasium(lambda: …). Gymnasium says: {error}"
        ) from None


def _refuse_spaces(observed: Any, acted: Any) -> None:
    """Raises if the observations are no Box, or the actions no bounded one."""
    if not isinstance(observed, Box):
        raise ConfigError(
            f"observations must be a Box, not {observed}: wrap the environment so that they are, as in "
            "Gymnasium(lambda: gymnasium.wrappers.FlattenObservation(gymnasium.make(…)))"
        )
    if not isinstance(acted, Box) or not np.issubdtype(acted.dtype, np.floating):
        raise ConfigError(
            f"actions must be a Box of real numbers, not {acted}: MoCA's agents choose from a continuum. Take the "
            "continuous version of the task if there is one, MountainCarContinuous-v0 for MountainCar-v0"
        )
    if not (np.isfinite(acted.low).all() and np.isfinite(acted.high).all() and (acted.low < acted.high).all()):
        raise ConfigError(
            f"actions must have finite bounds that lie apart, not {acted}: give them some, as in Gymnasium(lambda: "
            "gymnasium.wrappers.TransformAction(env, lambda a: a, gymnasium.spaces.Box(-1.0, 1.0, env.action_space."
            "shape)))"
        )
