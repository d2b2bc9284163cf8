"""Runs the notebooks in parallel with the installed package.

Fails if a cell raises or a notebook shows no picture.

    build/light/bin/python tools/notebooks.py  # as in CI: few training steps, nothing is written
    python tools/notebooks.py --write          # in full; writes the outputs into the notebooks
"""

import os
import re
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from quick_xla import FLAGS

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"
FEW = 1_000
HOW = {"timeout": 1200, "startup_timeout": 300, "record_timing": False, "coalesce_streams": True}


def run(path: Path, write: bool) -> str:
    """Executes one notebook in an empty directory and returns its name."""
    notebook = nbformat.read(path, as_version=4)
    if not write:
        for cell in notebook.cells:
            cell.source = re.sub(r"^STEPS = [\d_]+$", f"STEPS = {FEW}", cell.source, flags=re.MULTILINE)
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(notebook, resources={"metadata": {"path": folder}}, **HOW).execute()
    if not any("image/png" in output.get("data", ()) for cell in notebook.cells for output in cell.get("outputs", ())):
        raise RuntimeError(f"{path.name} shows no picture")
    if write:
        notebook.metadata.language_info = {"name": "python"}  # no version: it differs between machines
        nbformat.write(notebook, path)
    return path.name


def main(write: bool) -> None:
    if not write:
        os.environ.setdefault("XLA_FLAGS", FLAGS)
    with ThreadPoolExecutor(2) as pool:
        for name in pool.map(lambda path: run(path, write), sorted(NOTEBOOKS.glob("*.ipynb"), reverse=True)):
            print(name)


if __name__ == "__main__":
    main("--write" in sys.argv[1:])
