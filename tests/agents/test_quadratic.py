"""The paper's agents on problems whose values are known in closed form."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from moca import moments as mm
from moca.agents import make_agent
from moca.backup import twin_backups
from moca.config import QUADRATIC_AGENTS, VALUES
from moca.diagnostics import describe_sampling
from moca.drivers import ScanTrainer
from moca.dynamics import fit
from moca.envs.environment import Environment, Step
from moca.replay import Layout, Transition, read
from tests import probes

GAMMA = 0.9
A, B, Q, R, W = 0.6, 0.5, 1.0, 0.3, 0.3  # s′ = As + Ba + W ε, reward −(Qs² + Ra²)


class LinearQuadratic(Environment):
    """A linear system with Gaussian *process* noise and a quadratic cost: the value is −(P s² + c)."""

    terminates: bool = eqx.field(static=True, default=False)
    observation_size: int = eqx.field(static=True, default=1)
    action_low: tuple[float, ...] = eqx.field(static=True, default=(-1.5,))
    action_high: tuple[float, ...] = eqx.field(static=True, default=(2.0,))

    def reset(self, key):
        reset_key, noise_key = jax.random.split(key)
        s = jax.random.uniform(reset_key, (), minval=-1.0)
        return (s, noise_key), s[None]

    def step(self, state, action):
        s, key = state
        key, noise_key = jax.random.split(key)
        following = A * s + B * action[0] + W * jax.random.normal(noise_key)
        return (following, key), Step(following[None], -(Q * s**2 + R * action[0] ** 2), jnp.array(False))


def riccati():
    """P, gain K (a = −K s) and the constant c that the noise adds."""
    P = 0.0
    for _ in range(1000):
        P = Q + GAMMA * A**2 * P - (GAMMA * A * B * P) ** 2 / (R + GAMMA * B**2 * P)
    K = GAMMA * A * B * P / (R + GAMMA * B**2 * P)
    return P, K, GAMMA * P * W**2 / (1 - GAMMA)


SETTINGS = {
    "train__steps": 12_000, "train__gamma": GAMMA, "train__batch": 256, "train__warmup": 500, "train__eval_episodes": 1,
    "env__episode_length": 50, "exploration__probability": 1.0, "exploration__probability_end": 1.0,
    "critic__width": 32, "critic__target_period": 20, "critic__keepalive": 0,
    "critic__lr": 2e-3, "critic__lr_end": 1e-5, "critic__vertex_lr": 2e-3, "critic__vertex_lr_end": 1e-5,
    "value__kind": "quadratic", "value__lr": 3e-3,
    "value__low": "[-2]", "value__high": "[2]", "value__lengthscales": "[1]",
    "dynamics__width": 32, "dynamics__members": 3, "dynamics__lr": 3e-4,
}  # fmt: skip
STATES = np.linspace(-1.5, 1.5, 61)
SEEDS = 4


@pytest.fixture(scope="module")
def solved():
    """Each agent's value and greedy action over the states it has seen, as means over seeds, and its last metrics."""
    cache = {}

    def solve(name):
        if name not in cache:
            config = probes.tiny(
                agent=name, **(SETTINGS | {"train__batch": 128, "train__steps": 10_000, "dynamics__members": 2})
            )
            trainer = probes.without_scores(ScanTrainer([config] * SEEDS, range(SEEDS), LinearQuadratic()))
            trainer._compiled = probes.optimised(trainer)
            *_, report = trainer
            agent = make_agent(config, trainer.env)
            of_each = lambda learner: jax.vmap(lambda s: (agent.value(learner, s), agent.act(learner, s)[0]))  # noqa: E731
            found = jax.jit(jax.vmap(lambda learner: of_each(learner)(STATES[:, None])))(trainer.learners)
            metrics = {k: float(v.mean()) for k, v in report.metrics.items()}
            cache[name] = *(np.asarray(each).mean(0) for each in found), metrics
        return cache[name]

    return solve


