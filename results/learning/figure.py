"""Draws the learning curves in `cells`: Cartpole at σ 0.05, filtered and unfiltered, and Pendulum.

python results/learning/figure.py docs/images
"""

import json
import sys
from pathlib import Path

import matplotlib.pyplot as plt

from moca import figures

CELLS = Path(__file__).parent / "cells"
AGENTS = {"moca": "moca", "moca-ce": "ce", "bnaf": "bnaf", "sac": "sac"}


def draw(folder: Path) -> Path:
    with figures.style():
        figure, panels = plt.subplots(1, 3, figsize=(10, 3.2), width_ratios=[1, 1, 1])
        for axes, extra, title in zip(panels, ("", "-belief.filter_false"), ("filtered", "unfiltered"), strict=False):
            for place, (agent, colour) in enumerate(AGENTS.items()):
                cell = json.loads((CELLS / f"CartpoleBalance-{agent}-100000{extra}.json").read_text())["sigma 0.05"]
                axes.plot(cell["curve_steps"], cell["curve_mean"], color=figures.COLOURS[colour], label=agent)
                axes.errorbar(
                    104_000 + 3_000 * place, cell["mean"], cell["interval"], fmt="o", markersize=3, capsize=2,
                    color=figures.COLOURS[colour],
                )  # fmt: skip
            axes.set(title=f"Cartpole, σ 0.05, {title}", ylim=(0, 1040), xlabel="environment steps")
        panels[0].legend(loc="lower right")
        panels[0].set_ylabel("return of an episode")
        cell = json.loads((CELLS / "PendulumSwingup-moca-500000.json").read_text())
        for noise, dash in (("sigma 0.025", "--"), ("sigma 0.05", "-")):
            label = f"moca, {noise.replace('sigma', 'σ')}"
            curve = cell[noise]
            panels[2].plot(curve["curve_steps"], curve["curve_mean"], dash, color=figures.COLOURS["moca"], label=label)
        panels[2].set(title="Pendulum Swingup, filtered", ylim=(0, 1040), xlabel="environment steps")
        panels[2].legend(loc="lower right")
        for axes in panels:
            axes.xaxis.set_major_formatter(lambda x, _: f"{x / 1000:g}k" if x else "0")
        figure.suptitle("Preset tuned, means over ten seeds; dots: last tenth of training, 95 % interval", fontsize=9)
        return figures.save(figure, folder, "learning", ("png",))[0]


if __name__ == "__main__":
    print(draw(Path(sys.argv[1] if len(sys.argv) > 1 else "figures")))
