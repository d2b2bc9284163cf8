"""Gymnasium environments, by name or from a function that creates them.

Gymnasium's vector environment steps them. Its automatic resets are disabled, and ended episodes are
restarted here, so that the last observation of an episode is the true one, and a termination can be
distinguished from a time limit.
"""

import copy
import importlib
import inspect
import os
import re
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import equinox as eqx
import numpy as np

from moca.config import ConfigError, nearest, shown
from moca.envs.check.faults import line_of, said
from moca.envs.environment import Described
from moca.envs.host import HostEnvironment, Outcome
from moca.envs.mujoco import tell_once
from moca.names import GYMNASIUM

try:
    import gymnasium
    from gymnasium.envs.registration import load_env_creator
    from gymnasium.vector import AutoresetMode, SyncVectorEnv
    from gymnasium.wrappers import FlattenObservation

    from moca.envs.spaces import refuse_spaces, spaces_of
except ImportError:
    raise ConfigError("Gymnasium environments need the package gymnasium: pip install 'moca-rl[gymnasium]'") from None


class Gymnasium(Described, HostEnvironment):
    """A Gymnasium environment with Box observations and bounded Box actions.

    Args:
        env: A registered name, or `module:Class`; an environment from `gymnasium.make`, or one that
            can be copied; or a function that creates a new environment at each call.
        flatten: If True, observations of several parts (Dict, Tuple) become one vector, in the
            order of the space. Discrete parts become one-hot vectors. See `env.flatten`.
        settings: Arguments of `gymnasium.make`, if a name is given.
    """

    name: str | None = eqx.field(static=True)
    # Called with render_mode, which a user's function ignores.
    make: Callable[..., gymnasium.Env] = eqx.field(static=True)
    max_steps: int | None = eqx.field(static=True)
    flattens: bool = eqx.field(static=True)
    kind: str = eqx.field(static=True)  # the registered name, or that of the environment's class
    labels: tuple[str, ...] = eqx.field(static=True)  # of observed dimensions, if the class has observation_names

    def __init__(
        self, env: str | gymnasium.Env | Callable[[], gymnasium.Env], *, flatten: bool = False, **settings: Any
    ) -> None:
        make: Callable[..., gymnasium.Env]
        if isinstance(env, str):
            env = _versioned(env)
            self.name, make = None if settings else GYMNASIUM + env, partial(_named, env, settings)
        elif isinstance(env, gymnasium.Env) and not settings:
            self.name, make = _name_of(env), partial(_again, env)
        elif callable(env) and not settings:
            self.name, make = None, lambda render_mode=None: env()
        else:
            raise ConfigError(
                "Gymnasium(…) needs a name, such as Pendulum-v1, with settings for gymnasium.make; or an environment, "
                f"or a function that creates one, without settings, since every run needs its own. Got {env!r}"
            )
        tell_once()
        one: Any = make()
        if not isinstance(one, gymnasium.Env):
            raise ConfigError(f"{shown(env)} returns {shown(one)}, which is not a gymnasium.Env")
        refuse_spaces(*spaces_of(one), flatten)
        self.flattens = flatten
        self.make = (lambda render_mode=None: FlattenObservation(make(render_mode=render_mode))) if flatten else make
        observed, acted = (FlattenObservation(one) if flatten else one).observation_space, one.action_space
        self.max_steps = one.spec.max_episode_steps if one.spec else None
        self.kind = one.spec.id if one.spec else type(one.unwrapped).__name__
        names = getattr(one.unwrapped, "observation_names", ())
        plain = isinstance(names, tuple | list) and all(isinstance(each, str) for each in names)
        self.labels = tuple(names) if plain else ()
        one.close()
        self.observation_size = int(np.prod(observed.shape))  # type: ignore[arg-type]
        self.action_low = tuple(float(bound) for bound in acted.low.ravel())  # type: ignore[attr-defined]
        self.action_high = tuple(float(bound) for bound in acted.high.ravel())  # type: ignore[attr-defined]
        self.terminates = True  # unknown in Gymnasium

    @property
    def title(self) -> str:
        return self.kind

    @property
    def observation_names(self) -> tuple[str, ...]:
        return self.labels

    @property
    def limit(self) -> int | None:
        return self.max_steps

    @property
    def flatten(self) -> bool:
        return self.flattens

    def vector(self, count: int, repeat: int = 1, render_mode: str | None = None) -> "GymnasiumVector":
        if render_mode:
            _without_devices()
        return GymnasiumVector([lambda: _Repeat(self.make(render_mode=render_mode), repeat)] * count)

    def single(self) -> gymnasium.Env:
        return self.make()


