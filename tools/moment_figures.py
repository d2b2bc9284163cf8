"""Draws the figures of the pages on the closed forms, docs/images/moments-*.png.

python tools/moment_figures.py
"""

from itertools import pairwise
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from moca import moments as mm

IMAGES = Path(__file__).parent.parent / "docs" / "images"
BLUE, ORANGE, GREY = "#3b6ea5", "#d1772e", "0.6"


def band(axes, f, name, means, deviations=(0.0, 0.5, 1.5)):
    """Draws E[f] ± its deviation against the mean of the belief, for several widths."""
    for deviation, colour in zip(deviations, (GREY, BLUE, ORANGE), strict=True):
        beliefs = mm.DiagonalGaussian(means[:, None], np.full((len(means), 1), deviation**2))
        centre = jax.vmap(mm.expectation, (0, None))(beliefs, f)
        spread = jnp.sqrt(jax.vmap(mm.variance, (0, None))(beliefs, f))
        centre, spread = centre.reshape(-1), spread.reshape(-1)
        axes.plot(means, centre, color=colour, label=f"σ = {deviation:g}")
        axes.fill_between(means, centre - spread, centre + spread, color=colour, alpha=0.15, lw=0)
    axes.set(title=name, xlabel="mean of the belief")


def save(figure, name):
    figure.tight_layout()
    figure.savefig(IMAGES / f"moments-{name}.png", dpi=110)
    plt.close(figure)


def rows(count):
    return plt.subplots(1, count, figsize=(3.2 * count, 2.6), squeeze=False)


def families():
    x = np.linspace(-4, 4, 121)
    figure, ((one, two),) = rows(2)
    band(one, mm.RBF([1.0, -0.7, 0.9], [[-2.0], [0.0], [1.6]], [3.0]), "RBF, three bases", x)
    band(two, mm.RBF([1.0], [[0.0]], [1.0]), "one basis", x)
    one.legend(fontsize=7)
    save(figure, "rbf")
    figure, axes = rows(4)
    for each, (name, f) in zip(
        axes[0],
        {
            "erf": mm.Erf([1.0], [[1.5]], [0.0]),
            "ReLU": mm.ReLU([1.0], [[1.0]], [0.0]),
            "GELU": mm.GELU([1.0], [[1.0]], [0.0]),
            "cosine": mm.Fourier([1.0], [[1.5]], [0.0]),
        }.items(),
        strict=True,
    ):
        band(each, f, name, x)
    axes[0, 0].legend(fontsize=7)
    save(figure, "ridge")
    figure, ((one, two),) = rows(2)
    band(one, mm.Quadratic([[1.0]], [0.0]), "x²/2", x)
    band(two, mm.Polynomial.from_monomials([0.05, -0.5], [[4], [2]]), "x⁴/20 − x²/2", x)
    one.legend(fontsize=7)
    save(figure, "polynomial")


def angles():
    figure, ((one, two),) = rows(2)
    turn = np.linspace(0, 2 * np.pi, 100)
    for deviation, colour in ((0.2, GREY), (0.7, BLUE), (1.5, ORANGE)):
        q = mm.with_angles(mm.DiagonalGaussian([0.6], [deviation**2]), 0)
        values, vectors = np.linalg.eigh(q.covariance)
        circle = np.stack([np.cos(turn), np.sin(turn)], 1) * np.sqrt(np.maximum(values, 0))
        sine, cosine = (np.asarray(q.mean) + circle @ vectors.T).T
        one.plot(cosine, sine, color=colour, label=f"σ = {deviation:g}")
    one.plot(np.cos(turn), np.sin(turn), "k:", lw=0.7)
    one.set(title="matched (cos θ, sin θ)", aspect="equal")
    one.legend(fontsize=7)
    theta = np.asarray(mm.DiagonalGaussian([0.6], [0.49]).sample(jax.random.key(0), 400))
    two.scatter(np.cos(theta), np.sin(theta), s=3, color=BLUE)
    two.set(title="samples, σ = 0.7", aspect="equal", xlim=one.get_xlim(), ylim=one.get_ylim())
    save(figure, "angles")


def processes():
    rng = np.random.default_rng(0)
    inputs = rng.uniform(-3, 3, (12, 1))
    gp = mm.GP(inputs, np.sin(2 * inputs), [0.8], 1.0, 0.01)
    x = np.linspace(-4, 4, 121)
    figure, axes = rows(1)
    band(axes[0, 0], gp, "a GP at uncertain inputs", x[:, None][:, 0], (1e-3, 0.3, 1.0))
    axes[0, 0].plot(inputs, np.sin(2 * inputs), "k.", ms=4)
    axes[0, 0].legend(fontsize=7)
    save(figure, "gp")


