"""# Reading results

A study leaves a table, and `moca report` makes a page of it. This script reads the
table that ships with the repository as the page does: final scores with intervals, who
beats whom, how fast, and which of the paper's claims hold. It takes ten seconds, from
the root of the repository:

    python examples/reading_results.py [DIRECTORY]
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

import moca
from moca.paper import claims
from moca.studies import report, statistics

directory = Path(sys.argv[1] if len(sys.argv) > 1 else "results/degradation")

# One row per evaluation of every run; the first columns say which run and when.
table = moca.load_results(directory)
print(
    table[["preset", "env", "agent", "noise", "seed", "step", "return_mean"]].head(3),
    "\n",
)

# The mean over the last tenth of training: a row per cell, a column per seed. Runs
# that diverged are NaN.
scores = statistics.final_scores(table)
for cell, seeds in scores.iterrows():
    print(f"{' '.join(cell):<45} {statistics.mean_t(seeds)}")

# Ten seeds are few. How sure is it that MoCA beats another agent in the last cell,
# where the noise is strongest?
preset, env, _, noise = scores.index[-1]
ours = scores.loc[(preset, env, "moca", noise)]
others = [
    cell[2]
    for cell in scores.index
    if cell[:2] == (preset, env) and cell[3] == noise and cell[2] != "moca"
]
for agent in others:
    theirs = scores.loc[(preset, env, agent, noise)]
    less = statistics.compared(ours, theirs).brief
    better = statistics.improvement(ours, theirs).brief
    print(f"noise {noise}: MoCA less {agent}: {less}; P(better) {better}")

# How fast: the steps until three evaluations in a row average 900.
for agent in ("moca", *others):
    curve = statistics.curve(table, preset, env, agent, noise)
    steps = statistics.steps_to(*curve, 900)
    print(f"noise {noise}: {agent} reaches 900 after {np.median(steps):,.0f} steps")

# The paper's claims, judged by what is in this table.
absent = []
for verdict in claims.judge(table):
    if verdict.verdict == claims.ABSENT:
        absent.append([verdict])
    else:
        found = f"({verdict.noise}): {verdict.measured}"
        print(f"{verdict.verdict:>13}: {verdict.statement} {found}")
print(claims.not_measured(absent))

# All of it, with curves to point at, as one page.
print(report.write(directory, Path(tempfile.mkdtemp()) / "report.html"))
