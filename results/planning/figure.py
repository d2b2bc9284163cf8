"""Draws docs/images/planning.png from efficient.json: returns over steps of experience.

python results/planning/figure.py
"""

import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from moca.looks import COLOURS

HERE = Path(__file__).parent
ASKED = {  # title, the score that is asked for, at so many steps
    "swing-0": ("Cartpole Swingup, no noise", 800, 10_000),
    "swing-05": ("Cartpole Swingup, σ 0.05", 750, 16_000),
    "balance-05": ("Cartpole Balance, σ 0.05", 950, 6_000),
    "pendulum-05": ("Pendulum Swingup, σ 0.05", 750, 12_000),
}


def main() -> None:
    cells = json.loads((HERE / "efficient.json").read_text())["second"]
    figure, axes = plt.subplots(1, 4, figsize=(11, 2.9), sharey=True, layout="constrained")
    for axis, (name, (title, score, steps)) in zip(axes, ASKED.items(), strict=True):
        rows = cells[name]["rows"]
        at, returns = [row["step"] / 1000 for row in rows], np.array([row["return_mean"] for row in rows])
        axis.plot(at, returns, color=COLOURS["moca"], alpha=0.3, lw=0.8)
        axis.plot(at, np.median(returns, axis=1), color=COLOURS["moca"], lw=2.2)
        axis.plot(steps / 1000, score, "k_", ms=14, mew=2)
        axis.annotate(f"{score} at {steps // 1000}k", (steps / 1000, score), (0, -12), textcoords="offset points",
                      ha="right", fontsize=8)  # fmt: skip
        axis.set(title=title, xlabel="thousand steps", ylim=(0, 1000), xlim=(0, steps / 1000 * 1.03))
        axis.title.set_fontsize(9.5)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("return")
    figure.savefig(HERE.parent.parent / "docs" / "images" / "planning.png", dpi=150)


if __name__ == "__main__":
    main()
