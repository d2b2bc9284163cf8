"""The looks of agents: names, colours, markers and dashes, for figures, pages and tables. Imports nothing heavy.

An agent has a colour and a marker of its own, so that it is told apart in grey too and with any colour vision.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

# The paper's own colours (Okabe and Ito), and three more: told apart with any kind of colour vision.
COLOURS = {
    "moca": "#0072B2",
    "ce": "#D55E00",
    "sac": "#009E73",
    "bnaf": "#CC79A7",
    "mc": "#E69F00",
    "mc16": "#56B4E9",
    "naf": "#000000",
    "mixture": "#332288",
    "mc1": "#6B3E00",
    "sac-usual": "#999933",
    "grey": "#595959",
}


class Look(NamedTuple):
    """The look of an agent, or of whatever else has a line."""

    label: str
    short: str  # a name that fits beside a line
    ink: str  # a name in `COLOURS`, or a colour
    marker: str
    dash: Any = "-"  # in figures, as matplotlib writes it
    width: float = 1.4
    svg_dash: str = ""  # on pages
    place: int = 50  # in legends, the least first

    @property
    def colour(self) -> str:
        """The colour as #RRGGBB."""
        return COLOURS.get(self.ink, self.ink)

    @property
    def line(self) -> dict[str, Any]:
        """The arguments with which matplotlib draws the line."""
        return {"color": self.colour, "linestyle": self.dash, "linewidth": self.width, "marker": self.marker}


# Those of variants; the registry adds those of agents, and a user's may be added here.
LOOKS = {
    "moca-mc-16": Look("MoCA-MC (K = 16)", "K = 16", "mc16", "^", (0, (7, 1.5)), 1.4, "8 3 2 3", 3),
    "moca-mc-4": Look("MoCA-MC (K = 4)", "K = 4", "mc", "v", (0, (6, 1, 1, 1)), 1.4, "2 3", 4),
    "moca-mc-1": Look("MoCA-MC (K = 1)", "K = 1", "mc1", "<", (0, (2, 1)), 1.4, "4 2", 5),
    "sac-usual": Look("SAC (usual settings)", "SAC (usual)", "sac-usual", "d", (0, (4, 2)), 1.4, "7 3", 9),
}


def look(agent: str) -> Look:
    """The look of an agent; one that is not listed is grey and goes by its own name."""
    from moca.config import registry  # noqa: F401  (which adds those of our agents)

    return LOOKS.get(agent, Look(agent, agent, "grey", "h", "-", 1.2, place=99))


def label(agent: str) -> str:
    """An agent's name for readers."""
    return look(agent).label


def ordered(agents: Iterable[str]) -> list[str]:
    """The agents in the order of legends."""
    return sorted(set(agents), key=lambda agent: (look(agent).place, agent))
