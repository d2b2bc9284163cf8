"""Checkpoints, each one hashed file that is complete or absent.

A file consists of a line with the format, a line with the SHA-256 of the rest, the length of a JSON
header in eight bytes, the header, and the bytes of the arrays. Reading it executes nothing: the
header is JSON, and the arrays are numbers of the types in `KINDS`. No name in it is used as a path,
and no memory is allocated for an array before the sizes in the header have been compared with the
file's, and with those of the run.

Later formats must begin with the same two lines, with the first line included in the hash. This
version then tells an intact checkpoint of a later version, which it must not discard, from damage.
"""

import errno
import hashlib
import json
import math
import os
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from moca import files
from moca.config import ConfigError

MAGIC = b"moca checkpoint 2\n"  # with the version of the format
BEFORE = b"moca checkpoint 1\n"  # without an identity
KINDS = ("bool", *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)))
KINDS += ("float16", "float32", "float64")
HEADER = 2**24  # the most bytes of a header
DIMENSIONS = 32  # the most of an array
SUFFIX = ".checkpoint"

Shapes = list[tuple[str, tuple[int, ...]]]  # type and shape of each array


class Facts(NamedTuple):
    """Facts about a run that a checkpoint stores."""

    episode: int  # number of episodes done
    lengths: dict[str, int]  # of the logs, in bytes
    identity: Mapping[str, str] | None = None  # as in meta.json; None in format 1


class Checkpoint(NamedTuple):
    """The content of a file: facts about the run, and the leaves of a pytree in order."""

    facts: Facts
    arrays: list[np.ndarray]


class DamagedError(ConfigError):
    """The file is not a valid checkpoint; the message says which and why."""


class OtherArraysError(ConfigError):
    """The checkpoint is valid, but not for this run or version; the message says which file."""


class HostCopy:
    """Copies the leaves of a pytree to arrays on the host; random keys become their data.

    It copies because, on a CPU, an array may share memory that the next step overwrites. Every copy
    goes to the same memory: the first write to new memory takes several times as long.
    """

    def __init__(self, tree: Any) -> None:
        self.arrays = [np.full(shape, 0, dtype) for dtype, shape in layout(tree)]
        self._places = [
            [array[(*shard.index, ...)] for shard in leaf.addressable_shards] if isinstance(leaf, jax.Array) else []
            for leaf, array in zip(_without_keys(tree), self.arrays, strict=True)
        ]

    def __call__(self, tree: Any) -> list[np.ndarray]:
        """Copies a tree into the arrays and returns them. The next call overwrites them."""
        for leaf, array, places in zip(_without_keys(tree), self.arrays, self._places, strict=True):
            if not places:
                array[...] = leaf
            for number, place in enumerate(places):
                part = leaf.addressable_data(number)
                # An array keeps the view that it returns, and its memory is then not reused by the
                # next step. DLPack's view is not kept, but takes longer to make.
                light = place.nbytes < 1_000_000 or part.device.platform != "cpu"
                place[...] = np.asarray(part) if light else np.from_dlpack(part)
        return self.arrays


def to_host(tree: Any) -> list[np.ndarray]:
    """Returns copies of the leaves of a pytree on the host; random keys become their data."""
    return HostCopy(tree)(tree)


def _without_keys(tree: Any) -> list[Any]:
    """Returns the leaves, with the data of random keys."""
    return [jax.random.key_data(leaf) if _is_key(leaf) else leaf for leaf in jax.tree.leaves(tree)]


def layout(tree: Any) -> Shapes:
    """Returns the type and shape of each array that `to_host` returns."""
    plain = [jax.eval_shape(jax.random.key_data, leaf) if _is_key(leaf) else leaf for leaf in jax.tree.leaves(tree)]
    return [(np.dtype(leaf.dtype).name, tuple(leaf.shape)) for leaf in plain]


def unflatten(arrays: list[np.ndarray], like: Any) -> Any:
    """Returns the arrays, still on the host, in the structure of `like`."""
    return jax.tree.unflatten(jax.tree.structure(like), arrays)


def fitted(arrays: list[np.ndarray], like: Any) -> list[np.ndarray]:
    """Cuts the arrays, or pads them with zeros, to the lengths of those in `like`."""
    return [_fitted(array, shape) for array, (_, shape) in zip(arrays, layout(like), strict=True)]


