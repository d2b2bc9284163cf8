"""An agent's beliefs, predictions and values along one greedy episode, as one compiled program."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from moca.agents import Agent, make_agent
from moca.agents.quadratic import QuadraticAgent
from moca.belief import features
from moca.config import Config
from moca.critic import ActionSlice, first
from moca.diagnostics import outlook
from moca.drivers.host_evaluation import Playing, play_once
from moca.envs.environment import Environment, Spaces
from moca.envs.host import HostEnvironment
from moca.envs.sensors import make_sensor
from moca.evaluation import Episode, Moment, rollout
from moca.loop import PolicyState, follow
from moca.replay import Transition, sensed, with_gaps

Arrays = dict[str, Float[Array, "steps *rest"]]
PLACES = (-1.0, 0.0, 1.0)  # points of the action range at which Q is stored: three points define a parabola


def watch(
    config: Config, learner: Any, env: Environment, steps: int, ahead: int, key: Key[Array, ""]
) -> tuple[Any, Arrays]:
    """Returns the states of an episode in a compiled environment, and the arrays of `describe`."""
    agent, sensor = make_agent(config, env), make_sensor(config, env)
    keep = lambda state, moment: (state, moment)  # noqa: E731
    (states, moments), happened = rollout(agent, learner, env, sensor, steps, key, keep=keep)
    return states, describe(agent, learner, moments, happened, ahead)


def watch_on_host(config: Config, learner: Any, env: HostEnvironment, ahead: int, seed: int) -> Arrays:
    """Returns the arrays of `describe` for an episode in an environment on the host."""
    seen: list[tuple[Any, Any, PolicyState, Any]] = []

    def note(observation: np.ndarray, playing: Playing) -> None:
        kept = (observation, playing.measured, playing.policy, playing.executed)
        seen.append(jax.tree.map(lambda leaf: np.array(leaf)[0, 0], kept))

    played = play_once(env, config, learner, env.vector(1, config.env.action_repeat), seed, note)
    truth, observed, policies, executed = jax.tree.map(lambda *leaves: np.stack(leaves), *seen)
    before = lambda tree: jax.tree.map(lambda leaf: leaf[:-1], tree)  # noqa: E731
    moments = Moment(before(truth), before(observed), before(policies), before(executed), observed[1:])
    happened = Episode(*(part[: len(seen) - 1] for part in played))

    def program(config: Config, learner: Any) -> Arrays:
        return describe(make_agent(config, env), learner, moments, happened, ahead)

    return jax.jit(program)(config, learner)


def describe(agent: Agent, learner: Any, moments: Moment, happened: Episode, ahead: int) -> Arrays:
    """Returns arrays over the steps; those that the agent does not have are omitted.

    For every agent: `truth` (unless the environment's own observations may be missing), `observed`
    (`believed` where it is missing), `believed`, `uncertainty` (the belief's deviation, with a
    filter), `action`, `executed`, `reward`, `running`, `value`. With a model: those of
    `_predictions`. For a quadratic agent: `greedy`, the best action; `vertex`, the maximum of
    Q(s, ·) along each dimension; and `advantage`, Q(s, a) − V(s) at both ends and in the middle of
    each dimension. If s′ is predicted: the fields of `Stakes`. If it can tell, what it expects of
    the next `ahead` steps, at each step: `ahead`, the mean of the state, `ahead_covariance`,
    `ahead_action`, and `ahead_reward` if it has learned one; see `Forecast`.
    """
    belief, action = moments.policy
    shown = jnp.where(jnp.isnan(moments.observed), belief.mean, moments.observed)
    found = {"observed": shown, "believed": belief.mean, "action": action, "executed": moments.executed}
    found |= {"reward": happened.reward, "running": happened.running, "value": happened.value}
    if not agent.config.sensor.gaps:
        found["truth"] = moments.truth
    if belief.covariance is not None:
        found["uncertainty"] = _deviation(jnp.diagonal(belief.covariance, axis1=-2, axis2=-1))
    together = jax.vmap(lambda *each: follow(agent, learner, *each)[1])
    episode = together(belief, action, moments.next_observed, happened.reward, happened.terminated)
    episode = with_gaps(episode) if agent.gaps else episode
    if learner.model is not None:
        found |= _predictions(agent, learner, episode)
    if isinstance(agent, QuadraticAgent):
        seen = jax.vmap(lambda each: features(agent.config, each))(belief)
        found |= jax.vmap(lambda s: _parabolas(agent.env, first(learner.critics).slice(s)))(seen)
        if agent.predicts:
            inside = episode._replace(action=agent.env.from_bounds(action))
            found |= agent.stakes(learner, inside)._asdict()
    if ahead and (expected := jax.vmap(lambda each: agent.forecast(learner, each, ahead))(belief)) is not None:
        found |= {"ahead": expected.mean, "ahead_covariance": expected.covariance}
        found["ahead_action"] = agent.env.to_bounds(expected.action)
        if expected.reward is not None:
            found["ahead_reward"] = expected.reward
    return found


def _predictions(agent: Agent, learner: Any, episode: Transition) -> Arrays:
    """Returns predictions of the next observation and their outcomes.

    The arrays are `predicted` and `deviation`, the `members` of the mixture, their two kinds of
    uncertainty as deviations, the outcome (`following`) and its `distance` in predicted deviations.
    """
    episode = sensed(episode)
    episode = episode._replace(action=agent.env.from_bounds(episode.action))
    mixtures = learner.model.ensemble.predict_batch(episode.observation, episode.action)
    seen = outlook(mixtures, episode, agent.filter.noise_variance(learner.model, episode.next_observation))
    roots = (seen.variance, seen.aleatoric, seen.epistemic)
    deviation, aleatoric, epistemic = map(_deviation, roots)
    return {
        "predicted": seen.mean, "deviation": deviation, "aleatoric": aleatoric, "epistemic": epistemic,
        "members": mixtures.components.mean, "following": seen.next_observation, "distance": seen.distance,
    }  # fmt: skip


def _deviation(variance: Float[Array, "*rest"]) -> Float[Array, "*rest"]:
    """Returns the root of a variance, which rounding may have made negative."""
    return jnp.sqrt(jnp.maximum(variance, 0))


def _parabolas(env: Spaces, at: ActionSlice) -> Arrays:
    """Returns Q(s, ·) along each action dimension, with the others at the best action."""
    own = jnp.eye(env.action_size, dtype=bool)
    moved = [jnp.where(own, place, at.greedy) for place in PLACES]
    advantage = jnp.stack([jax.vmap(at.advantage)(actions) for actions in moved], axis=-1)
    return {"greedy": env.to_bounds(at.greedy), "vertex": env.to_bounds(at.vertices()), "advantage": advantage}
