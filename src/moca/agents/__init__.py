"""The agents, behind one interface; see `agent.py`."""

from moca.agents.agent import Agent
from moca.config import AGENTS, Config
from moca.envs.environment import Spaces

__all__ = ["Agent", "make_agent"]


def make_agent(config: Config, env: Spaces) -> Agent:
    """Returns the agent named in the config, for that environment."""
    return AGENTS[config.agent].load()(config, env)
