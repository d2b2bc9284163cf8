"""From a config to a finished run directory, and back from a directory to its policies."""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from moca import sweep
from moca.arguments import MOST
from moca.config import Config, ConfigError, as_path, override, real, shown, whole
from moca.devices import use_all_cores
from moca.divergence import CAUSES, plausible
from moca.drivers import Trainer, make_trainer
from moca.envs.check import refuse_broken
from moca.envs.environment import Environment, Spaces
from moca.envs.host import HostEnvironment
from moca.envs.named import refuse_unknown
from moca.envs.trust import import_module_of, remember, remembered
from moca.files import writing
from moca.moments import NoClosedFormError
from moca.names import OWN
from moca.runs import checkpoint, interrupts
from moca.runs.directory import LOGS, RunDirectory
from moca.runs.display import Display, label, learning_curve
from moca.runs.events import EventFile
from moca.runs.interrupts import noted
from moca.runs.run import Run


def train(
    config: Config,
    out: Path | str,
    *,
    varied: Sequence[Mapping[str, float]] = ({},),
    env: Spaces | None = None,
    trust: bool = False,
    console: Console | None = None,
    checkpoint_every: float = 60.0,
    keep: int = 2,
    overlap: bool = False,
) -> Run:
    """Trains `config.seeds` runs of every variation in one program, and leaves a run directory behind.

    Args:
        config: the settings.
        out: a directory that holds no run yet, or this very run unfinished, which then goes on.
        varied: settings by dotted name, all of them floats; each is run with every seed.
        env: the environment, if not the one the config names.
        trust: whether the config may name an environment for which a module of someone's own is imported.
        console: where progress goes; nowhere by default.
        checkpoint_every: seconds from one checkpoint to the next.
        keep: how many checkpoints are kept.
        overlap: whether one run alone learns on two CPU cores, which changes it by rounding only.

    Raises:
        InterruptedRun: after a signal that asked it to stop; the run was saved.
        DivergedRun: where every run diverged; it then stops at once.
    """
    config, out, varied = override(config, {}), as_path("out", out), sweep.points(config, varied)
    _refuse_types(env, console)
    checkpoint_every, keep = real("checkpoint_every", checkpoint_every), whole("keep", keep, 1, MOST)
    if isinstance(env, HostEnvironment) and env.name:
        config, env = override(config, {"env.name": env.name}), None  # so that the directory tells all
    seeds = [config.seed + i for i in range(config.seeds)]
    use_all_cores()  # before the check of an environment, or the directory's notes, start JAX
    if env is None:
        _import_trusted(Path(out), config, trust)
        refuse_unknown(config.env.name)
    else:
        config = override(config, {"env.name": OWN + type(env).__name__})
        if isinstance(env, Environment):
            refuse_broken(env)
    runs = [{"seed": seed, **settings} for settings in varied for seed in seeds]
    directory = RunDirectory(out)
    with directory.locked():
        directory.begin(config, runs)
        remember(directory.path, config.env.name)
        return _train(directory, env, console, checkpoint_every, keep, overlap)


def resume(
    path: Path | str,
    *,
    env: Spaces | None = None,
    trust: bool = False,
    console: Console | None = None,
    checkpoint_every: float = 60.0,
    keep: int = 2,
    overlap: bool = False,
) -> Run:
    """Goes on with the unfinished run in that directory, from its newest valid checkpoint; arguments as for `train`."""
    _refuse_types(env, console)
    checkpoint_every, keep = real("checkpoint_every", checkpoint_every), whole("keep", keep, 1, MOST)
    directory = RunDirectory.open(as_path("path", path))
    _import_trusted(directory.path, directory.config, trust)
    use_all_cores()
    with directory.locked():
        directory.refuse_other(directory.config, directory.runs)
        return _train(directory, env, console, checkpoint_every, keep, overlap)


