"""The zoo: every policy is small, says how it was made, and scores what its card says."""

import json
import shlex
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest
from tools import zoo as tool

import moca
from moca import deploy, presets
from moca.cli import main
from moca.config import ConfigError, override, to_json
from moca.deploy import Policy, trained
from moca.envs.environment import ActionRepeat, Step
from moca.names import PLAYGROUND
from moca.runs.directory import RunDirectory
from moca.zoo import cards
from moca.zoo.play import difference, play, score
from tests import probes
from tests.test_deploy import stored

NAMES = list(trained())
QUICK = ("CartpoleSwingup", "PendulumSwingup")  # the others are measured when slow tests run


def test_there_are_policies_in_and_outside_the_package():
    assert {"CartpoleBalance", "PendulumSwingup", "CartpoleSwingup"} <= set(NAMES)
    assert {path.parent.name for path in trained().values()} == {"policies", "zoo"}


@pytest.mark.parametrize("name", NAMES)
def test_a_card_is_complete_and_of_its_policy(name):
    policy, card = cards.load(name)
    assert list(card) == list(cards.CARD)
    assert card["task"] in PLAYGROUND
    config = cards.config(card)
    facts = policy.facts
    assert (facts["env"], facts["agent"], facts["seed"]) == (card["task"], card["agent"], card["seed"])
    assert (facts["action_repeat"], facts["noise"]["sigma"]) == (config.env.action_repeat, config.noise.sigma)
    assert card["score"]["episodes"] == 30
    assert card["score"]["command"] == f"moca evaluate --zoo {name} --episodes 30 --seed {card['score']['seed']}"
    assert card["score"]["seed"] != 0  # that of moca evaluate, so that it plays other episodes
    assert card["seeds"] >= 1 <= card["steps"]
    assert (tool.FILMS / f"{name}.mp4").stat().st_size > 10_000


def test_the_policies_are_small():
    sizes = [cards.size(name) for name in NAMES]
    assert max(sizes) <= cards.MOST_BYTES == 4_000_000
    assert sum(sizes) <= cards.MOST_TOGETHER == 20_000_000


def repeated(name, episodes, capsys):
    main(["evaluate", "--zoo", name, "--episodes", str(episodes), "--device", "cpu"])
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("name", QUICK)
def test_a_score_repeats_over_a_few_episodes(name, capsys):
    found, expected, verdict = repeated(name, 3, capsys)
    assert "over 3 episodes" in found
    assert expected.startswith(f"expected {cards.brief(cards.card(name)['score'])} over 30 episodes; ")
    assert ", within the expected ± " in verdict


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_score_repeats_over_thirty_episodes(name, capsys):
    assert ", within the expected ± " in repeated(name, 30, capsys)[-1]


class Ends(probes.Drift):
    """Drift, with an end: rewards and observations after it are not numbers, and count for nothing."""

    terminates: bool = True

    def step(self, state, action):
        state, (observation, reward, _) = super().step(state, action)
        over = jnp.abs(state[1]) < 0.1
        late = jnp.where(jnp.abs(state[1]) < 0.05, jnp.nan, 1.0)
        return state * late, Step(observation * late, reward * late, over)


@pytest.fixture
def run(tmp_path, registries):
    """Two runs, under noise and with a filter, that never learned."""
    moca.register_env("Ends", Ends)
    settings = {"env.name": "Ends", "env.action_repeat": 2, "noise.sigma": 0.1, "noise.action": 0.2}
    config = override(probes.tiny(belief__filter=True, dynamics__width=8), settings)
    return stored(tmp_path / "run", config, ActionRepeat(Ends(), 2), count=2)


def test_it_plays_the_episodes_that_a_run_is_evaluated_in(run, tmp_path):
    policies = [Policy.load(run.export(tmp_path / f"{number}.npz", number)) for number in (0, 1)]
    rows = run.evaluate(4, seed=5)
    played = play(policies, run.config, 4, seed=5)
    assert played.rewards.shape == (2, 4, 10)
    np.testing.assert_allclose(played.returns.mean(axis=1), [row["return_mean"] for row in rows], rtol=1e-4)
    np.testing.assert_allclose(played.returns.std(axis=1), [row["return_std"] for row in rows], rtol=1e-3)
    assert (played.rewards[..., -1] == 0).any()  # some ended
    assert len(set(played.returns[0].round(6))) == 4


def test_a_policy_of_another_task_is_refused():
    with pytest.raises(ConfigError, match="does not fit PendulumSwingup: observations 5 instead of 3"):
        play([moca.pretrained("CartpoleBalance")], cards.config(cards.card("PendulumSwingup")), 1, 0)


def test_observations_that_no_policy_takes_are_one_sentence(run, tmp_path):
    policy = Policy.load(run.export(tmp_path / "policy.npz", 0))
    with pytest.raises(ConfigError, match="no action for decision 1 of an episode: an observation contains"):
        play([policy], override(run.config, {"noise.sigma": 1e9}), 1, 0)


