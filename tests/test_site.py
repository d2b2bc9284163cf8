"""The site as it is built: the reference has every public name, and pages work when they are opened as files."""

import importlib
import re
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

import moca
from moca import config
from moca import moments as mm
from moca.envs import adapters, gymnasium
from moca.envs.environment import Spaces
from tests.browser import Chromium, Page, find

ROOT = Path(__file__).parent.parent
DESKTOP, PHONE = 1280, 390
CODE, PICTURES = (f"[...document.querySelectorAll('{what}')]" for what in ("pre > code", "article img"))
WIDE = f"{CODE}.filter((code) => code.scrollWidth > code.clientWidth + 1).map((code) => code.innerText)"
SILENT = f"{PICTURES}.filter((picture) => !picture.alt).map((picture) => picture.src)"
SEARCH = (
    "document.querySelector('[data-md-toggle=search]').click(), document.querySelector('.md-search__input').focus()"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site as `make site` left it, or built anew if that is older than a file it is made from."""
    pytest.importorskip("mkdocs")
    built = ROOT / "site"
    sources = [ROOT / "mkdocs.yml", ROOT / "tools" / "site.py", *(ROOT / "docs").rglob("*"), *(ROOT / "src").rglob("*")]
    newest = max(path.stat().st_mtime for path in sources if path.suffix != ".pyc" and path.is_file())
    if (built / "sitemap.xml").exists() and (built / "sitemap.xml").stat().st_mtime > newest:
        return built
    site = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(site)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return site


@pytest.fixture(scope="module")
def shown(site):
    """The names that the reference has entries for, each with its module."""
    return set(re.findall(r'id="(moca\.[\w.]+)"', (site / "reference.html").read_text()))


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    browser = Chromium(find(), tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@contextmanager
def opened(browser, path):
    """A page; in the end it has not complained, or asked anything of another host."""
    page = Page(browser, path, width=DESKTOP)
    yield page
    assert trouble(page) == []
    page.close()


def trouble(page):
    """What the page complained of, and what it asked of other hosts."""
    asked = [event["request"]["url"] for event in page.events("Network.requestWillBeSent")]
    return [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] + page.complaints()


def resize(page, width):
    page.call("Emulation.setDeviceMetricsOverride", width=width, height=844, deviceScaleFactor=1, mobile=width == PHONE)


def test_the_python_interface(shown):
    assert {f"{moca._LAZY[name]}.{name}" for name in moca.__all__} <= shown


def test_the_closed_forms(shown):
    missing = []
    for name in mm.__all__:
        try:  # a module that hides the name it holds, as expectation does
            entry = f"{importlib.import_module(f'moca.moments.{name}').__name__}.{name}"
        except ModuleNotFoundError:
            entry = f"moca.moments.{name}"
        missing += [name] if entry not in shown else []
    assert not missing


def test_the_adapters(shown):
    found = [
        f"{module.__name__}.{name}"
        for module in (adapters, gymnasium)
        for name, kind in vars(module).items()
        if isinstance(kind, type) and issubclass(kind, Spaces) and kind.__module__ == module.__name__
    ]
    assert len(found) == 3
    assert set(found) <= shown


def test_the_settings(shown):
    sections = {type(getattr(config.Config(), name.partition(".")[0])) for name in config.fields() if "." in name}
    assert {f"{kind.__module__}.{kind.__name__}" for kind in (config.Config, *sections)} <= shown
    assert "moca.presets.build" in shown


def test_pages_fit(site, browser):
    """Code needs no scrolling on a desktop, no page is wider than a phone, and pictures have alternative text.

    In one tab: a new one for each page takes twice the time.
    """
    faults = {}
    with opened(browser, site / "index.html") as page:
        for path in [*site.glob("[!4]*.html"), *site.glob("tutorials/*.html")]:  # 404.html is for servers
            resize(page, DESKTOP)
            page.go(path)
            found = page(WIDE) + page(SILENT) + trouble(page)
            resize(page, PHONE)
            found += [f"{width} wide" for width in [page("document.documentElement.scrollWidth")] if width > PHONE]
            faults |= {path.name: found} if found else {}
    assert faults == {}


def test_search_works_from_a_file(site, browser):
    with opened(browser, site / "index.html") as page:
        page(f"{SEARCH}, null")
        page.call("Input.insertText", text="moment matching")
        deadline = time.monotonic() + 20
        while page("document.querySelectorAll('.md-search-result__item a').length") < 2:
            assert time.monotonic() < deadline, "nothing was found"
            time.sleep(0.1)


def test_formulas_are_typeset(site):
    page = (site / "moments-rbf.html").read_text()
    assert "<math" in page
    assert "arithmatex" not in page
