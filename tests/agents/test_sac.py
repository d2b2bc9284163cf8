"""SAC on problems whose values are known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moca.agents import make_agent
from moca.drivers import ScanTrainer
from tests import probes

GAMMA = 0.9


@pytest.mark.parametrize(
    "probe",
    [
        pytest.param(p, id=name, marks=() if name == "Aimed" else pytest.mark.slow)
        for p in probes.known(GAMMA)
        for name in [type(p[0]).__name__]
    ],
)
def test_probe(probe):
    env, states, values, span, actions = probe
    # A small fixed temperature: the entropy bonus would shift the values.
    config = probes.tiny(
        train__steps=6000, train__gamma=GAMMA, train__batch=64, train__warmup=200, train__eval_episodes=1,
        env__episode_length=1000, sac__alpha=1e-3, sac__alpha_lr=0,
        sac__critic_lr=3e-3, sac__actor_lr=1e-3, sac__tau=0.02, sac__width=32,
    )  # fmt: skip
    trainer = probes.without_scores(ScanTrainer([config], [0], env))
    *_, report = trainer
    agent = make_agent(config, env)
    learner = probes.first(trainer.learners)
    found = [float(agent.value(learner, jnp.array([state]))) for state in states]
    np.testing.assert_allclose(found, values, atol=0.02 * span)
    assert np.isfinite(report.metrics["critic_loss"]).all()
    if actions:
        chosen = [float(agent.act(learner, jnp.array([state]))[0]) for state in states]
        np.testing.assert_allclose(chosen, actions, atol=0.1)


def test_the_log_density_is_that_of_the_action():
    """Against a change of variables done numerically: the density of tanh(u) integrates to one over (−1, 1)."""
    from moca.agents.sac import _gaussian, _squash
    from moca.nets import MLP

    actor = MLP(jax.random.key(0), (2, 8, 2))
    observation = jnp.array([0.3, -0.2])
    noise = jnp.linspace(-8, 8, 4001)[:, None]
    action, log_density = jax.vmap(_squash, (None, None, 0))(actor, observation, noise)
    mass = jnp.trapezoid(jnp.exp(log_density), action[:, 0])
    np.testing.assert_allclose(mass, 1, atol=1e-3)
    mean, log_std = _gaussian(actor, observation)
    np.testing.assert_allclose(action[2000], jnp.tanh(mean), rtol=1e-5)
    assert -5 <= log_std[0] <= 2


@pytest.mark.slow
def test_the_temperature_finds_the_target_entropy():
    """With a reward that pulls towards one action, the temperature rises or falls until the entropy is the target."""
    config = probes.tiny(
        train__steps=12000, train__gamma=0.5, train__batch=64, env__episode_length=1000, train__eval_episodes=1,
        sac__alpha_lr=3e-3, sac__actor_lr=3e-3, sac__entropy_per_action=-0.5,
    )  # fmt: skip
    *_, report = ScanTrainer([config], [0], probes.Aimed())
    np.testing.assert_allclose(report.metrics["entropy"], -0.5, atol=0.1)
