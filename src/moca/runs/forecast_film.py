"""Videos of a policy with its forecast drawn ahead: places and bands, beside what then happened."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from moca.config import ConfigError
from moca.loop import agent_steps
from moca.names import OWN, displayed
from moca.runs import film
from moca.runs.inspection import watched
from moca.runs.inspection.view import View
from moca.runs.sketch import INSIDE, SKETCHES, Sketch, reaches

if TYPE_CHECKING:
    from moca.runs.run import Run

SIZE = (7.2, 6.2)  # inches, of 100 pixels
INK, GREY, PALE = "#1b1f24", "#6b737c", "#c9ced4"


def episode(run: "Run", number: int, seed: int, path: Path, ahead: int) -> tuple[str, float]:
    """Films a greedy episode with forecasts; returns how it was drawn, and its return."""
    config = run.directory.configs[number]
    name = config.env.name.removeprefix(OWN)
    view, _ = watched(run, number, seed, agent_steps(config), ahead) if name in SKETCHES else (None, None)
    if view is None or view.sketch is None:
        raise ConfigError(
            f"--ahead can draw only {', '.join(SKETCHES)}, and only with all dimensions observed; got {displayed(name)}"
        )
    if "ahead" in view.lacks:
        raise ConfigError(view.lacks["ahead"])
    inner, seconds, every = film.pace(run.environment, times=config.env.action_repeat)
    steps = run.policy_steps[number]
    title = f"{view.look.label} on {name}, learned in {steps:,} steps ({steps * inner.env.dt:.0f} s), {view.told}"
    film.encode(path, draw(view, view.sketch, seconds, title, every), 1 / (every * seconds))
    return f"drawn with {view.arrays['ahead'].shape[1]} decisions ahead", float(view.arrays["reward"].sum())


def draw(view: View, sketch: Sketch, seconds: float, title: str, every: int = 1) -> list[np.ndarray]:
    """Returns a frame for each step: the task from the side, and what is expected over time."""
    import matplotlib.pyplot as plt

    from moca import figures

    frames = []
    with figures.style():
        figure = plt.figure(figsize=SIZE, dpi=100)
        parts: Any = figure.subfigures(2, 1, height_ratios=[1.55, 1])
        above, below = parts
        above.suptitle(title, fontsize=9, x=0.02, ha="left")
        scene = Scene(above.subplots(), view, sketch)
        tracks = panels(below, view, sketch, seconds)
        for t in range(0, len(view.outcome), every):
            scene.show(t, seconds)
            for track in tracks:
                track.show(t)
            figure.canvas.draw()
            figure.set_layout_engine("none")  # the first frame has found the layout, which takes time
            frames.append(np.asarray(figure.canvas.buffer_rgba())[..., :3].copy())  # type: ignore[attr-defined]
        plt.close(figure)
    return frames


def tint(colour: str, share: float) -> tuple[float, ...]:
    """Returns a mixture of a colour and white; it is opaque, so that overlaps do not darken."""
    from matplotlib.colors import to_rgb

    return tuple(1 - share * (1 - channel) for channel in to_rgb(colour))


SHADES = {2: 0.22, 1: 0.5}  # of the bands, the wider one first


class Scene:
    """The task from the side, with the forecast of its points."""

    def __init__(self, axes: Any, view: View, sketch: Sketch) -> None:
        from matplotlib.collections import PolyCollection
        from matplotlib.patches import Rectangle

        self.axes, self.view, self.sketch = axes, view, sketch
        self.came, self.expected = sketch.places(view.outcome), sketch.places(view.arrays["ahead"])
        self.spreads = sketch.spreads(view.arrays["ahead_covariance"])
        self.returns = np.concatenate([[0.0], np.cumsum(view.arrays["reward"])])
        colour = view.look.colour
        half = max(sketch.rail, *(np.abs(points[..., 0]).max() for points in (self.came, self.expected))) + 0.15
        low, high = self.came[..., 1].min(), self.came[..., 1].max()
        axes.set(xlim=(-half, half), ylim=(low - 0.2, high + 0.25), aspect="equal", xlabel="x (m)", ylabel="z (m)")
        if sketch.rail:
            axes.plot([-sketch.rail, sketch.rail], [sketch.offsets[0, 1]] * 2, color=PALE, linewidth=3, zorder=1)
        self.ellipses = {
            count: PolyCollection([], color=tint(colour, share), linewidth=2.5, zorder=2 + 0.1 * (3 - count))
            for count, share in SHADES.items()
        }
        for each in self.ellipses.values():
            axes.add_collection(each, autolim=False)
        (self.path,) = axes.plot([], [], color=colour, zorder=3, marker=".", markersize=4, linewidth=1.2)
        (self.future,) = axes.plot([], [], color=INK, zorder=4, marker="o", markersize=3.2, linewidth=0, mfc="none")
        self.box = axes.add_patch(Rectangle((0, 0), *(2 * side for side in sketch.box), color=GREY, zorder=5))
        (self.rod,) = axes.plot([], [], color=GREY, linewidth=5, solid_capstyle="round", zorder=6)
        self.text = axes.text(0.01, 0.97, "", transform=axes.transAxes, va="top", family="monospace")
        shares = [f"{100 * share:.0f} %" for share in INSIDE.values()]
        axes.legend(
            [self.path, *(self.ellipses[count] for count in INSIDE), self.future],
            [f"{sketch.points[-1]}: expected", *shares, "what then happened"],
            loc="lower left", bbox_to_anchor=(0, 1), ncols=4, borderaxespad=0.2, columnspacing=1.5,
        )  # fmt: skip

    def show(self, t: int, seconds: float) -> None:
        """Draws the step `t`."""
        angles = np.linspace(0, 2 * np.pi, 40)
        values, vectors = np.linalg.eigh(self.spreads[t])
        half = vectors * np.sqrt(np.maximum(values, 0))[..., None, :]
        circles = np.moveaxis(half @ np.stack([np.cos(angles), np.sin(angles)]), -1, -2)
        for count, reach in reaches(2).items():
            around = self.expected[t][..., None, :] + reach * circles
            self.ellipses[count].set_verts(around.reshape(-1, *around.shape[-2:]))
        self.path.set_data(*self.expected[t, :, -1].T)
        self.future.set_data(*self.came[t + 1 : t + 1 + self.expected.shape[1], -1].T)
        first, last = self.came[t, 0], self.came[t, -1]
        self.box.set_xy(first - self.sketch.box)
        self.rod.set_data(*np.stack([first, last], axis=1))
        self.text.set_text(f"t = {t * seconds:5.2f} s\nreturn {self.returns[t]:6.1f}")


class Track:
    """A number over time around the present: what was, what is expected, and what then happened."""

    def __init__(
        self, axes: Any, seconds: float, came: np.ndarray, mean: np.ndarray, deviation: Any, colour: str
    ) -> None:
        self.axes, self.seconds, self.came, self.mean, self.deviation = axes, seconds, came, mean, deviation
        self.colour = colour
        self.bands: list[Any] = []
        ahead = mean.shape[1]
        (self.past,) = axes.plot([], [], color=GREY)
        (self.line,) = axes.plot([], [], color=colour, linewidth=1.4, zorder=3)
        (self.future,) = axes.plot([], [], color=INK, linewidth=0, marker="o", markersize=2.6, mfc="none", zorder=4)
        axes.axvline(0, color=INK, linewidth=0.8)
        axes.set(xlim=(-ahead * seconds, ahead * seconds), xlabel="seconds from now")

    def show(self, t: int) -> None:
        """Draws the step `t`; expectations start from where the state is."""
        ahead, before = self.mean.shape[1], max(0, t - self.mean.shape[1])
        self.past.set_data((np.arange(before, t + 1) - t) * self.seconds, self.came[before : t + 1])
        future = self.came[t + 1 : t + 1 + ahead]
        times = np.arange(1, ahead + 1) * self.seconds
        self.future.set_data(times[: len(future)], future)
        self.line.set_data(times, self.mean[t])
        for band in self.bands:
            band.remove()
        self.bands = [
            self.axes.fill_between(
                times, self.mean[t] - count * self.deviation[t], self.mean[t] + count * self.deviation[t],
                color=tint(self.colour, share), linewidth=0, zorder=2 + 0.1 * (3 - count),
            )
            for count, share in SHADES.items() if self.deviation is not None
        ]  # fmt: skip


def panels(figure: Any, view: View, sketch: Sketch, seconds: float) -> list[Track]:
    """Returns panels over time: the angle, one more dimension, and a learned reward."""
    arrays, colour = view.arrays, view.look.colour
    mean, covariance, outcome = arrays["ahead"], arrays["ahead_covariance"], view.outcome
    angle = np.degrees(np.unwrap(np.radians(sketch.angles(outcome))))
    angle -= 360 * np.round(angle[-1] / 360)  # where it ends up is within half a turn of standing
    turned = sketch.angles(mean) - angle[:, None]
    turned = np.degrees(np.unwrap(np.radians(turned), axis=1))
    turned -= 360 * np.round(turned[:, :1] / 360)  # the first step is less than half a turn away
    shown: list[tuple] = [
        ("angle of the pole (°)", angle, angle[:, None] + turned, sketch.angle_deviations(mean, covariance)),
        (sketch.label, *(each[..., sketch.other] for each in (outcome, mean, view.ahead_deviation))),
    ]
    if "ahead_reward" in arrays:
        reward = arrays["reward"]  # is known when the state after it is
        shown.append(("reward of a decision", np.append(reward[:1], reward), arrays["ahead_reward"], None))
    tracks = []
    for axes, (name, came, expected, deviation) in zip(figure.subplots(1, len(shown)), shown, strict=True):
        axes.set_title(name, fontsize=9)
        low, high = came.min(), came.max()
        room = 0.15 * max(high - low, 1e-3)
        axes.set_ylim(low - room, high + room)
        tracks.append(Track(axes, seconds, came, expected, deviation, colour))
    return tracks
