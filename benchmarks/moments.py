"""Kernel expectations against GPflow's and Emukit's, PILCO's against its formulas.

    python benchmarks/moments.py            # 4,096 inputs, 256 bases, five dimensions, float64

The libraries take turns in one process, after compilation; each row is a median of the rounds and
of their ratios. GPflow and TensorFlow are needed (`pip install gpflow emukit`). E[k kᵀ] of 4,096
inputs takes two gigabytes, and several such arrays exist at once, so both libraries compute it in
blocks of `--block` inputs. OpenBLAS uses one thread: on a busy machine its threads wait for each
other, and a solve with a small matrix takes a hundred times as long.
"""

import argparse
import os
import sys
import time
from collections import deque
from pathlib import Path

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", True)
sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.moments import pilco  # noqa: E402

from moca import moments as mm  # noqa: E402


def ours(kind, mean, spread, centers, lengthscales):
    """Returns E[k], E[x k] and E[k kᵀ] of this library, compiled."""
    k = mm.RBF(None, centers, lengthscales**-2.0)
    beliefs = (mm.DiagonalGaussian if kind == "diagonal" else mm.Gaussian)(mean, spread)

    def first(p):
        return mm.cross_covariance(p, k) + jnp.outer(mm.expectation(p, k), p.mean)

    verbs = {"E[k]": lambda p: mm.expectation(p, k), "E[x k]": first, "E[k kT]": lambda p: mm.product(p, k, k)}
    return {name: (jax.jit(jax.vmap(verb)), beliefs) for name, verb in verbs.items()}


def gpflows(kind, mean, spread, centers, lengthscales):
    """Returns the same by GPflow's `expectation`, as compiled TensorFlow functions."""
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
    """Times the calls in turn for several rounds; returns the median of each."""
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
            block = arguments.block if name == "E[k kT]" else n
            parts = [slice(i, min(i + block, n)) for i in range(0, n, block)]

            def ours_on(part, program=program, beliefs=beliefs):
                return jax.block_until_ready(program(jax.tree.map(lambda leaf: leaf[part], beliefs)))

            def theirs_on(part, peer=theirs[name], spread=spread):
                return peer(mean[part], spread[part]).numpy()

            got, want = np.asarray(ours_on(parts[0])), theirs_on(parts[0])
            want = want if want.shape == got.shape else want.swapaxes(1, 2)
            times, ratio = median_seconds(
                [lambda on=on, parts=parts: deque(map(on, parts), maxlen=0) for on in (ours_on, theirs_on)],
                arguments.rounds,
            )
            print(
                f"| {name}, {kind} | {n} | {np.abs(got - want).max():.0e} | {times[0] * 1e3:.1f} | "
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
    # GPflow's uncertain_conditional shares one kernel among the outputs. Its jitter, 1e-6, would
    # show in the numbers.
    gpflow.config.set_default_jitter(1e-12)
    shared = mm.GP(inputs, targets, scales[0], signal[0], noise[0])
    kernel = gpflow.kernels.SquaredExponential(lengthscales=scales[0], variance=signal[0])
    points = gpflow.inducing_variables.InducingPoints(inputs)
    # The exact posterior as an inducing distribution: q(u) = N(K (K + noise)⁻¹ y, noise · K (K +
    # noise)⁻¹).
    values, vectors = np.linalg.eigh(np.asarray(kernel(inputs)))
    shrink = np.maximum(values, 0) / (np.maximum(values, 0) + noise[0])
    smooth = (vectors * shrink) @ vectors.T
    q_root = np.linalg.qr((vectors * np.sqrt(noise[0] * shrink)).T)[1].T
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
    parser.add_argument("--block", type=int, default=512, help="inputs at a time for E[k kᵀ]")
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    print("| what | inputs | largest difference | ours, ms | theirs, ms | theirs over ours |")
    print("|---|---|---|---|---|---|")
    for compare in (compare_with_gpflow, compare_with_emukit, compare_with_pilco):
        compare(arguments, np.random.default_rng(0))


if __name__ == "__main__":
    main()
