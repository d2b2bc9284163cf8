"""The quadratic action-value Q(s, a) whose maximum over the actions is V(s) [Eq. 2] [Eq. 3].

Actions are in units of half their range around its middle, so the box of feasible actions is [−1, 1] in every
dimension, whatever its bounds. Widths and the least curvature are ours [choice].
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from moca import config
from moca import moments as mm
from moca.nets import MLP


class ActionSlice(NamedTuple):
    """What Q(s, ·) is at one state: V − ½ ‖a − μ̃‖²_P + ½ ‖μ − μ̃‖²_P."""

    slope: Float[Array, "act"]  # Pμ̃, of the quadratic at a = 0
    factor: Float[Array, "act act"]  # L, with P = LLᵀ
    greedy: Float[Array, "act"]  # μ, the best action in the box

    def advantage(self, action: Float[Array, "act"]) -> Float[Array, ""]:
        """Q(s, a) − V(s), which is zero at μ and negative elsewhere in the box: (a − μ)ᵀ (Pμ̃ − ½ P(a + μ))."""
        middle = self.factor @ (self.factor.T @ (action + self.greedy)) / 2
        return jnp.sum((action - self.greedy) * (self.slope - middle))


class QuadraticCritic(eqx.Module):
    """A shared trunk with a vertex head and a Cholesky head, and beside it V, a function of the state alone.

    The vertex head outputs μ̃ (the paper), or the slope Pμ̃, which stays well scaled where P vanishes, or a number whose
    tanh is μ̃ = μ: the NAF whose saturation the paper's parameterisation is to avoid.
    """

    trunk: MLP
    vertex_head: MLP
    cholesky_head: MLP
    value: mm.Function
    floor: Float[Array, ""]
    full: bool = eqx.field(static=True)
    head: str = eqx.field(static=True)

    def __init__(
        self, key: Key[Array, ""], settings: config.Critic, value: mm.Function, observation_size: int, action_size: int
    ) -> None:
        trunk_key, vertex_key, cholesky_key = jax.random.split(key, 3)
        self.trunk = MLP(trunk_key, (observation_size, *(settings.width,) * settings.depth))
        self.vertex_head = MLP(vertex_key, (settings.width, action_size))
        self.full = settings.curvature == "full"
        self.head = settings.head
        entries = action_size * (action_size + 1) // 2 if self.full else action_size
        self.cholesky_head = MLP(cholesky_key, (settings.width, entries))
        self.value = value
        self.floor = jnp.asarray(settings.curvature_floor, jnp.float32)

    def slice(self, observation: Float[Array, "obs"]) -> ActionSlice:
        """Slope, curvature and greedy action at one state."""
        hidden = jax.nn.relu(self.trunk(observation))
        output = self.vertex_head(hidden)
        factor = self._factor(self.cholesky_head(hidden))
        if self.head == "tanh":
            vertex = jnp.tanh(output)
            return ActionSlice(factor @ (factor.T @ vertex), factor, vertex)
        if self.head == "vertex":
            vertex, slope = output, factor @ (factor.T @ output)
        elif self.full:
            vertex, slope = jax.scipy.linalg.cho_solve((factor, True), output), output
        else:
            vertex, slope = output / jnp.diagonal(factor) ** 2, output
        greedy = box_maximiser(factor @ factor.T, vertex) if self.full else jnp.clip(vertex, -1, 1)
        return ActionSlice(slope, factor, greedy)

    def __call__(self, observation: Float[Array, "obs"], action: Float[Array, "act"]) -> Float[Array, ""]:
        """Q(s, a) [Eq. 3]."""
        return self.value(observation) + self.slice(observation).advantage(action)

    def _factor(self, raw: Float[Array, "entries"]) -> Float[Array, "act act"]:
        """L: a diagonal of at least √floor, and in the full case what stands below it."""
        size = self.vertex_head.biases[-1].shape[-1]
        diagonal = jnp.sqrt(self.floor) + jax.nn.softplus(raw[:size])
        if not self.full:
            return jnp.diag(diagonal)
        rows, columns = jnp.tril_indices(size, -1)
        return jnp.diag(diagonal).at[rows, columns].set(raw[size:])


def keep_alive(factor: Float[Array, "act act"], least: float) -> Float[Array, ""]:
    """ReLU(p_min − ‖L‖²_F)², the penalty on a flat quadratic at one state [App. C]."""
    return jax.nn.relu(least - jnp.sum(factor**2)) ** 2


def box_maximiser(P: Float[Array, "act act"], vertex: Float[Array, "act"], sweeps: int = 60) -> Float[Array, "act"]:
    """argmax of −½ (a − μ̃)ᵀ P (a − μ̃) over the box [−1, 1]ⁿ.

    Clipping μ̃ is the answer for a diagonal P only. Coordinate ascent finds which bounds hold, and one linear solve in
    the free dimensions then gives the exact maximiser and its exact derivative.
    """
    size = len(vertex)
    if size == 1:
        return jnp.clip(vertex, -1, 1)

    def coordinate(step: Array, action: Float[Array, "act"]) -> Float[Array, "act"]:
        i = step % size
        pull = P[i] @ (action - vertex) - P[i, i] * (action[i] - vertex[i])
        return action.at[i].set(jnp.clip(vertex[i] - pull / P[i, i], -1, 1))

    rough = jax.lax.fori_loop(0, sweeps * size, coordinate, jnp.clip(vertex, -1, 1))
    rough = jax.lax.stop_gradient(rough)
    free = jnp.abs(rough) < 1
    # In the free dimensions the gradient vanishes: P_ff (a_f − μ̃_f) = −P_fb (a_b − μ̃_b); the bound ones stay put.
    system = jnp.where(free[:, None] & free[None, :], P, jnp.eye(size, dtype=P.dtype))
    held = jnp.where(free, 0, rough - vertex)
    right = jnp.where(free, -(P @ held), 0)
    return jnp.where(free, vertex + jnp.linalg.solve(system, right), rough)
