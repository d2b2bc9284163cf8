"""A registry of what packages add to studies: named grids, facts about tasks, figures, sections of the report.

Studies themselves know of no task and of no paper. A package that does calls `add` when it is imported; those in
`PACKAGES` are imported when something is looked up for the first time. Nothing here imports anything heavy.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from moca.studies.grid import Grid

PACKAGES = ["moca.paper"]


class Plane(NamedTuple):
    """The states of a task that has two numbers for a state, over which values and actions can be drawn."""

    angles: Any
    velocities: Any
    observe: Callable[[Any, Any], Any]  # what is observed at an angle and a velocity, along the last axis


@dataclass(frozen=True)
class Task:
    """Facts about a task, beyond its name."""

    solved: float | None = None  # final return from which on a seed has solved it, where seeds do or do not
    paired: bool = False  # whether agents are compared seed by seed
    below: tuple[str, ...] = ()  # metrics of MoCA to draw below the learning curves
    figure: str = ""  # name of the figure with its learning curves …
    noises: frozenset[str] = frozenset()  # … where the study has all of these
    plane: Callable[[], Plane] | None = None

    def count(self, scores: "Collection[float] | np.ndarray") -> tuple[int, int] | None:
        """Counts the final scores that solve the task, and all of them; None if it is not known what solves it."""
        return None if self.solved is None else (sum(bool(score >= self.solved) for score in scores), len(scores))

    def splits(self, scores: "Collection[float] | np.ndarray") -> bool:
        """Returns True if at least a tenth of the scores solves the task and at least a tenth does not."""
        solved = self.count(scores)
        return solved is not None and 0.1 <= solved[0] / max(1, solved[1]) <= 0.9


class Figure(NamedTuple):
    """A figure that is made without a study."""

    text: str  # for --help
    function: str  # `module:name` of what writes it into a folder, in some formats, and returns the files

    def draw(self, folder: Path, formats: tuple[str, ...]) -> list[Path]:
        """Writes the figure."""
        return resolve_name(self.function)(folder, formats)


class Section(NamedTuple):
    """A part of the report, and what it adds to the report's conclusion; both are markup."""

    name: str  # its anchor
    entry: str  # in the table of contents
    title: str
    conclusion: str
    content: str


_GRIDS: "dict[str, Grid]" = {}
_TASKS: dict[str, Task] = {}
_FIGURES: dict[str, Figure] = {}
_SECTIONS: list[str] = []


def add(
    *,
    grids: "Mapping[str, Grid] | None" = None,
    tasks: Mapping[str, Task] | None = None,
    figures: Mapping[str, Figure] | None = None,
    section: str | None = None,
) -> None:
    """Adds grids, tasks and figures by name, and a section of the report.

    Args:
        grids: by name.
        tasks: by the name of their environment.
        figures: by name.
        section: `module:name` of what makes a `Section` from a table of results.
    """
    _GRIDS.update(grids or {})
    _TASKS.update(tasks or {})
    _FIGURES.update(figures or {})
    _SECTIONS.extend([section] if section else [])


@cache
def _load() -> None:
    for name in PACKAGES:
        import_module(name)


def grids() -> "Mapping[str, Grid]":
    """The grids that have a name."""
    _load()
    return _GRIDS


def task(env: str) -> Task:
    """Returns the facts about a task, perhaps none."""
    _load()
    return _TASKS.get(env, Task())


def figures() -> Mapping[str, Figure]:
    """The figures that are made without a study."""
    _load()
    return _FIGURES


def sections(table: "pd.DataFrame") -> list[Section]:
    """The sections that packages add to a report on these results."""
    _load()
    return [resolve_name(function)(table) for function in _SECTIONS]
