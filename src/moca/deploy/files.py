"""Files of arrays that may come from anywhere: checked, sizes first, before anything is made of them."""

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
SLACK = 2**20  # bytes that a file may have besides its numbers
KINDS = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64")


def opened(path: Path | str) -> BinaryIO:
    """The file for reading; a `ValueError` where it is something else, such as a pipe, which might never end."""
    wait_for_nobody = getattr(os, "O_NONBLOCK", 0)
    try:
        file = open(Path(path), "rb", opener=lambda name, flags: os.open(name, flags | wait_for_nobody))  # noqa: SIM115
    except TypeError:
        raise ValueError(f"{path!r} is no path") from None
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise ValueError("it is no regular file")
    return file


def read_arrays(path: Path | str, most: int = LARGEST) -> dict[str, np.ndarray]:
    """The arrays of an .npz file that may come from anywhere.

    Before any is read, what the file says of their sizes must add up, to `most` bytes at most.

    Raises:
        FileNotFoundError: if there is none.
        ValueError: if they are no arrays of numbers; it says why, but not which file.
    """
    try:
        with warnings.catch_warnings(), opened(path) as file:
            warnings.simplefilter("error")  # NumPy's, about formats that are none of ours
            if (size := os.fstat(file.fileno()).st_size) > most + SLACK:
                raise ValueError(f"it has {size:,} bytes, and may have {most + SLACK:,}")
            with zipfile.ZipFile(file) as archive:
                return _members(archive, most)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ValueError(error.strerror or str(error)) from None
    except MemoryError:
        raise ValueError("it does not fit into memory") from None
    except Exception as error:  # the decoders of a zip and of NumPy's headers raise what they like
        text = " ".join(str(error).split())
        raise ValueError(text if isinstance(error, ValueError) else f"it is damaged ({text})") from None


def _members(archive: zipfile.ZipFile, most: int) -> dict[str, np.ndarray]:
    infos = archive.infolist()
    names = [info.filename.removesuffix(".npy") for info in infos]
    if len(set(names)) < len(names):
        raise ValueError("it has two arrays of one name")
    headers = [_header(archive, info) for info in infos]
    if (total := sum(math.prod(shape) * dtype.itemsize for shape, dtype, _, _ in headers)) > most:
        raise ValueError(f"it claims to hold {total:,} bytes of numbers, and may hold {most:,}")
    arrays = {}
    for name, info, (shape, dtype, in_columns, start) in zip(names, infos, headers, strict=True):
        with archive.open(info) as member:
            array = np.frombuffer(member.read(info.file_size), dtype, math.prod(shape), start)
        arrays[name] = array.reshape(shape[::-1]).T if in_columns else array.reshape(shape)
    return arrays


def _header(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> tuple[tuple[int, ...], np.dtype, bool, int]:
    """Shape, dtype, whether the first axis is the fastest, and where the numbers start."""
    name = reprlib.repr(info.filename)
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or info.flag_bits & 1:
        raise ValueError(f"{name} is encrypted, or compressed in a way that NumPy does not")
    with archive.open(info) as member:
        version = np.lib.format.read_magic(member)
        if version not in ((1, 0), (2, 0)):
            raise ValueError(f"{name} has version {version} of NumPy's format")
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, in_columns, dtype = read(member)
        start = member.tell()
    if dtype.name not in KINDS or not dtype.isnative:
        raise ValueError(f"{name} holds {reprlib.repr(str(dtype))}, not plain numbers")
    if min(shape, default=0) < 0 or info.file_size != start + math.prod(shape) * dtype.itemsize:
        raise ValueError(f"{name} is not as long as its shape {reprlib.repr(shape)} says")
    return shape, dtype, in_columns, start


def read_facts(header: np.ndarray | None) -> dict[str, Any]:
    """Returns the header of a file."""
    if header is None or header.dtype != np.uint8 or header.ndim != 1 or header.size > SLACK:
        raise ValueError("it has no header")
    try:
        facts = json.loads(header.tobytes(), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"its header cannot be read ({reprlib.repr(str(error))})") from None
    if not isinstance(facts, dict):
        raise ValueError("its header is no table")
    return facts


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(table := dict(pairs)) < len(pairs):
        raise ValueError("a name stands there twice")
    return table


def take(arrays: dict[str, np.ndarray], name: str, *shape: int) -> np.ndarray:
    """The array of that name and shape, no longer among the others."""
    if name not in arrays:
        raise ValueError(f"it has no {name}")
    if (array := arrays.pop(name)).shape != shape:
        raise ValueError(f"{name} has the shape {array.shape}, where {shape} fits")
    return array
