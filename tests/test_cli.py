"""Help and mistakes answer at once, without importing jax, and say what was meant."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from moca.cli import main

MISTAKES = {
    ("figur", "toy"): "Did you mean figure?",
    ("figure", "toi"): "Did you mean toy?",
    ("benchmark", "--jsn"): "Did you mean --json?",
    ("benchmark", "bakup"): "Did you mean backup?",
    ("--hepl",): "Did you mean --help?",
    ("benchmark", "--rounds", "0"): "--rounds: expected a whole number from 1 to 100000, got '0'",
    ("figure", "toy", "--formats", "gif"): "choose from",
    ("train", "--checkpoint-every", "nan"): "--checkpoint-every: expected a number of seconds, at least 0, got 'nan'",
    ("train", "--keep", "0"): "--keep: expected a whole number from 1 to 100000, got '0'",
}


def moca(*arguments, **settings):
    return subprocess.run([sys.executable, "-m", "moca", *arguments], capture_output=True, text=True, **settings)


@pytest.mark.parametrize("arguments", MISTAKES)
def test_a_mistake_is_named(arguments):
    run = moca(*arguments)
    assert run.returncode == 2
    assert MISTAKES[arguments] in run.stderr
    assert "Traceback" not in run.stderr


def test_the_reference_lists_the_commands_that_help_lists(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    listed = re.findall(r"^    (\w+)", capsys.readouterr().out, re.MULTILINE)
    page = (Path(__file__).parent.parent / "docs" / "reference.md").read_text()
    assert re.findall(r"^\| `moca (\w+)", page, re.MULTILINE) == listed
    assert "check" in listed


def test_a_trial_of_one_step_is_in_the_singular(capsys):
    main(["check", "tests.envs.hosted:Ramp", "--steps", "1"])
    assert capsys.readouterr().out.endswith("tests.envs.hosted:Ramp: no fault in 1 step\n")


@pytest.mark.parametrize("arguments", [["--help"], ["benchmark", "--jsn"], ["benchmark", "--help"]])
def test_help_and_mistakes_import_nothing_heavy(arguments):
    code = (
        "import sys; from moca.cli import main\n"
        f"try: main({arguments!r})\n"
        "except SystemExit: pass\n"
        "print(sorted({m.split('.')[0] for m in sys.modules} & {'jax', 'numpy', 'matplotlib', 'equinox'}))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[-1] == "[]"


def test_the_moments_import_no_environment_and_no_optimiser():
    code = (
        "import sys, moca.moments; print(sorted({'mujoco_playground', 'mujoco', 'brax', 'optax'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("first", "given", "level"),
    [
        ("sys", {}, "3"),
        pytest.param("jax", {}, "1", marks=pytest.mark.slow),
        ("sys", {"TF_CPP_MIN_LOG_LEVEL": "0"}, "0"),
    ],
)
def test_the_log_of_xla_is_hidden_unless_jax_came_first_or_the_user_asks_for_it(first, given, level):
    code = f"import {first}, os, moca; moca.MoCA; print(os.environ['TF_CPP_MIN_LOG_LEVEL'])"
    env = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"} | given
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert run.stdout.strip() == level


def test_benchmark_gives_ratios_as_json():
    result = json.loads(moca("benchmark", "backup", "--json", "--rounds", "1").stdout)
    for count in (4, 16, 64):
        assert result[f"backup_over_mc{count}"] > 0
    assert result["backup"]["ceiling_gflops"] > 0


@pytest.mark.slow
def test_figure_prints_where_it_lies(tmp_path):
    run = moca("figure", "toy", "--formats", "png", "--out", str(tmp_path))
    assert run.stdout.splitlines()[-1] == str(tmp_path / "figure1.png")
    assert run.stderr == ""
    assert (tmp_path / "figure1.png").stat().st_size > 10_000


def test_the_benchmarks_ratios_by_name():
    from moca.benchmark import ratios

    rows = [{"agent": "bnaf", "cost_over": {}}, {"agent": "moca", "cost_over": {"moca-ce": 1.01, "bnaf": 2.0}}]
    found = ratios({"backup": {"backup_over_mc4": 0.1, "seconds": {}}, "agents": rows})
    assert found == {"backup_over_mc4": 0.1, "moca_over_ce": 1.01, "moca_over_bnaf": 2.0}


def test_the_benchmarks_total_is_of_as_many_steps_of_each():
    from moca.benchmark import together

    row = {"width": 64, "runs": 10}
    rows = [
        row | {"run_steps_per_s": 100.0},
        row | {"run_steps_per_s": 300.0},
        row | {"runs": 1, "run_steps_per_s": 7.0},
    ]
    assert together(rows) == {(64, 10): pytest.approx(2 / (1 / 100 + 1 / 300))}


def test_an_option_wins_over_the_file_and_set_over_both(tmp_path, capsys):
    path = tmp_path / "settings.json"
    path.write_text('{"env": {"name": "PendulumSwingup"}, "seed": 3}')
    given = ["train", "--config", str(path), "--dry-run"]
    for extra, env in (
        ([], "Pendulum"),
        (["--env", "CartpoleBalance"], "Cartpole"),
        (["--set", "env.name=CartpoleBalance"], "Cartpole"),
    ):
        main([*given, *extra])
        shown = json.loads(capsys.readouterr().out)
        assert shown["env"]["name"].startswith(env)
        assert shown["seed"] == 3


def test_the_filter_can_be_asked_for_and_declined(capsys):
    for option, wanted in (("--filter", True), ("--no-filter", False)):
        main(["train", "--preset", "paper" if wanted else "tuned", option, "--dry-run"])
        assert json.loads(capsys.readouterr().out)["belief"]["filter"] is wanted
    refused = moca("train", "--set", "belief.filter=perhaps")
    assert refused.returncode == 2
    assert "belief.filter must be true or false, got 'perhaps'" in refused.stderr


@pytest.mark.slow
def test_the_demo_shows_what_the_covariance_is_worth(tmp_path):
    run = moca("demo", "--out", str(tmp_path))
    lines = [line.split("by seed: ")[1] for line in run.stdout.splitlines() if "by seed: " in line]
    ours, theirs = ([float(word) for word in line.split(" and ")] for line in lines)
    assert sorted(ours)[1] > 600
    assert sorted(theirs)[1] < 500
    paths = run.stdout.split()[-4:]
    names = ["figure1.png", "moca-and-ce.png"]
    names += [f"tuned-PendulumSwingup-{agent}.mp4" for agent in ("moca-ce", "moca")]
    assert [path.rsplit("/", 1)[1] for path in paths] == names
    assert all((tmp_path / path).stat().st_size > 10_000 for path in paths)


@pytest.mark.slow
def test_the_doctor_finds_all_well_and_what_is_wrong():
    run = moca("doctor", "--device", "cpu")
    assert run.returncode == 0
    assert [line.split()[0] for line in run.stdout.splitlines()] == ["ok"] * 8
    code = (
        "from moca import doctor, moments\n"
        "doctor.CHECKS = {'closed forms': doctor._heart}\n"
        "moments.expectation = lambda p, f: 1.0\n"
        "print(doctor.examine(print))"
    )
    broken = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "WRONG    closed forms: ArithmeticError" in broken
    assert broken.splitlines()[-1] == "False"
