"""Builds pages of the site from sources outside docs/, rewrites links, and typesets formulas.

Links are written for GitHub, relative to the file that contains them. Formulas are LaTeX between
dollar signs. They become MathML when the site is built, so that a page loads nothing from other
hosts.
"""

import ast
import base64
import html
import json
import posixpath
import re
from pathlib import Path

from latex2mathml.converter import convert
from mkdocs.structure.files import File

ROOT = Path(__file__).parent.parent
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "PAPER.md": "paper.md",
    "results/README.md": "results.md",
    "results/claims.md": "claims.md",
    "benchmarks/README.md": "benchmarks.md",
}
SHOWN = (".png", ".html", ".mp4")  # the files of results/ that the site has
LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\]\([^)]*\))*)\]\(([^)\s#:]+)(#[^)\s]*)?\)")
ATTRIBUTE = re.compile(r'\b(src|href)="([^":#]+)"')  # of HTML within Markdown
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
_sources: dict[str, str] = {}  # where each generated page comes from


def on_files(files, config):
    """Adds the pages and the pictures that lie elsewhere."""
    for source, page in PAGES.items():
        head = "---\nhide: [navigation]\n---\n\n" if page == "index.md" else ""
        _add(files, config, page, source, head + (ROOT / source).read_text())
    for path in (ROOT / "examples").glob("*.py"):
        _add(files, config, f"tutorials/{path.stem}.md", f"examples/{path.name}", _script(path.read_text()))
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        text, pictures = _notebook(path)
        _add(files, config, f"tutorials/{path.stem}.md", f"notebooks/{path.name}", text)
        for name, data in pictures.items():
            files.append(File.generated(config, f"tutorials/{name}", content=data))
    for path in (ROOT / "results").rglob("*"):
        if path.suffix in SHOWN:
            files.append(File.generated(config, str(path.relative_to(ROOT)), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown, page, **_):
    """Rewrites links for the site; removes links to files that the site does not have."""
    uri = page.file.src_uri
    folder = posixpath.dirname(_sources.get(uri, f"docs/{uri}"))
    here = posixpath.dirname(uri)
    markdown = ATTRIBUTE.sub(lambda found: f'{found[1]}="{_moved(found[2], folder, here) or found[2]}"', markdown)
    return LINK.sub(lambda found: _link(found, folder, here), markdown)


def on_page_content(content, **_):
    """Typesets the formulas, and keeps a figure and its interval on one line."""
    content = content.replace(" ± ", "&nbsp;±&nbsp;")
    return FORMULA.sub(
        lambda found: convert(html.unescape(found[2]), display="inline" if found[1] == "span" else "block"), content
    )


def _add(files, config, page: str, source: str, text: str) -> None:
    _sources[page] = source
    files.append(File.generated(config, page, content=text))


def _link(found: re.Match, folder: str, here: str) -> str:
    text = LINK.sub(lambda inner: _link(inner, folder, here), found[1])  # a picture that is a link
    place = _moved(found[2], folder, here)
    return text if place is None else f"[{text}]({place}{found[3] or ''})"


def _moved(target: str, folder: str, here: str) -> str | None:
    """Returns the address of a file relative to a page; None if the site does not have it."""
    path = posixpath.normpath(posixpath.join(folder, target))
    if not (ROOT / path).exists():
        return target  # mkdocs reports it
    place = _place(path)
    return place and posixpath.relpath(place, here or ".")


def _place(target: str) -> str | None:
    """The address on the site of a file of the repository, or None."""
    path = Path(target)
    if target in PAGES:
        return PAGES[target]
    if path.parts[0] == "docs":
        return path.relative_to("docs").as_posix()
    if path.parts[0] in ("examples", "notebooks") and path.suffix:
        return f"tutorials/{path.stem}.md"
    return target if path.parts[0] == "results" and path.suffix in SHOWN else None


def _script(source: str) -> str:
    """Returns a script as a page: its docstring, then its code."""
    module = ast.parse(source)
    code = "\n".join(source.splitlines()[module.body[0].end_lineno :]).strip()
    return f"{ast.get_docstring(module)}\n\n```python\n{code}\n```\n"


def _notebook(path: Path) -> tuple[str, dict[str, bytes]]:
    """A notebook as a page, and its pictures by name.

    A cell that draws has the alternative text of its picture in its metadata, as `alt`.
    """
    parts, pictures = [], {}
    for cell in json.loads(path.read_text())["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if "image/png" in data:
                name = f"{path.stem}-{len(pictures)}.png"
                pictures[name] = base64.b64decode(data["image/png"])
                parts.append(f"![{cell['metadata']['alt']}]({name})")
            elif "text/markdown" in data:
                parts.append("".join(data["text/markdown"]))
            else:
                parts.append("```text\n" + "".join(output.get("text") or data["text/plain"]).rstrip() + "\n```")
    return "\n\n".join(parts) + "\n", pictures
