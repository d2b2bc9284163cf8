"""Learns the noise of the sensor from whole episodes [choice].

A filter needs the variance R of the observation noise, and often nobody knows it. Two sources:

- Third differences of the observations, less what smooth motion and actions explain, are noise
  whatever the dynamics are. Their size bounds R from above, and is R until the model is trained.
  While the model is young, R stays close to it.
- The likelihood of the observations under the filter tells noise of the sensor from noise of the
  process. Both explain errors of one-step predictions, but only the first makes successive errors
  correlated. The model is linearised at the stored means, so a gradient step on the likelihood
  needs no network. A calibration of the model is learned along with R: while R is too small, the
  model takes up the rest, and would keep it; and it can be too certain. A dimension that the model
  predicts from the others alone has white errors either way. So ties go to the sensor: R is
  slightly preferred.
"""

from typing import Any, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from moca import moments as mm
from moca.agents import Agent
from moca.belief import UNSEEN, Belief, update
from moca.dynamics import Calibration, GaussianEnsemble, ModelState, NoiseLevels, linearised, noise_variance
from moca.moments.linear import solve
from moca.nets import decayed, descend, matmul, share_done
from moca.replay import Replay, Transition, read, sensed, with_gaps

EPISODES = 4  # the newest ones, from which the levels are learned
WINDOW = 50  # steps of the filter in one term of the likelihood
ITERATIONS = 10  # gradient steps after each episode
TINY = 1e-12  # the least variance
TIE = 0.01  # how much the noise of the sensor is preferred to that of the process
EXCESS = 1.1  # how far the noise variance may lie above that of the third differences


class Linear(NamedTuple):
    """Steps of a filter whose model is linear, along a leading axis."""

    start: Float[Array, "n obs"]  # the mean with which a belief starts
    starts: Bool[Array, "n"]  # whether one starts here
    at: Float[Array, "n obs"]  # the state at which the model was linearised
    mean: Float[Array, "n obs"]  # the prediction there
    slope: Float[Array, "n obs obs"]
    aleatoric: Float[Array, "n obs obs"]
    epistemic: Float[Array, "n obs obs"]
    measured: Float[Array, "n obs"]
    missing: Bool[Array, "n obs"]


def learn_noise(
    agent: Agent, learner: Any, replay: Replay, indices: Int[Array, "steps"], number: Int[Array, ""]
) -> ModelState | None:
    """Returns the model after learning the noise from the newest episodes, if that is learned.

    Args:
        agent: The agent.
        learner: Its state.
        replay: The replay buffer.
        indices: The rows of the newest episode.
        number: Its number, counted from zero.
    """
    model, belief = learner.model, agent.config.belief
    if belief.noise == "known" or not agent.filter.keeps_covariance:
        return model
    episodes = newest(agent, replay, indices, number)
    size = agent.env.measured_size
    known, unknown = (
        jax.tree.map(lambda x: x.mean(0), jax.vmap(lambda rows, by=by: apparent_noise(rows, size, by))(episodes))
        for by in (True, False)
    )
    least, close = jax.tree.map(lambda a, b: jnp.where(jnp.isfinite(known[1]), a, b), known, unknown)
    young = jnp.maximum(1 - 2 * share_done(agent.config, learner.updates), 0)
    above = unknown[1] + jnp.where(young > 0, young * (close - unknown[1]), 0)
    bounds = (jnp.maximum(young**2 * least, TINY), EXCESS * jnp.where(jnp.isfinite(above), above, jnp.inf))
    lr = decayed(agent.config, belief.sigma_lr, learner.updates)
    trained = _bounded(_likelier(model, episodes, lr), episodes, bounds)
    first = jnp.where(jnp.isfinite(close), jnp.log(least) / 2, model.noise.constant)
    untrained = model._replace(noise=NoiseLevels.of(first))
    return jax.tree.map(lambda a, b: jnp.where(model.ensemble.statistics.batches > 0, a, b), trained, untrained)


