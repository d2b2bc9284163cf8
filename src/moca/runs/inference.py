"""What learned policies answer: actions, values, predictions. Compiled once per shape, for all runs of a directory."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from moca import moments as mm
from moca.agents import Agent, make_agent
from moca.belief import Belief, KalmanFilter
from moca.config import Config, ConfigError
from moca.deploy.checks import NOTHING_TO_GO_ON, checked, sane
from moca.envs.environment import Spaces
from moca.loop import PolicyState, policy_start, policy_step


class Prediction(NamedTuple):
    """The Gaussian over the next state: covariance = aleatoric + epistemic; batched along leading axes."""

    mean: np.ndarray  # (…, obs)
    covariance: np.ndarray  # (…, obs, obs)
    aleatoric: np.ndarray  # what the members take for chance, on average
    epistemic: np.ndarray  # what they disagree on


class Inference:
    """The policies of some runs that may differ in floats of their configs."""

    def __init__(self, env: Spaces, configs: Sequence[Config], learners: Any) -> None:
        self.env, self._configs, self._learners = env, configs, learners
        self._placed: dict[int, tuple[Config, Any]] = {}

    def member(self, run: int) -> tuple[Agent, Any]:
        """Agent and learner of one run."""
        config, learner = self._at(run)
        return make_agent(config, self.env), learner

    def predict(self, observation: Any, run: int = 0) -> np.ndarray:
        """See `Run.predict`."""
        rows, lead = self._rows("an observation", observation, self.env.observation_size)
        actions = self._programs["act"](*self._at(run), rows)
        return np.array(actions).reshape(*lead, self.env.action_size)

    def value(self, observation: Any, run: int = 0) -> np.ndarray:
        """See `Run.value`."""
        rows, lead = self._rows("an observation", observation, self.env.observation_size)
        return np.array(self._programs["value"](*self._at(run), rows)).reshape(lead)

    def foresee(self, observation: Any, action: Any, run: int = 0) -> Prediction:
        """See `Model.predict`."""
        states, lead = self._rows("an observation", observation, self.env.observation_size)
        actions, also = self._rows("an action", action, self.env.action_size)
        if lead != also:
            raise ConfigError(f"there must be an action per observation, but got {also} and {lead} of them")
        mean, aleatoric, epistemic = self._programs["foresee"](*self._at(run), states, actions)
        parts = (mean, aleatoric + epistemic, aleatoric, epistemic)
        return Prediction(*(np.array(part).reshape(*lead, *part.shape[1:]) for part in parts))

    def measured(self, observation: Any, run: int) -> np.ndarray:
        """One observation, checked; where that run has a filter, values may be missing."""
        rows, lead = self._rows("an observation", observation, self.env.observation_size, self._fills_gaps(run))
        if lead:
            raise ConfigError(
                f"a policy follows one episode, but got {lead} observations: make one for each, or use predict"
            )
        return rows[0]

    def start(self, measured: np.ndarray, run: int) -> tuple[Belief, Any]:
        """Belief and action after the first observation of an episode."""
        return self._programs["start"](*self._at(run), measured)

    def follow(self, belief: Belief, action: Any, measured: np.ndarray, run: int) -> tuple[Belief, Any]:
        """Belief and action after an action and the observation that came of it; NaN where that is missing."""
        missing = np.isnan(measured)
        gaps = {"missing": missing} if missing.any() else {}
        return self._programs["follow"](*self._at(run), belief, action, measured, **gaps)

    def _fills_gaps(self, run: int) -> bool:
        """Whether a run's belief can go on without a value: it has a filter, and that filter is ours."""
        config = self._configs[run]
        return type(make_agent(config, self.env).filter) is KalmanFilter

    def refuse_without_model(self) -> None:
        """Raises if the agents have no model of the next state."""
        if self._learners.model is None:
            agent = self._configs[0].agent
            raise ConfigError(
                f"{agent} without a filter has no model of the next state: set belief.filter = true, or use an agent "
                "that predicts (moca, moca-ce, moca-mc, moca-mixture)"
            )

    @cached_property
    def _programs(self) -> Mapping[str, Any]:
        """Compiled functions of config and learner, so that one serves every run."""
        env = self.env
        low, high = jnp.array(env.action_low), jnp.array(env.action_high)

        def within(state: PolicyState) -> PolicyState:
            return state._replace(action=jnp.clip(state.action, low, high))

        def act(config: Config, learner: Any, states: Any) -> Any:
            agent = make_agent(config, env)
            return jnp.clip(jax.vmap(lambda s: agent.act(learner, s))(states), low, high)

        def value(config: Config, learner: Any, states: Any) -> Any:
            agent = make_agent(config, env)
            return jax.vmap(lambda s: agent.value(learner, s))(states)

        def foresee(config: Config, learner: Any, states: Any, actions: Any) -> Any:
            inside = env.from_bounds(actions)
            return mm.decompose(learner.model.ensemble.predict_batch(states, inside), full=True)

        def start(config: Config, learner: Any, measured: Any) -> Any:
            return within(policy_start(make_agent(config, env), learner, measured))

        def follow(config: Config, learner: Any, belief: Belief, action: Any, measured: Any, **gaps: Any) -> Any:
            state = PolicyState(belief, action)
            return within(policy_step(make_agent(config, env), learner, state, measured, **gaps))

        return {f.__name__: jax.jit(f) for f in (act, value, foresee, start, follow)}

    def _at(self, run: int) -> tuple[Config, Any]:
        """Config and learner of one run, on the device."""
        if not 0 <= run < len(self._configs):
            raise ConfigError(f"run = {run} is out of range: there are {len(self._configs)}, numbered from 0")
        if run not in self._placed:
            config = jax.tree.map(lambda number: jnp.asarray(number, jnp.float32), self._configs[run])
            self._placed[run] = (config, jax.device_put(jax.tree.map(lambda leaf: leaf[run], self._learners)))
        return self._placed[run]

    def _rows(self, what: str, numbers: Any, size: int, gaps: bool = False) -> tuple[np.ndarray, tuple[int, ...]]:
        """The numbers as rows of that size, and the axes that stood before."""
        try:
            array = checked(what, numbers, size, gaps).astype(np.float32)
        except ValueError as error:
            raise ConfigError(str(error)) from None
        return array.reshape(-1, size), array.shape[:-1]


