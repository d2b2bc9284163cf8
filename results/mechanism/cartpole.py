"""Tests why MoCA on Cartpole at σ = 0.05 has lower returns than a linear controller.

    python results/mechanism/cartpole.py train moca   # and bnaf: policies along training
    python results/mechanism/cartpole.py look         # judges them: cartpole.json beside it
    python results/mechanism/cartpole.py mend         # late policies, cart left to the controller
    python results/mechanism/cartpole.py optima       # the best linear policies of each world

The linear controller sees the same observations and has 996. `train` writes into runs/mechanism,
the others into cartpole.json. Preset `raw`, seeds 2000 to 2003, 100,000 steps, a policy kept every
2,000. In an earlier configuration the return passed 920 near 25,000 steps and settled at 860. All
returns below are over fresh episodes, not those by which a peak was found. *Peak* is a seed's
policy with the largest mean of three evaluations in a row, *late* its policies of the last tenth.

Written before the first run, each hypothesis with what it predicts and the number that refutes it:

H0  There is a drop: peak − late is at least 20 points on fresh episodes, in the mean over seeds.
    Refuted below 20; then only the distance of the late policies from 996 is left to explain.
H1  Late policies react too strongly to the noise: gains grow from peak to late and scaling them
    down recovers the return. Refuted if the late gain on angle and angular velocity (of μ̃,
    averaged over the noise at upright) is less than 1.1 times that at the peak, or if the best of
    the scales 0.25 and 0.5 adds less than 20 points to the late policies.
H2  The fixed point of a value that takes the observation for the state is itself this policy. Such
    a value plans in another world: the state is drawn again around each observation, so σ acts as a
    process noise of √2 σ = 0.07 per step. In that world late policies must be at least as good as
    those at the peak, though they are worse in the real one. Refuted if they are worse there by
    more than two standard errors over seeds; or if the best linear policy of that world has 960 or
    more in the real one, so that planning in the wrong world costs too little. That world is
    simulated twice: with the state anywhere around the observation (flat), and with the state drawn
    given the observation and the spread of the replay near upright (prior), which is what a model
    fitted to the replay sees.
H3  The data narrow: late replay holds few falls, so the value away from upright is forgotten.
    Refuted if at least 10 % of all transitions in the replay at the end have the pole more than 60°
    off, or if the late policies' episodes without a fall score as low as all of them (within 20
    points).
H4  The policy only jitters, because rates stay constant: the mean action of the last tenth's
    policies is then better than these policies are. Refuted if it is better by less than 20 points.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from moca import presets
from moca.agents import make_agent
from moca.critic import first
from moca.devices import use_device
from moca.drivers import ScanTrainer, make_env

SIGMA, STEPS, EVERY, SEEDS = 0.05, 100_000, 2_000, range(2000, 2004)
STRIDE = 2  # every so many of the kept policies are judged
KEPT = Path("runs/mechanism")
HERE = Path(__file__).parent
GOOD = np.array([0.11, 1.87, 0.34, 0.88])  # of x, θ, ẋ, θ̇: found by search on noisy observations
SCALES, WINDOWS, LONGEST = (0.25, 0.5, 1.0, 2.0), (1, 2, 4, 8), 8
MEASURED = ("return_mean", "return_noise_free", "overestimation", "curvature", "saturation", "train_return", "q_mean")


def config_of(agent: str) -> Any:
    settings = {"agent": agent, "noise.sigma": SIGMA, "train.steps": STEPS, "train.eval_every": EVERY // 1000}
    return presets.build("raw", "CartpoleBalance", settings)


def train(name: str) -> Path:
    """Policies, evaluations and the replay of all seeds."""
    use_device(None)
    config = config_of(name)
    trainer = ScanTrainer([config] * len(SEEDS), SEEDS)
    kept: list[list[np.ndarray]] = []
    metrics: dict[str, list] = {m: [] for m in MEASURED}
    for report in trainer:
        if report.step % EVERY:
            continue
        kept.append([np.asarray(leaf) for leaf in jax.tree.leaves(jax.vmap(first)(trainer.learners.critics))])
        for m in MEASURED:
            metrics[m].append(report.metrics[m])
        if report.step % 10_000 == 0:
            print(report.step, report.metrics["return_mean"].round(), flush=True)
    KEPT.mkdir(parents=True, exist_ok=True)
    path = KEPT / f"cartpole-{name}.npz"
    leaves = {f"leaf{i}": np.stack(each) for i, each in enumerate(zip(*kept, strict=True))}
    np.savez_compressed(path, replay=np.asarray(trainer.state.replay[:, :STEPS, :6]), **leaves, **metrics)
    return path


# Judging the policies

ENV: Any = None  # made when first needed, after the device is chosen
TICK = 0.01


def env() -> Any:
    global ENV
    ENV = ENV or make_env(config_of("moca"))
    return ENV


def load(name: str) -> tuple[Any, dict[str, np.ndarray]]:
    """The kept policies, with axes over time and seeds, and everything else."""
    agent = make_agent(config_of(name), env())
    shape = eqx.filter_eval_shape(lambda key: first(agent.init(key).critics), jax.random.key(0))
    with np.load(KEPT / f"cartpole-{name}.npz") as file:
        arrays = dict(file)
    leaves = [arrays.pop(f"leaf{i}") for i in range(len(jax.tree.leaves(shape)))]
    return jax.tree.unflatten(jax.tree.structure(shape), leaves), arrays


def vertex(critic: Any, observation: jax.Array) -> jax.Array:
    """μ̃, the action before it is clipped."""
    at = critic.slice(observation)
    return at.slope[0] / at.factor[0, 0] ** 2


def coordinates(observation: jax.Array) -> jax.Array:
    """(x, θ, ẋ, θ̇)."""
    x, cosine, sine, speed, turn = jnp.moveaxis(observation, -1, 0)
    return jnp.stack([x, jnp.arctan2(sine, cosine), speed, turn], -1)


def linear(gains: jax.Array, observation: jax.Array) -> jax.Array:
    return jnp.dot(gains, coordinates(observation))


def play(
    policy: Any, key: jax.Array, scale: Any = 1.0, weights: Any = None, sigma: Any = SIGMA
) -> dict[str, jax.Array]:
    """Plays an episode of clip(scale × policy(average of the last observations)).

    The observations are averaged by `weights`, the newest first.
    """
    reset_key, noise_key = jax.random.split(key)
    state, observation = env().reset(reset_key)
    normals = sigma * jax.random.normal(noise_key, (1001, 2, 5))
    weights = jnp.zeros(LONGEST).at[0].set(1.0) if weights is None else weights
    act = lambda buffer: jnp.clip(scale * policy(weights @ buffer), -1, 1)  # noqa: E731

    def step(carry: tuple, normal: jax.Array) -> tuple[tuple, tuple]:
        state, true, buffer = carry
        action, other = act(buffer), act(buffer.at[0].set(true + normal[1]))  # the second: had the noise been another
        state, result = env().step(state, action[None])
        parts = jnp.stack([state.metrics[f"reward/{p}"] for p in PARTS])
        buffer = jnp.concatenate([(result.observation + normal[0])[None], buffer[:-1]])
        return (state, result.observation, buffer), (result.reward, parts, action, other, result.observation)

    start = (state, observation, jnp.tile(observation + normals[0, 0], (LONGEST, 1)))
    _, (reward, parts, action, other, seen) = jax.lax.scan(step, start, normals[1:])
    return {
        "return": reward.sum(), "lost": (1 - parts).sum(0), "effort": jnp.mean(action**2),
        "clipped": jnp.mean(jnp.abs(action) >= 1), "reaction": jnp.sqrt(jnp.mean((action - other) ** 2) / 2),
        "fell": (seen[:, 1] < 0.5).any().astype(jnp.float32),
        "furthest": jnp.max(jnp.where(jnp.cumsum(seen[:, 1] < 0.5) > 0, 0.0, jnp.abs(seen[:, 0]))),
        "spread": jnp.sqrt(jnp.mean(coordinates(seen) ** 2, 0)),
    }  # fmt: skip


PARTS = ("upright", "centered", "small_control", "small_velocity")


def imagine(policy: Any, key: jax.Array, world: dict[str, Any]) -> jax.Array:
    """The return of an episode in a world that draws the state again around each observation."""
    reset_key, noise_key = jax.random.split(key)
    state, observation = env().reset(reset_key)
    normals = jax.random.normal(noise_key, (1001, 9))

    def step(carry: tuple, normal: jax.Array) -> tuple[tuple, jax.Array]:
        state, seen = carry
        action = jnp.clip(policy(seen), -1, 1)
        x = coordinates(seen)
        drawn = world["mean"] + world["gain"] @ (x - world["mean"]) + world["root"] @ normal[5:]
        x = jnp.where(jnp.abs(x[1]) < NEAR, drawn, x + SIGMA * normal[5:])
        position = jnp.stack([x[0], x[1] + TICK * x[3]])  # an angle is observed one tick late
        state = state.replace(data=state.data.replace(qpos=position, qvel=x[2:]))
        state, result = env().step(state, action[None])
        return (state, result.observation + SIGMA * normal[:5]), result.reward

    start = (state, observation + SIGMA * normals[0, :5])
    return jax.lax.scan(step, start, normals[1:])[1].sum()


NEAR = 0.5  # radians within which the prior is used
FLAT = {"mean": np.zeros(4), "gain": np.eye(4), "root": SIGMA * np.eye(4)}


def prior(replay: np.ndarray) -> dict[str, np.ndarray]:
    """The distribution of the state given an observation near upright.

    It comes from how states spread in the replay there, and is returned as a mean, a gain and a
    root of the covariance.
    """
    x = np.asarray(coordinates(jnp.asarray(replay.reshape(-1, replay.shape[-1])[:, :5])), np.float64)
    x = x[np.abs(x[:, 1]) < NEAR]
    seen = np.cov(x.T)
    size, axes = np.linalg.eigh(seen - SIGMA**2 * np.eye(4))
    state = axes * np.maximum(size, 1e-6) @ axes.T
    gain = state @ np.linalg.inv(seen)
    size, axes = np.linalg.eigh((lambda c: (c + c.T) / 2)(state - gain @ state))
    return {"mean": x.mean(0), "gain": gain, "root": axes * np.sqrt(np.maximum(size, 0))}


UPRIGHT = np.array([0.0, 1.0, 0.0, 0.0, 0.0], np.float32)


def gains_of(critic: Any, key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Slopes of μ̃ and of the clipped action over (x, cos, sin, ẋ, θ̇).

    They are averaged over the noise at upright.
    """
    points = UPRIGHT + SIGMA * jax.random.normal(key, (512, 5))
    slope = jax.vmap(jax.grad(lambda o: vertex(critic, o)))(points)
    free = jax.vmap(lambda o: jnp.abs(vertex(critic, o)) < 1)(points)
    return slope.mean(0), (slope * free[:, None]).mean(0)


