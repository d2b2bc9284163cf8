"""Files that are whole or absent, written only where nothing else can be hit: no link is followed, no device opened."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from moca.config import ConfigError

ASIDE = ".writing"  # the end of a file's name until it is whole
_SAFE = os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


class DiskError(ConfigError):
    """A disk that is full, read-only or broken; what was saved before is untouched."""

    code = 74  # the program's exit code; sysexits.h calls it an input/output error


@contextmanager
def writing(what: str | Path) -> Iterator[None]:
    """Turns the errors of the operating system into one sentence."""
    try:
        yield
    except BlockingIOError:  # no fault of the disk: someone else has it
        raise
    except OSError as error:
        raise DiskError(f"cannot write {what}: {error.strerror or error}") from None


def write(path: Path, *parts: Any, apart: str = "") -> None:
    """Writes a file aside, syncs it to disk and renames it, so that nobody ever reads half of it.

    Processes that may write the same file at the same time need names `apart` for what they write aside.
    """
    aside = path.with_name(f"{path.name}{apart}{ASIDE}")
    try:
        aside.unlink(missing_ok=True)
        with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFE, 0o666), "wb") as file:
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
        sync(path.parent)
    except OSError:
        with suppress(OSError):
            aside.unlink(missing_ok=True)
        raise


def open_to_append(path: Path) -> int:
    """The handle of a file that is written to at its end, made if it is not there; it is no link."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | _SAFE, 0o666)


def append(path: Path, content: bytes) -> None:
    """Adds to the end of a file all of the content, or nothing."""
    handle = open_to_append(path)
    try:
        before, rest = os.fstat(handle).st_size, memoryview(content)
        try:
            while rest:
                rest = rest[os.write(handle, rest) :]
        except OSError:
            os.ftruncate(handle, before)
            raise
    finally:
        os.close(handle)


def write_over(path: Path, content: bytes) -> None:
    """Writes over a file of its own in place, which needs no room on the disk; white space fills what is left of it."""
    handle = os.open(path, os.O_RDWR | _SAFE)
    try:
        found = os.fstat(handle)
        if stat.S_ISREG(found.st_mode) and found.st_nlink == 1:
            os.pwrite(handle, content.ljust(found.st_size - 1) + b"\n", 0)
    finally:
        os.close(handle)


def shorten(path: Path, length: int) -> None:
    """Cuts a file to that length; one that is not longer, or not there, is left alone."""
    try:
        handle = os.open(path, os.O_WRONLY | _SAFE)
    except FileNotFoundError:
        return
    try:
        if os.fstat(handle).st_size > length:
            os.ftruncate(handle, length)
    finally:
        os.close(handle)


def sync(path: Path) -> None:
    """Has a file, or the entries of a folder, on disk."""
    handle = os.open(path, os.O_RDONLY | _SAFE)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def open_to_read(path: Path) -> Any:
    """An ordinary file, opened for reading; raises `OSError` for a link, a folder or a device."""
    handle = os.open(path, os.O_RDONLY | _SAFE)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(None, "it is not an ordinary file")
    return os.fdopen(handle, "rb")


def open_lock(path: Path) -> Any:
    """A file for reading and writing without a buffer, made if it is not there."""
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | _SAFE, 0o666), "r+b", buffering=0)


def refuse_odd(path: Path, folder: bool = False) -> None:
    """Raises unless there is an ordinary file (or folder) of that name and no other, or nothing."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    mode = found.st_mode
    kinds = {stat.S_ISLNK: "a symbolic link", stat.S_ISDIR: "a folder", stat.S_ISREG: "a file"}
    kind = next((name for is_kind, name in kinds.items() if is_kind(mode)), "something else")
    if not folder and found.st_nlink > 1 and stat.S_ISREG(mode):
        kind = "a hard link"
    if kind != ("a folder" if folder else "a file"):
        raise ConfigError(
            f"{path} should be {'a folder' if folder else 'a file of its own'}, but it is {kind}: remove it"
        )
