"""Pieces of a report's markup: tables, numbers, lists of words. Texts are escaped here, cells are markup already."""

import math
from collections.abc import Iterable, Sequence
from html import escape

import numpy as np

from moca.studies import statistics


def boxed(caption: str, head: Sequence[str], rows: Sequence[str], kind: str = "") -> str:
    """A table in a box that scrolls; rows and head are cells already."""
    lines = lambda rows: "".join(f"<tr>{row}</tr>" for row in rows)  # noqa: E731
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}"><table class="{kind}">'
        f"<caption>{escape(caption)}</caption><thead>{lines(head)}</thead><tbody>{lines(rows)}</tbody></table></div>"
    )


def heads(*titles: str) -> list[str]:
    """A head of one row."""
    return ["".join(f'<th scope="col">{escape(title)}</th>' for title in titles)]


def row_head(text: str) -> str:
    return f'<th scope="row">{escape(text)}</th>'


def decimals(values: np.ndarray) -> int:
    """As many as leave three digits of the largest."""
    size = np.abs(values[np.isfinite(values)]).max(initial=0)
    return min(6, max(0, 2 - math.floor(math.log10(size)))) if size > 0 else 0


def number(value: float, places: int) -> str:
    if not math.isfinite(value):
        return "–"
    return f"{round(value, places) + 0.0:,.{places}f}".replace("-", "−")  # no minus before a zero


def plus_minus(estimate: statistics.Estimate, places: int) -> str:
    margin = f" ± {number(estimate.half_width, places)}" if math.isfinite(estimate.half_width) else ""
    return number(estimate.value, places) + margin


def details(summary: str, content: str) -> str:
    return f'<details><summary>{escape(summary)}</summary><pre tabindex="0">{escape(content)}</pre></details>'


def listed(items: Iterable[str]) -> str:
    """`a, b and c`."""
    *most, last = items
    return f"{', '.join(most)} and {last}" if most else last
