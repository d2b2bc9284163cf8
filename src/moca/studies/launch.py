"""Launchers that run the jobs of a study: in local processes, or on a Ray cluster.

A job is one run directory. A finished job is never run again, and an interrupted one resumes from
its checkpoint, whichever launcher started it.
"""

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from moca.config import ConfigError
from moca.envs.trust import SAFE_PATH, remember
from moca.extending import PLUGINS, import_plugins, plugins
from moca.files import DiskError, open_to_append, refuse_odd, save, writing
from moca.runs import lock
from moca.runs.interrupts import RESUMABLE, InterruptedRun, noted, own_process
from moca.runs.lock import InHandError
from moca.studies import grid, results
from moca.studies.display import Board
from moca.studies.grid import Grid, Job

TRIES = 3  # attempts for a job whose process dies
IN_HAND = 76  # exit code if another process already trains the job
POLL = 0.2  # seconds
Failures = dict[str, ConfigError]  # the errors of failed jobs, by name
_PREALLOCATE = "XLA_PYTHON_CLIENT_PREALLOCATE"  # so that several processes can share a GPU


@dataclass(frozen=True)
class Options:
    """Options of the launchers."""

    parallel: int = 1  # jobs at a time
    device: str | None = None
    checkpoint_every: float = 120.0
    ray_address: str | None = None
    trust: bool = False  # whether the plan may name environments that import a user's module


def study(
    plan: Grid,
    directory: Path | str,
    *,
    launcher: str = "local",
    options: Options | None = None,
    console: Console | None = None,
) -> Path:
    """Runs the unfinished jobs of a study; returns the path of its table of results.

    Raises:
        InterruptedRun: After a signal; every running job has been saved.
        ConfigError: If jobs failed, or a `DiskError` if the disk was the reason. The results of the
            other jobs have been collected.
    """
    directory, console, options = Path(directory), console or Console(quiet=True), options or Options()
    jobs = grid.plan(plan)
    prepare(directory, plan, options.trust)
    board = Board(console, directory, jobs)
    with board.live():
        failed, stopped_by = {"local": _local, "ray": _ray}[launcher](directory, jobs, options, board)
    left = [job.name for job in jobs if not results.finished(directory, job)]
    table = results.collect(directory, jobs) if len(left) < len(jobs) else None
    if failed:
        texts = "; ".join(f"{name}: {why}" for name, why in failed.items())
        where = f". The finished jobs are in {table}" if table else ""
        kind = next((DiskError for why in failed.values() if isinstance(why, DiskError)), ConfigError)
        raise kind(f"{len(failed)} of {len(jobs)} jobs failed: {texts}{where}")
    if left:
        raise InterruptedRun(f"stopped by {stopped_by}; run the same command to resume")
    cells = directory / results.CELLS
    if missing := [job.name for job in jobs if job.filmed and not (cells / job.name / results.FILM).exists()]:
        again, videos = " or ".join(f"--only {name}" for name in missing), "video" if len(missing) == 1 else "videos"
        console.print(f"{len(missing)} {videos} could not be made; run the same command with {again} to see the error")
    return directory / results.TABLE


