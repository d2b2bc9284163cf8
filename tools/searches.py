"""The tables of docs/replication.md that come from the searches in results/searches."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
from effect import TASKS

from moca import presets
from moca.config import Config
from moca.paper import claims
from moca.paper.claims.scores import Scores
from moca.paper.tasks import CARTPOLE, PENDULUM, SOLVED
from moca.presets import SAC_USUAL
from moca.studies import statistics


def rates(path: Path) -> str:
    """Returns a table of final returns, at each agent's best rates and at those of `raw`."""
    searched = pd.read_parquet(path)
    for name in ("value.lr", "critic.lr"):
        searched[name] = searched["point"].map(lambda point, name=name: json.loads(point)[name])
    last = searched[searched["step"] > 0.9 * searched.groupby("env")["step"].transform("max")]
    by_seed = last.groupby(["env", "agent", "value.lr", "critic.lr", "seed"])["return_mean"].mean().unstack("seed")
    agents = ("moca", "moca-ce", "bnaf")
    lines = ["| task, σ 0.05 | rates | MoCA | MoCA-CE | BNAF | MoCA − MoCA-CE |", "|---" * 6 + "|"]
    for env in (CARTPOLE, PENDULUM):
        best = {agent: by_seed.loc[env, agent].mean(axis=1).idxmax() for agent in agents}
        for label, pick in (("of `raw`", dict.fromkeys(agents, (1e-2, 1e-3))), ("each at its best", best)):
            scores = {agent: by_seed.loc[(env, agent, *pick[agent])].dropna() for agent in agents}
            shown = []
            for agent, each in scores.items():
                own = " ({:g}, {:g})".format(*pick[agent]) if pick is best else ""
                shown.append(statistics.mean_t(each).brief + own)
            shown.append(statistics.difference(scores["moca"], scores["moca-ce"]).brief)
            lines.append(f"| {TASKS[env]} | {label} | {' | '.join(shown)} |")
    return "\n".join(lines) + "\n"


BEST = "best"  # stands for a preset: each agent at its own best of the points of `joint`


def at_their_best(path: Path) -> pd.DataFrame:
    """Returns the runs of the search `best` at each agent's own best point, as rows of a study."""
    searched = pd.read_parquet(path)
    chosen = searched.groupby(["env", "agent"])["point"].transform("first")  # its own comes first
    own = searched[searched["point"] == chosen]
    return own.assign(preset=BEST, noise="0.05", diverged=own["return_mean"].isna())


def judge(path: Path, nothing: dict[str, float]) -> list[claims.Verdict]:
    """Returns the verdicts on MoCA against MoCA-CE and BNAF, each at its own best point."""
    return claims.judge(at_their_best(path), nothing, {("above-moca-ce", "0.05"), ("above-bnaf", "0.05")})


def best(path: Path, verdicts: list[claims.Verdict]) -> str:
    """Returns a table of final returns at the points that are best for one of the agents."""
    searched = pd.read_parquet(path)
    last = searched[searched["step"] > 0.9 * searched.groupby("env")["step"].transform("max")]
    by_seed = last.groupby(["env", "agent", "point", "seed"])["return_mean"].mean()
    found = {(verdict.claim, verdict.task): verdict for verdict in verdicts}
    lines = ["| task, σ 0.05 | settings | MoCA | MoCA-CE | BNAF | MoCA − MoCA-CE |", "|---" * 6 + "|"]
    for env in (CARTPOLE, PENDULUM):
        names = searched[searched["env"] == env].groupby("agent")["point"].first()
        whole, ours, theirs = names.to_dict(), names["moca"], names["moca-ce"]
        for label, points in (
            ("each at its own best", whole),
            ("the best of MoCA", {"moca": ours, "moca-ce": ours}),
            ("the best of MoCA-CE", {"moca": theirs, "moca-ce": theirs}),
        ):
            scores = {agent: by_seed.loc[env, agent, point] for agent, point in points.items()}
            cells = [_score(scores[agent], env) if agent in scores else "" for agent in ("moca", "moca-ce", "bnaf")]
            gap = statistics.difference(scores["moca"], scores["moca-ce"]).brief
            verdict = f"**{found['above-moca-ce', env].verdict}**, " if points is whole else ""
            lines.append(f"| {TASKS[env]} | {label} | {' | '.join(cells)} | {verdict}{gap} |")
    return "\n".join(lines) + "\n"


