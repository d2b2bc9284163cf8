"""Evaluation of the greedy policy, with and without observation noise [choice]."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from moca.agents import Agent
from moca.belief import features
from moca.envs.environment import Environment, Noise
from moca.exploration import normals
from moca.loop import PolicyState, policy_start, policy_step

SCORES = ("return_mean", "return_std", "return_noise_free", "overestimation", "value_noise_variance")


class Episode(NamedTuple):
    """One greedy episode, with a leading axis over its steps."""

    reward: Float[Array, "steps"]  # zero after the end
    running: Bool[Array, "steps"]  # whether the step is before the end
    terminated: Bool[Array, "steps"]
    value: Float[Array, "steps"]  # V of the agent's estimate of the state
    value_after: Float[Array, "steps"]  # V of its estimate of the next state
    value_again: Float[Array, "steps"]  # V of the next state, observed a second time


class Moment(NamedTuple):
    """One step of a greedy episode, as seen by the agent."""

    truth: Float[Array, "obs"]  # the observation of the state by a perfect sensor
    observed: Float[Array, "obs"]  # the noisy observation of the state, NaN where it is missing
    policy: PolicyState  # the agent's belief and action
    executed: Float[Array, "act"]  # the disturbed action
    next_observed: Float[Array, "obs"]  # the noisy observation of the next state, NaN where it is missing


def rollout(
    agent: Agent,
    learner: Any,
    env: Environment,
    sensor: Noise,
    steps: int,
    key: Key[Array, ""],
    noisy: Float[Array, ""] | float = 1.0,
    keep: Callable[[Any, Moment], Any] = lambda env_state, moment: (),
) -> tuple[Any, Episode]:
    """Runs one greedy episode; returns what `keep` selects from each step, and the episode.

    Observations are noisy if `noisy` is one, and without noise if zero; a filter expects noise in
    both cases. Actions are always disturbed, and the sensor's other faults stay.
    """
    reset_key, noise_key, action_key, again_key = jax.random.split(key, 4)
    env_state, observation = env.reset(reset_key)
    noises, again = (noisy * normals(k, steps + 1, env.observation_size) for k in (noise_key, again_key))
    disturbances = normals(action_key, steps, env.action_size)
    draws = sensor.draw_many(key, steps, env.observation_size)

    def step(carry: tuple, x: tuple) -> tuple[tuple, tuple]:
        env_state, sensor_state, policy, truth, observed, running = carry
        normal, normal_again, disturbance, drawn = x
        executed = sensor.disturb(env, policy.action, disturbance)
        env_state, (observation, reward, terminated) = env.step(env_state, executed)
        sensor_state, next_observed = sensor.measure(sensor_state, observation, normal, drawn)
        after = policy_step(agent, learner, policy, next_observed)
        reward = jnp.where(running, reward, 0.0)  # after the end, rewards may be NaN
        again = agent.taken_for_state(learner, sensor(observation, normal_again))
        seen = (features(agent.config, policy.belief), features(agent.config, after.belief), again)
        kept = keep(env_state, Moment(truth, observed, policy, executed, next_observed))
        carry = (env_state, sensor_state, after, observation, next_observed, running & ~terminated)
        return carry, (kept, (reward, running, terminated), seen)

    sensor_state, observed = sensor.init(observation, noises[0])
    policy = policy_start(agent, learner, observed)
    start = (env_state, sensor_state, policy, observation, observed, jnp.array(True))
    _, (kept, happened, seen) = jax.lax.scan(step, start, (noises[1:], again[1:], disturbances, draws))
    values = [jax.vmap(lambda s: agent.value(learner, s))(states) for states in seen]
    return kept, Episode(*happened, *values)


def overestimation(episode: Episode, gamma: float) -> Float[Array, ""]:
    """Returns the mean of V(s_t) minus the return from s_t, over the first half of an episode.

    Beyond the last step the return is estimated by V itself, which has little weight after half an
    episode.
    """

    def back(after: Float[Array, ""], x: tuple) -> tuple[Float[Array, ""], Float[Array, ""]]:
        reward, terminated, value_after, last = x
        after = reward + gamma * jnp.where(terminated, 0.0, jnp.where(last, value_after, after))
        return after, after

    # An episode that ends without terminating was truncated by a time limit.
    last = jnp.append(~episode.running[1:], True)
    xs = (episode.reward, episode.terminated, episode.value_after, last)
    _, returns = jax.lax.scan(back, jnp.zeros(()), xs, reverse=True)
    counted = episode.running & (jnp.arange(len(returns)) < (len(returns) + 1) // 2)
    return jnp.sum(jnp.where(counted, episode.value - returns, 0.0)) / counted.sum()


def interval(std: Any, count: int) -> Any:
    """Returns half the width of the 95 % t interval of a mean over `count` numbers.

    `std` is their standard deviation, with `count` − 1 in the denominator.
    """
    from scipy.special import stdtrit

    return float(stdtrit(count - 1, 0.975)) * std / count**0.5


def value_noise_variance(agent: Agent, episode: Episode) -> Float[Array, ""]:
    """Returns the variance of γ V(s̃′) over the observation noise, averaged over the episode.

    This is the variance of a target that treats the observation s̃′ as the next state, as BNAF's
    does. NaN with a filter, whose belief depends on more than one observation, and with a sensor
    whose samples depend on more than the state.
    """
    if agent.config.belief.filter or agent.config.sensor.remembers:
        return jnp.full((), jnp.nan)
    half = jnp.square(agent.config.train.gamma * (episode.value_after - episode.value_again)) / 2
    return jnp.sum(jnp.where(episode.running, half, 0.0)) / episode.running.sum()


def judge(agent: Agent, episode: Episode) -> Float[Array, "three"]:
    """Returns an episode's return, overestimation and variance in one array."""
    over = overestimation(episode, agent.config.train.gamma)
    return jnp.stack([episode.reward.sum(), over, value_noise_variance(agent, episode)])


def summary(noisy: Float[Array, "episodes three"], clean: Float[Array, "episodes"]) -> dict[str, Float[Array, ""]]:
    """Returns the scores of a policy by name, as means over episodes.

    Args:
        noisy: What `judge` returns for each episode with observation noise.
        clean: The return of each episode without it.
    """
    returns, over, variance = noisy.T
    numbers = (returns.mean(), returns.std(), clean.mean(), over.mean(), variance.mean())
    return dict(zip(SCORES, numbers, strict=True))


def evaluate(
    agent: Agent,
    learner: Any,
    env: Environment,
    sensor: Noise,
    steps: int,
    episodes: int,
    key: Key[Array, ""],
    over_all: Callable[[Callable], Callable] = jax.vmap,
) -> dict[str, Float[Array, ""]]:
    """Returns the scores of a policy over `episodes` noisy episodes and the same without noise."""
    noisy = jnp.repeat(jnp.array([1.0, 0.0]), episodes)
    keys = jnp.tile(jax.random.split(key, episodes), 2)
    play = lambda k, n: judge(agent, rollout(agent, learner, env, sensor, steps, k, n)[1])  # noqa: E731
    judged = over_all(play)(keys, noisy)
    return summary(judged[:episodes], judged[episodes:, 0])
