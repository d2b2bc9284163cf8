"""A policy as an ONNX model does what `moca.deploy.Policy` does, call by call, with whatever it observes."""

import json
import subprocess
import sys

import equinox as eqx
import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import moca
from moca.agents import make_agent
from moca.cli import main
from moca.config import Config, ConfigError, override
from moca.deploy import Policy
from moca.deploy.checks import LIMIT
from moca.runs import export
from tests.test_deploy import CASES, Plane, learners_of, stored

SMALL = {"critic.width": 8, "dynamics.width": 8, "dynamics.members": 3, "sac.width": 8}
SMALL |= {"value.low": (-1.0,) * 3, "value.high": (1.0,) * 3, "value.lengthscales": (1.0,) * 3}
CALLS = 1000


class Session:
    """An ONNX model that is called as a `Policy` is, and returns NaN where that would raise."""

    def __init__(self, path):
        self.session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        self.names = [each.name for each in self.session.get_inputs()]
        self.reset()

    def reset(self):
        shapes = [each.shape for each in self.session.get_inputs()]
        self.state = [np.full(shape, np.nan) for shape in shapes[1:]]

    def __call__(self, observation):
        given = dict(zip(self.names, [np.asarray(observation, float), *self.state], strict=True))
        action, *self.state = self.session.run(None, given)
        return action


def exported(folder, name):
    """The policy of a case, in NumPy and as a model."""
    if name in ("CartpoleBalance", "PendulumSwingup"):
        policy = moca.pretrained(name)
        return policy, Session(policy.to_onnx(folder / "policy.onnx"))
    config = override(Config(), SMALL | CASES[name])
    learner, agent = learners_of(config, Plane()), make_agent(config, Plane())
    if name == "blind":
        learner = eqx.tree_at(lambda s: s.model.ensemble.statistics.batches, learner, np.float32(0))
    files = [export.write(folder / f"policy.{ending}", agent, learner, {"env": "Plane"}) for ending in ("npz", "onnx")]
    return Policy.load(files[0]), Session(files[1])


@pytest.fixture(scope="module", params=[*CASES, "CartpoleBalance", "PendulumSwingup"])
def both(request, tmp_path_factory):
    return exported(tmp_path_factory.mktemp("model"), request.param)


def apart(policy, one, other):
    """How far two actions are apart, as a share of the range of actions."""
    return np.max(np.abs(np.subtract(one, other, dtype=float)) / (policy.action_high - policy.action_low))


@pytest.mark.parametrize("gaps", [0.0, 0.2])
def test_a_thousand_calls(both, gaps):
    policy, session = both
    if gaps and policy._filter is None:
        pytest.skip("it has no filter")
    rng, size = np.random.default_rng(0), policy.facts["observation_size"]
    walk = 0.1 * np.cumsum(rng.normal(size=(CALLS, size)), axis=0) * np.linspace(1, 0, CALLS)[:, None]
    walk[1:][rng.random((CALLS - 1, size)) < gaps] = np.nan
    policy.reset()
    session.reset()
    actions = []
    for number, observation in enumerate(walk):
        expected, action = policy(observation), session(observation)
        actions.append(expected)
        assert (action.dtype, action.shape) == (np.float32, expected.shape)
        assert apart(policy, action, expected) < 1e-6, number
    inside = (np.array(actions) > policy.action_low + 1e-3) & (np.array(actions) < policy.action_high - 1e-3)
    assert np.sum(inside) > 20  # not everything is at the bounds
    if policy._filter:
        belief = np.concatenate([each.ravel() for each in policy._last[0]])
        np.testing.assert_allclose(session.state[0][: len(belief)], belief, rtol=0, atol=1e-6)


numbers = st.floats(-2, 2) | st.just(float("nan")) | st.floats(allow_nan=True, allow_infinity=True)
numbers |= st.sampled_from([LIMIT, -LIMIT, 1.01 * LIMIT])


@settings(max_examples=30)
@given(data=st.data())
def test_where_the_policy_would_raise_there_is_no_action_and_nothing_changes(both, data):
    policy, session = both
    size = policy.facts["observation_size"]
    one = st.lists(numbers, min_size=size, max_size=size)
    policy.reset()
    session.reset()
    for observation in [*data.draw(st.lists(one, max_size=8)), [0.5] * size]:
        before = session.state
        try:
            expected = policy(observation)
        except ValueError:
            assert np.isnan(session(observation)).all()
            assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(before, session.state, strict=True))
        else:
            assert apart(policy, session(observation), expected) < 1e-6


def test_an_action_is_missing_where_a_value_is_that_no_filter_replaces(tmp_path):
    _, session = exported(tmp_path, "sac")
    assert np.isnan(session([0.1, np.nan, 0.2])).all()
    assert np.isfinite(session([0.1, 0.3, 0.2])).all()
    _, session = exported(tmp_path, "sac, filter")
    assert np.isnan(session([0.1, np.nan, 0.2])).all()  # the first of an episode
    assert np.isfinite(session([0.1, 0.3, 0.2])).all()
    assert np.isfinite(session([0.1, np.nan, 0.2])).all()


def test_the_command_writes_a_model_that_tells_its_origin(tmp_path, capsys):
    config = override(Config(), {"agent": "sac", "sac.width": 8, "noise.sigma": 0.05, "env.name": "CartpoleBalance"})
    run = stored(tmp_path / "run", config, Five(), count=2)
    path = tmp_path / "policy.onnx"
    main(["export", str(run.path), "--run", "1", "--out", str(path)])
    assert capsys.readouterr().out.splitlines()[-1] == str(path)
    model = onnx.load(path)
    facts = json.loads({each.key: each.value for each in model.metadata_props}["facts"])
    assert (facts["env"], facts["seed"], facts["noise"]["sigma"]) == ("CartpoleBalance", 1, 0.05)
    observation = [0.0, 1.0, 0.0, 0.0, 0.5]
    np.testing.assert_allclose(Session(path)(observation), run.predict(observation, 1), atol=1e-6)
    with pytest.raises(ConfigError, match="cannot write"):
        run.export(tmp_path / "policy.onnx" / "below.onnx")


class Five(Plane):
    """As Cartpole."""

    observation_size: int = eqx.field(static=True, default=5)
    action_low: tuple[float, ...] = eqx.field(static=True, default=(-1.0,))
    action_high: tuple[float, ...] = eqx.field(static=True, default=(1.0,))


def test_without_the_extra_it_is_named(tmp_path):
    code = (
        "import sys; sys.modules['onnx'] = None; import moca\nmoca.pretrained('CartpoleBalance').to_onnx('policy.onnx')"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert "onnx is not installed: run pip install 'moca-rl[onnx]'" in done.stderr
    assert not (tmp_path / "policy.onnx").exists()