def prepare(directory: Path, plan: Grid, trust: bool = False) -> None:
    """Creates the study's directory and records trust; raises if it has something else."""
    results.refuse_other(directory, plan)
    text = grid.to_json(plan)
    with writing(f"to {directory}"):
        (directory / results.CELLS).mkdir(parents=True, exist_ok=True)
        with _alone(directory / results.CELLS):
            if not (directory / results.PLAN).exists():
                save(directory / results.PLAN, (text + "\n").encode())
    results.refuse_other(directory, plan)
    for block in plan.blocks if trust else ():
        remember(directory, block.env)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Waits until no other process is in such a block, so that only one study writes its plan."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _local(directory: Path, jobs: Sequence[Job], options: Options, board: Board) -> tuple[Failures, str | None]:
    """Runs each job in a process, `parallel` at a time; returns the errors and the signal received.

    A process that dies is restarted. A job that another process is training is left to that
    process.
    """
    waiting = [job for job in jobs if not results.finished(directory, job)]
    running: dict[str, tuple[Job, subprocess.Popen]] = {}
    deaths = dict.fromkeys((job.name for job in waiting), 0)
    failed: Failures = {}
    with noted() as request:
        try:
            while waiting or running:
                if request:
                    waiting.clear()
                    for _, process in running.values():
                        process.send_signal(signal.SIGTERM)
                free = [job for job in waiting if not _in_hand(directory, job)]
                for job in free[: max(0, options.parallel - len(running))]:
                    waiting.remove(job)
                    if not results.finished(directory, job):
                        running[job.name] = job, _start(directory, job, options)
                for name, (job, process) in list(running.items()):
                    if (code := process.poll()) is None:
                        continue
                    del running[name]
                    process.communicate()  # closes its pipes
                    deaths[name] += code < 0
                    if results.finished(directory, job) or request:
                        continue
                    if code in (RESUMABLE, IN_HAND):  # that process alone was stopped, or another one has the job
                        waiting.append(job)
                    elif code < 0 and deaths[name] < TRIES:
                        board.note(f"{name}: its process was killed by signal {-code}; restarting it")
                        waiting.insert(0, job)
                    else:
                        why = _last_line(directory, name) or f"exit code {code}"
                        why = f"killed by signal {-code}, {TRIES} times (out of memory?)" if code < 0 else why
                        failed[name] = (DiskError if code == DiskError.code else ConfigError)(why)
                        board.note(f"{name} failed: {failed[name]}")
                board.refresh(running)
                time.sleep(POLL)
        finally:
            for _, process in running.values():
                process.kill()
                process.communicate()
        return failed, request.name


def _start(directory: Path, job: Job, options: Options) -> subprocess.Popen:
    """Starts a process that runs one job; it stops when its standard input closes."""
    command = [
        sys.executable, "-m", "moca.studies.launch", str(directory), job.name,
        str(options.checkpoint_every), options.device or "any", *(["trust"] if options.trust else []),
    ]  # fmt: skip
    environment = os.environ | SAFE_PATH
    if options.parallel > 1:
        environment.setdefault(_PREALLOCATE, "false")
    path = _log(directory, job.name)
    refuse_odd(path)
    with writing(f"to {path}"):
        log = open_to_append(path)
    try:
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment, start_new_session=True
        )
    finally:
        os.close(log)


def _log(directory: Path, name: str) -> Path:
    return directory / results.CELLS / f"{name}.log"


