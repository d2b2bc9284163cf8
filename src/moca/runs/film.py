"""Videos of a learned policy: rendered by MuJoCo, or drawn as outlines if OpenGL is missing."""

import io
import itertools
import warnings
from collections.abc import Sequence
from contextlib import redirect_stderr
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from moca.config import Config, ConfigError
from moca.drivers.host_evaluation import play_once
from moca.envs.environment import ActionRepeat, Environment, Wrapper
from moca.envs.history import HistoryHost, HistoryVector, WithHistory
from moca.envs.host import HostEnvironment, Vector
from moca.envs.mujoco import MuJoCo
from moca.envs.playground import Playground
from moca.envs.sensors import MaskedHost, MaskedVector

if TYPE_CHECKING:
    from moca.runs.run import Run

# MuJoCo's geometry types, as numbers, to avoid importing its module.
PLANE, BOX, RODS = 0, 6, (3, 5)
SIZE = (480, 640)  # height, width
SMALL = ["-vf", "scale=320:-2", "-g", "8"]  # arguments of ffmpeg
_failed: list[str] = []  # why MuJoCo could not render; a second attempt would end the process


def episode(run: "Run", number: int, seed: int, path: Path) -> tuple[str, float]:
    """Films a greedy episode of a run; returns how it was drawn, and its return."""
    env, learner = run.environment, run._at(number)[1]
    if why := unfilmed(env):
        raise ConfigError(f"{why}; moca inspect shows an episode without a video")
    if isinstance(env, HostEnvironment):
        return record(path, env, run.directory.configs[number], learner, seed)
    states, played = run._programs["play"](*run._at(number), jax.random.key(seed))
    return write(path, env, states, np.asarray(played.reward)), float(np.sum(played.reward))


def unfilmed(env: Any) -> str:
    """Returns why an environment cannot be filmed; an empty string if it can be."""
    while isinstance(env, Wrapper):
        env = env.inner
    drawn = isinstance(env, Playground | MuJoCo) or (isinstance(env, HostEnvironment) and _is_gymnasiums(env))
    return "" if drawn else f"only MuJoCo and Gymnasium environments can be rendered, not {type(env).__name__}"


def _is_gymnasiums(env: HostEnvironment) -> bool:
    from moca.envs.gymnasium import Gymnasium  # optional dependency

    return isinstance(env, Gymnasium)


def pace(env: Any, fps: int = 30, times: int = 1) -> tuple[Playground | MuJoCo, float, int]:
    """Returns the innermost environment, the seconds of a decision, and the decisions per frame.

    On the host, `times` is the action repeat, which wrappers apply elsewhere.
    """
    inner, times = env, times if isinstance(env, HostEnvironment) else 1
    while isinstance(inner, Wrapper):
        times *= inner.times if isinstance(inner, ActionRepeat) else 1
        inner = inner.inner
    if not isinstance(inner, Playground | MuJoCo):
        raise ConfigError(unfilmed(env))
    seconds = float(inner.env.dt) * times
    return inner, seconds, max(1, round(1 / fps / seconds))


def write(path: Path, env: Environment, states: Any, rewards: np.ndarray, small: bool = False) -> str:
    """Writes the video, `small` ones with many key frames, and returns how it was drawn."""
    inner, seconds, every = pace(env, _rate(small))
    states = states[0] if isinstance(env, WithHistory) else states
    picked = jax.tree.map(lambda leaf: np.asarray(leaf)[::every], states.data)
    trajectory = [
        SimpleNamespace(data=jax.tree.map(lambda leaf, i=i: leaf[i], picked)) for i in range(len(rewards[::every]))
    ]
    return _shot(path, inner.env, trajectory, np.cumsum(rewards)[::every], 1 / (every * seconds), small)


def _rate(small: bool) -> int:
    """Returns the most frames per second of a video."""
    return 12 if small else 30


