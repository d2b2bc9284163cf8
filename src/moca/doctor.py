"""A check of this machine: its hardware and versions, the closed forms, and a training program."""

import io
import math
import shutil
import time
from collections.abc import Callable
from contextlib import redirect_stderr
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from moca import moments as mm
from moca.config import override
from moca.drivers import ScanTrainer
from moca.envs.playground import Playground
from moca.paper import cliff
from moca.runs.origin import versions


def examine(say: Callable[[str], None]) -> bool:
    """Runs all checks and passes each result to `say`; returns True if none failed."""
    well = True
    for name, check in CHECKS.items():
        started = time.perf_counter()
        try:
            found, fine = check(), True
        except Exception as error:  # any failure is a finding
            found, fine = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}", False
        well &= fine or name in OPTIONAL
        mark = "ok" if fine else "missing" if name in OPTIONAL else "WRONG"
        say(f"{mark:8} {name}: {found} ({time.perf_counter() - started:.1f} s)")
    return well


def _versions() -> str:
    return ", ".join(f"{package} {version or 'not installed'}" for package, version in versions().items())


def _device() -> str:
    devices = jax.devices()
    return f"{len(devices)} × {devices[0].device_kind} ({devices[0].platform})"


def _precision() -> str:
    """Returns the error of a matrix product on this device against double precision."""
    a, b = np.random.default_rng(0).normal(size=(2, 256, 256))
    product = np.asarray(jnp.asarray(a, jnp.float32) @ jnp.asarray(b, jnp.float32), float)
    error = np.abs(product - a @ b).max() / np.abs(a @ b).max()
    kind = "float32" if error < 1e-5 else "below float32 (TF32 or bfloat16); expectations ask for full precision"
    return f"matrix products are {kind}: relative error {error:.0e}"


def _disk() -> str:
    free = shutil.disk_usage(Path.cwd()).free / 1e9
    if free < 1:
        raise OSError(f"only {free:.1f} GB are free here; checkpoints of ten runs of 100,000 steps take about 0.3 GB")
    return f"{free:.0f} GB free"


def _encoder() -> str:
    import imageio_ffmpeg

    return f"ffmpeg {imageio_ffmpeg.get_ffmpeg_version()}"


def _rendering() -> str:
    env = Playground("CartpoleBalance").env
    state = jax.jit(env.reset)(jax.random.key(0))
    with redirect_stderr(io.StringIO()):  # the renderer prints a progress bar
        frame = env.render([state], height=48, width=64)[0]
    return f"MuJoCo drew a frame of {frame.shape[1]} × {frame.shape[0]}"


def _heart() -> str:
    """Compares the expectation of an RBF under a Gaussian with a sum over a fine grid."""
    grid = np.linspace(-12, 12, 200_001)
    for mean, variance, precision in ((0.3, 0.5, 4.0), (-1.0, 0.01, 100.0), (2.0, 3.0, 0.2)):
        value = mm.RBF(jnp.array([1.5]), jnp.array([[0.1]]), jnp.array([precision]))
        found = float(mm.expectation(mm.DiagonalGaussian(jnp.array([mean]), jnp.array([variance])), value))
        density = np.exp(-((grid - mean) ** 2) / (2 * variance)) / math.sqrt(2 * math.pi * variance)
        exact = float(np.trapezoid(1.5 * np.exp(-precision * (grid - 0.1) ** 2 / 2) * density, grid))
        if abs(found - exact) > 1e-5 * abs(exact) + 1e-7:
            raise ArithmeticError(f"E[V] is {found}, but should be {exact}")
    return "three expectations agree with quadrature"


def _training() -> str:
    """Trains for one episode on the one-dimensional cliff: real physics takes longer to compile."""
    short = {"env.episode_length": 50, "train.steps": 50, "train.warmup": 5, "train.batch": 8, "train.eval_every": 1}
    (report,) = ScanTrainer([override(cliff.CONFIG, short)], [0], cliff.SETTINGS["cliff"])
    if not all(np.isfinite(values).all() for values in report.metrics.values()):
        raise ArithmeticError("a metric is not finite")
    return f"50 steps of MoCA, loss {report.metrics['critic_loss'][0]:.2g}"


OPTIONAL = ("rendering", "video encoder")  # training works without them
CHECKS: dict[str, Callable[[], str]] = {
    "versions": _versions,
    "device": _device,
    "precision": _precision,
    "disk": _disk,
    "video encoder": _encoder,
    "rendering": _rendering,
    "closed forms": _heart,
    "a training program": _training,
}
