"""tools/prose.py finds nothing in the code, and finds what it is meant to find."""

import runpy
from pathlib import Path

import pytest

PROSE = runpy.run_path(str(Path(__file__).parent.parent / "tools" / "prose.py"), run_name="prose")
CHECKS = {name: check for name, check in PROSE["CHECKS"].items() if name != "reference"}  # tests/test_site.py is run


def _is_code(finding) -> bool:
    return finding.path.suffix == ".py"


@pytest.mark.parametrize("check", CHECKS)
def test_the_code_has_no_findings(check):
    assert [str(each) for each in CHECKS[check]() if _is_code(each)] == []


@pytest.mark.parametrize("check", CHECKS)
def test_the_pages_have_no_findings(check):
    assert [str(each) for each in CHECKS[check]() if not _is_code(each)] == []


FAULTS = {
    "summaries": [
        ("src/a.py", '"""What it does."""\n', 1),
        ("src/a.py", 'def f():\n    """Whether it is so."""\n', 2),
        ("tools/a.py", 'class A:\n    """Of all of them the first."""\n', 2),
        ("results/a/b.py", '"""How it ends."""\n', 1),
    ],
    "riddles": [
        ("src/a.py", 'x = "noises = 0 is none"\n', 1),
        ("src/a.py", "x = 1  # one that is no number\n", 1),
        ("src/a.py", '"""A sum.\n\n    It is drawn anew.\n"""\n', 3),
        ("docs/a.md", "# A\n\nThe file holds no run.\n", 3),
        ("docs/a.md", "A filter is an object of its own.\n", 1),
        ("docs/a.md", "Two files, of which it keeps one.\n", 1),
        ("docs/a.md", "It has as good as no effect.\n", 1),
        ("docs/a.md", "| file | use |\n|---|---|\n| A | it holds no run |\n", 3),
        ("results/a/b.py", '"""A sum.\n\n    python a.py mend  # it is drawn anew\n"""\n', 3),
        ("src/a.html", "<p\nid='a'>\n{{ a }} holds no run</p>\n", 3),
    ],
    "lines": [
        ("src/a.py", f"# {'word ' * 20}\n", 1),
        ("src/a.py", f'"""A sum.\n\n{"word " * 21}\n"""\n', 3),
        ("README.md", f"{'word ' * 21}\n", 1),
        ("README.md", f"{'word ' * 19}seventh\n", 1),
    ],
    "figures": [
        ("docs/a.md", "MoCA has 817 ± 13.\n\n| MoCA | 817 ± 13 |\n", 1),
        ("docs/a.md", "It takes 1,250 steps/s.\n\nAgain 1,250 steps/s.\n", 1),
        ("docs/a.md", "It takes 74.3k run-steps/s.\n\n| MoCA | 74.3k run-steps/s |\n", 3),
        ("docs/a.md", "It takes 74.3k run-steps/s.\n\nAgain 74,300 run-steps/s.\n", 1),
        ("docs/a.md", "From 1,280 – 1,730 steps/s.\n\nAgain 1,280 to 1,500 steps/s.\n", 3),
        ("docs/a.md", "From 1,280 – 1,730 steps/s.\n\nAgain 1,730 steps/s.\n", 1),
        ("docs/a.md", "MoCA and BNAF make 834 and 3,018 steps/s.\n\nAgain 834 steps/s.\n", 1),
    ],
}
NO_FAULTS = {
    "summaries": [("src/a.py", '"""Returns a sum."""\n'), ("src/a.py", '"""The sum of both."""\n')],
    "riddles": [
        ("src/a.py", '"""Raises if there is none."""\n'),
        ("docs/a.md", "```\nx is none\n```\n"),
        ("results/a/b.py", '"""A sum.\n\n    python a.py mend  # a command\n"""\n'),
        ("src/a.html", "<style>\na { mend: anew }\n</style>\n{% if mend %}<b id='mend'>{{ mend }}</b>\n"),
        ("docs/a.md", "A class of your own, or a search of its own: 109 kernels, half of which take 1 s.\n"),
        ("docs/a.md", "Sampling is as good as the closed form, and the page says so.\n"),
    ],
    "lines": [
        ("src/a.py", f'x = "{"word " * 22}"\n'),
        ("docs/a.md", f"| {'word ' * 22} |\n"),
        ("docs/a.md", f"- {'word' * 26} and a word\n"),
        ("docs/a.md", f"$${'x + ' * 30}x$$\n"),
        ("docs/a.md", f"```\n{'word ' * 22}\n```\n"),
        ("docs/a.md", f"<!-- a: written by tools/b.py -->\n{'word ' * 22}\n<!-- end -->\n"),
        ("docs/a.md", f"<!-- written by tools/b.py -->\n{'word ' * 22}\n"),
    ],
    "figures": [
        ("docs/a.md", "MoCA has 817 ± 13, MoCA-CE 430 ± 20.\n"),
        ("docs/a.md", "| 125k steps | 74.3k run-steps/s |\n| 125k steps | 74.4k run-steps/s |\n"),
        ("docs/a.md", "Seeds 1,234 – 1,239.\n\nSeeds 1,234 – 1,239, and 250 – 260 ms.\n"),
        ("docs/a.md", "817 ± 13\n<!-- a: written by tools/b.py -->\n817 ± 13\n<!-- end -->\n"),
        ("CHANGELOG.md", "817 ± 13\n\n817 ± 13\n"),
    ],
}


@pytest.fixture
def found_in(tmp_path):
    """Runs a check on a repository that has one file."""

    def run(check, name, text):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
        own = CHECKS[check].__globals__
        before, own["ROOT"] = own["ROOT"], tmp_path
        try:
            return [str(each).split(": ")[0] for each in CHECKS[check]()]
        finally:
            own["ROOT"] = before

    return run


@pytest.mark.parametrize(("check", "name", "text", "line"), [(c, *fault) for c, own in FAULTS.items() for fault in own])
def test_a_fault_is_found_at_its_line(found_in, check, name, text, line):
    assert f"{name}:{line}" in found_in(check, name, text)


@pytest.mark.parametrize(("check", "name", "text"), [(c, *each) for c, own in NO_FAULTS.items() for each in own])
def test_what_is_allowed_is_not_found(found_in, check, name, text):
    assert found_in(check, name, text) == []