def newest(agent: Agent, replay: Replay, indices: Int[Array, "steps"], number: Int[Array, ""]) -> Transition:
    """Returns what the sensor saw in the newest episodes, along a leading axis.

    Early in a run, when there are fewer episodes, the first one is repeated.
    """
    steps = len(indices)
    older = jnp.minimum(jnp.arange(EPISODES), jnp.minimum(number, len(replay) // steps - 1))
    episodes = read(replay, indices - older[:, None] * steps, agent.layout)
    episodes = sensed(with_gaps(episodes))
    return episodes._replace(action=agent.env.from_bounds(episodes.action))


def apparent_noise(rows: Transition, size: int, actions_known: bool) -> tuple[Float[Array, "obs"], Float[Array, "obs"]]:
    """Returns variances of what looks like noise in consecutive transitions: a low and a high one.

    They are measured for the first `size` dimensions, and one for the others, which are not
    observed.

    The high one is a twentieth of the variance of third differences y₃ − 3y₂ + 3y₁ − y₀, less their
    regression on level and trend over the four observations and, with `actions_known`, on the three
    actions between them and their products with the level. The noise of level and trend is
    uncorrelated with that of the difference. So is that of actions, but only if they are random: an
    action that answers to the noise explains a part of it. Motion that is not linear over four
    steps adds to the variance, as does noise of the process.

    The low one is a fifteenth of the covariance of successive differences, with its sign changed.
    It is the same for white noise. Of motion it contains less: sudden changes of acceleration add
    nothing to it, and motion whose differences keep their sign subtracts.

    A difference counts if its dimension was measured four times in a row. With fewer of them than
    twice the regressors, nothing is known: the low one is zero, the high one infinite.
    """
    measured, missing = (cast(Array, each)[:, :size] for each in (rows.measured, rows.missing))
    window = lambda x: [x[k : len(x) - 3 + k] for k in range(4)]  # noqa: E731
    (a, b, c, d), joined = window(measured), ~_starts(rows)
    level, trend = (a + b + c + d) / 4, (3 * (d - a) + c - b) / 10
    parts = [jnp.ones((len(level), 1)), level, trend]
    if actions_known:
        actions = jnp.concatenate(window(rows.action)[1:], axis=1)
        parts += [actions, (actions[:, :, None] * level[:, None, :]).reshape(len(level), -1)]
    features = jnp.concatenate(parts, axis=1)

    def one(third: Float[Array, "m"], missing: Bool[Array, "n"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        complete = jnp.stack(window(~missing)).all(axis=0) & jnp.stack(window(joined)[1:]).all(axis=0)
        by, third = jnp.where(complete[:, None], features, 0), jnp.where(complete, third, 0)
        by /= jnp.sqrt(jnp.mean(by**2, axis=0)) + 1e-9
        gram = matmul(by.T, by) + 1e-3 * jnp.eye(by.shape[1])
        residual = third - matmul(by, solve(gram, matmul(by.T, third)))
        freedom = jnp.maximum(complete.sum() - by.shape[1], 1)
        high = jnp.maximum(jnp.sum(residual**2) / freedom / 20, TINY)
        pairs = (complete[1:] & complete[:-1]).sum()
        together = jnp.sum(residual[1:] * residual[:-1]) / freedom * complete.sum() / jnp.maximum(pairs, 1)
        low = jnp.clip(-together / 15, TINY, high)
        enough = complete.sum() >= 2 * by.shape[1]
        return jnp.where(enough, low, TINY), jnp.where(enough, high, jnp.inf)

    low, high = jax.vmap(one, (1, 1))(d - 3 * c + 3 * b - a, missing)
    whole = jnp.ones(rows.observation.shape[-1])
    return whole.at[:size].set(low), whole.at[:size].set(high)


def _starts(rows: Transition) -> Bool[Array, "n"]:
    """Returns True where a state is not the outcome of the transition before."""
    same = jnp.all(rows.observation[1:] == rows.next_observation[:-1], axis=1)
    return jnp.concatenate([jnp.array([True]), ~same | (rows.terminated[:-1] > 0)])


def linearise(ensemble: GaussianEnsemble, rows: Transition) -> Linear:
    """Returns the linearised steps of consecutive transitions."""

    def one(s: Float[Array, "obs"], action: Float[Array, "act"]) -> tuple[Array, Array, Array, Array]:
        mixture, slope = linearised(ensemble, s, action)
        mean, aleatoric, epistemic = mm.decompose(mixture, full=True)
        return mean, slope, aleatoric, epistemic

    parts = jax.vmap(one)(rows.observation, rows.action)
    start, measured, missing = rows.observation, cast(Array, rows.measured), cast(Array, rows.missing)
    return Linear(start, _starts(rows), start, *parts, measured=measured, missing=missing)


def windows(linear: Linear) -> Linear:
    """Returns the steps in windows, each of which starts from the observation before it.

    The last is filled with steps in which everything is missing.
    """
    before = jnp.concatenate([linear.start[:1], linear.measured[:-1]])
    unseen = jnp.concatenate([jnp.ones_like(linear.missing[:1]), linear.missing[:-1]])
    start = jnp.where(linear.starts[:, None] | unseen, linear.start, before)
    starts = linear.starts | (jnp.arange(len(start)) % WINDOW == 0)
    short = -len(start) % WINDOW

    def cut(leaf: Array, filling: Array) -> Array:
        filled = jnp.concatenate([leaf, jnp.broadcast_to(filling, (short, *leaf.shape[1:]))])
        return filled.reshape(-1, WINDOW, *leaf.shape[1:])

    linear = linear._replace(start=start, starts=starts)
    filling = jax.tree.map(lambda leaf: leaf[-1], linear)._replace(missing=jnp.array(True))
    return jax.tree.map(cut, linear, filling)


def innovation_nll(
    linear: Linear,
    noise: Float[Array, "n obs"],
    first: Float[Array, "n obs"],
    factor: Float[Array, "obs"],
    added: Float[Array, "obs obs"],
) -> Float[Array, "n"]:
    """Returns the negative log-likelihood of each observation under a filter, up to a constant.

    Args:
        linear: The filter's steps.
        noise: The variances of the observations.
        first: The variances of beliefs where they start.
        factor: A factor of the model's own deviation in each dimension.
        added: A covariance that is added to the model's own.
    """

    def step(belief: Belief, x: tuple[Linear, Array, Array]) -> tuple[Belief, Float[Array, ""]]:
        each, noise, first = x
        fresh = Belief(each.start, jnp.diag(first))
        before = jax.tree.map(lambda a, b: jnp.where(each.starts, a, b), fresh, belief)
        own = factor[:, None] * each.aleatoric * factor + added + each.epistemic
        mean = each.mean + jnp.sum(each.slope * (before.mean - each.at), axis=1)
        prior = Belief(mean, _product(_product(each.slope, cast(Array, before.covariance)), each.slope.T) + own)
        return update(prior, each.measured, jnp.where(each.missing, UNSEEN, noise))

    size = linear.at.shape[-1]
    return jax.lax.scan(step, Belief(jnp.zeros(size), jnp.zeros((size, size))), (linear, noise, first))[1]


def _product(a: Float[Array, "obs obs"], b: Float[Array, "obs obs"]) -> Float[Array, "obs obs"]:
    """Returns a @ b as a sum; for many small matrices, XLA's products take longer on a CPU."""
    return jnp.sum(a[:, :, None] * b, axis=1)


def _likelier(model: ModelState, episodes: Transition, lr: Float[Array, ""]) -> ModelState:
    """Takes gradient steps on the noise levels, to make the observations of episodes more likely.

    Returns the model with the new levels, and with the calibration learned along with them.
    """
    ensemble, statistics = model.ensemble, model.ensemble.statistics
    size, history = len(statistics.mean[0]), ensemble.history
    plain = eqx.tree_at(lambda e: e.calibration, ensemble, Calibration.none(size))
    onto = jnp.eye(size) if history is None else jnp.asarray(history.onto)
    linear = jax.vmap(lambda rows: windows(linearise(plain, rows)))(episodes)
    linear = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), linear)

    def loss(levels: NoiseLevels) -> Float[Array, ""]:
        noise, first = (noise_variance(levels, statistics, x) for x in (linear.mean, linear.start))
        factor, added = jax.tree.map(jnp.exp, cast(Calibration, levels.process))
        more = onto * (statistics.deviation[1] * added)[: onto.shape[1]]
        own = (jnp.tile(factor[: onto.shape[1]], size // onto.shape[1]), matmul(more, more.T))
        nll = jax.vmap(innovation_nll, (0, 0, 0, None, None))(linear, noise, first, *own).mean()
        return nll - TIE * jnp.log(noise).mean(axis=(0, 1)).sum()

    def iterate(_: Array, before: tuple) -> tuple:
        gradient = jax.grad(loss)(before[0])
        finite = jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient)]).all()
        levels, optimiser = descend(before[0], gradient, before[1], lr)
        process = cast(Calibration, levels.process)
        after = (levels._replace(process=process._replace(factor=jnp.minimum(process.factor, 0))), optimiser)
        return jax.tree.map(lambda new, old: jnp.where(finite, new, old), after, before)

    levels, optimiser = jax.lax.fori_loop(0, ITERATIONS, iterate, (model.noise, model.noise_optimiser))
    ensemble = eqx.tree_at(lambda e: e.calibration, ensemble, jax.tree.map(jnp.exp, levels.process))
    return model._replace(ensemble=ensemble, noise=levels, noise_optimiser=optimiser)


def _bounded(
    model: ModelState, episodes: Transition, bounds: tuple[Float[Array, "obs"], Float[Array, "obs"]]
) -> ModelState:
    """Returns the model with levels whose mean variance over episodes lies within bounds."""
    levels = model.noise
    variance = noise_variance(levels, model.ensemble.statistics, episodes.next_observation).mean(axis=(0, 1))
    change = jnp.log(jnp.clip(variance, *bounds) / variance) / 2
    moved = levels._replace(constant=levels.constant + change, growing=cast(Array, levels.growing) + change)
    return model._replace(noise=moved)
