"""Writes tests/slowest.md, the record of the slowest tests, from the last `make test`.

    make test slowest

The tests start with the files at the top of the record: tests/conftest.py.
"""

from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parent.parent
MOST = 20


def main() -> None:
    tests: Counter[str] = Counter()
    files: Counter[str] = Counter()
    for case in ElementTree.parse(ROOT / "build" / "tests.xml").iter("testcase"):
        name, seconds = case.attrib["classname"], float(case.attrib["time"])
        file = f"{name.replace('.', '/')}.py"
        files[file] += seconds
        tests[f"{file}::{case.attrib['name']}"] += seconds
    lines = [
        "# The slowest tests",
        "",
        "Written by `make slowest` from the last `make test`. Seconds include fixtures.",
        "",
        f"{len(tests):,} tests in {len(files)} files take {sum(tests.values()):,.0f} s, on two workers.",
    ]
    for title, found in (("file", files), ("test", tests)):
        lines += ["", f"| seconds | {title} |", "|---|---|"]
        lines += [f"| {seconds:.0f} | `{name}` |" for name, seconds in found.most_common(MOST)]
    (ROOT / "tests" / "slowest.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