@pytest.mark.parametrize(
    "name", [n if n == "moca" else pytest.param(n, marks=pytest.mark.slow) for n in QUADRATIC_AGENTS]
)
def test_linear_quadratic_gaussian(name, solved):
    P, K, c = riccati()
    value, action, _ = solved(name)
    # Certainty equivalence puts V at the mean, so it never sees what the noise costs.
    truth = -(P * STATES**2 + (0.0 if name == "moca-ce" else c))
    np.testing.assert_allclose(value, truth, atol=0.02 * np.ptp(truth))
    near = np.abs(STATES) <= 1
    slope = np.polyfit(STATES[near], action[near], 1)[0]
    np.testing.assert_allclose(-slope, K, rtol=0.05)


@pytest.mark.slow
def test_what_certainty_equivalence_leaves_out_is_what_the_noise_costs(solved):
    P, _, c = riccati()
    difference = np.mean(solved("moca")[0] - solved("moca-ce")[0])
    np.testing.assert_allclose(difference, -c, atol=0.02 * P)


def test_the_diagnostics_know_the_noise(solved):
    """W = 0.3: aleatoric deviation, calibrated coverage, and the bias of certainty equivalence −P W²."""
    P, _, _ = riccati()
    metrics = solved("moca")[2]
    np.testing.assert_allclose(metrics["aleatoric_std"], W, rtol=0.1)
    np.testing.assert_allclose(metrics["ce_bias"], -P * W**2, rtol=0.15)
    assert 0.5 < metrics["coverage_1sigma"] < 0.85
    assert metrics["epistemic_std"] < 0.5 * W


@pytest.mark.slow
def test_what_sampling_does_is_measured_where_there_is_any(solved):
    sampled = solved("moca-mc")[2]
    assert sampled["target_variance"] > 0
    assert -0.5 * sampled["target_variance"] ** 0.5 < sampled["target_bias"] <= 0
    assert "coverage_1sigma" not in solved("bnaf")[2]


def transitions(count, key=0):
    observation, action, following = jax.random.normal(jax.random.key(key), (3, count, 1))
    return Transition(
        observation, jnp.clip(action, -1, 1), jnp.zeros(count), observation + 0.1 * following, jnp.zeros(count)
    )


def test_each_member_learns_from_its_own_resample():
    """A transition that is n times in a resample, and the others never, is a batch of n copies of it."""
    agent = make_agent(probes.tiny(agent="moca", **SETTINGS), LinearQuadratic())
    batch, lr = transitions(4), SETTINGS["dynamics__lr"]
    fitted = jax.jit(lambda model, counts: fit(model, lr, batch, counts)[0])
    model = fitted(jax.jit(agent.init)(jax.random.key(0)).model, jnp.ones((3, 4), jnp.uint8))  # for its statistics
    counts = jnp.ones((3, 4), jnp.uint8).at[1].set(jnp.array([0, 4, 0, 0], jnp.uint8))
    weighted = fitted(model, counts).ensemble
    copies = [jnp.repeat(x[1:2], 4, axis=0) for x in (batch.observation, batch.action, batch.next_observation)]
    loss = lambda members: eqx.tree_at(lambda e: e.members, weighted, members).nll(*copies)[1].mean()  # noqa: E731
    adam = jax.jit(lambda members, state: optax.scale_by_adam().update(jax.grad(loss)(members), state))
    direction, _ = adam(model.ensemble.members, model.optimiser)
    trees = (model.ensemble.members, weighted.members, direction)
    for before, after, step in zip(*map(jax.tree.leaves, trees), strict=True):
        np.testing.assert_allclose(after[1], before[1] - lr * step[1], rtol=1e-4, atol=1e-7)


