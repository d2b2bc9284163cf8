"""Measures how well the paper's fixed RBF bases can represent a good value.

    python results/representation/run.py

Least squares, then the greedy policy by the true model. Without arguments both tasks; writes
summary.json, and ../mechanism/exact-value.npz.

The bases are the printed ones (App. B): centres uniform within the printed bounds, one printed
lengthscale per dimension, no constant; M = 128 and 256 as printed, and 1,024. Nothing here is
learned by trial and no observation is noisy, so that the class of functions alone is responsible
for what the policy loses. Fits minimise the mean square error plus `ridge` times the sum of squared
weights. `updates` is the largest weight over the printed rate of 1e-4, which is about what Adam
moves a weight in one update, so it needs at least about that many.

Pendulum: the optimal value on a fine grid of angle and velocity, by modified policy iteration with
the environment's own dynamics written out (checked against the environment to 1e-5); fitted over
the plane, |velocity| ≤ 8.

Cartpole: the value of the Riccati controller of the linearised, discounted problem (with the true
reward's curvature at upright), computed by rollouts of the true model from each state; fitted on
states within 0.5 rad of upright that the controller visits under the exploration of `raw`, without
or with as many states of poles that fall or have fallen; and on states so close to upright that the
value is smooth there, which is as easy as it can be made.
"""

import argparse
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.sparse import csr_matrix

from moca import presets
from moca.devices import use_device
from moca.envs.playground import Playground
from moca.paper import tasks
from moca.values import make_value

HERE = Path(__file__).parent
ANGLES, VELOCITIES, _ = tasks.plane()
GAMMA, RATE, EPISODES, LENGTH = 0.99, 1e-4, 20, 1000
BASES, RIDGES, DRAWS = (128, 256, 1024), (1e-6, 1e-4, 1e-2), range(4)
ACTIONS = np.linspace(-1, 1, 21)


# The bases


def bases(task: str, count: int, draw: int) -> tuple[np.ndarray, np.ndarray]:
    """Centres and precision as the preset `paper` draws them."""
    value: Any = make_value(
        presets.build("paper", task, {"value.bases": count}).value, {"PendulumSwingup": 3, "CartpoleBalance": 5}[task],
        jax.random.key(draw),
    )  # fmt: skip
    return np.asarray(value.centers), np.asarray(value.precision)


def features(states: Any, centres: Any, precision: Any) -> Any:
    """exp(−½ (s − c)ᵀ Λ (s − c)) for every state and centre."""
    root = jnp.sqrt(precision)
    a, b = jnp.asarray(states) * root, jnp.asarray(centres) * root
    square = jnp.sum(a**2, -1)[..., None] + jnp.sum(b**2, -1) - 2 * jnp.matmul(a, b.T, precision="highest")
    return jnp.exp(-square / 2)


def fit(
    states: np.ndarray, target: np.ndarray, task: str, count: int, draw: int, ridges: tuple[float, ...] = RIDGES
) -> list[dict[str, Any]]:
    """A least-squares fit for each ridge, in double precision."""
    centres, precision = bases(task, count, draw)
    phi = np.asarray(features(states, centres, precision), np.float64)
    gram, right = phi.T @ phi / len(phi), phi.T @ target / len(phi)
    fits = []
    for ridge in ridges:
        weights = np.linalg.solve(gram + ridge * np.eye(count), right)
        error = phi @ weights - target
        fits.append({"bases": count, "draw": draw, "ridge": ridge, "weights": weights, "error": error,
                     "centres": centres, "precision": precision})  # fmt: skip
    return fits


def row(found: dict[str, Any], returns: np.ndarray, **more: Any) -> dict[str, Any]:
    largest = float(np.abs(found["weights"]).max())
    return {**{k: found[k] for k in ("bases", "draw", "ridge")}, **more, "largest_weight": round(largest, 1),
            "updates": round(largest / RATE), "return_mean": round(float(returns.mean()), 1),
            "return_std": round(float(returns.std()), 1)}  # fmt: skip


def episodes(env: Playground, act: Callable[[Any, jax.Array], jax.Array]) -> Callable[..., jax.Array]:
    """A compiled function: returns of `act(parameters, …)` over the environment's resets."""

    def one(parameters: Any, key: jax.Array) -> jax.Array:
        state, observation = env.reset(key)

        def step(carry: tuple, _: None) -> tuple[tuple, jax.Array]:
            state, observation = carry
            state, result = env.step(state, act(parameters, (state, observation))[None])
            return (state, result.observation), result.reward

        return jax.lax.scan(step, (state, observation), None, LENGTH)[1].sum()

    keys = jax.vmap(jax.random.key)(jnp.arange(EPISODES))
    return jax.jit(lambda parameters: jax.vmap(one, (None, 0))(parameters, keys))


