"""MBPO of mbrl-lib (PyTorch): `python mbpo.py WIDTH`.

It learns its model in bursts, every 250 steps until a validation loss stops falling, and its policy at every step from
imagined transitions. The clock runs over whole periods of 250 steps, from the end of the first burst.
"""

import contextlib
import sys
import tempfile
import time
from typing import Any

import numpy as np
import torch
from gymnasium_cartpole import Cartpole
from mbrl.algorithms import mbpo
from measure import BATCH, DEPTH, WARMUP, report
from omegaconf import OmegaConf

PERIOD = 250  # steps between two bursts of model learning
TIMED = 4 * PERIOD


class Enough(Exception):
    """Stops the library's loop, which has no other way to end without an evaluation."""


class Clocked(Cartpole):
    """Notes when each step was asked for, and refuses the step after the last timed period."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[float] = []

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.times.append(time.perf_counter())
        if len(self.times) > WARMUP + PERIOD + TIMED:
            raise Enough
        return super().step(action)


def never(_: torch.Tensor, observations: torch.Tensor) -> torch.Tensor:
    """No state ends an episode."""
    return torch.zeros(len(observations), 1, dtype=torch.bool)


def settings(width: int, steps: int) -> dict[str, Any]:
    agent = {
        "_target_": "mbrl.third_party.pytorch_sac_pranz24.sac.SAC",
        "num_inputs": 5,
        "action_space": {
            "_target_": "gymnasium.spaces.Box",
            "_convert_": "all",
            "low": -1.0,
            "high": 1.0,
            "shape": [1],
        },
        "args": {
            "gamma": 0.99,
            "tau": 0.005,
            "alpha": 1.0,
            "policy": "Gaussian",
            "target_update_interval": 1,
            "automatic_entropy_tuning": True,
            "target_entropy": -1.0,
            "hidden_size": width,
            "device": "cpu",
            "lr": 3e-4,
        },
    }
    model = {
        "_target_": "mbrl.models.GaussianMLP",
        "_recursive_": False,  # it makes its activation function itself
        "device": "cpu",
        "in_size": 6,
        "out_size": 6,
        "num_layers": DEPTH,
        "ensemble_size": 5,
        "hid_size": width,
        "deterministic": False,
        "propagation_method": "random_model",
        "activation_fn_cfg": {"_target_": "torch.nn.SiLU"},
    }
    algorithm = {
        "normalize": True,
        "target_is_delta": True,
        "learned_rewards": True,
        "freq_train_model": PERIOD,
        "real_data_ratio": 0.0,
        "sac_samples_action": True,
        "initial_exploration_steps": WARMUP,
        "random_initial_explore": True,
        "num_eval_episodes": 0,
        "agent": agent,
    }
    overrides = {
        "num_steps": steps,
        "epoch_length": steps + 1,  # an epoch ends with an evaluation: none does
        "num_elites": 5,
        "patience": 5,
        "model_lr": 1e-3,
        "model_wd": 5e-5,
        "model_batch_size": BATCH,
        "validation_ratio": 0.2,
        "freq_train_model": PERIOD,
        "effective_model_rollouts_per_step": 400,
        "rollout_schedule": [1, 15, 1, 1],
        "num_sac_updates_per_step": 1,
        "sac_updates_every_steps": 1,
        "num_epochs_to_retain_sac_buffer": 1,
        "sac_batch_size": BATCH,
        "trial_length": None,
    }
    return {
        "seed": 0,
        "device": "cpu",
        "log_frequency_agent": 10**6,
        "algorithm": algorithm,
        "dynamics_model": model,
        "overrides": overrides,
    }


def main(width: int) -> None:
    env = Clocked()
    config = OmegaConf.create(settings(width, 2 * (PERIOD + TIMED)))
    with contextlib.suppress(Enough), tempfile.TemporaryDirectory() as folder:
        mbpo.train(env, Cartpole(), never, config, silent=True, work_dir=folder)
    report("mbrl-lib", "mbpo", width, 1, TIMED, env.times[-1] - env.times[WARMUP + PERIOD])


if __name__ == "__main__":
    main(int(sys.argv[1]))
