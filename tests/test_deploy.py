"""An exported policy does what the agent does, where there is neither jax nor anything else of the package."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import moca
from moca import deploy
from moca.agents import make_agent
from moca.cli import main
from moca.config import Config, override
from moca.dynamics import Statistics
from moca.envs.environment import ActionRepeat, Environment
from moca.envs.playground import Playground
from moca.runs import export
from moca.runs.directory import RunDirectory

FILTER = {"belief.filter": True, "noise.sigma": 0.1}
SCALED = {"noise.kind": "state-norm", "noise.sigma_min": 0.02, "noise.scales": (0.5, float("inf"), 2.0)}
CASES = {
    "vertex": {"critic.head": "vertex"},
    "slope, state-norm": {"critic.head": "slope", **FILTER, **SCALED},
    "vertex, full": {"critic.head": "vertex", "critic.curvature": "full", **FILTER},
    "slope, full": {"critic.head": "slope", "critic.curvature": "full"},
    "slope, full covariance": {"critic.head": "slope", "dynamics.covariance": "full", **FILTER},
    "gelu": {"dynamics.activation": "gelu", **FILTER},
    "erf": {"dynamics.activation": "erf", **FILTER},
    "naf, learned noise": {"agent": "naf", **FILTER, "belief.noise": "learned"},
    "moca, noise that hardly grows": {**FILTER, "belief.noise": "learned"},  # but steeply, where it does
    "sac": {"agent": "sac"},
    "sac, filter": {"agent": "sac", **FILTER},
    "blind": {"agent": "sac", **FILTER},  # until its model has seen a batch, an agent believes each observation alone
}
LENGTH = 200


class Plane(Environment):
    """Three observed numbers, two actions with bounds that are not symmetric; only those are used here."""

    observation_size: int = eqx.field(static=True, default=3)
    action_low: tuple[float, ...] = eqx.field(static=True, default=(-1.0, 0.1))
    action_high: tuple[float, ...] = eqx.field(static=True, default=(3.0, 0.7))
    terminates: bool = eqx.field(static=True, default=False)

    def reset(self, key):
        raise NotImplementedError

    def step(self, state, action):
        raise NotImplementedError


def learners_of(config, env, count=None):
    """What some agents have learned, as it were: random numbers, drawn without compiling anything."""
    rng, lead = np.random.default_rng(0), () if count is None else (count,)
    like = jax.eval_shape(make_agent(config, env).init, jax.eval_shape(lambda: jax.random.key(0)))

    def draw(leaf):
        return rng.uniform(-0.6, 0.6, lead + leaf.shape).astype(np.float32) if leaf.dtype == np.float32 else leaf

    learner = jax.tree.map(lambda leaf: draw(leaf) if leaf.dtype == np.float32 else np.zeros(lead, np.int32), like)
    if config.agent != "sac":
        learner = eqx.tree_at(lambda s: s.critics.floor, learner, np.full((*lead, 2), 1e-3, np.float32))
    if learner.model is not None:
        mean, spread = draw(like.model.ensemble.statistics.mean), np.array([[0.8], [0.2]], np.float32)
        known = Statistics(np.ones(lead, np.float32), mean, mean**2 + spread**2)
        learner = eqx.tree_at(lambda s: s.model.ensemble.statistics, learner, known)
        if learner.model.ensemble.calibration is not None:
            known = jax.tree.map(np.exp, learner.model.ensemble.calibration)
            learner = eqx.tree_at(lambda s: s.model.ensemble.calibration, learner, known)
    return learner


@jax.jit
def played_by(agent, learner, walk):
    """The agent's greedy actions along each part of a walk, each an episode."""

    def step(carry, measured):
        belief, _ = agent.filter.step(learner.model, *carry, measured)
        action = agent.act(learner, belief.mean)
        return (belief, action), action

    def episode(part):
        belief = agent.filter.init(learner.model, part[0])
        action = agent.act(learner, belief.mean)
        return jnp.concatenate([action[None], jax.lax.scan(step, (belief, action), part[1:])[1]])

    return jax.vmap(episode)(walk)


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """For each case the agent's actions; those of the exported policy, and those it takes without a filter."""
    folder = tmp_path_factory.mktemp("exported")
    small = {"critic.width": 8, "dynamics.width": 8, "dynamics.members": 3, "sac.width": 8}
    bounds = {"value.low": (-1.0,) * 3, "value.high": (1.0,) * 3, "value.lengthscales": (1.0,) * 3}
    walk = np.cumsum(0.1 * np.random.default_rng(0).normal(size=(2, LENGTH, 3)), axis=1).astype(np.float32)
    np.save(folder / "walk.npy", walk)
    agents = {}
    for name, settings in CASES.items():
        config = override(Config(), small | bounds | settings)
        learner = learners_of(config, Plane())
        if name == "blind":
            learner = eqx.tree_at(lambda s: s.model.ensemble.statistics.batches, learner, np.float32(0))
        if name == "moca, noise that hardly grows":
            steep = lambda noise: noise._replace(growing=noise.growing + 8, most=noise.most - 43)  # noqa: E731
            learner = eqx.tree_at(lambda s: s.model.noise, learner, replace_fn=steep)
        agent = make_agent(config, Plane())
        export.write(folder / f"{name}.npz", agent, learner, {"env": "Plane"})
        agents[name] = np.asarray(played_by(agent, learner, walk))
    code = (
        "import sys\n"
        "for name in ('jax', 'jaxlib', 'equinox', 'optax', 'scipy'): sys.modules[name] = None\n"
        "import numpy as np; from pathlib import Path; from moca.deploy import Policy\n"
        "def play(policy, walk):\n"
        "    return np.stack([(policy.reset(), np.stack([policy(o) for o in part]))[1] for part in walk])\n"
        f"folder = Path({str(folder)!r}); walk = np.load(folder / 'walk.npy')\n"
        "for path in sorted(folder.glob('*.npz')):\n"
        "    policy = Policy.load(path)\n"
        "    np.save(path.with_suffix('.played.npy'), play(policy, walk))\n"
        "    np.save(path.with_suffix('.acted.npy'), policy.act(walk))\n"
        "print(*sorted(name for name in sys.modules if name.startswith('moca')))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert {name.partition(".")[2].split(".")[0] for name in result.stdout.split()} == {"", "deploy"}
    exported = {name: tuple(np.load(folder / f"{name}.{what}.npy") for what in ("played", "acted")) for name in CASES}
    return agents, exported


@pytest.mark.parametrize("case", CASES)
def test_actions_are_the_agents_without_jax(played, case):
    agents, exported = played
    low, high = np.array(Plane().action_low), np.array(Plane().action_high)
    ours = (agents[case] - low) / (high - low)
    theirs, unfiltered = ((actions - low) / (high - low) for actions in exported[case])
    assert ours.shape == theirs.shape == unfiltered.shape == (2, LENGTH, 2)
    np.testing.assert_allclose(theirs, ours, rtol=0, atol=1e-6)
    assert np.array_equal(theirs, unfiltered) == (case == "blind" or not CASES[case].get("belief.filter"))
    assert np.mean((ours > 0.001) & (ours < 0.999)) > 0.3  # not everything at the bounds


def stored(path, config, env, count=1):
    """A run directory with agents that never learned."""
    config = override(config, {"seeds": count})
    directory = RunDirectory(path)
    with directory.locked():
        directory.begin(config, [{"seed": seed} for seed in range(count)])
    directory.save_policy(learners_of(config, env, count))
    return moca.load(path, env if config.env.name.startswith("own:") else None)


def test_the_command_and_the_file_alone(tmp_path, capsys):
    config = override(Config(), {"agent": "sac", "sac.width": 8, "env.action_repeat": 2, "noise.sigma": 0.05})
    run = stored(tmp_path / "run", config, ActionRepeat(Playground("CartpoleBalance"), 2), count=2)
    main(["export", str(run.path), "--run", "1", "--out", str(tmp_path / "policy.npz")])
    assert capsys.readouterr().out.splitlines()[-1] == str(tmp_path / "policy.npz")
    shutil.copytree(Path(deploy.__file__).parent, tmp_path / "deploy")
    code = (
        "import sys; sys.modules['moca'] = None; from deploy import Policy; policy = Policy.load('policy.npz')\n"
        "print(policy.facts['env'], policy.facts['seed'], policy.facts['noise']['sigma'], policy.action_repeat)\n"
        "print(*policy([0, 1, 0, 0, 0.5]))"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    facts, action = result.stdout.splitlines()
    assert facts == "CartpoleBalance 1 0.05 2"
    assert float(action) == pytest.approx(run.predict([0, 1, 0, 0, 0.5], 1)[0], abs=1e-6)
    assert float(action) != pytest.approx(run.predict([0, 1, 0, 0, 0.5], 0)[0], abs=1e-3)
    with pytest.raises(SystemExit):
        main(["export", str(run.path), "--run", "2"])
    assert "run = 2 is out of range" in capsys.readouterr().err


class Runs:
    """Code that runs when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def test_what_cannot_be_loaded_is_named(tmp_path):
    header = np.frombuffer(json.dumps({"format": 2}).encode(), np.uint8)
    np.savez(tmp_path / "newer.npz", header=header)
    np.savez(tmp_path / "other.npz", weights=np.ones(3))
    np.savez(tmp_path / "pickled.npz", header=np.array([Runs(tmp_path / "was run")]))
    (tmp_path / "text.npz").write_text("no policy")
    for name, message in {
        "newer": "has format 2, but this version of moca reads format 1",
        "other": "is not a policy exported",
        "pickled": "is not a policy exported",
        "text": "is not a policy exported",
        "nowhere": "there is no file",
    }.items():
        with pytest.raises(ValueError, match=message):
            deploy.Policy.load(tmp_path / f"{name}.npz")
    assert not (tmp_path / "was run").exists()
    with pytest.raises(ValueError, match="Did you mean CartpoleBalance"):
        moca.pretrained("CartpoleBalence")
    policy = moca.pretrained("PendulumSwingup")
    with pytest.raises(ValueError, match=r"an observation must have 3 numbers, got an array of shape \(2,\)"):
        policy([0.0, 0.0])
    with pytest.raises(ValueError, match="expected one observation"):
        policy(np.zeros((2, 3)))


# What it was trained to is 0.996 per step on Cartpole and 0.863 on Pendulum, the swing-up included.
@pytest.mark.slow
@pytest.mark.parametrize(("name", "settle", "least"), [("CartpoleBalance", 50, 0.97), ("PendulumSwingup", 200, 0.9)])
def test_the_trained_policies_hold_their_pole_up_under_noise(name, settle, least):
    policy = moca.pretrained(name)
    assert policy.facts["noise"]["sigma"] == 0.05
    env = ActionRepeat(Playground(name), policy.action_repeat)
    step, rng = jax.jit(env.step), np.random.default_rng(0)
    state, observation = jax.jit(env.reset)(jax.random.key(1))
    rewards = []
    for _ in range(400):
        action = policy(observation + 0.05 * rng.normal(size=observation.shape))
        state, (observation, reward, _) = step(state, jnp.asarray(action))
        rewards.append(float(reward) / policy.action_repeat)
    assert np.mean(rewards[settle:]) > least
