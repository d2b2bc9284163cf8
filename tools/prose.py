"""Lists prose that needs work: the checks below, each with file and line.

Exits with 1 if a list is not empty.

    python tools/prose.py            # every check
    python tools/prose.py summaries  # one of them

- `summaries`: docstrings whose first line does not open with a verb or a noun phrase;
- `riddles`: phrases that must be read twice, in pages, templates, docstrings, comments and
  messages;
- `lines`: lines of prose over 100 characters;
- `figures`: a measured figure that stands in two hand-written places;
- `reference`: public names that the site's reference lacks (`tests/test_site.py`).
"""

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
WIDTH = 100
CODE = ("src/**/*.py", "tools/*.py", "benchmarks/*.py", "results/**/*.py", "examples/*.py")
TEMPLATES = ("src/**/*.html",)
PAGES = ("*.md", "docs/**/*.md", "results/README.md", "benchmarks/README.md", "tests/README.md")
# Pages that a program writes as a whole; parts of others stand between two marks, as below.
WRITTEN = re.compile(r"<!-- written by tools/\w+\.py -->")
BEGIN, END = re.compile(r"<!-- (?!end)[^>]*written by tools/"), re.compile(r"<!-- end")
# HTML, displayed formulas, pictures and links that fill a line. A formula is not wrapped: Markdown
# would take a line that begins with + or - for a list.
OTHER = re.compile(r"\s*(<|\$\$|!\[|\[[^]]*\]: |(- )?\[[^]]*\]\(\S+\)$)")

# Words that open a clause: a summary line is a noun phrase ("The mean of …") or begins with a verb
# ("Returns …").
OPENERS = re.compile(
    "(after|although|as|at|because|before|beyond|by|for|from|how|if|in|into|like|neither|not|of|on|once|only|since|so|"
    "than|that|then|there|these|this|those|though|to|under|until|what|whatever|when|where|whether|which|while|who|"
    "whoever|whose|why|with|within|without)\\b",
    re.IGNORECASE,
)
# Turns of phrase found here once. Each pattern is rare in plain English; write the field's word
# instead.
RIDDLES = [
    r"(?<!there )\b(?:is|are|was|were) none\b(?! of\b)",
    r"\b(?:that|which|it|they) (?:is|are|was|were) no\b(?! (?:longer|more|less|larger|need)\b)",
    r"(?<!there )\bis no (?:number|file|name|path|directory|folder|text|run|study|lead|JSON|word|array|policy)\b",
    r"\bholds? (?:no|neither|another)\b",
    r"\b(?:told|tells?) of\b",
    r"\banew\b|\bhitherto\b|\bhenceforth\b|\bthere(?:of|in|by)\b",
    # A share is fine: "half of which", "of which about 400".
    r"(?<!half )(?<!most )(?<!some )(?<!each )\bof which\b(?! (?:about )?\d)|\bof whom\b|\bOf what\b|\bof what is\b",
    # "A class of your own" and "a search of its own" are fine. "It is an object of its own" means a
    # separate object, and "of one's own" is "your own".
    r"\b(?:is|are) an? [\w-]+ of (?:its|their) own\b|\bof one's own\b",
    r"\bas it is made\b|\bsuch as it is\b|\ball that is\b",
    r"\bis there(?: already)?[,.:;]",
    r"\b(?:stands?|stood) (?:at|behind|beside|here|there|twice)\b",
    r"\bnothing (?:grows|of)\b",
    r"\bin silence\b",
    r"\bgo(?:es|ing)? on (?:with|from|where)\b",
    r"\b(?:a|one|the|short) look at\b",
    r"\bmend(?:ed|s)?\b",
    r"\bas good as (?:all|any|done|every|never|no|none|nothing)\b",  # for almost; a comparison is fine
    r"\bsays? (?:how far|of)\b",
    r"\bmade of what\b|\bmakes? of (?:it|them|what)\b",
]
COMMAND = re.compile(r"^\s*(?:python|moca) [^#]*")  # in a docstring; its words are names, not prose
HIDDEN = re.compile(r"<(style|script)\b.*?</\1>|<[^>]*>|{{.*?}}|{%.*?%}|{#.*?#}", re.DOTALL)
NUMBER = r"\d[\d,]*\.?\d*k?"
UNIT = r"(?:(?:run-)?steps/s|(?:run-)?steps per second|updates/s|ms\b|µs\b|GB\b|MB\b)"
FIGURE = re.compile(
    r"\d[\d,.]* ?± ?\d+(?:\.\d+)?"  # a mean with its interval
    rf"|{NUMBER}(?= ?(?:(?:–|-|to|and) ?{NUMBER} ?)?{UNIT})"  # of a range or a pair, both
)


class Finding(NamedTuple):
    """A place in a file, and what is wrong there."""

    path: Path
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}: {self.text}"


def _files(patterns: tuple[str, ...]) -> list[Path]:
    return sorted({path for pattern in patterns for path in ROOT.glob(pattern)})


