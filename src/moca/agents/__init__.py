"""The agents, behind one contract; see `agent.py`."""

from moca.agents.agent import Agent
from moca.agents.quadratic import QuadraticAgent
from moca.agents.sac import SACAgent
from moca.config import QUADRATIC_AGENTS, Config
from moca.envs.environment import Spaces

__all__ = ["CLASSES", "Agent", "make_agent"]

CLASSES: dict[str, type[Agent]] = dict.fromkeys(QUADRATIC_AGENTS, QuadraticAgent) | {"sac": SACAgent}


def make_agent(config: Config, env: Spaces) -> Agent:
    """The agent the config names, for that environment."""
    return CLASSES[config.agent](config, env)
