"""Every setting explains itself, on the command line and on its page, and a mistyped one is told its neighbours."""

import json
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import moca
from moca import config as c
from moca import presets, settings
from moca.cli import main
from tests import probes

TYPOS = (("critc.lr", "critic.lr"), ("nosie.sigma", "noise.sigma"))
ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("name", c.fields())
def test_every_setting_has_one_plain_sentence(name):
    text = c.field_of(name).metadata["text"]
    assert text[0].isupper()
    assert text.endswith(".")
    assert ". " not in text
    assert 20 <= len(text) <= 150


def test_no_two_settings_have_the_same_sentence():
    texts = [item.metadata["text"] for item in c.fields().values()]
    assert len(set(texts)) == len(texts) > 50


@pytest.mark.parametrize("preset", presets.PRESETS)
@pytest.mark.parametrize("task", presets.ENVIRONMENTS)
@pytest.mark.parametrize("agent", ["moca", "sac"])
def test_the_values_shown_are_those_of_a_run(preset, task, agent):
    built = c.flatten(presets.build(preset, task, {"agent": agent}))
    for setting in settings.find():
        own = setting.presets[preset]
        shown = own.get(agent, own.get(task, own[""]))
        if setting.name not in ("agent", "env.name"):
            assert shown == built[setting.name], setting.name


def test_the_page_is_up_to_date():
    page = runpy.run_path(str(ROOT / "tools" / "settings.py"))["page"]()
    assert (ROOT / "docs" / "settings.md").read_text() == page, "run python tools/settings.py"
    assert all(f"| `{name}` |" in page for name in c.fields())
    assert "settings.md" in (ROOT / "mkdocs.yml").read_text()


def test_a_mistyped_section_is_told_its_neighbour():
    with pytest.raises(c.ConfigError, match=r"there is no section 'crtic'\. Did you mean critic\?"):
        settings.find("crtic")
    for name in ("critic.l", "learning_rate"):  # a setting's name
        with pytest.raises(c.ConfigError, match=r"there is no setting .* Did you mean critic\.lr"):
            settings.find(name)


def test_a_setting_in_full(capsys):
    main(["settings", "exploration.sigma"])
    told = capsys.readouterr().out
    assert "The standard deviation around the greedy action at the start" in told
    rows = dict(re.findall(r"^  (\S+(?: \S+)?) {2,}(.*)$", told, re.MULTILINE))
    assert (rows["type"], rows["allowed"], rows["default"]) == ("number", "at least 0", "1")
    assert rows["preset paper"] == "1 (PendulumSwingup: 0.3)"
    assert rows["preset tuned"] == "0.3"
    assert {f"preset {name}" for name in presets.PRESETS} < rows.keys()  # in a column, however long the name


def test_a_section_and_all_of_them(capsys):
    main(["settings", "critic"])
    listed = re.findall(r"^  ([\w.]+) = ", capsys.readouterr().out, re.MULTILINE)
    assert listed == [name for name in c.fields() if name.startswith("critic.")]
    main(["settings"])
    assert re.findall(r"^  ([\w.]+) = ", capsys.readouterr().out, re.MULTILINE) == list(c.fields())


def test_settings_for_machines(capsys):
    main(["settings", "--json"])
    rows = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert [row["name"] for row in rows] == list(c.fields())
    assert {row["name"]: row["default"] for row in rows}["value.least"] == "-inf"
    assert all(set(row) == {"name", "type", "allowed", "default", "presets", "text"} for row in rows)


@pytest.mark.parametrize(
    ("wrong", "names"),
    [
        ("train.gama", "train.gamma, "),
        ("sigma", "noise.sigma, belief.sigma or exploration.sigma"),
        ("critic.learning_rate", "critic."),
    ],
)
def test_a_typo_is_told_the_three_nearest_names_and_the_command(wrong, names, capsys):
    message = rf"there is no setting '{re.escape(wrong)}'. Did you mean {re.escape(names)}.*moca settings lists all"
    with pytest.raises(c.ConfigError, match=message) as raised:
        moca.MoCA("CartpoleBalance", settings={wrong: 1})
    nearest = re.search(r"mean (.*)\?", str(raised.value))[1]
    assert len(set(re.split(", | or ", nearest)) & set(c.fields())) == 3
    for arguments in (["train", "--set", f"{wrong}=1"], ["settings", wrong], ["sweep", "--grid", f"{wrong}=1"]):
        with pytest.raises(SystemExit):
            main(arguments)
        assert str(raised.value) in capsys.readouterr().err


def test_all_typos_are_told_at_once(capsys, tmp_path):
    lr, sigma = (rf"there is no setting '{wrong}'. Did you mean [^?]*\b{right}\b[^?]*\?" for wrong, right in TYPOS)
    message = f"{lr} T{sigma[1:]} moca settings lists all"
    (tmp_path / "wrong.json").write_text('{"critc": {"lr": 1}, "nosie": {"sigma": 2}}')
    sets = ["--set", "critc.lr=1", "--set", "nosie.sigma=2"]
    commands = [[*command, *sets] for command in (["train"], ["check", "Pendulum-v1"], ["study", "cartpole"])]
    commands += [["train", "--config", str(tmp_path / "wrong.json")]]
    commands += [["sweep", "--grid", "critc.lr=1,2", "--random", "nosie.sigma=1:2"]]
    for arguments in commands:
        with pytest.raises(SystemExit):
            main(arguments)
        assert re.search(message, capsys.readouterr().err)
    for make in (lambda: moca.MoCA(probes.Drift(), critc__lr=1, nosie__sigma=2),
                 lambda: c.override(c.Config(), {"critc.lr": 1, "train.gamma": 0.9, "nosie.sigma": 2})):  # fmt: skip
        with pytest.raises(c.ConfigError, match=message):
            make()


def test_guesses_come_after_what_is_known_of_a_name():
    with pytest.raises(c.ConfigError) as raised:
        c.override(c.Config(), {"critc.lr": 1, "env": 2, "value.encoder": 3, 4: 5})
    assert re.fullmatch(
        r"there is no setting 'env': it is a section, which moca settings env lists\. The setting value.encoder was "
        r"removed in version 0\.2: CHANGELOG\.md says why\. A setting must be named by a dotted string, such as "
        r"train\.gamma, got 4\. There is no setting 'critc\.lr'\. Did you mean critic.*\? moca settings lists all",
        str(raised.value),
    )


def test_settings_are_listed_at_once():
    code = (
        "import sys; from moca.cli import main\nmain(['settings'])\nprint({'jax', 'numpy', 'rich'} & set(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=10)
    assert run.stdout.splitlines()[-1] == "set()"


@pytest.mark.parametrize(
    ("name", "off", "on"),
    [("value.encoder", 0, 2), ("belief.smoothing", False, True), ("belief.propagation", "derivative", "moments")],
)
def test_a_setting_that_was_removed_is_read_if_it_was_off(name, off, on):
    """Run directories of earlier versions name every setting."""
    section, _, inner = name.partition(".")
    assert c.from_json(json.dumps({"agent": "sac", section: {inner: off}})) == c.override(c.Config(), {"agent": "sac"})
    with pytest.raises(c.ConfigError, match=f"the setting {name} was removed"):
        c.from_json(json.dumps({"agent": "sac", section: {inner: on}}))
