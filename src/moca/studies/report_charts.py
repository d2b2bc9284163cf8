"""The charts of a report: their data and colours.

A panel is a chart with the curves of all agents and presets; `charts.js` shows those that the
reader selects. A curve has its x, the number of seeds at each x, and for every metric its mean and
spread.
"""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from moca.looks import look
from moca.names import displayed
from moca.studies import results, statistics
from moca.studies.grid import parse_noise
from moca.studies.registry import task

if TYPE_CHECKING:
    import pandas as pd

EACH = 1_200_000  # characters of a page for the curves of single seeds, at most
DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


class Metric(NamedTuple):
    """The look of a metric: its name, unit and axis."""

    label: str
    unit: str = ""
    factor: float = 1.0
    zero: bool = False  # whether the axis must include zero
    reference: tuple[float, float] | None = None  # a reference line: y at the left and at the right

    @property
    def title(self) -> str:
        """The label with its unit."""
        return f"{self.label} ({self.unit})" if self.unit else self.label


METRICS = {
    "return_mean": Metric("Return", zero=True),
    "return_noise_free": Metric("Return, noise-free", zero=True),
    "train_return": Metric("Return while training", zero=True),
    "overestimation": Metric("Overestimation", "value", zero=True),
    "return_std": Metric("Sd of return over episodes", zero=True),
    "coverage_1sigma": Metric("Coverage of ±1σ", "%", 100, reference=(68.27, 68.27)),
    "coverage_1sigma_seen": Metric("Coverage of ±1σ, seen data", "%", 100, reference=(68.27, 68.27)),
    "epistemic_std": Metric("Epistemic sd", "units observed", zero=True),
    "aleatoric_std": Metric("Aleatoric sd", "units observed", zero=True),
    "ce_bias": Metric("E[V(s′)] − V(E[s′])", "value", zero=True),
    "ce_bias_std": Metric("Sd of E[V(s′)] − V(E[s′])", "value", zero=True),
    "expected_std": Metric("Sd of E[V(s′)]", "value", zero=True),
    "action_gap": Metric("Action gap of E[V(s′)]", "value", zero=True),
    "ce_gap": Metric("Action gap of the CE bias", "value", zero=True),
    "value_noise_variance": Metric("Variance of V under noise", "value²", zero=True),
    "target_variance": Metric("Variance of sampled target", "value²", zero=True),
    "target_bias": Metric("Bias of sampled target", "value", zero=True),
    "q_mean": Metric("Action value", "value", zero=True),
    "target_mean": Metric("Bellman target", "value", zero=True),
    "saturation": Metric("Actions at a bound", "%", 100, zero=True),
    "curvature": Metric("Curvature of Q, tr P", zero=True),
    "noise_level": Metric("Learned noise level", "units observed", zero=True),
    "innovation_squared": Metric("Normalised innovation squared", zero=True, reference=(1, 1)),
    "innovation_correlation": Metric("Lag-one correlation of innovations", zero=True, reference=(0, 0)),
    "dynamics_nll": Metric("Model loss", "nats"),
    "critic_loss": Metric("Critic loss", "value²", zero=True),
    "actor_loss": Metric("Actor loss", "value"),
    "entropy": Metric("Entropy of the policy", "nats"),
    "alpha": Metric("Temperature", zero=True),
}
# Metrics of charts that show one metric only.
FIXED = {
    "final": Metric("Final return", zero=True),
    "calibration": Metric("Observed share", "%", 100, reference=(0, 100)),
}


def collect(table: "pd.DataFrame", agents: list[str], presets: list[str]) -> dict[str, Any]:
    """Returns the data for the script of a report."""
    metrics, finals = {name: metric_of(name) for name in shown_metrics(table)} | FIXED, statistics.by_cell(table)
    return {
        "presets": presets,
        "agents": [
            {"name": agent, "label": own.label, "ink": own.ink, "dash": own.svg_dash}
            for agent, own in zip(agents, map(look, agents), strict=True)
        ],
        "metrics": [
            {
                "name": name, "label": metric.label, "axis": metric.title, "zero": metric.zero,
                "references": [metric.reference] if metric.reference else [],
            }
            for name, metric in metrics.items()
        ],
        "typical": any(task(cell[1]).splits(each) for cell, each in finals.items()),
        "panels": [*_learning(table, finals), *_against_noise(table), *_calibration(table)],
    }  # fmt: skip


def shown_metrics(table: "pd.DataFrame") -> list[str]:
    """Returns the metrics for learning curves: known columns in our order, then the others."""
    columns = [
        name for name in table if name not in (*results.KEYS, "diverged") and not name.startswith("calibration_")
    ]
    return sorted(columns, key=lambda name: [*METRICS, name].index(name))


def metric_of(column: str) -> Metric:
    """Returns the look of a column of the results, also for an unknown one."""
    return METRICS.get(column, Metric(column.replace("_", " ")))


def noise_label(noise: str) -> str:
    """Returns a noise level as text."""
    kind, sigma = parse_noise(noise)
    if sigma == 0:
        return "no noise"
    return f"σ {sigma:g}" if kind == "homoscedastic" else f"{kind} {sigma:g}"


