"""Figures of studies: which are drawn, that they are the same bytes for the same data, and what they say."""

import itertools
import re

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt

from moca import figures
from moca.looks import LOOKS, look, ordered
from moca.paper.grids import GRIDS
from moca.paper.tasks import CARTPOLE, PENDULUM
from moca.studies import curves, grid, results, statistics
from moca.studies.plots import inside, landscape, learning, lines, looks, scores
from moca.studies.plots.cells import Cells, Series, by_kind, noise_label
from tests.studies import made, synthetic

AGENTS = ["sac", "bnaf", "moca-mc-4", "moca-mc-16", "moca", "naf"]


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """Pendulum with three seeds, of which SAC lost one, and landscapes of two agents."""
    plan = grid.narrowed(GRIDS["pendulum"], presets=["tuned"], seeds=3, agents=AGENTS)
    directory = synthetic.write(tmp_path_factory.mktemp("study"), plan, diverged=1)
    angle, velocity = np.linspace(-np.pi, np.pi, 9), np.linspace(-8, 8, 7)
    names = [
        f"{what}/{agent}/{noise}" for what in ("value", "action") for agent in AGENTS[:2] for noise in ("0.025", "0.05")
    ]
    arrays = {name: np.add.outer(angle, velocity) for name in names}
    np.savez(directory / "landscape-tuned.npz", angle=angle, velocity=velocity, **arrays)
    return directory


@pytest.fixture(autouse=True)
def styled():
    """The look of all figures, none of which stays open."""
    with figures.style():
        yield
    plt.close("all")


def text(path):
    """What is written in an SVG."""
    return re.findall(r">([^<>]+)</text>", path.read_text())


def written(axes):
    """What stands beside or in a panel."""
    return [each.get_text() for each in axes.texts]


def titles(figure):
    """The panels that are shown, by title."""
    return {axes.get_title(loc="left"): axes for axes in figure.axes if axes.get_visible()}


@pytest.mark.slow
def test_all_figures_come_out_the_same_twice(study, tmp_path):
    first, second = (curves.draw(study, tmp_path / name, ("png", "svg")) for name in "ab")
    names = ("figure3", "profiles", "diagnostics", "calibration", "landscape")
    assert [path.name for path in first] == [f"{name}-tuned.{suffix}" for name in names for suffix in ("png", "svg")]
    for one, two in zip(first, second, strict=True):
        assert one.read_bytes() == two.read_bytes()
        assert one.stat().st_size > 10_000
    found = {path.stem: text(path) for path in first if path.suffix == ".svg"}
    assert {"SAC, 2 of 3 seeds", "BNAF", "median and middle half of 3 seeds", "σ = 0.025"} <= set(
        found["figure3-tuned"]
    )
    assert "SAC, 4 of 6 runs" in found["profiles-tuned"]
    assert {"4", "16", "falls as 1/K"} <= set(found["diagnostics-tuned"])
    assert "Pendulum Swingup, σ = 0.05, a typical seed, preset tuned" in found["landscape-tuned"]


def test_drawing_leaves_a_notebooks_backend_alone():
    before = plt.get_backend()
    plt.switch_backend("svg")
    with figures.style():
        assert plt.get_backend() == "agg"
    assert plt.get_backend() == "svg"
    plt.switch_backend(before)


def test_nothing_leaves_its_figure(study):
    """Neither a legend nor a text, also where many seeds diverged, so that labels are long."""
    table = results.load_results(study)
    table.loc[(table["noise"] == "0.05") & (table["seed"] < table["seed"].max()), "diverged"] = 1
    for _, figure in curves.drawn(Cells(table, "tuned"), study / "none.npz"):
        figure.draw_without_rendering()
        legends = [*figure.legends, *(axes.get_legend() for axes in figure.axes if axes.get_legend())]
        assert legends
        beside = [each for axes in figure.axes if axes.get_visible() for each in axes.texts]
        for box in (each.get_window_extent() for each in [*legends, *beside]):
            assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1
            assert figure.bbox.y0 <= box.y0 < box.y1 <= figure.bbox.y1


