"""Grids: the runs of a study, as data. Nothing here imports jax.

A cell is one agent on one task at one noise level under one preset, with all its seeds. Cells that
differ only in the noise share a compiled program and a run directory. Together they are a job.
"""

import json
import re
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from moca import presets
from moca.config import AGENTS, CONSTANT, NOISES, Config, ConfigError, full_name, nearest, override, parsed, plain
from moca.names import folder_name
from moca.presets import SAC_USUAL
from moca.received import read_text
from moca.studies import registry

# Agents of a study that are built-in agents with particular settings.
VARIANTS: dict[str, dict[str, Any]] = {
    **{f"moca-mc-{samples}": {"agent": "moca-mc", "dynamics.samples": samples} for samples in (1, 4, 16)},
    # SAC with the usual settings, besides SAC with a preset's settings from a search.
    "sac-usual": {"agent": "sac", **SAC_USUAL},
}
ACTION = "action"  # a kind of noise: a disturbance of the executed action, in units of half the action range
# Settings that the grid itself determines.
OWN = (
    "agent", "seed", "seeds", "env.name", "noise.kind", "noise.sigma", "noise.sigma_min", "noise.action", "train.steps",
)  # fmt: skip
ORDER = ("raw", "tuned", "told", "paper")  # of presets in pages
EVALUATIONS = 50  # approximate number per run; the paper evaluates after every episode [choice]


@dataclass(frozen=True)
class Block:
    """All combinations of agents and noise levels on one task."""

    env: str
    agents: tuple[str, ...]
    noises: tuple[str, ...]  # as in `parse_noise`
    steps: int = 100_000
    settings: Mapping[str, Any] = field(default_factory=dict)
    found: Mapping[str, Any] = field(default_factory=dict)  # settings measured in a task without a preset: see `looked`


@dataclass(frozen=True)
class Grid:
    """Blocks of cells, each run under every preset and with every seed."""

    name: str
    blocks: tuple[Block, ...]
    presets: tuple[str, ...] = ("paper", "tuned")
    seed: int = 1000  # no tuning used these seeds
    seeds: int = 10
    films: tuple[str, ...] = ("moca",)  # agents to make videos of: a typical seed at the strongest noise


@dataclass(frozen=True)
class Job:
    """The cells of one agent, task and preset: one compiled program, one run directory."""

    preset: str
    agent: str  # its name in the grid
    config: Config
    noises: tuple[str, ...]
    filmed: bool = False

    @property
    def name(self) -> str:
        """The name of its run directory."""
        return f"{self.preset}-{folder_name(self.config.env.name)}-{self.agent}"

    @cached_property
    def varied(self) -> list[dict[str, float]]:
        """The settings in which its cells differ, in the order of `noises`.

        If the noise of one cell depends on the state, that of all does: a constant level then has
        sigma_min equal to sigma. If one cell disturbs actions, the others do so with zero
        deviation.
        """
        own = self.config.noise.kind
        levels = [parse_noise(noise) for noise in self.noises]
        disturbed = any(kind == ACTION for kind, _ in levels)

        def settings(kind: str, level: float) -> dict[str, float]:
            sigma, action = (0.0, level) if kind == ACTION else (level, 0.0)
            least = {} if own == CONSTANT else {"noise.sigma_min": 0.0 if kind == own else sigma}
            return {"noise.sigma": sigma, **least, **({"noise.action": action} if disturbed else {})}

        return [settings(kind, level) for kind, level in levels]

    @property
    def has_landscape(self) -> bool:
        """True if its states form a plane over which values and actions can be drawn."""
        return registry.task(self.config.env.name).plane is not None

    @property
    def strongest(self) -> int:
        """The index of the first cell with the strongest noise."""
        return max(range(len(self.noises)), key=lambda number: parse_noise(self.noises[number])[1])

    @property
    def runs(self) -> int:
        """The number of runs that the job trains in parallel."""
        return len(self.noises) * self.config.seeds


def parse_noise(text: str) -> tuple[str, float]:
    """Parses `0.05`, `state-norm 0.05` or `action 0.5` into kind and level."""
    kind, _, level = str(text).rpartition(" ")
    kind, kinds = kind or CONSTANT, (*NOISES, ACTION)
    try:
        sigma = float(level)
    except ValueError:
        sigma = -1.0
    if kind not in kinds or not 0 <= sigma < float("inf"):
        raise ConfigError(
            f"noises = {text!r} is not a valid noise: write a level such as 0.05, or a kind and a level such as "
            f"'state-norm 0.05' or 'action 0.5'.{nearest(kind, kinds) if kind not in kinds else ''}"
        )
    return kind, sigma