def _fitted(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    if array.shape == shape:
        return array
    cut = array[tuple(map(slice, shape))]
    return np.pad(cut, [(0, b - a) for a, b in zip(cut.shape, shape, strict=True)])


def from_host(arrays: list[np.ndarray], like: Any) -> Any:
    """Restores the pytree, with the types and devices of `like`."""
    leaves, structure = jax.tree.flatten(like)
    restored = [
        jax.random.wrap_key_data(jnp.asarray(array), impl=jax.random.key_impl(leaf)) if _is_key(leaf) else array
        for array, leaf in zip(arrays, leaves, strict=True)
    ]
    return jax.device_put(jax.tree.unflatten(structure, restored), jax.tree.map(lambda leaf: leaf.sharding, like))


def save(folder: Path, step: int, checkpoint: Checkpoint, keep: int) -> Path:
    """Writes the checkpoint of a step, then removes all but the newest `keep` up to it.

    Checkpoints of later steps are removed too: they were damaged, else the run would have resumed
    there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{step:012d}{SUFFIX}"
    arrays = [[array.dtype.name, list(array.shape)] for array in checkpoint.arrays]
    header = json.dumps({"facts": checkpoint.facts._asdict(), "arrays": arrays}).encode()
    parts: list[Any] = [struct.pack(">Q", len(header)), header]
    parts += [np.ascontiguousarray(array).reshape(-1).view(np.uint8).data for array in checkpoint.arrays]
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    files.write(path, MAGIC + digest.hexdigest().encode() + b"\n", *parts)
    ours = [each for each in newest_first(folder) if re.fullmatch(r"\d{12}", each.stem)]
    later = sum(each.name > path.name for each in ours)
    for each in (*ours[:later], *ours[later + keep :]):
        with suppress(OSError):
            each.unlink()
    return path


def load(path: Path, expected: Sequence[Shapes] | None = None) -> Checkpoint:
    """Reads a file.

    Raises:
        DamagedError: If any byte differs from what was written, or cannot be read from the disk.
        OtherArraysError: If the file is intact, but its layout is not one of the expected ones.
        ConfigError: If the file may be intact, but cannot be opened, as without permission.
    """
    try:
        with files.open_to_read(path) as file:
            return _read(file, expected)
    except OSError as error:
        kind = DamagedError if error.errno in (None, errno.EIO, errno.ELOOP, errno.ENOENT, errno.ENXIO) else ConfigError
        raise kind(f"{path} cannot be read: {error.strerror or error}") from None
    except (DamagedError, OtherArraysError) as error:
        raise type(error)(f"{path} {error}") from None


def newest(
    folder: Path, expected: Sequence[Shapes] | None = None, accept: Callable[[Path, Checkpoint], None] = lambda *_: None
) -> tuple[Checkpoint | None, list[str]]:
    """Returns the newest valid checkpoint, if any, and the problems of newer ones.

    Skips checkpoints for which `accept` raises `DamagedError`. Then removes incomplete files.
    """
    found, complaints = None, []
    for path in newest_first(folder):
        if path.is_symlink() or path.is_dir():
            kind = "symbolic link" if path.is_symlink() else "folder"
            raise ConfigError(f"{path} should be a file, but it is a {kind}: remove it")
        try:
            loaded = load(path, expected)
            accept(path, loaded)
        except DamagedError as error:
            complaints.append(str(error))
        else:
            found = loaded
            break
    for aside in folder.glob(f"*{files.ASIDE}"):
        with suppress(OSError):
            aside.unlink()
    return found, complaints


def _read(file: Any, expected: Sequence[Shapes] | None) -> Checkpoint:
    """Reads the checkpoint in an open file; its errors begin with a verb."""
    size, magic, told = os.fstat(file.fileno()).st_size, file.readline(32), file.read(65)
    if magic not in (MAGIC, BEFORE) and re.fullmatch(rb"moca checkpoint \d+\n", magic):
        rest = hashlib.file_digest(file, lambda: hashlib.sha256(magic))
        if told == rest.hexdigest().encode() + b"\n":
            raise OtherArraysError("was written by a later version of moca. Resume with that version, or remove it")
    lead = file.read(8)
    if magic not in (MAGIC, BEFORE) or len(lead) < 8:
        raise DamagedError("is not a checkpoint of this version")
    (length,) = struct.unpack(">Q", lead)
    before = len(magic) + 65 + 8
    if length > min(HEADER, size - before):
        raise DamagedError("is damaged: its header is longer than the file")
    header = file.read(length)
    damaged = DamagedError("is damaged: its bytes have changed")
    try:
        facts, layout = _parse(json.loads(header), magic == BEFORE)
    except (ValueError, RecursionError):
        raise damaged from None
    if size - before - length != sum(np.dtype(kind).itemsize * math.prod(shape) for kind, shape in layout):
        raise DamagedError("is damaged: its length does not match its header")
    digest = hashlib.sha256(lead + header)
    if expected is not None and layout not in expected:  # no memory is allocated for these
        if told != hashlib.file_digest(file, lambda: digest).hexdigest().encode() + b"\n":
            raise damaged
        raise OtherArraysError(
            "does not match this run: it was written with other settings, or another version of moca, jax or optax. "
            "Resume with the version that wrote it, or remove it"
        )
    arrays = []
    for kind, shape in layout:
        array = np.empty(math.prod(shape), kind)
        bytes_ = array.view(np.uint8).data
        if file.readinto(bytes_) != len(bytes_) or (kind == "bool" and np.max(bytes_, initial=0) > 1):
            raise damaged
        digest.update(bytes_)
        arrays.append(array.reshape(shape))
    if told != digest.hexdigest().encode() + b"\n":
        raise damaged
    return Checkpoint(facts, arrays)


def _parse(header: Any, without_identity: bool) -> tuple[Facts, Shapes]:
    """Returns facts and layout; raises `ValueError` if the header is invalid."""

    def must(true: bool) -> None:
        if not true:
            raise ValueError

    must(isinstance(header, dict) and header.keys() == {"facts", "arrays"})
    facts, arrays = header["facts"], header["arrays"]
    names = {"episode", "lengths"} if without_identity else set(Facts._fields)
    must(isinstance(facts, dict) and facts.keys() == names and isinstance(arrays, list))
    must(isinstance(facts["lengths"], dict) and all(map(_is_count, [facts["episode"], *facts["lengths"].values()])))
    must(without_identity or isinstance(facts["identity"], dict))
    layout = []
    for each in arrays:
        must(isinstance(each, list) and len(each) == 2 and each[0] in KINDS and isinstance(each[1], list))
        must(len(each[1]) <= DIMENSIONS and all(map(_is_count, each[1])))
        must(math.prod(max(size, 1) for size in each[1]) < 2**60)  # or NumPy cannot have such an array
        layout.append((each[0], tuple(each[1])))
    return Facts(**facts), layout


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**62


def newest_first(folder: Path) -> list[Path]:
    """Returns the checkpoints in a folder, newest first."""
    return sorted(folder.glob(f"*{SUFFIX}"), reverse=True)


def _is_key(leaf: Any) -> bool:
    return jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
