"""Multi-layer perceptrons, stacks of them with batched matrix products, and steps of Adam."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key

from moca.config import Config

T = TypeVar("T")

# For covariances: recent GPUs default to TF32, whose errors make products of them indefinite.
matmul = partial(jnp.matmul, precision="highest")


class MLP(eqx.Module):
    """A perceptron for one input; use `jax.vmap` for a batch. The last layer is linear."""

    weights: list[Float[Array, "..."]]
    biases: list[Float[Array, "..."]]
    activation: Callable = eqx.field(static=True)

    def __init__(
        self, key: Key[Array, ""], sizes: tuple[int, ...], activation: Callable[[Array], Array] = jax.nn.relu
    ) -> None:
        """Draws weights and biases uniformly within ±1/√fan-in, layer by layer."""
        self.weights, self.biases = [], []
        self.activation = activation
        keys = jax.random.split(key, len(sizes) - 1)
        for layer_key, fan_in, fan_out in zip(keys, sizes[:-1], sizes[1:], strict=True):
            weight_key, bias_key = jax.random.split(layer_key)
            limit = fan_in**-0.5
            self.weights.append(jax.random.uniform(weight_key, (fan_out, fan_in), minval=-limit, maxval=limit))
            self.biases.append(jax.random.uniform(bias_key, (fan_out,), minval=-limit, maxval=limit))

    def __call__(self, x: Float[Array, "inputs"]) -> Float[Array, "outputs"]:
        """Returns the output of the last layer."""
        *hidden, (weight, bias) = zip(self.weights, self.biases, strict=True)
        for inner_weight, inner_bias in hidden:
            x = self.activation(_linear(x, inner_weight) + inner_bias)
        return _linear(x, weight) + bias


def _linear(x: Float[Array, "*n inputs"], weight: Float[Array, "outputs inputs"]) -> Float[Array, "*n outputs"]:
    """x Wᵀ without a transpose, so that the gradient of W has the layout of W."""
    return jax.lax.dot_general(x, weight, (((x.ndim - 1,), (1,)), ((), ())))


M = TypeVar("M", bound=eqx.Module)


def stacked(key: Key[Array, ""], count: int, build: Callable[[Key[Array, ""]], M]) -> M:
    """Returns `count` independently initialised modules, stacked along a leading axis."""
    return eqx.filter_vmap(build)(jax.random.split(key, count))


def copies(x: Float[Array, "*n"], count: int) -> Float[Array, "count *n"]:
    """Repeats an input once for each module of a stack.

    With a shared input, XLA merges the modules' products into one wide matrix product, whose
    gradient it must transpose. With separate inputs they stay a batch.
    """
    return jnp.broadcast_to(x, (count, *x.shape))


ADAM = optax.scale_by_adam()


def descend(parameters: T, gradient: T, optimiser: optax.OptState, rates: Any) -> tuple[T, optax.OptState]:
    """Takes one step of Adam; `rates` is one number, or a tree with one for each array."""
    direction, optimiser = ADAM.update(gradient, optimiser)
    rates = jax.tree.broadcast(rates, parameters)
    return jax.tree.map(lambda w, step, rate: w - rate * step, parameters, direction, rates), optimiser


def share_done(config: Config, updates: Int[Array, ""]) -> Float[Array, ""]:
    """Returns the fraction of the scheduled updates made so far, at most one."""
    train = config.train
    total = max(1, (train.scheduled_steps - train.warmup) // config.env.action_repeat * train.updates)
    return jnp.minimum(updates / total, 1)


def decayed(config: Config, lr: Any, updates: Int[Array, ""]) -> Float[Array, ""]:
    """Returns the learning rate after `updates` updates.

    It starts at `lr` and decays linearly to `train.decay` times `lr`.
    """
    return lr * (1 + (config.train.decay - 1) * share_done(config, updates))
