"""The page about an episode in a real browser."""

import dataclasses
import re
import warnings
from pathlib import Path

import imageio_ffmpeg
import numpy as np
import pytest

from moca import pages
from moca.config import Config, override
from moca.runs.sketch import Sketch
from tests.browser import Chromium, find, opener
from tests.runs.test_inspect import SMALL, Two, held, write

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    browser = Chromium(find(), tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


def film(path, frames):
    """As many grey pictures, each lighter than the one before."""
    writer = imageio_ffmpeg.write_frames(str(path), (64, 64), fps=10, output_params=["-g", "1"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # JAX warns of any subprocess
        writer.send(None)
    for number in range(frames):
        writer.send(np.full((64, 64, 3), 20 * number, np.uint8))
    writer.close()
    return path.read_bytes()


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """MoCA, with a film and drawn from the side, beside SAC, which has neither; 60 steps."""
    folder = tmp_path_factory.mktemp("runs")
    settings = SMALL | {"env.episode_length": 60, "train.steps": 60, "noise.action": 0.0}
    one, two = (write(folder / name, override(Config(), settings | {"agent": name}), Two()) for name in ("moca", "sac"))
    made = one.inspect(beside=two)
    first, second = made.views
    slopes = np.array([[[0.1, 0.0], [0.0, 0.0]], [[0.2, 0.1], [0.0, 0.3]]])
    sketch = Sketch(("a", "b"), ("cart", "tip"), slopes, np.zeros((2, 2)), (0.2, 0.1), 1.0, (0, 1), 0, "a")
    shown = dataclasses.replace(first, film=film(folder / "a.mp4", 12), sketch=sketch)
    return dataclasses.replace(made, views=(shown, second))


@pytest.fixture(scope="module")
def path(page, tmp_path_factory):
    return page.save(tmp_path_factory.mktemp("page") / "inspect.html")


@pytest.fixture
def opened(browser, path):
    yield from opener(browser, path)


def test_the_docs_explain_every_panel(page):
    """The table has a row for each heading, in order; a heading may say more after a colon."""
    headings = [text.partition(":")[0] for text in re.findall(r"<h2 id=\"\w+\">(.*?)</h2>", page.html)]
    table = (ROOT / "docs" / "inspect.md").read_text().partition("| panel | what is in it |\n|---|---|\n")[2]
    assert headings == re.findall(r"^\| (.*?) \| ", table.partition("\n\n")[0], re.MULTILINE)


def now(page):
    page.settle()
    return page("document.getElementById('now').textContent")


def keys(page, panel, view=0, figure=0):
    """What is written below a chart."""
    cell = f"document.querySelectorAll('[data-view=\"{view}\"] [data-panel={panel}] .keys')[{figure}]"
    return [" ".join(text.split()) for text in page(f"[...{cell}.children].map((item) => item.textContent)")]


def shown(number, digits=2):
    return f"{number:.{digits}f}".replace("-", "−")


def test_scrubbing_shows_the_numbers_of_the_step(opened, page):
    tab, arrays = opened(), held(page)["views"][0]["arrays"]
    assert tab("document.title") == "Episode 0 on Two"
    for step in (0, 17, 59):
        tab(f"slider.value = {step}; slider.dispatchEvent(new Event('input'))")
        rewards = [view.arrays["reward"][step] for view in page.views]
        assert now(tab) == f"step {step} of 59, reward {shown(rewards[0])} and {shown(rewards[1])}"
        found = tab("times[0][0].lines.map((line) => line.of(current))")
        wanted = [arrays[name][step] for name in ("value", "expected")]
        np.testing.assert_allclose(found, [*wanted, wanted[1] - arrays["bias"][step]], rtol=1e-5)
        assert keys(tab, "stage")[0] == f"best action {shown(arrays['action'][step, 0])}"
        assert "NaN" not in tab("document.querySelector('main').innerHTML")


def test_keys_the_mouse_and_playing(opened):
    tab = opened()
    tab.press("ArrowRight")
    tab.press("ArrowRight")
    tab.press("ArrowLeft")
    assert now(tab).startswith("step 1 of 59")
    box = tab("(c => { c.scrollIntoView(); return c.getBoundingClientRect().toJSON() })(times[0][0].svg)")
    ends = tab("[times[0][0].x(0), times[0][0].x(59)]")
    tab.point(box["x"] + (ends[0] + ends[1]) / 2, box["y"] + 60, "mousePressed", "mouseReleased")
    assert 28 <= tab("current") <= 31
    tab("button.click()")
    assert tab("button.textContent") == "Pause"
    tab("new Promise((done) => setTimeout(done, 300))")
    assert tab("current") > 31
    tab("button.click()")
    stopped = tab("current")
    tab("new Promise((done) => setTimeout(done, 150))")
    assert tab("[current, button.textContent]") == [stopped, "Play"]


def test_the_parabola_is_q_in_the_box(opened, page):
    """At any action and along either of the two, which the reader chooses; the peak where the agent has it."""
    tab, arrays = opened(), page.views[0].arrays
    assert tab("[...form.elements.dimension.options].length") == 2
    for d in range(2):
        tab(f"form.elements.dimension.value = {d}; form.dispatchEvent(new Event('change')); go(7)")
        low, middle, high = arrays["advantage"][7, d]
        for place in (-1, 0, 0.3, 1):
            bend, slope = (low + high) / 2 - middle, (high - low) / 2
            wanted = middle + slope * place + bend * place**2
            assert tab(f"parabolas[0].cost(7, {d}, {place})") == pytest.approx(wanted, abs=1e-5)
        assert keys(tab, "stage")[2].startswith(f"peak {shown(arrays['vertex'][7, d])}")
    assert len(keys(tab, "stage", view=1, figure=1)) == 3  # SAC: the action alone, and V
    assert "only the action is shown" in tab("document.querySelector('[data-view=\"1\"]').textContent")


def test_two_agents_share_the_axes_of_what_is_compared(browser, tmp_path):
    """Else a flat Q looks like a steep one, and a narrow forecast like a wide one."""
    one, two = (
        write(tmp_path / name, override(Config(), SMALL | {"agent": name}), Two()) for name in ("moca", "moca-ce")
    )
    page = one.inspect(beside=two)
    for name, factor in (("advantage", 10), ("outcome", 3)):
        held = page.views[1].arrays
        arrays = held | ({name: factor * held[name]} if name in held else {"observed": factor * held["observed"]})
        page = dataclasses.replace(page, views=(page.views[0], dataclasses.replace(page.views[1], arrays=arrays)))
    path = page.save(tmp_path / "inspect.html")
    for opened in opener(browser, path):
        tab = opened()
        tab("go(4)")
        for kind in ("parabolas", "stills.filter((chart) => chart instanceof Ahead && chart.title === 's1')"):
            heights = tab(f"{kind}.map((chart) => [0, 0.1].map((value) => chart.y(value)))")
            assert len(heights) == 2
            np.testing.assert_allclose(heights[0], heights[1], err_msg=kind)
        least = min(view.arrays["advantage"][4, 0].min() for view in page.views)
        assert tab(f"parabolas[0].y({least})") < tab("parabolas[0].bottom")
        tab("form.elements.shown.value = '0'; form.dispatchEvent(new Event('change'))")
        assert tab(f"parabolas[0].y({least})") > tab("parabolas[0].bottom")  # alone, it has its own


def test_members_lie_where_they_predicted(opened, page):
    tab, arrays = opened(), page.views[0].arrays
    tab("go(9)")
    rings = tab("[...document.querySelectorAll('.member')].map((ring) => Number(ring.getAttribute('cx')))")
    away = (arrays["members"][9] - arrays["predicted"][9]) / arrays["deviation"][9]
    slope, middle = np.polyfit(away.T.ravel(), rings, 1)
    np.testing.assert_allclose(rings, middle + slope * away.T.ravel(), atol=0.5)
    came = tab("[...document.querySelectorAll('.came')].map((dot) => Number(dot.getAttribute('cx')))")
    off = (arrays["following"][9] - arrays["predicted"][9]) / arrays["deviation"][9]
    np.testing.assert_allclose(came, middle + slope * np.clip(off, -4, 4), atol=0.5)


def test_the_forecast_lies_ahead_of_the_present(opened, page):
    """Around now: the mean and both bands after each decision, and circles where the state then was."""
    tab, view = opened(), page.views[0]
    tab("go(7)")
    chart = "stills.filter((chart) => chart instanceof Ahead)[1]"
    points = lambda kind: np.array(  # noqa: E731
        [[float(n) for n in pair.split()] for pair in tab(f"{chart}.svg.querySelector('{kind}').getAttribute('d')")[1:]
         .removesuffix("Z").split("L")]
    )  # fmt: skip
    scale = lambda numbers, axis: np.array(tab(f"{list(map(float, numbers))}.map({chart}.{axis})"))  # noqa: E731
    mean, deviation = view.arrays["ahead"][7, :, 1], view.ahead_deviation[7, :, 1]
    np.testing.assert_allclose(points(".line.foreseen")[:, 0], scale(range(1, 16), "x"), atol=0.06)
    np.testing.assert_allclose(points(".line.foreseen")[:, 1], scale(mean, "y"), atol=0.06)
    for kind, times in ((".band", 1), (".wide", 2)):
        edges = np.concatenate([mean - times * deviation, (mean + times * deviation)[::-1]])
        np.testing.assert_allclose(points(kind)[:, 1], scale(edges, "y"), atol=0.06)
    came = tab(f"[...{chart}.svg.querySelectorAll('.happened')].map((dot) => Number(dot.getAttribute('cy')))")
    np.testing.assert_allclose(came, scale(view.outcome[8:23, 1], "y"), atol=0.06)
    tab("go(57)")
    assert tab(f"{chart}.svg.querySelectorAll('.happened').length") == 2
    assert "the episode is over" in keys(tab, "ahead", figure=2)[1]
    assert "SAC has no forecast" in tab(
        "document.querySelector('[data-view=\"1\"] [data-panel=ahead]').parentNode.textContent"
    )


def test_ellipses_are_those_of_the_covariances(opened, page):
    """Their axes and turn give the covariance of the tip again, in pixels; they hold 68 % and 95 %."""
    tab, view = opened(), page.views[0]
    tab("go(7)")
    for kind, share in (("near", 0.6827), ("far", 0.9545)):
        found = tab(
            f"[...document.querySelectorAll('.chart .{kind} ellipse')].map((e) => [...['cx', 'cy', 'rx', 'ry']"
            ".map((name) => Number(e.getAttribute(name))), Number(e.getAttribute('transform').slice(7).split(' ')[0])])"
        )
        assert len(found) == 30  # two points, fifteen decisions
        cx, _, rx, ry, turn = np.array(found)[1::2].T
        unit = np.polyfit(view.sketch.places(view.arrays["ahead"][7])[:, 1, 0], cx, 1)[0]
        angle = -np.radians(turn)
        along = np.stack([np.stack([np.cos(angle), np.sin(angle)]), np.stack([-np.sin(angle), np.cos(angle)])])
        drawn = np.einsum("atn,abn,acn->nbc", np.stack([rx, ry])[:, None] ** 2, along, along)
        wanted = -2 * np.log(1 - share) * unit**2 * view.sketch.spreads(view.arrays["ahead_covariance"][7])[:, 1]
        np.testing.assert_allclose(drawn, wanted, rtol=0.02, atol=2)


def test_the_state_panels_show_the_forecast_too(opened):
    tab = opened()
    for step, count in ((7, 15), (59, 15)):
        tab(f"go({step})")
        path = "times.flat().filter((chart) => chart.dots)[0].next.querySelector('.line.foreseen').getAttribute('d')"
        assert len(tab(path).split("L")) == count
        start = float(tab(path)[1:].split()[0])
        assert start == pytest.approx(tab(f"times.flat().filter((c) => c.dots)[0].x({step + 1})"), abs=0.06)


def test_switching_agents_and_windows(opened):
    tab = opened()
    visible = (
        "[...document.querySelectorAll('.view')].filter((cell) => cell.checkVisibility()).map((c) => c.dataset.view)"
    )
    assert sorted(set(tab(visible))) == ["0", "1"]
    for number in ("1", "0"):
        tab(f"form.elements.shown.value = '{number}'; form.dispatchEvent(new Event('change'))")
        assert set(tab(visible)) == {number}
        tab("go(11)")
    tab("form.elements.shown.value = 'all'; form.elements.window.value = '50'; form.dispatchEvent(new Event('change'))")
    assert tab("[times[0][0].from, times[0][0].to]") == [0, 50]
    tab("go(55)")
    assert tab("[times[0][0].from, times[0][0].to]") == [50, 100]
    assert tab("document.querySelectorAll('.band').length") > 0


def test_the_film_follows(opened):
    tab = opened()
    ready = "v.readyState ? done() : (v.onloadedmetadata = done)"
    tab(f"new Promise((done) => {{ const v = document.querySelector('video'); {ready} }})")
    box = tab("(v => [v.clientWidth, v.clientHeight])(document.querySelector('video'))")
    assert box[0] == box[1] > 100  # the film is square, and has no bars beside it
    duration = tab("document.querySelector('video').duration")
    tab("go(30)")
    tab("new Promise((done) => setTimeout(done, 300))")
    assert tab("document.querySelector('video').currentTime") == pytest.approx(duration / 2, abs=0.02)
    assert tab("document.querySelectorAll('[data-view=\"1\"] [data-panel=overview] .line').length") > 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone_in_both_schemes(opened, scheme):
    tab = opened(width=390, height=844, prefers_color_scheme=scheme)
    tab("form.elements.window.value = '50'; form.dispatchEvent(new Event('change')); go(20)")
    assert tab("document.documentElement.scrollWidth") == 390
    widths = tab("[...document.querySelectorAll('.chart')].map((c) => [c.clientWidth, c.viewBox.baseVal.width])")
    assert all(240 < seen <= 358 and seen == drawn for seen, drawn in widths)  # text is as large as it says
    paper = tab("getComputedStyle(document.body).backgroundColor")
    assert paper == {"light": "rgb(255, 255, 255)", "dark": "rgb(22, 25, 29)"}[scheme]
    ink = tab("getComputedStyle(document.querySelector('.view h3')).color")
    channels = [int(part) for part in ink.removeprefix("rgb(").removesuffix(")").split(",")]
    colour = "#" + "".join(f"{channel:02x}" for channel in channels)
    assert pages.contrast(colour, pages.PAPER[scheme]) >= 3


@pytest.fixture(scope="module")
def filtered(tmp_path_factory):
    """A page about SAC on a belief."""
    folder = tmp_path_factory.mktemp("filtered")
    settings = SMALL | {"agent": "sac", "belief.filter": True}
    return write(folder / "run", override(Config(), settings), Two()).inspect()


@pytest.fixture
def opened_filtered(browser, filtered, tmp_path):
    yield from opener(browser, filtered.save(tmp_path / "inspect.html"))


def test_a_dimension_of_the_state_shows_truth_observation_belief_and_prediction(opened_filtered, filtered):
    """Belief and prediction with their deviations on either side; the prediction is that of the step before."""
    tab, arrays = opened_filtered(), filtered.views[0].arrays
    tab("go(7)")
    for i in range(2):
        truth, observed, believed, width = (
            arrays[name][7, i] for name in ("truth", "observed", "believed", "uncertainty")
        )
        low, high = (arrays["predicted"][6, i] + sign * arrays["deviation"][6, i] for sign in (-1, 1))
        words = [text.split()[0] for text in keys(tab, "state", figure=i)[:4]]
        assert words == ["observed", "truth", "belief", "predicted"]
        chart = f"times.flat().filter((chart) => chart.dots)[{i}]"
        bands = f"{chart}.bands.flatMap((band) => band.of(7))"
        found = tab(f"[{chart}.dots(7), ...{chart}.lines.map((line) => line.of(7)), ...{bands}]")
        wanted = [observed, truth, believed, low, high, believed - width, believed + width]
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
