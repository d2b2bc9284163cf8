"""The quadratic action-value Q(s, a), whose maximum over actions is V(s) [Eq. 2].

It is quadratic in the action [Eq. 3]. Agents train twins of it.

Actions are measured from the middle of their range, in units of half its width. The box of feasible
actions is therefore [−1, 1] in every dimension. Widths and the smallest curvature are ours
[choice].

Twin critics share the bases of V. The class of V declares, at each field, whether it is a basis and
how it is learned: see `moca.moments.role`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key

from moca import config, nets
from moca import moments as mm
from moca.moments.linear import solve
from moca.moments.propagation import moments_of
from moca.nets import MLP

T = TypeVar("T")
SHARED = ("basis", "positive")  # roles of arrays shared by twins


class ActionSlice(NamedTuple):
    """Q(s, ·) at one state: V − ½ ‖a − μ̃‖²_P + ½ ‖μ − μ̃‖²_P."""

    slope: Float[Array, "act"]  # Pμ̃, of the quadratic at a = 0
    factor: Float[Array, "act act"]  # L, with P = LLᵀ
    greedy: Float[Array, "act"]  # μ, the best action in the box

    def advantage(self, action: Float[Array, "act"]) -> Float[Array, ""]:
        """Q(s, a) − V(s) = (a − μ)ᵀ (Pμ̃ − ½ P(a + μ)), which is zero at μ and below elsewhere."""
        middle = self.factor @ (self.factor.T @ (action + self.greedy)) / 2
        return jnp.sum((action - self.greedy) * (self.slope - middle))

    def expected_advantage(self, action: mm.Distribution) -> Float[Array, ""]:
        """E[Q(s, a)] − V(s) = A(E[a]) − ½ tr(P Cov[a]), for a distribution of actions [Eq. 3].

        The advantage is quadratic in the action, so that it depends on mean and covariance alone.
        It is exact for every distribution whose mean and covariance are, such as a clipped or a
        truncated Gaussian (`mm.ClippedGaussian`, `mm.TruncatedGaussian`).
        """
        mean, covariance = moments_of(action)
        return self.advantage(mean) - jnp.sum(self.factor * (covariance @ self.factor)) / 2

    def quadratic(self) -> mm.Quadratic:
        """The advantage as a function of the action, for closed forms such as `mm.variance`."""
        P = self.factor @ self.factor.T
        return mm.Quadratic(-P, self.slope, self.greedy @ (P @ self.greedy / 2 - self.slope))

    def vertices(self) -> Float[Array, "act"]:
        """The unbounded maximum of Q(s, ·) along each dimension, the others at μ.

        It is μ̃ if P is diagonal.
        """
        P = self.factor @ self.factor.T
        vertices: Array = self.greedy + (self.slope - P @ self.greedy) / jnp.diagonal(P)
        return vertices


def advantages(
    slices: ActionSlice, action: Float[Array, "n act"], variance: Float[Array, "n act"] | None
) -> Float[Array, "n"]:
    """Returns Q(s, a) − V(s) at n states; averaged over the action, if it has a variance."""
    if variance is None:
        return jax.vmap(ActionSlice.advantage)(slices, action)
    return jax.vmap(ActionSlice.expected_advantage)(slices, mm.DiagonalGaussian(action, variance))


class QuadraticCritic(eqx.Module):
    """A shared trunk with a vertex head and a Cholesky head, and V, a function of the state alone.

    `head` selects the output of the vertex head. "vertex" is μ̃, as in the paper. "slope" is Pμ̃,
    which stays well scaled where P vanishes. "tanh" is a number whose tanh is μ̃ = μ: this is NAF,
    whose saturation the paper's parameterisation avoids.
    """

    trunk: MLP
    vertex_head: MLP
    cholesky_head: MLP
    value: mm.Function
    floor: Float[Array, ""]
    full: bool = eqx.field(static=True)
    head: str = eqx.field(static=True)

    def __init__(
        self,
        key: Key[Array, ""],
        settings: config.CriticConfig,
        value: mm.Function,
        observation_size: int,
        action_size: int,
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
        """Returns slope, curvature and greedy action at one state."""
        hidden = jax.nn.relu(self.trunk(observation))
        output = self.vertex_head(hidden)
        factor = self._factor(self.cholesky_head(hidden))
        if self.head == "tanh":
            vertex = jnp.tanh(output)
            return ActionSlice(factor @ (factor.T @ vertex), factor, vertex)
        if self.head == "vertex":
            vertex, slope = output, factor @ (factor.T @ output)
        elif self.full:
            vertex, slope = solve(factor.T, solve(factor, output)), output
        else:
            vertex, slope = output / jnp.diagonal(factor) ** 2, output
        greedy = box_maximiser(factor @ factor.T, vertex) if self.full else jnp.clip(vertex, -1, 1)
        return ActionSlice(slope, factor, greedy)

    def __call__(self, observation: Float[Array, "obs"], action: Float[Array, "act"]) -> Float[Array, ""]:
        """Q(s, a) [Eq. 3]."""
        return self.value(observation) + self.slice(observation).advantage(action)

    def _factor(self, raw: Float[Array, "entries"]) -> Float[Array, "act act"]:
        """Returns L, with a diagonal of at least √floor.

        It has off-diagonal entries only if `full`.
        """
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
    """Returns the argmax of −½ (a − μ̃)ᵀ P (a − μ̃) over the box [−1, 1]ⁿ.

    For a diagonal P this is μ̃, clipped. In general, coordinate ascent finds the active bounds; one
    linear solve in the free dimensions then gives the exact maximiser and its exact derivative.
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
    # In the free dimensions the gradient vanishes: P_ff (a_f − μ̃_f) = −P_fb (a_b − μ̃_b). The
    # others stay put.
    system = jnp.where(free[:, None] & free[None, :], P, jnp.eye(size, dtype=P.dtype))
    held = jnp.where(free, 0, rough - vertex)
    right = jnp.where(free, -(P @ held), 0)
    return jnp.where(free, vertex + solve(system, right), rough)


