"""Progress of a run on the terminal, and its learning curve."""

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from moca import figures, looks
from moca.arguments import duration
from moca.config import Config
from moca.drivers import Report
from moca.evaluation import SCORES
from moca.names import displayed
from moca.runs.notebook import Bar, in_notebook
from moca.sweep import label

TITLE = 52  # characters per line of a figure's title


class Display:
    """A progress bar over environment steps with speed, remaining time and the last return.

    The remaining time is shown once an episode with learning has been measured: the warm-up is much
    faster. The first episode does not count, nor does its speed: programs compile in it.
    """

    def __init__(self, console: Console, steps: int, runs: int, done: int = 0, warmup: int = 0) -> None:
        self._bar = Progress(
            BarColumn(bar_width=20),
            TextColumn("{task.completed:,.0f}/{task.total:,.0f}"),
            TextColumn("{task.fields[told]}"),
            console=console,
        )
        self._task = self._bar.add_task("training", total=steps, completed=done, told="")
        self._runs, self._steps, self._warmup = runs, steps, warmup
        self._compiling = True  # until the first episode has ended
        self._learned, self._seconds = 0, 0.0  # steps of episodes with learning, and the time they took
        self._cell = Bar(steps, done) if in_notebook() and not console.quiet else None

    @contextmanager
    def live(self) -> Iterator["Display"]:
        """Shows the bar while the block runs, on a terminal or in a notebook."""
        on_terminal = self._bar.console.is_terminal  # elsewhere, as in a log, lines tell the progress
        with self._cell or (self._bar if on_terminal else nullcontext()):
            yield self

    def update(self, report: Report, seconds: float, steps: int) -> None:
        """Updates the bar after an episode of `steps` steps that took `seconds`."""
        returns = report.metrics["return_mean"][report.metrics["diverged"] == 0]
        score = f"return {np.mean(returns):.0f}" if len(returns) and np.isfinite(returns).all() else ""
        if score and self._runs > 1:
            score += f" ± {np.std(returns):.0f}"
        if len(returns) < self._runs:
            left = f"{len(returns)} of {self._runs} runs, the others" if len(returns) else "all runs"
            score = f"{score} ({left} diverged)".strip()
        together = f" over {self._runs} runs" * (self._runs > 1)
        speed = "" if self._compiling else f"{steps * self._runs / max(seconds, 1e-9):,.0f} steps/s{together}"
        told = [speed, self._left(report, seconds, steps), score]
        text = ", ".join(filter(None, told))
        if self._cell:
            self._cell.update(report.step, text)
            return
        self._bar.update(self._task, completed=report.step, told=text)
        tenth = self._steps // 10
        if not self._bar.console.is_terminal and tenth and report.step // tenth > (report.step - steps) // tenth:
            self._bar.console.print(f"{report.step:,}/{self._steps:,} steps, {text}")

    def _left(self, report: Report, seconds: float, steps: int) -> str:
        """Returns the remaining time, from the average of the episodes with learning so far."""
        if report.step - steps >= self._warmup and not self._compiling:
            self._learned, self._seconds = self._learned + steps, self._seconds + seconds
        self._compiling = False
        left = self._steps - report.step
        return f"{duration(left * self._seconds / self._learned)} left" if left and self._learned else ""


def make_console(quiet: bool) -> Console:
    """Returns the console of a run, which writes plain text in a notebook."""
    rich = False if in_notebook() else None  # `Display` has its own bar, which needs no widgets
    # Brackets in a path must not be read as markup.
    return Console(markup=False, emoji=False, quiet=quiet, force_jupyter=rich, force_terminal=rich)


@contextmanager
def working(console: Console, text: str) -> Iterator[None]:
    """Shows a text while the block runs: with a spinner on a terminal, as a line elsewhere."""
    if console.is_terminal:
        with console.status(text):
            yield
    else:
        console.print(text)
        yield


def _legend(point: Mapping[str, float]) -> str:
    """Returns the legend of a point of a sweep; zero noise is called "no noise"."""
    noise = {name: value for name, value in point.items() if name.startswith("noise.")}
    if not noise or any(noise.values()):
        return label(point)
    rest = {name: value for name, value in point.items() if name not in noise}
    return f"no noise, {label(rest)}" if rest else "no noise"


