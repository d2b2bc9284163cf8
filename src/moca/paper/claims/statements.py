"""The paper's claims about its experiments, in our words, as data.

A `Claim` has one or several parts: a `Difference` between two sides, or a `Region` in which the
mean of one side should be. `claims` lists them for the available cells: the paper's always, and
those beyond the paper (other noise or agents) if they were run.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from moca.looks import label
from moca.paper.claims.scores import LOW, SECOND_HALF
from moca.paper.tasks import CARTPOLE, PENDULUM
from moca.studies.statistics import NOMINAL

FEW, MANY = "moca-mc-4", "moca-mc-16"
BASELINES = {CARTPOLE: ("sac", "bnaf", "moca-ce"), PENDULUM: ("sac", "bnaf", "moca-ce", FEW, MANY)}
FURTHER = ("sac-usual", "moca-mc-1", FEW, MANY)  # further agents, which the paper does not compare on every task

NONE, HIGH, STRONG, SCALED, SCALED_STRONG = "0", "0.05", "0.1", "state-norm 0.05", "state-norm 0.2"
NOISES = {CARTPOLE: (LOW, HIGH, SCALED), PENDULUM: (LOW, HIGH)}
BEYOND = {CARTPOLE: (STRONG, SCALED_STRONG), PENDULUM: (STRONG,)}
ACTION = "action "  # prefix of the labels of process noise

COVERAGE_MARGIN = 0.05
SETTLED = 0.1  # fraction of its level
NEAR = (NOMINAL - COVERAGE_MARGIN, NOMINAL + COVERAGE_MARGIN)

Condition = tuple[str, str, str]  # task, agent, noise


@dataclass(frozen=True)
class Side:
    """The scores of an agent at a noise level, or their change from the noise level `before`."""

    agent: str
    noise: str
    score: str = "final"
    before: str = ""


@dataclass(frozen=True)
class Difference:
    """Our mean score minus theirs.

    The claim says that it is positive (`sign` 1) or negative (−1).
    """

    ours: Side
    theirs: Side
    sign: int = 1
    # Agents and noises that must have learned, by default both sides.
    learned: tuple[tuple[str, str], ...] | None = None

    @property
    def gate(self) -> tuple[tuple[str, str], ...]:
        """Agents and noises that must have learned; for a change, at the lower noise."""
        if self.learned is not None:
            return self.learned
        return tuple((side.agent, side.before or side.noise) for side in (self.ours, self.theirs))


@dataclass(frozen=True)
class Region:
    """The mean of a score is between two numbers; with kind "every", at each evaluation."""

    side: Side
    low: float
    high: float
    kind: str = "mean"  # or "every" for the metric at each evaluation, or "change" for its final change
    gate: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, and the parts to test."""

    name: str
    statement: str
    rule: str  # the measurement and its claimed range
    task: str
    noise: str
    parts: tuple[Difference | Region, ...]
    alike: bool = False  # whether it claims that the two sides are equal
    beyond: bool = False  # whether this noise or agent is not in the paper
    constant_rates: bool = False  # whether it can be judged only with constant learning rates
    shown: str = ""  # "ranking": show all agents' means instead of the difference


def claims(cells: Iterable[Condition]) -> tuple[Claim, ...]:
    """Returns all claims about the tasks in these cells."""
    known = set(cells)
    found: list[Claim] = []
    for task in (CARTPOLE, PENDULUM):
        if any(cell[0] == task for cell in known):
            found += _of_task(task, known)
    return tuple(found)


def _of_task(task: str, known: set[Condition]) -> Iterator[Claim]:
    action = sorted({noise for own, _, noise in known if own == task and noise.startswith(ACTION)})
    beyond = [noise for noise in (*BEYOND[task], *action) if (task, "moca", noise) in known]
    yield from _orderings(task, beyond, known)
    yield from _higher(task, beyond, known)
    for noise, agent in product(NOISES[task], BASELINES[task]):
        yield from _while_learning(task, agent, noise)
    yield from _samples(task, [*NOISES[task], *beyond], known)
    yield from _more_noise(task, known)
    if task == CARTPOLE:
        yield from _cartpole()
    yield from _targets(task, known)
    yield from _uncertainty(task, beyond)
    yield _alike("mixture-alike", "the matched Gaussian and the mixture it stands for", task, HIGH, "moca-mixture")
    for noise in NOISES[task]:
        if noise == HIGH or (task, "naf", noise) in known:
            yield _stuck(task, noise)


