"""Adds to the site what is outside docs/: tutorials, the paper map, the results."""

import ast
import re
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).parent.parent
PAGES = {
    "paper.md": "PAPER.md",
    "results.md": "results/README.md",
    "claims.md": "results/claims.md",
    "benchmarks.md": "benchmarks/README.md",
}


def on_files(files, config):
    """Adds the pages and the figures that lie elsewhere."""
    for page, source in PAGES.items():
        files.append(File.generated(config, page, content=_moved((ROOT / source).read_text())))
    for path in (ROOT / "examples").glob("*.py"):
        files.append(File.generated(config, f"tutorials/{path.stem}.md", content=_tutorial(path.read_text())))
    for path in (ROOT / "results").rglob("*"):
        if path.suffix in (".png", ".html"):
            files.append(File.generated(config, str(path.relative_to(ROOT)), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown, page, **_):
    """Has links to those files point to where they are on the site."""
    if page.file.src_uri not in PAGES:
        for name in ("README", "claims"):
            markdown = markdown.replace(f"](../results/{name}.md)", f"]({'results' if name == 'README' else name}.md)")
        markdown = markdown.replace("](../results/", "](results/")
        markdown = markdown.replace("](../benchmarks/README.md)", "](benchmarks.md)")
        markdown = re.sub(r"\]\(\.\./examples/(\w+)\.py\)", r"](tutorials/\1.md)", markdown)
    return markdown


def _moved(text: str) -> str:
    """A page's links to documents, as seen from the root of the site."""
    return re.sub(r"\]\((\.\./)?docs/", "](", text).replace("](../results/README.md)", "](results.md)")


def _tutorial(source: str) -> str:
    """Returns a script as a page: its docstring, then its code."""
    module = ast.parse(source)
    code = "\n".join(source.splitlines()[module.body[0].end_lineno :]).strip()
    return f"{ast.get_docstring(module)}\n\n```python\n{code}\n```\n"
