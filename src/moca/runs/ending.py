"""The end of training: what is printed, and which error is raised."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from rich.console import Console

from moca.divergence import CAUSES
from moca.drivers import Trainer
from moca.envs.trust import resuming
from moca.runs import BEST, before, interrupts
from moca.runs.callbacks import Callback, Training, read_scores
from moca.runs.directory import RunDirectory
from moca.runs.display import working
from moca.runs.run import Run


def stop(run: Run, callback: Callback, step: int, doing: str, signal: str) -> None:
    """Notes and prints that a signal ended the process while it was `doing` something."""
    run.directory.write_status("interrupted", step)
    print(f"\nstopped by {signal} while {doing}; resume with: {again(run, callback)}")


def end(
    callback: Callback, training: Training, interrupted: bool, console: Console, request: interrupts.Request
) -> None:
    """Ends the callback. While it compares policies, a signal keeps the newest and exits."""

    def leave(signal: str) -> None:
        callback.end(training, interrupted=True)
        stop(training.run, callback, training.step, "comparing policies", signal)

    if interrupted or not callback.ending:
        callback.end(training, interrupted)
        return
    with working(console, callback.ending), request.at_once(leave):
        callback.end(training, interrupted=False)


def conclude(
    trainer: Trainer, run: Run, console: Console, signal: str, state: str, diverged: list[Any], callback: Callback
) -> None:
    """Prints how training ended; raises if it was interrupted or diverged."""
    step = trainer.step
    for lost in diverged:
        console.print(
            f"seed {lost['seed']} diverged in the episode that ended at step {lost['step']:,}: {lost['cause']}"
        )
    if state == "stopped":
        console.print(f"stopped by a callback at step {step:,}{callback.reason and f': {callback.reason}'}")
    if state in ("stopped", "finished"):
        for sentence in _scores(run, callback):
            console.print(sentence)
    if state == "interrupted":
        raise interrupts.InterruptedRun(f"stopped by {signal} at step {step:,}; resume with: {again(run, callback)}")
    if state == "diverged":
        last, seed = diverged[-1], f"(seed {diverged[-1]['seed']})"
        which = (
            f"every run diverged, the last one {seed}" if len(run.directory.runs) > 1 else f"the run {seed} diverged"
        )
        raise interrupts.DivergedRun(
            f"{which} by step {last['step']:,}: {last['cause']}; what was learned before "
            f"is in {run.path}{before.advice(last['cause'], trainer.env, run.config)}"
        )


def again(run: Run, callback: Callback) -> str:
    """Returns the command that resumes a run."""
    kept = (run.path / f"{BEST}.json").exists()  # it then goes on keeping the best policies by itself
    options = [each for each in callback.options.split() if not (kept and each == "--keep-best")]
    return " ".join([resuming(run.path, run.config.env.name), *options])


def _scores(run: Run, callback: Callback) -> Iterator[str]:
    """Yields the last evaluation and, if they were kept, the scores of the best policies."""
    several = f", mean of {len(run.directory.runs)} runs" * (len(run.directory.runs) > 1)
    evaluated = [row for row in run.rows if row.get("return_mean") is not None]
    if evaluated:
        last = [row["return_mean"] for row in evaluated if row["step"] == evaluated[-1]["step"]]
        many = run.config.train.eval_episodes
        found = f"return {np.mean(last):.1f} over {many} episode{'s' * (many > 1)}"
        yield f"last evaluation: {found}, at step {evaluated[-1]['step']:,}{several}"
    kept = read_scores(run) if callback.keeps_best and (run.path / f"{BEST}.json").exists() else []
    if best := [row for row in kept if row["return_mean"] is not None]:
        yield _best(best, several)


def _best(scores: list[dict[str, Any]], several: str) -> str:
    """Returns the highest score of the best policies as text, with its interval and step."""
    top = max(scores, key=lambda row: row["return_mean"])
    interval = "" if top.get("interval") is None else f" ± {top['interval']:.2g} (95 %)"
    found = f"return {top['return_mean']:.1f}{interval} over {top['episodes']} new episodes, at step {top['step']:,}"
    means = [row["return_mean"] for row in scores]
    lasts = [row["last"] for row in scores if row.get("last") is not None]
    plural, owner = ("ies", "policies have") if several else ("y", "policy has")
    differ = lasts != means and len(lasts) == len(means)
    same = f"; over the same episodes the last {owner} {np.mean(lasts):.1f}" if differ else ""
    if several:
        found = f"return {np.mean(means):.1f}{several}; the highest: {found} (seed {top['seed']})"
    return f"best polic{plural}: {found}, used by --which best{same}"


def diverged_runs(directory: RunDirectory) -> list[dict[str, Any]]:
    """Returns each diverged run, with the last step of that episode, and the cause."""
    found: dict[int, dict[str, Any]] = {}
    for number, row in enumerate(directory.rows()):
        run = number % len(directory.runs)
        if row["diverged"]:
            found.setdefault(run, {**directory.runs[run], "step": row["step"], "cause": CAUSES[int(row["diverged"])]})
    return list(found.values())