MANY, TRIED = 48, 6  # gains judged at once, and the episodes each is judged by


def judging(world: Any) -> Any:
    """A compiled function: the mean return of each of MANY gains over TRIED keys.

    `world` returns that of gains and a key.
    """
    return jax.jit(lambda gains, keys: jax.vmap(lambda g: jax.vmap(lambda k: world(g, k))(keys).mean())(gains))


def search(judged: Any, key: jax.Array, rounds: int = 12) -> np.ndarray:
    """The best linear gains, all positive, by the cross-entropy method."""
    rng = np.random.default_rng(0)
    mean, deviation = np.log(GOOD), np.full(4, 0.8)
    for number in range(rounds):
        tried = mean + deviation * rng.standard_normal((MANY, 4))
        keys = jax.random.split(jax.random.fold_in(key, number), TRIED)
        scores = np.asarray(judged(jnp.asarray(np.exp(tried), jnp.float32), keys))
        best = tried[np.argsort(-scores)[:10]]
        mean, deviation = best.mean(0), best.std(0) + 0.02
    return np.exp(mean)


def mend(name: str, episodes: int = 10) -> dict[str, Any]:
    """Returns of the late policies when the linear controller holds the cart, or also the offset.

    Added after the first results, which had the gains of the pole right and the cart adrift. The
    network is shown a cart at rest in the middle, and the linear controller's terms in x and ẋ are
    added; then the value of μ̃ at upright, averaged over the noise, is subtracted too. "gains" only
    corrects the slopes of μ̃ in x and ẋ at upright.
    """
    critics, _ = load(name)
    keys = jax.random.split(jax.random.key(78), episodes)
    good, cart = jnp.asarray(GOOD, jnp.float32), jnp.array([1.0, 0.0, 1.0, 0.0])
    around = UPRIGHT + SIGMA * jax.random.normal(jax.random.key(5), (512, 5))

    def one(critic: Any) -> tuple[jax.Array, jax.Array]:
        act = lambda o: vertex(critic, o)  # noqa: E731
        offset = jax.vmap(act)(around).mean()
        own = gains_of(critic, jax.random.key(5))[0][jnp.array([0, 2, 3, 4])]
        hidden = lambda o: act(o.at[jnp.array([0, 3])].set(0.0)) + jnp.dot(cart * good, coordinates(o))  # noqa: E731
        policies = {
            "as they are": act,
            "gains": lambda o: act(o) + jnp.dot(cart * (good - own), coordinates(o)),
            "cart": hidden,
            "cart and offset": lambda o: hidden(o) - offset,
            "offset": lambda o: act(o) - offset,
        }
        choose = lambda number: lambda o: jax.lax.switch(number, list(policies.values()), o)  # noqa: E731
        returns = jax.lax.map(
            lambda number: jax.vmap(lambda k: play(choose(number), k)["return"])(keys).mean(), jnp.arange(len(policies))
        )
        return returns, offset

    judged = jax.jit(lambda critics: jax.lax.map(one, critics))
    late = [judged(jax.tree.map(lambda leaf, at=at: jnp.asarray(leaf[at]), critics)) for at in (-5, -3, -1)]
    table = np.mean([np.asarray(x, np.float64) for x, _ in late], axis=0).round(1).T.tolist()
    names = ("as they are", "gains", "cart", "cart and offset", "offset")
    offsets = np.stack([np.asarray(x, np.float64) for _, x in late]).round(3).T.tolist()
    return {**dict(zip(names, table, strict=True)), "offsets": offsets}


