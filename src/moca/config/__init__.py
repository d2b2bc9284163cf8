"""All settings, as frozen dataclasses. Nothing here imports jax, so errors appear in milliseconds.

Fields of type `float` may differ between the runs of one compiled program: they become traced
numbers, and so do the entries of `noise.sigmas` and `sensor.bias`. A change in any other field
compiles another program. To trace settings without an agent, import `moca.pytrees`, which tells jax
of them; `moca.agents` does.
"""

from moca.config.checks import *  # noqa: F403
from moca.config.fitting import *  # noqa: F403
from moca.config.planning import PlanConfig  # noqa: F401
from moca.config.registry import *  # noqa: F403
from moca.config.sections import *  # noqa: F403
from moca.config.sensing import is_off  # noqa: F401
from moca.config.texts import *  # noqa: F403
