"""Training: from a config to a finished run directory."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console

from moca import sweep
from moca.arguments import MOST
from moca.config import Config, ConfigError, as_path, may_be_on_host, override, real, shown, whole
from moca.devices import is_caching
from moca.drivers import Schedule, Trainer, make_trainer
from moca.envs.defaults import found_in_trials
from moca.envs.environment import Spaces
from moca.envs.host import HostEnvironment
from moca.envs.named import as_environment
from moca.envs.trust import remember
from moca.moments import NoClosedFormError
from moca.runs import before, interrupts, policies, starting
from moca.runs.callbacks import Callback, Training, as_callback, keeping_best, refuse_other_scores, stops
from moca.runs.directory import RunDirectory
from moca.runs.display import Display, learning_curve, make_console, title, working
from moca.runs.ending import conclude, diverged_runs, end, stop
from moca.runs.events import EventFile
from moca.runs.run import Run, refuse_other_env
from moca.runs.saving import Saver, go_back_to_checkpoint


def train(
    config: Config,
    out: Path | str,
    *,
    varied: Sequence[Mapping[str, float]] = ({},),
    env: Spaces | None = None,
    start: Run | None = None,
    preset: str | None = None,
    trust: bool = False,
    console: Console | bool | None = None,
    callback: Any = None,
    checkpoint_every: float = 60.0,
    keep: int = 2,
    overlap: bool = False,
) -> Run:
    """Trains `config.seeds` runs of every variation in one program, and writes a run directory.

    Args:
        config: The settings.
        out: A directory without a run, or with this run unfinished, which is then resumed.
        varied: Variations: float settings by dotted name. Each is run with every seed.
        env: The environment, if not the one named in the config.
        start: A run whose weights to start from; if it has fewer runs, some are used several times.
        preset: The name of the preset that the config was made from, to be noted in meta.json.
        trust: Whether the config may name an environment that imports a user's module.
        console: Where to show progress; nowhere by default, on standard output if True.
        callback: A function of each episode's `Training`, a `Callback`, or a list; False stops.
        checkpoint_every: Seconds between checkpoints.
        keep: Number of checkpoints to keep.
        overlap: Train a single run on two CPU cores, which changes results by rounding only.

    Raises:
        InterruptedRun: After a signal; the run has been saved.
        DivergedRun: If every run diverged; training stops at once.
    """
    config, out, varied = override(config, {}), as_path("out", out), sweep.points(config, varied)
    env = as_environment(env, config.env.flatten)
    options = _checked(env, console, callback, checkpoint_every, keep)
    plan = before.begin(config, out, varied, env, start=start, trust=trust, overlap=overlap)
    for note in plan.notes:
        options.console.print(f"note: {note}", markup=False, soft_wrap=True)
    directory = RunDirectory(out)
    with directory.locked():
        directory.begin(plan.config, plan.runs, start.path if start else None, preset)
        remember(directory.path, plan.config.env.name)
        starting.keep(directory, start)
        return _train(directory, plan.env, overlap, options)


def resume(
    path: Path | str,
    *,
    steps: int | None = None,
    env: Spaces | None = None,
    trust: bool = False,
    console: Console | bool | None = None,
    callback: Any = None,
    checkpoint_every: float = 60.0,
    keep: int = 2,
    overlap: bool = False,
) -> Run:
    """Resumes the run in a directory from its newest valid checkpoint; arguments as for `train`.

    Args:
        path: The run directory.
        steps: A new total of environment steps, to extend the run, even a finished one. Learning
            rates and exploration then keep their final values. It may be below the planned total
            if a callback stopped the run.
    """
    options = _checked(env, console, callback, checkpoint_every, keep)
    directory = RunDirectory.open(as_path("path", path))
    env = as_environment(env, directory.config.env.flatten)
    steps = None if steps is None else whole("steps", steps, 1)
    before.resume(directory, steps, env, trust=trust, overlap=overlap)
    with directory.locked():
        if steps is not None:
            directory.extend(steps)
        directory.refuse_other(directory.config, directory.runs)
        return _train(directory, env, overlap, options)


class _Options(NamedTuple):
    """Options of a run besides training."""

    console: Console
    callback: Callback
    checkpoint_every: float
    keep: int


def _checked(env: Any, console: Any, callback: Any, checkpoint_every: Any, keep: Any) -> _Options:
    """Returns the options; raises if one is invalid."""
    refuse_other_env(env)
    if not isinstance(console, Console | bool | None):
        raise ConfigError(f"console must be a rich.console.Console, True or False, got {shown(console)}")
    if not isinstance(console, Console):
        console = make_console(quiet=not console)
    return _Options(
        console, as_callback(callback), real("checkpoint_every", checkpoint_every), whole("keep", keep, 1, MOST)
    )


def _train(directory: RunDirectory, env: Spaces | None, overlap: bool, options: _Options) -> Run:
    """Trains the runs of a locked directory to the end, from their current state."""
    console = options.console
    run = Run(directory, env)
    run.refuse_without_env()
    refuse_other_scores(options.callback, run)
    callback, config, runs, step = options.callback, directory.config, directory.runs, directory.status["step"]

    def leave(signal: str) -> None:
        stop(run, callback, step, "compiling", signal)

    with interrupts.noted() as request:
        with request.at_once(leave):
            with working(console, "Loading the environment and initialising the agents …"):
                seeds = [int(each["seed"]) for each in runs]
                trainer = make_trainer(directory.configs, seeds, env, overlap)
                trainer.schedule = Schedule(config.env.episode_length, directory.totals)
                candidates = go_back_to_checkpoint(trainer, directory, console)
                callback = keeping_best(callback, run, bool(candidates), console)
                callback.take(candidates, trainer.learners)
                step = trainer.step
                directory.note_start(step)
            for sentence in _reconciled(config, trainer.env, sum(directory.totals[-2:-1])):
                console.print(f"note: {sentence}")
            started = time.perf_counter()
            cached = " (cached for the next run with these settings)" * is_caching()
            with working(console, f"Compiling{cached} …"):
                try:
                    trainer.compile()
                except NoClosedFormError as error:
                    raise ConfigError(
                        f"agent = {config.agent} with value.kind = {config.value.kind}: {error}"
                    ) from None
            trainer.while_compiling = partial(_compiling_later, console, request, leave)
        console.print(
            f"{trainer.ready} in {time.perf_counter() - started:.0f} s; training {len(runs)} run{'s' * (len(runs) > 1)}"
        )
        saver = Saver(trainer, directory, options.checkpoint_every, options.keep, callback.candidates)
        _follow(trainer, run, console, saver, callback, request)
    with directory.writing("a figure "):
        learning_curve(directory.rows(), directory.points, title(config, directory.points), directory.path / "figures")
    return run


@contextmanager
def _compiling_later(console: Console, request: interrupts.Request, on_signal: Callable[[str], None]) -> Iterator[None]:
    """Prints a note and lets signals end the process while the remaining programs compile."""
    console.print("compiling the programs for the end of an episode …")
    with request.at_once(on_signal):
        yield


def _reconciled(config: Config, where: Spaces, begun: int = 0) -> Iterator[str]:
    """Yields notes on lengths on the host, such as one that is not a multiple of another.

    An extended run has `begun` steps before the extension, whose episodes are counted from there.
    """
    env, steps = config.env, config.train.steps
    length, repeat, limit = env.episode_length, env.action_repeat, getattr(where, "limit", None)
    if isinstance(where, HostEnvironment) and repeat > 1:
        yield f"every action is repeated for {repeat} steps (env.action_repeat = {repeat})"
    unlimited = isinstance(where, HostEnvironment) and may_be_on_host(env.name) and not limit
    if unlimited and found_in_trials(where.title, length):
        yield f"trial episodes were cut off after {length} steps, used as the time limit (env.episode_length)"
    elif unlimited:
        yield f"the environment declares no time limit: an episode has {length} steps (env.episode_length = {length})"
    if limit and limit != length:
        yield (
            f"the environment ends its episodes after {limit} steps, but env.episode_length is {length}: episodes in "
            f"training do not match those of the environment unless env.episode_length is {limit}"
        )
    if rest := length % repeat:
        yield (
            f"env.action_repeat = {repeat} does not divide env.episode_length = {length}: the last decision of an "
            f"episode counts as {rest} step{'s' * (rest > 1)}"
        )
    if rest := (steps - begun) % length:
        those = f"the steps from {begun} to {steps} are" if begun else f"train.steps = {steps} is"
        many = f"{rest} step{'s' * (rest > 1)}"
        yield f"{those} not a multiple of env.episode_length = {length}: the last episode has {many}"


def _follow(
    trainer: Trainer, run: Run, console: Console, saver: Saver, callback: Callback, request: interrupts.Request
) -> None:
    """Trains to the end or until stopped; everything has been saved when it returns."""
    directory = run.directory
    points, runs, behind = directory.points, len(directory.runs), trainer.step
    config = trainer.config.train
    display = Display(console, config.steps, runs, trainer.step, config.warmup)
    state, all_diverged, training = "failed", False, None
    policies.renew(run, trainer)
    try:
        stopped = stops(callback.start(run))
    except BaseException:
        policies.renew(run, None)
        raise
    try:
        with directory.writing():
            purge = trainer.step + 1 if trainer.step else None
            folder = directory.path / "tensorboard"
            events = [EventFile(folder / sweep.label(point).replace(" ", ""), purge) for point in points]
        directory.write_status("running", trainer.step)
        with display.live():
            before = time.perf_counter()
            for report in () if stopped else trainer:
                now = time.perf_counter()
                directory.append(report, now - before)
                display.update(report, now - before, report.step - behind)
                behind = report.step
                for number, event in enumerate(events):
                    own = {name: values.reshape(len(points), -1)[number] for name, values in report.metrics.items()}
                    scalars = {name: float(np.nanmean(v)) for name, v in own.items() if np.isfinite(v).any()}
                    with directory.writing():
                        event.add(report.step, scalars)
                all_diverged = bool((report.metrics["diverged"] > 0).all())
                policies.renew(run, trainer)
                training = Training(report.step, report.metrics, trainer.learners, run)
                stopped = stops(callback(training))
                saver.save_if_due()  # with what the callback has made of this episode
                before = time.perf_counter()
                if request or all_diverged or stopped:
                    break
        saver.save()
        saver.wait()
        at_end = trainer.episode == trainer.episodes
        if at_end or all_diverged or stopped:
            directory.save_policy(trainer.learners)
        ended = "finished" if at_end else "stopped" if stopped else "interrupted"
        training = training or Training(trainer.step, {}, trainer.learners, run)
        end(callback, training, ended == "interrupted", console, request)
        if callback.keeps_best and ended != "interrupted":
            saver.save()  # with the policies that were kept as the only candidates
            saver.wait()
        state = "diverged" if all_diverged else ended
    finally:
        policies.renew(run, None)
        diverged = diverged_runs(directory)
        directory.write_status(state, trainer.step, diverged)
    conclude(trainer, run, console, f"{request.name}", state, diverged, callback)