def find(name: str) -> Grid:
    """Returns the grid of that name, or the one in that TOML file."""
    known = registry.grids()
    if name in known:
        return known[name]
    if name.endswith(".toml"):
        return _read(Path(name))
    allowed = f"{', '.join(known)}, or a file ending in .toml"
    raise ConfigError(f"study = {name!r} is unknown.{nearest(name, known)} Allowed: {allowed}")


def by_rank(presets: Iterable[str]) -> list[str]:
    """Sorts presets into the order used in pages."""
    return sorted(presets, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER))


def looked(grid: Grid, look: Callable[[str, str, Mapping[str, Any]], Mapping[str, Any]]) -> Grid:
    """Returns the grid with the settings that its configs take from the environments.

    `look` measures them, by `moca.envs.defaults.measured`, once for a block.
    """

    def block(block: Block) -> Block:
        preset, settings = ("", {}) if block.found else to_measure(grid, block)
        return replace(block, found=look(preset, block.env, settings)) if preset else block

    return replace(grid, blocks=tuple(map(block, grid.blocks)))


def to_measure(grid: Grid, block: Block) -> tuple[str, dict[str, Any]]:
    """Returns the preset and settings with which to measure for a block; "" if nothing is."""
    cells = [(preset, _settings(grid, block, agent)) for preset in grid.presets for agent in block.agents]
    hows = [presets.how_to_measure(preset, block.env, settings) for preset, settings in cells]
    if any(how["history"] for how in hows) and len({how["repeat"] for how in hows}) > 1:
        raise ConfigError(
            f"the presets {', '.join(grid.presets)} differ in env.action_repeat, and with sensor.history changes are "
            "measured over it: set env.action_repeat, or make a study of each preset"
        )
    # The first that lacks the most: with ranges, random starts and the time limit are found, too.
    preset, settings = max(cells, key=lambda cell: len(presets.lacks(cell[0], block.env, cell[1])))
    if presets.lacks(preset, block.env, settings):
        return preset, settings
    return next((cell for cell in cells if presets.lacks_length(block.env, cell[1])), ("", {}))


def plan(grid: Grid) -> list[Job]:
    """Returns the jobs of a grid, with all settings checked."""
    jobs = [
        Job(preset, agent, _config(grid, block, preset, agent), block.noises, agent in grid.films)
        for preset in grid.presets
        for block in grid.blocks
        for agent in block.agents
    ]
    names = [job.name for job in jobs]
    for agent in grid.films:
        _refuse_unknown("films", agent)
    if not jobs:
        raise ConfigError(f"the study {grid.name} has no cells: name presets and agents")
    if twice := {name for name in names if names.count(name) > 1}:
        raise ConfigError(f"the study {grid.name} contains these jobs twice: {', '.join(sorted(twice))}")
    return jobs


def chosen(jobs: Sequence[Job], only: str | None) -> list[Job]:
    """Returns all jobs, or the one with that name or number, counted from zero."""
    names = {job.name: job for job in jobs} | {str(number): job for number, job in enumerate(jobs)}
    if only is not None and only not in names:
        listed = ", ".join(job.name for job in jobs)
        raise ConfigError(f"only = {only!r} is not a job of this study. Allowed: 0 to {len(jobs) - 1}, or {listed}")
    return list(jobs) if only is None else [names[only]]


