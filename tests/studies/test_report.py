"""The report as text: its numbers, that it is whole, safe and the same twice. What it does is in `test_page.py`."""

import dataclasses
import itertools
import json
import re
import shlex
from html.parser import HTMLParser

import numpy as np
import pytest

from moca import figures, pages
from moca.config import ConfigError, to_json
from moca.looks import label
from moca.paper import claims
from moca.paper import report as section
from moca.paper.grids import GRIDS
from moca.studies import (
    grid,
    launch,
    report,
    report_charts,
    report_origin,
    results,
    statistics,
)  # fmt: skip
from tests.studies import made, synthetic

BLOCK = grid.Block("CartpoleBalance", ("sac", "moca"), ("0.05", "state-norm 0.05"), 50_000)
SMALL = grid.Grid("small", (BLOCK,), presets=("tuned",), seed=5, seeds=3)
VOID = ("meta", "input", "br", "line")


class Parsed(HTMLParser):
    """A page taken apart: its elements with their text and those around them."""

    def __init__(self, page):
        super().__init__()
        self.open, self.elements = [], []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attributes):
        element = {"tag": tag, "text": "", "around": [e["tag"] for e in self.open], **dict(attributes)}
        self.elements.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        assert tag in VOID

    def handle_endtag(self, tag):
        assert self.open.pop()["tag"] == tag

    def handle_data(self, data):
        for element in self.open:
            element["text"] += data

    def all(self, *tags):
        return [element for element in self.elements if element["tag"] in tags]


def read(directory, **where):
    return report.write(directory, **where).read_text()


def embedded(page):
    return json.loads(next(e["text"] for e in Parsed(page).elements if e.get("id") == "data"))


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return synthetic.write(tmp_path_factory.mktemp("study"), SMALL, diverged=1)


@pytest.fixture(scope="module")
def page(study):
    return read(study)


def rewrite(tmp_path, change, study=SMALL):
    """A study whose results were changed by a function."""
    directory = synthetic.write(tmp_path, study)
    change(results.load_results(directory)).to_parquet(directory / results.TABLE, index=False)
    return directory


def test_the_same_bytes_wherever_it_lies(page, tmp_path):
    again = synthetic.write(tmp_path / "elsewhere", SMALL, diverged=1)
    assert report.write(again).read_text() == page == read(again, out=tmp_path / "deep" / "page.html")
    assert str(tmp_path) not in page


def test_it_is_small(tmp_path):
    """14 cells of 10 seeds and 50 evaluations."""
    pendulum = grid.narrowed(GRIDS["pendulum"], presets=["tuned"])
    assert report.write(synthetic.write(tmp_path, pendulum)).stat().st_size < 400_000


def test_it_is_whole(page):
    """Well formed, nothing from elsewhere, ids once, headings in order, every control with a label."""
    parsed = Parsed(page)
    assert parsed.open == []
    links = [e[key] for e in parsed.elements for key in ("src", "href", "action", "srcset", "data") if key in e]
    assert links
    ids = [e["id"] for e in parsed.elements if "id" in e]
    assert len(ids) == len(set(ids))
    assert all(link.startswith("#") and link[1:] in ids for link in links)
    assert not re.search(r"@import|url\(|fetch\(|XMLHttp", page)
    levels = [int(e["tag"][1]) for e in parsed.all("h1", "h2", "h3", "h4")]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    assert all("label" in e["around"] for e in parsed.all("input", "select"))
    assert all(e["scope"] for e in parsed.all("th"))


def described(page):
    """What the page says of the study itself."""
    return next(e["text"] for e in Parsed(page).all("p") if e["text"].startswith("The study"))


def test_the_summary(page):
    text = described(page)
    assert "compares SAC and MoCA on CartpoleBalance (σ 0.05 and state-norm 0.05; 50,000 steps)" in text
    assert "under the preset tuned, with 3 seeds (5 to 7) per cell: 4 cells, 12 runs. It ran on cpu." in text
    assert "2 of 12 runs diverged" in text


