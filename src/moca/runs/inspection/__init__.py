"""One greedy episode as a page: observations, beliefs, predictions and values at every step.

`episode` computes them with the agent's own functions, and `page` makes the page.
"""

from moca.runs.inspection.episode import watch
from moca.runs.inspection.page import AHEAD, FURTHEST, Inspection, inspect, watched

__all__ = ["AHEAD", "FURTHEST", "Inspection", "inspect", "watch", "watched"]