@pytest.mark.parametrize("typical", [False, True])
def test_lines_and_bands_are_of_the_seeds_that_are_left(study, typical, monkeypatch):
    monkeypatch.setattr(Cells, "typical", lambda *_: typical)
    table = results.load_results(study)
    figure = learning.of_task(Cells(table, "tuned"), PENDULUM)
    axes = titles(figure)["σ = 0.05"]
    own = table[(table["agent"] == "sac") & (table["noise"] == "0.05") & (table["seed"] > table["seed"].min())]
    by_step = own.groupby("step")["return_mean"]
    lost, drawn = (line for line in axes.lines if line.get_color() == figures.COLOURS["sac"])
    np.testing.assert_allclose(drawn.get_xdata(), by_step.mean().index)
    np.testing.assert_allclose(drawn.get_ydata(), by_step.median() if typical else by_step.mean(), rtol=1e-5)
    high = by_step.quantile(0.75) if typical else by_step.apply(lambda values: statistics.mean_t(values).high)
    band = axes.collections[ordered(AGENTS)[::-1].index("sac")].get_paths()[0].vertices
    np.testing.assert_allclose(band[:, 1].max(), high.max(), rtol=1e-5)
    first = table[(table["agent"] == "sac") & (table["noise"] == "0.05") & (table["seed"] == table["seed"].min())]
    np.testing.assert_allclose(lost.get_ydata(), first["return_mean"].dropna(), rtol=1e-5)
    assert lost.get_xdata()[-1] == 250_000  # half of the training
    assert (lost.get_marker(), lost.get_markevery()) == ("x", [-1])
    assert lost.get_linewidth() < drawn.get_linewidth()
    said = [label.get_text() for label in figure.legends[0].get_texts()]
    assert "diverged" in said
    title = figure.legends[0].get_title().get_text()
    assert title.startswith(
        "median and middle half of 3 seeds" if typical else "mean of 3 seeds with its 95 % interval"
    )


@pytest.mark.parametrize("left", [0, 2])
def test_a_seed_that_runs_away_does_not_set_the_axis(left):
    """Unless it is all there is."""
    steps, ones = np.arange(1, 5), np.ones((4, 1))
    away = np.array([[1], [1e6], [np.nan], [np.nan]])
    _, axes = plt.subplots()
    lines.band(axes, Series(steps, np.repeat(ones, left, axis=1), away), look("another"), typical=False)
    assert [len(line.get_xdata()) for line in axes.lines] == ([2, 4] if left else [2])
    assert (axes.get_ylim()[1] > 1e5) == (not left)


def test_missing_agents_metrics_and_seeds_do_no_harm(tmp_path):
    plan = grid.narrowed(GRIDS["cartpole"], presets=["paper"], seeds=1, agents=["moca", "bnaf", "naf"])
    kept = [f"calibration_{level}" for level in range(10, 100, 10)]
    table = synthetic.table(plan).drop(columns=["ce_bias", "coverage_1sigma", *kept])
    table.loc[table["agent"] == "naf", "saturation"] = np.nan
    table.loc[table["noise"] == "0.05", "diverged"] = 1
    other = table[(table["noise"] == "0.025") & (table["agent"] == "moca")]
    other = other.assign(env="AcrobotSwingup", agent="moca-other")
    pd.concat([table, other]).to_parquet(tmp_path / results.TABLE)
    paths = curves.draw(tmp_path, tmp_path / "out", ("svg",))
    stems = ("figure2", "learning-AcrobotSwingup", "diagnostics")  # no agent has all cells, so there are no profiles
    assert [path.name for path in paths] == [f"{stem}-paper.svg" for stem in stems]
    task, acrobot, diagnostics = map(text, paths)
    assert {"MoCA, 0 to 1 of 1 seeds", "one seed"} <= set(task)
    assert "moca-other" in acrobot
    assert not [label for label in acrobot if label.startswith("BNAF")]
    assert not [label for label in diagnostics if "NAF (" in label]


