"""The results of a study as one table: `results.parquet` in its directory, loaded as a DataFrame.

There is one row per evaluation of every run. The first columns identify the run and the step, the
others are the metrics of metrics.jsonl. `diverged` is zero, or the number of the cause of
divergence; metrics are then missing.
"""

import json
import re
import reprlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moca import files
from moca.config import ConfigError, from_json
from moca.received import read_json, read_rows, read_text
from moca.runs import OVER, refuse_foreign
from moca.studies import grid
from moca.studies.grid import Job, parse_noise

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

KEYS = ("preset", "env", "agent", "noise", "noise_kind", "sigma", "seed", "step")
TABLE, PLAN, ORIGIN, CELLS, LANDSCAPE = "results.parquet", "study.json", "origin.json", "cells", "landscape.npz"
FILMS, FILM = "films", "film.mp4"
# Columns of text, and their allowed values: some become parts of file names.
WORDS = {"preset": r"[\w.-]+", "env": r"[\w./:-]+", "agent": r"[\w.-]+", "noise": r"[\w. +-]+", "noise_kind": r"[\w-]+"}
LONGEST = 300  # characters of a value
CELLS_IN_A_TABLE = 2**27  # about a gigabyte of numbers


def collect(directory: Path, jobs: Sequence[Job]) -> Path:
    """Writes the finished jobs' evaluations to one Parquet file, origins to `origin.json`."""
    import pandas as pd

    tables, origin = [], {}
    for job in jobs:
        run = directory / CELLS / job.name
        if not finished(directory, job):
            continue
        try:
            tables.append(_job_table(run, job))
            origin[job.name] = _job_origin(run)
        except ConfigError:
            raise
        except (OSError, LookupError, TypeError, ValueError, OverflowError) as error:
            asked = "metrics.jsonl, timing.jsonl and meta.json"
            raise ConfigError(f"{run} does not match the study in {asked}: {error!r}") from None
    if not tables:
        raise ConfigError(f"{directory} has no finished cells yet")
    path = directory / TABLE
    with files.writing(f"to {directory}"):
        files.save(path, pd.concat(tables, ignore_index=True).to_parquet(index=False, compression="zstd"))
        files.save(directory / ORIGIN, (json.dumps(origin, indent=1) + "\n").encode())
        _collect_landscapes(directory, jobs)
        _collect_films(directory, jobs)
    return path


def finished(directory: Path, job: Job) -> bool:
    """Returns True if a job has ended and left all its files in the study's directory."""
    run = directory / CELLS / job.name
    names = ["policy.npz", *([LANDSCAPE] if job.has_landscape else [])]
    try:
        status = read_json(run / "status.json")
        return status["state"] in OVER and all((run / name).exists() for name in names)
    except (OSError, ConfigError, KeyError, TypeError):
        return False


def diverged(directory: Path, job: Job) -> list[str]:
    """Returns the cause for each run of a job that diverged."""
    try:
        status = read_json(directory / CELLS / job.name / "status.json")
        causes = [str(lost["cause"]) for lost in status.get("diverged", ())]
    except (OSError, ConfigError, LookupError, TypeError, AttributeError):
        return []
    return [cause for cause in causes if cause.isprintable()]  # the file may come from elsewhere


def all_diverged(directory: Path, jobs: Sequence[Job]) -> str:
    """Returns the causes if every run of every job diverged, otherwise an empty string."""
    found = [diverged(directory, job) for job in jobs]
    if any(len(causes) < job.runs for causes, job in zip(found, jobs, strict=True)):
        return ""
    return "; ".join(dict.fromkeys(cause for causes in found for cause in causes))


def load_results(path: Path | str) -> "pd.DataFrame":
    """Returns the results of a study, or the metrics of a run, as a DataFrame.

    Args:
        path: A study's directory or its `results.parquet`; or a run directory, with a row per
            episode.
    """
    import pandas as pd

    path = Path(path)
    table = path / TABLE if path.is_dir() else path
    if table.is_file():
        return _read_table(table)
    if (path / "metrics.jsonl").is_file():
        try:
            config = from_json(read_text(path / "config.json"))
        except (OSError, ValueError, AttributeError, RecursionError) as error:
            raise ConfigError(f"{path / 'config.json'} cannot be read: {error}") from None
        rows = pd.DataFrame(read_rows(path / "metrics.jsonl"))
        given = {"agent": config.agent, "env": config.env.name, "sigma": config.noise.sigma}
        for place, (name, value) in enumerate(given.items()):
            if name in rows:
                raise ConfigError(
                    f"the rows of {path / 'metrics.jsonl'} must not contain {name}: it is read from config.json"
                )
            rows.insert(place, name, value)
        return rows.drop(columns="sigma").rename(columns={"noise.sigma": "sigma"}) if "noise.sigma" in rows else rows
    if (path / PLAN).is_file():
        raise ConfigError(f"{path} has a study without any finished job")
    raise ConfigError(f"{path} has neither a study ({TABLE}) nor a run (metrics.jsonl)")


