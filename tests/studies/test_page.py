"""The report in a real browser."""

import base64
import json
import re
import warnings

import imageio_ffmpeg
import numpy as np
import pytest

from moca import figures, pages
from moca.paper.grids import GRIDS
from moca.studies import grid, report, results, statistics
from tests.browser import Chromium, find, opener
from tests.studies import synthetic

STUDY = grid.Grid(
    "two", (grid.Block("CartpoleBalance", ("sac", "moca-ce", "moca"), ("0", "0.025", "0.05"), 50_000),), seeds=4
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    browser = Chromium(find(), tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A study in which one run of every SAC cell diverged, with a film."""
    directory = synthetic.write(tmp_path_factory.mktemp("study"), STUDY, diverged=1)
    (directory / "films").mkdir()
    film = imageio_ffmpeg.write_frames(str(directory / "films" / "balance.mp4"), (64, 64), fps=10)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # JAX warns of any subprocess
        film.send(None)
    for shade in range(10):
        film.send(np.full((64, 64, 3), 25 * shade, np.uint8))
    film.close()
    report.write(directory)
    return directory


@pytest.fixture
def opened(browser, study):
    yield from opener(browser, study / "report.html")


def test_every_cell_has_its_curve(opened):
    page = opened()
    assert page("document.title") == "Study two"
    assert page.count(".line") == page.count(".band") == [3, 3, 3]
    assert page.count(".line", "noise") == [3]
    assert page.count(".line", "calibration") == [2, 2, 2]  # SAC has no model
    assert page.count(".seed") == [0, 0, 0]


def test_an_agent_is_taken_out_of_every_chart(opened):
    """With the mouse, and with the keyboard alone."""
    page = opened()
    box = page("(box => { box.scrollIntoView(); return box.getBoundingClientRect().toJSON() })(form.agent[2])")
    page.point(box["x"] + 4, box["y"] + 4, "mousePressed", "mouseReleased")
    assert [page.count(".line", section) for section in ("curves", "noise", "calibration")] == [[2] * 3, [2], [1] * 3]
    assert page.count("[data-agent=moca]") == [0, 0, 0]
    assert not any("MoCA " in line for line in page.readout())
    page("form.agent[1].focus()")
    page.press("Tab")
    page.press(" ")
    assert page.count("[data-agent=moca] .line") == [1, 1, 1]
    page("form.agent[0].focus()")
    page.press(" ")
    assert page.count("[data-agent=sac]") == [0, 0, 0]
    page.press(" ")
    assert page.count(".line") == [3, 3, 3]


def test_nothing_chosen(opened):
    page = opened()
    page("form.agent.forEach((box) => box.click())")
    assert page.count(".line") == [0, 0, 0]
    assert "No chosen agent" in page("document.querySelector('.chart').textContent")


def test_another_metric(opened):
    page = opened()
    page.choose("metric", "coverage_1sigma")
    assert page.count(".line") == [2, 2, 2]
    assert page.count(".reference") == [1, 1, 1]
    assert page.count(".line", "noise") == [3]  # which has a metric of its own
    assert "Coverage of ±1σ (%)" in page("document.querySelector('.chart').textContent")
    assert page.readout()[0] == "Coverage of ±1σ, at step 50,000"
    for name in page("[...form.metric.options].map((option) => option.value)"):
        page.choose("metric", name)
        assert max(page.count(".line")) > 0
        assert "NaN" not in page("document.querySelector('[data-section=curves]').innerHTML")


def expected(table, step, preset="tuned", noise="0"):
    """The readout as it must be, from the results themselves."""
    lines = [f"Return, at step {step:,}"]
    for agent, name in (("sac", "SAC"), ("moca-ce", "MoCA-CE"), ("moca", "MoCA")):
        steps, values = statistics.curve(table, preset, "CartpoleBalance", agent, noise)
        values = values[:, ~np.isnan(values).any(axis=0)]
        at = values[list(steps).index(step)]
        note = " 3 of 4 seeds" if agent == "sac" else ""
        lines.append(f"{name} {at.mean():.0f} ± {statistics.mean_t(at).half_width:.0f}{note}")
    return lines


def test_the_readout_has_the_numbers_of_the_table(opened, study):
    table, page = results.load_results(study), opened()
    assert page.readout() == expected(table, 50_000)
    box = page(
        "(c => { c.scrollIntoView(); return c.getBoundingClientRect().toJSON() })(document.querySelector('.chart'))"
    )
    left, right = page("[charts[0].x(0), charts[0].x(50000)]")
    page.point(box["x"] + left + 0.601 * (right - left), box["y"] + 100)
    assert page.readout() == expected(table, 30_000)
    assert page.count(".cross") == [1, 0, 0]
    assert page.count(".dot") == [3, 0, 0]
    page.point(box["x"] + 100, box["y"] - 60)
    assert page.readout() == expected(table, 50_000)
    assert page.count(".cross") == [0, 0, 0]
    page.choose("preset", "paper")
    assert page.readout() == expected(table, 50_000, "paper")
    assert page.readout(2) == expected(table, 50_000, "paper", "0.05")


def test_the_readout_by_keyboard(opened, study):
    table, page = results.load_results(study), opened()
    page("form.seeds.focus()")
    page.press("Tab")
    assert page("document.activeElement.getAttribute('class')") == "chart"
    page.press("ArrowLeft")
    assert page.readout() == expected(table, 49_000)
    page.press("Home")
    page.press("ArrowLeft")  # there is nothing before the first
    assert page.readout() == expected(table, 1000)
    page.press("ArrowRight")
    assert page.readout() == expected(table, 2000)
    assert page("document.activeElement.nextElementSibling.ariaLive") == "polite"
    assert page.count(".cross") == [1, 0, 0]
    page.press("Escape")
    assert page.readout() == expected(table, 50_000)


def test_the_chart_describes_itself(opened, study):
    page = opened()
    told = page(
        "[...document.querySelectorAll('.chart')].map((c) => [c.getAttribute('role'), c.getAttribute('aria-label')])"
    )
    assert all(role == "img" for role, _ in told)
    assert page("document.querySelectorAll('.chart[tabindex=\"0\"]').length") == len(told)
    value = expected(results.load_results(study), 50_000)[3].replace(" ± ", "\u00a0±\u00a0")
    title = "Return against environment steps, CartpoleBalance, no noise, preset tuned. at step 50,000:"
    assert told[0][1].startswith(title)
    assert value in told[0][1]


def test_each_seed(opened, study):
    """As many thin lines as seeds; what they are drawn from is the table, but for its rounding."""
    page = opened()
    page("form.seeds.click()")
    assert page.count(".seed") == [12, 12, 12]
    each = page("charts[0].curves.map((curve) => curve.each.map((seed) => decode(seed, curve.range)))")
    for seeds, agent in zip(each, ("sac", "moca-ce", "moca"), strict=True):
        _, values = statistics.curve(results.load_results(study), "tuned", "CartpoleBalance", agent, "0")
        np.testing.assert_allclose(np.array(seeds, float), values.T, atol=0.2)
    assert "NaN" not in page("document.querySelector('[data-section=curves]').innerHTML")


def test_zoom(opened):
    """On what the lines do in the second half; each chart by itself, and only the learning curves."""
    page = opened()
    page.choose("axis", "zoomed")
    ranges = page("charts.filter((c) => c.panel.section === 'curves').map((c) => c.range)")
    late = page(
        "charts.filter((c) => c.panel.section === 'curves').map((c) => c.curves.flatMap((curve) => "
        "curve.mean.filter((_, i) => curve.x[i] >= 25000)))"
    )
    for (low, high), values in zip(ranges, late, strict=True):
        room = 0.04 * (max(values) - min(values))
        assert low == pytest.approx(min(values) - room)
        assert high == pytest.approx(max(values) + room)
    assert page("document.querySelector('figcaption').textContent").endswith("zoomed axis")
    assert page("charts.find((c) => c.panel.section === 'noise').range[0]") == 0
    # What lies beyond the axis is not drawn over it.
    clip = page("(c => [c.getAttribute('height'), getComputedStyle(c).overflow])(document.querySelector('.chart svg'))")
    assert clip == ["204", "hidden"]
    page.choose("axis", "full")
    assert page("charts[0].range[0]") == 0


def test_a_logarithmic_axis_shows_small_values_beside_huge_ones(opened, tmp_path):
    plan = grid.Grid("l", (grid.Block("CartpoleBalance", ("moca-ce", "moca"), ("0.05",), 50_000),), ("tuned",), seeds=3)
    directory = synthetic.write(tmp_path, plan)
    table = results.load_results(directory)
    table["overestimation"] = np.where(table["agent"] == "moca", -5.0, 1500.0)
    table.to_parquet(directory / results.TABLE, index=False)
    page = opened(report.write(directory))
    page.choose("metric", "overestimation")
    gap = "Math.abs(charts[0].y(-5) - charts[0].y(0))"
    assert page(gap) < 2
    page.choose("axis", "log")
    assert page(gap) > 4
    ticks = page("[...document.querySelectorAll('.chart text')].map((t) => t.textContent)")
    assert {"0", "100", "1000"} <= set(ticks)
    assert page("document.querySelector('figcaption').textContent").endswith("logarithmic axis")
    assert page.count(".line") == [2]


def test_median_and_middle_half(opened, study):
    """Of the seeds that did not diverge."""
    page = opened()
    page.choose("line", "median")
    (head, sac, *_) = page.readout()
    assert head == "Return, median (middle half), at step 50,000"
    _, values = statistics.curve(results.load_results(study), "tuned", "CartpoleBalance", "sac", "0")
    last = values[-1][np.isfinite(values[-1])]
    low, middle, high = np.quantile(last, (0.25, 0.5, 0.75))
    found = re.fullmatch(r"SAC (\d+) \((\d+) to (\d+)\) 3 of 4 seeds", sac)
    np.testing.assert_allclose([int(each) for each in found.groups()], [middle, low, high], atol=0.8)
    assert page.count(".band") == page.count(".line") == [3, 3, 3]


def test_folded_claims_open_by_keyboard(opened, tmp_path):
    """Those that go beyond the paper, at noise that it does not have."""
    page = opened(report.write(synthetic.write(tmp_path, grid.narrowed(GRIDS["degradation"], seeds=5, steps=20_000))))
    folded = "document.querySelector('section[aria-labelledby=claims] details')"
    assert page(f"{folded}.open") is False
    page(f"{folded}.querySelector('summary').focus()")
    page.press(" ")
    assert page(f"{folded}.open") is True
    assert page(f"{folded}.querySelectorAll('td[data-preset]').length") > 0


def test_it_fits_a_phone(opened, tmp_path):
    """With the longest names there are, all metrics, and all that can be opened."""
    pendulum = grid.narrowed(GRIDS["pendulum"], seeds=2, steps=50_000)
    page = opened(report.write(synthetic.write(tmp_path, pendulum, diverged=1)), width=360, height=740)
    page("document.querySelectorAll('details').forEach((section) => (section.open = true))")
    page.settle()
    for name in page("[...form.metric.options].map((option) => option.value)"):
        page.choose("metric", name)
        assert page("document.documentElement.scrollWidth") == 360
    assert page("[...document.querySelectorAll('.scroll')].some((box) => box.scrollWidth > box.clientWidth)")
    widths = page("[...document.querySelectorAll('.chart')].map((c) => [c.clientWidth, c.viewBox.baseVal.width])")
    assert all(240 < shown <= 328 and shown == drawn for shown, drawn in widths)  # text is as large as it says


def colours(page, *selectors):
    """What is drawn at those places, as #rrggbb."""
    found = page(f"{json.dumps(selectors)}.map((s) => getComputedStyle(document.querySelector(s)).color)")
    return ["#" + "".join(f"{int(c):02x}" for c in re.findall(r"\d+", colour)[:3]) for colour in found]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_both_schemes_can_be_read(opened, scheme):
    page = opened(prefers_color_scheme=scheme)
    paper = page("getComputedStyle(document.body).backgroundColor")
    assert paper == {"light": "rgb(255, 255, 255)", "dark": "rgb(22, 25, 29)"}[scheme]
    for colour in colours(page, "body", ".note", "a", "thead th", ".holds", ".undecided"):
        assert pages.contrast(colour, pages.PAPER[scheme]) >= 4.5
    lines = colours(page, "[data-agent=moca]", "[data-agent=sac]", ".chart [data-agent=moca-ce]")
    assert lines == [pages.legible(figures.COLOURS[name], scheme) for name in ("moca", "sac", "ce")]


def test_on_paper_all_is_open_and_light(opened):
    page = opened(prefers_color_scheme="dark")
    shut = "document.querySelectorAll('details:not([open])').length"
    assert page(shut) > 5
    page(f"addEventListener('beforeprint', () => (document.title = {shut}))")
    pdf = base64.b64decode(page.call("Page.printToPDF")["data"])
    assert pdf.startswith(b"%PDF")
    assert page("document.title") == "0"
    assert page(shut) > 5
    page.call("Emulation.setEmulatedMedia", media="print", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    assert page("getComputedStyle(form).display") == "none"
    assert page("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def test_the_film_plays(opened):
    page = opened()
    loaded = "new Promise((done) => (v.readyState ? done() : (v.onloadedmetadata = v.onerror = done)))"
    seconds = page(f"(async (v) => {{ await {loaded}; return v.duration }})(document.querySelector('video'))")
    assert seconds == pytest.approx(1, abs=0.2)


def test_a_name_is_text(opened, tmp_path, monkeypatch):
    """Not markup, not a script, and no end of the script it stands in."""
    name = "</script><script>document.title = 'taken'</script><img src=x onerror=alert(1)>&amp;'\"</title>"
    block = grid.Block("CartpoleBalance", ("moca",), ("0.05",), 2000, {"train.eval_every": 1})
    plan = grid.Grid(name, (block,), presets=("tuned",), seeds=1)
    directory = synthetic.write(tmp_path, plan)
    monkeypatch.setattr(results, "load_grid", lambda _: plan)  # which would not take the name
    origin = {name: {"versions": {name: name}, "python": name, "device": [name], "commit": name, "seconds": 1}}
    (directory / results.ORIGIN).write_text(json.dumps(origin))
    table = results.load_results(directory).rename(columns={"q_mean": name})
    table.to_parquet(directory / results.TABLE, index=False)
    page = opened(report.write(directory))
    assert page("document.title") == f"Study {name}"
    assert page("document.querySelector('h1').textContent") == f"Study {name}"
    assert page("document.images.length") == 0
    assert page("document.scripts.length") == 2
    assert page.count(".line") == [1]
    page.choose("metric", name)
    assert page.readout()[0].startswith(f"{name.replace('_', ' ')}, at step")
