"""Draws cartpole.png from cartpole.json: python results/mechanism/cartpole_figure.py"""

import json
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from moca.figures import COLOURS, save, style

HERE = Path(__file__).parent
EVERY, LINEAR, GOOD = 4, 996, {"θ": 1.87, "θ̇": 0.88}
AGENTS = {"moca": "MoCA", "bnaf": "BNAF"}
SCALES, WINDOWS = ("0.25", "0.5", "1", "2"), ("1", "2", "4", "8")


def main() -> Path:
    found: dict[str, Any] = json.loads((HERE / "cartpole.json").read_text())
    agents = {key: label for key, label in AGENTS.items() if key in found}
    with style():
        figure, axes = plt.subplots(2, 2, figsize=(8.6, 6.2))
        (real, imagined), (gains, variants) = axes
        for agent, label in agents.items():
            curves, colour = found[agent]["curves"], COLOURS[agent]
            steps = EVERY * (1 + np.arange(len(curves["return"])))
            real.plot(steps, curves["return"], color=colour, label=label)
            flat, prior = np.array(curves["imagined"]).T
            imagined.plot(steps, flat, color=colour, label=f"{label}, flat")
            imagined.plot(steps, prior, color=colour, ls="--", label=f"{label}, prior")
            slope = np.array(curves["gain"])
            gains.plot(steps, slope[:, 2], color=colour, label=f"{label}, θ")
            gains.plot(steps, slope[:, 4], color=colour, ls="--", label=f"{label}, θ̇")
            late = np.mean(found[agent]["late"]["variants"], axis=0)
            variants.plot(range(4), late[:4], color=colour, marker="o", label=f"{label}, gains times …")
            averaged = [late[2], *late[4:]]
            variants.plot(range(4), averaged, color=colour, marker="s", ls="--", label=f"{label}, mean of last …")
        real.axhline(LINEAR, color=COLOURS["grey"], lw=1, ls=":", label="linear controller")
        real.set_title("Return on the task, mean of four seeds")
        real.set_ylim(300, 1020)
        imagined.set_title("Return in the world the value plans in")
        for value, dash in ((GOOD["θ"], "-"), (GOOD["θ̇"], "--")):
            gains.axhline(value, color=COLOURS["grey"], lw=1, ls=dash)
        gains.set_title("Gains of μ̃ at upright (grey: linear controller)")
        gains.set_ylim(bottom=0)
        for ax in (real, imagined, gains):
            ax.set_xlabel("thousand steps")
            ax.legend(ncols=2, loc="best")
        variants.set_title("Late policies, changed by hand")
        variants.set_xticks(range(4), [f"× {s}\n{n} obs." for s, n in zip(SCALES, WINDOWS, strict=True)])
        variants.set_ylabel("return")
        variants.legend(loc="best")
        return save(figure, HERE, "cartpole", ("png",))[0]


if __name__ == "__main__":
    print(main())
