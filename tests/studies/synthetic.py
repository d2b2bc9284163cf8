"""A study that never ran: curves of known shape for every cell of a grid, so that what reads studies can be judged."""

import json

import numpy as np
import pandas as pd

from moca.studies import grid, results

# Where each agent's return ends, on noise 0.025; it falls with the noise, the more the worse the agent.
FINAL = {"sac": 700, "bnaf": 680, "naf": 500, "moca-ce": 720, "moca-mc-4": 750, "moca-mc-16": 800, "moca": 900}


def table(study: grid.Grid, diverged: int = 0) -> pd.DataFrame:
    """Results of every cell; `diverged` seeds of each SAC cell are given up half way."""
    tables = []
    for job in grid.plan(study):
        steps = np.arange(1, 51) * (job.config.train.steps // 50)
        for noise in job.noises:
            kind, sigma = grid.parse_noise(noise)
            for seed in range(study.seed, study.seed + study.seeds):
                rng = np.random.default_rng([seed, int(sigma * 1e4), *job.name.encode()])
                share = steps / steps[-1]
                final = FINAL[job.agent] * (1 - sigma) + 30 * rng.normal()
                lost = (np.arange(50) >= 25) & (job.agent == "sac" and seed - study.seed < diverged)
                metrics = {
                    "return_mean": final * (1 - np.exp(-6 * share)) + 10 * rng.normal(size=50),
                    "return_std": np.full(50, 20.0),
                    "return_noise_free": final * (1 - np.exp(-6 * share)),
                    "q_mean": 50 * share,
                    "saturation": np.full(50, 0.9 if job.agent == "naf" else 0.3),
                    "train_return": final * share,
                }
                if job.agent not in ("sac", "bnaf", "naf"):
                    metrics |= {
                        "coverage_1sigma": 0.68 + 0.05 * np.exp(-9 * share) + 0.005 * rng.normal(size=50),
                        "epistemic_std": 0.02 + 0.1 * np.exp(-5 * share),
                        "aleatoric_std": np.full(50, sigma + 0.01),
                        "ce_bias": -0.5 * np.exp(-share),
                    }
                    metrics |= {f"calibration_{q}": np.full(50, q / 100 + 0.01) for q in range(10, 100, 10)}
                if job.agent.startswith("moca-mc"):
                    metrics["target_variance"] = np.full(50, 4 / job.config.dynamics.samples)
                rows = pd.DataFrame(metrics).astype("float32")
                rows[lost] = np.nan
                keys = {
                    "preset": job.preset, "env": job.config.env.name, "agent": job.agent, "noise": noise,
                    "noise_kind": kind, "sigma": sigma, "seed": seed, "step": steps, "diverged": lost.astype("int8"),
                }  # fmt: skip
                tables.append(pd.concat([pd.DataFrame(keys), rows], axis=1))
    return pd.concat(tables, ignore_index=True)


def write(directory, study: grid.Grid, diverged: int = 0):
    """The study's directory, with all that a report reads."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / results.PLAN).write_text(grid.to_json(study))
    table(study, diverged).to_parquet(directory / results.TABLE, index=False)
    origin = {
        job.name: {
            "versions": {"jax": "0.10.2"}, "python": "3.11", "device": ["cpu"], "commit": "0000000", "seconds": 1.0
        }
        for job in grid.plan(study)
    }  # fmt: skip
    (directory / results.ORIGIN).write_text(json.dumps(origin))
    return directory