def judge(name: str, episodes: int = 10) -> dict[str, np.ndarray]:
    """Everything about every kept policy, with axes over time and seeds."""
    critics, arrays = load(name)
    variants = [(s, 1) for s in SCALES] + [(1.0, n) for n in WINDOWS[1:]]
    scales = jnp.array([s for s, _ in variants])
    weights = jnp.array([[1 / n] * n + [0.0] * (LONGEST - n) for _, n in variants])
    keys = jax.random.split(jax.random.key(77), episodes)
    per_seed = lambda f: jax.jit(jax.vmap(f))  # noqa: E731
    over = lambda f: jax.vmap(f)(keys)  # noqa: E731
    real = per_seed(
        lambda c: jax.vmap(lambda s, w: over(lambda k: play(lambda o: vertex(c, o), k, s, w)))(scales, weights)
    )
    clean = per_seed(lambda c: over(lambda k: play(lambda o: vertex(c, o), k, sigma=0.0)["return"]))
    worlds = [FLAT, prior(arrays["replay"][:, -20_000:])]
    stacked = jax.tree.map(lambda *x: jnp.asarray(np.stack(x), jnp.float32), *worlds)
    other = per_seed(lambda c: jax.vmap(lambda w: over(lambda k: imagine(lambda o: vertex(c, o), k, w)))(stacked))
    slopes = per_seed(lambda c: gains_of(c, jax.random.key(5)))
    found: dict[str, list] = {}
    for at in range(STRIDE - 1, len(arrays["return_mean"]), STRIDE):
        critic = jax.tree.map(lambda leaf, at=at: jnp.asarray(leaf[at]), critics)
        result = real(critic)
        row = {name: np.asarray(x)[:, 2] for name, x in result.items()}  # as it is: scale 1, the last observation
        row["variants"] = np.asarray(result["return"]).mean(-1)
        row["clean"], row["imagined"] = np.asarray(clean(critic)).mean(-1), np.asarray(other(critic)).mean(-1)
        row["gain"], row["gain_clipped"] = map(np.asarray, slopes(critic))
        for key, value in row.items():
            found.setdefault(key, []).append(value)
        if at % 10 < STRIDE:
            print(name, (at + 1) * EVERY, row["return"].mean(-1).round(), row["imagined"].mean(0).round(), flush=True)
    late = jax.tree.map(lambda leaf: jnp.asarray(np.moveaxis(leaf[-5:], 0, 1)), critics)  # seeds, policies
    together = per_seed(
        lambda several: over(
            lambda k: play(lambda o: jnp.clip(jax.vmap(lambda c: vertex(c, o))(several), -1, 1).mean(), k)["return"]
        )
    )
    out = {key: np.stack(value) for key, value in found.items()}
    out["together"] = np.asarray(together(late)).mean(-1)
    out["fallen"] = (arrays["replay"][..., 1].reshape(len(SEEDS), -1, STRIDE * EVERY) < 0.5).mean(-1).T
    return out | {m: arrays[m][STRIDE - 1 :: STRIDE] for m in MEASURED}