def test_the_scores(study, page):
    scores = statistics.final_scores(results.load_results(study))
    _, _, *rows = map("".join, rows_under(page, "CartpoleBalance, preset tuned"))
    row = next(row for row in rows if row.startswith("MoCA"))
    mean = statistics.mean_t(scores.loc["tuned", "CartpoleBalance", "moca", "0.05"])
    iqm = statistics.bootstrap(statistics.iqm, scores.loc["tuned", "CartpoleBalance", "moca", "0.05"])
    expected = f"MoCA{mean.value:.0f} ± {mean.half_width:.0f}{iqm.value:.0f}"
    assert row.startswith(expected)
    assert "[" not in row  # of three seeds
    assert "2 of 3 seeds" in next(row for row in rows if row.startswith("SAC"))
    assert "of 3 seeds" not in row


@pytest.mark.parametrize(("lead", "bold"), [(300, 2), (1, 0)])
def test_the_best_is_bold_only_where_it_stands_apart(tmp_path, lead, bold):
    def change(table):
        noise = np.random.default_rng(0).normal(size=len(table)) * 20 + 10 * (table["seed"] - SMALL.seed)
        return table.assign(return_mean=500 + noise + lead * (table["agent"] == "moca"))

    strong = Parsed(read(rewrite(tmp_path, change))).all("strong")
    assert len(strong) == bold
    assert all(e["text"].startswith("8") for e in strong)


@pytest.mark.parametrize(("task", "bold"), [("PendulumSwingup", 2), ("CartpoleBalance", 0)])
def test_what_a_seed_adds_to_all_agents_does_not_hide_the_best(tmp_path, task, bold):
    """On Pendulum, where scores are paired by seed."""

    def change(table):
        noise = np.random.default_rng(0).normal(size=len(table)) + 200 * (table["seed"] - SMALL.seed)
        return table.assign(return_mean=300 + noise + 30 * (table["agent"] == "moca"))

    plan = dataclasses.replace(SMALL, blocks=(dataclasses.replace(BLOCK, env=task, noises=("0.025", "0.05")),))
    assert len(Parsed(read(rewrite(tmp_path, change, plan))).all("strong")) == bold


def rows_under(page, caption):
    """The rows of the table with that caption, as lists of the texts in their cells."""
    elements = Parsed(page).elements
    start = next(i for i, e in enumerate(elements) if e["tag"] == "caption" and e["text"].startswith(caption))
    rows = []
    for element in elements[start + 1 :]:
        if element["tag"] == "caption":
            break
        if element["tag"] == "tr":
            rows.append([])
        elif element["tag"] in ("td", "th"):
            rows[-1].append(element["text"])
    return rows


def test_improvement(tmp_path, page):
    """With an interval, unless draws anew say nothing: of few runs, or where one agent always wins."""

    def change(table):
        lead = np.select([table["noise"] == "0.05", table["agent"] == "moca"], [0, 400])
        noise = 50 * np.sin(table["seed"] + 7 * (table["agent"] == "moca"))
        return table.assign(return_mean=300 + noise + lead)

    directory = rewrite(tmp_path, change, grid.narrowed(SMALL, seeds=6))
    scores = statistics.final_scores(results.load_results(directory)).loc["tuned", "CartpoleBalance"]
    _, sac = rows_under(read(directory), "P(MoCA > agent): CartpoleBalance, preset tuned")
    found = statistics.improvement(scores.loc["moca", "0.05"], scores.loc["sac", "0.05"])
    assert 0 < found.low < found.high < 1
    assert sac == ["SAC", f"{found.value:.2f} [{found.low:.2f}, {found.high:.2f}]", "1.00all pairs"]
    assert "P(MoCA" not in page  # of three seeds
    assert not re.search(r"\[([\d.]+), \1\]", read(directory))


