"""Kernel expectations beside GPflow's and Emukit's, and PILCO's prediction beside its published formulas.

    python benchmarks/moments.py            # 4,096 inputs, 256 bases, five dimensions, float64

The libraries take turns in one process, after compilation; each row is a median of the rounds and a ratio. GPflow and
TensorFlow are needed (`pip install gpflow emukit`). E[k kᵀ] is taken over fewer inputs: the
answer for 4,096 would fill two gigabytes.
"""

import argparse
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", True)
sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.moments import pilco  # noqa: E402

from moca import moments as mm  # noqa: E402


def ours(kind, mean, spread, centers, lengthscales):
    """E[k], E[x k] and E[k kᵀ] of this library, compiled."""
    k = mm.RBF(None, centers, lengthscales**-2.0)
    beliefs = (mm.DiagonalGaussian if kind == "diagonal" else mm.Gaussian)(mean, spread)

    def first(p):
        return mm.cross_covariance(p, k) + jnp.outer(mm.expectation(p, k), p.mean)

    verbs = {"E[k]": lambda p: mm.expectation(p, k), "E[x k]": first, "E[k kT]": lambda p: mm.product(p, k, k)}
    return {name: (jax.jit(jax.vmap(verb)), beliefs) for name, verb in verbs.items()}


def gpflows(kind, mean, spread, centers, lengthscales):
    """The same by GPflow's `expectation`, as compiled TensorFlow functions."""
    import gpflow
    import tensorflow as tf
    from gpflow.probability_distributions import DiagonalGaussian, Gaussian

    kernel = gpflow.kernels.SquaredExponential(lengthscales=lengthscales)
    points = gpflow.inducing_variables.InducingPoints(centers)
    identity = gpflow.mean_functions.Identity(centers.shape[1])
    make = DiagonalGaussian if kind == "diagonal" else Gaussian
    expect = gpflow.expectations.expectation

    def compiled(f):
        return tf.function(lambda m, s: f(make(m, s)))

    return {
        "E[k]": compiled(lambda p: expect(p, (kernel, points))),
        "E[x k]": compiled(lambda p: expect(p, identity, (kernel, points))),
        "E[k kT]": compiled(lambda p: expect(p, (kernel, points), (kernel, points))),
    }


def median_seconds(calls, rounds):
    """Each call in turn, round after round; the median of each."""
    for call in calls:
        call()
    seconds = np.zeros((rounds, len(calls)))
    for row in seconds:
        for column, call in enumerate(calls):
            start = time.perf_counter()
            call()
            row[column] = time.perf_counter() - start
    return np.median(seconds, axis=0), np.median(seconds[:, 1:] / seconds[:, :1], axis=0)


def compare_with_gpflow(arguments, rng):
    d, n, m = 5, arguments.inputs, arguments.bases
    mean, centers, lengthscales = rng.normal(size=(n, d)), rng.normal(size=(m, d)), rng.uniform(0.5, 2, d)
    for kind in ("diagonal", "full"):
        spread = rng.uniform(0.05, 0.5, (n, d))
        if kind == "full":
            root = rng.normal(size=(n, d, d)) * 0.2
            spread = root @ root.swapaxes(1, 2) + 0.05 * np.eye(d)
        mine, theirs = (make(kind, mean, spread, centers, lengthscales) for make in (ours, gpflows))
        for name, (program, beliefs) in mine.items():
            count = n if name != "E[k kT]" else min(n, arguments.pairs)
            part = jax.tree.map(lambda leaf, c=count: leaf[:c], beliefs)
            peer = theirs[name]
            got, want = np.asarray(program(part)), np.asarray(peer(mean[:count], spread[:count]))
            want = want if want.shape == got.shape else want.swapaxes(1, 2)
            times, ratio = median_seconds(
                [
                    lambda program=program, part=part: jax.block_until_ready(program(part)),
                    lambda peer=peer, count=count, spread=spread: peer(mean[:count], spread[:count]).numpy(),
                ],
                arguments.rounds,
            )
            print(
                f"| {name}, {kind} | {count} | {np.abs(got - want).max():.0e} | {times[0] * 1e3:.1f} | "
                f"{times[1] * 1e3:.1f} | {ratio[0]:.1f} |",
                flush=True,
            )


