"""Draws cartpole.png from cartpole.json: python results/mechanism/cartpole_figure.py"""

import json
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from moca.figures import COLOURS, save, style

HERE = Path(__file__).parent
EVERY, LINEAR = 4, 995
PARTS = {
    "cart off centre": ("moca", "-"),
    "pole off upright": ("ce", "--"),
    "velocity": ("sac", "-."),
    "control": ("mc", ":"),
}


def main() -> Path:
    found: dict[str, Any] = json.loads((HERE / "cartpole.json").read_text())
    moca, mended = found["moca"], found["mended"]["moca"]
    curves, late = moca["curves"], np.array(moca["late"]["variants"])
    changes = {
        "as they are": late[:, 2],
        "action × 0.5": late[:, 1],
        "action × 2": late[:, 3],
        "mean of 8 observations": late[:, 6],
        "mean of 5 policies": moca["late"]["together"],
        "offset taken away": mended["offset"],
        "cart by linear terms": mended["cart"],
        "both": mended["cart and offset"],
    }
    steps = EVERY * (1 + np.arange(len(curves["return"])))
    blue, grey = COLOURS["moca"], COLOURS["grey"]
    with style():
        figure, axes = plt.subplots(2, 2, figsize=(8.8, 6.2))
        (real, imagined), (lost, changed) = axes
        real.plot(steps, curves["by_seed"], color=blue, lw=0.6, alpha=0.5)
        real.plot(steps, curves["return"], color=blue, lw=2)
        real.set_title("Return on the task: four seeds and their mean")
        imagined.plot(steps, np.array(curves["imagined"])[:, 0], color=blue, lw=2, label="flat")
        imagined.plot(steps, np.array(curves["imagined"])[:, 1], color=blue, lw=2, ls="--", label="prior")
        imagined.set_title("In the world the value plans in")
        imagined.legend(loc="lower right", ncols=2)
        order = np.array(curves["lost"])[:, [1, 0, 3, 2]]
        for (label, (colour, dash)), each in zip(PARTS.items(), order.T, strict=True):
            lost.plot(steps, each, color=COLOURS[colour], ls=dash, label=label)
        lost.set_title("Points lost to each factor of the reward")
        lost.set_ylim(0, 320)
        lost.legend(loc="upper right")
        for ax in (real, imagined):
            ax.set_ylim(200, 1020)
            ax.axhline(LINEAR, color=grey, lw=1, ls=":") if ax is real else None
        real.text(2, LINEAR - 12, "linear controller", ha="left", va="top", color=grey, fontsize=8)
        for ax in (real, imagined, lost):
            ax.set_xlabel("thousand steps")
        for row, returns in enumerate(changes.values()):
            changed.plot(returns, [row] * len(returns), "o", color=blue, ms=4, alpha=0.5)
            changed.plot(np.mean(returns), row, "|", color=COLOURS["ce"], ms=14, mew=2.5)
        changed.axvline(LINEAR, color=grey, lw=1, ls=":")
        changed.set_yticks(range(len(changes)), list(changes))
        changed.invert_yaxis()
        changed.set_title("Late policies, changed by hand")
        changed.set_xlabel("return of each seed, and mean")
        return save(figure, HERE, "cartpole", ("png",))[0]


if __name__ == "__main__":
    print(main())