# Pendulum

PENDULUM = Playground("PendulumSwingup")
_MODEL = PENDULUM.env.mj_model
_BODY = _MODEL.body("pole")
TURN = float(-_MODEL.opt.gravity[2] * _BODY.mass[0] * _BODY.ipos[2])  # torque of gravity at a right angle
INERTIA = float(_BODY.inertia[1] + _BODY.mass[0] * _BODY.ipos[2] ** 2)
DAMPING, TICK, BOUND = float(_MODEL.dof_damping[0]), float(_MODEL.opt.timestep), math.cos(math.radians(8))


def swing(angle: Any, velocity: Any, action: Any, xp: Any = np) -> tuple[Any, Any, Any]:
    """Observed angle and velocity after one step (0.02 s), and the reward.

    The simulator observes an angle before the last of its two ticks moves it, and a velocity after
    it: the position lies one tick of that velocity further.
    """
    position = angle + TICK * velocity
    for _ in range(2):
        seen = position
        velocity = velocity + TICK * (TURN * xp.sin(position) + action - DAMPING * velocity) / INERTIA
        position = position + TICK * velocity
    return seen, velocity, xp.where(xp.cos(seen) >= BOUND, 1.0, 0.0)


def check_swing() -> float:
    """The largest difference between `swing` and the environment, at random states and actions."""
    rng = np.random.default_rng(0)
    angle, velocity, action = rng.uniform([[-np.pi], [-9], [-1]], [[np.pi], [9], [1]], (3, 512))
    state, _ = PENDULUM.reset(jax.random.key(0))

    def one(angle: Any, velocity: Any, action: Any) -> Any:
        data = state.data.replace(qpos=(angle + TICK * velocity)[None], qvel=velocity[None])
        step = PENDULUM.step(state.replace(data=data), action[None])[1]
        return step.observation, step.reward

    seen, reward = jax.vmap(one)(*(jnp.asarray(x, jnp.float32) for x in (angle, velocity, action)))
    a, v, r = swing(angle, velocity, action)
    inside = np.abs(np.cos(a) - BOUND) > 1e-5
    assert np.array_equal(np.asarray(reward)[inside], r[inside])
    return float(np.abs(np.stack([np.sin(a), np.cos(a), v], 1) - np.asarray(seen)).max())


class Grid:
    """A plane of angle (periodic) and velocity, with linear interpolation."""

    def __init__(self, angles: int, velocities: int, fastest: float = 12.0) -> None:
        self.shape, self.fastest = (angles, velocities), fastest
        self.angle = np.linspace(-np.pi, np.pi, angles, endpoint=False)
        self.velocity = np.linspace(-fastest, fastest, velocities)

    def corners(self, angle: Any, velocity: Any, xp: Any = np) -> tuple[Any, Any]:
        """The numbers of the four points around each state, and their weights."""
        n, m = self.shape
        i = (angle + xp.pi) / (2 * xp.pi) * n
        j = xp.clip((velocity + self.fastest) / (2 * self.fastest) * (m - 1), 0, m - 1 - 1e-4)
        low_i, low_j = xp.floor(i), xp.floor(j)
        u, w = i - low_i, j - low_j
        a, b = low_i.astype(int) % n, low_j.astype(int)
        c = (a + 1) % n
        points = xp.stack([a * m + b, a * m + b + 1, c * m + b, c * m + b + 1], -1)
        return points, xp.stack([(1 - u) * (1 - w), (1 - u) * w, u * (1 - w), u * w], -1)