def twin(value: mm.Function) -> mm.Function:
    """Stacks two copies of `value` along a new axis of all arrays except the shared bases."""
    return _map_roles(lambda role, leaf: leaf if role in SHARED else jnp.stack([leaf, leaf]), value)


def twin_axes(tree: T) -> T:
    """Returns `in_axes` for a pair of twin functions, or of critics that hold them."""
    return _map_roles(lambda role, leaf: None if role in SHARED else 0, tree)


def first(twins: T) -> T:
    """Returns the first of the two twins."""
    return _map_roles(lambda role, leaf: leaf if role in SHARED else leaf[0], twins)


def freeze(value: mm.Function, settings: config.ValueConfig) -> mm.Function:
    """Stops gradients to the centres and precision of the paper's RBF, which are fixed."""
    if settings.kind != "rbf":
        return value
    fixed = ("basis", "positive")
    return _map_roles(lambda role, leaf: jax.lax.stop_gradient(leaf) if role in fixed else leaf, value)


def value_rates(value: mm.Function, settings: config.ValueConfig) -> mm.Function:
    """Returns a learning rate for each array of `value`, in the same structure."""
    learned = 0.0 if settings.kind == "rbf" else settings.basis_lr
    rates = {"linear": settings.lr, "constant": settings.constant_lr, "basis": learned, "positive": learned}
    return _map_roles(lambda role, leaf: jnp.asarray(rates[role]), value)


def learning_rates(critics: QuadraticCritic, settings: config.Config, updates: Any) -> QuadraticCritic:
    """Returns the learning rate of every array of a critic, in the same structure."""
    critic, done = settings.critic, nets.share_done(settings, updates)
    trunk = critic.lr + (critic.lr_end - critic.lr) * done
    vertex = critic.vertex_lr + (critic.vertex_lr_end - critic.vertex_lr) * done
    rates = jax.tree.map(lambda leaf: trunk, critics)
    head, value = jax.tree.map(lambda leaf: vertex, rates.vertex_head), value_rates(critics.value, settings.value)
    rates = eqx.tree_at(lambda c: (c.vertex_head, c.value, c.floor), rates, (head, value, jnp.zeros(())))
    return cast(QuadraticCritic, jax.tree.map(lambda rate: nets.decayed(settings, rate, updates), rates))


def descend_by_role(parameters: T, gradient: T, optimiser: optax.OptState, rates: T) -> tuple[T, optax.OptState]:
    """Takes one step of Adam; arrays that must stay positive are updated in log space."""
    gradient = _map_roles(lambda role, g, w: g * w if role == "positive" else g, gradient, parameters)
    start = _map_roles(lambda role, w: jnp.zeros_like(w) if role == "positive" else w, parameters)
    moved, optimiser = nets.descend(start, gradient, optimiser, rates)
    moved = _map_roles(lambda role, w, new: w * jnp.exp(new) if role == "positive" else new, parameters, moved)
    return moved, optimiser


def _map_roles(function: Callable[..., Any], tree: T, *rest: T) -> T:
    """`jax.tree.map` whose function also receives, as first argument, the role of each leaf."""
    mapped = jax.tree_util.tree_map_with_path(lambda path, *leaves: function(_role(tree, path), *leaves), tree, *rest)
    return cast(T, mapped)


def _role(tree: Any, path: tuple[Any, ...]) -> str:
    """Returns the role declared by the innermost field on the path to a leaf."""
    role = "linear"
    for entry in path:
        if isinstance(tree, eqx.Module):
            role = type(tree).__dataclass_fields__[entry.name].metadata.get("role", role)
        is_field = isinstance(entry, jax.tree_util.GetAttrKey)
        tree = getattr(tree, entry.name) if is_field else tree[entry.idx if hasattr(entry, "idx") else entry.key]
    return role
