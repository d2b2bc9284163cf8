"""The registry of extensions to studies: named grids, facts about tasks, figures, report sections.

Studies themselves know no task and no paper. A package that does calls `add` when it is imported.
The packages in `PACKAGES` are imported at the first look-up. Nothing here imports anything heavy.
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

PACKAGES = ["moca.paper", "moca.tasks"]


class Plane(NamedTuple):
    """The plane of a two-dimensional state, over which values and actions are drawn."""

    angles: Any
    velocities: Any
    observe: Callable[[Any, Any], Any]  # the observation at an angle and a velocity, along the last axis


@dataclass(frozen=True)
class Task:
    """Facts about a task, beyond its name."""

    solved: float | None = None  # final return at which a seed has solved the task, if seeds form two groups
    paired: bool = False  # whether agents are compared seed by seed
    below: tuple[str, ...] = ()  # metrics of MoCA to draw below the learning curves
    figure: str = ""  # name of the figure with its learning curves,
    noises: frozenset[str] = frozenset()  # used if the study has all of these noise levels
    plane: Callable[[], Plane] | None = None

    def count(self, scores: "Collection[float] | np.ndarray") -> tuple[int, int] | None:
        """Returns how many final scores solve the task, and how many there are; None if unknown."""
        return None if self.solved is None else (sum(bool(score >= self.solved) for score in scores), len(scores))

    def splits(self, scores: "Collection[float] | np.ndarray") -> bool:
        """Returns True if at least a tenth of the scores solve the task, and a tenth do not."""
        solved = self.count(scores)
        return solved is not None and 0.1 <= solved[0] / max(1, solved[1]) <= 0.9


class Figure(NamedTuple):
    """A figure that does not need a study."""

    text: str  # for --help
    function: str  # `module:name` of a function of folder and formats that writes it and returns the files

    def draw(self, folder: Path, formats: tuple[str, ...]) -> list[Path]:
        """Writes the figure."""
        return resolve_name(self.function)(folder, formats)


class Section(NamedTuple):
    """A section of the report, and its contribution to the report's conclusion; both are markup."""

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
        grids: Grids by name.
        tasks: Facts about tasks, by the name of their environment.
        figures: Figures by name.
        section: `module:name` of a function that makes a `Section` from a table of results.
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
    """Returns the named grids."""
    _load()
    return _GRIDS


def task(env: str) -> Task:
    """Returns the facts about a task; empty ones for an unknown task."""
    _load()
    return _TASKS.get(env, Task())


def figures() -> Mapping[str, Figure]:
    """Returns the figures that do not need a study."""
    _load()
    return _FIGURES


def sections(table: "pd.DataFrame") -> list[Section]:
    """Returns the sections that packages add to a report on these results."""
    _load()
    return [resolve_name(function)(table) for function in _SECTIONS]
