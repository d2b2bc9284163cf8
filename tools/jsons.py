"""Tables of Markdown, and the JSON files that they come from."""

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent


def data(path: str) -> Any:
    """The contents of a JSON file."""
    return json.loads((ROOT / path).read_text())


def table(head: str, rows: list[str]) -> str:
    """A table with a head and rows of cells that are separated by |."""
    lines = [f"| {line} |".replace("|  |", "| |").replace("|  |", "| |") for line in (head, *rows)]
    return "\n".join([lines[0], "|---" * (head.count("|") + 1) + "|", *lines[1:]]) + "\n"