def test_figure_2_has_the_papers_two_rows():
    """Constant noise above, that which grows with the state below, the lowest level first."""
    noises = ("0.1", "state-norm 0.05", "0.025", "0.05")
    table = pd.concat(made.table(CARTPOLE, agent, n, finals=[500, 600]) for agent in ("moca", "bnaf") for n in noises)
    cells = Cells(table, "raw")
    assert curves._name(cells, CARTPOLE) == "figure2"
    figure = learning.of_task(cells, CARTPOLE)
    figure.draw_without_rendering()
    boxes = {title: axes.get_position() for title, axes in titles(figure).items()}
    assert list(boxes) == ["σ = 0.025", "σ = 0.05", "σ = 0.1", "state-norm, σ ≤ 0.05"]
    assert boxes["σ = 0.025"].x0 < boxes["σ = 0.05"].x0 < boxes["σ = 0.1"].x0
    assert boxes["σ = 0.025"].y0 == boxes["σ = 0.1"].y0 > boxes["state-norm, σ ≤ 0.05"].y1
    assert curves._name(Cells(table[table["noise"] != "0.05"], "raw"), CARTPOLE) == "learning-CartpoleBalance"


@pytest.mark.parametrize(
    ("finals", "where"),
    [
        ({"moca": 990, "bnaf": 985}, "low"),  # the room is below the lines
        ({"moca": 40, "bnaf": 15}, "high"),
        ({"moca": 990, "bnaf": 880}, None),  # a normal axis tells them apart
        ({"moca": 500, "bnaf": 490}, None),  # no room
        ({"moca": 990}, None),
    ],
)
def test_lines_that_coincide_are_seen_closer(finals, where):
    table = pd.concat(made.table(CARTPOLE, agent, "0.05", finals=[v - 4, v + 4]) for agent, v in finals.items())
    (axes,) = (each for each in learning.of_task(Cells(table, "raw"), CARTPOLE).axes if each.get_title(loc="left"))
    assert axes.get_ylim() == (0, 1020)
    insets = axes.child_axes
    assert len(insets) == (where is not None)
    for inset in insets:
        low, high = inset.get_ylim()
        assert low < min(finals.values()) < max(finals.values()) < high < low + 40
        assert inset.get_title(loc="left") == "zoomed: second half"
        assert {line.get_color() for line in inset.lines} == {look(agent).colour for agent in finals}
        place = inset.get_position().y0 if where == "low" else inset.get_position().y1
        assert (place < axes.get_position().y0 + 0.5 * axes.get_position().height) == (where == "low")


def two_groups(task, agent, solved, noise="0.05"):
    return made.table(task, agent, noise, finals=[820] * solved + [100] * (10 - solved))


def test_two_groups_of_seeds_are_no_mean():
    """On Pendulum, and only where a tenth of the seeds is on either side; the counts stand beside the lines."""
    table = pd.concat([two_groups(PENDULUM, "moca", 10), two_groups(PENDULUM, "moca-ce", 4)])
    figure = learning.of_task(Cells(table, "raw"), PENDULUM)
    axes = titles(figure)["σ = 0.05"]
    by_colour = {line.get_color(): line.get_ydata()[-1] for line in axes.lines}
    assert by_colour[figures.COLOURS["ce"]] == 100  # the mean is 388, where no seed is
    assert {"MoCA: 10 of 10", "CE: 4 of 10"} <= set(written(axes))
    assert figure.legends[0].get_title().get_text().startswith("median and middle half of 10 seeds\nbeside a line")
    for other in (two_groups(PENDULUM, "moca-ce", 0), two_groups(CARTPOLE, "moca-ce", 4)):
        task = other["env"].iloc[0]
        cells = Cells(pd.concat([two_groups(task, "moca", 10), other]), "raw")
        assert not cells.typical(task)
        assert "mean of 10 seeds" in learning.of_task(cells, task).legends[0].get_title().get_text()
    assert "CE" in written(learning.of_task(cells, CARTPOLE).axes[0])


def test_no_two_agents_look_the_same():
    """Nor share a marker or a name; a colour only if they are the same but for the number of samples."""
    for what in ("label", "short", "marker", "dash"):
        assert len({getattr(each, what) for each in LOOKS.values()}) == len(LOOKS)
    named = [each for agent, each in LOOKS.items() if agent != "moca-mc"]
    assert len({each.colour for each in named}) == len(named)
    assert len({(each.colour, each.svg_dash) for each in LOOKS.values()}) == len(LOOKS)
    levels = looks.noise_looks(["0", "0.0125", "0.025", "0.05", "0.1", "state-norm 0.05", "state-norm 0.2"])
    assert len({look.colour for look in levels.values()}) == len({look.marker for look in levels.values()}) == 7


