"""Files of settings, names, paths and calls from Python that are wrong: one sentence, which names what was wrong."""

import argparse
import json
import os

import jax
import pytest

import moca
from moca import cli, config, memory_estimate, moments, presets, sweep
from moca.agents import make_agent
from moca.backup import one_gaussian
from moca.config import ConfigError
from moca.drivers import ScanTrainer
from moca.names import folder_name
from moca.planning import look_ahead
from moca.runs import launch
from moca.runs.cli import _start
from tests import probes

DEEP = 100_000
FILES = {
    "nested.json": (b'{"env":' * DEEP + b"1" + b"}" * DEEP, "nested too deeply"),
    "nested-list.json": (b'{"seed":' + b"[" * DEEP + b"]" * DEEP + b"}", "nested too deeply"),
    "nested.toml": (b"seed = " + b"[" * 10_000 + b"]" * 10_000, "nested too deeply"),
    "huge-number.json": (b'{"seed": ' + b"1" * 400 + b"}", "seed = 1"),
    "huger-number.json": (b'{"seed": ' + b"1" * 5000 + b"}", "JSON"),
    "exponent.json": (b'{"train": {"gamma": 1e400}}', "train.gamma = inf is out of range"),
    "nan.json": (b'{"train": {"gamma": NaN}}', "NaN is not valid JSON"),
    "infinity.json": (b'{"value": {"most": Infinity}}', "Infinity is not valid JSON"),
    "twice.json": (b'{"seed": 1, "seed": 2}', "'seed' is set twice"),
    "both-ways.json": (b'{"env.name": "PointMass", "env": {"name": "BallInCup"}}', "'env.name' is set twice"),
    "twice.toml": (b"seed = 1\nseed = 2", "TOML"),
    "latin.json": ('{"env": {"name": "Cartpölé"}}'.encode("latin-1"), "not UTF-8 text"),
    "binary.toml": (bytes(range(256)), "not UTF-8 text"),
    "large.json": (b" " * 2**20 + b"{}", "too large"),
    "empty.json": (b"", "JSON"),
    "list.json": (b"[]", "settings must be a table"),
    "word.json": (b'"x"', "settings must be a table"),
    "number.json": (b"3", "settings must be a table"),
    "null.json": (b"null", "settings must be a table"),
    "section.json": (b'{"env": 3}', "there is no setting 'env': it is a section"),
    "table.json": (b'{"env": {"name": {}}}', "env.name must be a string, got {}"),
    "nothing.json": (b'{"": 1}', "there is no setting ''"),
    "nameless.json": (b'{"": {"": 1}}', "there is no setting '.'"),
    "too-deep.json": (b'{"train": {"gamma": {"x": 1}}}', "train.gamma must be a number, got {'x': 1}"),
    "bool.json": (b'{"seed": true}', "seed must be a whole number, got True"),
    "none.json": (b'{"seed": null}', "seed must be a whole number, got None"),
    "date.toml": (b"seed = 2020-01-01", "seed must be a whole number"),
    "nan.toml": (b"[train]\ngamma = nan", "train.gamma = nan is out of range"),
    "markup.json": (b'{"agent": "[/]"}', "agent = '[/]' is unknown"),
    "typo.toml": (b"[train]\ngama = 0.9", "Did you mean train.gamma, "),
}  # fmt: skip


def refused(capsys, *arguments):
    """What the command says when it refuses."""
    with pytest.raises(SystemExit) as stopped:
        cli.main([str(argument) for argument in arguments])
    assert stopped.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize("name", FILES)
def test_a_wrong_file_is_named(name, tmp_path, capsys):
    content, message = FILES[name]
    (tmp_path / name).write_bytes(content)
    said = refused(capsys, "train", "--dry-run", "--config", tmp_path / name)
    assert name in said
    assert message in said
    assert len(said) < 4000


def test_what_is_no_file_is_named(tmp_path, capsys):
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "folder.json").mkdir()
    for name in ("pipe.json", "folder.json"):
        assert f"{name}: it is not a regular file" in refused(capsys, "train", "--config", tmp_path / name)


def test_a_byte_order_mark_is_none_of_the_settings(tmp_path, capsys):
    (tmp_path / "mark.json").write_bytes(b'\xef\xbb\xbf{"seed": 7}')
    cli.main(["train", "--dry-run", "--config", str(tmp_path / "mark.json")])
    assert json.loads(capsys.readouterr().out)["seed"] == 7


@pytest.mark.parametrize(
    "text", ["[]", "null", '{"seed": 1, "seed": 1}', '{"seed": NaN}', "[" * DEEP, '{"seed": 1e99}']
)
def test_the_settings_of_a_run_directory_are_read_as_strictly(text):
    with pytest.raises(ConfigError):
        config.from_json(text)


