"""Displays of runs, videos, metrics and progress in a notebook.

All HTML is self-contained and escapes everything that comes from a file. It uses the text colour of
the page, which is legible in light and dark themes. IPython is imported only where it is running.
"""

import base64
import sys
import time
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from moca import looks
from moca.names import OWN
from moca.runs import BEST

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
        left = f"<p>the last {ROWS} of {len(self):,} rows</p>" if len(self) > ROWS else ""
        return left + _table(self[-ROWS:])


class Film(NamedTuple):
    """A video file, how its frames were rendered, and the return. Played inline in a notebook."""

    path: Path
    how: str
    total: float

    def _repr_html_(self) -> str:
        told = f"<p>return {self.total:.1f}, {escape(self.how)}: {escape(str(self.path))}</p>"
        try:
            content = self.path.read_bytes() if self.path.stat().st_size <= LARGEST else b""
        except OSError:  # it was moved
            content = b""
        data = base64.b64encode(content).decode()
        return (f'<video controls loop src="data:video/mp4;base64,{data}"></video>' if data else "") + told


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
        return f'<progress value="{self._done}" max="{self._steps}"></progress> {escape(repr(self))}'


def describe(run: "Run") -> str:
    """Returns one line about a run: agent, task, state and last return."""
    return f"Run({str(run.path)!r}: {', '.join([_title(run), *_facts(run).values()])})"


def describe_html(run: "Run") -> str:
    """Returns the description as HTML, with the learning curve of each run."""
    facts = {**_facts(run), "directory": str(run.path)}
    left = 'style="text-align:left"'
    lines = "".join(
        f"<tr><th {left}>{escape(name)}</th><td {left}>{escape(text)}</td></tr>" for name, text in facts.items()
    )
    return f"<div><b>{escape(_title(run))}</b>{_curve(run)}<table>{lines}</table></div>"


def _title(run: "Run") -> str:
    return f"{looks.label(run.config.agent)} on {run.config.env.name.removeprefix(OWN)}"


def _facts(run: "Run") -> dict[str, str]:
    directory, noise = run.directory, run.config.noise
    count, status = len(directory.runs), directory.status
    facts = {
        "runs": f"{count} run{'s' * (count > 1)}",
        "state": f"{status['state']}, {status['step']:,} of {directory.totals[-1]:,} steps",
    }
    if noise.level or noise.action:
        level = noise.level or "0"
        facts["noise"] = f"{noise.kind} noise σ = {level}" + (f", action {noise.action:g}" * bool(noise.action))
    if faults := run.config.sensor.faults:
        facts["sensor"] = ", ".join(faults)
    if run.which == BEST:
        return facts | {"policies": "the best policies"}
    last = [row["return_mean"] for row in run.rows if row["return_mean"] is not None][-count:]
    if last:
        spread = f" ± {np.std(last):.1f}" if len(last) > 1 else ""
        facts["return"] = f"return {np.mean(last):.1f}{spread}"
    return facts


def _curve(run: "Run") -> str:
    """Returns an SVG plot of each run's return against steps."""
    rows, count = run.rows, len(run.directory.runs)
    curves = [
        [(r["step"], r["return_mean"]) for r in rows[i::count] if r["return_mean"] is not None] for i in range(count)
    ]
    points = np.array([point for curve in curves for point in curve], dtype=float).reshape(-1, 2)
    if len(points) < 2:
        return ""
    (_, low), (most, high) = points.min(axis=0), points.max(axis=0)
    lines = "".join(_line([(x / most, (y - low) / max(high - low, 1e-9)) for x, y in curve]) for curve in curves)
    text = "".join(
        f'<text x="{WIDTH + 4}" y="{place}" font-size="10" fill="currentColor">{value:.4g}</text>'
        for place, value in ((10, high), (HEIGHT, low))
    )
    return (
        f'<svg role="img" aria-label="return against steps" width="{WIDTH + 60}" height="{HEIGHT + 4}" '
        f'style="display:block;margin:4px 0">{lines}{text}</svg>'
    )


def _line(points: Sequence[tuple[float, float]]) -> str:
    """Returns an SVG line through points in the unit square."""
    places = " ".join(f"{WIDTH * x:.1f},{2 + (HEIGHT - 4) * (1 - y):.1f}" for x, y in points)
    return f'<polyline points="{places}" fill="none" stroke="currentColor" stroke-width="1.5" opacity=".7"/>'


def _table(rows: Sequence[dict[str, Any]]) -> str:
    """Returns rows as an HTML table, without columns in which nothing was measured."""
    names = [name for name in dict.fromkeys(name for row in rows for name in row) if _measured(rows, name)]
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join(f"<tr>{''.join(f'<td>{_cell(row.get(name))}</td>' for name in names)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _measured(rows: Sequence[dict[str, Any]], name: str) -> bool:
    return any(row.get(name) is not None and row[name] == row[name] for row in rows)  # neither None nor NaN


def _cell(value: Any) -> str:
    return escape(f"{value:.5g}" if isinstance(value, float) else "" if value is None else str(value))
