"""SAC of SBX (JAX, `python sb.py sbx 64`) and Stable-Baselines3 (`python sb.py sb3 64`)."""

import sys
import time

from gymnasium_cartpole import Cartpole
from measure import BATCH, DEPTH, WARMUP, report, timed_steps


def main(library: str, width: int) -> None:
    if library == "sbx":
        from sbx import SAC
    else:
        from stable_baselines3 import SAC
    steps = timed_steps(width)
    model = SAC(
        "MlpPolicy",
        Cartpole(),
        batch_size=BATCH,
        buffer_size=WARMUP + steps,
        learning_starts=100,  # within the warm-up, so that updates are compiled there
        train_freq=1,
        gradient_steps=1,
        policy_kwargs={"net_arch": [width] * DEPTH},
        seed=0,
        device="cpu",
    )
    model.learn(WARMUP, log_interval=1000)
    start = time.perf_counter()
    model.learn(steps, log_interval=1000, reset_num_timesteps=False)
    report(library, "sac", width, 1, steps, time.perf_counter() - start)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
