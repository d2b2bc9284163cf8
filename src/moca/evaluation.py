"""How good the greedy policy is: episodes without exploration, under the observation noise and without it [choice]."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from moca.agents import Agent
from moca.envs.environment import Environment
from moca.envs.noise import Noise


def episode_return(
    agent: Agent,
    state: object,
    env: Environment,
    noise: Noise,
    decisions: int,
    key: Key[Array, ""],
    noisy: Float[Array, ""],
) -> Float[Array, ""]:
    """Undiscounted return of one greedy episode; what the agent sees is noisy if `noisy` is one, exact if zero."""
    reset_key, noise_key = jax.random.split(key)
    env_state, observation = env.reset(reset_key)

    def step(carry: tuple, normal: Float[Array, "obs"]) -> tuple[tuple, None]:
        env_state, observation, total, running = carry
        seen = noise(observation, noisy * normal)
        env_state, step = env.step(env_state, agent.greedy(state, seen))
        total += jnp.where(running > 0, step.reward, 0.0)  # a reward after the end may be nan
        running *= 1 - step.terminated
        return (env_state, step.observation, total, running), None

    start = (env_state, observation, jnp.zeros(()), jnp.ones(()))
    (_, _, total, _), _ = jax.lax.scan(step, start, jax.random.normal(noise_key, (decisions, env.observation_size)))
    return total


def evaluate(
    agent: Agent, state: object, env: Environment, noise: Noise, decisions: int, episodes: int, key: Key[Array, ""]
) -> dict[str, Float[Array, ""]]:
    """Mean and spread of the return over `episodes` noisy episodes, and the mean over the same ones without noise."""
    noisy = jnp.repeat(jnp.array([1.0, 0.0]), episodes)
    keys = jnp.tile(jax.random.split(key, episodes), 2)
    returns = jax.vmap(lambda k, n: episode_return(agent, state, env, noise, decisions, k, n))(keys, noisy)
    seen, clean = returns[:episodes], returns[episodes:]
    return {"return_mean": seen.mean(), "return_std": seen.std(), "return_noise_free": clean.mean()}
