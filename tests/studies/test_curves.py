"""Figures of studies: which are drawn, that they are the same bytes for the same data, and what their legends say."""

import re

import numpy as np
import pandas as pd
import pytest

from moca import figures
from moca.studies import curves, grid, results
from tests.studies import synthetic

AGENTS = ["sac", "bnaf", "moca-mc-4", "moca-mc-16", "moca", "naf"]


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """Pendulum with three seeds, of which SAC lost one, and landscapes of two agents."""
    plan = grid.narrowed(grid.GRIDS["pendulum"], presets=["tuned"], seeds=3, agents=AGENTS)
    directory = synthetic.write(tmp_path_factory.mktemp("study"), plan, diverged=1)
    angle, velocity = np.linspace(-np.pi, np.pi, 9), np.linspace(-8, 8, 7)
    names = [
        f"{what}/{agent}/{noise}" for what in ("value", "action") for agent in AGENTS[:2] for noise in ("0.025", "0.05")
    ]
    arrays = {name: np.add.outer(angle, velocity) for name in names}
    np.savez(directory / "landscape-tuned.npz", angle=angle, velocity=velocity, **arrays)
    return directory


def text(path):
    """What is written in an SVG."""
    return re.findall(r">([^<>]+)</text>", path.read_text())


def test_all_figures_come_out_the_same_twice(study, tmp_path):
    first, second = (curves.draw(study, tmp_path / name, ("png", "svg")) for name in "ab")
    names = ("figure3", "profiles", "diagnostics", "calibration", "landscape")
    assert [path.name for path in first] == [f"{name}-tuned.{suffix}" for name in names for suffix in ("png", "svg")]
    for one, two in zip(first, second, strict=True):
        assert one.read_bytes() == two.read_bytes()
        assert one.stat().st_size > 10_000
    written = {path.stem: text(path) for path in first if path.suffix == ".svg"}
    assert {"SAC, 2 of 3 seeds", "BNAF", "mean ± sd over 3 seeds", "σ = 0.025", "100k"} <= set(written["figure3-tuned"])
    assert "SAC, 4 of 6 runs" in written["profiles-tuned"]
    assert {"4", "16", "falls as 1/K"} <= set(written["diagnostics-tuned"])
    assert "Pendulum Swingup, σ = 0.05, a typical seed, preset tuned" in written["landscape-tuned"]


def test_no_legend_leaves_its_figure(study):
    """Also where many seeds diverged, so that labels are long."""
    table = results.load_results(study)
    table.loc[(table["noise"] == "0.05") & (table["seed"] < table["seed"].max()), "diverged"] = 1
    with figures.style():
        for _, figure in curves._drawn(curves._Cells(table, "tuned"), study / "none.npz"):
            figure.draw_without_rendering()
            legends = [*figure.legends, *(axes.get_legend() for axes in figure.axes if axes.get_legend())]
            assert legends
            for box in (legend.get_window_extent() for legend in legends):
                assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1
                assert figure.bbox.y0 <= box.y0 < box.y1 <= figure.bbox.y1
            curves.plt.close(figure)


def test_curves_are_means_and_bands_of_the_seeds_that_are_left(study):
    table = results.load_results(study)
    with figures.style():
        figure = curves._learning(curves._Cells(table, "tuned"), "PendulumSwingup")
    axes = figure.axes[1]
    own = table[(table["agent"] == "sac") & (table["noise"] == "0.05") & (table["seed"] > table["seed"].min())]
    by_step = own.groupby("step")["return_mean"]
    lost, drawn = (line for line in axes.lines if line.get_color() == figures.COLOURS["sac"])
    np.testing.assert_allclose(drawn.get_xdata(), by_step.mean().index)
    np.testing.assert_allclose(drawn.get_ydata(), by_step.mean(), rtol=1e-5)
    band = axes.collections[curves._ordered(AGENTS)[::-1].index("sac")].get_paths()[0].vertices
    np.testing.assert_allclose(band[:, 1].max(), (by_step.mean() + by_step.std()).max(), rtol=1e-5)
    first = table[(table["agent"] == "sac") & (table["noise"] == "0.05") & (table["seed"] == table["seed"].min())]
    np.testing.assert_allclose(lost.get_ydata(), first["return_mean"].dropna(), rtol=1e-5)
    assert lost.get_xdata()[-1] == 250_000  # half of the training
    assert (lost.get_marker(), lost.get_markevery()) == ("x", [-1])
    assert lost.get_linewidth() < drawn.get_linewidth()
    assert "diverged" in [label.get_text() for label in figure.legends[0].get_texts()]
    curves.plt.close(figure)


