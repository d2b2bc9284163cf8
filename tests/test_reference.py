"""The reference on the site has every public name: what it is asked to show and cannot find is left out in silence."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import moca
from moca import config
from moca import moments as mm
from moca.envs import adapters, gymnasium
from moca.envs.environment import Spaces

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """The names that the built page has entries for, each with its module."""
    pytest.importorskip("mkdocs")
    site = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(site)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return set(re.findall(r'id="(moca\.[\w.]+)"', (site / "reference.html").read_text()))


def test_the_python_interface(shown):
    assert set(moca.__all__) == set(moca._LAZY)
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
