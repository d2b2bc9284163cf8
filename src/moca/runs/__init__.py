"""Runs on disk: directories, display, figures and videos."""

from pathlib import Path

from moca.config import ConfigError
from moca.files import ASIDE

LAST, BEST = "last", "best"  # the policies that a loaded run uses
OVER = ("finished", "diverged")  # states in which no training is left
STATES = ("running", "interrupted", "stopped", "failed", "unknown", *OVER)  # stopped: by a callback


def refuse_foreign(path: Path) -> None:
    """Raises if a directory contains files, but not those of a run."""
    if not path.is_dir():
        return
    names = {each.name for each in path.iterdir() if not each.name.startswith(".")}
    ours = ("lock", "meta.json", "config.json", "status.json", "metrics.jsonl", "policy.npz", "checkpoints")
    if names and not names & {*ours, *(name + ASIDE for name in ours)}:
        raise ConfigError(
            f"{path} is not empty and not a run directory (it contains {min(names)}): choose an empty directory"
        )
