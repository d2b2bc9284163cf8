"""Adds policies to the zoo, measures them, and writes its page.

    python tools/zoo.py add RUN_DIR [--name NAME] [--no-film]
    python tools/zoo.py measure NAME
    python tools/zoo.py film NAME
    python tools/zoo.py page

`add` compares the policies of all runs of a directory over the same episodes: the best ones if they
were kept (`--keep-best`), else the last. The winner is measured over 30 fresh episodes and goes to
zoo/ with its card. On a machine that cannot draw, use `--no-film`, and make the film elsewhere with
`film`. `measure` renews the score in a card. `page` writes the list in docs/zoo.md.
"""

import argparse
import json
import shutil
import tempfile
from pathlib import Path

import numpy as np

import moca
from moca import config, files, presets
from moca.deploy import Policy, trained
from moca.runs import BEST, LAST, film
from moca.zoo import cards
from moca.zoo.play import play, score

ROOT = Path(__file__).parent.parent
ZOO, PAGE, FILMS = ROOT / "zoo", ROOT / "docs" / "zoo.md", ROOT / "docs" / "films"
START, END = "<!-- zoo: written by tools/zoo.py -->\n", "<!-- end -->"
EPISODES = 30
CHOOSING, FRESH = 1_000_001, 1_000_002  # seeds of the episodes that choose, and of those that measure
MEASURED = (  # in the environment
    "value.low", "value.high", "value.lengthscales", "value.least", "value.most", "noise.scales", "sensor.scales",
    "env.random_start",
)  # fmt: skip
PLAYED = ("env.", "noise.", "sensor.")  # sections of settings that make an episode


def add(directory: Path, name: str | None, filmed: bool) -> None:
    """Chooses among the policies of a run directory, and adds the best one to the zoo."""
    run = moca.load(directory, which=BEST if (directory / f"{BEST}.npz").exists() else LAST)
    name = name or run.config.env.name
    if (path := trained().get(name, ZOO / f"{name}.npz")).parent != ZOO:
        raise SystemExit(f"{name} comes with the package: choose another --name")
    with tempfile.TemporaryDirectory() as folder:
        exported = exports(run, Path(folder))
        playable = [played_settings(run.directory.configs[number]) for number in exported]
        if any(each != playable[0] for each in playable):
            raise SystemExit("the runs differ in their noise or task: add them from directories of their own")
        policies = [Policy.load(file) for file in exported.values()]
        own = {"task": run.config.env.name, "plays": playable[0]}
        means = play(policies, cards.config(own), EPISODES, CHOOSING).returns.mean(axis=1)
        for number, mean in zip(exported, means, strict=True):
            print(f"seed {run.directory.runs[number]['seed']}: {mean:.1f}")
        number = list(exported)[int(np.argmax(means))]
        refuse_too_large(path, exported[number])
        card = {**own, **described(run, number), "score": measured(policies[int(np.argmax(means))], name, own)}
        ZOO.mkdir(exist_ok=True)
        shutil.copyfile(exported[number], path)
    write(path, card)
    if filmed:
        make_film(name)


def exports(run: moca.Run, folder: Path) -> dict[int, Path]:
    """Returns the exported policies by the number of their run, without those that diverged."""
    found = {}
    for number in range(len(run.directory.runs)):
        try:
            found[number] = Path(run.export(folder / f"{number}.npz", number))
        except config.ConfigError as error:
            print(f"run {number}: {error}")
    if not found:
        raise SystemExit(f"no policy of {run.path} can be exported")
    return found


def played_settings(settings: config.Config) -> dict:
    """Returns the settings of an episode that differ from the defaults."""
    default, own = config.flatten(config.Config()), config.flatten(settings)
    left_out = {"env.name"} | (set() if config.NOISES[settings.noise.kind].scaled else {"noise.scales"})
    return {
        name: config.plain(value)
        for name, value in own.items()
        if name.startswith(PLAYED) and value != default[name] and name not in left_out
    }


def described(run: moca.Run, number: int) -> dict:
    """Returns the part of a card that says how a policy was made and chosen."""
    meta, own = run.directory.meta, run.directory.configs[number]
    count, settings = len(run.directory.runs), config.flatten(own)
    preset, agent, task = meta.get("preset"), own.agent, own.env.name
    found = {name: settings[name] for name in MEASURED if settings[name]}
    usual = config.flatten(presets.build(preset, task, {"agent": agent}, found) if preset else config.Config())
    told = {"agent", "env.name", "seed", "seeds", "train.steps", *MEASURED}
    differs = {name: config.plain(settings[name]) for name in settings.keys() - told if settings[name] != usual[name]}
    options = [f"--env {task}", f"--agent {agent}", f"--preset {preset}"]
    options += [f"--steps {own.train.steps}", f"--seed {own.seed}", f"--seeds {count}"]
    options += [f"--set {name}={json.dumps(value, separators=(',', ':'))}" for name, value in sorted(differs.items())]
    options += ["--keep-best"] if run.which == BEST else []
    which = f"the {run.which} policies of {count} runs"
    return {
        "agent": agent,
        "preset": preset or "none",
        "settings": dict(sorted(differs.items())),
        "steps": own.train.steps,
        "policy_step": run.policy_steps[number],
        "seed": run.directory.runs[number]["seed"],
        "seeds": count,
        "chosen": f"for the highest mean return among {which}, over {EPISODES} episodes with seed {CHOOSING}",
        "version": meta["versions"]["moca-rl"],
        "commit": meta["commit"],
        "made": " ".join(["moca train", *options]) if preset else "from Python, with these settings",
    }