def solve_pendulum(grid: Grid, guess: tuple[Grid, np.ndarray] | None = None) -> tuple[np.ndarray, float]:
    """The optimal value at the grid's points, and the largest Bellman residual that is left.

    It starts from `guess`, the value on a coarser grid.
    """
    angle, velocity = (x.ravel() for x in np.meshgrid(grid.angle, grid.velocity, indexing="ij"))
    size = len(angle)
    torques = np.linspace(-1, 1, 5)
    rewards, moves = [], []
    for torque in torques:
        seen, speed, reward = swing(angle, velocity, torque)
        points, weights = grid.corners(seen, speed)
        rewards.append(reward)
        moves.append(csr_matrix((weights.ravel(), points.ravel(), 4 * np.arange(size + 1)), (size, size)))
    value = np.zeros(size)
    if guess:
        points, weights = guess[0].corners(angle, velocity)
        value = np.sum(guess[1][points] * weights, -1)
    for number in range(1000):  # many, since what a policy gains spreads by one step in each
        q = np.stack([reward + GAMMA * (move @ value) for reward, move in zip(rewards, moves, strict=True)])
        best, new = q.argmax(0), q.max(0)
        residual, value = float(np.abs(new - value).max()), new
        if number % 50 == 0:
            print(f"pendulum: sweep {number}, residual {residual:.2g}", flush=True)
        if residual < 1e-4:
            break
        points, weights, reward = np.empty((size, 4), int), np.empty((size, 4)), np.choose(best, rewards)
        for k, move in enumerate(moves):
            chosen = best == k
            points[chosen], weights[chosen] = (x.reshape(size, 4)[chosen] for x in (move.indices, move.data))
        follow = csr_matrix((weights.ravel(), points.ravel(), 4 * np.arange(size + 1)), (size, size))
        for _ in range(8):
            value = reward + GAMMA * (follow @ value)
    return value, residual


def pendulum() -> dict[str, Any]:
    worst = check_swing()
    assert worst < 1e-5, worst
    coarse, grid = Grid(180, 301), Grid(540, 1001)
    value, residual = solve_pendulum(grid, (coarse, solve_pendulum(coarse)[0]))
    held = jnp.asarray(value, jnp.float32)

    def look(after: Callable, observation: Any) -> Any:
        """The best action one step ahead; of equals the middle one.

        `after` returns V of many (angle, velocity).
        """
        angle, velocity = jnp.arctan2(observation[0], observation[1]), observation[2]
        seen, speed, reward = swing(angle, velocity, jnp.asarray(ACTIONS, jnp.float32), jnp)
        q = reward + GAMMA * after(seen, speed)
        return jnp.asarray(ACTIONS, jnp.float32)[jnp.argmax(q - 1e-6 * ACTIONS**2)]

    def on_grid(value: Any) -> Callable:
        def after(seen: Any, speed: Any) -> Any:
            points, weights = grid.corners(seen, speed, jnp)
            return jnp.sum(value[points] * weights, -1)

        return after

    def on_bases(found: tuple) -> Callable:
        weights, centres, precision = found
        return lambda seen, speed: (
            features(jnp.stack([jnp.sin(seen), jnp.cos(seen), speed], -1), centres, precision) @ weights
        )

    exact = np.asarray(episodes(PENDULUM, lambda v, x: look(on_grid(v), x[1]))(held))
    print(f"pendulum: exact value, greedy: {exact.mean():.0f} ± {exact.std():.0f}", flush=True)

    angle, velocity = np.meshgrid(ANGLES, VELOCITIES, indexing="ij")
    plane = np.stack([np.sin(angle), np.cos(angle), velocity], -1).reshape(-1, 3).astype(np.float32)
    points, weights = grid.corners(angle, velocity)
    actions = jax.jit(jax.vmap(lambda o: look(on_grid(held), o)))(plane)
    np.savez_compressed(
        HERE.parent / "mechanism" / "exact-value.npz", angle=ANGLES, velocity=VELOCITIES,
        value=np.sum(value[points] * weights, -1).astype(np.float32),
        action=np.asarray(actions, np.float32).reshape(angle.shape),
    )  # fmt: skip

    angle, velocity = (
        x.ravel()
        for x in np.meshgrid(np.linspace(-np.pi, np.pi, 180, endpoint=False), np.linspace(-8, 8, 129), indexing="ij")
    )
    points, weights = grid.corners(angle, velocity)
    target = np.sum(value[points] * weights, -1)
    states = np.stack([np.sin(angle), np.cos(angle), velocity], -1)
    play = episodes(PENDULUM, lambda found, x: look(on_bases(found), x[1]))
    rows = []
    for count in BASES:
        for draw in DRAWS:
            for found in fit(states, target, "PendulumSwingup", count, draw):
                returns = np.asarray(
                    play(tuple(jnp.asarray(found[k], jnp.float32) for k in ("weights", "centres", "precision")))
                )
                rmse = float(np.sqrt(np.mean(found["error"] ** 2)))
                rows.append(row(found, returns, rmse=round(rmse, 3)))
                print("pendulum:", rows[-1], flush=True)
    return {"formula_error": worst, "bellman_residual": residual, "largest_value": round(float(value.max()), 2),
            "exact": {"return_mean": round(float(exact.mean()), 1), "return_std": round(float(exact.std()), 1)},
            "fits": rows}  # fmt: skip


