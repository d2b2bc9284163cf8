"""PAPER.md, the tags in the code and the documentation say the same."""

import importlib
import re
from pathlib import Path

import pytest

from moca import moments as mm

ROOT = Path(__file__).parent.parent
PAPER = (ROOT / "PAPER.md").read_text()
SOURCES = {path: path.read_text() for path in (ROOT / "src").rglob("*.py")}
TAG = re.compile(r"\[(?:Eq\. \d+|Alg\. 1 l\. \d+|App\. [A-D](?:\.\d)?|Fig\. \d)\]")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")] for line in PAPER.splitlines() if re.match(r"\| \[", line)
]


def test_every_tag_in_the_code_is_in_the_map_and_the_other_way_round():
    in_code = {tag for text in SOURCES.values() for tag in TAG.findall(text)}
    in_map = {row[0] for row in ROWS}
    assert in_code == in_map


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_every_row_names_code_and_a_test_that_exist(row):
    for name in re.findall(r"`(moca[\w.]+)`", row[2]):
        parts = name.split(".")
        owner = None
        for split in range(len(parts), 0, -1):
            try:
                owner = importlib.import_module(".".join(parts[:split]))
            except ModuleNotFoundError:
                continue
            break
        for attribute in parts[split:]:
            owner = getattr(owner, attribute)
    for path, function in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", row[3]):
        assert f"def {function}(" in (ROOT / path).read_text()


def test_every_choice_in_the_code_is_explained():
    with_choices = {str(path.relative_to(ROOT / "src")) for path, text in SOURCES.items() if "[choice]" in text}
    explained = set(re.findall(r"^\| `(moca/[\w/]+\.py)`", PAPER, flags=re.MULTILINE))
    assert with_choices == explained


def test_the_documented_table_is_the_one_the_code_uses():
    assert mm.compatibility() in (ROOT / "docs/moments.md").read_text()


SNIPPETS = [
    pytest.param(code, id=f"{path.name}-{number}")
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", path.read_text(), flags=re.DOTALL))
]


@pytest.mark.parametrize("code", SNIPPETS)
def test_every_snippet_runs(code, monkeypatch, tmp_path, registries):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").symlink_to(ROOT / "results")
    exec(compile(code, "snippet", "exec"), {"__name__": "snippet"})