def _orderings(task: str, beyond: list[str], known: set[Condition]) -> Iterator[Claim]:
    for noise in (*NOISES[task], *beyond):
        far = noise in beyond
        agents = [agent for agent in BASELINES[task] if not far or (task, agent, noise) in known]
        parts = [Difference(Side("moca", noise), Side(agent, noise)) for agent in agents]
        more = "" if task == CARTPOLE or not {FEW, MANY} <= set(agents) else ", and more samples are better"
        if more:
            parts.append(Difference(Side(MANY, noise), Side(FEW, noise)))
        if parts:
            statement = f"overall: MoCA is first{more}"
            rule = "every difference of final returns > 0"
            yield Claim("ordering", statement, rule, task, noise, tuple(parts), beyond=far, shown="ranking")


def _higher(task: str, beyond: list[str], known: set[Condition]) -> Iterator[Claim]:
    further = [agent for agent in FURTHER if agent not in BASELINES[task]]
    for agent, noise in product((*BASELINES[task], *further), (*NOISES[task], *beyond)):
        far = noise in beyond or agent in further
        if not far or (task, agent, noise) in known:
            claim = _ends_higher("moca", agent, task, noise)
            yield replace(claim, name=f"above-{agent}", beyond=far)


def _ends_higher(ours: str, theirs: str, task: str, noise: str) -> Claim:
    part = Difference(Side(ours, noise), Side(theirs, noise))
    statement = f"{label(ours)} ends higher than {label(theirs)}"
    return Claim(f"{ours}-above-{theirs}", statement, "difference of final returns > 0", task, noise, (part,))


_STEPS = "difference of the steps to 90 % of the best final return < 0"
_LEARNING = (  # claims about learning curves: name, statement, rule, score and sign
    ("faster-than", "MoCA learns faster than {}", _STEPS, "steps", -1),
    ("area-above", "MoCA's learning curve has more area than that of {}", "difference of areas > 0", "area", 1),
    (
        "steadier-than", "MoCA's seeds differ less than those of {}",
        "difference of the mean distances from the median seed < 0", "spread", -1,
    ),
    (
        "holds-better-than", "MoCA loses less of what it reached within a run than {}",
        "difference of the drops from peak to final < 0", "drop", -1,
    ),
)  # fmt: skip


def _while_learning(task: str, agent: str, noise: str) -> Iterator[Claim]:
    """Yields claims about speed, sample efficiency and stability."""
    for name, statement, rule, score, sign in _LEARNING:
        part = Difference(Side("moca", noise, score), Side(agent, noise, score), sign)
        yield Claim(f"{name}-{agent}", statement.format(label(agent)), rule, task, noise, (part,))


def _samples(task: str, noises: list[str], known: set[Condition]) -> Iterator[Claim]:
    for noise in noises:
        printed = task == PENDULUM and noise in NOISES[task]
        if not printed and not {(task, FEW, noise), (task, MANY, noise)} & known:
            continue
        if printed or (task, MANY, noise) in known:
            higher = _ends_higher(MANY, FEW, task, noise)
            yield replace(higher, name="samples-help", statement="16 samples end higher than 4", beyond=not printed)
        if printed:
            part = Difference(Side(MANY, noise, "steps"), Side(FEW, noise, "steps"), -1)
            yield Claim("samples-speed", "16 samples learn faster than 4", _STEPS, task, noise, (part,))
        for agent in (FEW, MANY):
            if printed or (task, agent, noise) in known:
                yield replace(_ends_higher(agent, "moca-ce", task, noise), beyond=not printed)


def _more_noise(task: str, known: set[Condition]) -> Iterator[Claim]:
    steps = [(LOW, HIGH), *([(NONE, STRONG), (SCALED, SCALED_STRONG)] if task == CARTPOLE else [(LOW, STRONG)])]
    for before, after in steps:
        far = (before, after) != (LOW, HIGH)
        agents = [a for a in BASELINES[task] if not far or {(task, a, n) for n in (before, after)} <= known]
        if not agents or (far and not {(task, "moca", n) for n in (before, after)} <= known):
            continue
        noise = _from_to(before, after)
        ours = Side("moca", after, before=before)
        less = {agent: Difference(ours, Side(agent, after, before=before)) for agent in agents}
        for agent in agents:
            yield replace(_costs(f"falls-{agent}", "more noise", task, agent, before, after), beyond=far)
            statement = f"more noise costs MoCA less than {label(agent)}"
            name, rule = f"falls-less-than-{agent}", "difference of the changes > 0"
            yield Claim(name, statement, rule, task, noise, (less[agent],), beyond=far)
        leads = tuple(Difference(Side("moca", after), Side(agent, after)) for agent in agents)
        statement = "MoCA's lead over every baseline grows with the noise"
        rule = f"every lead at {after}, and every change of a lead, > 0"
        yield Claim("gap-widens", statement, rule, task, noise, (*less.values(), *leads), beyond=far)


def _costs(name: str, noise: str, task: str, agent: str, before: str, after: str) -> Claim:
    part = Difference(Side(agent, after), Side(agent, before), -1, learned=((agent, before),))
    statement, rule = f"{noise} costs {label(agent)} return", "change of the final return < 0"
    return Claim(name, statement, rule, task, _from_to(before, after), (part,))