def networks():
    rng = np.random.default_rng(1)
    sizes = (1, 32, 32, 32, 1)
    weights = [rng.normal(size=(b, a)) / np.sqrt(a) for a, b in pairwise(sizes)]
    f = mm.MatchedNetwork.dense([3 * weights[0], *weights[1:]], [np.zeros(b) for b in sizes[1:]], "erf")
    x = np.linspace(-2, 2, 61)
    figure, ((one, two),) = rows(2)
    for axes, diagonal in ((one, False), (two, True)):
        axes.plot(x, jax.vmap(f)(x[:, None])[:, 0], color=GREY, label="f")
        for deviation, colour in ((0.2, BLUE), (0.6, ORANGE)):
            go = jax.vmap(
                lambda m, s=deviation, d=diagonal: mm.propagate(
                    mm.DiagonalGaussian(m, jnp.full(1, s**2)), f, diagonal=d
                )
            )
            q = go(x[:, None])
            mean, spread = q.mean[:, 0], jnp.sqrt(q.variance[..., 0])
            axes.plot(x, mean, color=colour, label=f"σ = {deviation:g}")
            axes.fill_between(x, mean - spread, mean + spread, color=colour, alpha=0.15, lw=0)
        axes.set(title="diagonal" if diagonal else "full covariance", xlabel="mean of the belief")
    one.legend(fontsize=7)
    save(figure, "networks")


def supports():
    x = np.linspace(-4, 4, 121)
    figure, ((one, two, three),) = rows(3)
    for nu, colour in ((0.5, GREY), (1.5, BLUE), (2.5, ORANGE)):
        f = mm.Matern([1.0], [[0.0]], [1.0], nu)
        beliefs = mm.DiagonalGaussian(x[:, None], np.full((len(x), 1), 0.25))
        one.plot(x, jax.vmap(f)(x[:, None]), color=colour, lw=0.7, ls=":")
        one.plot(x, jax.vmap(mm.expectation, (0, None))(beliefs, f), color=colour, label=f"ν = {nu}")
    one.set(title="Matérn, σ = 0.5", xlabel="mean of the belief")
    one.legend(fontsize=7)
    square = mm.Quadratic([[2.0]], [0.0])
    gaussians = mm.DiagonalGaussian(x[:, None], np.ones((len(x), 1)))
    for axes, kind in ((two, mm.TruncatedGaussian), (three, mm.ClippedGaussian)):
        beliefs = kind(gaussians, np.full((len(x), 1), -1.0), np.full((len(x), 1), 1.0))
        axes.plot(x, jax.vmap(mm.expectation, (0, None))(beliefs, square), color=BLUE, label="E[x²] within ±1")
        axes.set(title=kind.__name__, xlabel="mean of the Gaussian", ylim=(0, 1.1))
        axes.legend(fontsize=7)
    save(figure, "supports")


def numerics():
    """Draws the errors of quadrature, sigma points and sampling."""
    p = mm.DiagonalGaussian([0.2, -0.1], [0.4, 0.3])
    f = mm.Erf([1.0, 1.0], [[0.7, -0.4], [1.0, 1.0]], [0.2, 0.0])
    truth = float(mm.expectation(p, f))
    points = np.array([2, 3, 4, 6, 8, 12, 16, 24])
    rule = [abs(float(mm.quadrature(p, f, int(n))) - truth) for n in points]
    counts = 4 ** np.arange(1, 9)
    values = jax.vmap(f)(p.sample(jax.random.key(0), 50 * int(counts[-1])))
    drawn = [np.sqrt(np.mean((values[: 50 * n].reshape(50, n).mean(axis=1) - truth) ** 2)) for n in counts]
    unscented = abs(float(mm.sigma_points(p, f)) - truth)
    figure, ((axes,),) = rows(1)
    figure.set_size_inches(4.8, 3)
    axes.loglog(points**2, np.maximum(rule, 1e-16), color=BLUE, marker="o", ms=3, label="quadrature")
    axes.loglog(counts, drawn, color=ORANGE, marker="o", ms=3, label="sampling (typical)")
    axes.loglog([5], [unscented], color="black", marker="s", ms=5, ls="", label="sigma points")
    axes.set(xlabel="evaluations of f", ylabel="error of E[f]")
    axes.legend(fontsize=7)
    save(figure, "numerics")


if __name__ == "__main__":
    with jax.enable_x64(True):
        for draw in (families, angles, processes, networks, supports, numerics):
            draw()
