"""Differences between the run in a directory and the run that is asked for."""

from pathlib import Path
from typing import Any

from moca.config import Config, flatten


def clash(path: Path, held: Config, held_runs: Any, over: str, asked: Config, asked_runs: Any) -> str:
    """Returns how the run in a directory differs, or that it is over; an empty string if neither.

    Args:
        path: The directory.
        held: The settings of its run.
        held_runs: Their seeds and variations.
        over: The final state of the run; empty if steps are left.
        asked: The settings that were asked for.
        asked_runs: The seeds and variations that were asked for.
    """
    ours, theirs = flatten(asked), flatten(held)
    changed = [name for name in ours if ours[name] != theirs[name]]
    if changed or asked_runs != held_runs:
        what = f"other settings ({', '.join(changed[:3])})" if changed else "other seeds or variations"
        remove, steps = "remove it", asked.train.steps
        longer = set(changed) <= {"train.steps", "train.horizon"} and steps > held.train.steps
        if longer and asked_runs == held_runs and over != "diverged":
            remove = f"give it that total with moca train --resume {path} --steps {steps}"
        return f"with {what}: choose another directory, or {remove}"
    if over == "finished":
        total = held.train.steps
        return (
            f"and it is finished, with {total:,} steps: choose another directory, or make it longer with "
            f"moca train --resume {path} --steps N, N above {total}"
        )
    return "and all its runs diverged: choose another directory, or remove it" if over else ""