def compare_with_emukit(arguments, rng):
    from emukit.quadrature.interfaces import IRBF
    from emukit.quadrature.kernels import QuadratureRBFGaussianMeasure
    from emukit.quadrature.measures import GaussianMeasure

    class Kernel(IRBF):
        lengthscales, variance = rng.uniform(0.5, 2, 5), 1.0

        def K(self, x1, x2):
            raise NotImplementedError

    mean, variance, centers = rng.normal(size=5), rng.uniform(0.05, 0.5, 5), rng.normal(size=(arguments.bases, 5))
    kernel = Kernel()
    theirs = QuadratureRBFGaussianMeasure(kernel, GaussianMeasure(mean, variance))
    p, k = mm.DiagonalGaussian(mean, variance), mm.RBF(None, centers, kernel.lengthscales**-2.0)
    program = jax.jit(mm.expectation)
    error = np.abs(program(p, k) - theirs.qK(centers)[0]).max()
    times, ratio = median_seconds(
        [lambda: jax.block_until_ready(program(p, k)), lambda: theirs.qK(centers)], 20 * arguments.rounds
    )
    print(
        f"| Emukit's qK | 1 | {error:.0e} | {times[0] * 1e3:.3f} | {times[1] * 1e3:.3f} | {ratio[0]:.1f} |", flush=True
    )


def compare_with_pilco(arguments, rng):
    import gpflow
    import tensorflow as tf

    n, d, outputs = 100, 5, 4
    inputs, targets = rng.normal(size=(n, d)), rng.normal(size=(n, outputs))
    scales, signal, noise = rng.uniform(1, 3, (outputs, d)), rng.uniform(0.5, 1.5, outputs), np.full(outputs, 0.1)
    mean, root = rng.normal(size=d), rng.normal(size=(d, d)) * 0.3
    p, gp = mm.Gaussian(mean, root @ root.T), mm.GP(inputs, targets, scales, signal, noise)
    program = jax.jit(lambda p, gp: mm.propagate(p, gp, joint=True))
    numbers = inputs, targets, scales, signal, noise, mean, root @ root.T
    got, want = program(p, gp), pilco.predict(*numbers)
    error = max(np.abs(got.mean[d:] - want[0]).max(), np.abs(got.covariance[d:, d:] - want[1]).max())
    times, ratio = median_seconds(
        [lambda: jax.block_until_ready(program(p, gp).mean), lambda: pilco.predict(*numbers)], arguments.rounds
    )
    print(f"| PILCO's gp0 in NumPy | 1 | {error:.0e} | {times[0] * 1e3:.1f} | {times[1] * 1e3:.1f} | {ratio[0]:.1f} |")
    # GPflow's uncertain_conditional shares one kernel among the outputs.
    shared = mm.GP(inputs, targets, scales[0], signal[0], noise[0])
    kernel = gpflow.kernels.SquaredExponential(lengthscales=scales[0], variance=signal[0])
    points = gpflow.inducing_variables.InducingPoints(inputs)
    gram = np.asarray(kernel(inputs)) + noise[0] * np.eye(n)
    # The exact posterior as an inducing distribution: q(u) = N(K (K + noise)⁻¹ y, K − K (K + noise)⁻¹ K).
    smooth = np.asarray(kernel(inputs)) @ np.linalg.inv(gram)
    left = np.asarray(kernel(inputs)) - smooth @ np.asarray(kernel(inputs))
    q_root = np.linalg.cholesky(left + 1e-9 * np.eye(n))
    conditional = gpflow.conditionals.uncertain_conditional
    peer = tf.function(
        lambda m, s: conditional(
            m, s, points, kernel, tf.constant(smooth @ targets), tf.constant(np.repeat(q_root[None], outputs, 0)),
            full_output_cov=True,
        )
    )  # fmt: skip
    got = program(p, shared)
    want = [np.asarray(each)[0] for each in peer(mean[None], (root @ root.T)[None])]
    error = max(np.abs(got.mean[d:] - want[0]).max(), np.abs(got.covariance[d:, d:] - want[1]).max())
    times, ratio = median_seconds(
        [
            lambda: jax.block_until_ready(program(p, shared).mean),
            lambda: peer(mean[None], (root @ root.T)[None])[0].numpy(),
        ],
        arguments.rounds,
    )
    print(
        f"| GPflow's uncertain_conditional | 1 | {error:.0e} | {times[0] * 1e3:.1f} | {times[1] * 1e3:.1f} | "
        f"{ratio[0]:.1f} |"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=4096)
    parser.add_argument("--bases", type=int, default=256)
    parser.add_argument("--pairs", type=int, default=128, help="inputs for E[k kᵀ]")
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    print("| what | inputs | largest difference | ours, ms | theirs, ms | theirs over ours |")
    print("|---|---|---|---|---|---|")
    for compare in (compare_with_gpflow, compare_with_emukit, compare_with_pilco):
        compare(arguments, np.random.default_rng(0))


if __name__ == "__main__":
    main()
