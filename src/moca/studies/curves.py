"""Figures of a study: learning curves, scores, and what stands behind them.

Each figure says what its lines and bands are: the mean with its 95 % interval, or the median and the middle half of the
seeds where these form two groups, or where a few values are huge. Seeds that diverged are in neither, and the legend
says how many are left; over training each of them is a thin line up to where it diverged. An agent that does not have
a metric is left out of its panel.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from moca import figures
from moca.studies.plots import inside, landscape, learning, scores
from moca.studies.plots.cells import Cells
from moca.studies.registry import task
from moca.studies.results import load_results


def draw(directory: Path, out: Path, formats: Sequence[str] = figures.FORMATS) -> list[Path]:
    """The files of all figures for which the study in that directory has data, one set for each preset."""
    table = load_results(directory)
    paths: list[Path] = []
    with figures.style():
        for preset in table["preset"].unique():
            for name, figure in drawn(Cells(table, preset), directory / f"landscape-{preset}.npz"):
                paths += figures.save(figure, out, f"{name}-{preset}", tuple(formats))
    return paths


def drawn(cells: Cells, maps: Path) -> Iterator[tuple[str, Figure]]:
    """Each figure with its name."""
    if len(cells.envs) > 2 and all(len(cells.noises(env)) == 1 for env in cells.envs):
        yield "learning", learning.of_tasks(cells)
    else:
        for env in cells.envs:
            yield _name(cells, env), learning.of_task(cells, env)
    if any(len(cells.noises(env)) > 3 for env in cells.envs):  # with fewer the learning curves say it all
        yield "degradation", scores.against_noise(cells)
    if any(map(cells.bounded, cells.envs)) and (figure := scores.profiles(cells)):
        yield "profiles", figure
    for env in cells.envs:
        if figure := learning.overestimation(cells, env):
            yield "overestimation" if len(cells.envs) == 1 else f"overestimation-{_plain(env)}", figure
    if figure := inside.diagnostics(cells):
        yield "diagnostics", figure
    if figure := inside.calibration(cells):
        yield "calibration", figure
    if maps.is_file():
        env = next((env for env in cells.envs if task(env).plane), "")
        yield "landscape", landscape.of_file(maps, env, cells.preset)


def _name(cells: Cells, env: str) -> str:
    """The name that a task's figure has where all of its noise levels are there."""
    known = task(env)
    return known.figure if known.figure and known.noises <= set(cells.noises(env)) else f"learning-{_plain(env)}"


def _plain(env: str) -> str:
    return env.replace(":", "-").replace("/", "-")