NAMES = ["", ".", "..", "../x", "a/../b", "/etc", "a\0b", "a\nb", "\ud800", "a" * 300, "[/]", "a b", "é" * 100, "a//b"]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_no_environment_can_have(name):
    for prefix in ("", "gymnasium:", "own:"):
        with pytest.raises(ConfigError, match=r"env.name = "):
            config.override(presets.build("tuned", "CartpoleBalance", {}), {"env.name": prefix + name})


def test_a_namespaced_environment_is_a_name_and_not_a_path(capsys):
    assert folder_name("gymnasium:my_ns/Foo-v0") == "gymnasium-my_ns-Foo-v0"
    assert "Gymnasium has no my_ns/Foo-v0" in refused(capsys, "train", "--env", "my_ns/Foo-v0")
    assert "Gymnasium has no my_ns/Foo-v0" in refused(capsys, "train", "--env", "gymnasium:my_ns/Foo-v0")


@pytest.mark.parametrize("out", ["", "a\0b", "a\nb", "\udcff", "x" * 300, "y/" * 1000])
def test_a_directory_that_cannot_be(out, capsys):
    assert "is not a valid path" in refused(capsys, "train", f"--out={out}")


def test_a_directory_that_is_something_else(tmp_path, capsys):
    (tmp_path / "file").touch()
    for out in ("/dev/null", tmp_path / "file"):
        assert "is not a directory" in refused(capsys, "train", "--out", out)


def test_brackets_in_a_path_are_printed_as_they_are(capsys):
    """rich takes [bold] and [/] for markup, unless told not to."""
    text = "[bold]x[/bold] [/] :smile:"
    _, options = _start(argparse.Namespace(device=None, checkpoint_every=60.0, keep=2))
    launch._checked(None, options["console"], None, 60.0, 2).console.print(text)
    assert capsys.readouterr().out.strip() == text


CONFIG = presets.build("tuned", "PendulumSwingup", {})
CALLS = {
    "train(3)": (lambda out: moca.train(3, out), "config must be a moca.config.Config"),
    "train(None)": (lambda out: moca.train(None, out), "config must be"),
    "train(class)": (lambda out: moca.train(config.Config, out), "config must be"),
    "train(section)": (lambda out: moca.train(config.Config(train=3), out), "train must be a moca.config.TrainConfig"),
    "out=3": (lambda out: moca.train(CONFIG, 3), "out must be a path, got 3"),
    "out=bytes": (lambda out: moca.train(CONFIG, b"x"), "out must be a path"),
    "out=NUL": (lambda out: moca.train(CONFIG, "a\0b"), "is not a valid path"),
    "varied=[]": (lambda out: moca.train(CONFIG, out, varied=[]), "varied must be a list"),
    "varied=word": (lambda out: moca.train(CONFIG, out, varied="ab"), "varied must be a list"),
    "varied=[3]": (lambda out: moca.train(CONFIG, out, varied=[3]), "settings must be a dictionary"),
    "varied=int": (lambda out: moca.train(CONFIG, out, varied=[{"seed": 3}]), "seed cannot be swept"),
    "varied twice": (lambda out: moca.train(CONFIG, out, varied=[{}, {}]), "are equal"),
    "env=3": (lambda out: moca.train(CONFIG, out, env=3), "env = 3 must be an environment"),
    "console=3": (lambda out: moca.train(CONFIG, out, console=3), "console must be a rich.console.Console"),
    "keep=0": (lambda out: moca.train(CONFIG, out, keep=0), "keep = 0 is out of range"),
    "keep=True": (lambda out: moca.train(CONFIG, out, keep=True), "keep must be a whole number"),
    "every=nan": (lambda out: moca.train(CONFIG, out, checkpoint_every=float("nan")), "checkpoint_every = nan"),
    "every=word": (lambda out: moca.train(CONFIG, out, checkpoint_every="soon"), "checkpoint_every must be a number"),
    "resume(3)": (lambda out: launch.resume(3), "path must be a path, got 3"),
    "resume keep": (lambda out: launch.resume(out, keep="x"), "keep must be a whole number"),
    "load(3)": (lambda out: moca.load(3), "path must be a path, got 3"),
    "load(None)": (lambda out: moca.load(None), "path must be a path"),
    "load('')": (lambda out: moca.load(""), "is not a valid path"),
    "load(env)": (lambda out: moca.load(out, env="Cartpole"), "env = 'Cartpole' must be an environment"),
    "MoCA(3)": (lambda out: moca.MoCA(3), "env must be a name"),
    "MoCA([])": (lambda out: moca.MoCA([]), "env must be a name"),
    "MoCA(seeds)": (lambda out: moca.MoCA("PendulumSwingup", seeds="x"), "seeds must be a whole number"),
    "MoCA(seed)": (lambda out: moca.MoCA("PendulumSwingup", seed=2**40), "seed = 1099511627776 is out of range"),
    "MoCA(preset)": (lambda out: moca.MoCA("PendulumSwingup", preset=["tuned"]), "preset = ['tuned'] is unknown"),
    "MoCA(out)": (lambda out: moca.MoCA("PendulumSwingup", out=3), "out must be a path"),
    "MoCA(settings)": (lambda out: moca.MoCA("PendulumSwingup", settings=[1]), "settings must be a dictionary"),
    "learn('x')": (lambda out: moca.MoCA("PendulumSwingup").learn("x"), "train.steps must be a whole number"),
    "learn(progress)": (lambda out: moca.MoCA("PendulumSwingup", out=out).learn(1000, progress=3), "console must be"),
    "sweep list": (lambda out: sweep.points(CONFIG, {"critic.lr": 1}), "varied must be a list"),
    "sweep grid": (lambda out: sweep.grid({str(i): [0.0] * 100 for i in range(9)}), "more than 10000 points"),
    "sweep twice": (lambda out: sweep.parse_axes(["critic.lr=1"], ["critic.lr=1:2"]), "critic.lr is swept twice"),
    "build(env)": (lambda out: presets.build("tuned", {}, {}), "env a name"),
    "build(settings)": (lambda out: presets.build("tuned", None, 3), "settings must be"),
}  # fmt: skip


