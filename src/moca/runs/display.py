"""What a person sees of a run while it goes, and the picture that remains."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from moca.training import Report


class Display:
    """A progress bar over environment steps with speed, time left and the last return."""

    def __init__(self, console: Console, steps: int, runs: int) -> None:
        self._bar = Progress(
            BarColumn(bar_width=20),
            TextColumn("{task.completed:,.0f}/{task.total:,.0f}"),
            TextColumn("{task.fields[speed]}"),
            TimeRemainingColumn(compact=True),
            TextColumn("left  {task.fields[score]}"),
            console=console,
        )
        self._task = self._bar.add_task("training", total=steps, speed="", score="")
        self._runs = runs

    @contextmanager
    def live(self) -> Iterator["Display"]:
        """Shows the bar while the block runs."""
        with self._bar:
            yield self

    def update(self, report: Report, seconds: float, steps: int) -> None:
        """After an episode of `steps` steps that took `seconds`."""
        returns = report.metrics["return_mean"]
        score = f"return {np.mean(returns):.0f}" if np.isfinite(returns).all() else ""
        if score and self._runs > 1:
            score += f" ± {np.std(returns):.0f}"
        speed = f"{steps * self._runs / max(seconds, 1e-9):,.0f} steps/s"
        self._bar.update(self._task, completed=report.step, speed=speed, score=score)


def learning_curve(rows: list[dict[str, Any]], title: str, folder: Path) -> list[Path]:
    """The picture of return against steps: mean over runs, ± one standard deviation, and every run faintly."""
    import matplotlib.pyplot as plt

    from moca.studies import figures

    measured = [row for row in rows if row["return_mean"] is not None]
    if not measured:
        return []
    steps = sorted({row["step"] for row in measured})
    with figures.style():
        figure, axes = plt.subplots(figsize=(5.2, 3.2))
        for name, colour, label in (
            ("return_noise_free", figures.COLOURS["sac"], "without observation noise"),
            ("return_mean", figures.COLOURS["moca"], "as the agent observes"),
        ):
            values = np.array([[r[name] for r in measured if r["step"] == step] for step in steps], dtype=float)
            mean, spread = values.mean(axis=1), values.std(axis=1)
            axes.plot(steps, mean, color=colour, label=label, marker="o" if len(steps) == 1 else None)
            if values.shape[1] > 1:
                axes.fill_between(steps, mean - spread, mean + spread, color=colour, alpha=0.2, linewidth=0)
        runs = values.shape[1]
        axes.set(xlabel="environment steps", ylabel="return of an episode", title=title)
        axes.xaxis.set_major_formatter(lambda x, _: f"{x / 1000:g}k" if x else "0")
        axes.set_ylim(bottom=min(0, axes.get_ylim()[0]))
        axes.legend(title=f"mean ± sd over {runs} runs" if runs > 1 else "one run", loc="lower right")
        return figures.save(figure, folder, "learning_curve", ("png", "svg"))
