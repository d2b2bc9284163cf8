"""The progress of a study on the terminal: one bar for the study, and one line per running job."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from moca.arguments import duration
from moca.config import ConfigError
from moca.received import read_rows
from moca.studies import results
from moca.studies.grid import Job


class Board:
    """Follows the jobs' directories, whichever process writes to them."""

    def __init__(self, console: Console, directory: Path, jobs: Sequence[Job]) -> None:
        self._directory, self._jobs = directory, {job.name: job for job in jobs}
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[note]}"),
            console=console,
            speed_estimate_period=86_400,
        )
        done = sum(job.runs * steps(directory, job) for job in jobs)
        total = sum(job.runs * job.config.train.steps for job in jobs)
        self._all = self._bar.add_task("study", total=total, completed=done, note="")
        self._lines: dict[str, TaskID] = {}
        self._finished = {job.name for job in jobs if results.finished(directory, job)}

    @contextmanager
    def live(self) -> Iterator[None]:
        """Shows the bars while the block runs."""
        with self._bar:
            self.refresh({})
            yield

    def note(self, text: str) -> None:
        """Prints a line that stays."""
        self._bar.console.print(text)

    def refresh(self, running: Mapping[str, Any]) -> None:
        """Updates the bars from the files of the jobs; `running` has the jobs that run now."""
        done = 0
        for name, job in self._jobs.items():
            own = steps(self._directory, job)
            done += own * job.runs
            over = name not in self._finished and name not in running and results.finished(self._directory, job)
            if over:
                self._finished.add(name)
                self.note(f"{name}: finished, {len(self._finished)} of {len(self._jobs)} jobs")
                if lost := results.diverged(self._directory, job):
                    causes = "; ".join(dict.fromkeys(lost))
                    self.note(f"{name}: {len(lost)} of {job.runs} runs diverged: {causes}")
            if name in running and own:
                if name not in self._lines:
                    self._lines[name] = self._bar.add_task(name, total=job.config.train.steps, note="")
                self._bar.update(self._lines[name], completed=own)
            elif name in self._lines and name not in running:
                self._bar.remove_task(self._lines.pop(name))
        self._bar.update(self._all, completed=done, note=f"{len(self._finished)} of {len(self._jobs)} jobs")


def steps(directory: Path, job: Job) -> int:
    """Returns the number of steps that each run of a job has taken, as last recorded, or 0."""
    path = _timing(directory, job)
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 200))
            return int(json.loads(file.read().splitlines()[-1])["step"])
    except (OSError, ValueError, LookupError, TypeError, OverflowError, RecursionError):
        return 0


def describe(directory: Path, jobs: Sequence[Job], parallel: int = 1) -> str:
    """Returns the plan of a study as text: jobs, remaining steps, time left if it was measured."""
    lines = [f"{'':3} {'job':40} {'runs':>5} {'steps each':>11}  noises"]
    left = 0
    for number, job in enumerate(jobs):
        behind = steps(directory, job)
        left += job.runs * (job.config.train.steps - behind)
        state = "finished" if results.finished(directory, job) else f"{behind:,} done" if behind else ""
        noises, each = ", ".join(job.noises), job.config.train.steps
        lines.append(f"{number:3} {job.name:40} {job.runs:5} {each:11,}  {noises}  {state}".rstrip())
    cells = sum(len(job.noises) for job in jobs)
    counted = f"{cells} cell{'s' * (cells > 1)} in {len(jobs)} job{'s' * (len(jobs) > 1)}"
    lines.append(f"{counted}; {left:,} environment steps to go")
    if left:
        lines.append(_time_left(directory, jobs, left, parallel))
    return "\n".join(lines)


def _time_left(directory: Path, jobs: Sequence[Job], left: int, parallel: int) -> str:
    """Returns a sentence about the time that `left` steps take, from what the jobs took so far."""
    done = sum(job.runs * steps(directory, job) for job in jobs)
    seconds = sum(_seconds(directory, job) for job in jobs)
    if not done or not 0 < seconds < math.inf:
        return "no estimate of the time: it is measured by the study's first episodes, and shown while it runs"
    speed = parallel * done / seconds
    return (
        f"about {duration(left / speed)} at the {speed:,.0f} steps/s measured in this study so far, without compiling"
    )


def _seconds(directory: Path, job: Job) -> float:
    """Returns how long the episodes of a job took."""
    try:
        return sum(float(row["seconds"]) for row in read_rows(_timing(directory, job)))
    except (OSError, ConfigError, ValueError, LookupError, TypeError, OverflowError):
        return 0.0


def _timing(directory: Path, job: Job) -> Path:
    return directory / results.CELLS / job.name / "timing.jsonl"