@pytest.mark.parametrize("call", CALLS)
def test_a_call_with_the_wrong_types_answers_like_the_command_line(call, tmp_path):
    made, message = CALLS[call]
    with pytest.raises(ConfigError) as error:
        made(tmp_path / "run")
    assert message in str(error.value)
    assert not (tmp_path / "run").exists()


def test_questions_to_a_run_with_the_wrong_types(tmp_path):
    (tmp_path / "config.json").write_text(config.to_json(CONFIG))
    (tmp_path / "meta.json").write_text('{"runs": [{"seed": 0}]}')
    run = moca.load(tmp_path)
    for call, message in (
        (lambda: run.evaluate(0), "episodes = 0 is out of range"),
        (lambda: run.evaluate("x"), "episodes must be a whole number"),
        (lambda: run.evaluate(1, seed=-1), "seed = -1 is out of range"),
        (lambda: run.evaluate(1, seed=2**40), "seed = 1099511627776 is out of range"),
        (lambda: run.render("x"), "run must be a whole number"),
        (lambda: run.render(7), "run = 7 is out of range"),
        (lambda: run.render(0, seed=1.5), "seed must be a whole number"),
        (lambda: run.render(0, path=3), "path must be a path"),
        (lambda: run.predict([0.0] * 3, run=None), "run must be a whole number"),
        (lambda: run.value([0.0] * 3, run=-1), "run = -1 is out of range"),
        (lambda: run.policy(True), "run must be a whole number"),
        (lambda: run.save(3), "path must be a path"),
    ):
        with pytest.raises(ConfigError) as error:
            call()
        assert message in str(error.value)


TASK = {
    "env.name": "own:Drift", "env.episode_length": 20, "env.action_repeat": 1, "train.steps": 200, "train.warmup": 10,
    "value.low": (-1.0,) * 2, "value.high": (1.0,) * 2, "value.lengthscales": (1.0,) * 2, "critic.width": 8,
    "dynamics.width": 8, "train.batch": 16,
}  # fmt: skip
TOO_LARGE = {
    "train.capacity": ({"train.capacity": 2**31 - 1, "train.steps": 2**31 - 1 - 7, "env.episode_length": 1,
                        "train.updates": 1}, "train.capacity"),
    "train.batch": ({"train.batch": 2**31 - 1, "train.capacity": 2**31 - 1}, "train.batch"),
    "train.updates": ({"train.updates": 10**7}, "train.updates"),
    "train.eval_episodes": ({"train.eval_episodes": 2**31 - 1}, "train.eval_episodes"),
    "critic.width": ({"critic.width": 2**16}, "critic.width"),
    "value.bases": ({"value.bases": 2**31 - 1}, "value.bases"),
    "dynamics.width": ({"dynamics.width": 2**16}, "dynamics.width"),
    "dynamics.members": ({"dynamics.members": 2**31 - 1}, "dynamics.members"),
    "dynamics.samples": ({"agent": "moca-mc", "dynamics.samples": 2**31 - 1}, "dynamics.samples"),
    "plan.bases": ({"agent": "moca-plan", "plan.bases": 2**30}, "plan.bases"),
    "plan.horizon": ({"plan.horizon": 5, "train.batch": 2**22, "train.capacity": 2**22}, "plan.horizon"),
    "plan.length": ({"agent": "moca-plan", "plan.length": 1000, "train.eval_episodes": 10**4}, "plan.length"),
    "sac.width": ({"agent": "sac", "sac.width": 2**16}, "sac.width"),
}  # fmt: skip


