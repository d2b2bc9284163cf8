"""Differences between the run in a directory and the run that is asked for."""

from pathlib import Path
from typing import Any

from moca.config import Config, flatten
from moca.envs.trust import resuming


def clash(path: Path, held: Config, first: Config, held_runs: Any, over: str, asked: Config, asked_runs: Any) -> str:
    """Returns how the run in a directory differs, or that it is over; an empty string if neither.

    Args:
        path: The directory.
        held: The settings of its run.
        first: The same as first asked for: the run may have been given another total since.
        held_runs: Their seeds and variations.
        over: The final state of the run; empty if steps are left.
        asked: The settings that were asked for.
        asked_runs: The seeds and variations that were asked for.
    """
    has = f"{path} already has a run,"
    known = [flatten(held), flatten(first), {"train.horizon": first.train.scheduled_steps}]
    other = [name for name, value in flatten(asked).items() if all(each.get(name, ...) != value for each in known)]
    steps, total, again = asked.train.steps, held.train.steps, resuming(path, held.env.name)
    if asked_runs != held_runs and not other:
        return f"{has} with other seeds or variations: choose another directory"
    if asked_runs != held_runs or set(other) - {"train.steps"}:
        return f"{has} with other settings ({', '.join(other[:3])}): choose another directory"
    if over == "diverged":
        return f"{has} and all its runs diverged: choose another directory"
    if steps > total:
        return (
            f"{has} with other settings (train.steps): choose another directory, or give it that total with "
            f"{again} --steps {steps}"
        )
    if asked != held and held == first:
        return f"{has} with other settings (train.steps): choose another directory"
    if over == "finished" and asked == held:
        return (
            f"{has} and it is finished, with {total:,} steps: choose another directory, or make it longer with "
            f"{again} --steps N, N above {total}"
        )
    if over == "finished":
        return f"{path} is this run, finished with {total:,} steps; for more: {again} --steps N, N above {total}"
    made = "made longer to" if total > first.train.steps else "now of"
    return f"{path} is this run, {made} {total:,} steps: {again}" if asked != held else ""