class FollowingPolicy:
    """A greedy policy that follows one episode and keeps its belief over the state.

    reset() at the start of every episode; then an action for each observation. Without a filter the belief is the
    observation, and this is `predict`. With one, NaN is a missing value, where the belief is not corrected; `missing`
    counts them, over all episodes.
    """

    def __init__(self, inference: Inference, run: int) -> None:
        self._inference, self._run = inference, run
        self._last: tuple[Belief, Any] | None = None
        self.missing = 0

    def reset(self) -> None:
        """Forgets what was observed; the next observation is the first of an episode."""
        self._last = None

    @property
    def belief(self) -> Belief | None:
        """The belief after the last observation; None before the first."""
        return None if self._last is None else self._last[0]

    def __call__(self, observation: Any) -> np.ndarray:
        """The action after one more observation, in the environment's bounds; it is assumed to be taken.

        Raises:
            ConfigError: if a value is missing that is needed, or is none that can have been measured, as with
                `moca.deploy.Policy`. The policy stays as it was.
        """
        measured = self._inference.measured(observation, self._run)
        following = None if self._last is None else self._inference.follow(*self._last, measured, self._run)
        if following is None or not _sane(following[0]):
            if np.isnan(measured).any():
                raise ConfigError(NOTHING_TO_GO_ON)
            following = self._inference.start(measured, self._run)
        action = np.array(following[1])
        if not np.isfinite(action).all():
            raise ConfigError("the policy has no action here: its numbers overflow")
        self._last = following
        self.missing += int(np.isnan(measured).sum())
        return action


def _sane(belief: Belief) -> bool:
    return belief.covariance is None or sane(np.asarray(belief.mean), np.asarray(belief.covariance))


class Model:
    """The ensemble that predicts the next state."""

    def __init__(self, inference: Inference) -> None:
        inference.refuse_without_model()
        self._inference = inference

    def predict(self, observation: Any, action: Any, run: int = 0) -> Prediction:
        """The state after one decision, as a Gaussian: (obs,) and (act,), or (n, obs) and (n, act).

        The observation is taken for the state; of the noise on the next observation there is nothing in it.
        """
        return self._inference.foresee(observation, action, run)
