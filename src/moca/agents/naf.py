"""NAF as in the paper's comparison: BNAF with its best action squashed by a tanh."""

import dataclasses

from moca.agents.quadratic import QuadraticAgent
from moca.config import Config
from moca.envs.environment import Spaces


class NAFAgent(QuadraticAgent):
    """BNAF with tanh heads, whatever `critic.head` is: μ̃ = μ lies within the bounds."""

    def __init__(self, config: Config, env: Spaces) -> None:
        critic = dataclasses.replace(config.critic, head="tanh")
        super().__init__(dataclasses.replace(config, critic=critic), env)  # type: ignore[call-arg]  # as in planning.py
