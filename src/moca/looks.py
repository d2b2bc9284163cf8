"""Labels, colours, markers and dashes of agents, for figures, pages and tables.

Imports nothing heavy.

Each agent has its own colour and marker, so that it can be distinguished in greyscale and with any
colour vision.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

# The paper's colours (Okabe and Ito) and four more, distinguishable with any colour vision.
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
    "plan": "#882255",
    "sac-usual": "#999933",
    "grey": "#595959",
}


class Look(NamedTuple):
    """The look of an agent, or of any other line."""

    label: str
    short: str  # a short label to place beside a line
    ink: str  # a name in `COLOURS`, or a colour
    marker: str
    dash: Any = "-"  # in figures, in matplotlib's notation
    width: float = 1.4
    svg_dash: str = ""  # on pages
    place: int = 50  # position in legends, smallest first

    @property
    def colour(self) -> str:
        """The colour as #RRGGBB."""
        return COLOURS.get(self.ink, self.ink)

    @property
    def line(self) -> dict[str, Any]:
        """The arguments for matplotlib's plot."""
        return {"color": self.colour, "linestyle": self.dash, "linewidth": self.width, "marker": self.marker}


# Looks of variants. The registry adds those of agents; users may add their own here.
LOOKS = {
    "moca-mc-16": Look("MoCA-MC (K = 16)", "K = 16", "mc16", "^", (0, (7, 1.5)), 1.4, "8 3 2 3", 3),
    "moca-mc-4": Look("MoCA-MC (K = 4)", "K = 4", "mc", "v", (0, (6, 1, 1, 1)), 1.4, "2 3", 4),
    "moca-mc-1": Look("MoCA-MC (K = 1)", "K = 1", "mc1", "<", (0, (2, 1)), 1.4, "4 2", 5),
    "sac-usual": Look("SAC (usual settings)", "SAC (usual)", "sac-usual", "d", (0, (4, 2)), 1.4, "7 3", 9),
}


def look(agent: str) -> Look:
    """Returns the look of an agent; one without a registered look is a grey line with its name."""
    from moca.config import registry  # noqa: F401  (adds the looks of the built-in agents)

    return LOOKS.get(agent, Look(agent, agent, "grey", "h", "-", 1.2, place=99))


def label(agent: str) -> str:
    """Returns an agent's display name."""
    return look(agent).label


def ordered(agents: Iterable[str]) -> list[str]:
    """Returns the agents in the order of legends."""
    return sorted(set(agents), key=lambda agent: (look(agent).place, agent))