def _train(
    directory: RunDirectory,
    env: Spaces | None,
    console: Console | None,
    checkpoint_every: float,
    keep: int,
    overlap: bool,
) -> Run:
    """Trains the runs of a directory that is locked to the end, from wherever they stand."""
    console = console or Console(quiet=True)
    run = Run(directory, env)
    run.refuse_without_env()
    config, runs = directory.config, directory.runs

    step = directory.status["step"]

    def leave(signal: str) -> None:
        directory.write_status("interrupted", step)
        print(f"\nstopped by {signal} while compiling; go on with: moca train --resume {directory.path}")

    with noted() as request:
        with request.at_once(leave):
            trainer = make_trainer(run.configs, [int(each["seed"]) for each in runs], env, overlap)
            _go_back_to_checkpoint(trainer, directory, console)
            limit, length = getattr(trainer.env, "limit", None), config.env.episode_length
            if limit and limit != length:
                console.print(
                    f"note: its episodes end by themselves after {limit} steps, and env.episode_length is {length}: "
                    f"what training counts as one is several, or a part of one, unless that is set to {limit}"
                )
            started = time.perf_counter()
            with console.status("Compiling the training program (half a minute, once) …"):
                try:
                    trainer.compile()
                except NoClosedFormError as error:
                    raise ConfigError(
                        f"agent = {config.agent} with value.kind = {config.value.kind}: {error}"
                    ) from None
        console.print(
            f"compiled in {time.perf_counter() - started:.0f} s; training {len(runs)} run{'s' * (len(runs) > 1)}"
        )
        _follow(trainer, directory, console, _Saver(trainer, directory, checkpoint_every, keep), request)
    title = f"{config.agent} on {config.env.name.removeprefix(OWN)}, {config.noise.kind} σ = {config.noise.sigma:g}"
    with writing(f"a figure to {directory.path}"):
        learning_curve(directory.rows(), _points(directory), title, directory.path / "figures")
    return run


