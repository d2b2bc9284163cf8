"""Counts the lines of code in src/moca, templates included: no blanks, comments and docstrings.

    python tools/lines.py [--files]  # with --files, those of each file, too

A line counts if a token of code stands on it. In templates every line that is not blank counts.
"""

import ast
import io
import sys
import tokenize
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "src" / "moca"
TEMPLATES = (".html", ".css", ".js")
LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def lines_of_python(text: str) -> int:
    """Returns the number of lines with code."""
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in LAYOUT:
            code |= set(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node) is not None:
            code -= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return len(code)


def counts() -> dict[Path, int]:
    """Returns the number of lines of each file."""
    found = {path: lines_of_python(path.read_text()) for path in PACKAGE.rglob("*.py")}
    for path in (each for each in PACKAGE.rglob("*") if each.suffix in TEMPLATES):
        found[path] = sum(bool(line.strip()) for line in path.read_text().splitlines())
    return found


def main() -> None:
    found = counts()
    if "--files" in sys.argv[1:]:
        for path, number in sorted(found.items(), key=lambda each: -each[1]):
            print(f"{number:6} {path.relative_to(PACKAGE)}")
    print(sum(found.values()))


if __name__ == "__main__":
    main()
