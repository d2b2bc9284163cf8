"""Returns of simple controllers on the raw, noisy observation: the bar for learning agents.

    python results/controllers/run.py       # writes summary.json

100 episodes each, from the environment's own resets; noise is Gaussian of deviation σ on every
observed number.

Cartpole: an action linear in (x, θ, ẋ, θ̇), clipped. The first gains were found by a search at σ =
0.05, the second solve the linearised problem without noise (results/representation). Pendulum: the
energy is pumped up to that of the upright position, and a spring and damper catch the pole there;
these gains were written down, not searched.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from moca.devices import use_device
from moca.envs.playground import Playground

HERE = Path(__file__).parent
LEVELS, EPISODES = (0.0, 0.025, 0.05, 0.1), 100
SEARCHED, RICCATI = (0.11, 1.87, 0.34, 0.88), (0.651, 5.029, 0.713, 1.402)


def linear(gains: tuple[float, ...]) -> Callable[[jax.Array], jax.Array]:
    def act(observation: jax.Array) -> jax.Array:
        x, cosine, sine, speed, turn = observation
        return jnp.dot(jnp.array(gains), jnp.stack([x, jnp.arctan2(sine, cosine), speed, turn]))

    return act


def nothing(observation: jax.Array) -> jax.Array:
    return jnp.zeros(())


def swing_and_catch(observation: jax.Array) -> jax.Array:
    """Torque along the velocity while the energy is below that of the upright position.

    Gravity's torque is 4.905 N m, the inertia 0.251 kg m².
    """
    sine, cosine, velocity = observation
    angle = jnp.arctan2(sine, cosine)
    energy = 0.251 * velocity**2 / 2 + 4.905 * (cosine - 1)
    pump = jnp.where(energy < 0, 1.0, -1.0) * jnp.where(velocity >= 0, 1.0, -1.0)
    return jnp.where(jnp.abs(angle) < 0.3, -12 * angle - 2.5 * velocity, pump)


CONTROLLERS: dict[str, dict[str, Callable]] = {
    "CartpoleBalance": {"linear, searched": linear(SEARCHED), "linear, Riccati": linear(RICCATI), "nothing": nothing},
    "PendulumSwingup": {"swing and catch": swing_and_catch, "nothing": nothing},
}


def returns(env: Playground, act: Callable[[jax.Array], jax.Array]) -> np.ndarray:
    """The return of every level and episode."""

    def one(key: Any, sigma: Any) -> jax.Array:
        reset_key, noise_key = jax.random.split(key)
        state, observation = env.reset(reset_key)
        normals = sigma * jax.random.normal(noise_key, (1000, env.observation_size))

        def step(carry: tuple, normal: jax.Array) -> tuple[tuple, jax.Array]:
            state, observation = carry
            state, result = env.step(state, jnp.clip(act(observation + normal), -1, 1)[None])
            return (state, result.observation), result.reward

        return jax.lax.scan(step, (state, observation), normals)[1].sum()

    keys = jax.random.split(jax.random.key(0), EPISODES)
    return np.asarray(jax.jit(jax.vmap(jax.vmap(one, (0, None)), (None, 0)))(keys, jnp.array(LEVELS)))


def main() -> None:
    use_device(None)
    summary: dict[str, Any] = {"episodes": EPISODES, "gains": {"searched": SEARCHED, "riccati": RICCATI}}
    for task, controllers in CONTROLLERS.items():
        env, summary[task] = Playground(task), {}
        for name, act in controllers.items():
            rows = {
                str(level): {"mean": round(float(each.mean()), 1), "std": round(float(each.std()), 1),
                             "least": round(float(each.min()), 1)}
                for level, each in zip(LEVELS, returns(env, act), strict=True)
            }  # fmt: skip
            summary[task][name] = rows
            print(task, name, {level: each["mean"] for level, each in rows.items()}, flush=True)
    (HERE / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")


if __name__ == "__main__":
    main()
