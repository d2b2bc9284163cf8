"""Reading text from untrusted files: regular files of limited size, in UTF-8.

Problems raise a `ConfigError` that names the file. For arrays see `moca.deploy.files.read_arrays`.
"""

import json
import os
from pathlib import Path
from typing import Any

from moca.config import ConfigError, parsed

SETTINGS = 2**24  # largest file of settings, in bytes
RECORDS = 2**31  # largest file with a line per episode, in bytes


def read_text(path: Path, most: int = SETTINGS, length: int | None = None) -> str:
    """Returns the text of a file, or of its first `length` bytes; raises `FileNotFoundError`.

    Raises `ConfigError` if the file has more than `most` bytes.
    """
    from moca.deploy.files import opened  # imports NumPy, which is slow

    try:
        with opened(path) as file:
            if (size := os.fstat(file.fileno()).st_size) > most:
                raise ValueError(f"it has {size:,} bytes, at most {most:,} are allowed")
            return file.read(most if length is None else length).decode()
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def read_json(path: Path) -> Any:
    """Returns the content of a JSON file; raises `FileNotFoundError` if it does not exist."""
    text = read_text(path)
    try:
        return parsed(text)
    except ConfigError as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None


def read_rows(path: Path, length: int | None = None) -> list[dict[str, Any]]:
    """Returns the JSON objects in the lines of a file, or of its first bytes.

    After others, a last line without an end is ignored unless it is whole: it is being written, or
    its process died.

    Raises `FileNotFoundError`, and `ConfigError` if no line ends after `length` bytes.
    """
    rows: list[dict[str, Any]] = []
    text = read_text(path, RECORDS, length)
    if length is not None and (len(text.encode()) < length or not text.endswith("\n")):
        raise ConfigError(f"{path} cannot be read: no line ends after {length} bytes")
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            if rows and number == len(lines) and not text.endswith("\n"):
                break
            row = None
        if not isinstance(row, dict):
            raise ConfigError(f"{path} cannot be read: line {number} is not a JSON object")
        rows.append(row)
    return rows
