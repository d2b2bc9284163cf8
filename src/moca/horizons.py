"""Targets of several horizons, weighted by the inverse of their predicted variances [choice].

A transition has a target for every horizon h up to H,

    T_h = r + Σₖ γᵏ E[rₖ] + γʰ minᵢ E[Vᵢ(s_h)],  k = 1 … h − 1.

STEVE (Buckman et al. 2018) weighs such targets by the disagreement of ensembles. Here the variance
of the sum Σₖ γᵏ rₖ + γʰ V(s_h) is predicted along with the states, in closed form: it has those of
the rewards and of V to second order, their covariances to first order, and half the difference of
the twins, squared, for not knowing V.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from moca import moments as mm
from moca.backup import PredictionRule, second_order
from moca.critic import twin_axes
from moca.nets import matmul
from moca.planning import Spread, World, as_first, branches, step_moments, step_points
from moca.replay import Transition


class Paths(NamedTuple):
    """Branches after some steps, and the sum of discounted rewards on the way."""

    mean: Float[Array, "rows obs"]
    covariance: Float[Array, "rows obs obs"] | None  # None for points
    total: Float[Array, "rows"]  # the sum's expectation
    variance: Float[Array, "rows"]  # its variance, zero for points
    across: Float[Array, "rows obs"]  # and its covariance with the state


class Horizons(NamedTuple):
    """Beliefs and rewards at each horizon, the first axis; `weights` are those of the branches."""

    discount: Float[Array, "h"]  # γʰ
    belief: mm.Distribution  # about s_h, h × n
    reward: Float[Array, "h n"]  # Σₖ γᵏ E[rₖ]
    rows: Paths
    weights: Float[Array, "n c"]

    def mixed(
        self, batch: Transition, values: mm.Function, target: Callable[..., Float[Array, "n"]]
    ) -> tuple[Float[Array, "n"], Float[Array, ""]]:
        """Returns the targets of all horizons, mixed by their variances, and the mean horizon.

        `target` is the agent's, of a batch whose reward is all that comes before the horizon.
        """

        def one(reward: Float[Array, "n"], belief: mm.Distribution, discount: Float[Array, ""]) -> Float[Array, "n"]:
            total = batch.reward + (1 - batch.terminated) * reward
            return target(batch._replace(reward=total), belief, values, discount)

        targets = jax.vmap(one)(self.reward, self.belief, self.discount)
        weights = inverse_variance(self.variance(values), targets)
        horizon = jnp.arange(1, len(weights) + 1) @ weights.mean(axis=1)
        return jnp.sum(weights * targets, axis=0), horizon

    def variance(self, values: mm.Function) -> Float[Array, "h n"]:
        """Returns the variance of Σₖ γᵏ rₖ + γʰ V(s_h), if V is either of the twins alike.

        It is the law of total variance over twins and branches: the samples of MoCA-MC, the
        components of a mixture.
        """
        one = jax.vmap(_value_at, (0, 0, None))
        each = jax.vmap(jax.vmap(one, (0, 0, None)), (None, None, twin_axes(values)))
        value, own, slope = each(self.rows.mean, self.rows.covariance, values)
        discount, rows = self.discount[:, None], self.rows
        mean = rows.total + discount * value
        within = rows.variance + discount * (2 * jnp.sum(slope * rows.across, axis=-1) + discount * own)
        away = mean - jnp.repeat(self._average(mean), self.weights.shape[1], axis=1)
        return self._average(within + jnp.square(away))

    def _average(self, values: Float[Array, "two h rows"]) -> Float[Array, "h n"]:
        """Returns the average over twins and branches."""
        by_branch = values.mean(axis=0).reshape(len(self.discount), -1, self.weights.shape[1])
        return jnp.sum(self.weights * by_branch, axis=-1)


def all_horizons(
    world: World,
    rule: PredictionRule,
    first: mm.Distribution,
    spread: Spread,
    gamma: Any,
    horizon: int,
    key: Key[Array, ""],
) -> Horizons:
    """Returns beliefs and discounted rewards at each horizon under the greedy policy."""
    start = branches(first, spread)
    nothing = jnp.zeros(len(start.mean))
    now = Paths(start.mean, start.covariance, nothing, nothing, jnp.zeros_like(start.mean))

    def one(now: Paths, given: tuple[Array, Key[Array, ""]]) -> tuple[Paths, Paths]:
        discount, key = given
        if now.covariance is None:
            keys = jax.random.split(key, len(now.mean))
            reward, mean = step_points(world, now.mean, start.spread, rule, keys)
            after = now._replace(mean=mean, total=now.total + discount * reward)
        else:
            after = _step(world, now, discount, start.spread)
        return after, after

    discount = gamma ** jnp.arange(1, horizon + 1)
    _, later = jax.lax.scan(one, now, (discount[:-1], jax.random.split(key, horizon - 1)))
    rows = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), now, later)
    belief = jax.vmap(lambda mean, covariance: as_first(first, mean, covariance))(rows.mean, rows.covariance)
    return Horizons(discount, belief, jax.vmap(start.average)(rows.total), rows, start.weights)


def _step(world: World, now: Paths, discount: Float[Array, ""], spread: Spread) -> Paths:
    """Returns the rows after one step, whose reward counts `discount` times.

    Covariances are by Stein's lemma. That of the sum with state and action goes through the
    derivatives, as the state's own does.
    """
    step = step_moments(world, now.mean, cast(Array, now.covariance), spread)
    states = world.model.ensemble.statistics

    def of_reward(mean: Array, joint: Array) -> tuple[Array, Array]:
        return second_order(lambda m: world.reward.expectation(states, mm.Gaussian(m, joint)), mean, joint)

    own, slope = jax.vmap(of_reward)(step.both, step.joint)
    across = jnp.concatenate([now.across, _times(step.gain, now.across)], axis=1)
    variance = now.variance + discount * (2 * jnp.sum(slope * across, axis=1) + discount * own)
    after = _times(step.slope, across + discount * _times(step.joint, slope))
    return Paths(step.mean, step.covariance, now.total + discount * step.reward, variance, after)


def _value_at(
    mean: Float[Array, "obs"], covariance: Float[Array, "obs obs"] | None, value: mm.Function
) -> tuple[Float[Array, ""], Float[Array, ""], Float[Array, "obs"]]:
    """Returns E[V] at one row, Var[V] to second order, and E[∇V]; at a point, V alone."""
    if covariance is None:
        return value(mean), jnp.zeros(()), jnp.zeros_like(mean)
    expected = lambda at: mm.expectation(mm.Gaussian(at, covariance), value)  # noqa: E731
    return expected(mean), *second_order(expected, mean, covariance)


def inverse_variance(variances: Float[Array, "h n"], targets: Float[Array, "h n"]) -> Float[Array, "h n"]:
    """Returns weights over h that are proportional to 1 / variance and sum to one.

    A variance smaller than that of the targets' rounding errors is replaced by it, so weights are
    equal where nothing varies. Ratios to the smallest variance cannot overflow.
    """
    limits = jnp.finfo(targets.dtype)
    rounding = jnp.square(float(limits.eps) * jnp.abs(targets).max(axis=0)) + float(limits.tiny)
    variances = jnp.maximum(variances, rounding)
    shares = variances.min(axis=0) / variances
    return shares / shares.sum(axis=0)


def _times(matrices: Float[Array, "n a b"], vectors: Float[Array, "n b"]) -> Float[Array, "n a"]:
    return matmul(matrices, vectors[..., None])[..., 0]
