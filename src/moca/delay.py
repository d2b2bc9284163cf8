"""A filter for observations that are late: it corrects the past and predicts the present [choice].

With a delay of n decisions, the newest observation is of the state n decisions ago. The filter
keeps its belief about that state, and the n actions sent since. The belief on which the agent acts
and learns is n predictions ahead of it.
"""

from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from moca import moments as mm
from moca.belief import Belief, BeliefFilter, Pending, predict
from moca.config import Config
from moca.dynamics import GaussianEnsemble
from moca.envs.environment import Spaces
from moca.nets import matmul
from moca.replay import pack, unpack, variances


class Enclosing(BeliefFilter):
    """A filter that wraps another one.

    Methods that it does not override are those of the inner filter.
    """

    inner: BeliefFilter

    @property
    def keeps_covariance(self) -> bool:
        return self.inner.keeps_covariance

    @property
    def correlated(self) -> bool:
        return self.inner.correlated

    def anticipate(self, *given: Any, **gaps: Any) -> mm.GaussianMixture:
        return self.inner.anticipate(*given, **gaps)

    def noise_variance(self, model: Any, observation: Float[Array, "*n obs"]) -> Float[Array, "*n obs"] | None:
        return self.inner.noise_variance(model, observation)


class Delayed(Enclosing):
    """A filter for observations that are `delay` decisions late.

    The first observation of an episode arrives at once. What is measured until the next one arrives
    is ignored.
    """

    env: Spaces
    delay: int = eqx.field(static=True)

    def init(self, model: Any, measured: Float[Array, "obs"]) -> Belief:
        mean, covariance = cast(tuple[Array, Array], self.inner.init(model, measured)[:2])
        actions = jnp.zeros((self.delay, self.env.action_size))
        spread = pack(0 * covariance, self.correlated)
        return Belief(mean, covariance, Pending(mean, covariance, actions, jnp.zeros((), jnp.int32), spread))

    def step(
        self,
        model: Any,
        belief: Belief,
        action: Float[Array, "act"],
        measured: Float[Array, "obs"],
        missing: Bool[Array, "obs"] | None = None,
    ) -> tuple[Belief, Float[Array, "packed"]]:
        """Returns the belief about the present, and the covariance of its mean's innovation."""
        past = cast(Pending, belief.pending)
        before, first, arrived = Belief(past.mean, past.covariance), past.actions[0], past.sent == self.delay
        prior, _ = predict(model.ensemble, before, self.env.from_bounds(first))
        posterior, spread = cast(tuple[Any, Array], self.inner.step(model, before, first, measured, missing))
        now = jax.tree.map(lambda new, old: jnp.where(arrived, new, old), posterior, before)
        gained = jnp.where(arrived, prior.covariance - posterior.covariance, 0)
        actions, sent = jnp.concatenate([past.actions[1:], action[None]]), jnp.minimum(past.sent + 1, self.delay)
        trained = model.ensemble.statistics.batches > 0
        due = (jnp.arange(self.delay) >= self.delay - sent) & trained
        ahead, gained = predict_ahead(model.ensemble, now, gained, self.env.from_bounds(actions), due)
        innovation = jnp.where(trained, pack(gained, self.correlated), spread)
        pending = Pending(now.mean, now.covariance, actions, sent, jnp.where(arrived, spread, 0))
        return Belief(ahead.mean, ahead.covariance, pending), innovation

    def anticipate(
        self,
        model: Any,
        mixtures: mm.GaussianMixture,
        spread: Float[Array, "n packed"] | None,
        missing: Bool[Array, "n obs"] | None = None,
    ) -> mm.GaussianMixture:
        """Returns predictions of the next belief's mean, from predictions of the next state.

        The error of the present prediction is not seen before the delay has passed. So the next
        mean differs from its prediction only by what the late observation adds.
        """
        if spread is None:
            return mixtures
        shape = mixtures.components.mean.shape
        mean = jnp.broadcast_to(mixtures.mean[:, None], shape)
        if isinstance(mixtures.components, mm.DiagonalGaussian) and not self.correlated:
            variance = jnp.broadcast_to(variances(spread, shape[-1])[:, None], shape)
            return mm.GaussianMixture(mixtures.weights, mm.DiagonalGaussian(mean, variance))
        covariance = jnp.broadcast_to(unpack(spread, shape[-1])[:, None], (*shape, shape[-1]))
        return mm.GaussianMixture(mixtures.weights, mm.Gaussian(mean, covariance))


def predict_ahead(
    ensemble: GaussianEnsemble,
    belief: Belief,
    gained: Float[Array, "obs obs"],
    actions: Float[Array, "delay act"],
    due: Bool[Array, "delay"],
) -> tuple[Belief, Float[Array, "obs obs"]]:
    """Returns the belief after the actions that are `due`.

    Also returns the covariance `gained` from the last observation, carried along.
    """

    def one(carry: tuple[Belief, Array], x: tuple[Array, Array]) -> tuple[tuple[Belief, Array], None]:
        (belief, gained), (action, due) = carry, x
        derivative = jax.jacfwd(lambda s: ensemble.predict(s, action).mean)(belief.mean)
        moved = (predict(ensemble, belief, action)[0], matmul(matmul(derivative, gained), derivative.T))
        return jax.tree.map(lambda new, old: jnp.where(due, new, old), moved, carry), None

    return jax.lax.scan(one, (belief, gained), (actions, due))[0]


def for_sensor(own: BeliefFilter, config: Config, env: Spaces) -> BeliefFilter:
    """Returns the filter for observations as late as the settings say.

    One that keeps no covariance takes them as if they were in time.
    """
    late = own.keeps_covariance and config.sensor.delay > 0
    return Delayed(own, env, config.sensor.delay) if late else own