def test_the_bias_of_the_smaller_average():
    """Against E[min] − min E from other draws; the twins cross within the belief, so it is far from zero."""
    agent = make_agent(probes.tiny(agent="moca-mc", **SETTINGS), LinearQuadratic())
    values = jax.vmap(lambda slope: mm.Quadratic(jnp.zeros((1, 1)), slope))(jnp.array([[1.0], [-1.0]]))

    @jax.jit
    def measured():
        state, episode = agent.init(jax.random.key(0)), transitions(20, key=1)._replace(observation=jnp.zeros((20, 1)))
        state = state._replace(model=fit(state.model, 3e-4, transitions(64), jnp.ones((3, 64), jnp.uint8))[0])
        mixtures = state.model.ensemble.predict_batch(episode.observation, episode.action)
        exact = twin_backups(jax.vmap(mm.moment_match)(mixtures), values)
        draw = jax.vmap(lambda key: twin_backups(agent.predict(state, episode, key), values))
        some, others = (draw(jax.random.split(jax.random.key(seed), 4000)) for seed in (2, 3))
        return describe_sampling(some, exact, GAMMA)["target_bias"], others.min(1).mean(0), exact

    found, drawn, exact = measured()
    np.testing.assert_allclose(found, GAMMA * (drawn - exact.min(0)).mean(), rtol=0.1)
    assert found < -0.01


def test_the_targets_are_copied_when_due():
    config = probes.tiny(agent="bnaf", **(SETTINGS | {"critic__target_period": 3}))
    agent = make_agent(config, LinearQuadratic())
    state = jax.jit(agent.init)(jax.random.key(0))
    batch = Transition(*(jnp.ones((4, *shape)) for shape in ((1,), (1,), (), (1,), ())))
    update = jax.jit(lambda state, key: agent.update(state, batch, agent.draw_update(key))[0])
    for count in range(1, 7):
        before = state.targets
        state = update(state, jax.random.key(count))
        copied = all(
            np.array_equal(a, b)
            for a, b in zip(*map(jax.tree.leaves, (state.targets, state.critics.value)), strict=True)
        )
        kept = all(np.array_equal(a, b) for a, b in zip(*map(jax.tree.leaves, (state.targets, before)), strict=True))
        assert (copied, kept) == ((True, False) if count % 3 == 0 else (False, True))


EVERY_TIME = {("moca", "Discounted"), ("bnaf", "Aimed")}
CASES = [
    pytest.param(name, probe, id=f"{name}-{kind}", marks=() if (name, kind) in EVERY_TIME else pytest.mark.slow)
    for name in QUADRATIC_AGENTS
    for probe in probes.known(GAMMA)
    for kind in [type(probe[0]).__name__]
]


@pytest.mark.parametrize(("name", "probe"), CASES)
def test_probe(name, probe):
    env, states, values, span, actions = probe
    # Without noise the loss falls to zero, and Adam at a rate of 1e-2 then steps on rounding (V(0) 0.93 for 0.9).
    rbf = {"value__kind": "rbf", "value__bases": 32, "value__lr": 3e-3, "value__lengthscales": "[0.7]"}
    config = probes.tiny(
        agent=name, **(SETTINGS | rbf | {"train__steps": 6000, "env__episode_length": 1000, "train__batch": 64})
    )
    trainer = probes.without_scores(ScanTrainer([config], [0], env))
    for _ in trainer:
        pass
    agent, learner = make_agent(config, env), probes.first(trainer.learners)
    of_each = lambda f: jax.jit(jax.vmap(lambda state: f(learner, state)))(jnp.array(states)[:, None])  # noqa: E731
    np.testing.assert_allclose(of_each(agent.value), values, atol=0.02 * span)
    if actions:
        np.testing.assert_allclose(of_each(agent.act)[:, 0], actions, atol=0.1)


class TwoActions(Environment):
    """Two dimensions, each pushed by an action of its own with bounds of its own; for a few steps."""

    terminates: bool = eqx.field(static=True, default=False)
    observation_size: int = eqx.field(static=True, default=2)
    action_low: tuple[float, ...] = eqx.field(static=True, default=(-1.0, 0.0))
    action_high: tuple[float, ...] = eqx.field(static=True, default=(0.5, 3.0))

    def reset(self, key):
        state = jax.random.uniform(key, (2,), minval=-1.0)
        return state, state

    def step(self, state, action):
        state = 0.8 * state + 0.2 * action
        return state, Step(state, -jnp.sum(state**2), jnp.array(False))


