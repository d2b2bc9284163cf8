"""Runs on disk: their directory, their display, their pictures and films."""

from pathlib import Path

from moca.config import ConfigError
from moca.files import ASIDE

LAST, BEST = "last", "best"  # which of its policies a run answers with
OVER = ("finished", "diverged")  # states in which nothing is left to do
STATES = ("running", "interrupted", "stopped", "failed", "unknown", *OVER)  # stopped: by a callback


def refuse_foreign(path: Path) -> None:
    """Raises where a directory holds files, but none that a run leaves there as it begins."""
    if not path.is_dir():
        return
    names = {each.name for each in path.iterdir() if not each.name.startswith(".")}
    ours = ("lock", "meta.json", "config.json", "status.json", "metrics.jsonl", "policy.npz", "checkpoints")
    if names and not names & {*ours, *(name + ASIDE for name in ours)}:
        raise ConfigError(
            f"{path} is not empty and holds no run, but {min(names)}: choose another directory, or an empty one"
        )