@pytest.mark.parametrize("name", TOO_LARGE)
def test_what_cannot_fit_is_refused_before_it_is_compiled(name, monkeypatch):
    settings, named = TOO_LARGE[name]
    monkeypatch.setattr(memory_estimate, "available", lambda: 4 * 10**9)
    with pytest.raises(
        ConfigError, match=f"training needs at least .* GB of memory, but only 4.0 GB are available: .*{named}"
    ):
        ScanTrainer([presets.build("tuned", None, TASK | settings)], [0], probes.Drift())


def test_the_model_of_a_registered_agent_is_counted(registries):
    moca.register_prediction("half", one_gaussian)
    half, ours, sac = (
        memory_estimate._in_between(
            presets.build("paper", "CartpoleBalance", {"agent": agent, "dynamics.width": 2**10}), 5, 1
        )
        for agent in ("half", "moca", "sac")
    )
    assert half == ours != sac


@pytest.mark.slow
@pytest.mark.parametrize("agent", ["moca", "sac"])
def test_the_estimate_is_what_the_runs_carry(agent, monkeypatch):
    """No less than that, and so little more that nothing is refused that would run."""
    found = []
    monkeypatch.setattr(memory_estimate, "available", lambda: found.append(1) or 10**12)
    parts = memory_estimate._of_state
    monkeypatch.setattr(memory_estimate, "_of_state", lambda *given: found.append(parts(*given)) or parts(*given))
    trainer = ScanTrainer([presets.build("tuned", None, TASK | {"agent": agent})] * 2, [0, 1], probes.Drift())
    carried = sum(leaf.nbytes for leaf in jax.tree.leaves((trainer.state.learner, trainer.state.replay)))
    assert sum(found[0].values()) == carried


PLANS = {
    "plain": {},
    "long": {"plan.length": 100, "plan.horizon": 30},
    "wide": {"dynamics.width": 64},
    "deep": {"dynamics.depth": 6},
    "many bases": {"plan.bases": 256},
    "many episodes": {"train.eval_episodes": 20, "train.batch": 64},
}
SIX = {"value.low": (-1.0,) * 6, "value.high": (1.0,) * 6, "value.lengthscales": (1.0,) * 6}


def temporary(function, *shapes):
    """The bytes that a compiled program takes besides what it is given and returns."""
    return jax.jit(function).lower(*shapes).compile().memory_analysis().temp_size_in_bytes


@pytest.mark.parametrize("name", ["six dimensions", *(pytest.param(name, marks=pytest.mark.slow) for name in PLANS)])
def test_the_estimate_of_planning_is_at_most_what_is_measured(name):
    """And not much less."""
    env = probes.Drift(observation_size=6 if name == "six dimensions" else 2)
    small = TASK | {"agent": "moca-plan", "plan.horizon": 3, "plan.bases": 8}
    config = presets.build("tuned", None, small | (SIX if name == "six dimensions" else PLANS[name]))
    agent, size, plan = make_agent(config, env), env.observation_size, config.plan
    state, key = jax.eval_shape(agent.init, jax.random.key(0)), jax.eval_shape(lambda: jax.random.key(0))

    def decide(state, observations):
        return jax.vmap(lambda each: agent.act(state, each))(observations)

    def ahead(state, mean, covariance, key):
        first = moments.Gaussian(mean, covariance)
        return look_ahead(agent.world(state), one_gaussian, first, None, 0.9, plan.horizon - 1, key)

    shapes = [jax.ShapeDtypeStruct((config.train.batch, *[size] * order), "float32") for order in (1, 2)]
    episodes = jax.ShapeDtypeStruct((config.train.eval_episodes, size), "float32")
    measured = [temporary(ahead, state, *shapes, key), temporary(decide, state, episodes)]
    estimated = memory_estimate._in_planning(config, size, env.action_size).values()
    for least, found in zip(estimated, measured, strict=True):
        assert least <= found <= 16 * least, (least, found)


def test_settings_of_another_dimension_are_refused_whatever_the_environment():
    wrong = {"value.low": (-1.0,) * 3, "value.high": (1.0,) * 3, "value.lengthscales": (1.0,) * 3}
    with pytest.raises(ConfigError, match=r"value.low has 3 numbers, but there are 2"):
        ScanTrainer([presets.build("tuned", None, TASK | wrong)], [0], probes.Drift())