def test_speed(study, page, tmp_path):
    table = results.load_results(study)
    scores = statistics.final_scores(table).loc["tuned", "CartpoleBalance"]
    _, sac, moca = rows_under(page, "Steps to 90 % of the best: CartpoleBalance, preset tuned")
    best = statistics.mean_t(scores.loc["moca", "0.05"]).value
    steps = statistics.steps_to(*statistics.curve(table, "tuned", "CartpoleBalance", "moca", "0.05"), 0.9 * best)
    reached = int(np.isfinite(steps).sum())
    assert reached >= 2
    assert moca[:2] == ["MoCA", f"{np.median(steps):,.0f}reached by {reached} of 3"]
    assert sac[:2] == ["SAC", "–reached by 0 of 3"]
    without = read(synthetic.write(tmp_path, grid.narrowed(SMALL, agents=["sac"])))
    assert "P(MoCA" not in without
    assert "Steps to 90 %" not in without


def test_the_claims(study, page):
    """Every verdict once, with its word and its symbol, in a group; the notes after them all.

    What was not measured is counted, once, below the tables, and takes no lines of its own.
    """
    judged = claims.judge(results.load_results(study))
    verdicts = [verdict for verdict in judged if verdict.verdict != claims.ABSENT]
    absent = claims.not_measured([[verdict] for verdict in judged if verdict not in verdicts])
    assert [e["text"].count(absent) for e in Parsed(page).all("p") if "not measured" in e["text"]] == [0, 1]
    assert absent.startswith(
        "72 claims were not measured: MoCA: not run at other noise levels (23), BNAF: not run (16)"
    )
    symbols = section.SYMBOLS
    cells = [e["text"] for e in Parsed(page).all("td") if "data-preset" in e]
    assert sorted(cells) == sorted(f"{symbols[v.verdict]}{v.verdict} {plain(v.measured)}" for v in verdicts)
    assert set(symbols) == set(claims.WORDS)
    assert len(set(symbols.values())) == 5
    assert {section._family(v.claim) for v in verdicts} <= section.FAMILIES.keys()
    assert page.rindex("data-preset") < page.index("How to read the verdicts")
    assert {line[2:].replace("`", "") for line in claims.NOTES.splitlines()} <= {
        e["text"] for e in Parsed(page).all("li")
    }


def test_a_study_that_measures_no_claim_has_no_notes_on_verdicts(tmp_path):
    """Two seeds of one agent at one noise level."""
    plan = grid.Grid("alone", (grid.Block("CartpoleBalance", ("moca",), ("0.1",), 50_000),), ("tuned",), 5, 2)
    page = read(synthetic.write(tmp_path, plan))
    assert page.count("claims were not measured: MoCA: not run at other noise levels (") == 1
    assert "How to read the verdicts" not in page


def test_no_markdown_is_left_on_the_page(page):
    """Notes are Markdown where claims.md has them."""
    text = page[page.index("<body>") : page.index('<script type="application/json"')]
    assert not re.search(r"`|\*\*", text)


def plain(measured):
    return re.sub(r"-(?=\d)", "−", measured).replace(" ±", "\u00a0±")


def test_the_page_opens_with_the_conclusion(page, tmp_path):
    """Before what was run, all tables and all notes; presets as the claims have them."""
    assert page.index('id="conclusion"') < page.index("The study small") < page.index("<table")
    both = read(synthetic.write(tmp_path, dataclasses.replace(SMALL, presets=("paper", "tuned"))))
    heads = [e["text"] for e in Parsed(both).all("h3") if e["text"].startswith("Preset")]
    assert heads == ["Preset tuned", "Preset paper"]
    captions = [e["text"] for e in Parsed(both).all("caption") if "preset" in e["text"]]
    assert captions[0].endswith("tuned")
    assert embedded(both)["presets"] == ["tuned", "paper"]


