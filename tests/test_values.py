"""The value classes that learn their bases: what is shared, what stays positive, what a rate does."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moca import config
from moca import moments as mm
from moca.critic import descend_by_role, first, freeze, twin, value_rates
from moca.nets import ADAM
from moca.values import make_value

BOUNDS = {"low": (-1.0, -2.0), "high": (1.0, 2.0), "lengthscales": (0.5, 1.0)}


def value(kind, **settings):
    chosen = config.ValueConfig(kind=kind, bases=12, lr=0.1, basis_lr=0.01, constant_lr=0.5, **BOUNDS, **settings)
    return make_value(chosen, 2, jax.random.key(0)), chosen


def test_the_learned_rbf_starts_as_the_paper_s():
    fixed, learned = value("rbf")[0], value("rbf-learned")[0]
    np.testing.assert_array_equal(fixed.centers, learned.centers)
    np.testing.assert_allclose(learned.precision, np.broadcast_to(fixed.precision, (12, 2)))


def test_precisions_learn_as_factors_and_stay_positive():
    """A step of Adam by r in the logarithm multiplies by e^−r, however small the precision."""
    made, settings = value("rbf-learned")
    # Adam's first step is the sign of the gradient, up to the rounding of its bias correction.
    stepped, _ = descend_by_role(made, jax.tree.map(jnp.ones_like, made), ADAM.init(made), value_rates(made, settings))
    np.testing.assert_allclose(stepped.precision, made.precision * np.exp(-0.01), rtol=1e-5)
    np.testing.assert_allclose(stepped.centers, made.centers - 0.01, rtol=1e-5)
    np.testing.assert_allclose(stepped.weights, made.weights - 0.1, rtol=1e-5)
    np.testing.assert_allclose(stepped.constant, made.constant - 0.5, rtol=1e-5)
    in_log = lambda logs: mm.RBF(jnp.ones(12), made.centers, jnp.exp(logs))(jnp.array([0.3, 0.1]))  # noqa: E731
    gradient = jax.grad(lambda f: f(jnp.array([0.3, 0.1])))(mm.RBF(jnp.ones(12), made.centers, made.precision))
    _, state = descend_by_role(made, gradient, ADAM.init(made), value_rates(made, settings))
    np.testing.assert_allclose(state.mu.precision, 0.1 * jax.grad(in_log)(jnp.log(made.precision)), rtol=1e-5)


@pytest.mark.parametrize("kind", ["rbf", "rbf-learned"])
def test_only_the_paper_s_rbf_is_frozen(kind):
    made, settings = value(kind)
    made = mm.RBF(jnp.ones(12), made.centers, made.precision)
    gradient = jax.grad(lambda f: freeze(f, settings)(jnp.array([0.1, 0.2])))(made)
    moved = [float(jnp.abs(leaf).max()) > 0 for leaf in (gradient.weights, gradient.centers, gradient.precision)]
    assert moved == [True, kind != "rbf", kind != "rbf"]
    rates = value_rates(made, settings)
    assert (float(rates.centers) == 0) == (kind == "rbf")


def test_twins_share_their_bases():
    made, _ = value("erf")
    both = twin(made)
    assert both.weights.shape == (2, 12)
    assert both.directions.shape == made.directions.shape
    assert jax.tree.structure(first(both)) == jax.tree.structure(made)