def _docstrings(tree: ast.AST) -> Iterator[ast.Constant]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            text = getattr(node.body[0], "value", None)
            if isinstance(node.body[0], ast.Expr) and isinstance(getattr(text, "value", None), str):
                yield text


def _comments(text: str) -> Iterator[tuple[int, str, bool]]:
    """Yields the comments of a program: line, text, and whether the comment fills the line."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string, not token.line[: token.start[1]].strip()


def _prose(path: Path, tables: bool = False) -> Iterator[tuple[int, str]]:
    """Yields the hand-written lines of a page, without code and links; `tables` if asked for."""
    lines = path.read_text().splitlines()
    if any(WRITTEN.fullmatch(line) for line in lines):
        return
    code = written = False
    for number, line in enumerate(lines, 1):
        written = (written or bool(BEGIN.search(line))) and not END.search(line)
        if line.lstrip().startswith("```"):
            code = not code
        elif not (code or written or OTHER.match(line)) and (tables or not line.startswith("|")):
            yield number, line


def _visible(path: Path) -> Iterator[tuple[int, str]]:
    """Yields the lines of a Jinja template without tags, expressions, styles and scripts."""
    text = HIDDEN.sub(lambda found: "\n" * found[0].count("\n"), path.read_text())
    yield from enumerate(text.splitlines(), 1)


def summaries() -> list[Finding]:
    """Returns docstrings whose summary is neither a noun phrase nor begins with a verb."""
    found = []
    for path in _files(CODE):
        for node in _docstrings(ast.parse(path.read_text())):
            summary = str(node.value).strip().partition("\n")[0]
            if OPENERS.match(summary):
                found.append(Finding(path, node.lineno, summary))
    return found


def riddles() -> list[Finding]:
    """Returns phrases from the list above."""
    pattern, found = re.compile("|".join(RIDDLES)), []
    for path in _files(CODE):
        if path == Path(__file__):
            continue
        text = path.read_text()
        places = [(line, words) for line, words, _ in _comments(text)]
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
                words = node.value.splitlines() if node.end_lineno != node.lineno else [node.value]
                places += list(enumerate(words, node.lineno))
        found += [
            Finding(path, line, words.strip())
            for line, words in sorted(places)
            if pattern.search(COMMAND.sub("", words))
        ]
    for path in _files(TEMPLATES):
        found += [Finding(path, line, words.strip()) for line, words in _visible(path) if pattern.search(words)]
    for path in _files(PAGES):
        found += [Finding(path, line, words.strip()) for line, words in _prose(path, True) if pattern.search(words)]
    return found


def lines() -> list[Finding]:
    """Returns lines of prose that are too long, in pages, docstrings and own-line comments."""
    found = []
    for path in _files(CODE):
        text = path.read_text()
        rows = text.splitlines()
        numbers = {line for line, _, alone in _comments(text) if alone}
        for node in _docstrings(ast.parse(text)):
            numbers |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        found += [_long(path, number, rows[number - 1]) for number in sorted(numbers) if len(rows[number - 1]) > WIDTH]
    for path in _files(PAGES):
        found += [_long(path, number, row) for number, row in _prose(path) if _can_be_wrapped(row)]
    return found


def _can_be_wrapped(row: str) -> bool:
    """Returns whether a line is too long and has a space at which it could be broken."""
    return len(row) > WIDTH and " " in row.strip(" -")[:WIDTH]


def _long(path: Path, number: int, row: str) -> Finding:
    return Finding(path, number, f"{len(row)} characters: {row.strip()[:60]} …")


def figures() -> list[Finding]:
    """Returns measured figures that more than one hand-written place states."""
    places: defaultdict[str, list[Finding]] = defaultdict(list)
    for path in _files(PAGES):
        if path.name == "CHANGELOG.md":  # history repeats what was true at a release
            continue
        for number, row in _prose(path, tables=True):
            for match in FIGURE.findall(row):
                figure = _plain(match)
                if len(re.sub(r"[^\d±]", "", figure).strip("0")) > 2:
                    places[figure].append(Finding(path, number, match))
    return [each for own in places.values() if len({(f.path, f.line) for f in own}) > 1 for each in own]


def _plain(figure: str) -> str:
    """Returns a figure without spaces and commas, and with thousands written out."""
    plain = re.sub("[ ,]", "", figure)
    return f"{float(plain[:-1]) * 1000:.10g}" if plain.endswith("k") else plain


def reference() -> list[Finding]:
    """Returns the output of the tests of the reference, if they fail."""
    command = [sys.executable, "-m", "pytest", "-q", "tests/test_site.py"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return [Finding(ROOT / "docs/reference.md", 1, run.stdout.strip())] if run.returncode else []


CHECKS = {check.__name__: check for check in (summaries, riddles, lines, figures, reference)}


def main(names: list[str]) -> int:
    """Prints what the checks find; returns the exit code."""
    failed = False
    for name in names or CHECKS:
        found = CHECKS[name]()
        failed |= bool(found)
        print(f"{name}: {len(found)}", *(f"  {each}" for each in found), sep="\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
