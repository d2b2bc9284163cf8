"""The cards of the zoo's policies: how each was made, and what it scores.

A card is a JSON object beside the policy, as `CartpoleSwingup.json` beside `CartpoleSwingup.npz`.
`tools/zoo.py` writes it.
"""

import json
from pathlib import Path
from typing import Any

from moca.config import Config, ConfigError, nearest, override
from moca.deploy import Policy, lacking, trained

MOST_BYTES, MOST_TOGETHER = 4 * 10**6, 20 * 10**6  # of one policy, of all

Card = dict[str, Any]

# What every card says, in this order.
CARD = {
    "task": "the name of the environment",
    "agent": "the agent that was trained",
    "preset": "the preset it was trained with",
    "settings": "the settings that differ from the preset's; what was measured in the environment is left out",
    "steps": "environment steps of training",
    "policy_step": "the environment step of training at which the policy was taken",
    "seed": "the seed of the run",
    "seeds": "the number of runs it was chosen from",
    "chosen": "how it was chosen",
    "version": "the version of MoCA that trained it",
    "commit": "the commit that trained it",
    "made": "the command that trained it",
    "plays": "settings of an episode that differ from the defaults: the task, its noise, the action repeat",
    "score": "mean return over fresh episodes, its 95 % interval, standard deviation, minimum, and how measured",
}
SCORE = ("mean", "interval", "std", "min", "episodes", "seed", "command")


def load(name: str) -> tuple[Policy, Card]:
    """Returns the policy of that name, and its card."""
    found = card(name)
    try:
        return Policy.load(trained()[name]), found
    except ValueError as error:
        raise ConfigError(str(error)) from None


def card(name: str) -> Card:
    """Returns the card of the policy of that name; raises `ConfigError` if there is none."""
    paths = trained()
    if name not in paths:
        raise ConfigError(
            f"the zoo has no {name}.{nearest(name, paths)} Available: {', '.join(paths)}. {lacking()}".rstrip(". ")
        )
    return read(paths[name].with_suffix(".json"))


def cards() -> dict[str, Card]:
    """Returns all cards by name."""
    return {name: card(name) for name in trained()}


def read(path: Path) -> Card:
    """Returns the card in a file; raises `ConfigError` if it lacks something."""
    try:
        found = json.loads(path.read_text())
        lacks = [name for name in CARD if name not in found] or [name for name in SCORE if name not in found["score"]]
    except FileNotFoundError:
        raise ConfigError(f"{path}, the card of a policy of the zoo, is missing") from None
    except (ValueError, TypeError):
        raise ConfigError(f"{path} is not a card of the zoo: it is not a JSON object") from None
    if lacks:
        raise ConfigError(f"{path} is not a card of the zoo: it lacks {', '.join(lacks)}")
    return found


def config(card: Card, sigma: str | None = None) -> Config:
    """Returns the settings of the card's episodes, with other noise if `sigma` is given.

    The episodes do not depend on the agent's settings, so the agent is SAC, which needs the fewest.
    """
    noise = {} if sigma is None else {"noise.kind": "homoscedastic", "noise.sigma": sigma, "noise.sigmas": ()}
    none = {"agent": "sac", "belief.filter": True}  # sensor.drop needs the filter
    return override(Config(), {"env.name": card["task"], **none, **card["plays"], **noise})


def size(name: str) -> int:
    """Returns the size of a policy in bytes."""
    return trained()[name].stat().st_size


def brief(score: dict[str, Any]) -> str:
    """Returns a score as text, such as `870.1 ± 4.2`."""
    return f"{score['mean']:.1f} ± {score['interval']:.1f}"


def table() -> str:
    """Returns the list of policies as text."""
    heads = ("name", "task", "noise", "score", "agent", "preset", "steps", "size")
    rows = [heads]
    for name, own in cards().items():
        facts = (config(own).noise.words, brief(own["score"]), own["agent"], own["preset"], f"{own['steps']:,}")
        rows.append((name, own["task"], *facts, f"{size(name) / 1000:.0f} kB"))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def told(name: str) -> str:
    """Returns a policy's card as text."""
    own = card(name)
    facts = {"name": name, **own, "noise": config(own).noise.words, "size": f"{size(name):,} bytes"}
    facts["settings"], facts["plays"] = (
        ", ".join(f"{setting}={value}" for setting, value in own[part].items()) or "the preset's"
        for part in ("settings", "plays")
    )
    score = own["score"]
    facts["score"] = (
        f"{brief(score)} over {score['episodes']} fresh episodes, least {score['min']:.1f}, standard deviation "
        f"{score['std']:.1f}; repeated by {score['command']}"
    )
    width = max(map(len, facts))
    return "\n".join(f"{fact.ljust(width)}  {value}" for fact, value in facts.items())