def test_solved_seeds_are_counted_on_pendulum(tmp_path):
    """In the scores and beside the curves; a run that diverged has not solved it."""
    block = grid.Block("PendulumSwingup", ("moca",), ("0.05",), 20_000)
    plan = grid.Grid("p", (block,), presets=("raw",), seeds=5)
    directory = synthetic.write(tmp_path, plan)
    table = made.table("PendulumSwingup", "moca", "0.05", finals=[800, 800, 820, 100, 900], diverged=[4])
    table.to_parquet(directory / results.TABLE, index=False)
    page = read(directory)
    assert "4 of 5 seeds3 of 5 solved" in "".join(rows_under(page, "PendulumSwingup, preset raw")[2])
    assert embedded(page)["panels"][0]["curves"][0]["solved"] == "3 of 5"
    assert embedded(page)["typical"]
    assert '<select name="line"><option value="median">' in page


def test_a_large_study_keeps_single_seeds_of_its_first_metrics(study, page, monkeypatch):
    held = lambda page: [n for n, m in embedded(page)["panels"][0]["curves"][1]["metrics"].items() if "each" in m]  # noqa: E731
    table = results.load_results(study)
    assert held(page) == report_charts.shown_metrics(table)
    monkeypatch.setattr(report_charts, "EACH", 5 * len(table))
    assert held(read(study)) == ["return_mean", "return_noise_free"]


def test_another_task_has_no_claims(tmp_path):
    other = grid.Grid("other", (grid.Block("CartpoleSwingup", ("sac",), ("0.05",), 50_000),), ("tuned",), seeds=2)
    assert "The paper claims nothing about these tasks." in read(synthetic.write(tmp_path, other))


def test_what_the_charts_are_drawn_from(study, page):
    data, table = embedded(page), results.load_results(study)
    assert [panel["section"] for panel in data["panels"]] == ["curves"] * 2 + ["calibration"] * 2
    assert [metric["name"] for metric in data["metrics"][:3]] == ["return_mean", "return_noise_free", "train_return"]
    assert not any(metric["name"].startswith("calibration_") for metric in data["metrics"])
    sac, moca = data["panels"][0]["curves"]
    assert (sac["seeds"][0], sac["asked"], moca["seeds"][0]) == (2, 3, 3)
    for curve in (sac, moca):
        steps, values = statistics.curve(table, "tuned", "CartpoleBalance", curve["agent"], "0.05", "return_mean")
        values = values[:, ~np.isnan(values).any(axis=0)]  # who diverged is in no mean, not even before
        assert curve["x"] == steps.tolist()
        np.testing.assert_allclose(curve["metrics"]["return_mean"]["mean"], values.mean(axis=1), rtol=1e-4)
        half = [statistics.mean_t(row).half_width for row in values]
        np.testing.assert_allclose(curve["metrics"]["return_mean"]["spread"], half, rtol=1e-4)
    assert "coverage_1sigma" not in sac["metrics"]
    _, coverage = statistics.curve(table, "tuned", "CartpoleBalance", "moca", "0.05", "coverage_1sigma")
    np.testing.assert_allclose(moca["metrics"]["coverage_1sigma"]["mean"], 100 * coverage.mean(axis=1), rtol=1e-4)
    (calibration,) = data["panels"][2]["curves"]
    np.testing.assert_allclose(calibration["metrics"]["calibration"]["mean"], np.arange(11, 100, 10), rtol=1e-4)


def test_return_against_noise(tmp_path):
    """Of levels in order, with the intervals of the scores; two levels of a kind are no curve."""
    block = grid.Block("CartpoleBalance", ("moca",), ("0.1", "0", "0.05", "state-norm 0.05"), 50_000)
    directory = synthetic.write(tmp_path, grid.Grid("n", (block,), presets=("tuned",), seeds=3))
    (panel,) = (p for p in embedded(read(directory))["panels"] if p["section"] == "noise")
    (curve,) = panel["curves"]
    assert curve["x"] == [0, 0.05, 0.1]
    scores = statistics.final_scores(results.load_results(directory)).loc["tuned", "CartpoleBalance", "moca"]
    expected = [statistics.mean_t(scores.loc[noise]) for noise in ("0", "0.05", "0.1")]
    np.testing.assert_allclose(curve["metrics"]["final"]["mean"], [e.value for e in expected], rtol=1e-4)
    np.testing.assert_allclose(curve["metrics"]["final"]["spread"], [e.half_width for e in expected], rtol=1e-4)


