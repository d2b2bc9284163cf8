"""Displays of runs, videos, metrics and progress in a notebook.

All HTML is self-contained and escapes everything that comes from a file: `templates/notebook.html`.
It uses the text colour of the page, which is legible in light and dark themes. IPython is imported
only where it is running.
"""

import base64
import sys
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from moca import looks, pages
from moca.names import displayed
from moca.runs import BEST, policies
from moca.runs.directory import RunDirectory

if TYPE_CHECKING:
    from moca.runs.run import Run

ROWS = 20  # rows of a table that are displayed
LARGEST = 20_000_000  # bytes of the largest video that is embedded
WIDTH, HEIGHT = 300, 80  # of a learning curve, in pixels


def in_notebook() -> bool:
    """Returns True in a Jupyter kernel, where output is HTML."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return hasattr(shell, "kernel")


class Rows(list):
    """A list of dictionaries, displayed as a table in a notebook."""

    def _repr_html_(self) -> str:
        rows = self[-ROWS:]
        names = [name for name in dict.fromkeys(name for row in rows for name in row) if _measured(rows, name)]
        cells = [[_cell(row.get(name)) for name in names] for row in rows]
        return str(_template().table(names, cells, len(self) if len(self) > ROWS else 0))


class Film(NamedTuple):
    """A video file, how its frames were rendered, and the return. Played inline in a notebook."""

    path: Path
    how: str
    total: float

    def _repr_html_(self) -> str:
        try:
            content = self.path.read_bytes() if self.path.stat().st_size <= LARGEST else b""
        except OSError:  # it was moved
            content = b""
        return str(_template().film(self, base64.b64encode(content).decode()))


class Bar:
    """A progress bar over environment steps, in the output of a notebook's cell."""

    def __init__(self, steps: int, done: int = 0) -> None:
        self._steps, self._done, self._text = steps, done, ""
        self._handle: Any = None
        self._updated = 0.0

    def __enter__(self) -> "Bar":
        from IPython.display import display

        self._handle = display(self, display_id=True)
        return self

    def __exit__(self, *_: Any) -> None:
        self._handle.update(self)

    def update(self, done: int, text: str) -> None:
        """Sets the bar. The display is refreshed at most ten times a second, and at the end."""
        self._done, self._text = done, text
        if time.monotonic() - self._updated > 0.1:
            self._updated = time.monotonic()
            self._handle.update(self)

    def __repr__(self) -> str:
        return f"{self._done:,}/{self._steps:,} steps  {self._text}"

    def _repr_html_(self) -> str:
        return str(_template().bar(self._done, self._steps, repr(self)))


def describe(run: "Run") -> str:
    """Returns one line about a run: agent, task, state and last return."""
    return f"Run({str(run.path)!r}: {', '.join([_title(run), *_facts(run).values()])})"


def describe_html(run: "Run") -> str:
    """Returns the description as HTML, with the learning curve of each run."""
    facts = {**_facts(run), "directory": str(run.path)}
    return str(_template().run(_title(run), facts, *_curves(run), WIDTH, HEIGHT))


@cache
def _template() -> Any:
    return pages.templates("moca.runs").get_template("notebook.html").module


def _title(run: "Run") -> str:
    return f"{looks.label(run.config.agent)} on {displayed(run.config.env.name)}"


def _facts(run: "Run") -> dict[str, str]:
    directory, config = RunDirectory.open(run.path), run.config  # as it is now: it may have been extended
    count, state, step = len(directory.runs), policies.state(directory), policies.progress(directory)
    facts = {
        "runs": f"{count} run{'s' * (count > 1)}",
        "state": f"{state}, {step:,} of {directory.totals[-1]:,} steps",
    }
    if config.noise.level or config.noise.action:
        facts["noise"] = config.noise.words
    if faults := config.sensor.faults:
        facts["sensor"] = ", ".join(faults)
    if run.which == BEST:
        kept = (run.path / f"{BEST}.npz").exists()
        return facts | {"policies": "the best policies" if kept else "no best policies were kept"}
    if "_policies" in vars(run) and run.policy_steps[0] < step:  # they were used already
        facts["policies"] = f"policies after step {run.policy_steps[0]:,}"
    last = [row["return_mean"] for row in run.rows if row["return_mean"] is not None][-count:]
    if last:
        spread = f" ± {np.std(last):.1f}" if len(last) > 1 else ""
        facts["return"] = f"return {np.mean(last):.1f}{spread}"
    return facts


def _curves(run: "Run") -> tuple[list[str], list[tuple[int, int, str, str]]]:
    """Returns the points of each run's return against steps, and the ends of both axes.

    An end is its place, how text is anchored there, and the text.
    """
    rows, count = run.rows, len(run.directory.runs)
    curves = [
        [(r["step"], r["return_mean"]) for r in rows[i::count] if r["return_mean"] is not None] for i in range(count)
    ]
    points = np.array([point for curve in curves for point in curve], dtype=float).reshape(-1, 2)
    if len(points) < 2:
        return [], []
    (_, low), (most, high) = points.min(axis=0), points.max(axis=0)
    span = max(high - low, 1e-9)
    lines = [
        " ".join(f"{WIDTH * x / most:.1f},{2 + (HEIGHT - 4) * (1 - (y - low) / span):.1f}" for x, y in curve)
        for curve in curves
    ]
    right, below = [(10, f"{high:.4g}"), (HEIGHT, f"{low:.4g}")], HEIGHT + 14
    ends = [(WIDTH + 4, place, "start", text) for place, text in right]
    return lines, [*ends, (0, below, "start", "0"), (WIDTH, below, "end", f"{most:,.0f} steps")]


def _measured(rows: Sequence[dict[str, Any]], name: str) -> bool:
    return any(row.get(name) is not None and row[name] == row[name] for row in rows)  # neither None nor NaN


def _cell(value: Any) -> str:
    return f"{value:.5g}" if isinstance(value, float) else "" if value is None else str(value)
