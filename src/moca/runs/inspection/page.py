"""The page about one episode, one file that opens offline."""

import base64
import dataclasses
import html
import tempfile
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from moca import files
from moca.config import ConfigError, as_path, shown, whole
from moca.envs.environment import Spaces
from moca.envs.host import HostEnvironment
from moca.envs.named import configured
from moca.looks import look
from moca.loop import agent_steps
from moca.names import OWN, displayed
from moca.runs import film
from moca.runs.inspection.episode import watch_on_host
from moca.runs.inspection.view import View
from moca.runs.sketch import INSIDE, SKETCHES, reaches, sketch_of

if TYPE_CHECKING:
    from moca.runs.run import Run

OURS, SHARED = "moca.runs.inspection", "moca"
STYLE = ((SHARED, "page.css"), (SHARED, "charts.css"), (OURS, "inspect.css"))
SCRIPT = ((OURS, "panels.js"), (OURS, "ahead.js"), (SHARED, "drawing.js"), (OURS, "inspect.js"))
UNSENT = ("running", "distance", "ahead_covariance", "ahead_action")  # arrays that the script does not need
AHEAD = 15  # decisions that are forecast by default
FURTHEST = 1000


@dataclasses.dataclass(frozen=True, repr=False)
class Inspection:
    """An episode as a page. In a notebook it is displayed if it is the last line of a cell."""

    env: str
    episode: int
    names: tuple[str, ...]  # of the dimensions of the state
    spaces: Spaces
    views: tuple[View, ...]
    ahead: int = 0  # decisions that are forecast
    repeat: int = 1  # steps of the environment for which an action is held

    def __repr__(self) -> str:
        labels = ", ".join(view.look.label for view in self.views)
        return f"Inspection(episode {self.episode} of {self.env}: {labels}; {self.steps:,} steps)"

    @property
    def steps(self) -> int:
        """The number of decisions that are shown."""
        return max(view.steps for view in self.views)

    @cached_property
    def html(self) -> str:
        """The page as text."""
        from moca import pages  # an extra

        return pages.templates(OURS).get_template("inspect.html").render(
            **pages.own(STYLE, SCRIPT),
            page=self,
            steps=self.steps,
            shares={count: 100 * share for count, share in INSIDE.items()},
            data=pages.embedded(self._data),
        )  # fmt: skip

    @property
    def _data(self) -> dict[str, Any]:
        """Returns the data for the script."""
        return {
            "names": self.names,
            "low": self.spaces.action_low,
            "high": self.spaces.action_high,
            "ahead": self.ahead,
            "reach": [list(reaches(dimensions).values()) for dimensions in (1, 2)],
            "views": [
                {
                    "label": view.look.label, "ink": view.look.ink,
                    "sketch": view.sketch and {name: getattr(view.sketch, name) for name in ("points", "box", "rail")},
                    "arrays": {name: _packed(name, array) for name, array in _sent(view).items()},
                }
                for view in self.views
            ],
        }  # fmt: skip

    def save(self, path: Path | str) -> Path:
        """Writes the page to a file."""
        path = as_path("path", path)
        content = self.html.encode()
        files.refuse_odd(path, advice="choose another file")
        with files.writing(f"the page {path}"):
            return files.save(path, content)

    def _repr_html_(self) -> str:
        return (
            f'<iframe srcdoc="{html.escape(self.html)}" sandbox="allow-scripts" width="100%" height="900" '
            'style="border: 0"></iframe>'
        )


def inspect(
    run: "Run", number: int, episode: int, steps: int | None, beside: "Run | None", other: int | None, ahead: int
) -> Inspection:
    """Returns the page of one episode: see `Run.inspect`.

    `other` is the index of the run in `beside`.
    """
    ahead = whole("ahead", ahead, 0, FURTHEST)
    episode, number = whole("episode", episode), run._refuse_run(number)
    shown_runs: list[tuple[Run, int]] = [(run, number)]
    if beside is not None:
        _refuse_stranger(run, beside)
        shown_runs.append((beside, beside._refuse_run(number if other is None else other)))
    most = min(agent_steps(each.config) for each, _ in shown_runs)
    steps = most if steps is None else whole("steps", steps, 1, most)
    views = []
    for each, place in shown_runs:
        view, states = watched(each, place, episode, steps, ahead)
        reel, why = _film(each, place, episode, states, view.arrays["reward"])
        views.append(dataclasses.replace(view, film=reel, unfilmed=why))
    name, size = run.config.env.name.removeprefix(OWN), run.environment.observation_size
    observed = run.config.sensor.observed or range(size)
    sketch = SKETCHES.get(name)
    every = sketch.names if sketch else (run.env or configured(run.config.env)).observation_names
    names = tuple(str(every[i]).encode(errors="replace").decode() if i < len(every) else f"s{i + 1}" for i in observed)
    return Inspection(
        displayed(name), episode, names, run.environment, tuple(views), ahead, run.config.env.action_repeat
    )


