"""The settings of planning over several steps."""

from dataclasses import dataclass

from moca.config.fields import setting
from moca.config.registry import VALUES


@dataclass(frozen=True)
class PlanConfig:
    """Planning over several steps, in targets and, by moca-plan, in decisions; off by default.

    A caution or a curiosity of exactly zero is removed from the compiled program.
    """

    horizon: int = setting(
        1, "The number of steps ahead at which a target takes V; 1 is the paper's target.", low=1, high=100
    )
    weights: str = setting(
        "last",
        "The weights of the targets of 1 to plan.horizon steps: the last alone, or the inverse of each one's variance.",
        among=("last", "variance"),
    )
    caution: float = setting(
        0.0, "The β of E[V] − β √Var[V] in the target: above 0 is cautious, below 0 optimistic, 0 the paper's target."
    )
    imagined: int = setting(
        0,
        "The number of successive imagined transitions for each stored one in a batch of the critics.",
        low=0,
        high=100,
    )
    noise: float = setting(
        1.0, "The standard deviation of imagined actions around the greedy one, which lie within ±1.", low=0
    )
    actions: str = setting(
        "sampled",
        "Imagined actions: sampled, or gaussian, over which both sides of the Bellman equation are averaged.",
        among=("sampled", "gaussian"),
    )
    curiosity: float = setting(
        0.0,
        "The weight of the ensemble's disagreement about a step as a reward; it falls to 0 by mid-training.",
        low=0,
    )
    reward: str = setting("erf", "The function class of the learned reward, which planning needs.", among=VALUES)
    bases: int = setting(128, "The number of basis functions of the learned reward.", low=1)
    lr: float = setting(3e-3, "The learning rate of the weights in which the learned reward is linear.", low=0)
    basis_lr: float = setting(1e-3, "The learning rate of the bases of the learned reward.", low=0)
    length: int = setting(10, "The number of actions in a plan of moca-plan.", low=1, high=1000)
    iterations: int = setting(10, "The number of gradient steps by which moca-plan improves a plan.", low=0)
    step: float = setting(
        0.1, "The size of the first gradient step on a plan, in units of half the action range.", low=0
    )