def test_cells_that_are_missing_or_lost(tmp_path):
    """One not finished, one of which every run diverged at once; a metric nobody knows; one seed has no interval."""

    def change(table):
        table = table[(table["agent"] == "moca") | (table["noise"] == "0.05")].assign(strange_thing=1.5)
        lost = table["agent"] == "sac"
        table.loc[lost, "diverged"] = 1
        table.loc[lost, table.columns.difference([*results.KEYS, "diverged"])] = np.nan
        return table

    page = read(rewrite(tmp_path, change, grid.narrowed(SMALL, seeds=1)))
    text = described(page)
    assert "with one seed per cell: 3 cells, 3 runs. 1 of the 4 requested cells are not finished" in text
    assert "1 of 3 runs diverged" in text
    row = "".join(rows_under(page, "CartpoleBalance, preset tuned")[2])
    assert row.startswith("SAC–0 of 1 seeds––")
    assert {"name": "strange_thing", "label": "strange thing"}.items() <= embedded(page)["metrics"][-3].items()
    assert "<strong>" not in page


def test_text_stays_text(tmp_path, monkeypatch):
    name = "</script><script>alert(1)</script><b>&amp;\"'<!--"
    plan = grid.Grid(name, (BLOCK,), presets=("tuned",), seeds=2)
    directory = synthetic.write(tmp_path, plan)
    monkeypatch.setattr(results, "load_grid", lambda _: plan)  # which would not take the name
    origin = {name: {"versions": {name: name}, "python": name, "device": [name], "commit": name, "seconds": 1}}
    (directory / results.ORIGIN).write_text(json.dumps(origin))
    table = results.load_results(directory).rename(columns={"q_mean": name})
    table.to_parquet(directory / results.TABLE, index=False)
    (directory / "films").mkdir()
    (directory / "films" / "<b>.mp4").write_bytes(b"film")
    page = read(directory)
    parsed = Parsed(page)
    assert len(parsed.all("script")) == 2
    assert not parsed.all("b")
    assert parsed.all("title")[0]["text"] == f"Study {name}"
    assert name in [metric["name"] for metric in embedded(page)["metrics"]]
    inside = page.split('id="data">')[1].split("</script>")[0]
    assert "<" not in inside


def test_only_its_own_script_may_run(page):
    policy = next(e["content"] for e in Parsed(page).all("meta") if "http-equiv" in e)
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy


def test_films(study, tmp_path):
    """They are in the page, under the names of their jobs."""
    directory = synthetic.write(tmp_path / "study", SMALL)
    assert not Parsed(read(directory)).all("video")
    (directory / "films").mkdir()
    (directory / "films" / "small.mp4").write_bytes(b"film")
    job = grid.plan(SMALL)[0]
    (directory / "films" / f"{job.name}.mp4").write_bytes(b"film of a job")
    videos = Parsed(read(directory)).all("video")
    assert videos[0]["src"] == "data:video/mp4;base64,ZmlsbQ=="
    name, noise = label(job.agent), report.noise_label(job.noises[job.strongest])
    said = f"{name} on {job.config.env.name}, preset {job.preset}, {noise}, a typical seed"
    assert videos[1]["aria-label"] == said


