"""Files of learned arrays, named by their paths in the pytree, such as critics.value.weights."""

import io
import math
from pathlib import Path
from typing import Any

import jax
import numpy as np

from moca import files
from moca.config import ConfigError
from moca.deploy.files import LARGEST, read_arrays


class UnexpectedArraysError(ValueError):
    """The file contains arrays other than expected."""


def write(path: Path, learners: Any) -> Path:
    """Writes the arrays of a pytree."""
    held = io.BytesIO()
    np.savez(held, **by_path(learners))
    files.write(path, held.getbuffer())
    return path


def by_path(learners: Any) -> dict[str, Any]:
    """Returns the arrays of a pytree by their path."""
    return dict(zip(paths(learners), map(np.asarray, jax.device_get(jax.tree.leaves(learners))), strict=True))


def read(path: Path, like: Any) -> Any:
    """Returns the arrays that `write` wrote, in the structure of `like`.

    Raises:
        FileNotFoundError: If there is no such file.
        UnexpectedArraysError: If the names, shapes or dtypes differ from those of `like`.
        ConfigError: If the file cannot be read, or a number is not finite.
    """
    leaves, structure = jax.tree.flatten(like)
    size = sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in leaves)
    try:
        stored = read_arrays(path, max(size, LARGEST))
    except ValueError as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    before = "leaf000" in stored  # the names in version 0.1.0
    names = [f"leaf{number:03d}" for number in range(len(leaves))] if before else paths(like)
    wanted = {name: (leaf.shape, leaf.dtype) for name, leaf in zip(names, leaves, strict=True)}
    if {name: (array.shape, array.dtype) for name, array in stored.items()} != wanted:
        raise UnexpectedArraysError("its arrays have other names, shapes or types")
    for name, array in stored.items():
        if not np.isfinite(array).all():
            raise ConfigError(f"{path} contains numbers that are not finite, in {name}")
    return jax.tree.unflatten(structure, [stored[name] for name in names])


def paths(tree: Any) -> list[str]:
    """Returns the paths of a pytree's leaves, in order."""
    found = (jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in jax.tree.leaves_with_path(tree))
    return [path or "array" for path in found]
