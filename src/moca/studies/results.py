"""What a study measured, as one table: `results.parquet` in its directory, a pandas DataFrame to its readers.

One row per evaluation of every run. The first columns say of which run and when, the others are the metrics of
metrics.jsonl; `diverged` is zero, or the number of the cause for which the run was given up, and its metrics are then
missing.
"""

import io
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moca.config import ConfigError, from_json
from moca.runs import OVER
from moca.studies import grid
from moca.studies.grid import Job, parse_noise

if TYPE_CHECKING:
    import pandas as pd

KEYS = ("preset", "env", "agent", "noise", "noise_kind", "sigma", "seed", "step")
TABLE, PLAN, ORIGIN, CELLS, LANDSCAPE = "results.parquet", "study.json", "origin.json", "cells", "landscape.npz"
FILMS, FILM = "films", "film.mp4"


def collect(directory: Path, jobs: Sequence[Job]) -> Path:
    """Writes the finished jobs' evaluations into one Parquet file, and what made them into `origin.json`."""
    import pandas as pd

    tables, origin = [], {}
    for job in jobs:
        run = directory / CELLS / job.name
        if not finished(directory, job):
            continue
        tables.append(_job_table(run, job))
        meta = json.loads((run / "meta.json").read_text())
        seconds = sum(json.loads(line)["seconds"] for line in (run / "timing.jsonl").read_text().splitlines())
        origin[job.name] = {key: meta[key] for key in ("versions", "python", "device", "commit")} | {
            "seconds": round(seconds, 1)
        }
    if not tables:
        raise ConfigError(f"{directory} holds no finished cells yet")
    path = directory / TABLE
    try:
        write(path, pd.concat(tables, ignore_index=True).to_parquet(index=False, compression="zstd"))
        write(directory / ORIGIN, (json.dumps(origin, indent=1) + "\n").encode())
        _collect_landscapes(directory, jobs)
        _collect_films(directory, jobs)
    except OSError as error:
        raise ConfigError(f"cannot write to {directory}: {error.strerror}") from None
    return path


def write(path: Path, content: bytes) -> None:
    """Writes a file aside and renames it, so that no one ever reads half of it."""
    aside = path.with_name(f"{path.name}.{os.getpid()}.writing")
    aside.write_bytes(content)
    aside.replace(path)


def finished(directory: Path, job: Job) -> bool:
    """Whether all there is to do for a job of the study in that directory is done."""
    run = directory / CELLS / job.name
    files = ["policy.npz", *([LANDSCAPE] if job.has_landscape else [])]
    try:
        status = json.loads((run / "status.json").read_text())
        return status["state"] in OVER and all((run / name).exists() for name in files)
    except (OSError, ValueError, KeyError):
        return False


def load_results(path: Path | str) -> "pd.DataFrame":
    """The results of a study, or the metrics of a run, as a DataFrame.

    Args:
        path: a study's directory or its `results.parquet`; or a run directory, of which every episode is a row.
    """
    import pandas as pd

    path = Path(path)
    table = path / TABLE if path.is_dir() else path
    if table.is_file():
        try:
            return pd.read_parquet(table)
        except (OSError, ValueError) as error:
            raise ConfigError(f"{table} cannot be read: {error}") from None
    if (path / "metrics.jsonl").is_file():
        config = from_json((path / "config.json").read_text())
        rows = pd.DataFrame(_rows(path))
        given = {"agent": config.agent, "env": config.env.name, "sigma": config.noise.sigma}
        for place, (name, value) in enumerate(given.items()):
            rows.insert(place, name, value)
        return rows.drop(columns="sigma").rename(columns={"noise.sigma": "sigma"}) if "noise.sigma" in rows else rows
    if (path / PLAN).is_file():
        raise ConfigError(f"{path} holds a study of which no job is finished yet")
    raise ConfigError(f"{path} holds neither a study ({TABLE}) nor a run (metrics.jsonl)")


def load_grid(directory: Path) -> grid.Grid:
    """The grid of the study in that directory."""
    try:
        return grid.from_json((directory / PLAN).read_text())
    except FileNotFoundError:
        raise ConfigError(f"{directory} is no study: it holds no {PLAN}") from None
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(f"{directory / PLAN} cannot be read: {error}") from None


def load_origin(directory: Path) -> dict[str, Any]:
    """Versions, device, commit and seconds of each job; empty where they are not known."""
    path = directory / ORIGIN
    return json.loads(path.read_text()) if path.is_file() else {}


def _job_table(run: Path, job: Job) -> "pd.DataFrame":
    import pandas as pd

    config = job.config
    every, last = config.train.eval_every * config.env.episode_length, config.train.steps
    measured = _rows(run)
    while (step := measured[-1]["step"]) < last:  # all of it diverged, and it stopped there
        kept = ("seed", "diverged", *job.varied[0])
        gaps = [{name: row[name] for name in kept} for row in measured[-config.seeds * len(job.varied) :]]
        measured += [{"step": step + config.env.episode_length, **row} for row in gaps]
    rows = pd.DataFrame([row for row in measured if row["step"] % every == 0 or row["step"] == last])
    names = {tuple(point.values()): noise for point, noise in zip(job.varied, job.noises, strict=True)}
    varied = list(job.varied[0])
    labels = [names[point] for point in rows[varied].itertuples(index=False, name=None)]
    levels = [parse_noise(label) for label in labels]
    metrics = rows.drop(columns=[*varied, "seed", "step", "diverged"])
    table = pd.DataFrame(
        {
            "preset": job.preset,
            "env": config.env.name,
            "agent": job.agent,
            "noise": labels,
            "noise_kind": [kind for kind, _ in levels],
            "sigma": [sigma for _, sigma in levels],
            "seed": rows["seed"].astype("int64"),
            "step": rows["step"].astype("int64"),
            "diverged": rows["diverged"].astype("int8"),
        }
    )
    return pd.concat([table, metrics.astype("float32")], axis=1)


def _rows(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def _collect_landscapes(directory: Path, jobs: Sequence[Job]) -> None:
    """One file per preset with what the jobs have of values and actions over Pendulum's plane."""
    import numpy as np

    for preset in dict.fromkeys(job.preset for job in jobs):
        arrays: dict[str, Any] = {}
        for job in jobs:
            path = directory / CELLS / job.name / LANDSCAPE
            if job.preset == preset and path.exists():
                with np.load(path, allow_pickle=False) as file:
                    arrays |= dict(file)
        if arrays:
            held = io.BytesIO()
            np.savez_compressed(held, **arrays)
            write(directory / f"landscape-{preset}.npz", held.getvalue())


def _collect_films(directory: Path, jobs: Sequence[Job]) -> None:
    """The jobs' films in one folder, each by its job's name."""
    for job in jobs:
        film = directory / CELLS / job.name / FILM
        if job.filmed and film.exists():
            (directory / FILMS).mkdir(exist_ok=True)
            write(directory / FILMS / f"{job.name}.mp4", film.read_bytes())
