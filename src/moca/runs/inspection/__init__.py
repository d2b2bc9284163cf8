"""One greedy episode as a page: observations, beliefs, predictions and values at every step.

`episode` computes them with the agent's own functions, and `page` makes the page.
"""

from moca.runs.inspection.episode import watch
from moca.runs.inspection.page import Inspection, inspect

__all__ = ["Inspection", "inspect", "watch"]
