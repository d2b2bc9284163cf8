"""Draws and writes all that follows from the tables in results/: figures, pages, claims, and the tables in documents.

    python tools/results.py

The same tables give the same bytes. With --check it writes nothing, and fails if a file is not what it should be.
"""

import json
import sys
import tempfile
from itertools import product
from pathlib import Path

import pandas as pd

import moca
from moca.studies import claims, curves, grid, report, results, statistics

ROOT = Path(__file__).parent.parent
STUDIES = [name for name in grid.GRIDS if (ROOT / "results" / name / results.TABLE).exists()]
JUDGED = [name for name in STUDIES if name != "further"]  # whose tables decide the paper's claims
START, END = "<!-- {}: written by tools/results.py -->\n", "<!-- end -->"

INTRO = """\
What the paper states about its experiments, in our words, and what the studies in this folder say about it, by the
rules in [docs/replication.md](../docs/replication.md). `tools/results.py` writes this page, and
`claims.json` with p-values and unrounded differences; `tests/studies/test_claims_again.py` computes every
verdict a second time."""


def made(out: Path) -> dict[Path, Path]:
    """Every file, written below `out`, with where it belongs."""
    files = {}
    for name in STUDIES:
        directory = ROOT / "results" / name
        files[report.write(directory, out / f"{name}.html")] = directory / "report.html"
        for path in curves.draw(directory, out / name, ("png",)):
            files[path] = directory / "figures" / path.name
    tables = {name: moca.load_results(ROOT / "results" / name) for name in STUDIES}
    further = tables.pop("further")
    table = pd.concat(tables.values(), ignore_index=True)
    verdicts, fixed = judged([tables[name] for name in JUDGED])
    for name, text in {
        "claims.md": claims_page(verdicts, fixed),
        "claims.json": claims.to_json(verdicts + fixed, JUDGED),
    }.items():
        (out / name).write_text(text)
        files[out / name] = ROOT / "results" / name
    ordering = claims.to_markdown([verdict for verdict in verdicts if verdict.claim == "ordering"])
    for name, parts in {
        "README.md": {
            "scores": scores(table.drop_duplicates(list(results.KEYS))),
            "ordering": ordering,
            "repeated": repeated(tables["cartpole"], tables["degradation"]),
        },
        "docs/environments.md": {"further": scores(further), "dimension": dimension()},
    }.items():
        text = (ROOT / name).read_text()
        for part, content in parts.items():
            head, rest = text.split(START.format(part))
            text = f"{head}{START.format(part)}{content}\n{rest[rest.index(END) :]}"
        new = out / Path(name).name
        new.write_text(text)
        files[new] = ROOT / name
    return files


def judged(tables: list[pd.DataFrame]) -> tuple[list[claims.Verdict], list[claims.Verdict]]:
    """The verdicts on what hangs on a preset, and on what does not."""
    nothing = json.loads((ROOT / "results" / "nothing.json").read_text())
    benchmarks = [json.loads(path.read_text()) for path in sorted((ROOT / "results" / "benchmarks").glob("*.json"))]
    return claims.judge(tables, nothing), claims.judge_fixed(benchmarks)


def claims_page(verdicts: list[claims.Verdict], fixed: list[claims.Verdict]) -> str:
    """results/claims.md."""
    own, beyond = ([verdict for verdict in verdicts if verdict.beyond == far] for far in (False, True))
    parts = {
        "": f"{INTRO}\n\nThe paper's claims, each counted once per task and noise:\n\n{claims.counts(own)}",
        "What the paper claims": claims.to_markdown(own),
        "Beyond the paper": f"Noise and agents that the paper does not have.\n\n{claims.to_markdown(beyond)}",
        "The same under every preset": claims.to_markdown(fixed),
        "Notes": claims.NOTES,
    }
    text = "\n".join(f"## {head}\n\n{part}" if head else part for head, part in parts.items())
    return f"# The paper's claims\n\n{text}"


def scores(table: pd.DataFrame) -> str:
    """Final returns as a table: a row for each preset, task and noise level, a column for each agent."""
    finals = statistics.final_scores(table)
    agents = [agent for agent in reversed(claims.NAMES) if agent in finals.index.unique("agent")]
    lines = [f"| preset | task | noise | {' | '.join(claims.NAMES[agent] for agent in agents)} |"]
    lines.append("|---" * (3 + len(agents)) + "|")
    cells = finals.index.droplevel("agent").unique()
    for preset, env, noise in sorted(cells, key=lambda cell: (cell[0] != "tuned", cell[1], grid.parse_noise(cell[2]))):
        keys = [(preset, env, agent, noise) for agent in agents]
        texts = [statistics.mean_t(finals.loc[key]).brief if key in finals.index else "" for key in keys]
        lines.append(f"| {preset} | {env} | {noise} | {' | '.join(texts)} |")
    return "\n".join(lines) + "\n"


def repeated(*tables: pd.DataFrame) -> str:
    """MoCA's lead on Cartpole in two studies that have the same cells."""
    noises, agents = ("0.025", "0.05"), ("moca-ce", "bnaf", "sac")
    lines = ["| MoCA less | noise | `cartpole` | `degradation` |", "|---" * 4 + "|"]
    finals = [statistics.final_scores(table).loc["tuned", claims.CARTPOLE] for table in tables]
    for agent, noise in product(agents, noises):
        leads = [statistics.compared(each.loc["moca", noise], each.loc[agent, noise]).brief for each in finals]
        lines.append(f"| {claims.NAMES[agent]} | {noise} | {' | '.join(leads)} |")
    return "\n".join(lines) + "\n"


def dimension() -> str:
    """What results/dimension/run.py measured: a row for each size, a column for each agent."""
    rows = json.loads((ROOT / "results" / "dimension" / "summary.json").read_text())["rows"]
    names = list(dict.fromkeys(row["agent"] for row in rows))
    lines = [f"| dimensions, actions | doing nothing | {' | '.join(names)} |", "|---" * (2 + len(names)) + "|"]
    for size in dict.fromkeys(row["dimensions"] for row in rows):
        own = {row["agent"]: row for row in rows if row["dimensions"] == size}
        cells = [
            f"{', '.join(f'{x:.0f}' for x in row['return'])} ({row['ms per step']:.1f} ms)" for row in own.values()
        ]
        lines.append(f"| {size}, {size // 2} | {own[names[0]]['doing nothing']:.0f} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main(check: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        stale = []
        for path, target in made(Path(folder)).items():
            content = path.read_bytes()
            if not target.exists() or target.read_bytes() != content:
                stale.append(target)
                if not check:
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(content)
    for target in stale:
        print(f"{'is not what it should be: ' if check else ''}{target.relative_to(ROOT)}")
    if check and stale:
        sys.exit(1)


if __name__ == "__main__":
    main("--check" in sys.argv[1:])