def two_actions(**settings):
    bounds = {"value__low": "[-2,-2]", "value__high": "[2,2]", "value__lengthscales": "[1,1]", "value__bases": 16}
    short = {"train__steps": 300, "train__batch": 16, "train__warmup": 50, "exploration__probability": 0.2}
    return probes.tiny(**({"agent": "moca", "noise__sigma": 0.05} | SETTINGS | bounds | short | settings))


@pytest.mark.slow  # the first of those on a belief is run every time
@pytest.mark.parametrize("kind", VALUES)
def test_every_value_class_learns_with_full_curvature_and_covariance(kind):
    full = {"critic__curvature": "full", "dynamics__covariance": "full", "value__kind": kind, "value__basis_lr": 1e-3}
    config = two_actions(**full)
    trainer = ScanTrainer([config], [0], TwoActions())
    start = jax.tree.map(np.asarray, trainer.learners.critics.value)
    *_, report = trainer
    assert all(np.isfinite(values).all() for values in report.metrics.values())
    actions = np.asarray(trainer.state.replay)[0, :, 2:4]
    assert (actions >= np.array([-1.0, 0.0]) - 1e-6).all()
    assert (actions <= np.array([0.5, 3.0]) + 1e-6).all()
    # Of the paper's RBF the weights alone learn; the other classes learn all but the constant, with its own rate.
    moved = {
        name: np.abs(np.asarray(new) - old).max() > 0
        for name, new, old in fields(trainer.learners.critics.value, start)
    }
    fixed = {"rbf": {"centers", "precision", "constant"}, "quadratic": set(), "polynomial": set()}
    assert {name for name, has in moved.items() if not has} == fixed.get(kind, {"constant"})


def fields(new, old):
    return [
        (f"{name}{number}" if len(jax.tree.leaves(getattr(new, name))) > 1 else name, a, b)
        for name in vars(new)
        for number, (a, b) in enumerate(zip(*(jax.tree.leaves(getattr(v, name)) for v in (new, old)), strict=True))
    ]


FILTERED = [
    {"dynamics__covariance": "full", "critic__curvature": "full", "critic__head": "slope", "value__kind": "erf"},
    {"agent": "sac"},
    {"belief__noise": "learned"},
    {"agent": "bnaf"},
    {"agent": "moca-mc", "value__kind": "erf", "value__basis_lr": 1e-3},
]


@pytest.mark.slow
@pytest.mark.parametrize("settings", FILTERED, ids=str)
def test_every_agent_learns_on_a_belief(settings):
    config = two_actions(**({"belief__filter": True} | settings))
    trainer = ScanTrainer([config], [0], TwoActions())
    start = jax.tree.map(np.asarray, trainer.learners)
    *_, report = trainer
    unknown = {name for name, values in report.metrics.items() if not np.isfinite(values).all()}
    assert unknown == {"value_noise_variance"}  # measured without a filter only
    changed = {
        jax.tree_util.keystr(path).split(".")[1]
        for (path, new), old in zip(
            jax.tree_util.tree_leaves_with_path(trainer.learners), jax.tree.leaves(start), strict=True
        )
        if np.abs(np.asarray(new, float) - np.asarray(old, float)).max() > 0
    }
    assert "model" in changed
    moved = np.abs(np.asarray(trainer.learners.model.noise.constant) - start.model.noise.constant).max() > 0
    assert moved == (settings.get("belief__noise") == "learned")


class Leaky(Environment):
    """s′ = 0.9 s + 0.4 a, exactly; what makes it hard is seeing it."""

    terminates: bool = eqx.field(static=True, default=False)
    observation_size: int = eqx.field(static=True, default=1)
    action_low: tuple[float, ...] = eqx.field(static=True, default=(-1.0,))
    action_high: tuple[float, ...] = eqx.field(static=True, default=(1.0,))

    def reset(self, key):
        s = jax.random.uniform(key, (1,), minval=-1.0)
        return s, s

    def step(self, state, action):
        state = 0.9 * state + 0.4 * action
        return state, Step(state, -jnp.sum(state**2), jnp.array(False))


