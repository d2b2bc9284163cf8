"""Tables made by hand: one cell at a time, with the final returns or the curves that a test needs."""

import numpy as np
import pandas as pd


def table(task, agent, noise, finals=None, curves=None, seeds=None, diverged=(), preset="raw", **metrics):
    """The rows of a cell with an evaluation every 1,000 steps.

    Args:
        task: its name.
        agent: its name.
        noise: its label.
        finals: the return of every seed, the same at all of 20 evaluations.
        curves: in place of them, returns of shape (seeds, evaluations).
        seeds: their numbers, by default from 0 on.
        diverged: those numbers whose runs were given up half way.
        preset: its name.
        metrics: further columns, of a shape that broadcasts to that of the curves.
    """
    curves = np.tile(np.asarray(finals, float)[:, None], 20) if curves is None else np.asarray(curves, float)
    count, evaluations = curves.shape
    seeds = np.arange(count) if seeds is None else np.asarray(seeds)
    lost = np.isin(seeds, diverged)[:, None] & (np.arange(evaluations) >= evaluations // 2)
    columns = {"return_mean": curves} | {name: np.broadcast_to(v, curves.shape) for name, v in metrics.items()}
    return pd.DataFrame(
        {
            "preset": preset,
            "env": task,
            "agent": agent,
            "noise": noise,
            "noise_kind": "homoscedastic",
            "sigma": 0.0,
            "seed": np.repeat(seeds, evaluations),
            "step": np.tile(1000 * np.arange(1, evaluations + 1), count),
            "diverged": lost.ravel().astype("int8"),
            **{name: np.where(lost, np.nan, values).ravel() for name, values in columns.items()},
        }
    )