def _shot(path: Path, env: Any, trajectory: list[Any], returns: np.ndarray, fps: float, small: bool) -> str:
    """Writes a video of states in Playground's environment, and returns how it was drawn."""
    how = "rendered by MuJoCo"
    if not _failed:
        try:
            # Playground prints a progress bar, and GLFW warns before it fails.
            with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
                warnings.simplefilter("ignore")
                height, width = (side // 2 if small else side for side in SIZE)
                frames = env.render(trajectory, height=height, width=width)
        except Exception as error:  # GL fails in many ways: no library, no display, no context
            _failed.append(f"{type(error).__name__}: {error}")
    if _failed:
        frames = draw(env.mj_model, trajectory, returns)
        how = f"drawn as outlines, since MuJoCo could not render ({_failed[0]})"
    encode(path, frames, fps, small)
    return how


def record(
    path: Path, env: HostEnvironment, config: Config, learner: Any, seed: int, small: bool = False
) -> tuple[str, float]:
    """Films a greedy episode on the host; returns how it was drawn, and its return."""
    seen = env.inner if isinstance(env, HistoryHost) else env
    inner: Any = seen.inner if isinstance(seen, MaskedHost) else seen
    repeat = config.env.action_repeat
    if isinstance(inner, MuJoCo):
        shown: Any = inner.vector(1, repeat)
    elif _is_gymnasiums(inner):
        shown = inner.vector(1, repeat, render_mode="rgb_array")
    else:
        raise ConfigError(unfilmed(env))
    vector: Vector = MaskedVector(shown, seen.dimensions) if isinstance(seen, MaskedHost) else shown
    vector = HistoryVector(vector, env) if isinstance(env, HistoryHost) else vector
    frames: list[Any] = []
    episode = play_once(env, config, learner, vector, seed, lambda *_: frames.append(shown.picture()))
    frames, total = frames[:-1], float(episode.reward.sum())  # after the end a new episode has started
    if not isinstance(inner, MuJoCo):
        encode(path, frames, shown.fps / repeat, small)
        return "rendered by Gymnasium", total
    _, seconds, every = pace(env, _rate(small), repeat)
    returns = np.cumsum(episode.reward)[: len(frames)]
    return _shot(path, inner.env, frames[::every], returns[::every], 1 / (every * seconds), small), total


def encode(path: Path, frames: Sequence[np.ndarray], fps: float, small: bool = False) -> None:
    """Writes the video; frames of an odd size are scaled by one pixel.

    Small videos have a key frame every few frames, so that a viewer can seek to any frame at once.
    """
    import imageio_ffmpeg  # only needed for videos

    height, width, _ = frames[0].shape
    writer = imageio_ffmpeg.write_frames(
        str(path),
        (width, height),
        fps=fps,
        quality=6 if small else 8,
        macro_block_size=2,
        output_params=SMALL if small else [],
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # JAX warns about any subprocess; this one only encodes
        writer.send(None)
    for frame in frames:
        writer.send(np.ascontiguousarray(frame))
    writer.close()


def draw(model: Any, trajectory: list[Any], returns: np.ndarray) -> list[np.ndarray]:
    """Returns frames of the bodies' outlines, seen from the side, or else from above."""
    import matplotlib.pyplot as plt
    from matplotlib.patches import Polygon

    from moca import figures

    solid = [g for g in range(model.ngeom) if model.geom_type[g] != PLANE and model.geom_rgba[g, 3] > 0]
    corners = {g: _corners(int(model.geom_type[g]), model.geom_size[g]) for g in solid}
    place = {
        g: np.stack([s.data.geom_xpos[g] + corners[g] @ s.data.geom_xmat[g].reshape(3, 3).T for s in trajectory])
        for g in solid
    }
    everything = np.concatenate([points.reshape(-1, 3) for points in place.values()])
    moves_up = any(np.ptp(points[..., 2], axis=0).max() > 1e-6 for points in place.values())
    shown = [0, 2] if moves_up else [0, 1]
    low, high = everything[:, shown].min(0) - 0.2, everything[:, shown].max(0) + 0.2
    frames = []
    with figures.style():
        figure, axes = plt.subplots(figsize=(SIZE[1] / 100, SIZE[0] / 100), dpi=100)
        axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal", xlabel="x (m)")
        axes.set(ylabel="z (m)" if moves_up else "y (m)")
        colours = itertools.cycle([figures.COLOURS["moca"], figures.COLOURS["ce"], figures.COLOURS["sac"]])
        patches: dict[int, Polygon] = {}
        for g in solid:
            moving = model.geom_bodyid[g] > 0  # static geometry is grey, in the background
            patches[g] = Polygon([(0, 0)], joinstyle="round", linewidth=3, zorder=2 + moving)
            patches[g].set_color(next(colours) if moving else "#B0B0B0")
            axes.add_patch(patches[g])
        text = axes.text(0.02, 0.97, "", transform=axes.transAxes, va="top", family="monospace")
        for frame, state in enumerate(trajectory):
            for g, patch in patches.items():
                patch.set_xy(_outline(place[g][frame][:, shown]))
            text.set_text(f"t = {float(state.data.time):5.2f} s\nreturn {returns[frame]:6.1f}")
            figure.canvas.draw()
            frames.append(np.asarray(figure.canvas.buffer_rgba())[..., :3].copy())  # type: ignore[attr-defined]
        plt.close(figure)
    return frames


def _corners(kind: int, size: np.ndarray) -> np.ndarray:
    """Returns points around a geometry in its own frame: corners, or points on a circle."""
    half = size if kind == BOX else np.array([size[0], size[0], size[1] if kind in RODS else size[0]])
    if kind == BOX:
        return half * np.array(list(itertools.product([-1, 1], repeat=3)))
    angles = np.linspace(0, 2 * np.pi, 16, endpoint=False)
    circle = np.stack([np.cos(angles), np.sin(angles), 0 * angles], axis=1) * size[0]
    spin = [circle, circle[:, [2, 0, 1]], circle[:, [0, 2, 1]]]
    ends = [half[2], -half[2]] if kind in RODS else [0.0]
    return np.concatenate([ring + np.array([0, 0, end]) for ring in spin for end in ends])


def _outline(points: np.ndarray) -> np.ndarray:
    """Returns the convex hull of points in a plane, counter-clockwise (Andrew's monotone chain)."""
    ordered = sorted(map(tuple, points))

    def chain(sequence: list[tuple]) -> list[tuple]:
        hull: list[tuple] = []
        for x, y in sequence:
            while len(hull) > 1:
                (ax, ay), (bx, by) = hull[-2:]
                if (bx - ax) * (y - ay) - (by - ay) * (x - ax) > 0:
                    break
                hull.pop()
            hull.append((x, y))
        return hull[:-1]

    return np.array(chain(ordered) + chain(ordered[::-1]))
