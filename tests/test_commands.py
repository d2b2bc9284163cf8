"""The commands of the pages are ones that the program accepts."""

import re
import shlex
from pathlib import Path

import pytest

from moca.cli import main
from moca.envs import defaults
from moca.envs.named import named

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^ *```(?:bash|sh|console)?\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
# These need a run, a file or a module of the reader's.
NEEDS = ("--resume", "--from", "--config", "my_module:", "reach:", ".toml")


def commands() -> list[str]:
    """Returns the commands of all pages that start training, each once."""
    found = {
        shlex.join(shlex.split(line, comments=True))
        for page in PAGES
        for block in BLOCK.findall(page.read_text())
        for line in block.replace("\\\n", " ").splitlines()
        if re.match(r"moca (train|study|sweep) ", line.strip())
    }
    return sorted(line for line in found if not any(need in line for need in NEEDS))


def test_there_are_commands():
    assert len(commands()) > 30


@pytest.fixture(autouse=True)
def ranges(monkeypatch):
    """Ranges are not measured: only their number matters here."""

    def found(env, *_, observed=(), history=0, **__):
        env = named(env) if isinstance(env, str) else env
        size = len(observed) or env.observation_size
        state = size * (1 + history)
        scales = {"sensor.scales": (1.0,) * size} if history else {}
        ranges = {"value.low": (-1.0,) * state, "value.high": (1.0,) * state, "value.lengthscales": (0.5,) * state}
        return ranges | scales | {"noise.scales": (1.0,) * size}

    monkeypatch.setattr(defaults, "defaults", found)
    monkeypatch.setattr(defaults, "random_start", lambda env: {})


@pytest.mark.parametrize("line", commands())
def test_a_command_on_a_page_is_accepted(line, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    main([*shlex.split(line)[1:], "--dry-run"])
    assert capsys.readouterr().out