# Cartpole

CARTPOLE = Playground("CartpoleBalance")
STEP = float(CARTPOLE.env.mj_model.opt.timestep)
# Curvatures of 1 − reward at upright: x and θ̇ by the Gaussian of `tolerance` (0.1 at a margin of 2
# or 5), half of it each; θ by its cosine; the action by a fifth of its square.
COSTS = np.diag([math.log(10) / 2 / 4, 1 / 4, 0.0, math.log(10) / 2 / 25])
EFFORT = 1 / 5
CLOSE = (0.3, 0.1, 0.4, 0.4)  # deviations of the states closest to upright
SETS = {"close": slice(0, 8000), "near": slice(8000, 16000), "near and fallen": slice(8000, 24000)}


def place(state: Any, x: Any) -> Any:
    """The environment's state for observed (x, θ, ẋ, θ̇); θ is observed one tick late."""
    position = jnp.stack([x[0], x[1] + STEP * x[3]])
    return state.replace(data=state.data.replace(qpos=position, qvel=x[2:]))


def coordinates(observation: Any) -> Any:
    x, cosine, sine, speed, turn = observation
    return jnp.stack([x, jnp.arctan2(sine, cosine), speed, turn])


def riccati() -> tuple[np.ndarray, float]:
    """Gains of the linearised, discounted problem, and the last change of its cost matrix.

    Gains are in half ranges per unit.
    """
    start, _ = CARTPOLE.reset(jax.random.key(0))
    after = jax.jit(lambda x, a: coordinates(CARTPOLE.step(place(start, x), a[None])[1].observation))
    step, zero = 1e-2, np.zeros(4, np.float32)
    central = lambda x, a: (np.asarray(after(x, np.float32(a))) - np.asarray(after(-x, np.float32(-a)))) / 2 / step  # noqa: E731
    A = np.stack([central(step * e, 0.0) for e in np.eye(4, dtype=np.float32)], 1).astype(np.float64)
    B = central(zero, step).astype(np.float64)[:, None]
    P = np.zeros((4, 4))
    for _ in range(20_000):  # cost of (s, a): EFFORT a² + s′ᵀ COSTS s′, as the reward is that of the next state
        ahead = COSTS + GAMMA * P
        gain = B.T @ ahead @ A / (EFFORT + B.T @ ahead @ B)
        new = gain.T * EFFORT @ gain + (A - B @ gain).T @ ahead @ (A - B @ gain)
        change, P = np.abs(new - P).max(), new
        if change < 1e-12:
            break
    return -gain[0], float(change)


