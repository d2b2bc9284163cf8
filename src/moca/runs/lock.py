"""The lock of a run directory, so that one process at a time trains there."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from moca import files
from moca.config import ConfigError


class InHandError(ConfigError):
    """Another process is training in the directory."""


class Lock:
    """A lock that this process holds."""

    def __init__(self, path: Path, file: Any) -> None:
        self._path, self._file = path, file

    def refuse_lost(self) -> None:
        """Raises `OSError` if the directory or its lock was moved or removed.

        Another process may then train under the same path.
        """
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(self._file.fileno()), os.lstat(self._path)):
                return
        raise OSError(errno.ESTALE, "it, or its lock, was moved or removed during training")


def in_use(folder: Path, owner: str) -> InHandError:
    """Returns the error of a command that needs a directory in which that process is training."""
    return InHandError(f"{folder} is in use: process {owner} is training there")


def owner(folder: Path) -> str:
    """Returns the number of the process that trains in the directory; empty if there is none."""
    try:
        import fcntl  # not on Windows, where nothing can train

        with files.open_to_read(folder / "lock") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return _read(file)
    except (ImportError, OSError):  # missing, or not a lock file
        pass
    return ""


def _read(file: Any) -> str:
    return file.read(20).decode(errors="replace").strip() or "?"


@contextmanager
def held(folder: Path) -> Iterator[Lock]:
    """Locks a run directory, and creates it first if needed."""
    import fcntl  # not on Windows, where runs can still be read

    path = folder / "lock"
    with files.writing(f"to {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        files.refuse_odd(path)
        file = files.open_lock(path)
    with file:
        try:
            with files.writing(f"to {folder}, which cannot be locked"):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise in_use(folder, _read(file)) from None
        with suppress(OSError):  # a full disk; the lock itself holds
            file.truncate(0)
            file.write(str(os.getpid()).encode())
        yield Lock(path, file)
