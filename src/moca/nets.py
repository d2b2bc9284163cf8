"""Multi-layer perceptrons, stacks of them whose layers are one batched matrix product, and the step they learn by."""

from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key

from moca.config import Config

T = TypeVar("T")


class MLP(eqx.Module):
    """A perceptron for one input; `jax.vmap` takes a batch. The last layer is linear."""

    weights: list[Float[Array, "..."]]
    biases: list[Float[Array, "..."]]
    activation: Callable = eqx.field(static=True)

    def __init__(
        self, key: Key[Array, ""], sizes: tuple[int, ...], activation: Callable[[Array], Array] = jax.nn.relu
    ) -> None:
        """Weights and biases uniform within ±1/√fan-in, layer by layer."""
        self.weights, self.biases = [], []
        self.activation = activation
        keys = jax.random.split(key, len(sizes) - 1)
        for layer_key, fan_in, fan_out in zip(keys, sizes[:-1], sizes[1:], strict=True):
            weight_key, bias_key = jax.random.split(layer_key)
            limit = fan_in**-0.5
            self.weights.append(jax.random.uniform(weight_key, (fan_out, fan_in), minval=-limit, maxval=limit))
            self.biases.append(jax.random.uniform(bias_key, (fan_out,), minval=-limit, maxval=limit))

    def __call__(self, x: Float[Array, "inputs"]) -> Float[Array, "outputs"]:
        """The last layer's output."""
        *hidden, (weight, bias) = zip(self.weights, self.biases, strict=True)
        for inner_weight, inner_bias in hidden:
            x = self.activation(_linear(x, inner_weight) + inner_bias)
        return _linear(x, weight) + bias


def _linear(x: Float[Array, "*n inputs"], weight: Float[Array, "outputs inputs"]) -> Float[Array, "*n outputs"]:
    """x Wᵀ with no transpose of its own: the gradient of W then has W's layout, and the optimiser reads in order."""
    return jax.lax.dot_general(x, weight, (((x.ndim - 1,), (1,)), ((), ())))


M = TypeVar("M", bound=eqx.Module)


def stacked(key: Key[Array, ""], count: int, build: Callable[[Key[Array, ""]], M]) -> M:
    """`count` independently initialised modules as one, each array with a leading axis."""
    return eqx.filter_vmap(build)(jax.random.split(key, count))


def copies(x: Float[Array, "*n"], count: int) -> Float[Array, "count *n"]:
    """Repeats what a whole stack is given, once for each of its modules.

    Products of an input that modules share become one of a wider matrix, whose gradient XLA first transposes; with an
    input of its own for each they stay a batch.
    """
    return jnp.broadcast_to(x, (count, *x.shape))


ADAM = optax.scale_by_adam()


def descend(parameters: T, gradient: T, optimiser: optax.OptState, rates: Any) -> tuple[T, optax.OptState]:
    """Parameters and optimiser after one step of Adam; `rates` is one number, or a tree with one for each array."""
    direction, optimiser = ADAM.update(gradient, optimiser)
    if len(jax.tree.leaves(rates)) == 1:
        (rate,) = jax.tree.leaves(rates)
        rates = jax.tree.map(lambda leaf: rate, parameters)
    return jax.tree.map(lambda w, step, rate: w - rate * step, parameters, direction, rates), optimiser


def share_done(config: Config, updates: Int[Array, ""]) -> Float[Array, ""]:
    """The share of all updates within the schedules that have been made."""
    train = config.train
    total = max(1, (scheduled(config) - train.warmup) // config.env.action_repeat * train.updates)
    return jnp.minimum(updates / total, 1)


def scheduled(config: Config) -> int:
    """The number of steps over which learning rates and exploration change; later they keep their last values."""
    return config.train.horizon or config.train.steps


def decayed(config: Config, lr: Any, updates: Int[Array, ""]) -> Float[Array, ""]:
    """A learning rate as it stands after so many updates: it falls linearly to its `train.decay`-th part."""
    return lr * (1 + (config.train.decay - 1) * share_done(config, updates))