@pytest.mark.slow
@pytest.mark.parametrize("filtered", [True, False])
def test_the_filter_removes_the_bias_of_learning_from_noisy_states(filtered):
    """Random actions give the state a variance of 0.28; noise of 0.25 makes a naive model halve the slope."""
    changes = {"noise__sigma": 0.5, "belief__filter": filtered, "dynamics__lr": 1e-3, "train__steps": 8000}
    trainer = ScanTrainer([probes.tiny(agent="moca", **(SETTINGS | changes))], [0], Leaky())
    for _ in trainer:
        pass
    ensemble = probes.first(trainer.learners).model.ensemble
    states, actions = jnp.linspace(-0.8, 0.8, 9)[:, None], jnp.zeros((9, 1))
    predicted = ensemble.predict_batch(states, actions).mean[:, 0]
    slope = np.polyfit(states[:, 0], predicted, 1)[0]
    if filtered:
        np.testing.assert_allclose(slope, 0.9, atol=0.1)
        rows = read(trainer.state.replay[0], jnp.arange(7000, 8000), Layout(1, 1, filtered))
        belief, seen = rows.next_observation[:, 0], rows.measured[:, 0]
        truth = [0.0]
        for action in np.asarray(rows.action[:, 0]):
            truth.append(0.9 * truth[-1] + 0.4 * action)
        after = np.arange(1000) % 50 > 40  # the state at the start of an episode is forgotten, and so is where we began
        errors = [np.std(np.asarray(x)[after] - np.array(truth[1:])[after]) for x in (belief, seen)]
        assert errors[0] < 0.5 * errors[1]
    else:
        assert slope < 0.7


@pytest.mark.slow
def test_the_noise_level_is_learned():
    """Though the whole first episode is warm-up, in which the model has seen nothing yet."""
    changes = {
        "noise__sigma": 0.3, "belief__filter": True, "belief__noise": "learned", "belief__sigma": 0.8,
        "dynamics__lr": 1e-3, "train__steps": 4000, "env__episode_length": 100, "train__warmup": 100,
    }  # fmt: skip
    *_, report = ScanTrainer([probes.tiny(agent="bnaf", **(SETTINGS | changes))], [0], Leaky())
    np.testing.assert_allclose(report.metrics["noise_level"], 0.3, rtol=0.15)


def test_innovations_and_every_noise_level_are_metrics_of_a_filter_alone():
    """Finite already before the model's first batch."""
    rows = jax.random.normal(jax.random.key(0), (4, 9, 2))
    zeros, levels = jnp.zeros(9), np.array([0.1, 0.4])
    plain = Transition(rows[0], rows[1, :, :1], zeros, rows[2], zeros)
    told, wide = (
        {},
        {f"value__{name}": (size,) * 2 for name, size in (("low", -1.0), ("high", 1.0), ("lengthscales", 1.0))},
    )
    for kind in ("none", "known", "learned"):
        belief = {} if kind == "none" else {"belief__filter": True, "belief__noise": kind}
        agent = make_agent(probes.tiny(agent="moca", **(SETTINGS | wide | belief)), probes.Drift())
        episode = plain._replace(measured=rows[3], spread=jnp.ones((9, 2))) if belief else plain

        @jax.jit
        def metrics(episode, agent=agent):
            learner = agent.init(jax.random.key(1))
            noise = learner.model.noise._replace(constant=jnp.log(levels))
            if noise.growing is not None:
                noise = noise._replace(growing=jnp.full(2, -30.0))
            learner = learner._replace(model=learner.model._replace(noise=noise))
            return agent.diagnose(learner, learner, episode, jax.random.key(2))

        told[kind] = metrics(episode)
        assert all(np.isfinite(value) for value in told[kind].values())
    innovations = {"innovation_squared", "innovation_correlation"}
    assert told["known"].keys() - told["none"].keys() == innovations
    assert told["learned"].keys() - told["known"].keys() == {"noise_level", "noise_level_0", "noise_level_1"}
    found = [told["learned"][f"noise_level{end}"] for end in ("", "_0", "_1")]
    np.testing.assert_allclose(found, [levels.mean(), *levels], rtol=1e-6)
