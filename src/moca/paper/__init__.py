"""The paper's own: its figures, its grids, its claims, and the cliff beside Figure 1.

Importing it adds all of that to studies, through `moca.studies.registry`, and imports nothing heavy.
"""

from moca.paper.grids import GRIDS
from moca.paper.tasks import TASKS
from moca.studies import registry

FIGURES = {
    "toy": registry.Figure("Figure 1, analytic against Monte Carlo expectation", "moca.paper.toy:draw"),
    "cliff": registry.Figure(
        "where that expectation decides, and where it does not (trains for a few minutes)",
        "moca.paper.cliff_figure:draw",
    ),
}
registry.add(grids=GRIDS, tasks=TASKS, figures=FIGURES, section="moca.paper.report:section")