def _refuse_stranger(run: "Run", beside: Any) -> None:
    """Raises unless `beside` is a run in the same environment, whose episodes start alike."""
    if not isinstance(beside, type(run)):
        raise ConfigError(f"beside = {shown(beside)} must be a run, as moca.load returns it")
    for name, ours, theirs in (
        ("env.name", run.config.env.name, beside.config.env.name),
        ("env.action_repeat", run.config.env.action_repeat, beside.config.env.action_repeat),
        ("env.physics", run.config.env.physics, beside.config.env.physics),
        ("env.random_start", run.config.env.random_start, beside.config.env.random_start),
        ("sensor.observed", run.config.sensor.observed, beside.config.sensor.observed),
        ("sensor.history", run.config.sensor.history, beside.config.sensor.history),
    ):
        if ours != theirs:
            raise ConfigError(f"beside: {beside.path} has {name} = {theirs}, {run.path} has {ours}: they must be equal")


def watched(run: "Run", number: int, episode: int, steps: int, ahead: int) -> tuple[View, Any]:
    """Runs the episode with one agent; returns its view, without a video, and the states."""
    config, learner = run._at(number)
    settings, env = run.directory.configs[number], run.environment
    if isinstance(env, HostEnvironment):
        found = watch_on_host(settings, learner, env, ahead, episode)
        states = None
    else:
        states, found = run._programs["watch"](steps, ahead, config, learner, jax.random.key(episode))
    played = int(np.sum(found["running"]))
    count = min(played, steps)
    if count == 0:
        raise ConfigError(f"episode = {episode} ends immediately, so there is nothing to show: choose another")
    arrays = {name: np.asarray(array, np.float32)[:count] for name, array in found.items()}
    far = {name for name in arrays if name.startswith("ahead")}
    if overflows := not all(np.isfinite(arrays[name]).all() for name in far):
        arrays = {name: array for name, array in arrays.items() if name not in far}
    if states is not None:
        states = jax.tree.map(lambda leaf: leaf[:count], states)
    total = f"return {arrays['reward'].sum():.1f}".replace("-", "−")
    seed = f"seed {run.directory.runs[number]['seed']}"
    planned = played if states is None or count < steps else agent_steps(settings)  # without an end before
    cut = [f"shown: {count:,} of {planned:,} decisions"] * (count < planned)
    told = ", ".join([seed, settings.noise.words, *settings.sensor.faults, total, *cut])
    view = View(look(settings.agent), told, arrays, sketch=sketch_of(settings), overflows=overflows)
    return view, states


def _film(run: "Run", number: int, episode: int, states: Any, rewards: np.ndarray) -> tuple[bytes | None, str]:
    """Returns a small video of the episode, or the reason why there is none."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "film.mp4"
        try:
            if states is None:
                config, learner = run.directory.configs[number], run._at(number)[1]
                film.record(path, run.environment, config, learner, episode, small=True)
            else:
                film.write(path, run.environment, states, rewards, small=True)
        except Exception as error:  # the page is useful without a video, and rendering fails in many ways
            return None, str(error) or type(error).__name__
        return path.read_bytes(), ""


def _sent(view: View) -> dict[str, np.ndarray]:
    """Returns the arrays for the script; of the forecast, deviations instead of covariances."""
    arrays = {name: array for name, array in view.arrays.items() if name not in UNSENT}
    if "ahead" in arrays:
        arrays |= {"ahead_deviation": view.ahead_deviation, "outcome": view.outcome}
        if view.sketch is not None:
            spreads = view.sketch.spreads(view.arrays["ahead_covariance"])
            arrays |= {"points": view.sketch.places(view.outcome), "ahead_points": view.sketch.places(arrays["ahead"])}
            arrays["ahead_spreads"] = np.stack([spreads[..., i, j] for i, j in ((0, 0), (0, 1), (1, 1))], axis=-1)
    return arrays


def _packed(name: str, array: np.ndarray) -> dict[str, Any]:
    """Returns an array over the steps as its shape and its 32-bit floats."""
    numbers = np.ascontiguousarray(array, "<f4")
    if len(odd := np.argwhere(~np.isfinite(numbers))):
        raise ConfigError(
            f"{name} is not finite at step {odd[0][0]} of this episode, so there is nothing to show: choose another"
        )
    return {"shape": numbers.shape, "data": base64.b64encode(numbers.tobytes()).decode()}