def peak_of(returns: np.ndarray) -> np.ndarray:
    """The place of the middle one of the best three evaluations in a row, for each seed."""
    means = (returns[:-2] + returns[1:-1] + returns[2:]) / 3
    return means.argmax(0) + 1


def digest(d: dict[str, np.ndarray]) -> dict[str, Any]:
    """Peak and late, by seed, and the means over seeds along training."""
    seeds, places = np.arange(len(SEEDS)), peak_of(d["return_mean"])
    at_peak = lambda x: x[places, seeds]  # noqa: E731
    late = lambda x: x[-5 // STRIDE :].mean(0)  # noqa: E731
    r = lambda x, n=1: np.asarray(x, np.float64).round(n).tolist()  # noqa: E731
    returns = d["return"].mean(-1)
    upright = np.where(d["fell"] > 0, np.nan, d["return"])
    table: dict[str, Any] = {"peak_step": ((places + 1) * STRIDE * EVERY).tolist()}
    for name, pick in (("peak", at_peak), ("late", late)):
        table[name] = {
            "return": r(pick(returns)), "clean": r(pick(d["clean"])), "imagined": r(pick(d["imagined"])),
            "variants": r(pick(d["variants"])), "lost": r(pick(d["lost"].mean(2))),
            "effort": r(pick(d["effort"].mean(-1)), 3), "clipped": r(pick(d["clipped"].mean(-1)), 3),
            "reaction": r(pick(d["reaction"].mean(-1)), 3), "fell": r(pick(d["fell"].mean(-1)), 3),
            "spread": r(pick(np.median(d["spread"], 2)), 3), "gain": r(pick(d["gain"]), 2),
            "gain_clipped": r(pick(d["gain_clipped"]), 2), "overestimation": r(pick(d["overestimation"])),
            "curvature": r(pick(d["curvature"]), 3), "fallen_data": r(pick(d["fallen"]), 3),
        }  # fmt: skip
    table["late"]["without_falls"] = r(np.nanmean(upright[-5 // STRIDE :], axis=(0, 2)))
    table["late"]["together"] = r(d["together"])
    table["fallen_replay"] = r(d["fallen"].mean(0), 3)
    curves = {
        "return": r(returns.mean(1)), "clean": r(d["clean"].mean(1)), "imagined": r(d["imagined"].mean(1)),
        "variants": r(d["variants"].mean(1)), "gain": r(d["gain"].mean(1), 2),
        "gain_clipped": r(d["gain_clipped"].mean(1), 2),
        "reaction": r(d["reaction"].mean((1, 2)), 3), "clipped": r(d["clipped"].mean((1, 2)), 3),
        "effort": r(d["effort"].mean((1, 2)), 3), "lost": r(d["lost"].mean((1, 2))),
        "fell": r(d["fell"].mean((1, 2)), 2),
        "overestimation": r(d["overestimation"].mean(1)), "curvature": r(d["curvature"].mean(1), 3),
        "fallen_data": r(d["fallen"].mean(1), 3), "by_seed": r(returns),
    }  # fmt: skip
    return {**table, "curves": curves}


def look(names: tuple[str, ...]) -> Path:
    use_device(None)
    path = HERE / "cartpole.json"
    summary = json.loads(path.read_text()) if path.exists() else {}
    for name in names:
        summary[name] = digest(judge(name))
        path.write_text(json.dumps(summary) + "\n")
    return path


def doubts(name: str, episodes: int = 10) -> dict[str, Any]:
    """Checks two claims on late policies.

    The cart is at the end of its rail when a pole falls; and an offset hardly changes the return in
    the imagined world.
    """
    critics, arrays = load(name)
    keys = jax.random.split(jax.random.key(79), episodes)
    around = UPRIGHT + SIGMA * jax.random.normal(jax.random.key(5), (512, 5))
    worlds = [FLAT, prior(arrays["replay"][:, -20_000:])]
    stacked = jax.tree.map(lambda *x: jnp.asarray(np.stack(x), jnp.float32), *worlds)

    def one(critic: Any) -> tuple[jax.Array, ...]:
        act = lambda o: vertex(critic, o)  # noqa: E731
        offset = jax.vmap(act)(around).mean()
        real = jax.vmap(lambda k: play(act, k))(keys)
        imagined = jax.vmap(
            lambda w: jax.vmap(lambda o: jax.vmap(lambda k: imagine(lambda s: act(s) - o, k, w))(keys).mean())(
                jnp.array([0.0, 1.0]) * offset
            )
        )(stacked)
        return real["fell"], real["furthest"], imagined, critic.value(UPRIGHT)

    judged = jax.jit(jax.vmap(one))
    late = [judged(jax.tree.map(lambda leaf, at=at: jnp.asarray(leaf[at]), critics)) for at in (-5, -3, -1)]
    fell, furthest = (np.stack([np.asarray(each[i], np.float64) for each in late]).ravel() for i in (0, 1))
    imagined = np.mean([np.asarray(each[2], np.float64) for each in late], axis=(0, 1)).round(1)
    return {
        "falls": int(fell.sum()),
        "furthest_before_fall": np.quantile(furthest[fell > 0], (0.1, 0.5, 0.9)).round(2).tolist(),
        "furthest_without_fall": np.quantile(furthest[fell == 0], (0.1, 0.5, 0.9)).round(2).tolist(),
        "imagined": {"flat": imagined[0].tolist(), "prior": imagined[1].tolist(),
                     "columns": ["as they are", "no offset"]},
        "value_at_upright": np.mean([np.asarray(each[3], np.float64) for each in late], axis=0).round(1).tolist(),
    }  # fmt: skip


def mended(names: tuple[str, ...]) -> Path:
    use_device(None)
    path = HERE / "cartpole.json"
    for name in names:
        found = {**doubts(name), **mend(name)}
        print(name, found, flush=True)
        summary = json.loads(path.read_text())
        summary.setdefault("mended", {})[name] = found
        path.write_text(json.dumps(summary) + "\n")
    return path


def optima() -> Path:
    """The best linear gains of each world, and what they are worth in all of them."""
    use_device(None)
    path = HERE / "cartpole.json"
    summary = json.loads(path.read_text())
    given = prior(load("moca")[1]["replay"][:, -20_000:])
    worlds = {
        "exact": judging(lambda g, k: play(lambda o: linear(g, o), k, sigma=0.0)["return"]),
        "real": judging(lambda g, k: play(lambda o: linear(g, o), k)["return"]),
        **{
            name: judging(lambda g, k, w=world: imagine(lambda o: linear(g, o), k, w))
            for name, world in (
                (n, {k: jnp.asarray(v, jnp.float32) for k, v in w.items()})
                for n, w in (("flat", FLAT), ("prior", given))
            )
        },
    }
    best = {"good": GOOD, "good, no cart": GOOD * [0, 1, 0, 1]}
    for name, judged in worlds.items():
        best[name] = search(judged, jax.random.key(1))
        print(name, best[name].round(3), flush=True)
    tried = jnp.asarray(np.resize(np.stack(list(best.values())), (MANY, 4)), jnp.float32)
    keys = jax.random.split(jax.random.key(99), (8, TRIED))
    scores = {name: np.mean([np.asarray(judged(tried, k)) for k in keys], 0) for name, judged in worlds.items()}
    summary["linear"] = {
        label: {"gains": gains.round(3).tolist(), **{name: round(float(s[i]), 1) for name, s in scores.items()}}
        for i, (label, gains) in enumerate(best.items())
    }
    summary["prior_gain"] = given["gain"].round(3).tolist()
    path.write_text(json.dumps(summary) + "\n")
    for label, row in summary["linear"].items():
        print(label, row, flush=True)
    return path


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("train", "look", "mend", "optima"))
    parser.add_argument("agents", nargs="*", help="moca, bnaf (default: both)")
    arguments = parser.parse_args()
    agents = tuple(arguments.agents) or ("moca", "bnaf")
    if arguments.what == "train":
        for agent in agents:
            print(train(agent))
    else:
        print({"look": look, "mend": mended, "optima": lambda _: optima()}[arguments.what](agents))