def test_an_agent_of_ones_own_has_a_look():
    assert look("mine").label == look("mine").short == "mine"
    assert ordered(["mine", "sac", "moca"]) == ["moca", "sac", "mine"]


def test_labels_beside_lines_keep_apart_and_in_order():
    heights = np.array([0.0, 0.01, 0.5, 0.98, 0.99, 1.0])
    apart = lines._apart(heights, 0.1)
    assert np.diff(apart).min() > 0.1 - 1e-9
    assert apart.min() >= -1e-9
    assert apart.max() <= 1 + 1e-9
    assert apart[2] == 0.5  # which was free
    np.testing.assert_allclose(lines._apart(np.array([0.2, 0.4, 0.9]), 0.1), [0.2, 0.4, 0.9])


def test_overestimation_has_a_panel_for_each_noise_and_copes_with_huge_values():
    values = {("moca", "0.05"): -5, ("moca-ce", "0.05"): 5, ("moca", "0.1"): -9, ("moca-ce", "0.1"): 1500}
    table = pd.concat(
        made.table(CARTPOLE, *cell, finals=[500] * 4, overestimation=value) for cell, value in values.items()
    )
    figure = learning.overestimation(Cells(table, "raw"), CARTPOLE)
    assert list(titles(figure)) == ["σ = 0.05", "σ = 0.1"]
    assert {axes.get_yscale() for axes in figure.axes} == {"symlog"}
    assert figure.axes[0].get_ylabel() == "overestimation\n(logarithmic away from 0)"
    assert figure.axes[0].get_ylim()[1] > 1500
    plain = learning.overestimation(Cells(table[table["noise"] == "0.05"], "raw"), CARTPOLE)
    assert plain.axes[0].get_yscale() == "linear"
    assert learning.overestimation(Cells(table.drop(columns="overestimation"), "raw"), CARTPOLE) is None


def test_diagnostics_cope_with_huge_values():
    tables = [made.table(CARTPOLE, "moca", "0.05", finals=[500] * 3, ce_bias=-0.1)]
    steep = -0.1 * 10.0 ** np.linspace(0, 3, 20)
    tables.append(made.table(CARTPOLE, "moca-ce", "0.05", finals=[500] * 3, ce_bias=steep))
    moca, ce = inside.diagnostics(Cells(pd.concat(tables), "raw")).axes
    assert (moca.get_yscale(), ce.get_yscale()) == ("linear", "symlog")
    assert "logarithmic" in ce.get_ylabel()


def test_a_noise_level_looks_the_same_in_every_panel():
    """Also where an agent was not run at the others."""
    tables = [made.table(CARTPOLE, "bnaf", n, finals=[500] * 3, saturation=0.5) for n in ("0", "0.05")]
    tables.append(made.table(CARTPOLE, "naf", "0.05", finals=[500] * 3, saturation=0.5))
    bnaf, naf = inside.diagnostics(Cells(pd.concat(tables), "raw")).axes
    assert naf.lines[0].get_color() == bnaf.lines[1].get_color() != bnaf.lines[0].get_color()


def test_return_against_noise(tmp_path):
    plan = grid.narrowed(GRIDS["degradation"], seeds=3)
    synthetic.write(tmp_path, plan, diverged=1)
    paths = {path.name: path for path in curves.draw(tmp_path, tmp_path / "out", ("svg",))}
    found = set(text(paths["degradation-told.svg"]))
    assert {"mean of 3 seeds with its 95 % interval", "SAC, 2 of 3 seeds", "MoCA", "0.0125", "0.1"} <= found


def test_levels_scaled_by_the_state_stand_apart():
    """In a panel of their own, so that no label meets another."""
    noises = ("0", "0.05", "0.1", "state-norm 0.05", "state-norm 0.2")
    table = pd.concat(made.table(CARTPOLE, "moca", noise, finals=[500, 600]) for noise in noises)
    figure = scores.against_noise(Cells(table, "raw"))
    figure.draw_without_rendering()
    constant, scaled = figure.axes
    assert [tick.get_text() for tick in constant.get_xticklabels()] == ["0", "0.05", "0.1"]
    assert [tick.get_text() for tick in scaled.get_xticklabels()] == ["0.05", "0.2"]
    assert scaled.get_xlabel() == "state-norm noise, σ ≤"
    labels = [label.get_window_extent() for axes in figure.axes for label in axes.get_xticklabels()]
    assert all(one.x1 < two.x0 for one, two in itertools.pairwise(labels))