def title(config: Config, varied: Sequence[Mapping[str, float]]) -> str:
    """Returns the agent, the task and, unless it varies, the noise, wrapped to fit a figure."""
    varies = any(name.startswith("noise.") for point in varied for name in point)
    task = f"{looks.label(config.agent)} on {displayed(config.env.name)}"
    text = ", ".join([task, *([] if varies else [config.noise.words]), *config.sensor.faults])
    return "\n".join(textwrap.wrap(text, TITLE, break_on_hyphens=False))


def noise_matters(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Returns True if scores with and without observation noise differ by more than rounding."""
    pairs = [(row["return_mean"], row["return_noise_free"]) for row in rows]
    return any(a != b and (None in (a, b) or not math.isclose(a, b, rel_tol=1e-5)) for a, b in pairs)


def score_lines(rows: Sequence[Mapping[str, Any]], lost: Sequence[Mapping[str, Any]] = ()) -> list[str]:
    """Returns a line per row; omits NaN, and noise-free scores if noise makes no difference.

    Without a return it says why: `lost` are the runs that diverged, as in status.json.
    """
    scored = [row for row in rows if has_return(row)]
    omitted = set() if noise_matters(scored) else {"return_noise_free"}
    lines = []
    for row in rows:
        shown = row if has_return(row) else {name: value for name, value in row.items() if name not in SCORES}
        told = ", ".join(f"{name} {value:g}" for name, value in shown.items() if value == value and name not in omitted)
        if not has_return(row):
            known = [each for each in lost if all(each.get(name) == value for name, value in shown.items())]
            why = [f"it diverged by step {each['step']:,}: {each['cause']}" for each in known]
            told += f": no return, since {[*why, 'a reward or an observation of the environment is not finite'][0]}"
        lines.append(told)
    return lines


def has_return(row: Mapping[str, Any]) -> bool:
    """Returns True if the run was given a return that is a number."""
    return math.isfinite(row["return_mean"])


def learning_curve(
    rows: list[dict[str, Any]], varied: Sequence[Mapping[str, float]], title: str, folder: Path
) -> list[Path]:
    """Draws return against steps, mean ± one standard deviation over the seeds of each setting.

    A single setting also shows its noise-free score, if it differs. Diverged runs are omitted, and
    the legend says how many remain.
    """
    import matplotlib.pyplot as plt

    steps = sorted({row["step"] for row in rows if row["return_mean"] is not None})
    if not steps:
        return []
    curves = [(point, "return_mean", _legend(point)) for point in varied]
    if len(varied) == 1:
        both = {"return_mean": "as the agent observes", "return_noise_free": "without observation noise"}
        shown = both if noise_matters(rows) else {"return_mean": "greedy policy"}
        curves = [(varied[0], name, text) for name, text in shown.items()]
    with figures.style():
        figure, axes = plt.subplots(figsize=(5.2, 3.2))
        colours = [c for name, c in figures.COLOURS.items() if name != "grey"]
        for number, (point, name, text) in enumerate(curves):
            own = [row for row in rows if all(row[key] == value for key, value in point.items())]
            values = np.array([[row[name] for row in own if row["step"] == step] for step in steps], dtype=float)
            seeds, values = values.shape[1], values[:, np.isfinite(values[-1])]
            left = values.shape[1]
            text += f" ({left} of {seeds} seeds)" if left < seeds else ""
            mean, spread = (values.mean(axis=1), values.std(axis=1)) if left else (np.full(len(steps), np.nan),) * 2
            colour, dash = colours[number % len(colours)], ["-", "--", ":"][number // len(colours) % 3]
            beside = name == "return_noise_free"  # often the same curve, so dashed, on top, without a band
            dash = "--" if beside else dash
            axes.plot(steps, mean, dash, color=colour, label=text, marker="o" if len(steps) == 1 else None)
            if left > 1 and not beside:
                axes.fill_between(steps, mean - spread, mean + spread, color=colour, alpha=0.15, linewidth=0)
        axes.set(xlabel="environment steps", ylabel="return of an episode", title=title)
        axes.xaxis.set_major_formatter(figures.thousands)
        axes.set_ylim(bottom=min(0, axes.get_ylim()[0]))
        axes.legend(title=f"mean ± sd over {seeds} seeds" if seeds > 1 else "one seed", loc="best")
        return figures.save(figure, folder, "learning_curve", ("png", "svg"))
