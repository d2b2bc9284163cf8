"""How good the greedy policy is: episodes without exploration, under the observation noise and without it [choice]."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from moca.agents import Agent
from moca.envs.environment import Environment
from moca.envs.noise import Noise

SCORES = ("return_mean", "return_std", "return_noise_free")


def rollout(
    agent: Agent,
    learner: Any,
    env: Environment,
    noise: Noise,
    decisions: int,
    key: Key[Array, ""],
    noisy: Float[Array, ""] | float = 1.0,
    keep: Callable[[Any], Any] = lambda env_state: (),
) -> tuple[Any, Float[Array, "decisions"]]:
    """One greedy episode: what `keep` picks from each state, and the rewards, zero after the end.

    What the agent sees is noisy if `noisy` is one, exact if zero; a filter goes on expecting noise.
    """
    reset_key, noise_key = jax.random.split(key)
    env_state, observation = env.reset(reset_key)
    normals = noisy * jax.random.normal(noise_key, (decisions + 1, env.observation_size))

    def step(carry: tuple, normal: Float[Array, "obs"]) -> tuple[tuple, tuple]:
        env_state, belief, running = carry
        action = agent.greedy(learner, belief.mean)
        env_state, (observation, reward, terminated) = env.step(env_state, action)
        belief, _ = agent.track(learner, belief, action, noise(observation, normal))
        reward = jnp.where(running, reward, 0.0)  # after the end it may be nan
        return (env_state, belief, running & ~terminated), (keep(env_state), reward)

    start = (env_state, agent.observe(learner, noise(observation, normals[0])), jnp.array(True))
    return jax.lax.scan(step, start, normals[1:])[1]


def evaluate(
    agent: Agent,
    learner: Any,
    env: Environment,
    noise: Noise,
    decisions: int,
    episodes: int,
    key: Key[Array, ""],
    over_all: Callable[[Callable], Callable] = jax.vmap,
) -> dict[str, Float[Array, ""]]:
    """Mean and spread of the return over `episodes` noisy episodes, and the mean over the same ones without noise."""
    noisy = jnp.repeat(jnp.array([1.0, 0.0]), episodes)
    keys = jnp.tile(jax.random.split(key, episodes), 2)
    returns = over_all(lambda k, n: rollout(agent, learner, env, noise, decisions, k, n)[1].sum())(keys, noisy)
    seen, clean = returns[:episodes], returns[episodes:]
    return dict(zip(SCORES, (seen.mean(), seen.std(), clean.mean()), strict=True))