def test_profiles_compare_agents_that_were_run_on_the_same_cells():
    tables = [made.table(CARTPOLE, a, n, finals=[500, 600]) for a in ("moca", "bnaf") for n in ("0.025", "0.05")]
    tables.append(made.table(CARTPOLE, "naf", "0.05", finals=[500, 600]))
    said = [label.get_text() for label in scores.profiles(Cells(pd.concat(tables), "raw")).legends[0].get_texts()]
    assert said == ["MoCA", "BNAF"]


def test_seeds_that_an_agent_was_not_run_with_are_not_missing():
    table = pd.concat([made.table(CARTPOLE, "moca", "0.05", finals=[900] * 6), two_groups(CARTPOLE, "bnaf", 9)])
    figure = learning.of_task(Cells(table, "raw"), CARTPOLE)
    assert figure.legends[0].get_title().get_text() == "mean of 6 to 10 seeds with its 95 % interval"
    assert [label.get_text() for label in figure.legends[0].get_texts()] == ["MoCA", "BNAF"]


def test_many_tasks_are_one_figure(tmp_path):
    """Each with an axis of its own where returns are not those of Playground."""
    plan = grid.looked(GRIDS["further"], lambda *_: {
        "value.low": (-1.0,), "value.high": (1.0,), "value.lengthscales": (1.0,)
    })  # fmt: skip
    directory = synthetic.write(tmp_path / "study", grid.narrowed(plan, seeds=2))
    table = pd.read_parquet(directory / results.TABLE)
    table.loc[table["env"] == "gymnasium:Pendulum-v1", "return_mean"] -= 1500
    table.to_parquet(directory / results.TABLE, index=False)
    drawn = curves.draw(directory, tmp_path / "out", ("svg",))
    assert "learning-told.svg" in [path.name for path in drawn]
    cells = Cells(table, "told")
    shown = {title: axes.get_ylim() for title, axes in titles(learning.of_tasks(cells)).items()}
    assert shown["Ball In Cup"] == (0, 1020)
    assert shown["Pendulum-v1"][0] < -1400
    assert len(shown) == 6
    # The profile leaves out what has another scale: 5 tasks of 2 seeds.
    assert "10 runs" in scores.profiles(cells).legends[0].get_title().get_text()


def test_a_landscape_far_beyond_the_others_has_a_scale_of_its_own(tmp_path):
    """Else they would show nothing; the range of each is in its title then."""
    plane = {"angle": np.linspace(-3, 3, 5), "velocity": np.linspace(-8, 8, 5)}
    for most, own in ((1500, True), (60, False)):
        tops = {"moca": 40, "bnaf": 30, "moca-ce": most}
        values = {f"value/{agent}/0.1": np.linspace(0, top, 25).reshape(5, 5) for agent, top in tops.items()}
        actions = {f"action/{agent}/0.1": np.ones((5, 5)) for agent in tops}
        np.savez(tmp_path / "maps.npz", **plane, **values, **actions)
        figure = landscape.of_file(tmp_path / "maps.npz", PENDULUM, "raw")
        assert [axes.get_title(loc="left") for axes in figure.axes[:3]] == (
            ["MoCA\n0 to 40", "MoCA-CE\n0 to 1500", "BNAF\n0 to 30"] if own else ["MoCA", "MoCA-CE", "BNAF"]
        )
        tops = {axes.collections[0].get_clim()[1] for axes in figure.axes[:3]}
        assert tops == ({40, 1500, 30} if own else {60})


@pytest.mark.parametrize(
    ("noise", "label"),
    [
        ("0.025", "σ = 0.025"),
        ("0", "no noise"),
        ("state-norm 0.05", "state-norm, σ ≤ 0.05"),
        ("action 0.5", "action noise 0.5"),
    ],
)
def test_labels_of_noise(noise, label):
    assert noise_label(noise) == label


def test_kinds_of_noise_in_order():
    found = by_kind(["state-norm 0.2", "0.05", "action 0.5", "0", "state-norm 0.05", "0.025"])
    assert found == [["0", "0.025", "0.05"], ["action 0.5"], ["state-norm 0.05", "state-norm 0.2"]]