def _learning(table: "pd.DataFrame", finals: Mapping[tuple, np.ndarray]) -> list[dict[str, Any]]:
    """Returns a chart per task and noise level: means over seeds, and seeds if there is room."""
    panels, names = [], shown_metrics(table)
    with_seeds = names[: max(1, EACH // (2 * len(table)))]
    for (env, noise), block in table.groupby(["env", "noise"], sort=False):
        curves = []
        for (preset, agent), cell in block.groupby(["preset", "agent"], sort=False):
            # By seed, in the order of a curve's columns.
            survived = (cell.groupby("seed")["diverged"].max() == 0).to_numpy()
            metrics = {}
            steps, found = statistics.curves_of(cell, names)
            for name, values in zip(names, found, strict=True):
                values = np.where(np.isfinite(values), values, np.nan) * metric_of(name).factor
                if not np.isnan(values).all():
                    each = _each_seed(values) if name in with_seeds else {}
                    metrics[name] = _over_seeds(values[:, survived]) | each
            seeds = [int(survived.sum())] * len(steps)
            count = task(env).count(finals.get((preset, env, agent, noise), ()))
            solved = {"solved": f"{count[0]} of {count[1]}"} if count else {}
            curves.append(_curve(preset, agent, steps.tolist(), metrics, seeds, len(survived)) | solved)
        panels.append(
            {
                "section": "curves", "group": f"curves {env}", "title": f"{displayed(env)}, {noise_label(noise)}",
                "xlabel": "environment steps", "at": "at step", "curves": curves,
            }
        )  # fmt: skip
    return panels


def _against_noise(table: "pd.DataFrame") -> list[dict[str, Any]]:
    """Returns charts of final scores against noise, for at least three levels."""
    panels: dict[tuple[str, str], dict[str, Any]] = {}
    for (preset, env, agent), cell in statistics.final_scores(table).groupby(level=[0, 1, 2], sort=False):
        levels = [(*parse_noise(index[3]), statistics.mean_t(scores)) for index, scores in cell.iterrows()]
        for kind in dict.fromkeys(kind for kind, *_ in levels):
            found = sorted((sigma, estimate) for other, sigma, estimate in levels if other == kind)
            if len(found) < 3:
                continue
            panel = panels.setdefault(
                (env, kind),
                {
                    "section": "noise", "group": f"noise {env}", "title": f"{displayed(env)}, {kind} noise",
                    "metric": "final", "xlabel": "noise level σ", "at": "at σ", "curves": [],
                },
            )  # fmt: skip
            sigmas, estimates = [sigma for sigma, _ in found], [estimate for _, estimate in found]
            final = _means(estimates)
            seeds = [estimate.seeds for estimate in estimates]
            panel["curves"].append(_curve(preset, agent, sigmas, {"final": final}, seeds, estimates[0].asked))
    return list(panels.values())


def _calibration(table: "pd.DataFrame") -> list[dict[str, Any]]:
    """Returns charts of observed against nominal coverage at the end of training."""
    levels = sorted(int(name.removeprefix("calibration_")) for name in table if name.startswith("calibration_"))
    scores = [statistics.final_scores(table, f"calibration_{level}") for level in levels]
    panels: dict[tuple[str, str], dict[str, Any]] = {}
    for preset, env, agent, noise in scores[0].index if scores else ():
        shares = FIXED["calibration"].factor * np.array([each.loc[preset, env, agent, noise] for each in scores])
        panel = panels.setdefault(
            (env, noise),
            {
                "section": "calibration", "group": "calibration", "title": f"{displayed(env)}, {noise_label(noise)}",
                "metric": "calibration", "xlabel": "nominal share (%)", "at": "at", "unit": " %", "x": [0, 100],
                "y": [0, 100], "curves": [],
            },
        )  # fmt: skip
        seeds = np.isfinite(shares).sum(axis=1).tolist()
        metrics = {"calibration": _over_seeds(shares)}
        panel["curves"].append(_curve(preset, agent, levels, metrics, seeds, shares.shape[1]))
    return list(panels.values())


def _curve(preset: str, agent: str, x: list, metrics: dict[str, Any], seeds: list[int], asked: int) -> dict[str, Any]:
    return {"preset": preset, "agent": agent, "x": x, "metrics": metrics, "seeds": seeds, "asked": asked}


def _over_seeds(values: np.ndarray) -> dict[str, Any]:
    """Returns the mean of each row and half of its 95 % t interval, ignoring NaN."""
    return _means(statistics.means_t(values))


def _means(found: Sequence[statistics.Estimate]) -> dict[str, Any]:
    return {"mean": [_short(each.value) for each in found], "spread": [_short(each.half_width) or 0 for each in found]}


def _each_seed(values: np.ndarray) -> dict[str, Any]:
    """Encodes every column with two characters per value, in steps of 1/4094 of its range.

    The last level is NaN.
    """
    low, high = float(f"{np.nanmin(values):.6g}"), float(f"{np.nanmax(values):.6g}")
    levels = np.clip(np.round((values - low) / ((high - low) or 1) * 4094), 0, 4094)
    whole = np.where(np.isnan(values), 4095, levels).astype(int)
    digits = np.array(list(DIGITS.encode()), np.uint8)[np.stack([whole // 64, whole % 64], axis=-1)]
    return {"range": [low, high], "each": [seed.tobytes().decode() for seed in digits.swapaxes(0, 1)]}


def _short(value: float) -> float | int | None:
    """Rounds to five digits, more than are displayed."""
    if not math.isfinite(value):
        return None
    rounded = float(f"{value:.5g}")
    return int(rounded) if rounded.is_integer() else rounded
