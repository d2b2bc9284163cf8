"""Runs on disk: directories, display, figures and videos."""

from pathlib import Path

from moca.config import ConfigError
from moca.files import ASIDE

LAST, BEST = "last", "best"  # the policies that a loaded run uses
OVER = ("finished", "diverged")  # states in which no training is left
ENDED = ("stopped", *OVER)  # states from which training begins again; from the others it is continued
STATES = ("running", "interrupted", "stopped", "failed", "unknown", *OVER)  # stopped: by a callback


HARMLESS = {".DS_Store", ".gitignore", ".gitkeep"}  # files that an empty directory may have


def refuse_foreign(
    path: Path, kind: str = "run", marks: tuple[str, ...] = ("meta.json", "config.json"), begun: str = "lock"
) -> None:
    """Raises if a directory contains files, but not those of a run, or of another kind.

    Args:
        path: The directory; it need not exist.
        kind: What may be there.
        marks: It has at least one of these files, complete or not.
        begun: A file or an empty folder that is there before them.
    """
    if path.exists() and not path.is_dir():
        raise ConfigError(f"{path} exists and is not a directory: choose another")
    names = {each.name for each in path.iterdir()} - HARMLESS if path.is_dir() else set()
    held = path / begun
    if held.is_file() or (held.is_dir() and not any(held.iterdir())):
        names.discard(begun)
    partial = {name for name in names if name.startswith(marks) and name.endswith(ASIDE)}
    if names and not names & {*marks, *partial}:
        raise ConfigError(
            f"{path} is not empty and not a {kind} directory (it contains {min(names)}): choose an empty directory"
        )
