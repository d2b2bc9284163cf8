"""Exports a policy as one file that runs without jax: for `moca.deploy`, or as an ONNX model."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from moca import __version__, files
from moca.agents import Agent, make_agent
from moca.agents.quadratic import QuadraticAgent
from moca.agents.sac import SACAgent
from moca.belief import KalmanFilter, Unfiltered
from moca.config import CONSTANT, ConfigError
from moca.critic import QuadraticCritic, first
from moca.delay import Delayed
from moca.deploy import FORMAT, Policy, graph
from moca.deploy.checks import LIMIT
from moca.dynamics import LOG_VARIANCE, Calibration, ModelState
from moca.names import OWN
from moca.nets import MLP

if TYPE_CHECKING:
    from moca.runs.run import Run

Parts = tuple[dict[str, Any], dict[str, Any]]  # facts and arrays


class Exported(type(Path())):  # type: ignore[misc]
    """The path of an exported policy, with the run, its seed, and the steps it learned for."""

    run: int | None = None
    seed: int | None = None
    step: int | None = None

    def __repr__(self) -> str:
        if self.run is None:  # a path made from this one
            return super().__repr__()
        after = "" if self.step is None else f", after step {self.step:,}"
        return f"{type(self).__name__}({str(self)!r}: run {self.run}, seed {self.seed}{after})"


def of_run(run: "Run", number: int, path: Path | str) -> Exported:
    """Writes the policy of one run, with its origin: see `Run.export`."""
    config, seed, steps = run.directory.configs[number], int(run.directory.runs[number]["seed"]), run.policy_steps
    noise, step = config.noise, steps[number] if steps else None
    origin = {
        "env": config.env.name.removeprefix(OWN),
        "seed": seed,
        "noise": {"kind": noise.kind, "sigma": noise.sigma, "sigma_min": noise.sigma_min}
        | ({"sigmas": noise.sigmas} if noise.sigmas else {}),
        **({} if step is None else {"step": step}),
    }
    traced, learner = run._at(number)
    exported = Exported(write(path, make_agent(traced, run.environment), learner, origin))
    exported.run, exported.seed, exported.step = number, seed, step
    return exported


def write(path: Path | str, agent: Agent, learner: Any, origin: Mapping[str, Any]) -> Path:
    """Writes the greedy policy, its filter and its `origin` to a file; returns the path.

    A name that ends in .onnx gives an ONNX model, one that ends in .npz a file for NumPy.
    """
    files.refuse_no_policy(path := Path(path))
    env, config = agent.env, agent.config
    _refuse_unexportable(agent)
    facts = {
        **origin,
        "format": FORMAT,
        "version": __version__,
        "agent": config.agent,
        "observation_size": env.observation_size,
        "action_repeat": config.env.action_repeat,
    }
    arrays: dict[str, Any] = {"action_low": env.action_low, "action_high": env.action_high}
    for more_facts, more_arrays in (_greedy(agent, learner), _filter(agent, learner)):
        facts |= more_facts
        arrays |= more_arrays
    try:
        policy = Policy(json.loads(json.dumps(facts)), arrays)
    except ValueError as error:
        raise ConfigError(f"this policy cannot be exported: {error}") from None
    arrays["header"] = np.frombuffer(json.dumps(facts).encode(), np.uint8)
    model = graph.model(policy).SerializeToString() if path.suffix == ".onnx" else None
    with files.writing(path):
        files.refuse_odd(path, advice="choose another file")
        return files.save_arrays(path, arrays) if model is None else files.save(path, model)


def _refuse_unexportable(agent: Agent) -> None:
    belief, sensor = agent.config.belief, agent.config.sensor
    ahead = ": its actions would have to be predicted ahead there too"
    cases = (
        (isinstance(agent.filter, Delayed), f"whose filter expects sensor.delay = {sensor.delay}", ahead),
        (agent.env.history is not None, f"whose state has sensor.history = {sensor.history}", ""),
        (belief.width, "with belief.width = true", ""),
    )
    for there, which, why in cases:
        if there:
            raise ConfigError(f"a policy {which} cannot be exported yet{why}; use agent.policy() in Python")


def _greedy(agent: Agent, learner: Any) -> Parts:
    kept, acts = type(agent.filter) in (Unfiltered, KalmanFilter), type(agent).act
    if kept and acts is SACAgent.act:
        return {"kind": "actor"}, _network("actor", learner.actor)
    if kept and acts is QuadraticAgent.act and type(learner.critics) is QuadraticCritic:
        critic = first(learner.critics)
        arrays = _network("trunk", critic.trunk) | _network("vertex", critic.vertex_head)
        arrays |= _network("cholesky", critic.cholesky_head) | {"floor": critic.floor}
        return {"kind": "quadratic", "head": critic.head, "full": critic.full}, arrays
    raise ConfigError(
        f"a policy of {type(agent).__name__} cannot be exported: only the built-in act and filter of SACAgent and "
        "QuadraticAgent can"
    )


def _filter(agent: Agent, learner: Any) -> Parts:
    """Returns the filter's parts.

    None before the model's first batch, while observations are used alone.
    """
    belief = agent.config.belief
    if not belief.filter or learner.model.ensemble.statistics.batches == 0:
        return {"filter": False}, {}
    ensemble = learner.model.ensemble
    statistics = ensemble.statistics
    arrays = _network("ensemble", ensemble.members)
    arrays |= {"statistics.mean": statistics.mean, "statistics.deviation": statistics.deviation}
    noise = agent.config.noise
    if belief.noise == "known" and noise.kind == "state-norm" and not noise.sigmas:
        arrays["noise.range"] = np.array([noise.sigma_min, noise.sigma], np.float32)
        arrays["noise.inverse_scales"] = np.array([1 / scale for scale in noise.scales])
    elif belief.noise == "known" and noise.kind != CONSTANT:
        raise ConfigError(
            f"a filter that knows noise.kind = {noise.kind}{' with noise.sigmas' * bool(noise.sigmas)} cannot be "
            "exported: only homoscedastic noise, and state-norm noise with one noise.sigma, can be"
        )
    elif belief.noise == "known":
        arrays["noise.variance"] = agent.filter.noise_variance(learner.model, statistics.mean[0])
    else:
        arrays |= _learned_noise(learner.model)
    facts = {
        "filter": True,
        "full_covariance": ensemble.full,
        "activation": agent.config.dynamics.activation,
        "log_variance": LOG_VARIANCE,
        "raised": float(np.finfo(np.asarray(statistics.mean).dtype).eps) ** 0.5,  # as in belief.update
    }
    return facts, arrays


def _learned_noise(model: ModelState) -> dict[str, Any]:
    """Returns the arrays of the learned noise, and the calibration of the model.

    Where noise does not grow with the state, its slope may drift beyond what a file can hold while
    the size at which it ends shrinks. Only their product counts, so one is exchanged for the other.
    """
    constant, growing, shares, most = (np.asarray(each, np.float64) for each in model.noise[:4])
    factor, added = cast(Calibration, model.ensemble.calibration)
    slope = np.minimum(np.exp(2 * growing), LIMIT)
    return {
        "noise.most": np.minimum(np.exp(most + 2 * growing) / slope, LIMIT).astype(np.float32),
        "noise.variance": np.exp(2 * constant).astype(np.float32),
        "noise.growing": slope.astype(np.float32),
        "noise.shares": np.exp(shares - shares.max()) / np.exp(shares - shares.max()).sum(),
        "ensemble.calibration": factor,
        "ensemble.added": added,
    }


def _network(name: str, network: MLP) -> dict[str, Any]:
    weights = {f"{name}.weight{number}": weight for number, weight in enumerate(network.weights)}
    return weights | {f"{name}.bias{number}": bias for number, bias in enumerate(network.biases)}