def test_settings_are_those_of_the_run_where_it_is_there(study, tmp_path):
    directory = synthetic.write(tmp_path, SMALL)
    job = grid.plan(SMALL)[1]
    planned = to_json(job.config)
    assert planned in {e["text"] for e in Parsed(read(directory)).all("pre")}
    (directory / results.CELLS / job.name).mkdir(parents=True)
    (directory / results.CELLS / job.name / "config.json").write_text('{"as": "recorded"}\n')
    shown = {e["text"] for e in Parsed(read(directory)).all("pre")}
    assert '{"as": "recorded"}' in shown
    assert planned not in shown
    assert grid.to_json(SMALL) in shown


def test_where_it_came_from(tmp_path):
    directory = synthetic.write(tmp_path, SMALL)
    rows = [e["text"] for e in Parsed(read(directory)).all("tr")]
    assert "00000003.11cpujax 0.10.2all0.00" in rows
    origin = json.loads((directory / results.ORIGIN).read_text())
    first = next(iter(origin))
    origin[first] |= {"commit": "1234567", "device": ["H200", "H200"], "seconds": 7200, "versions": {"jax": None}}
    (directory / results.ORIGIN).write_text(json.dumps(origin))
    page = read(directory)
    assert f"12345673.112 × H200{first}2.00" in [e["text"] for e in Parsed(page).all("tr")]
    assert "git checkout" not in page  # there is not one commit
    (directory / results.ORIGIN).unlink()
    assert "Not known" in read(directory)


def commands(page):
    return [e["text"] for e in Parsed(page).all("pre")][-1].splitlines()


def test_how_to_do_it_again(tmp_path, monkeypatch):
    """By command where the grid is one of ours, narrowed or not; else from its own file."""
    narrow = grid.narrowed(
        GRIDS["cartpole"], seeds=2, steps=50_000, presets=["tuned"], agents=["sac", "moca"],
        settings={"belief.filter": "false"},
    )  # fmt: skip
    lines = commands(read(synthetic.write(tmp_path / "a", narrow)))
    assert lines == [
        "git checkout 0000000",
        "moca study cartpole --seeds 2 --steps 50000 --presets tuned --agents sac moca --set belief.filter=false",
        "moca figure cartpole",
        "moca report studies/cartpole",
    ]
    for name, ours in GRIDS.items():
        assert report_origin.study_command(ours) == f"moca study {name}"
    monkeypatch.chdir(tmp_path)
    directory = synthetic.write(tmp_path / "studies" / "small", SMALL)
    program = shlex.split(commands(read(directory))[1])
    asked = []
    monkeypatch.setattr(launch, "study", lambda *arguments: asked.append(arguments))
    exec(program[2], {})
    ((plan, where),) = asked
    assert plan == SMALL
    assert where.resolve() == directory


def test_what_was_not_committed_cannot_be_checked_out(tmp_path):
    directory = synthetic.write(tmp_path, SMALL)
    origin = json.loads((directory / results.ORIGIN).read_text())
    for job in origin.values():
        job["commit"] = "1234567-dirty"
    (directory / results.ORIGIN).write_text(json.dumps(origin))
    page = read(directory)
    assert "git checkout" not in page
    assert "The tree had uncommitted changes, on top of 1234567" in page
    assert "uncommitted" not in read(synthetic.write(tmp_path, SMALL))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_lines_stand_out(scheme):
    for colour in figures.COLOURS.values():
        shown = pages.legible(colour, scheme)
        assert pages.contrast(shown, pages.PAPER[scheme]) >= 3
    assert pages.legible("#0072B2", "light") == "#0072b2"  # as it is, where that will do


def test_titles_fit_their_axes():
    """A chart is 250 high, and a letter about six wide."""
    assert max(len(metric.title) for metric in report_charts.METRICS.values()) <= 36


def test_contrast_by_hand():
    assert pages.contrast("#ffffff", "#000000") == pytest.approx(21)
    assert pages.contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005)


def test_errors(study, tmp_path):
    with pytest.raises(ConfigError, match=r"is not a study: it has no study\.json"):
        report.write(tmp_path)
    with pytest.raises(ConfigError, match="cannot write the report"):
        report.write(study, tmp_path)
