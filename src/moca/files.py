"""Safe file writing: files are complete or absent, links and devices are not opened."""

import hashlib
import io
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from moca.config import ConfigError

ASIDE = ".writing"  # suffix of a file that is still incomplete
_SAFE = os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


class DiskError(ConfigError):
    """The disk is full, read-only or broken. What was saved before is untouched."""

    code = 74  # exit code, EX_IOERR in sysexits.h


@contextmanager
def writing(what: str | Path) -> Iterator[None]:
    """Converts errors of the operating system into a `DiskError` with one sentence."""
    try:
        yield
    except BlockingIOError:  # not an error of the disk: another process holds the lock
        raise
    except OSError as error:
        raise DiskError(f"cannot write {what}: {error.strerror or error}") from None


def write(path: Path, *parts: Any, apart: str = "") -> None:
    """Writes a temporary file, syncs it to disk and renames it, so that no reader sees half of it.

    Processes that may write the same file concurrently must pass different `apart`, which becomes
    part of the temporary name.
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


def save(path: Path, content: Any) -> Path:
    """Writes a file, in a folder that is made if there is none; safe for several processes at once.

    Returns the path.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    write(path, content, apart=f".{os.getpid()}")
    return path


def save_arrays(path: Path, arrays: Mapping[str, Any]) -> Path:
    """Writes arrays as a compressed .npz file: see `save`."""
    import numpy as np

    held = io.BytesIO()
    np.savez_compressed(held, **arrays)
    return save(path, held.getbuffer())


def open_to_append(path: Path) -> int:
    """Opens a file for appending, creating it if needed; does not follow links.

    Returns the handle.
    """
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | _SAFE, 0o666)


@contextmanager
def _closing(handle: int) -> Iterator[int]:
    try:
        yield handle
    finally:
        os.close(handle)


def append(path: Path, content: bytes) -> None:
    """Appends the whole content to a file, or nothing."""
    with _closing(open_to_append(path)) as handle:
        before, rest = os.fstat(handle).st_size, memoryview(content)
        try:
            while rest:
                rest = rest[os.write(handle, rest) :]
        except OSError:
            os.ftruncate(handle, before)
            raise


def write_over(path: Path, content: bytes) -> None:
    """Overwrites a file in place, which needs no free disk space, and pads it with white space."""
    with _closing(os.open(path, os.O_RDWR | _SAFE)) as handle:
        found = os.fstat(handle)
        if stat.S_ISREG(found.st_mode) and found.st_nlink == 1:
            os.pwrite(handle, content.ljust(found.st_size - 1) + b"\n", 0)


def shorten(path: Path, length: int) -> None:
    """Truncates a file to that length; a shorter or missing file is left unchanged."""
    with suppress(FileNotFoundError), _closing(os.open(path, os.O_WRONLY | _SAFE)) as handle:
        if os.fstat(handle).st_size > length:
            os.ftruncate(handle, length)


def sync(path: Path) -> None:
    """Flushes a file, or the entries of a folder, to disk."""
    with _closing(os.open(path, os.O_RDONLY | _SAFE)) as handle:
        os.fsync(handle)


def open_to_read(path: Path) -> Any:
    """Opens an ordinary file for reading; raises `OSError` for a link, a folder or a device."""
    handle = os.open(path, os.O_RDONLY | _SAFE)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(None, "it is not an ordinary file")
    return os.fdopen(handle, "rb")


def digest(path: Path) -> str:
    """Returns the SHA-256 of an ordinary file; empty if it cannot be read."""
    try:
        with open_to_read(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""


def open_lock(path: Path) -> Any:
    """Opens a file for unbuffered reading and writing, creating it if needed."""
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | _SAFE, 0o666), "r+b", buffering=0)


def refuse_no_policy(path: Path) -> None:
    """Raises unless the name is that of an exported policy."""
    if path.suffix not in (".npz", ".onnx"):
        raise ConfigError(f"{path} must end in .npz (for NumPy) or .onnx (an ONNX model)")


def refuse_odd(path: Path, folder: bool = False, advice: str = "remove it") -> None:
    """Raises unless the path is an ordinary file (or folder), or does not exist.

    `advice` says what to do; a path that the user chose may be one to keep.
    """
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
            f"{path} should be {'a folder' if folder else 'an ordinary file'}, but it is {kind}: {advice}"
        )
