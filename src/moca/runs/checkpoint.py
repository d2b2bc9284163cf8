"""Checkpoints that are whole or absent: one file each, written aside, synced, renamed, and hashed.

A file is a line that names the format, a line with the SHA-256 of all that follows, the length of a JSON header in
eight bytes, the header, and the arrays' bytes one after the other. Nothing in it is executed when it is read: the
header is JSON, the arrays are numbers of the kinds in `KINDS`.
"""

import hashlib
import json
import os
import struct
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from moca.config import ConfigError

MAGIC = b"moca checkpoint 1\n"  # the number is the version of the format
KINDS = (
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
)
SUFFIX, ASIDE = ".checkpoint", ".writing"


class Checkpoint(NamedTuple):
    """What a file holds: numbers about the run by name, and the arrays of a pytree in its order."""

    facts: dict[str, Any]
    arrays: list[np.ndarray]


class DamagedError(ConfigError):
    """A file that is no valid checkpoint; the message says which and why."""


def to_host(tree: Any) -> list[np.ndarray]:
    """The leaves of a pytree as arrays of their own on the host; random keys as the numbers in them.

    Copies: on a CPU an array may otherwise share the memory that the next step writes to.
    """
    leaves = [jax.random.key_data(leaf) if _is_key(leaf) else leaf for leaf in jax.tree.leaves(tree)]
    return [np.array(leaf, copy=True) for leaf in jax.device_get(leaves)]


def from_host(arrays: list[np.ndarray], like: Any) -> Any:
    """The pytree again, shaped, typed and placed as `like`; raises `DamagedError` if it does not fit."""
    leaves, structure = jax.tree.flatten(like)
    plain = [jax.eval_shape(jax.random.key_data, leaf) if _is_key(leaf) else leaf for leaf in leaves]
    if [(a.shape, a.dtype) for a in arrays] != [(p.shape, p.dtype) for p in plain]:
        raise DamagedError(
            "the checkpoint holds other arrays than this run: it is of other settings or of another version"
        )
    restored = [
        jax.random.wrap_key_data(jnp.asarray(array), impl=jax.random.key_impl(leaf)) if _is_key(leaf) else array
        for array, leaf in zip(arrays, leaves, strict=True)
    ]
    return jax.device_put(jax.tree.unflatten(structure, restored), jax.tree.map(lambda leaf: leaf.sharding, like))


def save(folder: Path, step: int, checkpoint: Checkpoint, keep: int) -> Path:
    """Writes the checkpoint of a step, then removes all but the newest `keep`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{step:012d}{SUFFIX}"
    aside = path.with_suffix(ASIDE)
    header = json.dumps(
        {"facts": checkpoint.facts, "arrays": [[a.dtype.name, list(a.shape)] for a in checkpoint.arrays]}
    ).encode()
    parts: list[Any] = [struct.pack(">Q", len(header)), header]
    parts += [np.ascontiguousarray(array).view(np.uint8).data for array in checkpoint.arrays]
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    try:
        with aside.open("wb") as file:
            file.write(MAGIC + digest.hexdigest().encode() + b"\n")
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
        _sync_folder(folder)
    except OSError:
        aside.unlink(missing_ok=True)
        raise
    for old in _newest_first(folder)[keep:]:
        old.unlink(missing_ok=True)
    return path


def load(path: Path) -> Checkpoint:
    """What a file holds; raises `DamagedError` unless every byte is as it was written."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DamagedError(f"{path} cannot be read: {error.strerror}") from None
    start = len(MAGIC) + 65
    if not content.startswith(MAGIC) or len(content) < start + 8:
        raise DamagedError(f"{path} is no checkpoint of this version")
    body = memoryview(content)[start:]
    if content[len(MAGIC) : start] != hashlib.sha256(body).hexdigest().encode() + b"\n":
        raise DamagedError(f"{path} is damaged: its bytes are not those that were written")
    (length,) = struct.unpack(">Q", body[:8])
    header = json.loads(bytes(body[8 : 8 + length]))
    arrays, offset = [], 8 + length
    for kind, shape in header["arrays"]:
        if kind not in KINDS:
            raise DamagedError(f"{path} holds an array of the unknown kind {kind!r}")
        count = int(np.prod(shape, dtype=np.int64))
        arrays.append(np.frombuffer(body, np.dtype(kind), count, offset).reshape(shape))
        offset += arrays[-1].nbytes
    return Checkpoint(header["facts"], arrays)


def newest(folder: Path) -> tuple[Checkpoint | None, list[str]]:
    """The newest valid checkpoint, if there is one, and what is wrong with newer ones.

    Removes what was left half-written.
    """
    for aside in folder.glob(f"*{ASIDE}"):
        aside.unlink(missing_ok=True)
    complaints: list[str] = []
    for path in _newest_first(folder):
        try:
            return load(path), complaints
        except DamagedError as error:
            complaints.append(str(error))
    return None, complaints


def _newest_first(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"*{SUFFIX}"), reverse=True)


def _is_key(leaf: Any) -> bool:
    return jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _sync_folder(folder: Path) -> None:
    """Has the folder's own entry on disk, so that the rename survives a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