@pytest.mark.parametrize("left", [0, 2])
def test_a_seed_that_runs_away_does_not_set_the_axis(left):
    """Unless it is all there is."""
    steps, ones = np.arange(1, 5), np.ones((4, 1))
    away = np.array([[1], [1e6], [np.nan], [np.nan]])
    figure, axes = curves.plt.subplots()
    curves._band(axes, curves.Series(steps, np.repeat(ones, left, axis=1), away), curves.OTHER)
    assert [len(line.get_xdata()) for line in axes.lines] == ([2, 4] if left else [2])
    assert (axes.get_ylim()[1] > 1e5) == (not left)
    curves.plt.close(figure)


def test_missing_agents_metrics_and_seeds_do_no_harm(tmp_path):
    plan = grid.narrowed(grid.GRIDS["cartpole"], presets=["paper"], seeds=1, agents=["moca", "bnaf", "naf"])
    kept = [f"calibration_{level}" for level in range(10, 100, 10)]
    table = synthetic.table(plan).drop(columns=["ce_bias", "coverage_1sigma", *kept])
    table.loc[table["agent"] == "naf", "saturation"] = np.nan
    table.loc[table["noise"] == "0.05", "diverged"] = 1
    other = table[(table["noise"] == "0.025") & (table["agent"] == "moca")]
    other = other.assign(env="AcrobotSwingup", agent="moca-mixture")
    pd.concat([table, other]).to_parquet(tmp_path / results.TABLE)
    paths = curves.draw(tmp_path, tmp_path / "out", ("svg",))
    stems = ("figure2", "learning-AcrobotSwingup", "profiles", "diagnostics")
    assert [path.name for path in paths] == [f"{stem}-paper.svg" for stem in stems]
    learning, acrobot, *_, diagnostics = map(text, paths)
    assert {"MoCA, 0 to 1 of 1 seeds", "one seed"} <= set(learning)
    assert "MoCA (mixture)" in acrobot
    assert not [label for label in acrobot if label.startswith("BNAF")]
    assert not [label for label in diagnostics if label.startswith("NAF")]


def test_return_against_noise(tmp_path):
    plan = grid.narrowed(grid.GRIDS["degradation"], seeds=3)
    synthetic.write(tmp_path, plan, diverged=1)
    paths = {path.name: path for path in curves.draw(tmp_path, tmp_path / "out", ("svg",))}
    written = set(text(paths["degradation-tuned.svg"]))
    assert {"mean with 95 % interval, 3 seeds", "SAC, 2 of 3 seeds", "MoCA", "0.0125", "0.1"} <= written


def test_many_tasks_are_one_figure(tmp_path):
    """Each with an axis of its own where returns are not those of Playground."""
    plan = grid.looked(grid.GRIDS["further"], lambda env: {
        "value.low": (-1.0,), "value.high": (1.0,), "value.lengthscales": (1.0,)
    })  # fmt: skip
    directory = synthetic.write(tmp_path / "study", grid.narrowed(plan, seeds=2))
    table = pd.read_parquet(directory / results.TABLE)
    table.loc[table["env"] == "gymnasium:Pendulum-v1", "return_mean"] -= 1500
    table.to_parquet(directory / results.TABLE, index=False)
    drawn = curves.draw(directory, tmp_path / "out", ("svg",))
    assert "learning-tuned.svg" in [path.name for path in drawn]
    cells = curves._Cells(table, "tuned")
    with figures.style():
        figure = curves._tasks(cells)
    shown = {axes.get_title(loc="left") or axes.get_title(): axes.get_ylim() for axes in figure.axes}
    assert shown["Ball In Cup"] == (0, 1020)
    assert shown["Pendulum-v1"][0] < -1400
    assert len(shown) == 6
    with figures.style():  # the profile leaves out what has another scale: 5 tasks of 2 seeds
        assert "10 runs" in curves._profiles(cells).legends[0].get_title().get_text()


@pytest.mark.parametrize(
    ("noise", "label"), [("0.025", "σ = 0.025"), ("0", "σ = 0"), ("state-norm 0.05", "state-norm, σ ≤ 0.05")]
)
def test_labels_of_noise(noise, label):
    assert curves.noise_label(noise) == label


def test_levels_scaled_by_the_state_stand_apart():
    places = curves._places(["0.025", "0.05", "state-norm 0.05", "state-norm 0.1"])
    assert places["0.05"] == 0.05 < places["state-norm 0.05"] < places["state-norm 0.1"]
