"""The page on extending is true: its code, saved as files, adds what it says, and agents train with it."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import moca
from moca import config, extending, figures, memory_estimate, presets
from moca import moments as mm
from moca.agents import make_agent
from moca.agents.quadratic import QuadraticAgent
from moca.backup import bellman_target, one_gaussian
from moca.cli import main
from moca.config import ConfigError, registry
from moca.critic import twin
from moca.envs.environment import make_noise
from moca.envs.named import named
from moca.looks import Look, look, ordered
from moca.replay import Transition
from moca.studies import grid, launch, report, results
from moca.studies.grid import Block, Grid
from moca.studies.plots import learning
from moca.studies.plots.cells import Cells
from moca.tasks.pilco_cartpole import PilcoCartpole
from moca.values import rbf
from tests.probes import Drift
from tests.studies import synthetic

ROOT = Path(__file__).parent.parent
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "extending.md").read_text(), flags=re.DOTALL)
ADDED = ("moca-aleatoric", "risk-averse", "moca-smoothing", "per-dimension", "Spring")
FILES = {
    "ramp": (ROOT / "examples" / "ramp.py").read_text(),
    **{name: next(block for block in BLOCKS if f'"{name}"' in block) for name in ADDED},
}


def forget(paths):
    extending._IMPORTED.difference_update(map(str, paths))
    for path in paths:
        sys.modules.pop(Path(path).stem, None)
        if (folder := str(Path(path).parent)) in sys.path:
            sys.path.remove(folder)


@pytest.fixture
def plugins(tmp_path, monkeypatch, registries):
    """The code of the page as files, imported as the command line would."""
    paths = []
    for name, code in FILES.items():
        path = tmp_path / f"{name.replace('-', '_')}.py"
        path.write_text(code)
        paths.append(str(path))
    monkeypatch.setenv("MOCA_PLUGINS", ", ".join(paths))
    extending.import_plugins()
    extending.import_plugins()  # again changes nothing
    yield paths
    forget(paths)


SMALL = {
    "env.episode_length": 50, "train.warmup": 50, "train.steps": 150, "train.batch": 16, "train.eval_episodes": 1,
    "critic.width": 8, "dynamics.width": 8, "dynamics.members": 2, "value.bases": 8, "value.low": (-2.0, -2.0),
    "value.high": (2.0, 2.0), "value.lengthscales": (1.0, 1.0), "value.basis_lr": 1e-2,
}  # fmt: skip


def settings(**named):
    return config.override(config.Config(), SMALL | {name.replace("__", "."): value for name, value in named.items()})


def test_the_ramps_expectation_is_that_of_quadrature(plugins):
    line = config.ValueConfig(bases=5, low=(-2.0,), high=(2.0,), lengthscales=(1.0,))
    made = config.VALUES["ramp"]()(line, 1, jax.random.key(0))
    weights, slopes, kinks = jnp.arange(1.0, 6.0), made.slopes, made.kinks
    value = type(made)(weights, slopes, kinks)
    points, mass = np.polynomial.hermite_e.hermegauss(200)
    of_each, averaged = jax.jit(jax.vmap(value)), jax.jit(mm.expectation)
    for mean, variance in ((0.3, 0.5), (-1.0, 2.0), (0.7, 1e-9)):
        values = np.asarray(of_each(jnp.asarray(mean + variance**0.5 * points)[:, None]))
        expected = values @ mass / mass.sum()
        for belief in (
            mm.DiagonalGaussian(jnp.array([mean]), jnp.array([variance])),
            mm.Gaussian(jnp.array([mean]), jnp.array([[variance]])),
        ):
            np.testing.assert_allclose(averaged(belief, value), expected, rtol=3e-3)


def test_twins_share_the_bases_that_were_named(plugins):
    agent = make_agent(settings(value__kind="ramp"), Drift())
    critics = jax.eval_shape(agent.init, jax.random.key(0)).critics
    assert critics.value.weights.shape == (2, 8)
    assert critics.value.slopes.shape == (8, 2)
    assert critics.value.kinks.shape == (8,)


def test_the_risk_averse_target_lies_below_by_the_deviation(plugins):
    agent = make_agent(settings(agent="risk-averse", value__kind="rbf"), Drift())
    rng = np.random.default_rng(0)
    both = [mm.RBF(rng.normal(size=8), np.linspace(-2, 2, 8)[:, None], np.ones(1)) for _ in range(2)]
    values = twin(both[0])
    values = eqx.tree_at(lambda v: v.weights, values, jnp.stack([one.weights for one in both]))
    beliefs = mm.DiagonalGaussian(jnp.array(rng.normal(size=(6, 1))), jnp.full((6, 1), 0.3))
    nothing = jnp.zeros((6, 1))
    batch = Transition(nothing, nothing, jnp.arange(6.0), nothing, jnp.zeros(6))
    target = agent.target(batch, beliefs, values)
    neutral = bellman_target(batch.reward, batch.terminated, agent.config.train.gamma, beliefs, values)
    assert (target < neutral - 1e-3).all()
    points, mass = np.polynomial.hermite_e.hermegauss(60)
    least = []
    for one in both:
        at = np.asarray(beliefs.mean)[:, None] + 0.3**0.5 * points[:, None]
        drawn = np.asarray(jax.jit(jax.vmap(jax.vmap(one)))(jnp.asarray(at)))
        mean = drawn @ mass / mass.sum()
        least.append(mean - 0.5 * np.sqrt((drawn - mean[:, None]) ** 2 @ mass / mass.sum()))
    expected = np.arange(6.0) + agent.config.train.gamma * np.min(least, axis=0)
    np.testing.assert_allclose(target, expected, rtol=1e-4)


@pytest.mark.parametrize(
    "chosen",
    [
        pytest.param({"agent": "moca-aleatoric", "value__kind": "ramp"}, marks=pytest.mark.slow),
        pytest.param({"agent": "risk-averse", "value__kind": "rbf-learned"}, marks=pytest.mark.slow),
        {"agent": "moca-smoothing", "value__kind": "erf"},
    ],
    ids=lambda chosen: chosen["agent"],
)
def test_what_was_added_trains_and_is_loaded(plugins, tmp_path, chosen):
    run = moca.train(settings(**chosen), tmp_path / "run", env=Drift())
    assert np.isfinite([row["return_mean"] for row in run.rows]).all()
    loaded = moca.load(run.path, env=Drift())
    assert loaded.config.agent == chosen["agent"]
    np.testing.assert_array_equal(loaded.predict([0.2, 0.1]), run.predict([0.2, 0.1]))
    if chosen["agent"] == "moca-smoothing":
        # The belief is the running average of what was observed.
        policy = run.policy()
        policy(np.array([1.0, 0.5]))
        np.testing.assert_allclose(policy(np.zeros(2)), run.predict([0.7, 0.35]), rtol=1e-5)
        with pytest.raises(ConfigError, match="Smoothing cannot be exported"):
            run.export(tmp_path / "policy.npz")
    else:
        run.export(tmp_path / "policy.npz")


def test_a_pair_without_a_closed_form_is_a_sentence(plugins, tmp_path):
    with pytest.raises(ConfigError, match=r"risk-averse with value.kind = ramp: no closed form for the variance"):
        moca.train(settings(agent="risk-averse", value__kind="ramp"), tmp_path / "run", env=Drift())


def test_the_aleatoric_belief_leaves_the_disagreement_out(plugins):
    mixture = mm.GaussianMixture(
        jnp.array([0.5, 0.5]), mm.DiagonalGaussian(jnp.array([[0.0], [2.0]]), jnp.array([[0.1], [0.3]]))
    )
    belief = config.AGENTS["moca-aleatoric"].prediction()(mixture, jax.random.key(0), 1)
    np.testing.assert_allclose([belief.mean[0], belief.variance[0]], [1.0, 0.2], rtol=1e-6)


STUDY = Grid(
    "mine",
    (Block("Spring", ("moca", "risk-averse"), ("0", "0.1", "per-dimension 0.2"), 50_000, {"value.kind": "ramp"}),),
    ("tuned",),
    seeds=2,
    films=(),
)


def test_what_was_added_is_known_to_the_command_line(plugins, capsys):
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    told = " ".join(capsys.readouterr().out.split()).replace("- ", "-")  # lines break at hyphens
    for words in ("moca-smoothing (default: moca)", "per-dimension (default", "polynomial, ramp (default"):
        assert words in told
    names = {"--env": "Spring", "--agent": "risk-averse", "--value": "ramp", "--noise": "per-dimension"}
    main(["train", *(word for pair in names.items() for word in pair), "--sigma", "0.1", "--dry-run"])
    shown = json.loads(capsys.readouterr().out)
    assert [shown["env"]["name"], shown["agent"], shown["value"]["kind"], shown["noise"]["kind"]] == [*names.values()]
    assert shown["value"]["high"] == shown["noise"]["scales"] == [2.0, 2.0]
    for option, name in names.items():
        with pytest.raises(SystemExit):
            main(["train", option, f"{name}x"])
        rest = "moca settings env.name lists all" if option == "--env" else "Allowed: "
        assert f"is unknown. Did you mean {name}? {rest}" in (said := capsys.readouterr().err)
        assert option == "--env" or f", {name}" in said


def test_what_was_added_is_known_to_studies_figures_and_the_page(plugins, tmp_path, monkeypatch):
    jobs = grid.plan(STUDY)
    assert [job.config.noise.kind for job in jobs] == ["per-dimension"] * 2
    assert [tuple(point.values()) for point in jobs[0].varied] == [(0.0, 0.0), (0.1, 0.1), (0.2, 0.0)]
    assert grid.parse_noise("per-dimension 0.2") == ("per-dimension", 0.2)
    both = replace(STUDY.blocks[0], noises=("per-dimension 0.2", "state-norm 0.2"))
    with pytest.raises(ConfigError, match="has per-dimension and state-norm: make a study for each"):
        grid.plan(replace(STUDY, blocks=(both,)))
    assert (look("risk-averse").colour, look("risk-averse").label) == ("#882255", "MoCA (risk-averse)")
    assert ordered(["mine", "risk-averse", "naf"]) == ["naf", "risk-averse", "mine"]
    monkeypatch.setitem(synthetic.FINAL, "risk-averse", 850)
    directory = synthetic.write(tmp_path / "study", STUDY)
    with figures.style():
        panels = learning.of_task(Cells(results.load_results(directory), "tuned"), "Spring")
    assert {"MoCA", "MoCA (risk-averse)"} <= {text.get_text() for text in panels.legends[0].get_texts()}
    assert "#882255" in {line.get_color() for axes in panels.axes for line in axes.lines}
    assert "per-dimension, σ ≤ 0.2" in {axes.get_title(loc="left") for axes in panels.axes}
    figures.plt.close(panels)
    page = report.write(directory).read_text()
    for words in ("MoCA (risk-averse)", "per-dimension 0.2", "on Spring", ".ink-risk-averse{color:#882255}"):
        assert words in page


def test_one_line_of_the_registry_is_all_that_an_agent_of_ours_needs(registries, tmp_path, capsys, monkeypatch):
    """It is in the command line, in the estimate of memory by what it predicts, in studies, figures and on the page."""
    registry.add_agent(
        "few",
        "moca.agents.quadratic:QuadraticAgent",
        "moca.backup:samples_of_it",
        Look("Few samples", "few", "#123456", "o", place=3),
    )
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    assert "sac, few (default: moca)" in " ".join(capsys.readouterr().out.split())
    main(["train", "--env", "CartpoleBalance", "--agent", "few", "--dry-run"])
    assert json.loads(capsys.readouterr().out)["agent"] == "few"
    planned = {"dynamics.samples": 1000, "plan.horizon": 3}
    few, same, other = (
        presets.build("tuned", "CartpoleBalance", planned | {"agent": name}) for name in ("few", "moca-mc", "moca")
    )
    for needed in (memory_estimate._in_between, memory_estimate._in_planning):
        assert needed(few, 5, 1) == needed(same, 5, 1) != needed(other, 5, 1)
    study = Grid("mine", (Block("CartpoleBalance", ("moca", "few"), ("0.1",), 50_000),), ("tuned",), seeds=2, films=())
    assert [job.config.agent for job in grid.plan(study)] == ["moca", "few"]
    monkeypatch.setitem(synthetic.FINAL, "few", 850)
    directory = synthetic.write(tmp_path / "study", study)
    with figures.style():
        panels = learning.of_task(Cells(results.load_results(directory), "tuned"), "CartpoleBalance")
    assert {text.get_text() for text in panels.legends[0].get_texts()} >= {"MoCA", "Few samples"}
    figures.plt.close(panels)
    page = report.write(directory).read_text()
    assert "Few samples" in page
    assert ".ink-few{color:#123456}" in page


def test_memory_for_decisions_and_the_setting_to_lower_are_the_agents_own(registries):
    class Own(QuadraticAgent):
        """Searches at every decision."""

        sized_by = "own.width"

        @staticmethod
        def numbers_to_decide(config, observed):
            return {"own.length": 1000 * observed}

    moca.register_agent("own", Own)
    chosen = presets.build("tuned", "CartpoleBalance", {"agent": "own"})
    assert memory_estimate._in_planning(chosen, 5, 1) == {"own.length": 20_000}
    state = SimpleNamespace(learner=jax.ShapeDtypeStruct((7,), "float32"), replay=())
    assert memory_estimate._of_state(chosen, state) == {"train.capacity": 0, "own.width": 28}


def test_settings_of_an_agent_within_a_preset(registries):
    own = type("Own", (QuadraticAgent,), {})
    moca.register_agent("own", own, settings={"raw": {"critic.lr": 2e-3}})
    rates = [presets.build(name, "CartpoleBalance", {"agent": "own"}).critic.lr for name in ("raw", "tuned")]
    assert rates == [2e-3, 1e-3]
    with pytest.raises(ConfigError, match=r"preset = 'rw' is unknown\. Did you mean raw"):
        moca.register_agent("other", own, settings={"rw": {}})
    assert "other" not in config.AGENTS


def test_a_noise_that_was_added_is_drawn_and_known_to_the_filter(plugins, tmp_path):
    noisy = {"noise__kind": "per-dimension", "noise__sigma": 0.5, "noise__sigma_min": 0.1, "noise__scales": (2.0, 1.0)}
    chosen = settings(env__name="Spring", belief__filter=True, value__kind="erf", **noisy)
    deviation = make_noise(chosen.noise, 2).deviation(jnp.array([[0.0, 0.5], [-4.0, 2.0]]))
    np.testing.assert_allclose(deviation, [[0.1, 0.3], [0.5, 0.5]], rtol=1e-6)
    run = moca.train(chosen, tmp_path / "run")
    assert np.isfinite([row["return_mean"] for row in run.rows]).all()
    variance = make_agent(chosen, Drift()).filter.noise_variance(None, jnp.array([0.0, 0.5]))
    np.testing.assert_allclose(variance, [0.01, 0.09], rtol=1e-6)
    with pytest.raises(ConfigError, match=r"noise\.kind = per-dimension cannot be exported"):
        moca.load(run.path).export(tmp_path / "exported.npz")


def test_environments_that_were_added_are_environments(registries, tmp_path):
    moca.register_env("Nothing", dict)
    with pytest.raises(
        ConfigError, match=r"'Nothing' is registered with a function that returns {}, which is not an environment"
    ):
        moca.train(settings(env__name="Nothing"), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    moca.register_env("Cart", "moca.tasks.pilco_cartpole:PilcoCartpole")  # as all that is registered
    assert isinstance(named("Cart"), PilcoCartpole)


def test_names_are_checked(registries):
    make, prediction = rbf, one_gaussian
    with pytest.raises(ConfigError, match="'moca' already exists"):
        moca.register_prediction("moca", prediction)
    with pytest.raises(ConfigError, match="'erf' already exists"):
        moca.register_value("erf", make)
    with pytest.raises(ConfigError, match="'moca-mc-8' already exists"):
        moca.register_prediction("moca-mc-8", prediction)  # a study takes it for MC with eight samples
    with pytest.raises(ConfigError, match="lowercase letters"):
        moca.register_value("My Value", make)
    for name in ("state-norm", "action"):  # the latter is one on actions, in studies
        with pytest.raises(ConfigError, match=f"noise.kind = '{name}' already exists"):
            moca.register_noise(name, lambda *_: 1.0)
    with pytest.raises(ConfigError, match=r"env\.name = 'CheetahRun' already exists"):
        moca.register_env("CheetahRun", Drift)
    with pytest.raises(ConfigError, match="must consist of letters"):
        moca.register_env("own:Drift", Drift)
    with pytest.raises(ConfigError, match="not a subclass of"):
        moca.register_agent("mine", dict)
    assert "mine" not in config.AGENTS


def test_a_plugin_may_import_what_lies_beside_it_and_fails_whole(tmp_path, monkeypatch, registries):
    (tmp_path / "aside_of_mine.py").write_text("NAME = 'beside'\n")
    path = tmp_path / "plugin_of_mine.py"
    path.write_text(
        "from __future__ import annotations\nimport moca\nfrom aside_of_mine import NAME\n"
        "from moca.agents.quadratic import QuadraticAgent\n"
        "class Mine(QuadraticAgent):\n    extra: int = 3\n"
        "moca.register_agent(NAME, Mine)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MOCA_PLUGINS", "plugin_of_mine.py")
    assert extending.plugins() == [str(path)]  # for workers that start elsewhere
    extending.import_plugins()
    assert "beside" in config.AGENTS
    forget([path])
    for _ in range(2):  # the second time, too
        with pytest.raises(ConfigError, match="'beside' already exists"):
            extending.import_plugins()
    forget([path, tmp_path / "aside_of_mine.py"])


def test_the_processes_of_a_study_import_them(plugins, tmp_path, monkeypatch):
    """One that knows an agent of ours gets as far as looking for the job."""
    study = Grid("mine", (Block("CartpoleBalance", ("moca-aleatoric",), ("0",)),), ("tuned",))
    launch.prepare(tmp_path / "study", study)
    command = [sys.executable, "-m", "moca.studies.launch", str(tmp_path / "study"), "none", "60", "cpu"]
    with subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        said = process.stderr.read()  # it stops once its standard input is closed
    assert "Allowed: 0 to 0, or tuned-CartpoleBalance-moca-aleatoric" in said
    seen = []
    monkeypatch.setattr(launch, "import_plugins", lambda: seen.append("imported"))
    monkeypatch.setattr("moca.studies.work.run_job", lambda *_: seen.append("run") or SimpleNamespace(path=tmp_path))
    launch._work(
        grid.to_json(study), str(tmp_path), "tuned-CartpoleBalance-moca-aleatoric", launch.Options(device="cpu")
    )
    assert seen == ["imported", "run"]


def moca_command(*arguments, plugins):
    environment = os.environ | {"MOCA_PLUGINS": plugins, "JAX_PLATFORMS": "cpu"}
    return subprocess.run(
        [sys.executable, "-m", "moca", *arguments], env=environment, capture_output=True, text=True, timeout=120
    )


def test_the_command_line_knows_them(tmp_path):
    path = tmp_path / "ramp.py"
    path.write_text(FILES["ramp"] + "\nimport json\nfrom moca import config\nprint(json.dumps([*config.VALUES]))\n")
    done = moca_command("study", "cartpole", "--dry-run", "--set", "value.kind=ramp", plugins=str(path))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[0])[-1] == "ramp"
    without = moca_command("study", "cartpole", "--dry-run", "--set", "value.kind=ramp", plugins="")
    assert without.returncode == 2
    assert "value.kind = 'ramp' is unknown" in without.stderr


def test_a_plugin_that_is_not_there_is_one_sentence(tmp_path, monkeypatch, capsys):
    path, name = str(tmp_path / "none.py"), "no_such_module"
    done = moca_command("study", "cartpole", "--dry-run", plugins=path)
    monkeypatch.setenv("MOCA_PLUGINS", name)
    with pytest.raises(SystemExit) as stopped:
        main(["study", "cartpole", "--dry-run"])
    found = [(path, done.returncode, done.stderr), (name, stopped.value.code, capsys.readouterr().err)]
    for plugin, status, said in found:
        assert status == 2
        assert said.startswith(f"moca: error: MOCA_PLUGINS: cannot import {plugin}")
        assert "Traceback" not in said
    (tmp_path / "mine_beside.py").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MOCA_PLUGINS", "mine_beside")
    monkeypatch.setattr(sys, "path", [part for part in sys.path if part])
    with pytest.raises(ConfigError, match=r"Did you mean mine_beside.py\?"):
        extending.import_plugins()
