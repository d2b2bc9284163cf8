"""Predictions of several steps: beliefs about future states, actions and rewards in closed form.

A step takes a Gaussian belief N(m, C) about the state to the next one. The policy's action is
linearised in the state and clipped, so that state and action are jointly Gaussian to second order;
the mean goes through the ensemble's mean, the joint covariance through its derivative, and the
ensemble's own uncertainty is added [choice]. The expected reward under the joint belief is exact
for a Gaussian. No sample is drawn.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from moca import moments as mm
from moca.backup import PredictionRule
from moca.belief import BeliefFilter
from moca.critic import QuadraticCritic
from moca.dynamics import ModelState
from moca.moments.supports import normal_mass
from moca.nets import matmul


class World(NamedTuple):
    """The learned model of the world, and the policy that is followed in it."""

    model: ModelState
    reward: Any  # a RewardModel, or None if the agent does not plan
    filter: BeliefFilter
    critic: QuadraticCritic

    def next_means(
        self, states: Float[Array, "n obs"], actions: Float[Array, "n act"], spread: Float[Array, "n packed"] | None
    ) -> tuple[Float[Array, "n obs"], Callable, mm.GaussianMixture]:
        """Returns the mean of s′, its derivative by (s, a) as a linear map, and the members' s′.

        With a filter, s and s′ are means of beliefs.
        """
        size = states.shape[1]

        def mean_of(both: Float[Array, "n obs_act"]) -> tuple[Float[Array, "n obs"], mm.GaussianMixture]:
            mixtures = self.model.ensemble.predict_batch(both[:, :size], both[:, size:])
            return mixtures.mean, mixtures

        mean, push, mixtures = jax.linearize(mean_of, jnp.concatenate([states, actions], axis=1), has_aux=True)
        return mean, push, self.filter.anticipate(self.model, mixtures, spread)


def derivative(push: Callable, count: int, size: int) -> Float[Array, "n out size"]:
    """Returns the matrices of a linear map on n rows of `size` numbers, each row by itself."""
    units = jnp.broadcast_to(jnp.eye(size)[:, None], (size, count, size))
    return jnp.moveaxis(jax.vmap(push)(units), 0, -1)


def clipped(
    mean: Float[Array, "n act"], variance: Float[Array, "n act"]
) -> tuple[Float[Array, "n act"], Float[Array, "n act"]]:
    """Returns mean and variance of n clipped Gaussian actions with independent dimensions."""
    end = jnp.ones_like(mean[0])

    def one(mean: Array, variance: Array) -> tuple[Array, ...]:
        free = mm.DiagonalGaussian(mean, variance)
        return mm.ClippedGaussian(gaussian=free, lower=-end, upper=end).moments(2)

    return cast(tuple[Array, Array], jax.vmap(one)(mean, variance))


def joint_with_action(
    critic: QuadraticCritic, mean: Float[Array, "n obs"], covariance: Float[Array, "n obs obs"]
) -> tuple[Float[Array, "n obs_act"], Float[Array, "n obs_act obs_act"], Float[Array, "n act obs"]]:
    """Returns mean and covariance of (s, μ(s)) for n Gaussian beliefs about s, and E[∇μ].

    μ̃ is linearised at the mean, which makes it Gaussian [choice]. Mean and variance of each
    clipped action are then exact, and so is its covariance with the state: by Stein's lemma, that
    of μ̃ times the probability that μ̃ is within the bounds. The covariance of two clipped actions
    is that of both μ̃ times both probabilities, which is its leading term [choice].
    """
    vertices, push = jax.linearize(lambda s: jax.vmap(lambda one: critic.slice(one).vertices())(s), mean)
    slope = derivative(push, *mean.shape)
    across = matmul(slope, covariance)
    between = matmul(across, slope.mT)
    free = jnp.maximum(jnp.diagonal(between, axis1=1, axis2=2), 0)
    action, variance = clipped(vertices, free)
    deviation = jnp.sqrt(jnp.maximum(free, jnp.finfo(free.dtype).tiny))
    inside = normal_mass((-1 - vertices) / deviation, (1 - vertices) / deviation)
    across = inside[:, :, None] * across
    between = inside[:, :, None] * between * inside[:, None, :]
    own = jnp.eye(vertices.shape[1], dtype=bool)
    between = jnp.where(own, variance[:, :, None], between)
    joint = jnp.concatenate(
        [jnp.concatenate([covariance, across.mT], axis=2), jnp.concatenate([across, between], axis=2)], axis=1
    )
    return jnp.concatenate([mean, action], axis=1), joint, inside[:, :, None] * slope


Spread = Float[Array, "n packed"] | None


class BeliefStep(NamedTuple):
    """One step of n Gaussian beliefs under the greedy policy."""

    reward: Float[Array, "n"]  # E[r]
    mean: Float[Array, "n obs"]  # of the next state
    covariance: Float[Array, "n obs obs"]
    both: Float[Array, "n obs_act"]  # mean of state and action
    joint: Float[Array, "n obs_act obs_act"]  # and their covariance
    gain: Float[Array, "n act obs"]  # E[∇μ], the action's derivative
    slope: Float[Array, "n obs obs_act"]  # the derivative of the next state by state and action


def step_moments(
    world: World, mean: Float[Array, "n obs"], covariance: Float[Array, "n obs obs"], spread: Spread
) -> BeliefStep:
    """Returns E[r] under the greedy policy, and mean and covariance of the next state."""
    both, joint, gain = joint_with_action(world.critic, mean, covariance)
    size, states = mean.shape[1], world.model.ensemble.statistics
    reward = jax.vmap(lambda m, c: world.reward.expectation(states, mm.Gaussian(m, c)))(both, joint)
    next_mean, push, mixtures = world.next_means(both[:, :size], both[:, size:], spread)
    slope = derivative(push, *both.shape)
    _, aleatoric, epistemic = mm.decompose(mixtures, full=True)
    carried = matmul(matmul(slope, joint), slope.mT)
    covariance = (carried + carried.mT) / 2 + aleatoric + epistemic
    return BeliefStep(reward, next_mean, covariance, both, joint, gain, slope)


def step_points(
    world: World, points: Float[Array, "n obs"], spread: Spread, rule: PredictionRule, keys: Key[Array, "n"]
) -> tuple[Float[Array, "n"], Float[Array, "n obs"]]:
    """Returns r̂ under the greedy policy and the next state, for states that are points.

    The agent's prediction rule, asked for one sample, makes a point of the prediction.
    """
    actions = jax.vmap(lambda s: world.critic.slice(s).greedy)(points)
    states = world.model.ensemble.statistics
    reward = world.reward.at(states, points, actions)
    mixtures = world.model.ensemble.predict_batch(points, actions)
    mixtures = world.filter.anticipate(world.model, mixtures, spread)
    points = jax.vmap(lambda mixture, key: cast(mm.Dirac | mm.Empirical, rule(mixture, key, 1)).mean)(mixtures, keys)
    return reward, points


def look_ahead(
    world: World,
    rule: PredictionRule,
    first: mm.Distribution,
    spread: Spread,
    gamma: Any,
    steps: int,
    key: Key[Array, ""],
) -> tuple[Float[Array, "n"], mm.Distribution]:
    """Follows the greedy policy for some steps from n beliefs about the first state.

    Returns Σₖ γᵏ E[rₖ] for k = 1 … steps, and the beliefs about the state after them. A Gaussian
    stays a Gaussian. The components of a mixture are followed each by itself, matched to a Gaussian
    again after each step [choice]. Points stay points: one is moved to the mean (MoCA-CE), samples
    are moved to a sample of their own prediction (MoCA-MC).

    Args:
        world: What the agent has learned.
        rule: Its prediction rule.
        first: Its predictions of the first state, by that rule, with a leading axis.
        spread: `Transition.spread`, which is held for all steps [choice].
        gamma: The discount factor.
        steps: The number of steps.
        key: For samples, if the rule draws any.
    """
    start = branches(first, spread)

    def one(carry: tuple[Any, Any, Any], key: Key[Array, ""]) -> tuple[tuple[Any, Any, Any], Float[Array, "rows"]]:
        discount, mean, covariance = carry
        if covariance is None:
            keys = jax.random.split(key, len(mean))
            reward, mean = step_points(world, mean, start.spread, rule, keys)
        else:
            reward, mean, covariance, *_ = step_moments(world, mean, covariance, start.spread)
        return (discount * gamma, mean, covariance), discount * reward

    carry = (jnp.asarray(gamma), start.mean, start.covariance)
    (_, mean, covariance), rewards = jax.lax.scan(one, carry, jax.random.split(key, steps))
    return start.average(rewards.sum(0)), as_first(first, mean, covariance)


class Branches(NamedTuple):
    """The branches of n beliefs, one or several each; each branch is a row."""

    weights: Float[Array, "n c"]  # of the branches of a belief
    mean: Float[Array, "rows obs"]
    covariance: Float[Array, "rows obs obs"] | None  # None for points
    spread: Float[Array, "rows packed"] | None

    def average(self, values: Float[Array, "rows"]) -> Float[Array, "n"]:
        """Returns the average over the branches of each belief."""
        return jnp.sum(self.weights * values.reshape(-1, self.weights.shape[1]), axis=1)


def branches(belief: mm.Distribution, spread: Spread) -> Branches:
    """Returns the branches to follow for n beliefs."""
    weights, mean, covariance = _parts(belief)
    count, each = mean.shape[:2]
    flat = lambda leaf: leaf.reshape(count * each, *leaf.shape[2:])  # noqa: E731
    if spread is not None:
        spread = flat(jnp.broadcast_to(spread[:, None], (count, each, spread.shape[-1])))
    return Branches(weights, flat(mean), None if covariance is None else flat(covariance), spread)


def _parts(belief: mm.Distribution) -> tuple[Array, Float[Array, "n c obs"], Float[Array, "n c obs obs"] | None]:
    """Returns the weights, means and covariances (None for points) of n beliefs."""
    one = jnp.ones((1, 1))
    if isinstance(belief, mm.Dirac):
        return one, belief.point[:, None], None
    if isinstance(belief, mm.Empirical):
        points = belief.points.shape[1]
        return jnp.full((1, points), 1 / points), belief.points, None
    if isinstance(belief, mm.DiagonalGaussian | mm.Gaussian):
        return one, belief.mean[:, None], belief.covariance[:, None]
    if isinstance(belief, mm.GaussianMixture):
        return belief.weights, belief.components.mean, belief.components.covariance
    raise TypeError(
        f"a {type(belief).__name__} cannot be followed over several steps: plan.horizon above 1 needs a prediction "
        "that is a Dirac, an Empirical, a Gaussian, a DiagonalGaussian or a GaussianMixture"
    )


def as_first(first: mm.Distribution, mean: Float[Array, "rows obs"], covariance: Array | None) -> mm.Distribution:
    """Returns the followed rows as beliefs of the kind they came from."""
    if isinstance(first, mm.Dirac):
        return mm.Dirac(mean)
    if isinstance(first, mm.Empirical):
        return mm.Empirical(mean.reshape(first.points.shape))
    assert covariance is not None
    if isinstance(first, mm.GaussianMixture):
        shape = first.components.mean.shape
        components = mm.Gaussian(mean.reshape(shape), covariance.reshape(*shape, shape[-1]))
        return mm.GaussianMixture(first.weights, components)
    return mm.Gaussian(mean, covariance)
