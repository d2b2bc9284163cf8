"""The paper's two tasks. Nothing here imports jax."""

from typing import Any

from moca.studies.registry import Plane, Task

CARTPOLE, PENDULUM = "CartpoleBalance", "PendulumSwingup"
SOLVED = {CARTPOLE: 900.0, PENDULUM: 600.0}  # the final return at which a seed has solved the task


def plane() -> Plane:
    """Returns angles of the pendulum, zero upright, velocities, and the observations there."""
    import numpy as np

    def observe(angle: Any, velocity: Any) -> Any:
        import jax.numpy as jnp

        return jnp.stack([jnp.sin(angle), jnp.cos(angle), velocity], axis=-1)

    return Plane(np.linspace(-np.pi, np.pi, 73), np.linspace(-8, 8, 65), observe)


TASKS = {
    CARTPOLE: Task(figure="figure2", noises=frozenset({"0.025", "0.05", "state-norm 0.05"})),  # [Fig. 2]
    PENDULUM: Task(  # [Fig. 3]
        solved=SOLVED[PENDULUM],
        paired=True,
        below=("coverage_1sigma", "epistemic_std"),
        figure="figure3",
        noises=frozenset({"0.025", "0.05"}),
        plane=plane,
    ),
}