def cartpole() -> dict[str, Any]:
    gains, left = riccati()
    print("cartpole: Riccati gains", gains.round(3), flush=True)
    linear = lambda observation: jnp.clip(jnp.dot(jnp.asarray(gains, jnp.float32), coordinates(observation)), -1, 1)  # noqa: E731
    control = np.asarray(episodes(CARTPOLE, lambda _, x: linear(x[1]))(0))
    print(f"cartpole: Riccati controller {control.mean():.1f}", flush=True)

    def wander(share: float, key: jax.Array) -> jax.Array:
        """Coordinates visited in an episode of the controller.

        For a `share` of the time, extreme actions are held.
        """
        reset_key, choice_key, sign_key, hold_key = jax.random.split(key, 4)
        state, observation = CARTPOLE.reset(reset_key)
        anew = jax.random.uniform(hold_key, (LENGTH,)) * 20 < 1
        since = jax.lax.cummax(jnp.where(anew, jnp.arange(LENGTH), 0))
        chosen = (jax.random.uniform(choice_key, (LENGTH,)) < share)[since]
        random = jnp.where(jax.random.uniform(sign_key, (LENGTH,)) < 0.5, -1.0, 1.0)[since]

        def step(carry: tuple, x: tuple) -> tuple[tuple, jax.Array]:
            state, observation = carry
            action = jnp.where(x[0], x[1], linear(observation))
            state, result = CARTPOLE.step(state, action[None])
            return (state, result.observation), coordinates(observation)

        return jax.lax.scan(step, (state, observation), (chosen, random))[1]

    start, _ = CARTPOLE.reset(jax.random.key(0))

    def worth(x: jax.Array) -> jax.Array:
        """The controller's discounted return from (x, θ, ẋ, θ̇).

        Beyond 800 steps every reward is taken to be the last one.
        """

        def step(carry: tuple, weight: jax.Array) -> tuple[tuple, jax.Array]:
            state, observation, _ = carry
            state, result = CARTPOLE.step(state, linear(observation)[None])
            return (state, result.observation, result.reward), weight * result.reward

        seen = jnp.stack([x[0], jnp.cos(x[1]), jnp.sin(x[1]), x[2], x[3]])
        (_, _, last), rewards = jax.lax.scan(step, (place(start, x), seen, 0.0), GAMMA ** jnp.arange(800))
        return rewards.sum() + GAMMA**800 * last / (1 - GAMMA)

    rng = np.random.default_rng(0)
    visit = jax.jit(jax.vmap(lambda share, key: wander(share, key)))
    keys = jax.random.split(jax.random.key(1), 120)
    visited = np.asarray(visit(jnp.repeat(jnp.array([0.2, 1.0]), 60), keys))
    upright = np.abs(visited[..., 1]) < 0.5
    near = rng.choice(visited[:60][upright[:60]], 8000, replace=False)
    fallen = rng.choice(visited[~upright], 8000, replace=False)
    close = (rng.standard_normal((8000, 4)) * CLOSE).astype(np.float32)
    judged = jax.jit(jax.vmap(worth))
    value = np.concatenate([np.asarray(judged(each), np.float64) for each in (close, near, fallen)])
    x = np.concatenate([close, near, fallen])
    seen = np.stack([x[:, 0], np.cos(x[:, 1]), np.sin(x[:, 1]), x[:, 2], x[:, 3]], 1)
    print(
        f"cartpole: values {value.min():.1f} to {value.max():.1f}, by set {value.reshape(3, -1).mean(1).round(1)}",
        flush=True,
    )

    def greedy(found: tuple, at: tuple) -> Any:
        weights, centres, precision = found
        actions = jnp.asarray(ACTIONS, jnp.float32)
        result = jax.vmap(lambda a: CARTPOLE.step(at[0], a[None])[1])(actions)
        return actions[jnp.argmax(result.reward + GAMMA * (features(result.observation, centres, precision) @ weights))]

    play = episodes(CARTPOLE, greedy)
    rows = []
    for name, used in SETS.items():
        for count in BASES:
            for draw in DRAWS:
                for found in fit(seen[used], value[used], "CartpoleBalance", count, draw, (1e-8, *RIDGES)):
                    returns = np.asarray(
                        play(tuple(jnp.asarray(found[k], jnp.float32) for k in ("weights", "centres", "precision")))
                    )
                    rmse = float(np.sqrt(np.mean(found["error"][:8000] ** 2)))
                    rows.append(row(found, returns, states=name, rmse=round(rmse, 3)))
                    print("cartpole:", rows[-1], flush=True)
    return {"gains": gains.round(4).tolist(), "riccati_change": left,
            "controller": {"return_mean": round(float(control.mean()), 1),
                           "return_std": round(float(control.std()), 1)},
            "fits": rows}  # fmt: skip


def summarised(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Medians over the draws of each M and ridge (and set of states), and the range of returns."""
    groups: dict[tuple, list] = {}
    for each in rows:
        groups.setdefault((each.get("states", "plane"), each["bases"], each["ridge"]), []).append(each)
    return [
        {"states": states, "bases": count, "ridge": ridge,
         "rmse": round(float(np.median([e["rmse"] for e in group])), 3),
         "largest_weight": round(float(np.median([e["largest_weight"] for e in group]))),
         "updates": round(float(np.median([e["updates"] for e in group]))),
         "return_median": round(float(np.median([e["return_mean"] for e in group]))),
         "return_range": [round(min(e["return_mean"] for e in group)), round(max(e["return_mean"] for e in group))]}
        for (states, count, ridge), group in groups.items()
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", help="pendulum, cartpole (default: both)")
    use_device(None)
    path = HERE / "summary.json"
    summary = json.loads(path.read_text()) if path.exists() else {}
    for task in parser.parse_args().tasks or ("pendulum", "cartpole"):
        found = {"pendulum": pendulum, "cartpole": cartpole}[task]()
        summary[task] = {**found, "fits": summarised(found["fits"])}
        path.write_text(json.dumps(summary, indent=1) + "\n")
        for each in summary[task]["fits"]:
            print(each)


if __name__ == "__main__":
    main()
