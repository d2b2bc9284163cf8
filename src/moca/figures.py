"""The style shared by all figures: colours, fonts, and reproducible files."""

import io
import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from moca import files
from moca.looks import COLOURS as COLOURS

FORMATS = ("pdf", "svg", "png")

_STYLE: dict[Any, Any] = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "axes.labelsize": 9,
    "figure.constrained_layout.use": True,
    "figure.dpi": 100,
    "font.size": 9,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.5,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "pdf.fonttype": 42,
    "savefig.dpi": 200,
    "svg.fonttype": "none",
    "svg.hashsalt": "moca",
}


@contextmanager
def style() -> Iterator[None]:
    """Applies the style of all figures within the block; draws without a display."""
    before = matplotlib.get_backend(auto_select=False)  # restored for a notebook's own figures
    try:
        with matplotlib.rc_context(_STYLE), plt.ioff():
            plt.switch_backend("agg")
            yield
    finally:
        if before:
            matplotlib.rcParams["backend"] = before  # a notebook's backend reads its name while it is loaded
            with suppress(ImportError):  # there is no display
                plt.switch_backend(before)


def thousands(x: float, _: object) -> str:
    """Formats a number on an axis in thousands, such as `25k`, if there are any."""
    return f"{x / 1000:g}k" if abs(x) >= 1000 else f"{x:g}" if x else "0"


def save(figure: Figure, folder: Path, name: str, formats: tuple[str, ...] = FORMATS) -> list[Path]:
    """Writes one file per format and returns the paths; equal figures give equal bytes."""
    logging.getLogger("fontTools").setLevel(logging.ERROR)  # it warns about the font's date
    paths = []
    for suffix in formats:
        metadata = {"pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": {"Software": None}}.get(suffix)
        held = io.BytesIO()
        figure.savefig(held, format=suffix, metadata=metadata)
        paths.append(files.save(folder / f"{name}.{suffix}", held.getbuffer()))
    plt.close(figure)
    return paths
