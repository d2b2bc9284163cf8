"""Draws the rooms of the package as layers, from its imports: docs/images/architecture.svg.

python tools/architecture.py
"""

import ast
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "moca"
METHOD = {"agents", "backup", "belief", "critic", "dynamics", "moments"}
LOOP = {"loop", "drivers", "evaluation", "replay", "exploration"}
WIDEST = 7  # rooms in a row
PICTURE = ROOT / "docs" / "images" / "architecture.svg"
LOOK = {"svg.hashsalt": "moca", "svg.fonttype": "none", "font.family": "DejaVu Sans"}
COLOURS = {"method": "#CCE3F0", "loop": "#FCE2C9", "other": "#EFEFEF"}


def rooms() -> dict[str, set[str]]:
    """Returns the rooms (top-level modules and packages) that each room imports."""
    names = {path.stem if path.suffix else path.name for path in SOURCE.iterdir() if not path.name.startswith("_")}
    names = {name for name in names if (SOURCE / f"{name}.py").exists() or (SOURCE / name / "__init__.py").exists()}
    found: dict[str, set[str]] = {name: set() for name in names}
    for path in SOURCE.rglob("*.py"):
        room = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        if room not in found:
            continue
        for node in ast.parse(path.read_text()).body:  # imports within functions do not count
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "moca":
                inner = (node.module or "").split(".")[1:2] or [alias.name for alias in node.names]
                found[room] |= {name for name in inner if name in names and name != room}
    return found


def layers(imports: dict[str, set[str]]) -> dict[str, int]:
    """Returns, for each room, the length of the longest path down from it."""
    heights: dict[str, int] = {}

    def height(name: str, above: tuple[str, ...] = ()) -> int:
        if name in above:
            raise SystemExit(f"circular imports: {' → '.join((*above, name))}")
        if name not in heights:
            heights[name] = max((1 + height(below, (*above, name)) for below in imports[name]), default=0)
        return heights[name]

    for name in imports:
        height(name)
    return heights


@matplotlib.rc_context(LOOK)
def draw(path: Path) -> None:
    """Writes the picture, one row per layer, the top one first; long layers take several rows."""
    heights, rows = layers(rooms()), []
    for level in range(max(heights.values()), -1, -1):
        layer = sorted(name for name in heights if heights[name] == level)
        each = -(-len(layer) // -(-len(layer) // WIDEST))
        rows += [layer[start : start + each] for start in range(0, len(layer), each)]
    figure = Figure(figsize=(9, 0.52 * len(rows) + 0.5))
    axes = figure.subplots()
    axes.set(xlim=(0, 9), ylim=(-len(rows) - 0.4, 0.6))
    axes.axis("off")
    for number, row in enumerate(rows):
        width = 8.8 / len(row)
        for place, name in enumerate(row):
            kind = "method" if name in METHOD else "loop" if name in LOOP else "other"
            left = 0.1 + place * width
            axes.add_patch(Rectangle((left, -number - 0.38), width - 0.08, 0.76, color=COLOURS[kind], linewidth=0))
            axes.text(left + width / 2 - 0.04, -number, name, ha="center", va="center", fontsize=8)
    notes = {"the method": "method", "the loop": "loop", "around them": "other"}
    for place, (text, kind) in enumerate(notes.items()):
        axes.add_patch(Rectangle((0.1 + 1.7 * place, -len(rows) - 0.25), 0.3, 0.4, color=COLOURS[kind], linewidth=0))
        axes.text(0.5 + 1.7 * place, -len(rows) - 0.05, text, va="center", fontsize=8)
    figure.savefig(path, format="svg", bbox_inches="tight", metadata={"Date": None, "Creator": None})


if __name__ == "__main__":
    draw(PICTURE)