def load_grid(directory: Path) -> grid.Grid:
    """Returns the grid of the study in that directory, with all settings checked."""
    path = directory / PLAN
    try:
        found = grid.from_json(read_text(path))
        grid.plan(found)
        return found
    except FileNotFoundError:
        raise ConfigError(f"{directory} is not a study: it has no {PLAN}") from None
    except ConfigError as error:
        raise ConfigError(str(error) if str(path) in str(error) else f"{path} cannot be read: {error}") from None


def refuse_no_study(directory: Path) -> None:
    """Raises if the path is not a directory, or contains anything other than a study."""
    refuse_foreign(directory, "study", (PLAN,), CELLS)


def refuse_other(directory: Path, plan: grid.Grid) -> None:
    """Raises if the path is not a directory, or has another study or something else."""
    refuse_no_study(directory)
    if not (directory / PLAN).exists():
        return
    there = load_grid(directory)
    if grid.to_json(there) != grid.to_json(plan):
        names = ("name", "seeds", "seed", "presets", "films")
        what = ", ".join(name for name in names if getattr(there, name) != getattr(plan, name)) or "blocks"
        raise ConfigError(f"{directory} has another study (it differs in {what}): choose another --out")


def load_origin(directory: Path) -> dict[str, Any]:
    """Returns versions, device, commit and seconds of each job; empty if unknown."""
    path = directory / ORIGIN
    try:
        origin = read_json(path)
    except FileNotFoundError:
        return {}
    if not isinstance(origin, dict):
        raise ConfigError(f"{path} must contain a JSON object with an entry for each job of the study")
    for name, job in origin.items():
        if not isinstance(job, dict) or any(key in job and not _ORIGIN[key](job[key]) for key in _ORIGIN):
            raise ConfigError(f"{path} has an invalid entry for {reprlib.repr(name)}")
    return origin


def _is_text(value: Any) -> bool:
    return value is None or isinstance(value, str)


_ORIGIN: dict[str, Callable[[Any], bool]] = {  # checks of each entry
    "versions": lambda value: value is None or (isinstance(value, dict) and all(map(_is_text, value.values()))),
    "python": _is_text,
    "device": lambda value: value is None or (isinstance(value, list) and all(map(_is_text, value))),
    "commit": _is_text,
    "seconds": lambda value: type(value) in (int, float) and 0 <= value < 1e12,
}


def _job_origin(run: Path) -> dict[str, Any]:
    """Returns versions, device, commit and seconds of a finished job."""
    meta = read_json(run / "meta.json")
    seconds = sum(row["seconds"] for row in read_rows(run / "timing.jsonl"))
    return {key: meta[key] for key in ("versions", "python", "device", "commit")} | {"seconds": round(seconds, 1)}


def _read_table(path: Path) -> "pd.DataFrame":
    """Returns the table of a study from an untrusted file, after checking its columns."""
    import pandas as pd
    from pyarrow import parquet

    try:
        held = parquet.read_metadata(path)
        size = sum(held.row_group(number).total_byte_size for number in range(held.num_row_groups))
        if held.num_rows * max(1, held.num_columns) > CELLS_IN_A_TABLE or size > 8 * CELLS_IN_A_TABLE:
            raise ValueError(f"it claims to have {held.num_rows:,} rows and {size:,} bytes, which is too much")
        names = [name for name in held.schema.names if name in WORDS]
        words = parquet.read_table(path, columns=names, read_dictionary=names)
        for name in names:
            for part in words[name].chunks:
                if max((len(str(word)) for word in getattr(part, "dictionary", ())), default=0) > LONGEST:
                    raise ValueError(f"{name} has more than {LONGEST} characters")
        table = pd.read_parquet(path)
    except Exception as error:  # Arrow and pandas raise many kinds of errors
        raise ConfigError(f"{path} cannot be read: {' '.join(str(error).split())[:300]}") from None
    try:
        _refuse_table(table)
    except ValueError as error:
        raise ConfigError(f"{path} is not a table of a study: {error}") from None
    return table


