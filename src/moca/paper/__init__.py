"""What belongs to the paper alone: its figures, its grids, its claims, and the cliff beside Figure 1.

Importing it adds all of that to studies, through `moca.studies.registry`; jax is imported when something is drawn.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from moca.paper.grids import GRIDS
from moca.paper.tasks import TASKS
from moca.studies import registry

if TYPE_CHECKING:
    import pandas as pd


def _toy(folder: Path, formats: tuple[str, ...]) -> list[Path]:
    from moca.paper import toy

    return toy.draw(folder, formats)


def _cliff(folder: Path, formats: tuple[str, ...]) -> list[Path]:
    from moca.paper import cliff_figure

    return cliff_figure.draw(folder, formats)


def _claims(table: "pd.DataFrame") -> registry.Section:
    from moca.paper import report

    return report.section(table)


registry.add(
    grids=GRIDS,
    tasks=TASKS,
    figures={
        "toy": registry.Figure("Figure 1, analytic against Monte Carlo expectation", _toy),
        "cliff": registry.Figure(
            "where that expectation decides, and where it does not (trains for a few minutes)", _cliff
        ),
    },
    section=_claims,
)
