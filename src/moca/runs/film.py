"""A film of the learned policy: MuJoCo's own rendering, or a drawing from the side where no GL is to be had."""

from pathlib import Path
from typing import Any

import imageio_ffmpeg
import jax
import numpy as np
from jaxtyping import Array, Key

from moca.agents import Agent
from moca.envs.environment import ActionRepeat, Environment
from moca.envs.noise import Noise
from moca.envs.playground import Playground

SIZE = (480, 640)  # height, width; multiples of 16, as the encoder wants them


def rollout(
    agent: Agent, learner: Any, env: Environment, noise: Noise, decisions: int, key: Key[Array, ""]
) -> tuple[Any, Array]:
    """The states of one greedy episode, with a leading axis over decisions, and its rewards."""
    reset_key, noise_key = jax.random.split(key)
    state, observation = env.reset(reset_key)

    def step(carry: tuple, key: Key[Array, ""]) -> tuple[tuple, tuple]:
        state, observation = carry
        state, (observation, reward, _) = env.step(state, agent.greedy(learner, noise(key, observation)))
        return (state, observation), (state, reward)

    _, (states, rewards) = jax.lax.scan(step, (state, observation), jax.random.split(noise_key, decisions))
    return states, rewards


def write(path: Path, env: Environment, states: Any, rewards: np.ndarray) -> str:
    """Writes the film and returns how it was drawn: `mujoco` or `drawing`."""
    inner = env.inner if isinstance(env, ActionRepeat) else env
    if not isinstance(inner, Playground):
        raise ValueError(f"only MuJoCo environments can be filmed, not {type(inner).__name__}")
    seconds = float(inner.env.dt) * (env.times if isinstance(env, ActionRepeat) else 1)
    every = max(1, round(1 / 30 / seconds))
    picked = jax.tree.map(lambda leaf: np.asarray(leaf)[::every], states)
    trajectory = [jax.tree.map(lambda leaf, i=i: leaf[i], picked) for i in range(len(rewards[::every]))]
    try:
        frames = inner.env.render(trajectory, height=SIZE[0], width=SIZE[1])
        how = "mujoco"
    except Exception:  # GL fails in many ways: no library, no display, no context
        frames = draw(inner.env.mj_model, trajectory, np.cumsum(rewards)[::every])
        how = "drawing"
    writer = imageio_ffmpeg.write_frames(
        str(path), (SIZE[1], SIZE[0]), fps=1 / (every * seconds), quality=8, macro_block_size=16
    )
    writer.send(None)
    for frame in frames:
        writer.send(np.ascontiguousarray(frame))
    writer.close()
    return how


def draw(model: Any, trajectory: list[Any], returns: np.ndarray) -> list[np.ndarray]:
    """Frames of the bodies' geometry projected onto the plane it moves in, with time and return written beside."""
    import matplotlib.pyplot as plt
    from matplotlib.lines import Line2D

    from moca.studies import figures

    positions = np.stack([np.asarray(state.data.geom_xpos) for state in trajectory])
    matrices = np.stack([np.asarray(state.data.geom_xmat).reshape(-1, 3, 3) for state in trajectory])
    times = np.array([float(state.data.time) for state in trajectory])
    solid = [g for g in range(model.ngeom) if model.geom_type[g] != 0 and model.geom_rgba[g, 3] > 0]  # 0: planes
    # Seen from the side unless nothing ever moves up or down.
    axes_shown = (0, 2) if np.ptp(positions[:, solid, 2], axis=0).max() > 1e-6 else (0, 1)
    shown = positions[:, solid][..., axes_shown]
    reach = model.geom_size[solid].max()
    low, high = shown.min((0, 1)) - 0.6 - reach, shown.max((0, 1)) + 0.6 + reach
    frames = []
    with figures.style():
        figure, axes = plt.subplots(figsize=(SIZE[1] / 100, SIZE[0] / 100), dpi=100)
        axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal", xlabel="x (m)")
        axes.set_ylabel("z (m)" if axes_shown == (0, 2) else "y (m)")
        lines = [
            axes.add_line(Line2D([], [], linewidth=4 + 60 * model.geom_size[g, 0], solid_capstyle="round",
                                 color=figures.COLOURS["moca" if k % 2 else "ce"]))
            for k, g in enumerate(solid)
        ]  # fmt: skip
        text = axes.text(0.02, 0.96, "", transform=axes.transAxes, va="top", family="monospace")
        for frame in range(len(trajectory)):
            for line, g in zip(lines, solid, strict=True):
                # Capsules and cylinders extend along their z axis by their half-length; the rest is drawn as a dot.
                half = model.geom_size[g, 1] if model.geom_type[g] in (3, 5) else 0.0
                ends = positions[frame, g] + np.outer([-half, half], matrices[frame, g, :, 2])
                line.set_data(ends[:, axes_shown[0]], ends[:, axes_shown[1]])
            text.set_text(f"t = {times[frame]:5.2f} s\nreturn {returns[frame]:6.1f}")
            figure.canvas.draw()
            frames.append(np.asarray(figure.canvas.buffer_rgba())[..., :3].copy())  # type: ignore[attr-defined]
        plt.close(figure)
    return frames
