"""Reading arrays from untrusted files, with sizes checked before anything is loaded."""

import io
import json
import math
import os
import reprlib
import stat
import warnings
import zipfile
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

LARGEST = 2**28  # bytes of numbers in a policy
SLACK = 2**20  # bytes allowed besides the numbers
HEADER = 2**16  # bytes in which the header of an array must end
KINDS = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64")


def opened(path: Path | str) -> BinaryIO:
    """Opens a regular file for reading; raises `ValueError` for anything else, such as a pipe."""
    wait_for_nobody = getattr(os, "O_NONBLOCK", 0)
    try:
        file = open(Path(path), "rb", opener=lambda name, flags: os.open(name, flags | wait_for_nobody))  # noqa: SIM115
    except TypeError:
        raise ValueError(f"{path!r} is not a path") from None
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise ValueError("it is not a regular file")
    return file


def read_arrays(path: Path | str, most: int = LARGEST) -> dict[str, np.ndarray]:
    """Returns the arrays of an untrusted .npz file.

    Before any array is read, the sizes stated in the file must add up, to at most `most` bytes.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If it does not contain arrays of numbers; the message says why, but not which
            file.
    """
    try:
        with warnings.catch_warnings(), opened(path) as file:
            warnings.simplefilter("error")  # NumPy's warnings about other formats
            if (size := os.fstat(file.fileno()).st_size) > most + SLACK:
                raise ValueError(f"it has {size:,} bytes, at most {most + SLACK:,} are allowed")
            with zipfile.ZipFile(file) as archive:
                return _members(archive, most)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ValueError(error.strerror or str(error)) from None
    except MemoryError:
        raise ValueError("it does not fit into memory") from None
    except Exception as error:  # the decoders of zip files and NumPy headers raise many kinds of errors
        text = " ".join(str(error).split())
        raise ValueError(text if isinstance(error, ValueError) else f"it is damaged ({text})") from None


def _members(archive: zipfile.ZipFile, most: int) -> dict[str, np.ndarray]:
    infos = archive.infolist()
    names = [info.filename.removesuffix(".npy") for info in infos]
    if len(set(names)) < len(names):
        raise ValueError("it has two arrays with the same name")
    headers = [_header(archive, info) for info in infos]
    if (total := sum(math.prod(shape) * dtype.itemsize for shape, dtype, _, _ in headers)) > most:
        raise ValueError(f"it claims to have {total:,} bytes of numbers, at most {most:,} are allowed")
    arrays = {}
    for name, info, (shape, dtype, in_columns, start) in zip(names, infos, headers, strict=True):
        with archive.open(info) as member:
            array = np.frombuffer(member.read(info.file_size), dtype, math.prod(shape), start)
        arrays[name] = array.reshape(shape[::-1]).T if in_columns else array.reshape(shape)
    return arrays


def _header(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> tuple[tuple[int, ...], np.dtype, bool, int]:
    """Returns shape, dtype, whether the order is Fortran's, and the offset of the numbers."""
    name = reprlib.repr(info.filename)
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or info.flag_bits & 1:
        raise ValueError(f"{name} is encrypted, or compressed in a way that NumPy does not use")
    with archive.open(info) as member:
        head = io.BytesIO(member.read(HEADER))  # a header may claim a length of gigabytes
    version = np.lib.format.read_magic(head)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"{name} has version {version} of NumPy's format; only (1, 0) and (2, 0) can be read")
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, in_columns, dtype = read(head)
    start = head.tell()
    if dtype.name not in KINDS or not dtype.isnative:
        raise ValueError(f"{name} has type {reprlib.repr(str(dtype))}, not plain numbers")
    if min(shape, default=0) < 0 or info.file_size != start + math.prod(shape) * dtype.itemsize:
        raise ValueError(f"{name} has a length that does not match its shape {reprlib.repr(shape)}")
    return shape, dtype, in_columns, start


def read_facts(header: np.ndarray | None) -> dict[str, Any]:
    """Returns the facts in the header of a file."""
    if header is None or header.dtype != np.uint8 or header.ndim != 1 or header.size > SLACK:
        raise ValueError("it has no header")
    try:
        facts = json.loads(header.tobytes(), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"its header cannot be read ({reprlib.repr(str(error))})") from None
    if not isinstance(facts, dict):
        raise ValueError("its header is not a JSON object")
    return facts


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(table := dict(pairs)) < len(pairs):
        raise ValueError("a name occurs twice")
    return table


def take(arrays: dict[str, np.ndarray], name: str, *shape: int) -> np.ndarray:
    """Removes and returns the array with that name.

    Raises if it is missing or has another shape.
    """
    if name not in arrays:
        raise ValueError(f"it has no {name}")
    if (array := arrays.pop(name)).shape != shape:
        raise ValueError(f"{name} has shape {array.shape}, but must have {shape}")
    return array
