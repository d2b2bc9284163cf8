"""Settings: every fault is named before anything heavy is imported."""

import ast
import dataclasses
import json
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tools import architecture, trace_step

import moca
from moca import config as c
from moca import presets, sweep

FAULTS = {
    "noise.sigma=-0.1": "noise.sigma = -0.1 is out of range: it must be at least 0",
    "noise.sigma=nan": "noise.sigma = nan is out of range",
    "noise.kind=homoscedatic": "Did you mean homoscedastic?",
    "noise.kind=state-norm": "needs noise.scales",
    "noise.scales=[0]": "noise.scales = 0 is out of range: it must be above 0",
    "noise.scales=[a]": "noise.scales must be a list of numbers, got '[a]'",
    "train.gamma=1": "train.gamma = 1 is out of range: it must be at least 0 and below 1",
    "train.gamma=inf": "train.gamma = inf is out of range",
    "train.gama=0.9": "Did you mean train.gamma, ",
    "train.steps=1500": "train.steps = 1500 must be a multiple of env.episode_length = 1000: try train.steps = 2000",
    "train.steps=0": "train.steps = 0 is out of range",
    "train.steps=1e5.5": "train.steps must be a whole number",
    "train.batch=2000000": "train.batch = 2000000 must not exceed train.capacity = 1000000",
    "train.batch=0": "train.batch = 0 is out of range",
    "train.updates=0": "train.updates = 0 is out of range",
    "train.warmup=-1": "train.warmup = -1 is out of range",
    "train.eval_every=0": "train.eval_every = 0 is out of range",
    "env.name=CartpoleBalnce": "Did you mean CartpoleBalance?",
    "env.name=point.Point": "is unknown. For a class of your own, write MODULE:CLASS: point:Point. moca settings",
    "env.name=json": "is unknown. For a class of your own: json:CLASS. moca settings env.name lists all",
    "env.name=nowhere": "is unknown. Allowed: AcrobotSwingup, ",
    "env.action_repeat=3": "env.episode_length = 1000: try env.episode_length = 999 and train.steps = 99900",
    "env.episode_length=0": "env.episode_length = 0 is out of range",
    "agent=sca": "Did you mean sac?",
    "agent=moca-cee": "Did you mean moca-ce?",
    "dynamics.members=0": "dynamics.members = 0 is out of range",
    "dynamics.samples=0": "dynamics.samples = 0 is out of range",
    "critic.curvature_floor=0": "critic.curvature_floor = 0 is out of range",
    "critic.curvature=ful": "Did you mean full?",
    "value.kind=rfb": "Did you mean rbf?",
    "value.low=[1,2]": "value.high has 3 numbers, but value.low has 2",
    "value.low=[5,5,5]": "must be below value.high",
    "exploration.probability=1.5": "exploration.probability = 1.5 is out of range",
    "seeds=0": "seeds = 0 is out of range",
    "seed=-1": "seed = -1 is out of range",
    "sac.width=2.5": "sac.width must be a whole number, got '2.5'",
    "sac.width=big": "sac.width must be a whole number, got 'big'",
    "sac.tau=0": "sac.tau = 0 is out of range: it must be above 0 and at most 1",
    "sac.alpha=0": "sac.alpha = 0 is out of range",
    "sac.critic_lr=-1": "sac.critic_lr = -1 is out of range",
    "learning_rate=1e-3": "Did you mean critic.lr, value.lr, dynamics.lr, sac.actor_lr or sac.critic_lr? moca",
    "buffer_size=1000": "Did you mean train.capacity? moca settings lists all",
    "sac": "a setting must have the form NAME=VALUE",
    "sac=1": "there is no setting 'sac'",
    "=1": "there is no setting ''",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named_with_exit_code_2(fault, capsys):
    from moca.cli import main

    with pytest.raises(SystemExit) as stopped:
        main(["train", "--env", "PendulumSwingup", "--set", fault])
    assert stopped.value.code == 2
    assert FAULTS[fault] in capsys.readouterr().err


def test_values_of_another_dimension_are_named():
    wrong = {"value.low": [-1, -1], "value.high": [1, 1], "value.lengthscales": [1, 1]}
    with pytest.raises(c.ConfigError, match=r"value.low has 2 numbers, but PendulumSwingup has 3 observed dimensions"):
        presets.build("tuned", "PendulumSwingup", wrong)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "train.gama=1"], "Did you mean train.gamma, "),
        (["--sigma", "-1"], "noise.sigma = -1 is out of range"),
        (["--env", "Cartpole"], "Did you mean CartPole-v1 or Cartpole"),
        (["--env", "Pendulum"], "Did you mean Pendulum-v1 or PendulumSwingup? "),
        (["--env", "gym:Pendulum-v1"], "Did you mean Pendulum-v1? "),
        (["--env", "Pendulum-V1"], "Did you mean Pendulum-v1? "),
        (["--env", "HALFCHEETAH-V4"], "Did you mean HalfCheetah-v4? "),
        (["--env", "PENDULUMSWINGUP"], "Did you mean PendulumSwingup? "),
        (["--env", "MountainCarContinuous"], "Did you mean MountainCarContinuous-v0? "),
        (["--steps", "-5"], "train.steps = -5 is out of range: it must be at least 1\n"),
        (["--seed", "9999999999"], "it must be at least 0 and at most 2147483647\n"),
        (["--preset", "tund"], "Did you mean tuned?"),
        (["--config", "nowhere.toml"], "cannot read the config file nowhere.toml"),
        (["--sgima", "1"], "Did you mean --sigma?"),
        (["--sedes", "3", "--zzz", "--stepz=4"], "Did you mean --seeds and --steps?"),
    ],
)
def test_the_command_line_refuses_before_importing_jax(arguments, message):
    code = (
        "import sys; from moca.cli import main\n"
        f"try: main({['train', *arguments]!r})\n"
        "except SystemExit as error: print(error.code, 'jax' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["2", "False"]
    assert message in run.stderr


def test_without_gymnasium_its_names_are_not_suggested(monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(c.ConfigError, match=r"env.name = 'Pendulum' is unknown\. Did you mean PendulumSwingup\? moca"):
        c.override(c.Config(), {"env.name": "Pendulum"})


def test_a_module_without_its_class_is_recognised(tmp_path, monkeypatch):
    """In the current directory, where `moca` does not look by itself, without importing it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pointmass.py").write_text("raise RuntimeError")
    own = r"is unknown\. For a class of your own: pointmass:CLASS\. Did you mean PointMass\? moca settings env.name"
    for name in ("pointmass", "pointmass.py"):
        with pytest.raises(c.ConfigError, match=own):
            c.override(c.Config(), {"env.name": name})
    (tmp_path / "pointmass.py").unlink()
    with pytest.raises(c.ConfigError, match=r"is unknown\. Did you mean PointMass\?"):
        c.override(c.Config(), {"env.name": "pointmass"})


def test_round_trip_through_json():
    config = presets.build("tuned", "CartpoleBalance", {"noise.kind": "state-norm", "noise.sigma": 0.05, "seeds": 3})
    assert c.from_json(c.to_json(config)) == config
    assert json.loads(c.to_json(config))["noise"]["scales"] == [2.4, "inf", "inf", 2.0, 3.0]


def test_files_and_the_command_line_agree(tmp_path, capsys):
    from moca.cli import main

    path = tmp_path / "settings.toml"
    path.write_text('agent = "sac"\n[train]\ngamma = 0.95\nsteps = 5000\n[sac]\nwidth = 64\n')
    main(["train", "--config", str(path), "--sigma", "0.05", "--set", "sac.width=32", "--dry-run"])
    shown = json.loads(capsys.readouterr().out)
    assert (shown["train"]["gamma"], shown["train"]["steps"]) == (0.95, 5000)
    assert (shown["noise"]["sigma"], shown["sac"]["width"]) == (0.05, 32)


def test_every_field_has_limits_and_a_default():
    for name in c.flatten(c.Config()):
        assert "limits" in c.field_of(name).metadata, name
    for section in (c.EnvConfig, c.NoiseConfig, c.TrainConfig, c.SACConfig):
        assert dataclasses.is_dataclass(section())


def test_sweeps():
    assert sweep.grid({"a": [1.0, 2.0], "b": [3.0]}) == [{"a": 1.0, "b": 3.0}, {"a": 2.0, "b": 3.0}]
    points = sweep.draws({"sac.tau": (1e-3, 1e-1)}, 200, seed=0)
    assert points == sweep.draws({"sac.tau": (1e-3, 1e-1)}, 200, seed=0)
    assert all(1e-3 <= point["sac.tau"] <= 1e-1 for point in points)
    assert 60 < sum(point["sac.tau"] < 1e-2 for point in points) < 140  # log-uniform
    for text, message in {
        "sac.width=1,2": "cannot be swept",
        "sac.tau=a,b": "needs finite numbers",
        "sac.tua=1": "sac.tau",
    }.items():
        with pytest.raises(c.ConfigError, match=message):
            sweep.parse_axis(text, ",")
    with pytest.raises(c.ConfigError, match="LOW below HIGH"):
        sweep.parse_axis("sac.tau=1:0", ":")


LAYERS = [
    {
        "moca",
        "moca.config",
        "moca.presets",
        "moca.settings",
        "moca.sweep",
        "moca.names",
        "moca.files",
        "moca.figures",
        "moca.looks",
        "moca.pages",
    },
    {"moca.moments", "moca.nets", "moca.replay", "moca.envs", "moca.exploration", "moca.devices", "moca.pytrees"},
    {"moca.critic", "moca.dynamics", "moca.values", "moca.width"},
    {
        "moca.backup",
        "moca.belief",
        "moca.delay",
        "moca.diagnostics",
        "moca.divergence",
        "moca.forecast",
        "moca.outcomes",
        "moca.planning",
        "moca.reward",
        "moca.imagination",
        "moca.horizons",
    },
    {"moca.agents"},
    {"moca.noise_levels"},
    {"moca.loop", "moca.extending", "moca.memory_estimate"},
    {"moca.evaluation"},
    {"moca.drivers"},
    {"moca.runs"},
    {"moca.studies", "moca.benchmark", "moca.zoo"},
    {"moca.paper", "moca.tasks"},
    {"moca.api", "moca.demo", "moca.doctor", "moca.cli", "moca.__main__"},
]


def layer(module):
    """The layer of the longest name above that is the module or holds it."""
    matches = [
        (len(name), i) for i, names in enumerate(LAYERS) for name in names if f"{module}.".startswith(f"{name}.")
    ]
    return max(matches)[1]


def test_imports_point_one_way():
    """A module imports from its own layer or from those below, wherever in it the import stands; the moments import
    nothing else of the project. What the command line and `import moca` load lazily is exempt: they are the top."""
    root = Path(moca.__file__).parent
    for path in root.rglob("*.py"):
        module = ".".join(("moca", *path.relative_to(root).with_suffix("").parts)).removesuffix(".__init__")
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("moca"):
                continue
            for alias in node.names:
                inner = root / Path(*node.module.split(".")[1:], alias.name)
                imported = (
                    f"{node.module}.{alias.name}"
                    if inner.exists() or inner.with_suffix(".py").exists()
                    else node.module
                )
                assert layer(imported) <= layer(module), (module, imported)
                if module.startswith("moca.moments"):
                    assert imported.startswith("moca.moments"), (module, imported)


def test_the_picture_of_the_layers_is_what_the_imports_say(tmp_path):
    architecture.draw(drawn := tmp_path / "architecture.svg")
    assert drawn.read_text() == architecture.PICTURE.read_text(), "run python tools/architecture.py"


def test_a_step_that_grows_is_refused():
    """`make step` counts the files of the method, too, and takes one that it does not know for one of them."""
    method = [name for name in trace_step.ORDER if name not in trace_step.AROUND]
    assert len(method) == trace_step.MOST_OF_METHOD
    assert trace_step.complaints_about(list(trace_step.ORDER), {("loop.py", "belief.py")}) == []
    assert trace_step.complaints_about([*method, "planning.py"], set()) == [
        "planning.py is not in ORDER",
        f"the method is in 7 files, more than 6: {', '.join(method)}, planning.py",
    ]
    both = trace_step.complaints_about([*trace_step.ORDER, "planning.py"], {("belief.py", "loop.py")})
    assert both[1:3] == ["belief.py calls loop.py, which stands above it", "a step enters 13 files, more than 12"]


def sources():
    """The files of the package with their paths in it, scripts and styles of pages included."""
    root = Path(moca.__file__).parent
    for path in sorted(root.rglob("*")):
        if path.suffix in (".py", ".html", ".js", ".css"):
            yield path.relative_to(root), path.read_text()


def test_no_file_is_longer_than_350_lines_and_no_function_than_60():
    long_files = {str(path): count for path, text in sources() if (count := len(text.splitlines())) > 350}
    assert long_files == {}
    lengths = [
        (node.end_lineno - node.lineno + 1, str(path), node.name)
        for path, text in sources()
        if path.suffix == ".py"
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    assert len(lengths) > 1500
    assert [each for each in lengths if each[0] > 60] == []


def test_no_public_class_name_is_used_twice():
    """Also not for another name of a type, nor in the script of a page for what the package calls so."""
    places = {}
    for path, text in sources():
        for name in re.findall(r"^(?:class (?=[A-Za-z])|(?=\w+ = )(?=[A-Z]\w*[a-z]))(\w+)", text, re.MULTILINE):
            places.setdefault(name, []).append(str(path))
    assert {"Step", "Quadratic", "Film", "Rows", "Backup"} <= places.keys()
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}


# The paper's tables, typed from its pages: App. D (both columns), App. B.3 to B.5, App. A.2.
PRINTED = {
    "critic.lr": (1e-4, 1e-4),
    "critic.lr_end": (1e-4, 1e-4),
    "critic.vertex_lr": (1e-5, 5e-6),
    "critic.vertex_lr_end": (1e-5, 5e-6),
    "train.batch": (128, 128),
    "exploration.sigma": (1.0, 0.3),
    "exploration.sigma_end": (0.1, 0.3),
    "exploration.probability": (0.2, 0.2),
    "critic.target_period": (100, 100),
    "critic.keepalive": (1e-4, 1e-4),
    "critic.keepalive_min": (0.5, 2.0),
    "value.kind": ("rbf", "rbf"),
    "value.bases": (256, 128),
    "value.constant_lr": (0.0, 0.0),
    "value.basis_lr": (0.0, 0.0),
    "value.low": ((-2.5, -1.0, -1.0, -10.0, -15.0), (-1.0, -1.0, -8.0)),
    "value.high": ((2.5, 1.0, 1.0, 10.0, 15.0), (1.0, 1.0, 8.0)),
    "value.lengthscales": ((0.6, 0.5, 0.5, 3.0, 4.0), (0.5, 0.5, 2.0)),
}


def test_the_paper_preset_is_what_is_printed():
    for column, env in enumerate(("CartpoleBalance", "PendulumSwingup")):
        settings = c.flatten(presets.build("paper", env, {}))
        assert {name: settings[name] for name in PRINTED} == {name: pair[column] for name, pair in PRINTED.items()}
    cartpole = c.flatten(presets.build("paper", "CartpoleBalance", {}))
    assert cartpole["exploration.anneal"] == 0.5  # "over the first 50 % of training steps"
    assert cartpole["noise.scales"] == (2.4, math.inf, math.inf, 2.0, 3.0)


@pytest.mark.parametrize("off", [False, "false"])
def test_a_preset_whose_filter_learns_the_noise_can_be_used_without_filter(off):
    """But a user who asks for learned noise without a filter is told that it would not be used."""
    assert presets.build("tuned", "CartpoleBalance", {}).belief.noise == "learned"
    assert presets.build("tuned", "CartpoleBalance", {"belief.filter": off}).belief.noise == "known"
    with pytest.raises(c.ConfigError, match=r"belief.noise = learned needs belief.filter"):
        presets.build("tuned", "CartpoleBalance", {"belief.filter": off, "belief.noise": "learned"})


@pytest.mark.parametrize(
    ("agent", "name", "first"),
    [("sac", "learning_rate", "sac.actor_lr"), ("moca", "learning_rate", "critic.lr"), ("sac", "net_arch", "sac.width"),
     ("sac", "depht", "sac.depth"), ("moca", "depht", "critic.depth"), ("sac", "batch_size", "train.batch")],
)  # fmt: skip
def test_suggestions_begin_with_what_the_agent_uses(agent, name, first, capsys):
    from moca.cli import main

    with pytest.raises(c.ConfigError, match=rf"Did you mean {first}\b"):
        moca.SAC("CartpoleBalance", **{name: 1}) if agent == "sac" else moca.MoCA("CartpoleBalance", **{name: 1})
    with pytest.raises(SystemExit):
        main(["train", "--agent", agent, "--set", f"{name}=1"])
    assert f"Did you mean {first}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("agent", "settings", "told"),
    [("sac", ["critic.lr=5", "sac.width=8"], "sac does not use critic.lr"),
     ("sac", ["value.lr=1", "dynamics.lr=1", "belief.filter=false"], "sac does not use value.lr and dynamics.lr"),
     ("sac", ["belief.filter=true", "dynamics.width=8"], ""),
     ("moca", ["critic.lr=1e-3", "sac.width=8"], "moca does not use sac.width"),
     ("bnaf", ["plan.lr=1e-3", "critic.width=8"], "bnaf does not use plan.lr"),
     ("moca", ["train.gamma=0.9", "plan.horizon=2"], "")],
)  # fmt: skip
def test_a_setting_that_the_agent_does_not_use_is_noted(agent, settings, told, capsys):
    from moca.cli import main

    options = [word for each in settings for word in ("--set", each)]
    main(["train", "--env", "CartpoleBalance", "--agent", agent, *options, "--dry-run"])
    assert capsys.readouterr().err == (told and f"note: {told}\n")


def test_a_setting_swept_that_the_agent_does_not_use_is_noted(tmp_path, monkeypatch, capsys):
    from moca.cli import main

    monkeypatch.chdir(tmp_path)
    swept = ["--grid", "critic.lr=1e-3,1e-2", "--grid", "sac.tau=0.1,0.2", "--random", "value.lr=1e-3:1e-2"]
    main(["sweep", "--env", "CartpoleBalance", "--agent", "sac", *swept, "--dry-run"])
    assert capsys.readouterr().err == "note: sac does not use critic.lr and value.lr\n"