def _go_back_to_checkpoint(trainer: Trainer, directory: RunDirectory, console: Console) -> None:
    """Puts the trainer and the logs where the newest valid checkpoint has them, or at the start if there is none."""

    def accept(path: Path, found: checkpoint.Checkpoint) -> None:
        episode, lengths, identity = found.facts
        if identity != directory.meta.get("identity"):
            raise ConfigError(f"{path} is a checkpoint of another run: remove it")
        if path.stem != f"{episode * trainer.config.env.episode_length:012d}" or episode > trainer.episodes:
            raise checkpoint.DamagedError(f"{path} is of another step than its name says")
        if lengths.keys() != set(LOGS):
            raise checkpoint.DamagedError(f"{path} is damaged: it counts on other logs than a run has")
        if short := directory.ends_a_row(lengths):
            raise checkpoint.DamagedError(f"{path} counts on rows that {short} has not")
        try:
            steps = [row["step"] for row in directory.rows(lengths["metrics.jsonl"])]
        except ConfigError as error:
            raise checkpoint.DamagedError(f"{path} counts on rows that are damaged: {error}") from None
        length, runs = trainer.config.env.episode_length, len(directory.runs)
        if steps != [length * (1 + number // runs) for number in range(episode * runs)]:
            raise checkpoint.DamagedError(f"{path} counts on other rows than metrics.jsonl has")
        if not plausible(checkpoint.unflatten(found.arrays, trainer.state)):
            raise checkpoint.DamagedError(f"{path} holds numbers that no run can have")

    found, complaints = checkpoint.newest(directory.checkpoints, checkpoint.layout(trainer.state), accept)
    for number, complaint in enumerate(complaints, 1):
        back = "going back to the one before" if found or number < len(complaints) else "starting over"
        console.print(f"{complaint}; {back}", markup=False, soft_wrap=True)
    if found is None:
        directory.cut(dict.fromkeys(LOGS, 0))
        return
    trainer.state = checkpoint.from_host(found.arrays, trainer.state)
    trainer.episode = found.facts.episode
    directory.cut(found.facts.lengths)
    console.print(f"going on from step {trainer.episode * trainer.config.env.episode_length:,}")


class _Saver:
    """Saves the trainer from time to time, in a thread of its own so that training does not wait for the disk."""

    def __init__(self, trainer: Trainer, directory: RunDirectory, every: float, keep: int) -> None:
        self._trainer, self._directory, self._every, self._keep = trainer, directory, every, keep
        self._thread = ThreadPoolExecutor(1)
        self._pending: Future | None = None
        self._last = time.perf_counter()

    def save_if_due(self) -> None:
        """Begins a save if the last is long enough ago and done; raises what it failed with."""
        if time.perf_counter() - self._last >= self._every and (self._pending is None or self._pending.done()):
            self.save()

    def save(self) -> None:
        """Begins a save, after the one before has ended."""
        self.wait()
        trainer, directory = self._trainer, self._directory
        facts = checkpoint.Facts(trainer.episode, directory.lengths(), directory.meta.get("identity"))
        held = checkpoint.Checkpoint(facts, checkpoint.to_host(trainer.state))
        step = trainer.episode * trainer.config.env.episode_length

        def write() -> None:
            directory.sync()  # the logs, which the checkpoint counts on
            checkpoint.save(directory.checkpoints, step, held, self._keep)

        self._pending = self._thread.submit(write)
        self._last = time.perf_counter()

    def wait(self) -> None:
        """Returns when nothing is being written; raises if that failed."""
        pending, self._pending = self._pending, None
        with writing(f"a checkpoint to {self._directory.path}"):
            if pending is not None:
                pending.result()


def load(path: Path | str, env: Spaces | None = None, *, trust: bool = False) -> Run:
    """The run in that directory; one trained on an environment of your own needs that environment again.

    With `trust` it may name an environment for which a module of someone's own is imported.
    """
    _refuse_types(env)
    directory = RunDirectory.open(as_path("path", path))
    _import_trusted(directory.path, directory.config, trust)
    return Run(directory, env)


def _import_trusted(path: Path, config: Config, trust: bool) -> None:
    """Imports the module that an environment's name asks for, if the user said so or made that directory."""
    if trust or remembered(path, config.env.name):
        import_module_of(config.env.name)


def _refuse_types(env: Any, console: Any = None) -> None:
    """Raises unless these are what they should be, or None."""
    if env is not None and not isinstance(env, Spaces):
        raise ConfigError(
            f"env = {shown(env)} must be an environment, as an object of one of moca's classes for them, or None"
        )
    if console is not None and not isinstance(console, Console):
        raise ConfigError(f"console must be a rich.console.Console, or None, got {shown(console)}")


def _follow(
    trainer: Trainer, directory: RunDirectory, console: Console, saver: _Saver, request: interrupts.Request
) -> None:
    """Trains to the end, or until it is asked to stop; then all there is has been saved."""
    length, points, runs = trainer.config.env.episode_length, _points(directory), len(directory.runs)
    display = Display(console, trainer.config.train.steps, runs, trainer.episode * length)
    state, all_diverged = "failed", False
    try:
        with writing(f"to {directory.path}"):
            purge = trainer.episode * length + 1 if trainer.episode else None
            folder = directory.path / "tensorboard"
            events = [EventFile(folder / label(point).replace(" ", ""), purge) for point in points]
        directory.write_status("running", trainer.episode * length)
        with display.live():
            before = time.perf_counter()
            for report in trainer:
                now = time.perf_counter()
                directory.append(report, now - before)
                display.update(report, now - before, length)
                for number, event in enumerate(events):
                    own = {name: values.reshape(len(points), -1)[number] for name, values in report.metrics.items()}
                    scalars = {name: float(np.nanmean(v)) for name, v in own.items() if np.isfinite(v).any()}
                    with writing(f"to {directory.path}"):
                        event.add(report.step, scalars)
                all_diverged = bool((report.metrics["diverged"] > 0).all())
                saver.save_if_due()
                before = time.perf_counter()
                if request or all_diverged:
                    break
        saver.save()
        saver.wait()
        if trainer.episode == trainer.episodes or all_diverged:
            directory.save_policy(trainer.learners)
        ended = "finished" if trainer.episode == trainer.episodes else "interrupted"
        state = "diverged" if all_diverged else ended
    finally:
        diverged = _diverged(directory)
        directory.write_status(state, trainer.episode * length, diverged)
    for run in diverged:
        console.print(f"seed {run['seed']} diverged in the episode that ended at step {run['step']:,}: {run['cause']}")
    if state == "interrupted":
        raise interrupts.InterruptedRun(
            f"stopped by {request.name} at step {trainer.episode * length:,}; "
            f"go on with: moca train --resume {directory.path}"
        )
    if state == "diverged":
        last = diverged[-1]
        raise interrupts.DivergedRun(
            f"{'every run' if runs > 1 else 'the run'} diverged, the last one (seed {last['seed']}) by step "
            f"{last['step']:,}: {last['cause']}; what was learned until then is in {directory.path}"
        )


def _diverged(directory: RunDirectory) -> list[dict[str, Any]]:
    """Each run that was given up, with the step at the end of the episode in which it was, and why."""
    found: dict[int, dict[str, Any]] = {}
    for number, row in enumerate(directory.rows()):
        run = number % len(directory.runs)
        if row["diverged"]:
            found.setdefault(run, {**directory.runs[run], "step": row["step"], "cause": CAUSES[int(row["diverged"])]})
    return list(found.values())


def _points(directory: RunDirectory) -> list[dict[str, float]]:
    """The variations of a directory's runs, each once and in order."""
    return [dict(items) for items in dict.fromkeys(tuple(_settings(run).items()) for run in directory.runs)]


def _settings(run: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in run.items() if name != "seed"}
