"""Figure 1: one Gaussian, one radial basis, and the effect of sampling on a decision [Fig. 1].

The paper prints the two expectations, E[A] = 0.057 and E[B] = 0.025, but not the parameters. Those
below are ours [choice]: a unit Gaussian and a basis a tenth as wide, so that few samples fall where
the value is, and two means whose expectations round to the printed numbers.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from moca import figures
from moca import moments as mm

NAME = "figure1"  # of the files
SAMPLES = tuple(2**k for k in range(11))  # K = 1 … 1024
TRIALS = 10_000


@dataclass(frozen=True)
class Toy:
    """A value function with one narrow peak, and two actions with one mean next state each."""

    center: float = 0.0
    lengthscale: float = 0.1
    spread: float = 1.0
    mean_a: float = 1.06
    mean_b: float = 1.67

    @property
    def value(self) -> mm.RBF:
        """V(s′)."""
        return mm.RBF([1.0], [[self.center]], [self.lengthscale**-2])

    def belief(self, mean: float) -> mm.DiagonalGaussian:
        """p(s′) for the action that leads to `mean`."""
        return mm.DiagonalGaussian(jnp.array([mean]), jnp.array([self.spread**2]))


@partial(jax.jit, static_argnames=("count", "trials"))
def estimates(
    p: mm.DiagonalGaussian, value: mm.RBF, key: Key[Array, ""], count: int, trials: int = TRIALS
) -> Float[Array, "trials"]:
    """Returns `trials` independent Monte Carlo estimates of E[V(s′)], each from `count` samples.

    Trials run in sequential blocks, so that memory does not grow with their number.
    """

    def one(key: Key[Array, ""]) -> Float[Array, ""]:
        return mm.expectation(mm.Empirical(p.sample(key, count)), value)

    return jax.lax.map(one, jax.random.split(key, trials), batch_size=1000)


def wrong_action_rate(toy: Toy, key: Key[Array, ""], count: int, trials: int = TRIALS) -> float:
    """Returns the share of trials in which `count` samples per action rank B above A.

    Ties are broken at random. They do occur: if no sample falls near the peak, both averages are
    zero in float32.
    """
    key_a, key_b = jax.random.split(key)
    a = estimates(toy.belief(toy.mean_a), toy.value, key_a, count, trials)
    b = estimates(toy.belief(toy.mean_b), toy.value, key_b, count, trials)
    return float(jnp.mean(b > a) + jnp.mean(b == a) / 2)


def draw(folder: Path, formats: tuple[str, ...] = figures.FORMATS, toy: Toy | None = None) -> list[Path]:
    """Writes Figure 1, with panels A, B and C; returns the files."""
    toy = toy or Toy()
    with figures.style():
        figure, (a, b, c) = plt.subplots(1, 3, figsize=(10, 3.1), width_ratios=(1.15, 1, 1))
        _panel_a(a, toy)
        _panel_b(b, toy)
        _panel_c(c, toy)
        return figures.save(figure, folder, NAME, formats)


def _panel_a(axes: Axes, toy: Toy) -> None:
    belief, value = toy.belief(toy.mean_a), toy.value
    exact = float(mm.expectation(belief, value))
    x = np.linspace(-2.2, 4.2, 1601)
    density = np.exp(-(((x - toy.mean_a) / toy.spread) ** 2) / 2) / (toy.spread * np.sqrt(2 * np.pi))
    values = np.asarray(jax.vmap(value)(x[:, None]))
    axes.plot(x, values, color=figures.COLOURS["ce"], label=r"value $V(s')$")
    axes.plot(x, density, color=figures.COLOURS["sac"], linestyle="--", label=r"belief $p(s')$")
    axes.fill_between(x, density * values, color=figures.COLOURS["moca"], alpha=0.75, linewidth=0)
    axes.plot(x, density * values, color=figures.COLOURS["moca"], label=r"$p(s')\,V(s')$")
    axes.annotate(
        rf"area $=\mathbb{{E}}[V(s')]={exact:.3f}$",
        xy=(toy.center + 0.6 * toy.lengthscale, 0.12),
        xytext=(1.0, 0.62),
        arrowprops={"arrowstyle": "-", "color": figures.COLOURS["grey"], "linewidth": 0.8},
    )
    axes.set(
        xlabel=r"next state $s'$",
        ylabel="value, density",
        ylim=(0, 1.08),
        title=r"$\bf{A}$  the expectation is an area",
    )
    axes.legend(loc="upper right")


def _panel_b(axes: Axes, toy: Toy, shown: int = 150) -> None:
    belief, value = toy.belief(toy.mean_a), toy.value
    exact = float(mm.expectation(belief, value))
    jitter = np.random.default_rng(0).uniform(-0.25, 0.25, shown)
    mean, low, high = [], [], []
    for position, count in enumerate(SAMPLES):
        each = np.asarray(estimates(belief, value, jax.random.key(count), count))
        axes.plot(
            2.0 ** (position + jitter), each[:shown], ".", markersize=2.5, alpha=0.45,
            color=figures.COLOURS["mc"], rasterized=True,
            label="one estimate" if position == 0 else None,
        )  # fmt: skip
        mean.append(each.mean())
        low.append(np.quantile(each, 0.05))
        high.append(np.quantile(each, 0.95))
    axes.fill_between(SAMPLES, low, high, color=figures.COLOURS["mc"], alpha=0.25, linewidth=0, label="5 % to 95 %")
    axes.plot(SAMPLES, mean, color="#8A5F00", linewidth=1.2, label="their mean")
    axes.axhline(exact, color=figures.COLOURS["moca"], linestyle="--", label=f"exact, {exact:.3f}")
    _sample_axis(axes)
    axes.set(xlabel="samples $K$", ylabel=r"estimate of $\mathbb{E}[V(s')]$", ylim=(-0.02, 0.62))
    axes.set_title(r"$\bf{B}$  sampling scatters")
    axes.legend(loc="upper right")


def _panel_c(axes: Axes, toy: Toy) -> None:
    rates = np.array([wrong_action_rate(toy, jax.random.key(count), count) for count in SAMPLES])
    margin = 1.96 * np.sqrt(rates * (1 - rates) / TRIALS)
    exact = [float(mm.expectation(toy.belief(mean), toy.value)) for mean in (toy.mean_a, toy.mean_b)]
    axes.fill_between(SAMPLES, 100 * (rates - margin), 100 * (rates + margin), color=figures.COLOURS["mc"], alpha=0.3)
    axes.plot(SAMPLES, 100 * rates, "o-", markersize=3.5, color=figures.COLOURS["mc"], label="Monte Carlo")
    axes.plot(
        SAMPLES, [100.0 * (exact[1] > exact[0])] * len(SAMPLES), "s-", markersize=3.5,
        color=figures.COLOURS["moca"], label="analytic", clip_on=False,
    )  # fmt: skip
    _sample_axis(axes)
    axes.set(xlabel="samples $K$ per action", ylabel="wrong action chosen (%)", ylim=(-1.5, 52))
    axes.set_title(rf"$\bf{{C}}$  $\mathbb{{E}}[A]={exact[0]:.3f}$ against $\mathbb{{E}}[B]={exact[1]:.3f}$")
    axes.legend(loc="upper right")


def _sample_axis(axes: Axes) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(SAMPLES[::2], [str(count) for count in SAMPLES[::2]])
    axes.minorticks_off()