def measured(policy: Policy, name: str, card: dict) -> dict:
    """Returns the score of a policy over fresh episodes."""
    (returns,) = play([policy], cards.config(card), EPISODES, FRESH).returns
    rounded = {part: round(value, 3) for part, value in score(returns).items()}
    command = f"moca evaluate --zoo {name} --episodes {EPISODES} --seed {FRESH}"
    return {**rounded, "episodes": EPISODES, "seed": FRESH, "command": command, "version": moca.__version__}


def refuse_too_large(path: Path, new: Path) -> None:
    """Raises if a new policy, or all together, would be too large."""
    others = sum(each.stat().st_size for each in trained().values() if each != path)
    if (size := new.stat().st_size) > cards.MOST_BYTES or size + others > cards.MOST_TOGETHER:
        raise SystemExit(
            f"{path.stem} has {size:,} bytes, all others {others:,}: at most {cards.MOST_BYTES:,} each and "
            f"{cards.MOST_TOGETHER:,} together are allowed"
        )


def measure(name: str) -> None:
    """Renews the score in a policy's card."""
    path = trained()[name]
    card = json.loads(path.with_suffix(".json").read_text())
    write(path, {**card, "score": measured(Policy.load(path), name, card)})


def write(path: Path, card: dict) -> None:
    """Writes the card of a policy."""
    ordered = {name: card[name] for name in cards.CARD}
    files.save(path.with_suffix(".json"), (json.dumps(ordered, indent=1) + "\n").encode())
    print(f"{path.relative_to(ROOT)}: {cards.brief(card['score'])}")


def make_film(name: str) -> None:
    """Films the first fresh episode of a policy."""
    policy, card = cards.load(name)
    played = play([policy], cards.config(card), 1, FRESH, filmed=True)
    FILMS.mkdir(exist_ok=True)
    path = FILMS / f"{name}.mp4"
    how = film.write(path, played.env, played.states, played.rewards[0, 0], small=True)
    print(f"{path.relative_to(ROOT)}: {how}, {path.stat().st_size:,} bytes")


def listed() -> str:
    """Returns the generated part of the page."""
    heads = ["policy", "noise", "score", "least", "agent, preset", "steps", "size", "film"]
    rows, details = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"], []
    for name, card in cards.cards().items():
        has_film = (FILMS / f"{name}.mp4").exists()
        cells = [f"[{name}](#{name.lower()})", cards.config(card).noise.words, cards.brief(card["score"])]
        cells += [f"{card['score']['min']:.1f}", f"{card['agent']}, `{card['preset']}`", f"{card['steps']:,}"]
        cells += [f"{cards.size(name) / 1000:.0f} kB", f"[film](films/{name}.mp4)" if has_film else ""]
        rows.append(f"| {' | '.join(cells)} |")
        film = f'src="films/{name}.mp4" aria-label="{name}, played by its policy"'
        shown = f'<video {film} controls muted loop preload="metadata" width="320"></video>\n\n'
        details.append(
            f"### {name}\n\n{shown if has_film else ''}"
            f"Seed {card['seed']}, one of {card['seeds']} runs. Chosen {card['chosen']}. Version {card['version']}, "
            f"commit `{card['commit']}`. Made by\n\n```\n{wrapped(card['made'])}\n```\n\n"
            f"and measured by\n\n```\n{wrapped(card['score']['command'])}\n```\n"
        )
    return "\n".join(rows) + "\n\n" + "\n".join(details)


def wrapped(command: str, width: int = 80) -> str:
    """Returns a command in lines of at most `width` characters, as a shell reads it."""
    lines = [""]
    for word in command.replace(" --", "\0--").split("\0"):
        if lines[-1] and len(lines[-1]) + len(word) > width:
            lines[-1] += " \\"
            lines.append("    ")
        lines[-1] += word if not lines[-1].strip() else f" {word}"
    return "\n".join(lines)


def page() -> str:
    """Returns the page with its generated part renewed."""
    text = PAGE.read_text()
    head, rest = text.split(START)
    return f"{head}{START}{listed()}\n{rest[rest.index(END) :]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    adding = commands.add_parser("add")
    adding.add_argument("directory", type=Path)
    adding.add_argument("--name")
    adding.add_argument("--no-film", action="store_true")
    for command in ("measure", "film"):
        commands.add_parser(command).add_argument("name", choices=list(trained()))
    commands.add_parser("page")
    arguments = parser.parse_args()
    if arguments.command == "add":
        add(arguments.directory, arguments.name, not arguments.no_film)
    elif arguments.command == "page":
        PAGE.write_text(page())
        print(PAGE)
    else:
        {"measure": measure, "film": make_film}[arguments.command](arguments.name)


if __name__ == "__main__":
    main()