def joint(path: Path) -> str:
    """Returns a table of MoCA's lead over MoCA-CE in `joint`, by two of the settings."""
    searched = pd.read_parquet(path)
    late = searched[searched["step"] > 0.8 * searched.groupby("env")["step"].transform("max")]
    means = late.groupby(["env", "point", "agent"])["return_mean"].mean().unstack("agent")
    lines = ["| points | number | Cartpole: MoCA, MoCA-CE | ahead | Pendulum: MoCA, MoCA-CE | ahead |"]
    lines.append("|---" * 6 + "|")
    usual = {"train.gamma": Config().train.gamma, "critic.keepalive": presets.PRESETS["raw"][""]["critic.keepalive"]}
    groups: dict[str, Any] = {"all": lambda point: True}
    for name, symbol in (("train.gamma", "γ"), ("critic.keepalive", "keep-alive")):
        value = lambda point, name=name: json.loads(point).get(name, usual[name])  # noqa: E731
        for each in sorted({value(point) for point in means.index.unique("point")}):
            groups[f"{symbol} = {each:g}"] = lambda point, value=value, each=each: value(point) == each
    for label, belongs in groups.items():
        cells = []
        for env in (CARTPOLE, PENDULUM):
            own = means.loc[env][means.loc[env].index.map(belongs)]
            cells += [
                f"{own['moca'].mean():.0f}, {own['moca-ce'].mean():.0f}",
                f"{(own['moca'] > own['moca-ce']).sum()}",
            ]
        lines.append(f"| {label} | {len(own)} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def check_that_order_is_reversed(path: Path) -> None:
    """Raises unless MoCA-CE is ahead of MoCA on Cartpole, both at the best point of MoCA-CE."""
    searched = pd.read_parquet(path)
    own = searched[searched["env"] == CARTPOLE]
    point = own[own["agent"] == "moca-ce"]["point"].iloc[0]
    last = own[(own["point"] == point) & (own["step"] > 0.9 * own["step"].max())]
    finals = last.groupby(["agent", "seed"])["return_mean"].mean()
    found = statistics.difference(finals["moca-ce"], finals["moca"])
    if found.low <= 0:
        raise ValueError(f"the pages say that MoCA-CE is ahead there; it is so by {found.brief}")


def _score(finals: pd.Series, env: str) -> str:
    """Returns mean and interval, on Pendulum with the number of solved seeds."""
    solved = f" ({int((finals >= SOLVED[env]).sum())} of {len(finals)})" if env == PENDULUM else ""
    return statistics.mean_t(finals).brief + solved


def sac(path: Path) -> str:
    """The five best of SAC's 64 settings, the best without random actions, and the usual one."""
    searched = _with_settings(pd.read_parquet(path), ("sac.", "train.b", "train.u"))
    last = searched[searched["step"] > 0.8 * searched.groupby("env")["step"].transform("max")]
    scores = last.groupby(["settings", "env"])["return_mean"].mean().unstack()
    scores = scores.assign(mean=scores.mean(axis=1)).sort_values("mean", ascending=False)
    known = {key: json.loads(key) for key in scores.index}
    unaided = next(key for key in scores.index if not known[key]["sac.probability"])
    usual = next(key for key in scores.index if all(known[key][k] == v for k, v in SAC_USUAL.items()))
    lines = [
        "| place | width | batch | updates | rate | target entropy | random actions | Cartpole | Pendulum | mean |"
    ]
    lines.append("|---" * 10 + "|")
    for key in dict.fromkeys([*scores.index[:5], unaided, usual]):
        own, row = known[key], scores.loc[key]
        place = f"{scores.index.get_loc(key) + 1}{', the usual' if key == usual else ''}"
        settings = (own["sac.width"], own["train.batch"], own["train.updates"], own["sac.actor_lr"])
        rest = (own["sac.entropy_per_action"], own["sac.probability"])
        numbers = [f"{number:g}" for number in (*settings, *rest)]
        lines.append(f"| {' | '.join([place, *numbers, *(f'{row[c]:.0f}' for c in (CARTPOLE, PENDULUM, 'mean'))])} |")
    return "\n".join(lines) + "\n"


def ladder(path: Path, nothing: dict[str, float]) -> str:
    """Returns a table of final returns from the printed settings to `raw`, one change per row.

    Agents that learn are bold. The difference says if MoCA's lead over MoCA-CE holds.
    """
    searched = pd.read_parquet(path)
    searched = searched.assign(preset=searched["rung"], noise="0.05", diverged=searched["return_mean"].isna())
    heads = [f"{TASKS[env]}: {agent}" for env in TASKS for agent in ("MoCA", "MoCA-CE", "difference")]
    lines = [f"| rung | {' | '.join(heads)} |", "|---" * (1 + len(heads)) + "|"]
    for rung in dict.fromkeys(searched["rung"]):
        cells = []
        for env in TASKS:
            scores = Scores([searched], rung, env, nothing)
            finals = {agent: scores.of(agent, "0.05", "final") for agent in ("moca", "moca-ce")}
            learned = {agent: scores.of(agent, "0.05", "above the bar").mean() > 0 for agent in finals}
            for agent, each in finals.items():
                text = _score(each, env)
                cells.append(f"**{text}**" if learned[agent] else text)
            found = statistics.difference(finals["moca"], finals["moca-ce"])
            cells.append(("holds, " if found.low > 0 else "open, ") + found.brief if learned["moca"] else "–")
        lines.append(f"| {rung} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def completions(path: Path, with_moca: Path) -> str:
    """Returns a table of the best completions of the printed settings, by task and seed."""
    starts = ("value.", "critic.v", "critic.c", "train.g", "train.c", "exp", "own")
    bnaf, moca = (_with_settings(pd.read_parquet(each), starts) for each in (path, with_moca))
    lines = ["| task | completion | BNAF, by seed | MoCA, by seed |", "|---" * 4 + "|"]
    for env in (CARTPOLE, PENDULUM):
        theirs, ours = (_by_seed(each[each["env"] == env]) for each in (bnaf, moca))
        peaks = [_peaks(each[each["env"] == env]) for each in (bnaf, moca)]
        for key in theirs.index.intersection(ours.index, sort=False):
            words = ", ".join(_setting(k, v) for k, v in json.loads(key).items() if not k.endswith("_end"))
            cells = [
                ", ".join(f"{score:.0f} ({peak:.0f})" for score, peak in zip(each.loc[key], top.loc[key], strict=True))
                for each, top in zip((theirs, ours), peaks, strict=True)
            ]
            lines.append(f"| {TASKS[env]} | {words} | {' | '.join(cells)} |")
        rest = theirs.drop(ours.index).mean(axis=1)
        lines.append(f"| {TASKS[env]} | the other {len(rest)} | {rest.min():.0f} to {rest.max():.0f} (means) | |")
    return "\n".join(lines) + "\n"


def _by_seed(searched: pd.DataFrame) -> pd.DataFrame:
    """Returns mean returns over the last tenth, by setting (best first) and seed."""
    last = searched[searched["step"] > 0.9 * searched.groupby("settings")["step"].transform("max")]
    by_seed = last.groupby(["settings", "seed"])["return_mean"].mean().unstack()
    return by_seed.loc[by_seed.mean(axis=1).sort_values(ascending=False).index]


def _peaks(searched: pd.DataFrame) -> pd.DataFrame:
    """Returns the largest mean of three consecutive evaluations, by setting and seed."""
    curves = searched.pivot_table("return_mean", "step", ["settings", "seed"])
    return curves.rolling(3).mean().max().unstack()


def _setting(name: str, value: Any) -> str:
    return name if value is True else f"{name} = {value if isinstance(value, str) else f'{value:g}'}"


def _with_settings(searched: pd.DataFrame, starts: tuple[str, ...]) -> pd.DataFrame:
    """A search's table with a column of the settings in which its runs differ, as JSON."""
    both = [json.loads(p) | json.loads(q) for p, q in zip(searched["program"], searched["point"], strict=True)]
    return searched.assign(settings=[json.dumps({k: v for k, v in s.items() if k.startswith(starts)}) for s in both])