def narrowed(
    grid: Grid,
    *,
    seeds: int | None = None,
    seed: int | None = None,
    steps: int | None = None,
    presets: Sequence[str] | None = None,
    agents: Sequence[str] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Grid:
    """Returns the grid with other seeds, steps, presets, agents, or further settings."""
    blocks = grid.blocks
    if steps is not None:
        blocks = tuple(replace(block, steps=steps) for block in blocks)
    if agents is not None:
        known = {agent for block in blocks for agent in block.agents}
        for agent in agents:
            if agent not in known:
                raise ConfigError(
                    f"agents = {agent!r} is not in the study {grid.name}.{nearest(agent, known)} "
                    f"Allowed: {', '.join(sorted(known))}"
                )
        blocks = tuple(replace(block, agents=tuple(a for a in block.agents if a in agents)) for block in blocks)
    if settings:
        blocks = tuple(replace(block, settings={**block.settings, **settings}) for block in blocks)
    return replace(
        grid,
        blocks=blocks,
        seed=grid.seed if seed is None else seed,
        seeds=grid.seeds if seeds is None else seeds,
        presets=grid.presets if presets is None else tuple(presets),
    )


def to_json(grid: Grid) -> str:
    """Returns the grid as JSON."""
    return json.dumps(plain(asdict(grid)), indent=2)


def from_json(text: str) -> Grid:
    """Returns the grid that `to_json` wrote."""
    return _build(parsed(text), "study.json")


def _config(grid: Grid, block: Block, preset: str, agent: str) -> Config:
    settings = _settings(grid, block, agent)
    config = presets.build(preset, block.env, settings, block.found)
    episodes = config.train.steps // config.env.episode_length
    if "train.eval_every" in settings:
        return config
    return override(config, {"train.eval_every": max(1, episodes // EVALUATIONS)})


def _refuse_unknown(name: str, agent: str) -> None:
    known = [*AGENTS, *VARIANTS]
    if agent not in known:
        raise ConfigError(f"{name} = {agent!r} is unknown.{nearest(agent, known)} Allowed: {', '.join(known)}")


def _settings(grid: Grid, block: Block, agent: str) -> dict[str, Any]:
    """Returns the settings that the grid gives a job, on top of its preset."""
    _refuse_unknown("agents", agent)
    levels = [parse_noise(noise) for noise in block.noises]
    if not levels:
        raise ConfigError(f"the study {grid.name} names no noises for {block.env}")
    if len({(kind if sigma else "", sigma) for kind, sigma in levels}) < len(levels):
        raise ConfigError(f"noises = {list(block.noises)} contains a level twice")
    dependent = sorted({kind for kind, _ in levels} - {CONSTANT, ACTION})
    if len(dependent) > 1:
        raise ConfigError(f"noises = {list(block.noises)} has {' and '.join(dependent)}: make a study for each")
    for name in block.settings:
        if name in OWN or name in VARIANTS.get(agent, {}):
            raise ConfigError(f"{name} cannot be set for all cells: the study sets it for each cell")
    return {
        "agent": agent,
        "seed": grid.seed,
        "seeds": grid.seeds,
        "noise.kind": dependent[0] if dependent else CONSTANT,
        "noise.sigma": max((sigma for kind, sigma in levels if kind != ACTION), default=0.0),
        "noise.action": max((sigma for kind, sigma in levels if kind == ACTION), default=0.0),
        "train.steps": block.steps,
        **VARIANTS.get(agent, {}),
        **block.settings,
    }


def _read(path: Path) -> Grid:
    try:
        return _build(parsed(read_text(path), toml=True), str(path))
    except FileNotFoundError as error:
        raise ConfigError(f"cannot read the study {path}: {error.strerror}") from None
    except ConfigError as error:
        raise error if str(path) in str(error) else ConfigError(f"{path}: {error}") from None


def _build(content: Mapping[str, Any], source: str) -> Grid:
    """Returns a grid from plain data; errors name the entry that is wrong or missing."""
    if not isinstance(content, dict):
        raise ConfigError(f"{source} must be a table, with [[blocks]] in it")
    content = dict(content)
    listed = content.pop("blocks", [])
    if not isinstance(listed, list) or not all(isinstance(block, dict) for block in listed):
        raise ConfigError(f"{source}: blocks must be tables, each written as [[blocks]]")
    blocks = [
        Block(**_checked({**block, "settings": block.get("settings", {})}, Block, source, ("agents", "noises")))
        for block in listed
    ]
    if not blocks:
        raise ConfigError(f"{source} needs at least one table [[blocks]]")
    content.setdefault("name", Path(source).stem)
    return Grid(**_checked({**content, "blocks": tuple(blocks)}, Grid, source, ("presets", "films")))


def _checked(content: dict[str, Any], kind: type[Block | Grid], source: str, lists: Sequence[str]) -> dict[str, Any]:
    known = [item.name for item in fields(kind)]
    for name in content:
        if name not in known:
            raise ConfigError(f"{source}: {name} is unknown.{nearest(name, known)} Allowed: {', '.join(known)}")
    for name in ("env", *lists) if kind is Block else ():
        if name not in content:
            raise ConfigError(f"{source}: a block needs {name}")
    for name in ("settings", "found"):
        if not isinstance(content.get(name, {}), dict):
            raise ConfigError(f"{source}: {name} = {content[name]!r} must be a table, such as {{ 'critic.lr' = 1e-3 }}")
    if not isinstance(content.get("env", ""), str):
        raise ConfigError(f"{source}: env = {content['env']!r} must be the name of an environment")
    if "env" in content:
        content["env"] = full_name(content["env"])
    for name in ("steps", "seed", "seeds"):
        if name in content and type(content[name]) is not int:
            raise ConfigError(f"{source}: {name} = {reprlib.repr(content[name])} must be a whole number")
    if not re.fullmatch(r"(?!\.+$)[\w.-]{1,100}", str(content.get("name", "a"))):
        raise ConfigError(f"{source}: name = {content['name']!r} must consist of letters, digits, '.', '_' and '-'")
    for name in lists:
        if name in content:
            if not isinstance(content[name], list | tuple):
                raise ConfigError(f"{source}: {name} = {content[name]!r} must be a list")
            if not all(isinstance(item, str | int | float) for item in content[name]):
                raise ConfigError(f"{source}: {name} = {reprlib.repr(content[name])} must be a list of strings")
            content[name] = tuple(str(item) for item in content[name])
    return content