def _refuse_table(table: "pd.DataFrame") -> None:
    """Raises if a table lacks a column, or has values that a study does not write."""
    import numpy as np

    for name in (*KEYS, "diverged", "return_mean"):
        if name not in table:
            raise ValueError(f"it has no column {name}")
    if table.empty:
        raise ValueError("it has no rows")
    for name in table:
        column = table[name]
        if name in WORDS:
            if not all(isinstance(word, str) and re.fullmatch(WORDS[name], word) for word in column.unique()):
                raise ValueError(f"{name} has an invalid value: {reprlib.repr(list(column.unique()))}")
        elif column.dtype.kind not in "fiu":
            raise ValueError(f"{reprlib.repr(name)} has {column.dtype}, not numbers")
        elif np.isinf(column).any():
            raise ValueError(f"{reprlib.repr(name)} has an infinite value")
    for name in ("seed", "step", "diverged"):
        if table[name].dtype.kind not in "iu" or (table[name] < 0).any() or (table[name] > 2**53).any():
            raise ValueError(f"{name} must be non-negative whole numbers")
    if not (table["sigma"] >= 0).all():
        raise ValueError("sigma must not be negative")
    for noise in table["noise"].unique():
        parse_noise(noise)
    if table.duplicated(["preset", "env", "agent", "noise", "seed", "step"]).any():
        raise ValueError("a step of a seed occurs twice")


def read_landscape(path: Path) -> "dict[str, np.ndarray]":
    """Returns maps `value/AGENT/NOISE` and `action/…` over `angle` and `velocity`."""
    import numpy as np

    from moca.deploy.files import read_arrays

    try:
        arrays = read_arrays(path)
        plane = tuple(arrays[name].size for name in ("angle", "velocity") if name in arrays)
        maps = [name for name in arrays if name not in ("angle", "velocity")]
        if len(plane) < 2 or min(plane) < 2 or not maps:
            raise ValueError("it needs angle, velocity, and maps over them")
        for name, array in arrays.items():
            shape = plane if name in maps else (array.size,)
            if array.dtype.kind != "f" or array.shape != shape or (name not in maps and not np.isfinite(array).all()):
                raise ValueError(f"{reprlib.repr(name)} has shape {array.shape} of {array.dtype}, which does not fit")
        for name in maps:
            kind, agent, noise = [*name.split("/"), "", ""][:3]
            pair = {f"value/{agent}/{noise}", f"action/{agent}/{noise}"}
            if kind not in ("value", "action") or not pair <= arrays.keys():
                raise ValueError(f"{reprlib.repr(name)} is neither a value nor an action, or one of the two is missing")
            parse_noise(noise)
        return arrays
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None


def _job_table(run: Path, job: Job) -> "pd.DataFrame":
    import pandas as pd

    config = job.config
    every, last = config.train.eval_every * config.env.episode_length, config.train.steps
    measured = read_rows(run / "metrics.jsonl")
    while (step := measured[-1]["step"]) < last:  # all runs diverged, and training stopped there
        kept = ("seed", "diverged", *job.varied[0])
        gaps = [{name: row[name] for name in kept} for row in measured[-config.seeds * len(job.varied) :]]
        measured += [{"step": min(step + config.env.episode_length, last), **row} for row in gaps]
    rows = pd.DataFrame([row for row in measured if row["step"] % every == 0 or row["step"] == last])
    names = {tuple(point.values()): noise for point, noise in zip(job.varied, job.noises, strict=True)}
    varied = list(job.varied[0])
    labels = [names[point] for point in rows[varied].itertuples(index=False, name=None)]
    kinds, levels = zip(*map(parse_noise, labels), strict=True)
    counts = rows[["seed", "step", "diverged"]].astype({"seed": "int64", "step": "int64", "diverged": "int8"})
    words = {"preset": job.preset, "env": config.env.name, "agent": job.agent, "noise": labels, "noise_kind": kinds}
    keys = pd.DataFrame(words | {"sigma": levels}, index=rows.index)
    return pd.concat([keys, counts, rows.drop(columns=[*varied, *counts]).astype("float32")], axis=1)


def _collect_landscapes(directory: Path, jobs: Sequence[Job]) -> None:
    """Writes a file per preset with each job's V and greedy action on a grid of states."""
    for preset in dict.fromkeys(job.preset for job in jobs):
        arrays: dict[str, Any] = {}
        for job in jobs:
            path = directory / CELLS / job.name / LANDSCAPE
            if job.preset == preset and path.exists():
                arrays |= read_landscape(path)
        if arrays:
            files.save_arrays(directory / f"landscape-{preset}.npz", arrays)


def _collect_films(directory: Path, jobs: Sequence[Job]) -> None:
    """Copies the jobs' videos into one folder, named by job."""
    for job in jobs:
        film = directory / CELLS / job.name / FILM
        if job.filmed and film.exists():
            files.save(directory / FILMS / f"{job.name}.mp4", film.read_bytes())
