"""Small tasks of our own whose best return is known exactly, and figures of agents on them.

Importing this package registers the figures with `moca.studies.registry`, and imports nothing
heavy.
"""

from moca.studies import registry

FIGURES = {
    "light-dark": registry.Figure(
        "a task in which an agent must find out where it is first (trains for a few minutes)",
        "moca.tasks.light_dark_figure:draw",
    ),
}
registry.add(figures=FIGURES)
