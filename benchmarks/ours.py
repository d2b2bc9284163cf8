"""MoCA itself: `python ours.py AGENT WIDTH RUNS [evaluated]`.

Several runs are spread over two CPU devices. With `evaluated`, the time includes an evaluation on
ten noisy and ten noise-free episodes after every training episode.
"""

import sys
import time

import jax
from measure import BATCH, ENVIRONMENT, EPISODE, WARMUP, report, timed_steps


def main(agent: str, width: int, runs: int, evaluated: bool) -> None:
    if runs > 1:
        jax.config.update("jax_num_cpu_devices", 2)
    from moca import presets
    from moca.drivers import ScanTrainer

    episodes = timed_steps(width) // EPISODE
    settings = {
        "agent": agent,
        "train.batch": BATCH,
        "train.warmup": WARMUP,
        "train.steps": (episodes + 2) * EPISODE,  # one to warm up, and the last, which is evaluated, is never run
        "train.eval_every": 1 if evaluated else 10**6,
    }
    settings |= {f"{part}.width": width for part in ("critic", "dynamics", "sac")}
    trainer = ScanTrainer([presets.build("paper", ENVIRONMENT, settings)] * runs, range(runs))
    trainer.compile()
    training = iter(trainer)
    next(training)
    start = time.perf_counter()
    for _ in range(episodes):
        next(training)
    name = f"{agent}, evaluated" if evaluated else agent
    report("moca", name, width, runs, episodes * EPISODE, time.perf_counter() - start)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:] == ["evaluated"])
