"""One greedy episode, step by step: what an agent observed, believed, predicted and valued, as a page.

`episode` computes all of it from the agent's own functions, `page` makes the page.
"""

from moca.runs.inspection.episode import watch
from moca.runs.inspection.page import Inspection, inspect

__all__ = ["Inspection", "inspect", "watch"]
