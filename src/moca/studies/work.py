"""One job of a study, from its plan to a finished run directory; called by every launcher."""

import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console

from moca import files
from moca.agents import make_agent
from moca.config import override
from moca.runs import OVER
from moca.runs.answers import last_returns
from moca.runs.directory import RunDirectory
from moca.runs.interrupts import DivergedRun
from moca.runs.launch import train
from moca.runs.run import Run, load
from moca.studies import registry
from moca.studies.grid import Job
from moca.studies.results import CELLS, FILM, LANDSCAPE


def run_job(
    directory: Path, job: Job, checkpoint_every: float, console: Console | None = None, trust: bool = False
) -> Run:
    """Trains or resumes a job, and adds landscapes and video; a finished job is left unchanged.

    Its checkpoints are removed when it is done; the policies are kept.
    """
    path = directory / CELLS / job.name
    if not (RunDirectory(path).status["state"] in OVER and (path / "policy.npz").exists()):
        saving: dict[str, Any] = {"checkpoint_every": checkpoint_every, "keep": 1}
        with suppress(DivergedRun):  # divergence is a result
            train(job.config, path, varied=job.varied, trust=trust, console=console, **saving)
    if job.has_landscape and not (path / LANDSCAPE).exists():
        _write_landscapes(path, job)
    if job.filmed and not (path / FILM).exists():
        _film(path, job, console or Console(quiet=True))
    shutil.rmtree(path / "checkpoints", ignore_errors=True)
    return load(path)


def _film(path: Path, job: Job, console: Console) -> None:
    """Makes a video of a typical seed at the strongest noise; errors are printed, not raised."""
    aside = path / f"aside-{FILM}"  # renamed when complete
    try:
        aside.unlink(missing_ok=True)
        load(path).render(_typical(path, job, job.strongest), seed=job.config.seed, path=aside)
        aside.replace(path / FILM)
    except Exception as error:  # rendering and encoding fail in many ways
        aside.unlink(missing_ok=True)
        console.print(f"{job.name} has no video: {error}")


def _typical(path: Path, job: Job, level: int) -> int:
    """Returns the run at a noise level whose final return is the median over its seeds.

    For an even number of seeds, the better of the middle two; diverged runs rank last.
    """
    own = range(level * job.config.seeds, (level + 1) * job.config.seeds)
    return sorted(own, key=last_returns(RunDirectory(path)).__getitem__)[len(own) // 2]


def _write_landscapes(path: Path, job: Job) -> None:
    """Writes value and greedy action over a task's plane, for a typical seed at each noise."""
    run = load(path)
    env, learners = run.environment, run.learners
    plane = registry.task(job.config.env.name).plane
    assert plane is not None
    angles, velocities, observe = plane()
    angle, velocity = np.meshgrid(angles, velocities, indexing="ij")
    observed = observe(angle, velocity)
    observations = observed.reshape(-1, observed.shape[-1]).astype(jnp.float32)
    arrays: dict[str, Any] = {"angle": angles, "velocity": velocities}
    for number, (noise, point) in enumerate(zip(job.noises, job.varied, strict=True)):
        agent = make_agent(override(job.config, point), env)
        typical = _typical(path, job, number)
        learner = jax.tree.map(lambda leaf, at=typical: leaf[at], learners)
        seen = jax.vmap(lambda o, a=agent, s=learner: a.taken_for_state(s, o))(observations)
        value, action = jax.jit(jax.vmap(lambda o, a=agent, s=learner: (a.value(s, o), a.act(s, o)[0])))(seen)
        arrays[f"value/{job.agent}/{noise}"] = np.asarray(value, np.float32).reshape(angle.shape)
        arrays[f"action/{job.agent}/{noise}"] = np.asarray(action, np.float32).reshape(angle.shape)
    files.save_arrays(path / LANDSCAPE, arrays)