class GymnasiumVector:
    """Gymnasium's vector environment in one process, with restarts."""

    def __init__(self, makers: Sequence[Callable[[], gymnasium.Env]]) -> None:
        tell_once()  # a function may have imported MuJoCo
        self.envs: Any = SyncVectorEnv(makers, autoreset_mode=AutoresetMode.DISABLED)

    def reset(self, seeds: Sequence[int]) -> np.ndarray:
        """Starts an episode in every environment and returns the first observations."""
        return self._flat(self.envs.reset(seed=[int(seed) for seed in seeds])[0])

    def step(self, actions: np.ndarray) -> Outcome:
        """Steps all environments. NaN actions are replaced by zero.

        Their runs stop after the episode.
        """
        box = self.envs.single_action_space
        actions = np.nan_to_num(actions).reshape(-1, *box.shape)
        actions = actions.clip(box.low, box.high)  # rounding may leave the bounds
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
            raise ConfigError(f"Gymnasium cannot render this environment: {_with_extra(error)}") from None
        except NotImplementedError:
            picture = None
        if not isinstance(picture, np.ndarray):
            raise ConfigError(
                "only an environment whose render() returns a picture can be rendered: define render(), accept "
                "render_mode in __init__ and store it, or pass render_mode='rgb_array' in the function that creates it"
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


def _without_devices() -> None:
    """Keeps SDL, which draws many environments, from looking for sound or a missing screen.

    It writes its errors to the terminal. The user's own variables have precedence.
    """
    os.environ.setdefault("SDL_AUDIODRIVER", "dummy")
    if sys.platform == "linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")


def _named(name: str, settings: dict[str, Any], render_mode: str | None = None) -> gymnasium.Env:
    """Returns the environment of that name; raises `ConfigError` if it cannot be created."""
    options = settings | ({"render_mode": render_mode} if render_mode else {})
    module, colon, last = name.rpartition(":")
    try:
        if colon and last.isidentifier():
            held = vars(importlib.import_module(module))
            if last not in gymnasium.registry:  # the module may have registered it
                return _of_module(module, held, last, options)
        if (spec := gymnasium.registry.get(last)) and isinstance(spec.entry_point, str):
            load_env_creator(spec.entry_point)  # before its first warning
            tell_once()
        return gymnasium.make(name, **options)
    except ConfigError:
        raise
    except gymnasium.error.UnregisteredEnv as error:
        raise ConfigError(f"Gymnasium has no {name}{_hint(module, last, error)}") from None
    except (gymnasium.error.Error, ImportError) as error:
        raise ConfigError(f"Gymnasium cannot make {name}: {_with_extra(error)}") from None
    except Exception as error:  # whatever its code raises
        raise ConfigError(f"{name} cannot be made: it raises {said(error)}{line_of(error)}") from None


def _versioned(name: str) -> str:
    """Returns a registered name with a version: the newest, if it has none."""
    found = [re.fullmatch(rf"{re.escape(name)}-v(\d+)", each) for each in gymnasium.registry]
    versions = [int(match[1]) for match in found if match]
    return f"{name}-v{max(versions)}" if versions and name not in gymnasium.registry else name


def _hint(module: str, name: str, error: Exception) -> str:
    """Returns what a name that is not registered may have meant, or how to register it."""
    space, slash, _ = name.rpartition("/")
    if slash and not module and not any(each.startswith(f"{space}/") for each in gymnasium.registry):
        return f": a package registers {space}/…, so name the module to import for it, {GYMNASIUM}MODULE:{name}"
    return f".{nearest(name, gymnasium.registry)}" if nearest(name, gymnasium.registry) else f". It says: {error}"


def _of_module(module: str, held: dict[str, Any], name: str, options: dict[str, Any]) -> gymnasium.Env:
    """Returns an environment from a class, or a function without arguments, of a module."""
    classes = [each for each, value in held.items() if isinstance(value, type) and issubclass(value, gymnasium.Env)]
    if name not in held:
        there = f"its environments are {', '.join(classes)}" if classes else "it defines no environments"
        raise ConfigError(
            f"{module} neither registers {name} with Gymnasium nor defines it.{nearest(name, held)} ({there})"
        )
    if not callable(held[name]):
        raise ConfigError(f"{module}:{name} is {shown(held[name])}: it must be an environment class")
    known = inspect.signature(held[name]).parameters
    if "render_mode" not in known and not any(each.kind is each.VAR_KEYWORD for each in known.values()):
        options = {key: value for key, value in options.items() if key != "render_mode"}
    if needed := [each.name for each in known.values() if _required(each) and each.name not in options]:
        raise ConfigError(
            f"{module}:{name} needs {', '.join(needed)}: give defaults, or name a function without arguments that "
            "makes the environment"
        )
    return held[name](**options)


def _required(parameter: inspect.Parameter) -> bool:
    several = (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    return parameter.default is parameter.empty and parameter.kind not in several


def _with_extra(error: Exception) -> str:
    """The error's own words, and what to install where it misses a package."""
    named = re.search(r"gymnasium\[([\w-]+)\]", str(error))
    extra = named[1].replace("_", "-") if named else ""
    package = getattr(error, "name", None) or ""
    if extra in ("classic-control", "mujoco") or package.partition(".")[0] in ("imageio", "mujoco", "pygame"):
        return f"{error} (run pip install 'moca-rl[gymnasium]')"
    told = re.search(r"pip install ['\"]?gymnasium\[", str(error))
    return f"{error} (run pip install 'gymnasium[{extra}]')" if extra and not told else str(error)


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