def test_the_best_run_is_added_with_its_card(run, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    monkeypatch.setattr(tool, "ZOO", tmp_path / "zoo")
    monkeypatch.setattr(tool, "EPISODES", 4)
    tool.add(run.path, None, filmed=False)
    means = [float(line.split()[-1]) for line in capsys.readouterr().out.splitlines() if line.startswith("seed")]
    card = cards.read(tmp_path / "zoo" / "Ends.json")
    assert card["seed"] == Policy.load(tmp_path / "zoo" / "Ends.npz").facts["seed"] == int(np.argmax(means))
    assert card["plays"]["noise.action"] == 0.2
    row = run.evaluate(4, seed=tool.FRESH)[card["seed"]]
    assert card["score"]["mean"] == pytest.approx(row["return_mean"], abs=1e-2)
    with pytest.raises(SystemExit, match="CartpoleBalance comes with the package"):
        tool.add(run.path, "CartpoleBalance", filmed=False)
    monkeypatch.setattr(cards, "MOST_BYTES", 100)
    with pytest.raises(SystemExit, match="at most 100 each"):
        tool.add(run.path, None, filmed=False)


def test_the_command_in_a_card_has_the_settings_of_the_run(tmp_path, capsys):
    given = {"agent": "sac", "noise.sigma": 0.1, "seeds": 2, "seed": 7, "train.steps": 3000, "sac.width": 8}
    config = presets.build("raw", "PendulumSwingup", given)
    directory = RunDirectory(tmp_path / "run")
    with directory.locked():
        directory.begin(config, [{"seed": 7}, {"seed": 8}], preset="raw")
    directory.write_status("finished", 3000)
    found = tool.described(moca.load(directory.path), 1)
    assert found["settings"] == {"noise.sigma": 0.1, "sac.width": 8}
    assert (found["preset"], found["seed"], found["seeds"], found["steps"]) == ("raw", 8, 2, 3000)
    main([*shlex.split(found["made"])[1:], "--dry-run"])
    assert json.loads(capsys.readouterr().out) == json.loads(to_json(config))


def test_the_page_lists_what_there_is():
    assert tool.PAGE.read_text() == tool.page(), "run python tools/zoo.py page"
    assert tool.wrapped("moca train --env A --steps 5", 20) == "moca train --env A \\\n    --steps 5"


def test_the_list_imports_no_jax():
    code = (
        "import sys; from moca.cli import main\nmain(['zoo'])\n"
        "print(sorted({m.split('.')[0] for m in sys.modules} & {'jax', 'equinox', 'mujoco', 'rich', 'scipy'}))"
    )
    heads, *rows, heavy = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert heads.split() == ["name", "task", "noise", "score", "agent", "preset", "steps", "size"]
    assert [row.split()[0] for row in rows] == NAMES
    assert heavy == "[]"


def test_a_card_as_text_and_as_json(capsys):
    main(["zoo", "--json"])
    listed = json.loads(capsys.readouterr().out)
    assert list(listed) == NAMES
    assert listed["CartpoleBalance"]["bytes"] == cards.size("CartpoleBalance")
    main(["zoo", "CartpoleBalance"])
    shown = capsys.readouterr().out
    assert "over 30 fresh episodes" in shown
    assert all(f"\n{fact} " in f"\n{shown}" for fact in cards.CARD)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["zoo", "CartpolBalance"], "the zoo has no CartpolBalance. Did you mean CartpoleBalance? Available: "),
        (["evaluate", "--zoo", "Pendulum"], "Did you mean PendulumSwingup?"),
        (["evaluate"], "give either a run directory or --zoo NAME; moca zoo lists the names"),
        (["render", "somewhere", "--zoo", "CartpoleBalance"], "give either a run directory or --zoo NAME"),
        (["evaluate", "somewhere", "--sigma", "0.1"], "--sigma needs --zoo"),
        (["evaluate", "--zoo", "CartpoleBalance", "--sigma", "much"], "noise.sigma must be a number"),
        (["render", "--zoo", "../Pendulum"], "the zoo has no ../Pendulum. Did you mean"),
        (["evaluate", "--zoo", "CartpoleBalance", "--which", "best"], "--which is for run directories"),
        (["render", "--zoo", "CartpoleBalance", "--ahead", "3"], "--ahead is for run directories"),
    ],
)
def test_mistakes_are_answered(arguments, told, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert told in capsys.readouterr().err


def test_without_the_zoo_two_policies_are_left_and_it_says_how_to_get_the_others(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(deploy, "FOLDERS", (deploy.FOLDERS[0], tmp_path / "moca_zoo", tmp_path / "zoo"))
    main(["zoo"])
    assert capsys.readouterr().out.splitlines()[-1].endswith("in a clone of MoCA, pip install ./zoo")
    assert moca.pretrained("CartpoleBalance").action_repeat == 2
    with pytest.raises(ValueError, match=r"no trained policy .* Available: .*Swingup\. .*: in a clone .* \./zoo"):
        moca.pretrained("Somewhere")
    with pytest.raises(ConfigError, match=r"no CartpoleSwingup\. .* \./zoo"):
        cards.card("CartpoleSwingup")


def test_the_interval_is_students(tmp_path):
    found = score(np.array([1.0, 2.0, 6.0]))
    assert (found["mean"], found["min"]) == (3.0, 1.0)
    assert found["interval"] == pytest.approx(4.302653 * 7**0.5 / 3**0.5, rel=1e-6)
    expected = {"mean": 2.0, "interval": 0.0}
    assert difference({"mean": 3.0, "interval": 4.0}, {"mean": 2.0, "interval": 3.0}) == (1.0, 5.0)
    assert difference({"mean": 2.0, "interval": 0.0}, expected) == (0.0, 0.002)
    (tmp_path / "card.json").write_text("{}")
    with pytest.raises(ConfigError, match="is not a card of the zoo: it lacks task, agent"):
        cards.read(tmp_path / "card.json")
