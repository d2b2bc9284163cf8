"""The agents, behind one contract; see `agent.py`."""

from moca.agents.agent import Agent
from moca.config import AGENTS, Config
from moca.envs.environment import Spaces

__all__ = ["Agent", "make_agent"]


def make_agent(config: Config, env: Spaces) -> Agent:
    """The agent the config names, for that environment."""
    return AGENTS[config.agent].load()(config, env)
