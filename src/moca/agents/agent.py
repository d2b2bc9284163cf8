"""The interface between the training loop and an agent."""

from abc import abstractmethod
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from moca import pytrees  # noqa: F401  (configs may be traced)
from moca.belief import Belief, BeliefFilter, features, make_filter
from moca.config import Config, ConfigError
from moca.delay import for_sensor
from moca.diagnostics import describe_model
from moca.envs.environment import Spaces
from moca.envs.sensors import may_miss
from moca.exploration import Explore
from moca.forecast import Forecast
from moca.replay import Layout, Transition, sensed

Info = dict[str, Float[Array, ""]]


class Agent(eqx.Module):
    """Pure functions of a state that holds everything learned.

    Settings of type float may be traced.

    The state is a named tuple with at least the fields `model`, a `ModelState` or None, and
    `updates`, the number of updates made. If the config asks for a filter, the observations passed
    to these methods are the means of beliefs, followed by their widths if `belief.width` says so.
    """

    sized_by: ClassVar[str] = "critic.width or value.bases"  # what to lower if its networks do not fit into memory

    config: Config
    env: Spaces
    filter: BeliefFilter
    gaps: bool = eqx.field(static=True)  # whether samples may be missing
    layout: Layout = eqx.field(static=True)  # of the rows of its replay buffer

    def __init__(self, config: Config, env: Spaces) -> None:
        self.config, self.env, self.gaps = config, env, may_miss(config)
        own = self.make_filter()
        _refuse_other(own, config)
        self.filter = for_sensor(own, config, env)
        filtered, late = self.filter.keeps_covariance, config.sensor.delay > 0
        kind = (filtered, filtered and late, self.filter.correlated, config.belief.width)
        self.layout = Layout(env.observation_size, env.action_size, *kind)

    @property
    def hidden(self) -> Bool[np.ndarray, "obs"]:
        """Marks the dimensions of the state that a filter is not told: all but the newest ones."""
        if self.env.history is None or not self.filter.keeps_covariance:
            return np.zeros(self.env.observation_size, bool)
        return self.env.history.hidden

    def make_filter(self) -> BeliefFilter:
        """Returns the filter over the state. Override it to use your own filter.

        It need not know of delays: see `moca.delay`.
        """
        return make_filter(self.config, self.env)

    @staticmethod
    def numbers_to_decide(config: Config, observed: int) -> dict[str, int]:
        """Returns how many numbers simultaneous decisions hold, by the settings that reduce them.

        This is for the estimate of memory: networks and the replay buffer are not counted, nor is
        anything that is small beside them.
        """
        return {}

    @abstractmethod
    def init(self, key: Key[Array, ""]) -> Any:
        """Returns the initial state: parameters, targets and optimisers."""

    @abstractmethod
    def act(self, state: Any, observation: Float[Array, "obs"], explore: Explore | None = None) -> Float[Array, "act"]:
        """Returns the greedy action, or with `explore` an exploratory one, within the bounds."""

    def decide(self, state: Any, belief: Belief, explore: Explore | None = None) -> tuple[Belief, Float[Array, "act"]]:
        """Returns the belief with what is kept for the next decision, and the action for it.

        The loop calls this. It calls `act` with the mean (and the width, if `belief.width` is set),
        and keeps nothing; override it if the covariance, or an earlier plan, matters.
        """
        return belief, self.act(state, features(self.config, belief), explore)

    def forecast(self, state: Any, belief: Belief, steps: int) -> Forecast | None:
        """Returns what the agent expects of its next steps, or None if it cannot tell."""
        return None

    def taken_for_state(self, state: Any, observation: Float[Array, "obs"]) -> Float[Array, "inputs"]:
        """Returns the input of `act` and `value` for a single observation, without earlier ones."""
        if not self.config.belief.width:
            return observation
        return features(self.config, self.filter.init(state.model, observation))

    @abstractmethod
    def value(self, state: Any, observation: Float[Array, "obs"]) -> Float[Array, ""]:
        """Returns the discounted return that the agent expects under its policy."""

    @abstractmethod
    def update(self, state: Any, batch: Transition, draws: Any) -> tuple[Any, Info]:
        """Returns the state after one gradient step on a batch, and metrics."""

    def draw_update(self, key: Key[Array, ""]) -> Any:
        """Returns the random numbers of one `update`; those of many updates are drawn at once."""
        return key

    def diagnose(self, before: Any, after: Any, episode: Transition, key: Key[Array, ""]) -> Info:
        """Returns metrics of the newest episode, from the states before and after it."""
        if after.model is None:
            return {}
        episode = sensed(episode)
        episode = episode._replace(action=self.env.from_bounds(episode.action))
        unseen, seen = (
            describe_model(model.ensemble, episode, self.filter.noise_variance(model, episode.next_observation))
            for model in (before.model, after.model)
        )
        info = unseen | {name: seen[name] for name in ("aleatoric_std", "epistemic_std")}
        info["coverage_1sigma_seen"] = seen["coverage_1sigma"]
        if self.config.belief.noise != "learned":
            return info
        if (variance := self.filter.noise_variance(after.model, episode.next_observation)) is not None:
            levels = jnp.sqrt(variance.mean(axis=0))[: self.env.measured_size]
            info["noise_level"] = levels.mean()
            info |= {f"noise_level_{j}": level for j, level in enumerate(levels)}
        return info


def _refuse_other(own: BeliefFilter, config: Config) -> None:
    """Raises if a filter keeps a covariance where the settings have none, or the reverse."""
    name, belief = type(own).__name__, config.belief
    if own.keeps_covariance and not belief.filter:
        raise ConfigError(f"{name} keeps a covariance, which needs belief.filter = true")
    if belief.width and not own.keeps_covariance:
        raise ConfigError(f"belief.width = true needs a filter that keeps a covariance, and {name} does not")