def _last_line(directory: Path, name: str) -> str:
    lines = [line for line in _log(directory, name).read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""


def _in_hand(directory: Path, job: Job) -> bool:
    """Returns True if a process is training in the job's directory."""
    return bool(lock.owner(directory / results.CELLS / job.name))


def _ray(directory: Path, jobs: Sequence[Job], options: Options, board: Board) -> tuple[Failures, str | None]:
    """Runs each job as a task of a Ray cluster, with retries; returns the same as `_local`.

    A job gets a GPU or a share of one if the cluster has any, else a share of the CPUs. If workers
    do not share the file system with this process, results are returned by the task.
    """
    ray = import_ray()
    waiting = [job for job in jobs if not results.finished(directory, job)]
    failed: Failures = {}
    with _cluster(ray, options.ray_address), noted() as request:  # after Ray, which sets its own signal handlers
        resources = ray.cluster_resources()
        share: dict[str, Any]
        if resources.get("GPU"):
            share = {"num_gpus": 1 / options.parallel, "num_cpus": 1}
        else:
            nodes = [node["Resources"]["CPU"] for node in ray.nodes() if node["Alive"] and "CPU" in node["Resources"]]
            share = {"num_cpus": max(1, int(min(nodes, default=1)) // options.parallel)}
        passed = {_PREALLOCATE: os.environ[_PREALLOCATE]} if _PREALLOCATE in os.environ else {}
        if found := plugins():
            passed[PLUGINS] = ",".join(found)
        if options.parallel > 1:
            passed.setdefault(_PREALLOCATE, "false")
        task = ray.remote(max_retries=TRIES - 1, runtime_env={"env_vars": passed}, **share)(_work)
        text = (directory / results.PLAN).read_text()
        names = {task.remote(text, str(directory.resolve()), job.name, options): job for job in waiting}
        cancelled = False
        while names:
            done, _ = ray.wait(list(names), timeout=POLL)
            for reference in done:
                job = names.pop(reference)
                try:
                    _put(directory / results.CELLS / job.name, ray.get(reference))
                except ray.exceptions.RayError as error:
                    if request:
                        continue
                    failed[job.name] = ConfigError(str(error).strip().splitlines()[-1])
                    board.note(f"{job.name} failed: {failed[job.name]}")
            board.refresh({job.name: None for job in names.values()})
            if request and not cancelled:
                cancelled = True
                for reference in names:  # running jobs then finish their episode and save
                    ray.cancel(reference, force=False, recursive=False)
        return failed, request.name


def import_ray() -> Any:
    """Returns the package Ray; raises `ConfigError` if it is not installed."""
    try:
        import ray
    except ImportError:
        raise ConfigError("--launcher ray needs Ray: pip install 'moca-rl[ray]'") from None
    return ray


@contextlib.contextmanager
def _cluster(ray: Any, address: str | None) -> Iterator[None]:
    """Connects to the cluster at that address or at RAY_ADDRESS, or starts one on this machine."""
    address = address or os.environ.get("RAY_ADDRESS")
    here = ray.is_initialized()
    if not here:
        try:
            with contextlib.chdir("/"):  # Ray's workers import from the current directory first
                ray.init(address=address, include_dashboard=False if address is None else None, logging_level="error")
        except (ConnectionError, ValueError) as error:
            raise ConfigError(f"--ray-address {address}: no cluster found there ({error})") from None
    try:
        yield
    finally:
        if not here:
            ray.shutdown()


def _work(text: str, directory: str, name: str, options: Options) -> dict[str, bytes]:
    """Runs a job in a Ray worker and returns the small files of its directory."""
    import_plugins()
    run = _run(grid.from_json(text), Path(directory), name, options)
    return {path.name: path.read_bytes() for path in run.path.iterdir() if path.is_file() and path.name != "lock"}


def _put(path: Path, files: dict[str, bytes]) -> None:
    """Writes a job's files, unless a worker has already written them to the same directory."""
    for name, content in files.items():
        if not (path / name).exists() or (path / name).read_bytes() != content:
            save(path / name, content)


def work(directory: Path, name: str, options: Options, console: Console | None = None) -> None:
    """Runs one job of the study, given by name or number, in this process."""
    _run(results.load_grid(directory), directory, name, options, console)


def _run(plan: Grid, directory: Path, name: str, options: Options, console: Console | None = None) -> Any:
    from moca.devices import use_device
    from moca.studies.work import run_job

    (job,) = grid.chosen(grid.plan(plan), name)
    use_device(options.device)
    return run_job(directory, job, options.checkpoint_every, console, options.trust)


def _stop_with_parent() -> None:
    """Stops this process when its parent ends, which closes standard input."""

    def watch() -> None:
        os.read(sys.stdin.fileno(), 1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    folder, name, seconds, device, *trust = sys.argv[1:]
    own_process()
    _stop_with_parent()
    console = Console(width=100, markup=False, emoji=False)
    try:
        import_plugins()
        options = Options(1, None if device == "any" else device, float(seconds), trust=bool(trust))
        work(Path(folder), name, options, console)
    except (InterruptedRun, InHandError, DiskError) as stopped:
        print(stopped)
        sys.exit(IN_HAND if isinstance(stopped, InHandError) else stopped.code)
    except ConfigError as error:
        sys.exit(str(error))