def _cartpole() -> Iterator[Claim]:
    yield _alike("ce-like-bnaf", "MoCA-CE and BNAF", CARTPOLE, LOW, "moca-ce", "bnaf")
    for agent in ("moca", *BASELINES[CARTPOLE]):
        part = Region(Side(agent, LOW, "above the bar"), 0, np.inf)
        rule = "peak less a tenth of the way above doing nothing > 0"
        yield Claim(f"learns-{agent}", f"{label(agent)} learns", rule, CARTPOLE, LOW, (part,))
    for agent in BASELINES[CARTPOLE]:
        before, after = (Side(agent, noise, "steps of its own") for noise in (LOW, HIGH))
        slows = Difference(after, before, learned=((agent, LOW),))
        rule = f"change of the steps to 90 % of its own final return at {LOW} > 0"
        statement = f"more noise slows {label(agent)}"
        yield Claim(f"slows-{agent}", statement, rule, CARTPOLE, _from_to(LOW, HIGH), (slows,))
    for agent, noise in (("sac", LOW), ("bnaf", LOW), *((agent, SCALED) for agent in BASELINES[CARTPOLE])):
        yield _costs(f"reduced-{agent}", "noise", CARTPOLE, agent, NONE, noise)


def _alike(name: str, what: str, task: str, noise: str, ours: str, theirs: str = "moca") -> Claim:
    part = Difference(Side(ours, noise), Side(theirs, noise))
    rule = "difference of final returns within ± the smallest effect of interest"
    return Claim(name, f"{what} end alike", rule, task, noise, (part,), alike=True)


def _targets(task: str, known: set[Condition]) -> Iterator[Claim]:
    for noise in NOISES[task]:
        far = task != PENDULUM
        if far and not {(task, FEW, noise), (task, MANY, noise)} <= known:
            continue
        few, many = (Side(agent, noise, "target_variance") for agent in (FEW, MANY))
        vary = {side.agent: Region(side, 0, np.inf, gate=((side.agent, noise),)) for side in (few, many)}
        for agent, part in vary.items():
            statement = f"the targets of {label(agent)} vary; MoCA's do not, given its model"
            yield Claim(
                f"targets-vary-{agent}", statement, "their variance over samples > 0", task, noise, (part,), beyond=far
            )
        statement, rule = "16 samples make targets vary less than 4", "difference of the variances < 0"
        yield Claim("variance-falls", statement, rule, task, noise, (Difference(many, few, -1),), beyond=far)
        one = Difference(Side("bnaf", noise, "value_noise_variance"), many)
        statement = "BNAF's targets, of one observation each, vary more than those of 16 samples, and these vary"
        rule = "difference of the variances, and the smaller one, > 0"
        yield Claim("one-sample-targets", statement, rule, task, noise, (one, vary[MANY]), beyond=far)


def _uncertainty(task: str, beyond: list[str]) -> Iterator[Claim]:
    low, high = NEAR
    for noise in (*NOISES[task], *beyond):
        gate = (("moca", noise),)
        late = Region(Side("moca", noise, f"coverage_1sigma{SECOND_HALF}"), low, high, gate=gate)
        statement = "in the second half of training MoCA's 1σ interval holds about as many outcomes as it should"
        rule = f"{low:g} < coverage < {high:g}"
        yield Claim("calibrated", statement, rule, task, noise, (late,), beyond=noise in beyond)
        if noise not in beyond:
            every = Region(Side("moca", noise, "coverage_1sigma"), low, high, "every", gate)
            statement, rule = "MoCA's 1σ interval does so at every evaluation", f"{rule} where it is farthest off"
            yield Claim("calibrated-throughout", statement, rule, task, noise, (every,))
    for noise in NOISES[task] if task == PENDULUM else ():
        part = Region(Side("moca", noise, "epistemic_std"), -SETTLED, SETTLED, "change", (("moca", noise),))
        statement = "the disagreement of MoCA's ensemble settles"
        rule = f"size of its change in the last fifth of training, as a share of its level there, < {SETTLED:g}"
        yield Claim("epistemic-settles", statement, rule, task, noise, (part,), constant_rates=True)


def _stuck(task: str, noise: str) -> Claim:
    part = Difference(Side("bnaf", noise, "stuck"), Side("naf", noise, "stuck"), -1, learned=(("bnaf", noise),))
    statement = "seeds of a NAF squashed by tanh get stuck where BNAF's do not"
    rule = "difference of the shares of seeds that end no better than doing nothing < 0"
    return Claim("stuck-less", statement, rule, task, noise, (part,))


def _from_to(before: str, after: str) -> str:
    return f"{'none' if before == NONE else before} → {after}"
