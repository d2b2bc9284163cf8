"""The figures of a study: learning curves, scores and diagnostics.

Each figure states what its lines and bands are: the mean with its 95 % interval, or the median and
the middle half of the seeds if the seeds form two groups or a few values are huge. Diverged seeds
are in neither, and the legend says how many remain; over training each of them is a thin line up to
its divergence. An agent without a metric is omitted from the panel of that metric.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from moca import figures
from moca.names import folder_name
from moca.studies.plots import inside, landscape, learning, scores
from moca.studies.plots.cells import Cells
from moca.studies.registry import task
from moca.studies.results import load_results


def draw(directory: Path, out: Path, formats: Sequence[str] = figures.FORMATS) -> list[Path]:
    """Draws all figures for which the study in a directory has data; returns the files."""
    table = load_results(directory)
    paths: list[Path] = []
    with figures.style():
        for preset in table["preset"].unique():
            for name, figure in drawn(Cells(table, preset), directory / f"landscape-{preset}.npz"):
                paths += figures.save(figure, out, f"{name}-{preset}", tuple(formats))
    return paths


def drawn(cells: Cells, maps: Path) -> Iterator[tuple[str, Figure]]:
    """Yields the name of each figure of a study, and the figure."""
    if len(cells.envs) > 2 and all(len(cells.noises(env)) == 1 for env in cells.envs):
        yield "learning", learning.of_tasks(cells)
    else:
        for env in cells.envs:
            yield _name(cells, env), learning.of_task(cells, env)
    if any(len(cells.noises(env)) > 3 for env in cells.envs):  # with fewer, the learning curves suffice
        yield "degradation", scores.against_noise(cells)
    if any(map(cells.bounded, cells.envs)) and (figure := scores.profiles(cells)):
        yield "profiles", figure
    for env in cells.envs:
        if figure := learning.overestimation(cells, env):
            yield "overestimation" if len(cells.envs) == 1 else f"overestimation-{folder_name(env)}", figure
    if figure := inside.diagnostics(cells):
        yield "diagnostics", figure
    if figure := inside.calibration(cells):
        yield "calibration", figure
    if maps.is_file():
        env = next((env for env in cells.envs if task(env).plane), "")
        yield "landscape", landscape.of_file(maps, env, cells.preset)


def _name(cells: Cells, env: str) -> str:
    """Returns the name of a task's figure: the paper's if all of its noise levels are present."""
    known = task(env)
    return known.figure if known.figure and known.noises <= set(cells.noises(env)) else f"learning-{folder_name(env)}"
