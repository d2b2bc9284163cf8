"""Plays a policy of the zoo in its environment, and compares its score with the card's."""

import copy
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, Key

from moca.config import Config, ConfigError
from moca.deploy import Policy
from moca.drivers import make_env
from moca.envs.environment import Environment
from moca.envs.sensors import make_sensor
from moca.evaluation import interval
from moca.exploration import normals
from moca.loop import agent_steps
from moca.runs.film import unfilmed

LEAST = 1e-3  # share of a score that rounding may change; some policies score the same in all episodes


class Played(NamedTuple):
    """Greedy episodes of policies, and what a film needs of the first."""

    rewards: Float[np.ndarray, "policies episodes steps"]  # zero after the end
    states: Any  # of the physics, with a leading axis over the steps; None unless asked for
    env: Environment

    @property
    def returns(self) -> Float[np.ndarray, "policies episodes"]:
        """The return of each episode."""
        return self.rewards.sum(axis=-1)


class _Playing(NamedTuple):
    """A running episode."""

    state: Any
    sensor: Any
    measured: Array
    reward: Array
    terminated: Array


def play(policies: Sequence[Policy], config: Config, episodes: int, seed: int, filmed: bool = False) -> Played:
    """Returns greedy episodes: those that `moca evaluate DIR --seed SEED` plays, with the noise.

    The environment of all episodes is one compiled program, the policies are NumPy.

    Args:
        policies: Exported policies, all in the same episodes.
        config: Settings of the environment and the sensor.
        episodes: Number of episodes of each.
        seed: Seed of the episodes.
        filmed: If True, returns the states of the first episode.
    """
    env, steps = make_env(config), agent_steps(config)
    if not isinstance(env, Environment):
        raise ConfigError(f"the zoo plays compiled environments, but {config.env.name} is stepped on the host")
    if filmed and (why := unfilmed(env)):
        raise ConfigError(why)
    for policy in policies:
        _refuse_other(policy, config, env)
    sensor = make_sensor(config, env)

    def begin(key: Key[Array, ""]) -> tuple[_Playing, Any]:
        reset_key, noise_key, action_key, _ = jax.random.split(key, 4)
        state, observation = env.reset(reset_key)
        noises = normals(noise_key, steps + 1, env.observation_size)
        disturbances = normals(action_key, steps, env.action_size)
        memory, measured = sensor.init(observation, noises[0])
        drawn = sensor.draw_many(key, steps, env.observation_size)
        nothing = jax.numpy.zeros(())
        return _Playing(state, memory, measured, nothing, nothing > 0), (noises[1:], disturbances, drawn)

    def step(playing: _Playing, drawn: Any, time: Array, action: Array) -> _Playing:
        normal, disturbance, draws = jax.tree.map(lambda leaf: leaf[time], drawn)
        executed = sensor.disturb(env, action, disturbance)
        state, (observation, reward, terminated) = env.step(playing.state, executed)
        memory, measured = sensor.measure(playing.sensor, observation, normal, draws)
        return _Playing(state, memory, measured, reward, terminated)

    follow = jax.jit(jax.vmap(step, (0, 0, None, 0)))
    keys = jax.numpy.tile(jax.random.split(jax.random.key(seed), episodes), len(policies))
    playing, drawn = jax.jit(jax.vmap(begin))(keys)
    players = [copy.copy(policy) for policy in policies for _ in range(episodes)]  # each with its own belief
    for player in players:
        player.reset()
    rewards, states = np.zeros((len(players), steps)), []
    running = np.ones(len(players), bool)
    actions = np.zeros((len(players), env.action_size), np.float32)
    for time in range(steps):
        _decide(players, np.asarray(playing.measured), running, actions, time)
        playing = follow(playing, drawn, time, actions)
        if filmed:
            states.append(jax.device_get(jax.tree.map(lambda leaf: leaf[0], playing.state.data)))
        rewards[:, time] = np.where(running, playing.reward, 0.0)
        running = running & ~np.asarray(playing.terminated)
        if not running.any():
            break
    shown = SimpleNamespace(data=jax.tree.map(lambda *leaves: np.stack(leaves), *states)) if filmed else None
    return Played(rewards.reshape(len(policies), episodes, steps), shown, env)


def _decide(players: list[Policy], measured: np.ndarray, running: np.ndarray, actions: np.ndarray, time: int) -> None:
    """Writes the action of each policy whose episode is running."""
    try:
        for number in np.flatnonzero(running):
            actions[number] = players[number](measured[number])
    except ValueError as error:
        raise ConfigError(f"the policy has no action for decision {time + 1} of an episode: {error}") from None


def _refuse_other(policy: Policy, config: Config, env: Environment) -> None:
    """Raises unless the policy fits the environment."""
    facts = policy.facts
    ours = (env.measured_size, len(env.action_low), config.env.action_repeat)
    theirs = (facts["observation_size"], len(policy.action_low), facts["action_repeat"])
    if ours != theirs:
        names = ("observations", "actions", "action repeat")
        told = ", ".join(f"{name} {a} instead of {b}" for name, a, b in zip(names, theirs, ours, strict=True) if a != b)
        raise ConfigError(f"the policy does not fit {config.env.name}: {told}")


def score(returns: np.ndarray) -> dict[str, float]:
    """Returns mean, half the width of its 95 % t interval, standard deviation and minimum."""
    count = len(returns)
    std = float(returns.std(ddof=1)) if count > 1 else float("inf")
    half = interval(std, count) if count > 1 else float("inf")
    return {"mean": float(returns.mean()), "interval": half, "std": std, "min": float(returns.min())}


def difference(found: dict[str, float], expected: dict[str, float]) -> tuple[float, float]:
    """Returns how far a score is from the expected one, and half its 95 % interval."""
    most = max(float(np.hypot(found["interval"], expected["interval"])), LEAST * abs(expected["mean"]))
    return found["mean"] - expected["mean"], most
