"""The paper's figures, grids and claims, and the cliff that accompanies Figure 1.

Importing this package registers them with `moca.studies.registry`, and imports nothing heavy.
"""

from moca.paper.grids import GRIDS
from moca.paper.tasks import TASKS
from moca.studies import registry

FIGURES = {
    "toy": registry.Figure("Figure 1, analytic against Monte Carlo expectation", "moca.paper.toy:draw"),
    "cliff": registry.Figure(
        "tasks in which that expectation matters, and in which it does not (trains for a few minutes)",
        "moca.paper.cliff_figure:draw",
    ),
}
registry.add(grids=GRIDS, tasks=TASKS, figures=FIGURES, section="moca.paper.report:section")
