"""The fields of settings: default, description and limits of each."""

from dataclasses import field
from typing import Any


def setting(default: Any, text: str, **limits: Any) -> Any:
    """Returns a field with its default, a one-sentence description, and its limits.

    Limits are `low` and `high` (inclusive), `above` and `below` (exclusive), `infinite`, or
    `among`. Besides the words of `among`, any word that starts with one of `prefixes` is allowed;
    `complete` adds a prefix where it was left out. All numbers must also fit `INT32` or `SIZES`.
    With `traced`, the numbers of a list may differ between the runs of one program.
    """
    return field(default=default, metadata={"text": text, "limits": limits})
