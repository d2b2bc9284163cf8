"""Text from files that may come from anywhere: a regular file, of a size that is known first, in UTF-8.

What is wrong with one is a `ConfigError` that names it. For arrays see `moca.deploy.files.read_arrays`.
"""

import json
import os
from pathlib import Path
from typing import Any

from moca.config import ConfigError

SETTINGS = 2**24  # bytes of a file that people write or read
RECORDS = 2**31  # bytes of one with a line for every episode


def read_text(path: Path, most: int = SETTINGS, length: int | None = None) -> str:
    """Returns the text of a file, or of its first `length` bytes; raises `FileNotFoundError` if there is none.

    One that has more than `most` bytes is not read.
    """
    from moca.deploy.files import opened  # which imports NumPy: too slow for the command line's first answer

    try:
        with opened(path) as file:
            if (size := os.fstat(file.fileno()).st_size) > most:
                raise ValueError(f"it has {size:,} bytes, and may have {most:,}")
            return file.read(most if length is None else length).decode()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None


def read_json(path: Path) -> Any:
    """Returns the content of a JSON file; raises `FileNotFoundError` if there is none."""
    text = read_text(path)
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{path} cannot be read as JSON: {error}") from None
    except RecursionError:
        raise ConfigError(f"{path} cannot be read as JSON: it is nested too deeply") from None


def read_rows(path: Path, length: int | None = None) -> list[dict[str, Any]]:
    """The lines of a file, or of its first bytes, each a table as JSON; raises `FileNotFoundError` if there is none."""
    rows = []
    for number, line in enumerate(read_text(path, RECORDS, length).splitlines(), 1):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict):
            raise ConfigError(f"{path} cannot be read: line {number} is no table")
        rows.append(row)
    return rows
