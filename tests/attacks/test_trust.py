"""No file that was received makes code run: not by what it names, nor by lying where a command is given."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import moca
from moca.cli import main
from moca.config import Config, ConfigError, override, to_json
from moca.envs import named, trust
from moca.runs import launch
from moca.runs.directory import RunDirectory
from moca.studies import grid, look

pytest.importorskip("gymnasium")

MODULE = """
import pathlib, sys
pathlib.Path({sign!r}).write_text("was run")
import gymnasium
from tests.envs.hosted import Walk
gymnasium.registry.pop("Foreign-v0", None)
gymnasium.register("Foreign-v0", Walk, max_episode_steps=7)
"""
TINY = {
    "agent": "sac", "sac.width": 4, "env.episode_length": 14, "train.steps": 14, "train.warmup": 7, "train.batch": 4,
    "train.capacity": 20, "train.eval_episodes": 1,
}  # fmt: skip


def test_the_command_to_resume_finds_the_module_that_this_one_found(foreign, tmp_path, monkeypatch):
    (module, _, rest), modules = foreign[0].partition(":")[2].partition(":"), tmp_path / "modules"
    name = f"gymnasium:{module}:{rest}"
    assert trust.search_path(name) == []  # found without PYTHONPATH
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "other one"), "", "modules", str(modules)]))
    assert trust.search_path(name) == ["PYTHONPATH=modules"]
    assert trust.resuming(Path("my runs"), name) == "PYTHONPATH=modules moca train --resume 'my runs'"
    assert module not in sys.modules
    trust.import_module_of(name)
    assert trust.search_path(name) == ["PYTHONPATH=modules"]
    assert trust.search_path("CartpoleBalance") == trust.search_path("gymnasium:Pendulum-v1") == []


def test_the_command_to_resume_finds_a_package_without_init(tmp_path, monkeypatch):
    (tmp_path / "boats" / "small").mkdir(parents=True)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert trust.search_path("gymnasium:boats.small.ferry:Ferry") == [f"PYTHONPATH={tmp_path}"]


@pytest.fixture
def foreign(tmp_path, monkeypatch, request):
    """The name of an environment in a module that can be found, and the file that tells whether it was run."""
    name = f"foreign_{abs(hash(request.node.name))}"
    sign = tmp_path / "sign"
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / f"{name}.py").write_text(MODULE.format(sign=str(sign)))
    monkeypatch.syspath_prepend(tmp_path / "modules")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    yield f"gymnasium:{name}:Foreign-v0", sign
    sys.modules.pop(name, None)


def config_of(name):
    return override(Config(), TINY | {"env.name": name})


def received(path, name):
    """A run directory that was not made here."""
    path.mkdir()
    (path / "config.json").write_text(to_json(config_of(name)))
    (path / "meta.json").write_text(json.dumps({"runs": [{"seed": 0}], "versions": {}}))
    (path / "metrics.jsonl").write_text("")
    (path / "policy.npz").write_bytes(b"")
    (path / "trusted").write_text(trust._entry(path, name))  # as if that were enough
    return path


def test_a_received_directory_runs_nothing(tmp_path, foreign, capsys):
    name, sign = foreign
    path = received(tmp_path / "run", name)
    commands = [["evaluate", path], ["render", path], ["inspect", path], ["export", path, "--out", tmp_path / "p.npz"]]
    commands += [["train", "--resume", path], ["train", "--config", path / "config.json", "--out", tmp_path / "new"]]
    for command in commands:
        with pytest.raises(SystemExit) as ended:
            main([*map(str, command), "--device", "cpu"] if command[0] != "export" else [*map(str, command)])
        assert ended.value.code == 2
        assert "--trust" in capsys.readouterr().err
    run = moca.load(path)
    for asked in (lambda: run.learners, run.evaluate, run.policy, lambda: run.predict([0.0, 0.0])):
        with pytest.raises(ConfigError, match=r"executes the module"):
            asked()
    with pytest.raises(ConfigError, match="trust=True"):
        launch.resume(path)
    with pytest.raises(ConfigError, match="trust=True"):
        moca.train(config_of(name), tmp_path / "new")
    assert not sign.exists()
    assert not (tmp_path / "new").exists()


def test_what_the_user_trusts_is_run(tmp_path, foreign, capsys):
    name, sign = foreign
    path = received(tmp_path / "run", name)
    with pytest.raises(SystemExit):
        main(["evaluate", str(path), "--trust", "--device", "cpu"])
    assert "policy.npz cannot be read" in capsys.readouterr().err  # the next thing that is wrong
    assert sign.exists()
    sign.unlink()
    sys.modules.pop(trust.module_of(name))
    with pytest.raises(ConfigError, match=r"policy.npz cannot be read"):
        moca.load(path, trust=True).evaluate()
    assert sign.exists()


def test_a_name_on_the_command_line_is_trusted_and_so_is_the_directory_it_made(tmp_path, foreign, monkeypatch):
    name, sign = foreign
    monkeypatch.setattr(launch, "_train", lambda directory, env, *rest: launch.Run(directory, env))
    settings = [text for key, value in TINY.items() for text in ("--set", f"{key}={value}")]
    main(["train", "--env", name, *settings, "--out", str(tmp_path / "run"), "--device", "cpu"])
    assert sign.exists()
    sys.modules.pop(trust.module_of(name))
    sign.unlink()
    with pytest.raises(ConfigError, match=r"has no policy.npz"):
        _ = moca.load(tmp_path / "run").learners  # made here: it gets as far as that
    assert sign.exists()
    sys.modules.pop(trust.module_of(name))
    sign.unlink()
    (tmp_path / "run").rename(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="trust=True"):
        _ = moca.load(tmp_path / "elsewhere").learners
    assert not sign.exists()


def test_the_record_is_this_users_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    name, other = "gymnasium:mine:Foo-v0", "gymnasium:other:Foo-v0"
    trust.remember(tmp_path / "run", name)
    trust.remember(tmp_path / "run", "gymnasium:Pendulum-v1")  # imports nothing: nothing to note
    record = tmp_path / "moca" / "trusted"
    assert len(record.read_text().split()) == 1
    assert trust.remembered(tmp_path / "run", name)
    assert trust.remembered(tmp_path / "run" / ".." / "run", name)
    assert not trust.remembered(tmp_path / "run", other)
    assert not trust.remembered(tmp_path / "other", name)
    assert record.stat().st_mode & 0o777 == 0o600
    record.chmod(0o666)
    assert not trust.remembered(tmp_path / "run", name)
    record.chmod(0o600)
    record.write_bytes(b"\xff\xfe")
    assert not trust.remembered(tmp_path / "run", name)
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/nowhere")
    trust.remember(tmp_path / "run", name)
    assert not trust.remembered(tmp_path / "run", name)


@pytest.mark.parametrize(
    "name", ["gymnasium:a:b:c", "gymnasium::Foo-v0", "gymnasium:..:Foo-v0", "gymnasium:a b:Foo-v0"]
)
def test_odd_names_are_one_sentence(name):
    with pytest.raises(ConfigError, match="executes the module"):
        named.named(name)
    with pytest.raises(ConfigError, match="cannot import"):
        trust.import_module_of(name)


def test_what_is_imported_already_is_the_users_own(tmp_path, foreign):
    name, sign = foreign
    __import__(trust.module_of(name))
    assert sign.exists()
    assert named.named(name).observation_size == 2
    with pytest.raises(ConfigError, match="Gymnasium has no"):
        named.named("gymnasium:json:Foo-v0")


@pytest.mark.parametrize("name", ["os:abort", "builtins:exit", "moca.cli:main", "os:environ"])
def test_a_received_file_calls_no_function_of_a_module_that_is_loaded(tmp_path, capsys, name):
    file = tmp_path / "settings.json"
    file.write_text(json.dumps({"env": {"name": f"gymnasium:{name}"}}))
    study = study_file(tmp_path / "study.toml", f"gymnasium:{name}")
    for command in (["train", "--config", str(file)], ["study", str(study)]):
        with pytest.raises(SystemExit, match="2"):
            main([*command, "--out", str(tmp_path / "out")])
        assert f"'gymnasium:{name}' calls a function: if you trust it, pass --trust" in capsys.readouterr().err


def test_a_rollout_that_dies_without_a_word_is_one_sentence(monkeypatch):
    monkeypatch.setattr(look, "_CODE", "import os; os._exit(7)")
    with pytest.raises(ConfigError, match=r"env = gymnasium:json:Foo: the rollout ended with code 7"):
        look._look("tuned", "gymnasium:json:Foo", {"agent": "sac"})


def study_file(path, name):
    settings = {key: value for key, value in TINY.items() if key not in ("agent", "train.steps")}
    inside = ", ".join(f'"{key}" = {value}' for key, value in settings.items())
    text = f'presets = ["tuned"]\nseeds = 1\n[[blocks]]\nenv = "{name}"\nagents = ["sac"]\nnoises = ["0"]\n'
    path.write_text(text + f"steps = 14\nsettings = {{ {inside} }}\n")
    return path


def test_a_received_study_runs_nothing(tmp_path, foreign, capsys, monkeypatch):
    name, sign = foreign
    file = study_file(tmp_path / "study.toml", name)
    for more in ([], ["--dry-run"], ["--only", "0"]):
        with pytest.raises(SystemExit):
            main(["study", str(file), "--out", str(tmp_path / "study"), *more])
        assert "--trust" in capsys.readouterr().err
    assert not sign.exists()
    assert not (tmp_path / "study").exists()
    plan = grid.find(str(file))
    assert look.complete(plan, tmp_path / "study", trust=True) == plan  # SAC needs no look


def environment(tmp_path, **more):
    """For processes that are given a folder with traps in it: modules with the names of some that moca imports."""
    trap = "import os\nopen(os.environ['SIGN'], 'a').write(__name__ + ' ')\nraise SystemExit('trapped')\n"
    for name in ("rich", "json", "jax", "numpy", "argparse", "gymnasium", "pandas", "dataclasses", "shlex"):
        (tmp_path / f"{name}.py").write_text(trap)
    source = Path(moca.__file__).parents[1]
    paths = os.pathsep.join(map(str, (source, Path(__file__).parents[2])))
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    return kept | {"SIGN": str(tmp_path / "sign"), "PYTHONPATH": paths, "JAX_PLATFORMS": "cpu", **more}


def started(tmp_path, command, **more):
    found = environment(tmp_path, **more)
    done = subprocess.run(command, cwd=tmp_path, env=found, capture_output=True, text=True, timeout=300)
    assert not (tmp_path / "sign").exists(), (tmp_path / "sign").read_text()
    return done


SCRIPT = Path(sys.executable).with_name("moca")


@pytest.mark.parametrize("program", [[sys.executable, "-m", "moca"], [str(SCRIPT)]])
def test_modules_in_the_current_directory_are_not_imported(tmp_path, program):
    if not Path(program[0]).exists():
        pytest.skip("moca is not installed")
    done = started(tmp_path, [*program, "train", "--dry-run"])
    assert done.returncode == 0, done.stderr
    assert '"agent": "moca"' in done.stdout


@pytest.mark.slow
def test_a_look_at_a_task_imports_nothing_from_the_current_directory(tmp_path):
    code = "from moca.studies import look; print(look._look('tuned', 'gymnasium:Pendulum-v1', {}))"
    done = started(tmp_path, [sys.executable, "-P", "-c", code])
    assert "value.low" in done.stdout, done.stderr


STUDY = (
    "import sys; from pathlib import Path; from moca.studies import grid, launch\n"
    "if __name__ == '__main__':\n"
    "    plan, out = grid.find(sys.argv[1]), Path(sys.argv[2])\n"
    "    print(launch.study(plan, out, launcher=sys.argv[3], options=launch.Options(trust='trust' in sys.argv)))\n"
)


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["local", "ray"])
def test_the_workers_of_a_study_import_what_is_trusted_and_nothing_else(tmp_path, foreign, launcher):
    if launcher == "ray" and find_spec("ray") is None:
        pytest.skip("Ray is not installed")
    name, sign = foreign
    file = study_file(tmp_path / "study.toml", name)
    (tmp_path / "here").mkdir()
    state = {"XDG_STATE_HOME": str(tmp_path / "state")}
    paths = environment(tmp_path / "here")["PYTHONPATH"] + os.pathsep + str(tmp_path / "modules")
    command = [sys.executable, "-P", "-c", STUDY, str(file), str(tmp_path / "out"), launcher]
    done = started(tmp_path / "here", command, PYTHONPATH=paths, **state)
    assert "executes the module" in done.stderr
    assert not sign.exists()
    done = started(tmp_path / "here", [*command, "trust"], PYTHONPATH=paths, **state)
    assert done.returncode == 0, done.stderr
    assert sign.exists()
    assert RunDirectory(next((tmp_path / "out" / "cells").glob("*/status.json")).parent).status["state"] == "finished"
