"""Runs that overlap on two cores, beside the same runs that do not; prints what `tests/test_overlap.py` looks at.

A process of its own, since JAX must be told of a second device before it starts.
"""

import json
import sys
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np

import moca
from moca.agents import make_agent
from moca.agents.quadratic import QuadraticAgent
from moca.config import ConfigError
from moca.drivers import ScanTrainer
from moca.drivers.overlap import cores_for
from moca.runs.checkpoint import from_host, to_host
from tests import probes

MOCA = {
    "agent": "moca", "critic.width": 8, "dynamics.width": 8, "dynamics.members": 2, "value.bases": 8,
    "train.decay": 0.1, "value.basis_lr": 1e-3,
}  # fmt: skip
FILTER = {"belief.filter": True, "noise.sigma": 0.3}
CASES = {
    "a filter and a small memory": (
        probes.Drift(),
        FILTER | {"train.capacity": 24, "train.batch": 8, "train.updates": 2},
    ),
    "samples, and episodes that end": (probes.Discounted(), {"agent": "moca-mc", "dynamics.samples": 2}),
    "sac with a filter": (probes.Drift(), {"agent": "sac", **FILTER}),
    "a sensor that is late and drops samples": (
        probes.Drift(),
        FILTER | {"sensor.drop": 0.2, "sensor.delay": 2, "sensor.stick": 0.1},
    ),
    "small batches, and no warm-up": (probes.Drift(), {"train.batch": 2, "train.warmup": 0}),
}
moca.register_agent("other", type("Other", (QuadraticAgent,), {}))
SETTINGS = {
    "moca": {},
    "somebody else's": {"agent": "other"},
    "no model": {"agent": "bnaf"},
    "wide": {"dynamics.width": 256},
}


def config(env, settings):
    size = env.observation_size
    wide = {"value.low": (-1.0,) * size, "value.high": (1.0,) * size, "value.lengthscales": (1.0,) * size}
    return probes.tiny(**{name.replace(".", "__"): value for name, value in (MOCA | wide | settings).items()})


def trainer(env, settings, together=True):
    return ScanTrainer([config(env, settings)], [3], env, overlap=together)


def numbers(runs, reports):
    """All that a run has learned, stored and measured."""
    metrics = [report.metrics for report in reports]
    return [np.asarray(leaf) for leaf in jax.tree.leaves((runs.learners, runs.state.replay, metrics))]


def difference(one, other):
    """The largest, in units of 1 + the number's size; a million where one is nan and the other is not."""
    own = [np.abs(a - b) / (1 + np.abs(b)) for a, b in zip(one, other, strict=True)]
    apart = any((np.isnan(a) != np.isnan(b)).any() for a, b in zip(one, other, strict=True))
    return 1e6 if apart else max(float(np.nanmax(each, initial=0)) for each in own)


def compared(name):
    """How far a case with the overlap is from the same without."""
    both = [trainer(*CASES[name], together) for together in (True, False)]
    devices = [len(each.state.replay.sharding.device_set) for each in both]
    return {"devices": devices, "difference": difference(*(numbers(each, list(each)) for each in both))}


def repeated(name):
    """How far a run is from itself: started again, and gone on with from after its first episode."""
    whole, again, resumed = (trainer(*CASES[name]) for _ in range(3))
    next(iter(whole))
    resumed.state, resumed.episode = from_host(to_host(whole.state), resumed.state), whole.episode
    whole, again, resumed = (numbers(each, list(each)[-2:]) for each in (whole, again, resumed))
    return [difference(whole, again), difference(whole, resumed)]


def beside_each_other(name):
    """How far two runs, trained by threads at the same time, are from each other."""
    with ThreadPoolExecutor() as pool:
        runs = list(pool.map(lambda _: trainer(*CASES[name]), range(2)))
        return difference(*pool.map(lambda each: numbers(each, list(each)), runs))


def main():
    names = list(CASES)[1:] if "slow" in sys.argv else list(CASES)[:1]
    found: dict = {"compared": {name: compared(name) for name in names}, "repeated": []}
    if "slow" in sys.argv:
        found["repeated"] = [*repeated(next(iter(CASES))), *repeated(names[0]), beside_each_other(names[0])]
    found["cores"] = {}
    for name, settings in SETTINGS.items():
        agent = make_agent(config(probes.Drift(), settings), probes.Drift())
        learner = jax.eval_shape(agent.init, jax.random.key(0))
        try:
            cores_for(agent, learner)
            found["cores"][name] = ""
        except ConfigError as error:
            found["cores"][name] = str(error)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
